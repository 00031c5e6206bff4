"""A build on a client that the caller has: the same manifest, and the client goes on."""

import json
import time
from pathlib import Path

import distributed
import pytest
from hostile import HostileUnit, behave

from dataaudit import api
from dataaudit.base.errors import ClusterError
from dataaudit.engine import sandbox
from dataaudit.engine.cluster import ClusterChoice, open_cluster
from dataaudit.engine.dask_runner import DaskRunner

pytestmark = pytest.mark.kills


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
