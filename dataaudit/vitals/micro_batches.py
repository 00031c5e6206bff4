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
_FEW = 16
"""Parameters, the smallest, by which is known what a scaler and clipping did."""
_SAME = 1e-3
"""Of a logarithm of base 2: how far from a whole number the factor of a scaler alone may be."""
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
        optimizers: That update them. The noise scale is an average over steps of gradients as the first one gets them:
            unscaled, since the scale of a loss changes, and clipped. Steps without its update are left out.
    """

    def __init__(
        self,
        parameters: Sequence[torch.nn.Parameter],
        most: int,
        failed: Callable[[str], None] = nothing,
        optimizers: Sequence[torch.optim.Optimizer] = (),
    ) -> None:
        self.scale = NoiseScale(device=parameters[0].device)
        self._most = most
        self._task = -1
        self._on = self._adding = self._added = False
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
        self._factor: torch.Tensor | None = None
        """What the squared norm of a gradient was multiplied by before the update."""
        self._few = _smallest(parameters, optimizers[0]) if optimizers else {}
        self._handles += [one.register_step_pre_hook(Hook(self._updates, self._spoilt)) for one in optimizers[:1]]

    def start(self, step: int, *, looks: bool) -> None:
        """Begin a step; where steps have one backward pass, most of them are not looked at."""
        self._on = looks and (self._last != 1 or step % REST == 0)
        self._adding, self._added = looks, False
        self._task, self._factor = -1, None
        self._fired = []
        if self._on:
            self._norms.clear()
        if looks:
            self._together.zero_()

    def finish(self) -> torch.Tensor | None:
        """End a step; return its numbers in the order of :data:`STATS`, float32, in units of a micro-batch.

        None where it was not looked at, has one backward pass or too many, or passes that reach other parameters than
        each other: then they are no micro-batches of one loss.
        """
        self._adding = False
        if not self._on:
            return None
        self._on = False
        self._norms.pause()
        number = self._last = len(self._fired)
        if not 2 <= number <= self._most or any(one != self._fired[0] for one in self._fired):
            return None
        squares = self._norms.totals()[:number]
        mean = self._together.double().sum() / number**2
        if self._factor is not None or not self._few:
            factor = 1.0 if self._factor is None else self._factor
            self.scale.update(*(one * factor for one in signal_and_noise(squares, mean)))
        found = (gsnr(squares, mean), direction_consistency(squares, mean), self.scale.b_simple, *self.scale.interval())
        return torch.stack([one.float() for one in found])

    @property
    def norm(self) -> torch.Tensor | None:
        """Norm of all gradients of the latest step as they were added up, before clipping; None: not looked at."""
        return self._together.double().sum().sqrt().float() if self._added else None

    @property
    def loss_scale(self) -> torch.Tensor | None:
        """What a scaler multiplied gradients of the latest step by, a scalar; None: it had no update.

        Scalers take powers of 2. NaN where clipping came in between, which hides by how much.
        """
        if self._factor is None:
            return None
        power = -self._factor.log2() / 2
        return torch.where((power - power.round()).abs() < _SAME, power.round().exp2(), torch.nan).float()

    @property
    def finite(self) -> torch.Tensor:
        """Whether each pass's own gradient is finite, bool[most]; False where there was none."""
        return self._norms.totals().isfinite()

    @property
    def passes(self) -> int:
        """Backward passes of the latest step that was looked at; 0: none was told apart from others."""
        return len(self._fired) if len(self._fired) <= self._most else 0

    @property
    def why(self) -> str:
        """Why the latest step that was looked at gave no noise; empty where it did."""
        if self._last == 1:
            return "a step has one backward pass: noise needs two micro-batches or more"
        if self._last > self._most:
            return f"a step has {self._last} backward passes: VitalsConfig(micro_batches={self._last}) makes room"
        if self._fired and any(one != self._fired[0] for one in self._fired):
            return "backward passes reach other parameters than each other: they are no micro-batches of one loss"
        return ""

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

    def _updates(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """Compare some gradients with what backward passes made: a scaler and clipping multiply all of them alike."""
        if not self._adding or self._factor is not None:
            return
        with torch.no_grad():
            now = torch.stack([_square(one) for one in self._few.values()]).double().sum()
            scale = getattr(optimizer, "grad_scale", None)  # fused ones unscale within their step
            if scale is not None:
                now = now / scale.to(now).square().reshape(())
            self._factor = now / self._together[[*self._few]].double().sum()

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
            if self._adding and parameter.grad is not None:
                self._added = True
                self._together[index].copy_(norm(parameter.grad.detach()).square())

        return see


def _square(parameter: torch.nn.Parameter) -> torch.Tensor:
    return parameter.new_zeros((), dtype=torch.float32) if parameter.grad is None else norm(parameter.grad).square()


def _smallest(
    parameters: Sequence[torch.nn.Parameter], optimizer: torch.optim.Optimizer
) -> dict[int, torch.nn.Parameter]:
    """Return the smallest parameters of an optimizer, by their place."""
    own = {id(one) for group in optimizer.param_groups for one in group["params"]}
    found = [(place, one) for place, one in enumerate(parameters) if id(one) in own]
    return dict(sorted(found, key=lambda one: one[1].numel())[:_FEW])
