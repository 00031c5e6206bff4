"""Loading a manifest: ``manifest.json`` is read and checked, tables are opened when asked for.

Proves that ``manifest.json`` is of this schema and that its id is the digest of its core. That nobody changed its part
``run`` is proven by a signature alone (:mod:`.trust`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pyarrow as pa
from pydantic import ValidationError

from dataaudit.base.errors import ManifestError, ManifestMismatch
from dataaudit.base.files import read_safely
from dataaudit.base.text import clean, plural
from dataaudit.manifest.canonical import RepeatedKeyError, digest_json, unique_keys
from dataaudit.manifest.core import SCHEMA_NAME, SCHEMA_VERSION, Core, ManifestFile, Run
from dataaudit.manifest.formats import has_columns
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.manifest.reading import RESTORE, TRIES, TableReader
from dataaudit.manifest.replace import POINTER, moved_aside
from dataaudit.manifest.s3 import shown

_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A loaded manifest."""

    folder: Path
    id: str
    """``sha256:<hex>`` of the core."""
    core: Core
    """The numbers and what decided them."""
    run: Run
    """Circumstances of the build."""
    pointer_sha256: str = ""
    """sha256 of the loaded bytes of ``manifest.json``, hex."""
    signed_by: str = field(default="", compare=False)
    """Whose signature of it was checked (:mod:`dataaudit.manifest.trust`); empty when none was."""

    reader: TableReader = field(init=False, repr=False, compare=False)
    """Reads tables and files, with a check of each."""
    _facts: dict[Any, Any] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        reader = TableReader(folder=self.folder, id=self.id, records=self.core.tables, files=self.run.files)
        object.__setattr__(self, "reader", reader)

    def __repr__(self) -> str:
        """Return dataset and size on one line."""
        totals, shards = self.core.totals, self.core.ledger.shards
        name = clean(f"{self.core.dataset.name} {self.core.dataset.version}", 80)
        size = f"{totals.documents:,} documents, {totals.tokens:,} tokens, {plural(totals.shards, 'shard')} read"
        return f"<Manifest {name}: {size}, {shards.quarantined + shards.skipped:,} unread; {self.id}>"

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return one table in canonical order, or some of its columns.

        A file is read and compared with its digest in the core when it is first asked for. Columns that were read are
        kept, up to :data:`dataaudit.manifest.reading.MOST_KEPT_BYTES` in all. Threads may ask at the same time.

        Args:
            name: One of the tables that ``dataaudit explain tables`` lists: ``shards``, ``metrics``, ``findings``, ...
            columns: Names of columns; all of them when None.

        Raises:
            ConfigError: There is no table, or no column, of that name.
            ManifestError: The file is absent, damaged, or not of the schema, or another manifest was published here
                since this one was loaded.
            ManifestMismatch: It is not the table that the manifest was published with.
        """
        return self.reader.table(name, columns)

    @property
    def place(self) -> str:
        """Its folder, or the address in a store that it was fetched from."""
        return shown(self.folder)

    def kept(self, make: Callable[[Manifest], _Made]) -> _Made:
        """Return what a function makes of this manifest; it is called once."""
        if make not in self._facts:
            self._facts[make] = make(self)
        fact: _Made = self._facts[make]
        return fact

    def metrics(self, metric: str | None = None, stat: str | None = None, scope: Scope | None = None) -> list[Metric]:
        """Return metric records, filtered by name, statistic and exact scope.

        Args:
            metric: Name of the metric, as in ``dataaudit explain metrics``; all when None.
            stat: Name of the statistic; all when None.
            scope: Split, source, language, ... that it is about; every scope when None.

        Raises:
            ManifestError: As of :meth:`table`.
        """
        names = {"metric": metric, "stat": stat}
        chosen: dict[str, str | int | None] = {name: value for name, value in names.items() if value is not None}
        if scope is not None:
            chosen |= {name: getattr(scope, name) for name in Scope.__slots__}
        try:
            return list(self.metric_rows().where(**chosen))
        except ValueError as error:  # a record that no build wrote
            raise ManifestError(f"table metrics: {error}", RESTORE) from None

    def metric_rows(self) -> MetricRows:
        """Return all metric records in canonical order, in columns.

        Raises:
            ManifestError: As of :meth:`table`.
        """
        return self.reader.metric_rows()


def once(make: Callable[[Manifest], _Made]) -> Callable[[Manifest], _Made]:
    """Call a function of a manifest once and keep its result, which nobody may change."""

    @wraps(make)
    def made(manifest: Manifest) -> _Made:
        return manifest.kept(make)

    return made


def load_manifest(folder: Path) -> Manifest:
    """Read and check ``manifest.json``: schema, and id against core.

    Raises:
        ManifestError: Absent, not JSON, of another schema, or with an unknown or repeated key.
        ManifestMismatch: The id is not the digest of the core.
    """
    try:
        data = _read_pointer(folder / POINTER)
    except OSError as error:
        raise _absent(folder, error) from None
    parsed, sha256 = parse_pointer(data, shown(folder / POINTER)), hashlib.sha256(data).hexdigest()
    return Manifest(folder=folder, id=parsed.id, core=parsed.core, run=parsed.run, pointer_sha256=sha256)


def parse_pointer(data: bytes, path: str) -> ManifestFile:
    """Check the bytes of ``manifest.json`` as :func:`load_manifest` does, and return its content."""
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ManifestError(f"{path} is not valid JSON: {error}", RESTORE) from None
    try:
        json.loads(data, object_pairs_hook=unique_keys)
    except RepeatedKeyError as error:
        raise ManifestError(f"{path}: the key `{clean(str(error), 80)}` stands twice in one object", RESTORE) from None
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{path}: {error}", RESTORE) from None
    _check_schema(document, path)
    try:
        parsed = ManifestFile.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        message = "unknown field" if first["type"] == "extra_forbidden" else first["msg"]
        raise ManifestError(
            f"{path}: {error.error_count()} problem(s), the first at {place}: {message}", RESTORE
        ) from None
    try:
        digest = digest_json(document["core"])
    except ValueError as error:
        raise ManifestError(f"{path}: the core has no canonical form: {error}", RESTORE) from None
    problem = ""
    if digest != parsed.id:
        problem = f"the id says {parsed.id}, the core's digest is {digest}"
    elif parsed.core.quarantine and parsed.run.quarantine is None:
        problem = "the core names what a quarantine list held back, `run.quarantine` names no list"
    if problem:
        raise ManifestMismatch(f"{path}: {problem}", f"The file was changed after it was written. {RESTORE}")
    return parsed


def _read_pointer(path: Path) -> bytes:
    """Read ``manifest.json``; again when its folder was replaced just as it was opened."""
    for _ in range(TRIES):
        with contextlib.suppress(FileNotFoundError):
            return read_safely(path)
        if not path.exists():
            break
    return read_safely(path)


def _absent(folder: Path, error: OSError) -> ManifestError:
    aside = moved_aside(folder.absolute()) if not folder.exists() else None
    if aside is not None:
        return ManifestError(
            f"no manifest at {shown(folder)}: a publish was killed as it replaced it; the manifest lies in {aside}",
            f"Build again, which puts it back first, or rename it yourself: mv {aside} {folder}",
        )
    is_empty = folder.is_dir() and isinstance(error, FileNotFoundError)
    reason = "the folder has none" if is_empty else (error.strerror or str(error)).lower()
    return ManifestError(
        f"no manifest at {shown(folder)}: {reason}", "`dataaudit build ... --manifest DIR` writes one."
    )


def _check_schema(document: Any, path: str) -> None:
    """Refuse JSON that is no manifest, and a manifest of another schema version."""
    core = document.get("core") if isinstance(document, dict) else None
    schema = core.get("schema") if isinstance(core, dict) else None
    if not isinstance(schema, dict) or schema.get("name") != SCHEMA_NAME:
        raise ManifestError(
            f"{path}: expected a {SCHEMA_NAME}, found another kind of JSON", "Name the folder of a manifest."
        )
    version = schema.get("version")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise ManifestError(
            f"{path}: schema version {version}, this program reads version {SCHEMA_VERSION}",
            "Build it again, or install the version of dataaudit that wrote it.",
        )


def differing_text_columns(columns: Mapping[str, str]) -> str:
    """Return in words which text columns the splits have, if their names differ; else nothing."""
    if len(set(columns.values())) < 2:
        return ""
    listed = ", ".join(f"{clean(split)} `{clean(text)}`" for split, text in sorted(columns.items()))
    return f"the splits read differently named columns as their text: {listed}"


def text_columns(manifest: Manifest) -> dict[str, str]:
    """Return the text column of each split that has columns."""
    shards = manifest.table("shards", ["split", "format"]).to_pylist()
    with_columns = {row["split"] for row in shards if has_columns(row["format"])}
    rules = manifest.core.config.get("splits", {})
    return {name: rule["text"] for name, rule in rules.items() if name in with_columns and rule.get("text")}
