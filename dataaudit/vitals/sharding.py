"""Parameters that are spread over ranks: what of them lies here, and sums over the ranks.

FSDP2 and tensor parallelism hold parameters as ``DTensor``: each rank has a shard of some dimensions of a device mesh,
and a replica of the others. A sum over all elements of a parameter is that over its shards. Each rank adds up what lies
on it, a replica on the first of its ranks alone, and one vector with all sums of a step is reduced over the process
groups of those dimensions: over one for FSDP, HSDP or tensor parallelism, over both, one after the other, where they
are combined.

All ranks have to reduce at the same steps. So nothing that a rank decides by itself (its clock, its alarms) moves
these steps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, cast

import torch
from torch import nn

from dataaudit.base.errors import ConfigError

_MOST = 1 << 20
"""Ranks of a dimension, for numbers of shards."""
WAITS = timedelta(minutes=5)
"""How long ranks wait for each other when vitals are made."""
_NUMBERS = itertools.count()
NOT_MEASURED = "sharded: not measured"
_REDUCED = "FSDP reduces gradients over ranks within each backward pass: those of single micro-batches are not seen"


def is_sharded(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is a ``DTensor``."""
    return hasattr(tensor, "placements") and hasattr(tensor, "to_local")


def local(tensor: Any) -> Any:
    """Return what of a tensor lies on this rank, without a copy; the tensor itself where it is no ``DTensor``."""
    if not is_sharded(tensor):
        return tensor
    with torch.no_grad():
        return tensor.to_local()


def why_not(parameters: Iterable[torch.Tensor], what: str = "it needs whole matrices") -> str | None:
    """Return why a metric is not measured of parameters of which some are sharded; None where none is."""
    return f"{NOT_MEASURED}: {what}" if any(map(is_sharded, parameters)) else None


def gradient_of(parameter: torch.Tensor, gradient: torch.Tensor | None = None) -> Any:
    """Return this rank's part of a gradient (``parameter.grad``), as the parameter lies; None where there is none.

    What is a sum over ranks yet (``Partial``), as the optimizer may get it, is reduced: all ranks have to call this.
    """
    gradient = parameter.grad if gradient is None else gradient
    if gradient is not None and is_sharded(gradient) and is_sharded(parameter):
        given, to = cast("Any", gradient), cast("Any", parameter).placements
        gradient = given if tuple(given.placements) == tuple(to) else given.redistribute(placements=to)
    return local(gradient)


def rows_split(module: nn.Module) -> tuple[int, int]:
    """Return into how many parts tensor parallelism splits what a module's last linear maps take, and which is here.

    That are heads of attention, and units of an MLP: some weight there is sharded by its columns.
    """
    for item in module.parameters():
        given: Any = item
        if item.dim() == 2 and is_sharded(item):
            split = [at for at, place in enumerate(given.placements) if place.is_shard(1)]
            if split:
                mesh, parts, here = given.device_mesh, 1, 0
                for at in split:
                    parts, here = parts * mesh.size(at), here * mesh.size(at) + mesh.get_local_rank(at)
                return parts, here
    return 1, 0


class Sharding:
    """How the parameters of a model are spread over ranks; false where none is.

    Raises:
        ConfigError: A parameter is a sum over ranks, the model is FSDP's first version, or a rank makes no vitals.
    """

    def __init__(self, model: nn.Module, parameters: Iterable[torch.Tensor]) -> None:
        self._groups: dict[tuple[int, ...], Any] = {}
        """By its ranks, each group that some parameter is sharded over."""
        self._over: dict[int, set[tuple[int, ...]]] = {}
        self.reduced = ""
        """Under FSDP, why gradients of single backward passes are not seen."""
        self._any = False
        if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
            raise ConfigError(
                "vitals: FullyShardedDataParallel holds flat parts of parameters: which element is whose is not known",
                "Use torch.distributed.fsdp.fully_shard (FSDP2).",
            )
        for parameter in parameters:
            self._add(parameter)
        if self:
            from torch.distributed.fsdp import FSDPModule

            self._meet()
            if any(isinstance(module, FSDPModule) for module in model.modules()):
                self.reduced = _REDUCED

    def __bool__(self) -> bool:
        return self._any

    def __str__(self) -> str:
        groups = " x ".join(str(len(ranks)) for ranks in self._groups) or "1"
        return f"parameters are sharded over {groups} ranks"

    @property
    def covers_all(self) -> bool:
        """Whether each rank of the default group has shards of its own: gradients are averaged over none."""
        return bool(math.prod(map(len, self._groups)) == torch.distributed.get_world_size())

    def counts(self, parameter: torch.Tensor) -> bool:
        """Return whether what lies here of a parameter counts in a sum over ranks, and is no further replica."""
        over = self._over.get(id(parameter), set())
        return all(ranks in over or ranks[0] == torch.distributed.get_rank() for ranks in self._groups)

    def counted(self, parameters: Iterable[Any]) -> list[Any]:
        """Return the parameters of which a part here counts, and is not empty."""
        if not self:
            return [*parameters]
        return [item for item in parameters if self.counts(item) and local(item).numel()]

    def reduce(self, sums: torch.Tensor) -> torch.Tensor:
        """Add up a vector over ranks, in place, and return it; a GPU's host does not wait for it."""
        for group in self._groups.values():
            torch.distributed.all_reduce(sums, group=group)
        return sums

    def shards(self, parameters: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor | None:
        """Return which shard of each parameter lies here, int64[parameters]; None where none has a replica."""
        every = torch.distributed.get_world_size()
        if all(math.prod(map(len, self._over.get(id(item), ()))) == every for item in parameters):
            return None
        here = {ranks: ranks.index(torch.distributed.get_rank()) * _MOST**at for at, ranks in enumerate(self._groups)}
        own = [sum(here[ranks] for ranks in self._over.get(id(item), ())) for item in parameters]
        return torch.tensor(own, dtype=torch.int64, device=device)

    def _meet(self) -> None:
        """Wait for the other ranks: sums would hang without these."""
        distributed = torch.distributed
        store, number = distributed.distributed_c10d._get_default_store(), next(_NUMBERS)  # noqa: SLF001
        store.set(f"dataaudit/vitals/{number}/{distributed.get_rank()}", "")
        for rank in sorted({rank for ranks in self._groups for rank in ranks}):
            try:
                store.wait([f"dataaudit/vitals/{number}/{rank}"], WAITS)
            except RuntimeError:
                raise ConfigError(
                    f"vitals: rank {rank} made none within {WAITS.total_seconds():.0f} s, and parameters are sharded",
                    "Make Vitals on every rank, and open each step on every rank.",
                ) from None

    def _add(self, parameter: Any) -> None:
        over = self._over[id(parameter)] = set()
        if not is_sharded(parameter):
            return
        self._any, mesh = True, parameter.device_mesh
        for at, place in enumerate(parameter.placements):
            if place.is_partial():
                raise ConfigError("vitals: a parameter is a sum over ranks (Partial): its own values are on no rank")
            if not place.is_replicate() and mesh.size(at) > 1:
                group = mesh.get_group(at)
                ranks = tuple(torch.distributed.get_process_group_ranks(group))
                self._groups.setdefault(ranks, group)
                over.add(ranks)
