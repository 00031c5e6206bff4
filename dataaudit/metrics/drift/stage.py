"""Token histogram, and ``token_kl_drift``: how far its unigram distribution is from a reference manifest's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dataaudit.annotators.tokens import TOKENS, num_tokens
from dataaudit.corpus.batch import Annotation, DocBatch
from dataaudit.corpus.tokens import TokenizerFile
from dataaudit.kernels.counting import count_ids
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Metric
from dataaudit.metrics.drift.comparison import comparison, drift_metrics, read_reference, vocabulary
from dataaudit.stages.base import Context, StageDefaults
from dataaudit.stages.partial import Partial, TableShape
from dataaudit.stages.token_counts import Reference, by_source, token_shape, token_table, whole

_HALF_BYTE = 8
"""Byte of a document's digest whose lowest bit draws its half; the sample of the encoders uses the first eight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram(StageDefaults):
    """Counts every token id per source, in all documents and in a random half of them.

    The half is drawn by the documents' digests: equal documents are in the same one. How far the halves are apart
    shows what chance alone does to the distribution (see :mod:`dataaudit.divergence`).
    """

    max_sources: int = 200
    """Sources, the largest by tokens, whose histograms are kept apart; the others are added up as `other`."""

    name: ClassVar[str] = "histogram"
    version: ClassVar[str] = "1"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (TOKENS,)

    def __post_init__(self) -> None:
        """Check the parameters.

        Raises:
            ValueError: ``max_sources`` is below 1.
        """
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
