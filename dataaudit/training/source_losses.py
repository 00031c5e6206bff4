"""Losses by source over a run: exact sums by windows of steps, what a source costs beyond the rest, when that moved.

``loss_by_source`` is the mean over the scored targets of a source in a window, ``source_loss_tax`` that less the mean
of all other targets of the same window. The stretches of a log and the sums that took their place together have every
scored target once, so both are exact and have no interval.

The tax of each source has a band of its own, as the run's loss has (:mod:`dataaudit.training.spikes`). Windows outside
of it do not move the line that later ones are held against.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.robust import Floats, Ints
from dataaudit.runlog.format import WINDOW_STEPS
from dataaudit.training.findings import MovedTax, SourceLoss, SourceLosses
from dataaudit.training.replay_findings import number
from dataaudit.training.spikes import SpikeDetector

MOST_WINDOWS = 400
LEAST_PART = 0.25
"""Windows with less than this part of the source's usual targets are not held against the band: they vary more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCurves:
    """Scored targets and their losses by window and source."""

    window: int
    """Steps of a window."""
    first: Ints
    """int64[windows] first step of each, ascending; windows without a scored target are left out."""
    targets: Ints
    """int64[windows, sources]"""
    loss_sum: Floats
    """float64[windows, sources] sum of targets * loss, nats."""

    @property
    def losses(self) -> Floats:
        """float64[windows, sources] nats/token; NaN where a source has no target."""
        return _ratio(self.loss_sum, self.targets)

    @property
    def taxes(self) -> Floats:
        """float64[windows, sources] nats/token; NaN where the source or the rest has no target."""
        rest_sum = self.loss_sum.sum(axis=1, keepdims=True) - self.loss_sum
        rest = self.targets.sum(axis=1, keepdims=True) - self.targets
        return self.losses - _ratio(rest_sum, rest)

    def newest(self) -> SourceCurves:
        """Return the newest tenth of the windows as one."""
        last = slice(-max(1, len(self.first) // 10), None)
        return SourceCurves(
            window=self.window,
            first=self.first[last][:1],
            targets=self.targets[last].sum(axis=0, keepdims=True),
            loss_sum=self.loss_sum[last].sum(axis=0, keepdims=True),
        )


def source_curves(stretches: pa.Table, sums: pa.Table, sources: int) -> SourceCurves:
    """Return the sums of a log's tables of stretches and of sums.

    A window is 256 steps or a multiple where stretches were summed up, else the least power of two; there are at most
    ``MOST_WINDOWS``. Losses that are no number, and stretches without a source, are left out.

    Args:
        stretches: With the columns step, source, targets and loss.
        sums: With the columns window, source, scored and loss_sum.
        sources: How many there are.
    """
    known = pc.and_(pc.is_finite(pc.fill_null(stretches["loss"], np.nan)), pc.greater(stretches["targets"], 0))
    held = stretches.filter(known)
    step = np.concatenate([held["step"].to_numpy(), sums["window"].to_numpy()]).astype(np.int64)
    source = np.concatenate([held["source"].to_numpy(), sums["source"].to_numpy()]).astype(np.int64)
    targets = np.concatenate([held["targets"].to_numpy(), sums["scored"].to_numpy()]).astype(np.int64)
    loss = held["loss"].to_numpy().astype(np.float64) * held["targets"].to_numpy()
    loss = np.concatenate([loss, sums["loss_sum"].to_numpy()])
    inside = (source >= 0) & (source < sources) & (targets > 0) & np.isfinite(loss)
    step, source, targets, loss = step[inside], source[inside], targets[inside], loss[inside]
    window = WINDOW_STEPS if sums.num_rows else 1
    while len(step) and int(step.max()) // window - int(step.min()) // window >= MOST_WINDOWS:
        window *= 2
    first, inverse = np.unique(step // window * window, return_inverse=True)
    cell, shape = inverse * sources + source, (len(first), sources)
    return SourceCurves(
        window=window,
        first=first,
        targets=np.bincount(cell, targets, minlength=len(first) * sources).astype(np.int64).reshape(shape),
        loss_sum=np.bincount(cell, loss, minlength=len(first) * sources).astype(np.float64).reshape(shape),
    )


def source_losses(curves: SourceCurves, names: Sequence[str]) -> SourceLosses:
    """Return what there is to say of each source that was met, and of the windows in which its tax left its band."""
    losses, taxes = curves.losses, curves.taxes
    newest = curves.newest()
    met = [place for place in range(len(names)) if curves.targets[:, place].any()]
    return SourceLosses(
        window_steps=curves.window,
        first_steps=tuple(curves.first.tolist()),
        sources=tuple(
            SourceLoss(
                source=names[place],
                targets=int(curves.targets[:, place].sum()),
                loss=number(float(curves.loss_sum[:, place].sum() / curves.targets[:, place].sum())),
                newest_loss=number(float(newest.losses[0, place])),
                newest_tax=number(float(newest.taxes[0, place])),
                moved=_moved(curves, taxes[:, place], curves.targets[:, place]),
                losses=tuple(number(one) for one in losses[:, place].tolist()),
                taxes=tuple(number(one) for one in taxes[:, place].tolist()),
            )
            for place in met
        ),
    )


def _moved(curves: SourceCurves, tax: Floats, targets: Ints) -> tuple[MovedTax, ...]:
    """Return the windows whose tax is out of the band, those that follow each other as one."""
    enough = np.isfinite(tax) & (targets >= LEAST_PART * float(np.median(targets[targets > 0])))
    detector = SpikeDetector(rate=None)
    found: list[list[tuple[int, float, float, float]]] = []
    before = -2
    for order, place in enumerate(np.flatnonzero(enough).tolist()):
        verdict = detector.see(order + 1, float(tax[place]))
        if verdict.flagged:
            row = (place, verdict.value, verdict.expected, verdict.limit)
            if before == order - 1:
                found[-1].append(row)
            else:
                found.append([row])
            before = order
    return tuple(
        MovedTax(
            first_step=int(curves.first[rows[0][0]]),
            last_step=int(curves.first[rows[-1][0]]) + curves.window - 1,
            tax=number(float(np.mean([row[1] for row in rows]))),
            expected=number(float(np.mean([row[2] for row in rows]))),
            band=number(float(np.mean([row[3] for row in rows]))),
        )
        for rows in found
    )


def _ratio(total: Floats, targets: Ints) -> Floats:
    found: Floats = np.divide(total, targets, out=np.full(total.shape, np.nan), where=targets > 0)
    return found
