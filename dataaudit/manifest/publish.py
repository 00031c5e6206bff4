"""Atomic publishing of a manifest: a reader sees the old manifest or the new, never a mix.

Everything is written and synced in a hidden sibling folder, ``manifest.json`` last; then the folder replaces the old
one in one step (:mod:`dataaudit.manifest.replace`). A kill leaves at most hidden siblings, which the next publish
removes. Two publishes to the same folder wait for each other; the later manifest stays.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from dataaudit.base.errors import ManifestError
from dataaudit.base.files import sync_file, sync_folder, write_synced
from dataaudit.manifest.canonical import digest_columns, sorted_table
from dataaudit.manifest.core import Core, ManifestFile, Run, TableRecord, core_json, manifest_id
from dataaudit.manifest.files import FOLDERS, file_records, table_file
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.manifest.replace import (
    ATTESTATION,
    POINTER,
    moved_aside,
    publish_lock,
    recover,
    replace_folder,
    staging_folder,
)
from dataaudit.manifest.tables import TABLES

Fill = Callable[[Path], None]
__all__ = ["FOLDERS", "POINTER", "Fill", "check_target", "prepare_tables", "publish", "table_records"]

GROUP_ROWS = 1 << 16
"""Rows of a row group; columns that are dictionaries are decoded so many rows at a time."""
_WRITE_BYTES = 1 << 20
_OURS = frozenset({POINTER, ATTESTATION, *FOLDERS, *map(table_file, TABLES)})
"""Files that a later manifest does not take over."""


def prepare_tables(filled: Mapping[str, pa.Table], metrics: MetricRows | None = None) -> dict[str, pa.Table]:
    """Return every table of a manifest in canonical order; those not given are empty."""
    unknown = sorted(set(filled) - set(TABLES))
    if unknown:
        raise ValueError(f"unknown tables: {unknown}")
    ready = {} if metrics is None else {"metrics": metrics.ordered().table()}
    return {
        name: ready.get(name) or sorted_table(filled.get(name, spec.schema.empty_table()), spec)
        for name, spec in TABLES.items()
    }


def table_records(tables: dict[str, pa.Table]) -> dict[str, TableRecord]:
    """Return rows and digest of prepared tables, for the core."""
    return {
        name: TableRecord(rows=table.num_rows, digest=digest_columns(TABLES[name].schema, table.num_rows, table.column))
        for name, table in tables.items()
    }


def check_target(target: Path) -> None:
    """Refuse to replace a folder that is not a manifest."""
    target = Path(os.path.abspath(target))
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise ManifestError(f"the manifest {target}: expected a folder, found a file or a link", "Name a new folder.")
    above = next(parent for parent in target.parents if os.path.lexists(parent))
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        found = "a folder that may not be written" if above.is_dir() else "a file"
        raise ManifestError(
            f"the manifest {target}: expected {above} to be a folder that may be written, found {found}",
            "Name another folder.",
        )
    try:
        is_filled = target.is_dir() and any(target.iterdir())
    except OSError as error:
        raise ManifestError(f"the manifest {target}: {error.strerror}", "Name another folder.") from None
    if is_filled and not (target / POINTER).is_file():
        raise ManifestError(
            f"the manifest {target}: the folder is not empty and holds no {POINTER}",
            "Name a new folder, or an older manifest to replace.",
        )


def publish(
    target: Path, core: Core, run: Run, tables: dict[str, pa.Table], folders: Mapping[str, Fill] | None = None
) -> str:
    """Write a manifest and put it in place atomically; return its id.

    Other files in the old folder (a quarantine list, a gate's verdict) stay; the old manifest's signature goes.
    """
    check_target(target)
    target = Path(os.path.abspath(target))
    identity = manifest_id(core)
    pointer = _pointer(identity, core, run)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with publish_lock(target.parent) as alone:
            recover(target, alone=alone)
            staging = staging_folder(target)
            try:
                _fill(staging, target, tables, folders or {})
                pointer = _pointer(identity, core, run.model_copy(update={"files": file_records(staging)}))
                write_synced(staging / POINTER, pointer)
                sync_folder(staging)
                replace_folder(staging, target, _OURS)
            except BaseException:
                shutil.rmtree(staging, ignore_errors=True)
                raise
    except OSError as error:
        raise ManifestError(
            f"the manifest {target} cannot be written: {error.strerror or error}; {_left(target, pointer)}",
            "Free space or name another folder, then run the same command again: no finished work is lost.",
        ) from None
    return identity


def _pointer(identity: str, core: Core, run: Run) -> bytes:
    """Return ``manifest.json``, checked by its schema."""
    document = {"id": identity, "core": core_json(core), "run": run.model_dump(mode="json", by_alias=True)}
    ManifestFile.model_validate(document)
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


def _left(target: Path, pointer: bytes) -> str:
    """Return in words what a failed publish left behind."""
    if (target / POINTER).is_file():
        if (target / POINTER).read_bytes() == pointer:
            return "it is in place, but the disk did not confirm that"
        return "the manifest that was there before is untouched"
    aside = moved_aside(target) if not target.exists() else None
    return "nothing was published" if aside is None else f"the manifest that was there before lies in {aside}"


def _fill(staging: Path, target: Path, tables: dict[str, pa.Table], folders: Mapping[str, Fill]) -> None:
    """Write the whole manifest but its pointer, and what else lies in the old one, to ``staging``."""
    staging.mkdir()
    for name, table in tables.items():
        with (staging / table_file(name)).open("wb") as file:
            write_table(file, table, TABLES[name].schema)
            sync_file(file)
    for name, fill in folders.items():
        assert name in FOLDERS
        (staging / name).mkdir()
        fill(staging / name)
        sync_folder(staging / name)
    if target.is_dir():
        shutil.copymode(target, staging)
        for item in sorted(target.iterdir()):
            if item.name not in _OURS:
                _copy_synced(item, staging / item.name)


def write_table(file: BinaryIO, table: pa.Table, schema: pa.Schema) -> None:
    """Write a table of a manifest as Parquet, the same bytes in whatever pieces it lies: pages end with pieces."""
    sink = pa.BufferedOutputStream(pa.PythonFile(file, "w"), _WRITE_BYTES)
    with pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True) as writer:
        for start in range(0, max(1, table.num_rows), GROUP_ROWS):
            group = table.slice(start, GROUP_ROWS).cast(schema).combine_chunks()
            writer.write_table(group, row_group_size=GROUP_ROWS)
    sink.detach()  # written, and the file stays open


def _copy_synced(item: Path, to: Path) -> None:
    if item.is_symlink() or not item.is_dir():
        with contextlib.suppress(OSError):  # the file itself, so that lines that are added meanwhile stay
            os.link(item, to, follow_symlinks=False)
            return
        shutil.copy2(item, to, follow_symlinks=False)
        if not to.is_symlink():
            with to.open("rb") as handle:
                os.fsync(handle.fileno())
        return
    to.mkdir()
    for inner in sorted(item.iterdir()):
        _copy_synced(inner, to / inner.name)
    shutil.copystat(item, to)
    sync_folder(to)
