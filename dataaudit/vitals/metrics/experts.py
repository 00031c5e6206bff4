"""What routers of experts do: how alike their rows are, how evenly tokens are spread over experts, and what is dropped.

An expert that is sent no token of a window is dead. Tokens are counted by source where these are handed over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dataaudit.base.statistics import Floats
from dataaudit.vitals.measurement import Arrived, Measurement, Sources
from dataaudit.vitals.metric import Column, Metric, Threshold

if TYPE_CHECKING:
    import torch

    from dataaudit.vitals.ranks import RankSums
    from dataaudit.vitals.routers import Routers

_TURNS = 8
"""Measured steps in which every router is read once, where there are as many."""
_ROWS = (("router_weight_similarity", "mean_cosine"), ("router_centered_conditioning", "ratio"))
_SHARDED = "the router's matrix is sharded: not all of its rows are here"
_OF_CHOICES = ("moe_util_entropy", "moe_load_balance_loss", "moe_dead_experts")
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
        if self.routers.unchosen and not self._reported:
            self._reported = True
            context.event("no_value", {"what": ", ".join(_OF_CHOICES), "why": self._uncounted()[_OF_CHOICES[0]]})
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

    def reasons(self) -> dict[str, str]:
        return super().reasons() or self._uncounted()

    def gaps(self) -> dict[str, str]:
        """Return why nothing is counted, or why windows are of this rank alone."""
        ranks = {"moe_dead_experts": self._ranks.why} if self._ranks is not None and self._ranks.why else {}
        return ranks | self._uncounted()

    def _uncounted(self) -> dict[str, str]:
        from dataaudit.vitals.routers import NO_CHOICES

        return dict.fromkeys(_OF_CHOICES, NO_CHOICES) if self.routers.unchosen else {}

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
