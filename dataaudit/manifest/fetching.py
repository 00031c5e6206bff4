"""Fetching a manifest from S3 into a private folder of this process, which everything else reads.

The pointer is read once, and everything is fetched by what it names, so a reader has one manifest whole, whatever is
published meanwhile. A file has its name in the folder only when its bytes are of the size and digest in ``run.files``.
Tables are fetched at once, the manifest's folders (signatures, the index of repeats) when every byte is to be checked.
Files that lie under their own names, as in a folder that was copied into a store, are read too.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from functools import cache, partial
from pathlib import Path

from dataaudit.atomic import write_whole
from dataaudit.errors import ConfigError, ManifestError, ManifestMismatch
from dataaudit.manifest.core import FileRecord
from dataaudit.manifest.files import FOLDERS
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.replace import ATTESTATION, POINTER
from dataaudit.manifest.stored import OBJECTS, SIGNED, Answer, StoredPlace, failure, place_of, show_as, stored_place
from dataaudit.stores import BodyError, run

MOST_POINTER_BYTES = 1 << 28
"""A pointer has some hundred bytes for each shard with signatures."""
MOST_SIGNATURE_BYTES = 1 << 20
_FETCHED: dict[tuple[StoredPlace, str], Path] = {}
"""Folders of this process that have a whole manifest, by its address and the digest of its pointer: who asks for an
address again and again fetches what is new."""
_AT_ONCE = 8
"""Files that are fetched at the same time."""
_PIECE_BYTES = 1 << 20
_TABLE = re.compile(r"[a-z][a-z0-9_]{0,60}\.parquet")
_BELOW = re.compile(rf"(?:{'|'.join(FOLDERS)})/[A-Za-z0-9_][A-Za-z0-9._-]{{0,200}}")


def fetch_manifest(address: str) -> Path:
    """Fetch a manifest: its pointer, its signature when it has one, and its tables.

    Args:
        address: ``s3://bucket/prefix``.

    Returns:
        A private folder that this process removes when it ends; messages show the address in its place.

    Raises:
        ConfigError: It is no address of a manifest, there is no such bucket, or s3fs is not installed.
        ManifestError: There is no manifest, it may not be read, or it is damaged.
        ManifestMismatch: An object is not what the pointer names.
        StoreError: The store does not answer.
    """
    place = stored_place(address)
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


def fetch_pointer(place: StoredPlace, *, may_be_absent: bool = False) -> tuple[Path, str]:
    """Fetch ``manifest.json`` alone into a new private folder.

    Returns:
        The folder, and the ETag of the pointer; empty when there is none, and there may be none.

    Raises:
        ConfigError, ManifestError, StoreError: As of :func:`fetch_manifest`.
    """
    found = _read(place, POINTER, MOST_POINTER_BYTES)
    if found is None and not may_be_absent:
        raise ManifestError(
            f"no manifest at {place}: there is no {POINTER}", f"`dataaudit build ... --manifest {place}` writes one."
        )
    folder = Path(tempfile.mkdtemp(dir=_own_folder(os.getpid()))) / "manifest"
    show_as(folder, place)
    if found is not None:
        folder.mkdir()
        (folder / POINTER).write_bytes(found.body)
    return folder, "" if found is None else found.etag


def fetch_rest(manifest: Manifest) -> None:
    """Fetch what the folders of a fetched manifest hold: whoever checks every byte needs them.

    Raises:
        ManifestError, ManifestMismatch, StoreError: As of :func:`fetch_manifest`.
    """
    place = place_of(manifest.folder)
    assert place is not None, "only what was fetched has a rest"
    _fetch_files(place, manifest, [name for name in manifest.run.files if _BELOW.fullmatch(name)])


@cache
def _own_folder(process: int) -> str:
    """Return the folder of what a process fetches, which it removes when it ends; none of its children does."""
    folder = tempfile.mkdtemp(prefix="dataaudit-")
    atexit.register(_remove, folder, process)
    return folder


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _read(place: StoredPlace, name: str, most_bytes: int) -> Answer | None:
    """Return a small object; None when there is none."""
    try:
        return run(place.get(name, most_bytes))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise failure(f"{place}/{name} cannot be read", error) from None


def _fetch_files(place: StoredPlace, manifest: Manifest, names: Iterable[str]) -> None:
    """Fetch files that the run of a manifest names, as far as they are not there yet."""
    records = {name: manifest.run.files[name] for name in names if not (manifest.folder / name).exists()}
    size, free = sum(one.size for one in records.values()), shutil.disk_usage(manifest.folder).free
    if size > free:
        raise ConfigError(
            f"the manifest {place} has {size:,} bytes to fetch, and {tempfile.gettempdir()} has {free:,} free",
            "Free space there, or name another folder by TMPDIR.",
        )
    try:
        run(_fetch_all(place, manifest.folder, records))
    except OSError as error:
        raise failure(f"the manifest {place} cannot be read", error) from None


async def _fetch_all(place: StoredPlace, folder: Path, records: dict[str, FileRecord]) -> None:
    turns = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str, record: FileRecord) -> None:
        async with turns:
            await _fetch(place, folder, name, record)

    await asyncio.gather(*(one(name, record) for name, record in records.items()))


async def _fetch(place: StoredPlace, folder: Path, name: str, record: FileRecord) -> None:
    """Fetch a file by its content; under its own name where no object is named so."""
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


async def _copy(place: StoredPlace, key: str, target: Path, record: FileRecord) -> str:
    """Copy an object into a file once; return why it is not the one that is named, else nothing."""
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
