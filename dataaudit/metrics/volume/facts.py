"""How much there is, of what, and what was lost: the facts about a manifest that come first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base import text as t
from dataaudit.base.render.blocks import (
    MOST_ROWS,
    Bar,
    Facts,
    Figure,
    Row,
    Section,
    Table,
    bars,
    first,
    names,
    numbers,
    rows_of,
    toned,
)
from dataaudit.base.render.line import Line, Name, Number, decimal, join, say, share, size
from dataaudit.manifest.core import Coverage, LedgerRecord
from dataaudit.manifest.load import Manifest, once
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.manifest.tables import HELD_BACK
from dataaudit.metrics.shown import LONG, Kind, Part, Shown, Standout, encoder_text, listed_shares

UNREAD = ("quarantined", "skipped")
_BARS, _SAID, _PATH = 15, 3, 4096
_LEGEND = (
    "docs: documents; length: tokens of a document; dups: share of documents whose text was seen before, white space"
    " aside, in their split or overall."
)
OFF_SHARE = 0.02
"""Absolute difference between a share and the declared one from which it is pointed out."""
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


def _off_by(item: Share) -> float:
    """Return how far a share is above the declared one; 0 where there is none."""
    return 0.0 if item.share is None or item.declared is None else item.share - item.declared


def _is_off(item: Share) -> bool:
    """Return whether a share is so far from the declared one that it is pointed out."""
    return abs(_off_by(item)) > OFF_SHARE


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
    bad_bytes: int
    """Decoded bytes of the bad records of a shard that was read."""
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
    held_back: tuple[LostShard, ...] = field(default=())
    """Skipped, as the quarantine list of the build says."""
    remarked: int = 0
    """Shards with records that were read and are remarked in the ledger."""


@once
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
        manifest=manifest.place,
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
        remarked=_remarked(manifest),
        unread=tuple(shard for shard in lost if shard.status in UNREAD and HELD_BACK not in shard.reasons),
        held_back=tuple(shard for shard in lost if HELD_BACK in shard.reasons),
        partial=tuple(shard for shard in lost if shard.status not in UNREAD),
    )


def shards_read(ledger: Mapping[str, Any]) -> str:
    """Return ``25 of 30 shards read, 5 held back by the list`` of :func:`ledger_facts`."""
    shards, listed = ledger["shards"], ledger["listed_shards"]
    read = f"{t.count(shards['read'])} of {t.plural(shards['planned'], 'shard')} read"
    return f"{read}, {t.count(listed)} held back by the list" if listed else read


def ledger_facts(ledger: LedgerRecord) -> dict[str, Any]:
    """Return the ledger with what is derived from it."""

    def line(coverage: Coverage) -> dict[str, int]:
        return coverage.model_dump()

    return {
        "shards": line(ledger.shards),
        "stored_bytes": line(ledger.bytes),
        "documents": line(ledger.documents),
        "unread_bytes": ledger.bytes.planned - ledger.bytes.read - ledger.listed_bytes,
        "shards_of_unknown_documents": ledger.uncounted_shards,
        "listed_shards": ledger.listed_shards,
        "listed_bytes": ledger.listed_bytes,
    }


def _remarked(manifest: Manifest) -> int:
    """Return how many shards have records that were read and are remarked: a line of the ledger that counts none."""
    ledger = manifest.table("ledger", ["shard", "records"])
    return int(pc.count_distinct(ledger.filter(pc.equal(ledger["records"], 0))["shard"]).as_py())


@once
def lost_shards(manifest: Manifest) -> list[LostShard]:
    """Return every shard that was not read, or not as a whole, in the manifest's order."""
    columns = ["shard", "split", "uri", "status", "size"]
    shards = manifest.table("shards", columns)
    rows = shards.filter(pc.not_equal(shards["status"], "ok")).to_pylist()
    if not rows:
        return []
    ledger = manifest.table("ledger")
    reasons: dict[int, dict[str, int]] = {}
    counts = ledger.group_by(["shard", "reason"]).aggregate([("records", "sum"), ("records", "min"), ("bytes", "sum")])
    sizes: dict[int, int] = {}
    for loss in counts.to_pylist():
        known = loss["records_sum"] if loss["records_min"] >= 0 else -1
        reasons.setdefault(loss["shard"], {})[loss["reason"]] = known
        sizes[loss["shard"]] = sizes.get(loss["shard"], 0) + loss["bytes_sum"] * (known >= 0)
    whole = ledger.filter(pc.less(ledger["records"], 0))
    places = dict(zip(whole["shard"].to_pylist(), whole["place"].to_pylist(), strict=True))
    return [
        LostShard(
            **row,
            reasons=reasons.get(row["shard"], {}),
            bad_bytes=sizes.get(row["shard"], 0),
            place=places.get(row["shard"], ""),
        )
        for row in rows
    ]


def source_volumes(manifest: Manifest, split: str, limit: int | None = None) -> tuple[list[Volume], int]:
    """Return the largest sources of a split by tokens, and how many there are."""
    table = manifest.table("sources")
    rows = table.filter(pc.equal(table["split"], split)).to_pylist()
    rows.sort(key=lambda row: (-row["tokens"], row["source"]))
    chosen = rows[:limit]
    metrics = manifest.metric_rows().where(split=split).of_sources([row["source"] for row in chosen])
    found = {
        (item.metric, item.stat, item.scope.source): item.value
        for metric, stat in dict.fromkeys(_STATS.values())
        for item in metrics.where(metric=metric, stat=stat)
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


def identity(view: Overview, *, here: bool = True) -> Facts:
    """Return what the manifest is and who counted its tokens; ``here`` tells where it lies."""
    tokenizer = view.tokenizer
    counted = [
        f"{t.plural(by['documents'], 'document')} by {name}"
        for name, by in tokenizer["counted_by"].items()
        if by["documents"]
    ]
    by = f" ({', '.join(counted)})" if counted else ""
    vocabulary = f"{tokenizer['vocab_size']:,} ids, sha256 {tokenizer['sha256']}"
    return Facts(
        pairs=(
            ("id", view.id),
            *((("manifest", Name(view.manifest, _PATH)),) if here else ()),
            ("built", f"{view.built} by {view.tool}"),
            ("tokenizer", say("{}, {}", Name(tokenizer["name"], 60), vocabulary)),
            ("counted by", encoder_text(tokenizer["encoder_reason"]) + by),
            *(("parent", parent) for parent in view.parents),
        )
    )


def splits_table(view: Overview) -> Table:
    """Return a row for each split, and one for all."""
    held_out = [Name(volume.name) for volume in view.splits if volume.held_out]

    def row(volume: Volume) -> Row:
        return (
            Name(volume.name) if volume.name else "(all)",
            volume.shards,
            volume.documents,
            size(volume.bytes),
            volume.tokens,
            decimal(volume.bytes_per_token),
            decimal(volume.seq_len_p50),
            decimal(volume.seq_len_p95),
            share(volume.exact_dup_rate_within_split),
            share(volume.exact_dup_rate),
        )

    heads = (
        "shards",
        "docs",
        "text",
        "tokens",
        "bytes/token",
        "length p50",
        "length p95",
        "dups in split",
        "dups overall",
    )
    return Table(
        title="Splits",
        columns=(*names("split"), *numbers(*heads)),
        rows=tuple(map(row, view.splits)),
        whole=True,
        foot=(row(view.totals),) if len(view.splits) > 1 else (),
        noun="split",
        note=say("{}{}", _LEGEND, say(" Held out: {}.", join(", ", held_out)) if held_out else ""),
    )


def mixture(view: Overview) -> Section:
    """Return the largest sources: found share of the training tokens beside the declared one."""
    shares = view.sources
    kind = "training" if any(not split.held_out for split in view.splits) else "held-out"
    declared = any(item.declared is not None for item in shares)
    off = sorted((item for item in shares if _is_off(item)), key=lambda item: -abs(_off_by(item)))
    points = f"{OFF_SHARE * 100:.0f} percentage points"
    lead: Line = f"{t.plural(len(shares), 'source')} of {kind} tokens."
    if off:
        away = join(
            "; ",
            (
                say("{} {} instead of {}", Name(item.source, 40), share(item.share), share(item.declared))
                for item in first(off, _SAID)
            ),
        )
        many = f"{t.count(len(off))} of {t.plural(len(shares), 'source')} {'is' if len(off) == 1 else 'are'}"
        lead = say("{} over {} from the declared share: {}.", many, points, away)
    elif declared:
        lead = f"{lead} Every share is within {points} of the declared one."
    blocks = (_sources(shares, kind, declared=declared),) if shares else ()
    return Section(id="mixture", title="Mixture", lead=lead, tone="warn" if off else "", blocks=blocks)


def _sources(shares: Sequence[Share], kind: str, *, declared: bool) -> Figure:
    def row(item: Share) -> Row:
        cells = (Name(item.source), item.documents, size(item.bytes), item.tokens, share(item.share))
        if not declared:
            return cells
        known = item.share is not None and item.declared is not None
        off = toned(Number(_off_by(item) if known else None, signed=True), when=_is_off(item))
        return *cells, share(item.declared), off

    def shown(item: Share) -> Line:
        return (
            share(item.share)
            if item.declared is None
            else say("{}, declared {}", share(item.share), share(item.declared))
        )

    title = f"Sources, by share of {kind} tokens"
    heads = ("documents", "text", "tokens", "share of tokens", *(("declared", "off by") if declared else ()))
    table = Table(
        title=title,
        columns=(*names("source"), *numbers(*heads)),
        **rows_of(shares, row),
        noun="source",
        note=f"off by: found less declared; marked: more than {OFF_SHARE} apart." if declared else "",
    )
    chart = bars(
        f"share of {kind} tokens",
        (
            Bar(Name(item.source), item.share or 0.0, shown(item), mark=item.declared, loud=_is_off(item))
            for item in shares[:_BARS]
        ),
        percent=True,
    )
    note = "Bar: found; line: declared; orange: more than two percentage points apart." if declared else ""
    return Figure(id="chart-mixture", title=title, chart=chart, table=table, note=note)


def _sources_of(manifest: Manifest, split: Volume) -> Table:
    """Return the sources of one split with the metrics that are kept for each."""
    volumes, number = source_volumes(manifest, split.name, MOST_ROWS)

    def row(volume: Volume) -> Row:
        part = volume.tokens / split.tokens if split.tokens else None
        lengths = (decimal(volume.seq_len_p50), decimal(volume.seq_len_p95))
        counts = (volume.documents, volume.tokens, share(part), decimal(volume.bytes_per_token))
        return Name(volume.name), *counts, *lengths, share(volume.exact_dup_rate)

    heads = ("docs", "tokens", "share", "bytes/token", "length p50", "length p95", "dups overall")
    return Table(
        title=say("Sources of {}", Name(split.name)),
        columns=(*names("source"), *numbers(*heads)),
        rows=tuple(map(row, volumes)),
        number=number,
        noun="source",
    )


def _by_split(manifest: Manifest) -> dict[tuple[str, str, str | None], float | None]:
    """Return the values that speak of the dataset or of a whole split, by (metric, stat, split)."""
    rows = manifest.metric_rows()
    held = MetricRows.joined([rows.shaped(), rows.shaped("split")])
    return {(metric.metric, metric.stat, metric.scope.split): metric.value for metric in held}


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


def _standouts(manifest: Manifest) -> Iterator[Standout]:
    view = overview(manifest)
    off = sorted(
        (source for source in view.sources if _is_off(source)),
        key=lambda source: (-abs(_off_by(source)), source.source),
    )
    if off:
        number = f"{t.count(len(off))} of {t.plural(len(view.sources), 'source')} off the declared share"
        yield Standout(
            kind=Kind.MIXTURE,
            part="mixture",
            size=abs(_off_by(off[0])),
            place=off[0].source,
            link=" for",
            text=say("{}: {}", number, Number(_off_by(off[0]), signed=True)),
        )
    if (reason := view.tokenizer["encoder_reason"]) != "ok":
        text = f"Tokens were counted by {encoder_text(reason)}"
        yield Standout(kind=Kind.ENCODER, part="splits", area="tokens", size=1, text=text)


def _sources_by_split(manifest: Manifest) -> dict[str, list[dict[str, Any]]]:
    """Return all sources of each split as plain values."""
    left_out = ("held_out", "shards", "exact_dup_rate_within_split")
    rows = {split.name: source_volumes(manifest, split.name)[0] for split in overview(manifest).splits}
    return {
        split: [{name: value for name, value in asdict(volume).items() if name not in left_out} for volume in found]
        for split, found in rows.items()
    }


def _declared(manifest: Manifest) -> list[Section]:
    view = overview(manifest)
    return [mixture(view)] if any(source.declared is not None for source in view.sources) else []


def _sentences(manifest: Manifest) -> Iterator[Line]:
    held = [
        (Name(source.source, LONG), source.share) for source in overview(manifest).sources if source.share is not None
    ]
    if held:
        yield say("Sources by share of the training tokens: {}.", listed_shares(held, "further source"))


SHOWN = Shown(
    sentences=_sentences,
    parts=(
        Part(name="splits", blocks=lambda manifest: [splits_table(overview(manifest))]),
        Part(name="mixture", blocks=_declared),
        Part(area="mixture", blocks=lambda manifest: [mixture(overview(manifest)), splits_table(overview(manifest))]),
        Part(
            name="sources",
            blocks=lambda manifest: [_sources_of(manifest, split) for split in overview(manifest).splits],
        ),
        Part(area="tokens", blocks=lambda manifest: [identity(overview(manifest), here=False)]),
    ),
    standouts=_standouts,
    long_facts={"sources_by_split": _sources_by_split},
)
