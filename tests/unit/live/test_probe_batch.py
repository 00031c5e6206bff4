"""The frozen batch: numbers against float64, its digest, and a run that keeps its bits."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="its models are torch's")
import restored_loop as loop  # noqa: E402 - after the skip

from dataaudit.base.errors import ConfigError  # noqa: E402
from dataaudit.live import Probe, ProbeBatch  # noqa: E402
from dataaudit.live.state_digests import digests, leaves  # noqa: E402
from dataaudit.vitals.sinks import MemorySink  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _generators():
    with torch.random.fork_rng():
        yield


def run(every, steps=7):
    """Train with or without a probe; return bits of the losses, of all states, and what the sink was given."""
    np.random.seed(3)  # noqa: NPY002 - the loop's own
    own, sink = loop.parts(), MemorySink()
    probe = Probe(loop.batch(), every=every, rows=2, sinks=[sink]) if every else None
    losses = loop.train(own, steps, (lambda step: probe.after_step(step, own["model"])) if every else lambda step: None)
    if probe is not None:
        probe.close()
    return losses, digests(leaves(own)), sink


@pytest.mark.parametrize("every", [1, 3])
def test_a_run_with_the_probe_has_the_bits_of_the_run_without(every):
    """Losses, weights, buffers, moments, schedule, scale and generators; dropout and batch norm are in the model."""
    losses, states, sink = run(every)
    assert (losses, states) == run(0)[:2]
    assert [step for step, metric, *_ in sink.values if metric == "fixed_probe_loss"] == list(range(every, 8, every))
    assert len({value for _, metric, *_, value in sink.values if metric == "fixed_probe_loss"}) == len(sink.values) / 3
    assert {row[2:5] for row in sink.values} == {(-1, -1, "value")}
    assert sink.events == [(every, "probe", {"batch": loop.batch().id, "k": 10, "every": every})]


def test_modes_are_put_back():
    """A frozen part stays in evaluation."""
    model = loop.parts()["model"]
    model[3].eval()
    Probe(loop.batch()).measure(model)
    assert [own.training for own in model] == [True, True, True, False, True, True]
    assert all(own.grad is None for own in model.parameters())


@pytest.mark.parametrize("rows", [1, 2, 64])
def test_numbers_are_those_of_float64(rows):
    """Loss, entropy and mass over targets alone, however many rows pass at a time."""
    draw = np.random.default_rng(0)
    logits = draw.normal(0, 3, (5, 6, 11))
    ids = draw.integers(0, 11, (5, 6))
    labels = np.where(draw.random((5, 6)) < 0.3, -100, draw.integers(0, 11, (5, 6)))
    row = {tuple(own): at for at, own in enumerate(ids.tolist())}
    assert len(row) == 5

    def forward(model, given):
        return type("Output", (), {"logits": torch.tensor(logits[[row[tuple(own)] for own in given.tolist()]])})

    probe = Probe(ProbeBatch(ids, labels), forward=forward, k=3, rows=rows)
    made = probe.measure(torch.nn.Linear(1, 1)).document()
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    kept = [(at, place) for at in range(5) for place in range(6) if labels[at, place] != -100]
    expected = {
        "fixed_probe_loss": np.mean([-np.log(p[at, place, labels[at, place]]) for at, place in kept]),
        "logit_entropy_probe": np.mean([-(p[at, place] * np.log(p[at, place])).sum() for at, place in kept]),
        "topk_mass_probe": np.mean([np.sort(p[at, place])[-3:].sum() for at, place in kept]),
    }
    for name, value in expected.items():
        assert made[name] == pytest.approx(value, rel=1e-6)


def test_a_certain_model_has_no_entropy_and_all_mass():
    """Probabilities of 0 are no NaN; a vocabulary smaller than k has mass 1."""
    batch = ProbeBatch(np.array([[1, 2, 1, 2]]))

    def forward(model, ids):
        return torch.nn.functional.one_hot(3 - ids, 3) * 1e5

    made = Probe(batch, forward=forward).measure(torch.nn.Linear(1, 1)).document()
    assert [made[name] for name in ("fixed_probe_loss", "logit_entropy_probe", "topk_mass_probe")] == [0.0, 0.0, 1.0]


def test_a_model_that_is_not_finite_gives_a_loss_that_is_not():
    model = loop.parts()["model"]
    with torch.no_grad():
        model[4].weight[0, 0] = float("nan")
    assert np.isnan(Probe(loop.batch()).measure(model).document()["fixed_probe_loss"])


def test_a_batch_is_frozen_and_has_its_digest(tmp_path):
    """Written and read it is the same; changed tokens are refused."""
    batch = loop.batch()
    with pytest.raises(ValueError, match="read-only"):
        batch.input_ids[0, 0] = 1
    batch.save(tmp_path / "probe.npz")
    assert ProbeBatch.load(tmp_path / "probe.npz").id == batch.id
    other = batch.input_ids.copy()
    other[2, 3] += 1
    assert ProbeBatch(other).id != batch.id
    assert ProbeBatch(batch.input_ids, np.where(batch.labels == 5, -100, batch.labels)).id != batch.id
    forged = {"labels": batch.labels, "id": np.array(batch.id), "tokenizer": np.array("")}
    np.savez(tmp_path / "forged.npz", input_ids=other, **forged)
    with pytest.raises(ConfigError, match=r"its tokens are sha256:\w+, sha256:\w+ was saved"):
        ProbeBatch.load(tmp_path / "forged.npz")
    for name, data in (("empty", b""), ("text", b"no archive"), ("missing", None)):
        if data is not None:
            (tmp_path / name).write_bytes(data)
        with pytest.raises(ConfigError, match="cannot be read"):
            ProbeBatch.load(tmp_path / name)


def test_rows_of_any_length_are_a_batch(tmp_path):
    """Padding is no target; written and read, rows and tokenizer are the same."""
    rows = [[5, 6, 7], [8, 9], [1, 2, 3, 4]]
    batch = ProbeBatch.of_rows([np.array(row) for row in rows], "sha256:1")
    assert [row.tolist() for row in batch.rows] == rows
    assert batch.labels.tolist() == [[6, 7, -100, -100], [9, -100, -100, -100], [2, 3, 4, -100]]
    batch.save(tmp_path / "rows.npz")
    again = ProbeBatch.load(tmp_path / "rows.npz")
    assert (again.id, again.tokenizer) == (batch.id, "sha256:1")
    assert [len(row) for row in ProbeBatch(batch.input_ids, np.full((3, 4), 1)).rows] == [4, 4, 4]
    for wrong in ([], [np.array([1])]):
        with pytest.raises(ConfigError, match="two tokens or more"):
            ProbeBatch.of_rows(wrong)


@pytest.mark.parametrize("wrong", [[1, 2], [[1]], [[[1, 2]]]])
def test_what_is_no_batch_is_refused(wrong):
    with pytest.raises(ConfigError, match="expected ids"):
        ProbeBatch(np.array(wrong))


def test_a_probe_that_fails_costs_itself():
    """The run goes on, and the sink knows."""
    sink = MemorySink()
    probe = Probe(loop.batch(), every=1, forward=lambda model, ids: 1 / 0, sinks=[sink])
    for step in (1, 2):
        probe.after_step(step, torch.nn.Linear(1, 1))
    probe.close()
    assert [event[1] for event in sink.events] == ["not_seen"]
    assert sink.values == []
    with pytest.raises(ConfigError, match="every, k and rows"):
        Probe(loop.batch(), every=0)
