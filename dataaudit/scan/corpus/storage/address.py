"""Addresses of remote files, parsed into a public and a full form; and the roots that URIs are relative to.

An address may carry secrets: a user and a password before the host, a signature in the query. Only the public form is
printed, stored or put into a manifest. Only :mod:`dataaudit.scan.corpus.storage.remote` uses the full one.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, unquote

from dataaudit.base.errors import ConfigError
from dataaudit.base.redact import CONTAINER_FIRST, WEB, is_host
from dataaudit.manifest.locate import encode_path

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/]*)(?P<path>.*)", re.DOTALL)
_LOCAL = frozenset({"file", "local"})
_KEYS_ELSEWHERE = frozenset({"s3", "s3a", "gs", "gcs"})
"""Schemes whose credentials never stand in an address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How patiently a store is asked; nothing here changes a number."""

    timeout_seconds: float = 30.0
    """Silence after which a request counts as failed."""
    retries: int = 3
    """Further tries of a request that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteStat:
    """Size and version of a file, as its store reports them."""

    size: int
    validator: str
    """Changes when the bytes do (ETag, checksum, version, time); empty when the store reports none of these."""
    mtime_ns: int = 0
    """Time of the last change where the validator is a time, else 0."""


class RemotePath(str):
    """The public address of a remote file, which carries what opens it and goes wherever a local path goes."""

    __slots__ = ("access", "full", "seen")

    full: str
    """The address with its secrets."""
    access: Access
    seen: RemoteStat | None
    """As the listing reported it."""

    def __new__(cls, public: str, full: str, access: Access, seen: RemoteStat | None = None) -> Self:
        """Return a path with its full address."""
        made = super().__new__(cls, public)
        made.full, made.access, made.seen = full, access, seen
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return (RemotePath, (str(self), self.full, self.access, self.seen))


def folder_of(path: str) -> str:
    """Return the folder above a file or folder."""
    if isinstance(path, RemotePath):
        return RemotePath(path.rpartition("/")[0], path.full.rpartition("/")[0], path.access)
    return os.path.dirname(path)


def join(folder: str, name: str) -> str:
    """Return the path of a file in a folder; a remote folder has no query."""
    if isinstance(folder, RemotePath):
        slash = "" if folder.endswith("/") else "/"
        return RemotePath(f"{folder}{slash}{name}", f"{folder.full}{slash}{name}", folder.access)
    return os.path.join(folder, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A parsed address; user and query are never shown."""

    scheme: str
    """In lower case."""
    userinfo: str
    """``user:password@`` or empty."""
    host: str
    """Bucket, container or host; with its port."""
    path: str
    """From the first ``/`` after the host, as written."""
    query: str
    """``?...`` of a web address or empty."""

    @property
    def public(self) -> str:
        """The form that may be shown."""
        return f"{self.scheme}://{self.host}{self.path}"

    @property
    def full(self) -> str:
        """The form that opens it."""
        return f"{self.scheme}://{self.userinfo}{self.host}{self.path}{self.query}"

    @property
    def is_web(self) -> bool:
        """Whether a web server gives it: no listing, and names are percent-encoded."""
        return self.scheme in WEB

    def below(self, relative: str) -> Address:
        """Return the address of a file (or pattern) below this folder."""
        written = quote(os.fsencode(relative)) if self.is_web else relative
        if not self.host and self.scheme != "memory":  # files of several buckets: their names begin with the bucket
            host, _, written = written.partition("/")
            return replace(self, userinfo="", host=host, path=f"/{written}")
        return replace(self, path=f"{self.path.rstrip('/')}/{written}")

    def remote_path(self, access: Access, seen: RemoteStat | None = None) -> RemotePath:
        """Return the path of this file."""
        return RemotePath(self.public, self.full, access, seen)


def scheme_of(given: str) -> str:
    """Return the scheme of an address in lower case; empty for a path and for ``file://``."""
    match = _SCHEME.match(given)
    scheme = match["scheme"].lower() if match else ""
    return "" if scheme in _LOCAL else scheme


def parse_address(given: str, where: str) -> Address:
    """Parse an address; ``where`` names its place in errors."""
    match = _SCHEME.match(given)
    assert match is not None, "only what has a scheme is an address"
    scheme, authority, path, query = match["scheme"].lower(), match["authority"], match["path"], ""
    if "::" in given:
        raise ConfigError(
            f"{where}: found a chain of addresses (`::`), which is not read", "Name the files themselves."
        )
    if scheme in WEB:
        path, mark, rest = path.partition("#")[0].partition("?")
        query = mark + rest
    userinfo, at, host = ("", "", authority) if scheme in CONTAINER_FIRST else authority.rpartition("@")
    if at and scheme in _KEYS_ELSEWHERE:
        raise ConfigError(
            f"{where}: found keys inside an address that starts with {scheme}://",
            "Credentials are taken from the environment or its config files; see `dataaudit explain credentials`.",
        )
    if not is_host(host) or (scheme in CONTAINER_FIRST and ":" in host.rpartition("@")[0]):
        raise ConfigError(
            f"{where}: found an address whose host is followed by something that is no port",
            "A `/`, `?` or `#` in a password is written %2F, %3F or %23.",
        )
    if not host and scheme != "memory":
        raise ConfigError(
            f"{where}: found an address without a {'host' if scheme in WEB else 'bucket or host'}",
            f"Expected {scheme}://NAME/FOLDER/FILE.",
        )
    return Address(scheme=scheme, userinfo=userinfo + at, host=host, path=path, query=query)


def name_of(path: str) -> str:
    """Return the public form of an address, percent-encoding of web addresses undone."""
    scheme, mark, rest = path.partition("://")
    return f"{scheme}{mark}{unquote(rest, errors='surrogateescape')}" if scheme in WEB else path


def common_folder(paths: Sequence[str], base: str | None) -> str:
    """Return the name of the folder that URIs are relative to: ``base``, or the deepest one above all files."""
    names = [name_of(path).rstrip("/") for path in paths]
    folder = "" if base is None else name_of(base).rstrip("/")
    if base is not None and all(name.startswith(f"{folder}/") for name in names):
        return folder or "/"
    first, last = (chosen([name.split("/")[:-1] for name in names]) for chosen in (min, max))
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "/".join(part for part, _ in pairs) or "/"


def relative_name(path: str, folder: str) -> str:
    """Return a file's name relative to a folder of :func:`common_folder`; ``/`` at its end stays."""
    return name_of(path)[len(folder) + (folder != "/") :]


def shown_folder(folder: str) -> str:
    """Return a folder of :func:`common_folder` as a path or address that can be read again."""
    if folder.endswith(":/"):  # all that is common is the scheme
        return folder + "/"
    scheme, mark, rest = folder.partition("://")
    return f"{scheme}{mark}{quote(os.fsencode(rest), safe='/:[]@')}" if scheme in WEB else folder


def check_queries(paths: Iterable[str]) -> None:
    """Refuse two addresses that differ in their secrets alone: their URIs would be the same."""
    full: dict[str, str] = {}
    for path in paths:
        if isinstance(path, RemotePath) and full.setdefault(path, path.full) != path.full:
            raise ConfigError(
                f"two addresses of {encode_path(path)} differ in their query or user alone",
                "A shard is named by its path; list each file once, or under paths of their own.",
            )


def find_tops(files: list[tuple[str, str]], base: Path | None, far: Address | None) -> dict[str, str]:
    """Return the root of the local files and that of each kind of store, by scheme."""
    by_kind: dict[str, list[str]] = {}
    kind_of: dict[str, str] = {}
    for name, path in files:
        kind = scheme_of(path)
        if kind_of.setdefault(name, kind) != kind:
            both = " and ".join(sorted(f"{item}://" if item else "local files" for item in (kind_of[name], kind)))
            raise ConfigError(f"splits.{name}.paths: found {both} in one split", "Give each a split of its own.")
        by_kind.setdefault(kind, []).append(path)
    bases = {} if base is None else {"": os.path.abspath(base)}
    if far is not None:
        bases[far.scheme] = far.public
    return {kind: common_folder(paths, bases.get(kind)) for kind, paths in by_kind.items()}
