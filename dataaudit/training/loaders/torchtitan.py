"""Tags in the rows of torchtitan's text loader, which stays as it is: same rows, same order, same checkpoints.

::

    records = tagged_dataset(documents, content="text")
    DATASETS["audited"] = DatasetConfig(path="", loader=lambda _: records, sample_processor=lambda one: one["text"])
    loader = tagged_loader(HuggingFaceTextDataLoader(...))
    for inputs, labels in loader:
        monitor.batch(inputs.pop("tags"), labels=labels, ...)

torchtitan encodes, cuts and joins documents itself. What it asks for each document is watched, and a buffer of names
goes beside its buffer of labels, in its checkpoints too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataset

from dataaudit.base.errors import ConfigError, TagsError
from dataaudit.training.loaders.collator import TAGS
from dataaudit.training.loaders.token_tags import PLACE, batch_tags, row_tags, token_columns
from dataaudit.training.packing import STRETCHES, check_sizes

_BUFFER = "tags_buffer"


def tagged_loader(loader: Any, *, stretches: int | None = None) -> Any:
    """Have a text loader of torchtitan put ``tags`` int64[B, K, 7] beside the inputs of each batch.

    To be called before the loader's first batch, and before a checkpoint is loaded.

    Args:
        loader: Of one text data set, or of several that it interleaves. The records of each need the columns ``shard``,
            ``row``, ``source`` of :func:`dataaudit.training.loaders.hub.tagged_dataset`.
        stretches: K, places of a row; more than a row has are merged. None: a place for 16 labels, 16 at least.

    Returns:
        The same loader.

    Raises:
        ConfigError: It is no text loader, or has tags already.
    """
    if stretches is not None:
        check_sizes(stretches=stretches)
    data = getattr(loader, "dataset", None)
    each = getattr(data, "_datasets", [data])
    for item in each:
        if type(item) is not HuggingFaceTextDataset:
            raise ConfigError(
                f"expected a loader of torchtitan's HuggingFaceTextDataset, found {type(item).__name__}",
                "Chats and data sets of your own: TaggedCollator, or tags that they make themselves.",
            )
    for item in each:
        item.__class__ = _TaggedTextDataset
        item.watch(stretches or max(STRETCHES, item.seq_len // STRETCHES))
    return loader


class _TaggedTextDataset(HuggingFaceTextDataset):
    """torchtitan's data set, whose rows have tags."""

    _text_processor: Callable[[Any], Any]
    _tokenizer: Any

    def watch(self, stretches: int) -> None:
        """Watch what it asks of each record and of the tokenizer."""
        self._stretches = stretches
        self._names = np.zeros((2, 0), dtype=np.int64)
        """int64[2, labels] documents and tokens of the labels that no row has taken, of ``token_columns``."""
        self._met: dict[str, int] = {}
        self._process, self._text_processor = self._text_processor, self._note_record
        self._tokenizer = _Watched(self._tokenizer, self._note_tokens)

    def _note_record(self, sample: Any) -> Any:
        if missing := [name for name in PLACE if name not in sample]:
            raise TagsError(
                f"a record has no column {', '.join(missing)}; it has {', '.join(sorted(sample))}",
                "Register `tagged_dataset(documents, content='text')`, and keep its columns.",
            )
        self._met = {name: int(sample[name]) for name in PLACE}
        try:
            return self._process(sample)
        except KeyError as error:
            raise TagsError(
                f"`sample_processor` asks for a column that a record lacks; it has {', '.join(sorted(sample))}",
                'Texts are in the column `text` of `tagged_dataset(documents, content="text")`.',
            ) from error

    def _note_tokens(self, tokens: list[int], begin: bool) -> None:
        found = token_columns(len(tokens) - 1, **self._met, epoch=self._epoch, offset=int(not begin))
        self._names = np.concatenate([self._names, np.stack(found)], axis=1)

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        """Yield torchtitan's own rows, with ``tags`` int64[K, 7] beside the input."""
        for inputs, labels in super().__iter__():
            (documents, tokens), self._names = self._names[:, : len(labels)], self._names[:, len(labels) :]
            targets = np.ones(len(labels), dtype=np.int64)
            own = row_tags(documents, tokens, targets, begin=0, stretches=self._stretches)
            yield {**inputs, TAGS: torch.from_numpy(batch_tags([own], self._stretches)[0])}, labels

    def state_dict(self) -> dict[str, Any]:
        """Return its own state, and the names of the labels in its buffer."""
        return {**super().state_dict(), _BUFFER: self._names.tolist()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state."""
        super().load_state_dict(state_dict)
        self._names = np.array(state_dict.get(_BUFFER, [[], []]), dtype=np.int64).reshape(2, -1)
        if self._names.shape[1] != len(self._labels_buffer):
            raise ConfigError(
                "the checkpoint of the loader was made without tags: whose labels its buffer holds is not known",
                "Go on without tags, or train from the first step.",
            )


class _Watched:
    """torchtitan's tokenizer, which reports the tokens of a document, and whether the first is that of beginning."""

    def __init__(self, tokenizer: Any, note: Callable[[list[int], bool], None]) -> None:
        self._own, self._note = tokenizer, note

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # while it is unpickled it has none of its own
            raise AttributeError(name)
        return getattr(self._own, name)

    def encode(self, *given: Any, **how: Any) -> list[int]:
        """Encode as the tokenizer does."""
        tokens: list[int] = self._own.encode(*given, **how)
        begin = getattr(self._own, "bos_id", None)
        self._note(tokens, begin is not None and tokens[:1] == [begin])
        return tokens
