"""The whole run's tests as `attribute` asks them: what is planted is found, what cannot be tested is said."""

import json

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner
from made_run import BLOCK_ROWS, DOCUMENTS, Made, bad_rows, make_shards, worse_state, write_run

from dataaudit import cli
from dataaudit.runlog.writer import RankWriter, event
from dataaudit.schemas import SCHEMAS
from dataaudit.training.attribution.attribute import attribute
from dataaudit.training.attribution.run_data import load_data
from dataaudit.training.pages.blocks import render_text

MADE = Made(steps=700, batch_rows=2, places=2)
EPISODES = (150, 240, 330, 450, 560, 640)
SHARD, BLOCK = 5, 7
ROWS = (BLOCK * BLOCK_ROWS, (BLOCK + 1) * BLOCK_ROWS - 1)


def bad_states(batch):
    """Raise all losses of three steps from each episode on."""
    for start in EPISODES:
        worse_state(range(start, start + 3), 4.0)(batch)


def read_before(batch, *, lead=3):
    """Put the block into one row a few steps before each episode, and nowhere else."""
    own = (batch["shard"] == SHARD) & (batch["row"] // BLOCK_ROWS == BLOCK)
    batch["row"][own] = 0
    if any(batch.step == start - lead for start in EPISODES):
        batch["shard"][0], batch["row"][0] = SHARD, BLOCK * BLOCK_ROWS + 3


def raised(above):
    """Return what changes the losses of a block wherever it is read."""

    def plant(batch):
        own = (batch["shard"] == SHARD) & (batch["row"] // BLOCK_ROWS == BLOCK)
        batch["loss"][own] += above

    return plant


def resumed(folder, manifest, step):
    """Let a run of 300 steps have been resumed; return its data."""
    log = RankWriter(folder, 0, 301, BLOCK_ROWS)
    log.add("events", event(step, "resumed", {}))
    log.close()
    return load_data(folder, manifest)


@pytest.mark.runs
class TestEvents:
    @pytest.mark.parametrize(("order", "null"), [("documents", "redrawn"), ("rows", "redrawn"), ("", "shifted")])
    def test_a_block_that_was_read_before_each_episode(self, written, order, null):
        data = written(MADE, bad_states, read_before, order=order)
        found = attribute(data)
        test = found.event_test
        assert [one.first_step for one in found.episodes] == list(EPISODES)
        assert (test.outcome, test.null, test.episodes) == ("follows", null, len(EPISODES))
        assert test.orders == (999 if order else MADE.steps - 1)
        assert (test.first_step, test.last_step) == (1, MADE.steps)
        first = test.units[0]
        assert (first.shard, first.first_row, first.last_row) == (
            SHARD,
            BLOCK * BLOCK_ROWS,
            (BLOCK + 1) * BLOCK_ROWS - 1,
        )
        assert (first.name, first.episodes) == ("train/part-005.jsonl", len(EPISODES))
        assert first.p <= test.alpha < test.units[1].p
        jsonschema.validate(found.model_dump(mode="json", by_alias=True), SCHEMAS["attribution"][1]())
        text = render_text(found, data)
        assert "Read within 8 steps before episodes" in text
        assert "112 to 127" in text

    @pytest.mark.parametrize("order", ["documents", ""])
    def test_episodes_that_follow_upon_nothing(self, written, order):
        data = written(MADE, bad_states, order=order)
        found = attribute(data)
        assert found.event_test.outcome == "no_more_than_chance"
        assert found.event_test.units[0].p > found.event_test.alpha
        assert "Episodes follow upon no block or shard more often than by chance (6 episodes" in render_text(
            found, data
        )

    def test_a_fixed_order_does_not_blame_what_is_read_before_a_hard_shard(self, written):
        """A hard shard is read six times, each time after the same block: the spikes are its own."""

        def hard(batch):
            for start in EPISODES:
                bad_rows(range(start, start + 2), 3, rows=1, above=6.0)(batch)

        data = written(MADE, hard, read_before)
        found = attribute(data)
        assert [one.found.shard for one in found.episodes] == [3] * len(EPISODES)
        test = found.event_test
        assert (test.outcome, test.reason, test.units) == ("not_evaluated", "own_data", ())
        assert (test.episodes, test.own_data, test.null) == (0, len(EPISODES), "shifted")
        text = " ".join(render_text(found, data).split())
        assert "not tested: the data of the same steps may be behind each episode." in text

    def test_episodes_of_the_state_count_beside_those_of_a_hard_shard(self, written):
        data = written(MADE, bad_rows(range(60, 62), 3, rows=1, above=6.0), bad_states, read_before)
        found = attribute(data)
        test = found.event_test
        assert (test.outcome, test.episodes, test.own_data) == ("follows", len(EPISODES), 1)
        assert (test.units[0].shard, test.units[0].first_row) == (SHARD, BLOCK * BLOCK_ROWS)
        text = " ".join(render_text(found, data).split())
        assert "Left out: 1 episode, since the data of the same steps may be behind it." in text

    def test_shards_read_one_after_the_other_are_not_identifiable(self, written):
        def in_turn(batch):
            place = np.arange(len(batch["row"])) + (batch.step - 1) * len(batch["row"])
            batch["shard"][:], batch["row"][:] = np.divmod(place, DOCUMENTS)

        data = written(MADE, bad_states, in_turn)
        found = attribute(data)
        test = found.event_test
        assert (test.outcome, test.reason, test.tested, test.units) == ("not_evaluated", "not_identifiable", 0, ())
        assert test.not_identifiable == 7 * (1 + DOCUMENTS // BLOCK_ROWS)
        assert "every block and shard was read without a gap" in render_text(found, data)

    def test_no_episode_and_no_stretches(self, written, tmp_path, manifest):
        quiet = attribute(written(Made(steps=120))).event_test
        assert (quiet.outcome, quiet.reason, quiet.episodes) == ("not_evaluated", "no_episode", 0)
        write_run(tmp_path / "bare", manifest, MADE, bad_states)
        for path in (tmp_path / "bare").rglob("stretches-*"):
            path.unlink()
        bare = load_data(tmp_path / "bare", manifest)
        found = attribute(bare)
        assert found.episodes
        assert (found.event_test.outcome, found.event_test.reason) == ("not_evaluated", "no_stretches")
        assert "the log has no steps with all their segments" in render_text(found, bare)

    @pytest.mark.parametrize("change", ["rate", "resumed"])
    def test_episodes_are_shifted_within_their_phase(self, written, tmp_path, manifest, change):
        """One of 100 steps of warm-up, then 200 more: the episode in the second moves among these alone."""

        def late(batch):
            worse_state(range(250, 253), 4.0)(batch)

        made = Made(steps=300, batch_rows=2, places=2)
        if change == "rate":
            data = written(made, late, rates=lambda step: min(1.0, step / 100))
        else:
            written(made, late)
            data = resumed(tmp_path / "run", manifest, 100)
        test = attribute(data).event_test
        size = 201 if change == "rate" else 200
        assert (test.null, test.orders) == ("shifted", size - 1)
        assert test.smallest_p == pytest.approx(1 / size)

    def test_too_few_shifts_to_find_anything_are_said(self, written, tmp_path, manifest):
        written(Made(steps=300, batch_rows=2, places=2), worse_state(range(290, 293), 4.0))
        data = resumed(tmp_path / "run", manifest, 270)
        found = attribute(data)
        assert found.event_test.orders == 29
        assert "Too few shifts to tell whether episodes follow upon data: p is 0.033 or more" in render_text(
            found, data
        )

    def test_each_look_at_further_steps_spends_of_alpha(self, tmp_path, manifest):
        def looked(*more):
            result = CliRunner().invoke(
                cli.main, ["attribute", str(tmp_path / "run"), "--manifest", str(manifest), "--json", *more]
            )
            test = json.loads(result.stdout)["event_test"]
            return test["look"], test["alpha"]

        write_run(tmp_path / "run", manifest, MADE, bad_states)
        assert looked() == (1, 0.05 / 2)
        assert looked() == (1, 0.05 / 2), "the same steps once more are no further look"
        longer = Made(steps=MADE.steps + 60, batch_rows=2, places=2)
        write_run(tmp_path / "run", manifest, longer, bad_states, first=MADE.steps + 1, create=False)
        assert looked() == (2, 0.05 / 6)
        assert looked("--step", "150") == (2, 0.05 / 6)
        assert looked() == (2, 0.05 / 6)
        (tmp_path / "run" / "attribution.json").write_text("{")
        assert looked() == (1, 0.05 / 2)


class TestResiduals:
    @pytest.mark.runs
    @pytest.mark.parametrize("above", [2.0, -1.5])
    def test_a_block_with_odd_losses_all_along(self, written, above):
        data = written(Made(steps=500), raised(above))
        found = attribute(data)
        blocks, shards = found.residual_tests
        assert (blocks.kind, blocks.outcome, blocks.tested) == ("block", "outlier_shard", 12 * DOCUMENTS // BLOCK_ROWS)
        (odd,) = [one for one in blocks.units if one.outlier]
        assert (odd.shard, odd.first_row, odd.last_row) == (SHARD, *ROWS)
        assert odd.mean == pytest.approx(above, abs=0.3)
        assert (shards.kind, shards.outcome, shards.too_small) == ("shard", "not_evaluated", 12)
        text = render_text(found, data)
        assert "Blocks with odd losses over the whole run" in text
        assert "Odd is not bad" in text
        plain = " ".join(text.split())
        assert "by what their documents should cost (the first 100 healthy ones by their loss alone); the band" in plain
        jsonschema.validate(found.model_dump(mode="json", by_alias=True), SCHEMAS["attribution"][1]())

    @pytest.mark.runs
    def test_shards_where_there_are_enough_of_a_source(self, tmp_path):
        make_shards(tmp_path / "manifest", 80)

        def plant(batch):
            batch["source"][:] = batch["shard"] % 2
            batch["loss"][batch["shard"] == SHARD] += 1.0

        write_run(tmp_path / "run", tmp_path / "manifest", Made(steps=200, shards=80), plant)
        shards = attribute(load_data(tmp_path / "run", tmp_path / "manifest")).residual_tests[1]
        assert [(one.shard, one.first_row, one.last_row) for one in shards.units if one.outlier] == [
            (SHARD, None, None)
        ]

    def test_a_clean_run_has_none(self, written):
        data = written(Made(steps=300))
        found = attribute(data)
        assert [one.outcome for one in found.residual_tests] == ["none", "not_evaluated"]
        text = " ".join(render_text(found, data).split())
        assert (
            "300 of 300 blocks tested, 0 of 12 shards tested (too small or too few: 12). None is odd beside others"
            in text
        )

    @pytest.mark.runs
    def test_it_changes_no_exit_code(self, written):
        assert attribute(written(Made(steps=500), raised(-1.5))).exit_code == 0

    def test_a_run_without_losses_of_stretches(self, written):
        found = attribute(written(Made(steps=120, scored=lambda step: False)))
        assert {one.outcome for one in found.residual_tests} == {"not_evaluated"}
