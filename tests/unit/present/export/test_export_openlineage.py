"""OpenLineage: an event that the library's own classes take, true to manifest and verdict, the same every time."""

import importlib
import json
import pkgutil
import uuid
from dataclasses import replace
from pathlib import Path

import attr
import pytest
from click.testing import CliRunner
from made_manifest import make, shard
from made_verdict import HOSTILE, rule_result, verdict_of
from openlineage.client import generated
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState

from dataaudit.base.errors import ConfigError, ManifestError
from dataaudit.cli import main
from dataaudit.decide.gate.document import gate_json
from dataaudit.decide.gate.verdict import State
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.present.export.openlineage import checks_of, event_json, export_openlineage

pytestmark = pytest.mark.usefixtures("odd_numbers")
DEMO = Path(__file__).parents[4] / "manifests/demo"


def facets_of(value, path=""):
    """Return every facet of an event with its place."""
    if isinstance(value, dict):
        found = [(path, value)] if "_schemaURL" in value else []
        return found + [one for key, held in value.items() for one in facets_of(held, f"{path}/{key}")]
    return [one for held in value for one in facets_of(held, path)] if isinstance(value, list) else []


def classes():
    """Return the library's generated classes by the schema that each names."""
    found = {}
    for module in pkgutil.iter_modules(generated.__path__):
        for held in vars(importlib.import_module(f"{generated.__name__}.{module.name}")).values():
            if isinstance(held, type) and attr.has(held) and hasattr(held, "_get_schema"):
                found[held._get_schema()] = held
    return found


def built(facet):
    """Return a facet made anew by the class that its schema names; what is not known or absent raises."""
    own = classes()[facet["_schemaURL"]]
    names = {field.name: field.alias for field in attr.fields(own)}
    given = {names[key]: value for key, value in facet.items() if key != "_schemaURL"}
    return own(**given)


def parsed(line):
    """Return an event made anew by the library's classes, which check times and ids."""
    plain = json.loads(line)
    return RunEvent(
        eventTime=plain["eventTime"],
        producer=plain["producer"],
        eventType=RunState(plain["eventType"]),
        run=Run(**plain["run"]),
        job=Job(**plain["job"]),
        inputs=[InputDataset(**one) for one in plain["inputs"]],
        outputs=[OutputDataset(**one) for one in plain["outputs"]],
    )


@pytest.fixture
def manifest(tmp_path):
    lengths = [
        Metric(metric="seq_len_p50_p95", stat="max", unit="tokens", value=21.0, n=20),
        Metric(metric="seq_len_p50_p95", stat="p99", unit="tokens", value=20.5, n=20),
    ]
    config = {"splits": {"train": {"text": "text", "source": {"column": "source"}}, "val": {"text": "body"}}}
    make(tmp_path / "m", [shard("a"), shard("b", split="val")], metrics=lengths, config=config, odd=True)
    return load_manifest(tmp_path / "m")


def event(manifest, *results):
    checks = checks_of(verdict_of(manifest, *results)) if results else ()
    return json.loads(event_json(manifest, checks, "corpora"))


def test_the_classes_of_the_library_take_the_event_and_every_facet(manifest):
    line = event_json(manifest, checks_of(verdict_of(manifest)), "corpora")
    assert parsed(line).run.runId == json.loads(line)["run"]["runId"]
    facets = facets_of(json.loads(line))
    assert {path.rpartition("/")[2] for path, _ in facets} == {
        "processing_engine", "nominalTime", "test", "jobType", "version", "schema", "datasetType", "inputStatistics",
        "dataQualityMetrics", "dataQualityAssertions", "documentation", "outputStatistics",
    }  # fmt: skip
    for _, facet in facets:
        assert built(facet)._schemaURL == facet["_schemaURL"]


def test_every_schema_and_producer_is_an_address(manifest):
    for _, facet in facets_of(event(manifest)):
        assert facet["_schemaURL"].startswith("https://openlineage.io/spec/facets/")
        assert facet["_producer"].startswith("urn:dataaudit:release:")


def test_the_run_is_named_by_the_manifest(manifest):
    run = event(manifest)["run"]["runId"]
    assert run == str(uuid.uuid5(uuid.NAMESPACE_URL, f"urn:dataaudit:manifest:{manifest.id}"))


def test_time_and_state_are_those_of_the_build(manifest):
    made = event(manifest)
    assert (made["eventType"], made["eventTime"]) == ("COMPLETE", "2026-11-21T10:00:01Z")
    assert made["run"]["facets"]["nominalTime"]["nominalStartTime"] == "2026-11-21T10:00:00Z"


def test_the_corpus_and_each_split_are_read_and_the_manifest_is_written(manifest):
    made = event(manifest)
    assert [one["name"] for one in made["inputs"]] == ["made", "made/train", "made/val"]
    assert [one["name"] for one in made["outputs"]] == ["made/manifest"]
    assert made["outputs"][0]["facets"]["version"]["datasetVersion"] == manifest.id
    assert made["inputs"][0]["facets"]["version"]["datasetVersion"] == "1.0.0"
    assert {one["namespace"] for one in made["inputs"] + made["outputs"]} == {"corpora"}


def test_parents_are_read_too(manifest):
    parent = f"sha256:{'cd' * 32}"
    older = replace(manifest, core=manifest.core.model_copy(update={"parents": (parent,)}))
    assert event(older)["inputs"][-1]["name"] == f"urn:dataaudit:manifest:{parent}"


def test_statistics_and_metrics_are_those_of_the_manifest(manifest):
    whole = event(manifest)["inputs"][0]["inputFacets"]
    assert {name: whole["inputStatistics"][name] for name in ("rowCount", "size", "fileCount")} == {
        "rowCount": 20,
        "size": 100,
        "fileCount": 2,
    }
    tokens = whole["dataQualityMetrics"]["columnMetrics"]["tokens"]
    assert tokens == {"count": 20.0, "sum": 200.0, "max": 21.0, "quantiles": {"0.5": 9.5, "0.95": 1151.0, "0.99": 20.5}}
    assert whole["dataQualityMetrics"]["columnMetrics"]["source"]["distinctCount"] == 1


def test_columns_are_those_of_the_split(manifest):
    columns = [[field["name"] for field in one["facets"]["schema"]["fields"]] for one in event(manifest)["inputs"]]
    assert columns == [["body", "source", "text"], ["source", "text"], ["body"]]


def test_a_verdict_becomes_assertions_and_tests(manifest):
    results = [
        rule_result("kept", State.PASSED, judged=0.01),
        rule_result("broken", State.FAILED, scope=Scope(source="web")),
        rule_result("soft", State.WARNED, severity="warn"),
        rule_result("first", State.WARNED),
        rule_result("optional", State.NOT_EVALUATED, required=False),
        rule_result("lost", State.NOT_EVALUATED),
        rule_result("idle", State.NOT_APPLICABLE),
    ]
    made = event(manifest, *results)
    assertions = made["inputs"][0]["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert [(one["name"], one["success"], one["severity"]) for one in assertions] == [
        ("kept", True, "error"),
        ("broken", False, "error"),
        ("soft", False, "warn"),
        ("first", False, "warn"),
        ("optional", False, "warn"),
        ("lost", False, "error"),
    ]
    broken = assertions[1]
    assert (broken["assertion"], broken["expected"], broken["actual"]) == (
        "exact_dup_rate.rate",
        "<= 0.1 ratio",
        "0.25",
    )
    assert broken["params"] == {"state": "fail", "waived": 0, "source": "web"}
    assert assertions[5]["actual"] == "metric_missing"
    tests = made["run"]["facets"]["test"]["tests"]
    assert [one["status"] for one in tests] == ["pass", *["fail"] * 5, "skip"]


def test_small_counts_of_personal_data_are_withheld(manifest):
    made = event(manifest, rule_result("pii", State.FAILED, metric="pii_hit_rate", stat="hits", judged=0.1))
    assert made["run"]["facets"]["test"]["tests"][0]["actual"] == "withheld (few)"


def test_the_verdict_is_read_from_the_file_of_the_gate(manifest, tmp_path):
    (tmp_path / "gate.json").write_bytes(gate_json(verdict_of(manifest, rule_result("broken", State.FAILED))))
    arguments = ["export", "openlineage", manifest.folder, "--out", tmp_path / "o", "--verdict", tmp_path / "gate.json"]
    done = CliRunner().invoke(main, [str(one) for one in arguments])
    assert done.exit_code == 0, done.output
    assert "1 rule as assertions, as gate.json says: not judged here" in done.output
    assert json.loads((tmp_path / "o").read_bytes())["run"]["facets"]["test"]["tests"][0]["name"] == "broken"
    assert json.loads((tmp_path / "o").read_bytes())["run"]["facets"]["test"]["tests"][0]["params"]["checked"] is False


def test_the_verdict_of_another_manifest_is_refused(manifest, tmp_path):
    make(tmp_path / "other", [shard("other")])
    (tmp_path / "gate.json").write_bytes(gate_json(verdict_of(load_manifest(tmp_path / "other"))))
    with pytest.raises(ConfigError, match="is the verdict of"):
        export_openlineage(manifest.folder, tmp_path / "o", tmp_path / "gate.json", "n", None)
    with pytest.raises(ManifestError, match="cannot be read"):
        export_openlineage(manifest.folder, tmp_path / "o", tmp_path / "absent.json", "n", None)


def test_a_run_id_can_be_given(manifest, tmp_path):
    given = "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"
    export_openlineage(manifest.folder, tmp_path / "o", None, "n", given)
    assert json.loads((tmp_path / "o").read_bytes())["run"]["runId"] == given
    with pytest.raises(ConfigError, match="expected a UUID"):
        export_openlineage(manifest.folder, tmp_path / "o", None, "n", "first")


def test_the_file_is_one_line_and_the_same_every_time(tmp_path):
    for name in ("one", "two"):
        export_openlineage(DEMO, tmp_path / name, None, "n", None)
    data = (tmp_path / "one").read_bytes()
    assert data == (tmp_path / "two").read_bytes()
    assert data.count(b"\n") == 1
    assert data.endswith(b"}\n")
    assert data.isascii()
    assert b"/srv/" not in data


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_names(tmp_path, name):
    text = name.encode("utf-8", "replace").decode() or "x"
    config = {"splits": {text: {"text": text, "source": {"column": text}}}}
    make(tmp_path / "m", [shard("a", split=text, sources={text: 100})], dataset=text, config=config)
    manifest = load_manifest(tmp_path / "m")
    line = event_json(
        manifest, checks_of(verdict_of(manifest, rule_result("a", State.FAILED, scope=Scope(set=text)))), "n"
    )
    assert "\x1b" not in line
    assert "\n" not in line
    assert line.isascii()
    for _, facet in facets_of(json.loads(line)):
        built(facet)
