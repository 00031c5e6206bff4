"""A second opinion on some of the reported pairs: their shingles as text, made in plain Python without any kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.corpus.batch import Annotation, DocBatch
from dataaudit.kernels.plain_words import text_shingles, words_of
from dataaudit.link.places import spread
from dataaudit.link.second_pass import Encode
from dataaudit.manifest.places import places_of, rows_of, shards_of

WANTED = pa.schema([("shard", pa.int32()), ("row", pa.int64())])
CHECKS = pa.schema([("row", pa.int64()), ("digests", pa.large_list(pa.binary(16)))])
"""Ascending digests of a document's distinct shingles."""
MOST_BYTES = 1 << 14
"""Longer documents are not checked: plain Python takes two seconds for a megabyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Some of the reported pairs."""

    lefts: np.ndarray
    """int64[p] places of the earlier documents."""
    rights: np.ndarray
    """int64[p] places of the later ones."""

    def wanted(self) -> pa.Table:
        """Return what to read again, of schema :data:`WANTED`."""
        places = np.unique(np.concatenate([self.lefts, self.rights]))
        return pa.table([shards_of(places), rows_of(places)], schema=WANTED)


def sample_pairs(members: pa.Table, edges: pa.Table, size: int) -> Sample:
    """Draw reported pairs by a hash of their places, those of equal words among them.

    Args:
        members: Of schema :data:`dataaudit.metrics.near_dup.classes.CLASS_MEMBERS`.
        edges: left, right of the verified pairs.
        size: Pairs to draw; all when there are fewer.
    """
    later = members.filter(pc.not_equal(members["first"], members["place"]))
    lefts = np.concatenate([later["first"].to_numpy(), edges["left"].to_numpy()])
    rights = np.concatenate([later["place"].to_numpy(), edges["right"].to_numpy()])
    with np.errstate(over="ignore"):
        drawn = spread((spread(lefts) * np.uint64(3) + spread(rights)).view(np.int64))
    chosen = np.lexsort((rights, lefts, drawn))[:size]
    return Sample(lefts=lefts[chosen], rights=rights[chosen])


@dataclass(frozen=True, slots=True, kw_only=True)
class NearChecks:
    """SecondPassTask: makes the shingles of documents as text."""

    name: ClassVar[str] = "near_checks"
    version: ClassVar[str] = "1"
    needs: ClassVar[tuple[Annotation[Any], ...]] = ()
    emits: ClassVar[Mapping[str, pa.Schema]] = MappingProxyType({})
    ngram: int
    """Words of a shingle."""

    def run(self, batch: DocBatch, wanted: pa.Table, encode: Encode) -> dict[str, pa.Table]:
        """Return ``checks`` of the documents that are not too long."""
        del wanted, encode
        chosen = np.flatnonzero(batch.num_bytes() <= MOST_BYTES)
        texts = batch.texts.take(pa.array(chosen)).to_pylist()
        digests = [text_shingles([word.text for word in words_of(text)], self.ngram) for text in texts]
        return {"checks": pa.table([batch.rows[chosen], pa.array(digests, CHECKS.field(1).type)], schema=CHECKS)}


def count_right(sample: Sample, shards: np.ndarray, checks: pa.Table, threshold: float) -> tuple[int, int]:
    """Return how many pairs were checked, and how many of them are near-duplicates by their text.

    Args:
        sample: The pairs.
        shards: int32[c] shard of each check.
        checks: row (of the shard), digests.
        threshold: Jaccard similarity of a near-duplicate.
    """
    places = places_of(shards, checks["row"].to_numpy()).tolist()
    digests = dict(zip(places, map(frozenset, checks["digests"].to_pylist()), strict=True))
    checked = right = 0
    for left, right_one in zip(sample.lefts.tolist(), sample.rights.tolist(), strict=True):
        if left in digests and right_one in digests:
            first, second = digests[left], digests[right_one]
            checked += 1
            right += len(first & second) / len(first | second) >= threshold
    return checked, right
