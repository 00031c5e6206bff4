"""The plan on disk: what was planned comes back, and parts of equal content are found."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from made_build import STAGE_LIST, Notes, identities, missing, plan, plan_of, probe, shard

from dataaudit.engine.plan import PartKeys
from dataaudit.engine.plan_shards import Plan, missing_units
from dataaudit.engine.store import PartialStore
from dataaudit.scan.corpus.loss import Reason


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
