"""Whether the files that loaders will open are those that were audited: by size, by a sample of hashes, or by all."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, TypeVar

import pyarrow as pa

from dataaudit import text as t
from dataaudit.corpus.storage.address import RemotePath, scheme_of
from dataaudit.corpus.storage.files import file_of, open_binary, stat_file
from dataaudit.errors import ConfigError, CorpusRefused
from dataaudit.manifest.load import Manifest
from dataaudit.yamlfile import nearest

Check = Literal["size", "sample", "all"]
CHECKS: tuple[Check, ...] = ("size", "sample", "all")
SAMPLE_FILES = 64
SAMPLE_BYTES = 10**9
STREAMED = "datasets"
"""Format of shards that are rows of a streamed dataset, and no files."""
_NAMED = 5
_NAME = 200
_THREADS = 16
_LOOKS = 64
_BLOCK_BYTES = 1 << 20
_T = TypeVar("_T")
_R = TypeVar("_R")
Root = str | os.PathLike[str]
Roots = Root | Mapping[str, Root] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A kept shard's file."""

    path: str
    split: str
    uri: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """``split/uri``, for messages."""
        return _name(self.split, self.uri)


def locate(manifest: Manifest, shards: pa.Table, held: Sequence[str], root: Roots) -> list[str]:
    """Return where each shard's file lies now; empty for those that are held or streamed.

    Args:
        manifest: The manifest.
        shards: Its table of shards: split, uri, format.
        held: Why loaders do not get a shard; empty when they do.
        root: Folder or address of all splits, or by split; where it is not said, the manifest's own.

    Raises:
        ConfigError: ``root`` names a split that there is not, or an address that cannot be read.
        CorpusRefused: A root is not known or not there, or a URI leads out of it.
    """
    columns = [shards[name].to_pylist() for name in ("split", "uri", "format")]
    needed = [not why and kind != STREAMED for why, kind in zip(held, columns[2], strict=True)]
    wanted = {split for split, need in zip(columns[0], needed, strict=True) if need}
    roots = {split: _root(manifest, split, root) for split in sorted(wanted)}
    if isinstance(root, Mapping):
        known = [split.name for split in manifest.core.splits]
        for split in root:
            if split not in known:
                raise ConfigError(f"root: no split `{split}`{nearest(split, known)}", "Name splits of the manifest.")
    paths = []
    for split, uri, need in zip(columns[0], columns[1], needed, strict=True):
        path = file_of(roots[split], uri) if need else ""
        if path is None:
            raise CorpusRefused(
                f"{_name(split, uri)}: the URI leads out of its root", "No build writes such a manifest: build again."
            )
        if not _is_utf8(path):
            raise CorpusRefused(
                f"{_name(split, uri)}: the file's name is not UTF-8, which training does not read",
                "Rename the file and build again, or leave the shard out: `dataaudit quarantine add`.",
            )
        paths.append(path)
    return paths


def _root(manifest: Manifest, split: str, given: Roots) -> str:
    chosen = given.get(split) if isinstance(given, Mapping) else given
    root = manifest.run.roots.get(split, "") if chosen is None else os.fspath(chosen)
    shown = t.clean(root, _NAME)
    if not root:
        raise CorpusRefused(
            f"the manifest does not say where the shards of split {split} lie",
            "Name the folder that holds them: root=.",
        )
    if scheme_of(root):
        return root
    if not os.path.isdir(root):
        raise CorpusRefused(
            f"expected the shards of split {split} below {shown}, but there is no such folder",
            "Name the folder that holds them now: root=FOLDER, or root={split: FOLDER}.",
        )
    return os.path.abspath(root)


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_files(manifest: Manifest, shards: pa.Table, paths: Sequence[str], check: Check) -> list[str]:
    """Hold the files of kept shards against the manifest.

    Args:
        manifest: The manifest.
        shards: Its table of shards: split, uri, format, size, sha256.
        paths: Of :func:`locate`.
        check: ``size`` asks for sizes alone; ``sample`` hashes at most :data:`SAMPLE_FILES` files of together
            :data:`SAMPLE_BYTES`, in the order of a hash of the manifest's id and the file's ordinal; ``all`` hashes
            every file.

    Returns:
        Sentences about what was looked at.

    Raises:
        CorpusRefused: A file is absent, cannot be read, or is not the one that was audited.
    """
    rows = shards.select(["split", "uri", "size", "sha256"]).to_pylist()
    files = {ordinal: _File(path=path, **rows[ordinal]) for ordinal, path in enumerate(paths) if path}
    wrong = _wrong(_sizes, files)
    _refuse(wrong, files)
    chosen = {} if check == "size" else files if check == "all" else _sample(manifest, files)
    digests = dict(zip(*_hashed({one.path for one in chosen.values()}), strict=True))
    _refuse(_wrong(lambda one: _digest_problem(digests[one.path], one.sha256), chosen), files)
    return _notes(check, files, chosen)


def _notes(check: Check, files: Mapping[int, _File], chosen: Mapping[int, _File]) -> list[str]:
    number = t.plural(len(files), "file")
    size = t.size(sum(one.size for one in chosen.values()))
    if check == "size":
        return [f"{number}: of the size that the manifest says; no byte was read"]
    if check == "all":
        return [f"{number}, {size}: every byte hashed, as the manifest says"]
    names = ", ".join(one.name for one in chosen.values())
    return [f"{number}: of the size that the manifest says; {len(chosen)}, {size}, hashed: {names or 'none'}"]


def _sample(manifest: Manifest, files: Mapping[int, _File]) -> dict[int, _File]:
    """Return files in the order of a hash, as long as they fit, by ordinal."""
    order = sorted(files, key=lambda ordinal: hashlib.sha256(f"{manifest.id}:{ordinal}".encode()).digest())
    chosen: list[int] = []
    left = SAMPLE_BYTES
    for ordinal in order:
        if len(chosen) < SAMPLE_FILES and files[ordinal].size <= left:
            chosen.append(ordinal)
            left -= files[ordinal].size
    return {ordinal: files[ordinal] for ordinal in sorted(chosen)}


def _wrong(look: Callable[[_File], str], files: Mapping[int, _File]) -> list[str]:
    """Return ``name (what is wrong)`` of each file with something wrong."""
    found = _threaded(look, list(files.values()), at_once=_LOOKS)
    return [f"{one.name} ({problem})" for one, problem in zip(files.values(), found, strict=True) if problem]


def _sizes(one: _File) -> str:
    """Return what is wrong with a file that is not read; empty for nothing."""
    try:
        if isinstance(one.path, RemotePath):
            size = stat_file(one.path).size
        else:
            found = os.stat(one.path)
            if not stat.S_ISREG(found.st_mode):
                return "no file"
            if not os.access(one.path, os.R_OK):
                return "it may not be read"
            size = found.st_size
    except OSError as error:
        return _reason(error)
    return "" if size == one.size else f"{size:,} bytes, audited were {one.size:,}"


def _hashed(paths: Iterable[str]) -> tuple[list[str], list[str | OSError]]:
    """Return paths, and of each the sha256 of its bytes or why it cannot be read; a file listed twice is read once."""
    unique = sorted(paths)
    return unique, _threaded(_sha256, unique, at_once=1)


def _sha256(path: str) -> str | OSError:
    try:
        state = hashlib.sha256()
        with open_binary(path) as file:
            while block := file.read(_BLOCK_BYTES):
                state.update(block)
        return state.hexdigest()
    except OSError as error:
        return error


def _digest_problem(found: str | OSError, audited: str) -> str:
    if isinstance(found, OSError):
        return _reason(found)
    return "" if found == audited else "other bytes of the same size"


def _threaded(function: Callable[[_T], _R], items: Sequence[_T], *, at_once: int) -> list[_R]:
    """Return the results of a function, in the items' order; a thread takes so many items at once."""
    parts = [items[start : start + at_once] for start in range(0, len(items), at_once)]
    with ThreadPoolExecutor(_THREADS) as pool:
        return [one for found in pool.map(lambda part: list(map(function, part)), parts) for one in found]


def _refuse(wrong: Sequence[str], files: Mapping[int, _File]) -> None:
    if not wrong:
        return
    are = "is not the one that was audited" if len(wrong) == 1 else "are not those that were audited"
    named = ", ".join(wrong[:_NAMED]) + (f", and {len(wrong) - _NAMED:,} more" if len(wrong) > _NAMED else "")
    raise CorpusRefused(
        f"{len(wrong):,} of {t.plural(len(files), 'file')} {are}: {named}",
        "Restore them, name the folder that holds them now (root=), or leave shards out: `dataaudit quarantine add`.",
    )


def _reason(error: OSError) -> str:
    return "absent" if isinstance(error, FileNotFoundError) else str(error.strerror or error)[:_NAME]


def _name(split: str, uri: str) -> str:
    return t.clean(f"{split}/{uri}", _NAME)
