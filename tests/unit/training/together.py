"""Scripts that are run as the processes of a distributed run."""

import os
import socket
import subprocess
import sys
from pathlib import Path


def run_together(script, size, *arguments):
    """Run a script as the processes of a distributed run, by gloo."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    together = {
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    here = Path(__file__)
    path = os.pathsep.join([str(here.parent), str(here.parents[2]), *sys.path])
    processes = [
        subprocess.Popen(
            [sys.executable, here.with_name(script), *arguments],
            env=os.environ | together | {"RANK": str(one), "LOCAL_RANK": str(one), "PYTHONPATH": path},
            stderr=subprocess.PIPE,
        )
        for one in range(size)
    ]
    said = [one.communicate(timeout=500)[1].decode() for one in processes]
    assert [one.returncode for one in processes] == [0] * size, said
