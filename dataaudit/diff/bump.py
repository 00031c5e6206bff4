"""Which version bump a difference of the data means, by Croissant 1.1: https://docs.mlcommons.org/croissant/.

PATCH: the data remains the same, although it might be serialised or packaged otherwise. MINOR: the existing data is the
same and can still be retrieved as it is; there is more. MAJOR: existing data was edited, removed, or shuffled across
splits. A smaller bump is a promise to whoever trained on the old version, so what cannot be shown counts as MAJOR; but
a split that was cut or ordered otherwise and agrees in all that is counted of it counts as PATCH, not proven.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dataaudit.diff.difference import Bump, Cause, Proposal, ShardChangeKind, Side
from dataaudit.text import plural

ORDER = (Bump.NONE, Bump.PATCH, Bump.MINOR, Bump.MAJOR)
SPLIT_ROLE = "split_role"
_VERSION = re.compile(r"v?(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(?:[-+][0-9A-Za-z.+-]+)?")
_LONGEST = 100
_Triple = tuple[int, int, int]
_MEANING = {
    ShardChangeKind.MOVED_SPLIT: (Bump.MAJOR, "moved to another split"),
    ShardChangeKind.REMOVED: (Bump.MAJOR, "gone: no shard holds their rows, or one copy of them less is there"),
    ShardChangeKind.CHANGED: (Bump.MAJOR, "with other rows than before"),
    ShardChangeKind.LOST: (Bump.MAJOR, "read before and unread now"),
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
    """Shards that changed in one way, by what is known of them."""

    kind: ShardChangeKind
    holding: int
    """Shards that were read and hold documents; of a pair it counts as one."""
    documents: int
    """Of these, on the side that has them; of pairs on the new one."""
    empty: int
    """Shards that were read and hold none."""
    unread: int
    """Shards that were not read."""


def causes_of(tallies: Iterable[Tally], roles: int, *, proven: bool) -> tuple[Cause, ...]:
    """Return what demands a bump, the gravest first.

    Args:
        tallies: How many shards changed in which way.
        roles: Splits that were held out and are not any more, or the other way round.
        proven: Whether it is shown that the documents of removed and changed shards are not all there any more.
    """
    causes = []
    if roles:
        text = f"{plural(roles, 'split')} changed between training and held out"
        causes.append(Cause(bump=Bump.MAJOR, code=SPLIT_ROLE, text=text))
    for tally in tallies:
        causes += _causes(tally, proven=proven)
    return tuple(sorted(causes, key=lambda cause: -ORDER.index(cause.bump)))


def _causes(tally: Tally, *, proven: bool) -> Iterator[Cause]:
    kind = tally.kind
    if tally.holding:
        bump, words = _MEANING[kind]
        certain = proven if kind in {ShardChangeKind.REMOVED, ShardChangeKind.CHANGED} else kind not in _UNPROVEN
        text = f"{plural(tally.holding, 'shard')} ({plural(tally.documents, 'document')}) {words}"
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
    """Return the bump that the causes demand, and hold the two versions against it."""
    bump = max((cause.bump for cause in causes), key=ORDER.index, default=Bump.NONE)
    was, now = parse_version(old.version), parse_version(new.version)
    least = None if was is None or old.name != new.name else bumped(was, bump)
    return Proposal(
        bump=bump,
        proven=all(cause.proven for cause in causes),
        causes=tuple(causes),
        version=None if least is None else ".".join(map(str, least)),
        complaint=_complaint(bump, was, now, other_name=old.name != new.name, same=old.version == new.version),
    )


def parse_version(text: str) -> _Triple | None:
    """Return MAJOR, MINOR and PATCH of a version by Semantic Versioning 2.0.0; None when it is none."""
    found = _VERSION.fullmatch(text) if len(text) <= _LONGEST else None
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def bumped(version: _Triple, bump: Bump) -> _Triple:
    """Return the next version."""
    major, minor, patch = version
    return {
        Bump.NONE: version,
        Bump.PATCH: (major, minor, patch + 1),
        Bump.MINOR: (major, minor + 1, 0),
        Bump.MAJOR: (major + 1, 0, 0),
    }[bump]


def _complaint(bump: Bump, was: _Triple | None, now: _Triple | None, *, other_name: bool, same: bool) -> str:
    if other_name:
        return "other_dataset"
    if was is None or now is None:
        return "not_semver"
    if now < was:
        return "backwards"
    if now >= bumped(was, bump):
        return ""
    return "unchanged" if same else "too_small"
