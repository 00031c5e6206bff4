"""A disk cache of what takes long to make: machine code, compiled patterns, checked rules.

A process trusts all of these. So a folder counts only when nobody else can write it, and every file begins with the
digest of its content: a file that was cut short or changed is made again. Its name contains a digest of all that its
content depends on, so an entry is never out of date.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from dataaudit.base.files import write_whole

R = TypeVar("R")

_DIGEST_BYTES = 32
_MOST_FILES = 16
"""Files of one kind that stay: each version of a user's rules makes one."""


def private_folder(*folders: str, within: str = "") -> Path | None:
    """Return the first folder of some, created, that only this user can write; None without any."""
    for folder in map(Path, map(os.path.expanduser, folders)):
        if _is_ours(folder) and (not within or _is_ours(folder / within)):
            return folder / within
    return None


def user_places(name: str) -> list[str]:
    """Return where a folder of this name may lie: in the user's cache folder, else in the temporary folder."""
    user = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return [
        os.path.join(user, "dataaudit", name),
        os.path.join(tempfile.gettempdir(), f"dataaudit-{name}-{os.getuid()}"),
    ]


@cache
def kept_folder() -> Path | None:
    """Return the cache folder, created; None when none can be written."""
    return private_folder(*user_places("kept"))


def kept(kind: str, inputs: Iterable[bytes], make: Callable[[], bytes], read: Callable[[bytes], R | None]) -> R:
    """Return what ``make`` makes, from disk when an earlier process kept it there."""
    name = f"{kind}-{sha256(b''.join(sha256(input_).digest() for input_ in inputs)).hexdigest()[:32]}"
    folder = kept_folder()
    stored = None if folder is None else _read(folder / name)
    value = None if stored is None else read(stored)
    if value is None:
        made = make()
        if folder is not None:
            _write(folder, kind, name, made)
        value = read(made)
        assert value is not None
    return value


@cache
def sources_digest(*folders: Path) -> bytes:
    """Return the digest of the Python files in folders, as first read: what code makes depends on the code."""
    digest = sha256()
    for folder in folders:
        for path in sorted(folder.glob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.digest()


def _read(path: Path) -> bytes | None:
    """Return what a file holds; None when there is none or it is not what was written."""
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    digest, content = whole[:_DIGEST_BYTES], whole[_DIGEST_BYTES:]
    return content if sha256(content).digest() == digest else None


def _write(folder: Path, kind: str, name: str, content: bytes) -> None:
    """Write a file at once, and let the oldest of its kind go; a full disk costs the time of making it again."""
    with contextlib.suppress(OSError):
        write_whole(folder / name, sha256(content).digest(), content)
        files = sorted(folder.glob(f"{kind}-*"), key=lambda path: path.stat().st_mtime_ns)
        for path in files[:-_MOST_FILES]:
            path.unlink(missing_ok=True)


def _is_ours(folder: Path) -> bool:
    """Create a folder that only we can write; what another user could have put there is never loaded."""
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return _is_private(folder)
    except OSError:
        return False


def _is_private(folder: Path) -> bool:
    status = folder.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022
