"""Remote stores through fsspec: one connection pool a process, time-outs, tries, and errors without secrets.

One filesystem, with one pool of connections, serves a process; it is made on first use and never crosses a
fork. The tries are ours alone: those of the libraries are switched off, so that the time that a dead store can
take is bounded by what the caller says. Whatever a library raises becomes an ``OSError`` that names the public
address and the kind of the error, never its message, which may hold the address that was asked for.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import functools
import logging
import os
import random
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from dataaudit.base.errors import CatchErrors, ConfigError
from dataaudit.base.extras import require

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


def open_store(scheme: str, authority: str, seconds: float) -> Any:
    """Return the fsspec filesystem of a kind of store, made once a process.

    Credentials and endpoints may come from the environment: when that changes, as in a notebook, another one is made.
    """
    environment = hash(frozenset(item for item in os.environ.items() if item[0].lower().startswith(_DECISIVE)))
    return _filesystem(os.getpid(), environment, scheme, authority, seconds)


@functools.lru_cache(maxsize=32)
def _filesystem(_pid: int, _environment: int, scheme: str, authority: str, seconds: float) -> Any:
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
    options = _options(scheme, seconds) | {"skip_instance_cache": True}
    made: Any = None
    with CatchErrors() as call:
        made = fsspec.url_to_fs(f"{scheme}://{authority}/x", **options)[0] if authority else kind(**options)
    if call.error is not None:
        raise ConfigError(
            f"{scheme}:// cannot be opened ({call.kind})", "See `dataaudit explain remote` for what it needs."
        )
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


def _options(scheme: str, seconds: float) -> dict[str, Any]:
    """Return the options of a filesystem; what the user's own fsspec configuration says comes first."""
    from fsspec.config import conf

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
    method = getattr(store, _counterpart(store, name))
    asked: Awaitable[Any] = method(*args, **kwargs) if store.async_impl else asyncio.to_thread(method, *args, **kwargs)
    return asked


def has_own(store: Any, name: str) -> bool:
    """Tell whether a kind of filesystem does something in a way of its own, not in fsspec's general one."""
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    general = AsyncFileSystem if store.async_impl else AbstractFileSystem
    counterpart = _counterpart(store, name)
    return getattr(type(store), counterpart) is not getattr(general, counterpart)


def _counterpart(store: Any, name: str) -> str:
    """Return what a method is called: fsspec puts ``_`` before the names of the asynchronous ones."""
    return f"_{name}" if store.async_impl else name


async def patiently(
    try_once: Callable[[], Awaitable[_T]], path: str, seconds: float, retries: int, *, num_bytes: int | None = 0
) -> _T:
    """Try a request until it succeeds, fails for good, or has been tried often enough."""
    limit = None if num_bytes is None else 2 * seconds + num_bytes / _SLOWEST_BYTES_PER_SECOND
    for number in range(retries + 1):
        with CatchErrors(ConfigError) as call:
            return await asyncio.wait_for(try_once(), limit)
        assert call.error is not None, "without an error it has returned"
        failure = as_os_error(call.error, path)
        if failure.errno in _NOT_LOOPED or number == retries:
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
    return OSError(errno.EIO, f"the request failed ({detail})", shown)


def http_status(error: BaseException) -> int:
    """Return the HTTP status that an error of aiohttp, botocore (behind s3fs's own) or httpx carries, else 0."""
    for item in (error, error.__cause__):
        answer = getattr(item, "response", None)
        metadata = answer.get("ResponseMetadata", {}) if isinstance(answer, dict) else {}
        found = getattr(item, "status", None) or getattr(answer, "status_code", None) or metadata.get("HTTPStatusCode")
        if isinstance(found, int):
            return found
    return 0


class NoCredentialsError(PermissionError):
    """Neither the environment nor a config file has credentials for a store."""


class BodyError(Exception):
    """An answer is not the bytes that were asked for; its text is ours and holds numbers alone."""
