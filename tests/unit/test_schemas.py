"""`dataaudit schema`."""

import dataclasses
import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from made_manifest import make, shard

from dataaudit.base.errors import ConfigError
from dataaudit.config import parse_config
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.stages import STAGES, make_stages
from dataaudit.present.report.show import show_manifest
from dataaudit.schemas import SCHEMAS, export_schemas, file_name, render

ROOT = Path(__file__).parents[2]
WHOLE = {
    "dataset": {"name": "my-corpus", "version": "1.2.0"},
    "splits": {
        "train": {"paths": ["data/*.parquet"], "text": "text", "source": {"column": "source"}},
        "val": {"paths": "val.jsonl", "held_out": True, "source": {"constant": "web"}},
    },
    "tokenizer": "tokenizer.json",
    "reference": "manifests/first",
    "stages": {"lengths": {"max_distinct": 200_000}, "exact_dup": False, "volume": True},
    "upstream_filters": [{"name": "c4", "version": "1", "in": 12, "out": 10}],
    "mixture": {"web": {"weight": 0.7, "epochs": 1}},
    "reader": {"max_bad_records": 0.5},
    "max_sources": 5,
    "seed": 7,
}


def _schema(name):
    return json.loads(render(name))


def _config_errors(value):
    return list(jsonschema.Draft202012Validator(_schema("config")).iter_errors(value))


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_the_schema_in_the_repository_is_the_codes(name):
    """`dataaudit schema --out manifests/schema` has to be run after a change."""
    assert (ROOT / "manifests/schema" / file_name(name)).read_text() == render(name)


def test_no_other_file_lies_beside_the_schemas():
    """A schema that the code no longer gives does not stay behind."""
    found = {path.name for path in (ROOT / "manifests/schema").iterdir()}
    assert found == {file_name(name) for name in SCHEMAS}


@pytest.mark.parametrize("name", sorted(set(SCHEMAS) - {"tables", "runlog"}))
def test_a_schema_is_one(name):
    """Each one is valid by the dialect that it names, and every reference in it leads somewhere."""
    jsonschema.Draft202012Validator.check_schema(_schema(name))


def test_the_demo_and_a_whole_config_are_valid():
    """The recipe in the repository and a config with every section pass, in code as in schema."""
    demo = yaml.safe_load((ROOT / "pipelines/demo.yaml").read_text())
    for value in (demo, WHOLE):
        assert _config_errors(value) == []
        make_stages(parse_config(value, where="test").stages)


@pytest.mark.parametrize(
    "change",
    [
        {"splits": {}},
        {"split": {}},
        {"splits": {"bad name": {"paths": ["x"]}}},
        {"splits": {"train": {"paths": []}}},
        {"splits": {"train": {"path": ["x"]}}},
        {"splits": {"train": {"paths": ["x"], "source": {}}}},
        {"splits": {"train": {"paths": ["x"], "source": {"column": "a", "constant": "b"}}}},
        {"stages": {"lenghts": True}},
        {"stages": {"lengths": {"max": 1}}},
        {"stages": {"volume": False}},
        {"mixture": {"web": {"weight": -1}}},
        {"seed": -1},
        {"reader": {"max_bad_records": 2}},
        {"upstream_filters": [{"name": "c4", "in": 1}]},
    ],
)
def test_what_the_schema_refuses_the_program_refuses(change):
    """Editor and program agree on each kind of mistake."""
    value = WHOLE | change
    assert _config_errors(value)
    with pytest.raises(ConfigError):
        make_stages(parse_config(value, where="test").stages)


def test_every_stage_with_every_parameter_is_in_the_config_schema():
    """A new stage cannot be forgotten."""
    schema = _schema("config")
    stages = schema["properties"]["stages"]["properties"]
    assert set(stages) == {kind.name for kind in STAGES}
    for kind in STAGES:
        fields = [field.name for field in dataclasses.fields(kind)]
        assert sorted(schema["$defs"][kind.__name__]["properties"]) == sorted(fields)


def test_a_published_manifest_meets_its_schema_and_a_changed_one_does_not(tmp_path):
    """The pointer that publishing writes is valid; an unknown key or a wrong digest is not."""
    make(tmp_path / "m", [shard("a.jsonl"), shard("b.jsonl", split="val")], mixture={"web": 1})
    document = json.loads((tmp_path / "m" / "manifest.json").read_text())
    validator = jsonschema.Draft202012Validator(_schema("manifest"))
    assert list(validator.iter_errors(document)) == []
    assert list(validator.iter_errors(document | {"id": "sha256:12"}))
    assert list(validator.iter_errors(document | {"extra": 1}))


def test_records_that_show_prints_meet_the_schema_of_a_metric(tmp_path):
    """`show --metric --json` is what the schema describes; a value without a number is refused."""
    make(tmp_path / "m", [shard("a.jsonl"), shard("b.jsonl", split="val", documents=0, tokens=0)], odd=True)
    validator = jsonschema.Draft202012Validator(_schema("metric"))
    records = json.loads(show_manifest(tmp_path / "m", "bytes_per_token", as_json=True))["records"]
    assert {record["status"] for record in records} == {"ok", "not_evaluated"}
    for record in records:
        assert list(validator.iter_errors(record)) == []
    assert list(validator.iter_errors(records[0] | {"value": None}))
    assert list(validator.iter_errors(records[0] | {"scope": {"shards": 1}}))
    assert list(validator.iter_errors(records[0] | {"method": "guessed"}))


def test_every_column_of_every_table_has_a_meaning():
    """The description of the tables has the schemas' columns, and none without a text."""
    described = _schema("tables")["tables"]
    assert {name: [column["name"] for column in one["columns"]] for name, one in described.items()} == {
        name: spec.schema.names for name, spec in TABLES.items()
    }
    for table in described.values():
        for column in table["columns"]:
            for part in (column, *column.get("fields", [])):
                assert part["meaning"], part["name"]


def test_without_a_name_the_schemas_are_listed():
    """One line each, or an object as JSON."""
    lines = export_schemas(None, None, as_json=False).splitlines()
    assert [line.split()[0] for line in lines] == list(SCHEMAS)
    assert list(json.loads(export_schemas(None, None, as_json=True))) == list(SCHEMAS)


def test_files_are_written_where_asked_and_named(tmp_path):
    """One name writes one file, no name all; the names of the files are returned."""
    one = export_schemas("config", tmp_path / "new/one", as_json=False)
    assert one == f"{tmp_path / 'new/one/config-v1.schema.json'}\n"
    every = json.loads(export_schemas(None, tmp_path / "all", as_json=True))
    assert sorted(every) == sorted(str(path) for path in (tmp_path / "all").iterdir())
    assert len(every) == len(SCHEMAS)


def test_wrong_names_and_folders_are_errors(tmp_path):
    """An unknown schema names the nearest; a folder that cannot be made is named."""
    with pytest.raises(ConfigError, match="did you mean `config`"):
        export_schemas("confg", None, as_json=False)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        export_schemas(None, tmp_path / "file", as_json=False)
