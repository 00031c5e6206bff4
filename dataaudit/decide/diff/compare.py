"""Compares two manifests: their shards, metrics, token counts, and what decided the numbers.

Which version bump a difference of the data means, by Croissant 1.1: https://docs.mlcommons.org/croissant/.

PATCH: the data remains the same, although it might be serialised or packaged otherwise. MINOR: the existing data is the
same and can still be retrieved as it is; there is more. MAJOR: existing data was edited, removed, or shuffled across
splits. A smaller bump is a promise to whoever trained on the old version, so what cannot be shown counts as MAJOR; but
a split that was cut or ordered otherwise and agrees in all that is counted of it counts as PATCH, not proven.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dataaudit.base.errors import ManifestError, ManifestMismatch
from dataaudit.base.text import plural
from dataaudit.decide.diff.compared_records import COLUMNS, UNREAD, Pairs, compare_metrics, match
from dataaudit.decide.diff.difference import (
    Bump,
    Cause,
    Difference,
    FateCount,
    Proposal,
    Recut,
    Setting,
    ShardChange,
    ShardChangeKind,
    Side,
)
from dataaudit.decide.diff.drifts import drifts, recuts
from dataaudit.manifest.canonical import canonical_json
from dataaudit.manifest.core import core_json
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.metrics.comparable import Meaning
from dataaudit.metrics.relations import hold_together

ORDER = (Bump.NONE, Bump.PATCH, Bump.MINOR, Bump.MAJOR)
SPLIT_ROLE = "split_role"
_VERSION = re.compile(r"v?(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(?:[-+][0-9A-Za-z.+-]+)?")
_LONGEST = 100
_Triple = tuple[int, int, int]
_MEANING = {
    ShardChangeKind.MOVED_SPLIT: (Bump.MAJOR, "moved to another split"),
    ShardChangeKind.REMOVED: (Bump.MAJOR, "gone: no shard holds their rows, or one copy of them less is there"),
    ShardChangeKind.CHANGED: (Bump.MAJOR, "with other rows than before"),
    ShardChangeKind.LOST: (Bump.MAJOR, "read before and not now: unreadable, or quarantined"),
    ShardChangeKind.UNKNOWN: (Bump.MAJOR, "unread in both, with other stored bytes or unknown ones"),
    ShardChangeKind.RECUT: (Bump.PATCH, "cut or ordered otherwise now: all that is counted of their splits agrees"),
    ShardChangeKind.ADDED: (Bump.MINOR, "added"),
    ShardChangeKind.RECOVERED: (Bump.MINOR, "unread before and read now"),
    ShardChangeKind.MOVED: (
        Bump.PATCH,
        "under another name, otherwise the same; `root:` keeps names if a folder moves",
    ),
    ShardChangeKind.REPACKED: (Bump.PATCH, "with the same rows, stored otherwise"),
}
_UNREAD = {
    ShardChangeKind.REMOVED: "gone that could not be read before: what they held is not known",
    ShardChangeKind.ADDED: "added that cannot be read",
    ShardChangeKind.MOVED: "that cannot be read with the same stored bytes under another name",
    ShardChangeKind.MOVED_SPLIT: "that cannot be read moved to another split",
}
_EMPTY = {ShardChangeKind.REMOVED: "gone"}
_UNPROVEN = frozenset({ShardChangeKind.RECUT, ShardChangeKind.UNKNOWN})
_UNKNOWN = frozenset({ShardChangeKind.REMOVED, ShardChangeKind.UNKNOWN})
_NOT_SHOWN = "; their documents may all stand in other shards, which digests of shards cannot show"


class Tally(NamedTuple):
    """Numbers of shards that changed in one way; a pair counts as one shard."""

    kind: ShardChangeKind
    with_documents: int
    documents: int
    """Of these, on the side that has them; of pairs on the new side."""
    empty: int
    """Read, without documents."""
    unread: int


def causes_of(tallies: Iterable[Tally], roles: int, *, proven: bool) -> tuple[Cause, ...]:
    """Return what demands a bump, the gravest first."""
    causes = []
    if roles:
        text = f"{plural(roles, 'split')} changed between training and held out"
        causes.append(Cause(bump=Bump.MAJOR, code=SPLIT_ROLE, text=text))
    for tally in tallies:
        causes += _causes(tally, proven=proven)
    return tuple(sorted(causes, key=lambda cause: -ORDER.index(cause.bump)))


def _causes(tally: Tally, *, proven: bool) -> Iterator[Cause]:
    kind = tally.kind
    if tally.with_documents:
        bump, words = _MEANING[kind]
        certain = proven if kind in {ShardChangeKind.REMOVED, ShardChangeKind.CHANGED} else kind not in _UNPROVEN
        text = f"{plural(tally.with_documents, 'shard')} ({plural(tally.documents, 'document')}) {words}"
        if not certain and bump == Bump.MAJOR:
            text += _NOT_SHOWN
        yield Cause(bump=bump, code=kind, text=text, proven=certain)
    if tally.unread:
        text = f"{plural(tally.unread, 'shard')} {_UNREAD.get(kind, _MEANING[kind][1])}"
        yield Cause(bump=_MEANING[kind][0], code=f"{kind}_unread", text=text, proven=kind not in _UNKNOWN)
    if tally.empty:
        text = f"{plural(tally.empty, 'shard')} without a document {_EMPTY.get(kind, _MEANING[kind][1])}"
        yield Cause(bump=Bump.PATCH, code=f"{kind}_empty", text=text)


def propose(causes: Sequence[Cause], old: Side, new: Side) -> Proposal:
    """Return the bump that the causes demand, and compare the two versions with it."""
    bump = max((cause.bump for cause in causes), key=ORDER.index, default=Bump.NONE)
    was, now = parse_version(old.version), parse_version(new.version)
    least = None if was is None or old.name != new.name else bumped(was, bump)
    if old.name != new.name:
        code = "other_dataset"
    elif was is None or now is None:
        code = "not_semver"
    elif now < was:
        code = "backwards"
    elif now >= bumped(was, bump):
        code = ""
    else:
        code = "unchanged" if old.version == new.version else "too_small"
    return Proposal(
        bump=bump,
        proven=all(cause.proven for cause in causes),
        causes=tuple(causes),
        version=None if least is None else ".".join(map(str, least)),
        complaint=code,
    )


def parse_version(text: str) -> _Triple | None:
    """Return MAJOR, MINOR and PATCH of a version by Semantic Versioning 2.0.0; None when it is none."""
    match = _VERSION.fullmatch(text) if len(text) <= _LONGEST else None
    return None if match is None else (int(match[1]), int(match[2]), int(match[3]))


def bumped(version: _Triple, bump: Bump) -> _Triple:
    """Return the next version."""
    major, minor, patch = version
    return {
        Bump.NONE: version,
        Bump.PATCH: (major, minor, patch + 1),
        Bump.MINOR: (major, minor + 1, 0),
        Bump.MAJOR: (major + 1, 0, 0),
    }[bump]


_COMPLAINTS = {
    "not_semver": "a version is not MAJOR.MINOR.PATCH, so nothing can be said of it",
    "backwards": "the new version is smaller than the old one",
    "other_dataset": "the two manifests are of datasets with different names; their versions cannot be compared",
}


def complaint(difference: Difference) -> str:
    """Return what is wrong with the versions, or nothing."""
    code, bump = difference.proposal.complaint, difference.proposal.bump
    if code == "unchanged":
        return f"the version did not change, but the data demand a {bump} bump"
    if code != "too_small":
        return _COMPLAINTS.get(code, "")
    was, now = parse_version(difference.old.version), parse_version(difference.new.version)
    promised = Bump.NONE
    if was is not None and now is not None:
        promised = next((step for step in reversed(Bump) if now >= bumped(was, step)), Bump.NONE)
    if promised == Bump.NONE:
        return f"the new version differs in its suffix alone, but the data demand a {bump} bump"
    return f"the new version promises a {promised} change, but the data demand a {bump} bump"


_GONE = (ShardChangeKind.REMOVED, ShardChangeKind.CHANGED)
_COME = (ShardChangeKind.ADDED, ShardChangeKind.CHANGED)
_DOCUMENTS = ("old_documents", "new_documents")
_UNITS = ("documents", "bytes", "tokens")
_PARTS = ("dataset", "config", "libraries", "mixture", "seeds", "redaction", "hmac_key", "parents", "tool")
_NAMED = ("stages", "detectors", "protected", "upstream_filters")
"""Lists whose items have a name."""
_AREAS = {"hmac_key": "redaction", "upstream_filters": "upstream filters"}
"""What parts of the core are called here, where it is another name."""
_COUNTED = frozenset({"counted_by", "sampled"})
"""Of the tokenizer: numbers, not settings."""


def compare(old: Manifest, new: Manifest) -> Difference:
    """Return what changed from one manifest to another."""
    for manifest in (old, new):
        hold_together(manifest)
    meaning = Meaning(old.core, new.core)
    tables = tuple(manifest.table("shards", COLUMNS) for manifest in (old, new))
    pairs = list(match(*tables))
    gone = _splits(tables[0], [pair.old for pair in pairs if pair.kind in _GONE])
    come = _splits(tables[1], [pair.new for pair in pairs if pair.kind in _COME])
    recut = recuts(old, new, gone & come, meaning)
    pairs = _with_recuts(pairs, tables, {item.split for item in recut if item.consistent})
    changed = [pair for pair in pairs if pair.kind is not None and len(pair.old)]
    roles = {split.name: split.held_out for split in old.core.splits}
    changed_roles = sum(roles.get(split.name, split.held_out) != split.held_out for split in new.core.splits)
    causes = causes_of((_tally(pair, tables) for pair in changed), changed_roles, proven=_less(recut, gone))
    sides = _side(old), _side(new)
    changes, unchanged, concealed = compare_metrics(old, new, meaning)
    drifted, still = drifts(old, new, same_tokenizer=meaning.same_tokenizer)
    return Difference(
        old=sides[0],
        new=sides[1],
        equal=old.id == new.id or canonical_json(core_json(old.core)) == canonical_json(core_json(new.core)),
        descends=old.id in new.core.parents,
        proposal=propose(causes, *sides),
        unchanged_shards=sum(len(pair.old) for pair in pairs if pair.kind is None),
        fates=tuple(_count(pair, tables) for pair in changed),
        shards=tuple(change for pair in changed for change in _changes(pair, tables)),
        recuts=recut,
        unchanged_metrics=unchanged,
        hidden_metrics=concealed,
        metrics=changes,
        drifts=tuple(drifted),
        unchanged_drifts=still,
        settings=settings(old, new),
        parents={"old": old.core.parents, "new": new.core.parents},
    )


def _splits(table: pa.Table, rows: Sequence[np.ndarray]) -> set[str]:
    chosen = np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)
    chosen = chosen[(table["documents"].to_numpy() > 0)[chosen]]
    return set(table["split"].take(pa.array(chosen)).unique().to_pylist())


def _with_recuts(pairs: list[Pairs], tables: Sequence[pa.Table], splits: set[str]) -> list[Pairs]:
    """Return the pairs in the order of kinds; what another cut of a split explains is a kind of its own."""
    kept, moved = [], []
    for pair in pairs:
        if pair.kind not in {*_GONE, *_COME} or not splits:
            kept.append(pair)
            continue
        side, rows = (1, pair.new) if pair.kind == ShardChangeKind.ADDED else (0, pair.old)
        table = tables[side].take(pa.array(rows))
        explained = np.isin(np.array(table["split"].to_pylist(), dtype=object), list(splits))
        explained &= table["documents"].to_numpy() > 0
        kept.append(Pairs(kind=pair.kind, old=pair.old[~explained], new=pair.new[~explained]))
        moved.append((pair.old[explained], pair.new[explained]))
    if moved:
        old, new = (np.concatenate([item[side] for item in moved]) for side in (0, 1))
        kept.append(Pairs(kind=ShardChangeKind.RECUT, old=old, new=new))
    order = [None, *ShardChangeKind]
    return sorted(kept, key=lambda pair: order.index(pair.kind))


def _less(recut: Sequence[Recut], gone: set[str]) -> bool:
    """Return whether it is shown that documents of removed and changed shards are not all there any more."""
    explained = {item.split for item in recut if item.consistent}
    doubtful = {item.split for item in recut if not item.fell}
    return bool(gone - doubtful) or not gone - explained


def _tally(pair: Pairs, tables: Sequence[pa.Table]) -> Tally:
    """Count the shards of a kind of change; of a pair the side that was read, the newer if both were."""
    if pair.kind == ShardChangeKind.RECUT:  # no pairs: the old shards stand for all
        pair = Pairs(kind=pair.kind, old=pair.old[pair.old >= 0], new=np.full(int((pair.old >= 0).sum()), -1))
    assert pair.kind is not None
    documents, unread = (np.zeros(len(pair.old), dtype=np.int64), np.ones(len(pair.old), dtype=bool))
    for table, rows in zip(tables, (pair.old, pair.new), strict=True):
        there = rows >= 0
        read = np.zeros(len(rows), dtype=bool)
        read[there] = ~np.isin(np.array(_column(table, "status", rows[there]), dtype=object), UNREAD)
        documents[read] = np.array(_column(table, "documents", rows[read]), dtype=np.int64)
        unread &= ~read
    has_documents = documents > 0
    return Tally(
        kind=pair.kind,
        with_documents=int(has_documents.sum()),
        documents=int(documents.sum()),
        empty=int((~has_documents & ~unread).sum()),
        unread=int(unread.sum()),
    )


def _count(pair: Pairs, tables: Sequence[pa.Table]) -> FateCount:
    assert pair.kind is not None
    sums: dict[str, int] = {}
    for name, table, rows in zip(("old", "new"), tables, (pair.old, pair.new), strict=True):
        there = rows[rows >= 0]
        sums[f"{name}_shards"] = len(there)
        for unit in ("documents", "tokens"):
            sums[f"{name}_{unit}"] = int(table[unit].to_numpy()[there].sum())
    return FateCount(fate=pair.kind, **sums)


def _changes(pair: Pairs, tables: Sequence[pa.Table]) -> list[ShardChange]:
    """Return the shards of a kind of change: those with most documents first, then by split and URI."""
    assert pair.kind is not None
    sides: dict[str, list[Any]] = {}
    for name, table, rows in zip(("old", "new"), tables, (pair.old, pair.new), strict=True):
        taken = table.take(pa.array(np.where(rows < 0, 0, rows), mask=rows < 0))
        for column in ("split", "uri", "status", "reason", *_UNITS):
            sides[f"{name}_{column}"] = taken[column].to_pylist()
    columns = [sides[name] for name in ShardChange._fields[1:]]
    changes = [ShardChange(pair.kind, *values) for values in zip(*columns, strict=True)]
    where, documents = attrgetter("new_split", "new_uri", "old_split", "old_uri"), attrgetter(*_DOCUMENTS)
    return sorted(
        changes,
        key=lambda change: (-max(number or 0 for number in documents(change)), *(text or "" for text in where(change))),
    )


def _column(table: pa.Table, name: str, rows: np.ndarray) -> list[Any]:
    values: list[Any] = table[name].take(pa.array(rows)).to_pylist()
    return values


def _side(manifest: Manifest) -> Side:
    core = manifest.core
    return Side(
        id=manifest.id,
        name=core.dataset.name,
        version=core.dataset.version,
        schema=core.schema_.version,
        tool=core.tool.version,
        tokenizer=core.tokenizer.name,
        shards=core.totals.shards,
        unread_shards=core.ledger.shards.quarantined + core.ledger.shards.skipped,
        documents=core.totals.documents,
        bytes=core.totals.bytes,
        tokens=core.totals.tokens,
    )


def settings(old: Manifest, new: Manifest) -> tuple[Setting, ...]:
    """Return every setting that differs, sorted by area and name."""
    was, now = ({key: canonical_json(value).decode() for key, value in _settings(item)} for item in (old, new))
    return tuple(
        Setting(area=area, name=name, old=was.get((area, name)), new=now.get((area, name)))
        for area, name in sorted(was.keys() | now.keys())
        if was.get((area, name)) != now.get((area, name))
    )


def _settings(manifest: Manifest) -> Iterator[tuple[tuple[str, str], object]]:
    core = core_json(manifest.core)
    yield ("schema", "version"), manifest.core.schema_.version
    for name in _PARTS:
        for dotted, value in _flat(core[name], () if isinstance(core[name], dict) else (name,)):
            yield (_AREAS.get(name, name), dotted), value
    for name in _NAMED:
        for item in core[name]:
            for dotted, value in _flat({key: item[key] for key in item if key != "name"}, (item["name"],)):
                yield (_AREAS.get(name, name), dotted), value
    for name, value in core["tokenizer"].items():
        if name not in _COUNTED:
            yield ("tokenizer", name), value
    for split in core["splits"]:
        yield ("splits", f"{split['name']}.held_out"), split["held_out"]


def _flat(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    """Yield (dotted name, value) of every value that is no mapping; an empty mapping is a value."""
    if isinstance(value, Mapping) and value:
        for name in value:
            yield from _flat(value[name], (*path, str(name)))
    elif path:
        yield ".".join(path), value


@contextmanager
def no_mismatch() -> Iterator[None]:
    """Let no mismatch out of a comparison: its exit code would read as a difference."""
    try:
        yield
    except ManifestMismatch as error:
        raise ManifestError(error.message, error.hint) from None


def load_pair(old: Path | Manifest, new: Path | Manifest) -> Difference:
    """Load two manifests, as far as they are not loaded yet, and compare them."""
    with no_mismatch():
        return compare(*(load_manifest(side) if isinstance(side, Path) else side for side in (old, new)))
