"""Which training shards hold what is protected: by set and shard, most items first."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.load import Manifest

WORD_FOR_WORD = ("verbatim", "span")
"""Rules whose matches are copies, not likenesses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakPlace:
    """One training shard that holds items of one set."""

    set: str
    held_out: bool
    """Whether the set is a held-out split; then its items are documents."""
    shard: int
    name: str
    """``split/uri`` of the shard."""
    items: int
    """Items of the set that it holds, in any form."""
    copied: int
    """Items of which it holds a piece word for word."""
    documents: int
    """Its documents that hold some."""


def leak_places(manifest: Manifest) -> list[LeakPlace]:
    """Return every pair of a set and a shard, by set, most copied items first."""
    table = manifest.table("overlap", ["set", "item", "rule", "shard", "row"])
    if table.num_rows == 0:
        return []
    keys = ["set", "shard"]
    whole = table.group_by(keys).aggregate([("item", "count_distinct"), ("row", "count_distinct")])
    copies = table.filter(pc.is_in(table["rule"], pa.array(WORD_FOR_WORD)))
    copied = {
        (one["set"], one["shard"]): one["item_count_distinct"]
        for one in copies.group_by(keys).aggregate([("item", "count_distinct")]).to_pylist()
    }
    held_out = {split.name for split in manifest.core.splits if split.held_out}
    sets = {one.name for one in manifest.core.protected}
    names = ShardNames(manifest)
    found = [
        LeakPlace(
            set=one["set"], held_out=one["set"] in held_out and one["set"] not in sets, shard=one["shard"],
            name=names.of(one["shard"]), items=one["item_count_distinct"],
            copied=copied.get((one["set"], one["shard"]), 0), documents=one["row_count_distinct"],
        )
        for one in whole.to_pylist()
    ]  # fmt: skip
    return sorted(found, key=lambda one: (one.set, -one.copied, -one.items, one.shard))


class ShardNames:
    """``split/uri`` by ordinal."""

    def __init__(self, manifest: Manifest) -> None:
        self._table = manifest.table("shards", ["split", "uri"])

    def of(self, shard: int) -> str:
        """Return the name of a shard."""
        return f"{self._table['split'][shard].as_py()}/{self._table['uri'][shard].as_py()}"
