"""The folder of samples: new, outside of what is published or kept, for its owner's eyes, each file with a banner.

What is written here holds parts of documents, so nothing is written over, followed or shared: the folder has to be
empty, its mode is 0700 and that of each file 0600, and a file is created or the writing fails.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dataaudit.errors import ConfigError
from dataaudit.text import clean

_FOLDER_MODE, _FILE_MODE = 0o700, 0o600
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_NAME = 100
_GIT = ".gitignore"
BANNER = """\
# SAMPLES OF FINDINGS: THIS FILE HOLDS PARTS OF DOCUMENTS.
#
# dataaudit wrote it because somebody asked for it with --samples. Each entry is a few words around a finding. What the
# detectors found is masked by its class in brackets, the finding itself as <<CLASS>>; digits are *, long tokens [LONG].
# What no detector knows is NOT masked: names, places, a sentence that somebody would know again.
# Who may see it: those who may see the corpus itself, and nobody else. Do not commit, publish, mail or log it.
# To delete it: rm -r {folder}
#
"""
"""First lines of every file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One finding with the words around it."""

    group: tuple[str, ...]
    """Detector, class, tier, and ``reserved`` when it is: what the file is named by."""
    place: str
    """Where it is, in words."""
    text: str = field(repr=False)
    """The masked window, escaped."""


def check_folder(folder: Path, forbidden: Mapping[str, Path]) -> Path:
    """Make the folder, or see that it is there, empty and ours; return its real path.

    Args:
        folder: As the user named it.
        forbidden: Folders that it must not lie in and must not hold, by what they are called.

    Raises:
        ConfigError: It lies in one of them, holds something, is no folder, or belongs to somebody else.
    """
    real = Path(os.path.realpath(folder))
    for name, other in forbidden.items():
        there = Path(os.path.realpath(other))
        if real == there or there in real.parents or real in there.parents:
            raise ConfigError(
                f"samples in {folder}: expected a folder apart from {name}, {other}: they hold text of documents",
                "Name a folder of its own, for example ~/samples.",
            )
    try:
        real.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        handle = os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise ConfigError(
            f"samples in {folder}: expected a folder that can be written: {error.strerror}",
            "Name another one.",
        ) from None
    try:
        owned = os.fstat(handle).st_uid == os.geteuid()
        held = sorted(os.listdir(handle)) if owned else []
        if not owned or held:
            found = f"found {clean(held[0], 40)} in it" if held else "it belongs to somebody else"
            raise ConfigError(
                f"samples in {folder}: expected an empty folder of your own, {found}",
                "Name a new folder, or delete the old samples; nothing is written over.",
            )
        os.fchmod(handle, _FOLDER_MODE)
    finally:
        os.close(handle)
    return real


def write_samples(folder: Path, samples: Sequence[Sample]) -> int:
    """Write the samples, a file for each group; return the number of files.

    Args:
        folder: As :func:`check_folder` returned it.
        samples: In the order that they are to stand in.

    Raises:
        OSError: The folder cannot be written any more, or somebody put a file of the same name there.
    """
    files: dict[str, list[str]] = {}
    for sample in samples:
        name = ".".join(_NOT_IN_NAMES.sub("_", part)[:_LONGEST_NAME] for part in sample.group) + ".txt"
        files.setdefault(name, []).append(f"{clean(sample.place)}\n    {sample.text}\n")
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if files:
            _create(handle, _GIT, "*\n")
        for name, entries in sorted(files.items()):
            _create(handle, name, BANNER.format(folder=clean(os.fspath(folder))) + "\n".join(entries))
    finally:
        os.close(handle)
    return len(files)


def _create(folder: int, name: str, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(name, flags, _FILE_MODE, dir_fd=folder)
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as sink:
        os.fchmod(handle, _FILE_MODE)
        assert stat.S_ISREG(os.fstat(handle).st_mode), "a file that was created just now"
        sink.write(text)
