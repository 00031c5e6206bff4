"""One corpus, one manifest id: over workers, order, place, the cut into sub-shards, and reruns."""

import json
import os
import shutil

import pytest
from corpus import CONFIG, documents, rows, write_jsonl, write_parquet
from lanes import thinned, workers
from packed import entries, flip
from running import build, metric, run

from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.verify import verify
from dataaudit.metrics.stages import STAGES

pytestmark = pytest.mark.stores


def test_a_file_listed_twice_is_two_shards(tmp_path):
    """The same file listed twice gives an exact duplicate rate of one half, in the same order every time."""
    texts = [f"document number {number}" for number in range(200)]
    write_jsonl(tmp_path / "a.jsonl", rows(texts, "s"))
    (tmp_path / "c.yaml").write_text("splits: {train: {paths: [a.jsonl, a.jsonl]}}")
    _, manifest = build(tmp_path / "c.yaml", manifest=tmp_path / "m")
    assert metric(manifest, "exact_dup_rate", "rate") == 0.5
    shards = manifest.table("shards").to_pylist()
    assert [shard["uri"] for shard in shards] == ["a.jsonl", "a.jsonl#copy=2"]
    assert [shard["exact_dup_rate"] for shard in shards] == [0.0, 1.0]
    clusters = [row for row in manifest.table("clusters").to_pylist() if row["kind"] == "exact"]
    assert len(clusters) == 400
    assert all(row["kept"] == (row["shard"] == 0) for row in clusters)
    assert verify(manifest) == []


def test_twin_files_and_a_leak_between_splits(tmp_path):
    """Equal bytes under two names are two shards; a held-out copy of a training document counts overall only."""
    texts = documents(100, seed=3)
    texts = list(dict.fromkeys(" ".join(text.split()) for text in texts))
    write_parquet(tmp_path / "train" / "a.parquet", rows(texts, "s"))
    shutil.copy(tmp_path / "train" / "a.parquet", tmp_path / "train" / "b.parquet")
    write_jsonl(tmp_path / "val" / "v.jsonl.gz", rows([f"  {texts[0]}\n", "quite new"], "s"))
    _, manifest = build("train", "val", *workers(2), manifest=tmp_path / "m", cwd=tmp_path)
    number = len(texts)
    assert metric(manifest, "exact_dup_rate", "documents") == number + 1
    assert metric(manifest, "exact_dup_rate", "within_split_rate", split="train") == 0.5
    assert metric(manifest, "exact_dup_rate", "rate", split="val") == 0.5
    assert metric(manifest, "exact_dup_rate", "within_split_rate", split="val") == 0.0
    clusters = manifest.table("clusters").to_pylist()
    members = [row for row in clusters if (row["kind"], row["cluster"]) == ("exact", 0)]
    assert [(row["shard"], row["row"], row["kept"]) for row in members] == [(0, 0, True), (1, 0, False), (2, 0, False)]


@pytest.fixture(scope="module")
def everything(corpus, expected, tmp_path_factory):
    """A config in which every stage has something to do: a leak, an evaluation set, a reference; and its id."""
    config = corpus / "everything.yaml"
    quiz = [{"q": " ".join(text.split()[:40])} for text in documents(150, seed=1) if len(text.split()) > 40]
    (corpus / "quiz.jsonl").write_text("".join(json.dumps(item) + "\n" for item in quiz[:20]))
    config.write_text(
        f"{CONFIG}reference: {expected.folder}\nprotected: {{quiz: {{paths: [quiz.jsonl], question: q}}}}\n"
        "stages: {repeats: {min_documents: 2}}\n"
    )
    _, manifest = build(config, manifest=tmp_path_factory.mktemp("everything") / "m")
    return config, manifest


def test_every_stage_has_something_to_do(everything):
    manifest = everything[1]
    assert {stage.name for stage in manifest.core.stages} == {kind.name for kind in STAGES}
    for table in ("clusters", "pairs", "overlap", "hotspots"):
        assert len(manifest.table(table)), table
    assert manifest.core.parents
    assert "quiz" in manifest.table("overlap")["set"].to_pylist()


@pytest.mark.kills
@pytest.mark.parametrize("number", thinned([2, 1, 4], few=[2]))
def test_number_of_workers_changes_nothing(everything, number, tmp_path):
    """Any number of workers publishes, with every stage, what a build without workers publishes."""
    config, without = everything
    summary, manifest = build(config, "--workers", number, manifest=tmp_path / "m")
    assert summary["id"] == without.id
    assert (manifest.run.workers, without.run.workers) == (number, 0)


def test_cut_into_sub_shards_changes_nothing(corpus, everything, tmp_path):
    """Many small sub-shards and small batches give, with every stage, the same manifest as whole files."""
    config, whole = everything
    cut = f"{config.read_text(encoding='utf-8')}reader: {{part_bytes: 20000, batch_bytes: 5000}}\n"
    (corpus / "cut.yaml").write_text(cut, encoding="utf-8")
    summary, manifest = build(corpus / "cut.yaml", *workers(2), manifest=tmp_path / "m")
    assert summary["parts_planned"] > 2 * len(manifest.table("shards"))
    assert summary["id"] == whole.id


def test_order_of_listing_changes_nothing(corpus, expected, tmp_path):
    """Patterns in another order, and splits in another order, are the same corpus."""
    names = sorted(os.listdir(corpus / "data" / "train"), reverse=True)
    listed = json.dumps([f"data/train/{name}" for name in names])
    config = (
        "splits:\n"
        "  val: {held_out: true, source: {column: source}, text: text, paths: [data/val/*]}\n"
        f"  train: {{paths: {listed}, text: text, source: {{column: source}}}}\n"
        "dataset: {version: 1.0.0, name: tiny}\n"
    )
    (corpus / "order.yaml").write_text(config, encoding="utf-8")
    assert build(corpus / "order.yaml", manifest=tmp_path / "m")[0]["id"] == expected.id


def test_rerun_scans_only_what_changed(corpus, expected, tmp_path):
    """Nothing, a touched file, a changed file, a changed stage and --fresh each re-scan just what they must."""
    root = tmp_path / "work"
    shutil.copytree(corpus, root)
    config, target = root / "config.yaml", tmp_path / "m"

    def scanned(*options):
        summary, _ = build(config, *workers(2), *options, manifest=target)
        return summary["parts_scanned"], summary["id"]

    parts, first = scanned()
    assert (parts, first) == (12, expected.id)
    assert scanned() == (0, first)
    os.utime(root / "data" / "train" / "part-0.jsonl")
    assert scanned() == (0, first)
    assert scanned("--rehash") == (0, first)
    with (root / "data" / "train" / "part-1.parquet").open("rb") as handle:
        assert handle.read(4) == b"PAR1"
    write_parquet(root / "data" / "train" / "part-1.parquet", rows(["changed"], "s"))
    parts, second = scanned()
    assert parts == 1
    assert second != first
    before = {one.name for one in entries(tmp_path / ".dataaudit", "volume")}
    config.write_text(CONFIG + "stages: {lengths: {max_distinct: 300}}\n")
    parts, third = scanned()
    assert parts == 12
    assert third != second
    assert {one.name for one in entries(tmp_path / ".dataaudit", "volume")} == before
    config.write_text(CONFIG)
    assert scanned() == (0, second)
    assert scanned("--fresh") == (12, second)


def test_a_damaged_partial_is_computed_again(corpus, expected, tmp_path):
    build(corpus / "config.yaml", manifest=tmp_path / "m")
    flip(entries(tmp_path / ".dataaudit", "lengths")[0])
    summary, manifest = build(corpus / "config.yaml", manifest=tmp_path / "m")
    assert (summary["id"], summary["parts_scanned"]) == (expected.id, 1)
    assert any("damaged" in note for note in manifest.run.notes)


def test_a_manifest_among_the_data_is_no_data(tmp_path):
    """Publishing into the folder of the corpus, by folder and by glob, gives the same manifest the second time."""
    write_jsonl(tmp_path / "data" / "a.jsonl", rows(["one", "two"], "s"))
    write_parquet(tmp_path / "data" / "b.parquet", rows(["three"], "s"))
    for paths in (["data"], ["data/**/*"]):
        target = tmp_path / "data" / "manifest"
        first, second = (
            build(*paths, "--state", tmp_path / "state", manifest=target, cwd=tmp_path)[0]["id"] for _ in range(2)
        )
        assert first == second


def test_a_good_manifest_is_not_replaced_by_an_empty_one(tmp_path):
    """A slip in the text column is warned of, ends with code 4, and leaves the older manifest as it was."""
    write_jsonl(tmp_path / "a.jsonl", rows(["one", "two"], "s"))
    _, good = build("a.jsonl", manifest=tmp_path / "m", cwd=tmp_path)
    _, err = run("build", "a.jsonl", "--text", "txt", "--manifest", "m", cwd=tmp_path, expect=4)
    assert "did you mean `text`" in err
    assert "was kept as it was" in err
    assert load_manifest(tmp_path / "m").id == good.id


def test_wrong_use_is_said_before_any_work(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("keep")
    cases = [
        (["build", "nothing-*.jsonl", "--manifest", "m"], "matches no file"),
        (["build", "a.jsonl", "--manifest", "full"], "not empty"),
        (["build", "a.jsonl", "--manifest", "m", "--tokenizer", "missing.json"], "missing.json"),
        (["build", "a.jsonl", "--manifest", "m", "--reference", "nowhere"], "no manifest"),
        (["build", "a.jsonl", "--manifest", "m", "--scheduler", "tcp://127.0.0.1:1", "--workers", "2"], "exclude"),
    ]
    for arguments, words in cases:
        _, err = run(*arguments, cwd=tmp_path, expect=2)
        assert words in err, err
    assert (tmp_path / "full" / "mine.txt").read_text() == "keep"
    assert not (tmp_path / "m").exists()
