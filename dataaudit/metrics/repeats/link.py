"""The family of repeated spans: what many training documents hold, found, counted and measured.

Two joins of hashes (fingerprints, windows), each followed by one that brings what was found home to its file, with a
second read of the documents between them; rounds of matching over runs, without texts; and a third read of the
documents that hold repeated spans, to count their tokens. See ``dataaudit explain repeated-spans``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.atomic import write_whole
from dataaudit.link.joins import Join, JoinedParts, JoinFunction, KeyedFile, KeyedFiles, Numbered
from dataaudit.link.second_pass import SecondPassRequest
from dataaudit.link.step import LinkContext, LinkResult, LinkStep
from dataaudit.manifest.metric import Scope, count
from dataaudit.manifest.places import rows_of
from dataaudit.metrics.repeats.covered import RepeatedSpans, spans_of
from dataaudit.metrics.repeats.find import find_hotspots, first_windows
from dataaudit.metrics.repeats.fingerprints import FREQUENT_ROWS, RANGES, link_fingerprints, link_ranges
from dataaudit.metrics.repeats.index import FOLDER, INDEX_ROWS, link_index, write_index
from dataaudit.metrics.repeats.listing import file_numbers
from dataaudit.metrics.repeats.matching import MEMBERS, REACH, add_reaches, link_members, link_reaches
from dataaudit.metrics.repeats.paths import Round
from dataaudit.metrics.repeats.runs import COVERAGE, HISTOGRAM, RUN_ROWS, RUNS, choose_floor, link_hosts, link_runs
from dataaudit.metrics.repeats.search import SavedSearch, Search
from dataaudit.metrics.repeats.stage import FINGERPRINTS, METRIC, Repeats
from dataaudit.metrics.repeats.tables import hotspot_tables, repeat_partials
from dataaudit.metrics.repeats.windows import OCCURRENCE_ROWS, RepeatWindows, link_windows

_KIND = "link-repeats"
_TOKENS_A_FINGERPRINT = 25
_COUNTS = pa.schema([("rows", pa.int64())])


@dataclass(frozen=True, slots=True)
class _Homes:
    """The files of a join by their number, see :mod:`dataaudit.metrics.repeats.listing`: where each is listed first."""

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
    """Find the hotspots of the training splits.

    Raises:
        ClusterError: The work cannot be done on these workers.
        DamagedEntryError: Stored rows are absent or damaged.
    """
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
