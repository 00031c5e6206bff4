"""Manifests in S3: their addresses, single requests, and which local folder shows which address.

A manifest in a store is the pointer ``manifest.json`` of a folder, byte for byte, and its files as objects named by
their content: ``objects/<sha256>``. ``signed/<sha256 of the pointer>.json`` is the signature of that pointer. The base
and s3fs are enough to fetch and publish manifests (:mod:`dataaudit.manifest.remote`).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dataaudit.base.errors import CatchErrors, ConfigError, DataAuditError, ManifestError, StoreError
from dataaudit.base.extras import require

_T = TypeVar("_T")
SCHEME = "s3://"
OBJECTS = "objects"
SIGNED = "signed"
SECONDS = 30.0
"""Silence after which a request counts as failed."""
RETRIES = 3
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_HELP = "Credentials and the store's address come from the environment or its config files: `dataaudit explain remote`."
_SHOWN: dict[Path, StoredAddress] = {}
"""Fetched folders of this process, with their addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An object, with the ETag that changes when it does."""

    body: bytes
    etag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAddress:
    """The address of a manifest in S3."""

    bucket: str
    prefix: str
    """Without slashes at its ends; empty for the top of a bucket."""

    def __str__(self) -> str:
        """Return the address."""
        return f"{SCHEME}{self.bucket}/{self.prefix}".rstrip("/")

    def key(self, name: str) -> str:
        """Return the key of an object of this manifest."""
        return f"{self.prefix}/{name}" if self.prefix else name

    async def call(self, method: str, name: str, **arguments: Any) -> Any:
        """Call a method of S3 on an object, once."""
        from dataaudit.base.stores import open_store

        store = open_store("s3", "", SECONDS)
        with CatchErrors(ConfigError) as call:
            ask = store._call_s3  # noqa: SLF001 - what others call of s3fs waits; this has no public name
            return await ask(method, Bucket=self.bucket, Key=self.key(name), **arguments)
        assert call.error is not None, "without an error it has returned"
        if _code(call.error) == "NoSuchBucket":
            raise ConfigError(f"{self}: there is no bucket {self.bucket}", _HELP)
        raise call.error

    async def patiently(self, name: str, try_once: Callable[[], Awaitable[_T]], num_bytes: int | None = 0) -> _T:
        """Try a request on an object until it succeeds or fails for good."""
        from dataaudit.base.stores import patiently

        return await patiently(try_once, f"{self}/{name}", SECONDS, RETRIES, num_bytes=num_bytes)

    async def get(self, name: str, most_bytes: int) -> Answer:
        """Return an object whole."""
        from dataaudit.base.stores import BodyError

        async def once() -> Answer | None:
            found = await self.call("get_object", name)
            async with found["Body"] as body:
                data = b"" if found["ContentLength"] > most_bytes else await body.read()
            if found["ContentLength"] > most_bytes:
                return None
            if len(data) != found["ContentLength"]:
                raise BodyError(f"{found['ContentLength']} bytes expected, {len(data)} received")
            return Answer(body=data, etag=found["ETag"])

        answer = await self.patiently(name, once, most_bytes)
        if answer is None:
            raise ManifestError(
                f"{self}/{name} has more bytes than any, {most_bytes:,}", "Name the address of a manifest."
            )
        return answer


def is_stored(given: object) -> bool:
    """Return whether the name of a manifest is an address in S3."""
    return isinstance(given, str) and given.lower().startswith(SCHEME)


def parse_stored_address(given: str) -> StoredAddress:
    """Parse an address."""
    bucket, _, prefix = given[len(SCHEME) :].partition("/")
    if "@" in bucket:
        raise ConfigError(f"found keys inside an address of a manifest that starts with {SCHEME}", _HELP)
    prefix = prefix.strip("/")
    parts = prefix.split("/") if prefix else []
    wrong = any(part in {"", ".", ".."} or not part.isprintable() for part in parts) or len(prefix.encode()) > 900
    if not _BUCKET.fullmatch(bucket) or wrong or set(prefix) & set("?#*"):
        raise ConfigError(
            f"expected the address of a manifest, {SCHEME}BUCKET/PREFIX, found another that starts with {SCHEME}",
            "The prefix is the name of a folder: no empty part, no `..`, none of `?`, `#`, `*`.",
        )
    require(f"a manifest at {SCHEME}", "s3")
    return StoredAddress(bucket=bucket, prefix=prefix)


def display_as(folder: Path, place: StoredAddress) -> None:
    """Have messages name the address in place of the folder with the fetched manifest."""
    _SHOWN[folder] = place


def stored_address(folder: Path) -> StoredAddress | None:
    """Return the address that a folder was fetched from; None of a local manifest."""
    return _SHOWN.get(folder)


def shown(path: Path) -> str:
    """Return a path for messages: below a fetched folder, its address."""
    for folder in (path, *path.parents) if _SHOWN else ():
        if folder in _SHOWN:
            return "/".join((str(_SHOWN[folder]), *path.relative_to(folder).parts))
    return str(path)


def failure(what: str, error: OSError) -> DataAuditError:
    """Return what to raise for a request that failed."""
    if isinstance(error, PermissionError | FileNotFoundError):
        return ManifestError(f"{what}: {error.strerror}", _HELP)
    return StoreError(f"{what}: {error.strerror}", f"Run the same command again. {_HELP}")


def _code(error: BaseException) -> str:
    """Return the code that a store answered with."""
    for item in (error, error.__cause__):
        answer = getattr(item, "response", None)
        if isinstance(answer, dict):
            return str(answer.get("Error", {}).get("Code", ""))
    return ""
