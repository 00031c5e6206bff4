"""State folder: whose it is, what a build believes of it, and what goes wrong with it, never the fault of a shard.

What lies there enters numbers, so a folder that belongs to another user, or that others may write, is refused. A build
that signs believes less: it works in a folder of its own that is gone afterwards, or in one whose files are sealed
under the user's key (:mod:`dataaudit.base.sealing`). Both lie in the state folder, beside what other builds use.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dataaudit.base.errors import BuildInterrupted, ClusterError, ConfigError, limit_hint
from dataaudit.base.sealing import KeyInUseError, key_id, under_key
from dataaudit.manifest.replace import publish_lock

_FOLDERS = ("detectors", "in-work", "partials", "protected", "tokenizers", "tokens")
"""What builds make in it, private from the start: a generous umask would let others write there."""
_KEYED, _ONCE = "keyed-", "once-"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_ENTER = stat.S_IXGRP | stat.S_IXOTH
_ONCE_BYTES = 32


class StateFolderError(ClusterError):
    """The state folder cannot be read or written."""


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn what the file system refuses into an error that names the folder."""
    try:
        yield
    except OSError as error:
        raise StateFolderError(
            f"the state folder {folder} cannot be written: {error.strerror or type(error).__name__}",
            (limit_hint(error) or "Free space there or name another folder (--state DIR, in Python state=DIR).")
            + " Run the same command then: what was finished is kept.",
        ) from None


def own_folder(folder: Path) -> Path:
    """Return a state folder, made if need be, that is this user's alone."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        _expect_ours(folder)
        for name in _FOLDERS:
            (folder / name).mkdir(mode=0o700, exist_ok=True)
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"the state folder {folder} cannot be written: {error.strerror}",
            "Name another one: --state DIR, in Python state=DIR.",
        ) from None
    return folder


@contextmanager
def open_state(folder: Path, *, key: bytes | None, once: bool) -> Iterator[Path]:
    """Yield the folder that a build works in: the state folder, or one in it that nothing else has written."""
    with contextlib.ExitStack() as stack:
        inner = folder
        if key is not None:
            inner = own_folder(folder / f"{_KEYED}{key_id(key)}")
        elif once:
            inner = stack.enter_context(_new_folder(folder))
            key = secrets.token_bytes(_ONCE_BYTES)
        try:
            stack.enter_context(under_key(key or b""))
        except KeyInUseError:
            raise ConfigError(
                "another build of this process goes by another state key",
                "Run them one after the other, or in processes of their own.",
            ) from None
        yield inner


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder in the state folder; those that killed builds left are removed."""
    with writing(folder), publish_lock(folder) as alone:
        for left in folder.glob(f"{_ONCE}*") if alone else ():
            _remove_unused(left)
        made = own_folder(folder / f"{_ONCE}{secrets.token_hex(8)}")
        descriptor = os.open(made, os.O_RDONLY)
        with contextlib.suppress(OSError):  # nothing can be locked there, so nothing is removed either
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield made
    except (BuildInterrupted, ClusterError) as error:
        raise type(error)(
            error.message.replace("; what was finished is kept", ""),
            f"{error.hint} A build that signs without --state-key FILE begins anew each time.".strip(),
        ) from None
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(descriptor)


def _remove_unused(folder: Path) -> None:
    """Remove a folder that no build has locked."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)


def _expect_ours(folder: Path) -> None:
    """See to it that nobody else could have put anything into the state folder, or can."""
    if folder.is_symlink() and (owner := folder.lstat().st_uid) not in {0, os.geteuid()}:
        raise _refused(folder, f"is a link of user {owner}")
    status = folder.stat()
    _expect_own(folder, status)
    if status.st_mode & _OTHERS_WRITE:
        raise _writable(folder, status)
    _expect_inside(folder, others_enter=bool(status.st_mode & _OTHERS_ENTER))


def _expect_inside(folder: Path, *, others_enter: bool) -> None:
    """Look at everything in a folder; of what others cannot reach, only whose it is."""
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # another build has removed it
                continue
            path, is_folder = Path(entry.path), stat.S_ISDIR(status.st_mode)
            _expect_own(path, status)
            if stat.S_ISLNK(status.st_mode):
                raise _refused(path, "is a link, which no build makes there")
            if others_enter and status.st_mode & (_OTHERS_WRITE if is_folder else stat.S_IWOTH):
                raise _writable(path, status)
            if is_folder:
                with contextlib.suppress(FileNotFoundError):
                    _expect_inside(path, others_enter=others_enter and bool(status.st_mode & _OTHERS_ENTER))


def _expect_own(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise _refused(path, f"belongs to user {status.st_uid}, not to {os.geteuid()}, who builds")


def _writable(path: Path, status: os.stat_result) -> ConfigError:
    mode = stat.S_IMODE(status.st_mode)
    remedy = f"If nobody else has written there: chmod -R go-w {path}. Else remove it: it is made anew."
    return ConfigError(f"the state folder is not believed: other users may write {path} (mode {mode:o})", remedy)


def _refused(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"the state folder is not believed: {path} {why}",
        "Name a folder of your own: --state DIR, in Python state=DIR. It is made if it is not there.",
    )
