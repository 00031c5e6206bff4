"""Tags that travel as columns of a loader's own records, a number a token, and are collapsed to tags of rows.

Packers, filters and shuffles of other libraries know columns, not tags. A record of one document has the columns
:data:`PLACE`; a row that was packed of several has the two columns :data:`PER_TOKEN`, lists as long as ``input_ids``,
which a packer cuts and joins as it cuts and joins the tokens. Both say the same::

    document   shard << 40 | row              which document the token is of
    token      epoch << 48 | source << 32 | offset    its pass, its source, and which token of the document it is
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dataaudit.base.errors import TagsError
from dataaudit.training.packing import EPOCH, MERGED, STRETCHES, TARGETS, UNUSED, empty_tags, merged

PLACE = ("shard", "row", "source")
"""Columns of a record that is one document, or one piece of it."""
OPTIONAL = ("epoch", "offset")
"""Columns that may stand beside them: the pass, and which token of its document the record begins with; else 0."""
DOCUMENT, TOKEN = "tag_document", "tag_token"
PER_TOKEN = (DOCUMENT, TOKEN)
"""Columns of a row of several documents."""
COLUMNS = (*PLACE, *OPTIONAL, *PER_TOKEN)

_ROW_BITS, _SOURCE_AT, _EPOCH_AT = 40, 32, 48
_MOST_SOURCES, _MOST_EPOCHS = (1 << 16) - 1, 1 << 15


def token_columns(
    length: int, *, shard: int, row: int, source: int, epoch: int = 0, offset: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return what names each token of a document, or of a piece of it."""
    if not (0 <= row < 1 << _ROW_BITS and 0 <= shard < 1 << 22 and offset >= 0 and offset + length < 1 << _SOURCE_AT):
        raise TagsError(f"shard {shard}, row {row}, token {offset}: these name no document")
    if not (-1 <= source < _MOST_SOURCES and 0 <= epoch < _MOST_EPOCHS):
        raise TagsError(f"source {source}, epoch {epoch}: expected -1 to {_MOST_SOURCES - 1}, 0 to {_MOST_EPOCHS - 1}")
    documents = np.full(length, shard << _ROW_BITS | row, dtype=np.int64)
    first = epoch << _EPOCH_AT | (source + 1) << _SOURCE_AT | offset
    return documents, np.arange(first, first + length, dtype=np.int64)


def tag_tokens(record: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Name the tokens of a record, before it is packed: ``dataset.map(tokenize).map(tag_tokens)``.

    Args:
        record: With ``input_ids`` and the columns :data:`PLACE`.

    Returns:
        The columns :data:`PER_TOKEN`, each int64[tokens].

    Raises:
        TagsError: A column is missing.
    """
    return dict(zip(PER_TOKEN, columns_of(record, len(tokens_of(record))), strict=True))


def tag_tokens_batched(records: Mapping[str, Any]) -> dict[str, list[np.ndarray]]:
    """Name the tokens of many records at once: ``dataset.map(tag_tokens_batched, batched=True)``."""
    names = [name for name in (*PLACE, *OPTIONAL, "input_ids") if name in records]
    each = [tag_tokens(dict(zip(names, values, strict=True))) for values in zip(*map(records.get, names), strict=True)]
    return {name: [record[name] for record in each] for name in PER_TOKEN}


def columns_of(record: Mapping[str, Any], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the two columns of a record, from whichever columns it has: int64[length] each."""
    if DOCUMENT in record and TOKEN in record:
        documents, tokens = (np.asarray(record[name], dtype=np.int64) for name in PER_TOKEN)
        if documents.shape != (length,) or tokens.shape != (length,):
            raise TagsError(
                f"{length:,} tokens, {len(documents):,} of them tagged",
                "What cuts or joins `input_ids` must do the same to `tag_document` and `tag_token`.",
            )
        return documents, tokens
    if missing := [name for name in PLACE if name not in record]:
        raise TagsError(
            f"a record has no column {', '.join(missing)}; it has {', '.join(sorted(record))}",
            "Filters and packers must keep the columns of `tagged_dataset`. Before documents are packed:"
            " dataset.map(tag_tokens).",
        )
    place = {name: int(record[name]) for name in (*PLACE, *OPTIONAL) if name in record}
    return token_columns(length, **place)


def row_tags(
    documents: np.ndarray, tokens: np.ndarray, targets: np.ndarray, *, begin: int, stretches: int | None
) -> np.ndarray:
    """Return the tags of one row."""
    new = np.flatnonzero((np.diff(documents) != 0) | (np.diff(tokens) != 1)) + 1
    firsts = np.concatenate([[0], new]) if len(documents) else np.zeros(0, np.int64)
    padding = int(begin > 0 or not len(firsts))
    tags = np.zeros((len(firsts) + padding, empty_tags(1, 1).shape[2]), dtype=np.int64)
    starts = np.concatenate([np.zeros(padding, np.int64), firsts + begin])
    named, stamped = documents[firsts], tokens[firsts]
    tags[:padding, :3] = MERGED, -1, -1
    tags[padding:, 0], tags[padding:, 1] = named >> _ROW_BITS, named & ((1 << _ROW_BITS) - 1)
    tags[padding:, 2] = ((stamped >> _SOURCE_AT) & ((1 << 16) - 1)) - 1
    tags[padding:, EPOCH] = stamped >> _EPOCH_AT
    tags[:, 4] = starts
    tags[padding:, 5] = stamped & ((1 << _SOURCE_AT) - 1)
    tags[:, TARGETS] = np.add.reduceat(targets, starts) if len(targets) else 0
    return tags if stretches is None else merged(tags, stretches)


def batch_tags(rows: Iterable[np.ndarray], stretches: int | None) -> np.ndarray:
    """Return the tags of a batch: int64[B, K, 7]."""
    each = list(rows)
    most = max((len(values) for values in each), default=1)
    tags = empty_tags(len(each), stretches or -(-most // STRETCHES) * STRETCHES)
    for place, values in enumerate(each):
        tags[place, : len(values)] = values
    return tags


def tokens_of(record: Mapping[str, Any]) -> Any:
    """Return the tokens of a record; one that has none is an error."""
    if "input_ids" not in record:
        raise TagsError(
            f"a record has no column input_ids; it has {', '.join(sorted(record))}",
            "`tagged_dataset(documents)` has it; texts of your own are encoded before.",
        )
    return record["input_ids"]


__all__ = [
    "COLUMNS",
    "DOCUMENT",
    "PER_TOKEN",
    "PLACE",
    "TOKEN",
    "UNUSED",
    "batch_tags",
    "columns_of",
    "row_tags",
    "tag_tokens",
    "tag_tokens_batched",
    "token_columns",
    "tokens_of",
]
