"""Writes the golden manifest from ``golden.yaml``: ``python tests/golden/make_golden.py --update-golden``.

Without the flag it writes nothing and prints the id that the source has now.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from dataaudit.manifest.core import Core, Run, manifest_id
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.manifest.metric_rows import metrics_table
from dataaudit.manifest.publish import prepare_tables, publish, table_records
from dataaudit.manifest.tables import TABLES

HERE = Path(__file__).parent
SOURCE = HERE / "golden.yaml"
FOLDER = HERE / "manifest"


def golden() -> tuple[Core, Run, dict[str, pa.Table]]:
    """Return core, run and tables of the golden manifest, from its source."""
    source: dict[str, Any] = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    filled = {
        name: metrics_table(_metrics(rows)) if name == "metrics" else _table(name, rows)
        for name, rows in source["tables"].items()
    }
    tables = prepare_tables(filled)
    records = {name: record.model_dump() for name, record in table_records(tables).items()}
    core = Core.model_validate(source["core"] | {"tables": records})
    return core, Run.model_validate(source["run"]), tables


def _table(name: str, rows: list[list[Any]]) -> pa.Table:
    names = TABLES[name].schema.names
    records = [dict(zip(names, row, strict=True)) for row in rows]
    return pa.Table.from_pylist(records, schema=TABLES[name].schema)


def _metrics(rows: list[dict[str, Any]]) -> list[Metric]:
    return [Metric(**{**row, "scope": Scope(**row.get("scope", {}))}) for row in rows]


if __name__ == "__main__":
    made_core, made_run, made_tables = golden()
    if "--update-golden" in sys.argv[1:]:
        print(publish(FOLDER, made_core, made_run, made_tables))
    else:
        print(manifest_id(made_core))
