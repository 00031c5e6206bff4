"""``near_dup_rate``: documents with a verified near-duplicate earlier in the manifest's order.

The scan emits classes of equal word sequences, MinHash bands, sketches and signatures; :mod:`.link` joins them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataaudit.manifest.metric import PAIRS_LEFT_OUT, Metric, ratio
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.scan.annotators import WORDS
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.kernels.minhash import band_keys, choose_bands, sketch
from dataaudit.scan.kernels.pairing import MOST_VALUES, CrowdLimits, sketches_of
from dataaudit.scan.stages.base import Context, StageDefaults
from dataaudit.scan.stages.groups import Groups
from dataaudit.scan.stages.partial import Partial, TableShape, group

DOCUMENTS = pa.schema([("key", pa.binary(16)), ("row", pa.int64()), ("source", pa.string())])
"""Documents that have words: the digest of the word sequence (their class), and their source."""
BANDS = pa.schema([("key", pa.binary(8)), ("row", pa.int64()), ("same", pa.uint32())])
"""Bands of these documents: the key, and the first four bytes of the document's class."""
SKETCHES = pa.schema([("key", pa.binary(8)), ("row", pa.int64()), ("sketch", pa.binary())])
"""The first eight bytes of each document's class, and its sketch: see :mod:`dataaudit.scan.kernels.pairing`."""
SIGNATURES = pa.schema([("key", pa.binary(16)), ("row", pa.int64()), ("signature", pa.large_binary())])
"""Each document's class and signature, little-endian uint32 values."""
TABLE = "near_dup"
METRIC, COMPONENTS, OVERLAP = "near_dup_rate", "near_dup_component_rate", "train_val_overlap"
_SUMS = (
    "documents",
    "no_words",
    "duplicates",
    "component_duplicates",
    "cut",
    "undecided",
    "held_out",
    "held_out_worded",
    "leaked",
    "undecided_leaks",
)
_SHAPES = {TABLE: TableShape(keys={"source": pa.string()}, sums=_SUMS)}
_MAX_PERM = 1024
_MAX_NGRAM = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class NearDup(StageDefaults):
    """Emits MinHash bands of every document's word n-grams; the link step finds, and verifies, those that are alike.

    Two documents are near-duplicates when the Jaccard similarity of their sets of word n-grams is at least
    ``threshold``; this is computed exactly for every pair that is reported. Which pairs are looked at is decided by
    bands; how many that misses is measured on variants of the corpus's own documents.
    ``dataaudit explain near-duplicates`` says more.
    """

    threshold: float = 0.8
    """Jaccard similarity of a near-duplicate, from 0.3 to 1."""
    target_recall: float = 0.99
    """Least chance that a pair at the threshold shares a band, from 0.5 to 0.9999."""
    num_perm: int = 128
    """Values of a MinHash signature, from 16 to 1024."""
    ngram: int = 5
    """Words of a shingle, from 1 to 64."""
    small_bucket: int = 32
    """Documents of one band value up to which every two are compared, from 2 to 1024."""
    large_bucket: int = 4096
    """Documents of one band value up to which the signatures of every two are compared, from 2 to 65536."""
    leaders: int = 8
    """First documents of each split that all others of a bucket beyond ``large_bucket`` are compared with, from 1 to
    256."""
    most_candidates: int = 64
    """Earlier documents that one is compared with, from 1 to 4096: of small buckets those that share most bands, and of
    larger ones as many, those with the most similar signatures."""
    recall_documents: int = 2000
    """Documents whose neighbours are looked for among all others, to measure recall; up to 100000."""
    checked_pairs: int = 100
    """Reported pairs that are compared once more, as text and without kernels, to measure precision; up to 10000."""
    signatures: bool = False
    """Whether the manifest keeps the signatures, for joining later corpora and for `export lsh`."""

    name: ClassVar[str] = "near_dup"
    version: ClassVar[str] = "2"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (WORDS,)
    emits: ClassVar[Mapping[str, pa.Schema]] = {
        "documents": DOCUMENTS,
        "bands": BANDS,
        "sketches": SKETCHES,
        "signatures": SIGNATURES,
    }

    def __post_init__(self) -> None:
        """Check the parameters."""
        ranges: dict[str, tuple[float, float]] = {
            "threshold": (0.3, 1),
            "target_recall": (0.5, 0.9999),
            "num_perm": (16, _MAX_PERM),
            "ngram": (1, _MAX_NGRAM),
            "small_bucket": (2, 1024),
            "large_bucket": (2, 1 << 16),
            "leaders": (1, 256),
            "most_candidates": (1, 4096),
            "recall_documents": (0, 100_000),
            "checked_pairs": (0, 10_000),
        }
        for name, (least, most) in ranges.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name}: expected {least} to {most}, found {value}")
        if choose_bands(self.num_perm, self.threshold, self.target_recall) is None:
            raise ValueError(
                f"target_recall: {self.num_perm} values cannot reach {self.target_recall} at {self.threshold};"
                " raise num_perm or lower target_recall"
            )

    def bands(self) -> tuple[int, int]:
        """Return the number of bands and the values of each."""
        chosen = choose_bands(self.num_perm, self.threshold, self.target_recall)
        assert chosen is not None, "checked with the parameters"
        return chosen

    def values(self) -> int:
        """Return the number of values of a sketch."""
        return min(self.num_perm, MOST_VALUES)

    def limits(self) -> CrowdLimits:
        """Return what is compared and kept of large buckets."""
        return CrowdLimits(
            threshold=self.threshold, most=self.most_candidates, large=self.large_bucket, leaders=self.leaders
        )

    def shapes(self) -> Mapping[str, TableShape]:
        """Counts by source; ``map`` counts documents, the link step adds the rest."""
        return _SHAPES

    def map(self, batch: DocBatch) -> Partial:
        """Count the documents, and those without words."""
        counts = dict.fromkeys(_SUMS, np.zeros(len(batch), dtype=np.int64))
        counts["documents"] = np.ones(len(batch), dtype=np.int64)
        counts["no_words"] = (batch.get(WORDS).num_words() == 0).astype(np.int64)
        table = pa.table({"source": batch.sources().cast(pa.string()), **counts})
        return {TABLE: group(_SHAPES[TABLE], table)}

    def emit(self, batch: DocBatch) -> dict[str, pa.Table]:
        """Return classes, bands and sketches of the documents that have words, and signatures if asked for."""
        (bands, rows), words = self.bands(), batch.get(WORDS)
        has_words = words.num_words() > 0
        values, classes = sketch(words.hashes, words.offsets, ngram=self.ngram, num_perm=self.num_perm)
        keys = band_keys(values, bands, rows)[has_words]
        values, classes, numbers = values[has_words], classes[has_words], batch.rows[has_words]
        sources = batch.sources().cast(pa.string()).filter(pa.array(has_words))
        same = np.repeat(classes.view("<u4")[:, 0], bands)
        of_class, of_band = _binary(classes), _binary(keys.reshape(-1, keys.shape[2]))
        sketches = _binary(sketches_of(values)).cast(pa.binary())
        tables = {
            "documents": pa.table([of_class, numbers, sources], schema=DOCUMENTS),
            "bands": pa.table([of_band, np.repeat(numbers, bands), same], schema=BANDS),
            "sketches": pa.table([_binary(classes[:, :8]), numbers, sketches], schema=SKETCHES),
            "signatures": SIGNATURES.empty_table(),
        }
        if self.signatures:
            columns = [of_class, numbers, _binary(values.view(np.uint8)).cast(pa.large_binary())]
            tables["signatures"] = pa.table(columns, schema=SIGNATURES)
        return tables

    def finalize(self, partial: Partial, context: Context) -> MetricRows:
        """Return the rates of the scope and of each source."""
        table = partial[TABLE]
        groups = Groups.of(table, context.scope, self.version)
        sums = {name: groups.sums(table, name) for name in _SUMS}
        documents, duplicates = sums["documents"], sums["duplicates"]
        worded = documents - sums["no_words"]
        undecided, most = sums["undecided"], duplicates + sums["undecided"]
        least, highest = (count / np.maximum(worded, 1) for count in (duplicates, most))
        bounds, sure = (least, least, highest), undecided == 0
        return MetricRows.joined(
            [
                groups.estimates(METRIC, "rate", "ratio", bounds, worded, confidence=1.0, exact=sure),
                groups.unbounded(
                    COMPONENTS,
                    "rate",
                    "ratio",
                    sums["component_duplicates"] / np.maximum(worded, 1),
                    worded,
                    reason=PAIRS_LEFT_OUT,
                    exact=sums["cut"] == 0,
                ),
                groups.counts(METRIC, "documents", duplicates, worded, "documents"),
                groups.counts(METRIC, "undecided", undecided, worded, "documents"),
                groups.counts(METRIC, "no_words", sums["no_words"], documents, "documents"),
                self._leaks({name: int(column[0]) for name, column in sums.items()}, context),
            ]
        )

    def _leaks(self, totals: Mapping[str, int], context: Context) -> list[Metric]:
        """Return the share of held-out documents that are near training documents, if there are any."""
        if not totals["held_out"]:
            return []
        scope = replace(context.scope, split=None, set=context.scope.split)
        leaked, held_out = totals["leaked"], totals["held_out_worded"]
        record = ratio(OVERLAP, "near_dup", leaked, held_out, scope=scope, unit="ratio", version=self.version)
        if not context.trains:
            return [replace(record, value=None, status="not_evaluated", reason="no_training_documents")]
        if not totals["undecided_leaks"]:
            return [record]
        most = (leaked + totals["undecided_leaks"]) / held_out
        return [replace(record, low=record.value, high=most, confidence=1.0, method="estimated")]

    def shard_columns(self, partial: Partial) -> dict[str, float | int | None]:
        """Fill near_dup_rate, near_dup_undecided and no_words."""
        names = ("documents", "no_words", "duplicates", "undecided")
        documents, no_words, duplicates, undecided = (sum(partial[TABLE][name].to_pylist()) for name in names)
        worded = documents - no_words
        rate = duplicates / worded if worded else None
        return {"near_dup_rate": rate, "near_dup_undecided": undecided, "no_words": no_words}


def _binary(values: np.ndarray) -> pa.FixedSizeBinaryArray:
    """Return uint8[n, width] as Arrow's fixed-size binary."""
    buffer = pa.py_buffer(np.ascontiguousarray(values))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(values.shape[1]), len(values), [None, buffer])
