"""What routers of experts do: how alike their rows are, what they drop, and where tokens of a source are sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dataaudit.vitals.measurement import Measurement, Sources
from dataaudit.vitals.metric import Column, Metric, Threshold

if TYPE_CHECKING:
    import torch

    from dataaudit.vitals.routers import Routers

_TURNS = 8
"""Measured steps in which every router is read once, where there are as many."""
_ROWS = (("router_weight_similarity", "mean_cosine"), ("router_centered_conditioning", "ratio"))
_SHARDED = "the router's matrix is sharded: not all of its rows are here"
_DROPLESS = "no router has a capacity: every token reaches its experts"
_NO_SOURCES = "no sources were handed over yet: vitals.log_sources(ids, sources)"


class OfRouters(Measurement):
    """Measures what routers show."""

    FAMILY, HOOKED = "experts", True

    @property
    def routers(self) -> Routers:
        """Routers of the model."""
        return self.sources.hooks.routers

    def why_not(self) -> str | None:
        return self.routers.why_none()


class RouterWeights(OfRouters):
    """Reads routers in turn, an eighth of them in a measured step, after its update.

    With u_i the rows of a router over their lengths, their mean pairwise cosine is (E·‖mean u‖² - 1)/(E - 1)
    (arXiv 2606.28116, eq. 7). The conditioning is max‖w_i - w̄‖/‖w̄‖, w̄ the mean row. A row of 0 has no direction.
    """

    METRICS = (
        Metric(
            "router_weight_similarity",
            "plain",
            flops="4·E·d for a router",
            chart=("mean_cosine", "Mean cosine of router rows"),
        ),
        Metric("router_centered_conditioning", "log", flops="4·E·d for a router"),
    )

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        self._turn, self._sharded = 0, False

    def columns(self) -> list[Column]:
        return [Column(metric, router.layer, -1, stat) for metric, stat in _ROWS for router in self.routers.found]

    def values(self) -> list[torch.Tensor]:
        from dataaudit.vitals.routers import numbers_of_rows

        own, turns = self.routers.found, max(1, min(_TURNS, len(self.routers.found)))
        values = self.sources.empty(len(_ROWS), len(own))
        for at in range(self._turn % turns, len(own), turns) if self.asked else ():
            weight = own[at].weight.detach()
            self._sharded = hasattr(weight, "to_local") or weight.dim() != 2 or len(weight) != own[at].experts
            if not self._sharded:
                values[:, at].copy_(numbers_of_rows(weight))
        self._turn += self.asked
        return [values.flatten()]

    def gaps(self) -> dict[str, str]:
        return {metric: _SHARDED for metric, _ in _ROWS} if self._sharded else {}

    def state(self) -> dict[str, Any]:
        return {"router_turn": self._turn}

    def load(self, state: Mapping[str, Any]) -> None:
        self._turn = int(state["router_turn"])


class ExpertDrops(OfRouters):
    """Dropped over sent, of routers with a capacity: what a mask lacks, or what is beyond it in a forward pass."""

    METRICS = (
        Metric(
            "moe_drop_rate",
            "share",
            thresholds=(
                Threshold(0.01, "dropped tokens are typically below 1 %: Switch Transformers, arXiv 2101.03961"),
            ),
            severity=2,
            chart=("share", "Share of tokens that experts drop"),
        ),
    )

    def columns(self) -> list[Column]:
        sites = [site for site in self.sources.hooks.routed if site.router.drops]
        return [Column("moe_drop_rate", site.layer, -1, "share", counted=site.number) for site in sites]

    def values(self) -> list[torch.Tensor]:
        sums = self.routers.read()[2]
        shares = sums["dropped"] / sums["sent"]
        return [shares[site.index : site.index + 1] for site in self.sources.hooks.routed if site.router.drops]

    def why_not(self) -> str | None:
        return super().why_not() or (None if any(router.drops for router in self.routers.found) else _DROPLESS)


class ExpertSources(OfRouters):
    """Counts of (source, expert) of a window, layer by layer: an expert stands in ``head``, a source in ``stat``.

    They are of the measured steps for which ``vitals.log_sources`` was called, and of this rank's tokens.
    """

    HOOKED = False
    METRICS = (Metric("moe_source_load", "counts by source are not judged", flops="3 operations a choice"),)

    def columns(self) -> list[Column]:
        return []  # the table is of no fixed size

    def values(self) -> list[torch.Tensor]:
        return []

    def table(self) -> tuple[Sequence[Column], torch.Tensor] | None:
        if not self.sources.window_ends or (table := self.routers.sources.table) is None:
            return None
        own = table[:, :-1, :-1].clone()
        table.zero_()
        columns = [
            Column("moe_source_load", router.layer, expert, f"source_{source}")
            for router in self.routers.found
            for source in range(own.shape[1])
            for expert in range(own.shape[2])
        ]
        return columns, own.flatten()

    def why_not(self) -> str | None:
        own = self.routers
        return own.why_none() or own.sources.why or (_NO_SOURCES if own.sources.table is None else None)
