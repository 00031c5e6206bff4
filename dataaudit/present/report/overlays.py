"""Old against new: the distributions of both manifests over each other, of lengths, tokens and scores of the screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter

import numpy as np
import pyarrow.compute as pc

from dataaudit.base.render.blocks import Block, Figure, Prose, Steps, column, table_of
from dataaudit.base.render.line import Line, Name, say, share
from dataaudit.manifest.core import tokenizer_of
from dataaudit.manifest.load import Manifest
from dataaudit.metrics.lengths.definition import PER_OCTAVE, documents_by_length, edges_of, half_octave

_SPLITS = 3
_SCREENED = 1e-5
"""Share of a shard's documents from which bins of scores differ; less, 0 among it, is the first bin."""
Bins = Mapping[int, float]
"""Weight by bin; a bin is half an octave, by its number."""


def overlays(old: Manifest, new: Manifest) -> tuple[Block, ...]:
    """Return a figure for each distribution that both manifests have, or why there is none."""
    blocks: list[Block] = []
    if tokenizer_of(old.core) == tokenizer_of(new.core):
        blocks += [*_lengths(old, new), *_tokens(old, new)]
    else:
        text = "Lengths and tokens are not drawn over each other: the tokenizers differ."
        blocks.append(Prose(text=text, tone="quiet"))
    return (*blocks, *_scores(old, new))


def _lengths(old: Manifest, new: Manifest) -> Iterator[Figure]:
    before, now = documents_by_length(old), documents_by_length(new)
    both = [split.name for split in new.core.splits if before.get(split.name) and now.get(split.name)]
    for number, split in enumerate(both[:_SPLITS]):
        title = say("Tokens of a document in {}, before and now", Name(split, 60))
        note = "Share of the documents by length; the axis is logarithmic. Dashed: before."
        yield _figure(f"chart-lengths-before-{number}", title, before[split], now[split], "tokens of a document", note)


def _tokens(old: Manifest, new: Manifest) -> Iterator[Figure]:
    """Yield the share of the text that tokens of a rank make: both by the ranks of the old manifest."""
    size = max(old.core.tokenizer.vocab_size, new.core.tokenizer.vocab_size)
    before, now = _counts(old, size), _counts(new, size)
    if not before.any() or not now.any():
        return
    order = np.argsort(-before, kind="stable")
    ranks = np.floor(np.log2(np.arange(1, size + 1)) * PER_OCTAVE).astype(np.int64)
    weights = [dict(enumerate(np.bincount(ranks, weights=counts[order]).tolist())) for counts in (before, now)]
    yield _figure(
        "chart-tokens-before",
        "Tokens by how frequent they were, before and now",
        weights[0],
        weights[1],
        "rank of the token in the baseline",
        "Share of all tokens, by the rank that a token has in the baseline; the axis is logarithmic. Dashed: before.",
    )


def _counts(manifest: Manifest, size: int) -> np.ndarray:
    table = manifest.table("histogram", ["token", "count"])
    return np.bincount(table["token"].to_numpy(), weights=table["count"].to_numpy(), minlength=size)[:size]


def _scores(old: Manifest, new: Manifest) -> Iterator[Figure]:
    """Yield the documents by what the screen for toxic text found of their shards: no score of a document is kept."""
    before, now = _screened(old), _screened(new)
    if not before or not now:
        return
    yield _figure(
        "chart-screen-before",
        "Toxic text by the screen, before and now",
        before,
        now,
        "share of a shard's documents over the screen's threshold",
        "Share of the documents, by the score of their shard: the share of it that the screen calls toxic. The first"
        " bin holds 0, too. Dashed: before.",
        unit=_SCREENED,
    )


def _screened(manifest: Manifest) -> Bins:
    table = manifest.table("shards", ["documents", "toxicity_screen"])
    table = table.filter(pc.is_valid(table["toxicity_screen"]))
    bins = Counter[int]()
    for row in table.to_pylist():
        bins[half_octave(max(row["toxicity_screen"], _SCREENED) / _SCREENED)] += row["documents"] or 0
    return bins if any(bins.values()) else {}


def _figure(name: str, title: Line, before: Bins, now: Bins, what: str, note: str, *, unit: float = 1.0) -> Figure:
    """Return both distributions as outlines over the same bins, with the bins as a table."""
    used = [number for bins in (before, now) for number, weight in bins.items() if weight]
    span = range(min(used), max(used) + 1)
    shares = [_shares(bins, span) for bins in (before, now)]
    edges = edges_of(span, unit)
    words = [f"{low:.3g} to {high:.3g}" for low, high in pairwise(edges)]
    most = max(range(len(span)), key=lambda at: abs(shares[1][at] - shares[0][at]))
    moved = sum(abs(item - other) for item, other in zip(*shares, strict=True)) / 2
    says = say("{} lie in other bins than before", share(moved))
    if moved:
        says = say(
            "{}; most changed is {}: {} before, {} now", says, words[most], *(share(item[most]) for item in shares)
        )
    return Figure(
        id=name,
        title=title,
        chart=Steps(edges=edges, series=(("before", shares[0]), ("now", shares[1])), unit=what, dashed=frozenset({0})),
        says=say("{}.", says),
        note=say("{} {}.", note, says),
        table=table_of(
            title,
            list(zip(words, *shares, strict=True)),
            column(what, itemgetter(0), kind="name"),
            column("before", itemgetter(1), share),
            column("now", itemgetter(2), share),
            most=None,
            folded=True,
            noun="bin",
        ),
    )


def _shares(bins: Bins, span: Sequence[int]) -> tuple[float, ...]:
    total = sum(bins.values()) or 1.0
    return tuple(bins.get(number, 0) / total for number in span)
