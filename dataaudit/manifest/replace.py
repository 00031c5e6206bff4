"""Atomic replacement of a folder by a prepared one, and recovery from a kill.

The replacement is ``renameat2`` with ``RENAME_EXCHANGE``. Where the system has no such call, it is two renames: the old
folder becomes a hidden sibling, then the new folder takes its name. A kill between the two leaves no folder, but loses
nothing: a reader's error names the sibling (:func:`moved_aside`), and the next publish puts it back (:func:`recover`).

Hidden siblings of ``DIR`` are ``.DIR.publishing-<random>`` (a new manifest, unfinished or replaced) and
``.DIR.replaced-<random>`` (an old one). Each publish has names of its own.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from dataaudit.base.files import sync_folder

POINTER = "manifest.json"
ATTESTATION = "attestation.json"
"""Signature of this manifest alone (:mod:`dataaudit.manifest.trust`), so no publish keeps it."""
_PUBLISHING = "publishing"
_REPLACED = "replaced"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextmanager
def publish_lock(parent: Path) -> Iterator[bool]:
    """Wait until no other live publish works in ``parent``."""
    descriptor = os.open(parent, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            locked = True
        except OSError:
            locked = False
        yield locked
    finally:
        os.close(descriptor)


def staging_folder(target: Path) -> Path:
    """Return a name for the folder in which a publish prepares its manifest."""
    return _name(target, _PUBLISHING)


def recover(target: Path, *, alone: bool) -> None:
    """Put back a manifest that a killed publish moved aside; with ``alone``, remove other leftovers."""
    if not target.exists() and (copy := moved_aside(target)) is not None:
        copy.rename(target)
    if alone:
        for leftover in (*_siblings(target, _PUBLISHING), *_siblings(target, _REPLACED)):
            shutil.rmtree(leftover, ignore_errors=True)


def moved_aside(target: Path) -> Path | None:
    """Return the manifest that a killed publish moved aside, if there is one."""
    whole = [folder for folder in _siblings(target, _REPLACED) if (folder / POINTER).is_file()]
    return max(whole, key=lambda folder: folder.stat().st_ctime_ns, default=None)


def replace_folder(prepared: Path, target: Path, ours: Collection[str] | None = None) -> None:
    """Give ``prepared`` the name ``target``; what was there before is removed."""
    old = prepared
    if not target.exists():
        prepared.rename(target)
    elif not exchange(prepared, target):
        old = _name(target, _REPLACED)
        target.rename(old)
        try:
            prepared.rename(target)
        except OSError:
            old.rename(target)
            raise
    sync_folder(target.parent)
    for item in sorted(old.iterdir()) if ours is not None and old.is_dir() else ():
        if item.name not in (ours or ()) and not os.path.lexists(target / item.name):
            item.rename(target / item.name)
    shutil.rmtree(old, ignore_errors=True)


def exchange(left: Path, right: Path) -> bool:
    """Swap two folders in one step; False where the system cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    if renameat2(_AT_FDCWD, os.fsencode(left), _AT_FDCWD, os.fsencode(right), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(right))


def _name(target: Path, kind: str) -> Path:
    return target.parent / f".{target.name}.{kind}-{secrets.token_hex(4)}"


def _siblings(target: Path, kind: str) -> list[Path]:
    start = f".{target.name}.{kind}-"
    try:
        return sorted(item for item in target.parent.iterdir() if item.name.startswith(start))
    except OSError:
        return []
