"""Writes the tables of ``docs/reference/format.md`` from their schemas: ``... make_format_page.py --update-golden``.

Without the flag it writes nothing and prints the tables.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

from dataaudit.manifest.tables import TABLES, TableSpec
from dataaudit.metrics.recomputed import Follows
from dataaudit.metrics.registry import FAMILIES, STATISTICS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/format.md"
HELD_START = "<!-- held: written by tests/golden/make_format_page.py --update-golden -->\n"
HELD_END = "<!-- end of held -->\n"
START = "<!-- tables: written by tests/golden/make_format_page.py --update-golden -->\n"
END = "<!-- end of tables -->\n"


def format_tables() -> str:
    """Return every table of the format as Markdown."""
    return "".join(_section(spec) for spec in TABLES.values())


def updated(page: str) -> str:
    """Return the page with its tables, and what is held, renewed."""
    head, _, rest = page.partition(HELD_START)
    page = f"{head}{HELD_START}\n{held_statistics()}\n{HELD_END}{rest.partition(HELD_END)[2]}"
    head, _, rest = page.partition(START)
    return f"{head}{START}{format_tables()}\n{END}{rest.partition(END)[2]}"


def held_statistics() -> str:
    """Return which statistics of each metric follow from tables, as Markdown."""
    follows = [check for family in FAMILIES for check in family.checks if isinstance(check, Follows)]
    exact = {(check.metric, check.stat) for check in follows if check.value is not None}
    bounded = {(check.metric, check.stat) for check in follows if check.value is None}
    lines = ["| metric | computed again | held within bounds | not held |\n|---|---|---|---|\n"]
    for metric in dict.fromkeys(metric for metric, _ in STATISTICS):
        stats = [stat for name, stat in STATISTICS if name == metric]
        kinds: list[list[str]] = [[], [], []]
        for stat in stats:
            key = (metric, stat)
            if key in exact:
                kinds[0].append(stat)
            if key in bounded:
                kinds[1].append(stat)
            if key not in exact | bounded:
                kinds[2].append(stat)
        cells = (", ".join(f"`{stat}`" for stat in kind) for kind in kinds)
        lines.append(f"| `{metric}` | {' | '.join(cells)} |\n")
    return "".join(lines)


def _section(spec: TableSpec) -> str:
    lines = [f"\n### `{spec.name}.parquet`\n\n{spec.about} Key: {', '.join(f'`{name}`' for name in spec.key)}.\n\n"]
    lines.append("| column | type | null | meaning |\n|---|---|---|---|\n")
    for field in spec.schema:
        lines += _rows(field, field.name)
    return "".join(lines)


def _rows(field: pa.Field, name: str) -> list[str]:
    kind = field.type
    inner = kind.value_type if pa.types.is_list(kind) else kind
    nested = pa.types.is_struct(inner)
    word = {"list": "list of structs", "struct": "struct"}.get(str(kind).partition("<")[0], str(kind))
    meaning = field.metadata[b"meaning"].decode()
    rows = [f"| `{name}` | {word} | {'yes' if field.nullable else ''} | {meaning} |\n"]
    prefix = f"{name}[]" if pa.types.is_list(kind) else name
    return rows + [row for child in (inner if nested else ()) for row in _rows(child, f"{prefix}.{child.name}")]


if __name__ == "__main__":
    if "--update-golden" in sys.argv[1:]:
        PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(format_tables())
