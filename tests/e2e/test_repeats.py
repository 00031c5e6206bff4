"""Repeated spans of whole corpora: plants are found, counted and measured, and nothing else is."""

import json
import random

import pytest
from corpus import rows, words, write_jsonl
from lanes import thinned, workers
from running import build, metric, run

from dataaudit.base.errors import ManifestError
from dataaudit.manifest.verify import verify
from dataaudit.metrics.repeats.index import RepeatIndex

pytestmark = pytest.mark.builds

PLANTED = thinned(60_000, few=6_000)

CONFIG = """
splits:
  train: {{paths: ["train/*"], text: text, source: {{column: source}}}}
  val: {{paths: ["val/*"], text: text, source: {{column: source}}, held_out: true}}
stages: {{language: false, filters: false, repeats: {{{stage}}}}}
"""


def dressed(rng, sentence):
    """Return a sentence in another case, punctuation and white space: its words are the same."""
    return "".join(rng.choice([word, word.upper(), word.title()]) + rng.choice([" ", "\n", ", "]) for word in sentence)


def write_corpus(folder, *, documents=90, floor=20):
    """Write a corpus with eight plants: four that 20 documents hold, four that 19 do; return the former."""
    rng = random.Random(5)
    plants = [words(rng, size) for size in (50, 61, 120, 900, 50, 61, 120, 900)]
    texts = []
    for number in range(documents):
        pieces = [" ".join(words(rng, 40))]
        for place, plant in enumerate(plants):
            if (number + 7 * place) % documents < (floor if place < 4 else floor - 1):
                pieces += [dressed(rng, plant), " ".join(words(rng, 20))]
        texts.append(" ".join(pieces))
    for part in range(3):
        write_jsonl(folder / "train" / f"{part}.jsonl", rows(texts[part::3], "s"))
    write_jsonl(folder / "val" / "v.jsonl", rows([" ".join(plant) for plant in plants], "s"))
    return plants[:4]


def write_config(folder, *, stage=""):
    """Write the config."""
    text = CONFIG.format(stage=stage)
    (folder / "c.yaml").write_text(text)
    return folder / "c.yaml"


def spans(folder, manifest):
    """Return the words of every place of every hotspot."""
    uris = manifest.table("shards")["uri"].to_pylist()
    records = {
        uri: [json.loads(line)["text"].encode() for line in (folder / uri).read_text().splitlines()] for uri in uris
    }
    found = {}
    for row in manifest.table("hotspot_members").to_pylist():
        text = records[uris[row["shard"]]][row["row"]][row["start"] : row["end"]].decode()
        found.setdefault(row["hotspot"], []).append(text.replace(",", " ").lower().split())
    return found


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """The folder of the corpus, the plants that reach the floor, summary and manifest."""
    folder = tmp_path_factory.mktemp("planted")
    plants = write_corpus(folder)
    return folder, plants, *build(write_config(folder), manifest=folder / "m")


def test_plants_at_the_floor_are_all_found_and_those_below_it_are_not(planted):
    """Whatever their case and punctuation, with their exact counts; held-out data does not count."""
    folder, plants, _, manifest = planted
    hotspots = manifest.table("hotspots").to_pylist()
    found = {(row["words"], row["documents"], row["occurrences"], row["variants"]) for row in hotspots}
    assert found == {(len(plant), 20, 20, 0) for plant in plants}
    places = spans(folder, manifest)
    assert sorted(map(len, places.values())) == [20] * 4
    for row in hotspots:
        (plant,) = (plant for plant in plants if len(plant) == row["words"])
        assert all(span == plant for span in places[row["hotspot"]])
        assert len(row["hash"]) == 16
        assert sum(one["documents"] for one in row["shards"]) == 20
        assert sum(one["occurrences"] for one in row["sources"]) == 20
    assert metric(manifest, "doc_repeat_hotspots", "hotspots") == 4
    assert metric(manifest, "doc_repeat_hotspots", "floor") == 20
    assert metric(manifest, "doc_repeat_hotspots", "occurrences", split="train") == 80
    tokens = metric(manifest, "doc_repeat_hotspots", "tokens")
    assert tokens == sum(row["tokens"] for row in hotspots)
    assert metric(manifest, "doc_repeat_hotspots", "token_share") == pytest.approx(
        tokens / metric(manifest, "tokens", "count", split="train")
    )
    by_source = [metric(manifest, "doc_repeat_hotspots", "tokens", source=name) for name in ("s0", "s1")]
    assert sum(by_source) == tokens
    shares = {row["split"]: row["repeat_token_share"] for row in manifest.table("shards").to_pylist()}
    assert shares["train"] == pytest.approx(0.42, abs=0.03)
    assert shares["val"] is None
    assert [record.value for record in manifest.metrics("doc_repeat_hotspots") if record.scope.split == "val"] == []
    assert verify(manifest) == []


def test_a_file_listed_twice(tmp_path):
    """Its documents are documents of their own: ten and ten reach the floor."""
    rng = random.Random(1)
    plant = words(rng, 80)
    texts = [f"{' '.join(words(rng, 20))} {' '.join(plant)} {' '.join(words(rng, 20))}" for _ in range(10)]
    write_jsonl(tmp_path / "a.jsonl", rows(texts, "s"))
    (tmp_path / "c.yaml").write_text("splits: {train: {paths: [a.jsonl, a.jsonl]}}\nstages: {filters: false}")
    _, manifest = build(tmp_path / "c.yaml", manifest=tmp_path / "m")
    (row,) = [row for row in manifest.table("hotspots").to_pylist() if row["words"] == 80]
    assert (row["documents"], row["occurrences"]) == (20, 20)
    members = manifest.table("hotspot_members").to_pylist()
    assert {(one["shard"], one["row"]) for one in members} == {(shard, row) for shard in (0, 1) for row in range(10)}


def test_more_repeats_than_may_be_looked_at(tmp_path):
    write_corpus(tmp_path, floor=30)
    rng = random.Random(2)
    plant = words(rng, 1040)
    texts = [f"{' '.join(words(rng, 9))} {' '.join(plant)}" for _ in range(50)]
    write_jsonl(tmp_path / "train" / "more.jsonl", rows(texts, "s"))
    _, manifest = build(write_config(tmp_path, stage="max_memory_bytes: 8000"), manifest=tmp_path / "m")
    assert [row["documents"] for row in manifest.table("hotspots").to_pylist()] == [50]
    assert metric(manifest, "doc_repeat_hotspots", "floor") == 31
    assert metric(manifest, "doc_repeat_hotspots", "below_floor") > 0


def test_nothing_repeats(tmp_path):
    rng = random.Random(3)
    write_jsonl(tmp_path / "train" / "a.jsonl", rows([" ".join(words(rng, 100)) for _ in range(30)], "s"))
    write_jsonl(tmp_path / "val" / "v.jsonl", rows(["quite new"], "s"))
    _, manifest = build(write_config(tmp_path), manifest=tmp_path / "m")
    assert metric(manifest, "doc_repeat_hotspots", "hotspots") == 0
    assert metric(manifest, "doc_repeat_hotspots", "token_share", split="train") == 0
    assert manifest.table("hotspots").num_rows == 0
    out, _ = run("show", tmp_path / "m", "--section", "repeats")
    assert "0 of 30 training documents hold a span" in " ".join(out.split())
    assert "No span is that widely held." in out


@pytest.mark.builds
def test_a_sentence_planted_thousands_of_times_is_the_top_hotspot(tmp_path):
    """As in Lee et al. 2021 (arXiv 2107.06499), 60,000 times in a whole run: 61 words, found with their exact count."""
    rng = random.Random(4)
    sentence = words(rng, 61)
    for part in range(4):
        texts = [
            f"{' '.join(words(rng, 12))} {dressed(rng, sentence)} {' '.join(words(rng, 12))}"
            for _ in range(PLANTED // 4)
        ]
        write_jsonl(tmp_path / "train" / f"{part}.jsonl", rows(texts, "s"))
    write_jsonl(tmp_path / "val" / "v.jsonl", rows(["quite new"], "s"))
    _, manifest = build(write_config(tmp_path), *workers(2), manifest=tmp_path / "m", timeout=600)
    (top,) = manifest.table("hotspots").to_pylist()
    assert (top["hotspot"], top["words"], top["documents"], top["occurrences"]) == (1, 61, PLANTED, PLANTED)
    assert manifest.table("hotspot_members").num_rows == PLANTED


def test_the_index_finds_the_documents_that_share_words_with_a_text(tmp_path):
    """Every one of them, with the place; after other builds too, and not when the manifest has none."""
    rng = random.Random(6)
    texts = [words(rng, 300) for _ in range(40)]
    for part in range(2):
        write_jsonl(tmp_path / "train" / f"{part}.jsonl", rows([" ".join(text) for text in texts[part::2]], "s"))
    write_jsonl(tmp_path / "val" / "v.jsonl", rows([" ".join(words(rng, 300))], "s"))
    build(write_config(tmp_path, stage="index: true"), manifest=tmp_path / "m")
    index = RepeatIndex(tmp_path / "m")
    for number, text in enumerate(texts[:10]):
        start = rng.randrange(240)
        quote = text[start : start + 60]
        (found,) = index.look_up(dressed(rng, words(rng, 30) + quote + words(rng, 30)))
        assert (found.shard, found.row) == (number % 2, number // 2)
        assert 30 <= found.start < found.stop <= 90
        assert found.document_start == start + found.start - 30
    assert index.look_up(" ".join(words(rng, 500))) == []
    assert index.look_up(" ".join(texts[0][:49])) == []
    build(write_config(tmp_path), manifest=tmp_path / "m")
    with pytest.raises(ManifestError, match="has no index"):
        RepeatIndex(tmp_path / "m")
