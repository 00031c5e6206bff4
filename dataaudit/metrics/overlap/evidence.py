"""Which documents and shards hold text of held-out ones and of evaluation items: the tables of matches and pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.load import Manifest, once
from dataaudit.metrics.family import Broken, Tables
from dataaudit.metrics.recomputed import IS_DOCUMENT, LOST, ManifestTables

_COPIED = ("span", "whole")
_RULES = {
    "span": _COPIED,
    "ngram": ("ngram", "whole"),
    "edited": ("edited",),
    "train_documents": (*_COPIED, "edited"),
}
"""Rules of matches that a statistic of held-out splits counts."""


def matches_of(case: Broken, tables: Tables, sets: Sequence[str]) -> pa.Table:
    """Return the rows of ``overlap`` about the case's set, or any of some: its statistic, part and tier alone.

    Matches of common text (notices, licences) are among them only where the case has no others.
    """
    table = tables.table("overlap")
    wanted = [case.scope.set] if case.scope.set is not None else list(sets)
    kept = pc.is_in(table["set"], pa.array(wanted, pa.string()))
    rules = _RULES if case.metric == "train_val_overlap" else {}
    chosen = (
        ("rule", rules.get(case.stat.removesuffix("_without_common"))),
        ("tier", case.scope.rule and [case.scope.rule]),
        ("part", case.scope.entity and [case.scope.entity]),
    )
    for column, values in chosen:
        if values:
            kept = pc.and_(kept, pc.is_in(table[column], pa.array(list(values), pa.string())))
    matches = table.filter(kept)
    own = matches.filter(pc.greater(matches["score_without_common"], 0))
    return own if own.num_rows or case.stat.endswith("_without_common") else matches


def documents_with_text_of(case: Broken, tables: Tables, sets: Sequence[str]) -> dict[int, int]:
    """Count the training documents of each shard that hold something of the case's set, or of any of some."""
    rows = matches_of(case, tables, sets).group_by(["shard", "row"]).aggregate([])
    counted = rows.group_by("shard").aggregate([([], "count_all")])
    found = dict(zip(counted["shard"].to_pylist(), counted["count_all"].to_pylist(), strict=True))
    if case.scope.source is None:
        return found
    held = shards_with(tables.shards, case.scope.source)
    return {shard: number for shard, number in found.items() if held[shard]}


def near_copies(case: Broken, tables: Tables) -> np.ndarray:
    """int64[n, 2]: shard and row of the training documents that are near-duplicates of held-out ones, each once."""
    pairs = tables.table("pairs").filter(pc.field("verified"))
    splits = np.asarray(tables.shards["split"].to_pylist(), dtype=object)
    sets = (case.scope.set,) if case.scope.set is not None else tables.splits("held_out")
    leaked, training = np.isin(splits, sets), np.isin(splits, tables.splits("training"))
    sides = [(pairs[f"{side}_shard"].to_numpy(), pairs[f"{side}_row"].to_numpy()) for side in ("left", "right")]
    copies = []
    for (shard, row), (other, _) in (sides, sides[::-1]):
        chosen = training[shard] & leaked[other]
        copies.append(np.column_stack([shard[chosen], row[chosen]]))
    return np.unique(np.concatenate(copies), axis=0)


def shards_with(shards: pa.Table, source: str) -> np.ndarray:
    """Return bool[n]: which shards hold a source."""
    flat = pc.list_flatten(shards["sources"])
    parents = pc.list_parent_indices(shards["sources"]).to_numpy()
    held = np.zeros(shards.num_rows, dtype=bool)
    held[parents[pc.equal(pc.struct_field(flat, "source"), source).to_numpy()]] = True
    return held


@once
def lists_all_documents(manifest: Manifest) -> bool:
    """Return whether every match of held-out documents is listed."""
    return _lists_all(manifest, IS_DOCUMENT)


@once
def lists_all_items(manifest: Manifest) -> bool:
    """Return whether every match of evaluation items is listed."""
    return _lists_all(manifest, ~IS_DOCUMENT)


def _lists_all(manifest: Manifest, which: pc.Expression) -> bool:
    """Return whether no item has as many matches as are listed, and no shard was left unread."""
    tables = ManifestTables(manifest)
    if tables.rows("planned").filter(pc.field("status").isin(LOST)).num_rows:
        return False
    most = next((stage.parameters.get("max_rows") for stage in manifest.core.stages if stage.name == "overlap"), None)
    listed = tables.rows("overlap").filter(which).group_by(["set", "item", "entity"]).aggregate([([], "count_all")])
    return isinstance(most, int) and (pc.max(listed["count_all"]).as_py() or 0) < most
