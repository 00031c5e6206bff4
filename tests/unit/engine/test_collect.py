"""Collected shards: losses, states and totals are the same for any cut; the survey is what each partial shows."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_build import (
    STAGE_LIST,
    HereRunner,
    config,
    keys_of,
    partials_of,
    plan,
    plan_of,
    probe,
    read_shards,
    services,
    shard,
    surveyed,
    write_partials,
    write_reading,
)
from strategies import make_batch

from dataaudit.engine import collect as gathering
from dataaudit.engine import collect as module
from dataaudit.engine.collect import survey
from dataaudit.engine.runner import READING
from dataaudit.engine.store import PartialStore
from dataaudit.metrics.registry import by_stage
from dataaudit.scan.corpus.loss import MAX_PLACES, LossLog, Reason
from dataaudit.scan.corpus.readers.part import MAX_COLUMNS, PartStats
from dataaudit.scan.cross_shard.step import DamagedEntryError
from dataaudit.scan.stages.base import merge

BAD = st.lists(st.sampled_from([None, Reason.INVALID_JSON, Reason.TEXT_MISSING]), min_size=1, max_size=120)


def gather(store, planned, *, failures=None, max_bad=1.0):
    """Gather one shard's readings."""
    return read_shards([planned], store, failures=failures, max_bad=max_bad, seen=())[0]


def parts_of(count):
    """Return the ranges of a file cut into so many parts."""
    return tuple((10 * number, 10 * number + 10) for number in range(count))


def write_records(store, planned, records, bounds):
    """Store readings of records (a reason for each bad one), cut at `bounds`."""
    for part, start, stop in zip(planned.parts, [0, *bounds], [*bounds, len(records)], strict=True):
        log = LossLog()
        for row, reason in enumerate(records[start:stop]):
            if reason is not None:
                log.add(reason, row, 10 + start + row)
        bad = {str(key): [log.records[key], log.num_bytes[key], log.places[key]] for key in log.records}
        write_reading(store, part, records=stop - start, bad=bad)


@given(records=BAD, cuts=st.lists(st.integers(0, 120), max_size=4))
def test_losses_are_the_same_for_any_cut(records, cuts, tmp_path_factory):
    """Places count from the start of the shard, the first of each reason are listed, and all are counted."""
    bounds = sorted(min(cut, len(records)) for cut in cuts)
    found = []
    for limits in ([], bounds):
        store = PartialStore(tmp_path_factory.mktemp("store"))
        planned = plan(shard(), probe(parts=parts_of(len(limits) + 1)))
        write_records(store, planned, records, limits)
        one = gather(store, planned)
        found.append((one.status, one.reason, one.records, one.bad_records, one.losses, one.fingerprint))
        assert one.first_rows == (0, *limits)
    assert found[0] == found[1]
    bad = [row for row, reason in enumerate(records) if reason is not None]
    assert found[0][0] == ("partial" if bad else "ok")
    assert (found[0][2], found[0][3]) == (len(records), len(bad))
    assert sum(loss.records for loss in found[0][4]) == len(bad)
    assert sum(loss.num_bytes for loss in found[0][4]) == sum(10 + row for row in bad)
    for reason in {records[row] for row in bad}:
        own = [loss for loss in found[0][4] if loss.reason == reason]
        first = [row for row in bad if records[row] == reason][:MAX_PLACES]
        assert [loss.place for loss in own[: len(first)]] == [f"record {row}" for row in first]
        assert [loss.place for loss in own[len(first) :]] in ([], ["further records"])


@pytest.mark.parametrize(
    ("bad_bytes", "text_bytes", "status"),
    [(1, 999, "partial"), (2, 999, "quarantined"), (0, 0, "partial"), (1, 0, "quarantined"), (958, 42, "quarantined")],
)
def test_a_shard_is_quarantined_above_its_share_of_bad_bytes_however_few_records_they_are(
    store, bad_bytes, text_bytes, status
):
    """One record of thousands may be most of the text: its place says records and bytes."""
    planned = plan(shard(), probe())
    bad = {"invalid_json": [1, bad_bytes, [[7, bad_bytes]]]}
    write_reading(store, planned.parts[0], records=10_000, bad=bad, text_bytes=text_bytes)
    one = gather(store, planned, max_bad=0.001)
    assert one.status == status
    if status == "quarantined":
        whole = bad_bytes + text_bytes
        assert one.losses[0].place == f"1 of 10000 records, {bad_bytes} of {whole} bytes, limit 0.001 of either"


@pytest.mark.parametrize(
    ("bad", "records", "max_bad", "status"),
    [
        (1, 1000, 0.001, "partial"),
        (2, 1000, 0.001, "quarantined"),
        (29, 100, 0.29, "partial"),
        (57, 100, 0.57, "partial"),
        (58, 100, 0.57, "quarantined"),
        (7, 10, 0.7, "partial"),
        (1, 3, 0.333, "quarantined"),
        (5, 5, 1.0, "partial"),
        (1, 10**9, 0.0, "quarantined"),
        (0, 10, 0.0, "ok"),
        (0, 0, 0.0, "ok"),
    ],
)
def test_a_shard_is_quarantined_above_its_share_of_bad_records_not_at_it(store, bad, records, max_bad, status):
    """The share is compared exactly, also where the threshold is no binary fraction."""
    planned = plan(shard(), probe())
    write_reading(store, planned.parts[0], records=records, bad={"invalid_json": [bad, bad, []]} if bad else {})
    one = gather(store, planned, max_bad=max_bad)
    assert one.status == status
    if status == "quarantined":
        assert one.reason == Reason.TOO_MANY_BAD
        assert (one.losses[0].records, one.losses[0].num_bytes) == (-1, 100)
        assert sum(loss.records for loss in one.losses[1:]) == bad
        assert one.records == records


@pytest.mark.parametrize("count", [1, 2, 3])
def test_an_unreadable_shard_is_the_same_for_any_cut(store, count):
    """What the parts before the damage hold is not said, because another cut would say something else."""
    planned = plan(shard(), probe(parts=parts_of(count)))
    for part in planned.parts[:-1]:
        write_reading(store, part, records=50, bad={"invalid_json": [1, 9, [[3, 9]]]})
    write_reading(store, planned.parts[-1], records=2, reason="corrupt_parquet")
    one = gather(store, planned)
    assert (one.status, one.reason) == ("quarantined", Reason.CORRUPT_PARQUET)
    assert (one.records, one.bad_records, one.fingerprint, len(one.losses)) == (0, 0, None, 1)


def test_a_part_that_could_not_be_read_in_this_run_is_the_shards_loss(store):
    """A failure of this run needs no stored reading, and names its reason and place."""
    planned = plan(shard(), probe(parts=parts_of(2)))
    write_reading(store, planned.parts[0], records=5)
    failures = {planned.parts[1].reading_key: (Reason.OUT_OF_MEMORY, "here")}
    one = gather(store, planned, failures=failures)
    assert (one.status, one.reason, one.records) == ("quarantined", Reason.OUT_OF_MEMORY, 0)
    assert (one.losses[0].place, one.losses[0].num_bytes) == ("here", 100)


def test_what_was_not_planned_to_be_read_is_skipped_or_quarantined(store):
    """A file of unknown format is skipped, one whose hash failed is quarantined; both have their bytes."""
    skipped = gather(store, plan(shard(skip=Reason.UNKNOWN_FORMAT, size=7), None))
    assert (skipped.status, skipped.losses[0].num_bytes) == ("skipped", 7)
    gone = gather(store, plan(shard(size=8), None, failure=(Reason.NOT_FOUND, "")))
    assert (gone.status, gone.reason, gone.losses[0].num_bytes) == ("quarantined", Reason.NOT_FOUND, 8)


def test_the_fingerprint_is_of_all_columns_whatever_the_cut(store):
    """Many columns over several parts join to the columns that one part would have kept."""
    names = [f"column {number}" for number in range(MAX_COLUMNS + 500)]
    random.Random(3).shuffle(names)
    prints = []
    for count in (1, 2, 5):
        planned = plan(shard(), probe(parts=parts_of(count)))
        step = -(-len(names) // count)
        for number, part in enumerate(planned.parts):
            stats = PartStats()
            stats.see_layout(tuple(names[number * step : (number + 1) * step]))
            write_reading(store, part, records=1, columns=sorted(stats.columns))
        prints.append(gather(store, planned).fingerprint)
    assert len(set(prints)) == 1
    write_reading(store, planned.parts[0], records=1, columns=["f" * 16])
    assert gather(store, planned).fingerprint != prints[0]


def test_all_damage_is_told_at_once_and_removed(store):
    """Many files that a power cut emptied cost one more scan, not one each."""
    planned = [plan(shard(number), probe(str(number))) for number in range(6)]
    for one in planned:
        write_reading(store, one.parts[0], records=1)
        write_partials(store, one.parts[0], [("x", "s")])
    victims = [planned[number].parts[0] for number in (1, 3, 4)]
    for part in victims:
        store.path(READING, part.reading_key).write_bytes(b"")
    with pytest.raises(DamagedEntryError) as caught:
        read_shards(planned, store)
    assert set(caught.value.names) == {f"{READING}/{part.reading_key}" for part in victims}
    assert "2 more" in str(caught.value)
    assert not any(store.has(READING, part.reading_key) for part in victims)


def test_partials_of_parts_merge_to_the_partial_of_the_whole(store):
    """Cut or not, a shard's partials are those of its documents; unread shards have none."""
    documents = [("one", "web"), ("two words", "code"), ("", "web"), ("one", "code")]
    planned = plan(shard(), probe(parts=parts_of(2)))
    for part, held in zip(planned.parts, (documents[:1], documents[1:]), strict=True):
        write_reading(store, part, records=len(held))
        write_partials(store, part, held)
    unread = plan(shard(1, skip=Reason.NOT_A_FILE), None)
    shards = read_shards([planned, unread], store)
    whole = {stage.name: merge(stage, [stage.map(make_batch(documents))]) for stage in STAGE_LIST}
    assert partials_of(shards[0], store) == whole
    assert not shards[1].partials


def test_which_stages_looked_at_a_shard_is_told_without_reading(store, monkeypatch):
    """Steps ask it of each shard, for each stage: that costs no partial."""
    made = plan(shard(0), probe(parts=parts_of(2)))
    for part in made.parts:
        write_reading(store, part, records=1)
        write_partials(store, part, [("a b", "web")])
    shards = read_shards([made], store, max_bad=0.0)
    reads = []
    monkeypatch.setattr(PartialStore, "read", lambda *call: reads.append(call))
    assert all(stage.name in shards[0].partials for stage in STAGE_LIST)
    assert "other" not in shards[0].partials
    assert reads == []


@pytest.mark.parametrize("at_a_time", [1, 3, 4096])
def test_parts_of_a_stage_are_those_of_every_shard_it_looked_at(store, monkeypatch, at_a_time):
    """Each with its key, its shard, its split by name, and its first record; shards that are not read have none."""
    monkeypatch.setattr(gathering, "_PARTS_AT_ONCE", at_a_time)
    planned = [
        plan(shard(0, split="val"), probe("a", parts=parts_of(2))),
        plan(shard(1, skip=Reason.UNKNOWN_FORMAT), None),
        plan(shard(2), probe("b", parts=parts_of(3)), stages=STAGE_LIST[:2]),
        plan(shard(3), probe("c")),
        plan(shard(5, split="held"), probe("a", parts=parts_of(1)), settings=config(splits=("held",))),
    ]
    for number, one in enumerate(planned):
        for part in one.parts:
            write_reading(store, part, records=10 * number + 1, reason="not_found" if number == 3 else "")
    shards = read_shards(planned, store, seen=())
    order = ["held", "train", "val"]
    for stage in STAGE_LIST:
        expected = [
            (key, one.ordinal, order.index(one.split), first_row)
            for one in shards
            if stage.name in one.partials
            for key, first_row in keys_of(one, stage.name)
        ]
        assert list(shards.parts_of(stage.name)) == expected
        assert len(expected) == (6 if stage in STAGE_LIST[:2] else 3)
    assert list(shards.parts_of("no_such_stage")) == []


def test_the_partial_of_one_part_is_as_the_worker_merged_it(store):
    """What one part alone holds was merged when it was written: merging it again would change nothing."""
    documents = [("one two", "web"), ("", "web"), ("one", "code"), ("one two", "a")]
    made = plan(shard(0), probe())
    write_reading(store, made.parts[0], records=len(documents))
    write_partials(store, made.parts[0], documents)
    shards = read_shards([made], store, max_bad=0.0)
    for stage in STAGE_LIST:
        assert partials_of(shards[0], store)[stage.name] == merge(stage, [stage.map(make_batch(documents))])


def documents_of(number):
    """Return the documents of a shard; some have none."""
    texts = [("some words\n" * (1 + number), "web"), (f"mail ann{number}@example.org", "ab"[number % 2]), ("", "web")]
    return texts[: (number + 1) % 4]


def planned_shards(store, count):
    """Return planned shards in the store, in two parts, one of three held out, and one at the end that is not read."""
    planned = []
    for number in range(count):
        split = "val" if number % 3 == 2 else "train"
        one = plan(shard(number, uri=f"{number}", split=split), probe(str(number), parts=((0, 50), (50, 100))))
        documents = documents_of(number)
        for part, own in zip(one.parts, (documents[:1], documents[1:]), strict=True):
            write_partials(store, part, own)
            write_reading(store, part, records=len(own))
        planned.append(one)
    planned.append(plan(shard(count, uri="unread", skip=Reason.NOT_A_FILE), None))
    return planned


def look(planned, store, *, runner=None):
    """Survey planned shards."""
    return survey(plan_of(planned), {}, STAGE_LIST, services(store, runner), max_bad=1.0)


def summed(table, shape):
    """Return the sums of the rows of each split and key."""
    found = {}
    for row in table.to_pylist():
        own = found.setdefault(tuple(row[name] for name in ("split", *shape.keys)), dict.fromkeys(shape.sums, 0))
        for name in shape.sums:
            own[name] += row[name]
    return found


@pytest.mark.parametrize("shards_per_task", [1, 3, 256])
def test_the_survey_is_what_reading_each_partial_shows(store, monkeypatch, shards_per_task):
    """Rows by shard and sums by split, however shards are cut into tasks; documents and bytes; nothing stays behind."""
    monkeypatch.setattr(module, "SHARDS_PER_TASK", shards_per_task)
    shards, found = look(planned_shards(store, 8), store, runner=HereRunner(reverse=True))
    expected = surveyed(shards, store=store)
    families = by_stage()
    for stage in STAGE_LIST:
        for name in families[stage.name].by_shard:
            assert found.by_shard[stage.name, name].equals(expected.by_shard[stage.name, name])
        for name in families[stage.name].by_split:
            mine, theirs = (one.by_split[stage.name, name] for one in (found, expected))
            shape = stage.shapes()[name]
            assert summed(mine, shape) == summed(theirs, shape), (stage.name, name)
            assert len(summed(mine, shape)) == mine.num_rows
    assert found.source_totals() == expected.source_totals()
    for one in shards[:-1]:
        documents = documents_of(one.ordinal)
        assert (one.documents, one.text_bytes) == (len(documents), sum(len(text) for text, _ in documents))
    assert (shards[-1].documents, shards[-1].text_bytes) == (0, 0)
    left = [path for kind in ("survey", "survey-of") for path in (store.root / "partials" / kind).rglob("*")]
    assert not [path for path in left if path.is_file()]


def test_nothing_is_seen_of_no_shard(store):
    """Every table is there, empty."""
    _, found = look([], store)
    assert found.total("volume", "encoding", "differing") == 0
    assert found.source_totals() == {}
    assert found.by_shard["near_dup", "near_dup"].num_rows == 0


def test_damaged_partials_are_told_of_together(store):
    """Absent and damaged ones of all shards, removed, so that the next scan makes them."""
    planned = planned_shards(store, 4)
    harmed = [("volume", planned[number].parts[1].stage_keys["volume"]) for number in (0, 2)]
    store.path(*harmed[0]).write_bytes(b"cut")
    store.path(*harmed[1]).unlink()
    with pytest.raises(DamagedEntryError) as caught:
        look(planned, store)
    assert set(caught.value.names) == {"/".join(place) for place in harmed}
    assert not any(store.has(*place) for place in harmed)
