"""From the bytes of a quarantine list to its entries; what cannot be read is named, never passed over."""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import orjson
from pydantic import ValidationError

from dataaudit.errors import QuarantineDamaged, QuarantineError
from dataaudit.quarantine.entry import SCHEMA_NAME, SCHEMA_VERSION, Action, Entry, content_id, read_entry

_NAMED = 5
BEGINNINGS = (b'{"accepts":"sha256:', b'{"action":"')
"""How every line of ours begins: keys stand in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """A line that cannot be read."""

    number: int
    """From 1."""
    code: str
    """truncated, not_json, not_an_entry, invalid or id_mismatch."""
    says: str
    """What is wrong, in words; nothing of the line itself."""
    sha256: str
    """Of its bytes, hex, the line's end left out: what a dismissal names."""
    size: int
    """Its bytes."""
    ours: bool
    """Whether it begins as a line of ours does, as far as it goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A whole file."""

    entries: tuple[Entry, ...]
    """In the file's order."""
    bad: tuple[BadLine, ...]
    """Lines that cannot be read and that no entry dismisses."""
    dismissed: tuple[BadLine, ...]
    """Lines that cannot be read, which somebody has looked at and dismissed."""
    digest: str
    """``sha256:`` and the sha256 of the file."""

    def check(self, where: str) -> None:
        """Refuse a file with lines that cannot be read.

        Raises:
            QuarantineDamaged: It has some.
        """
        if not self.bad:
            return
        lines = [f"  line {line.number} ({line.code}): {line.says}" for line in self.bad[:_NAMED]]
        more = [f"  and {len(self.bad) - _NAMED} more"] if len(self.bad) > _NAMED else []
        raise QuarantineDamaged(
            "\n".join(
                [f"{where}: {len(self.bad)} line(s) cannot be read, so what they hold is not known", *lines, *more]
            ),
            "Restore the file; or say that you have looked at a line: `dataaudit quarantine dismiss FILE LINE`.",
        )


def parse(data: bytes, where: str) -> Contents:
    """Read a file's bytes.

    Args:
        data: All of it.
        where: Its name, for messages.

    Raises:
        QuarantineError: A line is of a newer version: what it means cannot be known.
    """
    entries: list[Entry] = []
    bad: list[BadLine] = []
    dismissed: set[str] = set()
    lines = data.split(b"\n")
    with no_collection():
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            found = _read(line, number, where, last=number == len(lines))
            if isinstance(found, BadLine):
                bad.append(found)
                continue
            entries.append(found)
            if found.action == Action.DISMISS:
                dismissed.update(found.dismisses or ())
    return Contents(
        entries=tuple(entries),
        bad=tuple(line for line in bad if line.sha256 not in dismissed),
        dismissed=tuple(line for line in bad if line.sha256 in dismissed),
        digest=f"sha256:{hashlib.sha256(data).hexdigest()}",
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
    if not _is_its_own(entry, line):
        return _bad(line, number, "id_mismatch", "its content is not what its id says: it was changed afterwards")
    return entry


def _diagnose(line: bytes, number: int, where: str, error: ValidationError, *, last: bool) -> BadLine:
    """Say what is wrong with a line that is no entry.

    Raises:
        QuarantineError: It is of a newer version.
    """
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
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise QuarantineError(
            f"{where}, line {number}: schema version {version}, this program reads up to version {SCHEMA_VERSION}",
            "Install the version of dataaudit that wrote it, or a newer one.",
        )
    place = ".".join(str(part) for part in error.errors(include_url=False, include_input=False)[0]["loc"])
    return _bad(line, number, "invalid", f"{error.error_count()} problem(s), the first at {place or 'the entry'}")


def _is_its_own(entry: Entry, line: bytes) -> bool:
    """Tell whether the id is the content's.

    A canonical line without its id is the canonical content, so cutting the id out saves writing it anew. Inside of
    a string the quotes of this pattern would be escaped, so it can only be the field.
    """
    cut = line.replace(b',"id":"%s"' % entry.id.encode(), b"", 1)
    if f"sha256:{hashlib.sha256(cut).hexdigest()}" == entry.id:
        return True
    try:
        return content_id(orjson.loads(line)) == entry.id
    except ValueError:
        return False


def _bad(line: bytes, number: int, code: str, says: str) -> BadLine:
    ours = any(line.startswith(start) or start.startswith(line) for start in BEGINNINGS)
    return BadLine(
        number=number, code=code, says=says, sha256=hashlib.sha256(line).hexdigest(), size=len(line), ours=ours
    )
