"""Draws the stratified sample of documents that a judge sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.locate import rows_of, shards_of
from dataaudit.scan.corpus.segments import changes
from dataaudit.scan.cross_shard.joins import Joined
from dataaudit.scan.cross_shard.keyed import distinct, keys_of, read_placed, spread
from dataaudit.scan.cross_shard.step import LinkContext, kept_sources
from dataaudit.scan.kernels.two_phase import Allocation, allocate
from dataaudit.scan.stages.groups import MEMBER_ROWS, MEMBERS

_LEAST_SHARE = 0.005
"""Share of documents below which sources and languages are pooled."""
_MOST_NAMES = (50, 25, 12, 6, 3, 1, 0)
"""Most sources, and languages, with strata of their own: the first number that leaves two documents a stratum."""
OTHER = "other"
"""Name of pooled sources and languages."""
DRAWN = pa.schema([("stratum", pa.int64()), ("drawn", pa.uint64()), ("place", pa.int64())])
"""Documents drawn, the least ``drawn`` first: number of their stratum, and place in the manifest."""
_LEVELS = 1 << 10
"""More than there are levels, from -1 on."""
_WEYL = 0x9E3779B97F4A7C15
"""Odd: its multiples spread evenly over 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A metric to estimate, and the limits of its sample."""

    metric: str
    half_width: float
    """Of the interval over all documents that the judge reads."""
    most: int
    """Most documents that the judge sees."""
    languages: tuple[str, ...]
    """Languages that the judge reads; empty for all."""
    guesses: Mapping[int, float]
    """Share of positives that the screen expects, by level."""
    salt: int
    """Differs between metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """The ``k`` strata of a frame, and the ``m`` documents drawn from them."""

    frame: Frame
    splits: tuple[str, ...]
    """Names of the splits that the frame numbers."""
    documents: np.ndarray
    """int64[k]"""
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
    """int64[m] their strata."""


def draw(context: LinkContext, question: Question) -> Sampled:
    """Allocate documents to strata, and draw them."""
    splits = tuple(sorted({shard.split for shard in context.shards}))
    table = _all_strata(context, splits)
    readable = np.ones(table.num_rows, dtype=bool)
    if question.languages:
        readable = pc.is_in(table["language"], pa.array(question.languages)).to_numpy(zero_copy_only=False)
    unread = int(table["documents"].to_numpy()[~readable].sum())
    table = table.filter(pa.array(readable))
    named = kept_sources(context.survey, context.config.max_sources)
    frame, documents, tokens = _frame(table, question.most, named)
    guesses = np.array([question.guesses[level] for *_, level in frame.strata], dtype=np.float64)
    plan = allocate(documents, guesses, half_width=question.half_width, minimum=5, most=question.most)
    join = SampleJoin(frame=frame, counts=tuple(plan.counts.tolist()), seed=context.config.seed, salt=question.salt)
    files = context.files(MEMBERS) if plan.counts.any() else []
    rows = int(documents.sum()) + unread
    drawn = context.join(f"{context.stage.name}-sample", join, files, rows).table("drawn", DRAWN)
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


def _all_strata(context: LinkContext, splits: Sequence[str]) -> pa.Table:
    """Return split (its number), source, language, level, documents, tokens of all shards."""
    rows = context.survey.by_split[context.stage.name, "strata"]
    numbers = pc.index_in(rows["split"], value_set=pa.array(splits, pa.string())).cast(pa.int64())
    return rows.set_column(0, "split", numbers).select(["split", "source", "language", "level", "documents", "tokens"])


def _frame(table: pa.Table, most: int, named: pa.Array | None) -> tuple[Frame, np.ndarray, np.ndarray]:
    """Return strata, their documents and their tokens: at most a stratum for two judged documents."""
    rows = table.to_pylist()
    sources, languages = _largest(rows, "source"), _largest(rows, "language")
    if named is not None:
        known = set(named.to_pylist())
        sources = [source for source in sources if source in known]
    for names in _MOST_NAMES:
        frame = _frame_of(rows, tuple(sorted(sources[:names])), tuple(sorted(languages[:names])))
        if 2 * len(frame[0].strata) <= most:
            break
    return frame


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
    """Return names that may have strata of their own, the largest first; the name ``other`` never has."""
    totals = Counter[str]()
    for row in rows:
        totals[row[name]] += row["documents"]
    least = _LEAST_SHARE * sum(totals.values())
    ordered = sorted(totals, key=lambda total: (-totals[total], total))
    return [item for item in ordered if totals[item] >= least and item != OTHER]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The strata from which a sample is drawn; sources and languages without strata of their own are ``other``."""

    sources: tuple[str, ...]
    languages: tuple[str, ...]
    strata: tuple[tuple[int, str, str, int], ...]
    """(split number, source, language, level), sorted; other documents are not drawn."""

    def numbers(self, splits: np.ndarray, table: pa.Table) -> np.ndarray:
        """Return int64[n] number of each row's stratum, -1 for none."""
        source, language = _codes(table["source"], self.sources), _codes(table["language"], self.languages)
        codes = self._code(splits.astype(np.int64), source, language, table["level"].to_numpy())
        by_source = {name: code for code, name in enumerate((*self.sources, OTHER))}
        by_language = {name: code for code, name in enumerate((*self.languages, OTHER))}
        rows = [(split, by_source[name], by_language[two], level) for split, name, two, level in self.strata]
        known = self._code(*np.array(rows, dtype=np.int64).reshape(-1, 4).T)
        order = np.argsort(known)
        places = np.minimum(np.searchsorted(known[order], codes), max(0, len(known) - 1))
        if len(known) == 0:
            return np.full(len(codes), -1, dtype=np.int64)
        return np.where(known[order][places] == codes, order[places], -1)

    def _code(self, split: np.ndarray, source: np.ndarray, language: np.ndarray, level: np.ndarray) -> np.ndarray:
        first = (split * (len(self.sources) + 1) + source) * (len(self.languages) + 1) + language
        return np.asarray(first * _LEVELS + level + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleJoin:
    """Draws from a partition the documents that may be among the first of their stratum.

    A document is drawn by the hash of its text, the seed and its number among documents of equal text, so that copies
    are drawn independently.
    """

    frame: Frame
    counts: tuple[int, ...]
    """Documents wanted of each stratum of the frame."""
    seed: int
    salt: int
    """See :class:`Question`."""

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return ``drawn``, of schema :data:`DRAWN`."""
        placed = read_placed(files, MEMBER_ROWS, start, stop)
        strata = self.frame.numbers(placed.splits, placed.table)
        keys = keys_of(placed.table)
        order = np.lexsort((placed.places, keys))
        drawn = np.zeros(len(keys), dtype=np.uint64)
        drawn[order] = self._drawn(keys[order])
        return Joined(tables={"drawn": first_of_each(strata, drawn, placed.places, np.array(self.counts))})

    def _drawn(self, keys: np.ndarray) -> np.ndarray:
        """Return uint64[n] of sorted keys; equal ones are numbered."""
        positions = np.arange(len(keys), dtype=np.int64)
        first = np.maximum.accumulate(np.where(changes(keys), positions, 0)) if len(keys) else positions
        offset = np.uint64(((self.seed + 1) * _WEYL + self.salt * _WEYL**2) % 2**64)
        with np.errstate(over="ignore"):
            salted = spread(keys + offset)
            return spread(salted + (positions - first).astype(np.uint64) * np.uint64(_WEYL))


def first_of_each(strata: np.ndarray, drawn: np.ndarray, places: np.ndarray, counts: np.ndarray) -> pa.Table:
    """Return the ``counts`` rows of each stratum that were drawn first, of schema :data:`DRAWN`."""
    inside = np.flatnonzero(strata >= 0)
    order = inside[np.lexsort((places[inside], drawn[inside], strata[inside]))]
    ordered = strata[order]
    rank = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    chosen = order[rank < counts[ordered]]
    columns = (strata[chosen], drawn[chosen], places[chosen])
    return pa.table(dict(zip(DRAWN.names, columns, strict=True))).cast(DRAWN)


def wanted_rows(places: np.ndarray) -> pa.Table:
    """Return shard and row of places that are to be read again."""
    ordered = distinct(places)
    return pa.table({"shard": shards_of(ordered), "row": rows_of(ordered)})


def _codes(names: pa.ChunkedArray, kept: tuple[str, ...]) -> np.ndarray:
    codes = pc.index_in(names, value_set=pa.array(kept, pa.string()))
    return np.asarray(pc.fill_null(codes, len(kept)).to_numpy(), dtype=np.int64)
