"""Scripts that start workers without ``if __name__ == "__main__":`` are refused at once, with the lines to type.

Python starts a worker as a new interpreter, which first imports the script that its parent runs. A script without the
guard calls ``build`` there again, while no process may be started, and no worker ever comes up. Such a call leaves its
line in a file that the parent reads while it waits for its workers, and ends its process without a word.
"""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import current_process
from pathlib import Path

from dataaudit.errors import ConfigError

_VARIABLE = "DATAAUDIT_UNGUARDED"
_GUARD = """Put the call under the guard:
      import dataaudit
      if __name__ == "__main__":
          dataaudit.build(..., workers={workers})"""


@contextmanager
def workers_report(environment: dict[str, str]) -> Iterator[Path]:
    """Yield the file in which a worker leaves the line of an unguarded script; its name goes into an environment."""
    with tempfile.TemporaryDirectory(prefix="dataaudit-") as folder:
        file = Path(folder) / "line"
        environment[_VARIABLE] = str(file)
        yield file


def check_guard(file: Path, workers: int) -> None:
    """Refuse to wait for workers that run the script again.

    Raises:
        ConfigError: One of them has left a line in the file.
    """
    if file.exists():
        raise _unguarded(file.read_text(encoding="utf-8"), workers)


def end_if_restarted(workers: int | None) -> None:
    """End this process when it is a worker that imports its parent's script; called first by every build.

    Args:
        workers: Of the build; with 0, no process is started and a child of somebody else may build.

    Raises:
        ConfigError: This process is a child that somebody else has started.
    """
    if not getattr(current_process(), "_inheriting", False):  # Python's mark of a process that is still starting
        return
    file = os.environ.get(_VARIABLE)
    if file is not None:
        Path(file).write_text(_line(), encoding="utf-8")
        os._exit(0)  # what the script has printed a second time, and not yet written, is dropped
    if workers != 0:
        raise _unguarded(_line(), workers or 2)


def _unguarded(line: str, workers: int) -> ConfigError:
    return ConfigError(
        f'{line} starts workers without `if __name__ == "__main__":`, and each worker runs the script again',
        _GUARD.format(workers=workers),
    )


def _line() -> str:
    """Return file and line of the statement of the script that is being run."""
    main = (one for one in inspect.stack(0) if one.frame.f_globals.get("__name__") == "__mp_main__")
    place = next((one for one in main if one.function == "<module>"), None)
    return "the script" if place is None else f"{Path(place.filename).name}, line {place.lineno},"
