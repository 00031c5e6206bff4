"""Related alarms as one incident: which was first, which followed, how grave it is.

An alarm belongs to the open incident when it began no later than :data:`LINGERS` steps after that one's latest alarm;
else it opens another. What began first is its first, of several at a step the lowest layer. An incident is as grave as
its gravest alarm: 0 stop and protect the last checkpoint, 1 contain, 2 investigate, 3 a hint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LINGERS = 64
"""Steps after its latest alarm in which an incident takes in others."""
_SEVERITY = {"not_finite": 0, "state": 0, "rate": 1, "tying": 1, "dead": 1, "collapse": 1, "frozen": 1, "fold": 1}
_GRAVE_LOGIT = 1000.0


def severity_of(detail: Mapping[str, Any]) -> int:
    """Return how grave an alarm or a warning is, 0 to 3."""
    rule = detail.get("rule")
    if rule == "limit":
        logits = detail["metric"] == "max_attn_logit"
        return 3 if not logits else 1 if detail["value"] >= _GRAVE_LOGIT else 2
    return _SEVERITY.get(str(rule), 2)


class Incidents:
    """Gives alarms the number of their incident."""

    def __init__(self) -> None:
        self.number = 0
        """Incidents so far."""
        self.first: dict[str, Any] | None = None
        """The alarm of the latest incident that began first."""
        self.severity = 3
        self._latest = 0

    def join(self, step: int, detail: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """Return an alarm with its severity and incident, and whether that incident is new or graver by it.

        A hint opens no incident: outside of one it has the number 0.
        """
        severity = severity_of(detail)
        began = int(detail.get("first_step", step))
        opens = not self.number or began > self._latest + LINGERS
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
        return {"number": self.number, "first": self.first, "severity": self.severity, "latest": self._latest}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.number, self.severity, self._latest = (int(state[name]) for name in ("number", "severity", "latest"))
        self.first = None if state["first"] is None else dict(state["first"])


def _order(detail: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(detail.get(name, -1) for name in ("first_step", "layer", "head"))
