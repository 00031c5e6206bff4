"""The numbers of a step in one vector: which they are, and how they come from what taps wrote."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from dataaudit.vitals.attention import ABSENT, DEAD_SHARE
from dataaudit.vitals.watching import Taps

ALL_ROWS = (
    ("max_attn_logit", "lower"),
    ("max_attn_logit", "upper"),
    ("attn_entropy", "all_rows"),
    ("attn_entropy", "all_rows_bound"),
)
"""Numbers of all rows of attention, where a layer has its turn."""
OFF = "off"
"""1 where these and sampled rows are further apart than their bounds."""
DEAD_UNIT = 1e-3
"""A unit is dead whose mean |h| lies below."""


@dataclass(frozen=True, slots=True)
class Column:
    """Which number it is: a row of the table of values, but for its step."""

    metric: str
    layer: int
    head: int
    stat: str
    place: int = -1
    """Of the tap that it comes from; -1: of none. A number that is not finite there is an event, not a gap."""
    counted: int = -1
    """Of the tap that counts what a share is of; -1: of none."""
    of: int = 0
    """What a share or count is of, where that is always the same; 0: it is not."""


@dataclass(slots=True)
class DeadUnits:
    """Sums of mean |h| of every unit over a window of steps."""

    sums: torch.Tensor
    steps: torch.Tensor
    widths: torch.Tensor = field(repr=False)

    @classmethod
    def like(cls, taps: Taps) -> DeadUnits:
        """Return empty sums for what taps write."""
        layers, _, widest = taps.units.shape
        device = taps.units.device
        widths = torch.tensor([layer.units for layer in taps.unit_layers], device=device)
        own = torch.arange(widest, device=device) < widths[:, None] if layers else torch.zeros(0, 0, device=device)
        return cls(torch.zeros(layers, widest, device=device), torch.zeros(layers, device=device), own)

    def add(self, means: torch.Tensor) -> None:
        """Add a step's means, float32[layers, units]; NaN where a layer was not measured."""
        measured = means.isfinite().any(1)  # a unit that is not finite is not a dead one
        self.sums.add_(torch.where(measured[:, None], means, 0.0))
        self.steps.add_(measured)

    def count(self) -> torch.Tensor:
        """Return how many units of each layer are dead, float32[layers], NaN without a step, and begin anew."""
        dead = ((self.sums / self.steps[:, None]) < DEAD_UNIT) & self.widths.bool()
        found = torch.where(self.steps > 0, dead.sum(1, dtype=torch.float32), torch.nan)
        self.sums.zero_()
        self.steps.zero_()
        return found


def tap_columns(taps: Taps) -> list[Column]:
    """Return what :func:`tap_values` returns, number by number."""
    found = []
    for place, item in enumerate(taps.places):
        found.append(Column("activation_mean_abs", item.layer, -1, item.part, place))
    for place, item in enumerate(taps.places):
        if item.part == "block":
            found.append(Column("residual_rms", item.layer, -1, "block", place))
    for place, item in enumerate(taps.places):
        if item.part == "block":
            found.append(Column("activation_outlier_rate", item.layer, -1, "block", counted=place))
    found += [Column("dead_neuron_count", item.index, -1, "units", of=item.units) for item in taps.unit_layers]
    first = len(taps.places) + len(taps.unit_layers)
    for metric, stat in (
        ("max_attn_logit", "sampled"),
        ("attn_entropy", "mean"),
        ("attn_entropy", "normalised"),
        ("dead_head_rate", "share"),
    ):
        for index, layer in enumerate(taps.head_layers):
            own = 0 if layer.attention is None else layer.attention.heads  # others may have more
            found += [
                Column(metric, layer.index, head, stat, first + index if head < own else -1, first + index)
                for head in range(taps.heads.shape[2])
            ]
    for metric, stat in ALL_ROWS:
        for layer in taps.head_layers:
            found += [Column(metric, layer.index, head, stat) for head in range(taps.heads.shape[2])]
    found += [Column("attn_entropy", layer.index, -1, OFF, first + at) for at, layer in enumerate(taps.head_layers)]
    heads = sum(item.attention.heads for item in taps.head_layers if item.attention)
    return [*found, Column("dead_head_rate", -1, -1, "share", of=heads)]


def tap_values(taps: Taps, units: DeadUnits, *, window_ends: bool) -> torch.Tensor:
    """Return a step's numbers, float32[n], NaN where nothing was measured, or it is not finite.

    Means are over the step's micro-batches, root mean squares and largest values as such. Of heads,
    :data:`ABSENT` where nothing was measured: a number that is not finite in one micro-batch is not in the mean.
    """
    means = taps.activations.nanmean(1)
    rms = taps.activations[..., 1].square().nanmean(1).sqrt()
    units.add(taps.units.nanmean(1))
    dead_units = units.count() if window_ends else torch.full_like(units.steps, torch.nan)
    largest = taps.heads[..., 0].amax(1)  # NaN where any is
    written = taps.heads != ABSENT
    heads = torch.where(written, taps.heads, 0.0).sum(1) / written.sum(1)
    heads = heads.masked_fill(~written.any(1), ABSENT)
    lower, upper, off = (taps.heads[..., item].amax(1) for item in (4, 5, 8))
    dead = heads[..., 3]
    share = ((dead > DEAD_SHARE).sum() / dead.isfinite().sum()).masked_fill(dead.isnan().any(), torch.nan)
    parts = [means[:, 0], rms[taps.blocks], means[taps.blocks, 2], dead_units, largest.flatten()]
    parts += [heads[..., item].flatten() for item in (1, 2, 3)]
    parts += [lower.flatten(), upper.flatten(), heads[..., 6].flatten(), heads[..., 7].flatten()]
    return torch.cat([*parts, off.amax(1), share[None]])
