"""The replay of a plain loop is the run again, bit by bit, and tells spikes of the state from those of the data."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("torch", reason="it trains")

import replay_world as world
import torch

from dataaudit.cli.quarantining import quarantine
from dataaudit.decide.quarantine.list import Standing, fold, read, today
from dataaudit.live.state_digests import random_state
from dataaudit.training.attribution.attribute import attribute, write_attribution
from dataaudit.training.attribution.run_data import load_data
from dataaudit.training.pages.blocks import render_text
from dataaudit.training.replay.replaying import recorded_of, replayed

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
BAD = 30


@dataclasses.dataclass
class Ran:
    """A run that is over."""

    folder: object
    settings: world.Settings

    def replay(self, **more):
        return world.replay(self.folder / "m", self.folder / "run", self.settings, **more)

    def data(self):
        return load_data(self.folder / "run", self.folder / "m")

    def replayed(self, *places, **more):
        data = self.data()
        return replayed(data, attribute(data), self.replay(**more), "world:replay", places)


def ran(folder, settings, **corpus):
    """Train."""
    world.train(world.write_corpus(folder, **corpus), folder / "run", settings)
    return Ran(folder, settings)


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    """A run that reads a shard of random letters in a burst."""
    return ran(tmp_path_factory.mktemp("bad"), world.Settings(workers=2), bad=(BAD,))


def equal_states(one, other):
    """Tell whether two nested states are the same, bit by bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal_states(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal_states, one, other))
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    return one == other


def test_every_step_from_a_checkpoint_is_the_runs_with_dropout_and_a_schedule(bad):
    """Weights, optimizer, schedule and random numbers, by the next checkpoint; losses by the log."""
    replay, data = bad.replay(), bad.data()
    log = recorded_of(data, replay.documents)
    replay.restore(50)
    for step in range(51, 61):
        assert replay.train(step, replay.batches(step)).loss == log.loss[step]
    reached = replay.save()
    replay.restore(60)
    assert equal_states(reached, replay.save())


def test_scoring_changes_nothing(bad):
    replay = bad.replay()
    replay.restore(50)
    before, generators = replay.save(), random_state()
    first = replay.score(np.arange(40))
    assert equal_states(before, replay.save())
    assert equal_states(generators, random_state())
    assert np.array_equal(first, replay.score(np.arange(40)))
    assert np.allclose(first[::-1], replay.score(np.arange(40)[::-1]), atol=1e-5)


def test_a_score_is_the_mean_loss_of_a_document(bad):
    """By one forward pass a document, without padding."""
    replay = bad.replay()
    replay.restore(50)
    found = replay.score(np.arange(12))
    replay._model.eval()
    for document in range(12):
        tokens = torch.from_numpy(replay.tokens(document)[: world.CONTEXT + 1].astype(np.int64))[None]
        with torch.no_grad():
            losses = torch.log_softmax(replay._model(tokens[:, :-1]), -1).gather(2, tokens[:, 1:, None])
        assert found[document] == pytest.approx(-losses.mean().item(), abs=1e-5)


def test_another_learning_rate_is_not_the_run(bad):
    replay, data = bad.replay(), bad.data()
    restore, schedule = replay._restore, replay._stateful[2]

    def slower(path):
        restore(path)
        schedule.base_lrs = [1e-3]

    replay._restore = slower
    arms = replayed(data, attribute(data), replay, "slower", (str(BAD),)).replay.suspects[0].contagion
    assert (arms.outcome, arms.arms) == ("not_reproduced", ())
    assert "the learning rate is" in arms.detail


def test_another_order_is_not_the_run(bad):
    other = Ran(bad.folder, dataclasses.replace(bad.settings, order="shuffled"))
    arms = other.replayed(str(BAD)).replay.suspects[0].contagion
    assert arms is None or (arms.outcome, arms.arms) == ("not_reproduced", ())


def test_random_letters_are_odd_data_are_proposed_and_hold_nothing_back(bad, tmp_path):
    found = bad.replayed(str(BAD), "25")
    suspect, clean = found.replay.suspects[:2]
    assert (suspect.direct.outcome, clean.direct.outcome) == ("outlier_data", "not_odd")
    assert max(suspect.direct.checkpoints) < 90
    assert suspect.contagion.outcome != "state_dependent"
    assert suspect.contagion.reproduced == 93 - 60  # from the newest checkpoint that leaves 16 steps before the branch
    assert [one.shard for one in found.proposals] == [BAD]
    text = render_text(found, bad.data(), width=100)
    assert "Odd data: its documents' loss is" in text
    assert "To be proposed: train/p030.jsonl (odd data)." in text
    write_attribution(bad.folder / "run", found)
    file = tmp_path / "list.jsonl"
    options = ["--run", str(bad.folder / "run"), "--manifest", str(bad.folder / "m"), "--who", "ana@example.org"]
    done = CliRunner().invoke(quarantine, ["propose", str(file), *options])
    assert done.exit_code == 0, done.output
    assert "1 entry added, proposed: nothing is left out yet" in done.output
    folded = fold(read(file).entries, today())
    (entry,) = [record.entry for record in folded.records if record.standing == Standing.PROPOSED]
    assert entry.target.uri == f"p{BAD:03d}.jsonl"
    assert entry.evidence.attribution.startswith("sha256:")
    assert "at checkpoints" in entry.evidence.words
    assert not list(folded.standing(Standing.HELD))
    again = CliRunner().invoke(quarantine, ["propose", str(file), *options])
    assert "0 entries added" in again.output


def test_spikes_of_the_state_are_told_as_such(tmp_path):
    """A learning rate that jumps: whatever is read there, the loss of other documents rises."""
    run = ran(tmp_path, world.Settings(jump=(100, 101)))
    found = run.replayed("33")
    assert found.episodes
    assert found.replay.suspects[0].contagion.outcome == "state_dependent"
    assert not found.proposals
