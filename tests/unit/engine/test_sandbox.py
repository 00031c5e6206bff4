"""What a child process says halfway, or in a way that was not asked for, costs its unit and no time without end."""

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from dataaudit.engine.runner import Outcome
from dataaudit.engine.sandbox import end_child, run_alone
from dataaudit.scan.corpus.loss import Reason

pytestmark = pytest.mark.children


@pytest.fixture(autouse=True)
def _no_child(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    end_child()
    yield
    end_child()


def say(text):
    return Outcome(place=text)


def say_half(then):
    """Write the head of an answer of 1,000 bytes and a part of it, as a process does that dies or hangs within."""
    os.write(int(sys.argv[2]), (1000).to_bytes(4, "big") + b"half")
    if then == "exit":
        os._exit(3)
    time.sleep(600)


def stop_talking(_):
    os.close(int(sys.argv[2]))
    time.sleep(600)


def raise_it(error):
    raise error


def test_the_answer_of_one_that_dies_within_it_is_its_death():
    outcome = run_alone(say_half, "exit", memory_limit=0, seconds=60)
    assert (outcome.reason, outcome.place) == (Reason.WORKER_DIED, "exit code 3")


def test_the_answer_of_one_that_hangs_within_it_is_waited_for_no_longer_than_any():
    assert run_alone(say_half, "hang", memory_limit=0, seconds=1).reason == Reason.TIMED_OUT


def test_memory_is_watched_while_an_answer_hangs():
    assert run_alone(say_half, "hang", memory_limit=1, seconds=60).reason == Reason.OUT_OF_MEMORY


def test_one_that_closes_its_pipe_and_stays_is_ended(monkeypatch):
    monkeypatch.setattr("dataaudit.engine.sandbox._LAST_SECONDS", 0.2)
    outcome = run_alone(stop_talking, None, memory_limit=0, seconds=60)
    assert (outcome.reason, outcome.place) == (Reason.WORKER_DIED, "signal SIGKILL")


@pytest.mark.parametrize("error", [ValueError("x"), EOFError("x")])
def test_an_error_that_no_unit_may_raise_is_a_death_that_says_so(error):
    outcome = run_alone(raise_it, error, memory_limit=0, seconds=60)
    assert (outcome.reason, outcome.place) == (Reason.WORKER_DIED, "exit code 1")


def test_threads_and_descriptors_end_with_the_child():
    assert run_alone(say, "warm", memory_limit=0, seconds=60).place == "warm"
    end_child()
    before = len(os.listdir("/proc/self/fd"))
    for number in range(3):
        assert run_alone(say, str(number), memory_limit=0, seconds=60).place == str(number)
        end_child()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and "_take" in thread.name:
            thread.join(timeout=60)
    assert len(os.listdir("/proc/self/fd")) <= before
