"""Arguments as people give them (paths, days, texts), and a loaded manifest as notebooks use it."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from dataaudit.base.errors import ConfigError
from dataaudit.base.redact import is_address
from dataaudit.base.yamlfile import nearest
from dataaudit.manifest.load import Manifest as LoadedManifest
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.manifest.s3 import is_stored
from dataaudit.metrics.registry import METRICS, STATISTICS

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from dataaudit.manifest.trust import Signer

PathLike = str | os.PathLike[str]
"""A path of a file or folder."""
Day = str | dt.date
"""A day, UTC, such as ``2026-12-31``."""


def expect(value: object, name: str, kind: type | tuple[type, ...], words: str) -> None:
    """Raise a TypeError for a value of another type; True and False are no numbers."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{name}: expected {words}, found {type(value).__name__}")


def path_of(value: PathLike, name: str) -> Path:
    """Return a path on this machine; an address is a ConfigError, what is no path a TypeError."""
    if isinstance(value, str) and is_address(value):
        raise ConfigError(f"{name}: a path on this machine is expected, {value!r} is an address")
    expect(value, name, (str, os.PathLike), "a path")
    return Path(value)


def manifest_path(value: PathLike, name: str) -> Path:
    """Return the folder of a manifest; of a manifest in a store, the folder that it is fetched into."""
    if is_stored(value):
        from dataaudit.manifest.remote import fetch_manifest

        return fetch_manifest(os.fspath(value))
    return path_of(value, name)


def optional_path(value: PathLike | None, name: str) -> Path | None:
    """Return a path, or None."""
    return None if value is None else path_of(value, name)


def day_of(value: Day | None, name: str) -> dt.date | None:
    """Return a day, or None; a text that is no day is a ConfigError, another type a TypeError."""
    if value is None or (isinstance(value, dt.date) and not isinstance(value, dt.datetime)):
        return value
    expect(value, name, str, "a day such as 2026-12-31")
    try:
        return dt.date.fromisoformat(str(value))
    except ValueError:
        raise ConfigError(f"{name}: expected a day such as 2026-12-31, found {value}") from None


def texts_of(value: object, name: str, *, numbers: bool = False) -> tuple[str, ...]:
    """Return a text or path, or several, as texts; with ``numbers`` whole numbers too."""
    kinds: tuple[type, ...] = (str, os.PathLike, int) if numbers else (str, os.PathLike)
    items: Iterable[object]
    if isinstance(value, kinds):
        items = (value,)
    elif isinstance(value, Iterable):
        items = tuple(value)
    else:
        raise TypeError(f"{name}: expected a text or several, found {type(value).__name__}")
    for item in items:
        if not isinstance(item, kinds) or isinstance(item, bool):
            raise TypeError(f"{name}: expected texts, found {type(item).__name__}")
    return tuple(os.fspath(item) if isinstance(item, os.PathLike) else str(item) for item in items)


ARGUMENTS = ("public_key=FILE", "identity=WHO", "issuer=URL")
"""How Python names a signer, for messages."""
OPTIONS = ("--public-key FILE", "--identity WHO", "--issuer URL")
"""How commands name a signer."""


def signer_of(
    public_key: PathLike | None,
    identity: str | None,
    issuer: str | None,
    words: tuple[str, str, str] = ARGUMENTS,
    asked: str | None = None,
) -> Signer | None:
    """Return who has to have signed; None when nobody is named and nothing has asked for it."""
    if asked is None and (public_key, identity, issuer) == (None, None, None):
        return None
    key, who, url = words
    if (public_key is None) == (identity is None):
        raise ConfigError(
            f"{asked or 'a signature'} needs either {key} or {who} with {url}",
            "A signature says nothing without knowing whose it has to be.",
        )
    if (identity is None) != (issuer is None):
        names = (word.replace("=", " ").split(" ")[0] for word in (who, url))
        raise ConfigError(f"{' and '.join(names)} go together", "Anybody can have an identity from some other issuer.")
    from dataaudit.manifest.trust import Signer

    return Signer(public_key=optional_path(public_key, "public_key"), identity=identity, issuer=issuer)


class Manifest(LoadedManifest):
    """A loaded manifest: ``id``, ``core``, ``run``, ``folder``; tables, and records of metrics.

    ``table(NAME, COLUMNS)`` returns Arrow, ``metrics(NAME)`` records with intervals. In a notebook it shows what stands
    out.
    """

    __slots__ = ()

    def metrics(self, metric: str | None = None, stat: str | None = None, scope: Scope | None = None) -> list[Metric]:
        """Return metric records, filtered by name, statistic and exact scope.

        Args:
            metric: Name of the metric, as in ``dataaudit explain metrics``; all when None.
            stat: Name of the statistic; all when None.
            scope: Split, source, language, ... that it speaks of; every scope when None.

        Raises:
            ConfigError: No metric, or statistic of it, has that name, here or in any manifest.
            ManifestError: The file is absent, damaged or of another manifest by now.
        """
        if scope is not None:
            expect(scope, "scope", Scope, "a Scope, as Scope(split='train') of dataaudit.manifest.metric")
        for column, name, anywhere in (("metric", metric, METRICS), ("stat", stat, {of for _, of in STATISTICS})):
            if name is not None and name not in anywhere and name not in (known := self.metric_rows().names(column)):
                raise ConfigError(f"{self.place} has no {column} `{name}`{nearest(name, known)}")
        return LoadedManifest.metrics(self, metric, stat, scope)

    def pandas(self, name: str, columns: list[str] | None = None) -> pd.DataFrame:
        """Return a table as a pandas DataFrame.

        The scope of a metric becomes columns ``scope.split``, ``scope.source``, ...; a whole number that may be absent
        becomes a float, as is usual in pandas. ``table(name).to_pandas(...)`` has Arrow's further choices.

        Args:
            name: Name of the table.
            columns: Names of columns of the table; all of them when None.

        Returns:
            A row for each row of the table; yours to change.

        Raises:
            ConfigError: There is no such table or column, or pandas is not installed.
            ManifestError: The file is absent, damaged or of another manifest by now.

        Example:
            >>> load("manifests/demo").pandas("shards", ["uri", "documents"]).shape
            (19, 2)
        """
        _import("pandas")
        frame: pd.DataFrame = self.table(name, columns).flatten().to_pandas()
        return frame

    def polars(self, name: str, columns: list[str] | None = None) -> pl.DataFrame:
        """Return a table as a polars DataFrame.

        Args:
            name: Name of the table.
            columns: Names of columns of the table; all of them when None.

        Returns:
            As of :meth:`pandas`, with Arrow's types; most columns share their memory with the table.

        Raises:
            ConfigError: There is no such table or column, or polars is not installed.
            ManifestError: The file is absent, damaged or of another manifest by now.

        Example:
            >>> load("manifests/demo").polars("shards", ["documents"]).sum().item()
            12961
        """
        _import("polars")
        import polars as pl

        return pl.DataFrame(pl.from_arrow(self.table(name, columns).flatten()))

    def _repr_html_(self) -> str:
        """Return what a notebook shows: what stands out, then how much there is."""
        from dataaudit.base.render.result import to_html
        from dataaudit.present.report.show import manifest_blocks

        return to_html(manifest_blocks(self))


def load(folder: PathLike | LoadedManifest) -> Manifest:
    """Load a manifest: its head is read and checked against its id, tables are read when they are asked for.

    Args:
        folder: Folder of the manifest, or its address in S3; a loaded one is returned as it is.

    Returns:
        The manifest. It reads and checks each table once, as long as no more than half a gigabyte is kept.

    Raises:
        ManifestError: There is none, it is damaged, or of a schema that this version does not read.
        ManifestMismatch: It was changed after it was written.
        TypeError: It is no path.

    Example:
        >>> load("manifests/demo").core.totals.documents
        12961
    """
    if isinstance(folder, Manifest):
        return folder
    loaded = folder if isinstance(folder, LoadedManifest) else load_manifest(manifest_path(folder, "manifest"))
    return Manifest(**{field.name: getattr(loaded, field.name) for field in fields(loaded) if field.init})


def _import(package: str) -> None:
    """Raise with what to type when a library is missing."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise ConfigError(f"{package} is not installed", f"pip install {package}")
