"""The parts of the cluster that need none; real workers are in tests/e2e."""

from __future__ import annotations

import dask
import pytest

import dataaudit
from dataaudit.base.errors import ClusterError, ConfigError
from dataaudit.base.sealing import under_key
from dataaudit.engine import cluster as module
from dataaudit.engine.cluster import SETTINGS, ClusterChoice, expect_closed, open_cluster


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


OPEN = (
    "tcp://h:1",
    "h:1",
    "h",
    "ucx://h:1",
    "ws://h:1",
    "TLS://h:1",
    "tls:h:1",
    "gateway://h/1",
    "tcp://tls://h:1",
    "://h",
)
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
