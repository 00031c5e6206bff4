"""The table of the tokens that drift most, with their names in the vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from dataaudit.corpus.tokens import TokenizerFile
from dataaudit.corpus.tokens.spec import vocabulary_pieces
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.drift.comparison import TOP_SOURCES, left_out, top_tokens
from dataaudit.stages.base import Context, Stage
from dataaudit.stages.partial import Partial


def drift_table(
    stage: Stage,
    merged: Mapping[str, Mapping[str, Partial]],
    context: Callable[[str | None], Context],
    tokenizer: TokenizerFile,
    note: Callable[[str], None],
) -> dict[str, pa.Table]:
    """Return the top tokens of the dataset, of each split and of its largest sources; none without a reference.

    Args:
        stage: The stage that counted.
        merged: Partials by split (empty: all of them) and stage.
        context: Context of a split, or of all.
        tokenizer: Whose vocabulary names the tokens.
        note: Where to say what is left out.
    """
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
