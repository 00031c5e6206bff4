"""Whether replicas of a model are still the same: checksums of their weights, losses on one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

_CHUNK = 1 << 22
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def parameter_checksum(parameters: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return a checksum of the bits of each parameter, int64[parameters]; nothing waits for a device.

    It is the sum of its elements' bits, read as integers, modulo 2^64: the same in whatever order a kernel adds. One
    changed element always shows; elements that trade places within a parameter do not. Temporaries hold 32 MiB at most.

    Args:
        parameters: On one device, of elements of 1, 2, 4 or 8 bytes.
    """
    found = []
    for one in parameters:
        bits = one.detach().reshape(-1).view(_BITS[one.element_size()])
        parts = [part.sum(dtype=torch.int64) for part in bits.split(_CHUNK)]
        found.append(torch.stack(parts).sum())
    return torch.stack(found)


def ranks_that_differ(checksum: torch.Tensor, gather: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Return which ranks' weights are not those that most ranks hold, bool[ranks]; its sum says how many.

    Of equally many, those of the lowest rank count as right: of two replicas that differ, it is rank 1 that is named.

    Args:
        checksum: Of this rank, int64[parameters], of :func:`parameter_checksum`.
        gather: Given a rank's tensor, returns those of all ranks stacked, the same on every rank (an all_gather).
    """
    ranks = gather(checksum)
    same = (ranks[:, None] == ranks[None, :]).all(-1)
    count = len(ranks)
    first = torch.arange(count, 0, -1, device=ranks.device)
    right = (same.sum(1) * (count + 1) + first).argmax()
    return ~same.index_select(0, right[None])[0]


def loss_dispersion(losses: torch.Tensor) -> torch.Tensor:
    """Return the standard deviation over ranks of the loss on a batch that is the same on all, a float64 scalar.

    0 where replicas are alike and compute alike; on different data it never is. NaN where a loss is not finite.

    Args:
        losses: float[ranks].
    """
    return losses.double().std(correction=0)
