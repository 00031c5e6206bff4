"""The view model: a manifest's facts in the shape in which they are shown, as text or as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.core import Coverage, LedgerRecord
from dataaudit.manifest.load import Manifest

UNREAD = ("quarantined", "skipped")
OFF_SHARE = 0.02
"""Absolute difference between a share and the declared one from which it is pointed out."""
_OTHER_SCOPES = ("source", "language", "shard", "set", "entity", "rule")
_STATS = {
    "bytes_per_token": ("bytes_per_token", "ratio"),
    "seq_len_p50": ("seq_len_p50_p95", "p50"),
    "seq_len_p95": ("seq_len_p50_p95", "p95"),
    "exact_dup_rate": ("exact_dup_rate", "rate"),
    "exact_dup_rate_within_split": ("exact_dup_rate", "within_split_rate"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """How much, and the few metrics that are shown beside it; None where a metric has no value."""

    name: str
    """Split or source; empty for the whole dataset."""
    held_out: bool | None = None
    shards: int | None = None
    documents: int
    bytes: int
    tokens: int
    bytes_per_token: float | None = None
    seq_len_p50: float | None = None
    seq_len_p95: float | None = None
    exact_dup_rate: float | None = None
    exact_dup_rate_within_split: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A source's part of the training tokens, beside what the config declares."""

    source: str
    documents: int
    bytes: int
    tokens: int
    share: float | None
    declared: float | None


def off_by(one: Share) -> float:
    """Return how far a share is above the declared one; 0 where there is none."""
    return 0.0 if one.share is None or one.declared is None else one.share - one.declared


def is_off(one: Share) -> bool:
    """Return whether a share is so far from the declared one that it is pointed out."""
    return abs(off_by(one)) > OFF_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class LostShard:
    """A shard that was not read, or not as a whole."""

    shard: int
    split: str
    uri: str
    status: str
    size: int
    reasons: dict[str, int]
    """Records lost by reason code; -1 when that cannot be known."""
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The facts about a manifest that come first."""

    dataset: str
    version: str
    id: str
    manifest: str
    tool: str
    built: str
    parents: tuple[str, ...]
    tokenizer: dict[str, Any]
    totals: Volume
    splits: tuple[Volume, ...]
    sources: tuple[Share, ...]
    """Largest first; declared ones without a document last."""
    ledger: dict[str, Any]
    unread: tuple[LostShard, ...] = field(default=())
    partial: tuple[LostShard, ...] = field(default=())


def overview(manifest: Manifest) -> Overview:
    """Return the facts of a manifest."""
    core, lost = manifest.core, lost_shards(manifest)
    metrics = _by_split(manifest)
    whole = core.totals
    tokenizer = core.tokenizer
    return Overview(
        dataset=core.dataset.name,
        version=core.dataset.version,
        id=manifest.id,
        manifest=str(manifest.folder),
        tool=f"{core.tool.name} {core.tool.version}",
        built=manifest.run.finished,
        parents=core.parents,
        tokenizer={
            "name": tokenizer.name,
            "sha256": tokenizer.sha256,
            "vocab_size": tokenizer.vocab_size,
            "encoder": tokenizer.encoder,
            "encoder_reason": tokenizer.encoder_reason,
            "counted_by": {name: used.model_dump() for name, used in sorted(tokenizer.counted_by.items())},
            "documents_compared": tokenizer.sampled,
        },
        totals=Volume(
            name="",
            shards=whole.shards,
            documents=whole.documents,
            bytes=whole.bytes,
            tokens=whole.tokens,
            **_stats(metrics, None),
        ),
        splits=tuple(
            Volume(
                name=split.name,
                held_out=split.held_out,
                shards=split.shards,
                documents=split.documents,
                bytes=split.bytes,
                tokens=split.tokens,
                **_stats(metrics, split.name),
            )
            for split in core.splits
        ),
        sources=_shares(manifest),
        ledger=ledger_facts(core.ledger),
        unread=tuple(shard for shard in lost if shard.status in UNREAD),
        partial=tuple(shard for shard in lost if shard.status not in UNREAD),
    )


def ledger_facts(ledger: LedgerRecord) -> dict[str, Any]:
    """Return the ledger with what is derived from it."""

    def line(coverage: Coverage) -> dict[str, int]:
        return coverage.model_dump()

    return {
        "shards": line(ledger.shards),
        "stored_bytes": line(ledger.bytes),
        "documents": line(ledger.documents),
        "unread_bytes": ledger.bytes.planned - ledger.bytes.read,
        "shards_of_unknown_documents": ledger.uncounted_shards,
    }


def lost_shards(manifest: Manifest) -> list[LostShard]:
    """Return every shard that was not read, or not as a whole, in the manifest's order."""
    columns = ["shard", "split", "uri", "status", "size"]
    shards = manifest.table("shards", columns)
    rows = shards.filter(pc.not_equal(shards["status"], "ok")).to_pylist()
    if not rows:
        return []
    ledger = manifest.table("ledger")
    reasons: dict[int, dict[str, int]] = {}
    counts = ledger.group_by(["shard", "reason"]).aggregate([("records", "sum"), ("records", "min")])
    for loss in counts.to_pylist():
        known = loss["records_sum"] if loss["records_min"] >= 0 else -1
        reasons.setdefault(loss["shard"], {})[loss["reason"]] = known
    whole = ledger.filter(pc.less(ledger["records"], 0))
    places = dict(zip(whole["shard"].to_pylist(), whole["place"].to_pylist(), strict=True))
    return [LostShard(**row, reasons=reasons.get(row["shard"], {}), place=places.get(row["shard"], "")) for row in rows]


def source_volumes(manifest: Manifest, split: str, limit: int) -> tuple[list[Volume], int]:
    """Return the largest sources of a split by tokens, and how many there are."""
    table = manifest.table("sources")
    rows = table.filter(pc.equal(table["split"], split)).to_pylist()
    rows.sort(key=lambda row: (-row["tokens"], row["source"]))
    chosen = rows[:limit]
    metrics = manifest.table("metrics")
    named = pc.struct_field(metrics["scope"], "source")
    wanted = pc.and_(
        pc.equal(pc.struct_field(metrics["scope"], "split"), split),
        pc.is_in(named, pa.array([row["source"] for row in chosen], pa.string())),
    )
    found = {
        (row["metric"], row["stat"], row["scope"]["source"]): row["value"]
        for row in metrics.filter(pc.fill_null(wanted, pa.scalar(value=False))).to_pylist()
    }
    volumes = [
        Volume(
            name=row["source"],
            documents=row["documents"],
            bytes=row["bytes"],
            tokens=row["tokens"],
            **_stats(found, row["source"]),
        )
        for row in chosen
    ]
    return volumes, len(rows)


def _by_split(manifest: Manifest) -> dict[tuple[str, str, str | None], float | None]:
    """Return the values that speak of the dataset or of a whole split, by (metric, stat, split)."""
    table = manifest.table("metrics")
    for name in _OTHER_SCOPES:
        table = table.filter(pc.is_null(pc.struct_field(table["scope"], name)))
    return {(row["metric"], row["stat"], row["scope"]["split"]): row["value"] for row in table.to_pylist()}


def _stats(values: dict[tuple[str, str, str | None], float | None], name: str | None) -> dict[str, Any]:
    return {shown: values.get((metric, stat, name)) for shown, (metric, stat) in _STATS.items()}


def _shares(manifest: Manifest) -> tuple[Share, ...]:
    """Return the share of each source in the training tokens (of all tokens when every split is held out)."""
    core = manifest.core
    training = [split.name for split in core.splits if not split.held_out]
    chosen = training or [split.name for split in core.splits]
    table = manifest.table("sources")
    table = table.filter(pc.is_in(table["split"], pa.array(chosen, pa.string())))
    names = ("documents", "bytes", "tokens")
    sums: dict[str, dict[str, int]] = {}
    for row in table.to_pylist():
        held = sums.setdefault(row["source"], dict.fromkeys(names, 0))
        for name in names:
            held[name] += row[name]
    weights = {source: entry["weight"] for source, entry in core.mixture.items()}
    whole = sum(weights.values())
    for source in weights:
        sums.setdefault(source, dict.fromkeys(names, 0))
    tokens = sum(row["tokens"] for row in sums.values())
    ranked = sorted(sums, key=lambda source: (-sums[source]["tokens"], source))
    return tuple(
        Share(
            source=source,
            **sums[source],
            share=sums[source]["tokens"] / tokens if tokens else None,
            declared=weights.get(source, 0.0) / whole if whole else None,
        )
        for source in ranked
    )
