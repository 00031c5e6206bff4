"""A store's names as a tree, and the rules of :mod:`dataaudit.corpus.listing` over it."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from dataaudit.corpus.address import RemoteStat
from dataaudit.corpus.listing import has_glob, is_no_data

Found = tuple[str, RemoteStat | None]
"""The name of a file, relative to the top of its tree, and what the store said of it."""
_MANIFEST = ("manifest.json", "shards.parquet")


@dataclass(slots=True)
class Folder:
    """What a store lists below a folder. A name may be a file and a folder at once."""

    files: dict[str, RemoteStat | None] = field(default_factory=dict)
    folders: dict[str, Folder] = field(default_factory=dict)
    listed: bool = True
    """False when the store refuses to list it."""

    def add(self, parts: list[str], stat: RemoteStat | None) -> None:
        """Add a file by the parts of its name."""
        self.at(parts[:-1]).files[parts[-1]] = stat

    def at(self, parts: list[str]) -> Folder:
        """Return the folder of that name, made if need be."""
        folder = self
        for part in parts:
            folder = folder.folders.setdefault(part, Folder())
        return folder

    @property
    def is_manifest(self) -> bool:
        """Whether it is a published manifest: built twice, a corpus must not hold its own audit."""
        return all(name in self.files for name in _MANIFEST)


@dataclass(slots=True, kw_only=True)
class TreeLister:
    """Lists the files of a tree. A folder that may not be listed is a file whose name ends with ``/``."""

    is_dataset: Callable[[str], bool]
    """Whether a folder that a pattern's last component matches is a shard in pieces (``name.parquet/``)."""
    saved_files: Callable[[str, Collection[str]], list[str] | None] = lambda _name, _files: None
    """Names of a saved data set's files, by the folder's name (relative to the top) and what it holds; None for
    another folder."""
    left_out: list[str] = field(default_factory=list)
    """What was seen and not taken; folders with ``/`` at the end."""

    def folder(self, top: Folder) -> list[Found]:
        """Return the data files below a folder, sorted."""
        return sorted(self._data_files(top, ""))

    def pattern(self, top: Folder, parts: list[str]) -> list[Found]:
        """Return the files that the components of a pattern match, sorted, each once."""
        found = dict(self._match(top, "", parts))
        folders = {name: top.at(name.split("/")[:-1]) for name in found if not name.endswith("/")}
        manifests = {name.rpartition("/")[0] for name, folder in folders.items() if folder.is_manifest}
        self.left_out += sorted(f"{name}/" for name in manifests)
        kept = {name: seen for name, seen in found.items() if name.rpartition("/")[0] not in manifests}
        for at in {name[: name.rfind("/") + 1] for name in kept if not name.endswith("/")}:
            saved = self.saved_files(at, top.at(at.split("/")[:-1]).files)
            if saved is not None:
                own = {at + name for name in saved}
                others = {name for name in kept if name[: name.rfind("/") + 1] == at} - own
                self.left_out += sorted(others)
                kept = {name: seen for name, seen in kept.items() if name not in others}
        return sorted(kept.items())

    def _match(self, folder: Folder, at: str, parts: list[str]) -> Iterator[Found]:
        """Yield (name, stat) of what a pattern matches below a folder whose name is ``at`` (with its ``/``)."""
        head, rest = parts[0], parts[1:]
        if not folder.listed:
            yield at, None
        elif head == "**":
            if rest:
                yield from self._match(folder, at, rest)
            else:
                yield from ((at + name, seen) for name, seen in folder.files.items() if not name.startswith("."))
            for name, below in folder.folders.items():
                if not name.startswith(".") and self._enters(below, at + name):
                    yield from self._match(below, f"{at}{name}/", parts)
        elif rest:
            for name in _named(folder.folders, head):
                yield from self._match(folder.folders[name], f"{at}{name}/", rest)
        else:
            yield from ((at + name, folder.files[name]) for name in _named(folder.files, head))
            for name in _named(folder.folders, head):
                if self.is_dataset(name):
                    yield from self._data_files(folder.folders[name], f"{at}{name}/")

    def _data_files(self, folder: Folder, at: str) -> Iterator[Found]:
        if not folder.listed:
            yield at, None
        saved = self.saved_files(at, folder.files)
        if saved is not None:  # listed and absent is a loss with a name
            yield from ((at + name, folder.files.get(name)) for name in saved)
        for name, seen in folder.files.items():
            if saved is not None:
                self.left_out += [at + name] * (name not in saved)
            elif name.startswith((".", "_")) or is_no_data(name):
                self.left_out.append(at + name)
            else:
                yield at + name, seen
        for name, below in folder.folders.items():
            if name.startswith((".", "_")):
                self.left_out.append(f"{at}{name}/")
            elif self._enters(below, at + name):
                yield from self._data_files(below, f"{at}{name}/")

    def _enters(self, folder: Folder, name: str) -> bool:
        if folder.is_manifest:
            self.left_out.append(f"{name}/")
        return not folder.is_manifest


def _named(names: dict[str, Any], pattern: str) -> list[str]:
    """Return the names that a component of a pattern means: that very one, else those it matches."""
    if pattern in names:
        return [pattern]
    if not has_glob(pattern):
        return []
    matches = re.compile(fnmatch.translate(pattern)).match
    return [name for name in names if matches(name) and (pattern.startswith(".") or not name.startswith("."))]
