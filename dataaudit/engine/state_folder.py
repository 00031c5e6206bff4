"""What goes wrong with the state folder: never the fault of a shard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dataaudit.errors import ClusterError, limit_hint


class StateFolderError(ClusterError):
    """The state folder cannot be read or written."""


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn what the file system refuses into an error that names the folder.

    Args:
        folder: The state folder, or one in it.

    Raises:
        StateFolderError: Something inside raised an ``OSError``.
    """
    try:
        yield
    except OSError as error:
        raise StateFolderError(
            f"the state folder {folder} cannot be written: {error.strerror or type(error).__name__}",
            (limit_hint(error) or "Free space there or name another folder (--state DIR, in Python state=DIR).")
            + " Run the same command then: what was finished is kept.",
        ) from None
