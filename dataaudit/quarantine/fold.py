"""What a list says on a day: the entries in order, each with what became of it. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from dataaudit.quarantine.entry import Action, Entry


class Standing(StrEnum):
    """What became of an addition or a proposal."""

    HELD = "held"
    """In force: the target is left out."""
    PROPOSED = "proposed"
    """Waits for somebody to accept or lift it; not in force."""
    ACCEPTED = "accepted"
    """A proposal that an addition follows."""
    LIFTED = "lifted"
    EXPIRED = "expired"


OPEN = frozenset({Standing.HELD, Standing.PROPOSED})
"""What has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An addition or a proposal, and what became of it."""

    entry: Entry
    standing: Standing
    by: Entry | None = None
    """The lift, or the addition that accepts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """A list on a day."""

    on: dt.date
    """The day."""
    records: tuple[Record, ...]
    """Every addition and proposal, in the file's order."""
    repeated: int
    """Lines whose id an earlier line has, as when two copies of a file were put together; they change nothing."""
    idle: int
    """Lifts and acceptances of what does not stand before them in the file, or had ended; they change nothing."""

    def standing(self, *wanted: Standing) -> list[Entry]:
        """Return the entries with one of some standings."""
        return [record.entry for record in self.records if record.standing in wanted]


def fold(entries: Iterable[Entry], on: dt.date) -> Folded:
    """Return what a list says on a day.

    Lines act in the file's order. A lift ends the entries that it names, wherever they were on their way; nothing
    lifts a lift, but the same target can be added again. An entry holds through its last day.

    Args:
        entries: In the file's order.
        on: The day, UTC.
    """
    first: dict[str, Entry] = {}
    standing: dict[str, tuple[Standing, Entry | None]] = {}
    repeated = idle = 0
    for entry in entries:
        if entry.id in first:
            repeated += 1
            continue
        first[entry.id] = entry
        if entry.action == Action.LIFT:
            for name in entry.lifts or ():
                if standing.get(name, _NOTHING)[0] in OPEN:
                    standing[name] = (Standing.LIFTED, entry)
                else:
                    idle += 1
        elif entry.action in _START:
            standing[entry.id] = (_START[entry.action], None)
            if entry.accepts is not None:
                if standing.get(entry.accepts, _NOTHING)[0] == Standing.PROPOSED:
                    standing[entry.accepts] = (Standing.ACCEPTED, entry)
                else:
                    idle += 1
    day = on.isoformat()
    records = []
    for name, (state, by) in standing.items():
        entry = first[name]
        ended = state in OPEN and entry.until is not None and entry.until < day
        records.append(Record(entry=entry, standing=Standing.EXPIRED if ended else state, by=by))
    return Folded(on=on, records=tuple(records), repeated=repeated, idle=idle)


_START = {Action.ADD: Standing.HELD, Action.PROPOSE: Standing.PROPOSED}
_NOTHING: tuple[Standing | None, None] = (None, None)
