"""Check on a GPU what only a GPU shows, within six minutes: ``make gpu-check``.

    PYTHONPATH=.:tests python3 -m gpu [--out DIR] [--dry-run] [--parts PART ...] [--seconds 360]

Exit codes: 0 nothing failed, 1 something did, 2 wrong use: no GPU without ``--dry-run``, or an unknown part.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import table
from .parts import DRY_PROCESSES, FAILED, NO_GPU, NO_TIME, NOT_EVALUATED, PARTS, PROCESSES

CHILD = ("-m", "gpu.child")
"""What a process runs."""
_POLL_SECONDS = 0.2
_LAST_SECONDS = 5.0
"""Before the end, for what is left to write."""
_LOG_CHARACTERS = 4_000


class Process:
    """A process that runs parts; where it ends before it has run all, another one goes on.

    Args:
        folder: For what it writes.
        parts: Which, in order.
        deadline: When it has to be done, in seconds of ``time.monotonic``.
        dry: Whether it is a dry run.
    """

    def __init__(self, folder: Path, parts: list[str], deadline: float, *, dry: bool) -> None:
        self.folder, self.parts, self.deadline, self.dry = folder, list(parts), deadline, dry
        self.rows: list[table.Row] = []
        self.machine: dict[str, Any] = {}
        self.no_gpu = ""
        self.log = folder / f"log-{parts[0]}.txt"
        self._number = 0
        self._start()

    @property
    def done(self) -> bool:
        """Whether nothing is left to run."""
        return not self.parts

    def look(self) -> None:
        """Read what it wrote; go on, or end it, where that is due."""
        # it is not reaped here: as long as it is not, its number is nobody else's, and `end` ends no other group
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) if self.parts else None
        self._read()
        now = time.monotonic()
        if ended is not None and self.parts:
            self.end()
            code = self._process.returncode
            if code == NO_GPU and self.no_gpu:
                self.parts.clear()
                return
            if self._current or not self._begun:  # not where it ended after a part, because its GPU does no more for it
                how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
                self._leave_out(FAILED, f"its process ended ({how}); the log says more")
            self._start()
        elif self.parts and now > self.deadline:
            self.end()
            while self.parts:
                self._leave_out(NOT_EVALUATED, NO_TIME)
        elif self._current and not self.dry and now > self._began + PARTS[self._current].seconds:
            self.end()
            self._leave_out(FAILED, f"it was not done within {PARTS[self._current].seconds:.0f} s")
            self._start()

    def end(self) -> None:
        """End the process, and those that it started: a compiler's outlive it."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._read()

    def _start(self) -> None:
        self._current, self._began, self._begun = "", time.monotonic(), False
        if not self.parts:
            return
        self._number += 1
        self._written, self._seen = self.folder / f"rows-{self.parts[0]}-{self._number}.jsonl", 0
        self._written.touch()
        left = max(1.0, self.deadline - time.monotonic())
        how = "dry" if self.dry else "gpu"
        command = [sys.executable, *CHILD, str(self.folder), str(self._written), f"{left:.1f}", how, *self.parts]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
                start_new_session=True,
            )

    def _read(self) -> None:
        with self._written.open("rb") as file:
            file.seek(self._seen)
            lines = file.read()
        lines = lines[: lines.rfind(b"\n") + 1]
        self._seen += len(lines)
        for line in lines.splitlines():
            found = json.loads(line)
            if "begins" in found:
                self._current, self._began, self._begun = found["begins"], time.monotonic(), True
            elif "ends" in found:
                self.parts.remove(found["ends"])
                self._current = ""
            elif "part" in found:
                self.rows.append(found)
            else:
                self.machine = found.get("machine", self.machine)
                self.no_gpu = found.get("no_gpu", "")

    def _leave_out(self, status: str, why: str) -> None:
        part = self._current or self.parts[0]
        check = "the rest" if any(row["part"] == part for row in self.rows) else "all"
        row = {"part": part, "check": check, "status": status, "detail": why, "numbers": {}, "trace": ""}
        self.rows.append(row | {"seconds": round(time.monotonic() - self._began, 2)})
        self.parts.remove(part)
        self._current = ""

    def _environment(self) -> dict[str, str]:
        found = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "PYTHONFAULTHANDLER": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor"),
            "TORCHINDUCTOR_COMPILE_THREADS": str(max(1, (os.cpu_count() or 1) // 3)),
            "TRITON_CACHE_DIR": str(self.folder / "triton"),
        }
        if "bits" in self.parts:
            found |= {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  # products of matrices are the same from run to run
        if self.dry:
            found |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
            found |= {"TRITON_INTERPRET": "1"} if "kernel" in self.parts else {}
        return found


def check(out: Path, parts: list[str], *, seconds: float, dry: bool) -> int:
    """Run parts, write what they show as it comes, print it, and return the exit code."""
    began = time.monotonic()
    chosen = [[part for part in some if part in parts] for some in (DRY_PROCESSES if dry else PROCESSES)]
    with tempfile.TemporaryDirectory(prefix="gpu-check-", ignore_cleanup_errors=True) as folder:
        deadline = began + seconds - _LAST_SECONDS
        processes = [Process(Path(folder), some, deadline, dry=dry) for some in chosen if some]
        written, text = -1, ""
        try:
            while True:
                for process in processes:
                    process.look()
                if why := next((one.no_gpu for one in processes if one.no_gpu), ""):
                    print(f"there is no GPU ({why}); try `--dry-run`, which needs none", file=sys.stderr)
                    return 2
                done = all(one.done for one in processes)
                rows = [row for part in parts for one in processes for row in one.rows if row["part"] == part]
                if len(rows) != written or done:
                    written = len(rows)
                    machine = next((one.machine for one in processes if one.machine), {})
                    taken = time.monotonic() - began
                    text = table.write(out, machine, rows, dry=dry, seconds=taken, logs=logs_of(processes))
                if done:
                    break
                time.sleep(_POLL_SECONDS)
        finally:
            for process in processes:
                process.end()
    print(text)
    print(f"\nwritten to {out}/table.md and {out}/result.json")
    return int(any(row["status"] == FAILED for row in rows))


def logs_of(processes: list[Process]) -> dict[str, str]:
    """Return the end of what processes printed in which something failed."""
    failed = [one for one in processes if any(row["status"] == FAILED for row in one.rows)]
    return {one.log.stem: one.log.read_text(encoding="utf-8", errors="replace")[-_LOG_CHARACTERS:] for one in failed}


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("gpu-check"), help="folder of table.md and result.json")
    parser.add_argument("--dry-run", action="store_true", help="everything small, on the CPU")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seconds", type=float, default=360.0, help="after which what is left is left out")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return check(given.out, list(dict.fromkeys(given.parts)), seconds=given.seconds, dry=given.dry_run)


if __name__ == "__main__":
    sys.exit(main())
