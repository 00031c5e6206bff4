"""The parts of the cluster that need none; real workers are in tests/e2e."""

import os
import threading
import time

import dask
import pytest
from distributed.comm import CommClosedError

import dataaudit
from dataaudit.base.errors import ClusterError, ConfigError
from dataaudit.base.sealing import under_key
from dataaudit.engine import cluster, dask_runner
from dataaudit.engine import cluster as module
from dataaudit.engine.cluster import (
    SETTINGS,
    ClusterChoice,
    Newcomers,
    check_workers,
    expect_closed,
    open_cluster,
    problem_here,
    terms_of,
    worker_identity,
)
from dataaudit.engine.plan import library_versions, worker_versions
from dataaudit.engine.runner import Outcome
from dataaudit.engine.sandbox import end_child, run_alone


@pytest.mark.parametrize("limit", ["abc", "2 apples", "-1GB"])
def test_a_memory_limit_that_is_no_size_is_said_at_once(limit, tmp_path):
    """No worker is started to find out."""
    with (
        pytest.raises(ConfigError, match="memory limit: expected a size"),
        open_cluster(ClusterChoice(memory_limit=limit), tmp_path),
    ):
        pass


def test_sizes_are_accepted():
    """Sizes with and without units."""
    sizes = [module.memory_bytes(limit) for limit in ("2GiB", "500MB", 10**9, "0")]
    assert sizes == [2 << 30, 500_000_000, 10**9, 0]


def test_every_setting_is_one_that_dask_knows():
    """A name that Dask does not know (any more) would be passed over in silence."""
    import distributed

    assert distributed.__version__
    unknown = [name for name in SETTINGS if dask.config.get(name, default=dask) is dask]
    assert [name for name in unknown if name != "logging"] == []


class FakeClient:
    """A client of workers that a test makes up."""

    def __init__(self, workers):
        self.workers, self.closed = workers, False

    def wait_for_workers(self, *_, **__):
        """They are there."""

    def scheduler_info(self, **_):
        """Return the workers by address."""
        return {"workers": self.workers}

    def close(self, **_):
        """Note that it was closed."""
        self.closed = True


@pytest.mark.parametrize(
    ("address", "threads", "refused"), [("tcp://h:1", 1, False), ("tcp://h:1", 4, True), ("inproc://h/1", 1, True)]
)
def test_a_scheduler_whose_workers_share_a_process_is_refused(monkeypatch, address, threads, refused):
    """As a client of such workers is: a unit that crashes would take others with it."""
    import distributed

    client = FakeClient({address: {"nthreads": threads}})
    monkeypatch.setattr(distributed, "Client", lambda *_, **__: client)
    if refused:
        with pytest.raises(ClusterError, match=f"scheduler tcp://s:2: the worker {address} runs several tasks"):
            module._join(distributed, "tcp://s:2")
    else:
        assert module._join(distributed, "tcp://s:2") is client
    assert client.closed == refused


def test_what_dask_closes_at_exit_is_not_ours_and_the_caller_s_still_is(monkeypatch, tmp_path):
    """Ours is closed by us, and may be half started then; a cluster of the caller's is closed as ever."""
    import atexit

    import distributed

    class Stopped(Exception):
        pass

    class FakeCluster:
        def __init__(self, **_):
            self.shutdown_on_close = True
            made.append(self)

        def close(self, **_):
            """Nothing was started."""

    made, unregistered = [], []
    monkeypatch.setattr(atexit, "unregister", unregistered.append)
    monkeypatch.setattr(distributed, "LocalCluster", FakeCluster)
    monkeypatch.setattr(distributed, "Client", lambda *_, **__: raises(Stopped))
    with pytest.raises(Stopped), open_cluster(ClusterChoice(workers=1), tmp_path):
        pass
    assert [one.shutdown_on_close for one in made] == [False]
    assert unregistered == []


def raises(error):
    """Raise an error, where an expression is asked for."""
    raise error


def test_units_do_not_stay_with_the_scheduler():
    """Dask logs batches of messages, and those to workers hold the units of their tasks: few are kept."""
    from distributed.batched import BatchedSend

    with dask.config.set(SETTINGS):
        assert BatchedSend("2ms", loop=object()).recent_message_log.maxlen <= 10


OPEN = (
    "tcp://h:1", "h:1", "h", "ucx://h:1", "ws://h:1", "TLS://h:1", "tls:h:1", "gateway://h/1", "tcp://tls://h:1",
    "://h",
)  # fmt: skip
CLOSED = ("tls://h:1", "wss://h:1", "inproc://10.0.0.1/1/1")


@pytest.mark.parametrize("address", OPEN)
def test_an_open_port_needs_the_users_word(address):
    expect_closed(ClusterChoice(scheduler=address, open_scheduler=True), [address])
    with pytest.raises(ConfigError, match="is an open port") as refused:
        expect_closed(ClusterChoice(scheduler=address), [*CLOSED, address])
    assert "--open-scheduler" in refused.value.hint


def test_what_asks_for_certificates_is_no_open_port():
    expect_closed(ClusterChoice(), CLOSED)


@pytest.mark.parametrize("how", [{"trust_state": False}, {"state_key": b"k" * 32}])
def test_a_build_that_signs_or_seals_is_refused_before_anything_is_read(tmp_path, how):
    (tmp_path / "a.jsonl").write_text('{"text": "some words"}')
    with pytest.raises(ConfigError, match="tcp://h:1 is an open port"):
        dataaudit.build(tmp_path / "a.jsonl", tmp_path / "m", scheduler="tcp://h:1", **how)


def test_an_open_scheduler_is_not_even_asked(tmp_path):
    with (
        under_key(b"k" * 32),
        pytest.raises(ConfigError, match=r"tcp://127\.0\.0\.1:1 is an open port"),
        open_cluster(ClusterChoice(scheduler="tcp://127.0.0.1:1"), tmp_path),
    ):
        pass


def test_workers_of_a_closed_scheduler_may_not_be_open_either():
    client = FakeClient({"tls://h:1": {"nthreads": 1}, "tcp://h:2": {"nthreads": 1}})
    with (
        under_key(b"k" * 32),
        pytest.raises(ConfigError, match="tcp://h:2 is an open port"),
        module._joined(ClusterChoice(scheduler="tls://h:0"), client, None),
    ):
        pass


def test_a_scheduler_that_asks_for_certificates_and_a_configuration_without_any():
    import distributed

    with pytest.raises(ConfigError, match=r"tls://127\.0\.0\.1:1: Dask's configuration names no certificates"):
        module._join(distributed, "tls://127.0.0.1:1")


def check(client, folder):
    """Ask the workers of a client."""
    with terms_of(folder) as terms:
        check_workers(client, terms)


class OneWorker:
    """A client with one worker that answers what it is told to."""

    def __init__(self, seen, versions):
        self.answer = (seen, versions)

    def wait_for_workers(self, *_, **__):
        """It is there."""

    def run(self, function, path, *, on_error):
        """Ask every worker."""
        assert on_error == "return"
        seen, versions = function(path)
        return {"tcp://w": (seen if self.answer[0] else "", versions | self.answer[1])}


class LeavingWorkers(OneWorker):
    """A client whose workers leave while they are asked; after some times one stays."""

    def __init__(self, gone, error):
        super().__init__(True, {})
        self.gone, self.error = gone, error

    def run(self, function, path, *, on_error):
        """Return an error for who has left."""
        self.gone -= 1
        return {"tcp://left": self.error, **(super().run(function, path, on_error=on_error) if self.gone < 0 else {})}


def test_workers_have_to_see_the_state_folder_and_run_the_same_versions(tmp_path):
    """A worker elsewhere, or of another lock file, is refused by name; the probe file is taken away."""
    check(OneWorker(True, {}), tmp_path)
    with pytest.raises(ClusterError, match="cannot see the state folder"):
        check(OneWorker(False, {}), tmp_path)
    with pytest.raises(ClusterError, match=r"numpy .* here, 0\.1 there"):
        check(OneWorker(True, {"numpy": "0.1"}), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_leaves_while_it_is_asked_is_no_error(tmp_path):
    """On clusters whose workers come and go; none that stays is said, and so is one that cannot run us."""
    gone = CommClosedError("in <TCP>: Stream is closed")
    for times in (0, 1, 2):
        check(LeavingWorkers(times, gone), tmp_path)
    with pytest.raises(ClusterError, match="no worker of the cluster answers: all have left"):
        check(LeavingWorkers(3, gone), tmp_path)
    with pytest.raises(ClusterError, match="worker tcp://left cannot run dataaudit: ModuleNotFoundError: No module"):
        check(LeavingWorkers(0, ModuleNotFoundError("No module named 'dataaudit'")), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_worker_says_what_it_reads_and_runs(tmp_path):
    """An unreadable probe is an empty answer, not an error."""
    (tmp_path / "probe").write_text("token")
    assert worker_identity(str(tmp_path / "probe")) == ("token", worker_versions())
    assert worker_identity(str(tmp_path / "none"))[0] == ""
    assert set(library_versions()) < set(worker_versions())


@pytest.fixture
def nothing_met(monkeypatch):
    """This process has met no terms yet."""
    monkeypatch.setattr(cluster, "_met", set())


@pytest.mark.usefixtures("nothing_met")
def test_a_worker_that_joins_later_looks_at_itself(tmp_path, monkeypatch):
    """Once for each build: what it met it need not look at again, what it did not meet it looks at again."""
    with terms_of(tmp_path) as terms:
        monkeypatch.setattr(cluster, "worker_versions", lambda: worker_versions() | {"numpy": "0.1"})
        said, remedy = problem_here(terms)
        assert "runs other versions: numpy " in said
        assert "here, 0.1 there" in said
        assert "lock file" in remedy
        monkeypatch.undo()
        assert problem_here(terms) is None
        terms.probe.unlink()
        assert problem_here(terms) is None
    with terms_of(tmp_path) as other:
        other.probe.unlink()
        assert "cannot see the state folder" in problem_here(other)[0]


@pytest.mark.usefixtures("nothing_met")
def test_no_unit_runs_on_a_worker_that_may_not_work(tmp_path, monkeypatch):
    """Its faults end the build, by the worker's name."""
    monkeypatch.setattr(dask_runner, "_tell_start", lambda key: "tcp://late")
    options = {"alone": False, "memory_limit": 0, "unit_seconds": 1.0}
    ran = []
    with terms_of(tmp_path) as terms:
        monkeypatch.setattr(cluster, "worker_versions", lambda: worker_versions() | {"pyarrow": "1.0"})
        found = dask_runner.run_batch(ran.append, ["a", "b"], "key", **options, terms=terms)
    assert ran == []
    assert all(isinstance(one, Outcome) for one in found)
    assert [one.fault[0][:36] for one in found] == ["worker tcp://late runs other version"] * 2


class Joining(OneWorker):
    """A client that notes whom it asks."""

    def __init__(self, answers):
        self.answers, self.asked = answers, []

    def run(self, function, path, *, workers, on_error):
        """Ask some workers."""
        self.asked.append(workers)
        return {address: self.answers.get(address, function(path)) for address in workers}


def checked(newcomers, addresses, asked):
    """Show addresses until somebody was asked for the n-th time and the answer is there."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        newcomers.check(addresses)
        time.sleep(0.01)
        if asked and "newcomers" not in {one.name for one in threading.enumerate()}:
            newcomers.check(addresses)
            return


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            ModuleNotFoundError("No module named 'dataaudit'"),
            "worker tcp://b cannot run dataaudit: ModuleNotFoundError",
        ),
        (("", worker_versions()), "worker tcp://b cannot see the state folder"),
        (OSError("it has left"), ""),
    ],
)
def test_those_that_join_are_asked_once_and_refused_by_name(tmp_path, answer, said):
    """Those that were there when the build joined were asked then; one that leaves is no error."""
    client = Joining({"tcp://b": answer})
    with terms_of(tmp_path) as terms:
        newcomers = Newcomers(client, terms, ["tcp://a"])
        newcomers.check(["tcp://a"])
        assert client.asked == []
        if said:
            with pytest.raises(ClusterError, match=said):
                checked(newcomers, ["tcp://a", "tcp://b"], client.asked)
        else:
            checked(newcomers, ["tcp://a", "tcp://b"], client.asked)
            checked(newcomers, ["tcp://a", "tcp://b", "tcp://c"], client.asked)
        assert client.asked == [["tcp://b"], ["tcp://c"]][: 1 if said else 2]


@pytest.mark.kills
def test_a_child_that_starts_after_an_upgrade_is_refused(tmp_path, monkeypatch):
    """This process keeps the library that it has loaded, a child that starts now would load another."""
    package = tmp_path / "numpy-0.1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 0.1\n")
    worker_versions()
    end_child()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    try:
        with pytest.raises(ClusterError, match=r"other libraries were installed.* numpy \S+ here, 0\.1 there"):
            run_alone(str, "unit", memory_limit=0, seconds=120)
    finally:
        end_child()


def test_what_killed_builds_left_goes_after_a_month(tmp_path):
    """The file of a build that runs stays."""
    for days in (0, 29, 31):
        path = tmp_path / f".worker-check-{days}"
        path.touch()
        os.utime(path, (time.time() - days * 86_400,) * 2)
    with terms_of(tmp_path) as terms:
        assert {one.name for one in tmp_path.iterdir()} == {".worker-check-0", ".worker-check-29", terms.probe.name}
