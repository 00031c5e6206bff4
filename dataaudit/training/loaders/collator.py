"""A collator that makes tags of a record's columns, around whichever collator makes the batch.

The layout of the batch is found from it, and checked: every token of every record must be where the layout has it.

- *rows*: a record a row, padded on either side or not at all (packed rows, padded documents);
- *flat*: all records in one row, one after another (``DataCollatorWithFlattening``, TRL's ``padding_free``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dataaudit.base.errors import TagsError
from dataaudit.training.loaders.token_tags import COLUMNS, batch_tags, columns_of, row_tags, tokens_of
from dataaudit.training.packing import Shift, check_shift, check_sizes
from dataaudit.training.segment_losses import IGNORED

TAGS = "tags"
_MATRIX = 2
Columns = tuple[np.ndarray, np.ndarray]


class TaggedCollator:
    """Collates records with the columns of :mod:`dataaudit.training.loaders.token_tags` to a batch with ``tags``.

    Records that carry ``tags`` already, those of :class:`dataaudit.training.PackedDocuments`, are taken too.

    Args:
        collate: Makes the batch of records without those columns: a collator of transformers or TRL, or your own. None:
            rows of one length are stacked to ``input_ids`` and ``labels``.
        shift: ``inner``: labels stand where the inputs do, and the model shifts them, as transformers' do. ``outer``:
            the last token of a row is its last label and no input; only with ``collate=None``.
        stretches: K, places of a row. None: as many as the fullest row of the batch needs.

    Raises:
        ConfigError: An option has no such value.
    """

    def __init__(
        self,
        collate: Callable[[list[dict[str, Any]]], Any] | None = None,
        *,
        shift: Shift = "inner",
        stretches: int | None = None,
    ) -> None:
        if stretches is not None:
            check_sizes(stretches=stretches)
        self.collate, self.stretches = collate, stretches
        self.shift = check_shift(shift)
        if collate is not None and shift == "outer":
            raise TagsError("a collator that you give makes the labels: shift='inner'")

    def __call__(self, records: Sequence[Mapping[str, Any]]) -> Any:
        """Return the batch, of torch, with ``tags`` int64[B, K, 7]."""
        import torch

        if records and TAGS in records[0]:
            tags = np.stack([_array(record[TAGS]) for record in records])
            batch = self._collated(_without(records, (TAGS,)))
            _check_rows(batch, records)
        else:
            given = [_array(tokens_of(record)) for record in records]
            columns = [columns_of(record, len(ids)) for record, ids in zip(records, given, strict=True)]
            batch = self._collated(_without(records, COLUMNS))
            tags = self._tags(batch, given, columns)
        batch[TAGS] = torch.from_numpy(tags)
        return batch

    def untagged(self, records: Sequence[Mapping[str, Any]]) -> Any:
        """Return the batch alone, of records with columns of tags or without: for evaluations, which are not logged.

        Raises:
            TagsError: Without ``collate``, rows are of several lengths.
        """
        return self._collated(_without(records, (TAGS, *COLUMNS)))

    def _collated(self, records: list[dict[str, Any]]) -> Any:
        if self.collate is not None:
            return self.collate(records)
        import torch

        lengths = {len(tokens_of(record)) for record in records}
        if len(lengths) > 1:
            raise TagsError(
                f"rows of {min(lengths):,} to {max(lengths):,} tokens cannot be stacked", "Give a collator that pads."
            )
        names = [name for name in ("input_ids", "labels") if name in records[0]]
        batch = {name: torch.from_numpy(np.stack([_array(record[name]) for record in records])) for name in names}
        if "labels" in batch:
            return batch
        ids = batch["input_ids"]
        if self.shift == "inner":
            return {"input_ids": ids, "labels": ids.clone()}
        return {"input_ids": ids[:, :-1].contiguous(), "labels": ids[:, 1:].contiguous()}

    def _tags(self, batch: Any, given: list[np.ndarray], columns: list[Columns]) -> np.ndarray:
        outer = self.shift == "outer"
        if outer:
            given, columns = [values[1:] for values in given], [(each[1:], token[1:]) for each, token in columns]
        ids = _array(batch["labels" if outer else "input_ids"])
        if ids.ndim != _MATRIX:
            raise TagsError(f"input_ids: expected [B, T], found {list(ids.shape)}")
        labels = batch.get("labels")
        targets = np.ones(ids.shape, dtype=bool) if labels is None else _array(labels) != IGNORED
        begins, given, columns = _layout(ids, targets, given, columns)
        if outer and (any(begins) or (targets & ~_within(ids, begins, given)).any()):
            raise TagsError(
                "shift='outer': `labels` of a record have to stand a place before its tokens, and none behind the last",
                "Leave the column `labels` out, so that they are made of the tokens; or take shift='inner'.",
            )
        if not outer and labels is not None:
            _check_labels(_array(labels), ids, begins, given)
        counted = (_within(ids, begins, given) if labels is None else targets).astype(np.int64)
        if not outer:
            counted[:, 0] = 0
        rows = (
            row_tags(*pair, own, begin=begin, stretches=self.stretches)
            for pair, begin, own in zip(columns, begins, counted, strict=True)
        )
        return batch_tags(rows, self.stretches)


def _layout(
    ids: np.ndarray, targets: np.ndarray, given: list[np.ndarray], columns: list[Columns]
) -> tuple[list[int], list[np.ndarray], list[Columns]]:
    """Find the records' tokens in a batch: where they begin in each row, and tokens and columns by row."""
    length = ids.shape[1]
    if len(ids) == len(given) and all(len(values) <= length for values in given):
        sides = [[0] * len(given), [length - len(values) for values in given]]
        matches = [begins for begins in sides if _stand(ids, begins, given)]
        if not matches:
            raise _moved()
        return max(matches, key=lambda begins: int((targets & _within(ids, begins, given)).sum())), given, columns
    flat = np.concatenate(given)
    if len(ids) == 1 and len(flat) <= length and np.array_equal(ids[0, : len(flat)], flat):
        documents, tokens = (np.concatenate(each) for each in zip(*columns, strict=True))
        return [0], [flat], [(documents, tokens)]
    raise _moved()


def _without(records: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    return [{name: record[name] for name in record if name not in names} for record in records]


def _check_rows(batch: Any, records: Sequence[Mapping[str, Any]]) -> None:
    """Compare a batch with the rows that came with tags: each stands in its place from its first token on."""
    if "input_ids" not in batch:
        raise TagsError("the collator's batch has no `input_ids` to compare with its records", "Keep them in it.")
    for name in ("input_ids", "labels"):
        if name not in records[0] or (name != "input_ids" and name not in batch):
            continue
        given, own = [_array(record[name]) for record in records], _array(batch[name])
        masked = name == "labels"
        if own.ndim != _MATRIX or len(own) != len(given) or not _stand(own, [0] * len(given), given, masked=masked):
            raise _moved()


def _check_labels(labels: np.ndarray, ids: np.ndarray, begins: list[int], given: list[np.ndarray]) -> None:
    """Compare labels that stand where the inputs do with these: others are not the tokens that the tags name."""
    if labels.shape != ids.shape or (_within(ids, begins, given) & (labels != IGNORED) & (labels != ids)).any():
        raise _moved()


def _stand(ids: np.ndarray, begins: list[int], given: list[np.ndarray], *, masked: bool = False) -> bool:
    """Return whether each row holds its record's tokens from there on; some may be masked, as they are no targets."""
    for row, begin, values in zip(ids, begins, given, strict=True):
        own = row[begin : begin + len(values)]
        if len(own) < len(values) or ((own != values) & ~(masked & (own == IGNORED))).any():
            return False
    return True


def _moved() -> TagsError:
    return TagsError(
        "the collator cut, changed or moved tokens: the batch does not hold those of its records",
        "Cut and pack before the collator: there the columns of tags are cut and packed alike. Masking of inputs is not"
        " supported.",
    )


def _within(ids: np.ndarray, begins: list[int], given: list[np.ndarray]) -> np.ndarray:
    """Return where the batch holds tokens: bool, as ``ids``."""
    within = np.zeros(ids.shape, dtype=bool)
    for row, begin, values in zip(within, begins, given, strict=True):
        row[begin : begin + len(values)] = True
    return within


def _array(value: Any) -> np.ndarray:
    return np.asarray(value, dtype=np.int64)
