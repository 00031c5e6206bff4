"""Verification of a manifest: proves that every file is the published one, and that the core agrees with the tables.

Whether a build could have written the values is checked by :mod:`.value_checks`, who signed by :mod:`.trust`, whether
numbers contradict each other by :mod:`dataaudit.metrics.relations`.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.errors import ManifestError, ManifestMismatch
from dataaudit.base.yamlfile import NAME_PATTERN
from dataaudit.manifest.canonical import digest_table, is_sorted, sorted_table
from dataaudit.manifest.core import Coverage
from dataaudit.manifest.files import files_below, table_file
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.locate import is_canonical, is_roundabout, relative_path
from dataaudit.manifest.minhash import FOLDER, file_name, read_signatures
from dataaudit.manifest.replace import POINTER
from dataaudit.manifest.s3 import stored_address
from dataaudit.manifest.tables import HELD_BACK, TABLES
from dataaudit.manifest.value_checks import check_column, check_records

LOST = ("quarantined", "skipped")
ALWAYS = "volume"
"""The stage that every build runs."""
_MOST_SHOWN = 200
"""Characters of a URI in a message."""
_ADDED_UP = ("shards", "sources")
"""Tables that are compared with the core and each other; others are in memory one at a time."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A difference from what the manifest says: a short code, and what was expected and found."""

    code: str
    text: str


def verify(manifest: Manifest) -> list[Problem]:
    """Check every file and table; return all problems."""
    problems: list[Problem] = []
    tables: dict[str, pa.Table] = {}
    for name in sorted(set(TABLES) | set(manifest.core.tables)):
        if name not in TABLES or name not in manifest.core.tables:
            problems.append(Problem("table_list", f"table {name}: in one of schema and core, not in both"))
            continue
        if table_file(name) not in manifest.run.files:
            continue  # its bytes are unknown, so it is not parsed; check_bytes names it
        if name == "metrics" and _is_sound(manifest):  # millions of rows
            problems += _check_statistics(manifest, name)
            continue
        try:
            table = manifest.reader.read_unchecked(name)
        except ManifestError as error:
            problems.append(_unreadable("table", error))
            continue
        if name in _ADDED_UP:
            tables[name] = table
        problems += _check_table(manifest, name, table) or _check_statistics(manifest, name)
    problems += check_bytes(manifest)
    problems += _check_signatures(manifest) if not problems else []
    known = {POINTER, *map(table_file, TABLES)}
    parquet = [item.name for item in manifest.folder.iterdir() if item.name.lower().endswith(".parquet")]
    strangers = sorted(name for name in parquet if name not in known)
    problems += [Problem("unknown_table", f"{name} is not part of a manifest") for name in strangers]
    problems += _check_run(manifest)
    return problems or check_core(manifest, tables)


def _is_sound(manifest: Manifest) -> bool:
    """Return whether the table of metrics is the published one; if not, the table is read to say what is wrong."""
    try:
        return len(manifest.reader.read_rows()) == manifest.core.tables["metrics"].rows
    except ManifestError:
        return False


def check_core(manifest: Manifest, tables: Mapping[str, pa.Table] | None = None) -> list[Problem]:
    """Compare the core with the tables of shards, sources and metrics, and check the URIs of shards."""
    tables = {name: manifest.table(name) for name in _ADDED_UP} if tables is None else tables
    return [
        *_check_uris(tables["shards"], manifest.run.roots),
        *_check_ledger(manifest, tables["shards"]),
        *_check_sums(manifest, tables),
        *_check_headline(manifest),
    ]


def _check_run(manifest: Manifest) -> list[Problem]:
    """Check the names that exports pass on: the dataset's name and version, and the times of the build."""
    dataset, run = manifest.core.dataset, manifest.run
    problems = []
    if not re.fullmatch(NAME_PATTERN, dataset.name) or not dataset.version or not dataset.version.isprintable():
        text = "the dataset's name and version are not those of a config: letters, digits and .-_ on one line"
        problems.append(Problem("dataset", text))
    for name, value in (("started", run.started), ("finished", run.finished)):
        try:
            dt.datetime.fromisoformat(value)
        except ValueError:
            problems.append(Problem("run_time", f"run.{name} is no time in ISO 8601"))
    return problems


def _check_statistics(manifest: Manifest, name: str) -> list[Problem]:
    """Compare the footer of a table's file with its rows."""
    try:
        return [Problem("statistics", text) for text in manifest.reader.wrong_statistics(name)]
    except ManifestError as error:
        return [_unreadable("table", error)]


def _unreadable(what: str, error: ManifestError) -> Problem:
    """Return the problem of a file: it has other bytes, or it cannot be read."""
    return Problem("file_bytes" if isinstance(error, ManifestMismatch) else f"{what}_unreadable", error.message)


def check_bytes(manifest: Manifest, tables: Sequence[str] = ()) -> list[Problem]:
    """Compare every file with the size and sha256 in the run; the manifest's folders have no other file."""
    if stored_address(manifest.folder) is not None:
        from dataaudit.manifest.remote import fetch_folders

        fetch_folders(manifest)
    own = {table_file(name) for name in TABLES}
    below = set(files_below(manifest.folder))
    listed = {name for name in manifest.run.files if name not in own}
    problems = [
        Problem("file_list", f"{name}: the run does not name it") for name in sorted(own - {*manifest.run.files})
    ]
    problems += [Problem("unknown_file", f"{name} is not part of the manifest") for name in sorted(below - listed)]
    problems += [
        Problem("file_gone", f"{name}: the run names it, and it is not there") for name in sorted(listed - below)
    ]
    for name in sorted({*tables, *(below & listed)} & {*manifest.run.files}):
        try:
            manifest.reader.hold_file(name)
        except ManifestError as error:
            problems.append(_unreadable("file", error))
    return problems


def _check_signatures(manifest: Manifest) -> list[Problem]:
    """Check the files of MinHash signatures; their folder has no other file."""
    try:
        named = {file_name(shard) for shard, _ in read_signatures(manifest)}
    except ManifestError as error:
        return [Problem("signatures", error.message)]
    present = {f"{FOLDER}/{path.name}" for path in (manifest.folder / FOLDER).glob("*")}
    return [Problem("signatures", f"{name} is not part of the manifest") for name in sorted(present - named)]


def _check_table(manifest: Manifest, name: str, table: pa.Table) -> list[Problem]:
    """Check the number of rows, values, digest, order and keys of a table."""
    record = manifest.core.tables[name]
    if table.num_rows != record.rows:
        return [Problem("table_rows", f"table {name}: the core says {record.rows} rows, found {table.num_rows}")]
    num_shards = manifest.core.tables["shards"].rows if "shards" in manifest.core.tables else 0
    try:
        for field in table.schema:
            check_column(name, field, table[field.name], num_shards)
        if name == "metrics":
            check_records(table)
        ordered = sorted_table(table, TABLES[name])
    except ValueError as error:
        return [Problem("table_values", str(error))]
    if (found := digest_table(ordered)) != record.digest:
        return [Problem("table_digest", f"table {name}: the core says {record.digest}, found {found}")]
    if name == "shards" and table["shard"].to_pylist() != list(range(table.num_rows)):
        return [Problem("shard_order", "table shards: its rows are not numbered 0, 1, 2, ...")]
    try:
        is_sorted(TABLES[name], ordered.column, unique=True)
    except ValueError as error:
        return [Problem("table_key", f"table {name}: {error}")]
    return []


def _check_uris(shards: pa.Table, roots: Mapping[str, str]) -> list[Problem]:
    """Check that a build writes such URIs, below the root of their split; shards of streamed datasets are no files."""
    files = shards.filter(pc.not_equal(shards["format"], "datasets"))
    uris = files["uri"].to_pylist()
    stores = {split for split, root in roots.items() if "://" in root}
    outside = [uri for uri in uris if relative_path(uri) is None]
    odd = [
        uri
        for uri, split in zip(uris, files["split"].to_pylist(), strict=True)
        if not is_canonical(uri) or (split not in stores and is_roundabout(uri))
    ]
    if not outside and not odd:
        return []
    first, *others = outside or odd
    shown = f"the URI {first[:_MOST_SHOWN]!r}"
    more = f", and {len(others)} more" if others else ""
    if outside:
        return [Problem("uri_outside_root", f"table shards: {shown} leads out of the root{more}")]
    return [Problem("uri_form", f"table shards: no build writes {shown}{more}")]


def _check_ledger(manifest: Manifest, shards: pa.Table) -> list[Problem]:
    """Check that planned = read + bad + held back + quarantined + skipped, and that the shards add up to that."""
    core = manifest.core
    problems = []
    for unit in ("shards", "bytes", "documents"):
        line: Coverage = getattr(core.ledger, unit)
        total = line.read + line.bad + line.held_back + line.quarantined + line.skipped
        if line.planned != total:
            counts = ((name.replace("_", " "), value) for name, value in line.model_dump().items() if name != "planned")
            parts = ", ".join(f"{name} {value}" for name, value in counts if value or name != "held back")
            text = f"ledger {unit}: planned {line.planned}, accounted for {total} ({parts})"
            problems.append(Problem("ledger_balance", text))
    kept = shards.filter(pc.invert(pc.is_in(shards["status"], pa.array(LOST))))
    listed = shards.filter(pc.equal(shards["reason"], HELD_BACK))
    sums = {
        "shards": (kept.num_rows, core.ledger.shards.read, core.totals.shards),
        "documents": (_sum(kept, "documents"), core.ledger.documents.read, core.totals.documents),
        "stored bytes": (_sum(kept, "size"), core.ledger.bytes.read),
        "text bytes": (_sum(kept, "bytes"), core.totals.bytes),
        "tokens": (_sum(kept, "tokens"), core.totals.tokens),
        "records held back": (
            _sum(kept, "rows") - _sum(kept, "documents") - _sum(kept, "bad_records"),
            core.ledger.documents.held_back,
        ),
        "shards held back": (listed.num_rows, core.ledger.listed_shards),
        "stored bytes held back": (_sum(listed, "size"), core.ledger.listed_bytes),
        "planned shards": (shards.num_rows, core.ledger.shards.planned),
        "planned bytes": (_sum(shards, "size"), core.ledger.bytes.planned),
    }
    for unit, values in sums.items():
        if len(set(values)) > 1:
            text = f"the table adds up to {values[0]}, the core says {' and '.join(map(str, values[1:]))}"
            problems.append(Problem("ledger_sums", f"{unit} of table shards: {text}"))
    return problems


def _check_sums(manifest: Manifest, tables: Mapping[str, pa.Table]) -> list[Problem]:
    """Compare the totals of every split with the tables of shards and of sources."""
    shards = tables["shards"]
    kept = shards.filter(pc.invert(pc.is_in(shards["status"], pa.array(LOST))))
    problems = []
    known = {split.name for split in manifest.core.splits}
    if strangers := sorted(set(shards["split"].to_pylist()) - known):
        problems.append(Problem("splits", f"table shards: splits {strangers} are not in the core"))
    for split in manifest.core.splits:
        expected = {name: getattr(split, name) for name in ("documents", "bytes", "tokens")}
        for table, rows in (("shards", kept), ("sources", tables["sources"])):
            own = rows.filter(pc.equal(rows["split"], split.name))
            sums = {name: _sum(own, name) for name in expected}
            if sums != expected or (table == "shards" and own.num_rows != split.shards):
                text = f"split {split.name}: table {table} adds up to {sums} in {own.num_rows} rows"
                problems.append(Problem("split_sums", f"{text}, the core says {expected}"))
    return problems


def _check_headline(manifest: Manifest) -> list[Problem]:
    """Check that every headline is a record of the metrics table."""
    rows, problems = manifest.metric_rows(), []
    for record in manifest.core.headline:
        shown = (record.unit, record.value, record.status)
        try:
            own = rows.where(metric=record.metric, stat=record.stat, **record.scope).shaped(*record.scope)
        except (KeyError, TypeError, pa.ArrowException):  # a scope that no record can have
            own = rows[:0]
        found = next(((metric.unit, metric.value, metric.status) for metric in own), None)
        if shown != found:
            text = f"headline {record.metric}.{record.stat}: the core says {shown}, table metrics {found}"
            problems.append(Problem("headline", text))
    return problems


def _sum(table: pa.Table, column: str) -> int:
    return int(pc.sum(table[column]).as_py() or 0)
