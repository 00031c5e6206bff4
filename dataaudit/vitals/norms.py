"""Norms and spreads of tensors of any floating dtype, accumulated in float32 at least, without a copy.

On a CPU torch adds up a norm in float32 one element after the other: the sum of 16 million absolute values is 2 % too
small, that of 5 million some tenths of a per cent. So a large tensor is taken in rows, whose norms are put together in
float64. Devices add up in trees, and need none of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from dataaudit.vitals.sharding import local

PIECE = 1 << 20
"""Elements of a temporary tensor at most."""
_ROW = 4_096
"""Elements that are added up one after the other."""
_CHUNK = 32_768
"""Elements whose absolute values are taken at once, in a CPU's cache; their sum is one of blocks."""


def norm(values: torch.Tensor, order: float = 2) -> torch.Tensor:
    """Return the norm of all elements, a float32 scalar on their device, to 2e-6 of it."""
    values = values.detach()
    if values.is_sparse:
        values = values.coalesce().values()
    wide = torch.promote_types(values.dtype, torch.float32)
    if values.device.type != "cpu" or values.numel() <= _ROW or wide == torch.float64:
        return torch.linalg.vector_norm(values, order, dtype=wide).float()
    flat = as_row(values)
    parts = [_norm(item, order, wide) for [item] in pieces([values if flat is None else flat])]
    return torch.linalg.vector_norm(torch.stack(parts), order).float()


def norms_of(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the Euclidean norm of each tensor, float32 scalars on their device: of a GPU in a few kernels for all."""
    wide = any(item.device.type == "cpu" or item.is_sparse or item.dtype == torch.float64 for item in tensors)
    if wide or not tensors:
        return [norm(item) for item in tensors]
    own = [item.detach() for item in tensors]
    return list(torch._foreach_norm(own, 2, dtype=torch.float32))  # noqa: SLF001 - as clip_grad_norm_ does


def _norm(values: torch.Tensor, order: float, wide: torch.dtype) -> torch.Tensor:
    """Return the norm of a piece, a float64 scalar."""
    if not values.is_contiguous():
        parts = [torch.linalg.vector_norm(part, order, dim=-1, dtype=wide).flatten() for part in values.split(_ROW, -1)]
        return torch.linalg.vector_norm(torch.cat(parts).double(), order)
    flat = values.view(-1)
    if order == 1:  # twice as fast as a norm of rows
        return torch.stack([part.abs().sum(dtype=wide) for part in flat.split(_CHUNK)]).sum(dtype=torch.float64)
    whole = len(flat) // _ROW * _ROW
    rows = torch.linalg.vector_norm(flat[:whole].view(-1, _ROW), order, dim=1, dtype=wide)
    rest = torch.linalg.vector_norm(flat[whole:], order, dtype=wide)
    return torch.linalg.vector_norm(torch.cat([rows, rest[None]]).double(), order)


def pieces(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Yield views of some tensors of one shape, the same part of each, of :data:`PIECE` elements at most."""
    if tensors[0].numel() <= PIECE:
        yield list(tensors)
        return
    row = tensors[0][0].numel()
    for parts in zip(*(tensor.split(max(1, PIECE // row)) for tensor in tensors), strict=True):
        if row > PIECE:
            yield from pieces([part[0] for part in parts])
        else:
            yield list(parts)


def as_row(values: torch.Tensor) -> torch.Tensor | None:
    """Return all elements as one dimension, in the order in which they lie in memory; None where gaps lie between."""
    if not values.is_contiguous():
        values = values.permute(sorted(range(values.dim()), key=lambda number: -values.stride(number)))
    return values.view(-1) if values.is_contiguous() else None


def sums_of(tensors: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    """Return the sum of all elements of some tensors and that of their squares, float64[2]; of this rank's shards."""
    own = [local(tensor).detach() for tensor in tensors if local(tensor).numel()]
    if not own:
        return torch.zeros(2, dtype=torch.float64, device=device)
    total = torch.stack([part.sum(dtype=torch.float64) for tensor in own for [part] in pieces([tensor])]).sum()
    return torch.stack([total, torch.stack([norm(tensor) for tensor in own]).double().square().sum()])


def std_of_sums(sums: torch.Tensor, count: int) -> torch.Tensor:
    """Return the standard deviation of so many elements, of their sum and that of their squares, a float32 scalar."""
    total, square = sums / count
    return (square - total.square()).clamp_min(0.0).sqrt().float()
