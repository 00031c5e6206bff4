"""Whether weights and activations have the size that muP predicts, in the width and depth of the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dataaudit.base.statistics import Floats
from dataaudit.vitals.measurement import Arrived, Measurement, Sources
from dataaudit.vitals.metric import Column, Metric

if TYPE_CHECKING:
    import torch

_STATS = (
    ("mup_spectral", "median"),
    ("mup_spectral", "width_exponent"),
    ("mup_activation", "last"),
    ("mup_activation", "width_exponent"),
    ("mup_activation", "growth"),
    ("mup_activation", "depth_exponent"),
)
_NOT_JUDGED = "it is compared with the base run, not with its own past"


class MuPCheck(Measurement):
    """Puts the newest spectral norms and the residual stream together, on the host.

    The spectral condition (Yang, Simon, Bernstein, arXiv 2310.17813, condition 1; muP of Tensor Programs V, arXiv
    2203.03466, meets it) says that |W|₂ is of the order of sqrt(fan out / fan in), and elements of activations of the
    order of 1, in any width. So the ratio |W|₂ / sqrt(fan out / fan in) of a layer's matrix, the root mean square of
    the residual stream after the last block and how far that is above the first block's do not move with width or
    depth. Where the base run's numbers at the same step were declared, log(number / base's) / log(size / base's) is
    recorded as an exponent: 0 is predicted.
    """

    FAMILY = "spectra"
    METRICS = (Metric("mup_spectral", _NOT_JUDGED), Metric("mup_activation", _NOT_JUDGED))

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        from dataaudit.vitals.spectra import matrices_of

        structure = sources.structure
        own = [item for item in matrices_of(structure, sources.model)[0] if item.layer >= 0 and item.fans]
        self._scales = {(item.layer, item.name): math.sqrt(item.fans[1] / item.fans[0]) for item in own if item.fans}
        weight = None if structure.embedding is None else getattr(structure.embedding[1], "weight", None)
        self._width = 0 if weight is None else int(weight.shape[-1])
        self._places: dict[int, float] = {}
        """Of columns of spectral norms, what makes ratios of them."""
        self._ratios: dict[int, float] = {}
        self._ends: list[int] = []
        """Columns of the residual stream after the first block and the last."""
        self._nothing = sources.hooks.activations.new_full((len(_STATS),), math.nan)

    def columns(self) -> list[Column]:
        return [Column(metric, -1, -1, stat) for metric, stat in _STATS]

    def values(self) -> list[torch.Tensor]:
        """Return nothing yet."""
        return [self._nothing]

    def arrived(self, values: Floats, context: Arrived) -> None:
        """Write the ratio where a spectral norm arrived, and the residual stream where it did."""
        declared = self.sources.config.mup
        if declared is None or self.why_not() is not None:
            return
        if not self._places:
            named = [(at, item, (item.layer, item.stat)) for at, item in enumerate(context.columns)]
            self._places = {
                at: self._scales[key]
                for at, item, key in named
                if item.metric == "spectral_norm" and key in self._scales
            }
            streams = [at for at, item, _ in named if item.metric == "residual_rms"]
            self._ends = [streams[0], streams[-1]]
        new = {at: context.values[at] * scale for at, scale in self._places.items() if np.isfinite(context.values[at])}
        self._ratios |= new
        wider = math.log(self._width / declared.width)
        deeper = math.log(len(self.sources.structure.layers) / declared.depth)
        if new and len(self._ratios) == len(self._places):
            median = float(np.median([*self._ratios.values()]))
            values[:2] = median, _exponent(median, declared.spectral, wider)
        first, last = context.values[self._ends]
        growth = last / first if first else math.nan
        values[2:4] = last, _exponent(last, declared.activation, wider)
        values[4:] = growth, _exponent(growth, declared.growth, deeper)

    def why_not(self) -> str | None:
        if self.sources.config.mup is None:
            return "no base is declared: VitalsConfig(mup=MuP(width=..., depth=...))"
        if not self._width:
            return "the model's width is not known: it has no embedding"
        return None if self._scales else "no matrix of a layer says what goes in and out"

    def state(self) -> dict[str, Any]:
        return {"mup": [[at, float(ratio)] for at, ratio in self._ratios.items()]}

    def load(self, state: Mapping[str, Any]) -> None:
        self._ratios = {int(at): float(ratio) for at, ratio in state["mup"]}


def _exponent(value: float, base: float | None, log_ratio: float) -> float:
    """Return log(value / base) / log_ratio; NaN where no base is declared, or sizes are the same."""
    return math.log(value / base) / log_ratio if base and value > 0 and log_ratio else math.nan
