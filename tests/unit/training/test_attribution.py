"""`dataaudit attribute`: what is planted is named, what cannot be told is said by name, and every exit code."""

from __future__ import annotations

import errno
import json
import os
import re
from functools import partial
from pathlib import Path
from typing import get_args

import jsonschema
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from lanes import thinned
from made_run import BLOCK_ROWS, Made, bad_block, bad_rows, begin_run, make_shards, worse_state, write_run

from dataaudit import cli
from dataaudit.base.errors import RunLogError
from dataaudit.base.render.line import spell
from dataaudit.runlog.reader import load_run
from dataaudit.runlog.writer import RankWriter, event
from dataaudit.schemas import SCHEMAS
from dataaudit.training.attribution.attribute import HEALTHY_STEPS, LEAST_UNITS, LISTED, RARE, attribute
from dataaudit.training.attribution.curve import GAP, LAG
from dataaudit.training.attribution.findings import MISSING_LIMIT, Attribution, Reason
from dataaudit.training.attribution.run_data import load_data
from dataaudit.training.attribution.spikes import FLOOR, LEVEL_AFTER, WINDOW, K
from dataaudit.training.attribution.step_detector import SHRINK
from dataaudit.training.attribution.verdict import FEW_SHARDS, FILLS, LEAST_PAST, MUCH
from dataaudit.training.logthread import BATCH_STEPS
from dataaudit.training.pages.blocks import headline, render_text

SPIKE = range(150, 162)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    """A manifest of twelve shards; part-005 has odd metrics, part-002 the same bytes as part-009."""
    folder = tmp_path_factory.mktemp("made") / "manifest"
    make_shards(folder, twins=(2, 9), bytes_per_token={5: 1.3})
    return folder


@pytest.fixture
def run(written):
    """Return a function that writes a run with something planted and returns what is found."""
    return lambda made, *plants, **more: attribute(written(made, *plants, **more))


def only(found: Attribution):
    """Return the one episode."""
    assert len(found.episodes) == 1
    return found.episodes[0]


class TestFound:
    def test_the_shard_of_bad_rows(self, run):
        found = run(Made(), bad_rows(SPIKE))
        one = only(found)
        assert (one.first_step, one.last_step, one.flagged, one.accounted) == (150, 161, 12, 12)
        assert found.exit_code == 1
        assert (one.found.name, one.found.shard, one.found.kind) == ("train/part-005.jsonl", 5, "shard")
        low, high = one.found.interval
        assert 0.85 < low < one.found.share < high < 1.2
        assert one.found.rarity.as_high == 0
        assert one.metrics[0].metric == "bytes_per_token"
        assert one.metrics[0].deviations < -6
        assert {document.shard for document in one.documents} == {5}

    def test_a_block_when_that_is_enough(self, run):
        one = only(run(Made(), bad_block(SPIKE)))
        assert (one.found.kind, one.found.shard) == ("block", 5)
        assert (one.found.first_row, one.found.last_row) == (7 * BLOCK_ROWS, 8 * BLOCK_ROWS - 1)

    @pytest.mark.runs
    def test_the_shard_when_two_blocks_of_it_share_the_excess(self, run):
        """Each alone would be enough to bring the steps back inside the band."""

        def two(batch):
            bad_block(SPIKE, rows=3, above=2.7)(batch)
            if batch.step in SPIKE:
                batch["row"][batch["batch_row"] == 0] += 3 * BLOCK_ROWS

        one = only(run(Made(), two))
        assert (one.found.kind, one.found.shard) == ("shard", 5)
        assert [block.first_row for block in one.blocks[:2]] == [7 * BLOCK_ROWS, 10 * BLOCK_ROWS]

    @pytest.mark.runs
    def test_a_block_that_is_its_whole_shard_is_the_shard(self, tmp_path):
        """And the last row of a block is at most that of its shard."""
        make_shards(tmp_path / "manifest", rows={5: 10, 8: 20})

        def small(batch):
            for steps, shard, row in ((SPIKE, 5, 9), (range(180, 186), 8, 17)):
                bad_rows(steps, shard)(batch)
                if batch.step in steps:
                    batch["row"][batch["batch_row"] < 3] = row

        write_run(tmp_path / "run", tmp_path / "manifest", Made(), small)
        first, second = attribute(load_data(tmp_path / "run", tmp_path / "manifest")).episodes
        assert (first.found.kind, first.found.shard, first.found.first_row) == ("shard", 5, None)
        assert (second.found.kind, second.found.first_row, second.found.last_row) == ("block", 16, 19)

    @pytest.mark.runs
    def test_a_spike_just_after_the_first_window(self, run):
        one = only(run(Made(), bad_rows(range(53, 60))))
        assert (one.first_step, one.found.shard, one.healthy_steps) == (53, 5, 52)

    def test_a_single_step(self, run):
        one = only(run(Made(), bad_rows(range(150, 151), rows=4)))
        assert (one.first_step, one.last_step, one.found.shard) == (150, 150, 5)

    @pytest.mark.runs
    @pytest.mark.parametrize(("above", "reason"), [(4.0, "not_rare"), (8.0, "")])
    def test_a_single_step_names_what_chance_does_not_bring(self, run, above, reason):
        """Of 149 units that came before none is as high; by how far these vary, 1 of as many may well be."""

        def plant(batch):
            batch["shard"][:] = batch.step % 4
            batch["row"][:] = 0
            hard = np.random.default_rng(batch.step).exponential(0.4)
            bad_rows(range(batch.step, batch.step + 1), batch.step % 4, rows=7, above=hard)(batch)
            bad_rows(range(150, 151), rows=7, above=above)(batch)

        one = only(run(Made(), plant))
        assert (one.first_step, one.reason, one.found is None) == (150, reason, bool(reason))

    @pytest.mark.runs
    @pytest.mark.parametrize("rows", [(8, 2, 2, 2), (8, 8, 2, 2, 2), (8, 1, 1, 1), (7, 2, 2, 2), (8, *[2] * 7)])
    @pytest.mark.parametrize("of_block", [False, True])
    def test_a_shard_that_fills_a_step_and_is_in_others(self, run, rows, of_block):
        """The steps that it does not fill say what it is; in them it is the shard."""
        spoil = bad_block if of_block else bad_rows
        steps = {100 + place: number for place, number in enumerate(rows)}

        def plant(batch):
            spoil(range(100, 120), rows=steps.get(batch.step, 0), above=8.0)(batch)

        found = run(Made(noise=0.1, steps=130), plant)
        one = only(found)
        assert (one.outcome, one.found.shard, one.found.kind) == ("found", 5, "block" if of_block else "shard")
        assert one.found.share == pytest.approx(1, abs=0.1)
        assert found.exit_code == 1

    @pytest.mark.runs
    def test_shards_with_equal_bytes_are_one(self, run):
        def both(batch):
            if batch.step in SPIKE:
                batch["shard"][batch["batch_row"] == 0] = 2
                batch["shard"][batch["batch_row"] == 1] = 9
                batch["loss"][batch["batch_row"] < 2] += 4.0

        one = only(run(Made(), both))
        assert (one.found.shard, one.found.name, one.found.twins) == (2, "train/part-002.jsonl", (9,))
        assert one.found.share > 0.9

    @pytest.mark.runs
    def test_two_ranks_one_of_which_reads_it(self, run):
        def one_rank(batch):
            if batch.rank == 1:
                bad_rows(SPIKE, rows=6)(batch)

        one = only(run(Made(ranks=2), one_rank))
        assert one.found.shard == 5
        assert {place.rank for document in one.documents for place in document.places} <= {0, 1}
        assert one.documents[0].places[0].rank == 1

    @pytest.mark.runs
    def test_the_state_that_follows_does_not_hide_it(self, run):
        """The bad rows make all else a little worse, as bad updates do."""
        one = only(run(Made(), bad_rows(SPIKE), worse_state(range(151, 165), above=0.3)))
        assert one.found.shard == 5
        assert 0.1 < one.common < 0.5
        assert one.found.share < 0.95

    @pytest.mark.runs
    def test_more_than_half_of_the_tokens(self, run):
        """Its own blocks are left out of the common part, or they would be the state."""
        one = only(run(Made(), bad_rows(SPIKE, rows=5)))
        assert one.found.shard == 5
        assert one.found.weight > 0.55

    @pytest.mark.runs
    def test_of_several_episodes_each_its_own(self, run):
        found = run(Made(steps=260), bad_rows(range(120, 130)), bad_rows(range(200, 210), shard=8))
        assert [one.found.shard for one in found.episodes] == [5, 8]

    def test_a_step_without_a_finite_loss(self, run):
        def broken(batch):
            if batch.step == 20:
                batch["shard"][4] = 7
                batch["row"][4] = 33
                batch["loss"][4] = np.nan

        found = run(Made(), broken)
        one = only(found)
        assert (one.kind, one.first_step, one.found.shard, one.found.first_row) == ("not_finite", 20, 7, 32)
        assert one.found.share is None
        assert [(one.shard, one.first_row) for one in one.documents] == [(7, 33)]
        assert found.exit_code == 1

    @pytest.mark.runs
    @pytest.mark.parametrize("start", [182, 205])
    def test_soon_after_a_change_of_level(self, run, start):
        """The loss stays 1.5 lower from step 130 on, as after a change of the learning rate."""
        found = run(Made(steps=240), worse_state(range(130, 300), above=-1.5), bad_rows(range(start, start + 10)))
        one = only(found)
        assert (one.first_step, one.found.shard) == (start, 5)
        assert one.found.share == pytest.approx(1, abs=0.1)
        assert one.common == pytest.approx(0, abs=0.2)

    def test_a_spike_that_stays_is_a_level(self, run):
        found = run(Made(steps=260), bad_rows(range(120, 300), above=5.0))
        one = only(found)
        assert (one.kind, one.first_step, one.last_step, one.found.shard) == ("level_shift", 120, 169, 5)

    @pytest.mark.runs
    def test_a_resumed_run_is_read_once(self, tmp_path, manifest):
        """The first attempt had the spike, too; the second one did its steps again with another shard."""
        write_run(tmp_path / "run", manifest, Made(steps=170), bad_rows(SPIKE))
        write_run(tmp_path / "run", manifest, Made(steps=190), bad_rows(SPIKE, shard=8), first=141, create=False)
        one = only(attribute(load_data(tmp_path / "run", manifest)))
        assert (one.found.shard, one.flagged) == (8, 12)


class TestCannotTell:
    def reason(self, found, named):
        one = only(found)
        assert (one.outcome, one.reason, one.found) == ("cannot_tell", named, None)
        assert found.exit_code == 3
        assert one.detail
        return one

    def of_new_source(self, above):
        """Return what makes rows of the spike those of a shard of a source that nobody has seen."""

        def plant(batch):
            bad_rows(SPIKE, above=above)(batch)
            if batch.step in SPIKE:
                batch["source"][batch["batch_row"] < 3] = -1

        return plant

    def test_state(self, run):
        one = self.reason(run(Made(), worse_state(SPIKE)), "state")
        assert one.common / one.excess == pytest.approx(1, abs=0.15)

    def test_one_block_fills_the_step(self, run):
        def one_document(batch):
            if batch.step == 150:
                batch["shard"][:] = 4
                batch["row"][:] = 3
                batch["loss"][:] += 3.0

        self.reason(run(Made(), one_document), "one_block_fills_the_step")

    @pytest.mark.runs
    def test_batches_of_one_document(self, run):
        made = Made(batch_rows=1, places=1, noise=0.05)
        self.reason(run(made, bad_rows(range(150, 152), above=6.0)), "one_block_fills_the_step")

    @pytest.mark.runs
    def test_a_shard_that_fills_steps_and_holds_nothing_of_the_others(self, run):
        """In the first step it is the shard or the state; in the later ones it is high, and so is all else."""
        one = self.reason(
            run(
                Made(noise=0.1, steps=130),
                bad_rows(range(100, 101), rows=8, above=9.0),
                bad_rows(range(101, 104), rows=1, above=0.0),
                worse_state(range(101, 104), above=1.0),
            ),
            "one_block_fills_the_step",
        )
        assert "a single shard" in one.detail

    @pytest.mark.runs
    def test_one_new_shard_fills_the_steps(self, run):
        """Blocks of one shard alone, which no earlier step had: there is nothing to compare with."""

        def in_order(batch):
            batch["shard"][:] = batch.step // 50
            worse_state(SPIKE, above=2.0)(batch)

        one = self.reason(run(Made(), in_order), "one_block_fills_the_step")
        assert "a single shard" in one.detail

    def test_a_state_in_a_corpus_of_one_shard(self, run):
        def alone(batch):
            batch["shard"][:] = 3
            worse_state(SPIKE)(batch)

        one = self.reason(run(Made(), alone), "few_shards")
        assert one.detail.startswith("all blocks are up together, and they are of 1 shard: it takes 5")

    @pytest.mark.runs
    @pytest.mark.parametrize("shards", [2, 3, FEW_SHARDS - 1, FEW_SHARDS])
    def test_of_few_shards_nothing_is_said_of_the_model(self, run, shards):
        few = shards < FEW_SHARDS
        found = run(Made(shards=shards), worse_state(SPIKE))
        one = self.reason(found, "few_shards" if few else "state")
        assert ("model's state (" in one.detail) != few
        assert ("the model's state" in spell(headline(found))) != few

    @pytest.mark.runs
    def test_open_shards_of_a_buffer_and_a_few_tokens_of_others_are_few(self, run):
        """Two shards fill the steps, three others have a row's end each."""

        def plant(batch):
            own = np.arange(len(batch["shard"]))
            batch["shard"][:] = own % 2
            if batch.step in SPIKE:
                last = np.argsort(batch["targets"])[:3]
                batch["shard"][last] = 5 + np.arange(3)
                batch["targets"][last] = 4
            worse_state(SPIKE)(batch)

        self.reason(run(Made(), plant), "few_shards")

    @pytest.mark.runs
    @pytest.mark.parametrize("shards", [2, 4, 5])
    def test_losses_that_are_no_numbers_in_few_shards(self, run, shards):
        def broken(batch):
            if batch.step in SPIKE:
                batch.columns["loss"] = np.full(len(batch["loss"]), np.nan)

        (one,) = run(Made(shards=shards), broken).episodes
        assert one.reason == ("few_shards" if shards < FEW_SHARDS else "state")

    @pytest.mark.runs
    def test_a_new_source_does_not_hide_its_shard(self, run):
        """Nearly all of the excess in a single shard of a source that nobody has seen: both are said."""
        found = run(Made(), self.of_new_source(7.0))
        one = self.reason(found, "new_source")
        assert one.together == (5,)
        assert "a single shard accounts for" in one.detail
        said = spell(headline(found))
        assert "in a source that is new" in said
        assert " of it in train/part-005.jsonl at " in said
        assert "nats/token" in said

    @pytest.mark.runs
    @pytest.mark.parametrize(("until", "reason"), [(60, "new_source"), (149, "")])
    def test_a_source_that_was_not_read_lately_is_as_good_as_new(self, run, until, reason):
        """Read in the first steps alone, when all losses were alike: a clean shard of it was accused as it came."""

        def plant(batch):
            if batch.step > until:
                batch["loss"][batch["source"] == 0] += 0.6
                batch["source"][:] = 1
            bad_rows(SPIKE)(batch)
            if batch.step in SPIKE:
                batch["source"][batch["batch_row"] < 3] = 0

        one = only(run(Made(), plant))
        assert (one.reason, one.found is None) == (reason, bool(reason))

    @pytest.mark.runs
    def test_a_new_source_of_many_shards_names_none(self, run):
        def unknown(batch):
            if batch.step in SPIKE:
                batch["source"][:] = -1
                batch["loss"][:] += 3.0

        assert self.reason(run(Made(), unknown), "new_source").together == ()

    def test_new_source(self, run):
        one = self.reason(run(Made(), self.of_new_source(3.0)), "new_source")
        assert one.sources[0].name == ""

    @pytest.mark.runs
    def test_rank_missing(self, run):
        found = run(Made(ranks=2), bad_rows(SPIKE), lacking=lambda step, rank: rank == 1 and step >= 145)
        self.reason(found, "rank_missing")

    def test_a_rank_that_never_wrote(self, run):
        self.reason(run(Made(ranks=2), bad_rows(SPIKE), lacking=lambda step, rank: rank == 1), "rank_missing")

    @pytest.mark.runs
    def test_a_few_steps_without_a_rank_are_left_out(self, run):
        found = run(Made(ranks=2), bad_rows(SPIKE), lacking=lambda step, rank: rank == 1 and step in {152, 155})
        one = only(found)
        assert (one.found.shard, one.flagged, one.accounted) == (5, 12, 10)

    def test_no_stretch_losses(self, run):
        self.reason(run(Made(scored=lambda step: False), bad_rows(SPIKE)), "no_stretch_losses")

    @pytest.mark.runs
    def test_no_stretch_losses_of_healthy_steps(self, run):
        self.reason(run(Made(scored=lambda step: step in SPIKE), bad_rows(SPIKE)), "no_stretch_losses")

    @pytest.mark.runs
    def test_losses_at_a_cadence_are_enough(self, run):
        """Every fourth step is scored; the loop's own loss holds a term more, which is no spike."""
        made = Made(scored=lambda step: step % 4 == 0, user=lambda step, loss: loss + 0.7)
        one = only(run(made, bad_rows(SPIKE)))
        assert (one.found.shard, one.flagged, one.accounted) == (5, 12, 3)

    @pytest.mark.runs
    def test_scores_of_later_weights_do_not_hide_a_spike(self, run):
        """The loop saw a spike; two updates later, when its batches are scored again, half of it is gone."""
        made = Made(
            scored=lambda step: step % 8 == 0 or step in SPIKE,
            user=lambda step, loss: loss + (0.9 if step in SPIKE else 0.0),
            again=SPIKE,
        )
        one = only(run(made, bad_rows(SPIKE, above=1.2)))
        assert (one.found.shard, one.flagged, one.accounted) == (5, 12, 12)

    def test_merged_stretches(self, run):
        def merged(batch):
            if batch.step in SPIKE:
                own = batch["batch_row"] < 3
                batch["shard"][own] = batch["row"][own] = -1
                batch["loss"][own] += 3.0

        self.reason(run(Made(), merged), "merged_stretches")

    def test_spread_over_two_shards(self, run):
        def two(batch):
            bad_rows(SPIKE, rows=4)(batch)
            if batch.step in SPIKE:
                batch["shard"][batch["batch_row"] < 2] = 8

        one = self.reason(run(Made(), two), "spread")
        assert set(one.together) == {5, 8}
        assert "2 shards together do" in one.detail

    @pytest.mark.runs
    @pytest.mark.parametrize("steps", [range(80, 86), SPIKE])
    def test_harder_sources_that_come_together(self, run, steps):
        """No document is worse than usual: no episode, or, where the loss alone decides, one that accuses nothing."""

        def usual(batch):
            hard = batch["source"] == 1
            batch["loss"][hard] += 2.0
            if batch.step in steps:
                batch["loss"][~hard] += 2.6
                batch["source"][:] = 1

        found = run(Made(batch_rows=32, noise=0.1), usual)
        if steps == SPIKE:
            assert found.episodes == ()
        else:
            assert self.reason(found, "mixture").above_line > 0.5

    def test_all_losses_are_broken(self, run):
        def broken(batch):
            if batch.step == 90:
                batch["loss"][:] = np.nan

        self.reason(run(Made(), broken), "state")

    @pytest.mark.runs
    def test_losses_of_two_shards_are_broken(self, run):
        def broken(batch):
            if batch.step == 90:
                batch["shard"][:2] = 3, 4
                batch["loss"][:2] = np.inf

        one = self.reason(run(Made(), broken), "spread")
        assert one.together == (3, 4)

    def test_an_episode_before_any_line(self, run):
        """Only what is no number is flagged in the first steps; there is no expectation to divide by."""
        found = run(Made(steps=30), bad_rows(range(10, 20)))
        assert (found.episodes, found.judged, found.exit_code) == ((), 0, 4)

    @pytest.mark.runs
    def test_thinned_stretches(self, run):
        """Sums alone are left of the spike: its steps were not flagged as the run went on."""
        made = Made(steps=700)
        found = run(made, bad_rows(range(150, 154)), kept_steps=120, part_steps=100)
        self.reason(found, "no_stretch_losses")

    @pytest.mark.runs
    def test_what_survived_thinning_is_enough(self, run):
        made = Made(steps=700)
        found = run(made, bad_rows(SPIKE), kept_steps=120, part_steps=100)
        one = only(found)
        assert (one.found.shard, one.flagged, one.accounted) == (5, 12, 1)


class TestSilent:
    @pytest.mark.runs
    @pytest.mark.parametrize("seed", range(5))
    def test_a_clean_run(self, run, seed):
        found = run(Made(steps=400, seed=seed))
        assert (found.episodes, found.dips, found.gradients, found.exit_code) == ((), (), (), 0)

    def test_a_dip_is_listed_and_not_explained(self, run):
        found = run(Made(), worse_state(SPIKE, above=-1.5))
        assert (found.episodes, found.exit_code) == ((), 0)
        assert [(one.first_step, one.last_step) for one in found.dips] == [(150, 161)]

    @pytest.mark.runs
    def test_a_gradient_without_a_loss_is_listed(self, run):
        found = run(Made(), norms=lambda step: 40.0 if step == 120 else 1.0 + 0.1 * (step % 7))
        assert (found.episodes, found.exit_code) == ((), 0)
        assert [(one.first_step, one.flagged) for one in found.gradients] == [(120, 1)]


def command(*arguments):
    """Run the command in this process."""
    return CliRunner().invoke(cli.main, ["attribute", *map(str, arguments)], env={"COLUMNS": "120"})


@pytest.fixture
def attributed(tmp_path, manifest):
    """Return a function that writes a run with something planted and returns what the command says of it."""

    def write(made, *plants, options=(), folder="run", **more):
        write_run(tmp_path / folder, manifest, made, *plants, **more)
        return command(tmp_path / folder, "--manifest", manifest, *options)

    return write


def written_of(folder):
    """Return what the command wrote beside a run."""
    return json.loads((folder / "run/attribution.json").read_bytes())


class TestCommand:
    def test_nothing_to_explain(self, attributed, tmp_path):
        done = attributed(Made(steps=120))
        assert done.exit_code == 0
        limit = written_of(tmp_path)["detector"]["visible"][1]
        assert limit["steps"] == 5
        assert done.stdout.startswith(f"No rise above {limit['rise']:.2g} nats over 5 steps among 120 steps.\n")
        assert written_of(tmp_path)["episodes"] == []

    def test_found_and_json_is_what_is_written(self, attributed, tmp_path, manifest):
        done = attributed(Made(), bad_rows(SPIKE))
        assert done.exit_code == 1
        first = done.stdout.splitlines()[0]
        assert first.startswith("Steps 150 to 161: loss ")
        assert re.search(r"\d+ % \(\d+ to \d+\) of the excess lies in train/part-005\.jsonl\.$", first)
        assert f"dataaudit inspect {manifest} 5:" in done.stdout
        assert "bytes_per_token" in done.stdout
        assert "What this does not say" in done.stdout
        assert "Nothing is proposed: data that accounts for an excess may be hard" in done.stdout.splitlines()[1]
        one, other = (command(tmp_path / "run", "--manifest", manifest, "--json") for _ in range(2))
        assert (one.exit_code, one.stdout) == (1, other.stdout)
        printed = json.loads(one.stdout)
        assert printed == written_of(tmp_path)
        assert Attribution.model_validate(printed).episodes[0].found.shard == 5

    @pytest.mark.runs
    def test_shards_with_equal_bytes_are_said(self, attributed):
        done = attributed(Made(), bad_rows(SPIKE, shard=9))
        assert "lies in train/part-002.jsonl." in done.stdout.splitlines()[0]
        assert "shards 9, which count as shard 2" in done.stdout

    def test_what_is_not_finite(self, attributed):
        def broken(batch):
            if batch.step == 20:
                batch["loss"][4] = np.nan

        done = attributed(Made(), broken)
        assert done.exit_code == 1
        assert done.stdout.startswith(
            "Step 20: the loss is not finite. Every segment without a finite loss lies in a single document, row "
        )
        assert "By shard" not in done.stdout
        assert "Documents, the largest parts first" in done.stdout

    def test_cannot_tell(self, attributed):
        done = attributed(Made(), worse_state(SPIKE))
        assert done.exit_code == 3
        assert (
            "No data is named: all blocks are up together, as when the model's state is at fault."
            in done.stdout.splitlines()[0]
        )

    @pytest.mark.runs
    def test_found_beside_what_cannot_be_told(self, attributed):
        done = attributed(Made(), worse_state(range(100, 105)), bad_rows(SPIKE))
        assert done.exit_code == 1
        assert done.stdout.startswith("Steps 150 to 161")
        assert "Steps 100 to 104" in done.stdout

    @pytest.mark.runs
    def test_the_largest_episode_comes_first(self, attributed):
        """By excess times steps; the others follow by time, each in a line, and then the details."""
        plants = ((range(80, 82), 2, 9.0), (SPIKE, 5, 4.0), (range(110, 113), 8, 3.0))
        done = attributed(Made(), *(bad_rows(steps, shard, above=above) for steps, shard, above in plants))
        lines = done.stdout.splitlines()
        starts = ("Steps 150 to 161: ", "  Steps 80 to 81: ", "  Steps 110 to 112: ")
        for line, start, shard in zip(lines, starts, ("part-005", "part-002", "part-008"), strict=False):
            assert line.startswith(start)
            assert line.endswith(f" of the excess lies in train/{shard}.jsonl.")
        assert [line[:15] for line in lines].index("The episode") > len(starts)

    @pytest.mark.runs
    @pytest.mark.parametrize("cut", [-40, -200, 100])
    def test_a_log_cut_in_its_only_batch(self, tmp_path, manifest, cut):
        write_run(tmp_path / "run", manifest, Made(steps=80))
        path = tmp_path / "run/ranks/00000/steps-00000.arrows"
        size = path.stat().st_size
        os.truncate(path, cut if cut > 0 else size + cut)
        done = command(tmp_path / "run", "--manifest", manifest)
        torn = written_of(tmp_path)["torn_bytes"]
        assert 0 < torn < size
        assert done.exit_code == 4
        assert done.stdout.startswith(f"No data: 0 steps in the log ({torn:,} bytes at its end could not be read)")

    @pytest.mark.parametrize("steps", [0, 12])
    def test_no_data(self, attributed, steps):
        done = attributed(Made(steps=steps))
        assert done.exit_code == 4
        assert done.stdout.startswith(f"No data: {steps} steps")

    def test_another_manifest(self, tmp_path, manifest):
        write_run(tmp_path / "run", manifest, Made(steps=3))
        other = make_shards(tmp_path / "other", 3)
        done = command(tmp_path / "run", "--manifest", tmp_path / "other")
        assert done.exit_code == 2
        assert other in done.stderr
        assert json.loads((manifest / "manifest.json").read_bytes())["id"] in done.stderr

    def test_no_log(self, tmp_path, manifest):
        done = command(tmp_path, "--manifest", manifest)
        assert done.exit_code == 2
        assert "no run log at" in done.stderr

    @pytest.mark.parametrize("folder", ["ranks", "ranks/00001"])
    def test_a_folder_that_cannot_be_listed(self, tmp_path, manifest, monkeypatch, folder):
        """As it is without the right to read it; who runs this test may have every right."""
        write_run(tmp_path / "run", manifest, Made(steps=60, ranks=2))
        listed, scanned = os.listdir, os.scandir

        def refusing(real):
            def listing(path="."):
                if Path(path) == tmp_path / "run" / folder:
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
                return real(path)

            return listing

        monkeypatch.setattr(os, "listdir", refusing(listed))
        monkeypatch.setattr(os, "scandir", refusing(scanned))
        done = command(tmp_path / "run", "--manifest", manifest)
        assert done.exit_code == 2
        assert f"{tmp_path / 'run' / folder} cannot be read: Permission denied" in " ".join(done.stderr.split())

    def test_shards_of_the_log_that_are_not_the_manifests(self, tmp_path, manifest):
        write_run(tmp_path / "run", manifest, Made(steps=3))
        path = tmp_path / "run/shards.arrow"
        with pa.ipc.open_file(pa.memory_map(str(path))) as stream:
            table = stream.read_all()
        swapped = table.set_column(3, "sha256", table["sha256"].take(list(range(11, -1, -1))))
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, swapped.schema) as stream:
            stream.write_table(swapped)
        done = command(tmp_path / "run", "--manifest", manifest)
        assert done.exit_code == 2
        assert "is not what was written" in done.stderr
        sealed = load_run(tmp_path / "run").run.sealed(path.read_bytes())
        (tmp_path / "run/run.json").write_bytes(sealed.to_json())
        done = command(tmp_path / "run", "--manifest", manifest)
        assert done.exit_code == 1
        assert "is not that of" in done.stderr

    def test_stretches_of_shards_that_are_not_there(self, attributed, manifest):
        done = attributed(Made(), bad_rows(SPIKE, shard=99))
        assert done.exit_code == 2
        assert "to 99, the manifest has 12 shards" in done.stderr

    @pytest.mark.runs
    def test_one_step(self, attributed, tmp_path, manifest):
        done = attributed(
            Made(), bad_rows(range(100, 105), shard=8), bad_rows(SPIKE), options=["--step", "155", "--json"]
        )
        assert [one["found"]["shard"] for one in json.loads(done.stdout)["episodes"]] == [5]
        done = command(tmp_path / "run", "--manifest", manifest, "--step", "80")
        assert done.exit_code == 0
        assert re.match(
            r"Step 80 is in no episode\. A rise above 0\.\d+ nats over 5 steps is seen in half", done.stdout
        )
        early = command(tmp_path / "run", "--manifest", manifest, "--step", "20")
        assert early.exit_code == 4
        assert early.stdout.startswith("Step 20 was not judged: a line takes 50 steps before")
        done = command(tmp_path / "run", "--manifest", manifest, "--step", "900")
        assert done.exit_code == 2
        assert "no step 900" in done.stderr
        assert "1 to 200" in done.stderr

    def test_a_log_that_cannot_be_written_is_said(self, tmp_path, manifest):
        write_run(tmp_path / "run", manifest, Made(steps=60))
        (tmp_path / "run/attribution.json").mkdir()
        done = command(tmp_path / "run", "--manifest", manifest)
        assert done.exit_code == 0
        assert "attribution.json cannot be written" in done.stderr

    @pytest.mark.runs
    def test_a_picture(self, attributed, tmp_path, manifest):
        done = attributed(Made(), bad_rows(SPIKE), options=["--picture", tmp_path / "spike.png"])
        assert done.exit_code == 1
        assert (tmp_path / "spike.png").read_bytes().startswith(b"\x89PNG")
        for name, message in (("spike.txt", "ends in .png"), ("no/spike.png", "does not exist")):
            done = command(tmp_path / "run", "--manifest", manifest, "--picture", tmp_path / name)
            assert done.exit_code == 2
            assert message in done.stderr


class TestMissingSteps:
    def test_most_of_a_log_is_no_clean_run(self, attributed, tmp_path):
        done = attributed(Made(steps=400), lacking=lambda step, rank: 100 < step < 399)
        assert done.exit_code == 3
        first, *rest = done.stdout.splitlines()
        assert first.startswith(
            "Cannot tell: 298 of 400 steps are missing; of the 102 steps in the log, none has a loss"
        )
        assert "steps_missing: 298 of 400 steps are missing, wholly or of some rank" in " ".join(rest[:3])
        assert "steps 101 to 398" in " ".join(rest[:3])
        said = written_of(tmp_path)
        assert (said["missing_steps"], said["missing_among"], said["longest_gap"]) == (298, 400, [101, 398])
        assert (said["reason"], said["exit_code"]) == ("steps_missing", 3)

    @pytest.mark.runs
    @pytest.mark.parametrize(("lost", "code"), [(1, 0), (2, 0), (3, 3)])
    def test_up_to_the_limit_it_is_said_alone(self, attributed, lost, code):
        done = attributed(Made(steps=200), lacking=lambda step, rank: 90 <= step < 90 + lost)
        assert done.exit_code == code
        assert f"{lost} of 200 steps {'is' if lost == 1 else 'are'} missing" in " ".join(done.stdout.splitlines()[:4])
        assert (lost > MISSING_LIMIT * 200) == (code == 3)

    @pytest.mark.runs
    def test_what_is_found_is_found(self, attributed):
        done = attributed(Made(), bad_rows(SPIKE), lacking=lambda step, rank: 60 <= step < 80)
        assert done.exit_code == 1
        assert done.stdout.startswith("Steps 150 to 161: loss ")
        assert "20 of 200 steps are missing" in " ".join(done.stdout.splitlines()[:4])

    @pytest.mark.runs
    @pytest.mark.parametrize("lacking", [range(60, 80), range(1, 151)])
    def test_a_rank_that_lacks_steps_or_never_wrote(self, attributed, tmp_path, lacking):
        done = attributed(Made(steps=150, ranks=2), lacking=lambda step, rank: rank == 1 and step in lacking)
        assert (done.exit_code, written_of(tmp_path)["missing_steps"]) == (3, len(lacking))

    @pytest.mark.runs
    def test_a_rank_that_is_behind(self, attributed, tmp_path):
        """Ranks write at times of their own, so the newest steps of one may not be there yet; a rank that ended is."""
        assert LAG == BATCH_STEPS
        made = Made(steps=LAG + 101, ranks=2)

        def ended(last, step, rank):
            return rank == 1 and step > last

        for folder, last, missing in (("behind", 101, 0), ("ended", 100, LAG + 1)):
            done = attributed(made, lacking=partial(ended, last), folder=f"{folder}/run")
            assert written_of(tmp_path / folder)["missing_steps"] == missing
            assert done.exit_code == (3 if missing else 0)

    @pytest.mark.runs
    def test_what_events_say_was_lost(self, attributed, tmp_path, manifest):
        """The folder was deleted: its first steps, with their start, are gone; a start says where a run begins."""
        attributed(Made(steps=300), first=201)
        assert written_of(tmp_path)["longest_gap"] == [1, 200]
        log = RankWriter(tmp_path / "run", 0, 301, BLOCK_ROWS)
        log.add("events", event(200, "resumed", {}))
        log.add("events", event(250, "lost", {"steps": 30}))
        log.add("events", event(260, "lost", {"steps": 40}))
        log.add("events", event(300, "closed", {"lost_steps": 40}))
        log.close()
        assert command(tmp_path / "run", "--manifest", manifest).exit_code == 3
        said = written_of(tmp_path)
        assert (said["missing_steps"], said["missing_among"], said["longest_gap"]) == (40, 140, None)

    @pytest.mark.runs
    @pytest.mark.parametrize("full", [False, True])
    def test_an_end_that_only_the_last_event_knows(self, attributed, tmp_path, manifest, full):
        """Of a log that says so, or whose disk was full from step 101 on and has room as the run closes."""
        attributed(Made(steps=100))
        log = RankWriter(tmp_path / "run", 0, 401, BLOCK_ROWS)
        if full:
            log.lose(300, "No space left on device")
        else:
            log.add("events", event(400, "closed", {"lost_steps": 300}))
            log.add("events", {**event(400, "lost", {}), "detail": ["no JSON"]})
        log.close()
        assert command(tmp_path / "run", "--manifest", manifest).exit_code == 3
        assert written_of(tmp_path)["longest_gap"] == [101, 400]

    @pytest.mark.runs
    def test_of_one_step_it_is_that_step(self, attributed, tmp_path, manifest):
        lacking = {60: 0, 61: 1}
        attributed(Made(ranks=2), lacking=lambda step, rank: step == 60 or lacking.get(step) == rank)
        asked = [command(tmp_path / "run", "--manifest", manifest, "--step", step) for step in (59, 60, 61)]
        assert [done.exit_code for done in asked] == [0, 2, 3]
        assert "2 steps of 200 are missing" in asked[1].stderr
        assert asked[2].stdout.startswith("Cannot tell: a rank's part of step 61 is missing")


class TestPage:
    PAGE = (Path(__file__).parents[3] / "docs/reference/attribution.md").read_text(encoding="utf-8")

    def test_the_page_lists_every_reason(self):
        table = self.PAGE.partition("\n| reason | when |\n")[2].partition("\n\n")[0]
        listed = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
        assert listed == [name for name in get_args(Reason) if name]

    def test_the_page_states_the_constants(self):
        for said in (
            f"last {WINDOW} values",
            f"*k* = {K:g}",
            f"at least {FLOOR:.1%} of",
            f"After {LEVEL_AFTER} flags",
            f"at most {GAP} others",
            f"n / (n + {SHRINK:g})",
            f"newest {HEALTHY_STEPS:,}",
            f"fewer than {LEAST_PAST} segments",
            f"has {FILLS:.0%} or more",
            f"hold {MUCH:.0%} of the excess",
            f"fewer than {LEAST_UNITS} are as heavy",
            f"fewer than {FEW_SHARDS} shards",
            f"a probability above {RARE:.0%}",
            f"More than {MISSING_LIMIT:.0%} of",
            f"newest {LAG} steps",
        ):
            assert said.replace("%", " %") in " ".join(self.PAGE.split()), said


def test_the_json_is_by_its_schema(run):
    def both(batch):
        worse_state(range(100, 105))(batch)
        bad_rows(SPIKE)(batch)
        if batch.step == 180:
            batch["loss"][3] = np.nan

    found = run(Made(), both)
    assert [one.kind for one in found.episodes] == ["loss_spike", "loss_spike", "not_finite"]
    jsonschema.validate(found.model_dump(mode="json", by_alias=True), SCHEMAS["attribution"][1]())


@pytest.mark.runs
@pytest.mark.parametrize("seed", range(thinned(200, 12)))
def test_whatever_a_log_holds_there_is_an_answer(run, tmp_path, manifest, seed):
    """Random episodes of all kinds, ranks that lack steps, losses at a cadence; blocks and what is common add up."""
    random = np.random.default_rng(seed)
    cadence, lacking = int(random.choice([1, 1, 2, 7])), random.random((141, 2)) < random.choice([0, 0, 0.1, 0.9])
    planted = [
        (
            int(random.integers(50, 130)),
            int(random.integers(1, 60)),
            int(random.integers(7)),
            float(random.choice([1, 9])),
        )
        for _ in range(3)
    ]

    def plant(batch):
        chosen = batch.random.random(len(batch["loss"])) < batch.random.choice([0.1, 0.5, 1.0])
        for first, steps, kind, above in planted:
            if first <= batch.step < first + steps:
                batch["loss"][chosen] += [above, above, above, np.nan, np.inf, above, -above][kind]
                if kind in {0, 3}:
                    batch["shard"][chosen] = 2
                elif kind == 1:
                    batch["shard"][chosen] = batch["row"][chosen] = -1
                elif kind == 2:
                    batch["source"][chosen] = -1
                elif kind == 5:
                    batch["targets"][1:][chosen[1:]] = 0

    made = Made(
        steps=140,
        seed=seed,
        ranks=int(random.integers(1, 3)),
        batch_rows=int(random.integers(1, 5)),
        places=int(random.integers(1, 4)),
        noise=float(random.choice([0.0, 0.05, 0.3])),
        scored=lambda step: step % cadence == 0,
        user=[lambda step, loss: None, lambda step, loss: loss + 0.5][seed % 2],
    )
    found = run(made, plant, lacking=lambda step, rank: bool(lacking[step, rank]))
    text = render_text(found, load_data(tmp_path / "run", manifest), width=100)
    assert len(text.splitlines()[0]) > 20
    assert found.exit_code in {0, 1, 3, 4}
    for one in found.episodes:
        assert (one.found is None) == bool(one.reason) == bool(one.detail)
        if one.excess is not None and len(one.blocks) < LISTED:
            total = one.common + sum(block.part for block in one.blocks)
            assert total == pytest.approx(one.excess, abs=1e-9)


@pytest.mark.runs
def test_hostile_names_are_harmless(tmp_path):
    manifest = tmp_path / "manifest"
    make_shards(manifest, uri={5: "\x1b[31m::error::x\u202egnp\n$\\alpha$ \u6f22\u5b57" + "y" * 3000})
    write_run(tmp_path / "run", manifest, Made(), bad_rows(SPIKE))
    done = command(Path(tmp_path / "run"), "--manifest", manifest, "--picture", tmp_path / "spike.png")
    assert done.exit_code == 1
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert not any(line.lstrip().startswith("::") for line in done.stdout.splitlines())
    assert max(map(len, done.stdout.splitlines())) < 400


def test_a_log_without_tags_names_the_command_that_makes_one_with_them(tmp_path, manifest):
    begin_run(tmp_path / "run")
    with pytest.raises(RunLogError, match="its batches have no tags") as raised:
        load_data(tmp_path / "run", manifest)
    assert f"`dataaudit reconstruct NEW-FOLDER --manifest {manifest} --order olmo ...`" in raised.value.hint
