"""The plan on disk: what was planned comes back, and parts of equal content are found."""

import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_build import STAGE_LIST, Notes, identities, missing, plan, plan_of, probe, shard, shard_list

from dataaudit.engine import plan_shards as shard_list_module
from dataaudit.engine.plan import PartKeys
from dataaudit.engine.plan_shards import Plan, missing_units
from dataaudit.engine.store import PartialStore
from dataaudit.engine.store_columns import packed
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.corpus.storage.address import Access, RemotePath, RemoteStat
from dataaudit.scan.corpus.storage.hub import RowsPath, RowsSource


def without(planned, rows):
    """Return a planned shard of whose first part some records are held back."""
    part = planned.parts[0]
    keys = PartKeys(part.reading_key, planned.stages, identities(STAGE_LIST), tuple(sorted(rows)))
    held = replace(part, request=replace(part.request, without=frozenset(rows)), stage_keys=keys)
    return replace(planned, parts=(held, *planned.parts[1:]))


def made(number, kind, parts):
    """Return a planned shard of some kind; some have equal content."""
    found = probe(f"{number % 3}", parts=tuple((10 * one, 10 * one + 10) for one in range(parts)), size=100 + number)
    one = shard(2 * number, uri=f"{number}", split=("train", "val")[number % 2], size=7)
    if kind == "skipped":
        return plan(replace(one, skip=Reason.UNKNOWN_FORMAT), None)
    if kind == "gone":
        return plan(one, None, failure=(Reason.NOT_FOUND, f"place {number}"))
    if kind == "unreadable":
        return plan(one, probe(reason=Reason.NOT_PARQUET))
    if kind == "listed":
        return replace(plan(one, found), parts=(), reason=Reason.QUARANTINE_LIST, stages=())
    return without(plan(one, found), {0, number}) if kind == "holds back" else plan(one, found)


KINDS = st.sampled_from(["read", "holds back", "skipped", "gone", "unreadable", "listed"])


@given(st.lists(st.tuples(KINDS, st.integers(1, 3)), max_size=8))
def test_what_was_planned_comes_back(kinds):
    """Of shards of every kind, by place and all of them; what is asked of a shard alone is what the object says."""
    planned = [made(number, *kind) for number, kind in enumerate(kinds)]
    found = plan_of(planned)
    assert list(found) == found[:] == planned
    for place, one in enumerate(planned):
        kind = found.kind(place)
        assert (found.ordinal(place), kind.split) == (one.shard.ordinal, one.shard.split)
        assert (kind.reason, found.where(place), kind.stages) == (one.reason, one.place, one.stages)
        assert [list(keys) for keys in found.keys(place)] == [list(part.stage_keys) for part in one.parts]
        assert found.size(place) == (one.probe.stat.size if one.probe else one.shard.size)
        assert found.excludes(place) == any(part.request.without for part in one.parts)
        assert kind.meant == (one.reason in {Reason.UNKNOWN_FORMAT, Reason.QUARANTINE_LIST})


@given(st.lists(st.tuples(st.just("read"), st.integers(1, 3)), max_size=8))
def test_equal_parts_are_found(kinds):
    """Each part's first equal is the first with its key."""
    planned = [made(number, *kind) for number, kind in enumerate(kinds)]
    keys = [part.reading_key for one in planned for part in one.parts]
    found = plan_of(planned)
    assert found.firsts.tolist() == [keys.index(key) for key in keys]


def test_units_of_some_shards_are_those_that_miss(tmp_path):
    """A part that another shard has first is read there."""
    planned = [plan(shard(0), probe("x")), plan(shard(1), probe("x")), plan(shard(2), probe("y"))]
    (unit,) = missing(planned, PartialStore(tmp_path), of=[1])
    assert unit.request.path == "/data/a.jsonl"
    assert [one.size for one in missing(planned, PartialStore(tmp_path), of=[0, 1, 2])] == [100, 100]
    assert missing(planned, PartialStore(tmp_path), of=[]) == []


def test_units_of_a_file_of_many_parts_are_made_of_one_plan(tmp_path, monkeypatch):
    """Each unit needs one part, and all parts of a file are made at once."""
    planned = [plan(shard(number), probe("x", parts=[(one, one + 1) for one in range(40)])) for number in range(5)]
    whole, made = plan_of(planned), []
    monkeypatch.setattr(Plan, "item", lambda self, place, item=Plan.item: made.append(place) or item(self, place))
    units = list(missing_units(whole, PartialStore(tmp_path), Notes(), fresh=True))
    assert [unit.request.part.start for unit in units] == list(range(40))
    assert len(made) <= 5


ACCESS = Access(timeout_seconds=1.5, retries=7)
SEEN = RemoteStat(size=5, validator='etag "x"', mtime_ns=2**64)


def remote(name, *, seen=None, access=ACCESS):
    """Return the address of a remote file, with a secret in it."""
    return RemotePath(f"s3://bucket/{name}", f"s3://bucket/{name}?key=secret", access, seen)


def rows(number):
    """Return the path of a streamed shard."""
    source = RowsSource(
        name="someone/set", config="c", split="train", revision="abc", shard=number, shards=9, access=ACCESS
    )
    return RowsPath(source)


PATHS = [
    "/data/a.jsonl",
    os.fsdecode(b"/data/\xff\xfe \n.jsonl"),
    "/data/" + "x" * 300,
    remote("a.jsonl", seen=SEEN),
    remote("b.jsonl"),
    remote("a.jsonl", access=Access()),
    rows(0),
    rows(8),
]


def test_every_kind_of_shard_comes_back():
    """Local ones of any bytes, remote ones with what opens them, streamed rows; skipped ones with the reason."""
    shards = [shard(number, uri=f"{number}", path=path, size=number) for number, path in enumerate(PATHS)]
    shards += [shard(len(shards), split="val", uri="#copy=2", path="/p", skip=Reason.NOT_A_FILE, format_="unknown")]
    shards += [replace(shards[0], ordinal=len(shards), compression="zstd", split="", size=2**62)]
    found = shard_list(*shards)
    assert list(found) == found[:] == shards
    assert found[-1] == shards[-1]
    for one, own in zip(found, shards, strict=True):
        assert type(one.path) is type(own.path)
        names = getattr(own.path, "__slots__", ())
        assert [getattr(one.path, name) for name in names] == [getattr(own.path, name) for name in names]
    paths = found.paths()
    assert list(paths) == [one.path for one in shards]
    with pytest.raises(IndexError):
        paths[len(shards)]


def test_no_secret_of_an_address_is_written(monkeypatch):
    """The file has no name, but what was written stays on a disk until it is written over."""
    written = []
    monkeypatch.setattr(shard_list_module, "packed", lambda value: written.append(packed(value)) or written[-1])
    plain = RemotePath("s3://b/c", "s3://b/c", ACCESS)
    found = shard_list(shard(0, path=remote("a.jsonl", seen=SEEN)), shard(1, path=plain))
    assert found[0].path.full == "s3://bucket/a.jsonl?key=secret"
    assert found[1].path.full == "s3://b/c"
    assert len(written) == 2
    assert not any(b"secret" in one for one in written)


def test_shards_of_a_split_are_found():
    """Those that are to be read, or all."""
    shards = [
        shard(0, split="a"),
        shard(1, split="b"),
        shard(2, split="b", skip=Reason.NOT_A_FILE),
        shard(3, split="c"),
    ]
    found = shard_list(*shards)
    assert [one.ordinal for one in found.of_split("b")] == [1]
    assert [one.ordinal for one in found.of_splits(["c", "b"])] == [1, 2, 3]
    assert list(found.of_split("none")) == found.of_splits([]) == []


def test_a_file_that_is_listed_again_is_known():
    """By its path, also in another split; before all others one that is to be read."""
    shards = [
        shard(0, path="/a", skip=Reason.NOT_A_FILE),
        shard(1, path="/b"),
        shard(2, split="val", path="/a"),
        shard(3, path="/b", uri="#copy=2"),
        shard(4, path="/a"),
    ]
    assert shard_list(*shards).files().tolist() == [2, 1, 2, 1, 2]
    assert shard_list().files().tolist() == []
