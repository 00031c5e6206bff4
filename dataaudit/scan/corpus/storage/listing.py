"""Lists the files that a pattern or a folder means, local or in a store, like a shell's glob that reports omissions.

A component of a pattern that exists by that very name is taken as it is, so that ``a[1].jsonl`` can be listed. ``*``
matches no hidden name, ``**`` any depth of folders, zero included. A listed folder gives all files but hidden ones,
those that begin with ``_``, and those that are no data by their name (:func:`is_no_data`). The names of omitted files
are returned beside the files. A folder that cannot be listed is returned with ``/`` at its end, and becomes a loss.

Files of a published manifest, or of a data set of ``datasets``, are omitted too, by patterns as well. Their names alone
do not decide: whoever can write an empty ``manifest.json`` could hide a folder. The pointer counts when its id is the
digest of its core; a file that it lists when size, sha256 and columns are right; a JSON file when its keys are right.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
from abc import ABC, abstractmethod
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
from dataaudit.scan.corpus.storage.address import RemoteStat, join
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
Identity = tuple[int, int]
"""Device and inode, which name a folder whatever path leads to it; (0, 0) in a store."""


class Folder(ABC):
    """A folder of this machine or of a store; ``prefix`` stands before the names of its entries, ``/`` at its end."""

    refused = False
    """Whether its store refuses to list it: not even whether a name exists can be known."""

    def __init__(self, address: str, prefix: str) -> None:
        self.address, self.prefix = address, prefix

    @property
    def identity(self) -> Identity:
        """Device and inode; a store has no links, so no circles."""
        return (0, 0)

    @abstractmethod
    def entries(self) -> list[Entry] | None:
        """Return all entries, by name; None when it cannot be listed."""

    @abstractmethod
    def named(self, name: str) -> list[Entry]:
        """Return the entries of that very name: none, one, in a store a file and a folder."""


class Entry(NamedTuple):
    """A file or folder in a folder."""

    name: str
    """Without the prefix."""
    folder: Folder | None = None
    """The folder that it is; None for a file, a pipe, a device."""
    is_link: bool = False
    """Whether a folder is a symbolic link to one."""
    seen: RemoteStat | None = None
    """As the store reported it."""


def own_files(folder: Folder) -> frozenset[str]:
    """Return the paths, below a folder, of what a manifest or a data set there is made of."""
    own = {name for name, is_own in _JSON_FILES.items() if _is_file(folder, name) and is_own(_json(folder, name))}
    return frozenset(own | _of_manifest(folder))


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


_JSON_FILES: dict[str, Callable[[object], bool]] = {
    STATE: is_state,
    INFO: lambda value: _has_keys(value, _INFO_KEYS),
    INFOS: lambda value: isinstance(value, dict) and all(_has_keys(info, _INFO_KEYS) for info in value.values()),
    SPLITS: lambda value: isinstance(value, dict) and value.keys() == {"splits"},
}
"""Files of ``datasets``, with the test of their JSON value."""


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
        *(".md", ".rst", ".html", ".yaml", ".yml", ".toml", ".cff", ".bib", ".crc", ".lock", ".md5", ".sha256"),
        *(".log", ".py", ".sh", ".ipynb", ".png", ".jpg", ".jpeg", ".gif", ".svg"),
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


class ListedFile(NamedTuple):
    """A file, or a folder that cannot be listed."""

    path: str
    """Its path, or its name below the top of a store's tree; of a folder with ``/`` at the end."""
    seen: RemoteStat | None
    """As the store reported it."""
    within: Folder
    """The folder that holds it; of a folder that cannot be listed, itself."""


@dataclass(slots=True, kw_only=True)
class Lister:
    """Lists the files of folders and patterns."""

    follow_symlinks: bool
    """Enter links to folders; else they are losses, or left out where their target is listed too. A link that a pattern
    names is always followed."""
    is_dataset: Callable[[str], bool]
    """Whether a folder that a pattern's last component matches is a shard in pieces (``name.parquet/``)."""
    left_out: list[str] = field(default_factory=list)
    """Omitted names; folders with ``/`` at the end."""
    _own: set[str] = field(default_factory=set)
    """Paths of what manifests and data sets are made of, in the folders of ``_inspected``."""
    _inspected: set[str] = field(default_factory=set)
    _listed: set[Identity] = field(default_factory=set)
    _links: list[Folder] = field(default_factory=list)
    """Links to folders that were not followed."""
    _matched: set[str] = field(default_factory=set)
    """Folders that a pattern's last component matches, which gives files alone."""

    def folder(self, folder: Folder) -> list[ListedFile]:
        """Return the data files below a folder, sorted."""
        return sorted([*self._data_files(folder), *self._not_followed()], key=attrgetter("path"))

    def pattern(self, start: Folder, parts: list[str]) -> list[ListedFile]:
        """Return the files that the components of a pattern match below a folder, sorted, each once."""
        matches: dict[str, ListedFile] = {}
        for file in self._match(start, parts):
            matches.setdefault(file.path, file)
        for file in matches.values():
            self._inspect(file.within)
        entered = self._inspected | {link.prefix for link in self._links}
        self.left_out += sorted(matches.keys() & self._own | self._matched - entered)
        files = [file for path, file in matches.items() if path not in self._own]
        return sorted([*files, *self._not_followed()], key=attrgetter("path"))

    def _match(self, folder: Folder, parts: list[str]) -> Iterator[ListedFile]:
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
            elif not rest and entry.folder is not None:
                self._matched.add(entry.folder.prefix)

    def _match_below(self, folder: Folder, rest: list[str], above: tuple[Identity, ...]) -> Iterator[ListedFile]:
        if rest:
            yield from self._match(folder, rest)
        entries = self._enter(folder)
        if entries is None:
            yield _unlisted(folder)
            return
        above = (*above, folder.identity)
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.folder is None:
                if not rest:
                    yield _file(folder, entry)
            elif self._enters(entry.folder, entry.is_link, above):
                yield from self._match_below(entry.folder, rest, above)

    def _data_files(self, folder: Folder, above: tuple[Identity, ...] = ()) -> Iterator[ListedFile]:
        entries = self._enter(folder)
        if entries is None:
            yield _unlisted(folder)
            return
        above = (*above, folder.identity)
        saved = _saved_files(folder) or []
        names = {entry.name for entry in entries}
        yield from (_file(folder, Entry(name)) for name in saved if name not in names)  # a loss with a name
        prefix = folder.prefix
        for name, inner, is_link, seen in entries:
            if prefix + name in self._own:
                self.left_out.append(prefix + name)
            elif inner is None and name in saved:
                yield ListedFile(prefix + name, seen, folder)
            elif name.startswith((".", "_")):
                self.left_out.append(prefix + name + "/" * (inner is not None))
            elif inner is not None:
                if self._enters(inner, is_link, above):
                    yield from self._data_files(inner, above)
            elif is_no_data(name):
                self.left_out.append(prefix + name)
            else:
                yield ListedFile(prefix + name, seen, folder)

    def _enter(self, folder: Folder) -> list[Entry] | None:
        """Return the entries of a folder, once its own files are known; None when it cannot be listed."""
        entries = folder.entries()
        if entries is not None:
            self._listed.add(folder.identity)
            self._inspect(folder)
        return entries

    def _enters(self, folder: Folder, is_link: bool, above: tuple[Identity, ...]) -> bool:
        """Tell whether to go down into a folder: not into a link, unless asked to, and never in a circle."""
        if is_link and (not self.follow_symlinks or folder.identity in above):
            self._links.append(folder)
            return False
        return True

    def _not_followed(self) -> list[ListedFile]:
        """Return the links that were not followed and lead to a folder that was not listed."""
        links, self._links = self._links, []
        self.left_out += [link.prefix for link in links if link.identity in self._listed]
        return [ListedFile(link.prefix.rstrip("/"), None, link) for link in links if link.identity not in self._listed]

    def _inspect(self, folder: Folder) -> None:
        """Find out, once a folder, which files there a manifest or a data set is made of."""
        if folder.prefix not in self._inspected:
            self._inspected.add(folder.prefix)
            self._own |= {folder.prefix + path for path in own_files(folder)}


def _file(folder: Folder, entry: Entry) -> ListedFile:
    return ListedFile(folder.prefix + entry.name, entry.seen, folder)


def _unlisted(folder: Folder) -> ListedFile:
    return ListedFile(folder.prefix, None, folder)


def _saved_files(folder: Folder) -> list[str] | None:
    """Return the names of a saved data set's files, None for another folder."""
    if not folder.named(STATE):
        return None
    return saved_files(folder.address, {entry.name for entry in folder.entries() or () if entry.folder is None})


def _matching(folder: Folder, name: str) -> list[Entry] | None:
    """Return the entry of that very name, else those that the component matches; None when it cannot be listed."""
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


class LocalFolder(Folder):
    """A folder of this machine, by its absolute path."""

    def __init__(self, path: str) -> None:
        super().__init__(path, path if path.endswith("/") else f"{path}/")

    @cached_property
    def identity(self) -> Identity:
        """Device and inode; (0, 0) of a folder that is gone."""
        try:
            stat = os.stat(self.address)
        except OSError:
            return (0, 0)
        return (stat.st_dev, stat.st_ino)

    def entries(self) -> list[Entry] | None:
        """Return all entries, by name; None when it cannot be listed."""
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
        """Return the entry of that very name."""
        path = self.prefix + name
        if not os.path.lexists(path):
            return []
        return [Entry(name, LocalFolder(path), os.path.islink(path)) if os.path.isdir(path) else Entry(name)]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, for example: the reader finds out and says so
        return False
