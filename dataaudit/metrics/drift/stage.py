"""``token_kl_drift``: the divergence of token counts from a reference manifest's, what chance gives, the top tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataaudit.base.divergence import (
    CONFIDENCE,
    NULL_FACTOR,
    clump_size,
    divergences,
    js_terms,
    kl_terms,
    pool_counts,
    smoothed,
)
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Metric, Scope, Status, rounded
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.drift.definition import METRIC
from dataaudit.scan.annotators import TOKENS, num_tokens
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.corpus.tokens import TokenizerFile
from dataaudit.scan.corpus.tokens.spec import vocabulary_pieces
from dataaudit.scan.kernels.counting import count_ids
from dataaudit.scan.stages.base import Context, Stage, StageDefaults
from dataaudit.scan.stages.partial import (
    FOLDED,
    NO_HISTOGRAM,
    NO_REFERENCE,
    OTHER,
    OTHER_TOKENIZER,
    Counts,
    Partial,
    Reference,
    TableShape,
    by_source,
    token_shape,
    token_table,
    whole,
)

STATS = ("kl", "js", "kl_bias", "kl_excess")
_EMPTY = "empty_denominator"
TOP_TOKENS = 20
"""Tokens that are listed for a scope."""
TOP_SOURCES = 100
"""Sources of a split, the largest by tokens, whose tokens are listed."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """KL(now || reference), Jensen-Shannon divergence, and the KL that chance alone gives on average; nats."""

    kl: float
    js: float
    bias: float | None
    """KL that chance alone gives on average; None when the documents do not make two halves."""


def vocabulary(table: pa.Table, context: Context) -> int:
    """Return the size of the vocabulary: that of the tokenizer, or more when larger tokens occur."""
    largest = int(table["token"].to_numpy().max(initial=-1))
    known = 0 if context.reference is None else context.reference.size
    return max(context.vocab_size, largest + 1, known)


def comparison(counts: Counts, scope: Scope, context: Context) -> Comparison | str:
    """Compare with the same split and source of the reference, or return the code of the reason why not."""
    reference = _reference_counts(scope, context, len(counts.all))
    if isinstance(reference, str):
        return reference
    if not counts.all.any():
        return _EMPTY
    kl, js = divergences(counts.all, reference)
    other_half = counts.all - counts.half
    bias = None
    if counts.half.any() and other_half.any():
        bias = pool_counts(counts.all, reference).kl_null(clump_size(counts.half, other_half))
    return Comparison(kl, js, bias)


def drift_metrics(counts: Counts, scope: Scope, context: Context, version: str) -> list[Metric]:
    """Return the records of a scope."""
    tokens = int(counts.all.sum())
    record = partial(Metric, metric=METRIC, scope=scope, unit="nats", n=tokens, denominator=tokens, version=version)

    def without_value(stats: Sequence[str], status: Status, reason: str) -> list[Metric]:
        return [record(stat=stat, value=None, status=status, reason=reason) for stat in stats]

    if tokens == 0 and context.reference is not None:
        return without_value(STATS, "not_evaluated", _EMPTY)
    result = comparison(counts, scope, context)
    if isinstance(result, str):
        return without_value(STATS, "not_applicable", result)
    records = [record(stat="kl", value=result.kl), record(stat="js", value=result.js)]
    if result.bias is None:
        return records + without_value(STATS[2:], "not_evaluated", "too_few_documents")
    low, high = result.bias / NULL_FACTOR, result.bias * NULL_FACTOR
    estimate = partial(record, method="estimated", confidence=CONFIDENCE)
    return [
        *records,
        estimate(stat="kl_bias", value=result.bias, low=low, high=high),
        estimate(stat="kl_excess", value=result.kl - result.bias, low=result.kl - high, high=result.kl - low),
    ]


def top_tokens(tables: Partial, context: Context) -> Iterator[dict[str, Any]]:
    """Yield rows of the table ``drift`` without ``piece``: of a scope, and of each of its largest sources."""
    table = tables["histogram"]
    size = vocabulary(table, context)
    yield from _ranked(whole(table, size).all, context.scope, context)
    if context.scope.split is None:
        return
    sums = {source: int(counts.all.sum()) for source, counts in by_source(table, size)}
    largest = set(sorted(sums, key=lambda name: (-sums[name], name.encode()))[:TOP_SOURCES])
    for source, counts in by_source(table, size):
        if source in largest:
            yield from _ranked(counts.all, Scope(split=context.scope.split, source=source), context)


def left_out(tables: Partial) -> int:
    """Return how many sources of a split are too small for their tokens to be listed."""
    return max(0, len(tables["histogram"]["source"].unique()) - TOP_SOURCES)


def _ranked(counts: np.ndarray, scope: Scope, context: Context) -> Iterator[dict[str, Any]]:
    reference = _reference_counts(scope, context, len(counts))
    if isinstance(reference, str) or not counts.any():
        return
    now, then = smoothed(counts), smoothed(reference)
    js, kl = js_terms(now, then), kl_terms(now, then)
    likely = np.argsort(-js, kind="stable")[: 2 * TOP_TOKENS]  # rounding may swap neighbours
    ordered = sorted((-rounded(float(js[token])), int(token)) for token in likely if js[token] > 0)
    for rank, (_, token) in enumerate(ordered[:TOP_TOKENS], start=1):
        yield {
            "split": scope.split,
            "source": scope.source,
            "token": token,
            "count": int(counts[token]),
            "reference_count": int(reference[token]),
            "kl": rounded(float(kl[token])),
            "js": rounded(float(js[token])),
            "rank": rank,
        }


def _reference_counts(scope: Scope, context: Context, size: int) -> np.ndarray | str:
    reference = context.reference
    if reference is None:
        return NO_REFERENCE
    if reference.problem:
        return reference.problem
    if scope.source == OTHER and (context.folded or reference.folded):
        return FOLDED
    counts = reference.counts(scope.split, scope.source, size)
    return reference.absence(scope.split, scope.source) if counts is None else counts


_HALF_BYTE = 8
"""Byte of a document's digest whose lowest bit draws its half; the encoders' sample uses the first eight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram(StageDefaults):
    """Counts every token id per source, in all documents and in a random half of them.

    The half is drawn by the documents' digests: equal documents are in the same one. How far the halves are apart
    shows what chance alone does to the distribution (see :mod:`dataaudit.base.divergence`).
    """

    max_sources: int = 200
    """Sources, the largest by tokens, that have their own histogram; the others are added up as `other`."""

    name: ClassVar[str] = "histogram"
    version: ClassVar[str] = "1"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (TOKENS,)

    def __post_init__(self) -> None:
        """Check the parameters."""
        if self.max_sources < 1:
            raise ValueError(f"max_sources: expected at least 1, found {self.max_sources}")

    def shapes(self) -> Mapping[str, TableShape]:
        """Occurrences by source and token, all and those of one half."""
        return {"histogram": token_shape()}

    def map(self, batch: DocBatch) -> Partial:
        """Count a batch."""
        assert batch.digests is not None
        names = sorted(batch.source_names, key=str.encode)
        rank = {name: number for number, name in enumerate(names)}
        ranks = np.array([rank[name] for name in batch.source_names], dtype=np.int64)
        marks = 2 * ranks[batch.source_codes] + (batch.digests[:, _HALF_BYTE] & 1)
        ids = batch.get(TOKENS).ids
        size = int(ids.max(initial=0)) + 1
        groups, tokens, counts, half = count_ids(ids, num_tokens(batch), marks, size, max(1, len(names)))
        return {"histogram": token_table(names, groups, tokens, [counts, half])}

    def finalize(self, partial: Partial, context: Context) -> list[Metric]:
        """Return the drift of the scope and of each source against the same in the reference.

        Without a reference, or with one that nothing can be compared with, the scope alone has records that say why.
        """
        table = partial["histogram"]
        size = vocabulary(table, context)
        total = whole(table, size)
        metrics = drift_metrics(total, context.scope, context, self.version)
        if context.reference is None or context.reference.problem:
            return metrics
        for source, counts in by_source(table, size):
            scope = replace(context.scope, source=source)
            metrics += drift_metrics(counts, scope, context, self.version)
        return metrics

    def shard_columns(self, partial: Partial) -> dict[str, float | int | None]:
        """Nothing without a reference; see :meth:`compare_shard`."""
        del partial
        return {}

    def read_reference(self, manifest: Manifest, tokenizer: TokenizerFile) -> tuple[Reference, str]:
        """Return the token counts of a manifest, and why they cannot be compared where they cannot."""
        own = manifest.core.tokenizer
        if (own.sha256, own.format, own.vocab_size) != (tokenizer.sha256, tokenizer.format, tokenizer.vocab_size):
            return Reference(TABLES["histogram"].schema.empty_table(), problem=OTHER_TOKENIZER), (
                f"counted with another tokenizer ({own.name}, this build uses {tokenizer.name}), so its tokens cannot"
                f" be compared: {METRIC} is not_applicable"
            )
        table = manifest.table("histogram")
        if table.num_rows == 0:
            problem = f"it holds no token counts (its stage `histogram` was off): {METRIC} is not_applicable"
            return Reference(table, problem=NO_HISTOGRAM), problem
        rows = manifest.table("sources", ["split", "source", "tokens"]).to_pylist()
        sources = [(row["split"], row["source"]) for row in rows if row["tokens"]]
        kept = set(table["source"].unique().to_pylist())
        named = {source for _, source in sources}
        limit = manifest.core.config.get("max_sources", len(named) + 1)
        folded = bool(named - kept) or (OTHER in named and len(named) >= limit)
        return Reference(table, sources=sources, folded=folded), ""

    def compare_shard(self, partial: Partial, context: Context) -> dict[str, float | int | None]:
        """Fill the drift of a shard against its split in the reference; null where there is none."""
        size = vocabulary(partial["histogram"], context)
        result = comparison(whole(partial["histogram"], size), context.scope, context)
        if isinstance(result, str):
            return dict.fromkeys(("token_kl_drift", "token_js_drift", "token_kl_bias"))
        return {"token_kl_drift": result.kl, "token_js_drift": result.js, "token_kl_bias": result.bias}


def drift_table(
    stage: Stage,
    merged: Mapping[str, Mapping[str, Partial]],
    context: Callable[[str | None], Context],
    tokenizer: TokenizerFile,
    note: Callable[[str], None],
) -> dict[str, pa.Table]:
    """Return the top tokens of the dataset, of each split and of its largest sources; none without a reference."""
    reference = context(None).reference
    if reference is None or reference.problem:
        return {}
    rows: list[dict[str, Any]] = []
    for split, partials in merged.items():
        rows += top_tokens(partials[stage.name], context(split or None))
        if split and (more := left_out(partials[stage.name])):
            note(f"drift: tokens are listed for {TOP_SOURCES} sources of {split}; {more:,} smaller ones not")
    pieces = vocabulary_pieces(tokenizer, (row["token"] for row in rows))
    for row in rows:
        row["piece"] = pieces[row["token"]]
    return {"drift": pa.Table.from_pylist(rows, schema=TABLES["drift"].schema)}
