"""A manifest of which one table, or one part of the core, is emptied and everything else made to fit: said by name."""

import gzip
import json
import random
import shutil

import orjson
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from corpus import CONFIG as SPLITS
from corpus import write_jsonl
from forged import forge
from lanes import sample
from running import build

from dataaudit.cli import main
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.tables import TABLES
from dataaudit.manifest.verify import verify
from dataaudit.metrics.relations import contradictions
from dataaudit.metrics.stages import STAGES

pytestmark = [pytest.mark.builds, pytest.mark.usefixtures("policies_parsed_once")]

CONFIG = f"""{SPLITS}
mixture: {{a: {{weight: 0.5}}, b: {{weight: 0.5}}}}
protected:
  quiz: {{paths: ["quiz.jsonl.gz"], question: question, answer: answer, id: name}}
stages:
  repeats: {{min_documents: 3}}
reader: {{max_bad_records: 0.5}}
"""
UNTOLD = frozenset({"drift", "judged", "signatures"})
"""Tables that this build leaves empty: they need a reference, a judge, and an option."""
LISTS = ("stages", "detectors", "protected", "splits", "headline", "mixture", "libraries", "config", "seeds", "tables")
TOLD = frozenset({"stages", "protected", "splits", "headline", "mixture", "tables"})
"""Parts that tables say something of."""
OFF = sorted(stage.name for stage in STAGES if stage.name != "volume")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A build that has rows in nearly every table."""
    folder = tmp_path_factory.mktemp("small")
    rng = random.Random(3)
    words = [f"w{number}" for number in range(3000)]

    def text(size=120):
        return " ".join(rng.choices(words, k=size))

    leaked, repeated = text(), text(60)
    question = "How many " + " ".join(rng.choices(words, k=30)) + " were there in the end?"
    near = leaked.replace("w1", "w2", 1)
    train = [text() for _ in range(20)] + [f"{text()} {repeated} {text()}" for _ in range(5)]
    train += [leaked, near, train[0], f"{text()} {question} {text()}", f"{text()} ghp_{'a1B2c3D4e5' * 3}F6g7h8"]
    train += ["Write to jane.doe@gmail.com or call +1 415 555 2671."]
    val = [leaked, *(text() for _ in range(5))]
    for name, texts in {"train/p0.jsonl": train[::2], "train/p1.jsonl": train[1::2], "val/v0.jsonl": val}.items():
        write_jsonl(folder / "data" / name, [{"text": one, "source": "ab"[i % 2]} for i, one in enumerate(texts)])
    with (folder / "data/train/p1.jsonl").open("a") as file:
        file.write("no json\n")
    item = {"name": "one", "question": question, "answer": "seven"}
    (folder / "quiz.jsonl.gz").write_bytes(gzip.compress(json.dumps(item).encode()))
    (folder / "config.yaml").write_text(CONFIG)
    build("config.yaml", manifest=folder / "m", cwd=folder)
    return folder / "m"


@pytest.fixture
def copy(small, tmp_path):
    """One that a test may forge."""
    return shutil.copytree(small, tmp_path / "m")


def tell(folder, small, out):
    """Run what reads a manifest, by name; return the exit codes. A fault of the program is raised as it is."""
    commands = {
        "verify": ("verify", folder),
        "show": ("show", folder, "--all"),
        "gate": ("gate", folder, "--policy", "release-gate"),
        "baseline": ("gate", small, "--policy", "release-gate", "--baseline", folder),
        "diff": ("diff", small, folder),
        "report": ("report", folder, "--policy", "release-gate", "--out", out / "report.html"),
        "quarantine": ("quarantine", "add", out / "list.jsonl", "--manifest", folder, "1", "--reason", "spike"),
        "card": ("export", "card", folder),
        "event": ("export", "openlineage", folder, "--out", out / "event.json"),
    }
    codes = {}
    for name, command in commands.items():
        done = CliRunner().invoke(main, [str(part) for part in command], env={"DATAAUDIT_DEBUG": "1"})
        assert done.exception is None or isinstance(done.exception, SystemExit), (name, done.exception)
        assert "internal error" not in done.output, name
        assert done.exit_code in {0, 1, 2, 3, 4}, name
        codes[name] = done.exit_code
    return codes


def test_a_build_does_not_contradict_itself_and_fills_nearly_every_table(small):
    """What is emptied below had rows."""
    assert contradictions(load_manifest(small)) == []
    empty = {name for name in TABLES if pq.read_metadata(small / f"{name}.parquet").num_rows == 0}
    assert empty == UNTOLD


@pytest.mark.parametrize("name", sample(sorted(TABLES.keys() - UNTOLD), 8, part="builds"))
def test_an_emptied_table_is_said_and_never_a_fault_of_the_program(small, copy, tmp_path, name):
    """Its digest, the id and the bytes fit."""
    forge(copy, {name: pq.read_table(copy / f"{name}.parquet").slice(0, 0)})
    codes = tell(copy, small, tmp_path)
    assert codes["verify"] == 1
    assert codes["report"] in {1, 2}


@pytest.mark.parametrize("name", sample(LISTS, 4, part="builds"))
def test_an_emptied_part_of_the_core_is_never_a_fault_of_the_program(small, copy, tmp_path, name):
    core = orjson.loads((copy / "manifest.json").read_bytes())["core"]
    assert core[name], "it had something"
    forge(copy, core=lambda core: core.update({name: type(core[name])()}))
    codes = tell(copy, small, tmp_path)
    if name in TOLD:
        assert codes["verify"] == 1


@pytest.mark.parametrize("stage", ["volume", *sample(OFF, 3, part="builds")])
def test_a_stage_that_is_struck_from_the_core_is_missed(copy, stage):
    """What it found is there still: whoever strikes it would be rid of every check of it."""

    def strike(core):
        core["stages"] = [one for one in core["stages"] if one["name"] != stage]

    forge(copy, core=strike)
    found = [problem.text for problem in verify(load_manifest(copy)) + contradictions(load_manifest(copy))]
    assert any(f"the core names no stage {stage}" in text for text in found), found


def changed(small, name, stages, to):
    """Return the manifest of the same corpus with other stages."""
    config = small.parent / f"{name}.yaml"
    config.write_text(CONFIG.replace("  repeats: {min_documents: 3}\n", f"  {stages}\n"))
    return build(config.name, manifest=to, cwd=small.parent)[1]


@pytest.mark.parametrize("stage", sample(OFF, 6, part="builds"))
def test_a_build_without_a_stage_does_not_contradict_itself(small, stage, tmp_path):
    manifest = changed(small, stage, f"{stage}: false", tmp_path / "m")
    assert stage not in {one.name for one in manifest.core.stages}
    assert verify(manifest) == []
    assert contradictions(manifest) == []


def test_a_list_of_leaks_that_is_cut_short_contradicts_nothing(small, tmp_path):
    """With one row for each held-out document what was copied of it may not be listed."""
    path = small.parent / "data/train/p2.jsonl"
    held = json.loads((small.parent / "data/val/v0.jsonl").read_text().splitlines()[1])["text"].split()
    grams, span = " ".join(held[:20]), " ".join(held[10:80])
    write_jsonl(path, [{"text": f"{start} {body}", "source": "a"} for start, body in (("one", grams), ("two", span))])
    try:
        manifest = changed(small, "cut", "overlap: {max_rows: 1}", tmp_path / "m")
    finally:
        path.unlink()
    assert verify(manifest) == []
    assert contradictions(manifest) == []
