"""Volume: how many documents, bytes and tokens there are, of which sources, and what was lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base import text as t
from dataaudit.base.render.blocks import (
    MOST_ROWS,
    Bar,
    Cell,
    Column,
    Facts,
    Figure,
    Section,
    Table,
    bars,
    column,
    first,
    named,
    table_of,
    toned,
)
from dataaudit.base.render.line import Line, Name, decimal, join, measured, say, share, size
from dataaudit.manifest.load import Manifest, once
from dataaudit.manifest.metric_rows import MetricRows
from dataaudit.manifest.tables import HELD_BACK
from dataaudit.metrics.family import LANGUAGES, SOURCES, Family, ShardStatistic, declare, statistics
from dataaudit.metrics.recomputed import COUNTS, LOST, Agrees, Follows, ManifestTables, Number, Numbers, Shape, of_shard
from dataaudit.metrics.shown import LONG, Highlight, Kind, Part, Shown, encoder_text, listed_shares

_DOCUMENTS, _TOKENS = Number("sources", "documents"), Number("sources", "tokens")


def _listed(name: str) -> Number:
    return Number("shards.sources", name)


def _declared(tables: ManifestTables, _: Shape) -> Numbers:
    """Return the declared shares of the sources of each training split."""
    core = tables.manifest.core
    weights = {source: entry["weight"] for source, entry in core.mixture.items() if "weight" in entry}
    whole = sum(weights.values())
    splits = [split.name for split in core.splits if whole and not split.held_out]
    return {(split, source): weight / whole for split in splits for source, weight in weights.items()}


FAMILY = Family(
    name="volume",
    metrics=(
        declare(
            "documents",
            statistics("count", "documents", LANGUAGES, is_amount=True, headline=True),
            statistics("empty with_nul", "documents", SOURCES),
            columns=(ShardStatistic("count", "documents", head="documents", shown_as="count"),),
        ),
        declare(
            "bytes",
            statistics("count", "bytes", LANGUAGES, is_amount=True, headline=True),
            columns=(ShardStatistic("count", "bytes"),),
        ),
        declare(
            "tokens",
            statistics("count", "tokens", LANGUAGES, is_amount=True, headline=True),
            columns=(ShardStatistic("count", "tokens", head="tokens", shown_as="count"),),
        ),
        declare(
            "source_mix_share",
            statistics("share", "ratio", "source, split and source", is_amount=True, draws="source", over_tokens=True),
            statistics(
                "declared", "ratio", "split and source", population="training", sources_of="training", over_tokens=True
            ),
            reading=5,
            first_rows=3,
            area="mixture",
        ),
    ),
    stage="dataaudit.metrics.volume.stage:Volume",
    stage_name="volume",
    by_split=("volume", "encoding"),
    tables={"sources": "volume"},
    checked_with=("sources", "shards"),
    checks=(
        *(Follows(name, "count", Number("sources", name), _DOCUMENTS, SOURCES) for name in COUNTS),
        Follows("source_mix_share", "share", _TOKENS, _TOKENS, "source, split and source", drops=frozenset({"source"})),
        Follows("source_mix_share", "declared", _declared, shapes="split and source"),
        *(
            Agrees(f"{name} of sources and of shards", Number("sources", name), _listed(name), SOURCES)
            for name in COUNTS
        ),
        *(of_shard(name, _listed(name)) for name in COUNTS),
    ),
)

_BARS, _SAID, _PATH = 15, 3, 4096
_LEGEND = (
    "docs: documents; length: tokens of a document; dups: share of documents whose text was seen before, white space"
    " aside, in their split or overall."
)
OFF_SHARE = 0.02
"""Absolute difference between a share and the declared share from which it is pointed out."""
_STATS = {
    "bytes_per_token": ("bytes_per_token", "ratio"),
    "seq_len_p50": ("seq_len_p50_p95", "p50"),
    "seq_len_p95": ("seq_len_p50_p95", "p95"),
    "exact_dup_rate": ("exact_dup_rate", "rate"),
    "exact_dup_rate_within_split": ("exact_dup_rate", "within_split_rate"),
}
"""Metric and statistic that stand beside the counts of a split, and of a source but for the last."""
_OF_SOURCES = tuple(_STATS)[:-1]
_HEADS: dict[str, tuple[str, Callable[[Any], Line] | None]] = {
    "documents": ("docs", None),
    "bytes": ("text", size),
    "tokens": ("tokens", None),
    "bytes_per_token": ("bytes/token", decimal),
    "seq_len_p50": ("length p50", decimal),
    "seq_len_p95": ("length p95", decimal),
    "exact_dup_rate_within_split": ("dups in split", share),
    "exact_dup_rate": ("dups overall", share),
}
"""Heading and format of each."""


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
    totals: dict[str, Any]
    """Counts, and the few metrics that are shown beside them; None where a metric has no value."""
    splits: list[dict[str, Any]]
    """The same of each split."""
    sources: list[dict[str, Any]]
    """Share of the training tokens beside the declared share, largest first; without a document last."""
    ledger: dict[str, Any]
    unread: list[dict[str, Any]]
    """Lost shards, of :func:`lost_shards`."""
    partial: list[dict[str, Any]]
    held_back: list[dict[str, Any]]
    """Skipped, as the quarantine list of the build says."""
    remarked: int
    """Shards with records that were read and are remarked in the ledger."""


@once
def overview(manifest: Manifest) -> Overview:
    """Return the facts of a manifest."""
    core, lost, rows = manifest.core, lost_shards(manifest), manifest.metric_rows()
    tokenizer, ledger = core.tokenizer, core.ledger
    values = {
        (record.metric, record.stat, record.scope.split): record.value
        for record in MetricRows.joined([rows.shaped(), rows.shaped("split")])
    }

    def volume(name: str | None, counts: Any, *, held_out: bool | None = None) -> dict[str, Any]:
        made = {"name": name or "", "held_out": held_out, "shards": counts.shards}
        made |= {count: getattr(counts, count) for count in COUNTS}
        return made | {key: values.get((*stat, name)) for key, stat in _STATS.items()}

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
        totals=volume(None, core.totals),
        splits=[volume(split.name, split, held_out=split.held_out) for split in core.splits],
        sources=_shares(manifest),
        ledger={
            "shards": ledger.shards.model_dump(),
            "stored_bytes": ledger.bytes.model_dump(),
            "documents": ledger.documents.model_dump(),
            "unread_bytes": ledger.bytes.planned - ledger.bytes.read - ledger.listed_bytes,
            "shards_of_unknown_documents": ledger.uncounted_shards,
            "listed_shards": ledger.listed_shards,
            "listed_bytes": ledger.listed_bytes,
        },
        remarked=_remarked(manifest),
        unread=[shard for shard in lost if shard["status"] in LOST and HELD_BACK not in shard["reasons"]],
        held_back=[shard for shard in lost if HELD_BACK in shard["reasons"]],
        partial=[shard for shard in lost if shard["status"] not in LOST],
    )


def shards_read(ledger: Mapping[str, Any]) -> str:
    """Return ``25 of 30 shards read, 5 held back by the list`` of the ledger of :func:`overview`."""
    shards, listed = ledger["shards"], ledger["listed_shards"]
    read = f"{t.count(shards['read'])} of {t.plural(shards['planned'], 'shard')} read"
    return f"{read}, {t.count(listed)} held back by the list" if listed else read


def _remarked(manifest: Manifest) -> int:
    """Return how many shards have records that were read and are remarked: a line of the ledger that counts none."""
    ledger = manifest.table("ledger", ["shard", "records"])
    return int(pc.count_distinct(ledger.filter(pc.equal(ledger["records"], 0))["shard"]).as_py())


@once
def lost_shards(manifest: Manifest) -> list[dict[str, Any]]:
    """Return every shard that was not read, or not as a whole, in the manifest's order.

    ``reasons`` are records lost by reason code, -1 when that cannot be known; ``bad_bytes`` decoded bytes of the bad
    records of a shard that was read.
    """
    shards = manifest.table("shards", ["shard", "split", "uri", "status", "size"])
    rows: list[dict[str, Any]] = shards.filter(pc.not_equal(shards["status"], "ok")).to_pylist()
    if not rows:
        return []
    ledger = manifest.table("ledger")
    reasons: dict[int, dict[str, int]] = {}
    sizes = Counter[int]()
    counts = ledger.group_by(["shard", "reason"]).aggregate([("records", "sum"), ("records", "min"), ("bytes", "sum")])
    for loss in counts.to_pylist():
        is_known = loss["records_min"] >= 0
        reasons.setdefault(loss["shard"], {})[loss["reason"]] = loss["records_sum"] if is_known else -1
        sizes[loss["shard"]] += loss["bytes_sum"] * is_known
    whole = ledger.filter(pc.less(ledger["records"], 0)).to_pylist()
    places = {loss["shard"]: loss["place"] for loss in whole}
    for row in rows:
        shard = row["shard"]
        row |= {"reasons": reasons.get(shard, {}), "bad_bytes": sizes[shard], "place": places.get(shard, "")}
    return rows


def source_volumes(manifest: Manifest, split: str, limit: int | None = None) -> tuple[list[dict[str, Any]], int]:
    """Return the largest sources of a split by tokens, and how many there are."""
    table = manifest.table("sources")
    rows = table.filter(pc.equal(table["split"], split)).to_pylist()
    rows.sort(key=lambda row: (-row["tokens"], row["source"]))
    chosen = rows[:limit]
    metrics = manifest.metric_rows().where(split=split).of_sources([row["source"] for row in chosen])
    values = {
        (key, record.scope.source): record.value
        for key in _OF_SOURCES
        for record in metrics.where(metric=_STATS[key][0], stat=_STATS[key][1])
    }
    return [
        {
            "name": row["source"],
            **{count: row[count] for count in COUNTS},
            **{key: values.get((key, row["source"])) for key in _OF_SOURCES},
        }
        for row in chosen
    ], len(rows)


def identity(view: Overview, *, here: bool = True) -> Facts:
    """Return what the manifest is and who counted its tokens; ``here`` tells where it lies."""
    tokenizer = view.tokenizer
    counts = {name: used["documents"] for name, used in tokenizer["counted_by"].items() if used["documents"]}
    counted = [f"{t.plural(number, 'document')} by {name}" for name, number in counts.items()]
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


def _columns(*keys: str) -> list[Column]:
    """Return the columns of counts and of the metrics beside them."""
    return [column(head, key, shown) for key, (head, shown) in _HEADS.items() if key in keys]


def splits_table(view: Overview) -> Table:
    """Return a row for each split, and a row for all."""
    held_out = [Name(volume["name"]) for volume in view.splits if volume["held_out"]]
    return table_of(
        "Splits",
        view.splits,
        column("split", "name", named),
        column("shards"),
        *_columns(*_HEADS),
        most=None,
        whole=True,
        foot=[view.totals] if len(view.splits) > 1 else [],
        noun="split",
        note=say("{}{}", _LEGEND, say(" Held out: {}.", join(", ", held_out)) if held_out else ""),
    )


def _off_by(item: Mapping[str, Any]) -> float:
    """Return how far a share is above the declared share; 0 where there is none."""
    return 0.0 if None in {item["share"], item["declared"]} else item["share"] - item["declared"]


def _is_off(item: Mapping[str, Any]) -> bool:
    """Return whether a share is so far from the declared share that it is pointed out."""
    return abs(_off_by(item)) > OFF_SHARE


def mixture(view: Overview) -> Section:
    """Return the largest sources: measured share of the training tokens beside the declared share."""
    shares = view.sources
    kind = "training" if any(not split["held_out"] for split in view.splits) else "held-out"
    declared = any(item["declared"] is not None for item in shares)
    off = sorted(filter(_is_off, shares), key=lambda item: -abs(_off_by(item)))
    points = f"{OFF_SHARE * 100:.0f} percentage points"
    lead: Line = f"{t.plural(len(shares), 'source')} of {kind} tokens."
    if off:
        text = "{} {} instead of {}"
        away = [
            say(text, Name(item["source"], 40), share(item["share"]), share(item["declared"]))
            for item in first(off, _SAID)
        ]
        many = f"{t.count(len(off))} of {t.plural(len(shares), 'source')} {'is' if len(off) == 1 else 'are'}"
        lead = say("{} over {} from the declared share: {}.", many, points, join("; ", away))
    elif declared:
        lead = f"{lead} Every share is within {points} of the declared one."
    blocks = (_sources(shares, kind, declared=declared),) if shares else ()
    return Section(id="mixture", title="Mixture", lead=lead, tone="warn" if off else "", blocks=blocks)


def _sources(shares: Sequence[dict[str, Any]], kind: str, *, declared: bool) -> Figure:
    def off_by(item: dict[str, Any]) -> Cell:
        known = None not in {item["share"], item["declared"]}
        return toned(measured(_off_by(item) if known else None, "ratio", signed=True), when=_is_off(item))

    def words(item: dict[str, Any]) -> Line:
        if item["declared"] is None:
            return share(item["share"])
        return say("{}, declared {}", share(item["share"]), share(item["declared"]))

    title = f"Sources, by share of {kind} tokens"
    table = table_of(
        title,
        shares,
        column("source", shown=Name),
        column("documents"),
        column("text", "bytes", size),
        column("tokens"),
        column("share of tokens", "share", share),
        *([column("declared", shown=share), column("off by", off_by)] if declared else []),
        noun="source",
        note=f"off by: found less declared; marked: more than {OFF_SHARE} apart." if declared else "",
    )
    made = (
        Bar(Name(item["source"]), item["share"] or 0.0, words(item), mark=item["declared"], loud=_is_off(item))
        for item in shares[:_BARS]
    )
    note = "Bar: found; line: declared; orange: more than two percentage points apart." if declared else ""
    chart = bars(f"share of {kind} tokens", made, percent=True)
    return Figure(id="chart-mixture", title=title, chart=chart, table=table, note=note)


def _sources_of(manifest: Manifest, split: dict[str, Any]) -> Table:
    """Return the sources of a split with the metrics that are kept for each."""
    volumes, number = source_volumes(manifest, split["name"], MOST_ROWS)

    def part(volume: dict[str, Any]) -> Line:
        return share(volume["tokens"] / split["tokens"] if split["tokens"] else None)

    return table_of(
        say("Sources of {}", Name(split["name"])),
        volumes,
        column("source", "name", Name),
        *_columns("documents", "tokens"),
        column("share", part),
        *_columns(*_OF_SOURCES),
        most=None,
        number=number,
        noun="source",
    )


def _shares(manifest: Manifest) -> list[dict[str, Any]]:
    """Return the share of each source in the training tokens (of all tokens when every split is held out)."""
    core = manifest.core
    training = [split.name for split in core.splits if not split.held_out]
    chosen = training or [split.name for split in core.splits]
    table = manifest.table("sources")
    table = table.filter(pc.is_in(table["split"], pa.array(chosen, pa.string())))
    weights = {source: entry["weight"] for source, entry in core.mixture.items()}
    sums = {source: dict.fromkeys(COUNTS, 0) for source in (*weights, *table["source"].to_pylist())}
    for row in table.to_pylist():
        for name in COUNTS:
            sums[row["source"]][name] += row[name]
    whole, tokens = sum(weights.values()), sum(counts["tokens"] for counts in sums.values())
    return [
        {
            "source": source,
            **counts,
            "share": counts["tokens"] / tokens if tokens else None,
            "declared": weights.get(source, 0.0) / whole if whole else None,
        }
        for source, counts in sorted(sums.items(), key=lambda item: (-item[1]["tokens"], item[0]))
    ]


def _highlights(manifest: Manifest) -> Iterator[Highlight]:
    view = overview(manifest)
    if off := sorted(filter(_is_off, view.sources), key=lambda item: (-abs(_off_by(item)), item["source"])):
        number = f"{t.count(len(off))} of {t.plural(len(view.sources), 'source')} off the declared share"
        yield Highlight(
            kind=Kind.MIXTURE,
            part="mixture",
            size=abs(_off_by(off[0])),
            place=off[0]["source"],
            link=" for",
            text=say("{}: {}", number, measured(_off_by(off[0]), "ratio", signed=True)),
        )
    if (reason := view.tokenizer["encoder_reason"]) != "ok":
        text = f"Tokens were counted by {encoder_text(reason)}"
        yield Highlight(kind=Kind.ENCODER, part="splits", area="tokens", size=1, text=text)


def _declared_mixture(manifest: Manifest) -> list[Section]:
    view = overview(manifest)
    return [mixture(view)] if any(source["declared"] is not None for source in view.sources) else []


def _sentences(manifest: Manifest) -> Iterator[Line]:
    sources = overview(manifest).sources
    shares = [(Name(item["source"], LONG), item["share"]) for item in sources if item["share"] is not None]
    if shares:
        yield say("Sources by share of the training tokens: {}.", listed_shares(shares, "further source"))


SHOWN = Shown(
    sentences=_sentences,
    parts=(
        Part(name="splits", blocks=lambda manifest: [splits_table(overview(manifest))]),
        Part(name="mixture", blocks=_declared_mixture),
        Part(area="mixture", blocks=lambda manifest: [mixture(overview(manifest)), splits_table(overview(manifest))]),
        Part(
            name="sources",
            blocks=lambda manifest: [_sources_of(manifest, split) for split in overview(manifest).splits],
        ),
        Part(area="tokens", blocks=lambda manifest: [identity(overview(manifest), here=False)]),
    ),
    highlights=_highlights,
    long_facts={
        "sources_by_split": lambda manifest: {
            split.name: source_volumes(manifest, split.name)[0] for split in manifest.core.splits
        }
    },
)
