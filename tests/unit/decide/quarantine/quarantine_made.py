"""Entries and lists made by hand, and a slow twin of what a list says."""

import datetime as dt
import hashlib

from dataaudit.decide.quarantine.changes import AddRequest, Author
from dataaudit.decide.quarantine.entry import Action, Evidence, Target, make_entry

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
TODAY = NOW.date()
AUTHOR = Author(who="ana@example.org", now=NOW)


def digest(name):
    """Return 64 hex digits that stand for a name."""
    return hashlib.sha256(str(name).encode()).hexdigest()


def target(name, row=None, **more):
    """Return a target whose digests come from its name."""
    given = {
        "sha256": digest(f"stored {name}"),
        "rows_digest": digest(f"rows {name}"),
        "split": "train",
        "uri": f"{name}",
    } | more
    return Target(kind="shard" if row is None else "document", row=row, **given)


def asked(name, row=None, reason="manual", **evidence):
    """Return what somebody asks to hold back."""
    return AddRequest(target=target(name, row), reason=reason, evidence=Evidence(**evidence))


def entry(action="add", name="a", *, when=NOW, reason="manual", who="ana", **fields):
    """Return an entry; additions and proposals get a target by name."""
    if action in {"add", "propose"}:
        fields.setdefault("target", target(name))
    return make_entry(Action(action), who=who, when=when, reason=reason, **fields)


def standing_slowly(entries, day):
    """Return {id: state} of additions and proposals, by looking at all lines for each of them.

    Shares nothing with the fold, and does not look at the order of lines.
    """
    states = {}
    for one in entries:
        if one.action not in ("add", "propose"):
            continue
        state = "held" if one.action == "add" else "proposed"
        if one.until and dt.date.fromisoformat(one.until) < day:
            state = "expired"
        if any(other.lifts and one.id in other.lifts for other in entries):
            state = "lifted"
        if one.action == "propose" and any(other.accepts == one.id for other in entries):
            state = "accepted"
        states[one.id] = state
    return states
