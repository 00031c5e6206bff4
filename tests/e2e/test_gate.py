"""A release goes through the gate: what leaks is stopped and named, what was not read is stopped, a repack passes."""

import json
import random
import shutil
from pathlib import Path

import pytest
from corpus import CONFIG, words, write_jsonl
from running import build, run

from dataaudit.decide.gate.writers.writing import Outputs

POLICY = Path(__file__).parents[2] / "pipelines" / "release-gate.yaml"


def prose(seed, number):
    """Return documents of words that no two share a run of."""
    rng = random.Random(seed)
    known = words(rng, 3000)
    return [" ".join(rng.choices(known, k=rng.randrange(80, 300))) + "." for _ in range(number)]


def write(folder, name, texts):
    write_jsonl(folder / "data" / name, [{"text": text, "source": f"s{n % 2}"} for n, text in enumerate(texts)])


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """Return a folder with a corpus, its first manifest, and what a change may use of it."""
    folder = tmp_path_factory.mktemp("release")
    texts = {f"train/{name}.jsonl": prose(seed, 60) for seed, name in enumerate("abcdef")}
    texts["val/v.jsonl"] = prose(99, 20)
    for name, made in texts.items():
        write(folder, name, made)
    (folder / "config.yaml").write_text(CONFIG)
    build("config.yaml", manifest=folder / "first", cwd=folder)
    return folder, texts


@pytest.fixture
def change(release, tmp_path):
    """Return a copy of the corpus to be changed, with the first release's manifest beside it."""
    folder, texts = release
    shutil.copytree(folder / "data", tmp_path / "data")
    shutil.copytree(folder / "first", tmp_path / "first")
    shutil.copy(folder / "config.yaml", tmp_path)
    return tmp_path, texts


def gate(folder, *more, expect):
    """Judge the manifest `next` with every output; return gate.json, the table and the comment."""
    outputs = [part for option in Outputs().files for part in (option, folder / f"{option[2:]}.txt")]
    out, _ = run("gate", folder / "next", "--policy", POLICY, *outputs, *more, expect=expect)
    return json.loads((folder / "out.txt").read_text()), out, (folder / "markdown.txt").read_text()


@pytest.mark.builds
def test_a_first_release_passes_without_a_baseline_and_is_told_which_rules_wait(release):
    folder, _ = release
    out, _ = run("gate", folder / "first", "--policy", POLICY, "--json")
    document = json.loads(out)
    assert document["passed"]
    assert {"mixture", "languages", "long-documents", "quality-filters"} <= set(document["waiting"])


@pytest.mark.builds
def test_a_change_that_leaks_the_validation_set_is_stopped_and_named(change):
    """The summary names set, shard and count, and the other rules are judged too."""
    folder, texts = change
    leaked = texts["train/d.jsonl"] + texts["val/v.jsonl"][:3]
    write(folder, "train/d.jsonl", leaked)
    build("config.yaml", manifest=folder / "next", cwd=folder)
    document, table, comment = gate(folder, "--baseline", folder / "first", expect=1)
    states = {result["rule"]["name"]: result["state"] for result in document["verdict"]["rules"]}
    assert {name for name, state in states.items() if state == "fail"} == {
        "val-near-duplicates",
        "val-copied-spans",
        "val-13-grams",
        "val-edited-copies",
    }
    assert states["mixture"] == states["every-shard-read"] == "pass"
    for page in (table, comment, (folder / "summary.txt").read_text()):
        text = " ".join(page.split())
        assert "set val" in text or "set `val`" in text
        assert "train/data/train/d.jsonl" in text
        assert "3 near-duplicates of held-out documents" in text


def test_a_shard_that_cannot_be_read_is_stopped_with_3(change):
    folder, _ = change
    (folder / "data/train/c.jsonl").rename(folder / "data/train/c.jsonl.zst")
    build("config.yaml", manifest=folder / "next", cwd=folder, expect=3)
    document, table, _ = gate(folder, expect=3)
    assert document["exit_codes"] == [3]
    assert "train/data/train/c.jsonl.zst" in " ".join(table.split())


def test_an_empty_corpus_is_stopped_with_4(change):
    folder, texts = change
    for name in texts:
        write(folder, name, [])
    _, manifest = build("config.yaml", manifest=folder / "next", cwd=folder, expect=4)
    assert {record.status for record in manifest.metrics("exact_dup_rate", "rate")} == {"not_evaluated"}
    document, _, _ = gate(folder, expect=4)
    assert not document["passed"]


@pytest.mark.builds
def test_the_same_corpus_repacked_passes_and_is_a_patch(change):
    folder, texts = change
    for name in ("train/a.jsonl", "train/b.jsonl"):
        (folder / "data" / name).unlink()
        write(folder, f"{name}.zst", texts[name])
    build("config.yaml", manifest=folder / "next", cwd=folder)
    gate(folder, "--baseline", folder / "first", expect=0)
    out, _ = run("diff", folder / "first", folder / "next", "--json", expect=1)
    assert json.loads(out)["proposal"]["bump"] == "patch"


def test_a_manifest_that_is_not_there_or_a_wrong_policy_is_wrong_use(release, tmp_path):
    folder, _ = release
    _, err = run("gate", tmp_path / "none", "--policy", POLICY, expect=2)
    assert "no manifest at" in err
    (tmp_path / "p.yaml").write_text("policy: p\nrules: [{name: a, metric: near_dup, stat: rate, unit: x, budget: 1}]")
    _, err = run("gate", folder / "first", "--policy", tmp_path / "p.yaml", expect=2)
    assert "did you mean `near_dup_rate`?" in err
    run("gate", folder / "first", "--policy", POLICY, "--out", tmp_path / "no" / "gate.json", expect=2)


@pytest.mark.builds
def test_a_build_that_looks_for_other_secrets_than_the_policy_demands_is_not_evaluated(change):
    """The first release passes; the same corpus searched with a rule that can match nothing does not."""
    folder, _ = change
    (folder / "rules.yaml").write_text("entities: {JSON_WEB_TOKEN: {rules: [{regex: 'zzzzqqqqzzzz[0-9]{9}'}]}}")
    (folder / "config.yaml").write_text(CONFIG + "secrets: {rules: rules.yaml}\n")
    build("config.yaml", manifest=folder / "next", cwd=folder)
    document, out, comment = gate(folder, expect=3)
    states = {one["rule"]["name"]: one["state"] for one in document["verdict"]["rules"]}
    assert (states["secrets"], states["val-near-duplicates"]) == ("not_evaluated", "pass")
    for page in (out, comment):
        assert "The policy demands the detector secrets of sha256" in " ".join(page.split())
