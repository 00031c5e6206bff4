"""From a list and a manifest to a folder for loaders, put in place in one step.

``list``       ``<split>.txt``: a path or address a line; torch, ray, tf.data, polars, DuckDB and others take such lists
``datatrove``  ``<split>.paths.txt``: paths relative to the split's root, for ``paths_file`` of datatrove's readers
``hf``         ``data_files.json``: for ``data_files`` of ``datasets.load_dataset``, globs escaped

A file that is listed twice in the corpus stands there twice. A shard of a streamed dataset is no file, and stands in
``excluded.jsonl`` alone.
"""

from __future__ import annotations

import datetime as dt
import glob
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from dataaudit.addresses import has_secrets
from dataaudit.atomic import sync_folder, write_synced
from dataaudit.errors import ConfigError, ExitCode
from dataaudit.manifest.canonical import canonical_json
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.replace import alone_in, new_sibling, recover, take_place
from dataaudit.manifest.uri import STREAMED, relative_path
from dataaudit.quarantine.applied import DOCUMENTS, EXCLUDED, FORM, RECORD, digest_of_file
from dataaudit.quarantine.entry import Contents, no_collection
from dataaudit.quarantine.list import Quarantine, Standing, in_force, read_folded, today
from dataaudit.quarantine.selection import DETECTORS, ORIGINS, TIERS, Choice, Drops, Selection, Shard, drop_list, select
from dataaudit.regular import read_regular
from dataaudit.yamlfile import NAME_PATTERN, nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked for."""

    file: Path
    """The list."""
    manifest: Path | Manifest
    """The manifest, or its folder."""
    out: Path
    """Folder to write."""
    on: dt.date
    """The day that expiries are held against; what is in force by the clock stays held back."""
    formats: tuple[str, ...] = ("list",)
    """Of :data:`dataaudit.quarantine.apply.FORMATS`."""
    documents: Choice | None = None
    """What a drop list is made of; None for none."""
    asked: tuple[str, ...] = ()
    """Origins that the user named, so that an absent one is an error."""
    rows: bool = False
    """Whether each shard's rows are written as text too."""
    root: str | None = None
    """Where the shards lie now; the manifest's roots when None."""
    exclude_changed: bool = False
    """Leave out shards that an entry names under another digest."""
    keep_unread: bool = False
    """Keep shards that the build did not read."""
    ignore_bad_lines: bool = False
    """Go on although lines of the list cannot be read."""


def make_request(
    file: Path,
    *,
    manifest: Path | Manifest,
    out: Path,
    formats: tuple[str, ...],
    documents: bool,
    origins: Sequence[str] | None,
    findings: Sequence[str] | None,
    ngram_score: float,
    with_common: bool,
    held_out: bool,
    rows: bool,
    root: str | None,
    exclude_changed: bool,
    keep_unread: bool,
    ignore_bad_lines: bool,
    on: dt.date | None,
) -> Request:
    """Return the request of the command's options.

    Raises:
        ConfigError: An option is unknown, or goes only with another one.
    """
    forms = _names(formats, "format", list(FORMATS))
    if not 0 <= ngram_score <= 1:
        raise ConfigError(f"13-gram score: expected 0 to 1, found {ngram_score:g}")
    if not documents and (origins is not None or findings is not None or held_out or rows):
        raise ConfigError(
            "origins, findings, held-out and rows say which documents are dropped, but none are asked for",
            "Add --documents, in Python documents=True.",
        )
    if root is not None and has_secrets(root):
        raise ConfigError(
            "root: an address with a user, a password or a query is not written into lists",
            "Give it without: what reads the lists has credentials of its own.",
        )
    named = _names(origins, "origin", ORIGINS)
    pairs = _names(findings, "findings", [f"{detector}:{tier}" for detector in DETECTORS for tier in TIERS])
    choice = Choice(
        origins=tuple(origin for origin in ORIGINS if origin in (named or ORIGINS)),
        ngram_score=ngram_score,
        with_common=with_common,
        held_out=held_out,
    )
    if pairs:
        if "findings" not in choice.origins:
            raise ConfigError(
                "findings are chosen, but `findings` is not among the origins",
                "Add it: --from findings, in Python origins=[..., 'findings'].",
            )
        split = [pair.split(":") for pair in pairs]
        choice = replace(choice, findings=tuple((detector, tier) for detector, tier in split))
    return Request(
        file=file,
        manifest=manifest,
        out=out,
        on=on or today(),
        formats=tuple(forms) or ("list",),
        documents=choice if documents else None,
        asked=tuple(named),
        rows=rows,
        root=root,
        exclude_changed=exclude_changed,
        keep_unread=keep_unread,
        ignore_bad_lines=ignore_bad_lines,
    )


def _names(given: Sequence[str] | None, what: str, known: tuple[str, ...] | list[str]) -> list[str]:
    names = given or ()
    for name in names:
        if name not in known:
            raise ConfigError(f"{what}: no `{name}`{nearest(name, list(known))}", f"Known: {', '.join(known)}.")
    return list(dict.fromkeys(names))


_WEB = ("http://", "https://")


def full_path(root: str, relative: str) -> str:
    """Return the path or address of a file below a root, a folder or an address."""
    if root.startswith(_WEB):
        return f"{root.rstrip('/')}/{quote(os.fsencode(relative))}"
    if "://" in root:
        return root + relative if root.endswith("/") else f"{root}/{relative}"
    return os.path.join(root, relative)


def is_local(root: str) -> bool:
    """Tell whether a root is a folder of this machine."""
    return "://" not in root and not root.startswith(STREAMED)


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
            "\n".join([f"the format {name} cannot hold {len(found)} of the names:", *lines, *more]),
            "Rename the files and build again, or take another format.",
        )


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
        contents, folded = read_folded(request.file, on=request.on, ignore_bad_lines=request.ignore_bad_lines)
        held = folded.standing(Standing.HELD)
        quarantine = in_force(held, digest=contents.digest, on=folded.on, heads=contents.heads)
    manifest = request.manifest if isinstance(request.manifest, Manifest) else load_manifest(request.manifest)
    if not request.ignore_bad_lines:
        contents.check_seen(manifest, str(request.file))
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
        in_force(folded.standing(Standing.PROPOSED), digest=contents.digest, on=folded.on),
        keep_unread=True,
    )
    single = [entry for entry in quarantine.entries if entry.target is not None and entry.target.kind == "document"]
    names = sorted([*files, RECORD, *([] if drops is None else [DOCUMENTS]), *([_ROWS] if request.rows else [])])
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
    if drops is not None:
        files[DOCUMENTS] = _parquet(drops.table)
        if request.rows:
            files |= _row_lists(drops.table)
    record = _record(request, applied) | {"files": {name: digest_of_file(data) for name, data in files.items()}}
    files[RECORD] = orjson.dumps(record, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
    _place(target, files)
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
        "schema": FORM,
        "manifest": applied.manifest.id,
        "quarantine": applied.quarantine.digest,
        "on": applied.quarantine.on.isoformat(),
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
            "with_common": choice.with_common,
            "held_out": choice.held_out,
            "not_looked_for": list(applied.drops.absent if applied.drops else ()),
            "incomplete": list(applied.drops.incomplete if applied.drops else ()),
        },
        "shards": {"kept": len(applied.selection.kept), "excluded": len(applied.selection.excluded)},
    }


def _check_target(target: Path) -> None:
    """Refuse to replace a folder that is not one of ours alone.

    Raises:
        ConfigError: It is a file or a link, or holds other things.
    """
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise ConfigError(f"{target}: expected a folder, found a file or a link", "Name a new folder.")
    found = {path.name for path in target.iterdir()} if target.is_dir() else set()
    if not found:
        return
    try:
        record = orjson.loads(read_regular(target / RECORD))
        ours = (
            {name.partition("/")[0] for name in record["files"]} if record["schema"]["name"] == FORM["name"] else set()
        )
    except (OSError, ValueError, LookupError, TypeError):
        ours = set()
    if not found <= ours | {RECORD}:
        raise ConfigError(
            f"{target}: the folder holds what `quarantine apply` did not write",
            "Name a new folder, or an older result.",
        )


def _place(target: Path, files: Files) -> None:
    """Write everything into a hidden sibling and give it the folder's name: readers see the old lists or the new."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with alone_in(target.parent) as alone:
        recover(target, alone=alone)
        staging = new_sibling(target)
        try:
            staging.mkdir()
            folders = {staging, *((staging / name).parent for name in files)}
            for folder in folders - {staging}:
                folder.mkdir()
            for name, data in files.items():
                write_synced(staging / name, data)
            for folder in folders:
                sync_folder(folder)
            take_place(staging, target)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise


def _parquet(documents: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(documents, sink, compression="zstd", store_schema=True)
    return bytes(sink.getvalue().to_pybytes())


def _row_lists(documents: pa.Table) -> Files:
    """Return ``rows/<shard>.txt``, the rows to skip of every shard that has some, one a line."""
    shards, rows = documents["shard"].to_numpy(), documents["row"].to_numpy()
    cuts = np.flatnonzero(np.diff(shards)) + 1
    return {
        f"{_ROWS}/{found[0]:06d}.txt": b"".join(b"%d\n" % number for number in numbers)
        for found, numbers in zip(np.split(shards, cuts), np.split(rows, cuts), strict=True)
        if len(found)
    }
