"""The link step: partitions, twins, damage, groups, and what the duplicates add to partials."""

import hashlib

import numpy as np
import pytest
from made_build import HereRunner, context_of, plan, probe, read_shards, shard, write_partials, write_reading

from dataaudit.base.errors import ClusterError
from dataaudit.engine import join as joins
from dataaudit.engine.join import run_link_steps
from dataaudit.engine.runner import READING, Outcome
from dataaudit.manifest.locate import places_of
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.exact_dup.stage import ExactDup, cluster_rows, exact_duplicates
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.cross_shard.step import DamagedEntryError

SAME = [(f"document {number % 40}", "ab"[number % 2]) for number in range(60)]


@pytest.fixture
def shards(store):
    """Two equal training shards of two parts each, and a held-out one that shares a document."""
    planned = [
        plan(shard(0, uri="a"), probe("x", parts=((0, 50), (50, 100)))),
        plan(shard(1, uri="b"), probe("x", parts=((0, 50), (50, 100)))),
        plan(shard(2, split="val", uri="c"), probe("y")),
    ]
    for part, held in zip(planned[0].parts, (SAME[:20], SAME[20:]), strict=True):
        write_partials(store, part, held)
        write_reading(store, part, records=len(held) + 5, rows=b"rows of a part")
    write_partials(store, planned[2].parts[0], [(" document 0\n", "c"), ("new", "c")])
    write_reading(store, planned[2].parts[0], records=2, rows=b"others")
    return regather(planned, store)


def regather(planned, store):
    """Gather planned shards from the store."""
    return read_shards(planned, store)


def link(shards, store, runner, *, fresh=False):
    """Run the family of exact duplicates alone."""
    context = context_of(ExactDup(), shards, store, runner, fresh=fresh)
    return run_link_steps({"exact_dup": exact_duplicates(context)}, None)["exact_dup"]


def sums(table):
    """Return the counts of a link by shard and source."""
    return {(row["shard"], row["source"]): (row["duplicates"], row["duplicates_in_split"]) for row in table.to_pylist()}


@pytest.mark.parametrize("rows_per_partition", [10**9, 7, 1])
def test_any_number_of_partitions_gives_the_same(shards, store, rows_per_partition, monkeypatch):
    """One partition or one for every first byte: counts and groups are equal, and twins are counted as two."""
    monkeypatch.setattr(joins, "ROWS_PER_PARTITION", rows_per_partition)
    runner = HereRunner(reverse=True)
    linked = link(shards, store, runner)
    assert len(runner.ran) == {10**9: 1, 7: 18, 1: 122}[rows_per_partition]
    totals = {}
    for row in linked.extra["exact_dup"].to_pylist():
        held = totals.setdefault((row["shard"], row["source"]), [0, 0])
        held[0] += row["duplicates"]
        held[1] += row["duplicates_in_split"]
    assert totals == {(0, "a"): [10, 10], (0, "b"): [10, 10], (1, "a"): [30, 30], (1, "b"): [30, 30], (2, "c"): [1, 0]}
    clusters = linked.tables["clusters"]
    assert clusters.num_rows == 121
    assert {
        ("exact", 0, 0, 0, True),
        ("exact", 0, 0, 45, False),
        ("exact", 0, 1, 0, False),
        ("exact", 0, 2, 0, False),
    } <= ({tuple(row.values()) for row in clusters.to_pylist()})


def test_a_rerun_joins_nothing_again_unless_asked_to(shards, store):
    """Partitions are known by the files they join; --fresh joins them all the same."""
    first = link(shards, store, HereRunner())
    again = HereRunner()
    assert sums(link(shards, store, again).extra["exact_dup"]) == sums(first.extra["exact_dup"])
    fresh = HereRunner()
    link(shards, store, fresh, fresh=True)
    assert (len(again.ran), len(fresh.ran)) == (0, 1)


@pytest.mark.parametrize("harm", ["cut", "flip", "gone"])
def test_damaged_keyed_rows_are_made_again(shards, store, harm):
    """Entry and rows of every damaged file are removed together, so that the next scan makes both."""
    keys = [shards[0].planned.parts[1].stage_keys["exact_dup"], shards[2].planned.parts[0].stage_keys["exact_dup"]]
    for key in keys:
        path = store.side_path("exact_dup", key, "keys")
        data = path.read_bytes()
        if harm == "gone":
            path.unlink()
        else:
            path.write_bytes(data[:-1] if harm == "cut" else data[:-70] + bytes([data[-70] ^ 1]) + data[-69:])
    with pytest.raises(DamagedEntryError) as caught:
        link(shards, store, HereRunner())
    assert set(caught.value.names) == {f"exact_dup/{key}" for key in keys}
    assert not any(store.has("exact_dup", key) for key in keys)


def test_a_damaged_result_is_joined_again(shards, store):
    """A stored partition that does not match its digest is removed, and the next round joins it anew."""
    first = link(shards, store, HereRunner())
    (path,) = [path for path in (store.root / "partials" / "link-exact").rglob("*") if len(path.name) == 64]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedEntryError):
        link(shards, store, HereRunner())
    assert sums(link(shards, store, HereRunner()).extra["exact_dup"]) == sums(first.extra["exact_dup"])


def test_a_partition_that_cannot_be_joined_ends_the_build(shards, store):
    """No number is published without it."""

    class Failing(HereRunner):
        def run(self, name, function, units, on_outcome):
            for index in range(len(units)):
                on_outcome(index, Outcome(reason=Reason.OUT_OF_MEMORY))

    with pytest.raises(ClusterError, match="out_of_memory"):
        link(shards, store, Failing())


def test_nothing_read_links_to_nothing(store):
    """Without a shard that was read there is nothing to join, and no task."""
    skipped = read_shards([plan(shard(skip=Reason.NOT_A_FILE), None)], store)
    runner = HereRunner()
    linked = link(skipped, store, runner)
    assert (linked.extra["exact_dup"].num_rows, linked.tables["clusters"].num_rows, runner.ran) == (0, 0, [])


def test_the_digest_of_rows_is_over_the_parts_in_order(shards, store):
    """Twins agree, and the order of outcomes does not matter."""
    digests = [one.rows_digest for one in shards]
    assert digests[0] == digests[1] == hashlib.sha256(b"rows of a part" * 2).hexdigest()
    assert digests[2] == hashlib.sha256(b"others").hexdigest()


def test_damaged_rows_are_not_digested(shards, store):
    """A cut file of row digests is made again, not taken into the identity of the shard."""
    keys = [part.reading_key for part in shards[0].planned.parts]
    for key in keys:
        path = store.side_path(READING, key)
        path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DamagedEntryError) as caught:
        regather([one.planned for one in shards], store)
    assert set(caught.value.names) == {f"{READING}/{key}" for key in keys}


def test_groups_are_numbered_by_their_first_member():
    """In any order of members: numbers follow (shard, row) of the first, and the first is kept."""
    rows = np.array([(0, 5, 0, 5), (0, 5, 3, 1), (0, 2, 0, 2), (0, 2, 1, 0), (2, 0, 2, 9), (2, 0, 2, 0)])
    for order in (rows, rows[::-1]):
        firsts, places = places_of(order[:, 0], order[:, 1]), places_of(order[:, 2], order[:, 3])
        table = cluster_rows("exact", places, firsts)
        assert [tuple(row.values()) for row in table.to_pylist()] == [
            ("exact", 0, 0, 2, True),
            ("exact", 0, 1, 0, False),
            ("exact", 1, 0, 5, True),
            ("exact", 1, 3, 1, False),
            ("exact", 2, 2, 0, True),
            ("exact", 2, 2, 9, False),
        ]
        assert table.schema.names == TABLES["clusters"].schema.names
    assert cluster_rows("exact", np.zeros(0, np.int64), np.zeros(0, np.int64)).num_rows == 0
