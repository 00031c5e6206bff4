"""The second pass: which documents tasks see, how often parts are read, and what becomes of harm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from made_build import HereRunner, Notes, config, identities, read_shards, write_reading
from packed import entries, flip

from dataaudit.engine.join import LinkContext, run_link_steps
from dataaudit.engine.plan import plan_shard
from dataaudit.engine.plan_probe import probe_file
from dataaudit.engine.runner import ProbeUnit, ScanSettings, unit_limit
from dataaudit.engine.second_pass import PartsLostError, run_second_pass
from dataaudit.engine.store import PartialStore
from dataaudit.metrics.exact_dup.stage import ExactDup
from dataaudit.scan.annotators import WORDS, Words
from dataaudit.scan.corpus.batch import Annotation
from dataaudit.scan.corpus.loss import LossLog, Reason
from dataaudit.scan.corpus.readers import PartStats, read_part
from dataaudit.scan.corpus.shards import Shard
from dataaudit.scan.link.step import DamagedEntryError, LinkResult, SecondPassRequest, Survey

SEEN = pa.schema([("shard", pa.int32()), ("row", pa.int64()), ("note", pa.string()), ("words", pa.int64())])
KEYED = pa.schema([("key", pa.binary(4)), ("row", pa.int64())])


@dataclass(frozen=True, slots=True)
class Looker:
    """Notes what it is shown."""

    factor: int = 1

    name: ClassVar[str] = "looker"
    version: ClassVar[str] = "1"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (WORDS,)
    emits: ClassVar[Mapping[str, pa.Schema]] = {"keyed": KEYED}

    def run(self, batch, wanted, encode):
        """Return what was asked for, beside the words of its document."""
        places = {row: place for place, row in enumerate(batch.rows.tolist())}
        assert set(places) == set(wanted["row"].to_pylist())
        words = batch.get(WORDS).num_words()
        rows = wanted["row"].to_pylist()
        return {
            "seen": wanted.append_column("words", pa.array([int(words[places[row]]) * self.factor for row in rows])),
            "keyed": pa.table({"key": [b"abcd"] * len(rows), "row": rows}).cast(KEYED),
        }


@pytest.fixture
def world(tmp_path):
    """Two shards of equal bytes, in two parts each, and a third; document i has i + 1 words."""
    store = PartialStore(tmp_path / "state")
    shards = []
    for ordinal, (name, start) in enumerate([("a", 0), ("b", 0), ("c", 50)]):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(f'{{"text": "{"w " * (i + 1)}"}}\n' for i in range(start, start + 40)))
        one = Shard(
            ordinal=ordinal,
            split="train",
            uri=path.name,
            path=str(path),
            format="jsonl",
            compression="none",
            skip=None,
            size=path.stat().st_size,
        )
        unit = ProbeUnit(path=str(path), format="jsonl", compression="none", part_bytes=1500, size=one.size)
        planned = plan_shard(one, probe_file(unit).probe, None, config(), (ExactDup(),), identities((ExactDup(),)))
        for part in planned.parts:
            stats = PartStats()
            list(read_part(part.request, LossLog(), stats))
            write_reading(store, part, records=stats.records)
        shards.append(planned)
    assert len(shards[0].parts) >= 2
    shards = read_shards(shards, store, seen=(), stages=(ExactDup(),))
    settings = ScanSettings(state=store.root, stages=(), annotators=(Words(),))
    return SimpleNamespace(store=store, shards=shards, settings=settings, folder=tmp_path)


def look(world, wanted, *, runner=None, task=None):
    """Revisit what is wanted, as (shard, row, note)."""
    names = ("shard", "row", "note")
    table = pa.table([list(column) for column in zip(*wanted, strict=True)], names=names)
    table = table.set_column(0, "shard", table["shard"].cast(pa.int32()))
    visit = SecondPassRequest(task=task or Looker(), wanted=table)
    (found,) = run_second_pass([visit], world.shards, world.settings, world.store, runner or HereRunner(), Notes())
    return found


def test_each_wanted_document_is_seen_with_what_was_asked(world):
    """Rows are those of whole shards, in order, whatever the parts and the order of the wishes."""
    found = look(world, [(2, 39, "z"), (0, 3, "x"), (0, 39, "y"), (2, 0, "first"), (0, 3, "again")])
    rows = [tuple(row.values()) for row in found.table("seen", SEEN).to_pylist() if row["shard"] != 1]
    assert rows == [(0, 3, "again", 4), (0, 3, "x", 4), (0, 39, "y", 40), (2, 0, "first", 51), (2, 39, "z", 90)]


def test_equal_parts_are_read_once_for_all_their_shards(world):
    """What two copies of a part are asked for is looked at in one reading, and holds for both."""
    runner = HereRunner()
    found = look(world, [(0, 3, "x"), (1, 3, "x"), (1, 5, "y")], runner=runner)
    assert len(runner.ran) == 1
    rows = {tuple(row.values()) for row in found.table("seen", SEEN).to_pylist()}
    assert rows == {(0, 3, "x", 4), (1, 3, "x", 4), (0, 5, "y", 6), (1, 5, "y", 6)}
    assert [(file.shard, file.first_row) for file in found.files("keyed")] == [(0, 0), (1, 0)]


def test_a_part_with_documents_for_a_slow_visitor_may_take_longer(world):
    """Two documents of 50 seconds each: 100 seconds more than reading the part may take."""

    class Slow(Looker):
        seconds = 50.0

    class Watching(HereRunner):
        def run(self, name, function, units, on_outcome):
            limits.extend(unit_limit(unit, 7.0) - unit_limit(replace(unit, seconds=0.0), 7.0) for unit in units)
            super().run(name, function, units, on_outcome)

    limits = []
    look(world, [(0, 3, "x"), (1, 5, "y"), (0, 5, "y")], runner=Watching(), task=Slow())
    assert limits == [100.0]


def test_what_was_found_before_is_not_read_again(world):
    """The same wish is known; another one, or other parameters, are read anew."""
    wish = [(0, 3, "x"), (2, 1, "y")]
    look(world, wish)
    same, other, changed = HereRunner(), HereRunner(), HereRunner()
    look(world, wish, runner=same)
    look(world, [*wish, (2, 2, "z")], runner=other)
    look(world, wish, runner=changed, task=Looker(factor=2))
    assert (len(same.ran), len(other.ran), len(changed.ran)) == (0, 1, 2)


def test_a_shard_that_changed_meanwhile_is_lost_by_name(world):
    """What is read a second time has to be what was read first."""
    (world.folder / "c.jsonl").write_text('{"text": "other"}\n' * 50)
    with pytest.raises(PartsLostError) as caught:
        look(world, [(2, 1, "y")])
    assert str(caught.value) == "1 part could not be read a second time, the first of c.jsonl: changed_while_read"
    assert set(caught.value.lost.values()) == {(Reason.CHANGED, "")}


def test_another_file_of_the_same_bytes_stands_in(world):
    """When one of two equal files is gone, the other is read."""
    (world.folder / "a.jsonl").unlink()
    found = look(world, [(0, 3, "x")])
    assert found.table("seen", SEEN).num_rows == 2


def test_damaged_results_are_told_of(world):
    """A cut entry is removed, so that the next round reads again."""
    look(world, [(0, 3, "x")])
    (found,) = entries(world.store.root, "visit-looker")
    flip(found)
    with pytest.raises(DamagedEntryError):
        look(world, [(0, 3, "x")])
    assert len(look(world, [(0, 3, "x")]).parts) == 2


def test_families_share_a_reading(world):
    """Two families that ask in the same round cost one reading of a part; each gets its own answer."""
    runner = HereRunner()
    job = SimpleNamespace(store=world.store, runner=runner, progress=Notes(), scan_settings=lambda: world.settings)
    context = LinkContext(job=job, stage=ExactDup(), shards=world.shards, survey=Survey(), fresh=False)

    def family(row, rounds):
        seen = []
        for turn in range(rounds):
            wanted = pa.table({"shard": pa.array([2], pa.int32()), "row": [row + turn], "note": ["n"]})
            (found,) = yield [SecondPassRequest(task=Looker(), wanted=wanted)]
            seen += found.table("seen", SEEN)["words"].to_pylist()
        return LinkResult(warnings=[str(seen)])

    families = {"one": family(1, 1), "two": family(2, 2), "none": family(0, 0)}
    found = run_link_steps(families, dict.fromkeys(families, context))
    assert [one.warnings for one in found.values()] == [["[52]"], ["[53, 54]"], ["[]"]]
    assert len(runner.ran) == 2
