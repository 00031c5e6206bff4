"""Atomic publishing of a manifest directory: a reader sees the old one or the new one, never a mix.

Everything is written and synced in a sibling folder, ``manifest.json`` last; then the folder takes the
place of the old one in one step (``renameat2`` with ``RENAME_EXCHANGE`` where the system has it, else two
renames). A kill leaves at most a hidden sibling folder, which the next publish removes.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from dataaudit.errors import ManifestError
from dataaudit.manifest.canonical import digest_table, sorted_table
from dataaudit.manifest.core import Core, ManifestFile, Run, TableRecord, core_json, manifest_id
from dataaudit.manifest.tables import TABLES

POINTER = "manifest.json"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def prepare_tables(filled: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """Return every table of a manifest in canonical order; those not given are empty."""
    unknown = sorted(set(filled) - set(TABLES))
    if unknown:
        raise ValueError(f"unknown tables: {unknown}")
    return {
        name: sorted_table(filled.get(name, spec.schema.empty_table()), spec) for name, spec in TABLES.items()
    }


def table_records(tables: dict[str, pa.Table]) -> dict[str, TableRecord]:
    """Return rows and digest of prepared tables, for the core."""
    return {
        name: TableRecord(rows=table.num_rows, digest=digest_table(table)) for name, table in tables.items()
    }


def check_target(target: Path) -> None:
    """Refuse to replace a folder that is not a manifest.

    Raises:
        ManifestError: ``target`` is a file, or a folder that holds other things and no manifest.
    """
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise ManifestError(
            f"--manifest {target}: expected a folder, found a file or a link", "Name a new folder."
        )
    if target.is_dir() and any(target.iterdir()) and not (target / POINTER).is_file():
        raise ManifestError(
            f"--manifest {target}: the folder is not empty and holds no {POINTER}",
            "Name a new folder, or an older manifest to replace.",
        )


def publish(target: Path, core: Core, run: Run, tables: dict[str, pa.Table]) -> str:
    """Write a manifest and put it in place atomically; return its id.

    Files in the old folder that are not part of a manifest (a quarantine list, a gate's verdict) stay.

    Raises:
        ManifestError: The target is not a manifest's folder.
        OSError: The disk is full or refuses; the old manifest is untouched then.
    """
    check_target(target)
    target = target.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = target.parent / f".{target.name}.publishing"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    for name, table in tables.items():
        _write_synced_table(staging / f"{name}.parquet", table)
    if target.is_dir():
        ours = {POINTER, *(f"{name}.parquet" for name in TABLES)}
        for item in sorted(target.iterdir()):
            if item.name not in ours:
                _copy(item, staging / item.name)
    identity = manifest_id(core)
    document = {"id": identity, "core": core_json(core), "run": run.model_dump(mode="json", by_alias=True)}
    ManifestFile.model_validate(document)
    pointer = orjson.dumps(
        document, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    )
    write_synced(staging / POINTER, pointer)
    sync_folder(staging)
    _take_place(staging, target)
    sync_folder(target.parent)
    return identity


def write_synced(path: Path, data: bytes) -> None:
    """Write a file and force it to disk."""
    with path.open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_synced_table(path: Path, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    write_synced(path, sink.getvalue().to_pybytes())


def _copy(item: Path, to: Path) -> None:
    if item.is_dir() and not item.is_symlink():
        shutil.copytree(item, to, symlinks=True)
    else:
        shutil.copy2(item, to, follow_symlinks=False)


def _take_place(staging: Path, target: Path) -> None:
    if not target.exists():
        staging.rename(target)
        return
    if _exchange(staging, target):
        shutil.rmtree(staging, ignore_errors=True)
        return
    old = target.parent / f".{target.name}.replaced"
    shutil.rmtree(old, ignore_errors=True)
    target.rename(old)
    staging.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _exchange(left: Path, right: Path) -> bool:
    """Swap two folders in one step; False where the system cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    if renameat2(_AT_FDCWD, os.fsencode(left), _AT_FDCWD, os.fsencode(right), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(right))
