"""The lines of a quarantine list: who leaves out what, why, on which evidence, until when.

A line is the entry in canonical JSON (RFC 8785), fields without a value left out. Its id is the sha256 of the same
JSON without the id, so an entry that was changed by hand is known as such. Lines that cannot be read are named, never
passed over. The lines are a set: order and repetition change nothing. A build and a verdict pin the ids of the lines
that they saw; a list that lacks such a line later has lost it.
"""

from __future__ import annotations

import datetime as dt
import gc
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import orjson
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from dataaudit.base.errors import QuarantineDamaged, QuarantineError
from dataaudit.base.yamlfile import NAME_PATTERN
from dataaudit.manifest.canonical import RepeatedKeyError, canonical_json, unique_keys

if TYPE_CHECKING:
    from dataaudit.manifest.load import Manifest

SCHEMA_NAME: Final = "dataaudit-quarantine"
SCHEMA_VERSION: Final = 3
NOTE_LENGTH = 2000
_MOST_NAME = 100_000
"""Characters of a URI: no file system has longer ones."""

Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Name = Annotated[str, Field(min_length=1, max_length=_MOST_NAME)]
Code = Annotated[str, Field(pattern=NAME_PATTERN, max_length=100)]
Text = Annotated[str, Field(min_length=1, max_length=NOTE_LENGTH)]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Comparator = Literal["<=", "<", ">=", ">", "=="]
LimitKind = Literal["budget", "change", "relative_change", "robust_sd"]
Time = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")]
_STRICT = ConfigDict(extra="forbid", use_attribute_docstrings=True)
Day = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\d$")]


class Action(StrEnum):
    """What a line does."""

    ADD = "add"
    PROPOSE = "propose"
    LIFT = "lift"


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class SchemaId:
    """Name and version of the line's schema."""

    name: Literal["dataaudit-quarantine"]
    version: Literal[3]


CURRENT = SchemaId(name=SCHEMA_NAME, version=SCHEMA_VERSION)


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class Target:
    """A shard, or one document of it. The digests say which; split and uri are for people."""

    kind: Literal["shard", "document"]
    """What is left out."""
    sha256: Hex | None = None
    """Of the shard's stored bytes."""
    rows_digest: Hex | None = None
    """Of its documents' texts and sources in order: it stays when the shard is packed anew. Of a document it is only
    given when the shard has no bad records, since these move the rows that follow them."""
    row: Count | None = None
    """Record of the shard, in reading order, bad ones counted."""
    split: Name | None = None
    """Split of the shard."""
    uri: Name | None = None
    """URI of the shard, relative to the root of the split."""

    def __post_init__(self) -> None:
        """Check that it names one thing."""
        if self.sha256 is None and self.rows_digest is None:
            raise ValueError("a target needs sha256 or rows_digest")
        if (self.row is None) != (self.kind == "shard"):
            raise ValueError("a document has a row, a shard has none")

    @property
    def identity(self) -> tuple[str | None, str | None, int | None]:
        """What decides whether two targets are the same."""
        return self.sha256, self.rows_digest, self.row


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class Evidence:
    """What the decision rests on; every part may be absent."""

    metric: Name | None = None
    """Name of the metric."""
    stat: Name | None = None
    """Statistic of it."""
    unit: Name | None = None
    """Unit of the value."""
    value: Number | None = None
    """Of the metric, for this shard."""
    judged: Number | None = None
    """What was compared with the limit, where that is not the value: a bound, a change, a distance."""
    comparator: Comparator | None = None
    """How the number should have stood to the limit."""
    limit: Number | None = None
    """The limit."""
    limit_kind: LimitKind | None = None
    """What it limits: the value, a change, a distance."""
    rule: Name | None = None
    """Rule of the policy."""
    policy: Digest | None = None
    """Digest of the policy."""
    manifest: Digest | None = None
    """Id of the manifest in which it was found."""
    run: Name | None = None
    """Id of a training run in which it was found."""
    attribution: Digest | None = None
    """Digest of the run's attribution.json, which has every number: checkpoints, arms, controls."""
    words: Text | None = None
    """What it says, in words."""

    def finding(self) -> tuple[Any, ...]:
        """Return what was found, without where: the same finding in two manifests is the same."""
        return self.metric, self.stat, self.rule, self.value, self.judged, self.limit, self.limit_kind


NO_EVIDENCE = Evidence()


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class Entry:
    """One line."""

    schema: SchemaId
    """Name and version of the form."""
    id: Digest
    """`sha256:` and the sha256 of the line's canonical JSON without this field."""
    action: Action
    """add: leave out; propose: somebody should; lift: no longer."""
    target: Target | None = None
    """Of add and propose: what is left out."""
    lifts: Annotated[tuple[Digest, ...], Field(min_length=1)] | None = None
    """Of lift: ids of the entries that end; of a line that cannot be read, `sha256:` and the sha256 of its bytes."""
    accepts: Digest | None = None
    """Of add: the proposal that it follows."""
    reason: Code
    """Short code."""
    evidence: Evidence | None = None
    """Of add and propose: what it rests on."""
    who: Name
    """Who answers for it."""
    when: Time
    """UTC."""
    until: Day | None = None
    """Of add and propose: the last day, UTC, on which it is in force."""
    note: Text | None = None
    """For people."""

    def __post_init__(self) -> None:
        """Check that the fields fit the action."""
        if (self.target is None) != (self.action == Action.LIFT):
            raise ValueError("add and propose have a target, a lift has none")
        if (self.lifts is None) == (self.action == Action.LIFT):
            raise ValueError("a lift, and nothing else, has `lifts`")
        if self.accepts is not None and self.action != Action.ADD:
            raise ValueError("only an addition accepts a proposal")
        if self.action == Action.LIFT and (self.until is not None or self.evidence is not None):
            raise ValueError("only what has a target has an end or evidence")
        dt.datetime.fromisoformat(self.when)
        if self.until is not None:
            dt.date.fromisoformat(self.until)

    @property
    def line(self) -> bytes:
        """The line in the file, without its end."""
        return canonical_json(plain_entry(self))

    @property
    def content(self) -> tuple[Any, ...]:
        """Action, target, reason and evidence: equal for two additions of the same."""
        return (self.action, self.target and self.target.identity, self.reason, self.evidence or NO_EVIDENCE)


def make_entry(action: Action, *, who: str, when: dt.datetime, **fields: Any) -> Entry:
    """Return an entry with its id; ``fields`` are the others of :class:`Entry`, None where there is no value."""
    stamp = when.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    given = {name: value for name, value in fields.items() if value is not None and value != NO_EVIDENCE}
    draft = Entry(schema=CURRENT, id=f"sha256:{'0' * 64}", action=action, who=who, when=stamp, **given)
    return replace(draft, id=content_id(plain_entry(draft)))


def read_entry(line: bytes) -> Entry:
    """Return the entry of a line; its id is not checked against its content."""
    return _adapter().validate_json(line, strict=True)


def plain_entry(entry: Entry) -> dict[str, Any]:
    """Return an entry as plain JSON values, without what it does not have."""
    plain: dict[str, Any] = _adapter().dump_python(entry, mode="json", exclude_none=True)
    return plain


def content_id(plain: dict[str, Any]) -> str:
    """Return the id of an entry as plain JSON values; an id in them does not count."""
    without = {name: value for name, value in plain.items() if name != "id"}
    return digest_of(canonical_json(without))


def digest_of(data: bytes) -> str:
    """Return ``sha256:`` and the sha256 of some bytes, hex."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def entry_schema() -> dict[str, Any]:
    """Return the JSON Schema of a line."""
    schema = _adapter().json_schema()
    own = {"add": "target", "propose": "target", "lift": "lifts"}
    allowed = {"add": {"accepts", "evidence", "until"}, "propose": {"evidence", "until"}, "lift": set()}
    special = {"target", "lifts", "accepts", "evidence", "until"}
    schema["allOf"] = [
        {
            "if": {"properties": {"action": {"const": action}}},
            "then": {
                "required": [field],
                "properties": {field: {"not": {"type": "null"}}}
                | {name: {"type": "null"} for name in sorted(special - allowed[action] - {field})},
            },
        }
        for action, field in own.items()
    ]
    schema["$defs"]["Target"] |= {
        "anyOf": [{"required": [name], "properties": {name: {"type": "string"}}} for name in ("sha256", "rows_digest")],
        "if": {"properties": {"kind": {"const": "document"}}},
        "then": {"required": ["row"], "properties": {"row": {"type": "integer"}}},
        "else": {"properties": {"row": {"type": "null"}}},
    }
    return schema


@cache
def _adapter() -> TypeAdapter[Entry]:
    return TypeAdapter(Entry)


_NAMED = 5
_RESTORE = "Restore the file, or name the list that was meant; lines are ended with `quarantine lift`."
BEGINNINGS = (b'{"accepts":"sha256:', b'{"action":"')
"""How every line of ours begins: keys stand in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """A line that cannot be read."""

    number: int
    """From 1."""
    code: str
    """truncated, not_json, not_an_entry, invalid or id_mismatch."""
    problem: str
    """In words; nothing of the line itself."""
    id: str
    """``sha256:`` and the sha256 of its bytes, the line's end left out: what a lift names."""
    size: int
    """In bytes."""
    is_ours: bool
    """Whether it begins as a line of ours does, as far as it goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A whole file."""

    entries: tuple[Entry, ...]
    """In the file's order."""
    bad: tuple[BadLine, ...]
    """Lines that cannot be read and that no entry lifts."""
    passed_over: tuple[BadLine, ...]
    """Lines that cannot be read, which somebody has looked at and lifted."""
    digest: str
    """``sha256:`` and the sha256 of the file."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Ids of the entries, sorted: what a manifest or a verdict pins."""
        return tuple(sorted({entry.id for entry in self.entries}))

    def check(self, where: str) -> None:
        """Refuse a file with lines that cannot be read."""
        if self.bad:
            lines = [f"line {line.number} ({line.code}), {line.id[7:19]}: {line.problem}" for line in self.bad]
            raise QuarantineDamaged(
                listed(f"{where}: {len(lines)} line(s) cannot be read, so what they leave out is not known", lines),
                f"Restore the file; or pass over a line: `dataaudit quarantine lift FILE {self.bad[0].id[7:19]}`.",
            )

    def check_lines(self, pinned: Iterable[str], where: str, what: str) -> None:
        """Refuse a file that lacks lines which something pins: ``what``, for messages, as ``where`` the file is."""
        _refuse_lost(sorted(set(pinned).difference(self.lines)), where, what)

    def check_seen(self, manifest: Manifest, where: str, what: str = "the manifest") -> None:
        """Refuse a file that lacks lines which the build of a manifest saw in it.

        The pinned ids stand in ``run``, outside of the manifest's id; what the build left out stands in the core, and
        is looked for by digest as well.
        """
        seen, what = manifest.run.quarantine, f"{what} {manifest.id[:19]}"
        self.check_lines(() if seen is None else seen.lines, where, what)
        if not manifest.core.quarantine:
            return
        targets = [entry.target for entry in self.entries if entry.target is not None]
        named = {(name, target.row) for target in targets for name in (target.sha256, target.rows_digest) if name}
        gone = [
            f"of {left_out.sha256 or left_out.rows_digest}" + ("" if row is None else f", row {row:,}")
            for left_out in manifest.core.quarantine
            for row in ((None,) if left_out.rows is None else left_out.rows)
            if named.isdisjoint({(left_out.sha256, row), (left_out.rows_digest, row)})
        ]
        _refuse_lost(gone, where, what)


def _refuse_lost(gone: list[str], where: str, what: str) -> None:
    if gone:
        raise QuarantineDamaged(listed(f"{where}: {len(gone)} line(s) are lost that {what} names", gone), _RESTORE)


def listed(title: str, items: Sequence[str]) -> str:
    """Return a title with the first items below it, a line each, and how many more there are."""
    more = [f"and {len(items) - _NAMED:,} more"] if len(items) > _NAMED else []
    return "\n".join([title, *(f"  {item}" for item in (*items[:_NAMED], *more))])


def parse(data: bytes, where: str) -> Contents:
    """Return what a file's bytes hold; ``where`` is its name, for messages."""
    entries: list[Entry] = []
    bad: list[BadLine] = []
    lines = data.split(b"\n")
    with no_collection():
        for number, line in enumerate(lines, start=1):
            if line.strip():
                item = _read(line, number, where, last=number == len(lines))
                bad.append(item) if isinstance(item, BadLine) else entries.append(item)
        lifted = {name for entry in entries for name in entry.lifts or ()}
    return Contents(
        entries=tuple(entries),
        bad=tuple(line for line in bad if line.id not in lifted),
        passed_over=tuple(line for line in bad if line.id in lifted),
        digest=digest_of(data),
    )


@contextmanager
def no_collection() -> Iterator[None]:
    """Put off the garbage collector: a million new objects, none of them garbage, would be walked again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _read(line: bytes, number: int, where: str, *, last: bool) -> Entry | BadLine:
    try:
        entry = read_entry(line)
    except ValidationError as error:
        return _diagnose(line, number, where, error, last=last)
    try:
        if not _is_its_own(entry, line):
            return _bad(line, number, "id_mismatch", "its content is not what its id says: it was changed afterwards")
    except RepeatedKeyError as error:
        return _bad(line, number, "invalid", f"the key `{error}` is given twice: readers would take either value")
    return entry


def _diagnose(line: bytes, number: int, where: str, error: ValidationError, *, last: bool) -> BadLine:
    try:
        plain = orjson.loads(line)
    except orjson.JSONDecodeError:
        if last:
            return _bad(line, number, "truncated", "the last line is not whole: its writer was killed as it wrote")
        return _bad(line, number, "not_json", "it is not JSON")
    schema = plain.get("schema") if isinstance(plain, dict) else None
    if not isinstance(schema, dict) or schema.get("name") != SCHEMA_NAME:
        return _bad(line, number, "not_an_entry", f"it is JSON, but no {SCHEMA_NAME}")
    version = schema.get("version")
    if type(version) is int and version > 0 and version != SCHEMA_VERSION:
        older = version < SCHEMA_VERSION
        raise QuarantineError(
            f"{where}, line {number}: schema version {version}, this program reads version {SCHEMA_VERSION} alone",
            "Begin a new list: `dataaudit quarantine add` what the earlier version's `quarantine list` shows."
            if older
            else "Install the version of dataaudit that wrote it, or a newer one.",
        )
    place = ".".join(str(part) for part in error.errors(include_url=False, include_input=False)[0]["loc"])
    return _bad(line, number, "invalid", f"{error.error_count()} problem(s), the first at {place or 'the entry'}")


def _is_its_own(entry: Entry, line: bytes) -> bool:
    """Return whether the id is the content's.

    A canonical line without its id is the canonical content, so cutting the id out saves writing it anew. Inside of
    a string the quotes of this pattern would be escaped, so it can only be the field. A line that comes out as it went
    in has no key twice; any other is read key by key.
    """
    try:
        if orjson.dumps(orjson.loads(line), option=orjson.OPT_SORT_KEYS) == line:
            cut = line.replace(b',"id":"%s"' % entry.id.encode(), b"", 1)
            if digest_of(cut) == entry.id:
                return True
        return content_id(json.loads(line, object_pairs_hook=unique_keys, parse_int=_number)) == entry.id
    except ValueError:
        return False


def _number(digits: str) -> float:
    """Return a whole number, as a float from 2**53 on: canonical JSON writes those up to 1e21 without an exponent."""
    number = int(digits)
    return number if abs(number) < 1 << 53 else float(digits)


def _bad(line: bytes, number: int, code: str, problem: str) -> BadLine:
    is_ours = any(line.startswith(start) or start.startswith(line) for start in BEGINNINGS)
    return BadLine(number=number, code=code, problem=problem, id=digest_of(line), size=len(line), is_ours=is_ours)
