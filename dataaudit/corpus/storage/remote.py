"""Stores and web servers: stat and byte ranges of remote files through fsspec, with time-outs, tries, checked lengths.

One filesystem, with one pool of connections, serves a process; it is made on first use and never crosses a
fork. The tries are ours alone: those of the libraries are switched off, so that the time that a dead store can
take is bounded by what the config says. Whatever a library raises becomes an ``OSError`` that names the public
address and the kind of the error, never its message, which may hold the address that was asked for. The length of
every answer is compared with what was asked for: a body that is cut short would be lost records.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import datetime as dt
import errno
import functools
import hashlib
import logging
import os
import random
import re
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from email.utils import parsedate_to_datetime
from typing import IO, Any, BinaryIO, Protocol, TypeVar
from urllib.parse import parse_qsl

from dataaudit.corpus.storage.address import Access, RemotePath, RemoteStat, scheme_of
from dataaudit.errors import ConfigError
from dataaudit.extras import require
from dataaudit.guarded import Guarded

_T = TypeVar("_T")
_SLOWEST_BYTES_PER_SECOND = 50_000
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 20.0
_LOGGERS = (
    "aiobotocore",
    "aiohttp",
    "asyncio",
    "boto3",
    "botocore",
    "fsspec",
    "gcsfs",
    "httpcore",
    "httpcore2",
    "httpx",
    "httpx2",
    "huggingface_hub",
    "s3fs",
    "urllib3",
)
_EXTRAS = {"s3": "s3", "s3a": "s3", "http": "http", "https": "http"}
_NO_CREDENTIALS = frozenset(
    {
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "TokenRetrievalError",
        "UnauthorizedSSOTokenError",
        "ProfileNotFound",
        "DefaultCredentialsError",
        "RefreshError",
    }
)
_DECISIVE = ("aws_", "google_", "gcs", "storage_emulator_host", "azure_", "http", "no_proxy", "all_proxy", "fsspec_")
"""How the names of variables begin that say, in lower case, how a store is reached."""
_NOT_LOOPED = frozenset({errno.ENOENT, errno.EACCES, errno.ESTALE})


def filesystem(path: RemotePath) -> Any:
    """Return the fsspec filesystem that serves an address, made once a process.

    Credentials and endpoints may come from the environment: when that changes, as in a notebook, another one is made.

    Raises:
        ConfigError: Its library is not installed, or does not understand the address.
    """
    scheme = scheme_of(path)
    shared = scheme in {"s3", "s3a", "gs", "gcs", "http", "https"}
    authority = "" if shared else path.full.partition("://")[2].partition("/")[0]
    environment = hash(frozenset(item for item in os.environ.items() if item[0].lower().startswith(_DECISIVE)))
    return _filesystem(os.getpid(), environment, scheme, authority, path.access)


@functools.lru_cache(maxsize=32)
def _filesystem(_pid: int, _environment: int, scheme: str, authority: str, access: Access) -> Any:
    if scheme in _EXTRAS:
        require(f"reading {scheme}://", _EXTRAS[scheme])
    import fsspec

    silence_libraries()
    loop()
    try:
        kind = fsspec.get_filesystem_class(scheme)
    except ImportError:
        raise ConfigError(
            f"{scheme}:// is not readable here: its library is not installed", f"{_advice(scheme)}."
        ) from None
    except ValueError:
        raise ConfigError(f"{scheme}:// names no kind of store that fsspec knows") from None
    options = _options(scheme, access) | {"skip_instance_cache": True}
    made: Any = None
    with Guarded() as call:
        made = fsspec.url_to_fs(f"{scheme}://{authority}/x", **options)[0] if authority else kind(**options)
    if call.error is not None:
        raise ConfigError(f"{scheme}:// cannot be opened ({call.kind})", "See `dataaudit explain remote`.")
    if scheme in {"s3", "s3a"}:
        made.retries = 1
    return made


def silence_libraries() -> None:
    """Keep the libraries from logging: what they log may hold an address with its signature."""
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _advice(scheme: str) -> str:
    from fsspec.registry import known_implementations

    return str(known_implementations.get(scheme, {}).get("err") or "Install the fsspec implementation")


def _options(scheme: str, access: Access) -> dict[str, Any]:
    """Return the options of a filesystem; what the user's own fsspec configuration says comes first."""
    from fsspec.config import conf

    seconds = access.timeout_seconds
    if scheme in {"s3", "s3a"}:
        own = {
            "connect_timeout": seconds,
            "read_timeout": seconds,
            "retries": {"mode": "standard", "total_max_attempts": 1},
        }
        return {"use_listings_cache": False, "config_kwargs": own | conf.get("s3", {}).get("config_kwargs", {})}
    if scheme in {"http", "https"}:
        import aiohttp

        own = {
            "timeout": aiohttp.ClientTimeout(total=None, sock_connect=seconds, sock_read=seconds),
            "auto_decompress": False,
            "trust_env": True,
        }
        given = conf.get("http", {}).get("client_kwargs", {}) | conf.get("https", {}).get("client_kwargs", {})
        return {"client_kwargs": own | given}
    return {"use_listings_cache": False}


def loop() -> asyncio.AbstractEventLoop:
    """Return fsspec's event loop, whose thread leaves Ctrl-C to the main thread."""
    from fsspec.asyn import get_loop

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the thread inherits the mask
    try:
        made: asyncio.AbstractEventLoop = get_loop()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return made


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on fsspec's loop and wait for it."""
    return submit(work).result()


def submit(work: Coroutine[Any, Any, _T]) -> concurrent.futures.Future[_T]:
    """Start a coroutine on fsspec's loop."""
    return asyncio.run_coroutine_threadsafe(work, loop())


def ask(store: Any, name: str, *args: Any, **kwargs: Any) -> Awaitable[Any]:
    """Call a method of a filesystem, asynchronous or not, without blocking the loop."""
    method = getattr(store, _twin(store, name))
    asked: Awaitable[Any] = method(*args, **kwargs) if store.async_impl else asyncio.to_thread(method, *args, **kwargs)
    return asked


def has_own(store: Any, name: str) -> bool:
    """Tell whether a kind of filesystem does something in a way of its own, not in fsspec's general one."""
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    general = AsyncFileSystem if store.async_impl else AbstractFileSystem
    twin = _twin(store, name)
    return getattr(type(store), twin) is not getattr(general, twin)


def _twin(store: Any, name: str) -> str:
    """Return what a method is called: fsspec puts ``_`` before the names of the asynchronous ones."""
    return f"_{name}" if store.async_impl else name


def name_in(path: RemotePath) -> str:
    """Return what the filesystem of an address calls the file or folder."""
    from fsspec.core import strip_protocol

    name: str = strip_protocol(path.full)
    return name


async def patiently(try_once: Callable[[], Awaitable[_T]], path: RemotePath, *, num_bytes: int | None = 0) -> _T:
    """Try a request until it succeeds, fails for good, or has been tried often enough.

    Args:
        try_once: Starts one try.
        path: Whose access rules count, and what messages name.
        num_bytes: What the answer may hold: a try that is slower than 50 kB/s has failed. None for no such limit.

    Raises:
        OSError: With an errno, and no secret in its text.
    """
    access = path.access
    limit = None if num_bytes is None else 2 * access.timeout_seconds + num_bytes / _SLOWEST_BYTES_PER_SECOND
    for number in range(access.retries + 1):
        with Guarded(ConfigError) as call:
            return await asyncio.wait_for(try_once(), limit)
        assert call.error is not None, "without an error it has returned"
        failure = as_os_error(call.error, path)
        if failure.errno in _NOT_LOOPED or number == access.retries:
            raise failure from None
        pause = min(_FIRST_PAUSE_SECONDS * 2**number, _LONGEST_PAUSE_SECONDS)
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # apart from the other workers' tries
    raise AssertionError("the last try returns or raises")


def as_os_error(error: BaseException, path: str) -> OSError:
    """Return what a library raised as an ``OSError`` with an errno; the message is ours."""
    kind, status, shown = type(error).__name__, http_status(error), str(path)
    if isinstance(error, FileNotFoundError) or status in (404, 410):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), shown)
    if kind in _NO_CREDENTIALS:
        return NoCredentialsError(errno.EACCES, f"access refused ({kind})", shown)
    if isinstance(error, PermissionError) or status in (401, 403):
        return PermissionError(errno.EACCES, f"access refused ({kind})", shown)
    detail = f"{kind} {status}" if status else kind
    if isinstance(error, BodyError):
        detail = str(error)
    return OSError(errno.EIO, f"reading failed ({detail})", shown)


def http_status(error: BaseException) -> int:
    """Return the HTTP status that an error of aiohttp, botocore (behind s3fs's own) or httpx carries, else 0."""
    for one in (error, error.__cause__):
        answer = getattr(one, "response", None)
        metadata = answer.get("ResponseMetadata", {}) if isinstance(answer, dict) else {}
        found = getattr(one, "status", None) or getattr(answer, "status_code", None) or metadata.get("HTTPStatusCode")
        if isinstance(found, int):
            return found
    return 0


class NoCredentialsError(PermissionError):
    """Neither the environment nor a config file has credentials for a store."""


class BodyError(Exception):
    """An answer is not the bytes that were asked for; its text is ours and holds numbers alone."""


_CHECKSUMS = (
    "ETag",
    "etag",
    "sha256",
    "md5Hash",
    "md5",
    "content_md5",
    "Content-MD5",
    "checksum",
    "crc32c",
    "blob_id",
    "generation",
    "VersionId",
    "version_id",
)
_TIMES = ("LastModified", "last_modified", "Last-Modified", "mtime", "modified", "updated", "created")
_SIGNING = re.compile(
    r"x-amz-.*|x-goog-.*|awsaccesskeyid|googleaccessid|signature|expires|policy|key-pair-id|token|access_token|"
    r"key|api_?key|sig|sv|ss|srt|sp|se|st|spr|sr|sip|sdd|sk[esvt]|skoid|sktid|saoid|suoid|scid",
    re.IGNORECASE,
)
"""Parameters of a query that say who asks, not what for."""
_PINNED = re.compile(r"@[0-9a-f]{40}/")
"""In the name of a file on a hub: a commit, below which nothing changes."""
_COPY_BYTES = 1 << 20
Copy = Callable[[IO[bytes], int], Coroutine[Any, Any, None]]
"""Writes a whole remote file, of so many bytes, into a local one."""


class RemoteObject(Protocol):
    """A remote file."""

    copy: Copy | None
    """How to get it when parts of it cannot be asked for, else None; known after :meth:`stat`."""

    async def stat(self) -> RemoteStat:
        """Ask for size and version."""
        ...

    async def fetch(self, start: int, stop: int) -> bytes:
        """Return the bytes of a range, all of them."""
        ...


def open_object(path: RemotePath) -> RemoteObject:
    """Return the remote file of an address; nothing is asked yet.

    Raises:
        ConfigError: The library for its scheme is not installed.
    """
    if scheme_of(path) in {"http", "https"}:
        return _WebObject(path)
    return _StoreObject(path)


def stat_remote(path: RemotePath) -> RemoteStat:
    """Return what the store says of a file now.

    Raises:
        OSError: It is gone, refused, or the store does not answer.
    """
    return run(open_object(path).stat())


def stat_of(info: dict[str, Any]) -> RemoteStat:
    """Return the stat in what fsspec's ``info`` or listing gives of a file.

    Of several validators the first that the store knows counts, and only that one: a listing and a single
    answer may agree in no more.
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
    """Return a time as nanoseconds since 1970; what is no time counts as now, so that it is not trusted yet."""
    if isinstance(value, str):
        try:
            value = parsedate_to_datetime(value)
        except ValueError:
            return time.time_ns()
    if isinstance(value, dt.datetime):
        value = (value if value.tzinfo else value.replace(tzinfo=dt.UTC)).timestamp()
    return int(value * 1e9) if isinstance(value, int | float) else time.time_ns()


class _StoreObject:
    """A file of any fsspec filesystem."""

    def __init__(self, path: RemotePath) -> None:
        self.copy: Copy | None = None
        self._path = path
        self._store = filesystem(path)
        self._name = name_in(path)
        self._handle: Any = None
        self._lock = threading.Lock()

    async def stat(self) -> RemoteStat:
        return await patiently(self._stat, self._path)

    async def _stat(self) -> RemoteStat:
        if not _PINNED.search(self._name):
            self._store.invalidate_cache()  # what a listing said before is no news of the file
        return stat_of(await ask(self._store, "info", self._name))

    async def fetch(self, start: int, stop: int) -> bytes:
        return await patiently(lambda: self._fetch(start, stop), self._path, num_bytes=stop - start)

    async def _fetch(self, start: int, stop: int) -> bytes:
        if self._store.async_impl:
            found: bytes = await ask(self._store, "cat_file", self._name, start=start, end=stop)
        else:
            found = await asyncio.to_thread(self._read, start, stop)
        if len(found) != stop - start:
            raise BodyError(f"{stop - start} bytes expected, {len(found)} received")
        return found

    def _read(self, start: int, stop: int) -> bytes:
        """Read from a handle that stays open: a filesystem that is not asynchronous asks much to open one."""
        with self._lock:
            try:
                if self._handle is None:
                    self._handle = self._store.open(self._name, "rb", cache_type="none")
                self._handle.seek(start)
                return read_fully(self._handle, stop - start)
            except BaseException:
                self._handle = None
                raise


class _WebObject:
    """A file of a web server, asked for with GET alone: an address that is signed for GET refuses HEAD."""

    def __init__(self, path: RemotePath) -> None:
        self.copy: Copy | None = None
        self._path = path
        self._store = filesystem(path)
        self._size = -1

    async def stat(self) -> RemoteStat:
        found = await patiently(self._stat, self._path)
        self._size = found.size
        return found

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

    async def fetch(self, start: int, stop: int) -> bytes:
        return await patiently(lambda: self._fetch(start, stop), self._path, num_bytes=stop - start)

    async def _fetch(self, start: int, stop: int) -> bytes:
        async with await self._get({"Range": f"bytes={start}-{stop - 1}"}) as answer:
            answer.raise_for_status()
            expected = f"bytes {start}-{stop - 1}/{self._size}"
            found = answer.headers.get("Content-Range", "")
            if answer.status != 206 or found != expected:
                answer.close()
                raise BodyError(f"{expected} expected, another range received")
            body: bytes = await answer.read()
        if len(body) != stop - start:
            raise BodyError(f"{stop - start} bytes expected, {len(body)} received")
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
    """Return the next bytes of a file, fewer only at its end: one ``read`` may give less of what is there."""
    found = file.read(num_bytes)
    if len(found) == num_bytes or not found:
        return found
    pieces = [found]
    missing = num_bytes - len(found)
    while missing and (piece := file.read(missing)):
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


def _total(answer: Any) -> int:
    """Return the size of the whole file, whatever part an answer holds."""
    text = answer.headers.get("Content-Length", "")
    if answer.status != 200:
        text = answer.headers.get("Content-Range", "").rpartition("/")[2]
    if not (text.isascii() and text.isdecimal()):
        raise BodyError("the server does not say how long the file is")
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
