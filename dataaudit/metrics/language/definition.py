"""Languages: which share of tokens each has, and how far two detectors agree.

Languages of the training data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base import text as t
from dataaudit.base.render.blocks import Bar, Figure, Prose, Row, Section, Table, bars, names, numbers, rows_of
from dataaudit.base.render.line import Interval, Line, Name, say, share, size
from dataaudit.manifest.core import DetectorRecord
from dataaudit.manifest.load import Manifest, once
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.metrics.family import LANGUAGE_DETECTION, Family, MetricDefinition, ShardStatistic, statistics
from dataaudit.metrics.peers import COLUMN, unusual_language_shares
from dataaudit.metrics.recomputed import (
    BY_SOURCE,
    COUNTS,
    Agrees,
    Follows,
    ManifestTables,
    Number,
    Numbers,
    Shape,
    of_shard,
)
from dataaudit.metrics.shown import LONG, Part, ShardValues, Shown, floats, listed_shares

METRIC = "language_share"
_DETECTORS = ("combined", "pycld2", "fasttext")


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
        MetricDefinition(
            name=METRIC,
            statistics=(
                *statistics(
                    METRIC,
                    "share",
                    "ratio",
                    "language, split and language, source and language, split and source and language",
                    is_amount=True,
                    draws="language",
                    over_tokens=True,
                ),
                *statistics(METRIC, "detector_agreement", "ratio", "all, split", over_tokens=True),
                *statistics(METRIC, "unusual", "ratio", "shard"),
            ),
            reading=5,
            decided_by=_decided_by,
            area="languages",
        ),
    ),
    shard_statistics=(
        ShardStatistic(
            metric=METRIC,
            stat="unusual",
            column="unusual_language_share",
            by_chance=True,
            noun="documents in an unusual language",
            absent="no_words",
        ),
    ),
    stage="dataaudit.metrics.language.stage:Language",
    stage_name="language",
    tables={"languages": "languages"},
    shown="dataaudit.metrics.language.definition:SHOWN",
    checked_with=("languages", "sources", "shards"),
    checks=(
        *(Follows(name, "count", _of(name), _of("documents"), _BY_LANGUAGE) for name in COUNTS),
        Follows("bytes_per_token", "ratio", _of("bytes"), _of("tokens"), _BY_LANGUAGE),
        Follows(METRIC, "share", _of("tokens"), _of("tokens"), _SHARES, drops=frozenset({"language"})),
        *(
            Agrees(f"{name} of languages and {table}", _of(name), Number(table, name), shapes)
            for name in COUNTS
            for table, shapes in (("sources", BY_SOURCE), ("shards.languages", f"all, split, {_BY_LANGUAGE}"))
        ),
        of_shard(COLUMN, _unusual),
    ),
    looked_for=True,
)

UND = "und"
_BARS = 15
_LEAST_SD = 0.02
_LANGUAGE_DETECTORS = ("combined", "pycld2", "fasttext")
"""Names of those that say a language, among all detectors of a manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguagePart:
    """One language's part of the training tokens."""

    language: str
    documents: int
    bytes: int
    tokens: int
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Languages:
    """Languages of the training data (of everything when every split is held out)."""

    parts: tuple[LanguagePart, ...]
    """Largest first, ``und`` among them."""
    detectors: tuple[str, ...]
    """Name and version of each; the first one decides."""
    agreement: Metric | None
    """How often the detectors agree on a sample."""
    trained: bool
    """Whether the shares are those of training splits; without one, of all, which are then held out."""


@once
def languages(manifest: Manifest) -> Languages | None:
    """Return the languages, or None when they were not looked for."""
    core = manifest.core
    detectors = [detector for detector in core.detectors if detector.name in _LANGUAGE_DETECTORS]
    if not detectors:
        return None
    trained = [split.name for split in core.splits if not split.held_out]
    training = trained or [split.name for split in core.splits]
    rows = manifest.table("languages")
    rows = rows.filter(pc.is_in(rows["split"], pa.array(training, pa.string())))
    names = ("documents", "bytes", "tokens")
    sums = rows.group_by("language").aggregate([(name, "sum") for name in names]).to_pylist()
    total = sum(row["tokens_sum"] for row in sums)
    parts = [
        LanguagePart(
            language=row["language"],
            **{name: row[f"{name}_sum"] for name in names},
            share=row["tokens_sum"] / total if total else None,
        )
        for row in sorted(sums, key=lambda row: (-row["tokens_sum"], row["language"]))
    ]
    agreement = manifest.metrics("language_share", "detector_agreement", Scope())
    return Languages(
        parts=tuple(parts),
        detectors=tuple(
            f"{detector.name} {detector.version}" for detector in sorted(detectors, key=_decides(core.config))
        ),
        agreement=agreement[0] if agreement and agreement[0].status == "ok" else None,
        trained=bool(trained),
    )


def _plain(manifest: Manifest) -> dict[str, Any] | None:
    """Return languages as plain values for JSON."""
    found = languages(manifest)
    if found is None:
        return None
    agreement = found.agreement
    return {
        "detectors": found.detectors,
        "training": [asdict(part) for part in found.parts],
        "detector_agreement": None
        if agreement is None
        else {"value": agreement.value, "low": agreement.low, "high": agreement.high, "documents": agreement.n},
    }


def section(found: Languages | None) -> Section:
    """Return the languages of the training data."""
    if found is None or not found.parts:
        none = "Languages were not detected in this build."
        return Section(id="languages", title="Languages", lead=none, tone="quiet")
    top, others = found.parts[0], len(found.parts) - 1
    kind = "training" if found.trained else "held-out"
    rest = f"{t.plural(others, 'other language')} share the rest" if others else "no other language was found"
    lead = say("{} has {} of the {} tokens; {}.", Name(top.language), share(top.share), kind, rest)

    def row(part: LanguagePart) -> Row:
        return Name(part.language), part.documents, size(part.bytes), part.tokens, share(part.share)

    und = [language_part for language_part in found.parts if language_part.language == UND]
    chosen = [language_part for language_part in found.parts if language_part.language != UND]
    table = Table(
        title=f"Languages, by share of {kind} tokens",
        columns=(*names("language"), *numbers("documents", "text", "tokens", "share of tokens")),
        **rows_of(chosen, row),
        foot=tuple(map(row, und)),
        noun="language",
        folded=True,
    )
    figure = Figure(
        id="chart-languages",
        title="Languages",
        chart=bars(
            f"share of {kind} tokens",
            (
                Bar(Name(language_part.language), language_part.share or 0.0, share(language_part.share))
                for language_part in found.parts[:_BARS]
            ),
            percent=True,
        ),
        table=table,
        says=lead,
        note=f"The first {_BARS} of {len(found.parts)}." if len(found.parts) > _BARS else "",
    )
    return Section(
        id="languages", title="Languages", lead=lead, blocks=(figure, Prose(text=_detectors(found), tone="quiet"))
    )


def _detectors(found: Languages) -> Line:
    text = say(
        "Decided by {}; {}: not sure enough, fewer than four words, or no letters.", Name(found.detectors[0]), UND
    )
    record = found.agreement
    if record is None or len(found.detectors) < 2:
        return text
    return say(
        "{} {} agrees on {} of {} sampled ({}).",
        text,
        Name(found.detectors[1]),
        share(record.value),
        t.plural(record.n, "document"),
        Interval(record.low, record.high),
    )


def _decides(config: Mapping[str, Any]) -> Callable[[DetectorRecord], bool]:
    """Return a key that puts the detector first whose answer counts."""
    decider = config.get("language", {}).get("detector")
    return lambda record: record.name != decider


def _shard_values(manifest: Manifest) -> list[ShardValues]:
    """Return the share of documents in languages that the source of a shard has less of."""
    table = manifest.table("shards", ["documents", "unusual_language_share"])
    text = "documents in a language unusual in its source"
    values, documents = floats(table["unusual_language_share"]), floats(table["documents"])
    return [
        ShardValues(
            column="unusual_language_share",
            text=text,
            values=values,
            least_sd=_LEAST_SD,
            documents=documents,
            only_above=True,
        )
    ]


def _sentences(manifest: Manifest) -> Iterator[Line]:
    found = languages(manifest)
    if found is not None and found.parts:
        yield say(
            "Languages by share of the {}: {}; decided by {}, und where it is not sure.",
            "training tokens" if found.trained else "tokens",
            listed_shares(
                [(Name(language_part.language, LONG), language_part.share) for language_part in found.parts],
                "further language",
            ),
            Name(found.detectors[0], LONG),
        )


SHOWN = Shown(
    sentences=_sentences,
    parts=(Part(name="languages", area="languages", blocks=lambda manifest: [section(languages(manifest))]),),
    shard_values=_shard_values,
    facts={"languages": _plain},
)
