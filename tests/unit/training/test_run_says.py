"""What is said of a whole run: by shard first, how much was tested, what is left out, and the same on the page."""

import html
import re

import numpy as np
import pytest
from made_run import Made, bad_rows, make_shards, worse_state, write_run

from dataaudit.base.render.html import render
from dataaudit.base.render.line import spell
from dataaudit.decide.quarantine.changes import author
from dataaudit.runlog.reader import load_run
from dataaudit.training.attribution.attribute import attribute, write_attribution
from dataaudit.training.attribution.findings import behind_of
from dataaudit.training.attribution.run_data import load_data
from dataaudit.training.attribution.run_findings import DirectFound, ReplayFound, Suspect
from dataaudit.training.pages.blocks import render_text
from dataaudit.training.pages.evidence_blocks import proposed
from dataaudit.training.pages.page import run_page
from dataaudit.training.proposing import propose_run

BURSTS = range(100, 280, 30)


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory):
    """A run with six episodes, five of shard 5 and one of the state; what `attribute` found, and its data."""
    folder = tmp_path_factory.mktemp("spoilt")
    make_shards(folder / "m")
    plants = [bad_rows(range(first, first + 3)) for first in BURSTS[:5]]
    plants.append(worse_state(range(BURSTS[5], BURSTS[5] + 3)))
    write_run(folder / "run", folder / "m", Made(steps=300), *plants)
    data = load_data(folder / "run", folder / "m")
    return data, attribute(data)


def in_words(page):
    """Return the text of a page, on one line."""
    inline = re.sub(r"</?(wbr|bdi|span|b|i|code)\b[^>]*>", "", html.unescape(page))
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", inline).replace("\xa0", " ").replace("\u202f", " "))


class TestTerminal:
    def test_a_line_by_shard_stands_before_the_episodes(self, spoilt):
        data, found = spoilt
        assert [(one.shard, one.episodes) for one in found.behind] == [(5, 5)]
        text = render_text(found, data, width=120)
        line = "train/part-005.jsonl is behind 5 of 6 episodes."
        assert line in text
        assert text.index(line) < text.index("Steps 1")

    def test_a_single_episode_has_no_such_line(self, spoilt):
        data, found = spoilt
        first = found.episodes[:1]
        alone = found.model_copy(update={"episodes": first, "behind": behind_of(first)})
        assert "is behind" not in render_text(alone, data, width=120)

    def test_what_was_not_tested_is_said(self, spoilt):
        data, found = spoilt
        text = in_words(render_text(found, data, width=200))
        for test in found.residual_tests:
            assert f"{test.tested:,} of {test.tested + test.too_small:,} {test.kind}s tested" in text
            assert not test.too_small or f"too small or too few: {test.too_small:,}" in text
        assert found.residual_tests[1].too_small == 12  # shards of two sources, fewer than twenty together

    def test_the_event_test_says_that_it_leaves_out_the_episodes_own_steps(self, spoilt):
        data, found = spoilt
        if found.event_test.outcome != "not_evaluated":
            assert "What an episode's own steps read is left out here" in in_words(render_text(found, data, width=200))


class TestProposed:
    """Under the first line, on the page, and in `quarantine propose`: that nothing is, why, and what to type."""

    def test_hard_data_is_no_proposal_and_the_command_that_decides_is_named(self, spoilt):
        data, found = spoilt
        lines = in_words("".join(f"{one} " for one in render_text(found, data, width=200).splitlines()[:8]))
        assert "Nothing is proposed: data that accounts for an excess" in lines
        assert "may be hard and clean." in lines
        assert "`dataaudit attribute RUNLOG --manifest DIR --replay MODULE:FUNCTION` decides" in lines
        write_attribution(data.log.folder, found)
        change = propose_run(data.log.folder / "list", data.log.folder, data.manifest, author("a", None))
        assert (change.added, change.notes) == ((), (spell(proposed(found)),))

    def test_odd_losses_are_none_either_and_come_first_in_a_run_without_episodes(self, spoilt):
        data, found = spoilt
        first = found.residual_tests[0]
        units = (first.units[0].model_copy(update={"outlier": True}),)
        tests = (first.model_copy(update={"units": units, "outcome": "outlier_shard"}),)
        odd = found.model_copy(update={"episodes": (), "behind": (), "exit_code": 0, "residual_tests": tests})
        assert "data with odd losses (1 of the blocks and shards) may be hard and clean" in spell(proposed(odd))
        assert "Nothing is proposed" in render_text(odd, data, width=200).splitlines()[1]

    def test_where_no_data_is_named_a_suspect_may_be(self, spoilt):
        _, found = spoilt
        none = {"residual_tests": ()}
        state = found.model_copy(update={"episodes": found.episodes[5:], **none})
        assert "no data is named" in spell(proposed(state))
        assert "--suspect SHARD` tests" in spell(proposed(state))
        clean = found.model_copy(update={"episodes": (), **none})
        assert (
            spell(proposed(clean))
            == "Nothing is proposed: no episode, and no block or shard with odd losses, was found."
        )


class TestPage:
    def page(self, spoilt, **more):
        data, found = spoilt
        write_attribution(data.log.folder, found.model_copy(update=more))
        return in_words(render(run_page(load_run(data.log.folder))))

    def test_it_has_intervals_and_says_that_it_is_accounting(self, spoilt):
        page = self.page(spoilt)
        assert "train/part-005.jsonl is behind 5 of 6 episodes." in page
        assert re.search(r"\d+ % \(\d+ to \d+\) of the excess lies in", page)
        assert "This is accounting: it says in which documents the excess lies" in page
        assert "shards tested (too small or too few: 12)" in page

    def test_its_band_is_that_of_attribute(self, spoilt):
        """Episodes, what they should cost, and the limit of visibility are those of the composition."""
        data, found = spoilt
        (loss,) = [one for one in run_page(load_run(data.log.folder)).sections if one.id == "loss"]
        figure = loss.blocks[0]
        assert loss.lead == "6 episodes above the band of the steps before."
        assert [row[:2] for row in figure.table.rows] == [(one.first_step, one.last_step) for one in found.episodes]
        assert [row[4].value for row in figure.table.rows] == [round(one.expected, 3) for one in found.episodes]
        points = zip(figure.chart.series[0][2], figure.chart.band, strict=True)
        out = sum(not low <= loss <= high for loss, (_, low, high) in points)
        assert out <= sum(one.flagged for one in found.episodes)
        assert re.search(r"A rise above 0\.\d+ nats over 5 steps is seen in half of the cases", self.page(spoilt))

    def test_it_lists_changes_in_the_run(self, written):
        data = written(Made(steps=120), rates=lambda step: 1e-3 if step < 90 else 1e-2)
        (loss,) = [one for one in run_page(data.log).sections if one.id == "loss"]
        assert re.match(r"No rise above 0\.\d+ nats over 5 steps among 120 steps\.", loss.lead)
        assert loss.blocks[-1].rows[0][2].startswith("the learning rate 0.01 after 0.001 (x 10) from step 90")

    def test_it_shows_a_replay(self, spoilt):
        direct = DirectFound(
            outcome="undecided",
            checkpoints=(10, 20, 30),
            documents=12,
            units=25,
            effect=2.97,
            interval=(2.864, 3.076),
            p=0.003,
            smallest_p=0.002,
            usual=0.3,
            matched=("source", "length"),
            among=30,
            alpha=0.01,
        )
        suspect = Suspect(
            name="train/part-005.jsonl",
            shard=5,
            first_row=None,
            last_row=None,
            named_by="accounting",
            documents=12,
            episode=None,
            direct=direct,
            contagion=None,
        )
        made = ReplayFound(run="0", replay="a:b", checkpoints=(10, 20, 30), before=8, seed=0, suspects=(suspect,))
        page = self.page(spoilt, replay=made)
        assert "Done again: train/part-005.jsonl" in page
        assert "Odd or not is left open by these controls: its documents' loss is +2.970 (+2.864 to +3.076)" in page
        assert "The smallest p that these controls can give is 0.002, times 30 that it was named among" in page
        assert "so they have its source and length alone" in page
        assert "Not odd" not in page
        alike = direct.model_copy(update={"matched": ("source", "language", "length")})
        made = made.model_copy(update={"suspects": (suspect.model_copy(update={"direct": alike}),)})
        assert "Too few controls" not in self.page(spoilt, replay=made)


def test_a_whole_run_of_small_units_says_so(written):
    """Twenty steps of a batch of two rows: nothing can be tested, and that is what is said."""
    data = written(Made(steps=20, batch_rows=2, places=1))
    found = attribute(data)
    blocks, shards = found.residual_tests
    assert (blocks.tested, shards.tested) == (0, 0)
    text = in_words(render_text(found, data, width=200))
    assert f"0 of {blocks.too_small:,} blocks tested (too small or too few: {blocks.too_small:,})" in text
    assert np.isclose(blocks.run_p, 1.0)


@pytest.mark.runs
def test_a_single_document_is_named_and_not_its_shard(written):
    def plant(batch):
        if batch.step == 150:
            own = batch["batch_row"] < 3
            batch["shard"][own], batch["row"][own] = 5, 366
            batch["loss"][own] += 3.0

    data = written(Made(steps=200), plant)
    found = attribute(data)
    assert found.episodes[0].num_documents == 1
    said = in_words(render_text(found, data, width=200))
    assert "of the excess lies in a single document, row 366 of train/part-005.jsonl." in said
    assert "is behind" not in said
