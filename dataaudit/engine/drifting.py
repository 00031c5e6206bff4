"""The table of the tokens that drift most, with their names in the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from dataaudit.corpus.tokens import TokenizerFile
from dataaudit.corpus.tokens.spec import vocabulary_pieces
from dataaudit.engine.progress import Progress
from dataaudit.engine.tables import Setting
from dataaudit.manifest.tables import TABLES
from dataaudit.stages.base import Stage
from dataaudit.stages.drift import TOP_SOURCES, left_out, top_tokens
from dataaudit.stages.histogram import Histogram
from dataaudit.stages.partial import Partial


def drift_table(
    merged: Mapping[str, Mapping[str, Partial]],
    stages: Sequence[Stage],
    setting: Setting,
    tokenizer: TokenizerFile,
    progress: Progress,
) -> pa.Table:
    """Return the top tokens of the dataset, of each split and of its largest sources; empty without a reference.

    Args:
        merged: Partials by split (empty: all of them) and stage.
        stages: Stages that ran.
        setting: With the reference.
        tokenizer: Whose vocabulary names the tokens.
        progress: Where to say what is left out.
    """
    schema = TABLES["drift"].schema
    stage = next((stage for stage in stages if stage.name == Histogram.name), None)
    if stage is None or setting.reference is None or setting.reference.problem:
        return schema.empty_table()
    found = []
    for split, partials in merged.items():
        partial = partials[stage.name]
        found += [(split or None, token) for token in top_tokens(partial, setting.context(stage, split or None))]
        if split and (more := left_out(partial)):
            progress.note(f"drift: tokens are listed for {TOP_SOURCES} sources of {split}; {more:,} smaller ones not")
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
    return pa.Table.from_pylist(rows, schema=schema)
