"""Incidents: alarms that belong together.

An alarm belongs to the open incident when it began no later than :data:`LINGERS` steps after that one's latest alarm;
else it opens another. What began first is its first, of several at a step the lowest layer. Single heads change their
work in healthy runs, and outliers come: a drift of a head, or a rate of outliers, is a hint until another alarm of its
layer follows within as many steps. An incident is as grave as its gravest alarm: 0 stop and protect the last
checkpoint, 1 contain, 2 investigate, 3 a hint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dataaudit.vitals.metric import Key
from dataaudit.vitals.metrics import declared

LINGERS = 64
"""Steps after its latest alarm in which an incident takes in others."""
OTHER = 2, "is off"
RULES = {
    "not_finite": (0, "is not finite"),
    "state": (0, "is not finite in the optimizer's state"),
    "lost": (1, OTHER[1]),
    "rate": (1, "left its schedule"),
    "tying": (1, OTHER[1]),
    "dead": (1, "counts half its units or more as silent"),
    "unused": (2, "was sent no token in a window"),
    "collapse": (1, "has next to no entropy left"),
    "frozen": (1, "says that the layer does not train any more"),
    "fold": (1, "is far from its recent median"),
    "jump": (2, "jumped out of what is expected"),
    "drift": (2, "drifts out of what is expected"),
    "limit": (2, "passed a threshold of the literature"),
}
"""How grave an alarm of each rule is, and how a sentence says what it found."""
FROM_ITS_PAST = frozenset({"fold", "jump", "drift"})


class Incidents:
    """Gives alarms the number of their incident."""

    def __init__(self) -> None:
        self.number = 0
        """Incidents so far."""
        self.first: dict[str, Any] | None = None
        """The alarm of the latest incident that began first."""
        self.severity = 3
        self._latest = 0
        self._waiting: dict[int, tuple[int, dict[str, Any]]] = {}
        """By layer, what waits for another alarm, after its step."""

    def join(self, step: int, detail: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], bool]]:
        """Yield an alarm with its severity and incident, and whether that incident is new or graver by it.

        A hint opens no incident: outside of one it has the number 0. What waited is yielded again before what it
        waited for.
        """
        severity, layer = _severity(detail), int(detail.get("layer", -1))
        if severity < 3:
            seen, before = self._waiting.pop(layer, (-LINGERS - 1, {}))
            if seen <= step <= seen + LINGERS and any(before[name] != detail.get(name) for name in Key._fields):
                yield self._joined(step, before, 2)
            elif _waits(detail) and self._opens(step, detail):
                self._waiting[layer], severity = (step, dict(detail)), 3
        yield self._joined(step, detail, severity)

    def go_back(self, step: int) -> None:
        """Forget what waits since a later step, and count from here what the incident takes in: the run went back."""
        self._latest = min(self._latest, step - 1)
        self._waiting = {layer: item for layer, item in self._waiting.items() if item[0] < step}

    def _opens(self, step: int, detail: Mapping[str, Any]) -> bool:
        return not self.number or int(detail.get("first_step", step)) > self._latest + LINGERS

    def _joined(self, step: int, detail: Mapping[str, Any], severity: int) -> tuple[dict[str, Any], bool]:
        began, opens = int(detail.get("first_step", step)), self._opens(step, detail)
        if opens and severity == 3:
            return {**detail, "severity": severity, "incident": 0}, False
        graver = opens or severity < self.severity
        if opens:
            self.number, self.first, self.severity = self.number + 1, None, 3
        self.severity, self._latest = (
            min(self.severity, severity),
            max(step, began) if opens else max(step, self._latest),
        )
        joined = {**detail, "severity": severity, "incident": self.number, "first_step": began}
        if self.first is None or _order(joined) < _order(self.first):
            self.first = joined
        return joined, graver

    def state(self) -> dict[str, Any]:
        """Return all that it knows, in plain types."""
        return {
            "number": self.number,
            "first": self.first,
            "severity": self.severity,
            "latest": self._latest,
            "waiting": [list(item) for item in self._waiting.values()],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.number, self.severity, self._latest = (int(state[name]) for name in ("number", "severity", "latest"))
        self.first = None if state["first"] is None else dict(state["first"])
        self._waiting = {detail["layer"]: (int(step), dict(detail)) for step, detail in state["waiting"]}


def _severity(detail: Mapping[str, Any]) -> int:
    rule = detail.get("rule")
    if detail.get("begins"):
        return 3
    if rule == "limit":
        metric = declared(detail["metric"])
        return 1 if detail["value"] >= metric.grave else metric.severity
    return RULES.get(str(rule), OTHER)[0]


def kind_of(detail: Mapping[str, Any], kind: Any) -> Any:
    """Return the kind of event of what joins with an alarm: what waited is an alarm beside any kind."""
    return "alarm" if detail.get("rule") in FROM_ITS_PAST else kind


def _waits(detail: Mapping[str, Any]) -> bool:
    """Tell whether an alarm says little by itself: a series alone left its own past, as series of healthy runs do."""
    rule = detail.get("rule")
    if rule not in {"jump", "drift"} or detail["baseline"] is not None:
        return False
    return declared(detail["metric"]).waits or (rule == "drift" and bool(detail["head"] >= 0))


def _order(detail: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(detail.get(name, -1) for name in ("first_step", "layer", "head"))
