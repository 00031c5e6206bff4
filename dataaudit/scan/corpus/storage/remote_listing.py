"""Lists the remote files that a pattern means, by the rules of :mod:`dataaudit.scan.corpus.storage.listing`.

A store is asked once for all names below the folder that a pattern starts from. A store that fails or refuses is an
error: how much of the corpus is missing cannot be known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from dataaudit.base.errors import ConfigError, StoreError
from dataaudit.base.stores import BodyError, NoCredentialsError, ask, has_own, run
from dataaudit.manifest.locate import encode_path
from dataaudit.scan.corpus.storage.address import Access, Address, RemotePath, RemoteStat, name_of, parse_address
from dataaudit.scan.corpus.storage.listing import Entry, Folder, Lister, has_glob
from dataaudit.scan.corpus.storage.remote import filesystem, name_in, patiently, stat_of, stat_remote

_ALONE = 2
"""Files of one folder that are asked for by name; for more, the folder is listed once."""
_CREDENTIALS = "Credentials are taken from the environment or its config files; see `dataaudit explain credentials`."


class StoreFolder(Folder):
    """A listed folder of a store; a name may be a file and a folder at once."""

    def __init__(self, prefix: str, locate: Callable[[str], RemotePath]) -> None:
        super().__init__(locate(prefix), prefix)
        self.files: dict[str, RemoteStat | None] = {}
        self.folders: dict[str, StoreFolder] = {}
        self._locate = locate

    def entries(self) -> list[Entry] | None:
        """Return all entries; None when the store refuses to list it."""
        if self.refused:
            return None
        files = (Entry(name, seen=seen) for name, seen in self.files.items())
        return [*files, *(Entry(name, folder) for name, folder in self.folders.items())]

    def named(self, name: str) -> list[Entry]:
        """Return the entries of that very name."""
        files = [Entry(name, seen=self.files[name])] if name in self.files else []
        return [*files, Entry(name, self.folders[name])] if name in self.folders else files

    def at(self, parts: list[str]) -> StoreFolder:
        """Return the folder with a name of these parts, made if need be."""
        folder = self
        for part in parts:
            if part not in folder.folders:
                folder.folders[part] = StoreFolder(f"{folder.prefix}{part}/", self._locate)
            folder = folder.folders[part]
        return folder


@dataclass(slots=True)
class RemoteLister:
    """Resolves the remote patterns of one build; keeps what was listed."""

    access: Access
    is_dataset: Callable[[str], bool]
    """Whether a folder that a pattern's last component matches is a shard in pieces (``name.parquet/``)."""
    listed_before: bool = False
    """Whether addresses come from a listing: what is gone by now is a loss with a name."""
    _asked: dict[str, int] = field(default_factory=dict)
    """Files asked for alone, by their folder."""
    _known: dict[str, dict[str, RemoteStat | None]] = field(default_factory=dict)
    """Files of folders that were listed, by their folder."""

    def expand(self, given: str, where: str) -> tuple[list[RemotePath], list[str]]:
        """Return the files of an address, and the names that were left out, both sorted.

        A folder that may not be listed is among the files, with ``/`` at its end.
        """
        address = parse_address(given, where)
        if address.is_web:
            return [self._web_file(address, where)], []
        kind, seen = self._kind(address, where)
        if kind == "file" or (kind == "nothing" and self.listed_before):
            return [address.remote_path(self.access, seen)], []
        if kind == "refused" and not has_glob(address.path):
            if self.is_dataset(address.path):
                return [address.remote_path(self.access)], []
            kind = "folder"
        shown = encode_path(address.public)
        start, rest = (address, []) if kind == "folder" else _split(address)
        lister = Lister(follow_symlinks=False, is_dataset=self.is_dataset)
        if kind == "folder":
            top = self._list(start, "", where)
            listed = lister.folder(top)
            wanted = f"{where}: the folder {shown} holds no data files"
        elif has_glob(address.path):
            top = self._list(start, re.split(r"[*?\[]", rest[0])[0], where)
            listed = lister.pattern(top, rest)
            wanted = f"{where}: the pattern {shown} matches no file"
        else:
            raise ConfigError(f"{where}: no such file or folder: {shown}", "Names in a store are case-sensitive.")
        if not listed:
            names = [*(f"{name}/" for name in sorted(top.folders)), *sorted(top.files)][:5]
            raise ConfigError(
                wanted, f"{encode_path(start.public)} holds: {', '.join(map(encode_path, names)) or 'nothing'}"
            )
        files = [start.below(file.path).remote_path(self.access, file.seen) for file in listed]
        return files, sorted(start.below(name).public for name in lister.left_out)

    def _web_file(self, address: Address, where: str) -> RemotePath:
        """Return the file of a web address; web servers do not list."""
        shown = encode_path(name_of(address.public))
        if address.path.endswith("/") or not address.path or {"*", "["} & set(address.path):
            raise ConfigError(
                f"{where}: {shown} names no single file, and a web server cannot be listed",
                "Name each file; for folders use the address of the store itself (s3://, gs://, hf://, ...).",
            )
        path = address.remote_path(self.access)
        try:
            return address.remote_path(self.access, stat_remote(path))
        except FileNotFoundError:
            raise ConfigError(f"{where}: no such file: {shown}", "The server answers 404.") from None
        except OSError:
            return path  # the probe finds out why and reports it

    def _kind(self, address: Address, where: str) -> tuple[str, RemoteStat | None]:
        """Return what an address names: ``file``, ``folder``, ``nothing``, or ``refused`` without an answer."""
        folder, _, name = address.public.rpartition("/")
        known = self._known.get(folder)
        if known is None and not has_glob(address.path):
            self._asked[folder] = self._asked.get(folder, 0) + 1
            if self._asked[folder] > _ALONE:
                known = self._known[folder] = self._files_in(address)
        if known is not None and name in known:
            return "file", known[name]
        path = address.remote_path(self.access)
        store = filesystem(path)
        try:
            info = run(patiently(lambda: ask(store, "info", name_in(path)), path))
        except FileNotFoundError:
            return "nothing", None
        except NoCredentialsError:
            raise ConfigError(f"{where}: there are no credentials for {address.scheme}://", _CREDENTIALS) from None
        except OSError:  # the probe, or the listing, finds out why and reports it
            return "refused", None
        if info.get("type") == "directory":
            return "folder", None
        return "file", _stat(info)

    def _files_in(self, address: Address) -> dict[str, RemoteStat | None]:
        """Return the files beside a file; none when the store does not answer."""
        folder = replace(address, path=address.path.rpartition("/")[0]).remote_path(self.access)
        try:
            entries = _ls(folder)
        except OSError:
            return {}
        return {info["name"].rpartition("/")[2]: _stat(info) for info in entries if info.get("type") != "directory"}

    def _list(self, folder: Address, prefix: str, where: str) -> StoreFolder:
        """Return everything below a folder; of its own names only those that begin with ``prefix``."""
        path = folder.remote_path(self.access)
        shown = encode_path(folder.public)
        top = StoreFolder("", lambda name: folder.below(name).remote_path(self.access))
        try:
            for parts, stat in _walk(path, prefix):
                if stat is None and not parts[-1]:
                    top.at(parts[:-1]).refused = True
                elif parts[-1]:
                    top.at(parts[:-1]).files[parts[-1]] = stat
        except PermissionError:
            raise ConfigError(f"{where}: {shown} may not be listed (access refused)", _CREDENTIALS) from None
        except FileNotFoundError:
            return top
        except OSError as error:
            raise StoreError(
                f"{where}: {shown} could not be listed: {error.strerror}",
                "Nothing was published. Run the same command again; `reader.retries` says how often it tries.",
            ) from None
        return top


def _split(address: Address) -> tuple[Address, list[str]]:
    """Return the folder that a pattern starts from, and the components of what is matched below it."""
    parts = address.path.split("/")
    first = next((number for number, part in enumerate(parts) if has_glob(part)), len(parts))
    return replace(address, path="/".join(parts[:first])), [part for part in parts[first:] if part]


def _walk(folder: RemotePath, prefix: str) -> Iterator[tuple[list[str], RemoteStat | None]]:
    """Yield (parts of the name, stat) of every file below a folder.

    A folder that may not be listed is yielded with an empty last part. A store of keys is asked for all of
    them at once; a tree is walked here, since fsspec's own walk skips in silence what it may not list.
    """
    store = filesystem(folder)
    top = name_in(folder).rstrip("/")
    if has_own(store, "find"):  # by prefix, instead of walking
        more = {"prefix": prefix} if prefix and folder.partition("://")[0] in {"s3", "s3a", "gs", "gcs"} else {}
        infos = run(patiently(lambda: ask(store, "find", top, detail=True, **more), folder, num_bytes=None))
        for name, info in infos.items():
            relative = name[len(top) :].removeprefix("/")
            if info.get("type") != "directory" and relative and not relative.endswith("/"):
                yield relative.split("/"), _stat(info)
        return
    waiting: list[tuple[str, list[str]]] = [(top, [])]
    while waiting:
        name, parts = waiting.pop()
        try:
            entries = _ls(folder, name)
        except PermissionError:
            if not parts:
                raise
            yield [*parts, ""], None
            continue
        for info in entries:
            own = info["name"].rstrip("/").rpartition("/")[2]
            if info.get("type") == "directory":
                waiting.append((info["name"], [*parts, own]))
            else:
                yield [*parts, own], _stat(info)


def _ls(folder: RemotePath, name: str | None = None) -> list[dict[str, Any]]:
    store = filesystem(folder)
    target = name_in(folder) if name is None else name
    listed: list[dict[str, Any]] = run(patiently(lambda: ask(store, "ls", target, detail=True), folder, num_bytes=None))
    return listed


def _stat(info: dict[str, Any]) -> RemoteStat | None:
    try:
        return stat_of(info)
    except BodyError:
        return None
