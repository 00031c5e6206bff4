"""Whether gradients, and what an optimizer keeps, are finite: one moment that is not spoils every update after it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dataaudit.vitals.metric import Column
from dataaudit.vitals.norms import as_row
from dataaudit.vitals.sharding import local

STRIDE = 64
"""One element of the optimizer's state in so many is read, another one in each step."""
SAMPLED = 256
"""Elements of each gradient that are read, others in each step."""
_PARTS = ("sampled", "attention", "mlp", "block")
"""Of a layer, in the order of the forward pass; sampled: its largest logit."""


def state_finite(
    optimizer: torch.optim.Optimizer, parameters: Sequence[torch.nn.Parameter], step: int
) -> torch.Tensor | None:
    """Return the share of the state's tensors whose sampled elements are all finite; None: there is no state.

    Of sharded ones this rank's parts are read. Nothing waits for a device. A single element that is not finite is found
    within :data:`STRIDE` calls; what has spread, as it does through a decayed moment's use, at once.
    """
    kept = [
        local(item).flatten()
        for parameter in parameters
        for name, item in optimizer.state.get(parameter, {}).items()
        if isinstance(item, torch.Tensor) and item.is_floating_point() and item.shape == parameter.shape
        if name != "step"  # of a scalar parameter it has the same shape, and may lie on the host
    ]
    sampled = [item[step % STRIDE % len(item) :: STRIDE] for item in kept if len(item)]
    if not sampled:
        return None
    with torch.no_grad():  # a few kernels for all tensors: some for each would be thousands
        samples = torch.cat(sampled).split([len(item) for item in sampled])
        largest = torch._foreach_norm(samples, math.inf)  # noqa: SLF001 - what clip_grad_norm_ takes norms with
        return torch.stack(largest).isfinite().float().mean()


class GradientsFinite:
    """Reads some elements of every gradient, of all layers at once, in a few operators.

    What is not finite in a loss reaches every element of nearly every gradient. What spoils single elements, such as a
    row of an embedding, is found in the layer's turn, or when its elements have theirs.
    """

    def __init__(self, groups: Sequence[Sequence[torch.nn.Parameter]], device: torch.device) -> None:
        self._parameters = [item for own in groups for item in own]
        self._zeros = torch.zeros(SAMPLED, device=device)
        ends = [0, *itertools.accumulate(sum(min(local(item).numel(), SAMPLED) for item in own) for own in groups)]
        self._ends = torch.tensor(ends, device=device)

    def some_bad(self, step: int) -> torch.Tensor:
        """Return whether each layer's gradient has elements that are not finite, bool[layers]."""
        with torch.no_grad():
            some = torch.cat([self._zeros[:1], *(self._some(parameter, step) for parameter in self._parameters)])
            return (~some.isfinite()).cumsum(0)[self._ends].diff() > 0

    def _some(self, parameter: torch.nn.Parameter, step: int) -> torch.Tensor:
        number = min(local(parameter).numel(), SAMPLED)
        gradient = local(parameter.grad)
        row = None if gradient is None or gradient.is_sparse else as_row(gradient)
        if row is None:
            return self._zeros[:number]
        first = step * SAMPLED % (len(row) - number + 1)
        return row[first : first + number].to(self._zeros.dtype)


def first_bad(columns: Sequence[Column]) -> dict[str, Any] | None:
    """Return which of the numbers that are not finite comes first in the forward pass: the detail of an event."""
    named = [column for column in columns if column.metric == "activation_mean_abs" or column.stat == _PARTS[0]]
    if not named:
        return None

    def order(column: Column) -> tuple[float, int, int]:
        ends = {"embedding": -math.inf, "final_norm": math.inf}
        return (
            ends.get(column.stat, column.layer),
            _PARTS.index(column.stat) if column.stat in _PARTS else 0,
            column.head,
        )

    first = min(named, key=order)
    return _detail(first.metric, first.layer, first.head, first.stat, len(named) - 1)


def first_bad_gradient(layers: Sequence[int], bad: np.ndarray, *, ends: bool) -> dict[str, Any] | None:
    """Return in which layer a gradient was not finite first, as far as that can be told: the detail of an event.

    A backward pass goes from the last layer to the first, and spoils those after the one it began in. Where what lies
    behind the layers is spoilt too (by a loss that is not finite, or by clipping), it is ``all`` of layer -1.
    """
    if not bad.any():
        return None
    spoilt = np.asarray(layers)[bad[:-1]]
    if bad[-1] or (not ends and len(spoilt) == len(layers) > 1):
        return _detail("grad_norm", -1, -1, "all", len(spoilt) - 1)
    layer = int(spoilt.max())
    return _detail("grad_norm", layer, -1, "at_step" if layer >= 0 else "others", len(spoilt) - 1)


def _detail(metric: str, layer: int, head: int, stat: str, others: int) -> dict[str, Any]:
    return {"metric": metric, "layer": layer, "head": head, "stat": stat, "others": others}
