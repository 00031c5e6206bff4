"""Every change of a list: add, propose, accept, lift. Each is decided under the lock and appended.

Nothing is added twice: what is in force already, proposed already, or was turned down with the same finding stays as
it is, and the answer says so.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dataaudit.errors import QuarantineError
from dataaudit.quarantine.entry import NO_EVIDENCE, Action, BadLine, Contents, Entry, Evidence, Target, make_entry
from dataaudit.quarantine.list import OPEN, Folded, Standing, find_records, fold, short_id, starting, update

_FOREVER = "9999-12-31"


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Who changes a list, when and with what words."""

    who: str
    """Name or address."""
    now: dt.datetime
    """With a time zone."""
    note: str | None = None
    """For people."""

    @property
    def today(self) -> dt.date:
        """The day, UTC."""
        return self.now.astimezone(dt.UTC).date()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a change came to."""

    added: tuple[Entry, ...]
    """Lines that were appended; they are on disk."""
    known: tuple[Entry, ...] = ()
    """Entries that already say what was asked for, so that nothing was added for it."""
    bad: tuple[BadLine, ...] = ()
    """Lines of the file that cannot be read."""
    notes: tuple[str, ...] = ()
    """What is left out besides, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRequest:
    """A shard or document to leave out."""

    target: Target
    """What."""
    reason: str
    """Short code."""
    evidence: Evidence = NO_EVIDENCE
    """Why."""


@dataclass(slots=True)
class _Draft:
    """A change while it is decided: the list, and what is added to it."""

    author: Author
    contents: Contents
    folded: Folded
    ids: frozenset[str]
    added: list[Entry] = field(default_factory=list)
    known: list[Entry] = field(default_factory=list)

    def make(self, action: Action, **fields: object) -> Entry:
        by, when = self.author, self.author.now
        try:
            while (made := make_entry(action, who=by.who, when=when, note=by.note, **fields)).id in self.ids:
                when += dt.timedelta.resolution  # a clock that stands still: the line there may be lifted
        except ValueError as error:
            raise QuarantineError(f"no entry can hold this: {_words(error)}") from None
        return made


def add(path: Path, requests: Iterable[AddRequest], author: Author, until: dt.date | None = None) -> Change:
    """Leave shards or documents out, through the day ``until``; the list is made when there is none."""
    last = _last_day(until, author)

    def decide(draft: _Draft) -> None:
        held: dict[object, list[Entry]] = {}
        for entry in draft.folded.standing(Standing.HELD):
            held.setdefault(entry.content, []).append(entry)
        for one in requests:
            entry = draft.make(Action.ADD, target=one.target, reason=one.reason, evidence=one.evidence, until=last)
            same = held.setdefault(entry.content, [])
            covering = [other for other in same if (other.until or _FOREVER) >= (last or _FOREVER)]
            if covering:
                draft.known.append(covering[0])
            else:
                draft.added.append(entry)
                same.append(entry)

    return _change(path, author, decide, create=True)


def propose(path: Path, requests: Iterable[AddRequest], author: Author) -> Change:
    """Propose to leave shards out: nothing is until somebody accepts it.

    A target that is left out or proposed for the same reason already is not proposed again, nor one whose proposal was
    lifted (or accepted, and that lifted) with the same finding: somebody has seen it. One whose entry is over by its
    day is.
    """

    def decide(draft: _Draft) -> None:
        open_: dict[object, Entry] = {}
        seen: dict[object, Entry] = {}
        over = {record.entry.id for record in draft.folded.records if record.standing == Standing.EXPIRED}
        for record in draft.folded.records:
            entry = record.entry
            if record.standing in OPEN:
                open_[_about(entry)] = entry
            elif record.standing != Standing.EXPIRED and (record.by is None or record.by.id not in over):
                seen[_about(entry), (entry.evidence or NO_EVIDENCE).finding()] = entry
        for one in requests:
            entry = draft.make(Action.PROPOSE, target=one.target, reason=one.reason, evidence=one.evidence)
            key = _about(entry)
            known = open_.get(key) or seen.get((key, one.evidence.finding()))
            if known is not None:
                draft.known.append(known)
            else:
                draft.added.append(entry)
                open_[key] = entry

    return _change(path, author, decide, create=True)


def accept(path: Path, names: Sequence[str] | None, author: Author, until: dt.date | None = None) -> Change:
    """Put proposals in force, through the day ``until``: those that people name, or every open proposal."""
    last = _last_day(until, author)

    def decide(draft: _Draft) -> None:
        for record in draft.folded.records if names is None else find_records(names, draft.folded):
            one = record.entry
            if record.standing == Standing.PROPOSED:
                fields = {"target": one.target, "reason": one.reason, "evidence": one.evidence}
                draft.added.append(draft.make(Action.ADD, accepts=one.id, until=last, **fields))
            elif names is not None:
                if record.standing != Standing.ACCEPTED:
                    raise QuarantineError(
                        f"{short_id(one)} is {record.standing}, no open proposal", "`quarantine list --all` shows it."
                    )
                draft.known.append(record.by or one)

    return _change(path, author, decide, create=False)


def lift(path: Path, names: Sequence[str], reason: str, author: Author) -> Change:
    """End entries, turn proposals down, or say that somebody has looked at lines that cannot be read.

    A name is what people write: a target stands for all its open entries, the beginning of an id for an entry or for
    a line that cannot be read.
    """

    def decide(draft: _Draft) -> None:
        bad = [line.id for line in draft.contents.bad]
        lines = {name: starting(name, [*bad, *(line.id for line in draft.contents.passed_over)]) for name in names}
        for name, ids in lines.items():
            if ids and len({*ids, *starting(name, (record.entry.id for record in draft.folded.records))}) > 1:
                raise QuarantineError(f"`{name}` is the beginning of several lines", "Give more of its digits.")
        found = find_records([name for name in names if not lines[name]], draft.folded)
        lifted = dict.fromkeys(one for ids in lines.values() for one in ids if one in bad)
        lifted |= dict.fromkeys(record.entry.id for record in found if record.standing in OPEN)
        draft.known += [record.entry for record in found if record.standing not in OPEN]
        if lifted:
            draft.added.append(draft.make(Action.LIFT, lifts=tuple(lifted), reason=reason))

    return _change(path, author, decide, create=False)


def _change(path: Path, author: Author, decide: Callable[[_Draft], None], *, create: bool) -> Change:
    drafts: list[_Draft] = []

    def whole(contents: Contents) -> Sequence[Entry]:
        draft = _Draft(author, contents, fold(contents.entries, author.today), frozenset(contents.lines))
        decide(draft)
        drafts.append(draft)
        return draft.added

    added = update(path, whole, create=create)
    lifted = {name for entry in added for name in entry.lifts or ()}
    bad = tuple(line for line in drafts[0].contents.bad if line.id not in lifted)
    return Change(added=added, known=tuple(dict.fromkeys(drafts[0].known)), bad=bad)


def _last_day(until: dt.date | None, author: Author) -> str | None:
    """Return a last day as it is written."""
    if until is not None and until < author.today:
        raise QuarantineError(
            f"an entry until {until} would be over already: today is {author.today}", "Name a later day."
        )
    return None if until is None else until.isoformat()


def _words(error: ValueError) -> str:
    """Return in words what is wrong with an entry."""
    problems = getattr(error, "errors", None)
    if problems is None:
        return str(error)
    first = problems(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in first['loc']) or 'entry'}: {first['msg']}"


def _about(entry: Entry) -> tuple[object, ...]:
    return (entry.target and entry.target.identity, entry.reason, (entry.evidence or NO_EVIDENCE).rule)


_SECONDS = 5


def author(who: str | None, note: str | None) -> Author:
    """Return who changes a list now: as given, else git's ``user.email``, else the name of the user."""
    return Author(who=who or _git_email() or _user(), now=dt.datetime.now(dt.UTC), note=note)


def _git_email() -> str:
    import subprocess

    try:
        done = subprocess.run(
            ["git", "config", "user.email"], capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return done.stdout.strip()


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
