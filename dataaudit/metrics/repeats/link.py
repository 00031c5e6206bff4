"""The link step of repeated spans: finds, counts and measures the spans that many training documents hold.

Two joins of hashes (fingerprints, windows), each followed by a join that regroups the rows by file, with a second
reading of the documents between them; rounds of matching over runs, without texts; and a third reading of the documents
that hold repeated spans (:class:`RepeatedSpans`), which counts their tokens. See ``dataaudit explain repeated-spans``.
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
from dataaudit.manifest.locate import is_new, rows_of
from dataaudit.manifest.metric import Scope, count
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.repeats.definition import METRIC
from dataaudit.metrics.repeats.hotspots import Round, find_hotspots, first_windows
from dataaudit.metrics.repeats.index import FOLDER, INDEX_ROWS, link_index, write_index
from dataaudit.metrics.repeats.matching import (
    MEMBERS,
    REACH,
    SavedSearch,
    Search,
    add_reaches,
    link_members,
    link_reaches,
)
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
from dataaudit.metrics.repeats.stage import FINGERPRINTS, Repeats
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
from dataaudit.scan.cross_shard.joins import JoinedParts, KeyedFile, KeyedFiles, Numbered
from dataaudit.scan.cross_shard.step import (
    Encode,
    LinkContext,
    LinkResult,
    LinkStep,
    SecondPassRequest,
    SecondPassResult,
)
from dataaudit.scan.kernels.winnow import sequence_hashes
from dataaudit.scan.stages.partial import TableShape, group

ANY = -1
"""In place of a hotspot: all repeated spans, hotspots and their variants."""
SPANS = pa.schema([("row", pa.int64()), ("hotspot", pa.int64()), ("start", pa.int64()), ("stop", pa.int64())])
"""Words [start, stop) of a document that are an occurrence of a hotspot, or, merged, in repeated spans."""
PLACES = pa.schema([("hotspot", pa.int64()), ("row", pa.int64()), ("start", pa.int64()), ("end", pa.int64())])
"""Occurrences of hotspots, in bytes."""
_SUMS = ("documents", "occurrences", "tokens")
_TOTALS = TableShape(keys={"hotspot": pa.int64(), "source": pa.string()}, sums=_SUMS)
TOTALS = _TOTALS.schema()
"""Documents, occurrences and covered tokens by hotspot (or ANY) and source; each word counts once."""
HASHES = pa.schema([("hotspot", pa.int64()), ("hash", pa.uint64())])
"""Hash of the words of each hotspot."""


def spans_of(members: pa.Table, covered: pa.Table) -> pa.Table:
    """Return occurrences and repeated spans: ``document``, ``hotspot``, ``start``, ``stop``."""
    tables = [members, covered.append_column("hotspot", pa.array(np.full(covered.num_rows, ANY)))]
    return pa.concat_tables([table.select(["document", "hotspot", "start", "stop"]) for table in tables])


@dataclass(frozen=True, slots=True)
class RepeatedSpans:
    """SecondPassTask: counts the tokens of repeated spans, and finds the bytes where hotspots occur."""

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
        words, document = batch.get(WORDS), np.searchsorted(batch.rows, row)
        first, last = words.offsets[document] + start, words.offsets[document] + stop - 1
        real = hotspot != ANY
        columns = [column[real] for column in (hotspot, row, words.starts[first], words.ends[last])]
        return {
            "places": pa.table(columns, schema=PLACES),
            "totals": _totals(batch, document, hotspot, start, stop, encode),
            "hashes": _hashes(words.hashes, hotspot, first, last + 1),
        }


def _totals(
    batch: DocBatch, document: np.ndarray, hotspot: np.ndarray, start: np.ndarray, stop: np.ndarray, encode: Encode
) -> pa.Table:
    """Merge overlapping spans of a document, count their tokens, and add up by hotspot and source."""
    new = is_new(document, hotspot)
    pair, size = np.cumsum(new) - 1, int(new.sum())  # a pair is a document and a hotspot
    joined = merged(pair, start, stop)
    pair_of = joined["document"].to_numpy()
    (base, values), words = text_buffers(batch.texts), batch.get(WORDS)
    own = document[new][pair_of]
    first = words.offsets[own] + joined["start"].to_numpy()
    last = words.offsets[own] + joined["stop"].to_numpy() - 1
    tokens = _tokens_between(values, base[own] + words.starts[first], base[own] + words.ends[last], encode)
    columns = [
        hotspot[new],
        batch.sources().cast(pa.string()).take(pa.array(document[new])),
        np.ones(size, dtype=np.int64),
        np.bincount(pair, minlength=size).astype(np.int64),
        np.bincount(pair_of, tokens, minlength=size).astype(np.int64),
    ]
    return add_totals([pa.table(columns, schema=TOTALS)])


def add_totals(tables: list[pa.Table]) -> pa.Table:
    """Add up totals of equal hotspot and source."""
    return group(_TOTALS, pa.concat_tables([TOTALS.empty_table(), *tables]))


def _tokens_between(values: np.ndarray, begin: np.ndarray, end: np.ndarray, encode: Encode) -> np.ndarray:
    """Return int64[n], the tokens of each ``values[begin:end]``; equal ones are counted once."""
    spans, which = np.unique(np.column_stack([begin, end]), axis=0, return_inverse=True)
    offsets = np.concatenate([[0], np.cumsum(spans[:, 1] - spans[:, 0])]).astype(np.int64)
    data = b"".join(values[low:high].tobytes() for low, high in spans.tolist())
    texts = pa.LargeStringArray.from_buffers(len(spans), pa.py_buffer(offsets), pa.py_buffer(data))
    counted: np.ndarray = np.diff(encode(texts).offsets)[which.reshape(-1)]
    return counted


def _hashes(words: np.ndarray, hotspot: np.ndarray, first: np.ndarray, stop: np.ndarray) -> pa.Table:
    """Return the hash of each hotspot's words, from any occurrence: all have the same words."""
    numbers, at = np.unique(hotspot, return_index=True)
    at, numbers = at[numbers != ANY], numbers[numbers != ANY]
    return pa.table({"hotspot": numbers, "hash": sequence_hashes(words, first[at], stop[at])}).cast(HASHES)


_PLACES = pa.schema(
    [("hotspot", pa.int64()), ("shard", pa.int32()), ("row", pa.int64()), ("start", pa.int64()), ("end", pa.int64())]
)
_SEEN = pa.schema([("shard", pa.int32()), *TOTALS])
_LISTED = 10


def hotspot_tables(
    covered: SecondPassResult, words: np.ndarray, variants: np.ndarray
) -> tuple[dict[str, pa.Table], np.ndarray]:
    """Return the tables ``hotspots`` and ``hotspot_members``, and the number of every hotspot."""
    places, seen = covered.table("places", _PLACES), covered.table("totals", _SEEN)
    seen = seen.filter(pc.not_equal(seen["hotspot"], ANY))
    totals = {name: _sums(seen["hotspot"].to_numpy(), seen[name].to_numpy(), len(words)) for name in _SUMS}
    numbers = _numbers(places, totals)
    ranked = np.argsort(numbers)
    hashed = covered.table("hashes", HASHES)
    hashes = dict(zip(hashed["hotspot"].to_pylist(), hashed["hash"].to_pylist(), strict=True))
    affected = {f"{name}s": _affected(seen, name) for name in ("shard", "source")}
    rows = [
        {
            "hotspot": int(numbers[spot]),
            "hash": f"{hashes.get(spot, 0):016x}",
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
    """Return what is added to the partials of the stage, by shard and source."""
    seen = covered.table("totals", _SEEN)
    whole = pc.equal(seen["hotspot"], ANY)
    every, spots = seen.filter(whole), seen.filter(pc.invert(whole))
    spots = spots.set_column(1, "hotspot", pa.array(numbers[spots["hotspot"].to_numpy()])).drop_columns(["tokens"])
    names = {"documents": "repeated_documents", "tokens": "repeated_tokens"}
    return {"repeats": every.select(["shard", "source", *names]).rename_columns(names), "hotspots": spots}


def _sums(spots: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, spots, values)
    return sums


def _numbers(places: pa.Table, totals: dict[str, np.ndarray]) -> np.ndarray:
    """Return the number of every hotspot, from 1: by documents, then occurrences, most first, then first place."""
    columns = [places[name].to_numpy() for name in ("start", "row", "shard", "hotspot")]
    order = np.lexsort(columns)
    spots, first = np.unique(columns[3][order], return_index=True)
    assert len(spots) == len(totals["documents"]), "every hotspot occurs"
    first_places = [column[order][first] for column in columns[:3]]
    numbers = np.empty(len(spots), dtype=np.int64)
    ranked = np.lexsort((*first_places, -totals["occurrences"], -totals["documents"]))
    numbers[ranked] = np.arange(1, len(spots) + 1)
    return numbers


def _affected(seen: pa.Table, name: str) -> list[list[dict[str, object]]]:
    """Return, for every hotspot, the shards or sources with the most documents that hold it."""
    keys = {"hotspot": pa.int64(), name: seen.schema.field(name).type}
    counted = group(TableShape(keys=keys, sums=("documents", "occurrences")), seen)
    most = [("documents", "descending"), ("occurrences", "descending")]
    ordered = counted.sort_by([("hotspot", "ascending"), *most, (name, "ascending")])
    spots = ordered["hotspot"].to_numpy()
    listed = np.arange(len(spots)) - np.searchsorted(spots, spots) < _LISTED
    lists: list[list[dict[str, object]]] = []
    for row in ordered.filter(listed).to_pylist():
        while len(lists) <= row["hotspot"]:
            lists.append([])
        del row["hotspot"]
        lists[-1].append(row)
    return lists


_KIND = "link-repeats"
_TOKENS_A_FINGERPRINT = 25
_COUNTS = pa.schema([("rows", pa.int64())])


def repeated_spans(context: LinkContext) -> LinkStep:
    """Find the hotspots of the training splits."""
    stage = cast("Repeats", context.stage)
    tokens = context.survey.total(stage.name, "repeats", "tokens")
    listed = context.files(FINGERPRINTS)
    folders = _index(context, listed, tokens // _TOKENS_A_FINGERPRINT) if stage.index else {}
    frequent = context.join(
        "repeats-fingerprints",
        partial(link_fingerprints, min_documents=stage.min_documents),
        listed,
        tokens // _TOKENS_A_FINGERPRINT,
        frequent=FREQUENT_ROWS,
        identity=[stage.min_documents],
    )
    ranges = context.join("repeats-ranges", link_ranges, frequent.files("frequent"), _num_rows(frequent))
    hashed = ranges.table("ranges", RANGES)
    if hashed.num_rows == 0:
        return _nothing(stage, stage.min_documents, folders)
    files, rows = hashed["file"].to_numpy(), hashed["row"].to_numpy()
    documents = _documents(listed, Numbered.of(listed).firsts, files, rows)
    wanted = pa.table({**documents, "position": hashed["position"], "windows": hashed["windows"]})
    (windows,) = yield [SecondPassRequest(task=RepeatWindows(), wanted=wanted)]
    again = KeyedFiles.of(windows.files("windows"))
    runs, num_rows = _runs(context, stage, again, int(pc.sum(hashed["windows"]).as_py()))
    floor = choose_floor(runs.table("histogram", HISTOGRAM), stage.min_documents, stage.max_memory_bytes)
    hosts = context.join(
        "repeats-hosts", partial(link_hosts, floor=floor), runs.files("runs"), num_rows, identity=[floor]
    ).table("hosts", RUNS)
    numbered, firsts = Numbered.of(again), first_windows(hosts)
    times = pa.table({"times": pa.array(numbered.times, pa.int64())})

    def search(name: str, function: Any, round_: Round) -> JoinedParts:
        saved = _save(context, Search(round_, firsts, times))
        chosen = partial(function, floor=floor, search=saved)
        return context.join(f"repeats-{name}", chosen, runs.files("runs"), num_rows, identity=[floor, saved.sha256])

    def match(round_: Round) -> pa.Table:
        return add_reaches([search("reaches", link_reaches, round_).table("reaches", REACH)])

    hotspots = find_hotspots(hosts, floor, match)
    occurring = search("members", link_members, hotspots.final)
    spans = spans_of(occurring.table("members", MEMBERS), occurring.table("covered", COVERAGE))
    if spans.num_rows == 0:
        return _nothing(stage, floor, folders, runs)
    document = spans["document"].to_numpy()
    documents = _documents(again, numbered.firsts, file_numbers(document), rows_of(document))
    wanted = pa.table({**documents, **{name: spans[name] for name in ("hotspot", "start", "stop")}})
    (covered,) = yield [SecondPassRequest(task=RepeatedSpans(context.tokenizer), wanted=wanted)]
    result = _nothing(stage, floor, folders, runs)
    result.tables, numbers = hotspot_tables(covered, hotspots.words, hotspots.variants)
    result.extra = repeat_partials(covered, numbers)
    return result


def _runs(context: LinkContext, stage: Repeats, files: Sequence[KeyedFile], rows: int) -> tuple[JoinedParts, int]:
    """Join the windows and regroup their occurrences by file; return the runs, and about how many rows they are."""
    windows = context.join(
        "repeats-windows",
        partial(link_windows, min_documents=stage.min_documents),
        files,
        rows,
        occurrences=OCCURRENCE_ROWS,
        identity=[stage.min_documents],
    )
    number = _num_rows(windows)
    runs = context.join("repeats-runs", link_runs, windows.files("occurrences"), number, runs=RUN_ROWS)
    return runs, number


def _num_rows(joined: JoinedParts) -> int:
    return int(pc.sum(joined.table("counts", _COUNTS)["rows"]).as_py() or 0)


def _documents(files: KeyedFiles, firsts: np.ndarray, numbers: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return the columns ``shard`` and ``row`` of documents of numbered files, each where it is listed first."""
    listings = firsts[numbers]
    return {"shard": files.shards[listings].astype(np.int32), "row": rows + files.first_rows[listings]}


def _save(context: LinkContext, search: Search) -> SavedSearch:
    packed = search.packed()
    sha256 = hashlib.sha256(packed).hexdigest()
    path = context.store.side_path(f"{_KIND}-search", sha256, "arrow")
    with context.store.writing():
        write_whole(path, packed)
    return SavedSearch(os.fsencode(path), sha256)


def _index(context: LinkContext, files: Sequence[KeyedFile], rows: int) -> dict[str, Callable[[Path], None]]:
    """Sort all fingerprints; return what fills the folder of the index."""
    joined = context.join("repeats-index", link_index, files, rows, index=INDEX_ROWS)
    paths = [context.store.side_path(file.kind, file.key, file.name) for file in joined.files("index")]
    return {FOLDER: partial(write_index, paths=paths)}


def _nothing(
    stage: Repeats, floor: int, folders: dict[str, Callable[[Path], None]], runs: JoinedParts | None = None
) -> LinkResult:
    """Return the result without any hotspot: the floor, and the windows under it."""
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
