"""The audited documents in the files of Mosaic's `streaming` (MDS) and of `litdata`, each record with its place.

Their own writers write, their own readers read, shuffle, divide among ranks and resume: a record keeps the columns
that :class:`dataaudit.training.loaders.collator.TaggedCollator` makes tags of. Which documents are quarantined is
decided when the files are written, so they name the opening that they are of, and another is refused.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dataaudit.base.errors import ConfigError, CorpusRefused
from dataaudit.base.files import write_whole
from dataaudit.training.corpus import Corpus
from dataaudit.training.documents import Documents
from dataaudit.training.loaders.hub import Content, tagged_records
from dataaudit.training.packing import Order

_ABOUT = "dataaudit.json"
_CHUNK_BYTES = 64 << 20
_MDS = {"input_ids": "ndarray:int32", "text": "str", "shard": "int32", "row": "int64", "source": "int32"}


def write_mds(
    documents: Documents,
    folder: str | os.PathLike[str],
    *,
    content: Content = "tokens",
    order: Order = "sequential",
    seed: int = 0,
    **options: Any,
) -> Path:
    """Write the documents as MDS shards, for `streaming.StreamingDataset`.

    Args:
        documents: What is written.
        folder: Where; it must not be there yet.
        content: ``tokens`` or ``text``, as of :func:`dataaudit.training.loaders.hub.tagged_dataset`.
        order: Of the records in the files; the reader may shuffle them.
        seed: Decides the order.
        options: Of `streaming.MDSWriter`: ``compression``, ``size_limit``, ``hashes``.

    Returns:
        The folder, for ``StreamingDataset(local=...)``.

    Raises:
        ConfigError: The folder is there, cannot be written, or the content cannot be had.
    """
    from streaming import MDSWriter

    first = "text" if content == "text" else "input_ids"
    columns = {name: kind for name, kind in _MDS.items() if name in {first, "shard", "row", "source"}}
    records = tagged_records(documents, content=content, order=order, seed=seed)
    with (
        _whole(Path(folder), documents.corpus) as part,
        MDSWriter(out=os.fspath(part), columns=columns, **options) as writer,
    ):
        for record in records:
            writer.write(_narrow(record))
    return Path(folder)


def write_litdata(
    documents: Documents,
    folder: str | os.PathLike[str],
    *,
    content: Content = "tokens",
    order: Order = "sequential",
    seed: int = 0,
    chunk_bytes: int = _CHUNK_BYTES,
) -> Path:
    """Write the documents as chunks, for `litdata.StreamingDataset`."""
    from litdata.streaming import Cache

    records = tagged_records(documents, content=content, order=order, seed=seed)
    with _whole(Path(folder), documents.corpus) as part:
        cache = Cache(os.fspath(part), chunk_bytes=chunk_bytes)
        for index, record in enumerate(records):
            cache[index] = _narrow(record)
        cache.done()
        cache.merge()
    return Path(folder)


def written_of(folder: str | os.PathLike[str], corpus: Corpus) -> Path:
    """Return a folder that was written of this corpus, with the same documents left out: to read it by.

    Args:
        folder: Of :func:`write_mds` or :func:`write_litdata`.
        corpus: What was opened now.

    Raises:
        CorpusRefused: It was written of another manifest, or the documents that are left out have changed since.
        ConfigError: What it was written of is unknown.
    """
    path = Path(folder) / _ABOUT
    try:
        about = json.loads(path.read_bytes())
    except (OSError, ValueError):
        raise ConfigError(
            f"{path} is absent or damaged: what the records are of is not known",
            "Write them with dataaudit.training.loaders.stored.",
        ) from None
    if differ := sorted(name for name, value in _about(corpus).items() if about.get(name) != value):
        raise CorpusRefused(
            f"the records of {folder} were written of another opening: {', '.join(differ)}",
            "Write them again from this one.",
        )
    tokenizer = about.get("tokenizer", "")
    corpus.encoders[tokenizer] = tokenizer == corpus.digests["tokenizer"]
    return Path(folder)


def _narrow(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with its tokens as int32, which is what both formats keep."""
    return record | {"input_ids": record["input_ids"].astype(np.int32)} if "input_ids" in record else record


def _about(corpus: Corpus) -> dict[str, str]:
    return {"manifest": corpus.id, "held": corpus.digests["held"]}


@contextmanager
def _whole(folder: Path, corpus: Corpus) -> Iterator[Path]:
    """Give a folder beside it to write to, which has its name after the block, or is gone after an error in it."""
    if folder.exists():
        raise ConfigError(f"{folder} is there already", "Name another folder, or remove it.")
    part = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    try:
        part.mkdir(parents=True)
        yield part
        write_whole(part / _ABOUT, json.dumps({**_about(corpus), "tokenizer": corpus.tokenizer}, indent=1).encode())
        part.rename(folder)
    except OSError as error:
        raise ConfigError(
            f"the records cannot be written to {folder}: {error.strerror or error}", "Name another folder."
        ) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
