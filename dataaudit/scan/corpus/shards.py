"""Discovery: patterns to shards, whose order and names do not depend on machine or listing."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote_to_bytes

from dataaudit.base.errors import ConfigError
from dataaudit.base.text import plural, some_of
from dataaudit.config import Split
from dataaudit.manifest.formats import FORMATS, UNKNOWN
from dataaudit.manifest.locate import encode_path, with_copy
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.corpus.storage.address import (
    Access,
    Address,
    RemotePath,
    check_queries,
    find_tops,
    parse_address,
    relative_name,
    scheme_of,
    shown_folder,
)
from dataaudit.scan.corpus.storage.hub import RowsPath, find_rows, root_of, uri_of
from dataaudit.scan.corpus.storage.listing import Lister, LocalFolder, has_glob
from dataaudit.scan.corpus.storage.remote_listing import RemoteLister
from dataaudit.scan.corpus.storage.saved import check_one_split

Compression = Literal["none", "gzip", "zstd", "bzip2", "xz"]
_FORMATS = {suffix: row for row in FORMATS.values() for suffix in row.suffixes}
_COMPRESSIONS: dict[str, Compression] = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bzip2", ".xz": "xz"}
_SNAPSHOT = re.compile(r"(?P<repo>/.*)/snapshots/[0-9a-f]{40}(?:/.*)?", re.DOTALL)
_BLOB = re.compile(r"/blobs/(?:[0-9a-f]{40}|[0-9a-f]{64})")
_FILE = re.compile(r"(?:file|local)://(?:localhost)?(?P<path>/.*)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A file as a split lists it."""

    ordinal: int
    """Row in the manifest's table of shards: its number in the order by (split, uri)."""
    split: str
    uri: str
    """Name of its file, relative to the root."""
    path: str
    """A local path, :class:`dataaudit.scan.corpus.storage.address.RemotePath` or
    :class:`dataaudit.scan.corpus.storage.hub.RowsPath`."""
    format: str
    """A name of :data:`dataaudit.manifest.formats.FORMATS`, or ``unknown``."""
    compression: Compression
    skip: Reason | None
    """Why it is not read at all."""
    size: int
    """Stored bytes at discovery; 0 when the file cannot be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """All shards of a build."""

    roots: Mapping[str, str]
    """By split, the folder (or public address) that URIs are relative to: the same for all files of a kind of store."""
    shards: tuple[Shard, ...]
    """By (split, uri)."""
    left_out: tuple[str, ...]
    """Omitted names in listed folders (README.md, hidden files, links to folders), relative to the root; folders with
    ``/`` at the end."""


def discover(
    splits: Mapping[str, Split],
    base: Path,
    *,
    root_at_base: bool,
    follow_symlinks: bool,
    root: str | None = None,
    access: Access | None = None,
    listed_before: bool = False,
) -> Discovery:
    """Resolve the patterns of every split; what was ``listed_before`` is taken as it is."""
    remote = remote_lister(access or Access(), listed_before=listed_before)
    far: Address | None = None
    if root is not None and scheme_of(root):
        far = parse_address(root, "root")
    elif root is not None:
        base = base / os.path.expanduser(_local(root))
    listed: list[tuple[str, str]] = []
    left_out: list[tuple[str, str]] = []
    roots: dict[str, str] = {}
    named: list[tuple[str, str, str]] = []
    for name, split in splits.items():
        if split.dataset is not None:
            rows = find_rows(split.dataset, os.fspath(base), access or Access(), f"splits.{name}.dataset")
            roots[name] = root_of(rows[0].source)
            named += [(name, uri_of(path.source), path) for path in rows]
            continue
        where = f"splits.{name}.paths"
        for pattern in split.paths:
            given = pattern
            if far is not None and not scheme_of(pattern) and not os.path.isabs(os.path.expanduser(_local(pattern))):
                given = far.below(pattern).full
            if listed_before and not scheme_of(given):
                files, ignored = [_local(given)], list[str]()  # a link to a folder or a gone file stays a loss
            else:
                files, ignored = expand(given, base, where=where, follow_symlinks=follow_symlinks, remote=remote)
            check_one_split(files, where=where)
            listed += [(name, path) for path in files]
            left_out += [(name, path) for path in ignored]
    check_queries(path for _, path in listed)
    tops = find_tops(listed, base if root_at_base else None, far)
    real_root = None if follow_symlinks else os.path.realpath(tops[""]) if "" in tops else None
    for (split_name, path), listings in Counter(listed).items():
        uri = encode_path(relative_name(path, tops[scheme_of(path)]))
        named += [(split_name, with_copy(uri, copy), path) for copy in range(1, listings + 1)]
    named.sort(key=lambda item: (item[0].encode(), item[1].encode()))
    kinds = {name: scheme_of(path) for name, path in listed}
    return Discovery(
        roots=roots | {name: shown_folder(tops[kind]) for name, kind in kinds.items()},
        shards=tuple(_shard(ordinal, *item, real_root) for ordinal, item in enumerate(named)),
        left_out=tuple(sorted({encode_path(relative_name(path, tops[kinds[name]])) for name, path in left_out})),
    )


def passed_over(names: Sequence[str]) -> list[str]:
    """Return in a line, when there are any, the names that a build passes over."""
    what = f"{plural(len(names), 'name')} passed over (`dataaudit explain inputs` says why)"
    return [f"{what}: {some_of(names, 3)}"] if names else []


def remote_lister(access: Access, *, listed_before: bool = False) -> RemoteLister:
    """Return what resolves the remote patterns of one build."""
    return RemoteLister(access=access, is_dataset=_is_dataset, listed_before=listed_before)


def format_of(path: str) -> tuple[str, Compression]:
    """Return format and compression by the suffixes of a file's name; rows of a dataset have a format of their own."""
    if isinstance(path, RowsPath):
        return "datasets", "none"
    stem, suffix = os.path.splitext(os.path.basename(path).lower())
    compression = _COMPRESSIONS.get(suffix, "none")
    if compression != "none":
        suffix = os.path.splitext(stem)[1]
    row = _FORMATS.get(suffix)
    if row is None or (compression != "none" and not row.lines):
        return UNKNOWN, compression
    return row.name, compression


def expand(
    pattern: str, base: Path, *, where: str, follow_symlinks: bool = False, remote: RemoteLister | None = None
) -> tuple[list[str], list[str]]:
    """Return the files of a pattern, and the names that were left out, both sorted.

    A folder that cannot be listed is among the files, with ``/`` at its end.
    """
    if scheme_of(pattern):
        far, ignored = (remote or remote_lister(Access())).expand(pattern, where)
        return [*far], ignored
    given = os.path.expanduser(_local(pattern))
    start = os.path.abspath(base)
    full = _normal(os.path.join(start, given))
    lister = Lister(follow_symlinks=follow_symlinks, is_dataset=_is_dataset)
    if os.path.isdir(full):
        files, wanted = lister.folder(LocalFolder(full)), "the folder {} holds no data files"
    elif os.path.lexists(full):
        return [full], []
    elif has_glob(given):
        top, rest = _split_start(start, given)
        files, wanted = lister.pattern(LocalFolder(top), rest), "the pattern {} matches no file"
    else:
        raise ConfigError(
            f"{where}: no such file or folder: {encode_path(full)}",
            f"Relative paths start from {encode_path(os.fspath(base))}.",
        )
    if not files:
        message = f"{where}: {wanted.format(ascii(pattern))} (in {encode_path(start)})"
        raise ConfigError(message, _suggest(full))
    return [file.path for file in files], sorted(lister.left_out)


def _local(pattern: str) -> str:
    """Return a pattern without ``file://``."""
    match = _FILE.match(pattern)
    return os.fsdecode(unquote_to_bytes(match["path"])) if match else pattern


def _split_start(start: str, given: str) -> tuple[str, list[str]]:
    """Return the folder that a pattern starts from, and the components of what is to be matched below it."""
    if given.startswith("/"):
        return "/", [part for part in _normal(given).split("/") if part]
    parts = os.path.normpath(given).split("/")
    while parts[0] == "..":
        start = os.path.dirname(start)
        del parts[0]
    return start, parts


def _normal(path: str) -> str:
    """Return a path without ``.``, ``..`` and repeated ``/`` (of which ``normpath`` keeps two in front)."""
    path = os.path.normpath(path)
    return path[1:] if path.startswith("//") else path


def _is_dataset(path: str) -> bool:
    return format_of(path)[0] != UNKNOWN


def _suggest(full: str) -> str:
    parent = full
    while not os.path.isdir(parent):
        parent = os.path.dirname(parent)
    try:
        names = sorted(os.listdir(parent))[:5]
    except OSError:
        return f"The folder {encode_path(parent)} cannot be listed."
    return f"{encode_path(parent)} holds: {', '.join(map(encode_path, names)) or 'nothing'}"


def _shard(ordinal: int, split: str, uri: str, path: str, real_root: str | None) -> Shard:
    is_local = not isinstance(path, RemotePath | RowsPath)
    format_, compression = format_of(path)
    size, skip = 0, Reason.PERMISSION if path.endswith("/") else None
    if isinstance(path, RemotePath) and path.seen:
        size = path.seen.size
    if is_local:
        try:
            found = os.stat(path)
        except OSError:
            pass  # the probe finds out why and reports it
        else:
            if stat.S_ISREG(found.st_mode):
                size = found.st_size
            else:
                skip = skip or Reason.NOT_A_FILE
    if skip is None and format_ == UNKNOWN:
        skip = Reason.UNKNOWN_FORMAT
    if is_local and real_root is not None and not _is_inside(path, real_root):
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


def _is_inside(path: str, real_root: str) -> bool:
    """Tell whether a file lies in the root, or is a link of a hub's cache there, whose target is beside the root.

    Such a link is ``REPO/snapshots/COMMIT/NAME``, and leads to ``REPO/blobs/DIGEST``, which is no link.
    """
    real = os.path.realpath(path)
    if _is_below(real, real_root):
        return True
    folder = os.path.realpath(os.path.dirname(path))
    snapshot = _SNAPSHOT.fullmatch(folder) if _is_below(folder, real_root) else None
    return snapshot is not None and _BLOB.fullmatch(real.removeprefix(snapshot["repo"])) is not None


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
