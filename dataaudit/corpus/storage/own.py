"""Files that lie among data and are none: what a published manifest, or a data set of ``datasets``, is made of.

A name alone says nothing: whoever can write an empty ``manifest.json`` could have a folder passed over. So a file is
left out only where it is what its name says. Of a manifest these are its pointer, when its id is the digest of its
core, its signature, and each file that the pointer lists, when size and sha256 are as listed and it has the columns of
the table, or columns of numbers and digests alone. Of ``datasets`` they are the JSON files with the keys that it
writes. Everything else in and below such a folder is read like any other file.
"""

from __future__ import annotations

import hashlib
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from dataaudit.corpus.storage.address import Folder, join
from dataaudit.corpus.storage.files import arrow_source, open_binary
from dataaudit.corpus.storage.saved import INFO, SPLITS, STATE, is_state, read_small, small_json
from dataaudit.errors import ManifestError, ManifestMismatch
from dataaudit.manifest.core import FileRecord
from dataaudit.manifest.files import FOLDERS
from dataaudit.manifest.load import parse_pointer
from dataaudit.manifest.replace import ATTESTATION, POINTER
from dataaudit.manifest.stored import OBJECTS
from dataaudit.manifest.tables import TABLES

INFOS = "dataset_infos.json"
_INFO_KEYS = frozenset(
    {
        *("builder_name", "citation", "config_name", "dataset_name", "dataset_size", "description"),
        *("download_checksums", "download_size", "features", "homepage", "license", "post_processed"),
        *("post_processing_size", "size_in_bytes", "splits", "supervised_keys", "task_templates", "version"),
    }
)
"""Fields of ``DatasetInfo`` in any version of ``datasets``."""
_INDEX_KEYS = frozenset({"files", "kind", "version"})
"""Of the JSON file in a manifest's folder."""
_SIGNATURE_KEYS = frozenset(
    {"payload", "payloadType", "signatures", "dsseEnvelope", "mediaType", "verificationMaterial"}
)
"""Of a DSSE envelope or a sigstore bundle."""
_BLOCK_BYTES = 1 << 20


def own_files(folder: Folder) -> frozenset[str]:
    """Return the files of a folder, and of folders below it, that are no data, by their path below it.

    Raises:
        StoreError: The store does not answer, so that it is not known what they are.
    """
    kinds = {STATE: is_state, INFO: _is_info, INFOS: _are_infos, SPLITS: _is_dictionary}
    found = {name for name, is_own in kinds.items() if _is_file(folder, name) and is_own(_json(folder, name))}
    return frozenset(found | _of_manifest(folder))


def _is_file(folder: Folder, path: str) -> bool:
    """Tell whether a path below a folder is that of a file."""
    *above, name = path.split("/")
    for part in above:
        inner = next((entry.folder for entry in folder.named(part) if entry.folder is not None), None)
        if inner is None:
            return False
        folder = inner
    return any(entry.folder is None for entry in folder.named(name))


def _json(folder: Folder, name: str) -> object:
    return small_json(join(folder.address, name))


def _has_keys(value: object, known: frozenset[str]) -> bool:
    """Tell whether a JSON value is an object with no other keys than these."""
    return isinstance(value, dict) and value.keys() <= known


def _is_info(value: object) -> bool:
    return _has_keys(value, _INFO_KEYS)


def _are_infos(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_info, value.values()))


def _is_dictionary(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == {"splits"}


def _of_manifest(folder: Folder) -> set[str]:
    if not _is_file(folder, POINTER):
        return set()
    try:
        pointer = parse_pointer(read_small(join(folder.address, POINTER)) or b"", POINTER)
    except (ManifestError, ManifestMismatch):
        return set()
    listed = {
        path: (name, record)
        for name, record in pointer.run.files.items()
        for path in (name, f"{OBJECTS}/{record.sha256}")
        if _is_file(folder, path)
    }
    own = {path for path, of in listed.items() if _is_listed(join(folder.address, path), *of)}
    signed = _is_file(folder, ATTESTATION) and _has_keys(_json(folder, ATTESTATION), _SIGNATURE_KEYS)
    return {POINTER, *own, *([ATTESTATION] if signed else [])}


def _is_listed(path: str, name: str, record: FileRecord) -> bool:
    """Tell whether a file is the one that a manifest lists by a name, and one that a manifest may have."""
    table = TABLES.get(name.removesuffix(".parquet"))
    if table is None and name.partition("/")[0] not in FOLDERS:
        return False
    try:
        with open_binary(path) as file:
            if _record(file, record.size) != record:
                return False
        if name.endswith(".json"):
            return _has_keys(small_json(path), _INDEX_KEYS)
        columns = pq.read_schema(arrow_source(path))
    except (OSError, pa.ArrowException):
        return False  # then it is a shard, and reading it says why it cannot be read
    if table is None:
        return all(pa.types.is_integer(kind) or pa.types.is_fixed_size_binary(kind) for kind in columns.types)
    return set(columns.names) <= set(table.schema.names)


def _record(file: BinaryIO, most: int) -> FileRecord:
    """Return size and sha256 of an open file, or of its beginning when it is larger than it should be."""
    state, size = hashlib.sha256(), 0
    while size <= most and (block := file.read(_BLOCK_BYTES)):
        state.update(block)
        size += len(block)
    return FileRecord(size=size, sha256=state.hexdigest())
