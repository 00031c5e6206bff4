"""Counts of personal data that may be shown: of the dataset, of each source, of each shard; small counts are hidden.

Entities and tiers of the whole dataset are shown exactly; all entities together of each source, and entities and tiers
of each shard, are rounded. A hidden count of the dataset is hidden wherever its parts would add up to it; rounded
counts add up to nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from dataaudit.manifest.load import Manifest, once
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.metrics.disclosure import FEW, Count, Hidden, about, hide, suppressed, two_digits
from dataaudit.metrics.family import TIERS
from dataaudit.metrics.records import Records, by_scope, records_in

METRIC = "pii_hit_rate"
JUDGED = ("analyzer_documents", "analyzer_hits", "confirmed")
"""Stats of the sample that presidio analyzed."""
_Key = TypeVar("_Key")
_Cell = tuple[int, int]
"""Documents and hits."""
_NONE = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PiiCells:
    """Counts of personal data; hidden counts are suppressed."""

    total: Count
    total_by_tier: dict[str, Count]
    entities: dict[str, Count]
    """In any tier."""
    tiers: dict[tuple[str, str], Count]
    """By entity and tier; every entity has each tier."""
    sources: dict[str, Count]
    """All entities together, of sources over all splits; rounded."""
    shards: Mapping[int, Mapping[tuple[str, str], _Cell]]
    """Exact counts of each searched shard; not to be shown."""
    hidden_in_shards: dict[tuple[str, str], tuple[frozenset[int], bool]]
    """Shards whose count of an entity and tier is hidden, and whether all of these are small."""
    hidden_shards: dict[int, bool]
    """Shards whose count in all is hidden, and whether that is small."""


@once
def pii_cells(manifest: Manifest) -> PiiCells | None:
    """Return the counts; None when nothing searched for personal data."""
    records = by_scope(records_in(manifest, METRIC, (), ("entity",)))
    for stat in ("hits", "documents"):
        for record in records_in(manifest, METRIC, ("source",)).where(stat=stat):
            records.setdefault(record.scope, {})[stat] = record
    whole = records.get(Scope(), {})
    if "hits" not in whole:
        return None
    names = sorted(scope.entity for scope in records if scope.entity and scope == Scope(entity=scope.entity))
    names = [name for name in names if "hits" in records[Scope(entity=name)]]
    cells = {(name, tier): _cell(records[Scope(entity=name)], f"{tier}_") for name in names for tier in TIERS}
    shards, totals = _shards(manifest)
    in_shards = {key: hide(_distinct_shards(shards, key)) for key in cells}
    in_tiers = {name: _hidden_tiers(name, cells, in_shards) for name in names}
    rows = [_cell(records[Scope(entity=name)]) for name in names]
    hidden = hide(rows, [index for index, name in enumerate(names) if in_tiers[name].whole])
    sources = {
        scope.source: _cell(own)
        for scope, own in records.items()
        if scope.source is not None and scope == Scope(source=scope.source) and "hits" in own
    }
    by_source, by_shard = hide(list(sources.values())), hide(list(totals.values()))
    if hidden.whole or by_source.whole or by_shard.whole:
        return _nothing(names, list(sources), shards, below=_cell(whole)[0] < FEW)
    entities = _counts(dict(zip(names, rows, strict=True)), hidden, whole)
    tiers: dict[tuple[str, str], Count] = {}
    for name in names:
        own = _counts({(name, tier): cells[name, tier] for tier in TIERS}, in_tiers[name], whole)
        row = entities[name]
        tiers |= {key: row if row.suppressed else count for key, count in own.items()}
    return PiiCells(
        total=_count(_cell(whole), whole),
        entities=entities,
        tiers=tiers,
        total_by_tier={
            tier: suppressed(below=False)
            if any(tiers[name, tier].suppressed for name in names)
            else _count(_cell(whole, f"{tier}_"), whole)
            for tier in TIERS
        },
        sources={
            name: suppressed(below=by_source.below)
            if index in by_source.cells
            else _rounded(cell, *_sizes(records[Scope(source=name)]))
            for index, (name, cell) in enumerate(sources.items())
        },
        shards=shards,
        hidden_in_shards=_hidden_in_shards(cells, in_shards, shards, tiers),
        hidden_shards={shard: by_shard.below for index, shard in enumerate(totals) if index in by_shard.cells},
    )


def shard_counts(
    cells: PiiCells, shard: int, documents: int, tokens: int
) -> tuple[Count, dict[tuple[str, str], Count]]:
    """Return the shown counts of a shard, rounded: in all, and by entity and tier of all that the dataset holds."""
    own, counts = cells.shards.get(shard, {}), {}
    for key, (hidden, below) in cells.hidden_in_shards.items():
        cell = own.get(key, _NONE)
        counts[key] = suppressed(below=below) if shard in hidden else _rounded(cell, documents, tokens)
    return shard_total(cells, shard, documents, tokens), counts


def shard_total(cells: PiiCells, shard: int, documents: int, tokens: int) -> Count:
    """Return the shown count of all entities in a shard, rounded."""
    if shard in cells.hidden_shards:
        return suppressed(below=cells.hidden_shards[shard])
    return _rounded(cells.shards.get(shard, {}).get(("", ""), _NONE), documents, tokens)


def _cell(records: Records, prefix: str = "") -> _Cell:
    """Return documents and hits from the records of a scope."""
    hits, documents = records.get(f"{prefix}hits"), records.get(f"{prefix}documents")
    if hits is None or documents is None:
        return _NONE
    return round((documents.value or 0) * documents.denominator), hits.n


def _count(cell: _Cell, records: Records) -> Count:
    """Return an exact count; the records have the numbers of documents and tokens."""
    documents, tokens = _sizes(records)
    return Count(
        documents=cell[0],
        hits=cell[1],
        per_million=cell[1] / tokens * 1e6 if tokens else None,
        share=cell[0] / documents if documents else None,
    )


def _sizes(records: Records) -> tuple[int, int]:
    """Return how many documents and tokens a scope has."""
    return records["documents"].denominator, records["hits"].denominator


def _rounded(cell: _Cell, documents: int, tokens: int) -> Count:
    """Return a rounded count, with rates of the rounded number."""
    holding, hits = min(about(cell[0]), documents), about(cell[1])
    return Count(
        hits=hits,
        documents=holding,
        per_million=two_digits(hits / tokens * 1e6) if tokens else None,
        share=two_digits(holding / documents) if documents else None,
        rounded=True,
    )


def _counts(cells: Mapping[_Key, _Cell], hidden: Hidden, whole: Records) -> dict[_Key, Count]:
    return {
        key: suppressed(below=hidden.below) if index in hidden.cells else _count(cell, whole)
        for index, (key, cell) in enumerate(cells.items())
    }


def _hidden_tiers(
    name: str, cells: Mapping[tuple[str, str], _Cell], in_shards: Mapping[tuple[str, str], Hidden]
) -> Hidden:
    """Return the hidden tiers of an entity: small ones, and those that the shards would reveal."""
    forced = [index for index, tier in enumerate(TIERS) if in_shards[name, tier].whole and cells[name, tier] != _NONE]
    return hide([cells[name, tier] for tier in TIERS], forced)


def _shards(manifest: Manifest) -> tuple[dict[int, dict[tuple[str, str], _Cell]], dict[int, _Cell]]:
    """Return documents and hits of each searched shard, by entity and tier, under ('', '') in all; and the latter."""
    names = ["shard", "tokens", "pii_hits", "pii_documents", "pii"]
    shards, totals = {}, {}
    for row in manifest.table("shards", names).to_pylist():
        if row["pii"] is None:
            continue
        cells = {(item["entity"], item["tier"]): (item["documents"], item["hits"]) for item in row["pii"]}
        totals[row["shard"]] = (row["pii_documents"] or 0, sum(hits for _, hits in cells.values()))
        shards[row["shard"]] = cells | {("", ""): totals[row["shard"]]}
    return shards, totals


def _distinct_shards(shards: Mapping[int, Mapping[tuple[str, str], _Cell]], key: tuple[str, str]) -> list[_Cell]:
    """Return the counts of all shards; a single 0 stands for all without any."""
    cells = [own[key] for own in shards.values() if key in own]
    return [*cells, *([_NONE] if len(cells) < len(shards) else [])]


def _hidden_in_shards(
    cells: Mapping[tuple[str, str], _Cell],
    in_shards: Mapping[tuple[str, str], Hidden],
    shards: Mapping[int, Mapping[tuple[str, str], _Cell]],
    tiers: Mapping[tuple[str, str], Count],
) -> dict[tuple[str, str], tuple[frozenset[int], bool]]:
    """Return the shards whose count is hidden: all shards where the dataset's count is."""
    answer = {}
    for key, total in cells.items():
        if tiers[key].suppressed:
            answer[key] = (frozenset(shards), tiers[key].fewer_than is not None)
        elif total != _NONE:
            holding = [shard for shard in shards if key in shards[shard]]
            chosen = in_shards[key].cells
            hidden = {shard for index, shard in enumerate(holding) if index in chosen}
            if len(holding) in chosen:
                hidden |= shards.keys() - set(holding)
            answer[key] = (frozenset(hidden), in_shards[key].below)
    return answer


def _nothing(
    names: list[str], sources: list[str], shards: dict[int, dict[tuple[str, str], _Cell]], *, below: bool
) -> PiiCells:
    """Return cells that are all hidden: there is too little to show any."""
    none = suppressed(below=below)
    keys = [(name, tier) for name in names for tier in TIERS]
    return PiiCells(
        total=none,
        total_by_tier=dict.fromkeys(TIERS, none),
        entities=dict.fromkeys(names, none),
        tiers=dict.fromkeys(keys, none),
        sources=dict.fromkeys(sources, none),
        shards=shards,
        hidden_in_shards=dict.fromkeys(keys, (frozenset(shards), below)),
        hidden_shards=dict.fromkeys(shards, below),
    )


def few_judged(manifest: Manifest) -> frozenset[str]:
    """Return the entities that a judge found in so few sampled documents that their rates are not shown."""
    positive = Counter[str]()
    for row in manifest.table("judged", ["metric", "class", "positive"]).to_pylist():
        if row["metric"] == METRIC:
            positive[row["class"]] += row["positive"]
    return frozenset(name for name, documents in positive.items() if 0 < documents < FEW)


def hidden_records(manifest: Manifest, records: Sequence[Metric]) -> frozenset[int]:
    """Return the indexes of records of personal data that are hidden because the numbers are too small.

    Such a record is left out as a whole, as its presence alone reveals that there are findings.
    """
    own = [index for index, record in enumerate(records) if record.metric == METRIC]
    if not own or (cells := pii_cells(manifest)) is None:
        return frozenset()
    splits = sum(split.documents > 0 for split in manifest.core.splits)
    few = few_judged(manifest)
    return frozenset(index for index in own if _is_hidden(records[index], cells, few, splits))


def _is_hidden(record: Metric, cells: PiiCells, few: frozenset[str], splits: int) -> bool:
    """Return whether a record is hidden; a single split is the whole dataset."""
    scope, stat = record.scope, record.stat
    if splits == 1:
        scope = replace(scope, split=None)
    tier, _, own = stat.rpartition("_")
    if scope != Scope(entity=scope.entity):
        return stat != "truncated" and record.status == "ok"
    if stat in JUDGED:
        return scope.entity in few or (scope.entity in cells.entities and cells.entities[scope.entity].suppressed)
    if own not in {"hits", "documents"} or tier not in {"", *TIERS} or record.status != "ok":
        return False
    if scope.entity is None:
        return cells.total_by_tier[tier].suppressed if tier else cells.total.suppressed
    count = cells.tiers.get((scope.entity, tier)) if tier else cells.entities.get(scope.entity)
    return count is None or count.suppressed
