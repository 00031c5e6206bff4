"""The judge in a process of its own: what it sees comes back, its evidence is on disk, and its end is noticed."""

import os
import signal
import time

import pytest
from live_logs import Run

from dataaudit.live.incidents import stored_incidents
from dataaudit.live.watch import WatchProcess

pytestmark = pytest.mark.children


@pytest.fixture
def judge(tmp_path):
    """A judge of a run whose loss is lost at its second step."""
    run = Run(tmp_path / "run")
    run.end_step()
    run.end_step(loss=float("nan"))
    run.writer.flush()
    made = WatchProcess(tmp_path / "run", None, log=None, send=False, interval=0.2)
    yield made
    made.close()


def waited(judge, condition):
    """Return the states once they meet a condition."""
    end = time.monotonic() + 60
    while not condition(states := judge.states()):
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)
    return {state.rule: state.state for state in states}


def test_states_come_back_and_evidence_is_on_disk(judge, tmp_path):
    """As those of a watch in this process."""
    states = waited(judge, bool)
    assert states["loss_not_finite"] == "firing"
    assert judge.judged_step == 2
    assert not judge.failed
    assert "loss_not_finite" in {rule.name for rule in judge.rules}
    assert list(stored_incidents(tmp_path / "run")) == ["step00000002-numerics"]


def test_a_judge_that_is_gone_is_noticed(judge):
    """What it saw last stays."""
    waited(judge, bool)
    os.kill(judge._process.pid, signal.SIGKILL)
    states = waited(judge, lambda states: judge.failed == "ended")
    assert states["loss_not_finite"] == "firing"
