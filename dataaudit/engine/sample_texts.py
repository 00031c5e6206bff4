"""In a child process of the driver: documents that samples are asked of, read again and masked before they leave it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dataaudit.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.corpus.readers import PartStats, ReadRequest, plan_parts, read_part
from dataaudit.corpus.storage.files import stat_file
from dataaudit.detectors import find_in, shipped_patterns
from dataaudit.engine.masking import Span, masked_window
from dataaudit.engine.units import Outcome
from dataaudit.engine.visiting import documents_at
from dataaudit.engine.work import as_value, hash_file

_ONE_PART = 2**62
"""Stored bytes of a part, so that every file is one."""


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
    whole = replace(asked, part=part)
    for raw in read_part(whole, LossLog(), PartStats(), frozenset(rows.tolist())):
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
