"""Actions in small loops: what is done, what is not, what a resumed run knows."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from live_logs import Run, file_of

from dataaudit.base.errors import ConfigError
from dataaudit.cli import main
from dataaudit.live import (
    Actions,
    Agreement,
    Alerts,
    Asked,
    Call,
    Pause,
    PrepareRollback,
    ProposeCanary,
    ProtectLastGood,
    SaveCheckpoint,
    SkipBatches,
    Stop,
    StopRun,
)
from dataaudit.live.agreement import Due
from dataaudit.live.proposals import _outliers
from dataaudit.live.watch import Watch


@dataclass
class Kept:
    """A checkpoint."""

    step: int
    good: bool = True
    path: Path = Path("checkpoints/x")


@dataclass
class Checkpoints:
    """Checkpoints in memory."""

    kept: list[Kept] = field(default_factory=list)
    protected: set[int] = field(default_factory=set)

    @property
    def latest(self):
        return self.kept[-1] if self.kept else None

    @property
    def last_good(self):
        return next((own for own in self.kept[::-1] if own.good), None)

    def list(self):
        return self.kept

    def save(self, step):
        self.kept.append(Kept(step, good=False))

    def protect(self, at):
        self.protected.add(at)

    def unprotect(self, at):
        self.protected.discard(at)


class Loop:
    """A loop with a run log and alerts, that ends its steps one by one.

    Args:
        folder: Of the run log.
        rules: That judge.
        actions: That are handed over.
    """

    def __init__(self, folder, rules, actions, first=1):
        self.alerts = Alerts(folder, file_of(*rules), actions=actions)
        self.came = self.judged = 0
        put, judge = self.alerts.take, self.alerts._take

        def take(table, columns):
            self.came += table in {"steps", "values", "events"}
            put(table, columns)

        def judged(*item):
            judge(*item)
            self.judged += 1

        self.alerts.take, self.alerts._take = take, judged
        self.run, self.actions = Run(folder, alerts=self.alerts, first=first), actions
        if actions is not None:
            actions.joins(0, 1, self)

    def add_event(self, step, kind, detail):
        """Take an event as a monitor does."""
        assert step == self.run.step
        self.run.happen(kind, **detail)

    def end_step(self, **values):
        """End a step, wait until it is judged, and do what was asked for."""
        self.run.end_step(**values)
        until = time.monotonic() + 20
        while self.judged < self.came:
            assert time.monotonic() < until, "rows are not judged"
            time.sleep(0.001)
        if self.actions is not None:
            self.actions.between_steps(self.run.step)

    def close(self):
        """End it; nothing failed."""
        self.run.close()
        self.alerts.close()
        assert not self.alerts.failures


def results(actions):
    """Return what became of requests."""
    return [(own["action"], own["result"]) for own in actions.records]


NAN = {"name": "nan", "metric": "loss", "not_finite": True, "severity": 0}
HIGH = {"name": "high", "metric": "loss", "threshold": {"above": 5}, "cool_down": 3}


def test_a_rule_has_done_what_it_names_and_was_handed_over(tmp_path):
    """In order, at the end of the step; the log, the incident's folder and the message say so."""
    checkpoints, said = Checkpoints([Kept(10), Kept(20, good=False), Kept(30)]), []
    actions = Actions(tmp_path, ProtectLastGood(checkpoints), Stop(), Call("drain", lambda asked: f"for {asked.rule}"))
    loop = Loop(tmp_path, [{**NAN, "actions": ["protect_last_good", "drain", "pause", "stop"]}], actions)
    loop.alerts.response.boxes.put = said.append
    for step in range(1, 26):
        loop.end_step(loss=float("nan") if step == 25 else 3.0)
        assert actions.should_stop == (step == 25)
    loop.close()
    assert checkpoints.protected == {10}  # the one of step 30 is newer than the NaN, the one of step 20 is not good
    assert results(actions) == [("protect_last_good", "done"), ("drain", "done"), ("stop", "done")]
    assert actions.stop_reason.startswith("nan: loss is nan")
    becomes = dict.fromkeys(("protect_last_good", "drain", "stop"), "at the next step")
    assert said[0].facts["actions"] == {**becomes, "pause": "not handed over"}
    assert "Action pause: not handed over" in said[0].lines
    assert [own.facts["news"].partition("-")[0] for own in said] == ["opened", "acted"]
    assert said[1].title.startswith("SEV0 the run acted: nan at step 25")
    stopped = "Action stop: done at step 25: the run should stop"
    assert any(line.startswith(stopped) for line in said[1].lines), said[1].lines
    folder = tmp_path / "alerts/step00000025-nan"
    records = [json.loads(line) for line in (folder / "actions.jsonl").read_text().splitlines()]
    assert [(own["action"], own["result"], own["step"], own["rank"], own["rule"]) for own in records] == [
        (name, "done", 25, 0, "nan") for name in ("protect_last_good", "drain", "stop")
    ]
    assert {own["incident"] for own in records} == {folder.name}
    assert records[1]["words"] == "for nan"
    logged = [own for own in loop.alerts.response.feed.kept.of("events") if "action" in own.columns["kind"]]
    assert len(logged) == 3
    actions.do("protect_last_good", undo=True)
    actions.do("stop", undo=True)
    assert not checkpoints.protected
    assert not actions.should_stop


def test_nothing_is_done_that_was_not_handed_over_or_not_named(tmp_path):
    """A rule without `actions`, and actions without a rule."""
    called = []
    actions = Actions(tmp_path, Call("drain", called.append))
    loop = Loop(tmp_path, [NAN, {**HIGH, "actions": "stop"}], actions)
    for loss in (3.0, 9.0, float("nan")):
        loop.end_step(loss=loss)
    loop.close()
    assert not called
    assert not actions.should_stop
    assert not actions.records
    with pytest.raises(ConfigError, match=r"`stop` was not handed over \(handed over: drain\)"):
        actions.do("stop")


def test_a_watch_only_suggests(tmp_path):
    """It judges the same rules in another process, where nothing can be done."""
    rule = {**NAN, "actions": ["stop", "pause"]}
    loop = Loop(tmp_path, [rule], None)
    loop.end_step(loss=float("nan"))
    loop.close()
    watch = Watch(tmp_path, file_of(rule), send=False)
    watch.look()
    watched = watch.close()
    assert watched.incidents[0]["actions"] == {"stop": "suggested", "pause": "suggested"}


def test_a_watch_sends_what_the_run_did(tmp_path):
    """By the run's log, where the run itself sends nothing: here it is known when the alert is judged."""
    rule, said = {**NAN, "actions": "stop"}, []
    loop = Loop(tmp_path, [rule], Actions(tmp_path, Stop()))
    loop.end_step(loss=float("nan"))
    loop.close()
    watch = Watch(tmp_path, file_of(rule), send=False)
    watch.response.boxes.put = said.append
    watch.look()
    (message,) = said
    assert message.facts["actions"] == {"stop": "done at step 1: the run should stop after step 1"}
    watch.close()


def test_a_pause_whose_store_is_gone_ends_as_configured(tmp_path):
    """Nobody could resume it."""
    agreement = Agreement(Silent(0, RuntimeError("gone")), 0, 2, timeout=0.3)
    actions = Actions(tmp_path, Pause(if_missing="pause", afterwards="stop"), agreement=agreement)
    words = Pause(if_missing="pause", afterwards="stop").perform(Due(Asked(action="pause", step=1), "x", ()), actions)
    assert words.startswith("the store of the ranks does not answer (RuntimeError at ")
    assert actions.should_stop


def test_what_the_end_of_the_loop_left_undone_is_recorded(tmp_path):
    """No step followed in which it could be done."""
    actions = Actions(tmp_path, Stop())
    loop = Loop(tmp_path, [{**NAN, "actions": "stop"}], None)
    loop.alerts.response._actions = loop.alerts.actions = actions
    loop.end_step(loss=float("nan"))
    loop.close()
    assert [(own["result"], own["words"]) for own in actions.records] == [("abandoned", "the loop ended before")]
    assert (tmp_path / "alerts/step00000001-nan/actions.jsonl").exists()


def test_a_failure_costs_itself_and_a_cool_down_holds(tmp_path):
    """Within it nothing is done again for a further incident, and the record says why."""
    seen = []

    def fails(asked):
        seen.append(asked.step)
        raise ZeroDivisionError

    actions = Actions(tmp_path, Call("bad", fails, cool_down=20), Call("good", seen.append, at_most=1, cool_down=1))
    loop = Loop(tmp_path, [{**HIGH, "actions": ["bad", "good"]}], actions)
    for step in range(1, 41):
        loop.end_step(loss=9.0 if step in {5, 15, 35} else 3.0)
    loop.close()
    assert [own for own in seen if isinstance(own, int)] == [5, 35]
    assert results(actions) == [
        ("bad", "failed"),
        ("good", "done"),
        ("bad", "refused"),
        ("good", "refused"),
        ("bad", "failed"),
        ("good", "refused"),
    ]
    words = [own["words"] for own in actions.records]
    assert words[0].startswith("ZeroDivisionError at test_actions.py:")
    assert words[2:4] == ["it was done at step 5, and cools down for 20 steps", "rules had it done 1 times"]


def test_what_was_refused_has_no_cool_down(tmp_path):
    """No checkpoint was there for the first incident; that of the second is protected."""
    checkpoints = Checkpoints()
    actions = Actions(tmp_path, ProtectLastGood(checkpoints))
    loop = Loop(tmp_path, [{**HIGH, "actions": "protect_last_good"}], actions)
    for step in range(1, 31):
        checkpoints.kept += [Kept(10)] if step == 10 else []
        loop.end_step(loss=9.0 if step in {5, 25} else 3.0)
    loop.close()
    assert results(actions) == [("protect_last_good", "refused"), ("protect_last_good", "done")]
    assert checkpoints.protected == {10}


def test_a_resumed_run_lets_go_of_the_checkpoint_that_the_start_before_protected(tmp_path):
    checkpoints = Checkpoints([Kept(10)])
    actions, again = (Actions(tmp_path, ProtectLastGood(checkpoints)) for _ in range(2))
    actions.do("protect_last_good")
    again.load_state_dict(json.loads(json.dumps(actions.state_dict())))
    again.do("protect_last_good", undo=True)
    assert results(again) == [("protect_last_good", "done")]
    assert not checkpoints.protected


def test_a_resumed_run_does_not_do_it_twice(tmp_path):
    """What was done, cool-downs, what is left to skip and the position come from the checkpoint."""
    actions = Actions(tmp_path, Stop(), SkipBatches(5))
    loop = Loop(tmp_path, [{**HIGH, "actions": ["skip_batches", "stop"]}], actions)
    feed = actions.loader(range(100))
    read = []
    for step in range(1, 11):
        read.append(next(feed))
        loop.end_step(loss=9.0 if step == 8 else 3.0)
        if step == 9:
            state = json.loads(json.dumps(actions.state_dict()))
    loop.close()
    assert read == [0, 1, 2, 3, 4, 5, 6, 7, 13, 14]
    assert [(own["batch"], own["step"]) for own in actions.records if own["result"] == "skipped"] == [
        (number, 8) for number in range(9, 14)
    ]
    assert state["batches_read"] == 14
    again = Actions(tmp_path, Stop())
    again.load_state_dict(state)
    again.hand_over(SkipBatches(5))  # later than the state
    assert not again.should_stop
    loop = Loop(tmp_path, [{**HIGH, "actions": ["skip_batches", "stop"]}], again, first=10)
    feed = again.loader(range(again.batches_read, 100))
    assert next(feed) == 14
    loop.end_step(loss=9.0)
    loop.close()
    assert results(again) == [("skip_batches", "refused"), ("stop", "refused")]
    assert not again.should_stop


def test_what_is_left_to_skip_is_skipped_after_a_resume(tmp_path):
    """The state is of a checkpoint between two steps."""
    actions = Actions(tmp_path, SkipBatches(3))
    feed = actions.loader(range(10))
    assert next(feed) == 0
    actions.between_steps(1)
    actions.do("skip_batches", "a bad file")
    again = Actions(tmp_path, SkipBatches(3))
    again.load_state_dict(actions.state_dict())
    assert list(again.loader(range(again.batches_read, 10))) == [4, 5, 6, 7, 8, 9]
    actions.do("skip_batches", undo=True)
    assert next(feed) == 1


def test_a_loop_that_reads_by_other_means_skips_nothing(tmp_path):
    """And the record says so."""
    actions = Actions(tmp_path, SkipBatches(3))
    actions.do("skip_batches")
    assert results(actions) == [("skip_batches", "refused")]
    assert "actions.loader(loader)" in actions.records[0]["words"]


def test_a_checkpoint_that_an_action_saves_knows_of_it(tmp_path):
    """So the run that goes on from it does not save another."""
    states = []
    actions = Actions(tmp_path, SaveCheckpoint(lambda step: states.append((step, actions.state_dict()))))
    loop = Loop(tmp_path, [{**HIGH, "actions": "save_checkpoint"}], actions)
    for loss in (3.0, 9.0):
        loop.end_step(loss=loss)
    loop.close()
    ((step, state),) = states
    assert step == 2
    assert state["last"] == {"save_checkpoint": 2}


def test_a_stop_may_raise(tmp_path):
    """Where the step ends."""
    actions = Actions(tmp_path, Stop(raises=True))
    actions.do("stop", "enough")
    with pytest.raises(StopRun, match="step 7: enough"):
        actions.between_steps(7)


def test_proposals_are_files(tmp_path):
    """To the newest good checkpoint before what the rule saw; without any the record says so."""
    checkpoints = Checkpoints([Kept(10), Kept(30)])
    actions = Actions(
        tmp_path,
        PrepareRollback(checkpoints, "train --from {path}"),
        ProposeCanary(checkpoints, 300, "train --from {path} --steps {steps}"),
    )
    loop = Loop(tmp_path, [{**HIGH, "actions": ["prepare_rollback", "propose_canary"]}], actions)
    for step in range(1, 26):
        loop.end_step(loss=9.0 if step == 25 else 3.0)
    loop.close()
    back = json.loads((tmp_path / "actions/rollback-step00000025.json").read_text())
    assert (back["checkpoint"]["step"], back["undoes_steps"], back["first_step"]) == (10, 15, 25)
    assert back["command"] == "train --from checkpoints/x"
    assert back["known_good"]
    assert not back["notes"]
    compile("\n".join(back["lines"]), "lines", "exec")
    canary = json.loads((tmp_path / "actions/canary-step00000025.json").read_text())
    assert canary["command"] == f"train --from {canary['checkpoint']['path']} --steps 300"
    assert "--steps 300" in canary["command"]
    checkpoints.kept = [Kept(40, good=False)]
    actions.do("prepare_rollback")
    assert "no checkpoint is known to be good" in actions.records[-1]["words"]
    assert "newer than step 25: a run that went back left it" in actions.records[-1]["words"]
    assert json.loads((tmp_path / "actions/rollback-step00000025-2.json").read_text())["undoes_steps"] == 0
    assert json.loads((tmp_path / "actions/rollback-step00000025.json").read_text()) == back
    checkpoints.kept = []
    actions.do("prepare_rollback")
    assert actions.records[-1]["result"] == "refused"


@pytest.mark.parametrize("command", ["${HOME}/train --from {path}", "train {steps", "{}", "{path.name}"])
def test_a_command_with_other_fields_is_refused_before_the_run(command):
    """And not at the incident, where nothing would be proposed."""
    for propose in (PrepareRollback, ProposeCanary):
        with pytest.raises(ConfigError, match=r"expected no field but \{path\}, \{step\}"):
            propose(Checkpoints([]), command=command)
    assert PrepareRollback(Checkpoints([]), "${{HOME}}/train --from {path}").name == "prepare_rollback"


def test_a_short_document_is_not_proposed_for_what_few_tokens_vary_by():
    """Losses of tokens are exponential: the mean of three is often twice the median document's."""
    draw = np.random.default_rng(0)
    innocent = bad = 0
    for _ in range(40):
        sizes = np.clip(np.exp(draw.normal(4.6, 1.3, 128)), 1, 1024).astype(int)
        losses = [draw.exponential(2.5, size).mean() + 0.2 * draw.normal() for size in sizes]
        sizes[0], losses[0] = 200, 6.0
        rows = [
            {"shard": "1", "row": str(row), "loss": f"{loss}", "targets": f"{size}"}
            for row, (loss, size) in enumerate(zip(losses, sizes, strict=True))
        ]
        named = [own["row"] for own, _ in _outliers(rows)]
        bad += "0" in named
        innocent += len(set(named) - {"0"})
    assert (bad, innocent) == (40, 0)


@pytest.mark.parametrize(
    ("kept", "step", "words"),
    [
        ([Kept(10), Kept(20, good=False), Kept(30)], 10, "checkpoints/x"),
        ([Kept(20, good=False), Kept(30)], 20, "no test of a checkpoint from before it has ended yet"),
        ([Kept(30)], 30, "it is not older than step 25"),
    ],
)
def test_what_is_protected_is_from_before_where_there_is_one(tmp_path, kept, step, words):
    """A later checkpoint that was restored has what the rule saw in it; what is from before would be deleted."""
    checkpoints = Checkpoints(kept)
    actions = Actions(tmp_path, ProtectLastGood(checkpoints))
    actions.ask(Asked(action="protect_last_good", step=40, first_step=25, rule="high"))
    actions.between_steps(40)
    assert checkpoints.protected == {step}
    assert actions.records[-1]["words"].endswith(words)


def test_where_no_test_has_ended_the_newest_from_before_is_protected(tmp_path):
    """Its test may be under way; a later checkpoint has what the rule saw in it."""
    checkpoints = Checkpoints()
    checkpoints.kept = [Kept(10, good=False), Kept(20, good=False), Kept(30, good=False)]
    actions = Actions(tmp_path, ProtectLastGood(checkpoints))
    loop = Loop(tmp_path, [{**HIGH, "actions": ["protect_last_good"]}], actions)
    for step in range(1, 26):
        loop.end_step(loss=9.0 if step == 25 else 3.0)
    loop.close()
    (record,) = (own for own in actions.records if own["result"] == "done")
    assert "step 20 stays" in record["words"]
    assert "no test of a checkpoint has ended yet" in record["words"]


@pytest.mark.parametrize(("stop", "word"), [((), "goes on"), (("--stop",), "stops")])
def test_a_pause_ends_by_the_command(tmp_path, stop, word):
    """The loop waits at the end of the step, and the record says who resumed."""
    actions = Actions(tmp_path, Pause())
    actions.between_steps(4)
    thread = threading.Thread(target=actions.do, args=("pause", "look at it"))
    assert CliRunner().invoke(main, ["alerts", "resume", str(tmp_path), "--who", "ana"]).exit_code == 2
    thread.start()
    until = time.monotonic() + 20
    while not (tmp_path / "actions/paused.json").exists():
        assert time.monotonic() < until
    assert thread.is_alive()
    shown = CliRunner().invoke(main, ["alerts", "resume", str(tmp_path), "--who", "ana", *stop])
    assert shown.exit_code == 0
    assert f"{word} behind step 4" in shown.output
    thread.join(20)
    assert results(actions) == [("pause", "going on"), ("pause", "done")]
    assert "ana resumed" in actions.records[-1]["words"]
    assert actions.should_stop == bool(stop)
    assert not (tmp_path / "actions/paused.json").exists()


@pytest.mark.parametrize("how", ["go on", "stop"])
def test_a_pause_that_nobody_ends_ends_by_itself(tmp_path, how):
    """As it was handed over."""
    actions = Actions(tmp_path, Pause(at_most=0.01, afterwards=how))
    actions.do("pause")
    assert "nobody resumed within 0.01 s" in actions.records[-1]["words"]
    assert actions.should_stop == (how == "stop")


def test_several_ranks_without_an_agreement_are_refused_what_needs_one(tmp_path):
    """A rate that only a rank lowers would part the replicas; what does not change the run is done."""
    checkpoints = Checkpoints([Kept(10)])
    actions = Actions(tmp_path, Stop(), ProtectLastGood(checkpoints))
    actions.joins(1, 4, Loop(tmp_path / "run", [HIGH], None))
    actions.do("stop")
    actions.do("protect_last_good")
    assert results(actions) == [("stop", "refused"), ("protect_last_good", "done")]
    assert "4 ranks need an agreement" in actions.records[0]["words"]
    assert not actions.should_stop


def test_what_is_handed_over_wrongly_is_an_error(tmp_path):
    """Each with what to do."""
    with pytest.raises(ConfigError, match="two have the name `stop`"):
        Actions(tmp_path, Stop(), Stop())
    with pytest.raises(ConfigError, match="4 ranks need a store"):
        Agreement(None, 0, 4)
    with pytest.raises(ConfigError, match="rank 1 of 2, the run's is 3 of 4"):
        Actions(tmp_path, Stop(), agreement=Agreement(object(), 1, 2)).joins(3, 4, None)
    with pytest.raises(ConfigError, match="expected 1 batch or more"):
        SkipBatches(0)
    with pytest.raises(ConfigError, match="does not fit"):
        Actions(tmp_path, Stop()).load_state_dict({"step": 3})


class Silent:
    """A store whose server answers no more after some calls."""

    def __init__(self, calls, error=None):
        self.calls, self.error = calls, error

    def check(self, _keys):
        self.answer()
        return False

    def answer(self):
        self.calls -= 1
        if self.calls < 0:
            if self.error:
                raise self.error
            time.sleep(30)

    def set(self, _key, _value):
        self.answer()

    def compare_set(self, _key, _expected, desired):
        self.answer()
        return desired.encode()


@pytest.mark.parametrize("error", [None, RuntimeError("connection reset")])
def test_a_store_that_does_not_answer_costs_the_loop_its_timeout_once(tmp_path, error):
    """It is recorded once, what needs no agreement is done, and the loop goes on."""
    called = []
    agreement = Agreement(Silent(2, error), 0, 2, timeout=0.3)
    actions = Actions(tmp_path, Stop(), Call("drain", called.append), agreement=agreement)
    began = time.monotonic()
    for step in range(1, 2_000):
        actions.between_steps(step)
    actions.do("drain")
    actions.do("stop")
    actions.between_steps(2_000)
    assert results(actions)[1:] == [("drain", "done"), ("stop", "failed")]
    assert time.monotonic() - began < 10
    assert [(own["result"], own["words"].split(":")[0]) for own in actions.records if own["action"] == "agreement"] == [
        ("failed", "ranks cannot agree")
    ]
    assert len(called) == 1
    assert not actions.should_stop
