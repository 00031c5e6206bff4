"""Patterns to files, of this machine or of a store: what a shell's glob does, but nothing is left out in silence.

A component of a pattern that exists by that very name is taken as it is, so that a file named
``a[1].jsonl`` can be listed. ``*`` matches no hidden name; ``**`` matches any depth of folders, none
included. A listed folder gives all its files but hidden ones, those whose name starts with ``_`` and those
that are no data by their name (:func:`is_no_data`); their names are returned beside the files. What a manifest or a
data set is made of is left out as well, by a pattern too (:mod:`dataaudit.scan.corpus.storage.listing`). A folder that
cannot be listed is returned as its path with ``/`` at the end, so that it becomes a loss with a name.

Files that lie among data and are none: what a published manifest, or a data set of ``datasets``, is made of.

A name alone says nothing: whoever can write an empty ``manifest.json`` could have a folder passed over. So a file is
left out only where it is what its name says. Of a manifest these are its pointer, when its id is the digest of its
core, its signature, and each file that the pointer lists, when size and sha256 are as listed and it has the columns of
the table, or columns of numbers and digests alone. Of ``datasets`` they are the JSON files with the keys that it
writes. Everything else in and below such a folder is read like any other file.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dataaudit.base.errors import ManifestError, ManifestMismatch
from dataaudit.manifest.core import FileRecord
from dataaudit.manifest.files import FOLDERS
from dataaudit.manifest.load import parse_pointer
from dataaudit.manifest.replace import ATTESTATION, POINTER
from dataaudit.manifest.s3 import OBJECTS
from dataaudit.manifest.tables import TABLES
from dataaudit.scan.corpus.storage.address import Entry, Folder, Identity, RemoteStat, join
from dataaudit.scan.corpus.storage.files import arrow_source, open_binary
from dataaudit.scan.corpus.storage.saved import INFO, SPLITS, STATE, is_state, read_small, saved_files, small_json

INFOS = "dataset_infos.json"
_INFO_KEYS = frozenset(
    {
        *("builder_name", "citation", "config_name", "dataset_name", "dataset_size", "description"),
        *("download_checksums", "download_size", "features", "homepage", "license", "post_processed"),
        *("post_processing_size", "size_in_bytes", "splits", "supervised_keys", "task_templates", "version"),
    }
)
"""Fields of ``DatasetInfo`` in any version of ``datasets``."""
_INDEX_KEYS = frozenset({"files", "kind", "version"})
"""Of the JSON file in a manifest's folder."""
_SIGNATURE_KEYS = frozenset(
    {"payload", "payloadType", "signatures", "dsseEnvelope", "mediaType", "verificationMaterial"}
)
"""Of a DSSE envelope or a sigstore bundle."""
_BLOCK_BYTES = 1 << 20


def own_files(folder: Folder) -> frozenset[str]:
    """Return the files of a folder, and of folders below it, that are no data, by their path below it."""
    kinds = {STATE: is_state, INFO: _is_info, INFOS: _are_infos, SPLITS: _is_dictionary}
    found = {name for name, is_own in kinds.items() if _is_file(folder, name) and is_own(_json(folder, name))}
    return frozenset(found | _of_manifest(folder))


def _is_file(folder: Folder, path: str) -> bool:
    """Tell whether a path below a folder is that of a file."""
    *above, name = path.split("/")
    for part in above:
        inner = next((entry.folder for entry in folder.named(part) if entry.folder is not None), None)
        if inner is None:
            return False
        folder = inner
    return any(entry.folder is None for entry in folder.named(name))


def _json(folder: Folder, name: str) -> object:
    return small_json(join(folder.address, name))


def _has_keys(value: object, known: frozenset[str]) -> bool:
    """Tell whether a JSON value is an object with no other keys than these."""
    return isinstance(value, dict) and value.keys() <= known


def _is_info(value: object) -> bool:
    return _has_keys(value, _INFO_KEYS)


def _are_infos(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_info, value.values()))


def _is_dictionary(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == {"splits"}


def _of_manifest(folder: Folder) -> set[str]:
    if not _is_file(folder, POINTER):
        return set()
    try:
        pointer = parse_pointer(read_small(join(folder.address, POINTER)) or b"", POINTER)
    except (ManifestError, ManifestMismatch):
        return set()
    listed = {
        path: (name, record)
        for name, record in pointer.run.files.items()
        for path in (name, f"{OBJECTS}/{record.sha256}")
        if _is_file(folder, path)
    }
    own = {path for path, of in listed.items() if _is_listed(join(folder.address, path), *of)}
    signed = _is_file(folder, ATTESTATION) and _has_keys(_json(folder, ATTESTATION), _SIGNATURE_KEYS)
    return {POINTER, *own, *([ATTESTATION] if signed else [])}


def _is_listed(path: str, name: str, record: FileRecord) -> bool:
    """Tell whether a file is the one that a manifest lists by a name, and one that a manifest may have."""
    table = TABLES.get(name.removesuffix(".parquet"))
    if table is None and name.partition("/")[0] not in FOLDERS:
        return False
    try:
        with open_binary(path) as file:
            if _record(file, record.size) != record:
                return False
        if name.endswith(".json"):
            return _has_keys(small_json(path), _INDEX_KEYS)
        columns = pq.read_schema(arrow_source(path))
    except (OSError, pa.ArrowException):
        return False  # then it is a shard, and reading it says why it cannot be read
    if table is None:
        return all(pa.types.is_integer(kind) or pa.types.is_fixed_size_binary(kind) for kind in columns.types)
    return set(columns.names) <= set(table.schema.names)


def _record(file: BinaryIO, most: int) -> FileRecord:
    """Return size and sha256 of an open file, or of its beginning when it is larger than it should be."""
    state, size = hashlib.sha256(), 0
    while size <= most and (block := file.read(_BLOCK_BYTES)):
        state.update(block)
        size += len(block)
    return FileRecord(size=size, sha256=state.hexdigest())


_GLOB = frozenset("*?[")
_NOT_DATA = frozenset(
    {
        ".md",
        ".rst",
        ".html",
        ".yaml",
        ".yml",
        ".toml",
        ".cff",
        ".bib",
        ".crc",
        ".lock",
        ".md5",
        ".sha256",
        ".log",
        ".py",
        ".sh",
        ".ipynb",
        ".png",
        ".jpg",
        ".jpeg",
        ".gif",
        ".svg",
    }
)
_ABOUT_DATA = re.compile(
    "readme|licen[cs]es?([-_].*)?|copying|notice|authors|contributors|contributing|changelog|citation|requirements"
    "|codeowners|dockerfile|makefile|(md5|sha1|sha256|sha512|check)sums?",
    re.IGNORECASE,
)
"""Names, without a suffix or with ``.txt``, of files about data."""


def is_no_data(name: str) -> bool:
    """Tell by its name whether a file lies beside data and is none itself."""
    stem, suffix = os.path.splitext(name)
    suffix = suffix.lower()
    return suffix in _NOT_DATA or (suffix in ("", ".txt") and _ABOUT_DATA.fullmatch(stem) is not None)


def has_glob(pattern: str) -> bool:
    """Tell whether a pattern holds a character that can match several names."""
    return not _GLOB.isdisjoint(pattern)


class Found(NamedTuple):
    """A file, or a folder that cannot be listed."""

    path: str
    """Its path, or its name below the top of a store's tree; of a folder with ``/`` at the end."""
    seen: RemoteStat | None
    """What a store said of it."""
    within: Folder
    """The folder that holds it; of a folder that cannot be listed that one itself."""


@dataclass(slots=True, kw_only=True)
class Lister:
    """Lists the files of folders and patterns."""

    follow_symlinks: bool
    """Go down into links to folders; else they are losses with a name, or left out by name where the folder that they
    lead to is listed itself. A link that a pattern names itself is always followed."""
    is_dataset: Callable[[str], bool]
    """Whether a folder that a pattern's last component matches is a shard in pieces (``name.parquet/``)."""
    left_out: list[str] = field(default_factory=list)
    """What was seen and not taken; folders with ``/`` at the end."""
    _own: set[str] = field(default_factory=set)
    """Paths of what manifests and data sets are made of, in the folders that were looked at."""
    _looked: set[str] = field(default_factory=set)
    """Folders whose files were looked at."""
    _listed: set[Identity] = field(default_factory=set)
    """Folders that were gone through."""
    _links: list[Folder] = field(default_factory=list)
    """Links to folders that were not followed."""

    def folder(self, folder: Folder) -> list[Found]:
        """Return the data files below a folder, sorted."""
        return sorted([*self._data_files(folder), *self._not_followed()], key=attrgetter("path"))

    def pattern(self, start: Folder, parts: list[str]) -> list[Found]:
        """Return the files that the components of a pattern match below a folder, sorted, each once."""
        by_folder: dict[str, dict[str, Found]] = {}
        for item in self._match(start, parts):
            by_folder.setdefault(item.within.prefix, {}).setdefault(item.path, item)
        for files in by_folder.values():
            self._look(next(iter(files.values())).within)
        found = {path: file for files in by_folder.values() for path, file in files.items()}
        self.left_out += sorted(found.keys() & self._own)
        kept = [item for path, item in found.items() if path not in self._own]
        kept += self._not_followed()
        return sorted(kept, key=attrgetter("path"))

    def _match(self, folder: Folder, parts: list[str]) -> Iterator[Found]:
        head, rest = parts[0], parts[1:]
        if head == "**":
            yield from self._match_below(folder, rest, above=())
            return
        entries = _matching(folder, head)
        if entries is None:
            yield _unlisted(folder)
            return
        for entry in entries:
            if rest and entry.folder is not None:
                yield from self._match(entry.folder, rest)
            elif not rest and entry.folder is None:
                yield _file(folder, entry)
            elif not rest and entry.folder is not None and self.is_dataset(entry.name):
                yield from self._data_files(entry.folder)

    def _match_below(self, folder: Folder, rest: list[str], above: tuple[Identity, ...]) -> Iterator[Found]:
        if rest:
            yield from self._match(folder, rest)
        entries = folder.entries()
        if entries is None:
            yield _unlisted(folder)
            return
        above = (*above, folder.identity)
        self._listed.add(folder.identity)
        self._look(folder)
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.folder is None:
                if not rest:
                    yield _file(folder, entry)
            elif self._enters(entry.folder, entry.is_link, above):
                yield from self._match_below(entry.folder, rest, above)

    def _data_files(self, folder: Folder, above: tuple[Identity, ...] = ()) -> Iterator[Found]:
        entries = folder.entries()
        if entries is None:
            yield _unlisted(folder)
            return
        above = (*above, folder.identity)
        self._listed.add(folder.identity)
        self._look(folder)
        saved = _saved_files(folder) or []
        names = {entry.name for entry in entries}
        yield from (_file(folder, Entry(name)) for name in saved if name not in names)  # a loss with a name
        prefix = folder.prefix
        for name, inner, is_link, seen in entries:
            if prefix + name in self._own:
                self.left_out.append(prefix + name)
            elif inner is None and name in saved:
                yield Found(prefix + name, seen, folder)
            elif name.startswith((".", "_")):
                self.left_out.append(prefix + name + "/" * (inner is not None))
            elif inner is not None:
                if self._enters(inner, is_link, above):
                    yield from self._data_files(inner, above)
            elif is_no_data(name):
                self.left_out.append(prefix + name)
            else:
                yield Found(prefix + name, seen, folder)

    def _enters(self, folder: Folder, is_link: bool, above: tuple[Identity, ...]) -> bool:
        """Tell whether to go down into a folder: not into a link, unless asked to, and never in a circle."""
        if is_link and (not self.follow_symlinks or folder.identity in above):
            self._links.append(folder)
            return False
        return True

    def _not_followed(self) -> list[Found]:
        """Return the links that were not followed and lead to a folder that was not listed: losses with a name."""
        links, self._links = self._links, []
        self.left_out += [link.prefix for link in links if link.identity in self._listed]
        return [Found(link.prefix.rstrip("/"), None, link) for link in links if link.identity not in self._listed]

    def _look(self, folder: Folder) -> None:
        """Find out which files in and below a folder a manifest or a data set is made of."""
        if folder.prefix not in self._looked:
            self._looked.add(folder.prefix)
            self._own |= {folder.prefix + path for path in own_files(folder)}


def _file(folder: Folder, entry: Entry) -> Found:
    return Found(folder.prefix + entry.name, entry.seen, folder)


def _unlisted(folder: Folder) -> Found:
    return Found(folder.prefix, None, folder)


def _saved_files(folder: Folder) -> list[str] | None:
    """Return the names of a saved data set's files, None for another folder."""
    if not folder.named(STATE):
        return None
    return saved_files(folder.address, {entry.name for entry in folder.entries() or () if entry.folder is None})


def _matching(folder: Folder, name: str) -> list[Entry] | None:
    """Return what a component of a pattern means: that very name, else those it matches; None as of a folder."""
    literal = folder.named(name)
    if literal:
        return literal
    entries = folder.entries() if has_glob(name) or folder.refused else []
    if entries is None:
        return None
    matches = re.compile(fnmatch.translate(name)).match
    return [
        entry for entry in entries if matches(entry.name) and (name.startswith(".") or not entry.name.startswith("."))
    ]


class LocalFolder:
    """A folder of this machine, listed when it is asked for.

    Args:
        path: Absolute.
    """

    refused = False

    def __init__(self, path: str) -> None:
        self.address = path
        self.prefix = path if path.endswith("/") else f"{path}/"

    @cached_property
    def identity(self) -> Identity:
        """Device and inode; (0, 0) of a folder that is gone."""
        try:
            found = os.stat(self.address)
        except OSError:
            return (0, 0)
        return (found.st_dev, found.st_ino)

    def entries(self) -> list[Entry] | None:
        """Return all that it holds, by name; None when it cannot be listed."""
        try:
            with os.scandir(self.address) as entries:
                return [
                    Entry(dir_entry.name, LocalFolder(dir_entry.path), dir_entry.is_symlink())
                    if _is_folder(dir_entry)
                    else Entry(dir_entry.name)
                    for dir_entry in sorted(entries, key=lambda entry: entry.name)
                ]
        except OSError:
            return None

    def named(self, name: str) -> list[Entry]:
        """Return what has that very name."""
        path = self.prefix + name
        if not os.path.lexists(path):
            return []
        return [Entry(name, LocalFolder(path), os.path.islink(path)) if os.path.isdir(path) else Entry(name)]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, for example: the reader finds out and says so
        return False
