"""What changed in a run besides its losses: jumps of the learning rate, other batches, clipping, skipped updates.

All of it stands in the log, step by step. A change is a fact and no cause: it is named beside an episode that it meets,
and alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dataaudit.robust import Mask
from dataaudit.training.curve import GRADIENT, Curve, judge, series_of
from dataaudit.training.findings import Change, Episode, Span
from dataaudit.training.spikes import GAP

LEAST_JUMP = 0.1
"""Part by which a learning rate differs from the one before, at least;"""
TIMES = 3.0
"""and times the largest of the changes before, of which there are at most"""
RECENT = 16
BACK = 50
"""Steps within which a rate that comes back makes one change of two jumps."""
LEAST_BATCH = 1.25
"""Times that a step has as many targets, or as few, as the steps before."""
CHANCE = 1e-6
"""Up to which as many clipped updates in a row are no chance, by the share of the updates before that were clipped."""
_LEAST_BEFORE = 50


def run_changes(curve: Curve, values: pa.Table) -> tuple[Change, ...]:
    """Return what changed in a run, by step.

    Args:
        curve: Of the run.
        values: The log's table of values.
    """
    found = [*_rates(values), *_batches(curve), *_clipping(values), *_skipped(values)]
    return tuple(sorted(found, key=lambda one: (one.first_step, one.kind)))


def beside(changes: tuple[Change, ...], episode: Episode | Span) -> tuple[Change, ...]:
    """Return the changes that some steps meet: up to ten steps before them, or during them."""
    return tuple(
        one for one in changes if one.first_step <= episode.last_step and one.last_step >= episode.first_step - GAP
    )


def _rates(values: pa.Table) -> Iterator[Change]:
    """Yield jumps of the learning rate: more than a schedule does from step to step."""
    step, rate = series_of(values, "learning_rate")
    differences = np.abs(np.diff(rate))
    jumps: list[tuple[int, float, float]] = []
    usual: list[float] = []
    for place, difference in enumerate(differences.tolist()):
        before, after = float(rate[place]), float(rate[place + 1])
        if len(usual) >= 2 and difference > max(LEAST_JUMP * abs(before), TIMES * max(usual)):
            jumps.append((int(step[place + 1]), before, after))
        else:
            usual = [*usual[-RECENT + 1 :], difference]
    while jumps:
        first, before, after = jumps.pop(0)
        last = first
        if jumps and jumps[0][0] - first <= BACK and abs(jumps[0][2] - before) <= LEAST_JUMP * abs(before):
            last = jumps.pop(0)[0] - 1
        yield Change(kind="learning_rate", first_step=first, last_step=last, before=before, after=after)


def _batches(curve: Curve) -> Iterator[Change]:
    """Yield steps with many more targets than those before, or many fewer."""
    judged = judge(curve.step, curve.targets.astype(np.float64), log=True)
    for one in sorted((*judged.spikes, *judged.dips), key=lambda flagged: flagged.first):
        before = float(np.exp(judged.level[one.first]))
        after = float(np.median(curve.targets[one.places]))
        if before > 0 and max(after / before, before / max(after, 1.0)) >= LEAST_BATCH:
            first, last = int(curve.step[one.first]), int(curve.step[one.last])
            yield Change(kind="batch", first_step=first, last_step=last, before=round(before), after=round(after))


def _clipping(values: pa.Table) -> Iterator[Change]:
    """Yield runs of clipped updates that are too long for the share of updates that were clipped before."""
    step, norm = series_of(values, GRADIENT)
    at, limit = series_of(values, "grad_max_norm")
    if not len(step) or not len(at):
        return
    place = np.searchsorted(at, step, "right") - 1
    clipped = (place >= 0) & (norm > limit[place])
    for first, last in runs_of(clipped):
        share = (float(clipped[:first].sum()) + 1) / (first + 2)
        if first >= _LEAST_BEFORE and share ** (last - first + 1) <= CHANCE:
            yield Change(
                kind="clipping",
                first_step=int(step[first]),
                last_step=int(step[last]),
                before=round(share, 6),
                after=1.0,
            )


def _skipped(values: pa.Table) -> Iterator[Change]:
    """Yield runs of skipped updates."""
    step, skipped = series_of(values, "skipped_updates")
    step = step[skipped > 0]
    for places in np.split(step, np.flatnonzero(np.diff(step) > 1) + 1) if len(step) else ():
        number = float(len(places))
        yield Change(
            kind="skipped_updates", first_step=int(places[0]), last_step=int(places[-1]), before=0.0, after=number
        )


def runs_of(chosen: Mask) -> Iterator[tuple[int, int]]:
    """Yield first and last place of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]]).astype(np.int8)))
    yield from zip(edges[::2].tolist(), (edges[1::2] - 1).tolist(), strict=True)
