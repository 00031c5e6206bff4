"""Leaks are found whatever the splits are called, and only between held-out and training data."""

import pytest
from made_manifest import make, shard
from shown import shown, told

from dataaudit.manifest.load import load_manifest
from dataaudit.metrics.overlap.definition import leaks, section


def groups(*members):
    """Return cluster rows of groups of (shard, row)."""
    return [
        ("exact", number, place[0], place[1], index == 0)
        for number, group in enumerate(members)
        for index, place in enumerate(group)
    ]


@pytest.mark.parametrize("held_out", ["heldout", "val"])
def test_a_leak_does_not_depend_on_the_order_of_names(tmp_path, held_out):
    """Before or after `train` in the order, two of ten held-out documents leak into three training documents."""
    names = sorted([held_out, "train"])
    mine, other = names.index(held_out), names.index("train")
    shards = [shard(f"{name}.jsonl", split=name) for name in names]
    members = [
        [(mine, 0), (other, 3), (other, 4)],
        [(mine, 1), (other, 5)],
        [(other, 7), (other, 8)],
        [(mine, 8), (mine, 9)],
    ]
    make(tmp_path / "m", shards, clusters=groups(*(sorted(group) for group in members)))
    found = leaks(load_manifest(tmp_path / "m"))
    assert found == [{"split": held_out, "documents": 2, "of": 10, "copies": 3}]
    text = told(section(found, [], []))
    assert f"2 of 10 documents of {held_out} (0.2000)" in text
    assert "3 training documents" in text


def test_no_leak_no_block(tmp_path):
    """Duplicates within one split, and between two held-out splits, are no leak into training."""
    shards = [shard("test.jsonl", split="test"), shard("train.jsonl"), shard("val.jsonl", split="val")]
    make(tmp_path / "m", shards, clusters=groups([(0, 1), (2, 1)], [(1, 1), (1, 2)]))
    assert leaks(load_manifest(tmp_path / "m")) == []
    assert shown(section([], [], [])) == []
