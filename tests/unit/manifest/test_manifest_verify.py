"""Loading and verifying: one test for each kind of damage, and what the message says."""

from __future__ import annotations

from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forged import hold_bytes, rewrite

from dataaudit.base.errors import ExitCode, ManifestError, ManifestMismatch
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Scope
from dataaudit.manifest.publish import publish
from dataaudit.manifest.tables import TABLES
from dataaudit.manifest.verify import verify


def codes(folder: Path) -> list[str]:
    """Return the codes of all problems."""
    return [problem.code for problem in verify(load_manifest(folder))]


def the_problem(folder: Path):
    """Return the only problem."""
    [problem] = verify(load_manifest(folder))
    return problem


def changed(table: pa.Table, column: str, index: int, value) -> pa.Table:
    """Return a table with one other cell."""
    position = table.schema.get_field_index(column)
    values = table[column].to_pylist()
    values[index] = value
    field = table.schema.field(column)
    return table.set_column(position, field, pa.array(values, field.type))


class TestTables:
    def test_the_golden_manifest_has_no_problem(self, folder):
        assert codes(folder) == []

    def test_rewriting_without_change_is_no_problem(self, folder):
        """Other row groups, another compression and another order of rows are the same table in other bytes."""
        for name in TABLES:
            path = folder / f"{name}.parquet"
            table = pq.read_table(path)
            if name != "shards":
                table = table.take(list(reversed(range(table.num_rows))))
            pq.write_table(table, path, row_group_size=1, compression="gzip", store_schema=False)
        assert set(codes(folder)) == {"file_bytes"}
        hold_bytes(folder)
        assert codes(folder) == []

    @pytest.mark.parametrize(
        ("table", "column", "value"),
        [
            ("shards", "tokens", 31), ("shards", "reason", "io_error"), ("shards", "exact_dup_rate", None),
            ("metrics", "value", 10.0), ("findings", "score", 0.25), ("clusters", "kept", False),
            ("ledger", "bytes", 0), ("histogram", "token", 6),
        ],
    )  # fmt: skip
    def test_changed_cell(self, folder, table, column, value):
        rewrite(folder, table, lambda rows: changed(rows, column, 0, value))
        problem = the_problem(folder)
        assert problem.code == "table_digest"
        expected = load_manifest(folder).core.tables[table].digest
        assert f"table {table}: the core says {expected}, found sha256:" in problem.text

    @pytest.mark.parametrize("name", TABLES)
    def test_dropped_row(self, folder, name):
        rows = load_manifest(folder).core.tables[name].rows
        rewrite(folder, name, lambda table: table.slice(1))
        problem = the_problem(folder)
        assert (problem.code, problem.text) == (
            "table_rows",
            f"table {name}: the core says {rows} rows, found {rows - 1}",
        )

    @pytest.mark.parametrize(
        ("name", "change", "words"),
        [
            (
                "pairs",
                lambda table: table.rename_columns({"jaccard": "similarity"}),
                "missing: jaccard; unknown: similarity",
            ),
            (
                "pairs",
                lambda table: table.set_column(4, "jaccard", table["jaccard"].cast(pa.float32())),
                "jaccard: expected double, found float or null",
            ),
            ("pairs", lambda table: table.select(table.column_names[::-1]), "expected the order ['left_shard'"),
        ],
        ids=["another name", "another type", "another order"],
    )
    def test_other_columns(self, folder, name, change, words):
        rewrite(folder, name, change)
        problem = the_problem(folder)
        assert problem.code == "table_unreadable"
        assert f"table {name}" in problem.text
        assert words in problem.text

    @pytest.mark.parametrize("kept", [0, 3, 200, -4])
    def test_truncated_file(self, folder, kept):
        path = folder / "shards.parquet"
        path.write_bytes(path.read_bytes()[:kept])
        problem = the_problem(folder)
        assert problem.code == "file_bytes"
        assert "shards.parquet" in problem.text
        assert "\n" not in problem.text

    def test_damaged_page(self, folder):
        path = folder / "histogram.parquet"
        data = bytearray(path.read_bytes())
        data[30] ^= 1
        path.write_bytes(data)
        assert the_problem(folder).code == "file_bytes"

    def test_missing_table(self, folder):
        (folder / "ledger.parquet").unlink()
        problem = the_problem(folder)
        assert problem.code == "table_unreadable"
        assert "table ledger" in problem.text

    def test_extra_table(self, folder):
        (folder / "quarantine.jsonl").write_text("{}\n")
        assert codes(folder) == []
        (folder / "more.parquet").write_bytes((folder / "pairs.parquet").read_bytes())
        assert the_problem(folder).text == "more.parquet is not part of a manifest"

    def test_every_problem_is_listed(self, folder):
        rewrite(folder, "pairs", lambda table: table.slice(1))
        (folder / "ledger.parquet").unlink()
        rewrite(folder, "findings", lambda table: changed(table, "row", 0, 9))
        assert codes(folder) == ["table_digest", "table_unreadable", "table_rows"]

    def test_unknown_name_or_column(self, folder):
        manifest = load_manifest(folder)
        assert manifest.table("pairs", ["jaccard", "verified"]).column_names == ["jaccard", "verified"]
        (folder / "pairs.parquet").write_bytes(b"PAR1")
        with pytest.raises(ManifestMismatch, match=f"pairs.parquet of {folder} is not the file that was published"):
            load_manifest(folder).table("pairs")
        hold_bytes(folder)
        with pytest.raises(ManifestError, match=f"table pairs of {folder} cannot be read") as caught:
            load_manifest(folder).table("pairs")
        assert caught.value.hint == "Restore the file or build again."


class TestConsistency:
    """Manifests whose digests all fit, but whose parts contradict each other."""

    @pytest.mark.parametrize("unit", ["shards", "bytes", "documents"])
    def test_ledger_that_does_not_balance(self, tmp_path, variant, golden_parts, unit):
        ledger = golden_parts[0].ledger.model_dump()
        ledger[unit]["skipped"] += 5
        publish(tmp_path / "m", *variant(ledger=ledger))
        problem = the_problem(tmp_path / "m")
        assert problem.code == "ledger_balance"
        planned = ledger[unit]["planned"]
        assert f"ledger {unit}: planned {planned}, accounted for {planned + 5}" in problem.text

    def test_ledger_that_balances_but_lies(self, tmp_path, variant, golden_parts):
        ledger = golden_parts[0].ledger.model_dump()
        ledger["bytes"] |= {"planned": 1600, "read": 1000}
        publish(tmp_path / "m", *variant(ledger=ledger))
        texts = [problem.text for problem in verify(load_manifest(tmp_path / "m"))]
        assert texts == [
            "stored bytes of table shards: the table adds up to 900, the core says 1000",
            "planned bytes of table shards: the table adds up to 1500, the core says 1600",
        ]

    def test_totals_of_a_split(self, tmp_path, variant, golden_parts):
        splits = [split.model_dump() for split in golden_parts[0].splits]
        splits[0]["tokens"] += 1
        publish(tmp_path / "m", *variant(splits=splits))
        problems = verify(load_manifest(tmp_path / "m"))
        assert [problem.code for problem in problems] == ["split_sums", "split_sums"]
        assert "split train" in problems[0].text

    def test_unknown_split(self, tmp_path, variant, golden_parts):
        splits = [split.model_dump() for split in golden_parts[0].splits][:1]
        publish(tmp_path / "m", *variant(splits=splits))
        assert the_problem(tmp_path / "m").text == "table shards: splits ['val'] are not in the core"

    def test_headline_that_is_no_metric(self, tmp_path, variant, golden_parts):
        headline = [record.model_dump() for record in golden_parts[0].headline]
        headline[1]["value"] = 0.0
        publish(tmp_path / "m", *variant(headline=headline))
        problem = the_problem(tmp_path / "m")
        assert problem.code == "headline"
        assert "exact_dup_rate.rate" in problem.text

    @pytest.mark.parametrize("scope", [{"foo": "x"}, {"metric": "x"}, {"shard": "x"}, {"split": 3}, {"shard": 2**40}])
    def test_headline_of_a_scope_that_no_record_has(self, tmp_path, variant, golden_parts, scope):
        headline = [record.model_dump() for record in golden_parts[0].headline]
        headline[1]["scope"] = scope
        publish(tmp_path / "m", *variant(headline=headline))
        assert "table metrics None" in the_problem(tmp_path / "m").text

    def test_two_rows_with_one_key(self, tmp_path, variant, golden_parts):
        pairs = golden_parts[2]["pairs"]
        twice = pa.concat_tables([pairs, changed(pairs, "jaccard", 0, 0.9)])
        publish(tmp_path / "m", *variant({"pairs": twice}))
        problem = the_problem(tmp_path / "m")
        assert problem.code == "table_key"
        assert "table pairs: 1 rows have the same (left_shard, left_row, right_shard, right_row)" in problem.text

    def test_null_in_a_key_equals_null(self, tmp_path, variant, golden_parts):
        metrics = golden_parts[2]["metrics"]
        rows = [row for row in metrics.to_pylist() if row["metric"] == "token_kl_drift"]
        twice = pa.Table.from_pylist(rows * 2, schema=metrics.schema)
        publish(tmp_path / "m", *variant({"metrics": pa.concat_tables([metrics, twice.slice(1)])}))
        assert the_problem(tmp_path / "m").code == "table_key"

    def test_ordinals_have_to_be_those_of_the_rows(self, tmp_path, variant, golden_parts):
        shards = changed(golden_parts[2]["shards"], "shard", 4, 7)
        publish(tmp_path / "m", *variant({"shards": shards}))
        assert the_problem(tmp_path / "m").code == "shard_order"


class TestPointer:
    def test_edited_core(self, edit):
        folder = edit(lambda document: document["core"]["totals"].update(tokens=93), keep_id=True)
        with pytest.raises(ManifestMismatch, match=r"the id says sha256:\w+, the core's digest is sha256:") as caught:
            load_manifest(folder)
        assert caught.value.exit_code == ExitCode.BUDGET_EXCEEDED

    def test_edited_id(self, edit):
        folder = edit(lambda document: document.update(id="sha256:" + "0" * 64), keep_id=True)
        with pytest.raises(ManifestMismatch):
            load_manifest(folder)

    def test_edited_run_is_allowed(self, edit):
        folder = edit(lambda document: document["run"].update(hosts=["other"], workers=64), keep_id=True)
        assert codes(folder) == []

    def test_layout_of_the_file_is_allowed(self, folder):
        path = folder / "manifest.json"
        document = orjson.loads(path.read_bytes())
        path.write_bytes(orjson.dumps(dict(reversed(document.items()))))
        assert codes(folder) == []

    @pytest.mark.parametrize("version", [3, 1, 10**9, -1, True, "2", 2.0, None])
    def test_other_schema_versions(self, edit, version):
        folder = edit(lambda document: document["core"]["schema"].update(version=version))
        with pytest.raises(ManifestError, match=f"schema version {version}, this program reads version 2") as caught:
            load_manifest(folder)
        assert "Build it again" in caught.value.hint

    @pytest.mark.parametrize("place", ["", "core", "run", "totals", "tokenizer"])
    def test_unknown_field(self, edit, place):
        def add(document):
            sections = {"": document, "core": document["core"], "run": document["run"]}
            sections.get(place, document["core"].get(place))["novel"] = 1

        with pytest.raises(ManifestError, match=r"the first at (\w+\.)*novel: unknown field"):
            load_manifest(edit(add))

    @pytest.mark.parametrize(
        "how",
        [
            lambda document: document.pop("run"),
            lambda document: document["core"].pop("totals"),
            lambda document: document["core"]["totals"].update(tokens=-1),
            lambda document: document["core"]["totals"].update(tokens="many"),
            lambda document: document["core"]["tables"]["pairs"].update(digest="md5:1"),
        ],
        ids=["no run", "no totals", "negative count", "text for a count", "other digest"],
    )
    def test_contents_that_break_the_schema(self, edit, how):
        with pytest.raises(ManifestError, match=r"1 problem\(s\), the first at ") as caught:
            load_manifest(edit(how))
        assert not isinstance(caught.value, ManifestMismatch)

    def test_numbers_beyond_canonical_json(self, edit):
        folder = edit(lambda document: document["core"]["config"].update(seed=2**60), keep_id=True)
        with pytest.raises(ManifestError, match="no canonical form"):
            load_manifest(folder)

    @pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"null extra"])
    def test_not_json(self, folder, data):
        (folder / "manifest.json").write_bytes(data)
        with pytest.raises(ManifestError, match="is not valid JSON"):
            load_manifest(folder)

    @pytest.mark.parametrize(
        "data", [b"null", b"[]", b"{}", b'{"core": 1}', b'{"core": {"schema": {"name": "other", "version": 1}}}']
    )
    def test_json_of_another_kind(self, folder, data):
        (folder / "manifest.json").write_bytes(data)
        with pytest.raises(ManifestError, match="expected a dataaudit-manifest, found another kind of JSON"):
            load_manifest(folder)

    def test_absent(self, tmp_path):
        (tmp_path / "empty").mkdir()
        (tmp_path / "file").write_text("x")
        for name, words in (("none", "no such file"), ("empty", "the folder has none"), ("file", "not a directory")):
            with pytest.raises(ManifestError, match=f"no manifest at .*{name}: {words}") as caught:
                load_manifest(tmp_path / name)
            assert "dataaudit build" in caught.value.hint

    def test_table_that_only_the_core_knows(self, edit):
        record = {"rows": 0, "digest": "sha256:" + "0" * 64}
        folder = edit(lambda document: document["core"]["tables"].update(novel=record))
        assert codes(folder) == ["table_list"]
        folder = edit(lambda document: [document["core"]["tables"].pop(name) for name in ("novel", "pairs")])
        assert the_problem(folder).text == "table pairs: in one of schema and core, not in both"


class TestMetrics:
    def test_filters(self, folder):
        manifest = load_manifest(folder)
        total = pq.read_metadata(folder / "metrics.parquet").num_rows
        assert len(manifest.metrics()) == total
        assert [record.value for record in manifest.metrics("documents")] == [7.0, 9.0]
        [whole] = manifest.metrics("documents", "count", Scope())
        assert whole.value == 9.0
        assert manifest.metrics("documents", "rate") == []
