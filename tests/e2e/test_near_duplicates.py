"""Near-duplicates of whole corpora: plants are found, recall is measured, and the order of work changes nothing."""

import json
import random

import pytest
from corpus import rows, write_jsonl
from lanes import workers
from near_corpus import edited, random_words, true_similarity
from running import build, metric, run

from dataaudit.manifest.metric import Scope
from dataaudit.manifest.verify import verify

pytestmark = pytest.mark.builds

CONFIG = """
splits:
  train: {{paths: ["train/*"], text: text, source: {{column: source}}}}
  val: {{paths: ["val/*"], text: text, source: {{column: source}}, held_out: true}}
stages: {{language: false, filters: false, near_dup: {{{stage}}}}}
reader: {{part_bytes: {part_bytes}, batch_bytes: {batch_bytes}}}
"""
VOCABULARY = [f"word{number}" for number in range(500)]


def write_corpus(folder, *, documents=240):
    """Write a corpus in which every third document has a variant in another shard; return the texts by shard."""
    generator = random.Random(3)
    texts = {"train/0.jsonl": [], "train/1.jsonl": [], "val/0.jsonl": []}
    for number in range(documents):
        words = random_words(generator, VOCABULARY, generator.randrange(40, 160))
        texts["train/0.jsonl"].append(" ".join(words))
        if number % 3 == 0:
            variant = edited(generator, words, VOCABULARY, generator.randrange(3))
            texts["val/0.jsonl" if number % 9 == 0 else "train/1.jsonl"].append(" ".join(variant).title())
    texts["train/1.jsonl"] += ["", "?!"]
    for name, held in texts.items():
        write_jsonl(folder / name, rows(held, "books" if "1" in name else "web"))
    return [texts[name] for name in sorted(texts)]


def write_config(folder, *, stage="recall_documents: 1000", part_bytes=67_108_864, batch_bytes=4_194_304):
    """Write the config."""
    (folder / "c.yaml").write_text(CONFIG.format(stage=stage, part_bytes=part_bytes, batch_bytes=batch_bytes))
    return folder / "c.yaml"


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """The texts by shard, and their manifest."""
    folder = tmp_path_factory.mktemp("planted")
    texts = write_corpus(folder)
    return texts, build(write_config(folder), manifest=folder / "m")[1]


def test_planted_pairs_are_reported_with_their_exact_similarity(planted):
    texts, manifest = planted
    pairs = manifest.table("pairs").to_pylist()
    for row in pairs:
        left, right = texts[row["left_shard"]][row["left_row"]], texts[row["right_shard"]][row["right_row"]]
        assert row["jaccard"] == pytest.approx(true_similarity(left, right))
    found = {(row["right_shard"], row["right_row"]) for row in pairs}
    expected = {
        (shard, row)
        for shard in (1, 2)
        for row, text in enumerate(texts[shard])
        if max(true_similarity(text, other) for other in texts[0]) >= 0.8
    }
    assert expected <= found
    assert len(expected) == len(found) > 40
    documents = sum(map(len, texts)) - 2
    assert metric(manifest, "near_dup_rate", "rate") == pytest.approx(len(found) / documents)
    assert metric(manifest, "near_dup_rate", "no_words") == 2
    leaked = sum(shard == 2 for shard, _ in found)
    assert metric(manifest, "train_val_overlap", "near_dup", set="val") == pytest.approx(leaked / len(texts[2]))
    near = [row for row in manifest.table("clusters").to_pylist() if row["kind"] == "near"]
    assert len(near) == 2 * len(found)
    assert sum(row["kept"] for row in near) == len(found)
    assert verify(manifest) == []


def test_recall_and_precision_are_measured_with_intervals(planted):
    _, manifest = planted
    (recall,) = [one for one in manifest.metrics("near_dup_rate", "recall") if one.scope.rule is None]
    assert recall.n > 40
    assert recall.low < recall.value <= recall.high == 1
    assert recall.value >= 0.98
    (precision,) = manifest.metrics("near_dup_rate", "precision")
    assert (precision.value, precision.method) == (1, "sampled")
    assert 0.9 < precision.low < 1
    by_similarity = {one.scope.rule: one.n for one in manifest.metrics("near_dup_rate", "recall") if one.scope.rule}
    assert len(by_similarity) == 4
    assert sum(by_similarity.values()) == recall.n


def test_workers_parts_batches_and_reruns_change_nothing(tmp_path):
    write_corpus(tmp_path)
    stage = "recall_documents: 1000, small_bucket: 2, leaders: 1, most_candidates: 2"
    first, manifest = build(write_config(tmp_path, stage=stage), manifest=tmp_path / "m")
    config = write_config(tmp_path, stage=stage, part_bytes=16_384, batch_bytes=1_024)
    other, cut = build(config, *workers(2), "--state", tmp_path / "other", manifest=tmp_path / "n")
    assert cut.table("pairs").equals(manifest.table("pairs"))
    assert cut.table("clusters").equals(manifest.table("clusters"))
    assert other["id"] == first["id"]
    again, _ = build(config, "--state", tmp_path / "other", manifest=tmp_path / "n")
    assert again["id"] == first["id"]


def test_a_shard_listed_twice_is_all_near_duplicates_and_said_to_be(tmp_path):
    generator = random.Random(8)
    texts = [" ".join(random_words(generator, VOCABULARY, 30)) for _ in range(20)]
    write_jsonl(tmp_path / "train" / "a.jsonl", [{"text": text, "source": "web"} for text in texts])
    write_jsonl(tmp_path / "train" / "b.jsonl", [{"text": text.upper(), "source": "copy"} for text in texts])
    _, manifest = build(tmp_path / "train", manifest=tmp_path / "m")
    assert metric(manifest, "near_dup_rate", "rate") == 0.5
    assert metric(manifest, "near_dup_rate", "rate", source="copy") == 1
    assert metric(manifest, "exact_dup_rate", "rate") == 0
    (row,) = manifest.table("near_sources").to_pylist()
    assert (row["source"], row["earlier_source"], row["documents"]) == ("copy", "web", 20)
    out, _ = run("show", tmp_path / "m", "--section", "near_dup")
    assert "warning: source copy would lose 1.0000 of its documents" in out


@pytest.mark.parametrize("texts", [[], ["", "..."], ["one"]])
def test_a_corpus_with_nothing_to_compare_is_audited(texts, tmp_path):
    write_jsonl(tmp_path / "train" / "a.jsonl", rows(texts, "web"))
    write_jsonl(tmp_path / "train" / "b.jsonl", rows(["other words"], "web"))
    _, manifest = build(tmp_path / "train", manifest=tmp_path / "m")
    assert metric(manifest, "near_dup_rate", "rate") == 0
    assert metric(manifest, "near_dup_rate", "clusters") == 0
    assert metric(manifest, "near_dup_rate", "recall") is None


def test_documents_without_words_are_in_no_denominator(tmp_path):
    """Of a shard, a source and a held-out split without any word; the gate's evidence counts documents."""
    texts = [f"{number} {' '.join(random_words(random.Random(number), VOCABULARY, 40))}" for number in range(6)]
    write_jsonl(tmp_path / "train" / "0.jsonl", rows(["---"] * 90 + texts[:4] + texts[:3], "web"))
    write_jsonl(tmp_path / "train" / "1.jsonl", rows(["", "?"], "none"))
    write_jsonl(tmp_path / "val" / "0.jsonl", rows(["...", ""], "web"))
    _, manifest = build(write_config(tmp_path), manifest=tmp_path / "m")
    assert metric(manifest, "near_dup_rate", "rate") == pytest.approx(3 / 7)
    (lone,) = manifest.metrics("near_dup_rate", "rate", Scope(source="none0"))
    (leak,) = manifest.metrics("train_val_overlap", "near_dup", Scope(set="val"))
    assert (lone.reason, leak.reason) == ("empty_denominator", "empty_denominator")
    assert manifest.table("shards")["no_words"].to_pylist() == [90, 2, 2]
    assert verify(manifest) == []
    near = {"name": "near", "metric": "near_dup_rate", "stat": "rate", "unit": "ratio", "budget": 0.1}
    (tmp_path / "p.yaml").write_text(json.dumps({"policy": "p", "version": "1", "rules": [near]}), encoding="utf-8")
    assert "(3 near-duplicates)" in run("gate", tmp_path / "m", "--policy", tmp_path / "p.yaml", expect=1)[0]
