"""The child process in which hostile bytes are read: takes calls one after another, answers each, stays warm.

A frame is eight bytes of length and a pickle. Calls (function, unit) come on the standard input; outcomes go to
the descriptor that the command line names. The child ends with its parent.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from dataaudit.corpus.loss import Reason
from dataaudit.engine.units import Outcome

LENGTH_BYTES = 8
READY = "ready"
"""First answer of all: the child takes calls."""
INPUT_ERROR = "input error"
"""Answer of a call that raised OSError: it may pass, so the parent decides."""
_PR_SET_PDEATHSIG = 1


def read_frame(stream: BinaryIO) -> bytes | None:
    """Return the next frame, None at the end of the stream or within a frame that was cut short."""
    head = stream.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    size = int.from_bytes(head, "little")
    body = stream.read(size)
    return body if len(body) == size else None


def frame(value: object) -> bytes:
    """Return a value as a frame."""
    body = pickle.dumps(value)
    return len(body).to_bytes(LENGTH_BYTES, "little") + body


def _call(function: Callable[[Any], Outcome], unit: Any) -> Outcome | str:
    try:
        return function(unit)
    except MemoryError:
        return Outcome(reason=Reason.OUT_OF_MEMORY)
    except OSError:
        return INPUT_ERROR


def main() -> None:
    """Serve calls until the parent closes its end."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    answers, parent = int(sys.argv[1]), int(sys.argv[2])
    if os.getppid() != parent:
        sys.exit(1)  # the parent died before the line above
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    with os.fdopen(answers, "wb", buffering=0) as sink:
        sink.write(frame(READY))
        while (body := read_frame(sys.stdin.buffer)) is not None:
            function, unit = pickle.loads(body)  # noqa: S301 - a function, through a pipe of our own parent
            answer = memoryview(frame(_call(function, unit)))
            while answer:
                answer = answer[sink.write(answer) :]
    os._exit(0)


if __name__ == "__main__":
    main()
