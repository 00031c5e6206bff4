"""From what was seen of repeated spans, part by part, to the manifest's tables and the stage's partials."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.link.second_pass import SecondPassResult
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.repeats.covered import ANY, HASHES, TOTALS

_PLACES = pa.schema(
    [("hotspot", pa.int64()), ("shard", pa.int32()), ("row", pa.int64()), ("start", pa.int64()), ("end", pa.int64())]
)
_SEEN = pa.schema([("shard", pa.int32()), *TOTALS])
_LISTED = 10
_SUMS = ("documents", "occurrences", "tokens")


def hotspot_tables(
    covered: SecondPassResult, words: np.ndarray, variants: np.ndarray
) -> tuple[dict[str, pa.Table], np.ndarray]:
    """Return ``hotspots`` and ``hotspot_members``, and the number of every hotspot.

    Args:
        covered: What was found of :class:`dataaudit.metrics.repeats.covered.RepeatedSpans`.
        words: int64[h] words of each hotspot, in the order in which they were found.
        variants: int64[h] spans merged into each.

    Returns:
        The tables, and int64[h] numbers from 1: by documents, then occurrences, most first, then by first place.
    """
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
    """Return what is added to the partials of the stage ``repeats``, by shard and source.

    Args:
        covered: As above.
        numbers: int64[h] number of every hotspot.
    """
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
