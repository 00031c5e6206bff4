"""Writes a folder for loaders from a list and a manifest, and replaces an older folder in one step.

``list``       ``<split>.txt``: a path or address a line; torch, ray, tf.data, polars, DuckDB and others take such lists
``datatrove``  ``<split>.paths.txt``: paths relative to the split's root, for ``paths_file`` of datatrove's readers
``hf``         ``data_files.json``: for ``data_files`` of ``datasets.load_dataset``, globs escaped

A file that is listed twice in the corpus is listed twice. A shard of a streamed dataset is no file, so it is in
``excluded.jsonl`` alone.
"""

from __future__ import annotations

import datetime as dt
import glob
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from dataaudit.base.errors import ConfigError, ExitCode
from dataaudit.base.files import read_safely, sync_folder, write_synced
from dataaudit.base.redact import has_secrets
from dataaudit.base.yamlfile import NAME_PATTERN, nearest
from dataaudit.decide.quarantine.applied import DOCUMENTS, EXCLUDED, FORM, RECORD
from dataaudit.decide.quarantine.entry import Contents, digest_of, listed, no_collection
from dataaudit.decide.quarantine.list import Quarantine, Standing, in_force, read_folded
from dataaudit.decide.quarantine.selection import (
    DETECTORS,
    ORIGINS,
    TIERS,
    Choice,
    Drops,
    Selection,
    Shard,
    drop_list,
    select,
)
from dataaudit.manifest.canonical import canonical_json
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.locate import STREAMED, relative_path
from dataaudit.manifest.replace import publish_lock, recover, replace_folder, staging_folder

_NGRAM_SCORE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The arguments of :meth:`dataaudit.api.QuarantineList.apply`."""

    file: Path
    manifest: Manifest
    out: Path
    formats: Sequence[str] = ("list",)
    documents: bool = False
    origins: Sequence[str] | None = None
    findings: Sequence[str] | None = None
    ngram_score: float = _NGRAM_SCORE
    with_common: bool = False
    held_out: bool = False
    rows: bool = False
    root: str | None = None
    exclude_changed: bool = False
    keep_unread: bool = False
    ignore_bad_lines: bool = False
    on: dt.date | None = None

    def __post_init__(self) -> None:
        """Check the options."""
        _check_names(self.formats, "format", FORMATS)
        if not 0 <= self.ngram_score <= 1:
            raise ConfigError(f"13-gram score: expected 0 to 1, found {self.ngram_score:g}")
        of_leaks = self.with_common or self.ngram_score != _NGRAM_SCORE
        named = self.origins is not None or self.findings is not None or self.held_out or self.rows or of_leaks
        if named and not self.documents:
            raise ConfigError(
                "origins, findings, n-gram score, with-common, held-out and rows say which documents are dropped, but"
                " none are asked for",
                "Add --documents, in Python documents=True.",
            )
        if self.root is not None and has_secrets(self.root):
            raise ConfigError(
                "root: an address with a user, a password or a query is not written into lists",
                "Give it without: what reads the lists has credentials of its own.",
            )
        _check_names(self.origins, "origin", ORIGINS)
        _check_names(self.findings, "findings", [f"{detector}:{tier}" for detector in DETECTORS for tier in TIERS])
        if self.findings and "findings" not in (self.origins or ORIGINS):
            raise ConfigError(
                "findings are chosen, but `findings` is not among the origins",
                "Add it: --from findings, in Python origins=[..., 'findings'].",
            )
        if of_leaks and "overlap" not in (self.origins or ORIGINS):
            raise ConfigError(
                "the n-gram score and with-common are of leaks, but `overlap` is not among the origins",
                "Add it: --from overlap, in Python origins=[..., 'overlap'].",
            )

    @property
    def choice(self) -> Choice | None:
        """The content of the drop list; None for no list."""
        if not self.documents:
            return None
        findings = [pair.partition(":") for pair in dict.fromkeys(self.findings or ["secrets:validated"])]
        return Choice(
            origins=tuple(origin for origin in ORIGINS if origin in (self.origins or ORIGINS)),
            findings=tuple((detector, tier) for detector, _, tier in findings),
            ngram_score=self.ngram_score,
            with_common=self.with_common,
            held_out=self.held_out,
        )


def _check_names(given: Sequence[str] | None, what: str, known: Sequence[str]) -> None:
    for name in given or ():
        if name not in known:
            raise ConfigError(f"{what}: no `{name}`{nearest(name, list(known))}", f"Known: {', '.join(known)}.")


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
        if self.root.startswith(("http://", "https://")):
            return f"{self.root.rstrip('/')}/{quote(os.fsencode(self.relative))}"
        if "://" in self.root:
            return f"{self.root.removesuffix('/')}/{self.relative}"
        return os.path.join(self.root, self.relative)


def _locate(shards: Sequence[Shard], roots: Mapping[str, str]) -> dict[str, list[Located]]:
    """Return the files of kept shards by split, given its root; splits that are streamed are left out."""
    located: dict[str, list[Located]] = {}
    for shard in shards:
        split, root = shard.row["split"], roots[shard.row["split"]]
        if root.startswith(STREAMED):
            continue
        relative = relative_path(shard.row["uri"])
        if relative is None or (not root and "://" in relative):
            raise ConfigError(f"{shard.name}: the URI leads out of its root; no build writes such a one")
        if not re.fullmatch(NAME_PATTERN, split) or len(split) > _LONGEST:
            raise ConfigError(f"the split `{split}` cannot be the name of a file")
        located.setdefault(split, []).append(Located(shard=shard, root=root, relative=relative))
    return located


Files = dict[str, bytes]
FORMATS = ("list", "datatrove", "hf")


def _lists(form: str, located: Mapping[str, Sequence[Located]]) -> Files:
    """Return the files of a format; names that it cannot hold would be lost in silence, or become others."""
    paths = {
        split: [file.relative if form == "datatrove" else file.path for file in files]
        for split, files in located.items()
    }
    if bad := [path for own in paths.values() for path in own if _is_wrong(form, path)]:
        raise ConfigError(
            listed(f"the format {form} cannot hold {len(bad)} of the names:", [f"- {path}" for path in bad]),
            "Rename the files and build again, or take another format.",
        )
    if form == "hf":  # `datasets` takes every entry for a glob
        escaped = {split: [_escape(path) for path in own] for split, own in paths.items()}
        return {"data_files.json": (json.dumps(escaped, indent=1, ensure_ascii=True) + "\n").encode()}
    ending = ".txt" if form == "list" else ".paths.txt"
    return {f"{split}{ending}": b"".join(os.fsencode(path) + b"\n" for path in own) for split, own in paths.items()}


def _is_wrong(form: str, path: str) -> bool:
    """Return whether a reader of a format would take a path for another path, or for several."""
    if form == "hf":
        return "::" in path  # a chain of addresses
    stripped = form == "datatrove" and path.strip() != path
    return stripped or len(f"{path}.".splitlines()) > 1  # readers of text know more ends than LF


def _escape(path: str) -> str:
    scheme, mark, rest = path.rpartition("://")
    return f"{scheme}{mark}{glob.escape(rest)}"


def _excluded(shard: Shard) -> dict[str, Any]:
    row = shard.row
    return {
        **{name: row[name] for name in ("split", "uri", "rows_digest", "documents", "tokens")},
        "sha256": row["sha256"] or None,
        "why": shard.why,
        "reasons": list(shard.reasons),
        "entries": [entry.id for entry in shard.entries],
    }


def _wrong_files(located: Mapping[str, Sequence[Located]]) -> list[str]:
    wrong = []
    for item in (file for files in located.values() for file in files):
        if "://" in item.root or not os.path.isdir(item.root):
            continue
        try:
            size = os.stat(item.path).st_size
        except (OSError, ValueError):
            size = -1
        if size != item.shard.row["size"]:
            wrong.append(item.shard.name)
    return wrong


_ROWS = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What was written, and what people should know about it."""

    request: Request
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
    files: tuple[str, ...]
    """Names of what was written, sorted."""

    @property
    def exit_code(self) -> ExitCode:
        """4 when no shard is kept; 3 when the drop list is known to lack something; else 0."""
        if not self.selection.kept:
            return ExitCode.NOTHING_EVALUATED
        lacking = self.drops is not None and (self.drops.incomplete or (self.request.origins and self.drops.absent))
        return ExitCode.NOT_EVALUATED if lacking else ExitCode.PASS


def apply(request: Request) -> Applied:
    """Write the lists of a manifest's shards, and of documents, that loaders take."""
    target = Path(os.path.abspath(request.out))
    _check_target(target)
    manifest, choice = request.manifest, request.choice
    with no_collection():
        contents, folded = read_folded(request.file, on=request.on, ignore_bad_lines=request.ignore_bad_lines)
        quarantine = in_force(folded.standing(Standing.HELD), digest=contents.digest, on=folded.on)
        proposed = in_force(folded.standing(Standing.PROPOSED), digest=contents.digest, on=folded.on)
    if not request.ignore_bad_lines:
        contents.check_seen(manifest, str(request.file))
    selection = select(manifest, quarantine, exclude_changed=request.exclude_changed, keep_unread=request.keep_unread)
    drops = None if choice is None else drop_list(manifest, selection, quarantine, choice)
    roots = {
        split.name: manifest.run.roots.get(split.name, "") if request.root is None else request.root
        for split in manifest.core.splits
    }
    located = _locate(selection.kept, roots)
    files = {EXCLUDED: b"".join(canonical_json(_excluded(shard)) + b"\n" for shard in selection.excluded)}
    for name in dict.fromkeys(request.formats or ("list",)):
        lists = _lists(name, located)
        if twice := sorted(files.keys() & lists.keys()):
            raise ConfigError(f"two lists would be the file {twice[0]}", "Write the formats to two folders.")
        files |= lists
    names = sorted([*files, RECORD, *([] if drops is None else [DOCUMENTS]), *([_ROWS] if request.rows else [])])
    elsewhere = {entry.id for entry in selection.unmatched}
    single = [entry for entry in quarantine.entries if entry.target is not None and entry.target.kind == "document"]
    applied = Applied(
        request=request,
        quarantine=quarantine,
        contents=contents,
        selection=selection,
        drops=drops,
        waiting=len(select(manifest, proposed, keep_unread=True).excluded),
        documents_unlisted=0 if drops is not None else sum(entry.id not in elsewhere for entry in single),
        streamed=sum(roots[shard.row["split"]].startswith(STREAMED) for shard in selection.kept),
        wrong_files=tuple(_wrong_files(located)),
        files=tuple(names),
    )
    if drops is not None:
        pq.write_table(drops.table, sink := pa.BufferOutputStream(), compression="zstd", store_schema=True)
        files[DOCUMENTS] = sink.getvalue().to_pybytes()
        if request.rows:
            files |= _row_lists(drops.table)
    record = _record(applied) | {"files": {name: digest_of(data) for name, data in files.items()}}
    files[RECORD] = orjson.dumps(record, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
    _replace_folder(target, files)
    return applied


def _record(applied: Applied) -> dict[str, Any]:
    request, drops, choice = applied.request, applied.drops, applied.request.choice
    return {
        "schema": FORM,
        "manifest": request.manifest.id,
        "quarantine": applied.quarantine.digest,
        "on": applied.quarantine.on.isoformat(),
        "formats": sorted(set(request.formats or ("list",))),
        "root": request.root,
        "exclude_changed": request.exclude_changed,
        "keep_unread": request.keep_unread,
        "ignored_bad_lines": len(applied.contents.bad),
        "documents": None
        if choice is None or drops is None
        else {
            "from": sorted(choice.origins),
            "findings": sorted(":".join(pair) for pair in choice.findings),
            "ngram_score": choice.ngram_score,
            "with_common": choice.with_common,
            "held_out": choice.held_out,
            "not_looked_for": list(drops.absent),
            "incomplete": list(drops.incomplete),
        },
        "shards": {"kept": len(applied.selection.kept), "excluded": len(applied.selection.excluded)},
    }


def _check_target(target: Path) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise ConfigError(f"{target}: expected a folder, found a file or a link", "Name a new folder.")
    there = {path.name for path in target.iterdir()} if target.is_dir() else set()
    if not there:
        return
    try:
        record = orjson.loads(read_safely(target / RECORD))
        named = record["files"] if record["schema"]["name"] == FORM["name"] else ()
        ours = {name.partition("/")[0] for name in named}
    except (OSError, ValueError, LookupError, TypeError):
        ours = set()
    if not there <= ours | {RECORD}:
        raise ConfigError(
            f"{target}: the folder holds what `quarantine apply` did not write",
            "Name a new folder, or an older result.",
        )


def _replace_folder(target: Path, files: Files) -> None:
    """Write everything into a hidden sibling and give it the folder's name: readers see the old lists or the new."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with publish_lock(target.parent) as alone:
        recover(target, alone=alone)
        staging = staging_folder(target)
        try:
            staging.mkdir()
            folders = {staging, *((staging / name).parent for name in files)}
            for folder in folders - {staging}:
                folder.mkdir()
            for name, data in files.items():
                write_synced(staging / name, data)
            for folder in folders:
                sync_folder(folder)
            replace_folder(staging, target)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise


def _row_lists(documents: pa.Table) -> Files:
    shards, rows = documents["shard"].to_numpy(), documents["row"].to_numpy()
    cuts = np.flatnonzero(np.diff(shards)) + 1
    return {
        f"{_ROWS}/{shard[0]:06d}.txt": b"".join(b"%d\n" % number for number in numbers)
        for shard, numbers in zip(np.split(shards, cuts), np.split(rows, cuts), strict=True)
        if len(shard)
    }
