"""An existing Dask cluster: a scheduler and workers started as a user starts them, or a client that the caller has."""

import contextlib
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import distributed
import pytest
from corpus import write_slow_corpus
from hostile import HostileUnit, behave
from lanes import thinned
from running import build, run, start

from dataaudit import api
from dataaudit.base.errors import ClusterError
from dataaudit.engine import sandbox
from dataaudit.engine.cluster import ClusterChoice, open_cluster
from dataaudit.engine.dask_runner import DaskRunner

CHAOS_SECONDS = float(os.environ.get("DATAAUDIT_CHAOS_SECONDS", thinned("60", few="1")))
"""How long workers join, leave and die, at least; until the build of that moment has ended."""
CREW = 4
DASK = Path(sys.executable).with_name("dask")
pytestmark = pytest.mark.kills


def free_port():
    """Return a port that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for_port(port, seconds=30):
    """Wait until something listens."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise AssertionError(f"nothing listens on {port}")


def start_dask(folder, *arguments):
    """Start a command of Dask's in a folder, in a process group of its own."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, "start_new_session": True}
    return subprocess.Popen([DASK, *arguments], **quiet)


def start_scheduler(folder):
    """Start a scheduler; return its process and address."""
    port = free_port()
    process = start_dask(folder, "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
    wait_for_port(port)
    return process, f"tcp://127.0.0.1:{port}"


def start_worker(folder, address, name):
    """Start a worker with its nanny."""
    return start_dask(folder, "worker", address, "--nthreads", "1", "--no-dashboard", "--name", name)


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    """The address of a scheduler with two workers, started by `dask scheduler` and `dask worker`."""
    folder = tmp_path_factory.mktemp("dask")
    process, address = start_scheduler(folder)
    started = [process, *(start_worker(folder, address, name) for name in ("one", "two"))]
    yield address
    for process in reversed(started):
        process.terminate()
    for process in started:
        process.wait(timeout=20)


def test_an_existing_cluster_gives_the_same_manifest(corpus, expected, scheduler, tmp_path):
    """A build on a scheduler with two workers publishes what a local one publishes; before a release twice in a row."""
    for name in thinned(["first", "second"], ["first"]):
        call = (corpus / "config.yaml", "--scheduler", scheduler, "--state", tmp_path / name)
        summary, manifest = build(*call, manifest=tmp_path / f"m-{name}")
        assert summary["id"] == expected.id
        assert manifest.run.workers == 2


def test_a_scheduler_that_is_not_there_is_said(corpus, tmp_path):
    call = ("build", corpus / "config.yaml", "--scheduler", f"tcp://127.0.0.1:{free_port()}")
    _, err = run(*call, "--manifest", tmp_path / "m", expect=3)
    assert "no scheduler answers" in err
    assert not (tmp_path / "m").exists()


class Crew:
    """Workers of a scheduler, of which some join, leave and die.

    Args:
        folder: Where they work.
        address: Of their scheduler.
    """

    def __init__(self, folder, address):
        self.folder, self.address = folder, address
        self.rng, self.numbers = random.Random(8), itertools.count()
        self.workers, self.left = {}, []
        self.done = Counter()
        self._stopped = threading.Event()

    def join(self):
        """Start one more."""
        name = f"worker-{next(self.numbers)}"
        self.workers[name] = start_worker(self.folder, self.address, name)

    def kill(self):
        """Kill one with its nanny and children: a machine that is gone."""
        self._end(self.workers.pop(self.rng.choice(sorted(self.workers))))

    def retire(self, client):
        """Have one leave in order, as a batch system or an autoscaler does."""
        name = self.rng.choice(sorted(self.workers))
        process = self.workers.pop(name)
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            client.retire_workers(names=[name])
        process.terminate()
        self.left.append(process)

    def unsettle(self):
        """Until :meth:`stop`: each second or two one dies, leaves or joins; there are three to six."""
        with distributed.Client(self.address, set_as_default=False) as client:
            while not self._stopped.wait(self.rng.uniform(0.5, 2.5)):
                kinds = ["kill", "retire"] if len(self.workers) >= CREW else ["join"]
                kinds += ["join"] if len(self.workers) < CREW + 2 else []
                kind = self.rng.choice(kinds)
                self.retire(client) if kind == "retire" else getattr(self, kind)()
                self.done[kind] += 1

    def stop(self):
        """End the unrest."""
        self._stopped.set()

    def close(self):
        """End all of them."""
        for process in [*self.workers.values(), *self.left]:
            self._end(process)

    @staticmethod
    def _end(process):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=20)


@pytest.mark.timeout(CHAOS_SECONDS + 1200)
def test_workers_that_join_leave_and_die_change_nothing(tmp_path):
    """Some workers of four are killed, retired and started all the time; each build in this has the same id.

    Builds follow each other, each from nothing, for as long as the unrest lasts.
    """
    write_slow_corpus(tmp_path, per_shard=thinned(700, few=150))
    expected, _ = build(tmp_path / "config.yaml", "--state", tmp_path / "state", manifest=tmp_path / "m")
    process, address = start_scheduler(tmp_path)
    crew = Crew(tmp_path, address)
    for _ in range(CREW):
        crew.join()
    unrest, begun, builds = threading.Thread(target=crew.unsettle), time.monotonic(), 0
    try:
        while builds == 0 or time.monotonic() - begun < CHAOS_SECONDS:
            target = tmp_path / f"m-{builds}"
            state = tmp_path / f"state-{builds}"
            running = start(
                *("build", tmp_path / "config.yaml", "--scheduler", address, "--json"),
                *("--state", state, "--manifest", target),
            )
            if builds == 0:
                unrest.start()
            out, err = running.communicate(timeout=1000)
            assert running.returncode == 0, err
            assert json.loads(out)["id"] == expected["id"]
            builds += 1
    finally:
        crew.stop()
        if unrest.ident is not None:
            unrest.join(timeout=60)
        crew.close()
        Crew._end(process)
    assert all(crew.done[kind] for kind in ("join", "kill", "retire")), crew.done
    print(f"{builds} builds, {time.monotonic() - begun:.0f} s, {dict(crew.done)}")


@pytest.fixture
def small(tmp_path):
    """A config of one shard."""
    lines = [json.dumps({"text": f"Text {row * 17} is like no other."}) + "\n" for row in range(30)]
    (tmp_path / "a.jsonl").write_text("".join(lines), encoding="utf-8")
    return {"splits": {"train": {"paths": str(tmp_path / "a.jsonl")}}}


def client_of(**options):
    """Start a cluster of one worker as a notebook does, and return a client of it."""
    return distributed.Client(n_workers=1, threads_per_worker=1, dashboard_address=":0", **options)


def test_a_client_builds_the_same_manifest_and_stays_open(small, tmp_path):
    """Its worker did the work, and takes other work afterwards; a closed client is said."""
    with client_of(processes=True) as client, client.cluster:
        built = api.build(small, tmp_path / "m", client=client, state=tmp_path / "state")
        assert built.manifest.run.workers == 1
        assert client.submit(sum, [1, 2]).result(timeout=30) == 3
    assert built.id == api.build(small, tmp_path / "same", workers=0, state=tmp_path / "other").id
    with pytest.raises(ClusterError, match="client: no worker answers"):
        api.build(small, tmp_path / "again", client=client)


def test_workers_that_share_a_process_are_refused(small, tmp_path):
    """Threads of this process cannot be told apart when one crashes."""
    with client_of(processes=False) as client, client.cluster, pytest.raises(ClusterError, match="in one process"):
        api.build(small, tmp_path / "m", client=client)
    assert not (tmp_path / "m").exists()


def child_runs():
    """Tell, on a worker, whether its child is there."""
    return any(child.alive() for child in sandbox._children)


def test_the_child_of_a_joined_worker_ends_with_the_build(tmp_path, monkeypatch):
    """It holds memory of the caller's workers."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    units = [HostileUnit("well", "u", isolated=True)]
    with client_of(processes=True) as client, client.cluster:
        with open_cluster(ClusterChoice(client=client), tmp_path) as cluster:
            DaskRunner(cluster=cluster, unit_seconds=60).run("one", behave, units, lambda *_: True)
            assert [*client.run(child_runs).values()] == [True]
        deadline = time.monotonic() + 20
        while any(client.run(child_runs).values()) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert [*client.run(child_runs).values()] == [False]
