"""Comparing whole builds: repacked, cut anew, leaked, and the drift that a build computes itself."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus import documents, write_jsonl
from running import build, run

from dataaudit.manifest.load import load_manifest

pytestmark = pytest.mark.builds

CONFIG = """
dataset: {{name: trial, version: {version}}}
splits:
  train: {{paths: [train], text: text, source: {{column: source}}}}
  val: {{paths: [val], text: text, source: {{column: source}}, held_out: true}}
"""
ROWS = [{"text": text, "source": "ab"[number % 2]} for number, text in enumerate(documents(160, seed=1))]
VAL = [{"text": text, "source": "a"} for text in documents(30, seed=2)]


def cut(rows, parts):
    """Return rows in so many parts of equal size."""
    return [rows[len(rows) * part // parts : len(rows) * (part + 1) // parts] for part in range(parts)]


def corpus(root, train, val, version, suffix="jsonl"):
    """Write a corpus and return its config."""
    for split, parts in (("train", train), ("val", val)):
        for number, rows in enumerate(parts):
            path = root / split / f"part-{number}.{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            if suffix == "parquet":
                pq.write_table(pa.Table.from_pylist(rows), path)
            else:
                write_jsonl(path, rows)
    (root / "c.yaml").write_text(CONFIG.format(version=version), encoding="utf-8")
    return root / "c.yaml"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The manifest of a corpus in four training shards and two held-out ones."""
    root = tmp_path_factory.mktemp("base")
    build(corpus(root / "c", cut(ROWS, 4), cut(VAL, 2), "1.0.0"), manifest=root / "m")
    return root / "m"


def compared(base, root, config, *options):
    """Build another manifest and return the difference as JSON."""
    build(config, *options, manifest=root / "m")
    out, _ = run("diff", base, root / "m", "--json", expect=1)
    return json.loads(out)


def demands(found):
    """Return what the difference demands."""
    return {(cause["bump"], cause["code"], cause["proven"]) for cause in found["proposal"]["causes"]}


def test_the_same_corpus_repacked_is_a_patch(base, tmp_path):
    """As Parquet instead of JSON lines: the same rows, every metric as it was, the version is right."""
    found = compared(base, tmp_path, corpus(tmp_path / "c", cut(ROWS, 4), cut(VAL, 2), "1.0.1", "parquet"))
    assert demands(found) == {("patch", "repacked", True)}
    assert (found["metrics"], found["drifts"], found["proposal"]["complaint"]) == ([], [], "")
    assert [(one["area"], one["name"]) for one in found["settings"]] == [("dataset", "version")]


def test_the_same_corpus_cut_and_ordered_otherwise_is_a_patch_that_is_not_proven(base, tmp_path):
    """No digest of a shard stays; everything that does not depend on the cut agrees."""
    found = compared(base, tmp_path, corpus(tmp_path / "c", cut(ROWS[::-1], 3), cut(VAL, 2), "1.0.1"))
    assert demands(found) == {("patch", "recut", False)}
    assert found["recuts"][0]["differ"] == found["recuts"][0]["unknown"] == []
    assert len(found["recuts"][0]["agree"]) == 6
    assert found["drifts"] == []


def test_a_held_out_shard_that_moved_into_training_is_major(base, tmp_path):
    parts = cut(VAL, 2)
    found = compared(base, tmp_path, corpus(tmp_path / "c", [*cut(ROWS, 4), parts[0]], parts[1:], "1.0.1"))
    assert ("major", "moved_split", True) in demands(found)
    assert (found["proposal"]["complaint"], found["proposal"]["version"]) == ("too_small", "2.0.0")


def test_drift_is_what_the_build_itself_finds_against_that_manifest(base, tmp_path):
    """KL, Jensen-Shannon, what chance gives, and the tokens, digit by digit."""
    rows = [*ROWS[:120], *({"text": f"zebra quagga {number}", "source": "b"} for number in range(40))]
    config = corpus(tmp_path / "c", cut(rows, 4), cut(VAL, 2), "2.0.0")
    found = compared(base, tmp_path, config, "--reference", base)
    manifest = load_manifest(tmp_path / "m")
    own = {}
    for record in manifest.metrics("token_kl_drift"):
        own.setdefault((record.scope.split, record.scope.source), {})[record.stat] = record.value
    numbered = [one for one in found["drifts"] if one["kl"] is not None]
    assert found["descends"]
    assert {(one["split"], one["source"]) for one in numbered} == {
        (None, None),
        ("train", None),
        *(("train", source) for source in "ab"),
    }
    for one in numbered:
        held = own[one["split"], one["source"]]
        assert (one["kl"], one["js"], one["by_chance"]) == (held["kl"], held["js"], held["kl_bias"])
        assert not one["floor"]
    rows = manifest.table("drift").to_pylist()
    top = {(row["split"], row["source"], row["token"]): (row["kl"], row["js"], row["piece"]) for row in rows}
    for one in numbered:
        for token in one["top"]:
            assert top[one["split"], one["source"], token["token"]] == (token["kl"], token["js"], token["piece"])
