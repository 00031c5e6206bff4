"""What one part of the corpus has of the paths of a round; pure, one part at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataaudit.kernels.matching import Runs, extend_matches
from dataaudit.kernels.winnow import SPAN
from dataaudit.link.repeats.hosts import Numbers
from dataaudit.link.repeats.paths import Round

REACH = pa.schema([("seed", pa.int64()), ("left", pa.int64()), ("right", pa.int64()), ("documents", pa.int64())])
"""Documents in which the widest match around a seed has so many windows to its left and to its right."""
MEMBERS = pa.schema([("hotspot", pa.int64()), ("document", pa.int64()), ("start", pa.int64()), ("stop", pa.int64())])
"""Occurrences: words [start, stop) of a document."""


def reach(runs: pa.Table, numbers: Numbers, round_: Round, times: int) -> pa.Table:
    """Return how far around each seed this part's documents agree with its path.

    Args:
        runs: The part's, of the schema RUNS, by document and start.
        numbers: Of windows.
        round_: Paths and seeds.
        times: How often the part is listed.

    Returns:
        Of :data:`REACH`; ``seed`` is a row of the round's seeds.
    """
    seed, document, _, left, right = _matches(runs, numbers, round_)
    order = np.lexsort((-right, -(left + right), document, seed))
    seed, document, left, right = seed[order], document[order], left[order], right[order]
    widest = np.ones(len(seed), dtype=bool)
    widest[1:] = (seed[1:] != seed[:-1]) | (document[1:] != document[:-1])
    table = pa.table({"seed": seed[widest], "left": left[widest], "right": right[widest]})
    return add_reaches([table.append_column("documents", pa.array(np.full(table.num_rows, times, np.int64)))])


def add_reaches(tables: list[pa.Table]) -> pa.Table:
    """Add the documents of equal reaches of several parts."""
    merged = pa.concat_tables([REACH.empty_table(), *(table.cast(REACH) for table in tables)])
    grouped = merged.group_by(REACH.names[:3], use_threads=False).aggregate([("documents", "sum")])
    return grouped.rename_columns(REACH.names).cast(REACH).sort_by([(name, "ascending") for name in REACH.names[:3]])


def members(runs: pa.Table, numbers: Numbers, final: Round) -> pa.Table:
    """Return every occurrence of every hotspot in this part: of :data:`MEMBERS`, by document, start, hotspot.

    Args:
        runs: The part's, of the schema RUNS, by document and start.
        numbers: Of windows.
        final: Of :func:`dataaudit.link.repeats.paths.final_round`.
    """
    seed, document, place, left, right = _matches(runs, numbers, final)
    path = final.path_runs()
    sizes = np.bincount(path.owners, path.sizes).astype(np.int64)
    at = final.seeds["path_run"].to_numpy()
    before = path.starts[at] + final.seeds["id"].to_numpy() - path.ids[at]
    hotspot = path.owners[at][seed]
    kept = (left == before[seed]) & (left + right + 1 == sizes[hotspot])
    start = (place - left)[kept]
    columns = (hotspot[kept], document[kept], start, start + sizes[hotspot[kept]] + SPAN - 1)
    order = [(name, "ascending") for name in ("document", "start", "hotspot")]
    return pa.table(dict(zip(MEMBERS.names, columns, strict=True))).cast(MEMBERS).sort_by(order)


def _matches(runs: pa.Table, numbers: Numbers, round_: Round) -> tuple[np.ndarray, ...]:
    """Return seed, document, place in it, windows that match to the left and to the right, of every occurrence."""
    document = Runs(
        runs["document"].to_numpy(), runs["start"].to_numpy(), runs["windows"].to_numpy(), numbers.of(runs)
    )
    seeds = round_.seeds["id"].to_numpy()
    low = np.searchsorted(seeds, document.ids)
    counts = np.searchsorted(seeds, document.ids + document.sizes) - low
    run = np.repeat(np.arange(len(counts)), counts)
    seed = np.arange(len(run)) + np.repeat(low - np.concatenate([[0], np.cumsum(counts)])[:-1], counts)
    path_runs = round_.seeds["path_run"].to_numpy()[seed]
    left, right = extend_matches(document, run, round_.path_runs(), path_runs, seeds[seed])
    place = document.starts[run] + seeds[seed] - document.ids[run]
    return seed, document.owners[run], place, left, right
