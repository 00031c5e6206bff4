"""The loss of a run by step, as its log has it, and the episodes in which it leaves its band."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.statistics import AlarmRate, Floats, Ints, Mask
from dataaudit.runlog.reader import STARTS, RunLog, ranks_at
from dataaudit.training.attribution.spikes import GAP, SpikeDetector, Verdict
from dataaudit.training.attribution.step_detector import Segments, StepDetector, ratio

LAG = 256
"""Newest steps that a rank may not have written yet though others have: as many are written at once."""
GRADIENT = "grad_global_norm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Steps with a loss, ascending, as the log has them."""

    step: Ints
    value: Floats
    """Sum of targets * loss / sum of targets, over ranks and batches; where no loss is known, the loop's own."""
    targets: Ints
    ranks: Ints


def curve_of(steps: pa.Table, events: pa.Table) -> Curve:
    """Return the curve of a log's tables of steps and of events.

    Where some steps are scored and others have only the loop's own loss, that is shifted by the median of what it
    differs by where both are known: it may hold more than the mean over targets. A step that was scored again, after
    some updates of the weights, keeps the loop's own loss: the later loss may be back inside the band.
    """
    step, inverse = np.unique(steps["step"].to_numpy(), return_inverse=True)
    targets, scored, total = (
        np.bincount(inverse, steps[name].to_numpy(), minlength=len(step)) for name in ("targets", "scored", "loss_sum")
    )
    own = pc.cast(steps["user_loss"], pa.float64()).to_numpy()
    logged = pc.is_valid(steps["user_loss"]).to_numpy()
    weights = np.where(logged, np.maximum(steps["targets"].to_numpy(), 1), 0)
    divisor = np.bincount(inverse, weights, minlength=len(step))
    user = ratio(np.bincount(inverse, np.where(logged, own, 0.0) * weights, minlength=len(step)), divisor, np.nan)
    again = events.filter(pc.equal(events["kind"], "scored"))["step"].to_numpy()
    known = (scored > 0) & ~(np.isin(step, again) & (divisor > 0))
    value = ratio(total, np.where(known, scored, 0), np.nan)
    both = known & np.isfinite(user) & np.isfinite(value)
    shift = float(np.median(user[both] - value[both])) if both.any() else 0.0
    value = np.where(known, value, user - shift)
    kept = known | (divisor > 0)
    return Curve(
        step=step[kept].astype(np.int64),
        value=value[kept],
        targets=targets[kept].astype(np.int64),
        ranks=np.bincount(inverse, minlength=len(step))[kept],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Steps that a run made, and that its log lacks: wholly, or those of some rank."""

    number: int
    among: int
    """Steps that the run made, as far as the log says."""
    gap: tuple[int, int] | None
    """First and last step of the longest run of them; None where only their number is known."""
    whole: Ints
    """Steps that every rank wrote, ascending."""


def missing_of(steps: pa.Table, events: pa.Table, ranks: int) -> Missing:
    """Return what a log lacks of the steps between the run's first and last step.

    The first is that of the first start, or 1 where no start is in the log: its beginning is gone. The last is the last
    in the log, or that of an event of loss or of the run's end. Where the events of a rank report that more was
    lost than numbers are missing, that counts.
    """
    step, number = np.unique(steps["step"].to_numpy(), return_counts=True)
    whole = step[number >= ranks_at(step, events, ranks)].astype(np.int64)
    columns = (events[name].to_pylist() for name in ("rank", "step", "kind", "detail"))
    reports = list(zip(*columns, strict=True))
    last, common = int(step.max(initial=0)), int(whole.max(initial=0))
    if common and last - common <= LAG:
        last = common
    last = max([last, *(at for _, at, kind, _ in reports if kind in _LOST)])
    first = 1 + min((at for _, at, kind, _ in reports if kind in STARTS), default=0)
    first = min(first, int(step.min(initial=first)))
    among = max(0, last - first + 1)
    whole = whole[(whole >= first) & (whole <= last)]
    lost = max(_lost(reports).values(), default=0)
    edges = np.concatenate([[first - 1], whole, [last + 1]])
    longest = int(np.argmax(np.diff(edges)))
    gap = (int(edges[longest]) + 1, int(edges[longest + 1]) - 1)
    missing = among - len(whole)
    return Missing(
        number=max(missing, lost), among=max(among, len(whole) + lost), gap=gap if missing > 0 else None, whole=whole
    )


def open_ranks(events: pa.Table, ranks: int) -> int:
    """Return how many ranks of the newest start did not end their log: they go on, were killed, or cannot write."""
    last = int(events["step"].to_numpy().max(initial=0)) + 1
    now = int(ranks_at(np.array([last]), events, ranks)[0])
    state = {
        rank: kind
        for rank, kind in zip(events["rank"].to_pylist(), events["kind"].to_pylist(), strict=True)
        if kind in STARTS or kind == "closed"
    }
    return sum(kind in STARTS for rank, kind in state.items() if rank < now)


_LOST = {"lost": "steps", "closed": "lost_steps"}


def _lost(events: list[tuple[int, int, str, str]]) -> dict[int, int]:
    """Return the steps that each rank reports as lost; reports add up from one start to the next."""
    total: Counter[int] = Counter()
    since: Counter[int] = Counter()
    for rank, _, kind, detail in events:
        reported = 0
        if kind in _LOST:
            with contextlib.suppress(ValueError, AttributeError):
                reported = int(orjson.loads(detail).get(_LOST[kind], 0))
        if kind in STARTS:
            since[rank] = 0
        more = max(0, reported - since[rank])
        since[rank] += more
        total[rank] += more
    return total


def series_of(values: pa.Table, metric: str) -> tuple[Ints, Floats]:
    """Return steps, ascending, and a number of the whole model at each, the largest of all ranks."""
    rows = values.filter(pc.and_(pc.equal(values["metric"], metric), pc.equal(values["layer"], -1)))
    step, inverse = np.unique(rows["step"].to_numpy(), return_inverse=True)
    largest = np.full(len(step), -np.inf)
    np.maximum.at(largest, inverse, rows["value"].to_numpy())
    return step.astype(np.int64), largest


@dataclass(frozen=True, slots=True)
class Flagged:
    """Flagged steps that follow each other, as ascending indices of the curve."""

    places: Ints
    kind: str

    @property
    def first(self) -> int:
        """Index of the first step."""
        return int(self.places[0])

    @property
    def last(self) -> int:
        """Index of the last step."""
        return int(self.places[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A curve with the detector's verdicts."""

    step: Ints
    level: Floats
    """The line at every step, without what its composition adds; NaN where there is none."""
    expected: Floats
    """The loss that it should have, with that; the line alone where the composition is not known."""
    limit: Floats
    """The band's half width: of the steps that were judged together, in an episode."""
    k: Floats
    """That in standard deviations."""
    last_k: float
    """That of the step after the last."""
    past: int
    """Healthy steps that it can follow from."""
    rates: tuple[AlarmRate, AlarmRate] | None
    """How often a healthy curve like this leaves the band as it is at the end, above and below; None: not known."""
    judged: Mask
    """Steps that were compared with a line, or are not finite."""
    spikes: tuple[Flagged, ...]
    dips: tuple[Flagged, ...]
    composed: int
    """Judged steps whose composition was known."""
    visible: tuple[float, ...]
    """Least rise of the loss over 1, 5, 10 and 20 steps that leaves the band, nats/token, median of the steps that were
    judged by their composition; without such, of one step alone; empty where none was judged."""

    def last_shift(self, step: int) -> int:
        """Return the last step of the newest change of level before a step; 0 when there is none."""
        ends = [int(self.step[flagged.last]) for flagged in (*self.spikes, *self.dips) if flagged.kind == "level_shift"]
        return max((end for end in ends if end < step), default=0)

    def healthy(self) -> Mask:
        """Return which steps have a line and are in no episode."""
        out: Mask = np.isfinite(self.level)
        for flagged in (*self.spikes, *self.dips):
            out[flagged.first : flagged.last + 1] = False
        return out


def judge(step: Ints, value: Floats, *, log: bool = False) -> Judged:
    """Run the detector over a curve alone; the first steps, for which it is quiet, get the line fitted to them."""
    detector = SpikeDetector(log=log)
    return _judged(step, list(map(detector.see, step.tolist(), value.tolist())), detector)


def judge_run(log: RunLog, curve: Curve) -> Judged:
    """Run the detector over the curve of a log, each step by its composition where the log has its segments.

    Steps of which less than half of the targets has a loss, and those that were scored again after updates of the
    weights, are judged by their loss alone.
    """
    detector = StepDetector(len(log.run.sources))
    segments = _segments_of(log, curve)
    steps = curve.step.tolist()
    verdicts = list(map(detector.see, steps, curve.value.tolist(), map(segments.get, steps)))
    return _judged(curve.step, verdicts, detector if any(verdict.limits for verdict in verdicts) else detector.band)


def _segments_of(log: RunLog, curve: Curve) -> dict[int, Segments]:
    """Return the scored segments of each step that has enough of them."""
    table, events = log.table("stretches"), log.table("events")
    table = table.filter(pc.and_(pc.is_finite(pc.fill_null(table["loss"], np.nan)), pc.greater(table["targets"], 0)))
    order = np.argsort(table["step"].to_numpy(), kind="stable")
    columns = Segments.of({name: table[name].to_numpy()[order] for name in Segments._fields})
    step, first = np.unique(table["step"].to_numpy()[order], return_index=True)
    if not len(step) or not len(curve.step):
        return {}
    scored = np.add.reduceat(columns.targets, first)
    again = events.filter(pc.equal(events["kind"], "scored"))["step"].to_numpy()
    at = np.minimum(np.searchsorted(curve.step, step), len(curve.step) - 1)
    known = (curve.step[at] == step) & (2 * scored >= curve.targets[at]) & ~np.isin(step, again)
    ends = np.append(first[1:], len(order))
    return {
        int(step[place]): columns.take(slice(first[place], ends[place])) for place in np.flatnonzero(known).tolist()
    }


def _judged(step: Ints, verdicts: list[Verdict], detector: SpikeDetector | StepDetector) -> Judged:
    """Return a curve with a detector's verdicts."""
    expected, limit, k = (
        np.array([getattr(verdict, name) for verdict in verdicts], dtype=np.float64)
        for name in ("expected", "limit", "k")
    )
    level = np.array([verdict.level if verdict.limits else verdict.expected for verdict in verdicts], dtype=np.float64)
    begun = int(np.append(np.isfinite(expected), True).argmax())
    if begun < len(verdicts):
        level[:begun] = [verdicts[begun].line_at(value) for value in step[:begun].tolist()]
        expected[:begun], limit[:begun], k[:begun] = level[:begun], limit[begun], k[begun]
    above, below = np.zeros(len(verdicts), dtype=bool), np.zeros(len(verdicts), dtype=bool)
    for place, verdict in enumerate(verdicts):
        if verdict.flagged:
            first = int(np.searchsorted(step, verdict.since)) if verdict.since else place
            low = verdict.kind == "loss_dip" or (verdict.kind == "level_shift" and verdict.distance < 0)
            (below if low else above)[first : place + 1] = True
            limit[first : place + 1] = verdict.limit
    limits = [verdict.limits for verdict in verdicts if verdict.limits]
    if limits:
        visible = tuple(np.median(np.array(limits), axis=0).tolist())
    else:
        visible = (float(np.nanmedian(limit[begun:])),) if begun < len(verdicts) else ()
    return Judged(
        step=step,
        level=level,
        expected=expected,
        limit=limit,
        k=k,
        last_k=detector.k,
        past=detector.past,
        rates=detector.alarm_rates(),
        judged=np.array([verdict.kind != "quiet" for verdict in verdicts], dtype=bool),
        spikes=_joined(step, verdicts, above),
        dips=_joined(step, verdicts, below),
        composed=len(limits),
        visible=visible,
    )


def _joined(step: Ints, verdicts: list[Verdict], chosen: Mask) -> tuple[Flagged, ...]:
    """Return chosen steps in episodes: what is at most GAP steps apart; a new level ends one, as it begins anew."""
    places = np.flatnonzero(chosen)
    if not len(places):
        return ()
    ends = np.array([verdicts[place].kind == "level_shift" for place in places.tolist()])
    cut = (np.diff(step[places]) > GAP + 1) | ends[:-1]
    return tuple(Flagged(part, _kind(part, verdicts)) for part in np.split(places, np.flatnonzero(cut) + 1))


def _kind(places: Ints, verdicts: list[Verdict]) -> str:
    kinds = {verdicts[place].kind for place in places.tolist()}
    return next((kind for kind in ("not_finite", "level_shift") if kind in kinds), "loss_spike")
