"""Manifests in S3: fetching into a private folder of this process, which everything else reads, and publishing.

*Fetching*: the pointer is read once, and files by the digests that it names, so a reader has a whole manifest, whatever
is published meanwhile. A file gets its name in the folder once its size and digest are those of ``run.files``. Tables
are fetched at once, the manifest's folders (signatures, the index of repeats) when every byte is to be checked. Files
under their own names, as in a folder that was copied into a store, are read, too.

*Publishing*: objects named by their content are put first, then the pointer, on the condition that the old pointer, or
none, is still there: of two builds at once one is published, the other fails. Nothing that a pointer names is ever
changed or deleted, so readers of the old pointer are not disturbed. A failed build leaves objects that no pointer
names. Before a build, the store has to prove that it honours conditions.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import hashlib
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from dataaudit.base.errors import CatchErrors, ConfigError, ManifestError, ManifestMismatch
from dataaudit.base.files import write_whole
from dataaudit.base.stores import BodyError, http_status, open_store, run
from dataaudit.manifest.core import FileRecord
from dataaudit.manifest.files import FOLDERS
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.replace import ATTESTATION, POINTER
from dataaudit.manifest.s3 import (
    OBJECTS,
    SECONDS,
    SIGNED,
    Answer,
    StoredAddress,
    display_as,
    failure,
    parse_stored_address,
    stored_address,
)

MOST_POINTER_BYTES = 1 << 28
"""A pointer has some hundred bytes for each shard with signatures."""
MOST_SIGNATURE_BYTES = 1 << 20
_FETCHED: dict[tuple[StoredAddress, str], Path] = {}
"""Folders of this process with a whole manifest, by address and digest of the pointer: nothing is fetched twice."""
_AT_ONCE = 8
"""Files that are fetched at the same time."""
_PIECE_BYTES = 1 << 20
_TABLE = re.compile(r"[a-z][a-z0-9_]{0,60}\.parquet")
_BELOW = re.compile(rf"(?:{'|'.join(FOLDERS)})/[A-Za-z0-9_][A-Za-z0-9._-]{{0,200}}")


def fetch_manifest(address: str) -> Path:
    """Fetch a manifest: its pointer, its signature when it has one, and its tables."""
    place = parse_stored_address(address)
    folder, _ = fetch_pointer(place)
    manifest = load_manifest(folder)
    known = _FETCHED.get((place, manifest.pointer_sha256))
    if known is not None and known.is_dir():
        shutil.rmtree(folder.parent)
        manifest = load_manifest(folder := known)
    _fetch_files(place, manifest, [name for name in manifest.run.files if _TABLE.fullmatch(name)])
    signature = _read(place, f"{SIGNED}/{manifest.pointer_sha256}.json", MOST_SIGNATURE_BYTES)
    if signature is None:
        signature = _read(place, ATTESTATION, MOST_SIGNATURE_BYTES)
    if signature is not None:
        write_whole(folder / ATTESTATION, signature.body)
    _FETCHED[place, manifest.pointer_sha256] = folder
    return folder


def fetch_pointer(place: StoredAddress, *, may_be_absent: bool = False) -> tuple[Path, str]:
    """Fetch ``manifest.json`` alone into a new private folder."""
    found = _read(place, POINTER, MOST_POINTER_BYTES)
    if found is None and not may_be_absent:
        raise ManifestError(
            f"no manifest at {place}: there is no {POINTER}", f"`dataaudit build ... --manifest {place}` writes one."
        )
    folder = Path(tempfile.mkdtemp(dir=_own_folder(os.getpid()))) / "manifest"
    display_as(folder, place)
    if found is not None:
        folder.mkdir()
        (folder / POINTER).write_bytes(found.body)
    return folder, "" if found is None else found.etag


def fetch_folders(manifest: Manifest) -> None:
    """Fetch the files in the folders of a fetched manifest, for a check of every byte."""
    place = stored_address(manifest.folder)
    assert place is not None, "only a fetched manifest has a rest"
    _fetch_files(place, manifest, [name for name in manifest.run.files if _BELOW.fullmatch(name)])


@cache
def _own_folder(process: int) -> str:
    """Return the folder for fetched files, which this process, and none of its children, removes at its end."""
    folder = tempfile.mkdtemp(prefix="dataaudit-")
    atexit.register(_remove, folder, process)
    return folder


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _read(place: StoredAddress, name: str, most_bytes: int) -> Answer | None:
    """Return a small object; None when there is none."""
    try:
        return run(place.get(name, most_bytes))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise failure(f"{place}/{name} cannot be read", error) from None


def _fetch_files(place: StoredAddress, manifest: Manifest, names: Iterable[str]) -> None:
    """Fetch files that the run of a manifest names, as far as they are not there yet."""
    records = {name: manifest.run.files[name] for name in names if not (manifest.folder / name).exists()}
    size, free = sum(file_record.size for file_record in records.values()), shutil.disk_usage(manifest.folder).free
    if size > free:
        raise ConfigError(
            f"the manifest {place} has {size:,} bytes to fetch, and {tempfile.gettempdir()} has {free:,} free",
            "Free space there, or name another folder by TMPDIR.",
        )
    try:
        run(_all([partial(_fetch, place, manifest.folder, *item) for item in records.items()], _AT_ONCE))
    except OSError as error:
        raise failure(f"the manifest {place} cannot be read", error) from None


async def _all(tasks: Iterable[Callable[[], Awaitable[None]]], at_once: int) -> None:
    """Run tasks, some at a time."""
    turns = asyncio.Semaphore(at_once)

    async def in_turn(task: Callable[[], Awaitable[None]]) -> None:
        async with turns:
            await task()

    await asyncio.gather(*map(in_turn, tasks))


async def _fetch(place: StoredAddress, folder: Path, name: str, record: FileRecord) -> None:
    """Fetch a file by its digest; by its own name where there is no such object."""
    problem = ""
    for key in (f"{OBJECTS}/{record.sha256}", name):
        try:
            problem = await place.patiently(key, partial(_copy, place, key, folder / name, record), record.size)
        except FileNotFoundError:
            continue
        if not problem:
            return
        break
    if not problem:
        raise ManifestError(
            f"{name} of {place} is not there: no object {OBJECTS}/{record.sha256}", "Build again: it puts what is gone."
        )
    raise ManifestMismatch(
        f"{place}/{key} is not the {name} that was published: {problem}", "Delete that object, then build again."
    )


async def _copy(place: StoredAddress, key: str, target: Path, record: FileRecord) -> str:
    """Copy an object into a file; return in what it differs from the record, else nothing."""
    answer = await place.call("get_object", key)
    async with answer["Body"] as body:
        if answer["ContentLength"] != record.size:
            return f"it has {answer['ContentLength']:,} bytes, the run says {record.size:,}"
        target.parent.mkdir(exist_ok=True)
        part, digest, size = target.with_name(f".{target.name}.part"), hashlib.sha256(), 0
        with part.open("wb") as file:
            while piece := await body.read(_PIECE_BYTES):
                size += len(piece)
                digest.update(piece)
                file.write(piece)
    if size != record.size:
        raise BodyError(f"{record.size} bytes expected, {size} received")
    if digest.hexdigest() != record.sha256:
        part.unlink()
        return f"its sha256 is {digest.hexdigest()}, the run says {record.sha256}"
    part.replace(target)
    return ""


_UPLOADS_AT_ONCE = 4
"""Files that are put at the same time; each may be in memory as a whole."""
_NO_ETAG = '"00000000000000000000000000000000"'
_GONE, _NOT_MET, _NOT_KNOWN = 404, 412, 501


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """An address that a build is going to publish to."""

    place: StoredAddress
    folder: Path
    """Private folder to build into; it holds the present pointer, if any."""
    etag: str
    """Of that pointer; empty without one."""


def begin_publication(address: str) -> Publication:
    """Check that a manifest can be published at an address, and fetch the present pointer."""
    place = parse_stored_address(address)
    try:
        run(_expect_conditions(place))
    except OSError as error:
        raise failure(f"nothing can be published at {place}", error) from None
    folder, etag = fetch_pointer(place, may_be_absent=True)
    return Publication(place=place, folder=folder, etag=etag)


def publish_stored(publication: Publication) -> None:
    """Publish the manifest that a build left in the folder of its publication."""
    place, manifest = publication.place, load_manifest(publication.folder)
    pointer = (publication.folder / POINTER).read_bytes()
    condition = {"IfMatch": publication.etag} if publication.etag else {"IfNoneMatch": "*"}
    try:
        files = manifest.run.files.items()
        puts = [partial(_put_object, place, manifest.folder / name, record) for name, record in files]
        run(_all(puts, _UPLOADS_AT_ONCE))
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
    """Put the signature in the folder of a fetched manifest into the store."""
    place = stored_address(manifest.folder)
    assert place is not None, "what lies on this machine is signed in its folder"
    try:
        data = (manifest.folder / ATTESTATION).read_bytes()
        run(_put(place, f"{SIGNED}/{manifest.pointer_sha256}.json", data, {}))
    except OSError as error:
        raise failure(f"the signature of {place} cannot be written; the manifest is as it was", error) from None


async def _expect_conditions(place: StoredAddress) -> None:
    """Refuse a store that ignores conditions, or knows none."""
    name = f"probe-{secrets.token_hex(8)}"
    try:
        known = await _put(place, name, b"", {"IfNoneMatch": "*"}) is not None
        forbidden = [await _put(place, name, b"", record) for record in ({"IfNoneMatch": "*"}, {"IfMatch": _NO_ETAG})]
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


async def _put(place: StoredAddress, name: str, data: bytes, condition: dict[str, str]) -> bool | None:
    """Put a small object; return whether the condition was met, None where the store knows no conditions."""

    async def once() -> bool | None:
        with CatchErrors(ConfigError) as call:
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


async def _put_object(place: StoredAddress, path: Path, record: FileRecord) -> None:
    """Put a file under the name of its content, unless an object of its size is there already."""
    name = f"{OBJECTS}/{record.sha256}"
    with contextlib.suppress(FileNotFoundError, PermissionError):  # who may not list is refused what is not there
        found = await place.patiently(name, lambda: place.call("head_object", name))
        if found["ContentLength"] == record.size:
            return
    store = open_store("s3", "", SECONDS)
    target = f"{place.bucket}/{place.key(name)}"
    put = store._put_file  # noqa: SLF001 - s3fs's own; its public form waits and is no coroutine
    await place.patiently(name, lambda: put(str(path), target), record.size)
