"""Discovery: patterns to shards, in an order and with names that no machine and no listing can change."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote_to_bytes

from dataaudit.config import Split
from dataaudit.corpus.listing import Lister, has_glob
from dataaudit.corpus.loss import Reason
from dataaudit.corpus.saved import check_one_split
from dataaudit.corpus.uri import encode_path, with_copy
from dataaudit.errors import ConfigError

Format = Literal["parquet", "arrow", "jsonl", "text", "unknown"]
Compression = Literal["none", "gzip", "zstd", "bzip2", "xz"]
_FORMATS: dict[str, Format] = {
    ".parquet": "parquet", ".pq": "parquet",
    ".arrow": "arrow", ".arrows": "arrow", ".feather": "arrow", ".ipc": "arrow",
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".txt": "text",
}  # fmt: skip
_LINES = ("jsonl", "text")
"""Formats that may be compressed as a whole."""
_COMPRESSIONS: dict[str, Compression] = {
    ".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bzip2", ".xz": "xz",
}  # fmt: skip
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<host>[^/]*)(?P<path>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One file as one split lists it."""

    ordinal: int
    """Row in the manifest's table of shards: its place in the order by (split, uri)."""
    split: str
    """Name of its split."""
    uri: str
    """Name of its file, relative to the root."""
    path: str
    """Where the file is on this machine."""
    format: Format
    """How its records are stored."""
    compression: Compression
    """How its bytes are compressed."""
    skip: Reason | None
    """Why it is not read at all."""
    size: int
    """Stored bytes at discovery; 0 when the file cannot be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """All shards of a build."""

    root: Path
    """Folder that every URI is relative to."""
    shards: tuple[Shard, ...]
    """By (split, uri)."""
    left_out: tuple[str, ...]
    """What listed folders hold and was not taken (README.md, hidden files, links to folders), relative to the
    root; folders with ``/`` at the end."""


def discover(splits: Mapping[str, Split], base: Path, *, root_at_base: bool, follow_symlinks: bool) -> Discovery:
    """Resolve the patterns of every split.

    Args:
        splits: Split by name.
        base: Folder that relative patterns start from.
        root_at_base: Take ``base`` as the root when it holds every file (the folder of a config); else the
            root is the deepest folder that holds them all.
        follow_symlinks: Read links that lead out of the root, and go down into links to folders.

    Raises:
        ConfigError: A pattern matches nothing, or has a scheme that is not read.
    """
    found: list[tuple[str, str]] = []
    left_out: set[str] = set()
    for name, split in splits.items():
        for pattern in split.paths:
            files, ignored = expand(pattern, base, where=f"splits.{name}.paths", follow_symlinks=follow_symlinks)
            check_one_split(files, where=f"splits.{name}.paths")
            found += [(name, path) for path in files]
            left_out.update(ignored)
    root = _root([path for _, path in found], os.path.abspath(base) if root_at_base else None)
    real_root = None if follow_symlinks else os.path.realpath(root)
    named: list[tuple[str, str, str]] = []
    for (split_name, path), listings in Counter(found).items():
        uri = encode_path(_relative(path, root))
        named += [(split_name, with_copy(uri, copy), path) for copy in range(1, listings + 1)]
    named.sort(key=lambda item: (item[0].encode(), item[1].encode()))
    return Discovery(
        root=Path(root),
        shards=tuple(_shard(ordinal, *item, real_root) for ordinal, item in enumerate(named)),
        left_out=tuple(sorted(encode_path(_relative(path, root)) for path in left_out)),
    )


def format_of(path: str) -> tuple[Format, Compression]:
    """Return format and compression by the suffixes of a file's name."""
    stem, suffix = os.path.splitext(os.path.basename(path).lower())
    compression = _COMPRESSIONS.get(suffix, "none")
    if compression != "none":
        suffix = os.path.splitext(stem)[1]
    format_ = _FORMATS.get(suffix, "unknown")
    if compression != "none" and format_ not in _LINES:
        return "unknown", compression
    return format_, compression


def expand(pattern: str, base: Path, *, where: str, follow_symlinks: bool = False) -> tuple[list[str], list[str]]:
    """Return (files, what was seen and left out) of one pattern, both sorted.

    A folder that cannot be listed is among the files, with ``/`` at its end.

    Raises:
        ConfigError: Nothing matches, or the pattern has a scheme that is not read.
    """
    given = os.path.expanduser(_local(pattern, where))
    start = os.path.abspath(base)
    full = _normal(os.path.join(start, given))
    lister = Lister(follow_symlinks=follow_symlinks, is_dataset=_is_dataset)
    if os.path.isdir(full):
        files, wanted = lister.folder(full), "the folder {} holds no data files"
    elif os.path.lexists(full):
        return [full], []
    elif has_glob(given):
        top, rest = _split_start(start, given)
        files, wanted = lister.pattern(top, rest), "the pattern {} matches no file"
    else:
        raise ConfigError(
            f"{where}: no such file or folder: {encode_path(full)}",
            f"Relative paths start from {encode_path(os.fspath(base))}.",
        )
    if not files:
        message = f"{where}: {wanted.format(ascii(pattern))} (in {encode_path(start)})"
        raise ConfigError(message, _suggest(full))
    return files, sorted(lister.left_out)


def _local(pattern: str, where: str) -> str:
    """Return a pattern without ``file://``.

    Raises:
        ConfigError: It has another scheme. The address is not repeated, since it may hold a password.
    """
    match = _SCHEME.match(pattern)
    if match is None:
        return pattern
    if match["scheme"].lower() == "file" and match["host"].lower() in ("", "localhost"):
        return os.fsdecode(unquote_to_bytes(match["path"]))
    raise ConfigError(
        f"{where}: found an address that starts with {match['scheme']}://; this version reads local files",
        "Mount the store or copy the shards; file:///FOLDER/... and plain paths are read.",
    )


def _split_start(start: str, given: str) -> tuple[str, str]:
    """Return the folder that a pattern starts from, and what is to be matched below it."""
    if given.startswith("/"):
        return "/", _normal(given)
    parts = os.path.normpath(given).split("/")
    while parts[0] == "..":
        start = os.path.dirname(start)
        del parts[0]
    return start, "/".join(parts)


def _normal(path: str) -> str:
    """Return a path without ``.``, ``..`` and repeated ``/`` (of which ``normpath`` keeps two in front)."""
    path = os.path.normpath(path)
    return path[1:] if path.startswith("//") else path


def _is_dataset(path: str) -> bool:
    return format_of(path)[0] != "unknown"


def _suggest(full: str) -> str:
    parent = full
    while not os.path.isdir(parent):
        parent = os.path.dirname(parent)
    try:
        held = sorted(os.listdir(parent))[:5]
    except OSError:
        return f"The folder {encode_path(parent)} cannot be listed."
    return f"{encode_path(parent)} holds: {', '.join(map(encode_path, held)) or 'nothing'}"


def _root(paths: list[str], base: str | None) -> str:
    """Return ``base`` when it holds every file, else the deepest folder that does."""
    if base is not None and all(path.startswith(base.rstrip("/") + "/") for path in paths):
        return base
    return os.path.commonpath([os.path.dirname(path.rstrip("/")) for path in paths])


def _relative(path: str, root: str) -> str:
    """Return a path relative to the root; ``/`` at its end stays."""
    return os.path.relpath(path, root) + ("/" if path.endswith("/") else "")


def _shard(ordinal: int, split: str, uri: str, path: str, real_root: str | None) -> Shard:
    format_, compression = format_of(path)
    size = 0
    skip = Reason.PERMISSION if path.endswith("/") else None
    try:
        found = os.stat(path)
    except OSError:
        pass  # the probe finds out why and says so
    else:
        if stat.S_ISREG(found.st_mode):
            size = found.st_size
        else:
            skip = skip or Reason.NOT_A_FILE
    if skip is None and format_ == "unknown":
        skip = Reason.UNKNOWN_FORMAT
    if real_root is not None and not _is_below(os.path.realpath(path), real_root):
        skip = Reason.OUTSIDE_ROOT
    return Shard(
        ordinal=ordinal,
        split=split,
        uri=uri,
        path=path,
        format=format_,
        compression=compression,
        skip=skip,
        size=size,
    )


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
