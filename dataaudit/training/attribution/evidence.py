"""What the whole run says, beside single episodes: tests of its data, losses by source, and the course of its loss.

``loss_by_source`` is the mean over the scored targets of a source in a window, ``source_loss_tax`` that less the mean
of all other targets of the same window. The stretches of a log and the sums that took their place together have every
scored target once, so both are exact and have no interval.

The tax of each source has a band of its own, as the run's loss has (:mod:`dataaudit.training.attribution.spikes`).
Windows outside of it do not move the line that later ones are held against.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.statistics import Floats, Ints
from dataaudit.runlog.format import ATTRIBUTION_FILE, WINDOW_STEPS
from dataaudit.training.attribution.curve import curve_of, judge_run
from dataaudit.training.attribution.event_permutation import LAG, alpha_of_look, event_test, exposure_of
from dataaudit.training.attribution.expected_curve import collapse, scaling_law
from dataaudit.training.attribution.findings import (
    Collapse,
    Episode,
    EventTestFound,
    MovedTax,
    ResidualTestFound,
    ScalingLaw,
    SourceLoss,
    SourceLosses,
)
from dataaudit.training.attribution.loss_decomposition import block_of, shard_of
from dataaudit.training.attribution.residual_outliers import POOLED, document_residuals, residual_test
from dataaudit.training.attribution.run_data import Data
from dataaudit.training.attribution.run_findings import number
from dataaudit.training.attribution.spikes import SpikeDetector

MOST_WINDOWS = 400
LEAST_PART = 0.25
"""Windows with less than this part of the source's usual targets are not held against the band: they vary more."""
LEAST_PHASE = 50
"""Steps for which a learning rate has to rise, stay or fall to be a phase of its own."""


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
                losses=tuple(number(loss) for loss in losses[:, place].tolist()),
                taxes=tuple(number(tax) for tax in taxes[:, place].tolist()),
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


def event_test_of(data: Data, episodes: Sequence[Episode]) -> EventTestFound:
    """Test whether the episodes of a run follow upon blocks of its data.

    Where the order was not drawn at random, what an episode's own steps read has neighbours that are read before it
    each time. So only those count whose own steps are not to blame: all blocks were up together, of several shards.
    """
    curve, judged, run = data.curve, data.judged, data.log.run
    untested = EventTestFound(outcome="not_evaluated", lag=LAG, alpha=alpha_of_look(1))
    if not judged.spikes:
        return untested.model_copy(update={"reason": "no_episode"})
    exposure = exposure_of(
        data.log.table("stretches"),
        *_steps_read(data),
        data.twins,
        run.block_rows,
        moves="rows" if run.order == "rows" else "documents",
    )
    if exposure is None:
        return untested.model_copy(update={"reason": "no_stretches"})
    first, last = exposure.first_step, exposure.first_step + exposure.steps - 1
    counted = [True] * len(judged.spikes) if run.order else [episode.reason == "state" for episode in episodes]
    onsets = np.array([int(curve.step[spike.first]) for spike in judged.spikes], dtype=np.int64) - first
    flagged = np.concatenate([curve.step[spike.places] for spike in judged.spikes]).astype(np.int64) - first
    inside = (onsets >= 0) & (onsets < exposure.steps)
    if not inside.any():
        return untested.model_copy(update={"reason": "no_episode", "first_step": first, "last_step": last})
    onsets, own_data = onsets[inside & counted], int((inside & ~np.array(counted)).sum())
    phases = [at - first for at in _phases(data)]
    return event_test(
        exposure,
        onsets,
        flagged,
        random_order=bool(run.order),
        phases=phases,
        look=_look(data, last),
        own_data=own_data,
        named=lambda unit: _named(data, shard_of(unit), block_of(unit)) if unit >= 0 else _named(data, -1 - unit),
    )


def _steps_read(data: Data) -> tuple[Ints, Ints]:
    """Return all steps of the log and their targets; of some no loss may be known, as where every tenth is logged."""
    steps = data.log.table("steps")
    step, inverse = np.unique(steps["step"].to_numpy(), return_inverse=True)
    targets = np.bincount(inverse, steps["targets"].to_numpy(), minlength=len(step))
    return step.astype(np.int64), targets.astype(np.int64)


def residual_tests_of(data: Data) -> tuple[ResidualTestFound, ...]:
    """Test which blocks, and which shards, are odd by their losses; the steps of episodes are among them."""
    epoch, rows = _epochs(data), data.log.run.block_rows
    kinds: tuple[Literal["block", "shard"], ...] = ("block", "shard")
    return tuple(
        residual_test(
            document_residuals(data.stretches, epoch, rows, shards=kind == "shard"),
            kind=kind,
            named=partial(_tested, data, shards=kind == "shard"),
        )
        for kind in kinds
    )


def _tested(data: Data, unit: int, *, shards: bool) -> dict[str, Any]:
    """Return what names a unit of the residual test: a block, a shard, or what was pooled."""
    if unit < 0:
        source = data.log.run.sources[-2 - unit] if -2 - unit < len(data.log.run.sources) else ""
        return {"name": source, "shard": -1, "first_row": None, "last_row": None, "pooled": "source"}
    if shards:
        return _named(data, unit)
    shard, block = shard_of(unit), block_of(unit)
    return {**_named(data, shard), "pooled": "shard"} if block == POOLED else _named(data, shard, block)


def source_losses_of(data: Data) -> SourceLosses | None:
    """Return losses by source of the whole run; None where no loss of a stretch is known."""
    names = data.log.run.sources
    curves = source_curves(data.log.table("stretches"), data.log.table("sums"), len(names))
    return source_losses(curves, names) if len(curves.first) else None


def scaling_law_of(data: Data) -> ScalingLaw | None:
    """Hold the newest steps against a power law of the time before."""
    step, rate = _rates(data)
    change = _changes(rate)
    warm = int(step[np.flatnonzero(change <= 0)[0]]) if (change <= 0).any() else None
    return scaling_law(data.curve, data.judged.healthy(), warm)


def collapse_of(data: Data) -> Collapse | None:
    """Hold the newest steps against the course of the reference run, where one was named."""
    if data.reference is None:
        return None
    log = data.reference
    curve = curve_of(log.table("steps"), log.table("events"))
    healthy = judge_run(log, curve).healthy()
    name, manifest = log.folder.name, log.run.manifest
    return collapse(data.curve, data.judged.healthy(), curve, healthy, name=name, manifest=manifest)


def _named(data: Data, shard: int, block: int | None = None) -> dict[str, Any]:
    rows = data.log.run.block_rows
    first = None if block is None else block * rows
    last = None if first is None else min(first + rows, max(int(data.rows[shard]), first + 1)) - 1
    return {"name": data.names[shard], "shard": shard, "first_row": first, "last_row": last}


def _epochs(data: Data) -> Ints:
    """Return the pass of each of ``data.stretches``."""
    table = data.log.table("stretches")
    table = table.filter(pc.and_(pc.is_valid(table["loss"]), pc.greater(table["targets"], 0)))
    order = np.argsort(table["step"].to_numpy(), kind="stable")
    epochs: Ints = table["epoch"].to_numpy()[order].astype(np.int64)
    return epochs


def _phases(data: Data) -> list[int]:
    """Return first steps of phases: where the learning rate begins to rise, stay or fall, or a run was resumed."""
    events = data.log.table("events")
    found = {
        int(step) + 1
        for step, kind in zip(events["step"].to_pylist(), events["kind"].to_pylist(), strict=True)
        if kind == "resumed"
    }
    return sorted(found | set(_rate_phases(*_rates(data))))


def _rates(data: Data) -> tuple[Ints, Floats]:
    """Return steps and their learning rate."""
    values = data.log.table("values")
    held = values.filter(pc.equal(values["metric"], "learning_rate")).sort_by("step")
    return held["step"].to_numpy(), held["value"].to_numpy()


def _rate_phases(step: Ints, rate: Floats) -> list[int]:
    """Return first steps, but of the first phase, where a learning rate begins to rise, stay or fall for long."""
    if len(rate) <= LEAST_PHASE:
        return []
    change = _changes(rate)
    edges = np.concatenate([[0], np.flatnonzero(np.diff(change)) + 1, [len(change)]])
    long = [int(a) for a, b in itertools.pairwise(edges) if b - a >= LEAST_PHASE]
    return [int(step[a]) for a in long[1:]]


def _changes(rate: Floats) -> Floats:
    """Return 1 where a learning rate rises to the next step, 0 where it stays and -1 where it falls."""
    return np.sign(np.where(np.isclose(rate[1:], rate[:-1], rtol=1e-9), 0.0, np.diff(rate)))


def _look(data: Data, last: int) -> int:
    """Return which look at the run this is: one more than the one before, if the log has got further since."""
    try:
        before = orjson.loads((data.log.folder / ATTRIBUTION_FILE).read_bytes())["event_test"]
        look, until = int(before["look"]), int(before["last_step"])
    except (OSError, ValueError, TypeError, KeyError):
        return 1
    return look + (last > until)
