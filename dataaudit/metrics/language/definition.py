"""Languages: which share of tokens each has, and how far two detectors agree."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base import text as t
from dataaudit.base.render.blocks import Bar, Figure, Prose, Section, bars, column, empty_section, table_of
from dataaudit.base.render.line import Interval, Line, Name, say, share, size
from dataaudit.manifest.load import Manifest, once
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.metrics.family import LANGUAGE_DETECTION, SOURCES, Family, ShardStatistic, declare, statistics
from dataaudit.metrics.peers import COLUMN, UND, unusual_language_shares
from dataaudit.metrics.recomputed import COUNTS, Agrees, Follows, ManifestTables, Number, Numbers, Shape, of_shard
from dataaudit.metrics.shown import LONG, Part, ShardValues, Shown, floats, listed_shares

METRIC = "language_share"
_DETECTORS = ("combined", "pycld2", "fasttext")
"""Names of those that say a language, among all detectors of a manifest."""


def _decided_by(stat: str) -> Collection[str]:
    return (LANGUAGE_DETECTION, *_DETECTORS) if stat == "detector_agreement" else (LANGUAGE_DETECTION,)


_BY_LANGUAGE = "language, split and language"
_SHARES = f"{_BY_LANGUAGE}, source and language, split and source and language"


def _of(name: str) -> Number:
    return Number("languages", name)


def _unusual(tables: ManifestTables, _: Shape) -> Numbers:
    shares = unusual_language_shares(tables.rows("planned"))
    return {(shard,): share for shard, share in enumerate(shares.tolist()) if not math.isnan(share)}


FAMILY = Family(
    name="language",
    metrics=(
        declare(
            METRIC,
            statistics(
                "share",
                "ratio",
                "language, split and language, source and language, split and source and language",
                is_amount=True,
                draws="language",
                over_tokens=True,
            ),
            statistics("detector_agreement", "ratio", "all, split", over_tokens=True),
            statistics("unusual", "ratio", "shard"),
            reading=5,
            decided_by=_decided_by,
            area="languages",
            columns=(ShardStatistic("unusual", COLUMN, noun="documents in an unusual language", absent="no_words"),),
        ),
    ),
    stage="dataaudit.metrics.language.stage:Language",
    stage_name="language",
    tables={"languages": "languages"},
    checked_with=("languages", "sources", "shards"),
    checks=(
        *(Follows(name, "count", _of(name), _of("documents"), _BY_LANGUAGE) for name in COUNTS),
        Follows("bytes_per_token", "ratio", _of("bytes"), _of("tokens"), _BY_LANGUAGE),
        Follows(METRIC, "share", _of("tokens"), _of("tokens"), _SHARES, drops=frozenset({"language"})),
        *(
            Agrees(f"{name} of languages and {table}", _of(name), Number(table, name), shapes)
            for name in COUNTS
            for table, shapes in (("sources", SOURCES), ("shards.languages", f"all, split, {_BY_LANGUAGE}"))
        ),
        of_shard(COLUMN, _unusual),
    ),
    looked_for=True,
)

_BARS = 15
_LEAST_SD = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Languages:
    """Languages of the training data (of everything when every split is held out)."""

    parts: list[dict[str, Any]]
    """Largest first, ``und`` among them: language, documents, bytes, tokens, share of all tokens."""
    detectors: tuple[str, ...]
    """Name and version of each; the first decides."""
    agreement: Metric | None
    """How often the detectors agree on a sample."""
    kind: Literal["training", "held-out"]
    """Splits whose shares these are."""


@once
def languages(manifest: Manifest) -> Languages | None:
    """Return the languages, or None when they were not looked for."""
    core = manifest.core
    detectors = [detector for detector in core.detectors if detector.name in _DETECTORS]
    if not detectors:
        return None
    trained = [split.name for split in core.splits if not split.held_out]
    rows = manifest.table("languages")
    chosen = trained or [split.name for split in core.splits]
    rows = rows.filter(pc.is_in(rows["split"], pa.array(chosen, pa.string())))
    sums = rows.group_by("language").aggregate([(name, "sum") for name in COUNTS])
    sums = sums.rename_columns(["language", *COUNTS]).sort_by([("tokens", "descending"), ("language", "ascending")])
    total = sum(sums["tokens"].to_pylist())
    agreement = manifest.metrics("language_share", "detector_agreement", Scope())
    decider = core.config.get("language", {}).get("detector")
    detectors.sort(key=lambda detector: detector.name != decider)
    return Languages(
        parts=[row | {"share": row["tokens"] / total if total else None} for row in sums.to_pylist()],
        detectors=tuple(f"{detector.name} {detector.version}" for detector in detectors),
        agreement=agreement[0] if agreement and agreement[0].status == "ok" else None,
        kind="training" if trained else "held-out",
    )


def _plain(manifest: Manifest) -> dict[str, Any] | None:
    """Return languages as plain values for JSON."""
    result = languages(manifest)
    if result is None:
        return None
    agreement = result.agreement
    return {
        "detectors": result.detectors,
        "training": result.parts,
        "detector_agreement": agreement
        and {"value": agreement.value, "low": agreement.low, "high": agreement.high, "documents": agreement.n},
    }


def section(result: Languages | None) -> Section:
    """Return the languages of the training data."""
    if result is None or not result.parts:
        return empty_section("languages", "Languages", "Languages were not detected in this build.")
    top, others = result.parts[0], len(result.parts) - 1
    rest = f"{t.plural(others, 'other language')} share the rest" if others else "no other language was found"
    lead = say("{} has {} of the {} tokens; {}.", Name(top["language"]), share(top["share"]), result.kind, rest)
    table = table_of(
        f"Languages, by share of {result.kind} tokens",
        [part for part in result.parts if part["language"] != UND],
        column("language", shown=Name),
        column("documents"),
        column("text", "bytes", size),
        column("tokens"),
        column("share of tokens", "share", share),
        foot=[part for part in result.parts if part["language"] == UND],
        noun="language",
        folded=True,
    )
    made = (Bar(Name(part["language"]), part["share"] or 0.0, share(part["share"])) for part in result.parts[:_BARS])
    figure = Figure(
        id="chart-languages",
        title="Languages",
        chart=bars(f"share of {result.kind} tokens", made, percent=True),
        table=table,
        says=lead,
        note=f"The first {_BARS} of {len(result.parts)}." if len(result.parts) > _BARS else "",
    )
    blocks = (figure, Prose(text=_detectors(result), tone="quiet"))
    return Section(id="languages", title="Languages", lead=lead, blocks=blocks)


def _detectors(result: Languages) -> Line:
    text = say(
        "Decided by {}; {}: not sure enough, fewer than four words, or no letters.", Name(result.detectors[0]), UND
    )
    record = result.agreement
    if record is None or len(result.detectors) < 2:
        return text
    return say(
        "{} {} agrees on {} of {} sampled ({}).",
        text,
        Name(result.detectors[1]),
        share(record.value),
        t.plural(record.n, "document"),
        Interval(record.low, record.high),
    )


def _shard_values(manifest: Manifest) -> list[ShardValues]:
    """Return the share of documents in languages that the source of a shard has less of."""
    table = manifest.table("shards", ["documents", COLUMN])
    return [
        ShardValues(
            column=COLUMN,
            text="documents in a language unusual in its source",
            values=floats(table[COLUMN]),
            least_sd=_LEAST_SD,
            documents=floats(table["documents"]),
            only_above=True,
        )
    ]


def _sentences(manifest: Manifest) -> Iterator[Line]:
    result = languages(manifest)
    if result is not None and result.parts:
        shares = [(Name(part["language"], LONG), part["share"]) for part in result.parts]
        yield say(
            "Languages by share of the {}: {}; decided by {}, und where it is not sure.",
            "training tokens" if result.kind == "training" else "tokens",
            listed_shares(shares, "further language"),
            Name(result.detectors[0], LONG),
        )


SHOWN = Shown(
    sentences=_sentences,
    parts=(Part(name="languages", area="languages", blocks=lambda manifest: [section(languages(manifest))]),),
    shard_values=_shard_values,
    facts={"languages": _plain},
)
