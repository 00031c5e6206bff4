"""Changes a list: add, propose, accept, lift, each decided under the lock and appended; and makes requests for it.

Nothing is added twice: what is in force already, proposed already, or was turned down with the same finding stays as
it is, and the result names it. A proposal leaves nothing out: `quarantine accept` puts it in force, `quarantine lift`
turns it down.

Of a verdict these are not proposed: cases that are waived, that warn, or that could not be evaluated; shards that the
build could not read (lists leave them out anyway); and, for rules about duplicates, shards with the digest of another
shard (an entry would leave out both, and the data with them) and held-out shards (training data loses its duplicates).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from shlex import quote
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from dataaudit.base.errors import ConfigError, ManifestError, QuarantineError
from dataaudit.base.text import plural, some_of
from dataaudit.base.yamlfile import NAME_PATTERN
from dataaudit.decide.gate.policy import Rule
from dataaudit.decide.gate.verdict import Case, RuleResult, State, Verdict
from dataaudit.decide.quarantine.entry import (
    NO_EVIDENCE,
    Action,
    BadLine,
    Contents,
    Entry,
    Evidence,
    Target,
    make_entry,
)
from dataaudit.decide.quarantine.list import OPEN, Folded, Standing, find_records, fold, short_id, starting, update
from dataaudit.decide.quarantine.selection import COLUMNS, digests_of, row_digests_of
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.locate import find_place
from dataaudit.metrics.registry import COPIES, PERSONAL

_FOREVER = "9999-12-31"


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Who changes a list, when and with which note."""

    who: str
    now: dt.datetime
    """With a time zone."""
    note: str | None = None

    @property
    def today(self) -> dt.date:
        """The day, UTC."""
        return self.now.astimezone(dt.UTC).date()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The result of a change."""

    added: tuple[Entry, ...]
    """Lines that were appended; they are on disk."""
    known: tuple[Entry, ...] = ()
    """Earlier entries of the same content, so that nothing was added."""
    bad: tuple[BadLine, ...] = ()
    """Lines of the file that cannot be read."""
    notes: tuple[str, ...] = ()
    """What is left out besides, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRequest:
    """A shard or document to leave out."""

    target: Target
    reason: str
    """Short code."""
    evidence: Evidence = NO_EVIDENCE


@dataclass(slots=True)
class _Draft:
    """A change while it is decided."""

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
            problem = str(error)
            if isinstance(error, ValidationError):
                first = error.errors(include_url=False, include_input=False)[0]
                problem = f"{'.'.join(str(part) for part in first['loc']) or 'entry'}: {first['msg']}"
            raise QuarantineError(f"no entry can hold this: {problem}") from None
        return made

    def request(self, action: Action, asked: AddRequest, **fields: object) -> Entry:
        return self.make(action, target=asked.target, reason=asked.reason, evidence=asked.evidence, **fields)


def add(path: Path, requests: Iterable[AddRequest], author: Author, until: dt.date | None = None) -> Change:
    """Leave shards or documents out, through the day ``until``; the list is made when there is none."""
    last = _last_day(until, author)

    def decide(draft: _Draft) -> None:
        in_force: dict[object, list[Entry]] = {}
        for entry in draft.folded.standing(Standing.HELD):
            in_force.setdefault(entry.content, []).append(entry)
        for asked in requests:
            entry = draft.request(Action.ADD, asked, until=last)
            same = in_force.setdefault(entry.content, [])
            covering = [other for other in same if (other.until or _FOREVER) >= (last or _FOREVER)]
            if covering:
                draft.known.append(covering[0])
            else:
                draft.added.append(entry)
                same.append(entry)

    return _change(path, author, decide, create=True)


def propose(path: Path, requests: Iterable[AddRequest], author: Author) -> Change:
    """Propose to leave shards out: nothing is until somebody accepts it.

    A target is not proposed again that is left out or proposed for the same reason already, or whose proposal was
    lifted (or accepted, and that lifted) with the same finding. It is proposed again when its entry has expired.
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
        for asked in requests:
            entry = draft.request(Action.PROPOSE, asked)
            key = _about(entry)
            known = open_.get(key) or seen.get((key, asked.evidence.finding()))
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
            entry = record.entry
            if record.standing == Standing.PROPOSED:
                fields = {"target": entry.target, "reason": entry.reason, "evidence": entry.evidence}
                draft.added.append(draft.make(Action.ADD, accepts=entry.id, until=last, **fields))
            elif names is not None:
                if record.standing != Standing.ACCEPTED:
                    raise QuarantineError(
                        f"{short_id(entry)} is {record.standing}, no open proposal", "`quarantine list --all` shows it."
                    )
                draft.known.append(record.by or entry)

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
        records = find_records([name for name in names if not lines[name]], draft.folded)
        standing = {entry.id for entry in draft.folded.standing(Standing.HELD)}
        if after := [record.by for record in records if record.by is not None and record.by.id in standing]:
            raise QuarantineError(
                f"a proposal that {short_id(after[0])} accepted is no entry in force: that addition is",
                f"Lift the addition: `dataaudit quarantine lift {path} {short_id(after[0])}`.",
            )
        lifted = dict.fromkeys(id_ for ids in lines.values() for id_ in ids if id_ in bad)
        lifted |= dict.fromkeys(record.entry.id for record in records if record.standing in OPEN)
        draft.known += [record.entry for record in records if record.standing not in OPEN]
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
    if until is not None and until < author.today:
        raise QuarantineError(
            f"an entry until {until} would be over already: today is {author.today}", "Name a later day."
        )
    return None if until is None else until.isoformat()


def _about(entry: Entry) -> tuple[object, ...]:
    return (entry.target and entry.target.identity, entry.reason, (entry.evidence or NO_EVIDENCE).rule)


def author(who: str | None, note: str | None) -> Author:
    """Return who changes a list now: as given, else git's ``user.email``, else the name of the user."""
    return Author(who=who or _user(), now=dt.datetime.now(dt.UTC), note=note)


def _user() -> str:
    import getpass
    import subprocess

    with contextlib.suppress(OSError, subprocess.SubprocessError, UnicodeDecodeError):
        command = ["git", "config", "user.email"]
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=5)
        if email := found.stdout.strip():
            return email
    with contextlib.suppress(OSError, KeyError):
        return getpass.getuser()
    return "unknown"


_DIGEST = re.compile(r"(sha256|rows):([0-9a-f]{64})(?::([0-9]{1,15}))?")
_ABOUT_PEOPLE = "pii"
_LEAKS = frozenset({"train_val_overlap", "benchmark_contamination"})


def add_requests(
    places: Sequence[str], manifest: Manifest | None, *, reason: str, metric: str | None, run: str | None
) -> tuple[list[AddRequest], list[str]]:
    """Return what a user asks to leave out, and what an entry of it leaves out besides, in words."""
    if metric is not None and metric not in (known := _metric_columns()):
        raise ConfigError(f"metric {metric}: the table of shards has no such number", f"Known: {', '.join(known)}.")
    columns = COLUMNS if metric is None or metric in COLUMNS else [*COLUMNS, metric]
    shards = None if manifest is None else manifest.table("shards", columns)
    requests, notes = [], []
    for place in places:
        if match := _DIGEST.fullmatch(place):
            if metric is not None:
                raise ConfigError(
                    f"metric {metric}: `{place}` is a digest, and no number is looked up for it",
                    "Name the shard as the manifest does, split/uri, or leave the metric out.",
                )
            kind, digest, record = match.groups()
            named = {"sha256" if kind == "sha256" else "rows_digest": digest}
            target = Target(kind="document" if record else "shard", row=int(record) if record else None, **named)
            evidence = Evidence(run=run)
        elif manifest is None or shards is None:
            raise ConfigError(
                f"`{place}` is no digest, and no manifest says which shard it is",
                "Name the manifest (--manifest DIR, in Python manifest=DIR), or give sha256:HEX of the stored bytes.",
            )
        else:
            at = find_place(place, shards)
            row = shards.slice(at.shard, 1).to_pylist()[0]
            target = target_of(row, at.row)
            value = None if metric is None else row[metric]
            evidence = Evidence(metric=metric, value=value, manifest=manifest.id, run=run)
            if at.row is None:
                notes += [f"{name} has the same digest: it is left out too" for name in _copies(row, shards)]
        requests.append(AddRequest(target=target, reason=reason, evidence=evidence))
    return requests, notes


def target_of(row: dict[str, Any], record: int | None = None) -> Target:
    """Return the target of an entry: a shard, or a record of it."""
    name = f"{row['split']}/{row['uri']}"
    digests = digests_of(row) if record is None else row_digests_of(row)
    if not digests:
        raise ConfigError(
            f"{name} was not read ({row['reason']}), so it has no digest to name it by",
            "Lists of `quarantine apply` leave out what was not read anyway.",
        )
    if record is not None and record >= row["rows"]:
        raise ConfigError(f"{name} has {row['rows']} rows, counted from 0; found {record}")
    kind: Literal["shard", "document"] = "shard" if record is None else "document"
    try:
        return Target(kind=kind, row=record, split=row["split"], uri=row["uri"], **digests)
    except ValueError:
        raise ManifestError(
            f"shard {row['shard']} has a digest, or a split or URI, that no build writes",
            "Restore the manifest or build again; `dataaudit verify` says more.",
        ) from None


def _copies(row: dict[str, Any], shards: pa.Table) -> list[str]:
    masks = [pc.equal(shards[name], digest) for name, digest in digests_of(row).items()]
    same = shards.filter(functools.reduce(pc.or_kleene, masks)).to_pylist()
    return [f"{other['split']}/{other['uri']}" for other in same if other["shard"] != row["shard"]]


def _metric_columns() -> list[str]:
    """Return the columns of the table of shards that are numbers, but of personal data."""
    from dataaudit.manifest.tables import TABLES

    return [
        field.name
        for field in TABLES["shards"].schema
        if (pa.types.is_floating(field.type) or pa.types.is_int64(field.type))
        and not field.name.startswith(_ABOUT_PEOPLE)
    ]


_COPY, _HELD_OUT, _UNREAD = "copy", "held_out", "unread"
_PASSED_OVER = {
    _COPY: "as another shard has the same rows, and would be left out too",
    _HELD_OUT: "as held-out data keeps its duplicates and training data loses them",
    _UNREAD: "as it was not read, so that lists leave it out anyway",
}
_NAMED = 5


class PassedOver(NamedTuple):
    """A shard, as ``split/uri``, that broke a rule and is not proposed; why is a key of ``_PASSED_OVER``."""

    name: str
    rule: str
    why: str


class Proposed(NamedTuple):
    """The requests of a verdict, by rule, then by shard; a shard that broke two rules is there twice."""

    requests: tuple[AddRequest, ...]
    passed_over: tuple[PassedOver, ...]


def proposals(verdict: Verdict, shards: Sequence[Mapping[str, Any]], held_out: Collection[str]) -> Proposed:
    """Return what to propose for the shards that failed a per-shard rule, given the names of held-out splits.

    ``shards`` are the rows of the table of shards, in order, with the columns of
    :data:`dataaudit.decide.quarantine.selection.COLUMNS`.
    """
    times = Counter(digest for row in shards for digest in set(digests_of(dict(row)).values()))
    requests, passed_over = [], []
    for result in verdict.rules:
        code = result.rule.metric if re.fullmatch(NAME_PATTERN, result.rule.metric) else "gate"
        for ordinal, case in sorted(_failed(result), key=itemgetter(0)):
            row = dict(shards[ordinal])
            digests = digests_of(row)
            why = "" if digests else _UNREAD
            if digests and result.rule.metric in COPIES:
                shared = any(times[digest] > 1 for digest in digests.values())
                why = _HELD_OUT if row["split"] in held_out else _COPY if shared else ""
            if why:
                passed_over.append(PassedOver(name=f"{row['split']}/{row['uri']}", rule=case.rule, why=why))
            else:
                evidence = _evidence(verdict, result.rule, case)
                requests.append(AddRequest(target=target_of(row), reason=code, evidence=evidence))
    return Proposed(requests=tuple(requests), passed_over=tuple(passed_over))


def _failed(result: RuleResult) -> list[tuple[int, Case]]:
    return [
        (case.scope.shard, case)
        for case in result.cases
        if case.scope.shard is not None and case.state == State.FAILED and not case.waived
    ]


def _evidence(verdict: Verdict, rule: Rule, case: Case) -> Evidence:
    shown = rule.metric not in PERSONAL  # the value of a shard may point at people: metric and limit are named alone
    return Evidence(
        metric=rule.metric,
        stat=case.stat,
        unit=case.unit or None,
        value=case.value if shown else None,
        judged=case.judged if shown and case.judged != case.value else None,
        comparator=rule.comparator,
        limit=rule.limit,
        limit_kind=rule.limit_kind,
        rule=rule.name,
        policy=verdict.policy_digest,
        manifest=verdict.subject.id,
    )


def propose_verdict(path: Path, verdict: Verdict, manifest: Manifest, by: Author) -> tuple[Change, Proposed]:
    """Append the proposals of a verdict to a list, which is made when there is none; return the change and them."""
    if manifest.id != verdict.subject.id:
        raise ManifestError(
            f"the manifest {manifest.place} was replaced while it was judged, or is another one: the verdict is of"
            f" {verdict.subject.id}, this is {manifest.id}",
            "Run the gate again.",
        )
    rows = manifest.table("shards", COLUMNS).to_pylist() if any(map(_failed, verdict.rules)) else []
    proposed = proposals(verdict, rows, [split.name for split in manifest.core.splits if split.held_out])
    return propose(path, proposed.requests, by), proposed


def propose_shards(path: Path, verdict: Verdict, folder: Path) -> str:
    """Append the proposals of a verdict on the manifest in a folder to a list; return what was done, for people."""
    change, proposed = propose_verdict(path, verdict, load_manifest(folder), author(None, None))
    lines = [f"quarantine: {plural(len(change.added), 'proposal')} added to {path}"]
    if change.known:
        lines[0] += f", {len(change.known):,} on the list already"
    if not proposed.requests and not proposed.passed_over:
        lines.append("  no rule about single shards (`scope: {per: shard}`) fails")
    if change.added:
        lines.append(f"  nothing is left out yet: dataaudit quarantine accept {quote(str(path))} ...")
    if any(result.state == State.FAILED and result.rule.metric in _LEAKS for result in verdict.rules):
        command = f"dataaudit quarantine apply {quote(str(path))} --manifest {quote(str(folder))} --out DIR --documents"
        lines.append(f"  documents that leak: {command}")
    for why, words in _PASSED_OVER.items():
        if names := sorted({item.name for item in proposed.passed_over if item.why == why}):
            lines.append(f"  not proposed, {words}: {some_of(names, _NAMED)}")
    if change.bad:
        number = plural(len(change.bad), "line")
        lines.append(f"  {number} of the list cannot be read: dataaudit quarantine list {quote(str(path))}")
    return "\n".join(lines)
