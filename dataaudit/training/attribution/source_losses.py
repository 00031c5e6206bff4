"""Losses by source over the whole run, and the windows in which what a source costs left its band.

``loss_by_source`` is the mean over the scored targets of a source in a window, ``source_loss_tax`` that less the mean
of all other targets of the same window. The stretches of a log and the sums that took their place together have every
scored target once, so both are exact and have no interval.

The tax of each source has a band of its own, as the run's loss has (:mod:`dataaudit.training.attribution.spikes`).
Windows outside of it do not move the line that later windows are compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.statistics import Floats, Ints
from dataaudit.runlog.format import WINDOW_STEPS
from dataaudit.training.attribution.findings import MovedTax, SourceLoss, SourceLosses
from dataaudit.training.attribution.run_data import Data
from dataaudit.training.attribution.run_findings import number
from dataaudit.training.attribution.spikes import SpikeDetector, Verdict
from dataaudit.training.attribution.step_detector import ratio

MOST_WINDOWS = 400
LEAST_PART = 0.25
"""Windows with less than this part of the source's usual targets are not compared with the band: they vary more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCurves:
    """Scored targets and their losses by window and source."""

    window: int
    first: Ints
    """int64[windows] first step of each, ascending; windows without a scored target are left out."""
    targets: Ints
    """int64[windows, sources]"""
    loss_sum: Floats
    """float64[windows, sources] sum of targets * loss, nats."""

    @property
    def losses(self) -> Floats:
        """float64[windows, sources] nats/token; NaN where a source has no target."""
        return ratio(self.loss_sum, self.targets, np.nan)

    @property
    def taxes(self) -> Floats:
        """float64[windows, sources] nats/token; NaN where the source or the rest has no target."""
        rest_sum = self.loss_sum.sum(axis=1, keepdims=True) - self.loss_sum
        rest = self.targets.sum(axis=1, keepdims=True) - self.targets
        return self.losses - ratio(rest_sum, rest, np.nan)

    def newest(self) -> SourceCurves:
        """Return the newest tenth of the windows as a single window."""
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
    """
    known = pc.and_(pc.is_finite(pc.fill_null(stretches["loss"], np.nan)), pc.greater(stretches["targets"], 0))
    scored = stretches.filter(known)
    pairs = (("step", "window"), ("source", "source"), ("targets", "scored"))
    step, source, targets = (
        np.concatenate([scored[name].to_numpy(), sums[other].to_numpy()]).astype(np.int64) for name, other in pairs
    )
    loss = scored["loss"].to_numpy().astype(np.float64) * scored["targets"].to_numpy()
    loss = np.concatenate([loss, sums["loss_sum"].to_numpy()])
    inside = (source >= 0) & (source < sources) & (targets > 0) & np.isfinite(loss)
    step, source, targets, loss = step[inside], source[inside], targets[inside], loss[inside]
    window = WINDOW_STEPS if sums.num_rows else 1
    while len(step) and int(step.max()) // window - int(step.min()) // window >= MOST_WINDOWS:
        window *= 2
    first, inverse = np.unique(step // window * window, return_inverse=True)
    cell, size = inverse * sources + source, len(first) * sources
    by_cell = [np.bincount(cell, values, minlength=size).reshape(len(first), sources) for values in (targets, loss)]
    return SourceCurves(
        window=window, first=first, targets=by_cell[0].astype(np.int64), loss_sum=by_cell[1].astype(np.float64)
    )


def source_losses(curves: SourceCurves, names: Sequence[str]) -> SourceLosses:
    """Return the losses of each source that was met, and the windows in which its tax left its band."""
    losses, taxes = curves.losses, curves.taxes
    newest = curves.newest()
    return SourceLosses(
        window_steps=curves.window,
        first_steps=tuple(curves.first.tolist()),
        sources=tuple(
            SourceLoss(
                source=names[code],
                targets=int(targets.sum()),
                loss=number(curves.loss_sum[:, code].sum() / targets.sum()),
                newest_loss=number(newest.losses[0, code]),
                newest_tax=number(newest.taxes[0, code]),
                moved=_moved(curves, taxes[:, code], targets),
                losses=tuple(map(number, losses[:, code].tolist())),
                taxes=tuple(map(number, taxes[:, code].tolist())),
            )
            for code, targets in enumerate(curves.targets.T)
            if targets.any()
        ),
    )


def _moved(curves: SourceCurves, tax: Floats, targets: Ints) -> tuple[MovedTax, ...]:
    """Return the windows whose tax is out of the band, those that follow each other together."""
    windows = np.flatnonzero(np.isfinite(tax) & (targets >= LEAST_PART * float(np.median(targets[targets > 0]))))
    detector = SpikeDetector(rate=None)
    runs: list[list[Verdict]] = []
    for order, window in enumerate(windows.tolist()):
        verdict = detector.see(order, float(tax[window]))
        if verdict.flagged and runs and runs[-1][-1].step == order - 1:
            runs[-1].append(verdict)
        elif verdict.flagged:
            runs.append([verdict])
    return tuple(
        MovedTax(
            first_step=int(curves.first[windows[run[0].step]]),
            last_step=int(curves.first[windows[run[-1].step]]) + curves.window - 1,
            tax=number(np.mean([verdict.value for verdict in run])),
            expected=number(np.mean([verdict.expected for verdict in run])),
            band=number(np.mean([verdict.limit for verdict in run])),
        )
        for run in runs
    )


def source_losses_of(data: Data) -> SourceLosses | None:
    """Return losses by source of the whole run; None where no loss of a stretch is known."""
    names = data.log.run.sources
    curves = source_curves(data.log.table("stretches"), data.log.table("sums"), len(names))
    return source_losses(curves, names) if len(curves.first) else None
