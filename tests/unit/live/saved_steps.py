"""Checkpoints whose bytes follow from their step, written without torch, and a process that is killed while it saves.

python saved_steps.py FOLDER EVENTS    # saves, and kills itself at an event of the file system; 0: prints how many
"""

import os
import random
import signal
import sys
from pathlib import Path

from dataaudit.base.files import write_whole
from dataaudit.live.checkpoints import Checkpoints

SAVES = 3
EVENTS = frozenset({"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.listdir", "os.scandir"})
"""Of Python's audit hooks: whatever touches the file system."""


def content(step):
    """Return the files of a step."""
    draw = random.Random(step)
    return {"model.bin": draw.randbytes(3_000), "optimizer/0.bin": draw.randbytes(70_000), "empty.bin": b""}


def write(step):
    """Return the function that writes a step."""

    def into(path):
        for name, data in content(step).items():
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_bytes(data)

    return into


def read(path):
    """Return the files of a checkpoint."""
    return {own.relative_to(path).as_posix(): own.read_bytes() for own in path.rglob("*") if own.is_file()}


def save(folder, *steps, **options):
    """Save some steps, and wait until each is tested."""
    with Checkpoints(folder, reproducibility={"made": "by a test"}, **options) as checkpoints:
        for step in steps:
            checkpoints.save(step, write(step))
            checkpoints.wait()
    return checkpoints


def main(folder, moment):
    """Save steps after the newest, and note each that is good; end at a moment."""
    seen = 0

    def hook(name, _):
        nonlocal seen
        if name in EVENTS:
            seen += 1
            if seen == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    checkpoints = Checkpoints(folder, keep=2, reproducibility={"made": "by a test"})
    latest = checkpoints.latest
    first = 1 if latest is None else latest.step + 1
    sys.addaudithook(hook)
    for step in range(first, first + SAVES):
        checkpoints.save(step, write(step))
        checkpoints.wait()
        write_whole(Path(f"{folder}.good"), str(checkpoints.last_good.step).encode())
    print(seen)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
