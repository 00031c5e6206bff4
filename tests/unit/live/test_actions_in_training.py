"""Actions in a real run of torch: the learning rate, sampling, quarantine, and that no bit changes without them."""

import json
import math
from itertools import islice
from pathlib import Path

import pytest
from live_logs import file_of
from made_corpus import MadeCorpus
from test_actions import Checkpoints, Kept

from dataaudit.base.errors import ConfigError
from dataaudit.live import Actions, Alerts, LowerRate, ProposeQuarantine, RaiseSampling, SkipBatches, Stop, StopRun

TESTS = Path(__file__).parents[2]
pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
HIGH = {"name": "high", "metric": "loss", "threshold": {"above": 9}, "group": "loss"}


def weight_and(kind, **how):
    """Return a parameter with a gradient, and an optimizer of it."""
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.tensor([1.0, 2.0, -1.0])
    return weight, kind([weight], **how)


SCHEDULES = {
    "closed": lambda own: torch.optim.lr_scheduler.LambdaLR(own, lambda step: 1 / (1 + step)),
    "recursive": lambda own: torch.optim.lr_scheduler.ExponentialLR(own, 0.9),
    "restarts": lambda own: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(own, 5),
    "one cycle": lambda own: torch.optim.lr_scheduler.OneCycleLR(own, 0.1, total_steps=40),
    "constant": lambda own: torch.optim.lr_scheduler.ConstantLR(own, 1.0, 0),
}


@pytest.mark.parametrize("lr", [0.1, torch.tensor(0.1)], ids=["float", "tensor"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_lowered_rate_is_a_factor_of_whatever_the_schedule_sets(tmp_path, schedule, lr):
    """Seen by the step and by whoever reads it in a hook; undone, not a bit of the schedule is another."""

    def rates(act):
        _, optimizer = weight_and(torch.optim.AdamW, lr=lr.clone() if hasattr(lr, "clone") else lr)
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
        lower = LowerRate(optimizer, 0.5) if act else None
        seen, after = [], []
        optimizer.register_step_pre_hook(lambda own, *_: seen.append([float(item["lr"]) for item in own.param_groups]))
        optimizer.register_step_post_hook(lambda own, *_: after.append(float(own.param_groups[0]["lr"])))
        plan = SCHEDULES[schedule](optimizer)
        actions = Actions(tmp_path, *([lower] if act else []))
        for step in range(1, 31):
            optimizer.step()
            plan.step()
            if act and step in {10, 15, 20}:
                actions.do("lower_rate", undo=step == 20)
        assert [own[0] for own in seen] == after
        return seen, optimizer.param_groups[0]["lr"], optimizer

    plain, last, _ = rates(act=False)
    lowered, last_lowered, optimizer = rates(act=True)
    factors = [0.25 if 15 <= step < 20 else 0.5 if 10 <= step < 15 else 1.0 for step in range(30)]
    for each, own, factor in zip(lowered, plain, factors, strict=True):
        assert each == pytest.approx([rate * factor for rate in own])
    assert [each for each, factor in zip(lowered, factors, strict=True) if factor == 1.0] == [
        each for each, factor in zip(plain, factors, strict=True) if factor == 1.0
    ]
    assert float(last) == float(last_lowered)
    assert "lr" in optimizer.state_dict()["param_groups"][0]


def test_a_step_that_raises_leaves_no_lowered_rate(tmp_path):
    """The next one begins from the schedule's."""
    _, optimizer = weight_and(torch.optim.SGD, lr=1.0)
    actions, seen = Actions(tmp_path, LowerRate(optimizer, 0.5)), []
    actions.do("lower_rate")
    fails = optimizer.register_step_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        optimizer.step()
    fails.remove()
    optimizer.register_step_pre_hook(lambda own, *_: seen.append(own.param_groups[0]["lr"]))
    optimizer.step()
    assert seen == [0.5]
    assert optimizer.param_groups[0]["lr"] == 1.0


def test_the_factor_goes_on_from_a_checkpoint(tmp_path):
    """Also where the action is handed over after the state."""
    _, optimizer = weight_and(torch.optim.SGD, lr=1.0)
    actions = Actions(tmp_path, LowerRate(optimizer, 0.1))
    actions.do("lower_rate")
    state = json.loads(json.dumps(actions.state_dict()))
    again = Actions(tmp_path)
    again.load_state_dict(state)
    weight, optimizer = weight_and(torch.optim.SGD, lr=1.0)
    again.hand_over(LowerRate(optimizer, 0.1))
    optimizer.step()
    assert weight[0].item() == pytest.approx(0.9)
    assert again.rate_factor == 0.1
    for wrong in ({"factor": 2.0}, {"factor": "x"}, {}):
        state["actions"]["lower_rate"] = wrong
        with pytest.raises(ConfigError, match="does not fit"):
            Actions(tmp_path, LowerRate(optimizer, 0.1)).load_state_dict(state)


def test_a_wrapped_optimizer_is_found_and_no_second_action_lowers_it(tmp_path):
    """Accelerate's wrapper is an optimizer without hooks of its own."""

    class Wrapper(torch.optim.Optimizer):
        def __init__(self, optimizer):
            self.optimizer = optimizer

        def step(self):
            self.optimizer.step()

    weight, optimizer = weight_and(torch.optim.SGD, lr=1.0)
    wrapper = Wrapper(optimizer)
    actions = Actions(tmp_path, LowerRate([wrapper], 0.25))
    actions.do("lower_rate")
    wrapper.step()
    assert weight[0].item() == 0.75
    with pytest.raises(ConfigError, match="`other` is the second"):
        actions.hand_over(LowerRate(optimizer, 0.5, name="other"))
    for wrong in (None, "adam", [optimizer, 3]):
        with pytest.raises(ConfigError, match="expected an optimizer of torch"):
            LowerRate(wrong)


@pytest.mark.parametrize("explained", [True, False])
def test_vitals_take_the_factor_for_no_jump(tmp_path, monkeypatch, explained):
    """A tenth of the rate is an alarm where nobody explains it."""
    monkeypatch.syspath_prepend(str(TESTS / "unit/vitals"))
    from vitals_models import Mapped

    from dataaudit.vitals import Mapping, MemorySink, Vitals, VitalsConfig

    torch.manual_seed(0)
    model, sink = Mapped(), MemorySink()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    config = VitalsConfig(mapping=Mapping(layers="blocks", attention="attention", heads=4, mlp="mlp"))
    ids = torch.randint(0, 16, (2, 8))
    with Vitals(model, optimizer, config, [sink]) as vitals:
        lower = LowerRate(optimizer, 0.1, vitals=vitals if explained else None)
        actions = Actions(tmp_path, lower, RaiseSampling(vitals, 4), sink=sink)
        for step in range(1, 21):
            with vitals.step():
                optimizer.zero_grad()
                model(ids).square().mean().backward()
                optimizer.step()
            actions.between_steps(step)
            if step == 10:
                actions.do("lower_rate")
                actions.do("raise_sampling")
    jumps = [detail for _, kind, detail in sink.events if kind == "alarm" and detail["rule"] == "rate"]
    assert bool(jumps) != explained
    escalated = [detail for _, kind, detail in sink.events if kind == "cadence" and detail["what"] == "escalation"]
    assert (escalated[-1]["first"], escalated[-1]["last"]) == (11, 14)
    done = [(step, own["action"], own["result"]) for step, kind, own in sink.events if kind == "action"]
    assert done == [(10, "lower_rate", "done"), (10, "raise_sampling", "done")]
    actions.do("raise_sampling")
    assert actions.records[-1]["result"] in {"done", "refused"}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Rows of a corpus that was opened, packed; and the corpus."""
    from dataaudit.training.documents import Documents, byte_encoder
    from dataaudit.training.packing import PackedDocuments

    corpus = MadeCorpus(tmp_path_factory.mktemp("corpus")).open()
    return PackedDocuments(Documents(corpus, "train", byte_encoder(end=0)), 64, epochs=3), corpus


def train(rows, folder, rules=(), hand=None, steps=24, bad=12, state=None, shock=8.0):
    """Train a bigram model, one document of a batch of which has a high loss; return what decides a run, in bits."""
    from torch.nn import functional

    from dataaudit.training.monitor import TrainingMonitor

    packed, corpus = rows
    torch.manual_seed(0)
    model = torch.nn.Embedding(256, 256)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    actions = None if hand is None else Actions(folder, *hand(optimizer))
    losses, batches = [], []
    if state is not None:
        actions.load_state_dict(state["actions"])
    alerts = Alerts(folder, file_of(*rules), actions=actions) if rules else None
    saved = None if state is None else state["monitor"]
    with TrainingMonitor(folder, corpus, alerts=alerts, optimizer=optimizer, state=saved) as monitor:
        feed = torch.utils.data.DataLoader(packed, 16, drop_last=True)
        feed = iter(feed) if actions is None else actions.loader(islice(feed, actions.batches_read, None))
        for step in range(monitor.steps + 1, steps + 1):
            batch = next(feed)
            batches.append(batch["input_ids"].numpy().tobytes())
            optimizer.zero_grad()
            logits = model(batch["input_ids"])
            each = functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
            each = each.view_as(batch["labels"])
            each.mean().backward()
            optimizer.step()
            if step == bad:
                each = each.detach()
                each[3] += shock  # what the log sees of a row
            monitor.batch(batch["tags"], losses=each.detach(), labels=batch["labels"])
            if alerts is not None and step == bad:
                monitor._thread.sync()
            monitor.step(each.mean() + (shock if step == bad else 0))
            if alerts is not None and step == bad:
                monitor._thread.sync()
                wait_for(alerts, actions)
            losses.append(each.mean().detach().numpy().tobytes())
            if actions is not None and actions.should_stop:
                break
        kept = {"monitor": monitor.state_dict(), "actions": None if actions is None else actions.state_dict()}
    if alerts is not None:
        alerts.close()
        assert not alerts.failures
    bits = (losses, model.weight.detach().numpy().tobytes(), torch.get_rng_state().numpy().tobytes())
    return bits, batches, actions, kept


def wait_for(alerts, actions):
    """Wait until the alert is there, in the way of a loop whose next step takes a second."""
    import time

    until = time.monotonic() + 20
    while not alerts.response.incidents.all or (actions is not None and actions._handed and not actions._asked):
        assert time.monotonic() < until, "no alert came"
        time.sleep(0.01)


def test_no_bit_changes_where_no_action_was_handed_over(rows, tmp_path):
    """Alerts that name actions, actions that no rule names, and none at all."""
    plain = train(rows, tmp_path / "plain")
    named = train(rows, tmp_path / "named", [{**HIGH, "actions": ["lower_rate", "skip_batches", "stop"]}])
    empty = train(rows, tmp_path / "empty", [{**HIGH, "actions": ["lower_rate", "stop"]}], lambda _: ())
    assert plain[0] == named[0] == empty[0]
    assert plain[1] == named[1] == empty[1]
    handed = lambda own: (LowerRate(own), SkipBatches(2), Stop())  # noqa: E731
    actions = train(rows, tmp_path / "handed", (), handed)
    assert actions[0] == plain[0]
    assert not actions[2].records


def test_an_alert_changes_a_run_as_it_was_handed_over_and_a_resume_goes_on(rows, tmp_path):
    """The rate, the batches, the stop; the log knows the batches that were skipped, and no jump of the rate."""
    from dataaudit.runlog.reader import load_run

    rule = {**HIGH, "actions": ["lower_rate", "skip_batches", "propose_quarantine", "stop"]}
    hand = lambda own: (LowerRate(own, 0.1), SkipBatches(2), ProposeQuarantine(), Stop())  # noqa: E731
    plain = train(rows, tmp_path / "plain", steps=32)
    _, batches, actions, state = train(rows, tmp_path / "run", [rule], hand)
    done = [(own["action"], own["result"], own["step"]) for own in actions.records]
    assert done == [
        ("lower_rate", "done", 13),
        ("skip_batches", "done", 13),
        ("propose_quarantine", "done", 13),
        ("stop", "done", 13),
    ]
    assert batches == plain[1][:13]
    assert state["monitor"]["rates"]["factor"] == 1.0  # of the last step that was done
    (proposed,) = (json.loads(line) for line in (tmp_path / "run/actions/quarantine.jsonl").read_text().splitlines())
    assert proposed["action"] == "propose"
    assert proposed["evidence"]["value"] > proposed["evidence"]["limit"] > 4
    assert proposed["evidence"]["rule"] == "high"
    _, again, actions, _ = train(rows, tmp_path / "run", [rule], hand, steps=24, bad=18, state=state)
    assert again == plain[1][15:26]  # batches 14 and 15 are skipped
    assert actions.rate_factor == 0.1
    assert [own["batch"] for own in actions.records if own["result"] == "skipped"] == [14, 15]
    assert all(own["documents"] for own in actions.records if own["result"] == "skipped")
    events = load_run(tmp_path / "run").table("events").to_pylist()
    kinds = [own["kind"] for own in events]
    assert "learning_rate_jump" not in kinds
    logged = [json.loads(own["detail"]) for own in events if own["kind"] == "action"]
    assert [own["action"] for own in logged if own["result"] == "done"][:4] == [own[0] for own in done]
    rates = load_run(tmp_path / "run").table("values").to_pylist()
    rates = {own["step"]: own["value"] for own in rates if own["metric"] == "learning_rate"}
    assert {step: rate for step, rate in rates.items() if step <= 13} == dict.fromkeys(range(1, 14), 1e-3)
    assert all(math.isclose(rate, 1e-4) for step, rate in rates.items() if step > 13)


def test_a_run_that_goes_on_without_the_factor_is_a_jump(rows, tmp_path):
    """The rate was lowered when the checkpoint was saved."""
    from dataaudit.training.optimizer_watch import RateWatch

    state = {"rates": [1e-4] * 4, "schedule": None, "factor": 0.1}
    assert RateWatch(state, None, lambda: 0.1).see(1e-4) is None
    assert RateWatch(state, None, lambda: 1.0).see(1e-3) is None  # undone, and known
    assert RateWatch(state, None, lambda: 0.1).see(1e-3)["after"] == 1e-3


def test_a_stop_that_raises_is_no_failure_of_the_run(rows, tmp_path):
    """The log has it as `stopped`."""
    from dataaudit.runlog.reader import load_run

    with pytest.raises(StopRun, match="high: loss is"):
        train(rows, tmp_path / "run", [{**HIGH, "actions": "stop"}], lambda _: (Stop(raises=True),))
    kinds = [own["kind"] for own in load_run(tmp_path / "run").table("events").to_pylist()]
    assert "stopped" in kinds
    assert "failed" not in kinds


def test_the_python_of_the_page_runs(rows, tmp_path, monkeypatch):
    """Its rule stops a run whose loss becomes NaN, and the rollback is prepared."""
    import re
    import time

    monkeypatch.syspath_prepend(str(TESTS / "unit/vitals"))
    from torch.nn.functional import cross_entropy
    from vitals_models import Mapped

    from dataaudit.training.monitor import TrainingMonitor
    from dataaudit.vitals import Vitals

    monkeypatch.chdir(tmp_path)
    page = (TESTS.parent / "docs/live/actions.md").read_text("utf-8")
    (rules,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    Path("alerts.yaml").write_text(f"version: 1\n{rules}")
    loop, ranks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    packed, corpus = rows
    model = Mapped()
    model.embedding, model.head = torch.nn.Embedding(256, 64), torch.nn.Linear(64, 256, bias=False)

    def loader():
        for number, batch in enumerate(torch.utils.data.DataLoader(packed, 4), 1):
            if number == 5:
                with torch.no_grad():
                    model.head.weight[0, 0] = math.nan
            time.sleep(0.5 if number > 5 else 0)  # what a step of a larger model takes
            yield batch

    names = {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), 1e-3), "corpus": corpus}
    names |= {"loader": loader(), "checkpoints": Checkpoints([Kept(2)]), "cross_entropy": cross_entropy}
    names |= {"TrainingMonitor": TrainingMonitor, "Vitals": Vitals, "rank": 0, "world_size": 1, "port": 0}
    exec(compile(loop, "loop", "exec"), names)  # noqa: S102  (our own page, docs/live/actions.md)
    assert names["actions"].should_stop
    assert names["checkpoints"].protected == {2}
    (record,) = Path("runs/7b/actions").glob("rollback-*.json")
    assert json.loads(record.read_text())["command"] == "sbatch resume.sh checkpoints/x"
    names["vitals"].close()
    exec(compile(ranks, "ranks", "exec"), names | {"host": "127.0.0.1"})  # noqa: S102
