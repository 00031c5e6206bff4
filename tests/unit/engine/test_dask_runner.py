"""The runner, with futures that end, fail, are cancelled or never end; real clusters are in tests/e2e."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataaudit.base.errors import ClusterError
from dataaudit.engine import dask_runner as module
from dataaudit.engine.cluster import Cluster, Newcomers, Terms
from dataaudit.engine.dask_runner import MAX_TASK_BYTES, MAX_TASK_PIECES, MAX_TASKS, DaskRunner
from dataaudit.engine.runner import Outcome
from dataaudit.scan.corpus.loss import Reason


@dataclass
class Unit:
    """A unit with a behaviour for each of its runs; the last one stays."""

    pieces = 1
    name: str
    behaviours: tuple[str, ...] = ("well",)
    size: int = 10
    isolated: bool = False
    runs: int = 0


@dataclass
class FakeFuture:
    """What the runner sees of a task."""

    key: str
    status: str
    value: list[Outcome] = field(default_factory=list)

    def result(self, timeout):
        """Return the outcomes; when their worker has died meanwhile, nobody does."""
        if self.status == "finished" and self.value is None:
            raise TimeoutError
        return self.value

    def exception(self):
        """Return an error."""
        return OSError(5, "x")

    def release(self):
        """Forget the task."""


class FakeClient:
    """Runs tasks at submission, as their units say."""

    def __init__(self):
        self.status = "running"
        self.keys, self.alone, self.cancelled, self.restarted = [], [], [], []
        self.handler = None

    def submit(self, call, function, units, _, *, key, **options):
        """Run a batch by the behaviour of its units."""
        assert key not in self.keys, "Dask would give an older task's result"
        self.keys.append(key)
        if call.keywords["alone"]:
            self.alone += [unit.name for unit in units]
        kinds = []
        for unit in units:
            kinds.append(unit.behaviours[min(unit.runs, len(unit.behaviours) - 1)])
            unit.runs += 1
        self.handler((0.0, {"key": key, "worker": "tcp://w"}))
        future = FakeFuture(key, "finished")
        for status in ("hang", "error", "cancelled"):
            if status in kinds:
                future.status = {"hang": "pending"}.get(status, status)
        if future.status == "finished":
            future.value = None if "lost" in kinds else [function(unit) for unit in units]
        return future

    def subscribe_topic(self, topic, handler):
        """Keep who wants to know of starts."""
        self.handler = handler

    def unsubscribe_topic(self, topic):
        """Forget them."""
        if self.status == "closed":
            raise RuntimeError("closed")
        self.handler = None

    def cancel(self, futures, *, force=False):
        """Note what was cancelled."""
        self.cancelled += [future.key for future in futures]

    def restart_workers(self, workers, **options):
        """Note who was restarted; a worker may be gone already."""
        self.restarted += workers
        raise ValueError("gone")

    def scheduler_info(self, **options):
        """Return one worker."""
        return {"workers": {"tcp://w": {}}}

    def as_current(self):
        """Do nothing."""
        return contextlib.nullcontext()


def well(unit):
    """Return who was done."""
    return Outcome(place=unit.name)


@pytest.fixture
def client(monkeypatch):
    """A client whose futures are looked at without waiting."""
    monkeypatch.setattr(module, "wait_for_any", lambda futures: time.sleep(0.001))
    return FakeClient()


def make(client, *, workers=2, seconds=1000.0):
    """Return a runner on a fake client."""
    terms = Terms(folder="/nowhere", token="", versions=())
    here = {"hosts": (), "dashboard": None, "memory_limit": 0, "terms": terms}
    newcomers = Newcomers(client, terms, ["tcp://w"])
    cluster = Cluster(client=client, num_workers=workers, newcomers=newcomers, **here)
    return DaskRunner(cluster=cluster, unit_seconds=seconds)


def run(client, units, *, function=well, **options):
    """Run units; return each one's outcome, checking that each is reported once."""
    outcomes = {}

    def done(index, outcome):
        assert index not in outcomes
        outcomes[index] = outcome

    runner = make(client, **options)
    runner.run("scan", function, units, done)
    assert sorted(outcomes) == list(range(len(units)))
    return [outcomes[index] for index in range(len(units))], runner


def test_every_outcome_is_reported_once(client):
    """Batches come back in any order, each unit with its own outcome; no units are no work."""
    outcomes, _ = run(client, [Unit(str(number)) for number in range(100)])
    assert [outcome.place for outcome in outcomes] == [str(number) for number in range(100)]
    assert run(client, [])[0] == []
    assert client.handler is None


@pytest.mark.parametrize("behaviour", ["error", "cancelled", "lost"])
def test_a_batch_that_does_not_return_is_split_and_the_culprit_runs_alone(client, behaviour):
    """Three rounds: with others, by itself, in a child process; the others are not blamed."""
    units = [Unit(str(number)) for number in range(64)]
    units[9] = Unit("9", (behaviour, behaviour, "well"))
    outcomes, runner = run(client, units, workers=1)
    assert [outcome.place for outcome in outcomes] == [str(number) for number in range(64)]
    assert client.alone == ["9"]
    assert len(runner.notes) == 2


def test_a_unit_that_never_ends_is_stopped(client):
    """Its time runs out, its worker is restarted, and it runs alone; no result is counted twice."""
    units = [Unit("a"), Unit("b", ("hang", "hang", "well")), Unit("c")]
    outcomes, runner = run(client, units, seconds=0.01)
    assert [outcome.place for outcome in outcomes] == ["a", "b", "c"]
    assert client.alone == ["b"]
    assert client.restarted == ["tcp://w"] * 2
    assert len([note for note in runner.notes if "stopped" in note]) == 2


def test_workers_that_always_die_end_the_build(client):
    """A unit whose child never gets to its end is not called bad; the build says what happens."""
    with pytest.raises(ClusterError, match="kept dying"):
        run(client, [Unit("a", ("error",))])
    assert len(client.alone) == 20


def test_two_runs_never_share_a_key(client):
    """Dask gives a task that is submitted under a known key the known result, also to another build."""
    runner = make(client)
    for _ in range(2):
        runner.run("scan", well, [Unit("a")], lambda *_: True)
    make(client).run("scan", well, [Unit("a")], lambda *_: True)
    assert len(set(client.keys)) == 3


def test_starts_of_other_builds_are_not_noted(client):
    """The scheduler may be shared; its events are too."""
    runner = make(client)
    runner.run("scan", well, [Unit("a")], lambda *_: True)
    runner._note_start((0.0, {"key": "scan-0123-0-0-1.1", "worker": "tcp://other"}))
    assert runner._started == {}


@pytest.mark.parametrize("error", [KeyboardInterrupt, ClusterError])
def test_an_error_while_reporting_cancels_what_runs(client, error):
    """Ctrl-C and errors of the caller pass through, after what runs was cancelled."""

    def fail(*_):
        raise error("x")

    with pytest.raises(error):
        make(client).run("scan", well, [Unit("a"), Unit("b", ("hang",)), *map(Unit, "cdef")], fail)
    assert client.cancelled
    assert client.handler is None


def test_a_fault_of_the_machine_ends_the_build_with_its_message(client):
    """A full disk is told as it is; no outcome of the task is counted."""
    seen = []
    with pytest.raises(ClusterError) as caught:
        make(client).run(
            "scan", lambda _: Outcome(fault=("the disk is full", "Free it.")), [Unit("a")], lambda *a: seen.append(a)
        )
    assert (caught.value.message, caught.value.hint, seen) == ("the disk is full", "Free it.", [])


def test_a_scheduler_that_is_gone_is_said(client):
    """The message is ours, also when cleaning up fails on the closed client."""
    client.status = "closed"
    with pytest.raises(ClusterError, match="scheduler is gone"):
        make(client).run("scan", well, [Unit("a", ("hang",))], lambda *_: True)


def test_few_tasks_are_in_flight(client):
    """A sliding window of four a worker, and one a worker for units that run alone."""
    started = []

    def count(outcome_of):
        started.append(len(client.keys))
        return Outcome()

    run(client, [Unit(str(number)) for number in range(2000)], function=count, workers=3)
    assert max(started) > 12
    runner = make(client, workers=3)
    assert runner._window(module._Task(units=[0], round=1)) == 12
    assert runner._window(module._Task(units=[0], round=3)) == 3


SIZES = st.lists(st.one_of(st.just(0), st.integers(0, 1000), st.integers(0, 3 * MAX_TASK_BYTES)), max_size=200)


@given(sizes=SIZES, workers=st.integers(1, 64))
def test_batches_hold_every_unit_once_largest_first_and_within_bounds(sizes, workers):
    """Whatever the sizes, zero included: all units, largest first; 1 GiB unless one is larger; enough for all."""
    batches = make(FakeClient(), workers=workers)._batches([Unit("u", size=size) for size in sizes])
    listed = [index for batch in batches for index in batch]
    assert listed == sorted(range(len(sizes)), key=lambda index: (-sizes[index], index))
    assert all(len(batch) for batch in batches)
    share = sum(sizes) // (8 * workers)
    for batch in batches:
        held = [sizes[index] for index in batch]
        assert len(batch) == 1 or sum(held) <= MAX_TASK_BYTES
        assert sum(held[:-1]) <= share
        assert len(batch) <= max(1, len(sizes) // (8 * workers))


@pytest.mark.parametrize("sizes", [[0] * 300_000, [1, 0, 0] * 60_000, [10**12] * 70_000, [10**12, 0] * 60_000])
def test_there_are_never_too_many_tasks(sizes):
    """Hundreds of thousands of units make at most 50,000 tasks of at most 512 units."""
    batches = make(FakeClient(), workers=10_000)._batches([Unit("u", size=size) for size in sizes])
    assert len(batches) <= MAX_TASKS
    assert max(map(len, batches)) <= MAX_TASK_PIECES
    few = make(FakeClient(), workers=1)._batches([Unit("u", size=size) for size in sizes])
    assert max(map(len, few)) <= MAX_TASK_PIECES


def test_a_loss_is_an_outcome_like_any_other(client):
    """A unit that could not be read is reported once and repeated never."""
    outcomes, runner = run(client, [Unit("a")], function=lambda _: Outcome(reason=Reason.NOT_FOUND))
    assert outcomes[0].reason == Reason.NOT_FOUND
    assert runner.notes == []
