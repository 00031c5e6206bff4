"""What a family of metrics declares: all that those who read manifests need to know of it.

A family is a folder of this package. Its ``definition.py`` is read by gate, diff and reports, so it imports neither
what scans nor what needs an extra; stage and link step are named by path (:func:`pkgutil.resolve_name`).

What families of pattern findings share: their statistics by tier.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.metric import Scope
from dataaudit.metrics.recomputed import Agrees, Check, Condition, Follows, Number, shapes_of

Population = Literal["all", "training", "held_out"]
Shape = frozenset[str]
Draws = Literal["", "documents", "source", "language"]

SOURCES = "all, split, source, split and source"
LANGUAGES = f"{SOURCES}, language, split and language"
ENTITIES = f"{SOURCES}, entity, split and entity, source and entity, split and source and entity"
RULES = f"{SOURCES}, rule, split and rule, source and rule, split and source and rule"
CLASSES = (
    f"{SOURCES}, language, entity, split and entity, source and entity, split and source and entity,"
    " language and entity"
)
LAST = 99
"""Place of a metric that nobody has to act on."""
LANGUAGE_DETECTION = "the language detector"
"""Stands for the detector and the settings that decide a document's language."""
JUDGE = "the judge"
"""Stands for the models that judge toxicity: their names are the user's choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic:
    """One statistic of a metric."""

    metric: str = ""
    """Named by :func:`declare`."""
    stat: str
    unit: str
    shapes: frozenset[Shape]
    """The sets of scope fields for which there are records; the empty set stands for the whole dataset."""
    population: Population = "all"
    """Which splits it speaks of."""
    sources_of: Population = "all"
    """Splits whose sources its scopes name: held-out data in training is counted by training's sources."""
    absent_is_zero: frozenset[str] = frozenset()
    """Scope fields whose values have a record only where there is something: no record means none of it, as long as
    it was looked for, and there is a record without the field."""
    zero_version: str = ""
    """Version in which a manifest without any record of the metric has none of it, 0; else empty."""
    is_amount: bool = False
    """Whether it is how much of the corpus a source or language makes: 0 of those that the manifest does not list."""
    headline: bool = False
    """Whether its record of the whole dataset is among those that are shown first."""
    draws: Draws = ""
    """Of what a share is that chance moves: documents, or tokens of a source or language; empty when chance is not
    asked."""
    over_tokens: bool = False
    """Whether it is a ratio of tokens, so that it depends on the tokenizer."""
    against_reference: bool = False
    """Whether it compares with the reference manifest."""


def statistics(stats: str, unit: str, shapes: str, **more: Any) -> tuple[Statistic, ...]:
    """Return statistics that differ in name alone; without a unit, the name is the unit, too."""
    sets = frozenset(map(frozenset, shapes_of(shapes)))
    return tuple(Statistic(stat=stat, unit=unit or stat, shapes=sets, **more) for stat in stats.split())


@dataclass(frozen=True, slots=True)
class ShardStatistic:
    """A statistic that the table of shards has a column for."""

    stat: str
    column: str
    _: KW_ONLY
    metric: str = ""
    """Named by :func:`declare`."""
    of: str = "documents"
    """Column of what it is of: there is no number where that is 0."""
    but: str = ""
    """Column of what of these does not count; empty where all does."""
    undecided: str = ""
    """Column of documents that may count, too: with them the share is the upper bound."""
    by_chance: str = ""
    """Column of what chance alone gives on average, within a factor: the statistic is what is beyond it."""
    longest: str = ""
    """Column of how much of that the longest document is, where it is a mean that a single document moves."""
    per_document: bool = False
    """Whether the column counts documents, of which the statistic is the share."""
    population: Population = "all"
    estimated: bool = False
    """Whether it is an estimate; the table holds no interval for it."""
    head: str = ""
    """Heading in the report's table of all shards; empty where it is no column of that."""
    shown_as: Literal["count", "number", "share", "size", "few"] = "share"
    """How the report writes it; few: personal data, of which small counts are not shown."""
    spare: bool = False
    """Whether it is left out of that table when the page would be too large."""
    absent: str = "missing"
    """Reason of a shard that has documents and no number."""
    noun: str = ""
    """What it counts, in words, for lists of what failed; empty where a shard is just beyond the limit."""
    compared: bool = False
    """Whether `inspect` sets it beside the median of the split's other shards."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Columns that it is computed from."""
        return tuple(filter(None, (self.of, self.column, self.but, self.undecided, self.by_chance, self.longest)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A case of a rule that does not hold, as the evidence of its metric sees it."""

    metric: str
    stat: str
    scope: Scope
    """Part of the corpus."""


class Tables(Protocol):
    """What evidence is looked up in."""

    @property
    def shards(self) -> pa.Table:
        """Return the table of shards, with the columns that evidence asks for."""
        ...

    @property
    def sets(self) -> Sequence[str]:
        """Return the names of the evaluation sets."""
        ...

    def splits(self, population: Population) -> Sequence[str]:
        """Return the names of splits."""
        ...

    def table(self, name: str) -> pa.Table:
        """Return a table of the manifest."""
        ...


class KindColumn(NamedTuple):
    """Column of the table of shards with hits and documents by entity and tier."""

    name: str
    counted: Literal["hits", "documents"]
    noun: str
    """What is counted, in the plural; ``{}`` stands for the tier."""
    tier: str = ""
    """Tier that the column of all kinds counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardColumn:
    """Evidence that a column of the table of shards gives."""

    column: str
    noun: str
    """What is counted, in the plural."""
    share_of: Literal["", "documents", "tokens"] = "documents"
    """What the column is a share of; empty when it counts already."""
    but: str = ""
    """Column of what of these does not count; empty where all does."""
    least: int = 1
    """Number below which a shard is not named: of personal data a small one could point at a person."""
    kinds: KindColumn | None = None
    """Column that tells kinds and tiers of findings apart; ``column`` has those of all kinds."""
    listed: str = ""
    """Statistic that the column does not count: the documents behind it are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Evidence that is counted in tables: what it counts, and number by shard."""

    count: Callable[[Broken, Tables], tuple[str, Mapping[int, int]]]
    columns: tuple[str, ...] = ()
    """Columns of the table of shards that it asks for, beside those that every evidence has."""


Evidence = ShardColumn | Counted


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDefinition:
    """One metric: what of it is kept, and how it is read."""

    name: str
    statistics: tuple[Statistic, ...]
    columns: tuple[ShardStatistic, ...] = ()
    """Those of them that the table of shards has a column for."""
    reading: int = LAST
    """Place among the metrics that people act on; several may share a place. 0 leaks, 1 contamination, 2 secrets,
    3 personal data, 4 toxicity, 5 mixture and languages, 6 duplicates and repeats, 7 drift, 8 quality, 9 lengths."""
    first_rows: int = 1
    """Changed rows of it that a difference lists before it goes to the next metric."""
    evidence: Evidence | None = None
    """Which shards are behind a number."""
    documents: Callable[[Broken, Tables], pa.Table | None] | None = None
    """Documents behind a number, of schema :data:`dataaudit.metrics.records.LISTED`: those of the case's set, entity
    and rule, of any split, source, language and shard. None where the metric, or a statistic, knows shards alone."""
    finds_copies: bool = False
    """Whether a shard's number counts documents that other shards hold, too."""
    sets: Literal["", "evaluation", "held_out"] = ""
    """What the sets in its scopes are."""
    decided_by: Callable[[str], Collection[str]] | None = None
    """Detectors that decide a statistic, by its name; also :data:`LANGUAGE_DETECTION` and :data:`JUDGE`."""
    counts_tokens: Callable[[str | None], bool] | None = None
    """Whether the record of a rule, None for any, counts tokens though its unit does not say so."""
    searches_with: str = ""
    """Detector whose entities it looks for in every document."""
    entities: frozenset[str] = frozenset()
    """Entities that its scopes can name; with :attr:`searches_with` those that ship, and a manifest names what else it
    looked for. Empty where they are not known here."""
    in_words: bool = False
    """Whether it counts what stands in words: where texts hold none, 0 of it is no result."""
    area: str = ""
    """Id of the section of the report that says more."""
    personal: bool = False
    """Whether small counts could point at a person, and are not shown."""
    by_stage: bool = True
    """Whether the stage of its family decides it."""
    numbered: bool = False
    """Whether its statistics end in a number of the user's choice; :attr:`statistics` have some of them."""


def declare(
    name: str, *groups: Iterable[Statistic], columns: Iterable[ShardStatistic] = (), **more: Any
) -> MetricDefinition:
    """Return a metric with its statistics, which it names; ``more`` are further fields of it."""
    return MetricDefinition(
        name=name,
        statistics=tuple(replace(item, metric=name) for group in groups for item in group),
        columns=tuple(replace(item, metric=name) for item in columns),
        **more,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family of metrics."""

    name: str
    metrics: tuple[MetricDefinition, ...] = ()
    stage: str = ""
    """Path of the stage that counts it: ``package.module:Class``."""
    link: str = ""
    """Path of the link step, for what meets across shards."""
    stage_name: str = ""
    """Name of the stage, when it is the family's own or that of a sibling."""
    kernels: tuple[str, ...] = ()
    """Modules of ``scan/kernels`` that its stage alone calls: a build without it does not compile them."""
    by_shard: tuple[str, ...] = ()
    """Tables of its partials of which link steps see the rows of each shard: the driver holds them."""
    by_split: tuple[str, ...] = ()
    """Tables of its partials of which they see the sums of each split."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """Tables of the manifest that are partials of the stage by split: the table's name, and the partial's."""
    finish: str = ""
    """Path of what makes tables of the merged partials, as :func:`dataaudit.metrics.drift.stage.drift_table`."""
    looked_for: bool = False
    """Whether `show` names its stage when that did not run: then nothing of it can stand out."""
    harmless: frozenset[str] = frozenset()
    """Parameters of the stage that change no number, or only how much of it is kept or how it is estimated."""
    config: str = ""
    """Part of the config that decides what its metrics mean."""
    detector: str = ""
    """Detector of its rows in the table of findings."""
    checked_with: tuple[str, ...] = ()
    """Tables that determine numbers of it, or that its numbers determine."""
    checks: tuple[Check, ...] = ()
    """What of its numbers those tables determine: see :mod:`dataaudit.metrics.relations`."""

    @property
    def shard_statistics(self) -> tuple[ShardStatistic, ...]:
        """Return the statistics that the table of shards has a column for."""
        return tuple(item for metric in self.metrics for item in metric.columns)


TIERS = ("validated", "contextual", "pattern")
"""How sure a finding is, the surest first."""
TRUNCATED = "truncated"
"""Statistic that counts the documents that were not searched whole."""
LOWER_BOUNDS = frozenset(
    {"reserved", *(f"{tier}{stat}" for tier in ("", *(f"{tier}_" for tier in TIERS)) for stat in ("hits", "documents"))}
)
"""Statistics that are lower bounds where there are such documents."""


def pattern_statistics(*, hits: str, documents: str, draws: Draws = "") -> Iterator[Statistic]:
    """Yield the statistics of findings: hits and documents in all and by tier, reserved values, cut documents."""
    entity = frozenset({"entity"})
    for stat, unit, drawn in (("hits", hits, ""), ("documents", documents, draws)):
        names = " ".join((stat, *(f"{tier}_{stat}" for tier in TIERS)))
        yield from statistics(names, unit, ENTITIES, absent_is_zero=entity, draws=drawn)
    yield from statistics("reserved", "hits", ENTITIES, absent_is_zero=entity)
    yield from statistics(TRUNCATED, "documents", SOURCES, absent_is_zero=entity)


def found_of(detector: str, column: str, tier: str = "", *, reserved: bool = False, of_entity: bool = False) -> Number:
    """Return the hits or documents that a detector's patterns found: of a tier or all, reserved values or others."""

    def rows() -> pc.Expression:
        kept = (pc.field("detector") == detector) & (pc.field("tier") == tier) & (pc.field("reserved") == reserved)
        return kept & ((pc.field("entity") != "") == of_entity)

    return Number("found", column, Condition(rows))


def pattern_checks(metric: str, detector: str, among: str, column: str) -> Iterator[Check]:
    """Yield that the statistics of findings, and a column of lists of shards, follow from the rows of ``findings``."""
    documents, hits = Number("shards", "documents"), Number("shards", among)
    for of_entity, shapes in ((False, "all, split"), (True, "entity, split and entity")):
        reserved = found_of(detector, "hits", reserved=True, of_entity=of_entity)
        yield Follows(metric, "reserved", reserved, documents, shapes)
        for tier in ("", *TIERS):
            prefix = f"{tier}_" if tier else ""
            for name, whole in (("hits", hits), ("documents", documents)):
                yield Follows(
                    metric, f"{prefix}{name}", found_of(detector, name, tier, of_entity=of_entity), whole, shapes
                )

    def rows() -> pc.Expression:
        kinds = (pc.field("entity") != "") & (pc.field("tier") != "") & ~pc.field("reserved")
        return (pc.field("detector") == detector) & kinds

    hits = Number("found", "hits", Condition(rows))
    yield Agrees(f"hits of shards: {column}", Number(f"shards.{column}", "hits"), hits, "shard and entity and tier")
