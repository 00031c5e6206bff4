"""How large activations of attention, MLPs, blocks, the embedding and the last norm are, and which units are silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataaudit.vitals.measurement import Measurement, Sources
from dataaudit.vitals.metric import ALL, Column, Metric, Threshold

if TYPE_CHECKING:
    import torch

_RATIO = frozenset({"ratio"})


class Activations(Measurement):
    """Means over a step's micro-batches of mean |x|, of squares of root mean squares, of outliers, of kurtosis.

    ``activation_kurtosis`` is the mean of ((x - mean) / std)^4 over all elements, 3 of a normal distribution.
    ``massive_activation`` is the largest |x| over mean |x|, of the micro-batch where that is most, and its channel. Sun
    et al. 2024 (arXiv 2402.17762, section 2) take the median, which a few large values leave below the mean.
    """

    FAMILY, HOOKED = "activations", True
    METRICS = (
        Metric(
            "activation_mean_abs", "log", rules={"fold": ALL}, chart=("block", "Mean absolute activation of blocks")
        ),
        Metric("residual_rms", "log", rules={"fold": ALL}, chart=("block", "Root mean square of the residual stream")),
        Metric("activation_outlier_rate", "share", waits=True, chart=("block", "Share of outliers")),
        Metric(
            "activation_kurtosis", "log", flops="5 x tokens x width", chart=("block", "Kurtosis of what blocks return")
        ),
        Metric(
            "massive_activation",  # a largest value has heavy tails, and no past foretells it
            thresholds=(
                Threshold(1e3, "massive is 1000 times the median: Sun et al., arXiv 2402.17762", stats=_RATIO),
            ),
            flops="2 x tokens x width",
            chart=("ratio", "Largest activation / mean"),
        ),
    )

    def columns(self) -> list[Column]:
        sites = self.sources.hooks.outputs
        blocks = [site for site in sites if site.part == "block"]
        return [
            *(Column("activation_mean_abs", site.layer, -1, site.part, site.number) for site in sites),
            *(Column("residual_rms", site.layer, -1, "block", site.number) for site in blocks),
            *(Column("activation_outlier_rate", site.layer, -1, "block", counted=site.number) for site in blocks),
            *(Column("activation_kurtosis", site.layer, -1, "block") for site in blocks),
            *(Column("massive_activation", site.layer, -1, stat) for stat in ("ratio", "channel") for site in blocks),
        ]

    def values(self) -> list[torch.Tensor]:
        """Return what hooks wrote, NaN where it is not finite."""
        hooks = self.sources.hooks
        means = hooks.activations[..., 0].nanmean(1)
        mean_abs, mean, variance, outliers, fourth, largest, channels = hooks.activations[hooks.blocks].unbind(-1)
        rms = (variance + mean.square()).nanmean(1).sqrt()
        share = (outliers + 0 * variance).nanmean(1)  # nothing is an outlier where a value is not finite
        kurtosis = (fourth / variance).square().nanmean(1)
        ratios = largest / mean_abs
        ratio, micro_batch = ratios.masked_fill(ratios.isnan(), float("-inf")).max(1)
        return [means, rms, share, kurtosis, ratio, channels.gather(1, micro_batch[:, None])[:, 0]]


DEAD_UNIT = 1e-3
"""A unit is dead whose mean |h| lies below."""


class DeadUnits(Measurement):
    """Sums mean |h| of every unit over a window of steps."""

    FAMILY, HOOKED = "activations", True
    METRICS = (Metric("dead_neuron_count", "share", whole=True, rules={"dead": ALL}, chart=("units", "Dead units")),)

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        units, layers = sources.hooks.units, sources.hooks.unit_layers
        count, _, widest = units.shape
        self._sums, self._steps = units.new_zeros(count, widest), units.new_zeros(count)
        self._own = units.new_zeros(count, widest).bool()
        """bool[layers, units]: which a layer has."""
        for row, layer in enumerate(layers):
            self._own[row, : layer.units] = True

    def columns(self) -> list[Column]:
        layers = self.sources.hooks.unit_layers
        return [Column("dead_neuron_count", layer.index, -1, "units", of=layer.units) for layer in layers]

    def values(self) -> list[torch.Tensor]:
        """Add a step's means; return counts of dead units, float32[layers], where a window ends."""
        means = self.sources.hooks.units.nanmean(1)
        measured = means.isfinite().any(1)  # a unit that is not finite is not a dead one
        self._sums.add_(means.where(measured[:, None], 0.0))
        self._steps.add_(measured)
        if not self.sources.window_ends:
            return [self._steps.new_full(self._steps.shape, float("nan"))]
        dead = ((self._sums / self._steps[:, None]) < DEAD_UNIT) & self._own
        counts = dead.sum(1).float().where(self._steps > 0, float("nan"))
        self._sums.zero_()
        self._steps.zero_()
        return [counts]

    def why_not(self) -> str | None:
        structure = self.sources.structure
        return None if self.sources.hooks.unit_layers else structure.missing("units") or "none found"
