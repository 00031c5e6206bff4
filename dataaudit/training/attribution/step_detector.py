"""The detector of a run with tags: what a step costs beyond its composition, alone and over 5, 10 and 20 steps.

Every scored segment has the source, the length and the position that its tag names. What each of these adds to a loss
is learnt from the past alone, so a step that reads much of a hard source is no spike. The offsets are those of
:func:`dataaudit.training.attribution.loss_decomposition.fit`, over sums that forget: a healthy step counts less by a
part of 1 / (half of the steps so far, 20 to 300) with each step that follows. What documents of a source differ by, and
how much more short documents differ, is learnt beside it: so a step's residual has a standard deviation by chance.

A line through the newest healthy residuals, in the logarithm of the step, predicts the next residual. A step's
distance from it is divided by that standard deviation, and by the robust standard deviation of the quotient over the
newest steps. Sums over the newest 1, 5, 10 and 20 steps are compared with what healthy sums do, and the largest of the
four, on either side, with one width: so there is one rate of false alarms for all. Steps that a sum flags belong to the
episode, and no later sum counts them again.

Steps without tags, or without losses of segments, are judged by
:class:`dataaudit.training.attribution.spikes.SpikeDetector`, and so are the first 100 healthy steps.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dataaudit.base.statistics import LEAST_STEPS, SIGMA, AlarmRate, Floats, Ints, Tail, median_of, tail_of
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
    forget,
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
"""Shape of the tail of the largest sum, before anything is known: about that of a normal number."""
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
SHRINK = 20.0
"""Healthy stretches at which half of an offset is believed."""
CAP = 3.0
"""Standard deviations of a document that it counts for at most where these are learnt."""
MEMORY = (20.0, 300.0)
"""Healthy steps after which a step counts for a third: half of the steps so far, within these."""
_SWEEPS = 4
_FIT_ALWAYS, _FIT_EVERY = 64, 8
"""Steps up to which offsets are fitted anew with each step, and after how many then."""
_LENGTHS, _POSITIONS = 16, 16
"""Powers of two of a segment's targets, and of its first label's position."""
_USUAL_SD = 0.5
"""Standard deviation of a document, nats/token, before any is known;"""
_USUAL_DOCUMENTS = 10.0
"""and as how many documents of a source that counts;"""
_USUAL_LENGTH = 50.0
"""and those of a length vary as others of their source: a few bad documents must not make long documents vary."""
_SOURCE_SD = 0.3
"""Standard deviation of what a source costs, nats/token, before it was read."""
_MOST_DOCUMENTS = 300.0
"""Newest documents of a source, or of a length, from which their spread is learnt."""


class Segments(NamedTuple):
    """Scored segments of a step, as columns of equal length."""

    shard: Ints
    row: Ints
    source: Ints
    """Index in the sources; -1: another source."""
    start: Ints
    targets: Ints
    """Scored targets, at least 1."""
    loss: Floats
    """Mean, nats/token, finite."""

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Segments:
        """Return columns in the types that they have here."""
        return cls(*(columns[name].astype(np.float64 if name == "loss" else np.int64) for name in cls._fields))

    def take(self, chosen: Any) -> Segments:
        """Return some of them: a mask or a slice."""
        return Segments._make(column[chosen] for column in self)


class Coded(NamedTuple):
    """Segments of a step with what the composition knows of them, before it learns from them."""

    segments: Segments
    source: Ints
    """Index in the offsets, and so are the next two."""
    length: Ints
    position: Ints
    expected: Floats
    """What each adds to the level, nats/token."""
    document: Ints
    """Of each segment: index in the next three, which are by document."""
    document_targets: Floats
    document_source: Ints
    document_length: Ints


class Composition:
    """Learns what the named sources, lengths and positions in a row cost; ``state`` goes into a checkpoint."""

    def __init__(self, sources: int) -> None:
        shape = (sources + 1, _LENGTHS, _POSITIONS)
        self.steps = 0
        """Healthy steps that it learnt from."""
        self.usual = 0.0
        """What the composition of all of them adds to the level in the mean, nats/token."""
        self._weight, self._square, self._total = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self._mean, self._offsets = 0.0, [np.zeros(size) for size in shape]
        self._variance = np.full(sources + 1, _USUAL_SD**2)
        self._documents = np.full(sources + 1, _USUAL_DOCUMENTS)
        self._segments = np.zeros(sources + 1)
        """Effective number of segments of each source that its offset is of."""
        self._factor, self._lengths = np.ones(_LENGTHS), np.full(_LENGTHS, _USUAL_LENGTH)
        """Variance of documents of a length in that of their source: short documents vary more; how many they are."""

    def coded(self, segments: Segments) -> Coded:
        """Look up what is known of the segments of a step; it holds until the next :meth:`learn`."""
        known = (segments.source >= 0) & (segments.source < len(self._variance) - 1)
        source = np.where(known, segments.source + 1, 0)
        length, position = log2(segments.targets, _LENGTHS), log2(segments.start + 1, _POSITIONS)
        by_source, by_length, by_position = self._offsets
        key = (segments.shard << 40) | np.maximum(segments.row, 0)
        _, first, document = np.unique(key, return_index=True, return_inverse=True)
        targets: Floats = np.bincount(document, segments.targets).astype(np.float64)
        return Coded(
            segments=segments,
            source=source,
            length=length,
            position=position,
            expected=self._mean + by_source[source] + by_length[length] + by_position[position],
            document=document,
            document_targets=targets,
            document_source=source[first],
            document_length=log2(targets, _LENGTHS),
        )

    def residual(self, step: Coded) -> float:
        """Return the loss of a step less what its composition adds to the level, nats/token."""
        targets = step.segments.targets
        return float((targets / targets.sum()) @ (step.segments.loss - step.expected))

    def chance(self, step: Coded) -> float:
        """Return the standard deviation of the residual by chance: of independent documents, and of rare sources."""
        source, length = step.document_source, step.document_length
        weight = step.document_targets / step.document_targets.sum()
        shares = np.bincount(source, weight, minlength=len(self._variance))
        unknown = (_SOURCE_SD * SHRINK / (self._segments + SHRINK)) ** 2
        return float(np.sqrt((weight**2) @ (self._variance[source] * self._factor[length]) + shares**2 @ unknown))

    def learn(self, step: Coded, level: float) -> None:
        """Take a healthy step."""
        self._learn_spread(step, level)
        self.steps += 1
        kept = 1 - 1 / min(max(self.steps / 2, MEMORY[0]), MEMORY[1])
        targets, codes = step.segments.targets, (step.source, step.length, step.position)
        weights = targets / targets.mean()
        added = (weights, weights**2, weights * (step.segments.loss - level))
        for sums, values in zip((self._weight, self._square, self._total), added, strict=True):
            np.multiply(sums, kept, out=sums)
            np.add.at(sums, codes, values)
        if self.steps <= _FIT_ALWAYS or self.steps % _FIT_EVERY == 0:
            self._fit()

    def _learn_spread(self, step: Coded, level: float) -> None:
        """Let what documents of a source are off by follow from those of a healthy step, capped."""
        source, length, targets = step.document_source, step.document_length, step.segments.targets
        above = targets * (step.segments.loss - step.expected - level)
        rest = np.bincount(step.document, above) / step.document_targets
        relative = np.clip(rest / np.sqrt(self._variance[source] * self._factor[length]), -CAP, CAP)
        for variance, documents, code in (
            (self._variance, self._documents, source),
            (self._factor, self._lengths, length),
        ):
            number = np.bincount(code, minlength=len(variance))
            squares = variance * np.bincount(code, relative**2, minlength=len(variance))
            known_of = np.minimum(documents, _MOST_DOCUMENTS)
            variance[:] = (variance * known_of + squares) / (known_of + number)
            np.add(documents, number, out=documents)
        self._factor /= self._factor @ self._lengths / self._lengths.sum()

    def _fit(self) -> None:
        """Fit the offsets in turn, each shrunk by the number of segments that it is of."""
        axes = ((1, 2), (0, 2), (0, 1))
        totals = [self._weight.sum(axis) for axis in axes]
        numbers = [ratio(total**2, self._square.sum(axis)) for total, axis in zip(totals, axes, strict=True)]
        mean = float(self._total.sum() / self._weight.sum())
        sums = [(self._total - self._weight * mean).sum(axis) for axis in axes]
        pairs = {(0, 1): self._weight.sum(2), (0, 2): self._weight.sum(1), (1, 2): self._weight.sum(0)}
        offsets = [np.zeros_like(total) for total in totals]
        for _ in range(_SWEEPS):
            for axis, number in enumerate(numbers):
                rest = sums[axis].copy()
                for other in {0, 1, 2} - {axis}:
                    both = pairs[axis, other] if axis < other else pairs[other, axis].T
                    rest -= both @ offsets[other]
                offsets[axis] = ratio(rest, totals[axis]) * number / (number + SHRINK)
        self._mean, self._offsets, self._segments = mean, offsets, numbers[0]
        added = sum(float(offset @ total) for offset, total in zip(offsets, totals, strict=True))
        self.usual = mean + added / float(totals[0].sum())

    def state(self) -> dict[str, Any]:
        """Return all that it knows, in plain types."""
        places = np.flatnonzero(self._weight)
        sums = (self._weight.ravel()[places], self._square.ravel()[places], self._total.ravel()[places])
        return {
            "steps": self.steps,
            "places": places.tolist(),
            "sums": [total.tolist() for total in sums],
            "usual": self.usual,
            "mean": self._mean,
            "offsets": [offset.tolist() for offset in self._offsets],
            "segments": self._segments.tolist(),
            "factor": self._factor.tolist(),
            "lengths": self._lengths.tolist(),
            "variance": self._variance.tolist(),
            "documents": self._documents.tolist(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Composition:
        """Return the composition that a state was taken of."""
        made = cls(len(state["variance"]) - 1)
        made.steps = int(state["steps"])
        for sums, given in zip((made._weight, made._square, made._total), state["sums"], strict=True):
            sums.ravel()[state["places"]] = given
        made._segments = np.array(state["segments"])
        made._factor, made._lengths = np.array(state["factor"]), np.array(state["lengths"])
        made._variance, made._documents = np.array(state["variance"]), np.array(state["documents"])
        made.usual = float(state["usual"])
        made._mean, made._offsets = float(state["mean"]), [np.array(item) for item in state["offsets"]]
        return made


def log2(numbers: Ints | Floats, size: int = 64) -> Ints:
    """Return the whole part of log2, at most size - 1; 0 for what is below 1."""
    _, exponent = np.frexp(np.maximum(numbers, 1).astype(np.float64))
    return np.minimum(exponent.astype(np.int64) - 1, size - 1)


def ratio(total: Floats | Ints, number: Floats | Ints, otherwise: float = 0.0) -> Floats:
    """Return the quotients, and another number where the divisor is 0."""
    quotients: Floats = np.divide(total, number, out=np.full(total.shape, otherwise), where=number > 0)
    return quotients


class StepDetector:
    """Judges whether each step of a run is in an episode; ``state`` goes into a checkpoint."""

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
        """Of healthy sums, and of how many independent sums."""
        self._out: list[tuple[int, float]] = []
        self._above = False

    def see(self, step: int, value: float, segments: Segments | None = None) -> Verdict:
        """Take a step and return its verdict.

        A step that was seen before replaces itself and all later steps; what the composition learnt of
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
        """How many of the newest values count as usual."""
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
        return np.array(sums) / np.sqrt(_NUMBERS)

    def _flag(self, step: int, residual: float, since: int, *, above: bool) -> Kind:
        """Take a step, and those since an earlier step, into an episode."""
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
        forget(self._out, step)
        forget(self._sums, step)
        self._forget(step)

    def _forget(self, step: int) -> None:
        """Forget a step and later steps."""
        forget(self._line, step)
        self._seen -= forget(self._past, step)

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
