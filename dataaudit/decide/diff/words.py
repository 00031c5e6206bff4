"""Words for what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dataaudit.base.render.line import Line, Name, join, say, spell
from dataaudit.decide.diff.compare import bumped, parse_version
from dataaudit.decide.diff.difference import (
    Bump,
    Difference,
    MetricChange,
    MetricChangeKind,
    ShardChange,
    ShardChangeKind,
)

LISTED = 10
"""Rows of a section that are listed unless all are asked for."""
FATES = {
    ShardChangeKind.MOVED_SPLIT: "moved to another split",
    ShardChangeKind.REMOVED: "removed",
    ShardChangeKind.CHANGED: "changed",
    ShardChangeKind.LOST: "no longer read",
    ShardChangeKind.UNKNOWN: "unread in both",
    ShardChangeKind.RECUT: "cut otherwise",
    ShardChangeKind.ADDED: "added",
    ShardChangeKind.RECOVERED: "read now",
    ShardChangeKind.MOVED: "renamed",
    ShardChangeKind.REPACKED: "repacked",
}
REASONS = {
    "other_unit": "another unit",
    "other_version": "another version of the definition",
    "other_tokenizer": "another tokenizer",
    "other_detector": "another detector or model",
    "other_protected_set": "other items in the evaluation set",
    "other_reference": "another reference manifest",
    "other_parameters": "other parameters of the stage",
    "shard_ordinal": "shards are numbered anew",
    "new": "only in the new manifest",
    "gone": "only in the old manifest",
    "folded_sources": "added up with other small sources",
    "no_histogram": "token counts were not kept",
    "empty_denominator": "nothing to divide by",
}
_COMPLAINTS = {
    "not_semver": "a version is not MAJOR.MINOR.PATCH, so nothing can be said of it",
    "backwards": "the new version is smaller than the old one",
    "other_dataset": "the two manifests are of datasets with different names; their versions cannot be compared",
}
NAME = 60
"""Characters of a name."""
EXACT, SURELY, MAYBE = "", "<--", "~"
"""Marks of a change: counted; larger than noise, or than chance; not larger."""
SIGNED = (MetricChangeKind.CHANGED, MetricChangeKind.BEYOND_NOISE, MetricChangeKind.WITHIN_NOISE)
"""Fates of metrics that have a difference."""


def verdict(difference: Difference, name: int = NAME) -> Line:
    """Return the one line that says it all."""
    if difference.equal:
        return "equal: both manifests are the same"
    proposal = difference.proposal
    if proposal.bump == Bump.NONE:
        return "the data is the same, so no bump is due"
    doubt = "" if proposal.proven else ", not proven"
    least = "" if proposal.version is None else say(": {} or later", Name(proposal.version, name))
    return say("{} bump{}{}", proposal.bump, doubt, least)


def sides(difference: Difference) -> Line:
    """Return names and versions of both manifests."""
    both = (difference.old, difference.new)
    return join(" -> ", (say("{} {}", Name(side.name, NAME), Name(side.version, NAME)) for side in both))


def complaint(difference: Difference) -> str:
    """Return what is wrong with the versions, or nothing."""
    code, bump = difference.proposal.complaint, difference.proposal.bump
    if code in _COMPLAINTS:
        return _COMPLAINTS[code]
    if code == "unchanged":
        return f"the version did not change, but the data demand a {bump} bump"
    if code == "too_small" and promised(difference) == Bump.NONE:
        return f"the new version differs in its suffix alone, but the data demand a {bump} bump"
    if code == "too_small":
        return f"the new version promises a {promised(difference)} change, but the data demand a {bump} bump"
    return ""


def promised(difference: Difference) -> Bump:
    """Return which bump the two versions are, as far as they go."""
    was, now = parse_version(difference.old.version), parse_version(difference.new.version)
    if was is None or now is None:
        return Bump.NONE
    return next((bump for bump in reversed(Bump) if now >= bumped(was, bump)), Bump.NONE)


def judged(change: MetricChange) -> str:
    """Return the mark that says whether a change is larger than noise, or than chance."""
    if change.fate == MetricChangeKind.CHANGED:
        return {None: EXACT, True: MAYBE, False: SURELY}[change.chance]
    return SURELY if change.fate == MetricChangeKind.BEYOND_NOISE else MAYBE


def compared(difference: Difference) -> list[MetricChange]:
    """Return the metrics with a difference."""
    return [change for change in difference.metrics if change.fate in SIGNED]


def apart(difference: Difference) -> list[tuple[MetricChangeKind, str, dict[str, int]]]:
    """Return (fate, reason, records by metric) of those without a difference, most grave first."""
    found: dict[tuple[MetricChangeKind, str], Counter[str]] = {}
    for change in difference.metrics:
        if change.fate not in SIGNED:
            reason = "" if change.fate in {MetricChangeKind.ADDED, MetricChangeKind.REMOVED} else change.reason
            found.setdefault((change.fate, reason), Counter())[change.metric] += 1
    order = (
        MetricChangeKind.LOST,
        MetricChangeKind.GAINED,
        MetricChangeKind.NOT_COMPARABLE,
        MetricChangeKind.REMOVED,
        MetricChangeKind.ADDED,
    )
    keys = sorted(found, key=lambda key: (order.index(key[0]), key[1]))
    return [(*key, dict(sorted(found[key].items()))) for key in keys]


def apart_words(fate: MetricChangeKind, reason: str) -> str:
    """Return why records have no difference."""
    why = REASONS.get(reason, reason)
    return {
        MetricChangeKind.LOST: f"with a value before and none now ({why})",
        MetricChangeKind.GAINED: f"with a value now and none before ({why})",
        MetricChangeKind.NOT_COMPARABLE: f"not comparable ({why})",
        MetricChangeKind.REMOVED: "only in the old manifest",
        MetricChangeKind.ADDED: "only in the new manifest",
    }[fate]


def shard_place(change: ShardChange) -> str:
    """Return ``split/uri``; of one that moved the old place and the new one."""
    old = None if change.old_uri is None else f"{change.old_split}/{change.old_uri}"
    new = None if change.new_uri is None else f"{change.new_split}/{change.new_uri}"
    if old is None or new is None or old == new:
        return new or old or ""
    return f"{old} -> {new}"


def shard_status(change: ShardChange) -> str:
    """Return the status where it is not ok on both sides."""
    held = [
        "" if status in {None, "ok"} else f"{status} ({reason})" if reason else str(status)
        for status, reason in (
            (change.old_status, change.old_reason),
            (change.new_status, change.new_reason),
        )
    ]
    if held[0] == held[1] or change.old_status is None or change.new_status is None:
        return held[1] or held[0]
    return f"{held[0] or 'ok'} -> {held[1] or 'ok'}"


def noise_notes(changes: Sequence[MetricChange]) -> list[Line]:
    """Return what the marks of :func:`judged` mean, of those that occur."""
    surely, maybe = Name(SURELY), Name(MAYBE)
    notes: list[Line] = []
    if any(change.fate != MetricChangeKind.CHANGED for change in changes):
        text = "{} sampled or estimated, and the interval of the change excludes 0; {} includes it"
        notes.append(say(text, surely, maybe))
    if any(change.chance is not None for change in changes):
        text = (
            "{} counted, and two corpora of these sizes, drawn document by document from one process, would not"
            " differ so much by chance (95 %); {} could"
        )
        notes.append(say(text, surely, maybe))
    unmarked = [change for change in changes if judged(change) == EXACT]
    if not all(map(_unbounded, unmarked)):
        notes.append("no mark: counted, so the corpora differ; chance is not asked")
    if any(map(_unbounded, unmarked)):
        notes.append("no mark, estimated without an interval: how much of the change is the screen's is not known")
    return notes


def _unbounded(change: MetricChange) -> bool:
    """Return whether a side of a change is an estimate that says nothing of its error."""
    sides = (change.old, change.new)
    return any(side is not None and side.method != "exact" and side.low is None for side in sides)


def line(difference: Difference) -> str:
    """Return what a difference comes to, on one line."""
    return f"{spell(sides(difference))}: {spell(verdict(difference))}"
