"""The survey: what the driver sees of partials is what reading each of them would show."""

import pytest
from made_build import (
    STAGE_LIST,
    HereRunner,
    Notes,
    plan,
    plan_of,
    probe,
    shard,
    surveyed,
    write_partials,
    write_reading,
)

from dataaudit.engine import collect as module
from dataaudit.engine.collect import survey
from dataaudit.engine.store import PartialStore
from dataaudit.metrics.registry import by_stage
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.cross_shard.step import DamagedEntryError


@pytest.fixture
def store(tmp_path):
    """An empty store."""
    return PartialStore(tmp_path)


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
    return survey(plan_of(planned), {}, STAGE_LIST, store, runner or HereRunner(), Notes(), max_bad=1.0)


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
