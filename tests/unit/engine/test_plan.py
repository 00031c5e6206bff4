"""The plan: what is missing is scanned once, what is known is not, and what is not read has its reason."""

import pytest
from made_build import STAGE_LIST, config, missing, plan, probe, shard, stat, write_partials, write_reading

from dataaudit.engine.runner import READING
from dataaudit.scan.corpus.loss import Reason

NAMES = {stage.name for stage in STAGE_LIST}
DOCUMENTS = [("one", "web"), ("two", "web")]


def fill(store, planned):
    """Store everything that a scan of a planned shard leaves."""
    for part in planned.parts:
        write_partials(store, part, DOCUMENTS)
        write_reading(store, part, records=2)


def test_everything_is_missing_at_first(store):
    """Every part is a unit with every stage."""
    planned = plan(shard(), probe(parts=((0, 60), (60, 100))))
    units = missing([planned], store)
    assert [unit.reading_key for unit in units] == [part.reading_key for part in planned.parts]
    assert all({name for name, _ in unit.stage_keys} == NAMES for unit in units)
    assert [unit.size for unit in units] == [50, 50]
    assert {(unit.sha256, unit.stat) for unit in units} == {(planned.probe.sha256, planned.probe.stat)}


def test_nothing_is_missing_once_all_is_there(store):
    """A rerun scans nothing; with --fresh it scans everything."""
    planned = plan(shard(), probe())
    fill(store, planned)
    assert missing([planned], store) == []
    (unit,) = missing([planned], store, fresh=True)
    assert {name for name, _ in unit.stage_keys} == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_one_missing_partial_is_one_stage_to_run(store, name):
    """Only the stage whose partial is gone runs again."""
    planned = plan(shard(), probe())
    fill(store, planned)
    store.remove(name, planned.parts[0].stage_keys[name])
    (unit,) = missing([planned], store)
    assert unit.stage_keys == ((name, planned.parts[0].stage_keys[name]),)


def test_a_missing_reading_alone_is_a_unit_without_stages(store):
    """A kill between the last partial and the reading costs one pass."""
    planned = plan(shard(), probe())
    fill(store, planned)
    store.remove(READING, planned.parts[0].reading_key)
    (unit,) = missing([planned], store)
    assert unit.stage_keys == ()


def test_equal_files_are_read_once_and_stand_in_for_each_other(store):
    """Equal files of a split are one unit, which knows where else its bytes are."""
    equal = [plan(shard(number, uri=f"{number}.jsonl"), probe()) for number in range(5)]
    twice = plan(shard(5, uri="0.jsonl#copy=2", path="/data/0.jsonl"), probe())
    (unit,) = missing([equal[0], twice, *equal[1:]], store)
    assert unit.request.path == "/data/0.jsonl"
    assert unit.substitutes == (("/data/1.jsonl", stat()), ("/data/2.jsonl", stat()))


def test_equal_files_of_two_splits_are_two_units(store):
    """A held-out copy of a training file is read for its own split."""
    planned = [plan(shard(0), probe()), plan(shard(1, split="val"), probe())]
    assert len(missing(planned, store)) == 2


def test_bytes_that_are_known_to_be_damaged_are_not_read_again(store):
    """Damage is remembered by content; --fresh looks again."""
    planned = plan(shard(), probe())
    write_reading(store, planned.parts[0], records=0, reason="corrupt_parquet")
    assert missing([planned], store) == []
    assert len(missing([planned], store, fresh=True)) == 1


@pytest.mark.parametrize(
    ("one", "found", "failure", "expected"),
    [
        (shard(skip=Reason.UNKNOWN_FORMAT), None, None, Reason.UNKNOWN_FORMAT),
        (shard(), None, (Reason.PERMISSION, ""), Reason.PERMISSION),
        (shard(), None, None, Reason.INTERNAL),
        (shard(), probe(reason=Reason.NOT_PARQUET), None, Reason.NOT_PARQUET),
    ],
)
def test_what_cannot_be_read_has_no_parts_and_a_reason(store, one, found, failure, expected):
    """It is planned all the same, so that the ledger has it."""
    planned = plan(one, found, failure=failure)
    assert (planned.parts, planned.reason) == ((), expected)
    assert missing([planned], store, fresh=True) == []


def test_a_uri_that_gives_no_source_is_a_reason(store):
    """A pattern that does not match costs the shard, by name."""
    settings = config(splits=("val",))
    rule = settings.splits["val"].source.model_copy(update={"constant": None, "pattern": "(?P<source>zzz)/"})
    split = settings.splits["val"].model_copy(update={"source": rule})
    settings = settings.model_copy(update={"splits": {"train": split}})
    assert plan(shard(), probe(), settings=settings).reason == Reason.PATTERN_MISMATCH


def test_an_empty_file_is_planned(store):
    """A file of no bytes is one part, to be read like any other."""
    planned = plan(shard(size=0), probe(parts=((0, 0),), size=0))
    (unit,) = missing([planned], store)
    assert unit.size == 0
