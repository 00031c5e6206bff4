"""Training documents and shards that hold text of held-out documents or evaluation items, for rules and pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.render.blocks import Table, bad, column, table_of
from dataaudit.base.render.line import Line, Name
from dataaudit.manifest.load import Manifest, once
from dataaudit.manifest.metric import Metric
from dataaudit.metrics.family import Broken, Tables
from dataaudit.metrics.recomputed import IS_DOCUMENT, LOST, Condition, ManifestTables
from dataaudit.metrics.shown import Highlight, Kind, first_of

_COPIED = ("span", "whole")
LEAKED = 0.5
"""Share of a held-out document's 13-grams from which on it leaked."""
_RULES = {
    "span": _COPIED,
    "ngram": ("ngram", "whole"),
    "edited": ("edited",),
    "train_documents": (*_COPIED, "edited"),
}
"""Rules of matches that a statistic of held-out splits counts."""


def matches_of(case: Broken, tables: Tables, sets: Sequence[str]) -> pa.Table:
    """Return the rows of ``overlap`` of the case's set, or any of some, and of its statistic, part and tier.

    Matches of common text (notices, licences) are included only when the case has no others, and so are training
    documents that hold less than half of the 13-grams.
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
    for name, values in chosen:
        if values:
            kept = pc.and_(kept, pc.is_in(table[name], pa.array(list(values), pa.string())))
    matches = table.filter(kept)
    own = matches.filter(pc.greater(matches["score_without_common"], 0))
    matches = own if own.num_rows or case.stat.endswith("_without_common") else matches
    leaking = matches.filter(_leaks_alone(matches))
    return leaking if leaking.num_rows else matches


def _leaks_alone(matches: pa.Table) -> pa.Array:
    """Return bool[n]: matches that leak by themselves, of 13-grams half of all that are not common."""
    return pc.or_(pc.not_equal(matches["rule"], "ngram"), pc.greater_equal(matches["score_without_common"], LEAKED))


def documents_with_text_of(case: Broken, tables: Tables, sets: Sequence[str]) -> dict[int, int]:
    """Count the training documents of each shard that hold something of the case's set, or of any of some."""
    rows = matches_of(case, tables, sets).group_by(["shard", "row"]).aggregate([])
    counted = rows.group_by("shard").aggregate([([], "count_all")])
    numbers = dict(zip(counted["shard"].to_pylist(), counted["count_all"].to_pylist(), strict=True))
    if case.scope.source is None:
        return numbers
    has_source = shards_with(tables.shards, case.scope.source)
    return {shard: number for shard, number in numbers.items() if has_source[shard]}


def near_copies(case: Broken, tables: Tables) -> np.ndarray:
    """Return int64[n, 2], shard and row of the training documents that are near-duplicates of held-out ones."""
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
    has_source = np.zeros(shards.num_rows, dtype=bool)
    has_source[parents[pc.equal(pc.struct_field(flat, "source"), source).to_numpy()]] = True
    return has_source


@once
def lists_all_documents(manifest: Manifest) -> bool:
    """Return whether every match of held-out documents is listed."""
    return _lists_all(manifest, IS_DOCUMENT)


@once
def lists_all_items(manifest: Manifest) -> bool:
    """Return whether every match of evaluation items is listed."""
    return _lists_all(manifest, ~IS_DOCUMENT)


def _lists_all(manifest: Manifest, which: Condition) -> bool:
    """Return whether no item has as many matches as are listed, and no shard was left unread."""
    tables = ManifestTables(manifest)
    if tables.rows("planned").filter(pc.field("status").isin(LOST)).num_rows:
        return False
    most = next((stage.parameters.get("max_rows") for stage in manifest.core.stages if stage.name == "overlap"), None)
    listed = (
        tables.rows("overlap").filter(which.make()).group_by(["set", "item", "entity"]).aggregate([([], "count_all")])
    )
    return isinstance(most, int) and (pc.max(listed["count_all"]).as_py() or 0) < most


NO_TRAINING = "there are no training documents"
NEARLY_ALL = 0.9
"""Share of documents without a word from which on a part counts as not searched: 0 matches in it mean nothing."""


def why_absent(records: Sequence[Metric | None], empty: str) -> str:
    """Return in words why a rate has no value; ``empty`` is the meaning of a denominator of 0."""
    words = {"no_training_documents": NO_TRAINING, "empty_denominator": empty}
    reasons = sorted({record.reason for record in records if record is not None and record.reason})
    return "; ".join(words.get(reason, reason) for reason in reasons)


WORD_FOR_WORD = ("verbatim", "span")
"""Rules whose matches are verbatim copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakSite:
    """A training shard that holds items of a set."""

    set: str
    held_out: bool
    """Whether the set is a held-out split; then its items are documents."""
    shard: int
    name: str
    """``split/uri`` of the shard."""
    items: int
    """Items in the shard, in any form."""
    whole: int
    """Held-out documents with an equal one in the shard; 0 for an evaluation set."""
    copied: int
    """Items of which the shard holds a passage word for word, or the whole."""
    documents: int
    """Documents of the shard that hold items, in any form."""
    copies: int
    """Documents of the shard that hold items word for word."""
    of: int
    """All documents of the shard."""
    is_worst: bool
    """Whether no other shard holds as many items word for word."""

    @property
    def share(self) -> float:
        """Share of the shard's documents that hold items word for word."""
        return self.copies / self.of if self.of else 0.0


@once
def leak_sites(manifest: Manifest) -> list[LeakSite]:
    """Return every pair of a set and a shard that leaks, by set, most copied items first; common text is left out."""
    held_out = {split.name for split in manifest.core.splits if split.held_out}
    sets = {record.name for record in manifest.core.protected}
    table = manifest.table("overlap", ["set", "item", "rule", "shard", "row", "score_without_common"])
    table = table.filter(pc.greater(table["score_without_common"], 0))
    table = table.filter(_leaks_alone(table))
    equal = _equal(manifest, held_out - sets)
    matches = _counted(table)
    copied = _counted(table.filter(pc.is_in(table["rule"], pa.array(WORD_FOR_WORD))))
    documents = manifest.table("shards", ["documents"])["documents"]
    names = ShardNames(manifest)
    places = []
    for key in matches.keys() | equal.keys():
        name, shard = key
        items, rows = matches.get(key, _NONE)
        whole, equal_rows = equal.get(key, _NONE)
        pieces, piece_rows = copied.get(key, _NONE)
        places.append(
            LeakSite(
                set=name,
                held_out=name in held_out and name not in sets,
                shard=shard,
                name=names.of(shard),
                items=max(len(items), len(whole)),
                whole=len(whole),
                copied=max(len(pieces), len(whole)),
                documents=len(rows | equal_rows),
                copies=len(piece_rows | equal_rows),
                of=documents[shard].as_py() or 0,
                is_worst=False,
            )
        )
    places.sort(key=lambda place: (place.set, -place.whole, -place.copied, -place.items, place.shard))
    return [
        replace(place, is_worst=_leads(place, places[index - 1 : index] + places[index + 1 : index + 2]))
        for index, place in enumerate(places)
    ]


_Items = dict[tuple[str, int], tuple[set[Any], set[int]]]
"""Items, and the rows that hold them, by set and shard."""
_NONE: tuple[set[Any], set[int]] = (set(), set())


def _leads(place: LeakSite, neighbours: list[LeakSite]) -> bool:
    """Return whether it is the first of its set, and the next shard holds less."""
    own = [other for other in neighbours if other.set == place.set]
    return place.copied > 0 and all((other.whole, other.copied) < (place.whole, place.copied) for other in own)


def _counted(table: pa.Table) -> _Items:
    pairs = table.group_by(["set", "shard"], use_threads=False).aggregate([("item", "distinct"), ("row", "distinct")])
    return {
        (pair["set"], pair["shard"]): (set(pair["item_distinct"]), set(pair["row_distinct"]))
        for pair in pairs.to_pylist()
    }


def _equal(manifest: Manifest, held_out: set[str]) -> _Items:
    """Return the held-out documents that have an equal one in a training shard, from the groups of equal texts."""
    clusters = manifest.table("clusters", ["kind", "cluster", "shard", "row"])
    clusters = clusters.filter(pc.equal(clusters["kind"], "exact"))
    if not held_out or clusters.num_rows == 0:
        return {}
    splits = manifest.table("shards", ["split"])["split"].combine_chunks()
    outside = pc.is_in(splits.take(clusters["shard"].combine_chunks()), pa.array(sorted(held_out)))
    own = clusters.filter(outside)
    trained = clusters.filter(pc.and_(pc.invert(outside), pc.is_in(clusters["cluster"], own["cluster"].unique())))
    protected: dict[int, list[tuple[str, tuple[int, int]]]] = {}
    for row in own.to_pylist():
        item = splits[row["shard"]].as_py(), (row["shard"], row["row"])
        protected.setdefault(row["cluster"], []).append(item)
    equal: _Items = {}
    for row in trained.to_pylist():
        for name, document in protected[row["cluster"]]:
            items, rows = equal.setdefault((name, row["shard"]), (set(), set()))
            items.add(document)
            rows.add(row["row"])
    return equal


def standout(manifest: Manifest, kind: Kind, size: float, text: Line, which: str) -> Highlight:
    """Return that a set is in training data, and the shard that holds most of it."""
    own = [leak_place for leak_place in leak_sites(manifest) if leak_place.set == which]
    where: dict[str, Any] = {"link": first_of(len(own), "most")}
    if own:
        where |= {"place": own[0].name, "shard": own[0].shard}
    return Highlight(kind=kind, part="leaks", size=size, text=text, **where)


def leaks_table(places: Sequence[LeakSite]) -> Table:
    """Return the table of shards that hold protected items."""
    return table_of(
        "Which shards hold them",
        places,
        column("set", shown=Name),
        column("shard"),
        column("split/uri", "name", Name),
        column("whole documents", lambda place: bad(place.whole) if place.held_out else None),
        column("copied word for word", "copied", bad),
        column("in any form", "items"),
        column("documents that hold them", "documents"),
        noun="pair of a set and a shard",
        note="Counted are documents of a held-out split, items of an evaluation set: those that stand in the shard"
        " whole; those of which it holds a passage of 50 words and more (of a set: the text) word for word; those that"
        " it holds in any form. Text that very many training documents share (notices, licences) is left out. The last"
        " column counts the shard's own documents: remove these from training.",
    )


class ShardNames:
    """``split/uri`` by ordinal."""

    def __init__(self, manifest: Manifest) -> None:
        self._table = manifest.table("shards", ["split", "uri"])

    def of(self, shard: int) -> str:
        """Return the name of a shard."""
        return f"{self._table['split'][shard].as_py()}/{self._table['uri'][shard].as_py()}"
