"""Files that appear whole or not at all: written beside their place, then renamed; kills and other writers do no harm.

What is renamed is not forced to disk: stores are read by digests, and what a power failure took is made again. What is
published is prepared in a folder of its own, forced to disk file by file (:func:`write_synced`) and moved as a whole.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from dataaudit.sealing import seal

_NAME_BYTES = 64
_SEAL_BYTES = 65


class DamagedFileError(Exception):
    """Files that were written whole are absent, cut or altered: their content is not what its digest says.

    Args:
        paths: The files.
    """

    def __init__(self, *paths: str) -> None:
        super().__init__(*paths)
        self.paths = paths


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file beside a path; after the block it has that name, after an error in it it is gone.

    The folder must be there. A link of that name is replaced, not followed.

    Raises:
        OSError: It cannot be written; what had the name before is there still.
    """
    begin = os.fsdecode(os.fsencode(path.name)[:_NAME_BYTES])
    beside = path.with_name(f".{begin}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with beside.open("xb") as file:
            yield file
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def write_whole(path: Path, *pieces: bytes) -> None:
    """Write a file, its folders with it, so that others see all of it or nothing.

    Raises:
        OSError: It cannot be written; what had the name before is there still.
    """
    try:
        _write(path, pieces)
    except FileNotFoundError:  # of many files in few folders most find theirs
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, pieces)


def _write(path: Path, pieces: Iterable[bytes]) -> None:
    with replacing(path) as file:
        file.writelines(pieces)


def write_sealed(path: Path, content: bytes) -> None:
    """Write a file as :func:`write_whole` does, after a line with the seal of its name and its content.

    Raises:
        OSError: It cannot be written; what had the name before is there still.
    """
    write_whole(path, _seal(path, content), content)


def read_sealed(path: Path) -> bytes | None:
    """Return what :func:`write_sealed` wrote; None when that is absent, cut, altered or another file's."""
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    content = whole[_SEAL_BYTES:]
    return content if _seal(path, content) == whole[:_SEAL_BYTES] else None


def _seal(path: Path, content: bytes) -> bytes:
    return seal(os.fsencode(path.name) + b"\n" + content).hexdigest().encode() + b"\n"


def write_changed(path: Path, content: bytes) -> None:
    """Write a file as :func:`write_whole` does; one that holds the same already is left alone.

    Raises:
        OSError: It cannot be written; what had the name before is there still.
    """
    if not (path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content):
        write_whole(path, content)


def write_synced(path: Path, data: bytes) -> None:
    """Write a file, under its name from the first byte on, and force it to disk.

    Raises:
        OSError: It cannot be written.
    """
    with path.open("wb") as file:
        file.write(data)
        sync_file(file)


def sync_file(file: BinaryIO) -> None:
    """Force an open file's content to disk.

    Raises:
        OSError: It cannot be done.
    """
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to disk; some file systems cannot, and need not.

    Raises:
        OSError: It cannot be done.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:
            raise
    finally:
        os.close(descriptor)
