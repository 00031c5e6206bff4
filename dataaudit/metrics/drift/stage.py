"""Token histogram, and ``token_kl_drift``: how far its unigram distribution is from a reference manifest's.

``token_kl_drift``: the divergence of token counts from a reference, what chance gives, and which tokens make it.

The table of the tokens that drift most, with their names in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
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

METRIC = "token_kl_drift"
STATS = ("kl", "js", "kl_bias", "kl_excess")
_EMPTY = "empty_denominator"
TOP_TOKENS = 20
"""Tokens that are listed for a scope."""
TOP_SOURCES = 100
"""Sources of a split, the largest by tokens, whose tokens are listed."""


def read_reference(manifest: Manifest, tokenizer: TokenizerFile) -> tuple[Reference, str]:
    """Return the token counts of a reference manifest, and why they cannot be compared where they cannot."""
    told = manifest.core.tokenizer
    if (told.sha256, told.format, told.vocab_size) != (tokenizer.sha256, tokenizer.format, tokenizer.vocab_size):
        return Reference(TABLES["histogram"].schema.empty_table(), problem=OTHER_TOKENIZER), (
            f"counted with another tokenizer ({told.name}, this build uses {tokenizer.name}), so its tokens cannot be"
            f" compared: {METRIC} is not_applicable"
        )
    table = manifest.table("histogram")
    if table.num_rows == 0:
        return Reference(table, problem=NO_HISTOGRAM), (
            f"it holds no token counts (its stage `histogram` was off): {METRIC} is not_applicable"
        )
    rows = manifest.table("sources", ["split", "source", "tokens"]).to_pylist()
    sources = [(row["split"], row["source"]) for row in rows if row["tokens"]]
    kept = set(table["source"].unique().to_pylist())
    named = {source for _, source in sources}
    limit = manifest.core.config.get("max_sources", len(named) + 1)
    folded = bool(named - kept) or (OTHER in named and len(named) >= limit)
    return Reference(table, sources=sources, folded=folded), ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Token counts against those of the reference."""

    kl: float
    """KL(now || reference), nats."""
    js: float
    """Jensen-Shannon divergence, nats."""
    bias: float | None
    """KL that chance alone gives on average, nats; None when the documents do not make two halves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopToken:
    """One of the tokens that make a divergence."""

    source: str | None
    token: int
    count: int
    reference_count: int
    kl: float
    """What it adds to KL, nats; negative where it became rarer."""
    js: float
    """What it adds to the Jensen-Shannon divergence, nats; never negative."""
    rank: int
    """From 1, by ``js``; equal ones by token."""


def vocabulary(table: pa.Table, context: Context) -> int:
    """Return the size of the vocabulary: the tokenizer's, and never less than what occurs."""
    largest = int(table["token"].to_numpy().max(initial=-1))
    known = 0 if context.reference is None else context.reference.size
    return max(context.vocab_size, largest + 1, known)


def comparison(counts: Counts, scope: Scope, context: Context) -> Comparison | str:
    """Compare with the same split and source of the reference, or return the code of why that cannot be."""
    found = _reference_counts(scope, context, len(counts.all))
    if isinstance(found, str):
        return found
    if not counts.all.any():
        return _EMPTY
    kl, js = divergences(counts.all, found)
    other_half = counts.all - counts.half
    bias = None
    if counts.half.any() and other_half.any():
        bias = pool_counts(counts.all, found).kl_null(clump_size(counts.half, other_half))
    return Comparison(kl, js, bias)


def drift_metrics(counts: Counts, scope: Scope, context: Context, version: str) -> list[Metric]:
    """Return the records of one scope."""
    tokens = int(counts.all.sum())
    if tokens == 0 and context.reference is not None:
        return without_numbers(scope, "not_evaluated", _EMPTY, version)
    found = comparison(counts, scope, context)
    if isinstance(found, str):
        return without_numbers(scope, "not_applicable", found, version, tokens)

    def record(stat: str, value: float, bounds: tuple[float, float] | None = None) -> Metric:
        low, high = bounds or (None, None)
        return Metric(
            metric=METRIC,
            stat=stat,
            scope=scope,
            unit="nats",
            value=value,
            low=low,
            high=high,
            n=tokens,
            denominator=tokens,
            confidence=None if bounds is None else CONFIDENCE,
            method="exact" if bounds is None else "estimated",
            version=version,
        )

    records = [record("kl", found.kl), record("js", found.js)]
    if found.bias is None:
        return records + [
            _no_number(stat, scope, "not_evaluated", "too_few_documents", version, tokens) for stat in STATS[2:]
        ]
    low, high = found.bias / NULL_FACTOR, found.bias * NULL_FACTOR
    return [
        *records,
        record("kl_bias", found.bias, (low, high)),
        record("kl_excess", found.kl - found.bias, (found.kl - high, found.kl - low)),
    ]


def top_tokens(partial: Partial, context: Context) -> Iterator[TopToken]:
    """Yield the tokens that make the divergence of a scope, and of each of its largest sources."""
    table = partial["histogram"]
    size = vocabulary(table, context)
    yield from _ranked(whole(table, size).all, context.scope, context)
    if context.scope.split is None:
        return
    sums = {source: int(counts.all.sum()) for source, counts in by_source(table, size)}
    largest = set(sorted(sums, key=lambda name: (-sums[name], name.encode()))[:TOP_SOURCES])
    for source, counts in by_source(table, size):
        if source in largest:
            yield from _ranked(counts.all, Scope(split=context.scope.split, source=source), context)


def left_out(partial: Partial) -> int:
    """Return how many sources of a split have no listed tokens because there are too many."""
    return max(0, len(partial["histogram"]["source"].unique()) - TOP_SOURCES)


def without_numbers(scope: Scope, status: Status, reason: str, version: str, tokens: int = 0) -> list[Metric]:
    """Return records that say why there is no number."""
    return [_no_number(stat, scope, status, reason, version, tokens) for stat in STATS]


def _ranked(counts: np.ndarray, scope: Scope, context: Context) -> Iterator[TopToken]:
    found = _reference_counts(scope, context, len(counts))
    if isinstance(found, str) or not counts.any():
        return
    now, reference = smoothed(counts), smoothed(found)
    js, kl = js_terms(now, reference), kl_terms(now, reference)
    likely = np.argsort(-js, kind="stable")[: 2 * TOP_TOKENS]  # rounding may swap neighbours
    ordered = sorted((-rounded(float(js[token])), int(token)) for token in likely if js[token] > 0)
    for rank, (_, token) in enumerate(ordered[:TOP_TOKENS], start=1):
        yield TopToken(
            source=scope.source,
            token=token,
            count=int(counts[token]),
            reference_count=int(found[token]),
            kl=rounded(float(kl[token])),
            js=rounded(float(js[token])),
            rank=rank,
        )


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


def _no_number(stat: str, scope: Scope, status: Status, reason: str, version: str, tokens: int) -> Metric:
    return Metric(
        metric=METRIC,
        stat=stat,
        scope=scope,
        unit="nats",
        value=None,
        n=tokens,
        denominator=tokens,
        status=status,
        reason=reason,
        version=version,
    )


_HALF_BYTE = 8
"""Byte of a document's digest whose lowest bit draws its half; the sample of the encoders uses the first eight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram(StageDefaults):
    """Counts every token id per source, in all documents and in a random half of them.

    The half is drawn by the documents' digests: equal documents are in the same one. How far the halves are apart
    shows what chance alone does to the distribution (see :mod:`dataaudit.base.divergence`).
    """

    max_sources: int = 200
    """Sources, the largest by tokens, whose histograms are kept apart; the others are added up as `other`."""

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
        """Count one batch."""
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
        return read_reference(manifest, tokenizer)

    def compare_shard(self, partial: Partial, context: Context) -> dict[str, float | int | None]:
        """Fill the drift of a shard against its split in the reference; null where there is none."""
        size = vocabulary(partial["histogram"], context)
        found = comparison(whole(partial["histogram"], size), context.scope, context)
        if isinstance(found, str):
            return dict.fromkeys(("token_kl_drift", "token_js_drift", "token_kl_bias"))
        return {"token_kl_drift": found.kl, "token_js_drift": found.js, "token_kl_bias": found.bias}


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
    found = []
    for split, partials in merged.items():
        partial = partials[stage.name]
        found += [(split or None, token) for token in top_tokens(partial, context(split or None))]
        if split and (more := left_out(partial)):
            note(f"drift: tokens are listed for {TOP_SOURCES} sources of {split}; {more:,} smaller ones not")
    pieces = vocabulary_pieces(tokenizer, (token.token for _, token in found))
    rows = [
        {
            "split": split,
            "source": token.source,
            "token": token.token,
            "piece": pieces[token.token],
            "count": token.count,
            "reference_count": token.reference_count,
            "kl": token.kl,
            "js": token.js,
            "rank": token.rank,
        }
        for split, token in found
    ]
    return {"drift": pa.Table.from_pylist(rows, schema=TABLES["drift"].schema)}
