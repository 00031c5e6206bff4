"""What a manifest releases although a quarantine list holds it back, and whether the list has lost its tail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dataaudit.errors import ReleasedHeldBack
from dataaudit.manifest.load import Manifest
from dataaudit.quarantine.list import Quarantine, Standing, in_force, read_folded
from dataaudit.quarantine.selection import COLUMNS, digests_of, row_digests_of
from dataaudit.text import clean, plural

_READ = frozenset({"ok", "partial"})
_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """What is in the numbers of a manifest and on a list."""

    shards: tuple[str, ...]
    """``split/uri`` of whole shards, in the manifest's order."""
    documents: tuple[str, ...]
    """``split/uri:row`` of documents of other shards, in the manifest's order."""


def released(manifest: Manifest, quarantine: Quarantine) -> Released:
    """Return what a manifest has in its numbers although a list holds it back.

    What the build left out, by ``core.quarantine``, is not released. A row that the build did not name and that is no
    document (a bad record) cannot be told from one that is, and counts.

    Raises:
        ManifestError: The table of shards cannot be read.
    """
    left_out: dict[str, set[int]] = {}
    for one in manifest.core.quarantine:
        for digest in (one.sha256, one.rows_digest):
            if digest is not None:
                left_out.setdefault(digest, set()).update(one.rows or ())
    shards, documents = [], []
    for row in manifest.table("shards", COLUMNS).to_pylist():
        digests = digests_of(row)
        if row["status"] not in _READ or not digests:
            continue
        name = f"{row['split']}/{row['uri']}"
        if quarantine.holds(**digests):
            shards.append(name)
            continue
        by = row_digests_of(row)
        gone = set[int]().union(*(left_out.get(digest, ()) for digest in by.values()))
        held = {number for number in quarantine.rows(**by) if number < row["rows"]}
        documents += [f"{name}:{number}" for number in sorted(held - gone)]
    return Released(shards=tuple(shards), documents=tuple(documents))


def check_released(manifest: Manifest, path: Path, baseline: Manifest | None = None) -> None:
    """Refuse a manifest that releases what a list holds back today, and a list that lacks what a build saw in it.

    Args:
        manifest: What is to be released.
        path: The list.
        baseline: An older manifest, whose heads of the list count as well.

    Raises:
        ReleasedHeldBack: Shards or documents that the list holds back are in the numbers.
        QuarantineDamaged: Lines of the list cannot be read, or are lost: the heads that a manifest names tell.
        QuarantineError: There is no such list, or it is of a newer version.
        ManifestError: The table of shards cannot be read.
    """
    contents, folded = read_folded(path)
    for one, what in ((manifest, "the manifest"), (baseline, "the baseline")):
        if one is not None:
            contents.check_seen(one, str(path), what)
    held = in_force(folded.standing(Standing.HELD), digest=contents.digest, on=folded.on, heads=contents.heads)
    found = released(manifest, held)
    if not found.shards and not found.documents:
        return
    told = [
        plural(len(names), noun) for noun, names in (("shard", found.shards), ("document", found.documents)) if names
    ]
    raise ReleasedHeldBack(
        "\n".join([f"{path} holds back {' and '.join(told)} that the manifest releases:", *_lines(found)]),
        f"Build again with --quarantine {path}, or lift the entries.",
    )


def _lines(found: Released) -> Sequence[str]:
    names = [*found.shards, *found.documents]
    more = [f"  and {len(names) - _NAMED:,} more"] if len(names) > _NAMED else []
    return [*(f"  {clean(name)}" for name in names[:_NAMED]), *more]
