"""Recognizes folders that ``datasets`` writes with ``save_to_disk``.

A data set is a folder with ``state.json``, ``dataset_info.json`` and the Arrow files that the former lists. Everything
else there (``cache-*.arrow``, for example) is read like any file. A dictionary of data sets is a folder with
``dataset_dict.json`` and a folder for each split.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from typing import Any, TypeGuard

import orjson

from dataaudit.base.errors import ConfigError, StoreError
from dataaudit.base.redact import WEB
from dataaudit.base.yamlfile import NAME_PATTERN
from dataaudit.manifest.locate import encode_path
from dataaudit.scan.corpus.storage.address import RemotePath, folder_of, join, scheme_of
from dataaudit.scan.corpus.storage.files import open_binary
from dataaudit.scan.corpus.storage.remote import read_fully

STATE, INFO, SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"
_MAX_BYTES = 64 << 20


def saved_files(folder: str, names: Collection[str]) -> list[str] | None:
    """Return the names of a saved data set's files, None for another folder."""
    if STATE not in names or INFO not in names:
        return None
    state = small_json(join(folder, STATE))
    if not is_state(state):
        return None
    if state.get("_indices_data_files"):
        raise ConfigError(
            f"{encode_path(folder)} was saved as a selection of the rows of its files, which is not read",
            "Load it with `datasets` and save it again: new versions write the selected rows.",
        )
    return list(dict.fromkeys(item["filename"] for item in state["_data_files"]))


def is_state(value: object) -> TypeGuard[dict[str, Any]]:
    """Tell whether a JSON value is the state of a data set: all its keys begin with ``_``, and it lists its files."""
    if not isinstance(value, dict) or not all(key.startswith("_") for key in value):
        return False
    listed = value.get("_data_files")
    if not isinstance(listed, list):
        return False
    files = [record.get("filename") if isinstance(record, dict) else None for record in listed]
    return all(isinstance(name, str) and name != "" and name == os.path.basename(name) for name in files)


def saved_split(path: str, known: dict[str, tuple[str, ...]]) -> tuple[str, str] | None:
    """Return (folder of the dictionary, name of the split) of a file of a saved dictionary, else None."""
    if isinstance(path, RemotePath) and (scheme_of(path) in WEB or not path.endswith(".arrow")):
        return None  # not worth a request, or none can be made
    folder = folder_of(path)
    own, name = folder_of(folder), os.path.basename(folder)
    if own not in known:
        value = small_json(join(own, SPLITS))
        splits = value.get("splits") if isinstance(value, dict) else None
        known[own] = tuple(splits) if isinstance(splits, list) and all(map(_is_name, splits)) else ()
    return (own, name) if name in known[own] else None


def check_one_split(files: Iterable[str], *, where: str) -> None:
    """Refuse a pattern that joins the splits of a saved dictionary."""
    known: dict[str, tuple[str, ...]] = {}
    joined: dict[str, set[str]] = {}
    for path in files:
        if (saved := saved_split(path, known)) is not None:
            joined.setdefault(saved[0], set()).add(saved[1])
    for folder, names in joined.items():
        if len(names) > 1:
            first = encode_path(os.path.join(folder, min(names)))
            raise ConfigError(
                f"{where}: {encode_path(folder)} holds several splits: {', '.join(sorted(names))}",
                f"List the folder of each, {first} for example, in a split of its own.",
            )


def _is_name(name: object) -> bool:
    return isinstance(name, str) and re.fullmatch(NAME_PATTERN, name) is not None


def small_json(path: str) -> object:
    """Return the JSON value of a small file, None when there is none."""
    try:
        return orjson.loads(read_small(path) or b"")
    except orjson.JSONDecodeError:
        return None


def read_small(path: str) -> bytes | None:
    """Return the beginning of a file, up to 64 MiB; None when it is absent or may not be read."""
    try:
        with open_binary(path) as file:
            return read_fully(file, _MAX_BYTES)
    except (FileNotFoundError, PermissionError):
        return None
    except OSError as error:
        if not isinstance(path, RemotePath):
            return None
        raise StoreError(
            f"{encode_path(path)} could not be read: {error.strerror}",
            "Nothing was published. Run the same command again; `reader.retries` says how often it tries.",
        ) from None
