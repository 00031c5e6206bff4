"""What attention does, head by head: logits, entropies, rows that see next to nothing or the first key, norms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dataaudit.base.statistics import Floats
from dataaudit.vitals.measurement import Arrived, Measurement, Sources
from dataaudit.vitals.metric import ALL, Column, Metric, Threshold

if TYPE_CHECKING:
    import torch

    from dataaudit.vitals.recorder import Site

DEAD_SHARE = 0.99
"""A head is dead with a larger share of rows whose entropy is below log 2."""
OFF = "off"
"""1 where statistics of all rows and of sampled ones are further apart than their bounds."""
_ABSENT = float("-inf")
_OWN = "the model makes its own logits: queries and keys are not seen"
_NORMS = slice(5, 7)
"""Of ``recorder.HEAD_STATS``."""
_LOWER_BOUNDS = frozenset({"sampled", "lower"})
_SAMPLED = (
    ("max_attn_logit", "sampled"),
    ("attn_entropy", "mean"),
    ("attn_entropy", "normalised"),
    ("dead_head_rate", "share"),
    ("attn_sink_share", "mean"),
)
_ALL_ROWS = (
    ("max_attn_logit", "lower"),
    ("max_attn_logit", "upper"),
    ("attn_entropy", "all_rows"),
    ("attn_entropy", "all_rows_bound"),
)
"""Numbers of all rows of attention, where a layer has its turn."""


class Heads(Measurement):
    """Largest values and means over a step's micro-batches, each of one row of the batch."""

    FAMILY, HOOKED = "attention", True
    METRICS = (
        Metric(
            "max_attn_logit",
            "asinh",
            stats=frozenset({"sampled"}),
            estimates=frozenset({"lower", "upper"}),
            rules={"rise": frozenset({"sampled"})},
            thresholds=(
                Threshold(100.0, "QK-clip acts at 100: Kimi K2, arXiv 2507.20534", stats=_LOWER_BOUNDS),
                Threshold(1000.0, "above 1000 runs became unstable: Kimi K2, arXiv 2507.20534", stats=_LOWER_BOUNDS),
            ),
            severity=2,
            grave=1000.0,
            chart=("sampled", "Largest attention logit"),
        ),
        Metric(
            "attn_entropy",
            "entropy",
            stats=frozenset({"normalised"}),
            estimates=frozenset({"all_rows", "all_rows_bound", OFF}),
            rules={"collapse": frozenset({"mean"})},
            chart=("normalised", "Entropy of attention / log n"),
        ),
        Metric("dead_head_rate", "share", chart=("share", "Share of rows whose attention is dead")),
        Metric("attn_sink_share", "entropy", chart=("mean", "Attention to the first key")),
    )

    def columns(self) -> list[Column]:
        own = self.sources.hooks.attention
        sampled = [
            Column(metric, site.layer, head, stat, at, site.number)
            for metric, stat in _SAMPLED
            for site, head, at in _heads(self.sources)
        ]
        every = [
            Column(metric, site.layer, head, stat)
            for metric, stat in _ALL_ROWS
            for site, head, _ in _heads(self.sources)
        ]
        off = [Column("attn_entropy", site.layer, -1, OFF, site.number) for site in own]
        return [*sampled, *every, *off, Column("dead_head_rate", -1, -1, "share", of=sum(site.heads for site in own))]

    def values(self) -> list[torch.Tensor]:
        """Return what hooks wrote, -inf where nothing was; not finite in one micro-batch, it is not in the mean."""
        written = self.sources.hooks.heads
        largest = written[..., 0].amax(1)  # NaN where any is
        known = written != _ABSENT
        means = written.where(known, 0.0).sum(1) / known.sum(1)
        means = means.masked_fill(~known.any(1), _ABSENT)
        lower, upper, off = (written[..., stat].amax(1) for stat in (-5, -4, -1))
        dead = means[..., 3]
        share = ((dead > DEAD_SHARE).sum() / dead.isfinite().sum()).masked_fill(dead.isnan().any(), float("nan"))
        parts = [largest, *(means[..., stat] for stat in (1, 2, 3, 4)), lower, upper, means[..., -3], means[..., -2]]
        return [*(part.flatten() for part in parts), off.amax(1), share[None]]

    def arrived(self, values: Floats, context: Arrived) -> None:
        """Refuse statistics of all rows from then on where they and sampled ones do not agree."""
        hooks = self.sources.hooks
        for site, off in zip(hooks.attention, values[-1 - len(hooks.attention) : -1], strict=True):
            if off > 0:
                hooks.recorder.refused.add(site.number)
                why = "further from sampled rows than bounds allow"
                context.event("refused", {"layer": site.layer, "what": "all rows of attention", "why": why})

    def why_not(self) -> str | None:
        hooks = self.sources.hooks
        if hooks.head_layers:
            return None
        reasons = [*hooks.why.values(), self.sources.structure.missing("attention")]
        return "; ".join(dict.fromkeys(reason for reason in reasons if reason)) or "none found"


class HeadNorms(Measurement):
    """Root mean squares, over a step's micro-batches, of the norms of sampled rows' queries and of all keys.

    Of each micro-batch one row of the batch is read. Heads that share keys have the same number.
    """

    FAMILY, HOOKED = "attention", True
    METRICS = tuple(
        Metric(name, "log", rules={"fold": ALL}, fold=16.0, flops=flops, chart=("rms", f"Norm of {what}"))
        for name, flops, what in (
            ("q_norm", "heads x width x (2 rows)", "queries"),
            ("k_norm", "heads x width x (2 keys)", "keys"),
        )
    )

    def columns(self) -> list[Column]:
        return [
            Column(metric.name, site.layer, head, "rms", at)
            for metric in self.METRICS
            for site, head, at in _heads(self.sources)
        ]

    def values(self) -> list[torch.Tensor]:
        written = self.sources.hooks.heads[..., _NORMS]
        known = written != _ABSENT
        rms = (written.where(known, 0.0).square().sum(1) / known.sum(1)).sqrt()
        return [rms.masked_fill(~known.any(1), _ABSENT).permute(2, 0, 1).flatten()]

    def why_not(self) -> str | None:
        hooks = self.sources.hooks
        if all(layer.attention.kind == "softmax" for layer in hooks.head_layers if layer.attention is not None):
            none = "; ".join(dict.fromkeys(hooks.why.values())) or self.sources.structure.missing("attention")
            return _OWN if hooks.head_layers else none or "none found"
        return None

    def gaps(self) -> dict[str, str]:
        """Return that there are layers whose queries and keys are not seen, where their config says so only late."""
        return {metric.name: _OWN for metric in self.METRICS} if self.sources.hooks.recorder.own_logits else {}


def _heads(sources: Sources) -> Iterator[tuple[Site, int, int]]:
    """Yield layers and heads, as many as the widest layer has, and the site of those that the layer has; -1: none."""
    for site in sources.hooks.attention:
        for head in range(sources.hooks.heads.shape[2]):
            yield site, site.first_head + head, site.number if head < site.heads else -1
