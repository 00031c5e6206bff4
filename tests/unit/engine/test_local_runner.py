"""The runner without workers: what crashes this process runs in a child the next time, and the caller keeps its own."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from dataaudit.base.errors import ClusterError, ConfigError
from dataaudit.engine import dask_runner
from dataaudit.engine import local_runner as module
from dataaudit.engine.build import open_runner
from dataaudit.engine.cluster import ClusterChoice, terms_of
from dataaudit.engine.local_runner import open_process
from dataaudit.engine.runner import Outcome
from dataaudit.engine.sandbox import end_child
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.detectors.judges import quiet


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    """Child processes find this module."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))


@dataclass(frozen=True)
class Unit:
    """A unit of work that the functions below do."""

    name: str
    isolated: bool = False
    size: int = 10


def where(unit):
    """Say which process does the work."""
    return Outcome(place=str(os.getpid()))


def crash(unit):
    """End the process for one unit, do the others."""
    if unit.name == "bad":
        os.kill(os.getpid(), signal.SIGKILL)
    return Outcome(place=str(os.getpid()))


@dataclass(frozen=True)
class InGroups:
    """Does units in groups, but for large ones; in the child, one that is bad ends the process."""

    bad: str = ""

    def __call__(self, unit):
        return Outcome(place=f"{os.getpid()} {self._held(unit)}")

    def gains(self, unit):
        return unit.name != "large"

    def together(self, units):
        return [Outcome(place=f"{os.getpid()} {self._held(unit)} of {len(units)}") for unit in units]

    def _held(self, unit):
        if unit.name == "bad":
            if self.bad == "memory":
                raise MemoryError
            if self.bad == "input":
                raise OSError(errno.EIO, "input")
            os.kill(os.getpid(), signal.SIGKILL)
        return unit.name


def run(state, function, names, *, isolate=True, memory_limit="auto", isolated=()):
    """Run units; return (outcomes by name, notes)."""
    units = [Unit(name, isolated=name in isolated) for name in names]
    found, notes = {}, []

    def done(index, outcome):
        found[units[index].name] = outcome

    choice = ClusterChoice(workers=0, isolate=isolate, memory_limit=memory_limit)
    with open_process(choice, state, unit_seconds=60.0, notes=notes) as runner:
        runner.run("test", function, units, done)
    return found, notes


def test_units_run_here_in_order_and_leave_no_marker(tmp_path):
    seen = []

    def note(unit):
        seen.append(unit.name)
        assert len(list((tmp_path / "in-work").iterdir())) == 1, "a marker names the unit in work"
        return where(unit)

    found, notes = run(tmp_path, note, ["b", "a", "c"])
    assert seen == ["b", "a", "c"]
    assert {outcome.place for outcome in found.values()} == {str(os.getpid())}
    assert not notes
    assert not list((tmp_path / "in-work").iterdir())


def test_a_unit_may_have_any_name(tmp_path):
    """That of a file is bytes."""
    found, _ = run(tmp_path, where, ["plain", os.fsdecode(b"\xff")])
    assert {outcome.place for outcome in found.values()} == {str(os.getpid())}


@pytest.mark.children
def test_isolated_units_run_in_a_child_unless_a_debugger_wants_them_here(tmp_path):
    found, _ = run(tmp_path, where, ["plain", "native"], isolated={"native"})
    assert found["plain"].place == str(os.getpid())
    assert found["native"].reason is None
    assert found["native"].place != str(os.getpid())
    found, _ = run(tmp_path, where, ["native"], isolated={"native"}, isolate=False)
    assert found["native"].place == str(os.getpid())


def test_small_isolated_units_share_a_call_of_the_child(tmp_path):
    names = ["a", "large", "b", "here", "c"]
    found, _ = run(tmp_path, InGroups(), names, isolated={"a", "large", "b", "c"})
    said = {name: outcome.place.split(" ", 1) for name, outcome in found.items()}
    assert {name: rest for name, (_, rest) in said.items()} == {
        **{name: f"{name} of 3" for name in "abc"},
        "large": "large",
        "here": "here",
    }
    assert {name for name, (process, _) in said.items() if process == str(os.getpid())} == {"here"}


@pytest.mark.children
def test_a_task_of_a_cluster_groups_them_too(monkeypatch, tmp_path):
    monkeypatch.setattr(dask_runner, "_tell_start", lambda key: "tcp://w")
    names = ["a", "large", "b", "here", "one", "c"]
    units = [Unit(name, isolated=name not in {"here", "one"}) for name in names]
    stack = contextlib.ExitStack()
    limits = {"alone": False, "memory_limit": 0, "unit_seconds": 60.0, "terms": stack.enter_context(terms_of(tmp_path))}
    with stack:
        stack.callback(end_child)
        found = dask_runner.run_batch(InGroups(), units, "key", **limits)
        assert [one.place.split(" ", 1)[1] for one in found] == [
            *("a of 3", "large", "b of 3", "here of 2", "one of 2", "c of 3")
        ]
        found = dask_runner.run_batch(InGroups("crash"), [*units, Unit("bad", isolated=True)], "key", **limits)
        assert [one.reason for one in found] == [None] * 6 + [Reason.WORKER_DIED]


@pytest.mark.children
@pytest.mark.parametrize(
    ("how", "reason"), [("crash", Reason.WORKER_DIED), ("memory", Reason.OUT_OF_MEMORY), ("input", Reason.IO_ERROR)]
)
def test_an_isolated_unit_that_ends_its_group_costs_itself_alone(tmp_path, how, reason):
    found, _ = run(tmp_path, InGroups(bad=how), ["a", "bad", "c"], isolated={"a", "bad", "c"})
    assert found["bad"].reason == reason
    assert [found[name].place.split(" ", 1)[1] for name in "ac"] == ["a", "c"]


@pytest.mark.children
def test_a_unit_that_ended_its_process_costs_only_itself_the_next_time(tmp_path):
    script = (
        "import sys; from pathlib import Path; import test_local_runner as t\n"
        "t.run(Path(sys.argv[1]), t.crash, ['a', 'bad', 'z'])"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL
    (marker,) = (tmp_path / "in-work").iterdir()
    for _ in range(2):  # a unit that stays bad stays in the child, however often
        found, notes = run(tmp_path, crash, ["a", "bad", "z"])
        assert found["bad"] == Outcome(reason=Reason.WORKER_DIED, place="signal SIGKILL")
        assert found["a"].place == found["z"].place == str(os.getpid())
        assert notes == ["a unit of work whose process had ended was run in a child process"]
        assert marker.exists()
    found, _ = run(tmp_path, where, ["bad"])  # it is mended
    assert found["bad"].reason is None
    assert found["bad"].place != str(os.getpid())
    assert not marker.exists()
    found, _ = run(tmp_path, where, ["bad"])
    assert found["bad"].place == str(os.getpid())


def test_the_marker_of_a_living_build_is_its_own(tmp_path):
    def nested(unit):
        found, notes = run(tmp_path, where, ["inner", unit.name])
        assert not notes
        return found[unit.name]

    found, _ = run(tmp_path, nested, ["outer"])
    assert found["outer"].place == str(os.getpid())


@pytest.mark.parametrize("raised", [KeyboardInterrupt, ValueError])
def test_what_is_raised_leaves_no_marker(tmp_path, raised):
    def stop(unit):
        raise raised

    with pytest.raises(raised):
        run(tmp_path, stop, ["a"])
    assert not list((tmp_path / "in-work").iterdir())


def test_input_errors_are_tried_again_and_then_are_a_value(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.0)
    tries = []

    def fail(unit):
        tries.append(unit.name)
        if unit.name == "passes" and tries.count("passes") == 2:
            return Outcome()
        raise OSError(errno.EIO, "x")

    found, _ = run(tmp_path, fail, ["passes", "stays"])
    assert found["passes"].reason is None
    assert found["stays"].reason is Reason.IO_ERROR
    assert tries == ["passes", "passes", "stays", "stays", "stays"]


def greedy(unit):
    """Run out of memory, here or everywhere."""
    if unit.name == "everywhere" or os.getpid() == int(unit.name):
        raise MemoryError
    return where(unit)


@pytest.mark.children
def test_a_unit_without_memory_here_is_a_value(tmp_path):
    here = str(os.getpid())
    found, _ = run(tmp_path, greedy, ["everywhere", here])
    assert found["everywhere"].reason is Reason.OUT_OF_MEMORY
    assert found[here].reason is None, "a child has room"
    found, _ = run(tmp_path, greedy, ["everywhere"], isolate=False)
    assert found["everywhere"].reason is Reason.OUT_OF_MEMORY


def test_a_fault_of_the_machine_ends_the_run(tmp_path):
    with pytest.raises(ClusterError, match="the disk is full"):
        run(tmp_path, lambda _: Outcome(fault=("the disk is full", "Free some.")), ["a"])


def test_a_state_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "in-work").write_text("a file in the place of the folder")
    with pytest.raises(ClusterError, match="cannot be written"):
        run(tmp_path, where, ["a"])


def test_a_limit_that_is_no_size_is_said(tmp_path):
    with pytest.raises(ConfigError, match="memory limit: expected a size"):
        run(tmp_path, where, ["a"], memory_limit="plenty")


def test_the_caller_keeps_its_threads_limits_signals_and_output(tmp_path, capsys):
    before = (pa.cpu_count(), pa.io_thread_count(), signal.getsignal(signal.SIGINT), dict(os.environ), sys.stdout)

    def loud(unit):
        print("text of a document")
        warnings.warn("text of a document", stacklevel=1)
        other = threading.Thread(target=print, args=("another thread of the caller",))
        other.start()
        other.join()
        return where(unit)

    with open_runner(ClusterChoice(workers=0), tmp_path, unit_seconds=60.0, notes=[]) as runner:
        runner.run("test", loud, [Unit("a")], lambda *_: True)
        assert runner.workers == 0
    after = (pa.cpu_count(), pa.io_thread_count(), signal.getsignal(signal.SIGINT), dict(os.environ), sys.stdout)
    assert after == before
    out, err = capsys.readouterr()
    assert out == "another thread of the caller\n"
    assert not err


def test_silence_is_of_one_thread_and_nests(capsys):
    with quiet():
        print("lost")
        with quiet():
            print("lost")
    print("kept")
    assert capsys.readouterr().out == "kept\n"


def test_dask_is_not_needed(tmp_path):
    code = (
        "import sys; sys.modules['dask'] = sys.modules['distributed'] = None\n"
        "from dataaudit.engine.build import build\n"
        "from dataaudit.engine.local_runner import open_process\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
