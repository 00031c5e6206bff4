"""Repeats of documents in memory, step by step as the engine takes them; and what is true of them, by brute force."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from strategies import make_batch

from dataaudit.manifest.locate import rows_of
from dataaudit.metrics.repeats.hotspots import find_hotspots, first_windows
from dataaudit.metrics.repeats.link import ANY, SPANS, RepeatedSpans, add_totals, spans_of
from dataaudit.metrics.repeats.matching import SavedSearch, Search, add_reaches, link_members, link_reaches
from dataaudit.metrics.repeats.runs import (
    RUN_ROWS,
    choose_floor,
    file_numbers,
    link_hosts,
    link_runs,
    listing_of,
    runs_by_file,
)
from dataaudit.metrics.repeats.stage import FINGERPRINT_ROWS, FINGERPRINTS, Repeats
from dataaudit.metrics.repeats.windows import (
    FREQUENT_ROWS,
    OCCURRENCE_ROWS,
    WINDOW_ROWS,
    RepeatWindows,
    link_fingerprints,
    link_ranges,
    link_windows,
)
from dataaudit.scan.cross_shard.joins import LINK_FILES
from dataaudit.scan.cross_shard.keyed import write_keyed
from dataaudit.scan.kernels.winnow import SPAN
from dataaudit.scan.kernels.words import split_words


@dataclass
class Result:
    """What was found."""

    hotspots: list[dict]
    """words, documents, occurrences, tokens, variants, hash, places: (part, row, start, stop) in words; by rank."""
    covered: dict[tuple[int, int], list[tuple[int, int]]]
    """(part, row): words [start, stop) in repeated spans."""
    windows: dict[tuple[int, int, int], tuple[int, int]]
    """(part, row, place): documents and occurrences of every repeated window."""
    floor: int
    totals: dict[str, tuple[int, int]]
    """Source: documents with repeated spans, and the tokens in them."""


def spell(words):
    """Return the text of some numbered words."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return " ".join("w" + letters[word // 676 % 26] + letters[word // 26 % 26] + letters[word % 26] for word in words)


def batch_of(texts):
    """Return a batch of texts, with its words; rows have gaps."""
    batch = make_batch([(text, f"s{place % 2}") for place, text in enumerate(texts)])
    rows = np.arange(len(texts), dtype=np.int64) * 2
    return replace(batch, rows=rows, annotations={"words": split_words(batch.byte_values(), batch.byte_offsets())})


def _files(paths, listed):
    rows = [(os.fsencode(paths[part]), shard, 0, first) for shard, (part, first) in enumerate(listed)]
    return pa.Table.from_pylist([dict(zip(LINK_FILES.names, row, strict=True)) for row in rows], schema=LINK_FILES)


@dataclass
class Joins:
    """Joins partitions as the engine does, without it."""

    folder: Path
    cuts: tuple
    number: int = 0

    def run(self, function, files, **schemas):
        """Return (small tables by name, files of keyed rows by name)."""
        bounds = [0, *sorted(set(self.cuts)), 256]
        tables, keyed = defaultdict(list), defaultdict(list)
        for start, stop in pairwise(bounds):
            joined = function(files, start, stop)
            for name, table in joined.tables.items():
                tables[name].append(table)
            for name, table in joined.keyed.items():
                self.number += 1
                keyed[name].append(self.folder / f"joined-{self.number}")
                write_keyed(keyed[name][-1], [table], schemas[name])
        small = {name: pa.concat_tables(pieces) for name, pieces in tables.items()}
        return small, {name: _files(paths, [(part, 0) for part in range(len(paths))]) for name, paths in keyed.items()}


def encode(texts):
    """A token is a word."""
    counts = [len(text.split()) for text in texts.to_pylist()]
    return SimpleNamespace(offsets=np.cumsum([0, *counts]))


def repeats_of(folder, parts, *, min_documents=3, max_memory_bytes=10**9, cuts=(), times=None):
    """Find the repeats of parts, lists of texts; ``times``: how often each part is listed."""
    batches = [batch_of(texts) for texts in parts]
    listed = [(part, 0) for part, number in enumerate(times or [1] * len(parts)) for _ in range(number)]
    joins = Joins(folder, tuple(cuts))
    paths, again = [], []
    for number, batch in enumerate(batches):
        paths.append(folder / f"fingerprints-{number}")
        write_keyed(paths[-1], [Repeats().emit(batch)[FINGERPRINTS]], FINGERPRINT_ROWS)
    first = _files(paths, listed)
    _, keyed = joins.run(partial(link_fingerprints, min_documents=min_documents), first, frequent=FREQUENT_ROWS)
    ranges = joins.run(link_ranges, keyed["frequent"])[0]["ranges"]
    for number, batch in enumerate(batches):
        wanted = ranges.filter(pc.equal(ranges["file"], number)).sort_by(
            [("row", "ascending"), ("position", "ascending")]
        )
        again.append(folder / f"windows-{number}")
        write_keyed(again[-1], [RepeatWindows().run(batch, wanted, encode)["windows"]], WINDOW_ROWS)
    second = _files(again, listed)
    counted = partial(link_windows, min_documents=min_documents)
    _, keyed = joins.run(counted, second, occurrences=OCCURRENCE_ROWS)
    small, keyed = joins.run(link_runs, keyed["occurrences"], runs=RUN_ROWS)
    floor = choose_floor(small["histogram"], min_documents, max_memory_bytes)
    hosts = joins.run(partial(link_hosts, floor=floor), keyed["runs"])[0]["hosts"]
    many = pa.table({"times": listing_of(second).times})

    def saved(round_):
        packed = Search(round_, first_windows(hosts), many).packed()
        path = folder / hashlib.sha256(packed).hexdigest()
        path.write_bytes(packed)
        return SavedSearch(os.fsencode(path), path.name)

    def match(round_):
        search = saved(round_)
        return add_reaches([joins.run(partial(link_reaches, floor=floor, search=search), keyed["runs"])[0]["reaches"]])

    found = find_hotspots(hosts, floor, match)
    search = saved(found.final)
    small, _ = joins.run(partial(link_members, floor=floor, search=search), keyed["runs"])
    runs = [*runs_by_file(keyed["runs"], 0, 256, floor)]
    return _result(batches, small["members"], small["covered"], runs, found, floor, many["times"].to_pylist())


def _place(document):
    return int(file_numbers(document)), int(rows_of(document)) // 2


def _result(batches, inside, whole, runs, found, floor, times):
    places, hashes, totals = defaultdict(list), {}, []
    covered, windows = {}, {}
    counts = defaultdict(lambda: [0, 0, 0])
    for row in inside.to_pylist():
        places[row["hotspot"]].append((*_place(row["document"]), row["start"], row["stop"]))
    for row in whole.to_pylist():
        covered.setdefault(_place(row["document"]), []).append((row["start"], row["stop"]))
    for row in (row for one in runs for row in one.to_pylist()):
        for step in range(row["windows"]):
            windows[*_place(row["document"]), row["start"] + step] = (row["documents"], row["occurrences"])
    spans = spans_of(inside, whole)
    document = spans["document"].to_numpy()
    for part, batch in enumerate(batches):
        own = spans.filter(file_numbers(document) == part)
        rows = pa.array(rows_of(own["document"].to_numpy()))
        wanted = own.set_column(0, "row", rows).sort_by([(name, "ascending") for name in SPANS.names])
        seen = RepeatedSpans("words").run(batch, wanted, encode)
        for row in seen["places"].to_pylist():
            text = batch.texts[row["row"] // 2].as_py().encode()[row["start"] : row["end"]].decode()
            assert len(text.split()) == found.words[row["hotspot"]]
        hashes.update({row["hotspot"]: row["hash"] for row in seen["hashes"].to_pylist()})
        for row in seen["totals"].to_pylist():
            for index, name in enumerate(("documents", "occurrences", "tokens")):
                counts[row["hotspot"]][index] += times[part] * row[name]
        totals.append(seen["totals"].filter(pc.equal(seen["totals"]["hotspot"], ANY)))
    hotspots = [
        {
            "words": words,
            "documents": counts[number][0],
            "occurrences": counts[number][1],
            "tokens": counts[number][2],
            "variants": variants,
            "hash": hashes[number],
            "places": sorted(places[number]),
        }
        for number, (words, variants) in enumerate(zip(found.words.tolist(), found.variants.tolist(), strict=True))
    ]
    hotspots.sort(key=lambda spot: (-spot["documents"], -spot["occurrences"], spot["places"][0]))
    by_source = {row["source"]: (row["documents"], row["tokens"]) for row in add_totals(totals).to_pylist()}
    return Result(hotspots, covered, windows, floor, by_source)


def true_windows(parts, min_documents, times=None):
    """Return documents and occurrences of every window that enough documents hold, by (part, row, place)."""
    where = defaultdict(list)
    for part, texts in enumerate(parts):
        for row, text in enumerate(texts):
            words = text.split()
            for place in range(len(words) - SPAN + 1):
                where[" ".join(words[place : place + SPAN])].append((part, row, place))
    found = {}
    for places in where.values():
        many = {place: (times or [1] * len(parts))[place[0]] for place in places}
        documents = sum({place[:2]: number for place, number in many.items()}.values())
        if documents >= min_documents:
            found.update(dict.fromkeys(places, (documents, sum(many.values()))))
    return found


def true_occurrences(parts, span):
    """Return where a sequence of words stands: (part, row, start, stop)."""
    size = len(span)
    return [
        (part, row, start, start + size)
        for part, texts in enumerate(parts)
        for row, words in enumerate(text.split() for text in texts)
        for start in range(len(words) - size + 1)
        if words[start : start + size] == span
    ]
