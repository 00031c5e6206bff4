"""The detector of a run with tags: what a step costs beyond its composition, alone and over 5, 10 and 20 steps.

A line through the newest healthy residuals (:mod:`dataaudit.training.attribution.predicted_losses`), in the logarithm
of the step, says what the next one should be. A step's distance from it is divided by what chance makes of as many
documents of these sources, and by the robust standard deviation of that over the newest steps. Sums over the newest 1,
5, 10 and 20 steps are compared with what healthy sums do, and the largest of the four, on either side, with one width:
so there is one rate of false alarms for all. Steps that a sum flags belong to the episode, and no later sum counts them
again.

Steps without tags, or without losses of segments, are judged by
:class:`dataaudit.training.attribution.spikes.SpikeDetector`, and so are the first 100 healthy steps.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from dataaudit.base.statistics import LEAST_STEPS, SIGMA, AlarmRate, Floats, Tail, median_of, tail_of
from dataaudit.training.attribution.predicted_losses import Composition, Segments
from dataaudit.training.attribution.spikes import (
    AGAIN,
    FLOOR,
    GAP,
    LEVEL_AFTER,
    PAST,
    WINDOW,
    Kind,
    SpikeDetector,
    Verdict,
)

SCALES = (1, 5, 10, 20)
"""Steps whose distances are added up."""
FIRST_K = 5.0
"""Half width, in standard deviations of a sum, until it follows from the run."""
LEAST_K, MOST_K = 4.5, 8.0
ALONE = 1.3
"""Times that width for a step alone: documents are skewed, and sums over several steps less so."""
FEW_SHARDS = 3
"""Shards below which a step is judged alone: documents of a shard are alike, so steps of one shard are off together."""
RATE = 5e-5
"""False alarms a step that are aimed at, on each side: one in 10,000 steps for both."""
_SUM_SHAPE = (-0.05, 0.05)
"""Shape of the tail of the largest sum, before anything is known: about that of a normal one."""
LINE = (WINDOW, 200)
"""Values that a line is fitted to: half of those so far, within these."""
_LEAST_LINE = 20
"""Values from which on distances are taken, so that there is a spread when the first step is judged."""
_CALIBRATED_EVERY, _SUMS = 50, 200
"""Healthy steps after which the variance of sums is taken anew: of the newer half of the past, or of so many."""
_BELIEVED = 20.0
"""Independent sums at which their own spread counts as much as what is expected of it."""
_NUMBERS = np.array(SCALES, dtype=np.float64)
_TINY = 1e-12
_WANDER = 0.05
"""Variance of the line in variances of a step, where no sum is known."""
YOUNG = 100
"""Healthy steps before which the loss alone decides: what documents of a source vary by is not known yet."""
_EARLY, _CAUTION = 150.0, 0.2
"""Healthy steps below which that is more, as a loss that falls fast is no line; part of the width that is added."""


class StepDetector:
    """Says of each step of a run whether it is in an episode; ``state`` goes into a checkpoint.

    Args:
        sources: How many the tags name.
    """

    def __init__(self, sources: int) -> None:
        self.band = SpikeDetector()
        """Judges the loss alone."""
        self.composition = Composition(sources)
        self.k = FIRST_K
        self._line: deque[tuple[int, float, float]] = deque(maxlen=LINE[1])
        """Of the newest healthy steps: step, residual, distance in standard deviations by chance."""
        self._sums: deque[tuple[int, float]] = deque(maxlen=SCALES[-1] - 1)
        """Step and distance of the newest steps that no episode has."""
        self._past: deque[tuple[int, float, float, float, float]] = deque(maxlen=PAST)
        """Of the newest healthy steps: step, distance, largest sum above and below, k."""
        self._seen = 0
        """Healthy steps with a distance, in all."""
        self._variances, self._believed = np.ones(len(SCALES)), np.zeros(len(SCALES))
        """Of healthy sums, and of how many independent ones."""
        self._out: list[tuple[int, float]] = []
        self._above = False

    def see(self, step: int, value: float, segments: Segments | None = None) -> Verdict:
        """Take a step and say what it is.

        A step that was seen before takes the place of itself and of all later ones; what the composition learnt of
        them stays, so a run that is resumed hands over the checkpoint's state.
        """
        alone = self.band.see(step, value)
        self._go_back(step)
        if segments is None or not len(segments.loss) or not math.isfinite(value):
            return alone
        coded = self.composition.coded(segments)
        residual = self.composition.residual(coded)
        if len(self._line) < _LEAST_LINE:
            self._line.append((step, residual, 0.0))
            self.composition.learn(coded, residual)
            return alone
        newest = np.array(self._line)[-self._window :]
        level, slope = _level(newest, step)
        chance = max(self.composition.chance(coded), FLOOR * abs(value), _TINY)
        distance = (residual - level) / chance
        middle, spread = _usual(newest[:, 2])
        standard = (distance - middle) / spread
        widths = self._widths()
        sums = self._summed(standard) / widths
        if len(np.unique(segments.shard)) < FEW_SHARDS:
            sums[1:] = 0.0
        limits = self.k * widths / np.sqrt(_NUMBERS) * spread * chance
        shown: dict[str, Any] = {
            "step": step,
            "value": value,
            "expected": value - residual + level,
            "slope": slope,
            "level": level + self.composition.usual,
            "distance": residual - level,
            "k": self.k,
            "limits": tuple(limits.tolist()),
        }
        above, below = float(sums.max()), float(-sums.min())
        young = WINDOW + self._seen < YOUNG
        if young and alone.flagged:
            return alone
        if len(self._line) < WINDOW:
            self._line.append((step, residual, distance))
            self.composition.learn(coded, level)
            return alone
        if not young and max(above, below) > self.k:
            up = above > below
            place = int(np.argmax(sums if up else -sums))
            since = [step, *(number for number, _ in reversed(self._sums))][SCALES[place] - 1]
            kind = self._flag(step, residual, since, above=up)
            return Verdict(kind=kind, limit=float(limits[place]), since=since, **shown)
        self._line.append((step, residual, distance))
        self.composition.learn(coded, level)
        self._sums.append((step, standard))
        if self._out and step - self._out[-1][0] > SCALES[-1]:
            self._out.clear()
        self._learn(step, standard, above, below)
        return alone if young else Verdict(kind="", limit=float(limits[0]), **shown)

    @property
    def past(self) -> int:
        """Healthy steps that k can follow from."""
        return len(self._past)

    def alarm_rates(self) -> tuple[AlarmRate, AlarmRate] | None:
        """Return how often a healthy run leaves the band above and below; None with too few healthy steps."""
        tails = self._tails() if len(self._past) >= LEAST_STEPS else None
        return None if tails is None else (tails[0].rate(self.k), tails[1].rate(self.k))

    @property
    def _window(self) -> int:
        """How many of the newest values say what is usual."""
        return min(max(self._seen // 2, LINE[0]), LINE[1])

    def _widths(self) -> Floats:
        """Return the standard deviations of healthy sums over the square roots of their steps: float64[scales]."""
        early = (_EARLY / (WINDOW + self._seen)) ** 2
        usual = 1 + _WANDER * (1 + early) * _NUMBERS
        mixed = (_BELIEVED * usual + self._believed * self._variances) / (_BELIEVED + self._believed)
        widths: Floats = np.sqrt(mixed) * np.where(_NUMBERS == 1, ALONE, 1.0) * (1 + _CAUTION * early)
        return widths

    def _summed(self, standard: float) -> Floats:
        """Return sums over the newest steps, over the square roots of their number; 0 where steps lack."""
        values = np.cumsum([standard, *(number for _, number in reversed(self._sums))])
        sums = [values[number - 1] if number <= len(values) else 0.0 for number in SCALES]
        found: Floats = np.array(sums) / np.sqrt(_NUMBERS)
        return found

    def _flag(self, step: int, residual: float, since: int, *, above: bool) -> Kind:
        """Take a step, and those since an earlier one, into an episode."""
        if above != self._above:
            self._out.clear()
        self._above = above
        self._out += [*((at, value) for at, value, *_ in self._line if at >= since), (step, residual)]
        self._forget(since)
        self._sums.clear()
        if len(self._out) < LEVEL_AFTER:
            return "loss_spike" if above else "loss_dip"
        self._line.clear()
        self._line.extend((at, value, 0.0) for at, value in self._out)
        self._out.clear()
        return "level_shift"

    def _learn(self, step: int, standard: float, above: float, below: float) -> None:
        """Keep a healthy step, and let widths and k follow in their turn."""
        self._past.append((step, standard, above, below, self.k))
        self._seen += 1
        if self._seen % _CALIBRATED_EVERY == 0:
            self._calibrate()
        if self._seen % AGAIN == 0 and (tails := self._tails()) is not None:
            self.k = max(tail.limit(RATE, least=LEAST_K, most=MOST_K) for tail in tails)

    def _calibrate(self) -> None:
        """Take the variance of healthy sums: where neighbours are alike it is more than that of their steps."""
        distances = np.array([item[1] for item in self._past])[-max(_SUMS, len(self._past) // 2) :]
        total = np.concatenate([[0.0], np.cumsum(distances)])
        for place, number in enumerate(SCALES):
            if number < len(total):
                sums = (total[number:] - total[:-number]) / math.sqrt(number)
                self._variances[place] = (SIGMA * median_of(np.abs(sums))) ** 2
                self._believed[place] = len(distances) / number

    def _tails(self) -> tuple[Tail, Tail] | None:
        """Return the tails of the largest sums above and below."""
        if not self._past:
            return None
        steps, _, above, below, bands = np.array(self._past).T
        up, down = (tail_of(steps, item, bands, gap=GAP, shape=_SUM_SHAPE, least=AGAIN) for item in (above, below))
        return None if up is None or down is None else (up, down)

    def _go_back(self, step: int) -> None:
        while self._out and self._out[-1][0] >= step:
            self._out.pop()
        while self._sums and self._sums[-1][0] >= step:
            self._sums.pop()
        self._forget(step)

    def _forget(self, step: int) -> None:
        """Forget steps from one on."""
        while self._line and self._line[-1][0] >= step:
            self._line.pop()
        while self._past and self._past[-1][0] >= step:
            self._past.pop()
            self._seen -= 1

    def state(self) -> dict[str, Any]:
        """Return all that it knows, in plain types."""
        return {
            "band": self.band.state(),
            "composition": self.composition.state(),
            "k": self.k,
            "line": [list(item) for item in self._line],
            "sums": [list(total) for total in self._sums],
            "past": [list(item) for item in self._past],
            "seen": self._seen,
            "variances": self._variances.tolist(),
            "believed": self._believed.tolist(),
            "out": [list(item) for item in self._out],
            "above": self._above,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> StepDetector:
        """Return the detector that a state was taken of."""
        made = cls(0)
        made.band = SpikeDetector.from_state(state["band"])
        made.composition = Composition.from_state(state["composition"])
        made.k, made._seen, made._above = float(state["k"]), int(state["seen"]), bool(state["above"])
        made._variances, made._believed = np.array(state["variances"]), np.array(state["believed"])
        for name in ("line", "sums", "past", "out"):
            rows: Any = getattr(made, f"_{name}")
            rows.extend((int(step), *(float(item) for item in rest)) for step, *rest in state[name])
        return made


def _level(newest: Floats, step: int) -> tuple[float, float]:
    """Return the line at a step and its mean slope: medians over pairs half a window apart, and of the rest."""
    at, residual = np.log(newest[:, 0] / step), newest[:, 1]
    half = len(newest) // 2
    slope = median_of((residual[-half:] - residual[:half]) / (at[-half:] - at[:half]))
    return median_of(residual - slope * at), slope * float(at[0]) / float(newest[0, 0] - step)


def _usual(distances: Floats) -> tuple[float, float]:
    """Return the middle of the distances, and their robust standard deviation."""
    distances = distances[distances != 0]
    if len(distances) < _LEAST_LINE:
        return 0.0, 1.0
    middle = median_of(distances)
    return middle, max(SIGMA * median_of(np.abs(distances - middle)), _TINY)
