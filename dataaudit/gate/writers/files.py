"""Files that the gate writes: whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from dataaudit.atomic import replacing
from dataaudit.errors import ConfigError
from dataaudit.manifest.replace import ATTESTATION, POINTER


def check_files(
    files: Mapping[str, Path | None], kept: Path | None = None, folders: Collection[Path | None] = ()
) -> None:
    """Look at what options ask to write before any work is done.

    Args:
        files: By option.
        kept: A file that no option may name: the policy.
        folders: Manifests, whose own files stay as they are; a `gate.json` beside them is welcome.

    Raises:
        ConfigError: A folder is missing, a file is a folder or a part of a manifest, or two options name one file.
    """
    closed = {os.path.realpath(folder) for folder in folders if folder is not None}
    taken: dict[str, str] = {} if kept is None else {os.path.realpath(kept): "--policy"}
    for option, path in files.items():
        if path is None:
            continue
        parent = path.parent
        if not parent.is_dir():
            raise ConfigError(f"{option}: the folder {parent} does not exist", f"Make it first: mkdir -p {parent}")
        if path.is_dir():
            raise ConfigError(f"{option}: {path} is a folder", "Give the name of a file.")
        if not _is_file(path):
            continue
        if os.path.realpath(parent) in closed and (path.name in {ATTESTATION, POINTER} or path.suffix == ".parquet"):
            raise ConfigError(f"{option}: {path} is a part of a manifest", "Give it another name.")
        real = os.path.realpath(path)
        if real in taken:
            raise ConfigError(f"{option} and {taken[real]} name the same file, {path}", "Give each a file of its own.")
        taken[real] = option


def write_file(path: Path, content: bytes) -> None:
    """Put a file in place in one step; it keeps its mode, and what is no regular file, such as a pipe, is written to.

    Raises:
        ConfigError: It cannot be written; an old file is there still.
    """
    write_pieces(path, (content,))


def write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Do so piece by piece, as they are made; an error in making them leaves the old file, too.

    Raises:
        ConfigError: As of :func:`write_file`.
    """
    try:
        if not _is_file(path):
            with path.open("wb") as stream:
                stream.writelines(pieces)
            return
        target = Path(os.path.realpath(path))
        with replacing(target) as stream:
            stream.writelines(pieces)
            if target.exists():
                os.fchmod(stream.fileno(), stat.S_IMODE(target.stat().st_mode))
    except OSError as error:
        raise _refused(path, error) from None


def append_file(path: Path, content: bytes) -> None:
    """Add to the end of a file that others write, too.

    Raises:
        ConfigError: It cannot be written.
    """
    try:
        with path.open("ab") as stream:
            stream.write(content)
    except OSError as error:
        raise _refused(path, error) from None


def size_of(path: Path) -> int:
    """Return the bytes of a file; 0 where there is none yet."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _is_file(path: Path) -> bool:
    """Return whether it is a regular file, or nothing yet."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return True


def _refused(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"the file {path} cannot be written: {error.strerror or type(error).__name__}")
