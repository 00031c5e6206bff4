"""Lists of paths are no data: given as plain text, each of their lines would become a document, or a part of one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from dataaudit.corpus.shards import Shard
from dataaudit.corpus.storage.address import scheme_of
from dataaudit.errors import ConfigError
from dataaudit.quarantine.applied import RECORD
from dataaudit.regular import open_regular
from dataaudit.text import clean

_LONGEST_PATH = 4096
_LOOKED_AT = 65_536
"""Bytes of the beginning that are looked at."""


def check_inputs(shards: Iterable[Shard]) -> None:
    """Refuse what lists files in place of data: a folder of `quarantine apply`, a text file of nothing but paths.

    Args:
        shards: As they were discovered. Of files of plain text on this machine that are not compressed the beginning is
            read: 4 kB, and 64 kB where that starts with the path of a file that is there.

    Raises:
        ConfigError: A shard is such a list.
    """
    listed = [*shards]
    local = [shard for shard in listed if not scheme_of(shard.path)]
    for folder in dict.fromkeys(os.path.dirname(shard.path) for shard in local):
        if os.path.isfile(os.path.join(folder, RECORD)):
            raise ConfigError(
                f"{folder} holds lists of paths that `quarantine apply` wrote, no data",
                "Name the data itself, and the list: --quarantine FILE leaves out what it holds back.",
            )
    plain = [shard for shard in local if (shard.format, shard.compression, shard.skip) == ("text", "none", None)]
    names = frozenset(name for shard in listed for name in (shard.path, shard.uri)) if plain else frozenset()
    for shard in plain:
        if first := _first_path(shard.path, names):
            raise ConfigError(
                f"{shard.path} lists paths of files, no data: it begins with {clean(first, 200)}",
                "Name the files themselves, or leave the list out of the folder.",
            )


def _first_path(path: str, names: AbstractSet[str]) -> str:
    """Return the first line of a file whose beginning holds nothing but paths of files; empty of any other."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            head = file.read(_LONGEST_PATH)
            if not _are_paths(head.split(b"\n")[:1], path, names):
                return ""
            head += file.read(_LOOKED_AT - len(head))
            is_all = not file.read(1)
    except OSError:
        return ""  # the scan tells what is wrong with it
    lines = head.split(b"\n")
    lines = [line for line in (lines if is_all else lines[:-1]) if line.strip()]
    if not lines or not _are_paths(lines, path, names):
        return ""
    first = lines[0].decode("utf-8", "replace").strip()
    # A text of a single name may be a link that was checked out as a file.
    return first if len(lines) > 1 or first in names or os.path.isabs(first) else ""


def _are_paths(lines: Iterable[bytes], path: str, names: AbstractSet[str]) -> bool:
    """Tell whether each line is a shard of this build, or a path of a file: from the root, here, or beside the list."""
    beside = os.path.dirname(path)
    for line in lines:
        text = line.strip().decode("utf-8", "replace")
        if text and text not in names:
            if len(text) >= _LONGEST_PATH or "\0" in text:
                return False
            if not any(os.path.isfile(one) for one in (text, os.path.join(beside, text))):
                return False
    return True
