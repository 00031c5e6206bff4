"""Which share of what a router sends is dropped, because experts are full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataaudit.vitals.measurement import Measurement
from dataaudit.vitals.metric import Column, Metric, Threshold

if TYPE_CHECKING:
    import torch

_DROPLESS = "no router has a capacity: every token reaches its experts"


class ExpertDrops(Measurement):
    """Dropped over sent, of routers with a capacity: what a mask lacks, or what is beyond it in a forward pass."""

    FAMILY, HOOKED = "experts", True
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
        """Return a column for each router with a capacity."""
        sites = [site for site in self.sources.hooks.routed if site.router.capacity]
        return [Column("moe_drop_rate", site.layer, -1, "share", counted=site.number) for site in sites]

    def values(self) -> list[torch.Tensor]:
        """Return a step's shares, NaN where nothing was sent."""
        hooks = self.sources.hooks
        sums = hooks.routers.read()[2]
        shares = sums["dropped"] / sums["sent"]
        return [shares[site.index : site.index + 1] for site in hooks.routed if site.router.capacity]

    def why_not(self) -> str | None:
        """Return that there is no router, none with a capacity, or that it is not known."""
        routers = self.sources.hooks.routers
        unknown = next((router.why for router in routers.found if router.why), _DROPLESS)
        return routers.why_none() or (None if any(router.capacity for router in routers.found) else unknown)
