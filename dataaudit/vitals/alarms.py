"""Alarms: series that leave their healthy baseline, and values beyond thresholds of the literature.

An *alarm* is a deviation from the baseline (baseline.py says how far is too far, and how often that happens in health),
or a value that is not finite. It is raised once, when several measured values in a row, or the mean of several, are
beyond the limit of the metric, and again only after the series came back: neither is beyond it any more, and values
were inside half of the nearer limit as many times as the baseline's persistence. Its ``first_step`` is where it began:
the first measured step after the last one that was inside half of the nearer limit.

Training is not stationary: levels and scales move on in health. So a baseline that was learnt from a window of this
run follows, slowly: with every value the level moves towards it by at most 1/n of the scale, and the scale, which never
gets smaller than it was, by a share of 1/n, n the values of the window. A drift of 5 scales over 30 values, after a
window of 300, is moved by 0.1. What moves no faster than that is followed, and not seen: a stored run as the baseline,
which stays as it is, is for that.

A *warning* says that a value passed a fixed threshold from the literature. It knows nothing of the run, and is counted
in no rate. It too is raised once, and again after the value was a fifth away from the threshold on the healthy side. Of
several thresholds that a value passes at a step, it names the farthest.

Memory: some 300 bytes a series, and while the baseline is learnt 8 bytes a series and step, up to 256 MiB; of a longer
window the newest steps are kept.
"""

from __future__ import annotations

import base64
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dataaudit.vitals.baseline import (
    ESTIMATES,
    FARTHEST_OF_MEAN,
    LOGARITHMS,
    PERSISTENCE,
    RATE,
    Baseline,
    Key,
    Runs,
    baseline_of,
    logarithm,
)
from dataaudit.vitals.tails import Floats
from dataaudit.vitals.thresholds import MOST_AT_ONCE, THRESHOLDS, FarOff, Finding, Watched, few, finite

NON_FINITE = "nan_inf_events"
"""Metric of which any value above 0 is an alarm, without a baseline."""
_MOST_LEARNT = 1 << 25
"""Values that are kept while a baseline is learnt."""
_LEAST_LEARNT = 256
"""And steps of them at least."""
_CALM = 0.5
"""Share of the limit within which a series is inside again."""
_FARTHEST = 1e300
_MEDIAN_DISTANCE = 1 / 1.4826
"""Of the values from their level, in scales."""


class Alarms:
    """Looks at the values of every step and says what is wrong with them; nothing here waits for a device.

    Args:
        keys: Series, in the order of the values; none twice.
        baseline: What is healthy; of the same or of other series. Without one it is learnt, as lines whose ends
            are held: the level afterwards is the one at the end of the window.
        healthy: First and last step of the window that the baseline is learnt from, after warm-up.
        total: Last step of this run, for a baseline by position.
        rate: False alarms a step of a whole metric, of the baseline that is learnt.
        persistence: Values in a row that have to be out, ditto.
        follow: Whether a baseline that is learnt follows.

    Raises:
        ValueError: There are no series, one is named twice, the window is empty, or the baseline is by position and
            the length of this run is not said.
    """

    def __init__(
        self,
        keys: Sequence[Key],
        *,
        baseline: Baseline | None = None,
        healthy: tuple[int, int] | None = None,
        total: int = 0,
        rate: float = RATE,
        persistence: int = PERSISTENCE,
        follow: bool = True,
    ) -> None:
        self.keys = tuple(Key(*key) for key in keys)
        if not self.keys or len(set(self.keys)) != len(self.keys):
            raise ValueError("there are no series, or one is named twice")
        if healthy is not None and not 1 <= healthy[0] <= healthy[1]:
            raise ValueError(f"the healthy window {healthy[0]} to {healthy[1]} has no step")
        self.healthy, self.total, self.rate, self.persistence = healthy, total, rate, persistence
        self._follow = follow and healthy is not None and baseline is None
        self._learnt: deque[tuple[int, Floats]] = deque(maxlen=max(_LEAST_LEARNT, _MOST_LEARNT // len(self.keys)))
        self._last_step = 0
        number = len(self.keys)
        metrics = sorted({key.metric for key in self.keys})
        self._metric = np.array([metrics.index(key.metric) for key in self.keys], np.int64)
        order = sorted(range(number), key=lambda one: self.keys[one])
        self._rank = np.argsort(np.array(order, np.int64))
        self._logarithms = np.array(
            [place for place, key in enumerate(self.keys) if key.metric in LOGARITHMS], np.int64
        )
        self._non_finite = np.array([key.metric == NON_FINITE for key in self.keys], bool)
        farthest = sorted(THRESHOLDS, key=lambda one: -one.value if one.above else one.value)
        self._watched = [Watched(one, self.keys) for one in farthest]
        self._watched = [one for one in self._watched if len(one.places)]
        self._far_off = FarOff(self.keys)
        self._open = np.zeros(number, bool)
        self._calm = np.zeros(number, np.int64)
        self._began = np.zeros(number, np.int64)
        """Step that each series began to be out at, of those that are not inside."""
        self._inside = np.ones(number, bool)
        self.episode: list[dict[str, Any]] = []
        """Alarms raised since one was raised while no other was open: those that began first, bounded."""
        self.baseline: Baseline | None = None
        self._take(baseline)

    def see(self, step: int, values: Floats | Mapping[Key, float], *, steady: bool = True) -> list[Finding]:
        """Take the values of a step and return what is to be said of them, alarms first.

        A step that was seen before begins the runs of values anew: the run went back.

        Args:
            step: From 1, ascending.
            values: float64[series], NaN for what was not measured; or by series, where those left out were not.
            steady: Whether the learning rate neither warms up nor decays.

        Raises:
            ValueError: There are more or fewer values than series, or one of an unknown series.
        """
        held = self._in_order(values)
        if step <= self._last_step:
            self._go_back(step)
        self._last_step = step
        found = [*self._bad_numbers(step, held), *self._deviations(step, held)]
        said = np.zeros(len(self.keys), bool)
        for one in self._watched:
            found += one.see(self.keys, held, said, steady=steady)
        if self.baseline is not None:
            level = np.where(self._columns >= 0, self._level(step), np.nan)
            found += self._far_off.see(self.keys, held, level, ~np.isnan(self._scale))
        return [*found, *self._learn(step, held)]

    def first_divergence(self) -> dict[str, Any] | None:
        """Return the alarm of the present or latest episode that began first."""
        return first_divergence(self.episode)

    def renew(self, baseline: Baseline) -> None:
        """Take another baseline: what was out is judged anew."""
        self._take(baseline)

    def state(self) -> dict[str, Any]:
        """Return all that it knows but its settings, in plain types, for a checkpoint."""
        return {
            "keys": [list(key) for key in self.keys],
            "baseline": None if self.baseline is None else self.baseline.to_json().decode(),
            "learnt": [[step, base64.b64encode(values.tobytes()).decode()] for step, values in self._learnt],
            "last_step": self._last_step,
            "recent": None if self._runs is None else self._runs.recent.tolist(),
            "shift": None if self._runs is None else self._shift.tolist(),
            "growth": None if self._runs is None else self._growth.tolist(),
            "open": self._open.tolist(),
            "calm": self._calm.tolist(),
            "began": self._began.tolist(),
            "inside": self._inside.tolist(),
            "warned": [*(one.open.tolist() for one in self._watched), self._far_off.open.tolist()],
            "episode": self.episode,
        }

    def load(self, state: Mapping[str, Any]) -> Self:
        """Go on from a state, and return itself.

        Raises:
            ValueError: It is of other series, or damaged.
        """
        try:
            if tuple(Key(*key) for key in state["keys"]) != self.keys:
                raise ValueError("the state is of other series")
            text = state["baseline"]
            self._take(None if text is None else Baseline.from_json(text.encode()))
            self._learnt.clear()
            for step, text in state["learnt"]:
                self._learnt.append((int(step), np.frombuffer(base64.b64decode(text), np.float64)))
            self._last_step = int(state["last_step"])
            if self._runs is not None:
                self._runs.recent[:] = np.array(state["recent"], np.float64)
                self._shift[:], self._growth[:] = state["shift"], state["growth"]
            self._open[:], self._inside[:] = state["open"], state["inside"]
            self._calm[:], self._began[:] = state["calm"], state["began"]
            *watched, far_off = state["warned"]
            for one, warned in zip(self._watched, watched, strict=True):
                one.open[:] = warned
            self._far_off.open[:] = far_off
            self.episode = [dict(one) for one in state["episode"]]
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is no state of alarms: {error}") from None
        return self

    def _take(self, baseline: Baseline | None) -> None:
        """Prepare for a baseline: its columns in the order of this run's series."""
        self._runs: Runs | None = None
        if baseline is None:
            return
        if baseline.total and not self.total:
            raise ValueError("the baseline is by position: the last step of this run is needed")
        self.baseline = baseline
        column = {key: place for place, key in enumerate(baseline.keys)}
        self._columns = np.array([column.get(key, -1) for key in self.keys], np.int64)
        limits = [baseline.limits.get(key.metric) for key in self.keys]
        known = self._columns >= 0
        fit = np.array([one is not None for one in limits], bool) & known & ~self._non_finite
        self._scale = np.where(fit, baseline.scale[self._columns], np.nan)
        none = (math.inf, math.inf)
        self._limits = np.array([none if one is None else [each.distance for each in one] for one in limits]).T
        self._near = _CALM * self._limits.min(0)
        self._shift = np.zeros(len(self.keys))
        """How far each level moved on, in scales of the baseline."""
        self._growth = np.ones(len(self.keys))
        """How many times as large each scale is."""
        self._slowness = np.maximum(baseline.values[self._columns], 1).astype(np.float64)
        self._runs = Runs(len(self.keys), baseline.persistence)
        self._fixed = baseline.level(1)[self._columns] if len(baseline.at) == 1 else None
        self._inside[:] = True
        self._open &= self._non_finite
        self._calm[:] = 0

    @property
    def not_evaluated(self) -> dict[Key, str]:
        """Series that no deviation can be told of, and why."""
        if self.baseline is None:
            return dict.fromkeys(self.keys, "no baseline yet" if self.healthy else "no baseline")
        theirs = self.baseline.not_evaluated
        missing = {key: "not in the baseline" for key, one in zip(self.keys, self._columns, strict=True) if one < 0}
        found = {key: missing.get(key) or theirs.get(key, "") for key in self.keys}
        return {
            key: why for key, why in found.items() if why and key.metric != NON_FINITE and key.stat not in ESTIMATES
        }

    def _in_order(self, values: Floats | Mapping[Key, float]) -> Floats:
        if isinstance(values, Mapping):
            unknown = set(values) - set(self.keys)
            if unknown:
                raise ValueError(f"{len(unknown)} values of unknown series, such as {min(unknown)}")
            return np.array([values.get(key, math.nan) for key in self.keys], np.float64)
        held = np.asarray(values, np.float64)
        if held.shape != (len(self.keys),):
            raise ValueError(f"{len(self.keys)} values expected, found {held.shape}")
        return held

    def _go_back(self, step: int) -> None:
        while self._learnt and self._learnt[-1][0] >= step:
            self._learnt.pop()
        if self._runs is not None:
            self._runs.recent[:] = 0
        self._open[:], self._inside[:] = False, True
        self._calm[:] = 0
        self.episode = [one for one in self.episode if one["first_step"] < step]

    def _learn(self, step: int, held: Floats) -> list[Finding]:
        """Keep the values of the healthy window; at its end say what was learnt."""
        if self.baseline is not None or self.healthy is None:
            return []
        first, last = self.healthy
        if first <= step <= last:
            self._learnt.append((step, held.copy()))
        if step < last:
            return []
        self.healthy = None
        if not self._learnt:
            return [Finding("baseline", {"baseline": None, "why": f"no step from {first} to {last} was seen"})]
        steps = np.array([one for one, _ in self._learnt], np.int64)
        learnt = np.empty((len(steps), len(self.keys)))
        for place in range(len(steps)):
            learnt[place] = self._learnt.popleft()[1]
        kept = [place for place, key in enumerate(self.keys) if key.stat not in ESTIMATES]
        keys = [self.keys[place] for place in kept]
        learnt = learnt[:, kept]
        self._take(baseline_of(keys, steps, learnt, trend="line", rate=self.rate, persistence=self.persistence))
        return [Finding("baseline", self.about())]

    def about(self) -> dict[str, Any]:
        """Return what the baseline is, and of what no deviation can be told, for the run log; empty without one."""
        if self.baseline is None:
            return {}
        reasons: dict[str, dict[str, int]] = {}
        for key, reason in self.not_evaluated.items():
            of_metric = reasons.setdefault(key.metric, {})
            of_metric[reason] = of_metric.get(reason, 0) + 1
        limits = {metric: [asdict(one) for one in some] for metric, some in self.baseline.limits.items()}
        return {
            "baseline": self.baseline.about(),
            "false_alarm_rate": self.baseline.rate,
            "limits": limits,
            "not_evaluated": reasons,
        }

    def _bad_numbers(self, step: int, held: Floats) -> list[Finding]:
        with np.errstate(invalid="ignore"):
            bad = self._non_finite & (held > 0)
        raised = bad & ~self._open
        self._began[raised] = step
        self._open[self._non_finite & (held == 0)] = False
        detail = {
            "low": 0.0,
            "high": 0.0,
            "over": "each",
            "values": 1,
            "baseline": None,
            "family": 1,
            "false_alarm_rate": 0.0,
        }
        return self._raise(raised, held, lambda _: dict(detail))

    def _level(self, step: int) -> Floats:
        assert self.baseline is not None
        return self._fixed if self._fixed is not None else self.baseline.level(step, self.total)[self._columns]

    def _deviations(self, step: int, held: Floats) -> list[Finding]:
        baseline, runs = self.baseline, self._runs
        if baseline is None or runs is None:
            return []
        level = self._level(step)
        with np.errstate(divide="ignore", invalid="ignore"):
            z = held - level
            if len(self._logarithms):
                z[self._logarithms] = logarithm(held[self._logarithms]) - level[self._logarithms]
            z = np.clip((z / self._scale - self._shift) / self._growth, -_FARTHEST, _FARTHEST)
        measured = ~np.isnan(z)
        size = np.abs(z)
        near = size <= self._near
        self._began[measured & ~near & self._inside] = step
        self._inside = np.where(measured, near, self._inside)
        self._calm = np.where(measured, np.where(near, self._calm + 1, 0), self._calm)
        level = level + self._shift * self._scale
        scale = self._growth * self._scale
        if self._follow:
            self._move(z, size, measured)
        out = runs.see(z) > self._limits
        self._open &= self._non_finite | ~measured | (self._calm < baseline.persistence) | out.any(0)
        raised = out.any(0) & ~self._open
        if not raised.any():
            return []
        return self._raise(
            raised,
            held,
            lambda one: self._band(one, float(level[one]), float(scale[one]), int(out[:, one].argmax())),
        )

    def _move(self, z: Floats, size: Floats, measured: npt.NDArray[np.bool_]) -> None:
        """Let levels and scales follow the values of a step: a median and a median distance, by small steps."""
        self._shift += np.where(measured, np.clip(z, -1, 1) * self._growth / self._slowness, 0.0)
        wider = np.where(measured, np.where(size > _MEDIAN_DISTANCE, 1.0, -1.0) / self._slowness, 0.0)
        self._growth = np.maximum(self._growth * np.exp(wider), 1.0)

    def _band(self, place: int, level: float, scale: float, which: int) -> dict[str, Any]:
        """Return what a series left: the band of jumps or of drifts; of drifts, the mean that did too."""
        assert self.baseline is not None
        assert self._runs is not None
        limit = self.baseline.limits[self.keys[place].metric][which]
        reach = limit.distance * scale
        low, high = level - reach, level + reach
        mean = float(np.clip(self._runs.recent[:, place], -FARTHEST_OF_MEAN, FARTHEST_OF_MEAN).mean())
        value = {"value": level + mean * scale} if limit.over == "mean" else {}
        band = {**value, "low": low, "high": high}
        if self.keys[place].metric in LOGARITHMS:
            band = {name: math.exp(min(one, 709.0)) for name, one in band.items()}
        return {
            **band,
            "over": limit.over,
            "values": limit.values,
            "baseline": self.baseline.about(),
            "family": limit.family,
            "false_alarm_rate": self.baseline.rate,
        }

    def _raise(self, raised: npt.NDArray[np.bool_], held: Floats, band: Any) -> list[Finding]:
        """Return the alarms of some series: by metric those that began first, then by layer and head."""
        places = np.flatnonzero(raised)
        if not len(places):
            return []
        if not self._open.any():
            self.episode = []
        self._open[places] = True
        places = places[np.lexsort((self._rank[places], self._began[places]))]
        found = []
        for metric in np.unique(self._metric[places]):
            for one, others in few(places[self._metric[places] == metric]):
                detail = {
                    **self.keys[one]._asdict(),
                    "value": finite(float(held[one])),
                    "first_step": int(self._began[one]),
                }
                found.append(Finding("alarm", {**detail, **band(one), **others}))
        self.episode = sorted(
            [*self.episode, *(one.detail for one in found)],
            key=lambda one: (one["first_step"], one["layer"], one["head"], one["metric"], one["stat"]),
        )[: 4 * MOST_AT_ONCE]
        return found


def first_divergence(alarms: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the alarm that began first, of several on the same step that of the lowest layer; None without any.

    Args:
        alarms: Details of events of kind ``alarm``, of one episode.
    """
    order = ("first_step", "layer", "head", "metric", "stat")
    first = min(alarms, key=lambda one: tuple(one[name] for name in order), default=None)
    return None if first is None else dict(first)
