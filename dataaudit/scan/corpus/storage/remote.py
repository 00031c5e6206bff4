"""Stats remote files and fetches byte ranges through fsspec, with time-outs, tries and checked lengths.

Connections and errors are those of :mod:`dataaudit.base.stores`. The length of every answer is compared with the
request: a body that is cut short would be lost records.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from email.utils import parsedate_to_datetime
from typing import IO, Any, BinaryIO, TypeVar
from urllib.parse import parse_qsl

from dataaudit.base import stores
from dataaudit.base.stores import BodyError, ask, open_store, run
from dataaudit.scan.corpus.storage.address import RemotePath, RemoteStat, scheme_of

_T = TypeVar("_T")


def filesystem(path: RemotePath) -> Any:
    """Return the fsspec filesystem that serves an address; see :func:`dataaudit.base.stores.open_store`."""
    scheme = scheme_of(path)
    shared = scheme in {"s3", "s3a", "gs", "gcs", "http", "https"}
    authority = "" if shared else path.full.partition("://")[2].partition("/")[0]
    return open_store(scheme, authority, path.access.timeout_seconds)


def patiently(
    try_once: Callable[[], Awaitable[_T]], path: RemotePath, *, num_bytes: int | None = 0
) -> Coroutine[Any, Any, _T]:
    """Try a request as often as the file's access rules allow; see :func:`dataaudit.base.stores.patiently`."""
    return stores.patiently(try_once, path, path.access.timeout_seconds, path.access.retries, num_bytes=num_bytes)


def name_in(path: RemotePath) -> str:
    """Return the name of a file or folder in its filesystem."""
    from fsspec.core import strip_protocol

    name: str = strip_protocol(path.full)
    return name


_CHECKSUMS = (
    *("ETag", "etag", "sha256", "md5Hash", "md5", "content_md5", "Content-MD5", "checksum", "crc32c"),
    *("blob_id", "generation", "VersionId", "version_id"),
)
_TIMES = ("LastModified", "last_modified", "Last-Modified", "mtime", "modified", "updated", "created")
_SIGNING = re.compile(
    r"x-amz-.*|x-goog-.*|awsaccesskeyid|googleaccessid|signature|expires|policy|key-pair-id|token|access_token|"
    r"key|api_?key|sig|sv|ss|srt|sp|se|st|spr|sr|sip|sdd|sk[esvt]|skoid|sktid|saoid|suoid|scid",
    re.IGNORECASE,
)
"""Parameters of a query that authenticate and do not choose what is read."""
_PINNED = re.compile(r"@[0-9a-f]{40}/")
"""In the name of a file on a hub: a commit, below which nothing changes."""
_COPY_BYTES = 1 << 20
Copy = Callable[[IO[bytes], int], Coroutine[Any, Any, None]]
"""Writes a whole remote file, of so many bytes, into a local one."""


class RemoteObject(ABC):
    """A remote file."""

    copy: Copy | None = None
    """How to get all of it where its server gives no ranges, else None; known after :meth:`stat`."""

    def __init__(self, path: RemotePath) -> None:
        self._path = path
        self._store = filesystem(path)
        self._size = -1

    async def stat(self) -> RemoteStat:
        """Ask for size and version."""
        stat = await patiently(self._stat, self._path)
        self._size = stat.size
        return stat

    async def fetch(self, start: int, stop: int) -> bytes:
        """Return the bytes of a range, all of them."""
        return await patiently(lambda: self._fetch_all(start, stop), self._path, num_bytes=stop - start)

    async def _fetch_all(self, start: int, stop: int) -> bytes:
        body = await self._fetch(start, stop)
        if len(body) != stop - start:
            raise BodyError(f"{stop - start} bytes expected, {len(body)} received")
        return body

    @abstractmethod
    async def _stat(self) -> RemoteStat:
        """Ask once."""

    @abstractmethod
    async def _fetch(self, start: int, stop: int) -> bytes:
        """Ask once for a range; fewer bytes may come."""


def open_object(path: RemotePath) -> RemoteObject:
    """Return the remote file of an address; nothing is asked yet."""
    if scheme_of(path) in {"http", "https"}:
        return _WebObject(path)
    return _StoreObject(path)


def stat_remote(path: RemotePath) -> RemoteStat:
    """Ask the store for a file's stat."""
    return run(open_object(path).stat())


def stat_of(info: dict[str, Any]) -> RemoteStat:
    """Return the stat in an answer of fsspec's ``info`` or a listing.

    Only the first validator that the store knows counts: a listing and a single answer may agree in no more.
    """
    size = info.get("size")
    if not isinstance(size, int) or info.get("type") == "directory":
        raise BodyError("the store gives no size")
    for name in _CHECKSUMS:
        if value := info.get(name):
            return RemoteStat(size=size, validator=f"{name.lower()} {value}")
    for name in _TIMES:
        if value := info.get(name):
            return RemoteStat(size=size, validator=f"time {value}", mtime_ns=_nanoseconds(value))
    return RemoteStat(size=size, validator="")


def _nanoseconds(value: Any) -> int:
    """Return a time as nanoseconds since 1970; an unreadable time counts as now, so that it is not trusted yet."""
    if isinstance(value, str):
        try:
            value = parsedate_to_datetime(value)
        except ValueError:
            return time.time_ns()
    if isinstance(value, dt.datetime):
        value = (value if value.tzinfo else value.replace(tzinfo=dt.UTC)).timestamp()
    return int(value * 1e9) if isinstance(value, int | float) else time.time_ns()


class _StoreObject(RemoteObject):
    """A file of any fsspec filesystem."""

    def __init__(self, path: RemotePath) -> None:
        super().__init__(path)
        self._name = name_in(path)
        self._handle: Any = None
        self._lock = threading.Lock()

    async def _stat(self) -> RemoteStat:
        if not _PINNED.search(self._name):
            self._store.invalidate_cache()  # an earlier listing is no news of the file
        return stat_of(await ask(self._store, "info", self._name))

    async def _fetch(self, start: int, stop: int) -> bytes:
        if self._store.async_impl:
            body: bytes = await ask(self._store, "cat_file", self._name, start=start, end=stop)
            return body
        return await asyncio.to_thread(self._read, start, stop)

    def _read(self, start: int, stop: int) -> bytes:
        """Read from a handle that stays open: opening takes a synchronous filesystem many requests."""
        with self._lock:
            try:
                if self._handle is None:
                    self._handle = self._store.open(self._name, "rb", cache_type="none")
                self._handle.seek(start)
                return read_fully(self._handle, stop - start)
            except BaseException:
                self._handle = None
                raise


class _WebObject(RemoteObject):
    """A file of a web server, asked for with GET alone: an address that is signed for GET refuses HEAD."""

    async def _get(self, headers: dict[str, str]) -> Any:
        session = await self._store.set_session()
        kwargs = dict(self._store.kwargs)
        headers = {**kwargs.pop("headers", {}), "Accept-Encoding": "identity", **headers}
        return session.get(self._store.encode_url(self._path.full), headers=headers, **kwargs)

    async def _stat(self) -> RemoteStat:
        async with await self._get({"Range": "bytes=0-0"}) as answer:
            if answer.status != 416:
                answer.raise_for_status()
            size = _total(answer)
            self.copy = self._copy_whole if answer.status == 200 else None
            validator, mtime_ns = _web_validator(answer.headers)
            if validator and (chosen := _chosen(self._path.full)):
                validator += f" query {chosen}"
            if answer.status == 200:
                answer.close()  # the rest of the body is not wanted
            return RemoteStat(size=size, validator=validator, mtime_ns=mtime_ns)

    async def _fetch(self, start: int, stop: int) -> bytes:
        async with await self._get({"Range": f"bytes={start}-{stop - 1}"}) as answer:
            answer.raise_for_status()
            expected = f"bytes {start}-{stop - 1}/{self._size}"
            if answer.status != 206 or answer.headers.get("Content-Range", "") != expected:
                answer.close()
                raise BodyError(f"{expected} expected, another range received")
            body: bytes = await answer.read()
        return body

    async def _copy_whole(self, target: IO[bytes], size: int) -> None:
        await patiently(lambda: self._copy(target, size), self._path, num_bytes=size)

    async def _copy(self, target: IO[bytes], size: int) -> None:
        target.seek(0)
        target.truncate()
        async with await self._get({}) as answer:
            answer.raise_for_status()
            async for block in answer.content.iter_chunked(_COPY_BYTES):
                target.write(block)
        if target.tell() != size:
            raise BodyError(f"{size} bytes expected, {target.tell()} received")


def read_fully(file: BinaryIO, num_bytes: int) -> bytes:
    """Return the next bytes of a file, fewer only at its end: one ``read`` may return less."""
    pieces, missing = [], num_bytes
    while missing and (piece := file.read(missing)):
        pieces.append(piece)
        missing -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _total(answer: Any) -> int:
    """Return the size of the whole file, whatever part the answer has."""
    text = answer.headers.get("Content-Length", "")
    if answer.status != 200:
        text = answer.headers.get("Content-Range", "").rpartition("/")[2]
    if not (text.isascii() and text.isdecimal()):
        raise BodyError("the server does not report the file's length")
    return int(text)


def _web_validator(headers: Any) -> tuple[str, int]:
    """Return what vouches for the bytes: a strong ETag, else (weak ETag and) the time of the last change."""
    tag, changed = headers.get("ETag", ""), headers.get("Last-Modified", "")
    if tag and not tag.startswith("W/"):
        return f"etag {tag}", 0
    if not changed:
        return "", 0
    return f"time {changed} {tag}".rstrip(), _nanoseconds(changed)


def _chosen(full: str) -> str:
    """Return a digest of the parameters that choose what is read; signatures are left out, they change."""
    kept = sorted(pair for pair in parse_qsl(full.partition("?")[2]) if not _SIGNING.fullmatch(pair[0]))
    return hashlib.sha256(repr(kept).encode()).hexdigest()[:16] if kept else ""
