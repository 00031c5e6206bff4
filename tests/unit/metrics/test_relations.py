"""A manifest that contradicts itself: for each relation one number is edited, with digests, id and bytes that fit."""

import json
import math
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from forged import forge
from lanes import sample

from dataaudit.base.errors import ManifestMismatch
from dataaudit.cli import main
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.tables import TABLES
from dataaudit.manifest.verify import verify
from dataaudit.metrics.recomputed import Agrees, Follows, ManifestTables, shapes_of
from dataaudit.metrics.registry import FAMILIES, STATISTICS
from dataaudit.metrics.relations import contradictions, hold_together

DEMO = Path(__file__).parents[3] / "manifests/demo"
FOLLOWS = [(family.name, check) for family in FAMILIES for check in family.checks if isinstance(check, Follows)]
COLUMNS = sorted(
    check.left.column
    for family in FAMILIES
    for check in family.checks
    if isinstance(check, Agrees) and check.what.startswith("shards: ") and check.most_when(load_manifest(DEMO))
)


@pytest.fixture
def demo(tmp_path):
    """A copy of the demo's manifest."""
    return Path(shutil.copytree(DEMO, tmp_path / "m"))


def edited(folder, table, change):
    """Change the first row that ``change`` takes (it returns True), and make everything fit."""
    rows = pq.read_table(folder / f"{table}.parquet").to_pylist()
    assert any(change(row) for row in rows), "a row to change"
    forge(folder, {table: pa.Table.from_pylist(rows, schema=TABLES[table].schema)})
    return load_manifest(folder)


def with_less(row, column):
    """Take one from a number of a row that has it."""
    if not row[column] or (column == "documents" and row[column] < 2):
        return False
    row[column] -= 1
    return True


def test_the_demo_does_not_contradict_itself():
    """What a build publishes agrees in every relation."""
    assert contradictions(load_manifest(DEMO)) == []


def test_definitions_name_what_there_is():
    """Tables and statistics of every check are those of the format and of the catalogue."""
    assert {table for family in FAMILIES for table in family.checked_with} <= set(TABLES)
    assert {(check.metric, check.stat) for _, check in FOLLOWS} <= set(STATISTICS)


def _determined():
    """Yield every statistic and shape of scope that follows from tables, with one record of each that counts."""
    manifest = load_manifest(DEMO)
    for family, check in FOLLOWS:
        for shape in shapes_of(check.shapes) if check.value is not None else ():
            named = (family, check.metric, check.stat, *shape, *check.scope.values())
            rows = manifest.metric_rows().where(metric=check.metric, stat=check.stat, **check.scope)
            yield from (
                pytest.param(family, record, id=" ".join(named))
                for record in rows.shaped(*shape, *check.scope).positive()[:1]
            )


@pytest.mark.tables
@pytest.mark.parametrize(("family", "record"), sample(_determined(), 8, kind=lambda case: case.values[0]))
def test_an_edited_record_is_found(demo, family, record):
    """Each statistic and each shape of scope that a relation determines; by its family's relation."""

    def change(row):
        scope = {name: value for name, value in row["scope"].items() if value is not None}
        if (row["metric"], row["stat"], scope) != (record.metric, record.stat, record.scope.as_dict()):
            return False
        row["value"] *= 0.5
        row["low"] = row["low"] and row["low"] * 0.5
        return True

    manifest = edited(demo, "metrics", change)
    texts = [problem.text for problem in contradictions(manifest, {record.metric})]
    assert any(text.startswith(f"{record.metric}.{record.stat}") for text in texts)


def _named(row):
    """Return how a contradiction names a record."""
    scope = [f"{name} {value}" for name, value in row["scope"].items() if value is not None]
    return f"{row['metric']}.{row['stat']}" + (f" of {', '.join(scope)}" if scope else "")


def _bounded():
    """Yield a bound of each statistic and shape of scope of which the tables determine the least, or the most."""
    tables, seen = ManifestTables(load_manifest(DEMO)), set()
    for _, check in FOLLOWS:
        for claim in check.claims(tables) if check.value is None else ():
            for edge, number in (("least", claim.least), ("most", claim.most)):
                words = tuple(part.split()[0] for part in claim.what.partition(" of ")[2].split(", ") if part)
                kind = (check.metric, check.stat, edge, *words)
                if kind not in seen and (number if edge == "least" else math.isfinite(number)):
                    seen.add(kind)
                    yield pytest.param(claim, edge, id=" ".join(kind))


@pytest.mark.parametrize(("claim", "edge"), [*_bounded()])
def test_a_record_outside_what_the_tables_allow_is_found(demo, claim, edge):
    """Fewer than the tables list, or more than there can be."""

    def change(row):
        if _named(row) != claim.what:
            return False
        count = claim.least - 1 if edge == "least" else claim.most + 1
        row["value"] = count / row["denominator"] if row["unit"] == "ratio" else float(count)
        return True

    metric = claim.what.partition(".")[0]
    texts = [problem.text for problem in contradictions(edited(demo, "metrics", change), {metric})]
    number = f"its tables determine {getattr(claim, edge):.12g}"
    assert any(text.startswith(f"{claim.what} is ") and number in text for text in texts)


LED = ("train_val_overlap", "benchmark_contamination", "doc_repeat_hotspots")


@pytest.mark.parametrize("metric", LED)
def test_leaks_and_repeats_that_are_zeroed_as_a_whole_are_found(demo, metric):
    """All statistics and the shards' columns say that nothing was found; the rows that name it stand."""
    rows, shards = (pq.read_table(demo / f"{name}.parquet").to_pylist() for name in ("metrics", "shards"))
    for row in rows:
        if row["metric"] == metric and row["value"]:
            row["value"] = 0.0
    for row in shards:
        for column in ("held_out_copies", "contaminated", "repeat_token_share"):
            row[column] = None if row[column] is None else 0

    def headline(core):
        for one in core["headline"]:
            if one["metric"] == metric and one["value"]:
                one["value"] = 0.0

    tables = {"metrics": rows, "shards": shards}
    made = {name: pa.Table.from_pylist(held, schema=TABLES[name].schema) for name, held in tables.items()}
    forge(demo, made, core=headline)
    texts = [problem.text for problem in contradictions(load_manifest(demo), {metric})]
    assert any(text.startswith(f"{metric}.") for text in texts)


@pytest.mark.tables
@pytest.mark.parametrize("column", COLUMNS)
def test_an_edited_column_of_a_shard_is_found(demo, column):
    """Each column that a relation determines."""

    def change(row):
        if not row[column]:
            return False
        row[column] = row[column] + 1 if isinstance(row[column], int) else row[column] / 2
        return True

    texts = [problem.text for problem in contradictions(edited(demo, "shards", change))]
    assert any(text.startswith(f"shards: {column} of shard ") for text in texts)


EDITS = {
    "sources": lambda row: with_less(row, "tokens"),
    "languages": lambda row: with_less(row, "tokens"),
    "lengths": lambda row: with_less(row, "documents"),
    "histogram": lambda row: with_less(row, "count"),
    "clusters": lambda row: row["kept"] and not row.update(kept=False),
    "near_sources": lambda row: with_less(row, "documents"),
    "hotspots": lambda row: with_less(row, "occurrences"),
    "hotspot_members": lambda row: row["hotspot"] == 1 and not row.update(hotspot=2),
    "findings": lambda row: row["detector"] == "secrets" and not row["reserved"] and not row.update(reserved=True),
    "ledger": lambda row: row["records"] > 0 and with_less(row, "bytes"),
    "overlap": lambda row: row["part"] != "document" and not row.update(shard=row["shard"] + 1),
    "pairs": lambda row: row["verified"] and not row.update(verified=False),
    "shards": lambda row: bool(row["secrets"]) and with_less(row["secrets"][0], "hits"),
}


def test_every_table_that_determines_something_is_tried():
    """Those of the definitions, no more and no fewer."""
    assert set(EDITS) == {table for family in FAMILIES for table in family.checked_with}


@pytest.mark.tables
@pytest.mark.parametrize("table", sample(EDITS, 2))
def test_an_edited_table_is_found_by_what_stands_elsewhere(demo, table):
    """What it determines is as it was."""
    manifest = edited(demo, table, EDITS[table])
    assert contradictions(manifest)
    with pytest.raises(ManifestMismatch, match="contradicts itself"):
        hold_together(manifest)


CROISSANT = (
    *("--license", "CC0-1.0", "--url", "https://example.org", "--creator", "Org"),
    *("--date-published", "2026-11-22", "--description", "Text."),
)


def secrets_hidden(demo):
    """Set the number of secrets to 0 in the records alone."""

    def change(row):
        if row["metric"] == "secret_hit_rate" and row["stat"] == "validated_hits" and row["value"]:
            row["value"] = 0.0
            return True
        return False

    return edited(demo, "metrics", change)


def test_what_sources_add_up_to_is_held_against_the_whole(demo):
    """No table says which source a finding is of; that all of them add up is known."""

    def change(row):
        if row["metric"] != "secret_hit_rate" or not row["value"] or row["scope"]["source"] is None:
            return False
        row["value"] += 1
        return True

    texts = [problem.text for problem in contradictions(edited(demo, "metrics", change))]
    assert any("counts of its sources" in text for text in texts)


@pytest.mark.tables
@pytest.mark.parametrize(
    "command",
    [
        ("gate", "{m}", "--policy", "release-gate"),
        ("diff", "{m}", str(DEMO)),
        ("diff", str(DEMO), "{m}"),
        ("report", "{m}", "--out", "{out}/r.html"),
        ("export", "card", "{m}"),
        ("export", "croissant", "{m}", "--out", "{out}/c.json", *CROISSANT),
        ("export", "openlineage", "{m}", "--out", "{out}/o.json"),
        ("export", "verdict", "{m}", "--policy", "release-gate", "--out", "{out}/v.json"),
        ("verify", "{m}"),
    ],
    ids=lambda command: " ".join(part for part in command[:2] if "/" not in part),
)
def test_whatever_passes_numbers_on_refuses_a_contradiction(demo, tmp_path, command):
    """With the number by name: all digests, bytes and the id fit."""
    manifest = secrets_hidden(demo)
    assert verify(manifest) == []
    done = CliRunner().invoke(main, [part.format(m=demo, out=tmp_path) for part in command])
    assert done.exit_code == (2 if command[0] == "diff" else 1), done.output  # 1 of `diff`: they differ
    assert "secret_hit_rate.validated_hits" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ("metrics", ["secret_hit_rate has values"]),
        ("shards", ["shards has values of secret_hits", "shards has values of secrets_validated"]),
        ("findings", ["findings has rows of secrets"]),
    ],
)
def test_a_stage_cannot_be_left_out_of_the_core_to_pass(demo, left, said):
    """Else its relations would not be asked; whatever of it is left tells."""

    def without_secrets(core):
        core["stages"] = [one for one in core["stages"] if one["name"] != "secrets"]
        core["headline"] = [one for one in core["headline"] if one["metric"] != "secret_hit_rate"]

    manifest = load_manifest(demo)
    metrics, shards, findings = map(manifest.table, ("metrics", "shards", "findings"))
    nothing = pa.nulls(shards.num_rows, pa.int64())
    for column in ("secret_hits", "secrets_validated"):
        shards = shards.set_column(shards.schema.get_field_index(column), shards.schema.field(column), nothing)
    emptied = {
        "metrics": metrics.filter(pc.not_equal(metrics["metric"], "secret_hit_rate")),
        "shards": shards,
        "findings": findings.filter(pc.not_equal(findings["detector"], "secrets")),
    }
    forge(demo, {name: table for name, table in emptied.items() if name != left}, core=without_secrets)
    texts = [problem.text for problem in contradictions(load_manifest(demo))]
    assert texts == [f"{text}, but the core names no stage secrets" for text in said]


def test_the_gate_holds_what_its_policy_judges(demo, tmp_path):
    """A policy that asks for nothing of it does not pay for it; `verify` finds it."""
    secrets_hidden(demo)
    rules = [{"name": "r", "metric": "exact_dup_rate", "stat": "rate", "budget": 1, "unit": "ratio"}]
    policy = tmp_path / "p.yaml"
    policy.write_text(json.dumps({"name": "p", "version": "1", "rules": rules}))
    done = CliRunner().invoke(main, ["gate", str(demo), "--policy", str(policy)])
    assert "contradicts itself" not in done.output
    assert CliRunner().invoke(main, ["verify", str(demo)]).exit_code == 1
