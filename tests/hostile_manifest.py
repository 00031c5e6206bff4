"""The demo's manifest with a hostile text in every name: of splits, sources, files, sets, kinds, rules, reasons."""

from pathlib import Path

import pyarrow as pa

from dataaudit.manifest.core import ProtectedRecord, UpstreamFilterRecord
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.manifest.metric_rows import metrics_table
from dataaudit.manifest.publish import prepare_tables, publish, table_records
from dataaudit.manifest.tables import TABLES

DEMO = Path(__file__).parents[1] / "manifests/demo"
PAYLOADS = (
    "<script>alert(1)</script>", "</script><script>alert(2)</script>", '"><img src=x onerror=alert(3)>',
    "\x1b[31mred\x1b[0m\x07", "\u202egnp.exe\u2066", "=cmd|'/c calc'!A1", "$$\\alpha$$ \\(x\\)", "::error::x",
    "|`code`|", "two\nlines", "../../etc/passwd", "{{ 7*7 }}{% raw %}", "@words{safe} @{words} $index", "\u2028\u2029",
    "<b>@right{safe}</b>", "--><svg onload=alert(4)>", "]]>&lt;&amp;", "x" * 10_000, "#ffffff",
    "https://example.invalid/pixel.png", "'/><iframe src=//example.invalid>",
)  # fmt: skip
_NAMES = {
    "uri", "split", "source", "language", "set", "class", "reason", "place", "earlier_split", "earlier_source",
    "piece",
}  # fmt: skip
_FINDERS = ("pii_hit_rate", "secret_hit_rate")


def hostile(name):
    """Return a name with one of the payloads, the same for the same name."""
    return f"{name}{PAYLOADS[sum(name.encode()) % len(PAYLOADS)]}"


def make_hostile(folder, *, payloads=True):
    """Publish the manifest and return its folder."""
    base = load_manifest(DEMO)
    changed = hostile if payloads else str
    tables = {name: _table(base.table(name), name, changed) for name in TABLES if name != "histogram"}
    tables["metrics"] = _metrics(base.table("metrics"), changed)
    tables["drift"] = pa.Table.from_pylist(_drift(changed), schema=TABLES["drift"].schema)
    prepared = prepare_tables(tables)
    core = base.core
    update = {
        "dataset": core.dataset.model_copy(update={"name": changed("demo"), "version": changed("1.0.0")}),
        "splits": tuple(one.model_copy(update={"name": changed(one.name)}) for one in core.splits),
        "mixture": {changed(name): value for name, value in core.mixture.items()},
        "protected": tuple(one.model_copy(update={"name": changed(one.name)}) for one in core.protected)
        + tuple(ProtectedRecord(name=text, items=1, sha256="0" * 64) for text in PAYLOADS if payloads),
        "tokenizer": core.tokenizer.model_copy(update={"name": changed(core.tokenizer.name)}),
        "upstream_filters": tuple(
            UpstreamFilterRecord(**{"name": changed(f"f{number}"), "version": changed("1"), "in": 10, "out": 9})
            for number in range(len(PAYLOADS))
        ),
        "tables": table_records(prepared),
        "stages": (),  # names and numbers are made by hand, and contradict each other
        "libraries": {},
    }
    publish(folder, core.model_copy(update=update), base.run, prepared)
    return folder


def _table(table, name, changed):
    return pa.Table.from_pylist([_row(row, name, changed) for row in table.to_pylist()], schema=table.schema)


def _row(row, table, changed):
    found = {}
    for key, value in row.items():
        if isinstance(value, list):
            found[key] = sorted((_row(one, table, changed) for one in value), key=_order)
        elif value and key in _NAMES:
            found[key] = changed(value)
        elif value and key in {"rule", "entity"} and table == "shards":
            found[key] = _rule(value, changed) if key == "rule" else changed(value)
        else:
            found[key] = value
    return found


def _order(row):
    return [str(value) for value in row.values()] if "tokens" in row or "rule" in row or "tier" in row else [""]


def _rule(name, changed):
    """Change the name of a rule and leave its set: a dot parts the two."""
    group, dot, own = name.partition(".")
    return f"{group}.{changed(own)}" if dot else name


def _metrics(table, changed):
    rows = []
    for row in table.to_pylist():
        scope = row["scope"]
        for key in ("split", "source", "language", "set"):
            scope[key] = changed(scope[key]) if scope[key] else scope[key]
        if scope["entity"] and row["metric"] in _FINDERS:
            scope["entity"] = changed(scope["entity"])
        if scope["rule"] and row["metric"] == "filter_reject_rate":
            scope["rule"] = _rule(scope["rule"], changed)
        if row["metric"] != "token_kl_drift":
            rows.append(row)
    kept = [Metric(**{**row, "scope": Scope(**row["scope"])}) for row in rows]
    values = {"kl": 0.3, "js": 0.05, "kl_bias": 0.01}
    for scope in (Scope(split=changed("train")), Scope(split=changed("train"), source=changed("code"))):
        kept += [
            Metric(metric="token_kl_drift", stat=stat, scope=scope, unit="nats", value=value, n=9, denominator=9)
            for stat, value in values.items()
        ]
        kept.append(
            Metric(
                metric="token_kl_drift",
                stat="kl_excess",
                scope=scope,
                unit="nats",
                value=0.29,
                low=0.2,
                high=0.4,
                confidence=0.95,
                method="estimated",
                n=9,
                denominator=9,
            )
        )
    return metrics_table(kept)


def _drift(changed):
    """Return tokens that moved, one for each payload."""
    return [
        {
            "split": changed("train"),
            "source": source,
            "token": number,
            "piece": changed(f"piece{number}")[:200],
            "count": 10 * number,
            "reference_count": 5,
            "kl": (0.01 if number % 3 else -0.01) * (30 - number),
            "js": 0.001,
            "rank": number + 1,
        }
        for source in (None, changed("code"))
        for number in range(15)
    ]
