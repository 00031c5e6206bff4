"""How alike the rows of a router are, each the direction of an expert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataaudit.vitals.measurement import Measurement, Sources
from dataaudit.vitals.metric import Column, Metric

if TYPE_CHECKING:
    import torch

_TURNS = 8
"""Measured steps in which every router is read once, where there are as many."""
_STATS = (("router_weight_similarity", "mean_cosine"), ("router_centered_conditioning", "ratio"))
_SHARDED = "the router's matrix is sharded: not all of its rows are here"


class RouterWeights(Measurement):
    """Reads routers in turn, an eighth of them in a measured step, after its update.

    With u_i the rows of a router over their lengths, their mean pairwise cosine is (E·‖mean u‖² - 1)/(E - 1)
    (arXiv 2606.28116, eq. 7). The conditioning is max‖w_i - w̄‖/‖w̄‖, w̄ the mean row.
    """

    FAMILY, HOOKED = "experts", True
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
        """Return a column for each statistic and router."""
        routers = self.sources.hooks.routers.found
        return [Column(metric, router.layer, -1, stat) for metric, stat in _STATS for router in routers]

    def values(self) -> list[torch.Tensor]:
        """Return numbers of the routers whose turn it is; none where a row is 0, which has no direction."""
        import torch

        routers = self.sources.hooks.routers.found
        values = self.sources.hooks.routers.sums.new_full((len(_STATS), len(routers)), float("nan"))
        if not self.sources.measured or self.FAMILY not in self.sources.config.measure:
            return [values.flatten()]
        turns = max(1, min(_TURNS, len(routers)))
        for at in range(self._turn % turns, len(routers), turns):
            weight = routers[at].weight.detach()
            self._sharded = hasattr(weight, "to_local") or weight.dim() != 2 or len(weight) != routers[at].experts
            if not self._sharded:
                values[:, at].copy_(torch.stack(rows_of(weight)))
        self._turn += 1
        return [values.flatten()]

    def why_not(self) -> str | None:
        """Return that there is no router."""
        return self.sources.hooks.routers.why_none()

    def gaps(self) -> dict[str, str]:
        """Return that matrices are sharded."""
        return {metric: _SHARDED for metric, _ in _STATS} if self._sharded else {}


def rows_of(weight: torch.Tensor) -> list[torch.Tensor]:
    """Return the mean cosine and the conditioning of the rows of a matrix [E, d], float32 scalars."""
    import torch

    rows, experts = weight.float(), len(weight)
    units = rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    mean = rows.mean(0)
    far = torch.linalg.vector_norm(rows - mean, dim=1).amax()
    cosine = (experts * units.mean(0).square().sum() - 1) / (experts - 1)
    return [cosine, far / torch.linalg.vector_norm(mean)]
