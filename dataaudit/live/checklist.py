"""Which musts of a scale and phase a run is not fed, and the line of code that feeds them: ``dataaudit doctor RUNLOG``.

``checklists.yaml`` declares the metrics. A :class:`Checklist` sees what rules see (:mod:`dataaudit.live.feed`), so a
number counts as fed exactly where a rule could be judged by it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
import pyarrow as pa

from dataaudit.base.errors import CatchErrors, ConfigError, ExitCode
from dataaudit.base.render.terminal import prose, terminal_width
from dataaudit.base.text import clean, plural
from dataaudit.base.yamlfile import load_yaml, nearest
from dataaudit.live.feed import LEAST_AVERAGED, Began, Feed, Happened, Item, Numbers
from dataaudit.live.heartbeats import BEATS_FOLDER
from dataaudit.manifest.core import Model
from dataaudit.runlog.following import Follower
from dataaudit.runlog.reader import RunLog, load_run

Scale = Literal["nano", "medium", "large"]
Phase = Literal["early", "steady", "late"]
SCALES: Final[tuple[Scale, ...]] = get_args(Scale)
PHASES: Final[tuple[Phase, ...]] = get_args(Phase)
Grade = Literal["must", "should", "nice"]
_GRADES: Final[tuple[Grade, ...]] = get_args(Grade)
State = Literal["ok", "not_fed", "once", "stale", "too_seldom", "all_nan", "some_ranks", "not_applicable"]
_RECENT = 64
"""Newest values by which it is judged how often a number comes."""
_LAG = 64
"""Steps by which a number may come later than its step: it is copied and written in batches."""
_EARLY, _LATE = 0.05, 0.8
"""Shares of the planned tokens between which a run is steady."""
_WARM_UP_STEPS = 1_000
"""What counts as early where nothing is known of tokens or of the rate."""
_DECAYED = 0.1
"""Share of its peak below which the learning rate has decayed."""


class Cadence(Model):
    """How often a number has to come: the longest of these is allowed between two of them; none: once."""

    steps: int = 0
    seconds: float = 0.0
    share: float = 0.0
    """Of the steps so far."""


class Metric(Model):
    """A metric of the checklists; ``checklists.yaml`` explains the keys."""

    every: str
    feeds: str = (
        "vitals = Vitals(model, optimizer, sinks=[monitor]); of watch_run: vitals=VitalsConfig(mapping=Mapping(...))"
    )
    by: tuple[str, ...] = ()
    scale: tuple[Grade, Grade, Grade] | None = None
    when: Literal["scaler", "ranks", "experts"] | None = None
    ranks: Literal["all", "any"] = "all"
    keeps: bool = False


class Family(Model):
    """Metrics that belong together, and how much they matter by scale and by phase."""

    about: str
    scale: tuple[Grade, Grade, Grade]
    phase: tuple[Grade, Grade, Grade]
    metrics: dict[str, Metric]

    def grade(self, metric: str, scale: Scale, phase: Phase) -> Grade:
        """Return the lesser of a metric's grades by scale and by phase."""
        by_scale = self.metrics[metric].scale or self.scale
        return max(by_scale[SCALES.index(scale)], self.phase[PHASES.index(phase)], key=_GRADES.index)


class Checklists(Model):
    """``checklists.yaml``."""

    cadences: dict[str, Cadence]
    families: dict[str, Family]


@cache
def checklists() -> Checklists:
    """Return the shipped checklists."""
    text = resources.files("dataaudit.live").joinpath("checklists.yaml").read_text("utf-8")
    return Checklists.model_validate(load_yaml(text, where="the shipped checklists"))


def fed_by(name: str, metric: Metric) -> tuple[str, ...]:
    """Return the names under which the log has what feeds a metric."""
    return metric.by or (name,)


@dataclass(frozen=True)
class Row:
    """How a metric of a checklist stands."""

    metric: str
    family: str
    grade: Grade
    state: State
    why: str
    feeds: str
    """The line of code that feeds it."""


@dataclass
class _Series:
    """The newest steps at which a number came from a rank."""

    steps: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT))
    finite: deque[bool] = field(default_factory=lambda: deque(maxlen=_RECENT))

    def add(self, step: int, *, finite: bool) -> None:
        if self.steps and self.steps[-1] == step:
            self.finite[-1] |= finite
        else:
            self.steps.append(step)
            self.finite.append(finite)

    def cut(self, step: int) -> None:
        """Let go of steps that a further attempt does again."""
        while self.steps and self.steps[-1] >= step:
            self.steps.pop()
            self.finite.pop()


class Checklist:
    """Sees the numbers of a run, and says which of those it should be fed are not there.

    Args:
        feed: Where items come from: made with :data:`WANTED`.
        ranks: Processes of the run.
        shards: The table of shards of a run that opened a manifest.
        digests: Of the run, by name.
    """

    def __init__(self, feed: Feed, ranks: int, shards: pa.Table | None, digests: Collection[str] = ()) -> None:
        self._feed, self._given_ranks = feed, ranks
        self._series: dict[str, dict[int, _Series]] = {}
        self._began: set[int] = set()
        self._seconds: deque[float] = deque(maxlen=_RECENT)
        self._given: dict[str, Any] = {}
        self._reasons: dict[str, str] = {}
        """Why a metric has no number, where an event says so."""
        self._rates: list[float] = []
        """Least, largest and newest learning rate."""
        self.preset = ""
        """Of the run's vitals."""
        self.built = {f"digests.{name}" for name in digests}
        if shards is not None:
            known = (name for name in shards.column_names if shards[name].null_count < len(shards))
            self.built |= {f"shards.{name}" for name in known}

    @property
    def _ranks(self) -> int:
        """Processes of the newest start, which the feed knows of a log."""
        return self._feed.expected or self._given_ranks

    def see(self, items: Iterable[Item]) -> None:
        """Take items of the feed."""
        for item in items:
            match item:
                case Began():
                    self._began.add(item.rank)
                case Numbers():
                    self._numbers(item)
                case Happened():
                    self._happened(item)

    def add(self, name: str, rank: int, step: int, *, finite: bool = True) -> None:
        """Take that something was fed."""
        self._series.setdefault(name, {}).setdefault(rank, _Series()).add(step, finite=finite)

    def _numbers(self, item: Numbers) -> None:
        if item.rank in self._began:
            self._began.discard(item.rank)
            for own in self._series.values():
                own.get(item.rank, _Series()).cut(item.step)
        self.add(item.metric, item.rank, item.step, finite=bool(np.isfinite(item.value).any()))
        value = float(item.value[-1])
        if item.metric == "step_time":
            self._seconds.append(value)
        elif item.metric == "learning_rate":
            least, most, _ = self._rates or (value, value, value)
            self._rates = [min(least, value), max(most, value), value]

    def _happened(self, item: Happened) -> None:
        if item.kind in {"started", "resumed"} and isinstance(told := item.detail.get("told"), dict):
            self._given |= told
        if item.kind == "vitals":
            self.preset = str(item.detail.get("preset", ""))
            metrics = item.detail.get("metrics")
            for name, state in metrics.items() if isinstance(metrics, dict) else ():
                self._reasons[name] = str(state).removeprefix("ok").removeprefix("not_applicable: ")
        elif item.kind in {"not_seen", "utilisation"}:
            for name in str(item.detail.get("what", "mfu")).split(", "):
                self._reasons[name] = str(item.detail.get("why", ""))

    def phase(self) -> tuple[Phase, str]:
        """Return the phase that the run is in, and why, in words."""
        planned, seen = self._given.get("planned_tokens"), sum(own.tokens for own in self._feed.ranks.values())
        least, most, now = self._rates or (0.0, 0.0, 0.0)
        if least < now == most:
            return "early", f"the learning rate still rises, it is {now:.3g}"
        if isinstance(planned, int) and planned > 0:
            share = seen * max(1.0, self._ranks / max(1, len(self._feed.ranks))) / planned
            phase: Phase = "early" if share < _EARLY else "late" if share >= _LATE else "steady"
            return phase, f"{seen:,} of {planned:,} planned tokens are seen"
        unknown = "the log has no `planned_tokens`"
        if now < _DECAYED * most:
            return "late", f"{unknown}; the learning rate is {now / most:.2g} of its peak"
        early = self._feed.newest_step < _WARM_UP_STEPS
        return "early" if early else "steady", f"{unknown}; step {self._feed.newest_step:,}"

    def rows(self, scale: Scale, phase: Phase, without: Collection[str] = (), *, only_due: bool = False) -> list[Row]:
        """Return how each must and should of a scale and phase stands.

        Args:
            scale: Of the run.
            phase: Of the run.
            without: Metrics that do not apply to it.
            only_due: Whether those are left out that a run of so few steps need not have yet.
        """
        rows = []
        for family, own in checklists().families.items():
            for name, metric in own.metrics.items():
                grade = own.grade(name, scale, phase)
                due = self._allowed(checklists().cadences[metric.every]) <= self._feed.newest_step
                if grade != "nice" and (due or not only_due):
                    state, why = self._state(name, metric, without)
                    rows.append(Row(name, family, grade, state, why, metric.feeds))
        return rows

    def _state(self, name: str, metric: Metric, without: Collection[str]) -> tuple[State, str]:
        if name in without:
            return "not_applicable", "it was named as not applicable"
        if (why := self._not_applicable(name, metric)) is not None:
            return "not_applicable", why
        allowed = self._allowed(checklists().cadences[metric.every])
        sources = fed_by(name, metric)
        if any(source in self.built for source in sources):
            return "ok", ""
        fed = [by for source in sources for by in self._matching(source)]
        judged = [self._judged(by, metric, allowed) for by in fed]
        if not judged and any(source in self._series for source in sources):
            return "stale", "it came before the run was resumed, and not since"
        if not judged:
            return "not_fed", self._reasons.get(name, "")
        return next((own for own in judged if own[0] == "ok"), judged[0])

    def _not_applicable(self, name: str, metric: Metric) -> str | None:
        match metric.when:
            case "ranks" if self._ranks == 1:
                return "the run has one rank"
            case "scaler" if self._given.get("scaler") is False:
                return "the run has no loss scaler; in float16 hand it over"
            case "experts" if (why := self._reasons.get(name, "")).startswith("no router"):
                return why
        if name not in self._series and self._begun(name):
            return f"too few steps yet: it is a mean of {LEAST_AVERAGED} or more"
        return None

    def _begun(self, name: str) -> bool:
        """Return whether what a mean is of comes, and is too little yet."""
        counted = {"tokens_per_sec": "times", "dataloader_stall_frac": "waits"}.get(name)
        ranks = self._feed.ranks.values() if counted else ()
        return any(0 < len(getattr(own, str(counted))) < LEAST_AVERAGED for own in ranks)

    def _matching(self, source: str) -> list[dict[int, _Series]]:
        if not source.endswith(".*"):
            names = [source]
        else:
            names = [name for name in self._series if name.startswith(source.removesuffix("*"))]
        return [self._series[name] for name in names if any(own.steps for own in self._series.get(name, {}).values())]

    def _allowed(self, cadence: Cadence) -> float:
        """Return the steps that may lie between two values."""
        seconds = float(np.median(self._seconds)) if self._seconds else 1.0
        return max(cadence.steps, cadence.seconds / max(seconds, 1e-6), cadence.share * self._feed.newest_step)

    def _judged(self, by: dict[int, _Series], metric: Metric, allowed: float) -> tuple[State, str]:
        fed = {rank: own for rank, own in by.items() if own.steps}
        best = max(fed.values(), key=lambda own: own.steps[-1])
        last = best.steps[-1]
        missing = sorted(set(range(self._ranks)) - set(fed)) if metric.ranks == "all" else []
        late = allowed > 0 and self._feed.newest_step - last > 2 * allowed + _LAG and not metric.keeps
        gaps = np.diff(best.steps)
        if not any(any(own.finite) for own in fed.values()):
            return "all_nan", f"none of its newest {plural(len(best.steps), 'value')} is finite, up to step {last:,}"
        if late and len(best.steps) == 1:
            return "once", f"it came once, at step {last:,}, and step {self._feed.newest_step:,} has none"
        if late:
            return "stale", f"it came last at step {last:,}, and step {self._feed.newest_step:,} has none"
        if len(gaps) and 0 < allowed < (usual := float(np.median(gaps))) and not metric.keeps:
            return "too_seldom", f"it comes every {usual:,.0f} steps; expected at least every {allowed:,.0f}"
        if missing:
            names = ", ".join(map(str, missing[:8])) + (", ..." if missing[8:] else "")
            return "some_ranks", f"{len(missing)} of {self._ranks} ranks do not feed it: {names}"
        return "ok", ""


WANTED: Final = frozenset(
    {
        by
        for own in checklists().families.values()
        for name, metric in own.metrics.items()
        for by in fed_by(name, metric)
    }
    | {"step_time", "learning_rate"}
)
"""What a feed has to yield for a checklist."""


@dataclass(frozen=True)
class Checked:
    """How a run log stands against a checklist."""

    runlog: str
    scale: Scale
    phase: Phase
    phase_why: str
    steps: int
    rows: tuple[Row, ...]
    damaged: tuple[str, ...]

    @property
    def unfed(self) -> list[Row]:
        """Musts that are not fed as they should be."""
        return [row for row in self.rows if row.grade == "must" and row.state not in {"ok", "not_applicable"}]

    @property
    def exit_code(self) -> ExitCode:
        """0: all musts are fed; 3: some are not; 4: no step is there to judge."""
        if not self.steps:
            return ExitCode.NOTHING_EVALUATED
        return ExitCode.NOT_EVALUATED if self.unfed or self.damaged else ExitCode.PASS

    def document(self) -> dict[str, Any]:
        """Return it in plain types."""
        rows = [vars(row) for row in self.rows]
        return {
            **vars(self),
            "rows": rows,
            "unfed": [row.metric for row in self.unfed],
            "exit_code": int(self.exit_code),
        }


def check_log(
    folder: Path, scale: Scale | None = None, phase: Phase | None = None, without: Collection[str] = ()
) -> Checked:
    """Return how a run log stands against the checklist of a scale and phase.

    Args:
        folder: Of the run log.
        scale: Of the run; that of its vitals by default, else nano.
        phase: Of the run; by default it follows from planned tokens and the learning rate.
        without: Metrics that do not apply to it.

    Raises:
        RunLogError: There is no run log, or it is damaged.
        ConfigError: No metric of the checklists has a name of ``without``.
    """
    known = {name for family in checklists().families.values() for name in family.metrics}
    if unknown := [name for name in without if name not in known]:
        raise ConfigError(f"--without: no metric `{clean(unknown[0])}`{nearest(unknown[0], sorted(known))}")
    log = load_run(folder)
    feed, follower = Feed(WANTED, log.run.ranks, steps=1, batches=1), Follower(folder)
    feed.sources = log.run.sources
    checklist = Checklist(feed, log.run.ranks, _shards(log), log.run.digests)
    if any((folder / BEATS_FOLDER).glob("*.beat")):  # of `watch_run`
        checklist.built.add("heartbeat_missing")
    checklist.see(feed.follow(follower.read()))
    for rank, step in zip(*(log.table("tokens").column(name).to_pylist() for name in ("rank", "step")), strict=True):
        checklist.add("tokens", rank, step)
    of_vitals: list[Scale] = [item for item in SCALES if item == checklist.preset]
    own: Scale = scale or (of_vitals or [SCALES[0]])[0]
    derived, why = checklist.phase()
    rows = tuple(checklist.rows(own, phase or derived, without))
    words = "as named" if phase else why
    return Checked(str(folder), own, phase or derived, words, feed.newest_step, rows, tuple(follower.damaged))


def _shards(log: RunLog) -> pa.Table | None:
    with CatchErrors():
        return None if log.run.manifest is None else log.shards
    return None


def unfed_text(rows: Iterable[Row]) -> list[str]:
    """Return musts that are not fed, each with the line that feeds it."""
    lines = []
    for row in rows:
        lines.append(f"  {row.metric}: {row.state.replace('_', ' ')}{f', {clean(row.why)}' if row.why else ''}")
        lines.append(f"      {row.feeds}")
    return lines


def checked_text(checked: Checked) -> str:
    """Return how a run stands as lines for a terminal."""
    head = f"{clean(checked.runlog)}: step {checked.steps:,}, {checked.scale}, {checked.phase} ({checked.phase_why})"
    if not checked.steps:
        return f"{head}\nnothing can be judged: the log has no step\n"
    musts = [row for row in checked.rows if row.grade == "must" and row.state != "not_applicable"]
    counted = f"{len(checked.unfed)} of {plural(len(musts), 'must')} not fed; with TrainingMonitor these lines do it:"
    lines = [head, counted if checked.unfed else f"all {plural(len(musts), 'must')} fed", *unfed_text(checked.unfed)]
    shoulds = [
        row.metric for row in checked.rows if row.grade == "should" and row.state not in {"ok", "not_applicable"}
    ]
    lines += ["should be fed, too:", *prose(", ".join(shoulds), terminal_width())] if shoulds else []
    apart = [f"{row.metric}: {row.why}" for row in checked.rows if row.state == "not_applicable"]
    lines += [f"not applicable  {clean(own)}" for own in apart]
    lines += [f"damaged  {clean(name)}: what follows in it is not judged" for name in checked.damaged]
    return "\n".join(lines) + "\n"
