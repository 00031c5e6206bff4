"""Documents that samples are asked of, read again in a child process of the driver and masked before they leave it.

Shown is a window of text around a finding, in which neither it nor any other finding can be read. Masked is what any
detector found, and what looks as if one should have: digits and long tokens. The window is cut at characters, and what
could steer a terminal is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from dataaudit.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.corpus.readers import PartStats, ReadRequest, plan_parts, read_part
from dataaudit.corpus.storage.files import stat_file
from dataaudit.detectors import find_in, shipped_patterns
from dataaudit.engine.running_task import documents_at
from dataaudit.engine.units import Outcome
from dataaudit.engine.work import as_value, hash_file
from dataaudit.text import clean

WINDOW_BYTES = 60
"""Bytes that are shown at either side of a finding."""
WHOLE_BYTES = 160
"""Bytes that are shown of the beginning of a document whose finding is the whole of it."""
_UNKNOWN = "LONG"
_LONG = re.compile(rb"[!-~]{24,}|[0-9A-Za-z+/=_-]{16,}|[^\s@]{1,200}@[^\s@]{1,200}")
"""Tokens that may be a key or an address which no detector knows: shown as ``[LONG]``."""
_MARGIN_BYTES = 512
"""Beyond the window such tokens are looked for, so that none is cut to a harmless length."""
_ONE_PART = 2**62
"""Stored bytes of a part, so that every file is one."""


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Bytes of a document that are not shown."""

    start: int
    """First byte."""
    end: int
    """Byte after the last."""
    name: str
    """What is shown in their place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A finding whose surroundings are asked for."""

    row: int
    span: Span
    whole: bool
    """It is a verdict of the whole document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleUnit:
    """A shard of which samples are asked for."""

    request: ReadRequest
    """Its part is found here."""
    sha256: str | None
    """What the shard was when its findings were placed; None for a streamed dataset."""
    wanted: tuple[Wanted, ...]
    known: tuple[tuple[int, Span], ...]
    """(row, place) of every finding in those documents, by whatever detector."""


def sample_shard(unit: SampleUnit) -> Outcome:
    """Return the masked windows of a shard, in the order of what is wanted; None where there is no such document."""
    return as_value(lambda: _sample(unit))


def _sample(unit: SampleUnit) -> Outcome:
    path, before = unit.request.path, stat_file(unit.request.path)
    if unit.sha256 is not None and hash_file(path) != unit.sha256:
        raise ShardUnreadable(Reason.CHANGED)
    windows: dict[int, str] = {}
    for row, text in _documents(unit, before.size):
        spans = [span for at, span in unit.known if at == row]
        spans += _found(text)
        for number, one in enumerate(unit.wanted):
            if one.row == row:
                windows[number] = masked_window(text, one.span, spans, whole=one.whole)
    if stat_file(path) != before:
        raise ShardUnreadable(Reason.CHANGED)
    return Outcome(windows=tuple(windows.get(number) for number in range(len(unit.wanted))))


def _documents(unit: SampleUnit, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield row and UTF-8 of the wanted documents."""
    rows = np.unique(np.array([one.row for one in unit.wanted], dtype=np.int64))
    asked = unit.request
    (part,) = plan_parts(asked.path, asked.format, asked.compression, size, _ONE_PART, asked.fields.text_document)
    whole = replace(asked, part=part, only=rows)
    for raw in read_part(whole, LossLog(), PartStats()):
        chosen = documents_at(raw, rows)
        values, offsets = chosen.byte_values(), chosen.byte_offsets().tolist()
        for number, row in enumerate(chosen.rows.tolist()):
            yield row, values[offsets[number] : offsets[number + 1]].tobytes()
        if len(raw) and raw.rows[-1] >= rows[-1]:
            return


def _found(text: bytes) -> list[Span]:
    """Return what the shipped patterns find: also where a stage was off, or a document had too much to list."""
    registry = shipped_patterns()
    return [
        Span(one.start, one.end, registry.entities[one.code].name) for one in find_in(registry, memoryview(text))[0]
    ]


def masked_window(text: bytes, finding: Span, others: Iterable[Span], *, whole: bool = False) -> str:
    """Return the words around a finding, masked and escaped.

    Args:
        text: UTF-8 of the document.
        finding: Shown as ``<<name>>``.
        others: Further findings in the document, in any order: each is shown as ``[name]``.
        whole: The finding is a verdict of the whole document, whose beginning is shown instead.
    """
    if whole:
        first, last = 0, _character(text, min(WHOLE_BYTES, len(text)))
        spans = list(others)
    else:
        first = _character(text, max(0, finding.start - WINDOW_BYTES))
        last = _character(text, min(len(text), finding.end + WINDOW_BYTES))
        spans = [finding, *others]
    spans = [span for span in spans if span.start < last and span.end > first and span.end > span.start]
    low = max(0, first - _MARGIN_BYTES)
    around = text[low : last + _MARGIN_BYTES]
    spans += [Span(low + found.start(), low + found.end(), _UNKNOWN) for found in _LONG.finditer(around)]
    pieces, place = [], first
    for start, end, names in _joined(spans):
        if end <= first or start >= last:
            continue
        shown = "|".join(names)
        own = not whole and start <= finding.start and finding.end <= end
        pieces += [_open_text(text[place : max(place, start)]), f"<<{shown}>>" if own else f"[{shown}]"]
        place = max(place, end)
    pieces.append(_open_text(text[place : max(place, last)]))
    before, after = "..." if first else "", "..." if last < len(text) else ""
    return f"{before}{clean(''.join(pieces))}{after}"


def _joined(spans: list[Span]) -> list[tuple[int, int, list[str]]]:
    """Return stretches that do not overlap, each with the names of its spans; ``LONG`` only where it is all."""
    joined: list[tuple[int, int, list[str]]] = []
    for span in sorted(spans):
        if joined and span.start < joined[-1][1]:
            start, end, names = joined.pop()
            joined.append((start, max(end, span.end), [*names, span.name]))
        else:
            joined.append((span.start, span.end, [span.name]))
    return [
        (start, end, sorted({name for name in names if name != _UNKNOWN}) or [_UNKNOWN]) for start, end, names in joined
    ]


def _open_text(part: bytes) -> str:
    """Return text that no finding covers, without its digits."""
    text = part.decode("utf-8", "replace")
    return "".join("*" if character.isdigit() else character for character in text)


def _character(text: bytes, place: int) -> int:
    """Return the first byte of the character that a byte belongs to."""
    while 0 < place < len(text) and text[place] & 0xC0 == 0x80:
        place -= 1
    return place
