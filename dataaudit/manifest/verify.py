"""Verification: schema, digests of every table, ledger, and on request the data itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.errors import ManifestError
from dataaudit.manifest.canonical import digest_table, sorted_table
from dataaudit.manifest.core import Coverage
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.publish import POINTER
from dataaudit.manifest.tables import TABLES

LOST = ("quarantined", "skipped")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is not as the manifest says."""

    code: str
    """Short code, for programs."""
    text: str
    """What was expected and what was found."""


def verify(manifest: Manifest) -> list[Problem]:
    """Check every table against the core; return every problem, none when all is well."""
    problems: list[Problem] = []
    tables: dict[str, pa.Table] = {}
    for name in sorted(set(TABLES) | set(manifest.core.tables)):
        if name not in TABLES or name not in manifest.core.tables:
            problems.append(Problem("table_list", f"table {name}: in one of schema and core, not in both"))
            continue
        try:
            tables[name] = manifest.table(name)
        except ManifestError as error:
            problems.append(Problem("table_unreadable", error.message))
            continue
        problems += _check_table(manifest, name, tables[name])
    known = {POINTER, *(f"{name}.parquet" for name in TABLES)}
    strangers = sorted(item.name for item in manifest.folder.glob("*.parquet") if item.name not in known)
    problems += [Problem("unknown_table", f"{name} is not part of a manifest") for name in strangers]
    if "shards" in tables and not problems:
        problems += _check_ledger(manifest, tables["shards"])
    return problems


def _check_table(manifest: Manifest, name: str, table: pa.Table) -> list[Problem]:
    record = manifest.core.tables[name]
    if table.num_rows != record.rows:
        return [
            Problem("table_rows", f"table {name}: the core says {record.rows} rows, found {table.num_rows}")
        ]
    found = digest_table(sorted_table(table, TABLES[name]))
    if found != record.digest:
        return [Problem("table_digest", f"table {name}: the core says {record.digest}, found {found}")]
    if name == "shards" and table["shard"].to_pylist() != list(range(table.num_rows)):
        return [Problem("shard_order", "table shards: its rows are not numbered 0, 1, 2, ...")]
    return []


def _check_ledger(manifest: Manifest, shards: pa.Table) -> list[Problem]:
    """Check that planned = read + bad + quarantined + skipped, and that the shards add up to it."""
    core = manifest.core
    problems = []
    for unit in ("shards", "bytes", "documents"):
        line: Coverage = getattr(core.ledger, unit)
        total = line.read + line.bad + line.quarantined + line.skipped
        if line.planned != total:
            problems.append(
                Problem("ledger_balance", f"ledger {unit}: planned {line.planned}, accounted {total}")
            )
    kept = shards.filter(pc.invert(pc.is_in(shards["status"], pa.array(LOST))))
    sums = {
        "shards": (kept.num_rows, core.ledger.shards.read, core.totals.shards),
        "documents": (_sum(kept, "documents"), core.ledger.documents.read, core.totals.documents),
        "stored bytes": (_sum(kept, "size"), core.ledger.bytes.read),
        "text bytes": (_sum(kept, "bytes"), core.totals.bytes),
        "tokens": (_sum(kept, "tokens"), core.totals.tokens),
        "planned shards": (shards.num_rows, core.ledger.shards.planned),
        "planned bytes": (_sum(shards, "size"), core.ledger.bytes.planned),
    }
    for unit, values in sums.items():
        if len(set(values)) > 1:
            problems.append(Problem("ledger_sums", f"{unit}: table shards and core disagree: {values}"))
    return problems


def verify_data(
    manifest: Manifest,
    root_of: Callable[[str], Path],
    hash_file: Callable[[Path], str],
    path_of: Callable[[Path, str], Path],
) -> list[Problem]:
    """Hash every shard again; list those that are gone or changed.

    Args:
        manifest: The manifest.
        root_of: Folder that a split's URIs are relative to.
        hash_file: sha256 of a file, hex.
        path_of: File of a URI below a root.
    """
    problems = []
    columns = ["uri", "split", "size", "sha256"]
    for row in manifest.table("shards", columns).to_pylist():
        path = path_of(root_of(row["split"]), row["uri"])
        name = f"shard {row['split']}/{row['uri']}"
        try:
            if path.stat().st_size != row["size"]:
                size = path.stat().st_size
                problems.append(Problem("shard_size", f"{name}: {row['size']} bytes expected, {size} found"))
            elif row["sha256"] and hash_file(path) != row["sha256"]:
                problems.append(Problem("shard_digest", f"{name}: the bytes have changed since the build"))
        except OSError as error:
            problems.append(Problem("shard_gone", f"{name}: {error.strerror} ({path})"))
    return problems


def _sum(table: pa.Table, column: str) -> int:
    return int(pc.sum(table[column]).as_py() or 0)
