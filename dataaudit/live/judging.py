"""Judges rules: items of a feed become alerts; each rule knows what fed it, and why it is not evaluated."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dataaudit.live.feed import ANY_ROW, DERIVED, Began, Feed, Happened, Item, Numbers, Stepped
from dataaudit.live.rules import Ratio, Rule

_PLAIN = frozenset({"value", "count", "sampled", "share"})
"""Statistics that need no word."""
_MOST_SPAN = 4_096
"""Values of a healthy span, at most."""
_STALE = 4
"""Times the largest gap between its values after which a metric is not fed any more,"""
_STALE_STEPS = 64
"""and so many steps more."""
_FIRST_GAP = 1_000
"""In place of that gap where there was one value."""
Key = tuple[int, str, str, int, int]
"""Rank, metric, stat, layer, head."""


class Alert(NamedTuple):
    """A rule fired."""

    rule: Rule
    rank: int
    step: int
    """Step at which it fired."""
    first_step: int
    """Step from which on the condition is met."""
    layer: int
    head: int
    value: float | None
    detail: dict[str, Any]
    """Of an event."""
    words: str
    """What was seen, in words."""

    def document(self) -> dict[str, Any]:
        """Return it in plain types."""
        value = None if self.value is None or not math.isfinite(self.value) else self.value
        place = {name: own for name, own in (("layer", self.layer), ("head", self.head)) if own >= 0}
        return {
            "rule": self.rule.name,
            "severity": self.rule.severity,
            "rank": self.rank,
            "step": self.step,
            "first_step": self.first_step,
            **place,
            "value": value,
            "seen": self.words,
            **({"detail": self.detail} if self.detail else {}),
        }


@dataclass
class _Series:
    """State of a rule for a series of a rank."""

    first: int | None = None
    """Step from which on the condition is met."""
    firing: bool = False
    began: int = 1 << 62
    """Its first step."""
    recent: deque[tuple[int, float]] = field(default_factory=deque)
    averaged: deque[tuple[int, float]] = field(default_factory=deque)
    healthy: list[float] = field(default_factory=list)
    median: float | None = None


@dataclass
class Fed:
    """What fed a rule last."""

    step: int = -1
    rank: int = -1
    metric: str = ""
    gap: int = 0
    """Largest distance between two of its steps."""
    by_rank: dict[int, int] = field(default_factory=dict)
    heard: dict[int, float] = field(default_factory=dict)
    """When it was fed, by rank, seconds since 1970."""


class State(NamedTuple):
    """How a rule stands: ``ok``, ``firing`` or ``not_evaluated``, with the reason."""

    rule: str
    severity: int
    state: str
    why: str
    last_step: int | None
    """Step that fed it last."""


class Judge:
    """Judges the rules of a file.

    Args:
        rules: The rules.
        feed: Where items come from; asked who is heard of, and since when.
    """

    def __init__(self, rules: Iterable[Rule], feed: Feed) -> None:
        self.rules = tuple(rules)
        self._feed = feed
        self._series: dict[str, dict[Key, _Series]] = {rule.name: {} for rule in self.rules}
        self._fed = {rule.name: Fed() for rule in self.rules}
        self._by_metric: dict[str, list[Rule]] = {}
        self._by_event: dict[str, list[Rule]] = {}
        self._feeders: dict[str, list[Rule]] = {}
        self._absent = [rule for rule in self.rules if rule.absent is not None]
        for rule in self.rules:
            if rule.metric is not None:
                self._by_metric.setdefault(rule.metric, []).append(rule)
            else:
                self._by_event.setdefault(str(rule.event), []).append(rule)
                for name in rule.fed_by:
                    self._feeders.setdefault(name, []).append(rule)

    def see(self, item: Item) -> list[Alert]:
        """Take an item and return the alerts that it raises."""
        match item:
            case Began():
                for own in self._series.values():
                    for key in [key for key in own if key[0] == item.rank]:
                        del own[key]
                for fed in self._fed.values():
                    fed.by_rank.pop(item.rank, None)
                return []
            case Numbers():
                for rule in self._feeders.get(item.metric, ()):
                    self._feed_rule(rule, item.rank, item.step, item.metric)
                if item.metric not in self._by_metric:
                    self._by_metric[item.metric] = self._of_pattern(item.metric)
                return [alert for rule in self._by_metric[item.metric] for alert in self._numbers(rule, item)]
            case Happened():
                for rule in self._feeders.get(item.kind, ()):
                    self._feed_rule(rule, item.rank, item.step, f"event {item.kind}")
                rules = self._by_event.get(item.kind, ())
                return [alert for rule in rules if (alert := self._happened(rule, item)) is not None]
        return self._stepped(item)

    def _of_pattern(self, metric: str) -> list[Rule]:
        """Return the rules whose metric ends in ``.*`` and begins like a metric."""
        named = [(rule, str(rule.metric)) for rule in self.rules if str(rule.metric).endswith(".*")]
        return [rule for rule, name in named if metric.startswith(name.removesuffix("*"))]

    def tick(self, now: float) -> list[Alert]:
        """Return alerts of what was not heard of for too many seconds."""
        alerts = []
        for rule in self._absent:
            if rule.absent is None or rule.absent.seconds is None:
                continue
            for rank, own in self._feed.ranks.items():
                since = own.heard if rule.metric == ANY_ROW else self._fed[rule.name].heard.get(rank, own.began)
                if rule.metric == ANY_ROW:
                    self._feed_rule(rule, rank, own.step, "the clock")
                known = self._of(rule, (rank, "", "", -1, -1))
                silent = now - since
                met = (
                    silent > rule.absent.seconds
                    and not own.closed
                    and self._feed.runs(rank)
                    and own.step >= rule.after_step
                )
                if met and not known.firing:
                    what = "row" if rule.metric == ANY_ROW else rule.metric
                    words = f"no {what} of rank {rank} for {silent:,.0f} s; its newest step is {own.step:,}"
                    alerts.append(Alert(rule, rank, own.step, own.step, -1, -1, silent, {}, words))
                known.firing = met
        return alerts

    def states(self) -> list[State]:
        """Return how each rule stands."""
        newest = max((own.step for own in self._feed.ranks.values()), default=0)
        return [self._state(rule, newest) for rule in self.rules]

    def firing(self, rule: Rule) -> bool:
        """Return whether the condition of a rule is met on any rank."""
        return any(known.firing for known in self._series[rule.name].values())

    def _state(self, rule: Rule, newest: int) -> State:
        fed = self._fed[rule.name]
        until = rule.silence.until_step if rule.silence is not None else None
        silent = until is not None and newest <= until
        firing = self.firing(rule) and not silent
        why = f"silenced up to step {until:,}" if silent else "" if firing else self._why_not(rule, fed, newest)
        word = "firing" if firing else "not_evaluated" if why else "ok"
        return State(
            rule.name, rule.severity, word, rule.words() if firing else why, fed.step if fed.step >= 0 else None
        )

    def _why_not(self, rule: Rule, fed: Fed, newest: int) -> str:
        """Return why a rule is not evaluated; empty where it is."""
        if fed.step < 0:
            return self._why_unfed(rule)
        allowed = _STALE * (fed.gap or _FIRST_GAP) + _STALE_STEPS
        if rule.absent is None and rule.metric is not None and newest - fed.step > allowed:
            return f"{fed.metric} came last at step {fed.step:,} (rank {fed.rank}), and step {newest:,} has none"
        if newest <= rule.after_step:
            return f"judged behind step {rule.after_step:,}; the newest is {newest:,}"
        if rule.ratio is not None and not any(item.median for item in self._series[rule.name].values()):
            span = rule.ratio.healthy
            which = (
                f"of steps {span[0]:,} to {span[1]:,} was not seen" if isinstance(span, tuple) else "is not complete"
            )
            return f"the healthy span {which} at step {fed.step:,}"
        return ""

    def _why_unfed(self, rule: Rule) -> str:
        if not self._feed.ranks:
            return "no row of the run came yet"
        if rule.metric == ANY_ROW:
            return "no clock ticked yet"
        if rule.metric is not None:
            source = f"; what feeds it: {DERIVED[rule.metric]}" if rule.metric in DERIVED else ""
            narrowed = [
                f"{name} {own}" for name in ("layer", "head", "stat") if (own := getattr(rule, name)) is not None
            ]
            of = f" of {', '.join(narrowed)}" if narrowed else ""
            return f"no value of `{rule.metric}`{of} came{source}"
        if rule.fed_by:
            return f"nothing came that shows that somebody looks for `{rule.event}`: {', '.join(rule.fed_by)}"
        return f"no event `{rule.event}` came, and the rule has no `fed_by` to show that somebody looks for it"

    def _feed_rule(self, rule: Rule, rank: int, step: int, metric: str) -> None:
        fed = self._fed[rule.name]
        before = fed.by_rank.get(rank)
        if before is not None and step > before:
            fed.gap = max(fed.gap, step - before)
        fed.heard[rank] = self._feed.ranks[rank].heard
        fed.by_rank[rank] = step if before is None else max(before, step)
        if step >= fed.step:
            fed.step, fed.rank, fed.metric = step, rank, metric

    def _numbers(self, rule: Rule, item: Numbers) -> list[Alert]:
        if rule.stat is not None and rule.stat != item.stat:
            return []
        chosen = np.ones(len(item.value), bool)
        if rule.layer is not None:
            chosen &= item.layer == rule.layer
        if rule.head is not None:
            chosen &= item.head == rule.head
        if not chosen.any():
            return []
        self._feed_rule(rule, item.rank, item.step, item.metric)
        if item.step <= rule.after_step or rule.absent is not None:
            return []
        values, layers, heads = item.value[chosen], item.layer[chosen], item.head[chosen]
        if rule.over != "any":
            at = int(values.argmin() if rule.over == "min" else values.argmax())
            level = float(values.mean()) if rule.over == "mean" else float(values[at])
            where = (-1, -1) if rule.over == "mean" else (int(layers[at]), int(heads[at]))
            known = self._of(rule, (item.rank, item.metric, item.stat, -1, -1))
            alert = self._judged(rule, known, item, level, where)
            return [] if alert is None else [alert]
        alerts = []
        for layer, head, value in zip(layers.tolist(), heads.tolist(), values.tolist(), strict=True):
            known = self._of(rule, (item.rank, item.metric, item.stat, layer, head))
            if (alert := self._judged(rule, known, item, value, (layer, head))) is not None:
                alerts.append(alert)
        return alerts

    def _of(self, rule: Rule, key: Key) -> _Series:
        own = self._series[rule.name]
        if key not in own:
            own[key] = _Series()
        return own[key]

    def _judged(self, rule: Rule, known: _Series, item: Numbers, value: float, where: tuple[int, int]) -> Alert | None:
        """Take a value of a series; return an alert where the condition is met long enough, and was not before."""
        step = item.step
        known.began = min(known.began, step)
        if rule.mean_over > 1:
            known.averaged.append((step, value))
            while known.averaged[0][0] <= step - rule.mean_over:
                known.averaged.popleft()
            if step - known.began + 1 < rule.mean_over:
                return None
            value = sum(own for _, own in known.averaged) / len(known.averaged)
        named = item.metric if item.stat in _PLAIN else f"{item.metric} ({item.stat})"
        met, number, words = _met(rule, known, named, step, value)
        if not met:
            known.first, known.firing = None, False
            return None
        if known.first is None:
            known.first = step
        bounds = rule.threshold or rule.ratio or rule.change
        if known.firing or step - known.first + 1 < (bounds.for_ if bounds is not None else 1):
            return None
        known.firing = True
        return Alert(rule, item.rank, step, known.first, *where, number, {}, f"{words}{_place(*where)}")

    def _happened(self, rule: Rule, item: Happened) -> Alert | None:
        self._feed_rule(rule, item.rank, item.step, f"event {item.kind}")
        if (
            any(item.detail.get(name) != value for name, value in rule.where.items())
            or 0 < item.step <= rule.after_step
        ):
            return None
        layer, head = (_integer(item.detail.get(name), -1) for name in ("layer", "head"))
        if rule.layer not in {None, layer} or rule.head not in {None, head}:
            return None
        known = self._of(rule, (item.rank, "", "", -1, -1))
        count = rule.count
        known.recent.append((item.step, float(_integer(item.detail.get("first_step"), item.step))))
        within = count.within if count is not None else 1
        while known.recent[0][0] <= item.step - within:
            known.recent.popleft()
        number, first = len(known.recent), int(min(own for _, own in known.recent))
        if number < (count.at_least if count is not None else 1):
            return None
        known.recent.clear()
        named = item.detail.get("what") or item.detail.get("metric") or ""
        words = f"{number} events {item.kind} since step {first:,}" if number > 1 else f"event {item.kind}"
        words += f": {named}" if named else ""
        value = item.detail.get("value")
        level = float(value) if isinstance(value, int | float) else None
        return Alert(rule, item.rank, item.step, first, layer, head, level, item.detail, words + _place(layer, head))

    def _stepped(self, item: Stepped) -> list[Alert]:
        alerts = []
        for rule in self._absent:
            if rule.absent is None or rule.absent.steps is None or item.step <= rule.after_step:
                continue
            last = self._fed[rule.name].by_rank.get(item.rank, rule.after_step)
            known = self._of(rule, (item.rank, "", "", -1, -1))
            met = item.step - last >= rule.absent.steps
            if met and not known.firing:
                words = f"no {rule.metric} for {item.step - last:,} steps, the last of step {last:,}"
                alerts.append(Alert(rule, item.rank, item.step, last, -1, -1, None, {}, words))
            known.firing = met
        return alerts


def _integer(value: object, default: int) -> int:
    """Return a whole number of an event, which anybody may have written."""
    return value if type(value) is int else default


def _place(layer: int, head: int) -> str:
    named = [f"{what} {own}" for what, own in (("layer", layer), ("head", head)) if own >= 0]
    return f" ({', '.join(named)})" if named else ""


def _met(rule: Rule, known: _Series, metric: str, step: int, value: float) -> tuple[bool, float, str]:
    """Return whether a value meets the condition, what was judged, and that in words."""
    named = f"the mean of {metric} over {rule.mean_over:,} steps" if rule.mean_over > 1 else metric
    words = f"{named} is {value:.6g}"
    if rule.threshold is not None:
        return rule.threshold.met(value), value, f"{words}; the rule is {rule.threshold.words()}"
    if rule.ratio is not None:
        median = _healthy(rule.ratio, known, step, value)
        if not median:
            return False, value, ""
        number, far = value / median, abs(value - median) >= rule.ratio.by
        return far and rule.ratio.met(number), number, f"{words}, {number:.3g} times the median {median:.6g} when healthy"
    if rule.change is not None:
        known.recent.append((step, value))
        while len(known.recent) > 1 and known.recent[1][0] <= step - rule.change.over:
            known.recent.popleft()
        then, before = known.recent[0]
        scale = abs(before) if rule.change.relative else 1.0
        if then > step - rule.change.over or not scale:
            return False, value, ""
        number = (value - before) / scale
        return rule.change.met(number), number, f"{words}, at step {then:,} it was {before:.6g}"
    return not math.isfinite(value), value, words


def _healthy(ratio: Ratio, known: _Series, step: int, value: float) -> float | None:
    """Return the median of a series in its healthy span; None until that is over."""
    span = ratio.healthy
    first, last = span if isinstance(span, tuple) else (known.began, known.began + span - 1)
    if known.median is None and step <= last:
        if step >= first and math.isfinite(value) and len(known.healthy) < _MOST_SPAN:
            known.healthy.append(value)
        return None
    if known.median is None and known.healthy:
        known.median, known.healthy = float(np.median(known.healthy)), []
    return known.median
