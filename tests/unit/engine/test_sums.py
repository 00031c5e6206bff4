"""Sums over shards: the same however the shards are cut into tasks, and those of the documents together."""

import pyarrow as pa
import pytest
from made_build import (
    STAGE_LIST,
    HereRunner,
    gathered,
    plan,
    probe,
    read_shards,
    services,
    shard,
    summed,
    surveyed,
    write_partials,
    write_reading,
)
from packed import flip
from strategies import make_batch

from dataaudit.engine import sums as module
from dataaudit.engine.sums import NOTHING_BESIDE, SumTask, run_sums
from dataaudit.metrics.exact_dup.stage import COUNTS
from dataaudit.scan.cross_shard.keyed import Stored
from dataaudit.scan.cross_shard.step import DamagedEntryError, LinkResult, folded_totals, kept_sources, largest_sources
from dataaudit.scan.stages.base import merge

WORDS = ("one", "two words", "", "x" * 9)
SOURCES = ("web", "code", "rare")


def documents_of(number):
    """Return the documents of a shard."""
    return [(WORDS[(number + index) % 4], SOURCES[(number * index) % 3]) for index in range(1 + number % 4)]


def stored_shards(store, count, *, of=documents_of):
    """Return shards whose partials are in the store, some in two parts, every third held out, the last unread."""
    planned = []
    for number in range(count):
        parts = ((0, 50), (50, 100)) if number % 2 else ((0, 100),)
        one = plan(
            shard(number, uri=f"{number}", split="val" if number % 3 == 2 else "train"), probe(f"{number}", parts=parts)
        )
        texts = of(number)
        held = [texts[:1], texts[1:]] if number % 2 else [texts]
        for part, own in zip(one.parts, held, strict=True):
            write_reading(store, part, records=len(own))
            write_partials(store, part, own)
        planned.append(one)
    planned.append(plan(shard(count, uri="gone", skip=None), None))
    return read_shards(planned, store)


def run(store, shards, *, found=None, runner=None, **more):
    """Return the table of shards and the merged partials."""
    summing = SumTask(state=store.root, stages=STAGE_LIST, setting=NOTHING_BESIDE, **more)
    return run_sums(shards, summing, found or {}, services(store, runner))


@pytest.mark.stores
@pytest.mark.parametrize(("shards_per_task", "sums_per_task"), [(256, 16), (1, 16), (1, 2), (3, 2)])
@pytest.mark.parametrize("reverse", [False, True])
def test_any_cut_into_tasks_gives_the_sums_of_the_documents(
    store, monkeypatch, shards_per_task, sums_per_task, reverse
):
    """As one scan of all documents of a split; rows are those of partials in memory; nothing stays behind."""
    monkeypatch.setattr(module, "SHARDS_PER_TASK", shards_per_task)
    monkeypatch.setattr(module, "_SUMS_PER_TASK", sums_per_task)
    shards = stored_shards(store, 11)
    table, merged = run(store, shards, runner=HereRunner(reverse=reverse))
    for split, numbers in (("train", [0, 1, 3, 4, 6, 7, 9, 10]), ("val", [2, 5, 8])):
        texts = [text for number in numbers for text in documents_of(number)]
        for stage in STAGE_LIST:
            if stage.name in merged[split]:
                assert merged[split][stage.name] == merge(stage, [stage.map(make_batch(texts))]), stage.name
    assert table == summed(shards, store=store)[0]
    assert table["shard"].to_pylist() == list(range(12))
    assert table["status"].to_pylist()[-1] == "quarantined"
    left = [path for kind in ("sums", "sums-of", "sums-shards") for path in (store.root / "partials" / kind).rglob("*")]
    assert not [path for path in left if path.is_file()]


def test_what_link_steps_found_is_added_to_its_shards_and_folded_sources(store):
    """Each shard gets its own, by source; those of folded sources go to `other`."""
    held = ([("x", "a"), ("y", "b")], [("x", "a")], [("z", "c")])
    shards = stored_shards(store, 3, of=lambda number: held[number])
    counts = pa.Table.from_pylist(
        [
            {"shard": 1, "source": "a", "duplicates": 1, "duplicates_in_split": 0},
            {"shard": 0, "source": "b", "duplicates": 1, "duplicates_in_split": 1},
            {"shard": 0, "source": "a", "duplicates": 2, "duplicates_in_split": 2},
        ],
        schema=COUNTS,
    )
    found = {
        "exact_dup": LinkResult(extra={"exact_dup": counts}, columns=pa.table({"shard": [1], "near_dup_rate": [0.5]}))
    }
    table, merged = run(store, shards, found=found)
    rows = {row["source"]: row["duplicates"] for row in merged["train"]["exact_dup"]["exact_dup"].to_pylist()}
    assert rows == {"a": 3, "b": 1}
    assert table["near_dup_rate"].to_pylist()[1] == 0.5
    kept = {stage.name: pa.array(["b"]) for stage in STAGE_LIST}
    _, merged = run(store, shards, found=found, kept=kept)
    rows = {row["source"]: row["duplicates"] for row in merged["train"]["exact_dup"]["exact_dup"].to_pylist()}
    assert rows == {"b": 1, "other": 3}
    assert merged["val"]["volume"]["volume"]["source"].to_pylist() == ["other"]


def test_folded_partials_are_one_row_a_source_and_lose_nothing(store):
    """One stage may keep fewer sources than the others."""
    shards = stored_shards(store, 8)
    _, plain = run(store, shards)
    kept = {stage.name: pa.array(["web", "code"]) for stage in STAGE_LIST}
    _, merged = run(store, shards, kept=kept, fewer={"histogram": pa.array(["web"])})
    assert merged["train"]["lengths"]["totals"]["source"].to_pylist() == ["code", "other", "web"]
    histogram = merged["train"]["histogram"]["histogram"]
    assert histogram["source"].unique().to_pylist() == ["other", "web"]
    assert sum(histogram["count"].to_pylist()) == sum(plain["train"]["histogram"]["histogram"]["count"].to_pylist())
    for stage in STAGE_LIST:
        for name, table in merged["train"][stage.name].items():
            if "source" in table.column_names:
                keys = table.select(list(stage.shapes()[name].keys))
                assert keys.num_rows == keys.group_by(keys.column_names).aggregate([]).num_rows


def test_damaged_partials_are_told_of_together(store):
    """They are removed, so that the next scan computes them."""
    shards = stored_shards(store, 4)
    harmed = [(name, part.stage_keys[name]) for name in ("lengths", "pii") for part in shards[1].planned.parts]
    for place in harmed:
        address = Stored.at(store.address(*place))
        flip(Stored(path=address.path, name=address.name, offset=0, size=200))
    with pytest.raises(DamagedEntryError) as caught:
        run(store, shards)
    assert set(caught.value.names) == {"/".join(place) for place in harmed}
    assert not any(store.has(*place) for place in harmed)


def test_lost_rows_are_told_of_and_made_again(store, monkeypatch):
    """They lie in the store from the task that made them to the driver that puts them together."""
    monkeypatch.setattr(module, "SHARDS_PER_TASK", 2)
    shards = stored_shards(store, 5)

    class Harming(HereRunner):
        def run(self, name, function, units, on_outcome):
            super().run(name, function, units, on_outcome)
            path = store.side_path("sums-shards", units[1].key)
            path.write_bytes(path.read_bytes()[:-1])

    wanted, _ = run(store, shards)
    with pytest.raises(DamagedEntryError, match="sums-shards/"):
        run(store, shards, runner=Harming())
    assert run(store, shards)[0] == wanted


def test_the_largest_sources_are_kept():
    """By tokens, ties by name; `other`, `(none)` and the empty name are names like any; shards count together."""
    documents = [("x" * 9, "big"), ("xxx", "b"), ("xxx", "a"), ("xxx", "other"), ("xxx", ""), ("xxx", "(none)")]
    shards = [gathered(0, documents), gathered(1, [("x" * 30, "big"), ("xxx", "c")], split="val")]
    assert kept_sources(surveyed(shards), 7) is None
    kept, totals = kept_sources(surveyed(shards), 3), surveyed(shards).source_totals()
    assert kept.to_pylist() == ["big", "", "(none)"]
    assert folded_totals(totals, kept) == {"big": 13, "": 1, "(none)": 1, "other": 4}
    assert largest_sources(folded_totals(totals, kept), 2).to_pylist() == ["big", "other"]
    spread = [gathered(number, [("xxx", "spread"), ("x" * 6, f"only {number}")]) for number in range(3)]
    assert kept_sources(surveyed(spread), 1).to_pylist() == ["spread"]


def test_merging_many_shards_in_pieces_is_merging_them_at_once():
    """More shards than are merged at a time give the sums of all."""
    one = gathered(0, [("xxx", "web")])
    rows = summed([one] * 600)[1]["train"]["volume"]["volume"].to_pylist()
    assert [(row["source"], row["documents"], row["tokens"]) for row in rows] == [("web", 600, 600)]


def test_two_builds_that_share_a_state_folder_sum_their_own(store):
    """The second, which found other copies, writes its lists before the first has read those of its own."""
    shards = stored_shards(store, 3)
    counts = pa.table([[0], ["web"], [1], [1]], schema=COUNTS)
    found = {"exact_dup": LinkResult(extra={"exact_dup": counts})}
    alone = [run(store, shards), run(store, shards, found=found)]
    met = []

    class Within(HereRunner):
        """Runs the work of another build before its own."""

        def __init__(self, others):
            super().__init__()
            self.others = others

        def run(self, *work):
            self.others()
            super().run(*work)

    class First(HereRunner):
        """Has the second build write its lists before it reads its own."""

        def run(self, *work):
            met.append(run(store, shards, found=found, runner=Within(lambda: super(First, self).run(*work))))

    assert [run(store, shards, runner=First()), *met] == alone
    assert alone[0] != alone[1]
