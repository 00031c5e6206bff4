"""Drift from the two histograms: every place, and why there is no number."""

import pytest
from diff_made import difference, histogram, shard
from reference import drift as twin

pytestmark = pytest.mark.usefixtures("odd_numbers")
SIZE = 1000
OLD = {("train", "a"): {1: 60, 2: 40}, ("train", "b"): {5: 100}, ("val", "a"): {1: 50, 2: 50}}
NEW = {("train", "a"): {1: 20, 2: 80}, ("train", "b"): {5: 100}, ("val", "c"): {1: 50, 2: 50}}


def shards(words):
    """Return shards of the sources of a histogram."""
    return [
        shard(
            f"{split}-{source}",
            f"{source}{held}",
            split=split,
            tokens=sum(held.values()),
            sources={source: sum(held.values())},
        )
        for (split, source), held in words.items()
    ]


def found(tmp_path, old=OLD, new=NEW, *, old_held=None, new_held=None, more=None):
    """Compare two corpora by their token counts."""
    tables = [
        {"tables": {"histogram": histogram(words if held is None else held), **(more or {})}}
        for words, held in ((old, old_held), (new, new_held))
    ]
    return difference(tmp_path, shards(old), shards(new), old_with=tables[0], new_with=tables[1])


def dense(*parts):
    """Return counts of the whole vocabulary."""
    counts = [0] * SIZE
    for part in parts:
        for token, count in part.items():
            counts[token] += count
    return counts


def test_every_place_is_compared_and_the_numbers_are_plain_pythons(tmp_path):
    """The dataset, splits, their sources; a source that stayed is counted and not listed."""
    held = found(tmp_path)
    numbers = {(one.split, one.source): (one.kl, one.js) for one in held.drifts if one.kl is not None}
    sides = {
        (None, None): (dense(*NEW.values()), dense(*OLD.values())),
        ("train", None): (dense(NEW["train", "a"], NEW["train", "b"]), dense(OLD["train", "a"], OLD["train", "b"])),
        ("train", "a"): (dense(NEW["train", "a"]), dense(OLD["train", "a"])),
    }
    assert numbers.keys() == sides.keys()
    for place, pair in sides.items():
        assert numbers[place] == pytest.approx([float(one) for one in twin.divergences(*pair)], rel=1e-11)
    assert held.unchanged_drifts == 2  # train b, and val as a whole
    assert {(one.split, one.source): one.reason for one in held.drifts if one.kl is None} == {
        ("val", "a"): "gone",
        ("val", "c"): "new",
    }


def test_the_tokens_that_moved_most_are_named_where_a_table_names_them(tmp_path):
    """Pieces stand in the table of drift alone; others go by their number."""
    row = {
        "split": None,
        "source": None,
        "token": 2,
        "piece": "th",
        "count": 1,
        "reference_count": 1,
        "kl": 0.0,
        "js": 0.0,
        "rank": 1,
    }
    top = next(one for one in found(tmp_path, more={"drift": [row]}).drifts if one.source == "a" and one.kl).top
    assert [(one.token, one.piece, one.old, one.new, one.kl > 0) for one in top[:2]] == [
        (1, None, 60, 20, False),
        (2, "th", 40, 80, True),
    ]
    assert [one.js for one in top] == sorted((one.js for one in top), reverse=True)


def test_chance_is_a_floor_unless_the_build_measured_it(tmp_path):
    """Without a reference only tokens drawn one by one can be thought of."""
    held = next(one for one in found(tmp_path).drifts if one.source == "a" and one.kl)
    assert held.floor
    exact = twin.chance(dense(NEW["train", "a"]), dense(OLD["train", "a"]), 1.0)
    assert held.by_chance == pytest.approx(float(exact), rel=0.02)


def test_sources_that_were_added_up_are_not_compared(tmp_path):
    """A source without counts of its own is in `other`, and `other` may be other ones."""
    folded = {("train", "a"): OLD["train", "a"], ("train", "other"): OLD["train", "b"], ("val", "a"): OLD["val", "a"]}
    held = found(tmp_path, new=NEW, old_held=folded)
    assert {(one.split, one.source): one.reason for one in held.drifts if one.reason} == {
        ("train", "b"): "folded_sources",
        ("val", "a"): "gone",
        ("val", "c"): "new",
    }


def test_without_counts_there_is_a_reason(tmp_path):
    """One line for the dataset."""
    (held,) = found(tmp_path, new_held={}).drifts
    assert (held.split, held.reason, held.kl) == (None, "no_histogram", None)
