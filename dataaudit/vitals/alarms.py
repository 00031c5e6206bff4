"""Alarms: what is wrong whatever the run was like before, and series that leave what is expected of them.

Two layers judge the values of every step.

- *Always on*, from the first step: rules without a baseline, thresholds of the literature, and a learning rate that
  leaves its schedule (fixed_rules.py).
- *Calibrated*, once enough is known: each series against its own past and what the loop knows (surprise.py), or
  against the baseline of another run (:class:`Deviations`), shares and counts against their own law (shares.py); all
  together at a stated rate of false alarms.

An alarm is raised once, and again after its series came back. A *warning* says that a value passed a threshold of the
literature; of several at a step it names the farthest. While the learning rate warms up each threshold is warned of
once.

Related alarms are one *incident* (incidents.py). A model that begins moves far from where it began, layer by layer, in
a way that no past of it foretells: until its updates add up to half of its weights, deviations from its own past are
hints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from dataaudit.base.statistics import Floats, Ints
from dataaudit.vitals.baseline import FARTHEST_OF_MEAN, RATE, Arrays, Baseline, Runs, logarithm
from dataaudit.vitals.fixed_rules import Finding, FixedRules, Schedule, Watched, few, finite
from dataaudit.vitals.incidents import FROM_ITS_PAST, Incidents, kind_of
from dataaudit.vitals.metric import Key
from dataaudit.vitals.metrics import ESTIMATES, METRICS, declared, how_judged
from dataaudit.vitals.shares import Shares
from dataaudit.vitals.surprise import JUDGED_FROM, Surprises

_CALM = 0.5
"""Share of the limit within which a series is inside again."""
_FARTHEST = 1e300


class Deviations(Arrays):
    """Judges series against a baseline."""

    ARRAYS = ("open", "_calm", "_began", "_inside")

    def __init__(self, keys: Sequence[Key], baseline: Baseline, total: int) -> None:
        if baseline.total and not total:
            raise ValueError("the baseline is by position: the last step of this run is needed")
        number = len(keys)
        self.baseline, self.total, self.keys = baseline, total, keys
        self.series = np.arange(number)
        self.open = np.zeros(number, bool)
        column = {key: at for at, key in enumerate(baseline.keys)}
        self._columns = np.array([column.get(key, -1) for key in keys], np.int64)
        limits = [baseline.limits.get(key.metric) for key in keys]
        fit = np.array([limit is not None for limit in limits], bool) & (self._columns >= 0)
        fit &= np.array([not _is_share(key) for key in keys], bool)
        self._scale = np.where(fit, baseline.scale[self._columns], np.nan)
        none = (math.inf, math.inf)
        self._limits = np.array([none if limit is None else [each.distance for each in limit] for limit in limits]).T
        self._near = _CALM * self._limits.min(0)
        self._logarithms = np.array([declared(key.metric).logarithm for key in keys], bool)
        self._calm, self._began = np.zeros((2, number), np.int64)
        self._inside = np.ones(number, bool)
        self._runs = Runs(number, baseline.persistence)
        self._out = np.zeros((2, number), bool)
        self._level = np.zeros(number)

    @property
    def judged(self) -> np.ndarray:
        """bool[series]: which the baseline has a scale of."""
        return ~np.isnan(self._scale)

    @property
    def not_evaluated(self) -> dict[Key, str]:
        """Series that are not judged, and why."""
        theirs = self.baseline.not_evaluated
        reasons = {
            key: "not in the baseline" if column < 0 else theirs.get(key, "")
            for key, column in zip(self.keys, self._columns, strict=True)
        }
        others = {key for key in self.keys if key.stat in ESTIMATES or _is_share(key)}
        return {key: why for key, why in reasons.items() if why and key not in others}

    def see(self, step: int, values: Floats) -> Ints:
        """Take the values of a step and return which series left the baseline."""
        level = self.baseline.level(step, self.total)[self._columns]
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.where(self._logarithms, logarithm(values), values) - level
            z = np.clip(z / self._scale, -_FARTHEST, _FARTHEST)
        measured = ~np.isnan(z)
        near = np.abs(z) <= self._near
        self._began[measured & ~near & self._inside] = step
        self._inside = np.where(measured, near, self._inside)
        self._calm = np.where(measured, np.where(near, self._calm + 1, 0), self._calm)
        self._out, self._level = self._runs.see(z) > self._limits, level
        out = self._out.any(0)
        raised = np.flatnonzero(out & ~self.open)
        self.open = out | (self.open & (~measured | (self._calm < self.baseline.persistence)))
        return raised

    def detail(self, series: int) -> dict[str, Any]:
        """Return what a series left: the band of jumps or of drifts; of drifts, the mean that did too."""
        limit = self.baseline.limits[self.keys[series].metric][int(self._out[:, series].argmax())]
        level, scale = float(self._level[series]), float(self._scale[series])
        band = {"low": level - limit.distance * scale, "high": level + limit.distance * scale}
        if limit.over == "mean":
            mean = np.clip(self._runs.recent[:, series], -FARTHEST_OF_MEAN, FARTHEST_OF_MEAN).mean()
            band["value"] = level + float(mean) * scale
        if self._logarithms[series]:
            band = {name: math.exp(min(number, 709.0)) for name, number in band.items()}
        return {
            **band,
            "rule": "jump" if limit.over == "each" else "drift",
            "first_step": int(self._began[series]),
            "over": limit.over,
            "values": limit.values,
            "baseline": self.baseline.about(),
            "family": limit.family,
            "false_alarm_rate": self.baseline.rate,
        }

    def go_back(self, _step: int) -> None:
        """Forget the newest values: the run went back."""
        self._runs.recent[:], self._calm[:], self._inside[:], self.open[:] = 0, 0, True, False

    def state(self) -> dict[str, Any]:
        """Return all that it knows but the baseline, in plain types."""
        return {**super().state(), "recent": self._runs.recent.tolist()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        super().load(state)
        self._runs.recent[:] = np.array(state["recent"], np.float64)


def _is_share(key: Key) -> bool:
    return declared(key.metric).judged == "share"


MOVED = 0.5
"""Sum of updates over weights until which a model begins,"""
BEGINS = 512
"""in so many steps at most."""
REPORTED_AT = 512
"""Steps after which coverage is reported where no healthy span was named."""


class Beginning:
    """Tells how long a model begins: until its weights have been moved by as much as half of what they are."""

    def __init__(self, keys: Sequence[Key]) -> None:
        named = [key.metric == "update_to_weight" and key.layer >= 0 and key.stat == "all" for key in keys]
        self._series = np.flatnonzero(named)
        self._latest = np.full(len(self._series), np.nan)
        self._steps, self._moved = 0, 0.0

    def see(self, values: Floats) -> bool:
        """Take the values of a step; return whether the model begins still."""
        own = values[self._series]
        self._latest = np.where(np.isnan(own), self._latest, own)
        known = self._latest[np.isfinite(self._latest)]
        self._moved += float(np.median(known)) if len(known) else 0.0
        self._steps += 1
        return len(own) > 0 and self._moved < MOVED and self._steps <= BEGINS

    def state(self) -> dict[str, Any]:
        """Return all that it knows, in plain types."""
        return {"latest": self._latest.tolist(), "steps": self._steps, "moved": self._moved}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self._latest[:], self._steps, self._moved = state["latest"], int(state["steps"]), float(state["moved"])


class Alarms:
    """Judges the values of every step; nothing here waits for a device.

    ``rate`` is that of false alarms a step, of all series together. Nothing calibrated is raised before the end of a
    ``healthy`` span. A ``baseline`` takes the place of each series' own past; by position, it needs the last step,
    ``total``.
    """

    def __init__(
        self,
        keys: Sequence[Key],
        *,
        baseline: Baseline | None = None,
        healthy: tuple[int, int] | None = None,
        total: int = 0,
        rate: float = RATE,
        units: Mapping[int, int] | None = None,
    ) -> None:
        self.keys = tuple(Key(*key) for key in keys)
        if not self.keys or len(set(self.keys)) != len(self.keys):
            raise ValueError("there are no series, or one is named twice")
        if healthy is not None and not 1 <= healthy[0] <= healthy[1]:
            raise ValueError(f"the healthy window {healthy[0]} to {healthy[1]} has no step")
        self.healthy = healthy
        number = len(self.keys)
        self._non_finite = np.array([declared(key.metric).follows("not_finite", key.stat) for key in self.keys], bool)
        order = sorted(range(number), key=lambda item: self.keys[item])
        self._rank = np.argsort(np.array(order, np.int64))
        thresholds = [(metric.name, each) for metric in METRICS.values() for each in metric.thresholds]
        farthest = sorted(thresholds, key=lambda item: -item[1].value if item[1].above else item[1].value)
        watched = [Watched(metric, threshold, self.keys) for metric, threshold in farthest]
        self._watched = [item for item in watched if len(item.series)]
        self._fixed, self._schedule = FixedRules(self.keys, units or {}), Schedule()
        self._beginning, self.incidents = Beginning(self.keys), Incidents()
        self._open = np.zeros(number, bool)
        """Series of numbers that are not finite."""
        self._last_step, self._first_step, self._largest_rate = 0, 0, 0.0
        self._seen = np.zeros(number, np.int64)
        self._reported = False
        self.shares = Shares(self.keys, rate)
        self.judge = Surprises(self.keys, rate) if baseline is None else Deviations(self.keys, baseline, total)

    def see(
        self,
        step: int,
        values: Floats,
        *,
        rate: float = math.nan,
        tokens: float = math.nan,
        trials: Floats | None = None,
        steady: bool = True,
    ) -> list[Finding]:
        """Take the values of a step, in the order of the keys, and return alarms, then warnings and coverage.

        A step that was seen before begins the runs of values anew: the run went back.
        """
        values = np.asarray(values, np.float64)
        if values.shape != (len(self.keys),):
            raise ValueError(f"{len(self.keys)} values expected, found {values.shape}")
        if step <= self._last_step:
            self._go_back(step)
        self._last_step, self._first_step = step, self._first_step or step
        warms = rate > self._largest_rate > 0
        self._largest_rate = max(self._largest_rate, rate if rate > 0 else 0.0)
        self._seen += ~np.isnan(values)
        alarms = [*self._rates(step, rate), *self._bad_numbers(values), *self._rules(values, rate)]
        alarms += self._surprises(step, values, rate, tokens, trials)
        begins = self._beginning.see(values) and self.healthy is None
        alarms = [
            {**item, "begins": True}
            if begins and item["rule"] in FROM_ITS_PAST and step < (item.get("baseline") or {"from": math.inf})["from"]
            else item
            for item in alarms
        ]
        passed = np.zeros(len(self.keys), bool)
        warned: list[dict[str, Any]] = []
        for watched in self._watched:
            warned += watched.see(self.keys, values, passed, steady=steady, warms=warms)
        return [
            *self._findings(step, "alarm", sorted(alarms, key=lambda item: item.get("first_step", step))),
            *self._findings(step, "warning", warned),
            *self._report(step),
        ]

    def explain_rate(self, times: float) -> None:
        """Take that the learning rate changes by these times, and that this is no alarm."""
        self._schedule.explain(times)

    def state(self) -> dict[str, Any]:
        """Return all that it knows but its settings, in plain types, for a checkpoint."""
        return {
            "keys": [list(key) for key in self.keys],
            "judge": self.judge.state(),
            "shares": self.shares.state(),
            "always": self._fixed.state(),
            "schedule": self._schedule.state(),
            "beginning": self._beginning.state(),
            "incidents": self.incidents.state(),
            "steps": [self._first_step, self._last_step],
            "largest_rate": self._largest_rate,
            "reported": self._reported,
            "seen": self._seen.tolist(),
            "open": self._open.tolist(),
            "warned": [watched.open.tolist() for watched in self._watched],
        }

    def load(self, state: Mapping[str, Any]) -> Self:
        """Go on from a state, and return itself."""
        try:
            if tuple(Key(*key) for key in state["keys"]) != self.keys:
                raise ValueError("the state is of other series")
            self.judge.load(state["judge"])
            self.shares.load(state["shares"])
            self._fixed.load(state["always"])
            self._schedule.load(state["schedule"])
            self._beginning.load(state["beginning"])
            self.incidents.load(state["incidents"])
            self._first_step, self._last_step = map(int, state["steps"])
            self._largest_rate, self._reported = float(state["largest_rate"]), bool(state["reported"])
            self._seen[:], self._open[:] = state["seen"], state["open"]
            for watched, warned in zip(self._watched, state["warned"], strict=True):
                watched.open[:] = warned
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is no state of alarms: {error}") from None
        return self

    def coverage(self) -> dict[str, dict[str, Any]]:
        """Return by metric how many of its series are judged, and what would judge the rest; plain JSON.

        ``judged`` and ``series`` count series that have a value or may still get one; ``why`` is empty where all are.
        """
        coverage: dict[str, dict[str, Any]] = {}
        judged = np.zeros(len(self.keys), bool)
        given = self.judge if isinstance(self.judge, Deviations) else None
        reasons = {} if given is None else given.not_evaluated
        for judge in (self.judge, self.shares):
            judged[judge.series[judge.judged]] = True
        for metric in sorted({key.metric for key in self.keys}):
            own = [
                at
                for at, key in enumerate(self.keys)
                if key.metric == metric and (given is not None or " " not in how_judged(key.metric, key.stat))
            ]
            seen = [at for at in own if self._seen[at] or judged[at]] or own
            if not seen:
                why = next(how_judged(key.metric, key.stat) for key in self.keys if key.metric == metric)
                coverage[metric] = {"judged": 0, "series": 0, "why": why}
                continue
            rest = [at for at in seen if not judged[at]]
            why = self._why(rest, reasons) if rest else ""
            coverage[metric] = {"judged": len(seen) - len(rest), "series": len(seen), "why": why}
        return coverage

    def _why(self, rest: Sequence[int], reasons: Mapping[Key, str]) -> str:
        """Return what would judge series of a metric that are not judged yet."""
        if reasons and not _is_share(self.keys[rest[0]]):
            return "; ".join(sorted({reasons.get(self.keys[number], "") for number in rest} - {""}))
        values = int(self._seen[rest].min())
        steps = self._last_step - self._first_step + 1
        if not values:
            return "no value yet" if steps > 1 else "no step yet"
        if _is_share(self.keys[rest[0]]) and (why := self.shares.why(rest)):
            return why
        if values >= JUDGED_FROM:
            return "they settle after the learning rate or the size of a batch moved"
        every = steps / values
        at = self._last_step + math.ceil((JUDGED_FROM - values) * every)
        return f"{values} of {JUDGED_FROM} values yet, one in {every:.3g} steps: from about step {at:,}"

    def _report(self, step: int) -> list[Finding]:
        """Return, once, how much is judged: at the end of the healthy span, or when enough steps were seen."""
        due = self.healthy[1] if self.healthy is not None else self._first_step + REPORTED_AT - 1
        if self._reported or step < due:
            return []
        self._reported = True
        return [Finding("coverage", {"metrics": self.coverage()})]

    def _go_back(self, step: int) -> None:
        for own in (self.judge, self.shares, self._fixed, self.incidents):
            own.go_back(step)
        self._open[:] = False
        self._schedule = Schedule()

    def _rates(self, step: int, rate: float) -> list[dict[str, Any]]:
        left = self._schedule.see(float(rate))
        if left is None:
            return []
        where = {"metric": "learning_rate", "layer": -1, "head": -1, "stat": "value", "rule": "rate"}
        return [{**where, **left, "low": left["before"], "high": left["before"], "first_step": step}]

    def _bad_numbers(self, values: Floats) -> list[dict[str, Any]]:
        with np.errstate(invalid="ignore"):
            bad = self._non_finite & (values > 0)
        raised = np.flatnonzero(bad & ~self._open)
        self._open = (self._open | bad) & ~(self._non_finite & (values == 0))
        return self._details(raised, values, lambda _: {"rule": "not_finite", "low": 0.0, "high": 0.0})

    def _rules(self, values: Floats, rate: float) -> list[dict[str, Any]]:
        bounds = self._fixed.see(values, rate)
        return self._details(np.array(list(bounds), np.int64), values, bounds.__getitem__)

    def _surprises(
        self, step: int, values: Floats, rate: float, tokens: float, trials: Floats | None
    ) -> list[dict[str, Any]]:
        alarm = self.healthy is None or step > self.healthy[1]
        if isinstance(self.judge, Deviations):
            raised = self.judge.see(step, values)
        else:  # one rate for all: each counts the series of the other
            self.shares.others, self.judge.others = self.judge.ready, self.shares.ready
            raised = self.judge.see(step, values, rate=rate, tokens=tokens, alarm=alarm)
        details = self._details(raised, values, self.judge.detail)
        trials = np.full(len(values), math.nan) if trials is None else trials
        raised = self.shares.see(step, values, trials, rate=rate, tokens=tokens, alarm=alarm)
        return details + self._details(raised, values, self.shares.detail)

    def _details(self, series: Ints, values: Floats, more: Callable[[int], Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return alarms of some series: of each metric and rule the farthest out, and how many others there are."""
        details = []
        for number in series[np.argsort(self._rank[series])].tolist():
            band = {name: finite(at) if isinstance(at, float) else at for name, at in more(number).items()}
            details.append({**self.keys[number]._asdict(), "value": finite(float(values[number])), **band})
        return few(details)

    def _findings(self, step: int, kind: Any, details: Sequence[dict[str, Any]]) -> list[Finding]:
        return [
            Finding(kind_of(detail, kind), {**detail, "opens": opens})
            for record in details
            for detail, opens in self.incidents.join(step, {"first_step": step, **record})
        ]
