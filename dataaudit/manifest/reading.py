"""Reading the tables of a manifest: proves that a table is the published one before anybody sees its rows.

The bytes of a file are compared with ``run.files`` before anything parses them, its rows with their digest in the core.
A table in canonical order is checked column by column, so that few columns of a large table are in memory at a time;
any other is sorted first. A checked file is known by its inode, size and times; while these stay, its other columns are
read without a second check.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from dataaudit.base.errors import ConfigError, ManifestError, ManifestMismatch
from dataaudit.base.yamlfile import nearest
from dataaudit.manifest.canonical import digest_columns, digest_table, is_sorted, plain_floats, sorted_table
from dataaudit.manifest.core import SCHEMA_VERSION, FileRecord, TableRecord
from dataaudit.manifest.files import file_record, open_file, table_file
from dataaudit.manifest.metric_rows import TEXTS, MetricRows
from dataaudit.manifest.replace import POINTER
from dataaudit.manifest.s3 import shown
from dataaudit.manifest.tables import TABLES, TableSpec
from dataaudit.manifest.value_checks import check_column, check_records, wrong_statistics

TRIES = 20
"""Tries to read a file whose folder is replaced meanwhile."""
RESTORE = "Restore the file or build again."
MOST_KEPT_BYTES = 1 << 29
"""Bytes of tables that are kept in all; more is read anew whenever it is asked for."""
SMALL_TABLE_BYTES = 1 << 22
"""Encoded bytes of a table up to which all of its columns are read and kept together."""
_BATCH_ROWS = 1 << 16
_VERIFY = "Restore the file or build again; `dataaudit verify` says more."
_FileState = tuple[int, int, int, int, int]
_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReader:
    """Reads the tables of a manifest, by the records of its core and the files of its run.

    Threads may share a reader; a copy of it in another process starts empty.
    """

    folder: Path
    id: str
    """Of the manifest: another manifest may be published here at any moment."""
    records: Mapping[str, TableRecord]
    files: Mapping[str, FileRecord]

    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)
    _kept: dict[str, pa.Table] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Columns that were read, by table; Arrow's tables are immutable, so all callers share them."""
    _checked: dict[str, _FileState] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Checked files in canonical order, as they were then, by table."""
    _rows: list[MetricRows] = field(default_factory=list, init=False, repr=False, compare=False)
    """The metric records, once they were read."""

    @property
    def place(self) -> str:
        """The folder, or the address that it was fetched from."""
        return shown(self.folder)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the public fields alone."""
        return partial(TableReader, folder=self.folder, id=self.id, records=self.records, files=self.files), ()

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a published table in canonical order, or some of its columns."""
        names = _names(name, columns)
        with self._lock:
            known = self._kept.get(name)
            if known is None or not set(names) <= set(known.column_names):
                known = self._in_place(f"table {name}", partial(self._read_checked, name, names, known), checked=True)
                others = sum(item.nbytes for key, item in self._kept.items() if key != name)
                if known.nbytes + others <= MOST_KEPT_BYTES:
                    self._kept[name] = known
        return known if known.column_names == names else known.select(names)

    def metric_rows(self) -> MetricRows:
        """Return the published table of metrics in columns of some tens of bytes a row."""
        with self._lock:
            if not self._rows:
                self._rows.append(self.read_rows())
        return self._rows[0]

    def read_rows(self) -> MetricRows:
        """Return :meth:`metric_rows` from the file as it is now, and keep nothing."""
        return self._in_place("table metrics", self._read_rows, checked=True)

    def read_unchecked(self, name: str) -> pa.Table:
        """Read a whole table from its file, and keep nothing; its bytes are checked, its rows are not."""
        return self._in_place(f"table {name}", partial(self._read_whole, name), checked=False)

    def wrong_statistics(self, name: str) -> list[str]:
        """Return where the footer of a table's file differs from its rows; its bytes are checked first."""

        def read() -> list[str]:
            with self._open(name) as (file, _):
                return list(wrong_statistics(table_file(name), file))

        return self._in_place(f"table {name}", read, checked=True)

    def hold_file(self, name: str) -> None:
        """Compare the bytes of a file of the manifest, by its path below the folder, with the run."""

        def read() -> None:
            with open_file(self.folder / name) as file:
                self.hold_bytes(name, file)

        self._in_place(name, read, checked=True)

    def _in_place(self, what: str, read: Callable[[], _Read], *, checked: bool) -> _Read:
        """Read while the folder holds this manifest; again when it was replaced and put back in between."""
        for _ in range(TRIES):
            before = _pointer_place(self.folder)
            result, failure = None, None
            try:
                result = read()
                if checked:
                    return result
            except ManifestError as error:
                failure = error
            except (OSError, pa.ArrowException) as error:
                failure = ManifestError(f"{what} of {self.place} cannot be read: {_first_line(error)}", RESTORE)
            except (ValueError, IndexError) as error:  # a row group with fewer columns than the schema
                failure = ManifestError(f"{what} of {self.place}: {error}", RESTORE)
            now, after = _pointer_state(self.folder)
            if now not in (None, self.id):
                raise ManifestError(
                    f"the manifest {self.place} was replaced while it was read: loaded was {self.id}, there is {now}",
                    "Load it again.",
                )
            if before == after:
                break
        if failure is not None:
            raise failure
        return cast("_Read", result)

    def _read_checked(self, name: str, columns: Collection[str], known: pa.Table | None) -> pa.Table:
        """Return columns of a table, with others that are kept already or cost little; its rows have their digest."""
        if name not in self.records:
            raise ManifestError(f"the core of {self.place} names no table {name}", "Build again.")
        spec = TABLES[name]
        with self._open(name) as (file, state):
            if self._checked.get(name) == state:
                missing = [item for item in columns if known is None or item not in known.column_names]
                return _in_order(spec, [file.read(columns=missing), *([] if known is None else [known])])
            self._expect_schema(name, file.schema_arrow)
            column = _Columns(spec, file, columns, self._num_shards())
            if self._is_sorted(name, column):
                self._expect_digest(name, digest_columns(spec.schema, file.metadata.num_rows, column))
                table = _in_order(spec, [pa.table(column.kept)])
                if name == "metrics" and table.num_columns == len(spec.schema):
                    check_records(table)
                self._checked[name] = state
                return table
            table = self._sorted(name, file.read())
        self._expect_digest(name, digest_table(table))
        for item in table.schema:
            check_column(name, item, table[item.name], self._num_shards())
        if name == "metrics":
            check_records(table)
        return table

    def _read_rows(self) -> MetricRows:
        if "metrics" in self.records:
            with self._open("metrics", dictionaries=TEXTS) as (file, _):
                self._expect_schema("metrics", file.schema.to_arrow_schema())
                rows = MetricRows.of_batches(file.iter_batches(_BATCH_ROWS))
            rows = rows.checked(self._num_shards())
            if rows.is_ordered():
                self._expect_digest("metrics", rows.digest())
                return rows
        table = self._read_checked("metrics", TABLES["metrics"].schema.names, None)
        return MetricRows.of_batches(table.to_batches(_BATCH_ROWS))

    def _is_sorted(self, name: str, column: Callable[[str], pa.ChunkedArray]) -> bool:
        """Return whether a table is in canonical order."""
        if name != "shards":
            return is_sorted(TABLES[name], column, unique=True)
        if not np.array_equal(numbers := column("shard").to_numpy(), np.arange(len(numbers))):
            raise ManifestMismatch(f"table shards of {self.place}: its rows are not numbered 0, 1, 2, ...", _VERIFY)
        return True

    def _sorted(self, name: str, table: pa.Table) -> pa.Table:
        """Return a table in canonical order; shards are in theirs already, or refused."""
        if name == "shards" and self._is_sorted(name, table.column):
            return table
        ordered = sorted_table(table, TABLES[name])
        self._is_sorted(name, ordered.column)
        return ordered

    def _num_shards(self) -> int:
        return self.records["shards"].rows if "shards" in self.records else 0

    def _read_whole(self, name: str) -> pa.Table:
        with self._open(name) as (file, _):
            table = file.read()
        self._expect_schema(name, table.schema)
        return table

    @contextmanager
    def _open(self, name: str, *, dictionaries: Sequence[str] = ()) -> Iterator[tuple[pq.ParquetFile, _FileState]]:
        """Open a table's file after a check of its bytes; yield it with its state, as the file may be replaced."""
        with open_file(self.folder / table_file(name)) as handle:
            status = os.fstat(handle.fileno())
            state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            if self._checked.get(name) != state:
                self.hold_bytes(table_file(name), handle)
            names = list(dictionaries)
            if names:  # of unknown columns pyarrow raises its own error; the caller refuses the schema
                schema = pq.read_metadata(handle).schema
                present = {schema.column(index).path for index in range(len(schema))}
                names = [item for item in names if item in present]
            with pq.ParquetFile(handle, page_checksum_verification=True, read_dictionary=names) as file:
                yield file, state

    def hold_bytes(self, name: str, file: pa.NativeFile) -> None:
        """Compare the bytes of an open file with the run."""
        if name not in self.files:
            raise ManifestError(f"the run of {self.place} names no file {name}", "Build again.")
        if (found := file_record(file)) != (expected := self.files[name]):
            raise ManifestMismatch(
                f"{name} of {self.place} is not the file that was published: the run says {expected.size} bytes, sha256"
                f" {expected.sha256}, found {found.size} bytes, {found.sha256}",
                _VERIFY,
            )

    def _expect_schema(self, name: str, found: pa.Schema) -> None:
        if not found.equals(TABLES[name].schema):
            raise ManifestError(
                f"table {name} of {self.place} has not the columns of schema version {SCHEMA_VERSION}: "
                + _differences(TABLES[name].schema, found),
                RESTORE,
            )

    def _expect_digest(self, name: str, found: str) -> None:
        if found != (expected := self.records[name].digest):
            raise ManifestMismatch(
                f"table {name} of {self.place}: its rows are not those that the manifest was published with; the core"
                f" says {expected}, found {found}",
                _VERIFY,
            )


class _Columns:
    """Checked columns of a file, each in one chunk, read when asked for; kept are wanted ones, of a small file all."""

    def __init__(self, spec: TableSpec, file: pq.ParquetFile, wanted: Collection[str], num_shards: int) -> None:
        groups = (file.metadata.row_group(index).total_byte_size for index in range(file.num_row_groups))
        is_small = sum(groups) <= SMALL_TABLE_BYTES
        self._spec, self._file, self._num_shards = spec, file, num_shards
        self._wanted = set(spec.schema.names) if is_small else {*wanted} or {spec.schema.names[0]}  # one tells the rows
        self.kept: dict[str, pa.ChunkedArray] = {}
        if is_small:
            whole = file.read().combine_chunks()
            self.kept = {name: self._checked(name, whole[name]) for name in whole.column_names}

    def __call__(self, name: str) -> pa.ChunkedArray:
        """Return a column."""
        if name in self.kept:
            return self.kept[name]
        column = self._checked(name, self._file.read(columns=[name]).combine_chunks()[name])
        if name in self._wanted:
            self.kept[name] = column
        return column

    def _checked(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        field = self._spec.schema.field(name)
        check_column(self._spec.name, field, column, self._num_shards)
        return plain_floats(column, field)


def _pointer_place(folder: Path) -> tuple[int, int] | None:
    """Return inode and time of the pointer that is in a folder now; None without one."""
    try:
        status = os.stat(folder / POINTER)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _pointer_state(folder: Path) -> tuple[str | None, tuple[int, int] | None]:
    """Return the id of the manifest that is in a folder now, and :func:`_pointer_place`.

    The id is None when the pointer is gone or damaged: then the table is compared with the loaded core. The id alone is
    not enough: the manifest may have been replaced by another and that by the first again.
    """
    try:
        with (folder / POINTER).open("rb") as handle:
            status = os.fstat(handle.fileno())
            return str(orjson.loads(handle.read())["id"]), (status.st_ino, status.st_mtime_ns)
    except (OSError, ValueError, LookupError, TypeError):
        return None, _pointer_place(folder)


def _names(name: str, columns: Sequence[str] | None) -> list[str]:
    """Return the names of the requested columns."""
    if name not in TABLES:
        raise ConfigError(f"a manifest has no table `{name}`{nearest(name, list(TABLES))}")
    known = TABLES[name].schema.names
    if isinstance(columns, str):
        raise TypeError(f"columns: expected names in a list, found the text `{columns}`")
    for column in columns or ():
        if column not in known:
            raise ConfigError(f"the table {name} has no column `{column}`{nearest(column, known)}")
    return known if columns is None else list(columns)


def _in_order(spec: TableSpec, tables: Sequence[pa.Table]) -> pa.Table:
    """Return the columns of tables of the same rows, in the order of the schema."""
    by_name = {name: table[name] for table in tables for name in table.column_names}
    schema = pa.schema([item for item in spec.schema if item.name in by_name])
    return pa.table([by_name[name] for name in schema.names], schema=schema)


def _differences(expected: pa.Schema, found: pa.Schema) -> str:
    """Return in words what differs between two schemas."""
    missing = [name for name in expected.names if name not in found.names]
    unknown = [name for name in found.names if name not in expected.names]
    words = [f"missing: {', '.join(missing)}"] if missing else []
    words += [f"unknown: {', '.join(unknown)}"] if unknown else []
    for column in expected:
        for index in found.get_all_field_indices(column.name):
            other = found.field(index)
            if not other.equals(column):
                null = " or null" if other.nullable and not column.nullable else ""
                words.append(f"{column.name}: expected {column.type}, found {other.type}{null}")
    return "; ".join(words) or f"expected the order {expected.names}, found {found.names}"


def _first_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.splitlines()[0]
    return str(error).splitlines()[0] if str(error) else type(error).__name__
