"""A loaded manifest as notebooks use it: tables as Arrow, pandas or polars, and what stands out at a glance."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from dataaudit.api.arguments import PathLike, manifest_path
from dataaudit.errors import ConfigError
from dataaudit.manifest.load import Manifest as LoadedManifest
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.metrics.registry import METRICS
from dataaudit.yamlfile import nearest

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


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
            ConfigError: No metric has that name, here or in any manifest.
            ManifestError: The file is absent, damaged or of another manifest by now.
        """
        if metric is not None and metric not in METRICS:
            held = self.metric_rows().names("metric")
            if metric not in held:
                raise ConfigError(f"{self.place} has no metric `{metric}`{nearest(metric, held)}")
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
        from dataaudit.render.html.notebook import to_html
        from dataaudit.report.screen import manifest_blocks

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
    found = folder if isinstance(folder, LoadedManifest) else load_manifest(manifest_path(folder, "manifest"))
    return Manifest(**{one.name: getattr(found, one.name) for one in fields(found) if one.init})


def _import(package: str) -> None:
    """Say what to type when a library is missing.

    Raises:
        ConfigError: It is not installed.
    """
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise ConfigError(f"{package} is not installed", f"pip install {package}")
