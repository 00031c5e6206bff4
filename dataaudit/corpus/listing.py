"""Patterns to files: what a shell's glob does, but nothing is left out in silence.

A component of a pattern that exists by that very name is taken as it is, so that a file named
``a[1].jsonl`` can be listed. ``*`` matches no hidden name; ``**`` matches any depth of folders, none
included. A listed folder gives all its files but hidden ones, those whose name starts with ``_`` and those
that are no data by their name (:func:`is_no_data`); their names are returned beside the files. Of a folder that
``datasets`` saved only its data files are taken, by a pattern too. A folder that cannot be listed is returned
as its path with ``/`` at the end, so that it becomes a loss with a name.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from dataaudit.corpus.saved import STATE, saved_files

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
_NO_SHARDS = frozenset({"dataset_info.json", "dataset_infos.json", "dataset_dict.json"})
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
    if suffix in _NOT_DATA or name in _NO_SHARDS:
        return True
    return suffix in ("", ".txt") and _ABOUT_DATA.fullmatch(stem) is not None


def has_glob(pattern: str) -> bool:
    """Tell whether a pattern holds a character that can match several names."""
    return not _GLOB.isdisjoint(pattern)


@dataclass(slots=True, kw_only=True)
class Lister:
    """Lists the files of folders and patterns."""

    follow_symlinks: bool
    """Go down into links to folders; else they are left out by name. A link that a pattern names itself is
    always followed."""
    is_dataset: Callable[[str], bool]
    """Whether a folder that a pattern's last component matches is a shard in pieces (``name.parquet/``)."""
    left_out: list[str] = field(default_factory=list)
    """What was seen and not taken; folders with ``/`` at the end."""

    def folder(self, folder: str) -> list[str]:
        """Return the data files below a folder, sorted."""
        return sorted(self._data_files(folder))

    def pattern(self, start: str, pattern: str) -> list[str]:
        """Return the files that a pattern matches below the folder ``start``, sorted, each once."""
        found = set(self._match(start, [part for part in pattern.split("/") if part]))
        folders = set(map(os.path.dirname, found))
        manifests = {folder for folder in folders if _is_manifest(folder)}
        self.left_out += sorted(f"{folder}/" for folder in manifests)
        found = {path for path in found if os.path.dirname(path) not in manifests}
        for folder in folders:
            saved = _saved_files(folder)
            others = set() if saved is None else {path for path in found if os.path.dirname(path) == folder} - saved
            self.left_out += sorted(others)
            found -= others
        return sorted(found)

    def _match(self, folder: str, parts: list[str]) -> Iterator[str]:
        head, rest = parts[0], parts[1:]
        if head == "**":
            yield from self._match_below(folder, rest, above=())
            return
        for path in self._named(folder, head):
            is_folder = os.path.isdir(path)
            if path.endswith("/"):
                yield path
            elif rest and is_folder:
                yield from self._match(path, rest)
            elif not rest and not is_folder:
                yield path
            elif not rest and self.is_dataset(path):
                yield from self._data_files(path)

    def _match_below(self, folder: str, rest: list[str], above: tuple[tuple[int, int], ...]) -> Iterator[str]:
        if rest:
            yield from self._match(folder, rest)
        entries = _entries(folder)
        if entries is None:
            yield folder + "/"
            return
        above = (*above, _identity(folder))
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if not _is_folder(entry):
                if not rest:
                    yield entry.path
            elif self._enters(entry, above):
                yield from self._match_below(entry.path, rest, above)

    def _named(self, folder: str, name: str) -> Iterator[str]:
        literal = os.path.join(folder, name)
        if os.path.lexists(literal):
            yield literal
            return
        if not has_glob(name):
            return
        entries = _entries(folder)
        if entries is None:
            yield folder + "/"
            return
        matches = re.compile(fnmatch.translate(name)).match
        for entry in entries:
            if matches(entry.name) and (name.startswith(".") or not entry.name.startswith(".")):
                yield entry.path

    def _data_files(self, folder: str, above: tuple[tuple[int, int], ...] = ()) -> Iterator[str]:
        entries = _entries(folder)
        if entries is None:
            yield folder + "/"
            return
        above = (*above, _identity(folder))
        saved = saved_files(folder, {entry.name for entry in entries})
        if saved is not None:  # listed and absent is a loss with a name
            yield from (os.path.join(folder, name) for name in saved)
        for entry in entries:
            is_folder = _is_folder(entry)
            if saved is not None and not is_folder:
                if entry.name not in saved:
                    self.left_out.append(entry.path)
            elif entry.name.startswith((".", "_")):
                self.left_out.append(entry.path + "/" * is_folder)
            elif is_folder:
                if self._enters(entry, above):
                    yield from self._data_files(entry.path, above)
            elif is_no_data(entry.name):
                self.left_out.append(entry.path)
            else:
                yield entry.path

    def _enters(self, entry: os.DirEntry[str], above: tuple[tuple[int, int], ...]) -> bool:
        """Tell whether to go down into a folder: not into a link, unless asked to, and never in a circle.

        A manifest that was published among the data is no data either.
        """
        if _is_manifest(entry.path):
            self.left_out.append(entry.path + "/")
            return False
        if not entry.is_symlink() or (self.follow_symlinks and _identity(entry.path) not in above):
            return True
        self.left_out.append(entry.path + "/")
        return False


def _entries(folder: str) -> list[os.DirEntry[str]] | None:
    """Return what a folder holds, by name; None when it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return None


def _saved_files(folder: str) -> set[str] | None:
    """Return the paths of a saved data set's files, None for another folder."""
    if not os.path.isfile(os.path.join(folder, STATE)):
        return None
    saved = saved_files(folder, [entry.name for entry in _entries(folder) or []])
    return None if saved is None else {os.path.join(folder, name) for name in saved}


def _is_manifest(folder: str) -> bool:
    """Tell whether a folder is a published manifest: built twice, a corpus must not hold its own audit."""
    return all(os.path.isfile(os.path.join(folder, name)) for name in ("manifest.json", "shards.parquet"))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, for example: the reader finds out and says so
        return False


def _identity(folder: str) -> tuple[int, int]:
    """Return what names a folder whatever path leads to it; a folder that is gone has (0, 0)."""
    try:
        found = os.stat(folder)
    except OSError:
        return (0, 0)
    return (found.st_dev, found.st_ino)
