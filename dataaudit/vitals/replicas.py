"""Whether weights that should be the same still are: those of replicas, and those that parts of a model share.

Replicas are compared by checksums of their weights and by losses on one batch. A tied output layer that was cut off
from its embedding trains alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from dataaudit.base.errors import ConfigError
from dataaudit.vitals.metric import Column
from dataaudit.vitals.ranks import ranks
from dataaudit.vitals.sharding import Sharding, local

_CHUNK = 1 << 22
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Tying:
    """Remembers which modules of a model share a parameter."""

    def __init__(self, model: nn.Module) -> None:
        uses: dict[int, list[tuple[str, nn.Module, str]]] = {}
        for prefix, module in model.named_modules():
            for name, parameter in module.named_parameters(recurse=False):
                uses.setdefault(id(parameter), []).append((f"{prefix}.{name}".lstrip("."), module, name))
        self._shared = [own for own in uses.values() if len(own) > 1]
        self._broken = _never_tied(model)

    def broken(self) -> list[dict[str, Any]]:
        """Return which parameters came apart since the last call: details of alarms."""
        details, self._broken = self._broken, []
        for own in list(self._shared):
            first, owner, name = own[0]
            weight = getattr(owner, name, None)
            if apart := [use for use, module, at in own[1:] if not _same(weight, getattr(module, at, None))]:
                self._shared.remove(own)
                details.append(_detail(f"{', '.join(apart)} no longer shares its weights with {first}"))
        return details


def _never_tied(model: nn.Module) -> list[dict[str, Any]]:
    """Return an alarm where the model's own settings say that it is tied, and it is not."""
    config = getattr(model, "config", None)
    ends = [getattr(model, f"get_{end}_embeddings", None) for end in ("input", "output")]
    if getattr(config, "tie_word_embeddings", False) is not True or not all(map(callable, ends)):
        return []
    item, other = (getattr(end(), "weight", None) for end in ends if end is not None)
    if item is None or other is None or _same(item, other) or item.shape != other.shape:
        return []
    return [_detail("the settings say that input and output embeddings share their weights, and they do not")]


def _same(item: Any, other: Any) -> bool:
    if item is other:
        return True
    if item is None or other is None or item.is_meta or other.is_meta:
        return False
    item, other = local(item), local(other)  # a DTensor has no address of its own
    return bool(item.data_ptr() == other.data_ptr() and item.data_ptr())


def _detail(what: str) -> dict[str, Any]:
    return {"metric": "tying", "layer": -1, "head": -1, "stat": "value", "rule": "tying", "value": 0.0, "what": what}


def compared(
    parameters: Sequence[torch.Tensor], sharding: Sharding, probe_loss: torch.Tensor | None
) -> dict[Column, torch.Tensor]:
    """Return how many ranks have other weights than most, and the spread of their losses on one batch."""
    distributed = torch.distributed
    if ranks() == 1:
        raise ConfigError("vitals: check_replicas compares ranks, and there is one process")

    def gather(value: torch.Tensor) -> torch.Tensor:
        every = [torch.empty_like(value) for _ in range(ranks())]
        distributed.all_gather(every, value)
        return torch.stack(every)

    numbers = {}
    with torch.no_grad():
        checksum = parameter_checksum([local(item) for item in parameters])
        shards = sharding.shards(parameters, checksum.device)
        if shards is None and probe_loss is None:
            raise ConfigError("vitals: check_replicas: each rank has shards of its own, and none has a replica")
        if shards is not None:
            differ = ranks_that_differ(checksum, gather, shards if sharding else None).sum()
            numbers[Column("replica_checksum", -1, -1, "ranks_that_differ")] = differ
        if probe_loss is not None:
            spread = loss_dispersion(gather(probe_loss.detach().float()))
            numbers[Column("loss_dispersion", -1, -1, "std")] = spread
    return numbers


def parameter_checksum(parameters: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return a checksum of the bits of each parameter, int64[parameters]; nothing waits for a device.

    It is the sum of its elements' bits, read as integers, modulo 2^64: the same in whatever order a kernel adds. One
    changed element always shows; elements that trade places within a parameter do not. Temporaries hold 32 MiB at most.
    """
    sums = []
    for parameter in parameters:
        bits = parameter.detach().reshape(-1).view(_BITS[parameter.element_size()])
        sums.append(torch.stack([part.sum(dtype=torch.int64) for part in bits.split(_CHUNK)]).sum())
    return torch.stack(sums)


def ranks_that_differ(
    checksum: torch.Tensor, gather: Callable[[torch.Tensor], torch.Tensor], shards: torch.Tensor | None = None
) -> torch.Tensor:
    """Return which ranks have other weights than most, bool[ranks]; its sum is their number.

    Parameter by parameter; of equally many, that of the lowest rank counts as right: of two replicas that differ, rank
    1 is named. With ``shards``, int64[parameters], what is compared of each parameter is replicas of the same shard.
    """
    ranks = gather(checksum)
    count = len(ranks)
    of = torch.zeros_like(ranks) if shards is None else gather(shards)
    near = of[:, None] == of[None, :]
    votes = ((ranks[:, None] == ranks[None, :]) & near).sum(1) * (count + 1)  # by rank and parameter
    first = torch.arange(count, 0, -1, device=ranks.device)[:, None]
    best = torch.where(near, (votes + first)[None, :], 0).amax(1)
    right = near & ((votes + first)[None, :] == best[:, None])
    return ((ranks[:, None] != ranks[None, :]) & right).any(1).any(1)


def loss_dispersion(losses: torch.Tensor) -> torch.Tensor:
    """Return the standard deviation over ranks of the loss on a batch that is the same on all, a float64 scalar.

    0 where replicas are alike and compute alike; on different data it never is. NaN where a loss is not finite.
    """
    return losses.double().std(correction=0)
