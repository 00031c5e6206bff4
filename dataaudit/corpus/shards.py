"""Discovery: patterns to shards, in an order and with names that no machine and no listing can change."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from dataaudit.config import Split
from dataaudit.corpus.loss import Reason
from dataaudit.corpus.uri import encode_path, with_copy
from dataaudit.errors import ConfigError

Format = Literal["parquet", "jsonl", "unknown"]
Compression = Literal["none", "gzip", "zstd"]
_FORMATS: dict[str, Format] = {
    ".parquet": "parquet", ".pq": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
}  # fmt: skip
_COMPRESSIONS: dict[str, Compression] = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
_NOT_DATA = frozenset({".md", ".rst", ".html", ".yaml", ".yml", ".toml", ".crc", ".lock", ".sha256", ".log"})
_GLOB = frozenset("*?[")


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
    """Files of listed folders that are no data (README.md and the like), relative to the root."""


def discover(
    splits: Mapping[str, Split], base: Path, *, root_at_base: bool, follow_symlinks: bool
) -> Discovery:
    """Resolve the patterns of every split.

    Args:
        splits: Split by name.
        base: Folder that relative patterns start from.
        root_at_base: Take ``base`` as the root when it holds every file (the folder of a config); else the
            root is the deepest folder that holds them all.
        follow_symlinks: Read links that lead out of the root.

    Raises:
        ConfigError: A pattern matches nothing, or has a scheme that is not read.
    """
    found: list[tuple[str, str]] = []
    left_out: list[str] = []
    for name, split in splits.items():
        for pattern in split.paths:
            files, ignored = expand(pattern, base, where=f"splits.{name}.paths")
            found += [(name, path) for path in files]
            left_out += ignored
    root = _root([path for _, path in found], base if root_at_base else None)
    counts: Counter[tuple[str, str]] = Counter()
    named: list[tuple[str, str, str]] = []
    for split_name, path in found:
        counts[split_name, path] += 1
        uri = with_copy(encode_path(os.path.relpath(path, root)), counts[split_name, path])
        named.append((split_name, uri, path))
    named.sort(key=lambda item: (item[0].encode(), item[1].encode()))
    shards = tuple(
        _shard(ordinal, split_name, uri, path, root, follow_symlinks=follow_symlinks)
        for ordinal, (split_name, uri, path) in enumerate(named)
    )
    ignored_names = tuple(sorted({encode_path(os.path.relpath(path, root)) for path in left_out}))
    return Discovery(root=root, shards=shards, left_out=ignored_names)


def format_of(path: str) -> tuple[Format, Compression]:
    """Return format and compression by the suffixes of a file's name."""
    stem, suffix = os.path.splitext(os.path.basename(path).lower())  # noqa: PTH119, PTH122 - bytes-safe names
    compression = _COMPRESSIONS.get(suffix, "none")
    if compression != "none":
        suffix = os.path.splitext(stem)[1]  # noqa: PTH122
    format_ = _FORMATS.get(suffix, "unknown")
    if format_ == "parquet" and compression != "none":
        return "unknown", compression
    return format_, compression


def expand(pattern: str, base: Path, *, where: str) -> tuple[list[str], list[str]]:
    """Return (files, files of a folder that are no data) of one pattern, both sorted."""
    scheme = urlsplit(pattern).scheme
    if scheme == "file":
        pattern = unquote(urlsplit(pattern).path)
    elif "://" in pattern:
        raise ConfigError(
            f"{where}: {pattern!r} has the scheme {scheme}://; this version reads local files",
            "Mount the store or copy the shards; file:// URIs and plain paths are read.",
        )
    full = os.path.normpath(base / Path(pattern).expanduser())
    if os.path.isdir(full):  # noqa: PTH112 - a pattern may also be a folder's literal name
        return _walk(full, pattern, where=where)
    if os.path.exists(full) or not _GLOB.intersection(pattern):  # noqa: PTH110
        if not os.path.lexists(full):
            raise ConfigError(
                f"{where}: no such file or folder: {full}", "Paths are relative to the config file."
            )
        return [full], []
    matches = sorted(glob.glob(full, recursive=True, include_hidden=False))  # noqa: PTH207
    files = [path for path in matches if not os.path.isdir(path)]  # noqa: PTH112
    if not files:
        raise ConfigError(f"{where}: the pattern {pattern!r} matches no file below {base}", _suggest(full))
    return files, []


def _walk(folder: str, pattern: str, *, where: str) -> tuple[list[str], list[str]]:
    files: list[str] = []
    ignored: list[str] = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        for name in sorted(names):
            path = os.path.join(parent, name)  # noqa: PTH118
            if name.startswith((".", "_")):
                continue
            is_data = os.path.splitext(name)[1].lower() not in _NOT_DATA  # noqa: PTH122
            (files if is_data else ignored).append(path)
    if not files:
        raise ConfigError(
            f"{where}: the folder {pattern!r} holds no data files", "Name the folder of the shards."
        )
    return files, ignored


def _suggest(full: str) -> str:
    parent = Path(full)
    while _GLOB.intersection(str(parent)) or not parent.exists():
        parent = parent.parent
    held = sorted(item.name for item in parent.iterdir())[:5] if parent.is_dir() else []
    return f"{parent} holds: {', '.join(held) or 'nothing'}"


def _root(paths: list[str], base: Path | None) -> Path:
    """Return ``base`` when it holds every file, else the deepest folder that does."""
    if base is not None:
        top = os.path.normpath(base)
        if all(path.startswith(top.rstrip("/") + "/") for path in paths):
            return Path(top)
    return Path(os.path.commonpath([os.path.dirname(path) for path in paths]))  # noqa: PTH120


def _shard(ordinal: int, split: str, uri: str, path: str, root: Path, *, follow_symlinks: bool) -> Shard:
    format_, compression = format_of(path)
    skip = Reason.UNKNOWN_FORMAT if format_ == "unknown" else None
    if not follow_symlinks and not Path(path).resolve().is_relative_to(root.resolve()):
        skip = Reason.OUTSIDE_ROOT
    try:
        size = Path(path).stat().st_size
    except OSError:
        size = 0  # the probe finds out why and says so
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
