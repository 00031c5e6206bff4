"""Whether weights, their updates and activations have the size that muP predicts, in the model's width and depth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dataaudit.base.statistics import Floats
from dataaudit.vitals.measurement import Arrived, Measurement, Sources
from dataaudit.vitals.metric import Column, Metric
from dataaudit.vitals.metrics.spectra import SHARE

if TYPE_CHECKING:
    import torch

PASSES = 8
"""Products at a turn, of what a matrix moved by."""
_STATS = (
    ("mup_spectral", "median"),
    ("mup_spectral", "width_exponent"),
    ("mup_activation", "last"),
    ("mup_activation", "width_exponent"),
    ("mup_activation", "growth"),
    ("mup_activation", "depth_exponent"),
    ("mup_update", "median"),
    ("mup_update", "width_exponent"),
    ("mup_update", "depth_exponent"),
)
_NOT_JUDGED = "it is compared with the base run, not with its own past"


class MuPCheck(Measurement):
    """Puts the newest spectral norms, those of updates and the residual stream together, on the host.

    The spectral condition (Yang, Simon, Bernstein, arXiv 2310.17813, condition 1; muP of Tensor Programs V, arXiv
    2203.03466, meets it) says that |W|₂ and |ΔW|₂ are of the order of sqrt(fan out / fan in), and elements of
    activations of the order of 1, in any width. So the ratios |W|₂ / sqrt(fan out / fan in) and that of ΔW, what a step
    moves a matrix by, the root mean square of the residual stream after the last block and how far that is above the
    first block's do not move with width. Where the base run's numbers at the same step were declared, log(number /
    base's) / log(size / base's) is recorded as an exponent: 0 is predicted.
    """

    FAMILY = "spectra"
    METRICS = (
        Metric("mup_spectral", _NOT_JUDGED),
        Metric("mup_activation", _NOT_JUDGED),
        Metric("mup_update", _NOT_JUDGED, flops=f"{4 * PASSES} m n at a turn"),
    )

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        from dataaudit.vitals.cadence import rotation
        from dataaudit.vitals.masters import ROUNDED
        from dataaudit.vitals.spectra import first_vectors, matrices_of

        structure = sources.structure
        own = [item for item in matrices_of(structure, sources.model)[0] if item.layer >= 0 and item.fans]
        self._scales = {(item.layer, item.name): math.sqrt(item.fans[1] / item.fans[0]) for item in own if item.fans}
        moved = [item for item in own if sources.masters.owns(item.weight)] if sources.config.mup else []
        known = [item for item in moved if sources.masters.of(item.weight) is not None]
        promised = [item for item in moved if sources.masters.promised(item.weight)]
        self._moved = known if len(known) == len(moved) else promised
        self._no_updates = "" if self._moved else ROUNDED if moved else "no optimizer moves these matrices"
        self._slots, self._turns = rotation([math.prod(item.sides) for item in self._moved] or [1], SHARE), 0
        self._vectors = [first_vectors(item) for item in self._moved]
        self._before: dict[int, tuple[int, torch.Tensor]] = {}
        """Of the matrices in turn: which part, and a copy of it from the beginning of the step."""
        self._places: dict[str, dict[int, float]] = {}
        """By metric, of columns of spectral norms what makes ratios of them."""
        self._ratios: dict[str, dict[int, float]] = {"mup_spectral": {}, "mup_update": {}}
        self._ends: list[int] = []
        """Columns of the residual stream after the first block and the last."""

    def columns(self) -> list[Column]:
        own = [Column("mup_update", item.layer, -1, item.name) for item in self._moved]
        return [*(Column(metric, -1, -1, stat) for metric, stat in _STATS), *own]

    def begin(self) -> None:
        """Copy the matrices that have their turn."""
        self._before.clear()
        if not self.asked or not self._moved:
            return
        rounds, slot = divmod(self._turns, len(self._slots))
        self._turns += 1
        for at in self._slots[slot]:
            part = rounds % self._moved[at].places
            if (now := self._now(at, part)) is not None:
                self._before[at] = part, now.clone()

    def values(self) -> list[torch.Tensor]:
        """Return |ΔW|₂ of the matrices in turn."""
        import torch

        from dataaudit.vitals.spectra import power_iteration

        if not self._before:
            return [self.nothing]
        values = self.nothing.clone()
        with torch.autocast(values.device.type, enabled=False):
            for at, (part, before) in self._before.items():
                if (now := self._now(at, part)) is not None:
                    numbers = power_iteration(now - before, self._vectors[at][part], PASSES)
                    values[len(_STATS) + at].copy_(numbers[0])
        self._before.clear()
        return [values]

    def arrived(self, values: Floats, context: Arrived) -> None:
        """Write the ratios where spectral norms arrived, and the residual stream where it did."""
        declared = self.sources.config.mup
        if declared is None or self.why_not() is not None:
            return
        if not self._places:
            named = [(at, item, self._scales.get((item.layer, item.stat))) for at, item in enumerate(context.columns)]
            for metric, of in (("mup_spectral", "spectral_norm"), ("mup_update", "mup_update")):
                self._places[metric] = {at: scale for at, item, scale in named if item.metric == of and scale}
            streams = [at for at, item, _ in named if item.metric == "residual_rms"]
            self._ends = [streams[0], streams[-1]]
        wider = math.log(self.sources.structure.width / declared.width)
        deeper = math.log(len(self.sources.structure.layers) / declared.depth)
        spectral, update = (self._median(context.values, metric) for metric in ("mup_spectral", "mup_update"))
        values[len(_STATS) :] *= [self._scales[item.layer, item.name] for item in self._moved]
        first, last = context.values[self._ends]
        growth = last / first if first else math.nan
        values[: len(_STATS)] = (
            *(spectral, _exponent(spectral, declared.spectral, wider)),
            *(last, _exponent(last, declared.activation, wider), growth, _exponent(growth, declared.growth, deeper)),
            *(update, _exponent(update, declared.update, wider), _exponent(update, declared.update, deeper)),
        )

    def _median(self, values: Floats, metric: str) -> float:
        """Return the median of the newest ratios, once each matrix has one; NaN where none is new."""
        places, newest = self._places[metric], self._ratios[metric]
        new = {at: float(values[at] * scale) for at, scale in places.items() if np.isfinite(values[at])}
        newest |= new
        return float(np.median([*newest.values()])) if new and len(newest) == len(places) else math.nan

    def _now(self, at: int, part: int) -> torch.Tensor | None:
        """Return a matrix, or that of its master, with the longer side first; None where there is no master yet."""
        whole = self.sources.masters.of(self._moved[at].weight)
        return None if whole is None else self._moved[at].tall(part, whole)

    def why_not(self) -> str | None:
        if self.sources.config.mup is None:
            return "no base is declared: VitalsConfig(mup=MuP(width=..., depth=...))"
        if not self.sources.structure.width:
            return "the model's width is not known: it has no embedding"
        return None if self._scales else "no matrix of a layer says what goes in and out"

    def reasons(self) -> dict[str, str]:
        return super().reasons() or ({"mup_update": self._no_updates} if self._no_updates else {})

    def state(self) -> dict[str, Any]:
        from dataaudit.vitals.spectra import as_text

        ratios = {name: [[at, ratio] for at, ratio in own.items()] for name, own in self._ratios.items()}
        return {"mup": {"ratios": ratios, "turns": self._turns, "vectors": as_text(self._vectors)}}

    def load(self, state: Mapping[str, Any]) -> None:
        from dataaudit.vitals.spectra import from_text

        own = state["mup"]
        self._ratios = {name: {int(at): float(ratio) for at, ratio in of} for name, of in own["ratios"].items()}
        self._turns = int(own["turns"])
        from_text(self._vectors, own["vectors"])


def _exponent(value: float, base: float | None, log_ratio: float) -> float:
    """Return log(value / base) / log_ratio; NaN where no base is declared, or sizes are the same."""
    return math.log(value / base) / log_ratio if base and value > 0 and log_ratio else math.nan
