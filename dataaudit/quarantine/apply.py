"""From a list and a manifest to a folder for loaders, put in place in one step."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from dataaudit.atomic import sync_file, sync_folder, write_synced
from dataaudit.errors import ConfigError, ExitCode
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.replace import alone_in, new_sibling, recover, take_place
from dataaudit.quarantine.documents import Drops, drop_list
from dataaudit.quarantine.file import read
from dataaudit.quarantine.fold import Standing, fold
from dataaudit.quarantine.held import Quarantine, in_force
from dataaudit.quarantine.lines import Contents, no_collection
from dataaudit.quarantine.loaders import FORMATS, Files, Roots, check_files, excluded_list
from dataaudit.quarantine.request import Request
from dataaudit.quarantine.selection import Selection, select

RECORD: Final = "applied.json"
"""What a folder of ours is known by."""
_FORM: Final = {"name": "dataaudit-applied", "version": 1}
_DOCUMENTS = "documents.parquet"
_ROWS = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What was written and what has to be said about it."""

    manifest: Manifest
    quarantine: Quarantine
    contents: Contents
    selection: Selection
    drops: Drops | None
    waiting: int
    """Open proposals for shards of the manifest: nothing is left out because of them."""
    documents_unlisted: int
    """Entries in force that name single documents of kept shards, when no drop list was asked for."""
    streamed: int
    """Kept shards that are no files, so no list has them."""
    wrong_files: tuple[str, ...]
    """Kept files that are absent or of another size than the manifest says."""
    looked: int
    """Kept files that were looked at."""
    files: tuple[str, ...]
    """Names of what was written, sorted."""
    asked: tuple[str, ...]
    """Origins that the user named."""

    @property
    def exit_code(self) -> ExitCode:
        """4 when no shard is kept; 3 when the drop list is known to lack something; else 0."""
        if not self.selection.kept:
            return ExitCode.NOTHING_EVALUATED
        lacking = self.drops is not None and (self.drops.incomplete or (self.asked and self.drops.absent))
        return ExitCode.NOT_EVALUATED if lacking else ExitCode.PASS


def apply(request: Request) -> Applied:
    """Write the lists of a manifest's shards, and of documents, that loaders take.

    Raises:
        QuarantineError: The list is absent or of a newer version.
        QuarantineDamaged: Lines of it cannot be read.
        ManifestError: The manifest is absent or damaged.
        ConfigError: The folder holds other things, or a name does not fit a format.
        OSError: The folder cannot be written; what it held before is untouched.
    """
    target = Path(os.path.abspath(request.out))
    _check_target(target)
    with no_collection():
        contents = read(request.file)
        if not request.ignore_bad_lines:
            contents.check(str(request.file))
        folded = fold(contents.entries, request.on)
        quarantine = in_force(folded.standing(Standing.HELD), digest=contents.digest, on=request.on)
    manifest = request.manifest if isinstance(request.manifest, Manifest) else load_manifest(request.manifest)
    selection = select(manifest, quarantine, exclude_changed=request.exclude_changed, keep_unread=request.keep_unread)
    drops = None if request.documents is None else drop_list(manifest, selection, quarantine, request.documents)
    roots = Roots(of_split={split.name: _root(request, manifest, split.name) for split in manifest.core.splits})
    located = roots.locate(selection.kept)
    files = excluded_list(selection)
    for name in request.formats:
        lists = FORMATS[name](located)
        if twice := sorted(files.keys() & lists.keys()):
            raise ConfigError(f"two lists would be the file {twice[0]}", "Write the formats to two folders.")
        files |= lists
    wrong, looked = check_files(located)
    proposed = select(
        manifest,
        in_force(folded.standing(Standing.PROPOSED), digest=contents.digest, on=request.on),
        keep_unread=True,
    )
    single = [entry for entry in quarantine.entries if entry.target is not None and entry.target.kind == "document"]
    names = sorted([*files, RECORD, *([] if drops is None else [_DOCUMENTS]), *([_ROWS] if request.rows else [])])
    applied = Applied(
        manifest=manifest,
        quarantine=quarantine,
        contents=contents,
        selection=selection,
        drops=drops,
        waiting=len(proposed.excluded),
        documents_unlisted=0 if drops is not None else _relevant(single, selection),
        streamed=roots.streamed(selection.kept),
        wrong_files=tuple(wrong),
        looked=looked,
        files=tuple(names),
        asked=request.asked,
    )
    files[RECORD] = orjson.dumps(
        _record(request, applied), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    )
    _place(target, files, None if drops is None else drops.table, rows=request.rows)
    return applied


def _root(request: Request, manifest: Manifest, split: str) -> str:
    return request.root if request.root is not None else manifest.run.roots.get(split, "")


def _relevant(entries: Sequence[Any], selection: Selection) -> int:
    """Return how many entries of documents concern the manifest."""
    elsewhere = {entry.id for entry in selection.unmatched}
    return sum(entry.id not in elsewhere for entry in entries)


def _record(request: Request, applied: Applied) -> dict[str, Any]:
    """Return what ``applied.json`` holds: of what, and with which answers, the folder was made."""
    choice = request.documents
    return {
        "schema": _FORM,
        "manifest": applied.manifest.id,
        "quarantine": applied.quarantine.digest,
        "on": request.on.isoformat(),
        "formats": sorted(request.formats),
        "root": request.root,
        "exclude_changed": request.exclude_changed,
        "keep_unread": request.keep_unread,
        "ignored_bad_lines": len(applied.contents.bad),
        "documents": None
        if choice is None
        else {
            "from": sorted(choice.origins),
            "findings": sorted(":".join(pair) for pair in choice.findings),
            "ngram_score": choice.ngram_score,
            "held_out": choice.held_out,
            "not_looked_for": list(applied.drops.absent if applied.drops else ()),
            "incomplete": list(applied.drops.incomplete if applied.drops else ()),
        },
        "shards": {"kept": len(applied.selection.kept), "excluded": len(applied.selection.excluded)},
        "files": list(applied.files),
    }


def _check_target(target: Path) -> None:
    """Refuse to replace a folder that is not one of ours alone.

    Raises:
        ConfigError: It is a file or a link, or holds other things.
    """
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise ConfigError(f"--out {target}: expected a folder, found a file or a link", "Name a new folder.")
    found = {path.name for path in target.iterdir()} if target.is_dir() else set()
    if not found:
        return
    try:
        record = orjson.loads((target / RECORD).read_bytes())
        ours = set(record["files"]) if record["schema"] == _FORM else set()
    except (OSError, ValueError, LookupError, TypeError):
        ours = set()
    if not found <= ours:
        raise ConfigError(
            f"--out {target}: the folder holds what `quarantine apply` did not write",
            "Name a new folder, or an older result.",
        )


def _place(target: Path, files: Files, documents: pa.Table | None, *, rows: bool) -> None:
    """Write everything into a hidden sibling and give it the folder's name: readers see the old lists or the new."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with alone_in(target.parent) as alone:
        recover(target, alone=alone)
        staging = new_sibling(target)
        try:
            staging.mkdir()
            for name, data in files.items():
                write_synced(staging / name, data)
            if documents is not None:
                pq.write_table(documents, staging / _DOCUMENTS, compression="zstd", store_schema=True)
                with (staging / _DOCUMENTS).open("rb") as handle:
                    sync_file(handle)
                if rows:
                    _write_rows(staging / _ROWS, documents)
            sync_folder(staging)
            take_place(staging, target)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise


def _write_rows(folder: Path, documents: pa.Table) -> None:
    """Write ``rows/<shard>.txt``, the rows to skip of every shard that has some, one a line."""
    folder.mkdir()
    shards, rows = documents["shard"].to_numpy(), documents["row"].to_numpy()
    cuts = np.flatnonzero(np.diff(shards)) + 1
    for found, numbers in zip(np.split(shards, cuts), np.split(rows, cuts), strict=True):
        if len(found):
            write_synced(folder / f"{found[0]:06d}.txt", b"".join(b"%d\n" % number for number in numbers))
    sync_folder(folder)
