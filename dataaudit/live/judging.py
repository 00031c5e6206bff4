"""Judges rules: items of a feed become alerts; each rule knows what fed it, and why it is not evaluated."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dataaudit.live.feed import ANY_ROW, DERIVED, MOST_GAPS, Began, Feed, Happened, Item, Numbers, Stepped
from dataaudit.live.rules import Ratio, Rule

_WHOLE = np.array([-1])
_PLAIN = frozenset({"value", "count", "sampled", "share"})
"""Statistics that need no word."""
CHANCE = 6.5
"""Five standard errors of a share of targets, where documents differ in length by as much as their mean (1.3)."""
_SPREAD = 6.0
"""In place of that, times what shares of the healthy span differ by: five, and the healthy share has an error, too."""
_TINY = 1e-12
_MOST_SPAN = 4_096
"""Values of a healthy span, at most."""
_STALE = 4
"""Times the largest gap between its values after which a metric is not fed any more,"""
_STALE_STEPS = 64
"""and so many steps more."""
_FIRST_GAP = 1_000
"""In place of that gap where there was one value."""
_RUN = -1
"""In place of a rank: what is of all of them."""
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
    no_rank: bool = False
    """Whether it is of the whole run, and ``rank`` just whose log it stands in."""

    def document(self) -> dict[str, Any]:
        """Return it in plain types."""
        value = None if self.value is None or not math.isfinite(self.value) else self.value
        place = {name: own for name, own in (("layer", self.layer), ("head", self.head)) if own >= 0}
        return {
            "rule": self.rule.name,
            "severity": self.rule.severity,
            "rank": None if self.no_rank else self.rank,
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
    """Step from which on the condition is met,"""
    first_time: float = 0.0
    """and when it ended."""
    firing: bool = False
    began: int = 1 << 62
    """Its first step,"""
    since: int = 1 << 62
    """and that of the attempt."""
    recent: deque[tuple[int, float]] = field(default_factory=deque)
    averaged: deque[tuple[int, float, int]] = field(default_factory=deque)
    healthy: list[float] = field(default_factory=list)
    drawn: list[tuple[float, int]] = field(default_factory=list)
    """Shares until the healthy span is over, each of so many documents;"""
    chance: float = CHANCE
    """what follows from them."""
    median: float | None = None


_HEALTHY = ("began", "healthy", "drawn", "chance", "median")
"""What is so after a restart, too."""


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
    nan: int = -1
    """The newest step at which all values were NaN: that is beyond no limit, and within none."""
    repeated: bool | None = None
    """Of a rule of an event: whether only metrics showed that somebody looks for it, so that they come again."""


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
        self._series: dict[str, defaultdict[Key, _Series]] = {rule.name: defaultdict(_Series) for rule in self.rules}
        self._fed = {rule.name: Fed() for rule in self.rules}
        self._begun: dict[int, int] = {}
        """The step before the first of each rank's attempt."""
        self._absent = [rule for rule in self.rules if rule.absent is not None]
        self._by_metric: dict[str, list[Rule]] = {}
        self._fed_by: dict[str, list[Rule]] = {}
        for rule in self.rules:
            for name in rule.fed_by if rule.metric is None else ():
                self._fed_by.setdefault(name, []).append(rule)

    def see(self, item: Item) -> list[Alert]:
        """Take an item and return the alerts that it raises."""
        match item:
            case Began():
                for rule in self.rules:
                    own = self._series[rule.name]
                    for key in [key for key in own if key[0] in {item.rank, _RUN}]:
                        known = own.pop(key)
                        if rule.ratio is not None:
                            kept = {name: getattr(known, name) for name in _HEALTHY}
                            own[key] = _Series(**kept)
                self._begun.pop(item.rank, None)
                for fed in self._fed.values():
                    fed.by_rank.pop(item.rank, None)
            case Numbers():
                self._see_fed(item.metric, item, item.metric)
                if item.metric not in self._by_metric:
                    self._by_metric[item.metric] = [rule for rule in self.rules if _is_of(rule, item.metric)]
                return [alert for rule in self._by_metric[item.metric] for alert in self._numbers(rule, item)]
            case Happened():
                self._see_fed(item.kind, item, f"event {item.kind}")
                rules = (rule for rule in self.rules if rule.event == item.kind)
                return [alert for rule in rules if (alert := self._happened(rule, item)) is not None]
            case Stepped():
                return self._stepped(item)
        return []

    def _see_fed(self, name: str, item: Numbers | Happened, shown: str) -> None:
        """Feed the rules of events that something shows to be looked for."""
        for rule in self._fed_by.get(name, ()):
            self._feed_rule(rule, item.rank, item.step, shown)
            fed = self._fed[rule.name]
            fed.repeated = isinstance(item, Numbers) and fed.repeated is not False

    def tick(self, now: float) -> list[Alert]:
        """Return alerts of what was not heard of for too many seconds."""
        alerts = []
        for rule in self._absent:
            limit = rule.absent and rule.absent.seconds
            for rank, own in self._feed.ranks.items() if limit else ():
                since = own.heard if rule.metric == ANY_ROW else self._fed[rule.name].heard.get(rank, own.began)
                if rule.metric == ANY_ROW:
                    self._feed_rule(rule, rank, own.step, "the clock")
                what = "row" if rule.metric == ANY_ROW else rule.metric
                words = f"no {what} of rank {rank} for {now - since:,.0f} s; its newest step is {own.step:,}"
                runs = not own.closed and self._feed.runs(rank) and own.step >= rule.after_step
                alert = Alert(rule, rank, own.step, own.step, -1, -1, now - since, {}, words)
                alerts += self._once(alert, met=runs and now - since > (limit or 0.0))
        return alerts

    def _once(self, alert: Alert, *, met: bool) -> list[Alert]:
        """Return an alert of an absence where it begins."""
        known = self._series[alert.rule.name][alert.rank, "", "", -1, -1]
        begins, known.firing = met and not known.firing, met
        return [alert] if begins else []

    def healthy_until(self) -> int:
        """Return the step up to which the attempts before say what is healthy; 0: no rule asks for it."""
        ends = [0]
        for rule in self.rules:
            if rule.ratio is not None:
                span = rule.ratio.healthy
                ends.append(span[1] if isinstance(span, tuple) else rule.after_step + rule.mean_over + span)
        return max(ends)

    def states(self) -> list[State]:
        """Return how each rule stands."""
        newest = self._feed.newest_step
        return [self._state(rule, newest) for rule in self.rules]

    def firing(self, rule: Rule, besides: int = 0) -> bool:
        """Return whether the condition of a rule is met by more series of values than so many, and is still judged."""
        return self._met_by(rule) > besides and not self._stale(rule)

    def unfed(self, rule: Rule) -> str:
        """Return why a rule whose condition was met is not judged any more; empty where it is, or was not met."""
        return self._stale(rule) if self._met_by(rule) else ""

    def _met_by(self, rule: Rule) -> int:
        """Return how many series, of ranks that the run has now, met the condition last."""
        return sum(known.firing for key, known in self._series[rule.name].items() if self._feed.runs(key[0]))

    def _stale(self, rule: Rule) -> str:
        """Return that values do not come any more, in words; empty where they do, or never did."""
        fed = self._fed[rule.name]
        newest = self._feed.newest_step
        allowed = _STALE * (fed.gap or _FIRST_GAP) + _STALE_STEPS
        lasts = rule.absent is not None or (rule.metric is None and not fed.repeated)
        if fed.step < 0 or lasts or newest - fed.step <= allowed:
            return ""
        none = "has NaN" if fed.nan > fed.step else "has none"
        return f"{fed.metric} came last at step {fed.step:,} (rank {fed.rank}), and step {newest:,} {none}"

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
        if why := self._stale(rule):
            return why
        if newest <= rule.after_step:
            return f"judged behind step {rule.after_step:,}; the newest is {newest:,}"
        if rule.ratio is not None and not any(item.median for item in self._series[rule.name].values()):
            span = rule.ratio.healthy
            of = f"of steps {span[0]:,} to {span[1]:,} was not seen" if isinstance(span, tuple) else "is not complete"
            return f"the healthy span {of} at step {fed.step:,}"
        return ""

    def _why_unfed(self, rule: Rule) -> str:
        if not self._feed.ranks:
            return "no row of the run came yet"
        if rule.metric == ANY_ROW:
            return "no clock ticked yet"
        if rule.metric is not None:
            source = f"; what feeds it: {DERIVED[rule.metric]}" if rule.metric in DERIVED else ""
            given = ((name, getattr(rule, name)) for name in ("layer", "head", "stat"))
            narrowed = [f"{name} {own}" for name, own in given if own is not None]
            of = f" of {', '.join(narrowed)}" if narrowed else ""
            came = "came that is a number" if self._fed[rule.name].nan >= 0 else "came"
            return f"no value of `{rule.metric}`{of} {came}{source}"
        if rule.fed_by:
            return f"nothing came that shows that somebody looks for `{rule.event}`: {', '.join(rule.fed_by)}"
        return f"no event `{rule.event}` came, and the rule has no `fed_by` to show that somebody looks for it"

    def _feed_rule(self, rule: Rule, rank: int, step: int, metric: str) -> None:
        fed = self._fed[rule.name]
        before = fed.by_rank.get(rank)
        if before is not None and step > before:
            fed.gap = max(fed.gap, step - max(before, fed.step))
        fed.heard[rank] = self._feed.ranks[rank].heard
        fed.by_rank[rank] = step if before is None else max(before, step)
        if step >= fed.step:
            fed.step, fed.rank, fed.metric = step, rank, metric

    def _numbers(self, rule: Rule, item: Numbers) -> list[Alert]:
        if rule.stat is not None and rule.stat != item.stat:
            return []
        chosen = np.ones(len(item.value), bool)
        for own, column in ((rule.layer, item.layer), (rule.head, item.head)):
            chosen &= True if own is None else column == own
        if not chosen.any():
            return []
        if rule.not_finite is None and rule.absent is None and not (chosen := chosen & ~np.isnan(item.value)).any():
            self._fed[rule.name].nan = max(self._fed[rule.name].nan, item.step)
            return []
        for known in self._series[rule.name].values() if self._stale(rule) else ():
            known.firing, known.first, known.first_time = False, None, 0.0  # what is met then is news
        self._feed_rule(rule, item.rank, item.step, item.metric)
        if item.step <= rule.after_step or rule.absent is not None:
            return []
        rows = _over(rule, item.layer[chosen], item.head[chosen], item.value[chosen])
        alerts = []
        for layer, head, value in zip(*(column.tolist() for column in rows), strict=True):
            key = (layer, head) if rule.over == "any" else (-1, -1)
            rank = _RUN if item.of_run else item.rank
            known = self._series[rule.name][rank, item.metric, item.stat, *key]
            if (alert := self._judged(rule, known, item, value, (layer, head))) is not None:
                alerts.append(alert)
        return alerts

    def _judged(self, rule: Rule, known: _Series, item: Numbers, value: float, where: tuple[int, int]) -> Alert | None:
        """Take a value of a series; return an alert where the condition is met long enough, and was not before."""
        step, documents = item.step, item.documents
        known.began, known.since = min(known.began, step), min(known.since, step)
        if rule.ratio is not None and documents and known.median is None:
            known.drawn.append((value, documents))
        if rule.mean_over > 1:
            if len(known.averaged) > 1:
                first, before = known.averaged[-2][0], known.averaged[-1][0]
                if step - before > max(rule.mean_over // 2, MOST_GAPS * (before - first)):  # values are lost
                    known.averaged.clear()
                    known.since = step
            known.averaged.append((step, value, documents))
            while known.averaged[0][0] <= step - rule.mean_over:
                known.averaged.popleft()
            if step - known.since + 1 < rule.mean_over:
                return None
            documents = sum(own for *_, own in known.averaged)
            weights = [own if documents else 1 for *_, own in known.averaged]
            value = sum(own * weight for (_, own, _), weight in zip(known.averaged, weights, strict=True)) / sum(
                weights
            )
        named = item.metric if item.stat in _PLAIN else f"{item.metric} ({item.stat})"
        met, number, words = _met(rule, known, named, step, value, documents)
        if not met:
            known.first, known.first_time, known.firing = None, 0.0, False
            return None
        known.first = step if known.first is None else known.first
        known.first_time = known.first_time or item.time
        bounds = rule.threshold or rule.ratio or rule.change
        if known.firing or (
            bounds is not None
            and (step - known.first + 1 < bounds.for_ or item.time - known.first_time < bounds.for_seconds)
        ):
            return None
        known.firing = True
        return Alert(rule, item.rank, step, known.first, *where, number, {}, words + _place(*where), item.no_rank)

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
        known = self._series[rule.name][item.rank, "", "", -1, -1]
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
        if item.rank not in self._begun:
            begun = self._begun[item.rank] = item.step - 1
            for fed in self._fed.values():  # what fed them in steps that are done again is of no use
                fed.step = min(fed.step, max([begun, *fed.by_rank.values()]))
        for rule in self._absent:
            if rule.absent is None or rule.absent.steps is None or item.step <= rule.after_step:
                continue
            known = self._fed[rule.name].by_rank.get(item.rank)
            last = max(rule.after_step, self._begun[item.rank]) if known is None else known
            since = "none since" if known is None else "the last of"
            words = f"no {rule.metric} for {item.step - last:,} steps, {since} step {last:,}"
            alert = Alert(rule, item.rank, item.step, last, -1, -1, None, {}, words)
            alerts += self._once(alert, met=item.step - last >= rule.absent.steps)
        return alerts


def _over(rule: Rule, layers: np.ndarray, heads: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return layers, heads and values that a rule judges: all, or their aggregate, of those that have a number."""
    if rule.over == "any":
        return layers, heads, values
    if rule.over == "mean":
        return _WHOLE, _WHOLE, values.mean(keepdims=True)
    at = [int(values.argmin() if rule.over == "min" else values.argmax())]
    return layers[at], heads[at], values[at]


def _is_of(rule: Rule, metric: str) -> bool:
    """Return whether a rule is of a metric; ``val_loss.*`` is of all that begin like it."""
    name = str(rule.metric)
    return metric == name or (name.endswith(".*") and metric.startswith(name.removesuffix("*")))


def _integer(value: object, default: int) -> int:
    """Return a whole number of an event, which anybody may have written."""
    return value if type(value) is int else default


def of_rank(rank: int | None) -> str:
    """Return in words whose alert it is; None: that of the whole run."""
    return "the whole run" if rank is None else f"rank {rank}"


def _place(layer: int, head: int) -> str:
    named = [f"{what} {own}" for what, own in (("layer", layer), ("head", head)) if own >= 0]
    return f" ({', '.join(named)})" if named else ""


def _met(rule: Rule, known: _Series, metric: str, step: int, value: float, documents: int) -> tuple[bool, float, str]:
    """Return whether a value meets the condition, what was judged, and that in words.

    A share of documents meets a ratio beyond what chance makes of it alone: :data:`CHANCE` of its standard errors.
    """
    named = f"the mean of {metric} over {rule.mean_over:,} steps" if rule.mean_over > 1 else metric
    words = f"{named} is {value:.6g}"
    if rule.threshold is not None:
        return rule.threshold.met(value), value, f"{words}; the rule is {rule.threshold.words()}"
    if rule.ratio is not None:
        median = _healthy(rule.ratio, known, step, value, rule.mean_over)
        if not median:
            return False, value, ""
        chance = known.chance * math.sqrt(median * (1 - median) / documents) if documents and median < 1 else 0.0
        number, far = value / median, abs(value - median) >= max(rule.ratio.by, chance)
        words += f", {number:.3g} times the median {median:.6g} when healthy"
        words += f", in {documents:,} documents" if documents else ""
        return far and rule.ratio.met(number), number, words
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


def _healthy(ratio: Ratio, known: _Series, step: int, value: float, mean_over: int) -> float | None:
    """Return the median of a series in its healthy span; None until that is over."""
    span, begun = ratio.healthy, known.began + mean_over - 1
    first, last = span if isinstance(span, tuple) else (begun, begun + span - 1)
    if known.median is None and step <= last:
        if step >= first and math.isfinite(value) and len(known.healthy) < _MOST_SPAN:
            known.healthy.append(value)
        return None
    if known.median is None and known.healthy:
        known.median, known.healthy = float(np.median(known.healthy)), []
        if len(known.drawn) > 1:
            shares, documents = np.array(known.drawn).T
            mean = float(np.average(shares, weights=documents))
            spread = float(documents @ (shares - mean) ** 2) / (len(shares) - 1)
            known.chance = max(CHANCE, _SPREAD * math.sqrt(spread / max(mean * (1 - mean), _TINY)))
        known.drawn = []
    return known.median
