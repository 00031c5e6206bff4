"""The rows of one shard of a streamed dataset: Arrow tables to :class:`DocBatch`, every failure told apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, Self, cast

import pyarrow as pa

from dataaudit.base.errors import ConfigError
from dataaudit.base.stores import as_os_error
from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.scan.corpus.readers.columns import Rows, content, cut_rows, documents, flat_column, locate_all
from dataaudit.scan.corpus.readers.part import Part, PartStats, ReadRequest
from dataaudit.scan.corpus.storage.hub import RowsPath, load_splits, uri_of

_ROWS_AT_ONCE = 256
_NETWORK = (
    "aiohttp",
    "fsspec",
    "httpcore",
    "httpcore2",
    "httpx",
    "httpx2",
    "huggingface_hub",
    "requests",
    "urllib3",
)
"""Packages whose errors a network causes; the client of the hub brings httpx or httpx2, by its version."""


def _stream(path: RowsPath) -> Any:
    """Return the stream of a shard."""
    source = path.source
    with _Explaining(path):
        config = None if source.config == "default" else source.config
        whole = load_splits(source.name, config, source.revision, source.access)[source.split]
        if whole.num_shards != source.shards:
            raise ShardUnreadable(Reason.CHANGED)
        return whole.shard(num_shards=source.shards, index=source.shard)


class _Explaining:
    """Turns what the library raises into an ``OSError`` that may pass, or a damaged shard."""

    def __init__(self, path: RowsPath) -> None:
        self._path = path
        self.records = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if (
            error is None
            or isinstance(error, ShardUnreadable | ConfigError | MemoryError)
            or not isinstance(error, Exception)
        ):
            return
        causes = []
        current: BaseException | None = error
        while current is not None and current not in causes:
            causes.append(current)
            current = current.__cause__ or current.__context__
        for cause in causes:
            if _may_pass(cause):
                raise as_os_error(cause, self._path) from None
        raise ShardUnreadable(Reason.DATASET, f"after {self.records} records") from None


def _may_pass(error: BaseException) -> bool:
    """Tell what a network or a disk does from damage: for that Arrow raises an ``OSError`` without a number."""
    if isinstance(error, OSError):
        known = isinstance(error, ConnectionError | TimeoutError | FileNotFoundError | PermissionError)
        return known or error.errno is not None
    return type(error).__module__.partition(".")[0] in _NETWORK


def _tables(path: RowsPath, stream: Any) -> Iterator[pa.Table]:
    explaining = _Explaining(path)
    with explaining:
        tables = iter(stream.with_format("arrow").iter(batch_size=_ROWS_AT_ONCE))
    while True:
        with explaining:
            table = next(tables, None)
        if table is None:
            return
        yield table
        explaining.records += table.num_rows


def plan_parts(_path: str, _size: int, _part_bytes: int) -> list[Part]:
    """Return the one part of a shard, which has no size."""
    return [Part(0, 1)]


def read_part(request: ReadRequest, losses: LossLog, stats: PartStats) -> Iterator[DocBatch]:
    """Stream the documents of a shard."""
    path, fields, batch_bytes = cast(RowsPath, request.path), request.fields, request.batch_bytes
    stream = _stream(path)
    wanted = locate_all(stream.features.arrow_schema, fields) if stream.features else None
    if wanted is not None:
        stats.see_layout(tuple(f"{column.name}: {column.type}" for column in stream.features.arrow_schema))
        stream = stream.select_columns(list(dict.fromkeys(names[0] for names in wanted)))
    for table in _tables(path, stream):
        if wanted is None or not stream.features:
            stats.see_layout(tuple(f"{column.name}: {column.type}" for column in table.schema))
        names = locate_all(table.schema, fields)
        for batch in table.to_batches():
            try:
                flat = [flat_column(batch, name) for name in names]
            except pa.ArrowMemoryError:
                raise  # damaged sizes and a full machine look the same; a trial alone tells them apart
            except pa.ArrowException:
                raise ShardUnreadable(Reason.DATASET, f"after {stats.records} records") from None
            whole = Rows(texts=flat[0], sources=flat[1] if len(flat) > 1 else None)
            for rows in cut_rows(whole, batch_bytes):
                made = documents(rows, fields, stats.records, losses)
                stats.records += len(rows)
                if len(made):
                    yield made


def peek_columns(path: RowsPath) -> dict[str, str]:
    """Return the top-level columns, and what each holds."""
    stream = _stream(path)
    schema = stream.features.arrow_schema if stream.features else None
    if schema is None:
        table = next(_tables(path, stream), None)
        if table is None:
            raise LookupError(path)
        schema = table.schema
    return {column.name: content(column.type) for column in schema}


def key_of_rows(path: RowsPath) -> str:
    """Return what names the rows of a shard before they are scanned, as 64 hex digits.

    Of a pinned dataset, without reading: what it is pinned to. Of a local one the digest of all its columns.
    """
    source = path.source
    state = hashlib.sha256(f"datasets {version('datasets')}\n".encode())
    if source.revision is not None:
        state.update(repr((source.name, source.revision, uri_of(source))).encode())
        return state.hexdigest()
    for table in _tables(path, _stream(path)):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema.remove_metadata()) as writer:
            writer.write_table(table.replace_schema_metadata(None).combine_chunks())
        state.update(sink.getvalue())
    return state.hexdigest()
