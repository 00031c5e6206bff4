"""Reads a shard of a streamed dataset, Arrow tables to :class:`DocBatch`; failures that may pass are no damage."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, cast

import pyarrow as pa

from dataaudit.base.errors import CatchErrors, ConfigError
from dataaudit.base.stores import as_os_error
from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.scan.corpus.readers.columns import Rows, batches, contents, cut_rows, flat_column, layout, locate_all
from dataaudit.scan.corpus.readers.part import Part, PartStats, ReadRequest
from dataaudit.scan.corpus.storage.hub import RowsPath, load_splits, uri_of

_ROWS_AT_ONCE = 256
_NETWORK = frozenset(
    {"aiohttp", "fsspec", "httpcore", "httpcore2", "httpx", "httpx2", "huggingface_hub", "requests", "urllib3"}
)
"""Packages whose errors a network causes; the client of the hub brings httpx or httpx2, by its version."""
_OURS = (ShardUnreadable, ConfigError, MemoryError)
"""Errors that are no failure of the library."""


def _stream(path: RowsPath) -> Any:
    """Return the stream of a shard."""
    source = path.source
    with CatchErrors(*_OURS) as call:
        config = None if source.config == "default" else source.config
        whole = load_splits(source.name, config, source.revision, source.access)[source.split]
        if whole.num_shards != source.shards:
            raise ShardUnreadable(Reason.CHANGED)
        return whole.shard(num_shards=source.shards, index=source.shard)
    raise _explained(call.error, path)


def _tables(path: RowsPath, stream: Any) -> Iterator[pa.Table]:
    records = 0
    with CatchErrors(*_OURS) as call:
        for table in stream.with_format("arrow").iter(batch_size=_ROWS_AT_ONCE):
            yield table
            records += table.num_rows
    if call.error is not None:
        raise _explained(call.error, path, records)


def _explained(error: BaseException | None, path: RowsPath, records: int = 0) -> OSError | ShardUnreadable:
    """Return what the library raised as an ``OSError`` that may pass, or as a damaged shard."""
    causes = []
    while error is not None and error not in causes:
        causes.append(error)
        error = error.__cause__ or error.__context__
    passing = next(filter(_may_pass, causes), None)
    if passing is not None:
        return as_os_error(passing, path)
    return ShardUnreadable(Reason.DATASET, f"after {records} records")


def _may_pass(error: BaseException) -> bool:
    """Tell errors of a network or a disk from damage, for which Arrow raises an ``OSError`` without a number."""
    if isinstance(error, OSError):
        known = isinstance(error, ConnectionError | TimeoutError | FileNotFoundError | PermissionError)
        return known or error.errno is not None
    return type(error).__module__.partition(".")[0] in _NETWORK


def plan_parts(_path: str, _size: int, _part_bytes: int) -> list[Part]:
    """Return the only part of a shard, which has no size."""
    return [Part(0, 1)]


def read_part(request: ReadRequest, losses: LossLog, stats: PartStats) -> Iterator[DocBatch]:
    """Stream the documents of a shard."""
    path, fields = cast(RowsPath, request.path), request.fields
    stream = _stream(path)
    wanted = locate_all(stream.features.arrow_schema, fields) if stream.features else None
    if wanted is not None:
        stats.see_layout(layout(stream.features.arrow_schema))
        stream = stream.select_columns(list(dict.fromkeys(names[0] for names in wanted)))
    for table in _tables(path, stream):
        if wanted is None or not stream.features:
            stats.see_layout(layout(table.schema))
        names = locate_all(table.schema, fields)
        for batch in table.to_batches():
            try:
                rows = Rows.of([flat_column(batch, name) for name in names])
            except pa.ArrowMemoryError:
                raise  # damaged sizes and a full machine look the same; a trial alone tells them apart
            except pa.ArrowException:
                raise ShardUnreadable(Reason.DATASET, f"after {stats.records} records") from None
            yield from batches(cut_rows(rows, request.batch_bytes), request, losses, stats)


def peek_columns(path: RowsPath) -> dict[str, str]:
    """Return the top-level columns and their contents."""
    stream = _stream(path)
    schema = stream.features.arrow_schema if stream.features else None
    if schema is None:
        table = next(_tables(path, stream), None)
        if table is None:
            raise LookupError(path)
        schema = table.schema
    return contents(schema)


def key_of_rows(path: RowsPath) -> str:
    """Return 64 hex digits that identify the rows of a shard before they are scanned.

    They stand for the pin of a pinned dataset, and for the values of all columns of a local one.
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
