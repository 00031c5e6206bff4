"""The family of repeated spans: what many training documents hold, found, counted and measured.

Two joins of hashes (fingerprints, windows), each followed by one that brings what was found home to its file, with a
second read of the documents between them; rounds of matching over runs, without texts; and a third read of the
documents that hold repeated spans, to count their tokens. See ``dataaudit explain repeated-spans``.

What hotspots cover, in bytes and tokens: one more look at the documents that hold repeated spans.

From what was seen of repeated spans, part by part, to the manifest's tables and the stage's partials.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.files import write_whole
from dataaudit.manifest.locate import rows_of
from dataaudit.manifest.metric import Scope, count
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.repeats.find import (
    MEMBERS,
    REACH,
    SavedSearch,
    Search,
    add_reaches,
    find_hotspots,
    first_windows,
    link_members,
    link_reaches,
)
from dataaudit.metrics.repeats.hosts import Round
from dataaudit.metrics.repeats.index import FOLDER, INDEX_ROWS, link_index, write_index
from dataaudit.metrics.repeats.runs import (
    COVERAGE,
    HISTOGRAM,
    RUN_ROWS,
    RUNS,
    choose_floor,
    file_numbers,
    link_hosts,
    link_runs,
    merged,
)
from dataaudit.metrics.repeats.stage import FINGERPRINTS, METRIC, Repeats
from dataaudit.metrics.repeats.windows import (
    FREQUENT_ROWS,
    OCCURRENCE_ROWS,
    RANGES,
    RepeatWindows,
    link_fingerprints,
    link_ranges,
    link_windows,
)
from dataaudit.scan.annotators import WORDS
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.corpus.segments import text_buffers
from dataaudit.scan.kernels.winnow import sequence_hashes
from dataaudit.scan.link.joins import Join, JoinedParts, JoinFunction, KeyedFile, KeyedFiles, Numbered
from dataaudit.scan.link.step import Encode, LinkContext, LinkResult, LinkStep, SecondPassRequest, SecondPassResult

ANY = -1
"""In place of a hotspot: whatever lies in repeated spans, in hotspots and in their variants."""
SPANS = pa.schema([("row", pa.int64()), ("hotspot", pa.int64()), ("start", pa.int64()), ("stop", pa.int64())])
"""Words [start, stop) of a document that are an occurrence of a hotspot, or, merged, in repeated spans."""
PLACES = pa.schema([("hotspot", pa.int64()), ("row", pa.int64()), ("start", pa.int64()), ("end", pa.int64())])
"""Occurrences of hotspots, in bytes."""
TOTALS = pa.schema(
    [
        ("hotspot", pa.int64()),
        ("source", pa.string()),
        ("documents", pa.int64()),
        ("occurrences", pa.int64()),
        ("tokens", pa.int64()),
    ]
)
"""By hotspot (or ANY) and source: documents, occurrences, and tokens of the words covered, each word once."""
HASHES = pa.schema([("hotspot", pa.int64()), ("hash", pa.uint64())])
"""Hash of the words of each hotspot."""


def spans_of(members: pa.Table, covered: pa.Table) -> pa.Table:
    """Return what is wanted: ``document``, ``hotspot``, ``start``, ``stop``."""
    tables = [members, covered.append_column("hotspot", pa.array(np.full(covered.num_rows, ANY)))]
    return pa.concat_tables([table.select(["document", "hotspot", "start", "stop"]) for table in tables])


@dataclass(frozen=True, slots=True)
class RepeatedSpans:
    """Counts the tokens that hotspots cover, and says where these are in bytes."""

    tokenizer: str
    """Digest of what decides tokens; it only keeps the results of different tokenizers apart."""

    name: ClassVar[str] = "repeated_spans"
    version: ClassVar[str] = "1"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (WORDS,)
    emits: ClassVar[Mapping[str, pa.Schema]] = {}

    def run(self, batch: DocBatch, wanted: pa.Table, encode: Encode) -> dict[str, pa.Table]:
        """Return PLACES, TOTALS and HASHES of the documents of a batch."""
        columns = [wanted[name].to_numpy() for name in SPANS.names]
        order = np.lexsort((columns[2], columns[1], columns[0]))
        row, hotspot, start, stop = (column[order] for column in columns)
        place = np.searchsorted(batch.rows, row)
        first, last = batch.get(WORDS).offsets[place] + start, batch.get(WORDS).offsets[place] + stop - 1
        places = (hotspot, row, batch.get(WORDS).starts[first], batch.get(WORDS).ends[last])
        real = hotspot != ANY
        table = pa.table({name: column[real] for name, column in zip(PLACES.names, places, strict=True)})
        return {
            "places": table.cast(PLACES),
            "totals": self._totals(batch, place, hotspot, start, stop, encode),
            "hashes": _hashes(batch.get(WORDS).hashes, hotspot, first, last + 1),
        }

    def _totals(
        self,
        batch: DocBatch,
        place: np.ndarray,
        hotspot: np.ndarray,
        start: np.ndarray,
        stop: np.ndarray,
        encode: Encode,
    ) -> pa.Table:
        """Merge what overlaps within a document, count its tokens, and add up by hotspot and source."""
        holders, holder = _distinct(place, hotspot)
        joined = merged(holder, start, stop)
        holder_of = joined["document"].to_numpy()
        (base, values), words = text_buffers(batch.texts), batch.get(WORDS)
        document = holders[holder_of, 0]
        first = words.offsets[document] + joined["start"].to_numpy()
        last = words.offsets[document] + joined["stop"].to_numpy() - 1
        begin, end = base[document] + words.starts[first], base[document] + words.ends[last]
        tokens = _tokens_between(values, begin, end, encode)
        table = pa.table(
            {
                "hotspot": holders[:, 1],
                "source": batch.sources().cast(pa.string()).take(pa.array(holders[:, 0])),
                "documents": np.ones(len(holders), dtype=np.int64),
                "occurrences": np.bincount(holder, minlength=len(holders)).astype(np.int64),
                "tokens": np.bincount(holder_of, tokens, minlength=len(holders)).astype(np.int64),
            }
        )
        return add_totals([table])


def add_totals(tables: list[pa.Table]) -> pa.Table:
    """Add up totals of equal hotspot and source."""
    table = pa.concat_tables([TOTALS.empty_table(), *(table.cast(TOTALS) for table in tables)])
    sums = [(name, "sum") for name in TOTALS.names[2:]]
    grouped = table.group_by(TOTALS.names[:2], use_threads=False).aggregate(sums)
    return (
        grouped.rename_columns(TOTALS.names).cast(TOTALS).sort_by([("hotspot", "ascending"), ("source", "ascending")])
    )


def _distinct(place: np.ndarray, hotspot: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct (document, hotspot), int64[h, 2], and of each row which it is; rows are sorted by both."""
    new = np.ones(len(place), dtype=bool)
    new[1:] = (place[1:] != place[:-1]) | (hotspot[1:] != hotspot[:-1])
    return np.column_stack([place[new], hotspot[new]]), np.cumsum(new) - 1


def _tokens_between(values: np.ndarray, begin: np.ndarray, end: np.ndarray, encode: Encode) -> np.ndarray:
    """int64[n] tokens of each ``values[begin:end]``; equal ones are counted once."""
    spans, which = np.unique(np.column_stack([begin, end]), axis=0, return_inverse=True)
    offsets = np.concatenate([[0], np.cumsum(spans[:, 1] - spans[:, 0])]).astype(np.int64)
    data = b"".join(values[low:high].tobytes() for low, high in spans.tolist())
    texts = pa.LargeStringArray.from_buffers(len(spans), pa.py_buffer(offsets), pa.py_buffer(data))
    counted: np.ndarray = np.diff(encode(texts).offsets)[which.reshape(-1)]
    return counted


def _hashes(words: np.ndarray, hotspot: np.ndarray, first: np.ndarray, stop: np.ndarray) -> pa.Table:
    """Return the hash of each hotspot's words, from any one occurrence: they are the same."""
    numbers, at = np.unique(hotspot, return_index=True)
    at, numbers = at[numbers != ANY], numbers[numbers != ANY]
    return pa.table({"hotspot": numbers, "hash": sequence_hashes(words, first[at], stop[at])}).cast(HASHES)


_PLACES = pa.schema(
    [("hotspot", pa.int64()), ("shard", pa.int32()), ("row", pa.int64()), ("start", pa.int64()), ("end", pa.int64())]
)
_SEEN = pa.schema([("shard", pa.int32()), *TOTALS])
_LISTED = 10
_SUMS = ("documents", "occurrences", "tokens")


def hotspot_tables(
    covered: SecondPassResult, words: np.ndarray, variants: np.ndarray
) -> tuple[dict[str, pa.Table], np.ndarray]:
    """Return ``hotspots`` and ``hotspot_members``, and the number of every hotspot."""
    places, seen = covered.table("places", _PLACES), covered.table("totals", _SEEN)
    seen = seen.filter(pc.not_equal(seen["hotspot"], ANY))
    totals = {name: _sums(seen["hotspot"].to_numpy(), seen[name].to_numpy(), len(words)) for name in _SUMS}
    numbers = _numbers(places, totals)
    ranked = np.argsort(numbers)
    found = covered.table("hashes", HASHES)
    hashes = dict.fromkeys(range(len(words)), 0) | dict(
        zip(found["hotspot"].to_pylist(), found["hash"].to_pylist(), strict=True)
    )
    affected = {f"{name}s": _affected(seen, name) for name in ("shard", "source")}
    rows = [
        {
            "hotspot": int(numbers[spot]),
            "hash": f"{hashes[spot]:016x}",
            "words": int(words[spot]),
            **{name: int(values[spot]) for name, values in totals.items()},
            "variants": int(variants[spot]),
            **{name: lists[spot] for name, lists in affected.items()},
        }
        for spot in ranked.tolist()
    ]
    members = places.set_column(0, "hotspot", pa.array(numbers[places["hotspot"].to_numpy()]))
    return {
        "hotspots": pa.Table.from_pylist(rows, schema=TABLES["hotspots"].schema),
        "hotspot_members": members.cast(TABLES["hotspot_members"].schema),
    }, numbers


def repeat_partials(covered: SecondPassResult, numbers: np.ndarray) -> dict[str, pa.Table]:
    """Return what is added to the partials of the stage ``repeats``, by shard and source."""
    seen = covered.table("totals", _SEEN)
    whole = pc.equal(seen["hotspot"], ANY)
    every, spots = seen.filter(whole), seen.filter(pc.invert(whole))
    return {
        "repeats": pa.table(
            {
                "shard": every["shard"],
                "source": every["source"],
                "repeated_documents": every["documents"],
                "repeated_tokens": every["tokens"],
            }
        ),
        "hotspots": pa.table(
            {
                "shard": spots["shard"],
                "source": spots["source"],
                "hotspot": pa.array(numbers[spots["hotspot"].to_numpy()]),
                "documents": spots["documents"],
                "occurrences": spots["occurrences"],
            }
        ),
    }


def _sums(spots: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, spots, values)
    return sums


def _numbers(places: pa.Table, totals: dict[str, np.ndarray]) -> np.ndarray:
    """Return the number of every hotspot."""
    columns = [places[name].to_numpy() for name in ("start", "row", "shard", "hotspot")]
    order = np.lexsort(columns)
    spots, first = np.unique(columns[3][order], return_index=True)
    assert len(spots) == len(totals["documents"]), "every hotspot occurs"
    start, row, shard = (column[order][first] for column in columns[:3])
    numbers = np.empty(len(spots), dtype=np.int64)
    numbers[np.lexsort((start, row, shard, -totals["occurrences"], -totals["documents"]))] = np.arange(
        1, len(spots) + 1
    )
    return numbers


def _affected(seen: pa.Table, name: str) -> list[list[dict[str, object]]]:
    """Return, for every hotspot, the shards or sources with the most documents that hold it."""
    sums = [("documents", "sum"), ("occurrences", "sum")]
    grouped = seen.group_by(["hotspot", name], use_threads=False).aggregate(sums)
    order = [
        ("hotspot", "ascending"),
        ("documents_sum", "descending"),
        ("occurrences_sum", "descending"),
        (name, "ascending"),
    ]
    ordered = grouped.sort_by(order)
    spots = ordered["hotspot"].to_numpy()
    listed = np.arange(len(spots)) - np.searchsorted(spots, spots) < _LISTED
    found: list[list[dict[str, object]]] = []
    for row in ordered.filter(listed).to_pylist():
        while len(found) <= row["hotspot"]:
            found.append([])
        documents, occurrences = row["documents_sum"], row["occurrences_sum"]
        found[-1].append({name: row[name], "documents": documents, "occurrences": occurrences})
    return found


_KIND = "link-repeats"
_TOKENS_A_FINGERPRINT = 25
_COUNTS = pa.schema([("rows", pa.int64())])


@dataclass(frozen=True, slots=True)
class _Homes:
    """The files of a join by their number, see :mod:`dataaudit.metrics.repeats.runs`: where each is listed first."""

    shards: np.ndarray
    """int32[n]"""
    first_rows: np.ndarray
    """int64[n]"""
    times: pa.Table
    """Column ``times``, int64[n]: how often each is listed."""

    def asked(self, files: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the columns ``shard`` and ``row`` of documents."""
        return {"shard": self.shards[files], "row": rows + self.first_rows[files]}


def repeated_spans(context: LinkContext) -> LinkStep:
    """Find the hotspots of the training splits."""
    stage = cast("Repeats", context.stage)
    tokens = context.survey.total(stage.name, "repeats", "tokens")
    listed = context.files(FINGERPRINTS)
    folders = _index(context, listed, tokens // _TOKENS_A_FINGERPRINT) if stage.index else {}
    frequent = _join(
        context,
        "fingerprints",
        partial(link_fingerprints, min_documents=stage.min_documents),
        listed,
        rows=tokens // _TOKENS_A_FINGERPRINT,
        emits={"frequent": FREQUENT_ROWS},
        identity=[stage.min_documents],
    )
    ranges = _join(context, "ranges", link_ranges, frequent.files("frequent"), rows=_counted(frequent))
    hashed = ranges.table("ranges", RANGES)
    if hashed.num_rows == 0:
        return _nothing(stage, stage.min_documents, folders)
    asked = _homes(listed).asked(hashed["file"].to_numpy(), hashed["row"].to_numpy())
    wanted = pa.table({**asked, "position": hashed["position"], "windows": hashed["windows"]})
    (windows,) = yield [SecondPassRequest(task=RepeatWindows(), wanted=wanted)]
    again = KeyedFiles.of(windows.files("windows"))
    runs, rows = _runs(context, stage, again, int(pc.sum(hashed["windows"]).as_py()))
    floor = choose_floor(runs.table("histogram", HISTOGRAM), stage.min_documents, stage.max_memory_bytes)
    hosts = _join(
        context, "hosts", partial(link_hosts, floor=floor), runs.files("runs"), rows=rows, identity=[floor]
    ).table("hosts", RUNS)
    homes, firsts = _homes(again), first_windows(hosts)

    def search(name: str, function: Any, round_: Round) -> JoinedParts:
        saved = _save(context, Search(round_, firsts, homes.times))
        chosen = partial(function, floor=floor, search=saved)
        return _join(context, name, chosen, runs.files("runs"), rows=rows, identity=[floor, saved.sha256])

    def match(round_: Round) -> pa.Table:
        return add_reaches([search("reaches", link_reaches, round_).table("reaches", REACH)])

    found = find_hotspots(hosts, floor, match)
    occurring = search("members", link_members, found.final)
    spans = spans_of(occurring.table("members", MEMBERS), occurring.table("covered", COVERAGE))
    if spans.num_rows == 0:
        return _nothing(stage, floor, folders, runs)
    document = spans["document"].to_numpy()
    asked = homes.asked(file_numbers(document), rows_of(document))
    wanted = pa.table({**asked, **{name: spans[name] for name in ("hotspot", "start", "stop")}})
    (covered,) = yield [SecondPassRequest(task=RepeatedSpans(context.tokenizer()), wanted=wanted)]
    result = _nothing(stage, floor, folders, runs)
    result.tables, numbers = hotspot_tables(covered, found.words, found.variants)
    result.extra = repeat_partials(covered, numbers)
    return result


def _runs(context: LinkContext, stage: Repeats, files: Sequence[KeyedFile], rows: int) -> tuple[JoinedParts, int]:
    """Join the windows and bring their occurrences home; return the runs, and about how many rows they are."""
    windows = _join(
        context,
        "windows",
        partial(link_windows, min_documents=stage.min_documents),
        files,
        rows=rows,
        emits={"occurrences": OCCURRENCE_ROWS},
        identity=[stage.min_documents],
    )
    number = _counted(windows)
    runs = _join(context, "runs", link_runs, windows.files("occurrences"), rows=number, emits={"runs": RUN_ROWS})
    return runs, number


def _join(
    context: LinkContext,
    name: str,
    function: JoinFunction,
    files: Sequence[KeyedFile],
    *,
    rows: int,
    emits: dict[str, pa.Schema] | None = None,
    identity: Sequence[object] = (),
) -> JoinedParts:
    return context.join(
        Join(
            kind=f"{_KIND}-{name}",
            function=function,
            identity=[context.stage.version, *identity],
            files=files,
            rows=rows,
            emits=emits or {},
        )
    )


def _counted(joined: JoinedParts) -> int:
    return int(pc.sum(joined.table("counts", _COUNTS)["rows"]).as_py() or 0)


def _homes(files: KeyedFiles) -> _Homes:
    """Return where the files of a join are listed first, in that order, as ``listing_of`` numbers them."""
    numbered = Numbered.of(files)
    return _Homes(
        files.shards[numbered.firsts].astype(np.int32),
        files.first_rows[numbered.firsts],
        pa.table({"times": pa.array(numbered.times, pa.int64())}),
    )


def _save(context: LinkContext, search: Search) -> SavedSearch:
    packed = search.packed()
    sha256 = hashlib.sha256(packed).hexdigest()
    path = context.store.side_path(f"{_KIND}-search", sha256, "arrow")
    with context.store.writing():
        write_whole(path, packed)
    return SavedSearch(os.fsencode(path), sha256)


def _index(context: LinkContext, files: Sequence[KeyedFile], rows: int) -> dict[str, Callable[[Path], None]]:
    """Sort all fingerprints; return what fills the folder of the index."""
    joined = _join(context, "index", link_index, files, rows=rows, emits={"index": INDEX_ROWS})
    paths = [context.store.side_path(file.kind, file.key, file.name) for file in joined.files("index")]
    return {FOLDER: partial(write_index, paths=paths)}


def _nothing(
    stage: Repeats, floor: int, folders: dict[str, Callable[[Path], None]], runs: JoinedParts | None = None
) -> LinkResult:
    """Return what is found without any hotspot: the floor, and what lies under it."""
    histogram = HISTOGRAM.empty_table() if runs is None else runs.table("histogram", HISTOGRAM)
    under = histogram.filter(pc.less(histogram["documents"], floor))
    left_out, every = (int(pc.sum(table["firsts"]).as_py() or 0) for table in (under, histogram))
    found = LinkResult(folders=folders)
    for stat, value, unit, n in (
        ("floor", floor, "documents", stage.min_documents),
        ("below_floor", left_out, "windows", every),
    ):
        found.metrics.append(count(METRIC, stat, value, scope=Scope(), unit=unit, n=n, version=stage.version))
    if floor > stage.min_documents:
        found.warnings.append(
            f"repeats: spans that {stage.min_documents} to {floor - 1} documents hold are left out: they would take"
            f" more than {stage.max_memory_bytes:,} bytes to tell apart (stages.repeats.max_memory_bytes)"
        )
    return found
