"""Every change of a list: add, propose, accept, lift, dismiss. Each is decided under the lock and appended.

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
from dataaudit.quarantine.list import Folded, Record, Standing, find_records, fold, update

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
    """What is held back besides, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRequest:
    """One thing to hold back."""

    target: Target
    """What."""
    reason: str
    """Short code."""
    evidence: Evidence = NO_EVIDENCE
    """Why."""


def add(path: Path, requests: Iterable[AddRequest], author: Author, until: dt.date | None = None) -> Change:
    """Hold shards or documents back.

    Args:
        path: The list; it is made when there is none.
        requests: What to hold back.
        author: Who does it.
        until: The last day on which it holds.

    Raises:
        QuarantineError: The list cannot be written, or the fields are no entry.
    """
    last = _last_day(until, author)

    def decide(folded: Folded, change: _Draft) -> None:
        held: dict[object, list[Entry]] = {}
        for entry in folded.standing(Standing.HELD):
            held.setdefault(entry.content, []).append(entry)
        for request in requests:
            entry = _make(
                Action.ADD,
                author,
                change.heads,
                target=request.target,
                reason=request.reason,
                evidence=request.evidence,
                until=last,
            )
            covering = [one for one in held.get(entry.content, ()) if (one.until or _FOREVER) >= (last or _FOREVER)]
            if covering:
                change.known.append(covering[0])
            else:
                change.add(entry)
                held.setdefault(entry.content, []).append(entry)

    return _change(path, author, decide, create=True)


def propose(path: Path, requests: Iterable[AddRequest], author: Author) -> Change:
    """Propose to hold shards back: nothing is left out until somebody accepts it.

    A target that is held back or proposed for the same reason already is not proposed again, nor one whose proposal was
    lifted (or accepted, and that lifted) with the same finding: somebody has seen it. One whose hold is over by its day
    is.

    Raises:
        QuarantineError: As of :func:`add`.
    """

    def decide(folded: Folded, change: _Draft) -> None:
        open_: dict[object, Entry] = {}
        seen: dict[object, Entry] = {}
        over = {record.entry.id for record in folded.records if record.standing == Standing.EXPIRED}
        for record in folded.records:
            entry = record.entry
            key = _about(entry)
            if record.standing in {Standing.HELD, Standing.PROPOSED}:
                open_[key] = entry
            elif record.standing != Standing.EXPIRED and (record.by is None or record.by.id not in over):
                seen[key, (entry.evidence or NO_EVIDENCE).finding()] = entry
        for request in requests:
            entry = _make(
                Action.PROPOSE,
                author,
                change.heads,
                target=request.target,
                reason=request.reason,
                evidence=request.evidence,
            )
            key = _about(entry)
            known = open_.get(key) or seen.get((key, request.evidence.finding()))
            if known is not None:
                change.known.append(known)
            else:
                change.add(entry)
                open_[key] = entry

    return _change(path, author, decide, create=True)


def accept(path: Path, names: Sequence[str] | None, author: Author, until: dt.date | None = None) -> Change:
    """Put proposals in force.

    Args:
        path: The list.
        names: Entries or targets, as people write them; None for every open proposal.
        author: Who answers for it.
        until: The last day on which they hold.

    Raises:
        QuarantineError: A name means no proposal, or several things, or the last day is over.
    """
    last = _last_day(until, author)

    def decide(folded: Folded, change: _Draft) -> None:
        found = folded.records if names is None else find_records(names, folded)
        for record in found:
            proposal = record.entry
            if record.standing == Standing.PROPOSED:
                entry = _make(
                    Action.ADD,
                    author,
                    change.heads,
                    target=proposal.target,
                    reason=proposal.reason,
                    evidence=proposal.evidence,
                    accepts=proposal.id,
                    until=last,
                )
                change.add(entry)
            elif names is not None:
                _refuse_unless_done(record, done=Standing.ACCEPTED)
                change.known.append(record.by or proposal)

    return _change(path, author, decide, create=False)


def lift(path: Path, names: Sequence[str], reason: str, author: Author) -> Change:
    """End entries, or turn proposals down.

    Args:
        path: The list.
        names: Entries or targets, as people write them; a target stands for all its open entries.
        reason: Short code.
        author: Who answers for it.

    Raises:
        QuarantineError: A name means nothing in the list, or several things.
    """

    def decide(folded: Folded, change: _Draft) -> None:
        found = find_records(names, folded)
        lifted = [record.entry.id for record in found if record.standing in {Standing.HELD, Standing.PROPOSED}]
        change.known += [record.entry for record in found if record.entry.id not in set(lifted)]
        if lifted:
            change.add(_make(Action.LIFT, author, change.heads, lifts=tuple(lifted), reason=reason))

    return _change(path, author, decide, create=False)


def dismiss(path: Path, lines: Sequence[int | str], reason: str, author: Author) -> Change:
    """Say that somebody has looked at lines that cannot be read or are lost, and that they are to be passed over.

    Args:
        path: The list.
        lines: Lines, from 1, or ids of lost ones, as ``sha256:HEX``.
        reason: Short code.
        author: Who answers for it.

    Raises:
        QuarantineError: A line can be read, and is lifted, not dismissed; or no line names what is said to be lost.
    """
    numbers = [line for line in lines if isinstance(line, int)]
    ids = [line for line in lines if isinstance(line, str)]

    def decide(contents: Contents) -> Sequence[Entry]:
        if strange := [name for name in ids if name not in contents.lost]:
            raise QuarantineError(
                f"{path}: no line of it names {strange[0]} as one before it, or it is there",
                "`dataaudit quarantine list FILE` names those that are lost.",
            )
        by_number = {line.number: line for line in contents.bad}
        done = {line.number for line in contents.dismissed}
        unknown = [number for number in numbers if number not in by_number and number not in done]
        if unknown:
            raise QuarantineError(
                f"{path}: line {unknown[0]} is none that cannot be read",
                "`dataaudit quarantine list FILE` names those; an entry is ended with `quarantine lift`.",
            )
        digests = tuple(
            dict.fromkeys(
                [
                    *(by_number[number].sha256 for number in numbers if number in by_number),
                    *(name.removeprefix("sha256:") for name in ids),
                ]
            )
        )
        return [_make(Action.DISMISS, author, contents.heads, dismisses=digests, reason=reason)] if digests else []

    return Change(added=update(path, decide, create=False))


@dataclass(slots=True)
class _Draft:
    heads: tuple[str, ...]
    """Of the list with what is added."""
    added: list[Entry] = field(default_factory=list)
    known: list[Entry] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        self.added.append(entry)
        self.heads = (entry.id,)


def _change(path: Path, author: Author, decide: Callable[[Folded, _Draft], None], *, create: bool) -> Change:
    known: list[Entry] = []
    bad: list[BadLine] = []

    def whole(contents: Contents) -> Sequence[Entry]:
        draft = _Draft(contents.heads)
        decide(fold(contents.entries, author.today), draft)
        known.extend(draft.known)
        bad.extend(contents.bad)
        return draft.added

    added = update(path, whole, create=create)
    return Change(added=added, known=tuple(dict.fromkeys(known)), bad=tuple(bad))


def _last_day(until: dt.date | None, author: Author) -> str | None:
    """Return a last day as it is written.

    Raises:
        QuarantineError: It is over.
    """
    if until is not None and until < author.today:
        raise QuarantineError(
            f"an entry until {until} would be over already: today is {author.today}", "Name a later day."
        )
    return None if until is None else until.isoformat()


def _make(action: Action, author: Author, after: tuple[str, ...], **fields: object) -> Entry:
    try:
        return make_entry(action, who=author.who, when=author.now, note=author.note, after=after, **fields)
    except ValueError as error:
        raise QuarantineError(f"no entry can hold this: {_words(error)}") from None


def _words(error: ValueError) -> str:
    """Return in words what is wrong with an entry."""
    problems = getattr(error, "errors", None)
    if problems is None:
        return str(error)
    first = problems(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in first['loc']) or 'entry'}: {first['msg']}"


def _about(entry: Entry) -> tuple[object, ...]:
    evidence = entry.evidence or NO_EVIDENCE
    return (entry.target and entry.target.identity, entry.reason, evidence.rule)


def _refuse_unless_done(record: Record, done: Standing) -> None:
    if record.standing != done:
        raise QuarantineError(
            f"{record.entry.id[7:19]} is {record.standing}, no open proposal", "`quarantine list --all` shows it."
        )


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
