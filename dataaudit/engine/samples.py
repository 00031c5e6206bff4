"""``--samples``: a few findings of every kind with the words around them, masked, for the user's eyes alone.

The driver reads the few shards again, each in a child process that masks the text before it answers through a pipe. So
text of a document is never in a task of Dask, in the state folder or in a log, and no other machine needs a way to the
folder of samples. No number or id changes: samples are taken of a published manifest.

The folder is new, outside of what is published or kept. Nothing is written over, followed or shared: the folder has to
be empty, its mode is 0700 and that of each file 0600, each with a banner.

A sample is a window of text around a finding. Masked is what any detector found, and digits and long tokens that look
as if one should have. The window is cut at characters, and what could steer a terminal is escaped.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.errors import ConfigError
from dataaudit.base.extras import require
from dataaudit.base.text import clean, plural
from dataaudit.config import SourceRule
from dataaudit.engine.job import STATE_FOLDER
from dataaudit.engine.progress import Progress
from dataaudit.engine.runner import Outcome
from dataaudit.engine.sandbox import end_child, run_alone
from dataaudit.engine.scan import as_outcome, hash_file
from dataaudit.engine.second_pass import documents_at
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.locate import find_place
from dataaudit.metrics.pii.stage import JUDGE
from dataaudit.scan.corpus.fields import field_rule
from dataaudit.scan.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.scan.corpus.readers import END, Part, PartStats, ReadRequest, plan_parts, read_part
from dataaudit.scan.corpus.storage.files import file_of, stat_file
from dataaudit.scan.detectors import find_in, shipped_patterns

_FOLDER_MODE, _FILE_MODE = 0o700, 0o600
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_NAME = 100
_GIT = ".gitignore"
BANNER = """\
# SAMPLES OF FINDINGS: THIS FILE HOLDS PARTS OF DOCUMENTS.
#
# dataaudit wrote it because somebody asked for it with --samples. Each entry is a few words around a finding. What the
# detectors found is masked by its class in brackets, the finding itself as <<CLASS>>; digits are *, long tokens [LONG].
# What no detector knows is NOT masked: names, places, a sentence that somebody would know again.
# Who may see it: those who may see the corpus itself, and nobody else. Do not commit, publish, mail or log it.
# To delete it: rm -r {folder}
#
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One finding with the words around it."""

    group: tuple[str, ...]
    """Detector, class, tier, and ``reserved`` when it is: what the file is named by."""
    place: str
    text: str = field(repr=False)


def check_folder(folder: Path, forbidden: Mapping[str, Path]) -> Path:
    """Make the folder, or see that it is there, empty and ours; return its real path."""
    real = Path(os.path.realpath(folder))
    for name, other in forbidden.items():
        there = Path(os.path.realpath(other))
        if real == there or there in real.parents or real in there.parents:
            raise ConfigError(
                f"samples in {folder}: expected a folder apart from {name}, {other}: they hold text of documents",
                "Name a folder of its own, for example ~/samples.",
            )
    try:
        real.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        handle = os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise ConfigError(
            f"samples in {folder}: expected a folder that can be written: {error.strerror}",
            "Name another one.",
        ) from None
    try:
        owned = os.fstat(handle).st_uid == os.geteuid()
        present = sorted(os.listdir(handle)) if owned else []
        if not owned or present:
            problem = f"found {clean(present[0], 40)} in it" if present else "it belongs to somebody else"
            raise ConfigError(
                f"samples in {folder}: expected an empty folder of your own, {problem}",
                "Name a new folder, or delete the old samples; nothing is written over.",
            )
        os.fchmod(handle, _FOLDER_MODE)
    finally:
        os.close(handle)
    return real


def write_samples(folder: Path, samples: Sequence[Sample]) -> int:
    """Write the samples, a file for each group; return the number of files."""
    files: dict[str, list[str]] = {}
    for sample in samples:
        name = ".".join(_NOT_IN_NAMES.sub("_", part)[:_LONGEST_NAME] for part in sample.group) + ".txt"
        files.setdefault(name, []).append(f"{clean(sample.place)}\n    {sample.text}\n")
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if files:
            _create(handle, _GIT, "*\n")
        for name, entries in sorted(files.items()):
            _create(handle, name, BANNER.format(folder=clean(os.fspath(folder))) + "\n".join(entries))
    finally:
        os.close(handle)
    return len(files)


def _create(folder: int, name: str, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(name, flags, _FILE_MODE, dir_fd=folder)
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as sink:
        os.fchmod(handle, _FILE_MODE)
        assert stat.S_ISREG(os.fstat(handle).st_mode), "a file that was created just now"
        sink.write(text)


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


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Bytes of a document that are not shown."""

    start: int
    end: int
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


@as_outcome
def sample_shard(unit: SampleUnit) -> Outcome:
    """Return the masked windows of a shard, in the order of what is wanted; None where there is no such document."""
    path, before = unit.request.path, stat_file(unit.request.path)
    if unit.sha256 is not None and hash_file(path) != unit.sha256:
        raise ShardUnreadable(Reason.CHANGED)
    windows: dict[int, str] = {}
    for row, text in _documents(unit, before.size):
        spans = [span for at, span in unit.known if at == row]
        spans += _found(text)
        for number, wanted in enumerate(unit.wanted):
            if wanted.row == row:
                windows[number] = masked_window(text, wanted.span, spans, whole=wanted.whole)
    if stat_file(path) != before:
        raise ShardUnreadable(Reason.CHANGED)
    return Outcome(windows=tuple(windows.get(number) for number in range(len(unit.wanted))))


def _documents(unit: SampleUnit, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield row and UTF-8 of the wanted documents."""
    rows = np.unique(np.array([wanted.row for wanted in unit.wanted], dtype=np.int64))
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
        Span(match.start, match.end, registry.entities[match.code].name)
        for match in find_in(registry, memoryview(text))[0]
    ]


def masked_window(text: bytes, finding: Span, others: Iterable[Span], *, whole: bool = False) -> str:
    """Return the words around a finding, masked and escaped."""
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


JUDGED = "judged"
"""Tier of the findings of a judge."""
_BATCH_BYTES = 1 << 20
_SHARD_SECONDS = 1800.0
_BYTES_PER_SECOND = 500_000
_GROUP = ("detector", "class", "tier", "reserved")
_WEYL, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
"""Of splitmix64 (Steele, Lea, Flood 2014, section 3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """What was asked for."""

    number: int
    folder: Path


def prepare_samples(number: int, folder: Path, manifest: Path, state: Path | None = None) -> Samples:
    """Make the folder of samples."""
    require("--samples", "build")
    beside = manifest.absolute().parent / STATE_FOLDER
    forbidden = {"the manifest": manifest, "the state folder": state or beside}
    return Samples(number=number, folder=check_folder(folder, forbidden))


def sample_manifest(
    folder: Path,
    samples: Samples,
    progress: Progress,
    *,
    place: str | None = None,
    paths: Sequence[str] | None = None,
) -> None:
    """Choose findings of a manifest, read their documents again and write the masked samples."""
    manifest = load_manifest(folder)
    findings = manifest.table("findings")
    if place is not None:
        site = find_place(place, manifest.table("shards", ["shard", "split", "uri"]))
        here = pc.equal(pc.field("shard"), site.shard)
        if site.row is not None:
            here &= pc.equal(pc.field("row"), site.row)
        findings = findings.filter(here)
    chosen = choose(findings, samples.number, seed=manifest.core.seeds.get("sample", 0))
    numbers = sorted(set(chosen["shard"].to_pylist()))
    shards = {row["shard"]: row for row in manifest.table("shards").take(pa.array(numbers, pa.int64())).to_pylist()}
    progress.begin("samples", len(shards), sum(shard["size"] for shard in shards.values()))
    written: list[tuple[tuple[Any, ...], Sample]] = []
    lost: dict[str, int] = {}
    try:
        for number, shard in shards.items():
            own = chosen.filter(pc.equal(chosen["shard"], number))
            known = findings.filter(pc.equal(findings["shard"], number))
            path = _path(manifest, shard) if paths is None else paths[number]
            windows, reason = _read(manifest, shard, path, own, known)
            for row, window in zip(own.to_pylist(), windows, strict=True):
                if window is None:
                    why = reason or "the document is not there any more"
                    lost[why] = lost.get(why, 0) + 1
                    continue
                order = tuple(row[name] for name in (*_GROUP, "shard", "row", "start"))
                written.append((order, _sample(shard, row, window)))
            progress.advance(shard["size"], failed=bool(reason))
    finally:
        end_child()
    files = write_samples(samples.folder, [sample for _, sample in sorted(written, key=lambda pair: pair[0])])
    progress.end()
    note = f"samples: {plural(len(written), 'finding')} in {plural(files, 'file')} in {samples.folder}"
    progress.note(f"{note}: parts of documents, masked; delete them when they are no longer needed", important=True)
    for reason, count in sorted(lost.items()):
        progress.note(f"samples: {count:,} not written: {reason}", important=True)


def choose(findings: pa.Table, number: int, *, seed: int) -> pa.Table:
    """Return the rows of at most ``number`` findings of each kind, chosen by a hash of their places."""
    place = np.full(findings.num_rows, seed, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for name in ("shard", "row", "start", "end"):
            place = (place ^ findings[name].to_numpy().astype(np.uint64)) * _WEYL
            place = (place ^ (place >> np.uint64(29))) * _MIX
            place ^= place >> np.uint64(32)
    groups = np.zeros(findings.num_rows, dtype=np.int64)
    for name in _GROUP:
        codes = pc.dictionary_encode(findings[name].combine_chunks()).indices.to_numpy()
        groups = groups * (int(codes.max(initial=0)) + 1) + codes
    order = np.lexsort((np.arange(len(place)), place, groups))
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    rank = np.arange(len(order)) - np.repeat(starts, np.diff([*starts, len(order)]))
    return findings.take(pa.array(np.sort(order[rank < number])))


def _read(
    manifest: Manifest, shard: dict[str, Any], path: str | None, own: pa.Table, known: pa.Table
) -> tuple[list[str | None], str]:
    """Return the windows of a shard's chosen findings, and why there is none where there is none."""
    none: list[str | None] = [None] * own.num_rows
    if path is None:
        return none, "the rows of a streamed dataset cannot be found by a manifest alone; a build takes samples of it"
    split, reader = manifest.core.config["splits"][shard["split"]], manifest.core.config["reader"]
    fields = field_rule(
        split["text"],
        SourceRule(constant="-"),
        shard["uri"],
        max_record_bytes=reader["max_line_bytes"],
        text_document=reader["text_document"] if shard["format"] == "text" else "",
    )
    request = ReadRequest(
        path=path,
        format=shard["format"],
        compression=shard["compression"],
        part=Part(0, END),
        fields=fields,
        batch_bytes=_BATCH_BYTES,
    )
    here = known.filter(pc.is_in(known["row"], own["row"].combine_chunks()))
    unit = SampleUnit(
        request=request,
        sha256=shard["sha256"],
        wanted=tuple(Wanted(row=row["row"], span=_span(row), whole=_is_whole(row)) for row in own.to_pylist()),
        known=tuple((row["row"], _span(row)) for row in here.to_pylist() if not _is_whole(row)),
    )
    outcome = run_alone(sample_shard, unit, memory_limit=0, seconds=_SHARD_SECONDS + shard["size"] / _BYTES_PER_SECOND)
    if outcome.fault is not None:
        return none, outcome.fault[0]
    if outcome.reason is not None:
        why = "a shard has changed since the build" if outcome.reason is Reason.CHANGED else str(outcome.reason)
        return none, f"{why} {outcome.place}".rstrip()
    return list(outcome.windows), ""


def _sample(shard: dict[str, Any], row: dict[str, Any], window: str) -> Sample:
    group = (row["detector"], row["class"], row["tier"], *(["reserved"] if row["reserved"] else []))
    place = (
        f"shard {shard['shard']} ({shard['split']}/{shard['uri']}), row {row['row']},"
        f" bytes {row['start']} to {row['end']}: {', '.join(group[1:])}, score {row['score']:.2f}"
    )
    return Sample(group=group, place=place, text=window)


def _span(row: dict[str, Any]) -> Span:
    return Span(row["start"], row["end"], row["class"])


def _is_whole(row: dict[str, Any]) -> bool:
    """Tell whether a finding is a verdict of a whole document."""
    return bool(row["tier"] == JUDGED and row["detector"] != JUDGE)


def _path(manifest: Manifest, shard: dict[str, Any]) -> str | None:
    """Return where a shard of a manifest is; None when its rows are streamed."""
    if shard["format"] == "datasets":
        return None
    path = file_of(manifest.run.roots.get(shard["split"], ""), shard["uri"])
    if path is None:
        raise ConfigError(f"shard {shard['shard']} lies outside of its root", "Build the manifest again.")
    return path
