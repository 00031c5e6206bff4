"""Records the logs of runs that fail on purpose, by torchrun and gloo, on this machine.

    PYTHONPATH=. python tests/live_logs/record.py [CASE ...]    # needs torch; writes tests/live_logs/recorded/

Paths, names and addresses of the machine are replaced; times and process ids stay as they were.
"""

import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "recorded"
CASES = {
    "assertion": (3,),
    "killed": (3,),
    "memory": (3,),
    "worker-killed": (2,),
    "hang": (3,),
    "terminated": (2,),
    "late": (3,),
    "tee": (2, "--tee", "3"),
    "restart": (2, "--max-restarts", "1"),
    "record": (4,),
    "bad-row": (2,),
    "lost-shard": (2,),
    "allocator": (2,),
    "disk-full": (2,),
    "evaluation": (2,),
    "segfault": (2,),
    "shapes": (2,),
    "per-rank": (2, "--redirects", "3", "--log-dir", "logs"),
    "healthy": (3,),
}
"""Processes of each case, and further options of torchrun."""


def neutral(text, folder):
    """Return a log without the names of this machine."""
    places = {
        str(folder): "/srv/run",
        str(HERE): "/srv/run",
        sysconfig.get_path("purelib"): "/opt/venv/lib/python/site-packages",
        sys.prefix: "/opt/venv",
        sysconfig.get_path("stdlib"): "/opt/python/lib",
        sys.base_prefix: "/opt/python",
        socket.getfqdn(): "node01",
        socket.gethostname(): "node01",
    }
    for name, other in sorted(places.items(), key=lambda item: -len(item[0])):
        text = text.replace(name, other)
    text = re.sub(rf"\b{re.escape(getpass.getuser())}\b(?=@|/)", "user", text)
    text = re.sub(r"/tmp/torchelastic_\w+/[\w-]+", "/tmp/torchelastic/run", text)
    return re.sub(r"\b(?:\d{1,3}\.){3}\d{1,3}\b", "127.0.0.1", text)


def record(case):
    """Run a case and write its log, or its logs by rank."""
    processes, *options = CASES[case]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "WARNING", "TZ": "UTC"}
        with (folder / "log").open("wb") as log:
            run = subprocess.Popen(
                [*command, *options, str(HERE / "failing.py"), case],
                cwd=folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            if case == "terminated":
                while run.poll() is None and len(list(folder.glob("ready-*"))) < processes:
                    time.sleep(0.1)
                run.send_signal(signal.SIGTERM)
            try:
                run.wait(timeout=120)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
                raise
        target = RECORDED / case
        shutil.rmtree(target, ignore_errors=True)
        written = {"launcher.log": folder / "log"}
        for path in sorted((folder / "logs").glob("*/attempt_*/*/std*.log")):
            written[f"{path.parts[-3]}/{path.parts[-2]}/{path.name}"] = path
        for place, path in written.items():
            text = path.read_text("utf-8", errors="replace")
            if text:
                (target / place).parent.mkdir(parents=True, exist_ok=True)
                (target / place).write_text(neutral(text, folder))


if __name__ == "__main__":
    for chosen in sys.argv[1:] or CASES:
        started = time.monotonic()
        record(chosen)
        print(f"{chosen}: {time.monotonic() - started:.0f} s")
