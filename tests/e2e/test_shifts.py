"""A delivery shifts the mixture, the languages and the tokens: the gate names the shards that it came with."""

import json
import random

import pytest
from corpus import write_jsonl
from running import build, run
from sentences import SENTENCES

CONFIG = """
dataset: {name: shifted, version: 1.0.0}
splits:
  train: {paths: ["train/*"], text: text, source: {column: source}}
stages: {toxicity: false, pii: false, secrets: false, near_dup: false, repeats: false}
"""
POLICY = """
policy: shifts
rules:
  - {name: mixture, metric: source_mix_share, stat: share, unit: ratio, scope: {per: source}, change: 0.02}
  - {name: less, metric: source_mix_share, stat: share, unit: ratio, scope: {source: web}, change: 0.02,
     direction: down}
  - {name: languages, metric: language_share, stat: share, unit: ratio, scope: {per: language}, change: 0.02}
  - {name: tokens, metric: token_kl_drift, stat: kl, unit: nats, budget: 0.05}
  - {name: fewer, metric: documents, stat: count, unit: documents, scope: {per: source}, relative_change: 0.1,
     direction: down}
"""


def texts(language, seed, number):
    rng = random.Random(seed)
    return [" ".join(rng.choices(SENTENCES[language], k=12)) for _ in range(number)]


def write(folder, name, made, source):
    write_jsonl(folder / "train" / name, [{"text": text, "source": source} for text in made])


@pytest.fixture(scope="module")
def verdict(tmp_path_factory):
    """Return gate.json of a corpus against its last release: two German shards of a new source, one English, no `x`."""
    folder = tmp_path_factory.mktemp("shifted")
    for seed in range(5):
        write(folder, f"en-{seed}.jsonl", texts("en", seed, 80), "web")
    write(folder, "x.jsonl", texts("en", 9, 80), "books")
    (folder / "c.yaml").write_text(CONFIG)
    (folder / "p.yaml").write_text(POLICY)
    build("c.yaml", manifest=folder / "old", cwd=folder)
    write(folder, "de-1.jsonl", texts("de", 7, 160), "forum")
    write(folder, "de-2.jsonl", texts("de", 8, 40), "forum")
    write(folder, "more.jsonl", texts("en", 6, 20), "web")
    (folder / "train" / "x.jsonl").unlink()
    build("c.yaml", "--reference", "old", manifest=folder / "new", cwd=folder)
    out, _ = run("gate", "new", "--policy", "p.yaml", "--baseline", "old", "--json", cwd=folder, expect=1)
    return json.loads(out)["verdict"]


def named(verdict, rule, **scope):
    """Return the shards that a failing case names, those of the newest first."""
    result = next(one for one in verdict["rules"] if one["rule"]["name"] == rule)
    case = next(one for one in result["cases"] if scope.items() <= one["scope"].items())
    assert case["state"] == "fail"
    assert all(one["fresh"] for one in case["evidence"])
    return [one["uri"] for one in case["evidence"]]


@pytest.mark.parametrize(
    ("rule", "scope", "shards"),
    [
        ("mixture", {"source": "forum"}, ["train/train/de-1.jsonl", "train/train/de-2.jsonl"]),
        (
            "mixture",
            {"source": "books"},
            ["train/train/de-1.jsonl", "train/train/de-2.jsonl", "train/train/more.jsonl"],
        ),
        ("less", {"source": "web"}, ["train/train/de-1.jsonl", "train/train/de-2.jsonl"]),
        ("languages", {"language": "de"}, ["train/train/de-1.jsonl", "train/train/de-2.jsonl"]),
        ("languages", {"language": "en"}, ["train/train/de-1.jsonl", "train/train/de-2.jsonl"]),
        ("tokens", {}, ["train/train/de-1.jsonl", "train/train/de-2.jsonl", "train/train/more.jsonl"]),
    ],
)
def test_a_shift_names_the_shards_that_are_new_since_the_baseline(verdict, rule, scope, shards):
    """Of a share that rose those that hold it, of one that fell those that hold something else; largest first."""
    assert named(verdict, rule, **scope) == shards


def test_what_only_fell_is_not_laid_at_the_door_of_new_shards(verdict):
    assert named(verdict, "fewer", source="books") == []


def test_the_shard_behind_most_of_the_shifts_comes_first(verdict):
    first = verdict["shards_behind"][0]
    assert first["uri"] == "train/train/de-1.jsonl"
    assert first["rules"] == ["mixture", "less", "languages", "tokens"]
    assert first["fresh"]
