"""Which shard is which: every shard has one fate, and both directions tell the same story."""

from collections import Counter

import pyarrow as pa
from diff_made import shard
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.decide.diff.compared_records import COLUMNS, match
from dataaudit.decide.diff.difference import ShardChangeKind
from dataaudit.manifest.tables import TABLES

MIRROR = {
    ShardChangeKind.REMOVED: ShardChangeKind.ADDED,
    ShardChangeKind.ADDED: ShardChangeKind.REMOVED,
    ShardChangeKind.LOST: ShardChangeKind.RECOVERED,
    ShardChangeKind.RECOVERED: ShardChangeKind.LOST,
}
NAMES = st.sampled_from(["a", "b", "c", "d"])
SHARDS = st.dictionaries(
    st.tuples(st.sampled_from(["train", "val"]), NAMES),
    st.tuples(
        st.sampled_from(["x", "y", "z"]),
        st.sampled_from(["1", "2"]),
        st.sampled_from(["ok", "quarantined"]),
        st.integers(0, 2),
    ),
    max_size=8,
)


def table(held):
    """Return the table of shards of {(split, uri): (rows, stored form, status, documents)}."""
    rows = [
        shard(uri, what, split=split, stored=what + form, status=status, documents=documents)
        for (split, uri), (what, form, status, documents) in sorted(held.items())
    ]
    for number, row in enumerate(rows):
        row["shard"] = number
        if not row["documents"] and row["status"] == "ok":
            row["rows_digest"] = "empty"
    return pa.Table.from_pylist(rows, schema=TABLES["shards"].schema).select(COLUMNS)


def twin(old, new):
    """Return how many shards or pairs meet each fate: the same rules, shard by shard."""
    left, right = old.to_pylist(), new.to_pylist()
    fates = Counter()

    def content(row):
        if row["rows_digest"]:
            return tuple(row[name] for name in ("rows_digest", "bad_records", "documents", "bytes"))
        return ("stored", row["sha256"]) if row["sha256"] else None

    def stored(row):
        return row["sha256"], row["format"], row["compression"]

    def take(same, fate, *, holding=False):
        for one in list(left):
            for other in right:
                held = all(row["status"] != "ok" or row["documents"] > 0 for row in (one, other))
                if (held or not holding) and same(one, other):
                    left.remove(one)
                    right.remove(other)
                    fates[fate(one, other)] += 1
                    break

    def alike(*names):
        return lambda one, other: (
            content(one) is not None and content(one) == content(other) and all(one[n] == other[n] for n in names)
        )

    def by_name(one, other):
        was, now = one["status"] == "ok", other["status"] == "ok"
        return {
            (True, True): ShardChangeKind.CHANGED,
            (True, False): ShardChangeKind.LOST,
            (False, True): ShardChangeKind.RECOVERED,
            (False, False): ShardChangeKind.UNKNOWN,
        }[was, now]

    take(alike("split", "uri"), lambda a, b: None if stored(a) == stored(b) else ShardChangeKind.REPACKED)
    take(
        alike("split"),
        lambda a, b: ShardChangeKind.MOVED if stored(a) == stored(b) else ShardChangeKind.REPACKED,
        holding=True,
    )
    take(alike(), lambda _a, _b: ShardChangeKind.MOVED_SPLIT, holding=True)
    take(lambda one, other: (one["split"], one["uri"]) == (other["split"], other["uri"]), by_name, holding=True)
    fates[ShardChangeKind.REMOVED] += len(left)
    fates[ShardChangeKind.ADDED] += len(right)
    return +fates


def counted(pairs):
    """Return how many shards or pairs meet each fate."""
    return Counter(pair.kind for pair in pairs)


@settings(max_examples=examples(200))
@given(SHARDS, SHARDS)
def test_every_shard_has_one_fate_and_it_is_the_twins(old, new):
    """Each row of either table stands in exactly one pair, and the numbers are those of plain Python."""
    one, other = table(old), table(new)
    pairs = list(match(one, other))
    for side, rows in (("old", one.num_rows), ("new", other.num_rows)):
        own = (getattr(pair, side) for pair in pairs)
        assert sorted(row for row in own if row is not None) == list(range(rows))
    assert counted(pairs) == twin(one, other)


@settings(max_examples=examples(100))
@given(SHARDS, SHARDS)
def test_both_directions_tell_the_same(old, new):
    """Added and removed, lost and recovered change places; all else stays."""
    there, back = counted(match(table(old), table(new))), counted(match(table(new), table(old)))
    assert there == Counter({MIRROR.get(fate, fate): number for fate, number in back.items()})


@given(SHARDS)
def test_nothing_changes_against_itself(held):
    """A shard that was never read and of whose bytes nothing is known is the one exception: there is none here."""
    assert set(counted(match(table(held), table(held)))) <= {None}


def test_shards_that_exchanged_their_names_have_moved():
    """By what they hold, not by what they are called."""
    old = {("train", "a"): ("x", "1", "ok", 3), ("train", "b"): ("y", "1", "ok", 3)}
    new = {("train", "a"): ("y", "1", "ok", 3), ("train", "b"): ("x", "1", "ok", 3)}
    assert counted(match(table(old), table(new))) == {ShardChangeKind.MOVED: 2}


def test_empty_shards_are_no_leak():
    """All of them hold the same: one that is gone from train and another in val have not moved."""
    old, new = {("train", "a"): ("x", "1", "ok", 0)}, {("val", "b"): ("x", "1", "ok", 0)}
    assert counted(match(table(old), table(new))) == {ShardChangeKind.REMOVED: 1, ShardChangeKind.ADDED: 1}


def test_unread_shards_of_unknown_bytes_are_never_the_same():
    """No digest, no proof."""
    rows = table({("train", "a"): ("x", "1", "quarantined", 0)})
    unknown = rows.set_column(rows.column_names.index("sha256"), "sha256", pa.array([""]))
    assert counted(match(unknown, unknown)) == {ShardChangeKind.UNKNOWN: 1}
