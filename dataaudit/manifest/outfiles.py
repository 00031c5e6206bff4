"""Output files that options name: atomic writes that never follow a link or write into a manifest.

A regular file, or nothing yet, is replaced in one step. A link is replaced, and its target stays. A stream of this
process (``/dev/stdout``, ``/dev/fd/63`` of ``>(command)``) or a device (``/dev/null``, a terminal) is written to.
Anything else (a folder, a named pipe, a socket, a disk) is refused.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import BinaryIO

from dataaudit.base.errors import ConfigError
from dataaudit.base.files import kind_of, open_safely, replacing
from dataaudit.manifest.files import FOLDERS
from dataaudit.manifest.replace import ATTESTATION, POINTER

_STREAM = re.compile(r"/dev/(?P<name>stdin|stdout|stderr)|/(?:dev|proc/self)/fd/(?P<number>[0-9]{1,6})")
_NAMED = {"stdin": 0, "stdout": 1, "stderr": 2}


def check_files(
    files: Mapping[str, Path | None],
    kept: Mapping[str, Path | None] | None = None,
    folders: Collection[Path | None] = (),
) -> None:
    """Check the output files of options before any work is done."""
    closed = {os.path.realpath(folder) for folder in folders if folder is not None}
    taken: dict[str, str] = {}
    for option, path in (kept or {}).items():
        if path is not None:
            taken |= dict.fromkeys((_place(path), os.path.realpath(path)), option)
    for option, path in files.items():
        if path is None:
            continue
        parent = path.parent
        if not os.path.isdir(parent):
            raise ConfigError(
                f"{option}: the folder {parent} does not exist", f"Make it first: mkdir -p {quote(str(parent))}"
            )
        if _is_stream(path):
            continue
        _refuse(path, f"{option}: ")
        if _is_part(path, closed):
            raise ConfigError(f"{option}: {path} is a part of a manifest", "Give it another name.")
        place = _place(path)
        if place in taken:
            raise ConfigError(f"{option} and {taken[place]} name the same file, {path}", "Give each a file of its own.")
        taken[place] = option


def check_folder(option: str, folder: Path) -> None:
    """Check the output folder of an option before any work is done."""
    if os.path.lexists(folder / POINTER):
        raise ConfigError(f"{option}: {folder} is a manifest", "Give another folder.")
    known = next((path for path in (folder, *folder.parents) if os.path.lexists(path)), Path())
    if not (known.is_dir() and os.access(known, os.W_OK | os.X_OK)):
        why = "permission denied" if known.is_dir() else "it is no folder"
        raise ConfigError(f"{option}: {folder} cannot be written: {known}: {why}", "Give another folder.")


def write_file(path: Path, content: bytes) -> None:
    """Put a file in place in one step, with the mode of the file that it replaces; a stream is written to."""
    write_pieces(path, (content,))


def write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Write pieces as they are made; an error in making them leaves the old file in place."""
    with writing(path) as file:
        file.writelines(pieces)


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write, which gets its name after the block, as of :func:`write_file`."""
    try:
        if _is_stream(path):
            with open(_descriptor(path), "wb") as stream:
                yield stream
            return
        _refuse(path)
        if _is_part(path):
            raise ConfigError(f"{path} is a part of a manifest", "Give it another name.")
        mode = _mode(path)
        with replacing(path) as stream:
            yield stream
            if stat.S_ISREG(mode):
                os.fchmod(stream.fileno(), stat.S_IMODE(mode))
    except OSError as error:
        raise _refused(path, error) from None


def append_file(path: Path, content: bytes) -> None:
    """Append to a file that others may write, too; a link is not followed."""
    try:
        if _is_stream(path):
            descriptor = _descriptor(path)
        else:
            descriptor = open_safely(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW)
        with open(descriptor, "ab") as stream:
            stream.write(content)
    except OSError as error:
        raise _refused(path, error) from None


def size_of(path: Path) -> int:
    """Return the bytes of a file; 0 where there is none yet."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def same_place(path: Path, other: Path) -> bool:
    """Return whether two paths are the same name in the same folder, be it a link or not."""
    return _place(path) == _place(other)


def _place(path: Path) -> str:
    """Return a path whose folders are no links; its last part may be."""
    return os.path.join(os.path.realpath(path.parent), path.name)


def _mode(path: Path) -> int:
    """Return the mode of a path; 0 when nothing is there."""
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise _refused(path, error) from None


def _own(path: Path) -> int | None:
    """Return the descriptor of this process that a path names; None of any other path."""
    match = _STREAM.fullmatch(os.path.abspath(path))
    if match is None:
        return None
    return _NAMED[match["name"]] if match["name"] else int(match["number"])


def _is_stream(path: Path) -> bool:
    return _own(path) is not None or stat.S_ISCHR(_mode(path))


def _descriptor(path: Path) -> int:
    """Open a stream; a stream of this process keeps its position."""
    own = _own(path)
    if own is not None:
        return os.dup(own)
    return os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC)


def _refuse(path: Path, option: str = "") -> None:
    """Refuse a path that is neither a file nor a link, and a link to a folder."""
    mode = _mode(path)
    if stat.S_ISLNK(mode) and path.is_dir():
        mode = path.stat().st_mode
    if mode and not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
        hint = " For a pipe, write to /dev/stdout." if stat.S_ISFIFO(mode) else ""
        raise ConfigError(f"{option}{path} is {kind_of(mode)}", f"Give the name of a file.{hint}")


def _is_part(path: Path, closed: Collection[str] = ()) -> bool:
    """Return whether a path is a file of a manifest: of a closed folder, or of any folder with a pointer."""
    folder, name = os.path.split(_place(path))
    inside = os.path.basename(folder) in FOLDERS
    folder = os.path.dirname(folder) if inside else folder
    if folder not in closed and not os.path.lexists(os.path.join(folder, POINTER)):
        return False
    return inside or name.casefold() in {ATTESTATION, POINTER} or name.casefold().endswith(".parquet")


def _refused(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"the file {path} cannot be written: {error.strerror or type(error).__name__}")
