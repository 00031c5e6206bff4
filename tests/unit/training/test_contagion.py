"""The four arms: every outcome by a run whose law is known, and nothing is decided of what is not the run."""

import numpy as np
import pytest

from dataaudit.training.attribution.run_findings import ArmFound
from dataaudit.training.packing import empty_tags
from dataaudit.training.replay.contagion import Recorded, contagion, decide
from dataaudit.training.replay.protocol import Candidates, Trained, read_by, replaced

SIZE, CONTEXT = 8, 8
"""Documents of a shard, one a row; a step reads one shard."""
STEPS = 120
SUSPECT = 95


class Made:
    """A run whose loss of other documents rises by a law: by the suspects, by a step, or by both together."""

    def __init__(self, *, by="data", checkpoints=range(0, STEPS, 10), documents=4 * STEPS * SIZE):
        self.by, self.checkpoints = by, list(checkpoints)
        number = np.arange(documents)
        self.documents = Candidates(
            shard=number // SIZE,
            row=number % SIZE,
            source=np.zeros(documents, np.int64),
            tokens=np.full(documents, CONTEXT),
            language=np.zeros(documents, np.int64),
        )
        self.state, self.step, self.drift = 0.0, 0, 0.0

    def suspects(self):
        return np.flatnonzero(self.documents.shard == SUSPECT)

    def tokens(self, document):
        return np.append(np.full(CONTEXT - 1, 1 + document), 0)

    def tags(self, step):
        tags = empty_tags(SIZE, 2)
        for row in range(SIZE):
            tags[row, 0] = (step, row, 0, 0, 0, 0, CONTEXT)
        return [tags]

    def batches(self, step):
        own = np.stack([self.tokens(step * SIZE + row) for row in range(SIZE)])
        return [{"input_ids": own.copy(), "labels": own.copy(), "tags": self.tags(step)[0]}]

    def restore(self, step):
        self.state, self.step = 0.0, step

    def save(self):
        return self.state, self.step

    def load(self, saved):
        self.state, self.step = saved

    def train(self, step, batches):
        self.step = step
        bad = np.isin(batches[0]["input_ids"] - 1, self.suspects()).any()
        here = step == SUSPECT
        rises = {"data": bad, "step": here, "both": bad and here, "nothing": False}[self.by]
        self.state += float(rises)
        return Trained(loss=3.0 + self.state + 0.01 * np.sin(step) + self.drift)

    def score(self, documents):
        return np.full(len(documents), 3.0 + self.state + 0.001 * np.sin(self.step))


def recorded(made):
    """Return what the log of a run says of it."""
    made.restore(0)
    loss = {step: made.train(step, made.batches(step)).loss for step in range(1, STEPS)}
    documents = {step: read_by(made, step) for step in range(1, STEPS, 3)}
    return Recorded(loss=loss, documents=documents, values={})


EPISODE = (95, 100)


@pytest.mark.parametrize(
    ("by", "outcome", "arms"),
    [
        ("nothing", "not_contagious", "A"),
        ("step", "state_dependent", "ABBB"),
        ("data", "data_intrinsic", "ABBBCDCDCD"),
        ("both", "interaction", "ABBBCDCDCD"),
    ],
)
def test_every_outcome(by, outcome, arms):
    made = Made(by=by)
    found = contagion(made, recorded(made), made.suspects(), EPISODE)
    assert found.outcome == outcome
    assert "".join(one.arm for one in found.runs) == arms
    assert (found.branch, found.last, found.suspects, found.held) == (86, 100, SIZE, 64)
    assert found.reproduced == 100 - 70
    assert len({one.checkpoint for one in found.runs if one.arm in "CD"}) == arms.count("C")


def test_the_interval_is_over_draws_and_checkpoints():
    made = Made()
    found = contagion(made, recorded(made), made.suspects(), EPISODE)
    arms = {one.arm: one for one in found.arms}
    low, high = arms["C"].interval
    assert low <= arms["C"].rise <= high
    assert arms["C"].rise > 1
    assert arms["A"].interval is None


def test_a_run_that_differs_decides_nothing_and_says_what():
    made = Made()
    log = recorded(made)
    made.drift = 1e-12
    found = contagion(made, log, made.suspects(), EPISODE)
    assert (found.outcome, found.arms, found.reproduced) == ("not_reproduced", (), 0)
    assert "the loss of step 71 is" in found.detail
    assert "the weights, the random numbers or the arithmetic differ" in found.detail


@pytest.mark.parametrize("step", [71, 94])  # the first behind the checkpoint, and another
def test_other_documents_than_the_logs_are_said(step):
    made = Made()
    log = recorded(made)
    log.documents[step] = np.array([1, 2])
    found = contagion(made, log, made.suspects(), EPISODE)
    assert found.outcome == "not_reproduced"
    assert f"step {step} of the replay reads other documents" in found.detail


def test_a_log_without_the_loops_loss_decides_nothing():
    made = Made()
    found = contagion(made, Recorded(loss={}, documents={}, values={}), made.suspects(), EPISODE)
    assert (found.outcome, found.detail[:30]) == ("not_reproduced", "the log has no loss of the loo")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"checkpoints": [90]}, "no checkpoint is 10 steps or more before step 86"),
        ({"documents": (STEPS + 1) * SIZE}, ""),
    ],
)
def test_what_cannot_be_tried_is_said(change, says):
    made = Made(**change)
    found = contagion(made, recorded(made), made.suspects(), EPISODE)
    assert says in found.detail


def test_controls_are_of_other_shards_and_of_other_languages_where_there_is_none_else():
    """A suspect block's shard has as many documents again, and is the only one of its language."""
    made = Made()
    others = np.arange(STEPS * SIZE, 4 * STEPS * SIZE - 40 * SIZE)
    made.documents.shard[others] = SUSPECT
    made.documents.row[others] = SIZE + np.arange(len(others))
    own = np.arange(SUSPECT * SIZE, SUSPECT * SIZE + SIZE)
    log, seen = recorded(made), []
    batches = made.train

    def train(step, given):
        seen.append((step, given[0]["input_ids"].copy()))
        return batches(step, given)

    made.suspects = lambda: own
    made.train = train
    for language in (0, 7):
        made.documents.language[own] = language
        found = contagion(made, log, own, EPISODE)
        assert found.outcome == "data_intrinsic"
        assert ("another source or language" in found.detail) == bool(language)
    met = {int(one) for step, given in seen if step == SUSPECT for one in np.unique(given[given > 0] - 1)}
    assert not met & set(others.tolist())


def test_suspects_that_the_window_does_not_read():
    made = Made()
    found = contagion(made, recorded(made), np.flatnonzero(made.documents.shard == 20), EPISODE)
    assert (found.outcome, found.detail) == ("not_evaluated", "steps 87 to 100 read none of the suspects")


def test_too_few_other_checkpoints_are_inconclusive():
    made = Made(checkpoints=[50])
    found = contagion(made, recorded(made), made.suspects(), EPISODE)
    assert (found.outcome, found.detail) == ("inconclusive", "0 other checkpoints can be gone on from, 3 are needed")


def arms(**spikes):
    """Return runs of arms that have a spike or none: A="1", B="110"."""
    return [
        ArmFound(arm=arm, checkpoint=0, draw=None, rise=float(one), band=0.5, spike=one == "1", losses=())
        for arm, held in spikes.items()
        for one in held
    ]


@pytest.mark.parametrize(
    ("spikes", "outcome"),
    [
        ({"A": "0"}, "not_contagious"),
        ({"A": "1", "B": "111"}, "state_dependent"),
        ({"A": "1", "B": "101"}, "inconclusive"),
        ({"A": "1", "B": "000", "C": "11", "D": "00"}, "inconclusive"),
        ({"A": "1", "B": "000", "C": "111", "D": "000"}, "data_intrinsic"),
        ({"A": "1", "B": "000", "C": "000", "D": "000"}, "interaction"),
        ({"A": "1", "B": "000", "C": "110", "D": "000"}, "inconclusive"),
        ({"A": "1", "B": "000", "C": "111", "D": "010"}, "inconclusive"),
    ],
)
def test_what_arms_mean(spikes, outcome):
    assert decide(arms(**spikes))[0] == outcome


@pytest.mark.parametrize("outer", [True, False])
def test_replaced_documents_leave_all_others_where_they_are(outer):
    """Two documents in a row of 6 labels, the second one replaced; the first label of an outer row is token 1."""
    made = Made(documents=32)
    tags = empty_tags(1, 3)
    tags[0, 0] = (0, 1, 0, 0, 0, 5 if outer else 4, 3)
    tags[0, 1] = (0, 2, 0, 0, 3, 0, 3)
    made.tokens = lambda document: np.arange(CONTEXT) + 100 * document
    stream = np.concatenate([made.tokens(1)[4:], made.tokens(2)])
    labels = stream[1:7] if outer else np.concatenate([stream[:3], stream[4:7]])
    inputs = stream[:6] if outer else labels
    tags[0, 0, 5] = 5 if outer else 4
    batch = {"input_ids": inputs[None].copy(), "labels": labels[None].copy(), "tags": tags, "more": 1}
    found = replaced(made, batch, {2: (9,)})
    new = made.tokens(9)[:3]
    assert found["labels"][0].tolist() == [*labels[:3], *new]
    assert found["input_ids"][0].tolist() == ([*inputs[:4], *new[:2]] if outer else [*inputs[:3], *new])
    assert (batch["labels"][0] == labels).all()
    assert found["more"] == 1
