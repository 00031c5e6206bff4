"""A suite leaves a run's bits alone, goes on where it was killed, and never compares what differs in its artifacts."""

import copy
import json
from types import SimpleNamespace

import numpy as np
import pytest
from reference import probes as reference

torch = pytest.importorskip("torch", reason="models are of torch")
from probe_world import tiny  # noqa: E402

from dataaudit import ConfigError  # noqa: E402
from dataaudit.live import Alerts, ProbeBatch  # noqa: E402
from dataaudit.probes import (  # noqa: E402
    Cloze,
    Contamination,
    Frozen,
    HeldOutLoss,
    Memorization,
    ProbeModel,
    ProbeSuite,
    Tokenizer,
)
from dataaudit.probes.cloze import Item  # noqa: E402
from dataaudit.probes.command import exit_code  # noqa: E402
from dataaudit.probes.report import ProbeReport  # noqa: E402
from dataaudit.runlog.reader import load_run  # noqa: E402
from dataaudit.vitals.sinks import RunLogSink  # noqa: E402

pytestmark = pytest.mark.torch
BYTES = Tokenizer.of_bytes(256)


def batch(rows=6, tokens=20, tokenizer=BYTES.digest):
    draw = np.random.default_rng(0)
    return ProbeBatch.of_rows([draw.integers(0, 256, tokens - row) for row in range(rows)], tokenizer)


def wrapped(module, **more):
    return ProbeModel(module, BYTES, context=32, **more)


def trained(probed, sinks=()):
    """Train for 12 steps; return losses, weights, buffers and random states."""
    model = tiny()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    suite = ProbeSuite([Frozen(batch=batch())], every=3, sinks=sinks)
    held, losses = wrapped(model), []
    for step in range(1, 13):
        ids = torch.randint(0, 256, (4, 16))
        loss = torch.nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        if probed:
            suite.step(held, step)
    draws = torch.rand(3), torch.from_numpy(np.random.random(3))  # noqa: NPY002 - the global generator
    assert model.training
    assert suite.failures == []
    return [*losses, *(value for value in model.state_dict().values()), *draws], suite


def test_a_training_run_has_the_same_bits_with_probes(tmp_path):
    """Dropout, running means and both generators are among what would show."""
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    plain, _ = trained(probed=False)
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    with RunLogSink(tmp_path / "run") as sink:
        own, _ = trained(probed=True, sinks=[sink])
    assert all(torch.equal(a, b) for a, b in zip(plain, own, strict=True))
    table = load_run(tmp_path / "run").table("values")
    steps = {
        step
        for step, name in zip(table["step"].to_pylist(), table["metric"].to_pylist(), strict=True)
        if name == "fixed_probe_loss"
    }
    assert steps == {3, 6, 9, 12}
    assert table["metric"].to_pylist().count("output_kl_to_prev") == 9  # value, low and high, but at the first


def test_a_probe_that_fails_ends_no_run():
    suite = ProbeSuite([Frozen(batch=batch())], every=1)
    assert suite.step(ProbeModel(lambda ids: ids, BYTES, context=32), 1) is None
    assert "ConfigError" in suite.failures[0]


def test_numbers_of_the_frozen_batch_are_those_of_plain_sums():
    first, second = tiny(0).eval(), tiny(1).eval()
    suite = ProbeSuite([Frozen(batch=batch(), top_k=5, stored_k=9)])
    suite.run(wrapped(first), 1)
    report = suite.run(wrapped(second), 2)
    kept = {"loss": [], "entropy": [], "mass": [], "kl": []}
    for row in batch().rows:
        ids = torch.tensor(row)[None]
        with torch.no_grad():
            before, now = (model(ids)[0, :-1].double().tolist() for model in (first, second))
        for at, target in enumerate(row[1:].tolist()):
            kept["loss"].append(reference.cross_entropy(now[at], target))
            kept["entropy"].append(reference.entropy(now[at]))
            kept["mass"].append(reference.top_mass(now[at], 5))
            kept["kl"].append(reference.merged_divergence(now[at], before[at], 9))
    means = {name: np.mean(values) for name, values in kept.items()}
    assert report.get("fixed_probe_loss").value == pytest.approx(means["loss"], rel=1e-6)
    assert report.get("logit_entropy_probe").value == pytest.approx(means["entropy"], rel=1e-6)
    assert report.get("topk_mass_probe").value == pytest.approx(means["mass"], rel=1e-6)
    assert report.get("output_kl_to_prev").value == pytest.approx(means["kl"], rel=1e-5)
    assert report.get("output_kl_to_prev").method == "at_least"
    for percent in (5, 50, 95):
        number = report.get("token_entropy", f"p{percent}")
        assert number.value == pytest.approx(np.quantile(kept["entropy"], percent / 100), rel=1e-6)
        assert number.low <= number.value <= number.high


def test_the_interval_of_a_percentile_covers():
    """Of many rows some are drawn, whose positions belong together."""
    from dataaudit.probes.frozen import _quantile
    from dataaudit.probes.report import Outcome

    random = np.random.default_rng(0)
    level = random.normal(0, 1, 200_000)
    truth = float(np.quantile(level.repeat(5) + random.normal(0, 1, 1_000_000), 0.5))
    covered = 0
    for _ in range(300):
        values = (random.normal(0, 1, 40)[:, None] + random.normal(0, 1, (40, 5))).ravel()
        made = Outcome()
        _quantile(made, values, np.arange(40).repeat(5), 50)
        covered += made.numbers[0].low <= truth <= made.numbers[0].high
    assert 0.91 < covered / 300 < 0.99


def test_a_corrupted_checkpoint_shows_in_the_divergence():
    """One weight in a hundred is another one: beyond what a step of training moves."""
    healthy = tiny().eval()
    stepped, corrupted = copy.deepcopy(healthy), copy.deepcopy(healthy)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in stepped.parameters():
            parameter.add_(1e-3 * torch.randn(parameter.shape, generator=random))
        weight = corrupted.head.weight
        weight[torch.rand(weight.shape, generator=random) < 0.01] = 30.0
    values = {}
    for name, module in (("stepped", stepped), ("corrupted", corrupted)):
        suite = ProbeSuite([Frozen(batch=batch())])
        suite.run(wrapped(healthy), 1)
        values[name] = suite.run(wrapped(module), 2).get("output_kl_to_prev")
    assert values["corrupted"].low > 100 * values["stepped"].high


def test_weights_that_are_not_finite_are_said_so():
    suite = ProbeSuite([Frozen(batch=batch())])
    suite.run(wrapped(tiny().eval()), 1)
    broken = tiny().eval()
    with torch.no_grad():
        broken.head.weight[0, 0] = torch.nan
    report = suite.run(wrapped(broken), 2)
    assert report.get("output_kl_to_prev").reason == "not_finite"
    assert report.document()["numbers"][0]["value"] is None


def test_another_dtype_invalidates_every_comparison(tmp_path):
    suite = ProbeSuite([Frozen(batch=batch())])
    suite.run(wrapped(tiny().eval()), 1, out=tmp_path)
    report = suite.run(wrapped(tiny().bfloat16().eval()), 2, out=tmp_path)
    assert {number.invalid for number in report.numbers} == {("dtype",)}
    assert report.get("output_kl_to_prev").reason == "other_artifacts"


def test_another_tokenizer_invalidates_the_frozen_batch_and_the_held_out_loss(world):
    documents = world.corpus.sample(held_out=True)
    first = ProbeSuite([Frozen(batch=batch()), HeldOutLoss(documents=documents)]).run(wrapped(tiny().eval()), 1)
    other = Tokenizer.of_bytes()
    probes = [Frozen(batch=batch(tokenizer=other.digest)), HeldOutLoss(documents=documents)]
    report = ProbeSuite(probes).run(ProbeModel(tiny().eval(), other, context=32), 2)
    report.compare(first)
    assert report.get("fixed_probe_loss").invalid == ("tokenizer",)
    assert report.get("val_loss").invalid == ("tokenizer", "templates")  # another end token is another template
    assert report.get("val_loss").change is None


def test_another_window_is_another_template(world):
    documents = world.corpus.sample(held_out=True)
    suite = ProbeSuite([HeldOutLoss(documents=documents)])
    suite.run(wrapped(tiny().eval()), 1)
    report = suite.run(ProbeModel(tiny().eval(), BYTES, context=64), 2)
    assert report.get("val_loss").invalid == ("templates",)


class Stops(ProbeModel):
    """Fails after so many calls, as a process that is killed."""

    left = 2

    def scored(self, pairs):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        self.seen = getattr(self, "seen", 0) + len(pairs)
        return super().scored(pairs)


def test_a_run_that_was_killed_goes_on(world, tmp_path, monkeypatch):
    monkeypatch.setattr("dataaudit.probes.held_out.GROUP", 8)
    documents = world.corpus.sample(held_out=True)
    suite = ProbeSuite([HeldOutLoss(documents=documents)])
    killed = Stops(tiny().eval(), BYTES, context=64)
    with pytest.raises(KeyboardInterrupt):
        suite.run(killed, 5, out=tmp_path)
    again = Stops(tiny().eval(), BYTES, context=64)
    again.left = 99
    report = suite.run(again, 5, out=tmp_path)
    whole = ProbeSuite([HeldOutLoss(documents=documents)]).run(ProbeModel(tiny().eval(), BYTES, context=64), 5)
    assert report.get("val_loss").value == whole.get("val_loss").value
    assert killed.seen + again.seen == sum(-(-len(row) // 63) for row in documents.rows)
    assert [path.name for path in (tmp_path / "step-00000005").iterdir() if "partial" in path.name] == []
    assert ProbeReport.load(tmp_path / "step-00000005").get("val_loss").value == report.get("val_loss").value


def test_a_rising_loss_alerts(world, tmp_path):
    """By the shipped rules, through a sink."""
    documents = world.corpus.sample(held_out=True, limit=8)
    messages = []
    with (
        Alerts(tmp_path / "run", deliver=[messages.append]) as alerts,
        RunLogSink(tmp_path / "run", alerts=alerts) as sink,
    ):
        suite = ProbeSuite([HeldOutLoss(documents=documents)], sinks=[sink])
        suite.run(wrapped(tiny().eval()), 10)
        worse = tiny().eval()
        with torch.no_grad():
            worse.head.weight *= 9
        suite.run(wrapped(worse), 20)
    assert {message["rule"] for message in messages} & {"validation_loss", "slice_validation"}


def test_suites_that_make_no_sense_are_refused():
    with pytest.raises(ConfigError, match="different names"):
        ProbeSuite([Frozen(batch=batch()), Frozen(batch=batch())])


def test_a_log_says_what_its_numbers_were_made_with_when_that_changes(tmp_path):
    with RunLogSink(tmp_path / "run", "made") as sink:
        suite = ProbeSuite([Frozen(batch=batch())], every=1, sinks=[sink])
        for step in (1, 2):
            suite.step(wrapped(tiny()), step)
        suite.probes = (Frozen(batch=batch(), top_k=3),)
        suite.step(wrapped(tiny()), 3)
        assert suite.failures == []
    events = load_run(tmp_path / "run").table("events").to_pylist()
    own = [(each["step"], json.loads(each["detail"])) for each in events if each["kind"] == "probed"]
    assert [step for step, _ in own] == [1, 3]
    ((key, artifacts),) = own[0][1]["artifacts"].items()
    assert artifacts["prompts"] == batch().id
    assert key == Frozen(batch=batch()).artifacts(wrapped(tiny())).digest


def test_a_model_of_numbers_that_are_not_finite_has_no_score_at_all():
    """NaN compares as false: it was a share of 0 with an interval, a text without a copy, and exit code 0."""
    tokenizer, draw = Tokenizer.of_bytes(0), np.random.default_rng(0)
    rows = [tuple(draw.integers(1, 250, 130) for _ in range(8)) for _ in range(3)]
    broken = ProbeModel(lambda ids: torch.full((*ids.shape, 257), torch.nan), tokenizer, context=256)
    items = tuple(Item(row[:20], (row[20:40], *(row[at : at + 20] for at in (40, 60, 80)))) for row in rows[0])
    probes = [
        Contamination(sets={"held_out": rows[0], "train": rows[1]}),
        Cloze(items=items),
        Frozen(batch=ProbeBatch.of_rows(rows[2], tokenizer.digest)),
        Memorization(rows=rows[0], sources=["a"] * 8, drawn=np.ones(8, bool), matcher=SimpleNamespace(method="exact")),
    ]
    report = ProbeSuite(probes).run(broken, 1)
    assert exit_code(report) == 4
    assert {own.reason for own in report.numbers if own.metric != "output_kl_to_prev"} == {"not_finite"}
