"""A worker that dies, hangs or eats memory costs time; the unit that does it is named; no other is lost."""

import os
import signal
from pathlib import Path

import pytest
from hostile import HostileUnit, behave, downgrade, upgrade

from dataaudit.base.errors import ClusterError
from dataaudit.engine.cluster import ClusterChoice, open_cluster
from dataaudit.engine.dask_runner import DaskRunner
from dataaudit.engine.sandbox import end_child, run_alone
from dataaudit.scan.corpus.loss import Reason

MB = 1_000_000
pytestmark = [pytest.mark.children, pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")]
"""distributed leaves a socket to the garbage collector whose worker was killed while it was being connected."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two local workers with little memory, whose child processes find this folder."""
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", str(Path(__file__).parent))
    with open_cluster(ClusterChoice(workers=2, memory_limit=600 * MB), tmp_path_factory.mktemp("state")) as opened:
        yield opened
    patch.undo()


def run_units(cluster, units, *, seconds=3.0):
    """Run units; return the outcome of each, checking that each is reported once, and the notes."""
    runner = DaskRunner(cluster=cluster, unit_seconds=seconds)
    outcomes = {}

    def done(index, outcome):
        assert index not in outcomes, "reported twice"
        outcomes[index] = outcome

    runner.run("test", behave, units, done)
    assert sorted(outcomes) == list(range(len(units)))
    return [outcomes[index] for index in range(len(units))], runner.notes


def test_a_worker_that_has_other_versions_by_now_ends_the_run_by_name(cluster):
    """As a process does that a nanny starts anew after an upgrade: it met no terms yet and asks for versions."""
    one, *_ = cluster.client.scheduler_info(n_workers=-1)["workers"]
    cluster.client.run(upgrade, workers=[one])
    try:
        with pytest.raises(ClusterError, match=rf"worker {one} runs other versions: .*numpy \S+ here, 0\.1 there"):
            run_units(cluster, [HostileUnit("well", str(number)) for number in range(50)])
    finally:
        cluster.client.run(downgrade, workers=[one])
    assert len(run_units(cluster, [HostileUnit("well", str(number)) for number in range(50)])[0]) == 50


@pytest.mark.parametrize(
    ("behaviour", "reason", "place"),
    [
        ("segfault", Reason.WORKER_DIED, "SIGSEGV"),
        ("kill", Reason.WORKER_DIED, "SIGKILL"),
        ("hang", Reason.TIMED_OUT, ""),
        ("eat", Reason.OUT_OF_MEMORY, ""),
        ("memory error", Reason.OUT_OF_MEMORY, ""),
        ("input error", Reason.IO_ERROR, ""),
    ],
)
def test_the_bad_unit_is_named_and_the_rest_is_done(cluster, behaviour, reason, place):
    """One bad unit among twenty is found by name; the other nineteen have their results."""
    units = [HostileUnit("well" if number != 7 else behaviour, str(number)) for number in range(20)]
    outcomes, notes = run_units(cluster, units)
    assert outcomes[7].reason == reason
    assert place in outcomes[7].place
    assert [outcome.place for number, outcome in enumerate(outcomes) if number != 7] == [
        f"done {number}" for number in range(20) if number != 7
    ]
    assert notes


@pytest.mark.parametrize("behaviour", ["killed once", "passing input error"])
def test_what_passes_costs_only_time(cluster, behaviour, tmp_path):
    """A death or an input error that does not come back leaves no trace in the outcomes."""
    units = [
        HostileUnit("well" if number % 5 else behaviour, str(number), folder=str(tmp_path)) for number in range(15)
    ]
    outcomes, _ = run_units(cluster, units)
    assert [outcome.reason for outcome in outcomes] == [None] * 15


def test_only_bad_units(cluster):
    outcomes, _ = run_units(cluster, [HostileUnit("kill", str(number)) for number in range(3)])
    assert [outcome.reason for outcome in outcomes] == [Reason.WORKER_DIED] * 3


def test_an_error_of_the_caller_leaves_the_cluster_usable(cluster):
    """After Ctrl-C the rest is cancelled, and the next run works."""
    seen = []

    def interrupted(index, _):
        seen.append(index)
        raise KeyboardInterrupt

    units = [HostileUnit("well", str(number)) for number in range(50)]
    with pytest.raises(KeyboardInterrupt):
        DaskRunner(cluster=cluster, unit_seconds=60).run("early", behave, units, interrupted)
    assert len(seen) == 1
    assert run_units(cluster, [HostileUnit("well", "x")])[0][0].place == "done x"


@pytest.mark.parametrize(
    ("behaviour", "reason", "place"),
    [("segfault", Reason.WORKER_DIED, "SIGSEGV"), ("hang", Reason.TIMED_OUT, ""), ("eat", Reason.OUT_OF_MEMORY, "")],
)
def test_an_isolated_unit_costs_no_worker(cluster, behaviour, reason, place):
    """What reads hostile bytes runs in the warm child: the bad unit is named, no worker dies, nothing is repeated."""
    units = [HostileUnit("well" if number != 7 else behaviour, str(number), isolated=True) for number in range(20)]
    outcomes, notes = run_units(cluster, units, seconds=3.0 if behaviour == "hang" else 120.0)
    assert outcomes[7].reason == reason
    assert place in outcomes[7].place
    assert [outcome.reason for outcome in outcomes].count(None) == 19
    assert not notes


def own_bytes():
    """Return the resident bytes of this process, which count against a limit too; a whole run of tests has many."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def no_child(monkeypatch):
    """No child left from another test; a new one finds this folder."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    end_child()
    yield
    end_child()


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [("segfault", Reason.WORKER_DIED), ("hang", Reason.TIMED_OUT), ("eat", Reason.OUT_OF_MEMORY), ("well", None)],
)
@pytest.mark.usefixtures("no_child")
def test_a_child_process_turns_anything_into_a_value(behaviour, reason):
    """Alone in a child process, a crash, a hang and a greedy allocation are outcomes."""
    seconds = 5 if behaviour == "hang" else 120
    outcome = run_alone(behave, HostileUnit(behaviour, "u"), memory_limit=own_bytes() + 900 * MB, seconds=seconds)
    assert outcome.reason == reason


def pid_of_child():
    return int(run_alone(behave, HostileUnit("pid", "u"), memory_limit=0, seconds=60).place)


@pytest.mark.usefixtures("no_child")
def test_the_child_is_kept_warm_and_replaced_when_it_dies():
    """Calls share a process; after a crash, or a kill while it waited, the next call has a new one."""
    first = pid_of_child()
    assert pid_of_child() == first != os.getpid()
    run_alone(behave, HostileUnit("segfault", "u"), memory_limit=0, seconds=60)
    second = pid_of_child()
    assert second != first
    os.kill(second, signal.SIGKILL)
    assert pid_of_child() not in {first, second}


@pytest.mark.usefixtures("no_child")
def test_a_unit_is_not_blamed_for_what_others_left_in_the_child():
    """Memory that an earlier unit has left behind ends the child, not the unit that comes next."""
    limit = own_bytes() + 800 * MB
    assert run_alone(behave, HostileUnit("hold", "u"), memory_limit=0, seconds=60).reason is None
    assert run_alone(behave, HostileUnit("nap", "u"), memory_limit=limit, seconds=60).reason is None


@pytest.mark.usefixtures("no_child")
def test_an_outcome_of_any_size_comes_back():
    assert len(run_alone(behave, HostileUnit("long", "u"), memory_limit=0, seconds=60).place) == 5_000_000


@pytest.mark.usefixtures("no_child")
def test_a_child_imports_nothing_from_the_folder_that_a_build_runs_in(monkeypatch, tmp_path):
    """A file named like a module of ours or of a library is data there, not code."""
    for name in ("random", "numpy", "pyarrow", "tokenizers"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(1)\n")
    monkeypatch.chdir(tmp_path)
    assert run_alone(behave, HostileUnit("well", "u"), memory_limit=0, seconds=120).reason is None


def test_workers_import_nothing_from_the_folder_that_a_build_runs_in(monkeypatch, tmp_path):
    """Nor do the processes that start them; the environment is the caller's again when they have ended."""
    for name in ("enum", "random", "selectors", "numpy", "distributed"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(1)\n")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "state").mkdir()
    before = {**os.environ}
    with open_cluster(ClusterChoice(workers=1), tmp_path / "state") as opened:
        outcomes, notes = run_units(opened, [HostileUnit("well", "u")], seconds=60)
    assert (outcomes[0].reason, notes) == (None, [])
    assert os.environ.get("PYTHONSAFEPATH") == before.get("PYTHONSAFEPATH")


@pytest.mark.usefixtures("no_child")
def test_a_child_that_does_not_start_is_no_units_fault(monkeypatch):
    """Python itself failing to start is the machine's fault: an error that the build repeats, not a named shard."""
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    with pytest.raises(OSError, match="does not start"):
        run_alone(behave, HostileUnit("well", "u"), memory_limit=0, seconds=120)
