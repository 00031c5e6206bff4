"""Held-out documents whose text is also in training data: from the groups of equal texts, whatever their order.

`exact_dup_rate` counts a document when an equal one came *earlier*, so a leak between two splits shows on the one that
sorts later. This looks at the groups themselves: a held-out document leaks when its group has a training document.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit import text as t
from dataaudit.layout import prose, section
from dataaudit.manifest.load import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """One held-out split that shares texts with training data."""

    split: str
    documents: int
    """Held-out documents with an equal one in training data."""
    of: int
    """Documents of the split."""
    copies: int
    """Training documents that are equal to one of them."""


def leaks(manifest: Manifest) -> list[Leak]:
    """Return the held-out splits that leak, by name."""
    held_out = {split.name: split.documents for split in manifest.core.splits if split.held_out}
    clusters = manifest.table("clusters", ["kind", "cluster", "shard"])
    clusters = clusters.filter(pc.equal(clusters["kind"], "exact"))
    if not held_out or clusters.num_rows == 0:
        return []
    splits = manifest.table("shards", ["split"])["split"].combine_chunks()
    names = splits.take(clusters["shard"].combine_chunks())
    counted = pa.table({"cluster": clusters["cluster"], "split": names}).group_by(["cluster", "split"])
    found: dict[str, list[int]] = {name: [0, 0] for name in held_out}
    groups: dict[int, dict[str, int]] = {}
    for row in counted.aggregate([("split", "count")]).to_pylist():
        groups.setdefault(row["cluster"], {})[row["split"]] = row["split_count"]
    for group in groups.values():
        trained = sum(number for name, number in group.items() if name not in held_out)
        for name in group.keys() & held_out.keys() if trained else ():
            found[name][0] += group[name]
            found[name][1] += trained
    return [
        Leak(split=name, documents=documents, of=held_out[name], copies=copies)
        for name, (documents, copies) in sorted(found.items())
        if documents
    ]


def leak_lines(found: list[Leak], width: int) -> list[str]:
    """Return the block that says which held-out splits leak; empty when none does."""
    lines = []
    for leak in found:
        share = t.ratio(leak.documents / leak.of)
        name = t.clean(leak.split)
        lines += prose(
            f"{t.count(leak.documents)} of {t.plural(leak.of, 'document')} of {name} ({share}) are also in training"
            f" data, white space aside, as {t.plural(leak.copies, 'training document')}: remove these from training.",
            width,
        )
    return section("Leaks into training", lines) if lines else []
