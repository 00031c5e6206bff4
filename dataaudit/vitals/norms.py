"""Norms and spreads of tensors of any floating dtype, accumulated in float32 at least, without a copy."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def norm(values: torch.Tensor, order: float = 2) -> torch.Tensor:
    """Return the norm of all elements, a float32 scalar on their device.

    Args:
        values: Of any floating dtype; accumulated in float32, or in its own where that is wider.
        order: 2 for the Euclidean norm, 1 for the sum of absolute values.
    """
    wide = torch.promote_types(values.dtype, torch.float32)
    return torch.linalg.vector_norm(values, order, dtype=wide).float()


def std(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the standard deviation of all elements of some tensors together, a float32 scalar.

    Args:
        tensors: On one device, of any floating dtype; at least one element.
    """
    count = sum(one.numel() for one in tensors)
    total = torch.stack([one.sum(dtype=torch.float64) for one in tensors]).sum()
    square = torch.stack([norm(one) for one in tensors]).double().square().sum()
    return (square / count - (total / count).square()).clamp_min(0.0).sqrt().float()
