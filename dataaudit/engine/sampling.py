"""The sample that a judge sees: strata from the partials, how many of each, and which documents these are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.engine.families import Linking
from dataaudit.engine.gather import kept_sources
from dataaudit.engine.joins import Join
from dataaudit.kernels.allocation import Allocation, allocate
from dataaudit.link.sampling import DRAWN, OTHER, Frame, SampleJoin, first_of_each
from dataaudit.stages.strata import MEMBERS, STRATA

_LEAST_SHARE = 0.005
"""Sources and languages with fewer of the documents share their strata with others."""
_MOST_NAMES = (50, 25, 12, 6, 3, 1, 0)
"""Sources, and languages, with strata of their own at most: the first number that leaves two documents a stratum."""
_MINIMUM = 5
"""Documents judged of each stratum, if the limit allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a judge is to find out."""

    metric: str
    half_width: float
    """Of the interval over all documents that it reads."""
    most: int
    """Documents that it sees at most."""
    languages: tuple[str, ...]
    """Languages that it reads; empty for all."""
    guesses: Mapping[int, float]
    """Share of positives that the screen expects of documents of a level."""
    salt: int
    """Tells samples for different metrics apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """The strata of what a judge reads, and the documents of each that it is to see."""

    frame: Frame
    splits: tuple[str, ...]
    """Names of the splits that the frame numbers."""
    documents: np.ndarray
    """int64[k] of each stratum."""
    tokens: np.ndarray
    """int64[k]"""
    guesses: np.ndarray
    """float64[k]"""
    plan: Allocation
    unread: int
    """Documents in languages that the judge does not read: of no stratum."""
    places: np.ndarray
    """int64[m] places of the documents drawn."""
    strata: np.ndarray
    """int64[m] stratum of each."""


def draw(linking: Linking, question: Question) -> Sampled:
    """Decide how many documents of each stratum the judge sees, and draw them.

    Raises:
        ClusterError: The join cannot be done on these workers.
        DamagedEntryError: Stored rows are absent or damaged.
    """
    splits = tuple(sorted({shard.planned.shard.split for shard in linking.shards}))
    table = _all_strata(linking, splits)
    readable = np.ones(table.num_rows, dtype=bool)
    if question.languages:
        readable = pc.is_in(table["language"], pa.array(question.languages)).to_numpy(zero_copy_only=False)
    unread = int(table["documents"].to_numpy()[~readable].sum())
    table = table.filter(pa.array(readable))
    named = kept_sources(linking.shards, linking.job.config.max_sources)
    frame, documents, tokens = _frame(table, question.most, named)
    guesses = np.array([question.guesses[level] for *_, level in frame.strata], dtype=np.float64)
    plan = allocate(documents, guesses, half_width=question.half_width, minimum=_MINIMUM, most=question.most)
    join = SampleJoin(frame=frame, counts=tuple(plan.counts.tolist()), seed=linking.job.config.seed, salt=question.salt)
    drawn = linking.join(
        Join(
            kind=f"link-{linking.stage.name}-sample",
            function=join,
            identity=[linking.stage.version, asdict(join)],
            files=linking.files(MEMBERS) if plan.counts.any() else [],
            rows=int(documents.sum()) + unread,
        )
    ).table("drawn", DRAWN)
    first = first_of_each(
        drawn["stratum"].to_numpy(), drawn["drawn"].to_numpy(), drawn["place"].to_numpy(), plan.counts
    )
    return Sampled(
        frame=frame,
        splits=splits,
        documents=documents,
        tokens=tokens,
        guesses=guesses,
        plan=plan,
        unread=unread,
        places=first["place"].to_numpy(),
        strata=first["stratum"].to_numpy(),
    )


def _all_strata(linking: Linking, splits: Sequence[str]) -> pa.Table:
    """Return split (its number), source, language, level, documents, tokens of all shards; rows may repeat."""
    pieces = []
    for shard in linking.read():
        rows = shard.partials[linking.stage.name]["strata"]
        split = np.full(rows.num_rows, splits.index(shard.planned.shard.split), dtype=np.int64)
        pieces.append(rows.append_column("split", pa.array(split)))
    keys = ["split", "source", "language", "level"]
    pieces = pieces or [STRATA.schema().append(pa.field("split", pa.int64())).empty_table()]
    sums = [("documents", "sum"), ("tokens", "sum")]
    grouped = pa.concat_tables(pieces).group_by(keys, use_threads=False).aggregate(sums)
    return grouped.rename_columns({"documents_sum": "documents", "tokens_sum": "tokens"})


def _frame(table: pa.Table, most: int, named: pa.Array | None) -> tuple[Frame, np.ndarray, np.ndarray]:
    """Return the strata, with their documents and tokens; not more than so many judged documents can speak for."""
    rows = table.to_pylist()
    sources, languages = _largest(rows, "source"), _largest(rows, "language")
    if named is not None:
        known = set(named.to_pylist())
        sources = [one for one in sources if one in known]
    for names in _MOST_NAMES:
        found = _frame_of(rows, tuple(sorted(sources[:names])), tuple(sorted(languages[:names])))
        if 2 * len(found[0].strata) <= most:
            break
    return found


def _frame_of(
    rows: Sequence[Mapping[str, Any]], sources: tuple[str, ...], languages: tuple[str, ...]
) -> tuple[Frame, np.ndarray, np.ndarray]:
    sizes: dict[tuple[int, str, str, int], list[int]] = {}
    for row in rows:
        source = row["source"] if row["source"] in sources else OTHER
        language = row["language"] if row["language"] in languages else OTHER
        own = sizes.setdefault((row["split"], source, language, row["level"]), [0, 0])
        own[0] += row["documents"]
        own[1] += row["tokens"]
    strata = tuple(sorted(sizes))
    numbers = np.array([sizes[key] for key in strata], dtype=np.int64).reshape(-1, 2)
    return Frame(sources=sources, languages=languages, strata=strata), numbers[:, 0], numbers[:, 1]


def _largest(rows: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    """Return names that may have strata of their own, the largest first; one called as the rest is, is of the rest."""
    totals: dict[str, int] = {}
    for row in rows:
        totals[row[name]] = totals.get(row[name], 0) + row["documents"]
    least = _LEAST_SHARE * sum(totals.values())
    ordered = sorted(totals, key=lambda one: (-totals[one], one))
    return [one for one in ordered if totals[one] >= least and one != OTHER]
