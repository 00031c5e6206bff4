"""How tokens are spread over experts: how sure routers are, how evenly experts are used, and which are not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dataaudit.base.statistics import Floats
from dataaudit.vitals.measurement import Arrived, Sources
from dataaudit.vitals.metric import Column, Metric
from dataaudit.vitals.metrics.experts import OfRouters

if TYPE_CHECKING:
    import torch

    from dataaudit.vitals.ranks import RankSums

COLD = 0.1
"""An expert is cold that is sent tokens, and fewer than this share of the even share."""
LEAST_EVEN = 32.0
"""Tokens of a window that are the even share of an expert, below which none is called dead: chance may pass it by."""
_STEP = (
    ("router_token_entropy", "mean"),
    ("router_token_entropy", "normalised"),
    ("moe_util_entropy", "normalised"),
    ("moe_util_entropy", "cv"),
    ("moe_load_balance_loss", "switch"),
)
_WINDOW = (
    ("moe_util_entropy", "window"),
    ("moe_util_entropy", "window_cv"),
    ("moe_dead_experts", "dead"),
    ("moe_dead_experts", "cold"),
)


class ExpertLoads(OfRouters):
    """Numbers of a step, of this rank; and of the measured steps of a window, summed over ranks."""

    METRICS = (
        Metric(
            "router_token_entropy",
            "entropy",
            stats=frozenset({"normalised"}),
            flops="12·E a token",
            chart=("normalised", "Entropy of a token's router scores / log E"),
        ),
        Metric(
            "moe_util_entropy",
            "entropy",
            stats=frozenset({"normalised"}),
            chart=("normalised", "Entropy of experts' shares of tokens / log E"),
        ),
        Metric("moe_load_balance_loss", "log"),
        Metric(
            "moe_dead_experts",
            "share",
            stats=frozenset({"dead", "cold"}),
            whole=True,
            rules={"unused": frozenset({"load"})},
            part="expert",
            chart=("dead", "Experts without a token in a window"),
        ),
    )

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        routers = sources.hooks.routers
        number = len(routers.found)
        self._counts = routers.sums.new_zeros((number, routers.widest)).long()
        """int64[routers, experts] of a window so far."""
        self._own = routers.own.flatten().nonzero().flatten()
        """int64[loads]: where experts that a router has stand in these."""
        self._none = routers.sums.new_full((len(_WINDOW) * number + len(self._own),), math.nan)
        self._sizes = [router.experts for router in routers.found]
        self._ranks, self._reported = self._sums_of_ranks(sources), False

    def columns(self) -> list[Column]:
        routers = self.routers.found
        return [
            *(
                Column(metric, router.layer, -1, stat, of=router.experts if metric == "moe_dead_experts" else 0)
                for metric, stat in (*_STEP, *_WINDOW)
                for router in routers
            ),
            *(Column("moe_dead_experts", item.layer, at, "load") for item in routers for at in range(item.experts)),
        ]

    def values(self) -> list[torch.Tensor]:
        """Return a step's numbers, nothing of the window, and where it ends choices of each of its experts."""
        import torch

        routers = self.routers
        counts, probabilities, sums = routers.read()
        tokens, experts = sums["tokens"], routers.own.sum(1)
        self._counts.add_(counts.where(counts.isfinite(), 0.0).long())
        shares = counts / counts.sum(1, keepdim=True)
        log = experts.log()
        mean = sums["entropy"] / tokens
        step = [
            mean,
            mean / log,
            torch.special.entr(shares).sum(1) / log,
            (experts * shares.square().sum(1) - 1).clamp_min(0.0).sqrt(),
            experts * (shares * probabilities).sum(1) / tokens,
        ]
        if not self.sources.window_ends or not len(self._own):
            return [*step, self._none]
        loads = self._counts.flatten()[self._own].float()
        self._counts.zero_()
        return [*step, self._none[: -len(loads)], loads]

    def arrived(self, values: Floats, context: Arrived) -> None:
        """Make of choices of a window what is reported of it; where ranks share them, of their sum when it is known."""
        at = len(values) - sum(self._sizes)
        counts, ranks = values[at:].copy(), self._ranks
        if ranks is not None:
            values[at:] = math.nan
            if not np.isnan(counts).any():
                ranks.submit(np.rint(counts).astype(np.int64))
            if ranks.why and not self._reported:
                self._reported = True
                context.event("no_value", {"what": "moe_dead_experts", "why": ranks.why})
            counts = ranks.newest(counts)
        if np.isnan(counts).any() or not len(counts):
            return
        windows = [of_window(own) for own in np.split(counts, np.cumsum(self._sizes)[:-1])]
        values[at - len(_WINDOW) * len(windows) : at] = np.array([numbers for numbers, _ in windows]).T.flatten()
        values[at:] = np.concatenate([loads for _, loads in windows])

    def gaps(self) -> dict[str, str]:
        """Return why windows are of this rank alone."""
        return {"moe_dead_experts": self._ranks.why} if self._ranks is not None and self._ranks.why else {}

    def close(self) -> None:
        if self._ranks is not None:
            self._ranks.close()

    def _sums_of_ranks(self, sources: Sources) -> RankSums | None:
        """Return what sums windows over ranks; None where there is one rank, or nothing to sum."""
        from dataaudit.vitals.ranks import RankSums, ranks

        config = sources.config
        if ranks() == 1 or not self._sizes or self.FAMILY not in config.measure:
            return None
        names = [sources.structure.layers[router.layer].name for router in sources.hooks.routers.found]
        return RankSums(f"{config.window} {config.first_step} {names} {self._sizes}")


def of_window(counts: Floats) -> tuple[list[float], Floats]:
    """Return of choices of a window, float64[E], the numbers of :data:`_WINDOW`, and each over the even share."""
    even, unknown = counts.mean(), np.full(len(counts), math.nan)
    if not even:
        return [math.nan] * len(_WINDOW), unknown
    loads = counts / even
    shares = counts[counts > 0] / counts.sum()
    numbers = [float(-(shares * np.log(shares)).sum() / math.log(len(counts))), float(loads.std())]
    if even < LEAST_EVEN:
        return [*numbers, math.nan, math.nan], unknown
    return [*numbers, float((loads == 0).sum()), float(((loads > 0) & (loads < COLD)).sum())], loads
