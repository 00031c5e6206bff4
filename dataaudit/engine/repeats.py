"""The family of repeated spans: what many training documents hold, found, counted and measured.

Two joins of hashes (fingerprints, windows), each followed by one that brings what was found home to its file, with a
second read of the documents between them; rounds of matching over runs, without texts; and a third read of the
documents that hold repeated spans, to count their tokens. See docs/concepts/duplicates.md.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.atomic import write_whole
from dataaudit.engine.families import Found, Linking
from dataaudit.engine.joins import Join, JoinedParts, KeyedFile
from dataaudit.engine.repeat_tables import hotspot_tables, repeat_partials
from dataaudit.engine.revisit import Visit, Visited
from dataaudit.link.joined import JoinFunction
from dataaudit.link.repeats.covered import RepeatedSpans, spans_of
from dataaudit.link.repeats.find import find_hotspots, first_windows
from dataaudit.link.repeats.fingerprints import FREQUENT_ROWS, RANGES, link_fingerprints, link_ranges
from dataaudit.link.repeats.index import FOLDER, INDEX_ROWS, link_index, write_index
from dataaudit.link.repeats.listing import file_numbers, row_numbers
from dataaudit.link.repeats.matching import MEMBERS, REACH, add_reaches, link_members, link_reaches
from dataaudit.link.repeats.paths import Round
from dataaudit.link.repeats.runs import COVERAGE, HISTOGRAM, RUN_ROWS, RUNS, choose_floor, link_hosts, link_runs
from dataaudit.link.repeats.search import SavedSearch, Search
from dataaudit.link.repeats.windows import OCCURRENCE_ROWS, RepeatWindows, link_windows
from dataaudit.manifest.metric import Scope, count
from dataaudit.stages.repeats import FINGERPRINTS, METRIC, Repeats

_KIND = "link-repeats"
_TOKENS_A_FINGERPRINT = 25
_COUNTS = pa.schema([("rows", pa.int64())])


@dataclass(frozen=True, slots=True)
class _Homes:
    """The files of a join by their number, see :mod:`dataaudit.link.repeats.listing`: where each is listed first."""

    shards: np.ndarray
    """int32[n]"""
    first_rows: np.ndarray
    """int64[n]"""
    times: pa.Table
    """Column ``times``, int64[n]: how often each is listed."""

    def asked(self, files: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the columns ``shard`` and ``row`` of documents."""
        return {"shard": self.shards[files], "row": rows + self.first_rows[files]}


def repeated_spans(linking: Linking) -> Generator[Sequence[Visit], list[Visited], Found]:
    """Find the hotspots of the training splits.

    Raises:
        ClusterError: The work cannot be done on these workers.
        DamagedEntryError: Stored rows are absent or damaged.
    """
    stage = cast("Repeats", linking.stage)
    tokens = sum(sum(shard.partials[stage.name]["repeats"]["tokens"].to_pylist()) for shard in linking.read())
    listed = linking.files(FINGERPRINTS)
    folders = _index(linking, listed, tokens // _TOKENS_A_FINGERPRINT) if stage.index else {}
    frequent = _join(
        linking,
        "fingerprints",
        partial(link_fingerprints, min_documents=stage.min_documents),
        listed,
        rows=tokens // _TOKENS_A_FINGERPRINT,
        emits={"frequent": FREQUENT_ROWS},
        identity=[stage.min_documents],
    )
    ranges = _join(linking, "ranges", link_ranges, frequent.files("frequent"), rows=_counted(frequent))
    hashed = ranges.table("ranges", RANGES)
    if hashed.num_rows == 0:
        return _nothing(stage, stage.min_documents, folders)
    asked = _homes(listed).asked(hashed["file"].to_numpy(), hashed["row"].to_numpy())
    wanted = pa.table({**asked, "position": hashed["position"], "windows": hashed["windows"]})
    (visited,) = yield [Visit(visitor=RepeatWindows(), wanted=wanted)]
    again = visited.files("windows")
    runs, rows = _runs(linking, stage, again, int(pc.sum(hashed["windows"]).as_py()))
    floor = choose_floor(runs.table("histogram", HISTOGRAM), stage.min_documents, stage.max_memory_bytes)
    hosts = _join(
        linking, "hosts", partial(link_hosts, floor=floor), runs.files("runs"), rows=rows, identity=[floor]
    ).table("hosts", RUNS)
    homes, firsts = _homes(again), first_windows(hosts)

    def search(name: str, function: Any, round_: Round) -> JoinedParts:
        saved = _save(linking, Search(round_, firsts, homes.times))
        chosen = partial(function, floor=floor, search=saved)
        return _join(linking, name, chosen, runs.files("runs"), rows=rows, identity=[floor, saved.sha256])

    def match(round_: Round) -> pa.Table:
        return add_reaches([search("reaches", link_reaches, round_).table("reaches", REACH)])

    found = find_hotspots(hosts, floor, match)
    occurring = search("members", link_members, found.final)
    spans = spans_of(occurring.table("members", MEMBERS), occurring.table("covered", COVERAGE))
    if spans.num_rows == 0:
        return _nothing(stage, floor, folders, runs)
    document = spans["document"].to_numpy()
    asked = homes.asked(file_numbers(document), row_numbers(document))
    wanted = pa.table({**asked, **{name: spans[name] for name in ("hotspot", "start", "stop")}})
    (covered,) = yield [Visit(visitor=RepeatedSpans(linking.tokenizer()), wanted=wanted)]
    result = _nothing(stage, floor, folders, runs)
    result.tables, numbers = hotspot_tables(covered, found.words, found.variants)
    result.extra = repeat_partials(covered, numbers)
    return result


def _runs(linking: Linking, stage: Repeats, files: Sequence[KeyedFile], rows: int) -> tuple[JoinedParts, int]:
    """Join the windows and bring their occurrences home; return the runs, and about how many rows they are."""
    windows = _join(
        linking,
        "windows",
        partial(link_windows, min_documents=stage.min_documents),
        files,
        rows=rows,
        emits={"occurrences": OCCURRENCE_ROWS},
        identity=[stage.min_documents],
    )
    number = _counted(windows)
    runs = _join(linking, "runs", link_runs, windows.files("occurrences"), rows=number, emits={"runs": RUN_ROWS})
    return runs, number


def _join(
    linking: Linking,
    name: str,
    function: JoinFunction,
    files: Sequence[KeyedFile],
    *,
    rows: int,
    emits: dict[str, pa.Schema] | None = None,
    identity: Sequence[object] = (),
) -> JoinedParts:
    return linking.join(
        Join(
            kind=f"{_KIND}-{name}",
            function=function,
            identity=[linking.stage.version, *identity],
            files=files,
            rows=rows,
            emits=emits or {},
        )
    )


def _counted(joined: JoinedParts) -> int:
    return int(pc.sum(joined.table("counts", _COUNTS)["rows"]).as_py() or 0)


def _homes(files: Sequence[KeyedFile]) -> _Homes:
    """Return where the files of a join are listed first, in that order, as ``listing_of`` numbers them."""
    known: dict[str, list[tuple[int, int]]] = {}
    for file in files:
        known.setdefault(file.key, []).append((file.shard, file.first_row))
    ordered = sorted(known.values(), key=min)
    firsts = [min(places) for places in ordered]
    return _Homes(
        np.array([shard for shard, _ in firsts], dtype=np.int32),
        np.array([row for _, row in firsts], dtype=np.int64),
        pa.table({"times": pa.array([len(places) for places in ordered], pa.int64())}),
    )


def _save(linking: Linking, search: Search) -> SavedSearch:
    packed = search.packed()
    sha256 = hashlib.sha256(packed).hexdigest()
    path = linking.job.store.side_path(f"{_KIND}-search", sha256, "arrow")
    with linking.job.store.writing():
        write_whole(path, packed)
    return SavedSearch(os.fsencode(path), sha256)


def _index(linking: Linking, files: Sequence[KeyedFile], rows: int) -> dict[str, Callable[[Path], None]]:
    """Sort all fingerprints; return what fills the folder of the index."""
    joined = _join(linking, "index", link_index, files, rows=rows, emits={"index": INDEX_ROWS})
    paths = [linking.job.store.side_path(file.kind, file.key, file.name) for file in joined.files("index")]
    return {FOLDER: partial(write_index, paths=paths)}


def _nothing(
    stage: Repeats, floor: int, folders: dict[str, Callable[[Path], None]], runs: JoinedParts | None = None
) -> Found:
    """Return what is found without any hotspot: the floor, and what lies under it."""
    histogram = HISTOGRAM.empty_table() if runs is None else runs.table("histogram", HISTOGRAM)
    under = histogram.filter(pc.less(histogram["documents"], floor))
    left_out, every = (int(pc.sum(table["firsts"]).as_py() or 0) for table in (under, histogram))
    found = Found(folders=folders)
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
