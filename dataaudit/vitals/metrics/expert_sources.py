"""Which experts tokens of a source are sent to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dataaudit.vitals.measurement import Measurement
from dataaudit.vitals.metric import Column, Metric

if TYPE_CHECKING:
    import torch


class ExpertSources(Measurement):
    """Counts of (source, expert) of a window, layer by layer: an expert stands in ``head``, a source in ``stat``.

    They are of the measured steps for which ``vitals.log_sources`` was called, and of this rank's tokens.
    """

    FAMILY = "experts"
    METRICS = (Metric("moe_source_load", "counts by source are not judged", flops="3 operations a choice"),)

    def columns(self) -> list[Column]:
        """Return none: the table is of no fixed size."""
        return []

    def values(self) -> list[torch.Tensor]:
        """Return none."""
        return []

    def table(self) -> tuple[Sequence[Column], torch.Tensor] | None:
        """Return a window's table where it ends, int64[rows]."""
        routers = self.sources.hooks.routers
        if not self.sources.window_ends or (table := routers.sources.table) is None:
            return None
        own = table[:, :-1, :-1].clone()
        table.zero_()
        columns = [
            Column("moe_source_load", router.layer, expert, f"source_{source}")
            for router in routers.found
            for source in range(own.shape[1])
            for expert in range(own.shape[2])
        ]
        return columns, own.flatten()

    def why_not(self) -> str | None:
        """Return that there is no router, or nobody handed over sources that fit."""
        routers = self.sources.hooks.routers
        missing = "no sources were handed over yet: vitals.log_sources(ids, sources)"
        return routers.why_none() or routers.sources.why or (missing if routers.sources.table is None else None)
