"""Repeats of documents in memory, step by step as the engine takes them; and what is true of them, by brute force."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[2] / "conformance"))
from strategies import make_batch

from dataaudit.kernels.winnow import SPAN, winnow
from dataaudit.kernels.words import split_words
from dataaudit.link.exact import LINK_FILES
from dataaudit.link.keyed import write_keyed
from dataaudit.link.repeats.covered import ANY, RepeatedSpans, add_totals, spans_of
from dataaudit.link.repeats.find import find_hotspots, first_windows
from dataaudit.link.repeats.fingerprints import link_fingerprints
from dataaudit.link.repeats.hosts import numbers_of
from dataaudit.link.repeats.listing import listing_of, row_numbers
from dataaudit.link.repeats.matching import add_reaches, members, reach
from dataaudit.link.repeats.revisit import WINDOW_ROWS, RepeatWindows, as_keys
from dataaudit.link.repeats.runs import at_least, choose_floor, coverage, hosted, runs_of
from dataaudit.link.repeats.windows import link_windows

FINGERPRINT_ROWS = pa.schema(
    [("key", pa.binary(8)), ("row", pa.int64()), ("position", pa.uint32()), ("windows", pa.uint8())]
)


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
    return replace(batch, rows=rows, words=split_words(batch.byte_values(), batch.byte_offsets()))


def _files(paths, listed):
    rows = [(os.fsencode(paths[part]), shard, 0, first) for shard, (part, first) in enumerate(listed)]
    return pa.Table.from_pylist([dict(zip(LINK_FILES.names, row, strict=True)) for row in rows], schema=LINK_FILES)


def _linked(link, files, cuts, min_documents):
    bounds = [0, *sorted(set(cuts)), 256]
    return pa.concat_tables(
        [link(files, start, stop, min_documents) for start, stop in zip(bounds[:-1], bounds[1:], strict=True)]
    )


def repeats_of(folder, parts, *, min_documents=3, max_windows=10**6, cuts=(), times=None):
    """Find the repeats of parts, lists of texts; ``times``: how often each part is listed."""
    batches = [batch_of(texts) for texts in parts]
    listed = [(part, 0) for part, number in enumerate(times or [1] * len(parts)) for _ in range(number)]
    paths, again = [], []
    for number, batch in enumerate(batches):
        found = winnow(batch.words.hashes, batch.words.offsets)
        rows = np.repeat(batch.rows, np.diff(found.bounds))
        table = pa.table({"key": as_keys(found.values), "row": rows, "position": found.positions, "windows": found.windows})
        paths.append(folder / f"fingerprints-{number}")
        write_keyed(paths[-1], [table], FINGERPRINT_ROWS)
    files = _files(paths, listed)
    wanted = _linked(link_fingerprints, files, cuts, min_documents)
    for number, batch in enumerate(batches):
        part = wanted.filter(pa.compute.equal(wanted["file"], number))
        again.append(folder / f"windows-{number}")
        write_keyed(again[-1], [RepeatWindows().visit(batch, part)["windows"]], WINDOW_ROWS)
    files = _files(again, listed)
    listing = listing_of(files)
    occurrences = _linked(link_windows, files, cuts, min_documents)
    runs = [runs_of(part, occurrences.filter(pa.compute.equal(occurrences["file"], part))) for part in range(len(parts))]
    hosts = pa.concat_tables([hosted(one) for one in runs])
    floor = choose_floor(hosts.select(["documents", "windows"]), min_documents, max_windows)
    runs = [at_least(one, floor) for one in runs]
    hosts = at_least(hosts, floor)
    numbers = numbers_of(first_windows(hosts))

    def match(round_):
        return add_reaches(
            [reach(one, numbers, round_, int(listing.times[part])) for part, one in enumerate(runs)]
        )

    found = find_hotspots(hosts, floor, match)
    return _result(batches, runs, numbers, found, floor, listing)


def _result(batches, runs, numbers, found, floor, listing):
    places, hashes, totals = defaultdict(list), {}, []
    covered, windows = {}, {}
    counts = defaultdict(lambda: [0, 0, 0])
    for part, (batch, one) in enumerate(zip(batches, runs, strict=True)):
        inside, whole = members(one, numbers, found.final), coverage(one)
        wanted = spans_of(inside, whole)
        seen = RepeatedSpans().visit(batch, wanted, lambda texts: np.array([len(t.split()) for t in texts.to_pylist()], dtype=np.int64))
        for row in inside.to_pylist():
            places[row["hotspot"]].append((part, int(row_numbers(row["document"])) // 2, row["start"], row["stop"]))
        for row in whole.to_pylist():
            covered.setdefault((part, int(row_numbers(row["document"])) // 2), []).append((row["start"], row["stop"]))
        for row in one.to_pylist():
            for step in range(row["windows"]):
                key = (part, int(row_numbers(row["document"])) // 2, row["start"] + step)
                windows[key] = (row["documents"], row["occurrences"])
        hashes.update({row["hotspot"]: row["hash"] for row in seen["hashes"].to_pylist()})
        many = int(listing.times[part])
        for row in seen["totals"].to_pylist():
            for index, name in enumerate(("documents", "occurrences", "tokens")):
                counts[row["hotspot"]][index] += many * row[name]
        totals.append(seen["totals"].filter(pa.compute.equal(seen["totals"]["hotspot"], ANY)))
    hotspots = [
        {
            "words": words, "documents": counts[number][0], "occurrences": counts[number][1],
            "tokens": counts[number][2], "variants": variants, "hash": hashes[number], "places": sorted(places[number]),
        }
        for number, (words, variants) in enumerate(zip(found.words.tolist(), found.variants.tolist(), strict=True))
    ]  # fmt: skip
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
        held_by = sum({place[:2]: number for place, number in many.items()}.values())
        if held_by >= min_documents:
            found.update(dict.fromkeys(places, (held_by, sum(many.values()))))
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
