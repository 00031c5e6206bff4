"""Refuses manifests that release what a quarantine list leaves out, and lists that have lost lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dataaudit.base.errors import QuarantineError, ReleasedHeldBack
from dataaudit.base.text import clean, plural
from dataaudit.decide.gate.document import read_verdict
from dataaudit.decide.gate.policy import Policy
from dataaudit.decide.gate.verdict import ListSeen
from dataaudit.decide.quarantine.entry import Contents, listed
from dataaudit.decide.quarantine.list import Quarantine, Standing, in_force, read, read_folded
from dataaudit.decide.quarantine.selection import digests_of, row_digests_of, rows_left_out, select
from dataaudit.manifest.core import VERDICT_LISTS as LISTS
from dataaudit.manifest.load import Manifest

if TYPE_CHECKING:
    from dataaudit.manifest.trust import Summary

_READ = frozenset({"ok", "partial"})


def released(manifest: Manifest, quarantine: Quarantine) -> tuple[list[str], list[str], list[str]]:
    """Return what a manifest has in its numbers although a list leaves it out, in the manifest's order.

    Shards as ``split/uri``, documents of other shards as ``split/uri:row``, and other shards that the list names under
    another digest: their rows have changed since. What the build left out, by ``core.quarantine``, is not released. A
    row that the build did not name and that is no document (a bad record) cannot be told from a document, and counts.
    """
    left_out = rows_left_out(manifest)
    selection = select(manifest, quarantine)
    stale = {item.shard for item in selection.stale}
    shards, documents, changed = [], [], []
    for shard in selection.shards:
        row = shard.row
        if row["status"] not in _READ or not digests_of(row):
            continue
        if shard.entries:
            shards.append(shard.name)
            continue
        by = row_digests_of(row)
        gone = set[int]().union(*(left_out.get(digest, ()) for digest in by.values()))
        named = {number for number in quarantine.rows(**by) if number < row["rows"]}
        documents += [f"{shard.name}:{number}" for number in sorted(named - gone)]
        if row["shard"] in stale:
            changed.append(shard.name)
    return shards, documents, changed


def compared_lists(
    manifest: Manifest, policy: Policy, given: Path | None = None, baseline: Manifest | None = None
) -> tuple[ListSeen, ...]:
    """Compare a manifest with the list that a policy names and the given one; return what a verdict pins of them.

    The lists together have to have every line that the builds of the manifest and of the baseline saw.
    """
    paths = {path.absolute(): path for path in (given, policy.path_of("quarantine_list")) if path is not None}
    lists = [(path, *read_folded(path)) for path in paths.values()]
    if lists:
        entries = tuple(entry for _, contents, _ in lists for entry in contents.entries)
        together = replace(lists[0][1], entries=entries)
        for item, what in ((manifest, "the manifest"), (baseline, "the baseline")):
            if item is not None:
                together.check_seen(item, " and ".join(map(str, paths.values())), what)
    seen = []
    for path, contents, folded in lists:
        quarantine = in_force(folded.standing(Standing.HELD), digest=contents.digest, on=folded.on)
        shards, documents, changed = released(manifest, quarantine)
        if names := [*shards, *documents]:
            kinds = (("shard", shards), ("document", documents))
            counted = " and ".join(plural(len(each), noun) for noun, each in kinds if each)
            title = f"{path} holds back {counted} that the manifest releases:"
            raise ReleasedHeldBack(
                listed(title, [clean(name) for name in names]),
                f"Build again with --quarantine {path}, or lift the entries.",
            )
        seen.append(ListSeen(digest=contents.digest, lines=contents.lines, changed=tuple(changed)))
    return tuple(seen)


def pinned_lists(summary: Summary) -> tuple[ListSeen, ...]:
    """Return what a signed verdict pins of lists."""
    lists = summary.facts.get(LISTS, ())
    try:
        return tuple(ListSeen(digest=str(part["digest"]), lines=tuple(map(str, part["lines"]))) for part in lists)
    except (KeyError, TypeError):
        raise QuarantineError(
            "the signed verdict pins its quarantine lists in another form", "Judge and sign again: `export verdict`."
        ) from None


def check_pinned(path: Path, manifest: Manifest | None, summary: Summary | None) -> Contents:
    """Read a list that has to have every line which the build of a manifest and a signed verdict saw in it."""
    contents = read(path)
    contents.check(str(path))
    if manifest is not None:
        contents.check_seen(manifest, str(path))
    if summary is not None:
        check_judged(contents, pinned_lists(summary), str(path), "the signed verdict")
    return contents


def check_gate_file(contents: Contents, gate_file: Path, where: Path) -> None:
    """Refuse a list that lacks lines which a ``gate.json`` pins: it is not signed, but can only name more lines."""
    lists = read_verdict(gate_file).quarantine_lists
    if not lists:
        raise QuarantineError(
            f"{gate_file} names no quarantine list", "`gate --quarantine-list FILE`, or a policy's key, pins one."
        )
    check_judged(contents, lists, str(where), f"the verdict {gate_file}")


def check_judged(contents: Contents, lists: Sequence[ListSeen], where: str, what: str) -> None:
    """Refuse a list that lacks lines which a verdict pins; of several lists the list with most of them."""
    known = set(contents.lines)
    best = max((seen.lines for seen in lists if seen.lines), key=lambda lines: len(known & set(lines)), default=())
    contents.check_lines(best, where, what)
