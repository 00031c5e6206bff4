"""Lists of the shards that are kept, as loaders take them, and the list of those that are not.

``list``       ``<split>.txt``: a path or address a line; torch, ray, tf.data, polars, DuckDB and others take such lists
``datatrove``  ``<split>.paths.txt``: paths relative to the split's root, for ``paths_file`` of datatrove's readers
``hf``         ``data_files.json``: for ``data_files`` of ``datasets.load_dataset``, globs escaped

A file that is listed twice in the corpus stands there twice. A shard of a streamed dataset is no file, and stands in
``excluded.jsonl`` alone.
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dataaudit.errors import ConfigError
from dataaudit.manifest.canonical import canonical_json
from dataaudit.quarantine.paths import STREAMED, full_path, is_local, relative_path
from dataaudit.quarantine.selection import Selection, Shard
from dataaudit.yamlfile import NAME_PATTERN

EXCLUDED = "excluded.jsonl"
_NAMED = 5
_LONGEST = 200
"""Characters of a split whose name becomes a file's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """A kept shard and where its file lies."""

    shard: Shard
    root: str
    """Folder or address that the URI is relative to."""
    relative: str
    """Path below it, ``os.fsdecode`` form."""

    @property
    def path(self) -> str:
        """Path or address that opens it."""
        return full_path(self.root, self.relative)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Where the files of each split lie."""

    of_split: Mapping[str, str]
    """Folder or address by split."""

    def locate(self, shards: Sequence[Shard]) -> dict[str, list[Located]]:
        """Return the files of kept shards by split; splits that are streamed are left out.

        Raises:
            ConfigError: A URI leaves its root, or a split's name cannot be a file's.
        """
        found: dict[str, list[Located]] = {}
        for shard in shards:
            split, uri = shard.row["split"], shard.row["uri"]
            root = self.of_split.get(split, "")
            if root.startswith(STREAMED):
                continue
            relative = relative_path(uri)
            if relative is None or (not root and "://" in relative):
                raise ConfigError(f"{shard.name}: the URI leads out of its root; no build writes such a one")
            if not re.fullmatch(NAME_PATTERN, split) or len(split) > _LONGEST:
                raise ConfigError(f"the split `{split}` cannot be the name of a file")
            found.setdefault(split, []).append(Located(shard=shard, root=root, relative=relative))
        return found

    def streamed(self, shards: Sequence[Shard]) -> int:
        """Return how many shards are no files."""
        return sum(self.of_split.get(shard.row["split"], "").startswith(STREAMED) for shard in shards)


Files = dict[str, bytes]
Located_ = Mapping[str, Sequence[Located]]


def path_lists(located: Located_) -> Files:
    """Return ``<split>.txt``."""
    paths = {split: [one.path for one in files] for split, files in located.items()}
    _refuse("list", [path for found in paths.values() for path in found], _breaks)
    return {f"{split}.txt": _lines(found) for split, found in paths.items()}


def datatrove_lists(located: Located_) -> Files:
    """Return ``<split>.paths.txt``; datatrove strips each line and puts its ``data_folder`` before it."""
    paths = {split: [one.relative for one in files] for split, files in located.items()}
    _refuse(
        "datatrove",
        [path for found in paths.values() for path in found],
        lambda path: path.strip() != path or _breaks(path),
    )
    return {f"{split}.paths.txt": _lines(found) for split, found in paths.items()}


def hugging_face_files(located: Located_) -> Files:
    """Return ``data_files.json``; ``datasets`` takes every entry for a glob, and ``::`` for a chain of addresses."""
    paths = {split: [one.path for one in files] for split, files in located.items()}
    _refuse("hf", [path for found in paths.values() for path in found], lambda path: "::" in path)
    escaped = {split: [_escape(path) for path in found] for split, found in paths.items()}
    return {"data_files.json": (json.dumps(escaped, indent=1, ensure_ascii=True) + "\n").encode()}


FORMATS: Mapping[str, Callable[[Located_], Files]] = {
    "list": path_lists,
    "datatrove": datatrove_lists,
    "hf": hugging_face_files,
}


def excluded_list(selection: Selection) -> Files:
    """Return ``excluded.jsonl``: a line for each shard that is left out, and why."""
    return {EXCLUDED: b"".join(canonical_json(_excluded(shard)) + b"\n" for shard in selection.excluded)}


def check_files(located: Located_) -> tuple[list[str], int]:
    """Hold kept local files against what the manifest says of them, without reading them.

    Returns:
        Names of those that are absent or of another size, and how many could be looked at.
    """
    wrong, looked = [], 0
    for files in located.values():
        for one in files:
            if not is_local(one.root) or not os.path.isdir(one.root):
                continue
            looked += 1
            try:
                size = os.stat(one.path).st_size
            except (OSError, ValueError):
                size = -1
            if size != one.shard.row["size"]:
                wrong.append(one.shard.name)
    return wrong, looked


def _excluded(shard: Shard) -> dict[str, Any]:
    row = shard.row
    return {
        "split": row["split"],
        "uri": row["uri"],
        "sha256": row["sha256"] or None,
        "rows_digest": row["rows_digest"],
        "why": shard.why,
        "reasons": list(shard.reasons),
        "entries": [entry.id for entry in shard.entries],
        "documents": row["documents"],
        "tokens": row["tokens"],
    }


def _escape(path: str) -> str:
    scheme, mark, rest = path.rpartition("://")
    return f"{scheme}{mark}{glob.escape(rest)}"


def _lines(paths: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(path) + b"\n" for path in paths)


def _breaks(path: str) -> bool:
    """Tell whether a reader of lines would take a path for several; those of text know more ends than the line feed."""
    return len(f"{path}.".splitlines()) > 1


def _refuse(name: str, paths: Sequence[str], wrong: Callable[[str], bool]) -> None:
    """Refuse names that a format cannot hold: left out in silence they would be lost, written they would be others.

    Raises:
        ConfigError: There are some.
    """
    found = [path for path in paths if wrong(path)]
    if found:
        lines = [f"  - {path}" for path in found[:_NAMED]]
        more = [f"  - and {len(found) - _NAMED} more"] if len(found) > _NAMED else []
        raise ConfigError(
            "\n".join([f"--format {name} cannot hold {len(found)} of the names:", *lines, *more]),
            "Rename the files and build again, or take another format.",
        )
