"""Norms of the gradients of a step's micro-batches, and of what they add up to: what noise scales are made of.

A micro-batch is a backward pass. Torch's engine numbers them, so that nobody has to say when one begins.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

import torch

from dataaudit.vitals.hooks import Hook, nothing
from dataaudit.vitals.noise import GradientNorms, NoiseScale, direction_consistency, gsnr, signal_and_noise
from dataaudit.vitals.norms import norm

_TASK = "_current_graph_task_id"
_ENGINE = importlib.import_module("torch._C")
REST = 64
"""Steps between two looks where a step has one backward pass."""
STATS = (
    ("gsnr", "step"),
    ("direction_consistency", "step"),
    ("grad_noise_scale", "ema"),
    ("grad_noise_scale", "low"),
    ("grad_noise_scale", "high"),
)


def why_not() -> str | None:
    """Return why gradients of micro-batches cannot be told apart; None where they can."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        return "gradients are averaged over ranks between micro-batches"
    return None


class MicroBatches:
    """Looks at gradients as backward passes make them, in the steps in which it is told to.

    Args:
        parameters: That require gradients, all on one device.
        most: Micro-batches of a step that it has room for; of a step with more nothing is said.
        failed: Called with an error's class, file and line where a hook raised; the step has no numbers.
    """

    def __init__(
        self, parameters: Sequence[torch.nn.Parameter], most: int, failed: Callable[[str], None] = nothing
    ) -> None:
        self.scale = NoiseScale(device=parameters[0].device)
        self._most = most
        self._task = -1
        self._on = False
        self._last = 0
        """Backward passes of the latest step that was looked at."""
        self._fired: list[set[int]] = []
        self._together = torch.zeros(len(parameters), device=parameters[0].device)
        self._failed = failed
        self._handles = [
            one.register_hook(Hook(self._passes(index), self._spoilt)) for index, one in enumerate(parameters)
        ]
        self._norms = GradientNorms(
            parameters, most, self._spoilt
        )  # its hooks run after those that say which pass it is
        self._handles += [
            one.register_post_accumulate_grad_hook(Hook(self._adds(index), self._spoilt))
            for index, one in enumerate(parameters)
        ]

    def start(self, step: int, *, looks: bool) -> None:
        """Begin a step; where steps have one backward pass, most of them are not looked at."""
        self._on = looks and (self._last != 1 or step % REST == 0)
        self._task = -1
        self._fired = []
        if self._on:
            self._norms.clear()
            self._together.zero_()

    def finish(self) -> torch.Tensor | None:
        """End a step; return its numbers in the order of :data:`STATS`, float32, in units of a micro-batch.

        None where it was not looked at, has one backward pass or too many, or passes that reach other parameters than
        each other: then they are no micro-batches of one loss.
        """
        if not self._on:
            return None
        self._on = False
        self._norms.pause()
        number = self._last = len(self._fired)
        if not 2 <= number <= self._most or any(one != self._fired[0] for one in self._fired):
            return None
        squares = self._norms.totals()[:number]
        mean = self._together.double().sum() / number**2
        self.scale.update(*signal_and_noise(squares, mean))
        found = (gsnr(squares, mean), direction_consistency(squares, mean), self.scale.b_simple, *self.scale.interval())
        return torch.stack([one.float() for one in found])

    def close(self) -> None:
        """Take the hooks off."""
        self._norms.close()
        for handle in self._handles:
            handle.remove()

    def _spoilt(self, why: str) -> None:
        """Take that a hook failed."""
        self._on = False
        self._norms.pause()
        self._failed(why)

    def _passes(self, index: int) -> Callable[[torch.Tensor], None]:
        def see(_: torch.Tensor) -> None:
            if not self._on:
                return
            task = int(getattr(_ENGINE, _TASK)())
            if task != self._task:
                self._task = task
                self._fired.append(set())
                if len(self._fired) <= self._most:
                    self._norms.begin(len(self._fired) - 1)
                else:
                    self._norms.pause()
            self._fired[-1].add(index)

        return see

    def _adds(self, index: int) -> Callable[[torch.Tensor], None]:
        def see(parameter: torch.Tensor) -> None:
            if self._on and parameter.grad is not None:
                self._together[index].copy_(norm(parameter.grad.detach()).square())

        return see
