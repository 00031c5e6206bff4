"""The block of repeated spans."""

import json

from made_manifest import make, shard
from shown import shown, told

from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Scope, count, ratio
from dataaudit.metrics.repeats import definition as block
from dataaudit.present.report.show import show_manifest


def records(*, hotspots=2, floor=20, below=0):
    """Return the records of the whole dataset: 100 documents, 30 of them with repeats."""
    values = [
        ("hotspots", hotspots, "hotspots", 100),
        ("documents", 30, "documents", 100),
        ("tokens", 250, "tokens", 1000),
        ("floor", floor, "documents", 20),
        ("below_floor", below, "windows", 5000),
    ]
    whole = Scope()
    made = [
        count(block.METRIC, stat, value, scope=whole, unit=unit, n=n, version="1") for stat, value, unit, n in values
    ]
    return [*made, ratio(block.METRIC, "token_share", 250, 1000, scope=whole, unit="ratio", version="1")]


HOTSPOTS = [
    {
        "hotspot": number,
        "hash": "00" * 8,
        "words": 61,
        "documents": 40 // number,
        "occurrences": 50,
        "tokens": 99,
        "variants": 1,
        "shards": [{"shard": 0, "documents": 9, "occurrences": 9}],
        "sources": [{"source": name, "documents": 1, "occurrences": 1} for name in ("web", "code", "books")[:number]],
    }
    for number in (1, 2)
]


def text_of(manifest, limit=10):
    """Return the block as one line."""
    return told(block.section(block.repeats(manifest, limit)))


def made(folder, **numbers):
    """Return a manifest that was looked at for repeats."""
    spots = HOTSPOTS if numbers.get("hotspots", 2) else []
    shards = [shard("a.jsonl", documents=100, tokens=1000)]
    make(folder, shards, metrics=records(**numbers), tables={"hotspots": spots})
    return load_manifest(folder)


def test_without_the_stage_there_is_no_block(tmp_path):
    """Nothing is said of what was not looked at."""
    make(tmp_path / "m", [shard("a.jsonl")])
    assert block.repeats(load_manifest(tmp_path / "m"), 5) is None
    assert shown(block.section(None)) == []


def test_the_most_widely_held_spans_are_shown_with_their_places(tmp_path):
    """Words, documents, share of documents, and where most of them are."""
    text = text_of(made(tmp_path / "m"))
    assert "1 61 40 0.4000 50 99 web train/a.jsonl" in text
    assert "2 61 20 0.2000 50 99 web and 1 more train/a.jsonl" in text
    assert "30 of 100 training documents hold a span" in text
    assert "1 more span in the table" in text_of(load_manifest(tmp_path / "m"), limit=1)


def test_show_has_the_block_and_its_figures(tmp_path):
    """As text and as JSON, where every hotspot is listed."""
    made(tmp_path / "m")
    assert "Repeated spans" in show_manifest(tmp_path / "m", part="repeats", as_json=False)
    found = json.loads(show_manifest(tmp_path / "m", None, as_json=True))["repeats"]
    assert (found["hotspots"], found["floor"], len(found["top"])) == (2, 20, 2)
    assert found["top"][1]["shard"] == "train/a.jsonl"


def test_without_repeats_there_is_no_block(tmp_path):
    """Zeros are in the metrics."""
    manifest = made(tmp_path / "m", hotspots=0)
    assert "No span is that widely held." in told(block.section(block.repeats(manifest, 5)))


def test_what_lies_under_a_raised_floor_is_said(tmp_path):
    """Even when nothing lies above it."""
    text = text_of(made(tmp_path / "m", hotspots=0, floor=31, below=4321))
    assert "50 words or more that at least 31 documents hold; 0.2500 of the training tokens lie inside." in text
    assert "4,321 windows of 50 words" in text
    assert "stages.repeats.max_memory_bytes" in text
