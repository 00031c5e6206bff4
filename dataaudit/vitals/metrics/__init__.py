"""The metrics of vitals. To add one: a file with a class in this folder, and a line below."""

from __future__ import annotations

from typing import Final

from dataaudit.vitals.measurement import Measurement
from dataaudit.vitals.metric import Metric
from dataaudit.vitals.metrics.activations import Activations, DeadUnits
from dataaudit.vitals.metrics.adam_spikes import AdamSpikes
from dataaudit.vitals.metrics.curvature import Curvature
from dataaudit.vitals.metrics.experts import ExpertDrops, ExpertLoads, ExpertSources, RouterWeights
from dataaudit.vitals.metrics.gradient_noise import GradientNoise, GradientSpikes
from dataaudit.vitals.metrics.heads import HeadNorms, Heads
from dataaudit.vitals.metrics.layer_std_sync import LayerStdSync
from dataaudit.vitals.metrics.mup import MuPCheck
from dataaudit.vitals.metrics.spectra import Spectra
from dataaudit.vitals.metrics.update_spectra import UpdateSpectra
from dataaudit.vitals.metrics.weight_norms import StepCounts, WeightNorms

MEASUREMENTS: Final[tuple[type[Measurement], ...]] = (
    Activations,
    DeadUnits,
    Heads,
    WeightNorms,
    GradientNoise,
    StepCounts,
    GradientSpikes,
    UpdateSpectra,
    Spectra,
    LayerStdSync,
    MuPCheck,
    RouterWeights,
    ExpertLoads,
    ExpertDrops,
    ExpertSources,
    HeadNorms,
    AdamSpikes,
    Curvature,
)
"""In the order of a step's vector: new ones at the end, or states of checkpoints do not fit."""
METRICS: Final[dict[str, Metric]] = {metric.name: metric for kind in MEASUREMENTS for metric in kind.METRICS}
ESTIMATES: Final = frozenset(stat for metric in METRICS.values() for stat in metric.estimates)
_UNKNOWN = Metric("", "another statistic of the metric is judged")


def declared(name: str) -> Metric:
    """Return what a metric declares; of an unknown name, nothing."""
    return METRICS.get(name, _UNKNOWN)


def how_judged(metric: str, stat: str) -> str:
    """Return how a series is judged against its own past; a sentence that says why it is not."""
    own = declared(metric)
    return own.judged if not own.stats or stat in own.stats else _UNKNOWN.judged


def charts(*, of_heads: bool) -> tuple[tuple[str, str, str], ...]:
    """Return what the page of a run draws: metric, statistic and title, of heads or of layers."""
    return tuple(
        (metric.name, *metric.chart)
        for kind in MEASUREMENTS
        for metric in kind.METRICS
        if metric.chart and (kind.FAMILY == "attention" or metric.by_head) == of_heads
    )
