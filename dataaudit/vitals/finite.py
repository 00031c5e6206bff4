"""Whether what an optimizer keeps is finite: a moment that is not spoils every update after it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

STRIDE = 64
"""One element in so many is looked at, another one in each step."""


def state_finite(
    optimizer: torch.optim.Optimizer, parameters: Sequence[torch.nn.Parameter], step: int
) -> torch.Tensor | None:
    """Return the share of the state's tensors whose sampled elements are all finite; None: there is no state.

    Nothing waits for a device. A number that is not finite in one element of a tensor is found within
    :data:`STRIDE` looks at it; one that has spread, as it does through a decayed moment's use, at once.

    Args:
        optimizer: Of the parameters.
        parameters: Whose state is looked at, all on one device.
        step: Says which elements.

    Returns:
        float32 scalar, 0 to 1, on the device of the state.
    """
    held = [
        one.flatten()[step % STRIDE % one.numel() :: STRIDE]
        for parameter in parameters
        for one in optimizer.state.get(parameter, {}).values()
        if isinstance(one, torch.Tensor) and one.is_floating_point() and one.shape == parameter.shape and one.numel()
    ]
    if not held:
        return None
    with torch.no_grad():
        return torch.stack([one.isfinite().all() for one in held]).float().mean()
