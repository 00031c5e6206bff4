"""Hugging Face `datasets` of the audited documents, map-style and streaming, each record with its place.

The documents are those of :class:`dataaudit.training.Documents`: read by the audit's own reader, tokens memory-mapped,
quarantined documents replaced in place. A record is tagged here, at the source, before any shuffle, interleaving or
filter can move it; it carries `shard`, `row`, `source` until the collator makes tags of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from dataaudit.base.errors import ConfigError
from dataaudit.base.files import replacing
from dataaudit.manifest.canonical import digest_json
from dataaudit.training.documents import Documents
from dataaudit.training.packing import Order, ordered

if TYPE_CHECKING:
    import datasets

Content = Literal["tokens", "text"]
_BATCH = 256
"""Documents of a record batch: what a random access reads the list borders of."""
_FORMAT = "1"


def tagged_dataset(
    documents: Documents,
    *,
    content: Content = "tokens",
    order: Order = "sequential",
    seed: int = 0,
    open_shards: int = 4,
    cache: str | os.PathLike[str] | None = None,
) -> datasets.Dataset:
    """Return a map-style dataset of the documents.

    Args:
        documents: What it holds.
        content: ``tokens``: `input_ids`, the encoder's, with its end token. ``text``: `text`, for a tokenizer of your
            own; the documents must be those of ``byte_encoder()``, which keeps the bytes of UTF-8.
        order: As of :class:`dataaudit.training.PackedDocuments`, without a second pass.
        seed: Decides the order.
        open_shards: Shards that are read at once when they are interleaved.
        cache: Folder for its Arrow file; that of the documents by default.

    Returns:
        Columns `input_ids` (or `text`), `shard`, `row`, `source`; memory-mapped.

    Raises:
        ConfigError: Nothing is left, the content cannot be had, or the file cannot be written.
    """
    import datasets

    _check(documents, content)
    corpus = documents.corpus
    decides = {
        "format": [_FORMAT, content],
        "manifest": corpus.id,
        "held": corpus.digests["held"],
        "shards": documents.shards.tolist(),
        "encoder": [documents.encoder.name, documents.encoder.vocab, documents.encoder.end],
        "order": [order, seed, open_shards],
    }
    digest = digest_json(decides).removeprefix("sha256:")
    path = Path(cache if cache is not None else documents.cache) / f"{digest}.hf.arrow"
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file, pa.ipc.new_stream(file, _schema(content)) as stream:
                met = tagged_records(documents, content=content, order=order, seed=seed, open_shards=open_shards)
                while records := list(islice(met, _BATCH)):
                    stream.write_batch(pa.RecordBatch.from_pylist(records, schema=_schema(content)))
    except OSError as error:
        raise ConfigError(
            f"the dataset {path} cannot be written: {error.strerror or error}", "Name another folder: cache=..."
        ) from None
    dataset: datasets.Dataset = datasets.Dataset.from_file(os.fspath(path))
    return dataset


def tagged_stream(
    documents: Documents,
    *,
    content: Content = "tokens",
    order: Order = "sequential",
    seed: int = 0,
    parts: int = 0,
    epochs: int = 1,
) -> datasets.IterableDataset:
    """Return a streaming dataset of the documents: ``shuffle``, ``interleave_datasets``, ``state_dict`` as usual.

    Its shards, which workers and ranks divide among themselves, are those of the manifest when the order is sequential,
    or equal parts of a shuffled order.

    Args:
        documents: What it holds.
        content: As of :func:`tagged_dataset`.
        order: As of :func:`tagged_dataset`. ``shuffled`` needs no shuffle buffer, and so resumes exactly.
        seed: Decides the order.
        parts: Equal parts of the order; 0: the manifest's shards, or 64 where the order is not sequential.
        epochs: Passes over the data.

    Returns:
        Columns as of :func:`tagged_dataset`, and `epoch`.

    Raises:
        ConfigError: Nothing is left, or the content cannot be had.
    """
    import datasets

    _check(documents, content)
    if parts < 0 or epochs < 1:
        raise ConfigError(f"parts={parts}, epochs={epochs}: expected from 0 and from 1 on")
    borders = documents.starts
    if parts or order != "sequential":
        borders = np.linspace(0, len(documents), min(parts or 64, len(documents)) + 1).astype(np.int64)
    pieces = [
        (epoch, start, stop) for epoch in range(epochs) for start, stop in pairwise(borders.tolist()) if stop > start
    ]
    given = {"documents": _Ordered(documents, order, seed), "pieces": pieces, "content": content}
    stream: datasets.IterableDataset = datasets.IterableDataset.from_generator(
        _records, gen_kwargs=given, features=datasets.Features.from_arrow_schema(_schema(content, epoch=True))
    )
    return stream


def tagged_records(
    documents: Documents,
    *,
    content: Content = "tokens",
    order: Order = "sequential",
    seed: int = 0,
    open_shards: int = 4,
) -> Iterator[dict[str, Any]]:
    """Yield the records of :func:`tagged_dataset` one by one, for writers of other formats."""
    _check(documents, content)
    met = ordered(documents, seed=seed, epoch=0, order=order, open_shards=open_shards)
    return (_record(documents, int(item), content) for item in met)


class ReplayedStream:
    """A stream that resumes at the very next record, whatever stands before it: shuffle buffers, interleaving, filters.

    The ``state_dict`` of `datasets` does not hold what is in a shuffle buffer: a run that goes on has lost it. This one
    counts records, and reads them again up to there; a stream with a seed is the same each time. Without a
    shuffle buffer the state of `datasets` is exact, and faster.

    Args:
        dataset: Of `datasets`, streaming; or anything that is iterated the same way each time.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self._epoch = self._records = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the records of this epoch that are not yet read."""
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(self._epoch)
        # `skip` of `datasets` shuffles otherwise: from its second pass on it would begin elsewhere.
        for record in islice(self.dataset, self._records, None):
            self._records += 1
            yield record
        self._epoch, self._records = self._epoch + 1, 0

    def state_dict(self) -> dict[str, int]:
        """Return where it is."""
        return {"epoch": self._epoch, "records": self._records}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on from there at the next iteration."""
        self._epoch, self._records = int(state["epoch"]), int(state["records"])


class _Ordered:
    """Documents in an order, which each worker makes once."""

    def __init__(self, documents: Documents, order: Order, seed: int) -> None:
        self.documents, self._order, self._seed = documents, order, seed
        self._met: dict[int, np.ndarray] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_met": {}}

    def met(self, epoch: int) -> np.ndarray:
        """Return the documents of an epoch in order: int64[n]."""
        if epoch not in self._met:
            self._met = {epoch: ordered(self.documents, seed=self._seed, epoch=epoch, order=self._order, open_shards=4)}
        return self._met[epoch]


def _records(documents: _Ordered, pieces: Sequence[tuple[int, int, int]], content: Content) -> Iterator[dict[str, Any]]:
    for epoch, start, stop in pieces:
        for index in documents.met(epoch)[start:stop].tolist():
            yield _record(documents.documents, index, content) | {"epoch": epoch}


def _record(documents: Documents, index: int, content: Content) -> dict[str, Any]:
    ((shard, row, source),) = documents.places([index])
    tokens = documents.tokens(index)
    named = {"shard": shard, "row": row, "source": source}
    if content == "text":
        return {"text": tokens.astype(np.uint8).tobytes().decode(), **named}
    return {"input_ids": tokens, **named}


def _schema(content: Content, *, epoch: bool = False) -> pa.Schema:
    kind = pa.field("text", pa.large_string()) if content == "text" else pa.field("input_ids", pa.list_(pa.int32()))
    names = [pa.field("shard", pa.int32()), pa.field("row", pa.int64()), pa.field("source", pa.int32())]
    return pa.schema([kind, *names, *([pa.field("epoch", pa.int32())] if epoch else [])])


def _check(documents: Documents, content: Content) -> None:
    encoder = documents.encoder
    if content not in ("tokens", "text"):
        raise ConfigError(f"content: expected tokens or text, found {content!r}")
    if content == "text" and (encoder.name != "utf-8 bytes" or encoder.end is not None):
        raise ConfigError(
            f"text is kept by byte_encoder() without an end token; these documents are those of `{encoder.name}`",
            "Documents(corpus, split, byte_encoder())",
        )
    if content == "text":
        documents.corpus.encoders[""] = False  # whose ids the labels will be is not known
