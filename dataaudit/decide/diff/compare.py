"""Compares two manifests: their shards, metrics, token counts, and what decided the numbers.

Which version bump a difference of the data means, by Croissant 1.1: https://docs.mlcommons.org/croissant/.

PATCH: the data remains the same, although it might be serialised or packaged otherwise. MINOR: the existing data is the
same and can still be retrieved as it is; there is more. MAJOR: existing data was edited, removed, or shuffled across
splits. A smaller bump is a promise to whoever trained on the old version, so what cannot be shown counts as MAJOR; but
a split that was cut or ordered otherwise and agrees in all that is counted of it counts as PATCH, not proven.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from dataaudit.base.errors import ManifestError, ManifestMismatch
from dataaudit.base.text import plural
from dataaudit.decide.diff.compared_records import COLUMNS, UNREAD, compare_metrics, match
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
_SHOWN = ("split", "uri", "status", "reason", "documents", "bytes", "tokens")
_KINDS = {kind: rank for rank, kind in enumerate(ShardChangeKind)}
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
    shards, unchanged_shards = _changed(tables)
    gone, come = _splits(shards, _GONE, "old"), _splits(shards, _COME, "new")
    recut = recuts(old, new, gone & come, meaning)
    cut = {item.split for item in recut if item.consistent}
    shards = sorted((_explained(change, cut) for change in shards), key=_order)
    by_kind = {kind: list(own) for kind, own in groupby(shards, attrgetter("fate"))}
    roles = {split.name: split.held_out for split in old.core.splits}
    changed_roles = sum(roles.get(split.name, split.held_out) != split.held_out for split in new.core.splits)
    causes = causes_of((_tally(*item) for item in by_kind.items()), changed_roles, proven=_less(recut, gone))
    sides = _side(old), _side(new)
    changes, unchanged, concealed = compare_metrics(old, new, meaning)
    drifted, still = drifts(old, new, same_tokenizer=meaning.same_tokenizer)
    return Difference(
        old=sides[0],
        new=sides[1],
        equal=old.id == new.id or canonical_json(core_json(old.core)) == canonical_json(core_json(new.core)),
        descends=old.id in new.core.parents,
        proposal=propose(causes, *sides),
        unchanged_shards=unchanged_shards,
        fates=tuple(_count(*item) for item in by_kind.items()),
        shards=tuple(shards),
        recuts=recut,
        unchanged_metrics=unchanged,
        hidden_metrics=concealed,
        metrics=changes,
        drifts=tuple(drifted),
        unchanged_drifts=still,
        settings=settings(old, new),
        parents={"old": old.core.parents, "new": new.core.parents},
    )


def _changed(tables: Sequence[pa.Table]) -> tuple[list[ShardChange], int]:
    """Return the shards that are not as they were, and how many are."""
    changed = [pair for pair in match(*tables) if pair.kind is not None]
    columns: dict[str, list[Any]] = {"fate": [pair.kind for pair in changed]}
    for side, table in zip(("old", "new"), tables, strict=True):
        taken = table.take(pa.array([getattr(pair, side) for pair in changed], pa.int64()))
        columns |= {f"{side}_{name}": taken[name].to_pylist() for name in _SHOWN}
    rows = zip(*(columns[name] for name in ShardChange._fields), strict=True)
    return [ShardChange(*row) for row in rows], tables[0].num_rows - sum(pair.old is not None for pair in changed)


def _splits(changes: Sequence[ShardChange], kinds: Collection[ShardChangeKind], side: str) -> set[str]:
    """Return the splits of shards with documents that changed in some ways, as they were or are."""
    own = (change for change in changes if change.fate in kinds and getattr(change, f"{side}_documents"))
    return {getattr(change, f"{side}_split") for change in own}


def _explained(change: ShardChange, splits: set[str]) -> ShardChange:
    """Return a change; what another cut of a split explains is a kind of its own."""
    side = "new" if change.fate == ShardChangeKind.ADDED else "old"
    is_cut = change.fate in {*_GONE, *_COME} and bool(_splits([change], {change.fate}, side) & splits)
    return change._replace(fate=ShardChangeKind.RECUT) if is_cut else change


def _order(change: ShardChange) -> tuple[Any, ...]:
    """Order by kind, then those with most documents first, then by split and URI."""
    places = (change.new_split, change.new_uri, change.old_split, change.old_uri)
    most = max(change.old_documents or 0, change.new_documents or 0)
    return _KINDS[change.fate], -most, *(place or "" for place in places)


def _less(recut: Sequence[Recut], gone: set[str]) -> bool:
    """Return whether it is shown that documents of removed and changed shards are not all there any more."""
    explained = {item.split for item in recut if item.consistent}
    doubtful = {item.split for item in recut if not item.fell}
    return bool(gone - doubtful) or not gone - explained


def _tally(kind: ShardChangeKind, changes: Sequence[ShardChange]) -> Tally:
    """Count the shards of a kind of change."""
    if kind == ShardChangeKind.RECUT:  # no pairs: the old shards stand for all
        changes = [change._replace(new_status=None) for change in changes if change.old_uri is not None]
    documents = list(map(_documents, changes))
    return Tally(
        kind=kind,
        with_documents=sum(bool(number) for number in documents),
        documents=sum(number or 0 for number in documents),
        empty=documents.count(0),
        unread=documents.count(None),
    )


def _documents(change: ShardChange) -> int | None:
    """Return the documents on the side that was read, the newer if both were; None where neither was."""
    for status, documents in ((change.new_status, change.new_documents), (change.old_status, change.old_documents)):
        if status is not None and status not in UNREAD:
            return documents
    return None


def _count(kind: ShardChangeKind, changes: Sequence[ShardChange]) -> FateCount:
    shards = (sum(getattr(change, uri) is not None for change in changes) for uri in ("old_uri", "new_uri"))
    sums = (sum(getattr(change, name) or 0 for change in changes) for name in FateCount._fields[3:])
    return FateCount(kind, *shards, *sums)


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
