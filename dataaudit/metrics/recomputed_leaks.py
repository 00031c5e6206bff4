"""What held-out documents and evaluation items share with training data, as far as tables tell it.

The table of overlaps lists the first documents of each item, and not what several documents hold of it together. So it
tells of most numbers the least that they can be; the most where nothing was left out, or where there is nothing at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.metrics.recomputed import (
    LOST,
    PAIRED,
    Bound,
    Recomputed,
    Shards,
    as_count,
    as_ratio,
    of_splits,
    read_shards,
)

_HELD_OUT, _ITEMS = "train_val_overlap", "benchmark_contamination"
_COPIED = ("span", "whole", "edited")
_PASSAGE_WORDS = 50
"""Words of a copied passage, at least."""
_ALONE = ("alone",)
_BESIDE = {"question": ("context", *_ALONE)}
"""Rules by which texts are found that are in no rate, by part."""
_TIERS = {"verbatim": ("verbatim",), "similar": ("verbatim", "similar")}


def held_out_leaks(manifest: Manifest) -> Recomputed:
    """Held-out documents in training data: from ``shards`` and ``overlap``."""
    found = Recomputed()
    shards = read_shards(manifest, "split", "documents", "held_out_copies")
    trained = [row for row in shards if row["held_out_copies"] is not None]
    for scope, rows in of_splits(trained).items():
        value, documents = (sum(row[name] for row in rows) for name in ("held_out_copies", "documents"))
        found.records.append(as_ratio(_HELD_OUT, "train_documents", value, documents, scope))
    if not trained:
        return found
    splits = [split.name for split in manifest.core.splits if split.held_out]
    listed = _listed(manifest, items=False)
    is_all = _lists_all(manifest, listed)
    own = listed.filter(pc.greater(listed["score_without_common"], 0))
    copies = own.filter(pc.is_in(own["rule"], pa.array(_COPIED)))
    found.sums.extend(_of_shards("held_out_copies", trained, copies, is_all=is_all))
    found.records.extend(_looked_for(manifest, splits, shards))
    for rows, suffix in ((listed, ""), (own, "_without_common")):
        is_half = pc.and_(pc.equal(rows["rule"], "ngram"), pc.greater_equal(rows[f"score{suffix}"], 0.5))
        leaked = rows.filter(pc.or_(pc.equal(rows["rule"], "whole"), is_half))
        copied, edited = (rows.filter(pc.equal(rows["rule"], rule)) for rule in ("span", "edited"))
        nothing = 0 if is_all and not copied.num_rows and rows is listed else None
        for name in (None, *splits):
            items, passages = (_distinct(_of(table, "set", name), "set", "item") for table in (leaked, copied))
            found.bounds.append(_bound(_HELD_OUT, f"ngram{suffix}", Scope(set=name), items))
            least = _PASSAGE_WORDS * passages
            found.bounds.append(_bound(_HELD_OUT, f"span{suffix}", Scope(set=name), least, nothing))
            items = _distinct(_of(edited, "set", name), "set", "item")
            found.bounds.append(_bound(_HELD_OUT, f"edited{suffix}", Scope(set=name), items, items if is_all else None))
    return found


def near_leaks(manifest: Manifest) -> Recomputed:
    """Held-out documents near ones of the training data: from ``pairs``, at least, and ``clusters``, at most."""
    found = Recomputed()
    splits = [split.name for split in manifest.core.splits if split.held_out]
    near = _near_copies(manifest, splits)
    for name in (None, *splits):
        least, most = (sum(of.values()) if name is None else of[name] for of in near)
        found.bounds.append(_bound(_HELD_OUT, "near_dup", Scope(set=name), least, most))
    return found


def evaluation_items(manifest: Manifest) -> Recomputed:
    """Evaluation items in training data: from ``overlap``, ``shards`` and the sets that the core names."""
    found = Recomputed(open={_ITEMS})
    shards = read_shards(manifest, "split", "documents", "contaminated")
    trained = [row for row in shards if row["contaminated"] is not None]
    listed = _listed(manifest, items=True)
    by_tier = {rule: listed.filter(pc.is_in(listed["tier"], pa.array(tiers))) for rule, tiers in _TIERS.items()}
    is_all = _lists_all(manifest, listed)
    for scope, rows in of_splits(trained).items():
        value, documents = (sum(row[name] for row in rows) for name in ("contaminated", "documents"))
        similar, verbatim = (Scope(split=scope.split, rule=rule) for rule in ("similar", "verbatim"))
        found.records.append(as_ratio(_ITEMS, "train_documents", value, documents, similar))
        least = _distinct(_of(by_tier["verbatim"], "split", scope.split), "shard", "row")
        found.bounds.append(_bound(_ITEMS, "train_documents", verbatim, least, least if is_all else None))
    found.sums.extend(_of_shards("contaminated", trained, listed, is_all=is_all))
    items_of = {one.name: one.items for one in manifest.core.protected}
    for record in manifest.metrics(_ITEMS, "items"):
        items = items_of.get(record.scope.set or "", 0)
        found.records.append(as_count(_ITEMS, "items", items, record.scope, items))
    for name in items_of:
        matches = _distinct(_of(listed, "set", name), "item", "part", "shard", "row")
        found.bounds.append(_bound(_ITEMS, "matches", Scope(set=name), matches, None if matches else 0))
        for rule, rows in by_tier.items():
            own, scope = _of(rows, "set", name), Scope(set=name, rule=rule)
            least = _distinct(own, "shard", "row")
            found.bounds.append(_bound(_ITEMS, "train_documents", scope, least, least if is_all else None))
            for part in ("question", "answer", "both"):
                listed_so, scope = _of(own, "part", part), Scope(set=name, entity=part, rule=rule)
                counted = listed_so.filter(pc.invert(pc.is_in(listed_so["rule"], pa.array(_BESIDE.get(part, _ALONE)))))
                most = 0 if not listed_so.num_rows and is_all else None
                found.bounds.append(_bound(_ITEMS, "rate", scope, _distinct(counted, "item"), most))
    return found


def _bound(metric: str, stat: str, scope: Scope, least: int, most: int | None = None) -> Bound:
    return Bound(metric=metric, stat=stat, scope=scope, least=least, most=most)


def _listed(manifest: Manifest, *, items: bool) -> pa.Table:
    """Return the rows of ``overlap`` of evaluation items, or of held-out documents, with the split they stand in."""
    table = manifest.table(
        "overlap", ["set", "item", "part", "tier", "rule", "shard", "row", "score", "score_without_common"]
    )
    splits = manifest.table("shards", ["split"])["split"].take(table["shard"])
    is_document = pc.equal(table["part"], "document")
    return table.append_column("split", splits).filter(pc.invert(is_document) if items else is_document)


def _lists_all(manifest: Manifest, listed: pa.Table) -> bool:
    """Return whether every match is listed: no item has as many as are listed, and no shard was left unread."""
    statuses = manifest.table("shards", ["status"])["status"]
    if pc.any(pc.is_in(statuses, pa.array(LOST))).as_py():
        return False
    most = next((one.parameters.get("max_rows") for one in manifest.core.stages if one.name == "overlap"), None)
    held = listed.group_by(["set", "item", "part"]).aggregate([([], "count_all")])["count_all"]
    return isinstance(most, int) and (pc.max(held).as_py() or 0) < most


def _of(table: pa.Table, column: str, value: str | None) -> pa.Table:
    """Return the rows that have a value, all of them for None."""
    return table if value is None else table.filter(pc.equal(table[column], value))


def _distinct(table: pa.Table, *columns: str) -> int:
    return int(table.group_by([*columns]).aggregate([]).num_rows)


def _of_shards(column: str, trained: Shards, listed: pa.Table, *, is_all: bool) -> Iterator[tuple[str, float, float]]:
    """Yield what a column of ``shards`` counts and what is listed, where it is less, or has to be the same."""
    documents = listed.group_by(["shard", "row"]).aggregate([])
    found = Counter(documents["shard"].to_pylist())
    for row in trained:
        shard, told = row["shard"], row[column]
        if is_all or told < found[shard]:
            yield f"{column} of shard {shard} and of overlap", told, found[shard]


def _looked_for(manifest: Manifest, splits: list[str], shards: Shards) -> Iterator[Metric]:
    """Yield the held-out documents that were looked for: all, unless a sample was."""
    if any(record.method == "sampled" for record in manifest.metrics(_HELD_OUT)):
        return
    for name in (None, *splits):
        documents = sum(row["documents"] for row in shards if row["split"] in splits and name in {None, row["split"]})
        yield as_count(_HELD_OUT, "documents", documents, Scope(set=name), documents)


def _near_copies(manifest: Manifest, splits: list[str]) -> tuple[Counter[str], Counter[str]]:
    """Return the held-out documents by split that are in a pair, and in a cluster, with a training document."""
    names = np.asarray(manifest.table("shards", ["split"])["split"].to_pylist(), dtype=object)
    is_held = np.isin(names, splits)
    pairs = manifest.table("pairs", PAIRED).filter(pc.field("verified"))
    sides = [(pairs[f"{side}_shard"].to_numpy(), pairs[f"{side}_row"].to_numpy()) for side in ("left", "right")]
    paired = set[tuple[int, int]]()
    for (shard, row), (other, _) in (sides, sides[::-1]):
        chosen = is_held[shard] & ~is_held[other]
        paired.update(zip(shard[chosen].tolist(), row[chosen].tolist(), strict=True))
    clusters = manifest.table("clusters", ["kind", "cluster", "shard", "row"]).filter(pc.field("kind") == "near")
    numbers, shards = clusters["cluster"].to_numpy(), clusters["shard"].to_numpy()
    joined = shards[is_held[shards] & np.isin(numbers, numbers[~is_held[shards]])]
    return Counter(names[shard] for shard, _ in paired), Counter(names[joined].tolist())
