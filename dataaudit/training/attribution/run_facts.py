"""What a run did, from its log alone: tokens, updates, clipping, mixed precision, held-out losses, where time went.

Counts are exact: integers that are added up over ranks, of the newest attempt at each step. Times are of the host's
clocks.

What changed besides losses: jumps of the learning rate, other batches, clipping, skipped updates. A change is a fact
and no cause: it is named beside an episode that it meets, and alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.statistics import Floats, Ints, Mask
from dataaudit.runlog.reader import STARTS, RunLog, ranks_at
from dataaudit.training.attribution.curve import GRADIENT, Curve, curve_of, judge, series_of
from dataaudit.training.attribution.findings import Change, Episode, Span
from dataaudit.training.attribution.run_findings import (
    Clipping,
    HeldOut,
    MixedPrecision,
    RunFacts,
    Straggler,
    Times,
    ValidationPoint,
    number,
)
from dataaudit.training.attribution.spikes import GAP

BETA = 0.99
"""Of the moving average of the training loss."""
NEWEST = 1_000
"""Steps that numbers of the newest steps are of."""
RISES = 5
"""Rises of the gap, in a row up to the newest validation, from which on it keeps widening."""
_CLIP_EPSILON = 1e-6
"""What torch adds to a norm before it clips."""


@dataclass(frozen=True)
class Series:
    """Numbers of the whole model, by metric, stat, step and rank."""

    values: pa.Table

    def of(self, metric: str, stat: str = "value") -> tuple[Ints, Ints, Floats]:
        """Return steps, ranks and values of a number, by step."""
        chosen = pc.and_(pc.equal(self._whole["metric"], metric), pc.equal(self._whole["stat"], stat))
        rows = self._whole.filter(chosen)
        order = np.argsort(rows["step"].to_numpy(), kind="stable")
        step, rank, value = (rows[name].to_numpy()[order] for name in ("step", "rank", "value"))
        return step.astype(np.int64), rank.astype(np.int64), value

    @cached_property
    def _whole(self) -> pa.Table:
        return self.values.filter(pc.and_(pc.equal(self.values["layer"], -1), pc.equal(self.values["head"], -1)))

    @cached_property
    def names(self) -> set[str]:
        """Metrics that there are."""
        return set(pc.unique(self._whole["metric"]).to_pylist())


def run_facts(log: RunLog) -> RunFacts:
    """Return what a run did."""
    steps, events, series = log.table("steps"), log.table("events"), Series(log.table("values"))
    curve = curve_of(steps, events)
    step, place = np.unique(steps["step"].to_numpy().astype(np.int64), return_inverse=True)
    at, _, number_skipped = series.of("skipped_updates")
    skipped = np.unique(at[number_skipped > 0])
    batches = np.bincount(place, steps["micro_batches"].to_numpy(), len(step))
    idle = np.union1d(skipped, step[batches == 0]) if batches.any() else skipped  # without updates of the weights
    tokens = int(pc.sum(steps["targets"]).as_py() or 0)
    updates = len(step) - len(idle)
    planned = reported_of(events).get("planned_tokens")
    return RunFacts(
        tokens_seen=tokens,
        repeated_tokens=int(series.of("repeated_targets")[2].sum()),
        steps_seen=updates,
        skipped_updates=len(idle),
        planned_tokens=planned if isinstance(planned, int) else None,
        tokens_per_update=number(tokens / updates) if updates else None,
        clipping=_clipping(series, step, skipped),
        mixed_precision=_mixed_precision(series, step, skipped),
        held_out=_held_out(series, curve),
        times=_times(series, steps, events, log.run.ranks),
    )


def reported_of(events: pa.Table) -> dict[str, Any]:
    """Return what the newest start of a run reported of itself: planned tokens, tokenizer."""
    reported: dict[str, Any] = {}
    rows = list(zip(*(events[name].to_pylist() for name in ("rank", "kind", "detail")), strict=True))
    first = min((rank for rank, kind, _ in rows if kind in STARTS), default=0)  # it is of every start, and clocks jump
    for rank, kind, detail in rows:
        if rank == first and kind in {*STARTS, "reads"}:
            try:
                own = orjson.loads(detail).get("told")
            except (ValueError, AttributeError):
                continue
            before = reported if kind == "reads" else {}
            reported = before | (own if isinstance(own, dict) else {})
    return reported


def _clipping(series: Series, step: Ints, skipped: Ints) -> Clipping | None:
    """Return how many updates were clipped; None where no norm, or no limit, is known."""
    at, _, norm = series.of("grad_global_norm")
    changed, _, limit = series.of("grad_max_norm")
    if not len(at) or not len(changed):
        return None
    at, first = np.unique(at, return_index=True)  # the norm is that of all ranks
    norm = norm[first]
    change = np.searchsorted(changed, at, "right") - 1
    kept = (change >= 0) & ~np.isin(at, skipped) & np.isin(at, step) & np.isfinite(norm)
    clipped = norm[kept] + _CLIP_EPSILON > limit[change[kept]]
    if not len(clipped):
        return None
    return Clipping(
        updates=len(clipped),
        clipped=int(clipped.sum()),
        rate=round(float(clipped.mean()), 9),
        newest_updates=min(NEWEST, len(clipped)),
        newest_rate=round(float(clipped[-NEWEST:].mean()), 9),
        max_norm=float(limit[-1]),
    )


def _mixed_precision(series: Series, step: Ints, skipped: Ints) -> MixedPrecision | None:
    """Return what a scaler did; None where there is none."""
    _, _, scale = series.of("loss_scale")
    if not len(scale) or not len(step):
        return None
    newest = step[-NEWEST:]
    return MixedPrecision(
        loss_scale=float(scale[-1]),
        least_loss_scale=float(scale.min()),
        overflow_rate=round(len(skipped) / len(step), 9),
        newest_overflow_rate=round(float(np.isin(newest, skipped).mean()), 9),
    )


def ema(step: Ints, value: Floats, at: Ints) -> Floats:
    """Return the moving average of a loss at some steps, the weight of a step :data:`BETA` of that of the next step."""
    kept = np.isfinite(value)
    step, value = step[kept], value[kept]
    total, weight, averages, begin = 0.0, 0.0, np.full(len(at), np.nan), 0
    for order, stop in enumerate(np.searchsorted(step, at, "right").tolist()):
        for loss in value[begin:stop].tolist():
            total, weight = BETA * total + loss, BETA * weight + 1
        begin = max(begin, stop)
        averages[order] = total / weight if weight else np.nan
    return averages


def _held_out(series: Series, curve: Curve) -> tuple[HeldOut, ...]:
    """Return the losses on held-out data beside the training loss, of each set."""
    sets = []
    for name in sorted(series.names):
        if name != "val_loss" and not name.startswith("val_loss."):
            continue
        step, _, value = series.of(name)
        at, inverse, count = np.unique(step, return_inverse=True, return_counts=True)
        loss = np.bincount(inverse, value) / count  # the mean over ranks
        trained = ema(curve.step, curve.value, at)
        gap = loss - trained
        points = tuple(
            ValidationPoint(step=int(a), val_loss=number(b), train_loss_ema=number(c), train_val_gap=number(d))
            for a, b, c, d in zip(at, loss, trained, gap, strict=True)
        )
        own = name.partition(".")[2]
        sets.append(HeldOut(name=own, beta=BETA, points=points, divergence_step=divergence_step(at, gap)))
    return tuple(sets)


def divergence_step(step: Ints, gap: Floats) -> int | None:
    """Return the first validation after which the gap only widens, up to the newest; None where it does not.

    It takes :data:`RISES` rises: six values that nothing drives stand in ascending order once in 720 times.
    """
    kept = np.isfinite(gap)
    step, gap = step[kept], gap[kept]
    falls = np.flatnonzero(np.diff(gap) <= 0)
    first = int(falls[-1]) + 1 if len(falls) else 0
    return int(step[first]) if len(step) - 1 - first >= RISES else None


def _times(series: Series, steps: pa.Table, events: pa.Table, ranks: int) -> Times | None:
    """Return where the time of the newest steps went; None where no step was timed."""
    at, rank, seconds = series.of("step_time")
    if not len(at):
        return None
    newest = at > np.unique(at)[-NEWEST:][0] - 1
    at, rank, seconds = at[newest], rank[newest], seconds[newest]
    step, inverse = np.unique(at, return_inverse=True)
    longest = np.zeros(len(step))
    np.maximum.at(longest, inverse, seconds)
    targets = steps["targets"].to_numpy()[np.isin(steps["step"].to_numpy(), step)].sum()
    of_ranks = ranks_at(step, events, ranks)
    stalled = _in_steps(series.of("dataloader_wait"), step)
    of_waits = np.isin(at << 20 | rank, stalled[0] << 20 | stalled[1])
    memory = series.of("gpu_mem_used")[2]
    in_order = [("step", "ascending"), ("time", "ascending")]  # a clock may be set back between two starts
    counted = events.filter(pc.equal(events["kind"], "utilisation")).sort_by(in_order).to_pylist()
    alike = step[step >= counted[-1]["step"]] if counted else step[:0]  # an earlier start may count otherwise
    return Times(
        steps=len(step),
        step_time_p50=_seconds(np.quantile(longest, 0.5)),
        step_time_p95=_seconds(np.quantile(longest, 0.95)),
        tokens_per_sec=number(float(targets) / float(longest.sum())),
        dataloader_stall_frac=number(float(stalled[2].sum() / seconds[of_waits].sum())) if of_waits.any() else None,
        profiled_steps=len(np.unique(series.of("comm_time_frac")[0])),
        comm_time_frac=_mean(series.of("comm_time_frac")[2]),
        comm_exposed_frac=_mean(series.of("comm_time_frac", "exposed")[2]),
        compute_time_frac=_mean(series.of("compute_time_frac")[2]),
        gpu_util=_mean(series.of("gpu_util")[2]),
        gpu_mem_used=number(float(memory.max())) if len(memory) else None,
        straggler=_straggler(series, step[of_ranks == of_ranks[-1]], int(of_ranks[-1])),
        mfu=_middle(series, "mfu", alike),
        hfu=_middle(series, "hfu", alike),
        utilisation=orjson.loads(counted[-1]["detail"]) if counted else {},
    )


def _straggler(series: Series, step: Ints, ranks: int) -> Straggler | None:
    """Return how much longer the slowest rank works before ranks meet; None with one rank, or no common steps."""
    at, rank, seconds = _in_steps(series.of("rank_time"), step)
    names = np.unique(rank)
    if len(names) < 2 or len(names) < ranks:
        return None
    whole, number_ = np.unique(at, return_counts=True)
    kept = np.isin(at, whole[number_ == len(names)])
    medians = [float(np.median(seconds[kept & (rank == name)])) for name in names] if kept.any() else []
    middle = float(np.median(medians)) if medians else 0.0
    if middle <= 0:
        return None
    slowest = int(np.argmax(medians))
    return Straggler(
        ratio=round(medians[slowest] / middle, 6),
        rank=int(names[slowest]),
        seconds=_seconds(medians[slowest]),
        median_seconds=_seconds(middle),
        ranks=len(names),
    )


def _in_steps(series: tuple[Ints, Ints, Floats], steps: Ints) -> tuple[Ints, Ints, Floats]:
    inside = np.isin(series[0], steps)
    return series[0][inside], series[1][inside], series[2][inside]


def _middle(series: Series, name: str, steps: Ints) -> float | None:
    values = _in_steps(series.of(name), steps)[2]
    return number(np.median(values)) if len(values) else None


def _mean(values: Floats) -> float | None:
    return number(values.mean()) if len(values) else None


def _seconds(value: float) -> float:
    return round(float(value), 9)


LEAST_JUMP = 0.1
"""Part by which a learning rate differs from the rate before, at least;"""
TIMES = 3.0
"""and times the largest of the changes before, of which there are at most"""
RECENT = 16
BACK = 50
"""Steps within which a rate that comes back makes a single change of two jumps."""
LEAST_BATCH = 1.25
"""Times that a step has as many targets, or as few, as the steps before."""
CHANCE = 1e-6
"""Up to which as many clipped updates in a row are no chance, by the share of the updates before that were clipped."""
_LEAST_BEFORE = 50


def run_changes(curve: Curve, values: pa.Table) -> tuple[Change, ...]:
    """Return what changed in a run, by step."""
    changes = [*_rates(values), *_batches(curve), *_changes_of_clipping(values), *_skipped(values)]
    return tuple(sorted(changes, key=lambda item: (item.first_step, item.kind)))


def beside(changes: tuple[Change, ...], episode: Episode | Span) -> tuple[Change, ...]:
    """Return the changes that some steps meet: up to ten steps before them, or during them."""
    return tuple(
        change
        for change in changes
        if change.first_step <= episode.last_step and change.last_step >= episode.first_step - GAP
    )


def _rates(values: pa.Table) -> Iterator[Change]:
    """Yield jumps of the learning rate: more than a schedule does from step to step."""
    step, rate = series_of(values, "learning_rate")
    jumps: list[tuple[int, float, float]] = []
    usual: list[float] = []
    for at, (before, after) in zip(step[1:].tolist(), pairwise(rate.tolist()), strict=True):
        difference = abs(after - before)
        if len(usual) >= 2 and difference > max(LEAST_JUMP * abs(before), TIMES * max(usual)):
            jumps.append((at, before, after))
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
    for spike in sorted((*judged.spikes, *judged.dips), key=lambda flagged: flagged.first):
        before = float(np.exp(judged.level[spike.first]))
        after = float(np.median(curve.targets[spike.places]))
        if before > 0 and max(after / before, before / max(after, 1.0)) >= LEAST_BATCH:
            first, last = int(curve.step[spike.first]), int(curve.step[spike.last])
            yield Change(kind="batch", first_step=first, last_step=last, before=round(before), after=round(after))


def _changes_of_clipping(values: pa.Table) -> Iterator[Change]:
    """Yield runs of clipped updates that are too long for the share of updates that were clipped before."""
    step, norm = series_of(values, GRADIENT)
    at, limit = series_of(values, "grad_max_norm")
    if not len(step) or not len(at):
        return
    change = np.searchsorted(at, step, "right") - 1
    clipped = (change >= 0) & (norm > limit[change])
    for first, last in runs_of(clipped):
        share = (float(clipped[:first].sum()) + 1) / (first + 2)
        if first >= _LEAST_BEFORE and share ** (last - first + 1) <= CHANCE:
            begin, end = int(step[first]), int(step[last])
            yield Change(kind="clipping", first_step=begin, last_step=end, before=round(share, 6), after=1.0)


def _skipped(values: pa.Table) -> Iterator[Change]:
    """Yield runs of skipped updates."""
    step, skipped = series_of(values, "skipped_updates")
    step = step[skipped > 0]
    for run in np.split(step, np.flatnonzero(np.diff(step) > 1) + 1) if len(step) else ():
        first, last = int(run[0]), int(run[-1])
        yield Change(kind="skipped_updates", first_step=first, last_step=last, before=0.0, after=float(len(run)))


def runs_of(chosen: Mask) -> Iterator[tuple[int, int]]:
    """Yield first and last index of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]]).astype(np.int8)))
    yield from zip(edges[::2].tolist(), (edges[1::2] - 1).tolist(), strict=True)
