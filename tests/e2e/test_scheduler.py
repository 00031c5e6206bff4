"""An existing Dask cluster: a real scheduler and two real worker processes, started as a user starts them."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from running import build, run

DASK = Path(sys.executable).with_name("dask")
pytestmark = [pytest.mark.cluster, pytest.mark.ci]


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


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    """The address of a scheduler with two workers, started by `dask scheduler` and `dask worker`."""
    folder = tmp_path_factory.mktemp("dask")
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    quiet = {
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        "cwd": folder,
        "env": dict(os.environ),
    }
    started = [
        subprocess.Popen([DASK, "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"], **quiet)
    ]
    wait_for_port(port)
    started += [
        subprocess.Popen([DASK, "worker", address, "--nthreads", "1", "--no-dashboard", "--name", name], **quiet)
        for name in ("one", "two")
    ]
    yield address
    for process in reversed(started):
        process.terminate()
    for process in started:
        process.wait(timeout=20)


def test_an_existing_cluster_gives_the_same_manifest(corpus, expected, scheduler, tmp_path):
    """A build on a scheduler with two workers publishes what a local build publishes, twice in a row."""
    for name in ("first", "second"):
        summary, manifest = build(
            corpus / "config.yaml",
            "--scheduler",
            scheduler,
            "--state",
            tmp_path / name,
            manifest=tmp_path / f"m-{name}",
        )
        assert summary["id"] == expected.id
        assert manifest.run.workers == 2


@pytest.mark.all
def test_a_scheduler_that_is_not_there_is_said(corpus, tmp_path):
    """No scheduler at the address: code 3 and what an address looks like."""
    _, err = run(
        "build",
        corpus / "config.yaml",
        "--scheduler",
        f"tcp://127.0.0.1:{free_port()}",
        "--manifest",
        tmp_path / "m",
        expect=3,
    )
    assert "no scheduler answers" in err
    assert not (tmp_path / "m").exists()
