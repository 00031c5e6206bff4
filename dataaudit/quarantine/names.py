"""From what people type to entries of a list: the beginning of an id, a digest, ``split/uri`` or ``split/uri:row``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dataaudit.errors import QuarantineError
from dataaudit.quarantine.entry import Entry
from dataaudit.quarantine.fold import OPEN, Folded, Record

SHORT = 12
"""Hex digits of an id that are shown."""
_ID = re.compile(r"(?:sha256:)?([0-9a-f]{6,64})")


def short_id(entry: Entry) -> str:
    """Return the id as it is shown."""
    return entry.id.removeprefix("sha256:")[:SHORT]


def target_name(entry: Entry) -> str:
    """Return ``split/uri:row``, or the digest where the entry names no file; as it is in the data."""
    target = entry.target
    if target is None:
        return ""
    if target.split is not None and target.uri is not None:
        name = f"{target.split}/{target.uri}"
    else:
        name = target.uri or (f"sha256:{target.sha256}" if target.sha256 else f"rows:{target.rows_digest}")
    return name if target.row is None else f"{name}:{target.row}"


def find_records(names: Sequence[str], folded: Folded) -> list[Record]:
    """Return the records that names mean, each once, in the file's order.

    A name of a target means all its open entries, or, when none is open, all that it ever had.

    Raises:
        QuarantineError: A name means nothing, or the beginning of several ids.
    """
    chosen = {record.entry.id for name in names for record in _find(name, folded)}
    return [record for record in folded.records if record.entry.id in chosen]


def _find(name: str, folded: Folded) -> list[Record]:
    match = _ID.fullmatch(name)
    if match:
        found = [record for record in folded.records if record.entry.id[7:].startswith(match[1])]
        if len(found) > 1:
            raise QuarantineError(f"`{name}` is the beginning of {len(found)} entries", "Give more of its digits.")
        if found:
            return found
    found = [record for record in folded.records if name in _names(record.entry)]
    if not found:
        raise QuarantineError(
            f"no entry `{name}`",
            "Give the beginning of an entry's id, split/uri, or split/uri:row; `list --all` shows them.",
        )
    return [record for record in found if record.standing in OPEN] or found


def _names(entry: Entry) -> set[str]:
    target = entry.target
    if target is None:
        return set()
    row = "" if target.row is None else f":{target.row}"
    digests = [f"sha256:{target.sha256}", str(target.sha256)] if target.sha256 else []
    digests += [f"rows:{target.rows_digest}"] if target.rows_digest else []
    return {target_name(entry), f"{target.uri}{row}", *(f"{digest}{row}" for digest in digests)}
