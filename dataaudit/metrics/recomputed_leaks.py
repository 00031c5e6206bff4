"""What held-out documents and evaluation items share with training data, as far as tables tell it.

The table of overlaps lists the first documents of each item, and not what several documents hold of it together. So it
tells of most numbers the least that they can be; the most where nothing was left out, or where there is nothing at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.metrics.recomputed import LOST, Bound, Recomputed, Shards, as_count, as_ratio, of_splits, read_shards

_HELD_OUT, _ITEMS = "train_val_overlap", "benchmark_contamination"
_COPIED = ("span", "whole")
_PASSAGE_WORDS = 50
"""Words of a copied passage, at least."""
_TIERS = {"verbatim": ("verbatim",), "similar": ("verbatim", "similar")}
_Rows = list[dict[str, Any]]


def held_out_leaks(manifest: Manifest) -> Recomputed:
    """Held-out documents in training data: from ``shards``, ``overlap``, ``pairs`` and ``clusters``."""
    found = Recomputed()
    shards = read_shards(manifest, "split", "documents", "held_out_copies")
    trained = [row for row in shards if row["held_out_copies"] is not None]
    for scope, rows in of_splits(trained).items():
        value, documents = (sum(row[name] for row in rows) for name in ("held_out_copies", "documents"))
        found.records.append(as_ratio(_HELD_OUT, "train_documents", value, documents, scope))
    splits = [split.name for split in manifest.core.splits if split.held_out]
    if not trained:
        return found
    listed = _listed(manifest, items=False)
    held = {shard: documents for shard, documents in _documents_by_shard(row for row in listed if _is_copy(row)).items()}
    told = [(row["shard"], row["held_out_copies"]) for row in trained]
    found.sums.extend(_of_shards("held_out_copies", told, held, is_all=_lists_all(manifest, listed)))
    found.records.extend(_looked_for(manifest, splits, shards))
    near, joined = _near_copies(manifest, splits)
    for name in (None, *splits):
        rows = [row for row in listed if name in {None, row["set"]}]
        scope = Scope(set=name)
        leaked = {(row["set"], row["item"]) for row in rows if row["rule"] == "whole" or _is_half(row)}
        copied = {(row["set"], row["item"]) for row in rows if row["rule"] == "span"}
        nothing = 0 if not any(map(_is_copy, listed)) else None
        found.bounds.extend([
            _bound(_HELD_OUT, "ngram", scope, len(leaked)),
            _bound(_HELD_OUT, "span", scope, _PASSAGE_WORDS * len(copied), nothing),
        ])
        if near is not None:
            least, most = (sum(count for split, count in of.items() if name in {None, split}) for of in (near, joined))
            found.bounds.append(_bound(_HELD_OUT, "near_dup", scope, least, most))
    return found


def evaluation_items(manifest: Manifest) -> Recomputed:
    """Evaluation items in training data: from ``overlap``, ``shards`` and the sets that the core names."""
    found = Recomputed(open={_ITEMS})
    shards = read_shards(manifest, "split", "documents", "contaminated")
    trained = [row for row in shards if row["contaminated"] is not None]
    listed = _listed(manifest, items=True)
    is_all = _lists_all(manifest, listed)
    for scope, rows in of_splits(trained).items():
        value, documents = (sum(row[name] for row in rows) for name in ("contaminated", "documents"))
        similar = Scope(split=scope.split, rule="similar")
        found.records.append(as_ratio(_ITEMS, "train_documents", value, documents, similar))
        least = _documents(row for row in listed if scope.split in {None, row["split"]} and row["tier"] == "verbatim")
        verbatim = Scope(split=scope.split, rule="verbatim")
        found.bounds.append(_bound(_ITEMS, "train_documents", verbatim, least, least if is_all else None))
    told = [(row["shard"], row["contaminated"]) for row in trained]
    found.sums.extend(_of_shards("contaminated", told, _documents_by_shard(listed), is_all=is_all))
    items_of = {one.name: one.items for one in manifest.core.protected}
    for record in manifest.metrics(_ITEMS, "items"):
        items = items_of.get(record.scope.set or "", 0)
        found.records.append(as_count(_ITEMS, "items", items, record.scope, items))
    for one in manifest.core.protected:
        own = [row for row in listed if row["set"] == one.name]
        matches = len({(row["item"], row["part"], row["shard"], row["row"]) for row in own})
        found.bounds.append(_bound(_ITEMS, "matches", Scope(set=one.name), matches, None if own else 0))
        for rule, tiers in _TIERS.items():
            of_tier = [row for row in own if row["tier"] in tiers]
            least, scope = _documents(of_tier), Scope(set=one.name, rule=rule)
            found.bounds.append(_bound(_ITEMS, "train_documents", scope, least, least if is_all else None))
            for part in ("question", "answer", "both"):
                items = len({row["item"] for row in of_tier if row["part"] == part})
                scope = Scope(set=one.name, entity=part, rule=rule)
                found.bounds.append(_bound(_ITEMS, "rate", scope, items, 0 if not items and is_all else None))
    return found


def _bound(metric: str, stat: str, scope: Scope, least: int, most: int | None = None) -> Bound:
    return Bound(metric=metric, stat=stat, scope=scope, least=least, most=most)


def _listed(manifest: Manifest, *, items: bool) -> _Rows:
    """Return the rows of ``overlap`` of evaluation items, or of held-out documents, with the split they stand in."""
    table = manifest.table("overlap", ["set", "item", "part", "tier", "rule", "shard", "row", "score"])
    splits = manifest.table("shards", ["split"])["split"].take(table["shard"])
    is_document = pc.equal(table["part"], "document")
    chosen = pc.invert(is_document) if items else is_document
    found: _Rows = table.append_column("split", splits).filter(chosen).to_pylist()
    return found


def _lists_all(manifest: Manifest, listed: _Rows) -> bool:
    """Return whether every match is listed: no item has as many as are listed, and no shard was left unread."""
    statuses = manifest.table("shards", ["status"])["status"]
    if pc.any(pc.is_in(statuses, pa.array(LOST))).as_py():
        return False
    most = next((one.parameters.get("max_rows") for one in manifest.core.stages if one.name == "overlap"), None)
    held = Counter((row["set"], row["item"], row["part"]) for row in listed)
    return isinstance(most, int) and max(held.values(), default=0) < most


def _is_copy(row: dict[str, Any]) -> bool:
    return row["rule"] in _COPIED


def _is_half(row: dict[str, Any]) -> bool:
    return row["rule"] == "ngram" and row["score"] >= 0.5


def _documents(rows: Collection[dict[str, Any]] | Iterator[dict[str, Any]]) -> int:
    return len({(row["shard"], row["row"]) for row in rows})


def _documents_by_shard(rows: Collection[dict[str, Any]] | Iterator[dict[str, Any]]) -> Counter[int]:
    return Counter(shard for shard, _ in {(row["shard"], row["row"]) for row in rows})


def _of_shards(
    column: str, told: list[tuple[int, int]], listed: dict[int, int], *, is_all: bool
) -> Iterator[tuple[str, float, float]]:
    """Yield the shards whose count is below, or not, what is listed of them."""
    for shard, count in told:
        least = listed.get(shard, 0)
        if is_all or count < least:
            yield f"{column} of shard {shard} and of overlap", count, least


def _looked_for(manifest: Manifest, splits: list[str], shards: Shards) -> Iterator[Metric]:
    """Yield the held-out documents that were looked for: all, unless a sample was."""
    if any(record.method == "sampled" for record in manifest.metrics(_HELD_OUT)):
        return
    for name in (None, *splits):
        documents = sum(row["documents"] for row in shards if row["split"] in splits and name in {None, row["split"]})
        yield as_count(_HELD_OUT, "documents", documents, Scope(set=name), documents)


def _near_copies(manifest: Manifest, splits: list[str]) -> tuple[Counter[str], Counter[str]] | tuple[None, None]:
    """Return the held-out documents by split that are in a pair, and in a cluster, with a training document.

    (None, None) when near-duplicates were not looked for.
    """
    if all(stage.name != "near_dup" for stage in manifest.core.stages):
        return None, None
    names = np.asarray(manifest.table("shards", ["split"])["split"].to_pylist(), dtype=object)
    is_held = np.isin(names, splits)
    pairs = manifest.table("pairs").filter(pc.field("verified"))
    sides = [(pairs[f"{side}_shard"].to_numpy(), pairs[f"{side}_row"].to_numpy()) for side in ("left", "right")]
    paired = set()
    for (shard, row), (other, _) in (sides, sides[::-1]):
        chosen = is_held[shard] & ~is_held[other]
        paired.update(zip(shard[chosen].tolist(), row[chosen].tolist(), strict=True))
    clusters = manifest.table("clusters", ["kind", "cluster", "shard", "row"]).filter(pc.field("kind") == "near")
    numbers, shards = clusters["cluster"].to_numpy(), clusters["shard"].to_numpy()
    joined = shards[is_held[shards] & np.isin(numbers, numbers[~is_held[shards]])]
    return Counter(names[shard] for shard, _ in paired), Counter(names[joined].tolist())
