"""Croissant: valid for the real validator, true to the manifest, discreet, and loadable where the format allows."""

import fnmatch
import gzip
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from made_manifest import make, shard
from made_verdict import HOSTILE

from dataaudit.base.errors import ConfigError
from dataaudit.cli import main
from dataaudit.manifest.load import load_manifest
from dataaudit.present.export import croissant_files
from dataaudit.present.export.croissant import export_croissant
from dataaudit.present.export.croissant_files import About, Rai, about_of

pytestmark = [pytest.mark.judges, pytest.mark.usefixtures("odd_numbers")]

ROOT = Path(__file__).parents[4]
DEMO = ROOT / "manifests/demo"
GIVEN = {
    "license": ["CC-BY-4.0"],
    "url": "https://example.org/corpus",
    "creator": ["Example Org"],
    "description": "Text of many kinds.",
    "date_published": "2026-11-22",
    "cite_as": "@misc{corpus}",
}
CONFIG = {"splits": {"train": {"text": "text", "source": {"column": "source"}, "held_out": False}}}


def written(folder, out, metadata=None, **more):
    """Write the file and return it parsed."""
    export_croissant(folder, out, metadata, GIVEN | more)
    return json.loads(out.read_bytes())


def validated(path):
    """Return what the real validator says; it has to end with 0."""
    program = Path(sys.executable).with_name("mlcroissant")
    done = subprocess.run(
        [program, "validate", "--jsonld", path], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def loaded(path, name):
    """Return the texts of a record set as mlcroissant loads them, in a process that does not mind its warnings."""
    code = (
        "import json, sys, mlcroissant\n"
        "records = mlcroissant.Dataset(sys.argv[1]).records(sys.argv[2])\n"
        "print(json.dumps([one[sys.argv[2] + '/text'].decode() for one in records]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path, name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "croissant.json"
    return written(DEMO, out), out


def objects(document):
    return {one["@id"]: one for one in document["distribution"] if one["@type"] == "cr:FileObject"}


def sets(document):
    return {one["@id"]: one for one in document["distribution"] if one["@type"] == "cr:FileSet"}


def test_the_real_validator_has_nothing_to_say(demo):
    assert "warning" not in validated(demo[1]).lower()


def test_it_conforms_to_croissant_and_to_its_vocabulary_of_responsible_ai(demo):
    assert demo[0]["conformsTo"] == ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"]


def test_every_required_and_recommended_property_of_the_specification_is_there(demo):
    required = {"@context", "@type", "conformsTo", "description", "license", "name", "url", "creator", "datePublished"}
    assert required | {"distribution", "version", "inLanguage"} <= demo[0].keys()


def test_what_only_people_know_is_asked_for_all_at_once(tmp_path):
    done = CliRunner().invoke(main, ["export", "croissant", str(DEMO), "--out", str(tmp_path / "c")])
    assert done.exit_code == 2
    for option in ("--license", "--url", "--creator", "--description", "--date-published"):
        assert option in done.output
    assert not (tmp_path / "c").exists()


def test_shards_that_were_read_are_listed_with_their_digests(demo):
    table = load_manifest(DEMO).table("shards", ["shard", "sha256", "status"]).to_pylist()
    shown = {one["@id"]: one["sha256"] for one in objects(demo[0]).values() if one["@id"].startswith("shards/")}
    assert shown == {f"shards/{row['shard']}": row["sha256"] for row in table if row["status"] != "quarantined"}


def test_the_manifest_is_listed_with_the_digests_of_its_files(demo):
    for name in ("manifest.json", "shards.parquet"):
        one = objects(demo[0])[f"manifest/{name}"]
        assert one["sha256"] == hashlib.sha256((DEMO / name).read_bytes()).hexdigest()
        assert one["contentUrl"] == f"manifest/{name}"


def test_a_shard_that_was_not_read_is_in_no_set(demo):
    assert sets(demo[0])["files/train/jsonl.zstd"]["excludes"] == ["train/manual/part-003.jsonl.zst"]


def test_many_shards_are_sets_and_the_table_has_their_digests(tmp_path, monkeypatch):
    monkeypatch.setattr(croissant_files, "MOST_FILES", 3)
    make(tmp_path / "m", [shard(f"{folder}/{number}.jsonl") for folder in "ab" for number in range(3)])
    document = written(tmp_path / "m", tmp_path / "c")
    assert list(objects(document)) == ["manifest/manifest.json", "manifest/shards.parquet"]
    assert sets(document)["files/train/jsonl"]["includes"] == ["a/*.jsonl", "b/*.jsonl"]
    assert "sha256 in shards.parquet" in sets(document)["files/train/jsonl"]["description"]
    validated(tmp_path / "c")


def test_responsible_ai_is_filled_from_the_manifest(demo):
    document = demo[0]
    limits = " ".join(document["rai:dataLimitations"])
    assert "The audit read 18 of 19 shards" in limits
    assert "0.2137 of the documents of the held-out split val have a near-duplicate in training data." in limits
    assert "code 0.5663" in document["rai:dataBiases"][0]
    assert "EMAIL_ADDRESS: in 313 documents" in document["rai:personalSensitiveInformation"][0]
    assert "No filter before the audit is declared." in document["rai:dataManipulationProtocol"]
    assert any(one.startswith("pycld2 ") for one in document["rai:machineAnnotationTools"])


def test_the_exact_number_of_secrets_is_not_told(demo):
    said = [one for one in demo[0]["rai:personalSensitiveInformation"] if one.startswith("Secrets")]
    assert said == [
        "Secrets (keys, tokens, passwords) are in about 40 documents; some are confirmed by their structure."
    ]


def test_what_people_say_of_responsible_ai_comes_first(tmp_path):
    (tmp_path / "about.yaml").write_text(
        "rai:\n  data_biases: Mostly English.\n  data_social_impact: Little.\n  data_use_cases: [pre-training]\n"
    )
    document = written(DEMO, tmp_path / "c", tmp_path / "about.yaml")
    assert document["rai:dataBiases"][0] == "Mostly English."
    assert document["rai:dataSocialImpact"] == "Little."
    assert document["rai:dataUseCases"] == ["pre-training"]
    assert "warning" not in validated(tmp_path / "c").lower()


def test_every_field_of_responsible_ai_has_the_name_of_the_vocabulary():
    """Names of the RAI 1.0 page; mlcroissant 1.1.1 writes one of them otherwise, dataDataManipulationProtocol."""
    from mlcroissant._src.core import constants

    theirs = {str(value).rpartition("/")[2] for name, value in vars(constants).items() if "_RAI_" in name}
    camel = ["".join(part.capitalize() for part in name.split("_")) for name in Rai.model_fields]
    ours = {name[0].lower() + name[1:] for name in camel}
    assert theirs - ours == {"dataCollectionTimeFrame", "dataDataManipulationProtocol"}
    assert ours - theirs == {"dataCollectionTimeframe", "dataManipulationProtocol"}


def test_options_win_over_the_file(tmp_path):
    (tmp_path / "about.yaml").write_text("url: https://old.example/\nlicense: MIT\ndate_published: 2020-01-01\n")
    about = about_of(tmp_path / "about.yaml", GIVEN | {"license": [], "date_published": None})
    assert about.url == "https://example.org/corpus"
    assert about.license == ("https://spdx.org/licenses/MIT",)
    assert about.date_published == "2020-01-01"


@pytest.mark.parametrize(
    ("yaml", "words"),
    [
        ("licence: MIT", "licence"),
        ("url: ftp://x", "https://"),
        ("url: 'https://user:secret@x.example/'", "name or password"),
        ("license: 'see the file'", "https://"),
        ("date_published: soon", "date_published"),
        ("creator: [{name: A, age: 3}]", "age"),
        ("- a", "mapping"),
        ("a: [", "YAML"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path, yaml, words):
    (tmp_path / "about.yaml").write_text(yaml)
    with pytest.raises(ConfigError, match=words):
        about_of(tmp_path / "about.yaml", {})


def test_a_version_that_is_not_semantic_is_refused(tmp_path):
    make(tmp_path / "m", [shard("a")])
    manifest = load_manifest(tmp_path / "m")
    dataset = manifest.core.dataset.model_copy(update={"version": "2026-11"})
    from dataclasses import replace

    from dataaudit.present.export.croissant import croissant

    other = replace(manifest, core=manifest.core.model_copy(update={"dataset": dataset}))
    with pytest.raises(ConfigError, match=r"MAJOR\.MINOR\.PATCH"):
        croissant(other, About())


def test_provenance_names_manifest_parents_filters_and_tool(tmp_path):
    from dataclasses import replace

    from dataaudit.manifest.core import UpstreamFilterRecord
    from dataaudit.present.export.croissant import croissant

    make(tmp_path / "m", [shard("a")])
    manifest = load_manifest(tmp_path / "m")
    parent = f"sha256:{'cd' * 32}"
    ran = UpstreamFilterRecord(name="c4", version="1", documents_in=1200, documents_out=1000)
    core = manifest.core.model_copy(update={"parents": (parent,), "upstream_filters": (ran,)})
    document = croissant(replace(manifest, core=core), about_of(None, GIVEN | {"derived_from": ["https://x.example/"]}))
    assert document["identifier"] == f"urn:dataaudit:manifest:{manifest.id}"
    assert document["prov:wasDerivedFrom"] == [
        {"@id": "https://x.example/"},
        {"@id": f"urn:dataaudit:manifest:{parent}"},
    ]
    assert document["prov:wasGeneratedBy"] == [{"@type": "prov:Activity", "prov:label": "filter c4 1"}]
    assert "c4 1, as declared: 1,200 documents in, 1,000 out." in document["rai:dataManipulationProtocol"]
    pointer = objects(document)["manifest/manifest.json"]
    assert pointer["prov:wasGeneratedBy"]["prov:label"] == "dataaudit build, dataaudit 0.1.0"
    assert pointer["prov:wasDerivedFrom"] == [{"@id": f"urn:dataaudit:manifest:{parent}"}]
    (tmp_path / "c").write_text(json.dumps(document))
    assert "warning" not in validated(tmp_path / "c").lower()


def test_no_path_of_the_machine_is_in_it(demo):
    assert "/srv/" not in demo[1].read_text()


def test_addresses_of_data_and_manifest_are_those_that_were_given(tmp_path):
    make(tmp_path / "m", [shard("a b/c#d.jsonl#copy=2"), shard("javascript:x.jsonl")])
    document = written(tmp_path / "m", tmp_path / "c")
    assert [one["contentUrl"] for name, one in objects(document).items() if name.startswith("shards/")] == [
        "a%20b/c%23d.jsonl",
        "javascript%3Ax.jsonl",
    ]
    document = written(
        tmp_path / "m", tmp_path / "c", data_url="https://x.example/d/", manifest_url="https://x.example/m"
    )
    assert objects(document)["shards/0"]["contentUrl"] == "https://x.example/d/a%20b/c%23d.jsonl"
    assert objects(document)["manifest/manifest.json"]["contentUrl"] == "https://x.example/m/manifest.json"


def test_the_columns_can_be_loaded_by_mlcroissant(tmp_path):
    """Parquet and gzipped JSON lines lie where the file says; Zstandard has no record set, since nothing reads it."""
    rows = [{"text": f"text {number}", "source": "web"} for number in range(4)]
    (tmp_path / "a").mkdir()
    pq.write_table(pa.Table.from_pylist(rows[:2]), tmp_path / "a/one[1].parquet")
    (tmp_path / "a/two.jsonl.gz").write_bytes(
        gzip.compress("".join(json.dumps(row) + "\n" for row in rows[2:]).encode())
    )
    shards = [
        shard("a/one[1].parquet", documents=2, format="parquet"),
        shard("a/two.jsonl.gz", documents=2, compression="gzip"),
        shard("a/three.jsonl.zst", compression="zstd"),
    ]
    make(tmp_path / "m", shards, config=CONFIG)
    document = written(tmp_path / "m", tmp_path / "croissant.json")
    assert [one["@id"] for one in document["recordSet"]] == ["splits", "train/jsonl", "train/parquet"]
    assert "warning" not in validated(tmp_path / "croissant.json").lower()
    assert loaded(tmp_path / "croissant.json", "train/parquet") == ["text 0", "text 1"]
    assert loaded(tmp_path / "croissant.json", "train/jsonl") == ["text 2", "text 3"]


def test_splits_say_what_they_are_for(tmp_path):
    make(tmp_path / "m", [shard("a"), shard("b", split="val"), shard("c", split="test")])
    document = written(tmp_path / "m", tmp_path / "c")
    assert document["recordSet"][0]["data"] == [
        {"splits/name": "test", "splits/url": "cr:TestSplit"},
        {"splits/name": "train", "splits/url": "cr:TrainingSplit"},
        {"splits/name": "val", "splits/url": "cr:ValidationSplit"},
    ]


def test_a_streamed_dataset_has_no_file_with_a_wrong_digest(tmp_path):
    """Its sha256 in the manifest is of rows, not of bytes."""
    make(tmp_path / "m", [shard("0", format="datasets")])
    assert list(objects(written(tmp_path / "m", tmp_path / "c"))) == [
        "manifest/manifest.json",
        "manifest/shards.parquet",
    ]
    validated(tmp_path / "c")


def test_hostile_names_stay_names(tmp_path):
    """In splits, shards, sources, columns and the dataset's own name; the file may stand in a web page."""
    names = sorted({name.encode("utf-8", "replace").decode().replace("\x00", "%00") or "x" for name in HOSTILE})
    uris = [name.replace("..", "up").lstrip("/") or "x" for name in names]
    shards = [shard(uri, split=name, sources={name: 100}) for uri, name in zip(uris, names, strict=True)]
    config = {"splits": {name: {"text": name, "source": {"column": name}} for name in names}}
    make(tmp_path / "m", shards, dataset=names[0], config=config)
    document = written(tmp_path / "m", tmp_path / "c", description="".join(names))
    data = (tmp_path / "c").read_bytes()
    assert data.isascii()
    assert not set(b"<>&\x1b\x00\r") & set(data)
    assert document["description"] == "".join(names)
    assert len({one["@id"] for one in document["distribution"]}) == len(document["distribution"])
    validated(tmp_path / "c")


def test_the_same_manifest_gives_the_same_bytes(tmp_path, demo):
    written(DEMO, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == demo[1].read_bytes()


def test_a_split_may_be_called_splits(tmp_path):
    """As the record set is that says what splits are for."""
    config = {"splits": {"splits": {"text": "text"}}}
    make(tmp_path / "m", [shard("a.jsonl", split="splits")], config=config)
    document = written(tmp_path / "m", tmp_path / "c")
    assert [one["@id"] for one in document["recordSet"]] == ["splits", "splits/jsonl"]
    validated(tmp_path / "c")


@pytest.mark.parametrize("uri", ["../up.jsonl", "/etc/passwd", "a/%2E%2E/../x"])
def test_a_uri_that_leads_out_of_its_root_is_refused(tmp_path, uri):
    """A manifest from elsewhere cannot make a loader read another file."""
    make(tmp_path / "m", [shard(uri)])
    with pytest.raises(ConfigError, match="leads out of its root"):
        written(tmp_path / "m", tmp_path / "c")


def includes(document):
    """Return the patterns of each set of files."""
    return {one["name"]: one["includes"] for one in document["distribution"] if one["@type"] == "cr:FileSet"}


def test_the_pattern_of_a_split_fits_no_file_of_another(tmp_path, monkeypatch):
    """Both lie in one folder, as on the hub: a loader of training data must not be given held-out files."""
    monkeypatch.setattr(croissant_files, "MOST_FILES", 2)
    shards = [shard(f"data/{split}-{n}.jsonl", split=split) for split in ("train", "val") for n in range(3)]
    make(tmp_path / "m", shards)
    assert includes(written(tmp_path / "m", tmp_path / "c")) == {
        "train (jsonl)": ["data/train-*.jsonl"],
        "val (jsonl)": ["data/val-*.jsonl"],
    }
    validated(tmp_path / "c")


def test_where_no_pattern_parts_the_splits_every_file_is_listed(tmp_path, monkeypatch):
    monkeypatch.setattr(croissant_files, "MOST_FILES", 2)
    shards = [shard(f"data/{n}.jsonl", split="val" if n == 1 else "train") for n in range(4)]
    make(tmp_path / "m", shards)
    assert includes(written(tmp_path / "m", tmp_path / "c"))["train (jsonl)"] == [
        "data/0.jsonl",
        "data/2.jsonl",
        "data/3.jsonl",
    ]


def test_patterns_fit_every_file_of_their_set(tmp_path, monkeypatch):
    """By the rules that mlcroissant reads them by: also one alone in its folder, and names with stars."""
    monkeypatch.setattr(croissant_files, "MOST_FILES", 3)
    names = ["a/x.jsonl", "b/*1.jsonl", "b/*12.jsonl", "b/*.jsonl", "x"]
    make(tmp_path / "m", [shard(name) for name in names])
    patterns = includes(written(tmp_path / "m", tmp_path / "c"))["train (jsonl)"]
    assert patterns == ["x*", "a/x*.jsonl", "b/[*]*.jsonl"]
    assert all(any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns) for name in names)
