"""Where spans of generated tokens stand verbatim in training: by a scan of all tokens, or through the repeat index.

The scan reads every training token once and is exact. The repeat index finds documents that share 50 *words* in a row,
for certain, and 13 to 49 perhaps, without reading the corpus; each is then compared token by token. So what it counts
is at least what there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dataaudit.probes.models import Ids, Tokenizer
from dataaudit.training.documents import Documents

Hashes = npt.NDArray[np.uint64]
SPAN = 50
"""Tokens of a span that counts as copied (Lee et al. 2021, arXiv 2107.06499)."""
LEAST_DISTINCT = 8
"""Different tokens of a span, at least: a run of spaces is no memory."""
_BASE = np.uint64(0x9E3779B97F4A7C15)
_INVERSE = pow(0x9E3779B97F4A7C15, -1, 1 << 64)
_BLOCK = 1 << 21
_BITS = 22


@cache
def _powers(base: int, bits: int) -> Hashes:
    """Return uint64[2^bits] powers of a base, modulo 2^64."""
    return np.concatenate([np.ones(1, np.uint64), np.full((1 << bits) - 1, base, np.uint64)]).cumprod(dtype=np.uint64)


def span_hashes(ids: npt.NDArray[np.integer], span: int) -> Hashes:
    """Return uint64[n - span + 1], a hash of each run of ``span`` tokens: equal runs have equal hashes.

    Tokens are mixed (splitmix64), and a run's hash is its polynomial modulo 2^64, from differences of running sums.
    """
    if len(ids) < span:
        return np.zeros(0, np.uint64)
    bits = len(ids).bit_length()
    with np.errstate(over="ignore"):
        mixed = ids.astype(np.uint64) + _BASE
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
        sums = np.concatenate(
            [np.zeros(1, np.uint64), np.cumsum(mixed * _powers(int(_BASE), bits)[: len(ids)], dtype=np.uint64)]
        )
        made: Hashes = (sums[span:] - sums[:-span]) * _powers(_INVERSE, bits)[: len(ids) - span + 1]
    return made


class Matcher(Protocol):
    """Counts where spans stand in training."""

    method: str
    """exact or at_least."""

    def counts(self, rows: Sequence[Ids], span: int = SPAN) -> list[npt.NDArray[np.int64]]:
        """Return int64[n - span + 1] of each row: how often each of its spans stands in training."""


class ScanMatcher:
    """Reads all tokens of training once.

    Args:
        documents: Of the training splits.
    """

    method = "exact"

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def counts(self, rows: Sequence[Ids], span: int = SPAN) -> list[npt.NDArray[np.int64]]:
        """Return int64[n - span + 1] of each row: how often each of its spans stands in training."""
        return _counted(rows, span, self._blocks(span))

    def _blocks(self, span: int) -> Iterator[tuple[npt.NDArray[np.integer], npt.NDArray[np.bool_]]]:
        """Yield tokens, and bool[n - span + 1]: which runs lie within a document."""
        for offsets, values in self._documents.token_blocks():
            for start in range(0, len(values), _BLOCK - span):
                part = values[start : start + _BLOCK]
                if len(part) < span:
                    break
                owner = np.searchsorted(offsets, np.arange(start, start + len(part)), side="right")
                stop = len(part) - span + 1 if start + _BLOCK >= len(values) else _BLOCK - span
                inside = (owner[span - 1 :] == owner[: len(part) - span + 1])[:stop]
                yield part, inside
                if start + _BLOCK >= len(values):
                    break


class IndexMatcher:
    """Looks documents up in the index of a manifest that was built with ``stages: {repeats: {index: true}}``.

    Args:
        manifest: Its folder.
        documents: Of the training splits.
        tokenizer: Of the model.

    Raises:
        ManifestError: It has no such index.
    """

    method = "at_least"

    def __init__(self, manifest: Path, documents: Documents, tokenizer: Tokenizer) -> None:
        from dataaudit.metrics.repeats.index import RepeatIndex

        self._index, self._documents, self._tokenizer = RepeatIndex(manifest), documents, tokenizer

    def counts(self, rows: Sequence[Ids], span: int = SPAN) -> list[npt.NDArray[np.int64]]:
        """Return int64[n - span + 1] of each row: how often each of its spans stands in documents that it shares."""
        made = []
        for row in rows:
            shared = self._index.look_up(self._tokenizer.decode(row.tolist()))
            places = sorted({(match.shard, match.row) for match in shared})
            texts = [
                ids for place in places if (ids := self._documents.tokens_of(*place)) is not None and len(ids) >= span
            ]
            blocks = ((ids, np.ones(len(ids) - span + 1, bool)) for ids in texts)
            made += _counted([row], span, blocks)
        return made


def _counted(
    rows: Sequence[Ids], span: int, blocks: Iterator[tuple[npt.NDArray[np.integer], npt.NDArray[np.bool_]]]
) -> list[npt.NDArray[np.int64]]:
    """Count the spans of rows in blocks of tokens; a match by hash is compared token by token."""
    own = [span_hashes(row, span) for row in rows]
    sizes = [len(hashes) for hashes in own]
    wanted, first, inverse = np.unique(
        np.concatenate([np.zeros(0, np.uint64), *own]), return_index=True, return_inverse=True
    )
    counts = np.zeros(len(wanted), np.int64)
    if len(wanted):
        starts = np.cumsum([0, *sizes])
        owner = np.searchsorted(starts, first, side="right") - 1
        texts = np.stack([rows[row][at : at + span] for row, at in zip(owner, first - starts[owner], strict=True)])
        may = np.zeros(1 << _BITS, bool)
        may[wanted >> np.uint64(64 - _BITS)] = True
        for ids, inside in blocks:
            hashes = span_hashes(ids, span)[: len(inside)]
            at = np.flatnonzero(inside & may[hashes >> np.uint64(64 - _BITS)])
            place = np.minimum(np.searchsorted(wanted, hashes[at]), len(wanted) - 1)
            hit = wanted[place] == hashes[at]
            at, place = at[hit], place[hit]
            for low in range(0, len(at), 1 << 14):
                mine, theirs = at[low : low + (1 << 14)], place[low : low + (1 << 14)]
                same = (ids[mine[:, None] + np.arange(span)].astype(np.int64) == texts[theirs]).all(1)
                np.add.at(counts, theirs[same], 1)
    return [part.astype(np.int64) for part in np.split(counts[inverse], np.cumsum(sizes)[:-1])] if rows else []


def copied_tokens(row: Ids, counts: npt.NDArray[np.int64], span: int = SPAN) -> npt.NDArray[np.bool_]:
    """Return bool[n], which tokens of a row lie in a span that stands in training and is no mere repetition."""
    marks = np.zeros(len(row), bool)
    for at in np.flatnonzero(counts > 0).tolist():
        if len(np.unique(row[at : at + span])) >= LEAST_DISTINCT:
            marks[at : at + span] = True
    return marks
