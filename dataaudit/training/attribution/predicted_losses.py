"""What predicts the loss of a stretch: its step, source, length, place in the row and pass; and what is left of it.

A step's common part is that of its *other* units: a unit's own losses do not count, or a bad one would look better and
all that stands beside it worse. Units that are far off (blocks or shards beyond four standard deviations) count in no
estimate at all. Where they leave less than a quarter of a step, or where a step's common part is itself far from that
of the steps around it, its stretches count for nothing: a state that breaks moves each source by an amount of its own,
so no unit is odd by what it is there. What a source moves by over the run is taken away by windows of steps.

What the loss of a step should be by what stands in it: offsets of source, length and place in the row.

Every scored segment of a document has the source, the length and the place that its tag names. What each of these
adds to a loss is learnt from the past alone, so a step that reads much of a dear source is no spike. The offsets are
those of
:func:`dataaudit.training.attribution.loss_decomposition.fit`, over sums that forget: a healthy step counts less by a
part of 1 / (half of the steps so far, 20 to 300) with each one that follows.

What documents of a source are off by, and how much more the short ones, is learnt beside it. So the residual of a step
has a standard deviation by chance: of few documents, or of sources that vary, it is larger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dataaudit.base.statistics import (
    EXACT_SIGMA,
    Floats,
    Ints,
    Mask,
    group_means,
    group_medians,
    spread,
    variance_between,
)
from dataaudit.training.attribution.loss_decomposition import SHRINK, Stretches

FAR = 4.0
"""Robust standard deviations at which residuals are cut off, and beyond which a unit is far."""
WINDOW = 64
"""Steps over which the level of a source is one."""
LEAST_LEFT = 0.25
"""Share of a step's weight that has to be of units that are not far."""
_SWEEPS = 6
_BINS = 32
_SHRINK = 20.0
"""Stretches at which half of a source's own movement is believed."""
_AROUND = 25
"""Steps on either side whose common parts a step's is compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What is left of each stretch's loss."""

    rest: Floats
    """Nats/token."""
    weight: Floats
    """1 / variance of it; 0 where its step says nothing."""
    overlap: Mask
    """Whether its step has a far unit of another shard."""
    steps_left_out: int
    """Steps that say nothing."""
    unknown: Floats
    """Variance of what its source moved by in its time, (nats/token)**2, where few others of the source say so."""


def predicted_away(held: Stretches, epoch: Ints, blocks: Ints, units: Ints) -> Predicted:
    """Take away all that predicts the losses of stretches."""
    _, step = np.unique(held.step, return_inverse=True)
    step = step.ravel()
    _, source = np.unique(held.source, return_inverse=True)
    source = source.ravel()
    windows = int(held.step.max(initial=0)) // WINDOW + 1
    codes = [
        step,
        source,
        np.log2(np.maximum(held.targets, 1)).astype(np.int64),
        np.log2(held.start + 1).astype(np.int64),
        np.minimum(np.where(epoch < 0, -1 - epoch, epoch), 63),
    ]
    far = np.zeros(len(held), dtype=bool)
    moved = source * windows + held.step // WINDOW
    rest, weight, common, unknown = _swept(held, codes, moved, far, units)
    far = _far(rest, weight, blocks) | _far(rest, weight, held.shard)
    if far.any():
        rest, weight, common, unknown = _swept(held, codes, moved, far, units)
    steps = int(step.max(initial=-1)) + 1
    total, kept = (np.bincount(step, values, minlength=steps) for values in (weight, weight * ~far))
    silent = (kept < LEAST_LEFT * total) | _up(common)
    others = _of_others(step, held.shard, far, steps)
    return Predicted(
        rest=rest,
        weight=np.where(silent[step], 0.0, weight),
        overlap=others,
        steps_left_out=int(silent.sum()),
        unknown=unknown,
    )


def precisions(loss: Floats, targets: Ints) -> Floats:
    """Return 1 / variance of a stretch by how many targets it has: a robust one by powers of two, never rising."""
    bins = np.minimum(np.log2(np.maximum(targets, 1)).astype(np.int64), _BINS - 1)
    variance = np.full(_BINS, np.nan)
    for bin_ in np.unique(bins).tolist():
        inside = loss[bins == bin_]
        if len(inside) >= 20:
            variance[bin_] = max(spread(inside, sigma=EXACT_SIGMA) ** 2, 1e-12)
    known = np.flatnonzero(np.isfinite(variance))
    filled = np.interp(np.arange(_BINS), known, variance[known]) if len(known) else np.ones(_BINS)
    found: Floats = 1 / np.minimum.accumulate(filled)[bins]
    return found


def _swept(
    held: Stretches, codes: list[Ints], moved: Ints, far: Mask, units: Ints
) -> tuple[Floats, Floats, Floats, Floats]:
    """Take away means in turn, far units left out; the step's last, of other units; what is far does not move them."""
    rest = held.loss.copy()
    weight = precisions(held.loss, held.targets)
    common = np.zeros(int(codes[0].max(initial=-1)) + 1)
    for sweep in range(_SWEEPS):
        for place, code in enumerate(codes):
            size = int(code.max(initial=0)) + 1
            part = (
                group_means(code, _cut(rest), weight * ~far, size)[0]
                if sweep
                else group_medians(code[~far], rest[~far], size)
            )
            rest -= part[code]
            common += part if place == 0 else 0.0
        weight = precisions(rest, held.targets)
    usual = float(np.median(weight)) if len(weight) else 0.0
    shrink = _SHRINK * usual
    movement, known = _by_others(moved, units, _cut(rest), weight * ~far, shrink)
    unknown = _movement(held.step // WINDOW, moved, _cut(rest), weight * ~far) * (shrink / (known + shrink)) ** 2
    rest -= movement
    by_others, number = _by_others(codes[0], units, _cut(rest), weight * ~far, 0.0)
    alone = number <= 0
    weight = np.where(alone, 0.0, 1 / (1 / weight + 1 / np.maximum(number, 1e-300)))
    return rest - by_others, weight, common, unknown


def _movement(window: Ints, moved: Ints, values: Floats, weight: Floats) -> Floats:
    """Return the variance by which sources move in the window of each stretch, by itself, the next and the last."""
    code, first = np.unique(moved, return_index=True)
    mean, precision = group_means(np.searchsorted(code, moved), values, weight, len(code))
    at = window[first]
    found = np.zeros(int(window.max(initial=0)) + 1)
    for value in np.unique(at).tolist():
        near = (np.abs(at - value) <= 1) & (precision > 0)
        found[value] = variance_between(mean[near], precision[near])
    return found[window]


def _cut(rest: Floats) -> Floats:
    bound = FAR * spread(rest, sigma=EXACT_SIGMA)
    return np.clip(rest, -bound, bound)


def _by_others(code: Ints, units: Ints, values: Floats, weight: Floats, shrink: float) -> tuple[Floats, Floats]:
    """Return, for each stretch, the weighted mean of its code's other units, and their weight."""
    size = int(code.max(initial=0)) + 1
    _, unit = np.unique(units, return_inverse=True)
    _, pair = np.unique(code * (int(unit.max(initial=0)) + 1) + unit.ravel(), return_inverse=True)
    pair = pair.ravel()
    sums, totals = (np.bincount(code, item, minlength=size)[code] for item in (weight * values, weight))
    sums = sums - np.bincount(pair, weight * values)[pair]
    number: Floats = np.maximum(totals - np.bincount(pair, weight)[pair], 0.0)
    number = np.where(number < 1e-9 * totals, 0.0, number)
    return np.divide(sums, number + shrink, out=np.zeros(len(code)), where=number > 0), number


def _far(rest: Floats, weight: Floats, units: Ints) -> Mask:
    """Return which stretches are of a unit that is far off, beside all units."""
    _, code = np.unique(units, return_inverse=True)
    code = code.ravel()
    mean, precision = group_means(code, rest, weight, int(code.max(initial=0)) + 1)
    known = precision > 0
    between = variance_between(mean[known], precision[known])
    distance = np.abs(mean) / np.sqrt(between + 1 / np.maximum(precision, 1e-300))
    return (known & (distance > FAR))[code]


def _up(common: Floats) -> Mask:
    """Return which steps' common part is far from that of the steps around it."""
    if len(common) < 2 * _AROUND:
        return np.zeros(len(common), dtype=bool)
    padded = np.pad(common, _AROUND, mode="reflect")
    off = common - np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * _AROUND + 1), axis=1)
    return np.abs(off) > FAR * max(spread(off, sigma=EXACT_SIGMA), 1e-12)


def _of_others(step: Ints, shard: Ints, far: Mask, steps: int) -> Mask:
    """Return which stretches are in a step with a far unit of another shard."""
    low, high = np.full(steps, np.iinfo(np.int64).max), np.full(steps, -1)
    np.minimum.at(low, step[far], shard[far])
    np.maximum.at(high, step[far], shard[far])
    found: Mask = (high[step] >= 0) & ((low[step] != shard) | (high[step] != shard))
    return found


CAP = 3.0
"""Standard deviations of a document that it counts for at most where these are learnt."""
MEMORY = (20.0, 300.0)
"""Healthy steps after which a step counts for a third: half of the steps so far, within these."""
_SWEEPS_OF_STEPS = 4
_FIT_ALWAYS, _FIT_EVERY = 64, 8
"""Steps up to which offsets are fitted anew with each one, and after how many then."""
_LENGTHS, _PLACES = 16, 16
"""Powers of two of a segment's targets, and of its first label's place."""
_USUAL_SD = 0.5
"""Standard deviation of a document, nats/token, before any is known;"""
_USUAL_DOCUMENTS = 10.0
"""and as how many documents of a source that counts;"""
_USUAL_LENGTH = 50.0
"""and those of a length vary as others of their source: a few bad ones must not say that long ones vary."""
_SOURCE_SD = 0.3
"""Standard deviation of what a source costs, nats/token, before it was read."""
_MOST_DOCUMENTS = 300.0
"""Newest documents of a source, or of a length, that say how much they differ."""


class Segments(NamedTuple):
    """Scored segments of a step, as columns of equal length."""

    shard: Ints
    row: Ints
    source: Ints
    """Place in the sources; -1: another one."""
    start: Ints
    targets: Ints
    """Scored ones, at least 1."""
    loss: Floats
    """Mean, nats/token, finite."""


class Coded(NamedTuple):
    """Segments of a step, with all that is looked up of them: once, and before the composition learns of them."""

    segments: Segments
    source: Ints
    """Place in the offsets, and so are the next two."""
    length: Ints
    place: Ints
    expected: Floats
    """What each adds to the level, nats/token."""
    document: Ints
    """Of each segment: place in the next three, which are by document."""
    document_targets: Floats
    document_source: Ints
    document_length: Ints


class Composition:
    """Learns what sources, lengths and places in a row cost; ``state`` goes into a checkpoint.

    Args:
        sources: How many have a name.
    """

    def __init__(self, sources: int) -> None:
        shape = (sources + 1, _LENGTHS, _PLACES)
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
        """Variance of documents of a length in that of their source: short ones vary more; how many they are."""

    def coded(self, segments: Segments) -> Coded:
        """Look up what is known of the segments of a step; it holds until the next :meth:`learn`."""
        known = (segments.source >= 0) & (segments.source < len(self._variance) - 1)
        source = np.where(known, segments.source + 1, 0)
        length, place = _log2(segments.targets, _LENGTHS), _log2(segments.start + 1, _PLACES)
        by_source, by_length, by_place = self._offsets
        key = (segments.shard << 40) | np.maximum(segments.row, 0)
        _, first, document = np.unique(key, return_index=True, return_inverse=True)
        targets: Floats = np.bincount(document, segments.targets).astype(np.float64)
        return Coded(
            segments=segments,
            source=source,
            length=length,
            place=place,
            expected=self._mean + by_source[source] + by_length[length] + by_place[place],
            document=document,
            document_targets=targets,
            document_source=source[first],
            document_length=_log2(targets, _LENGTHS),
        )

    def residual(self, step: Coded) -> float:
        """Return the loss of a step less what its composition adds to the level, nats/token."""
        targets = step.segments.targets
        return float((targets / targets.sum()) @ (step.segments.loss - step.expected))

    def chance(self, step: Coded) -> float:
        """Return the standard deviation of the residual by chance, nats/token.

        Documents are independent of one another, and what a source costs is known the less, the fewer segments of it
        were read lately.
        """
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
        targets, codes = step.segments.targets, (step.source, step.length, step.place)
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
        numbers = [_ratio(total**2, self._square.sum(axis)) for total, axis in zip(totals, axes, strict=True)]
        mean = float(self._total.sum() / self._weight.sum())
        sums = [(self._total - self._weight * mean).sum(axis) for axis in axes]
        pairs = {(0, 1): self._weight.sum(2), (0, 2): self._weight.sum(1), (1, 2): self._weight.sum(0)}
        offsets = [np.zeros_like(total) for total in totals]
        for _ in range(_SWEEPS_OF_STEPS):
            for axis, number in enumerate(numbers):
                rest = sums[axis].copy()
                for other in {0, 1, 2} - {axis}:
                    both = pairs[axis, other] if axis < other else pairs[other, axis].T
                    rest -= both @ offsets[other]
                offsets[axis] = _ratio(rest, totals[axis]) * number / (number + SHRINK)
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


def _log2(numbers: Ints | Floats, size: int) -> Ints:
    """Return the whole part of log2, at most size - 1."""
    _, exponent = np.frexp(numbers.astype(np.float64))
    whole: Ints = np.minimum(np.maximum(exponent - 1, 0), size - 1)
    return whole


def _ratio(total: Floats, number: Floats) -> Floats:
    found: Floats = np.divide(total, number, out=np.zeros_like(total), where=number > 0)
    return found
