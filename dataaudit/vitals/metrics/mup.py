"""Whether weights and activations keep the size that muP predicts, in the width and depth of the model."""

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
    ("mup_spectral", "largest"),
    ("mup_spectral", "width_exponent"),
    ("mup_activation", "last"),
    ("mup_activation", "growth"),
    ("mup_activation", "width_exponent"),
    ("mup_activation", "depth_exponent"),
)
_EXPONENTS = frozenset({"width_exponent", "depth_exponent"})


class MuPCheck(Measurement):
    """Puts the newest spectral norms and residual streams together, on the host.

    The spectral condition (Yang, Simon, Bernstein, arXiv 2310.17813, condition 1; the same as muP of Tensor Programs V,
    arXiv 2203.03466) says that |W|₂ is of the order of sqrt(fan out / fan in), and elements of activations of the order
    of 1, in any width. So each matrix of a layer has a ratio that no width should move. Where the same numbers of a
    smaller run at the same step were declared, how they moved is an exponent of the width, or depth: 0 is predicted.
    """

    FAMILY = "spectra"
    METRICS = (
        Metric("mup_spectral", "log", estimates=_EXPONENTS),
        Metric("mup_activation", "log", estimates=_EXPONENTS),
    )

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        from dataaudit.vitals.spectra import matrices_of

        layers = sources.structure.layers
        own = [item for item in matrices_of(sources.structure, sources.model)[0] if item.layer >= 0 and item.fans]
        self._fans = {(item.layer, item.name): item.fans for item in own if item.fans}
        embedding = None if sources.structure.embedding is None else getattr(sources.structure.embedding[1], "weight", None)
        self._width = 0 if embedding is None else int(embedding.shape[-1])
        self._depth = len(layers)
        self._blocks = (layers[0].index, layers[-1].index)
        self._ratios: dict[int, float] = {}
        """By column, the newest |W|₂ / sqrt(fan out / fan in)."""
        self._nothing = sources.hooks.activations.new_full((len(_STATS),), math.nan)

    def columns(self) -> list[Column]:
        """Return columns of the whole model."""
        return [Column(metric, -1, -1, stat) for metric, stat in _STATS]

    def values(self) -> list[torch.Tensor]:
        """Return nothing yet."""
        return [self._nothing]

    def arrived(self, values: Floats, context: Arrived) -> None:
        """Write ratios where spectral norms arrived, and the residual stream where it did."""
        declared = self.sources.config.mup
        if declared is None or self.why_not() is not None:
            return
        new, streams = False, [math.nan, math.nan]
        for at in np.flatnonzero(np.isfinite(context.values)).tolist():
            column = context.columns[at]
            if column.metric == "spectral_norm" and (fans := self._fans.get((column.layer, column.stat))):
                self._ratios[at], new = float(context.values[at]) / math.sqrt(fans[0] / fans[1]), True
            elif column.metric == "residual_rms" and column.layer in self._blocks:
                for place in (0, 1):
                    streams[place] = context.values[at] if column.layer == self._blocks[place] else streams[place]
        wider, deeper = math.log(self._width / declared.width), math.log(self._depth / declared.depth)
        if new and len(self._ratios) == len(self._fans):
            median = float(np.median([*self._ratios.values()]))
            values[:3] = median, max(self._ratios.values()), _exponent(median, declared.spectral, wider)
        last, growth = streams[1], streams[1] / streams[0] if streams[0] else math.nan
        values[3:] = (
            last,
            growth,
            _exponent(last, declared.activation, wider),
            _exponent(growth, declared.growth, deeper),
        )

    def why_not(self) -> str | None:
        """Return that no base is declared, or what of the model is not known."""
        if self.sources.config.mup is None:
            return "no base is declared: VitalsConfig(mup=MuP(width=..., depth=...))"
        if not self._width:
            return "the model's width is not known: it has no embedding"
        return None if self._fans else "no matrix of a layer says what goes in and out"

    def state(self) -> dict[str, Any]:
        """Return the newest ratios."""
        return {"mup": [[at, ratio] for at, ratio in self._ratios.items()]}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._ratios = {int(at): float(ratio) for at, ratio in state["mup"]}


def _exponent(value: float, base: float | None, log_ratio: float) -> float:
    """Return log(value / base) / log_ratio; NaN where no base is declared, or sizes are the same."""
    return math.log(value / base) / log_ratio if base and value > 0 and log_ratio else math.nan
