"""Publishing a manifest in S3: objects named by their content first, then the pointer, by a conditional put.

Before a build, the store is asked whether it keeps conditions, and the ETag of the pointer is noted. Nothing that a
pointer names is ever changed or deleted, so a reader of the old pointer is not disturbed. The new pointer is put on
the condition that the old one is still there, or that there is still none: of two builds at once one is published, and
the other one is an error. What a build put in vain stays as objects that no pointer names.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import dataclass
from pathlib import Path

from dataaudit.errors import ConfigError, ManifestError, ManifestMismatch
from dataaudit.guarded import Guarded
from dataaudit.manifest.core import FileRecord
from dataaudit.manifest.fetching import fetch_pointer
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.replace import ATTESTATION, POINTER
from dataaudit.manifest.stored import OBJECTS, SECONDS, SIGNED, StoredPlace, failure, place_of, stored_place
from dataaudit.stores import http_status, open_store, run

_AT_ONCE = 4
"""Files that are put at the same time; each may be in memory as a whole."""
_NO_ETAG = '"00000000000000000000000000000000"'
_GONE, _NOT_MET, _NOT_KNOWN = 404, 412, 501


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """An address that a build is going to publish to."""

    place: StoredPlace
    folder: Path
    """Private folder of this process to build into; it holds the pointer that was there, when there was one."""
    etag: str
    """Of that pointer; empty when there was none."""


def begin_publication(address: str) -> Publication:
    """Find out whether a manifest can be published at an address, and what is there now.

    Args:
        address: ``s3://bucket/prefix``.

    Raises:
        ConfigError: It is no address of a manifest, there is no such bucket, s3fs is not installed, or the store does
            not keep the conditions of a put.
        ManifestError: The address may not be read or written.
        StoreError: The store does not answer.
    """
    place = stored_place(address)
    try:
        run(_expect_conditions(place))
    except OSError as error:
        raise failure(f"nothing can be published at {place}", error) from None
    folder, etag = fetch_pointer(place, may_be_absent=True)
    return Publication(place=place, folder=folder, etag=etag)


def publish_stored(publication: Publication) -> None:
    """Put the manifest that a build left in the folder of its publication.

    Raises:
        ManifestMismatch: Another build has published there meanwhile; its manifest stays.
        ManifestError: The store refuses.
        StoreError: The store does not answer.
    """
    place, manifest = publication.place, load_manifest(publication.folder)
    pointer = (publication.folder / POINTER).read_bytes()
    condition = {"IfMatch": publication.etag} if publication.etag else {"IfNoneMatch": "*"}
    try:
        run(_put_objects(place, manifest))
        done = run(_put(place, POINTER, pointer, condition))
    except OSError as error:
        raise failure(f"the manifest {place} cannot be written; what was there before is untouched", error) from None
    if done:
        return
    folder, _ = fetch_pointer(place, may_be_absent=True)
    if (folder / POINTER).is_file() and (folder / POINTER).read_bytes() == pointer:
        return  # the answer to the first try was lost
    found = "none"
    with contextlib.suppress(ManifestError):
        found = load_manifest(folder).id
    raise ManifestMismatch(
        f"{place}: another build has published {found} there since this one began; this one made {manifest.id}",
        "That one was left as it is. Run the same command again to replace it, or give each build its own address.",
    )


def put_signature(manifest: Manifest) -> None:
    """Put the signature in the folder of a fetched manifest where its readers look for it.

    Raises:
        ManifestError: The store refuses.
        StoreError: The store does not answer.
    """
    place = place_of(manifest.folder)
    assert place is not None, "what lies on this machine is signed in its folder"
    try:
        data = (manifest.folder / ATTESTATION).read_bytes()
        run(_put(place, f"{SIGNED}/{manifest.pointer_sha256}.json", data, {}))
    except OSError as error:
        raise failure(f"the signature of {place} cannot be written; the manifest is as it was", error) from None


async def _expect_conditions(place: StoredPlace) -> None:
    """Refuse a store that does what a condition forbids, or knows no conditions.

    Raises:
        ConfigError: It does.
        OSError: It refuses, or does not answer.
    """
    name = f"probe-{secrets.token_hex(8)}"
    try:
        known = await _put(place, name, b"", {"IfNoneMatch": "*"}) is not None
        forbidden = [await _put(place, name, b"", one) for one in ({"IfNoneMatch": "*"}, {"IfMatch": _NO_ETAG})]
    finally:
        with contextlib.suppress(OSError):
            await place.patiently(name, lambda: place.call("delete_object", name))
    if known and forbidden == [False, False]:
        return
    client = await open_store("s3", "", SECONDS).get_s3(place.bucket)
    raise ConfigError(
        f"{place}: the store at {client.meta.endpoint_url} has no conditional puts (If-None-Match, If-Match): of two"
        " builds at once, one would overwrite the other",
        "Publish into a folder on this machine and copy it, or use another store; see `dataaudit explain remote`.",
    )


async def _put(place: StoredPlace, name: str, data: bytes, condition: dict[str, str]) -> bool | None:
    """Put a small object; return whether the condition was met, None where the store knows none.

    Raises:
        OSError: The store refuses, or does not answer.
    """

    async def once() -> bool | None:
        with Guarded(ConfigError) as call:
            await place.call("put_object", name, Body=data, **condition)
            return True
        assert call.error is not None, "without an error it has returned"
        status = http_status(call.error)
        if condition and status == _NOT_KNOWN:
            return None
        if condition and status in {_NOT_MET, _GONE}:
            return False
        raise call.error

    return await place.patiently(name, once, len(data))


async def _put_objects(place: StoredPlace, manifest: Manifest) -> None:
    turns = asyncio.Semaphore(_AT_ONCE)

    async def one(path: Path, record: FileRecord) -> None:
        async with turns:
            await _put_object(place, path, record)

    await asyncio.gather(*(one(manifest.folder / name, record) for name, record in manifest.run.files.items()))


async def _put_object(place: StoredPlace, path: Path, record: FileRecord) -> None:
    """Put a file under the name of its content, unless an object of its size is there already."""
    name = f"{OBJECTS}/{record.sha256}"
    with contextlib.suppress(FileNotFoundError, PermissionError):  # who may not list is refused what is not there
        found = await place.patiently(name, lambda: place.call("head_object", name))
        if found["ContentLength"] == record.size:
            return
    store = open_store("s3", "", SECONDS)
    target = f"{place.bucket}/{place.key(name)}"
    # s3fs's own put of a file; its public form waits and is no coroutine.
    await place.patiently(name, lambda: store._put_file(str(path), target), record.size)  # noqa: SLF001
