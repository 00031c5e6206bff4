"""The parts of the cluster that need none; real workers are in tests/e2e."""

from __future__ import annotations

import dask
import pytest
from distributed.comm import CommClosedError

from dataaudit.engine import cluster as module
from dataaudit.engine.cluster import SETTINGS, ClusterChoice, open_cluster, worker_identity, worker_versions
from dataaudit.engine.keys import library_versions
from dataaudit.errors import ClusterError, ConfigError


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
    module._check_workers(OneWorker(True, {}), tmp_path)
    with pytest.raises(ClusterError, match="cannot see the state folder"):
        module._check_workers(OneWorker(False, {}), tmp_path)
    with pytest.raises(ClusterError, match=r"numpy .* here, 0\.1 there"):
        module._check_workers(OneWorker(True, {"numpy": "0.1"}), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_leaves_while_it_is_asked_is_no_error(tmp_path):
    """On clusters whose workers come and go; none that stays is said, and so is one that cannot run us."""
    gone = CommClosedError("in <TCP>: Stream is closed")
    for times in (0, 1, 2):
        module._check_workers(LeavingWorkers(times, gone), tmp_path)
    with pytest.raises(ClusterError, match="no worker of the cluster answers: all have left"):
        module._check_workers(LeavingWorkers(3, gone), tmp_path)
    with pytest.raises(ClusterError, match="worker tcp://left cannot run dataaudit: ModuleNotFoundError: No module"):
        module._check_workers(LeavingWorkers(0, ModuleNotFoundError("No module named 'dataaudit'")), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_worker_says_what_it_reads_and_runs(tmp_path):
    """An unreadable probe is an empty answer, not an error."""
    (tmp_path / "probe").write_text("token")
    assert worker_identity(str(tmp_path / "probe")) == ("token", worker_versions())
    assert worker_identity(str(tmp_path / "none"))[0] == ""
    assert set(library_versions()) < set(worker_versions())


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
    ("address", "threads", "refused"),
    [("tcp://h:1", 1, False), ("tcp://h:1", 4, True), ("inproc://h/1", 1, True)],
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
