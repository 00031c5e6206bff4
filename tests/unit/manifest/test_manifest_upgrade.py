"""Older schema versions: brought to the newest by steps, checked as they were written. Version 0 is made up."""

from __future__ import annotations

import json

import made_manifest
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataaudit.errors import ExitCode, ManifestError, ManifestMismatch
from dataaudit.gate.run import judge, policy_of
from dataaudit.manifest import upgrade
from dataaudit.manifest.canonical import digest_json, digest_table
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.tables import TABLES
from dataaudit.manifest.verify import verify

LATER = "drift"
"""The table that version 0, made up, does not have."""


def older_document(document):
    """What version 0 would have been: another name of a field, no redaction."""
    core = dict(document["core"])
    core["corpus"] = core.pop("dataset")
    del core["redaction"]
    core["schema"] = {"name": "dataaudit-manifest", "version": 0}
    core["tables"] = {name: held for name, held in core["tables"].items() if name != LATER}
    del core["quarantine"]
    ledger = {name: held for name, held in core["ledger"].items() if not name.startswith("listed")}
    core["ledger"] = {
        name: {key: value for key, value in line.items() if key != "held_back"} if isinstance(line, dict) else line
        for name, line in ledger.items()
    }
    run = {name: held for name, held in document["run"].items() if name not in {"files", "quarantine"}}
    return document | {"core": core, "run": run}


def newer_document(document):
    """The step back to version 1."""
    core = dict(document["core"])
    core["dataset"] = core.pop("corpus")
    core["schema"] = {"name": "dataaudit-manifest", "version": 1}
    return document | {"core": core | {"redaction": "no_text"}}


def newer_table(name, table):
    """Version 0 called the URI a path, and had no table of drift."""
    if table is None:
        return TABLES[name].schema.empty_table()
    if name != "shards":
        return table
    names = ["uri" if column == "path" else column for column in table.column_names]
    return table.rename_columns(names).cast(TABLES[name].schema)


@pytest.fixture
def older(tmp_path, monkeypatch):
    """A manifest of version 0, and the step that reads it."""
    folder = tmp_path / "m"
    made_manifest.make(folder, [made_manifest.shard("a"), made_manifest.shard("b")])
    shards = load_manifest(folder).table("shards").cast(TABLES["shards"].schema)
    shards = shards.rename_columns(["path" if name == "uri" else name for name in shards.column_names])
    overlap = load_manifest(folder).table("overlap").drop_columns(["score_without_common"])
    pq.write_table(shards, folder / "shards.parquet")
    pq.write_table(overlap, folder / "overlap.parquet")
    (folder / f"{LATER}.parquet").unlink()
    document = older_document(json.loads((folder / "manifest.json").read_text()))
    document["core"]["tables"]["shards"]["digest"] = digest_table(shards.combine_chunks())
    document["core"]["tables"]["overlap"]["digest"] = digest_table(overlap.combine_chunks())
    document["id"] = digest_json(document["core"])
    (folder / "manifest.json").write_text(json.dumps(document))
    monkeypatch.setitem(upgrade.STEPS, 0, upgrade.Step(document=newer_document, table=newer_table))
    return folder


def test_an_older_manifest_is_read_in_the_newest_form(older):
    """Core and tables; the id is that of the core as it was written."""
    manifest = load_manifest(older)
    assert (manifest.written_as, manifest.core.schema_.version, manifest.run.files) == (0, 2, {})
    assert manifest.core.dataset.name == "made"
    assert manifest.id == json.loads((older / "manifest.json").read_text())["id"]
    assert manifest.table("shards", ["shard", "uri"]).to_pylist() == [
        {"shard": 0, "uri": "a"},
        {"shard": 1, "uri": "b"},
    ]
    assert manifest.table(LATER).num_rows == 0
    assert manifest.table("shards").num_rows == 2


def test_an_older_manifest_verifies_as_it_was_written(older):
    """Digests are held against the rows before any step."""
    assert verify(load_manifest(older)) == []


def test_a_changed_table_of_an_older_manifest_is_found(older):
    """A step hides no damage."""
    table = pq.read_table(older / "shards.parquet")
    changed = table.set_column(table.column_names.index("path"), "path", pa.array(["a", "c"]))
    pq.write_table(changed.cast(table.schema), older / "shards.parquet")
    manifest = load_manifest(older)
    assert [problem.code for problem in verify(manifest)] == ["table_digest"]
    with pytest.raises(ManifestMismatch, match="table shards"):
        manifest.table("shards")


def test_a_changed_core_of_an_older_manifest_is_found(older):
    """The id is checked against what was written."""
    path = older / "manifest.json"
    path.write_text(path.read_text().replace('"made"', '"fake"'))
    with pytest.raises(ManifestMismatch, match="the id says"):
        load_manifest(older)


@pytest.mark.parametrize("version", [3, 10**9, -1, True, "1", 1.0, None])
def test_a_version_without_a_step_is_refused_by_name(tmp_path, version):
    """A later one, and whatever is no version."""
    made_manifest.make(tmp_path / "m", [made_manifest.shard("a")])
    path = tmp_path / "m/manifest.json"
    document = json.loads(path.read_text())
    document["core"]["schema"]["version"] = version
    path.write_text(json.dumps(document))
    with pytest.raises(ManifestError, match=f"schema version {version}, this program reads version 2"):
        load_manifest(tmp_path / "m")


def test_a_manifest_of_an_older_version_is_compared_with_one_of_the_newest(older, tmp_path):
    """The same data written under two versions is the same; the versions are named."""
    from dataaudit.diff.compare import compare

    made_manifest.make(tmp_path / "new", [made_manifest.shard("a"), made_manifest.shard("b")])
    found = compare(load_manifest(older), load_manifest(tmp_path / "new"), hidden=lambda _manifest, _records: ())
    assert (found.old.schema, found.new.schema) == (0, 2)
    assert (str(found.proposal.bump), found.unchanged_shards) == ("none", 2)
    assert [(one.area, one.name, one.old, one.new) for one in found.settings] == [("schema", "version", "0", "2")]


@pytest.mark.parametrize("asked", [True, False])
def test_a_policy_can_ask_for_bytes_that_are_held(older, tmp_path, asked):
    """Of the manifest and of its baseline."""
    rule = {
        "name": "some",
        "metric": "documents",
        "stat": "count",
        "unit": "documents",
        "comparator": ">=",
        "budget": 1,
    }
    policy = policy_of({"policy": "p", "rules": [rule], **({"require_bytes": True} if asked else {})})
    made_manifest.make(tmp_path / "new", [made_manifest.shard("a"), made_manifest.shard("b")])
    new, old = load_manifest(tmp_path / "new"), load_manifest(older)
    for manifest, baseline in ((new, None), (old, None), (new, old)):
        if asked and old in (manifest, baseline):
            with pytest.raises(ManifestMismatch, match="asks for manifests that say what their bytes are") as caught:
                judge(manifest, policy, baseline=baseline)
            assert caught.value.exit_code == ExitCode.BUDGET_EXCEEDED
        else:
            assert judge(manifest, policy, baseline=baseline).policy == "p"
