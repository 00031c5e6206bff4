from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dataaudit.scan.corpus.fields import FieldRule
from dataaudit.scan.corpus.loss import LossLog, ShardUnreadable
from dataaudit.scan.corpus.readers import (
    Part,
    PartStats,
    ReadRequest,
    is_cut_by_decoding,
    plan_compressed,
    plan_parts,
    read_part,
)
from dataaudit.scan.corpus.readers.stream import ByteStream

_PREAMBLE = """
import re, sys
import numpy, pyarrow
import dataaudit.scan.corpus.readers.arrow, dataaudit.scan.corpus.readers.parquet  # what is imported is no growth
from dataaudit.scan.corpus.fields import FieldRule
from dataaudit.scan.corpus.loss import LossLog
from dataaudit.scan.corpus.readers import END, Part, PartStats, ReadRequest, read_part

def resident(name):
    return int(re.search(name + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024

def read(path, format, compression, max_record_bytes=1 << 26, text_document="file"):
    losses, stats = LossLog(), PartStats()
    fields = FieldRule(text="text", source_column=None, source_constant="s", max_record_bytes=max_record_bytes,
                       text_document=text_document)
    part = Part(0, 1 if format in ("parquet", "arrow") else END)
    request = ReadRequest(path=path, format=format, compression=compression, part=part, fields=fields,
                          batch_bytes=4 << 20)
    return sum(int(batch.num_bytes().sum()) for batch in read_part(request, losses, stats)), losses

pyarrow.array(numpy.zeros(1))  # imports pandas where there is one
open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew
before = resident("VmRSS")
"""


@dataclass(slots=True)
class Reading:
    """What reading a whole file, part by part, gave; rows are numbered within the file."""

    documents: list[tuple[int, str, str]] = field(default_factory=list)
    """(row, text, source) of each document."""
    bad: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """(row, bytes) of each bad record by reason."""
    records: int = 0
    remarks: dict[str, tuple[int, int]] = field(default_factory=dict)
    """(records, row of the first) by reason."""
    batches: list[int] = field(default_factory=list)
    """Text bytes of each batch."""
    columns: set[str] = field(default_factory=set)
    failure: tuple[str, str] | None = None
    """Reason and place, when the file cannot be read."""


@pytest.fixture
def count_bytes(monkeypatch) -> Callable[[], list[int]]:
    """Returns a list to which every later read of a stream adds how many bytes it gave."""

    def begin() -> list[int]:
        given: list[int] = []
        plain = ByteStream.read

        def counted(stream, num_bytes):
            block = plain(stream, num_bytes)
            given.append(len(block))
            return block

        monkeypatch.setattr(ByteStream, "read", counted)
        return given

    return begin


@pytest.fixture(scope="session")
def read() -> Callable[..., Reading]:
    """Reads a file as the engine does: part after part, rows numbered on."""

    def plan(path, format_, compression, part_bytes, text_document):
        size = path.stat().st_size
        if is_cut_by_decoding(format_, compression, size, part_bytes, text_document):
            return plan_compressed(str(path), compression, size, part_bytes, lambda block: None)
        return plan_parts(str(path), format_, compression, size, part_bytes, text_document)

    def read_all(
        path: Path,
        format_: str = "jsonl",
        compression: str = "none",
        *,
        text: str = "text",
        source: str | None = None,
        part_bytes: int = 1 << 40,
        batch_bytes: int = 1 << 20,
        max_record_bytes: int = 1 << 26,
        text_document: str = "file",
        parts: Sequence[Part] | None = None,
    ) -> Reading:
        reading = Reading()
        fields = FieldRule(
            text=text,
            source_column=source,
            source_constant="constant",
            max_record_bytes=max_record_bytes,
            text_document=text_document,
        )
        try:
            for part in parts or plan(path, format_, compression, part_bytes, text_document):
                losses, stats = LossLog(), PartStats()
                request = ReadRequest(
                    path=str(path),
                    format=format_,
                    compression=compression,
                    part=part,
                    fields=fields,
                    batch_bytes=batch_bytes,
                )
                for batch in read_part(request, losses, stats):
                    batch.texts.validate(full=True)
                    assert batch.texts.null_count == 0
                    assert batch.byte_offsets()[0] == 0
                    texts, sources = batch.texts.to_pylist(), batch.sources().to_pylist()
                    rows = (batch.rows + reading.records).tolist()
                    reading.documents += zip(rows, texts, sources, strict=True)
                    reading.batches.append(int(batch.num_bytes().sum()))
                for reason, places in losses.places.items():
                    assert losses.records[reason] >= len(places)
                    listed = reading.bad.setdefault(str(reason), [])
                    listed += [(row + reading.records, size) for row, size in places]
                for reason, (number, row) in losses.remarks.items():
                    before, first = reading.remarks.get(str(reason), (0, row + reading.records))
                    reading.remarks[str(reason)] = (before + number, first)
                reading.records += stats.records
                reading.columns |= stats.columns
        except ShardUnreadable as error:
            reading.failure = (str(error.reason), error.place)
        return reading

    return read_all


@pytest.fixture(scope="session")
def peak_bytes() -> Callable[..., tuple[int, str]]:
    """Runs code in a fresh process; returns by how many bytes its memory grew at the most, and what it printed."""

    def run(code: str, *arguments: str) -> tuple[int, str]:
        script = _PREAMBLE + code + "\nprint(resident('VmHWM') - before)"
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True, timeout=120
        )
        *printed, growth = done.stdout.splitlines()
        return int(growth), "\n".join(printed)

    return run
