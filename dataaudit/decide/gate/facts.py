"""What the gate knows of a manifest: records that a policy asks for, scopes there ought to be, what was not read.

Also the record of a scope, what its absence means, and what it is compared with in a baseline.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.decide.gate.judge import AT_LEAST, EMPTY, NEW, NO_BASELINE, Compared
from dataaudit.decide.gate.policy import COVERAGE, Rule
from dataaudit.decide.gate.verdict import Subject
from dataaudit.manifest.canonical import digest_json
from dataaudit.manifest.core import Core
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.manifest.tables import HELD_BACK, TABLES
from dataaudit.metrics.comparable import Meaning, Meant
from dataaudit.metrics.coverage.definition import bad_share
from dataaudit.metrics.family import LOWER_BOUNDS, TRUNCATED, Statistic
from dataaudit.metrics.overlap.evidence import NEARLY_ALL
from dataaudit.metrics.registry import METRICS

UNREAD_STATES = ("quarantined", "skipped")
"""States of shards of which nothing was read."""
_EMPTY_FILE = hashlib.sha256().hexdigest()
MIXTURE = "source_mix_share"
_OTHER = "other"
"""The name of sources beyond the config's `max_sources`."""
Wordless = Mapping[Scope, tuple[int, int]]
"""By split, source, or both: documents without a word, of so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """A shard that was read without its bad records."""

    shard: int
    """Row of the table of shards."""
    share: float
    """Of its records, or of its bytes, that are bad: the larger."""
    bad_bytes: int
    """Of these, decoded; 0 where a record has no text at all."""
    size: int
    """Stored bytes of the shard."""


class Records(Mapping[tuple[str, str], Mapping[Scope, Metric]]):
    """Metric records by (metric, stat), then by scope; those of a statistic are made when it is first asked for."""

    def __init__(self, manifest: Manifest, metrics: Collection[str]) -> None:
        rows = manifest.metric_rows()
        of_metrics = {name: rows.where(metric=name) for name in sorted(metrics)}
        self._rows = {(name, stat): own for name, own in of_metrics.items() for stat in own.names("stat")}
        self._made: dict[tuple[str, str], dict[Scope, Metric]] = {}

    def __getitem__(self, key: tuple[str, str]) -> Mapping[Scope, Metric]:
        """Return the records of a statistic by scope."""
        if key not in self._made:
            self._made[key] = {record.scope: record for record in self._rows[key].where(stat=key[1])}
        return self._made[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Return every metric and statistic of which there is a record."""
        return iter(self._rows)

    def __len__(self) -> int:
        """Return the number of statistics."""
        return len(self._rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What rules are judged by; of it only how much was read depends on the policy."""

    subject: Subject
    core: Core
    held_out: dict[str, bool]
    """Of every split: whether it is held out."""
    sources: dict[str, frozenset[str]]
    """By split."""
    languages: dict[str, frozenset[tuple[str, ...]]]
    """Pairs of a source and a language by split."""
    protected: tuple[str, ...]
    """Names of the evaluation sets that were looked for."""
    entities: dict[str, frozenset[str]]
    """Entity types that were looked for in every document, by metric."""
    detectable: frozenset[str]
    """Codes that the language detectors can give; other languages were not looked for."""
    stages: frozenset[str] = frozenset()
    """That ran."""
    held_out_rows: dict[str, str] = field(default_factory=dict)
    """Of every held-out split: the digest of its shards' digests of rows, in any order."""
    partial: tuple[Partial, ...] = ()
    """The shards that were read without some of their records."""
    unsized: frozenset[tuple[str, str]] = frozenset()
    """Split and reason of every shard that was not read and whose bytes nobody knows, though it counts as 0."""
    wordless: Wordless = field(default_factory=dict)
    is_folded: bool
    """Whether there were too many sources to name all: those without a name are `other` together."""
    records: Mapping[tuple[str, str], Mapping[Scope, Metric]]
    shards: pa.Table = field(default_factory=TABLES["shards"].schema.empty_table)
    """The table of shards; empty when no rule and no evidence needs it."""

    def find(self, metric: str, stat: str, scope: Scope) -> Metric | None:
        """Return the record of exactly this scope."""
        return self.records.get((metric, stat), {}).get(scope)

    def has(self, metric: str) -> bool:
        """Return whether there is any record of a metric."""
        return any(name == metric for name, _ in self.records)

    def splits(self, population: str) -> tuple[str, ...]:
        """Return the splits of ``all``, ``training`` or ``held_out``."""
        return splits_of(self.held_out, population)

    def records_of(self, stat: Statistic) -> Mapping[Scope, Metric]:
        """Return the records of a statistic by scope."""
        return self.records.get((stat.metric, stat.stat), {})

    def sets_of(self, metric: str) -> tuple[str, ...]:
        """Return the names of the sets that a metric is kept for: evaluation sets, or held-out splits."""
        return self.protected if METRICS[metric].sets == "evaluation" else self.splits("held_out")

    def without_tolerated(self, rule: Rule, record: Metric | None) -> Metric | None:
        """Return a record of unread bytes without the bad records that a rule tolerates.

        A shard of which more is bad counts as unread as a whole, whatever the build's `reader.max_bad_records` let
        pass: a record without a text loses no byte.
        """
        if rule.max_bad_records is None or record is None or record.value is None:
            return record
        value = record.value
        for shard in self.partial:
            value += -shard.bad_bytes + (shard.size if shard.share > rule.max_bad_records else 0)
        return replace(record, value=max(0.0, value))

    def beyond_tolerance(self, rule: Rule, counts: Mapping[int, int]) -> Mapping[int, int]:
        """Return unread bytes by shard as :meth:`without_tolerated` counts them."""
        if rule.max_bad_records is None:
            return counts
        own = {item.shard: item.size if item.share > rule.max_bad_records else 0 for item in self.partial}
        return {shard: number for shard, number in {**counts, **own}.items() if number}

    def is_of_unknown_size(self, rule: Rule, scope: Scope) -> bool:
        """Return whether a number of unread bytes lacks a shard whose bytes nobody knows: a link to nothing, a pipe.

        A shard of a streamed dataset has none, and counts whole where too many of its records are bad.
        """
        own = (scope.split in {None, split} and scope.rule in {None, reason} for split, reason in self.unsized)
        most = rule.max_bad_records
        streamed = most is not None and any(not item.size and item.share > most for item in self.partial)
        return rule.metric == COVERAGE and (streamed or any(own))

    def is_at_least(self, metric: str, stat: str, scope: Scope) -> bool:
        """Return whether a number counts findings, and documents of its part of the corpus were not searched whole."""
        if not METRICS[metric].searches_with or stat not in LOWER_BOUNDS:
            return False
        record = self.find(metric, TRUNCATED, Scope(split=scope.split, source=scope.source))
        return record is not None and bool(record.value)

    def cannot_be_found(self, stat: Statistic, scope: Scope) -> bool:
        """Return whether nine of ten documents and more, in all that a number speaks of, hold no word."""
        if not (self.wordless and METRICS[stat.metric].in_words):
            return False
        if METRICS[stat.metric].sets and self._have_no_words(*(Scope(split=name) for name in self.splits("training"))):
            return True  # what is looked for can stand nowhere
        if scope.source is not None and scope.set is None:
            return self._have_no_words(Scope(split=scope.split, source=scope.source))
        named = scope.split or scope.set
        splits = (named,) if named in self.held_out else self.splits(stat.population)
        return self._have_no_words(*(Scope(split=name) for name in splits))

    def _have_no_words(self, *scopes: Scope) -> bool:
        shares = [self.wordless.get(scope, (0, 1)) for scope in scopes]
        return bool(shares) and all(without >= NEARLY_ALL * of for without, of in shares)


def splits_of(held_out: Mapping[str, bool], population: str) -> tuple[str, ...]:
    """Return the splits of ``all``, ``training`` or ``held_out``, given which are held out."""
    wanted = {"all": (True, False), "training": (False,), "held_out": (True,)}[population]
    return tuple(name for name, is_held_out in held_out.items() if is_held_out in wanted)


def read_facts(
    manifest: Manifest, metrics: Collection[str], *, shards: Collection[str], partial: bool = False
) -> Facts:
    """Read what rules about some metrics need; every table that is read is checked against its digest in the core."""
    core = manifest.core
    sources = _by_split(manifest.table("sources"), "source")
    return Facts(
        subject=Subject(
            id=manifest.id,
            name=core.dataset.name,
            version=core.dataset.version,
            documents=core.totals.documents,
            shards=core.ledger.shards.planned,
        ),
        core=core,
        held_out={split.name: split.held_out for split in core.splits},
        sources={split: frozenset(name for (name,) in names) for split, names in sources.items()},
        languages=_by_split(manifest.table("languages"), "source", "language"),
        protected=tuple(record.name for record in core.protected),
        entities={
            name: frozenset().union(*(own.entities for own in core.detectors if own.name == metric.searches_with))
            for name, metric in METRICS.items()
            if metric.searches_with
        },
        detectable=frozenset({"und", *(code for detector in core.detectors for code in detector.languages)}),
        stages=frozenset(stage.name for stage in core.stages),
        held_out_rows={split.name: _rows(manifest, split.name) for split in core.splits if split.held_out},
        partial=_partial(manifest) if partial else (),
        unsized=_unsized(manifest),
        wordless=_wordless(manifest),
        is_folded=_is_folded(manifest, sources),
        records=Records(manifest, metrics),
        shards=manifest.table("shards", sorted(shards)) if shards else TABLES["shards"].schema.empty_table(),
    )


def _rows(manifest: Manifest, split: str) -> str:
    table = manifest.table("shards", ["split", "rows_digest"])
    digests = table.filter(pc.equal(table["split"], split))["rows_digest"].to_pylist()
    return digest_json(sorted(digest or "" for digest in digests))


def _wordless(manifest: Manifest) -> Wordless:
    records = [
        *((record.scope, record) for record in manifest.metrics("near_dup_rate", "no_words")),
        *((Scope(split=record.scope.set), record) for record in manifest.metrics("train_val_overlap", "no_words")),
    ]
    return {scope: (int(record.value), record.n) for scope, record in records if record.value}


def _unsized(manifest: Manifest) -> frozenset[tuple[str, str]]:
    """Return split and reason of unread shards of 0 bytes, but of files that were seen to be empty."""
    shards = manifest.table("shards", ["split", "status", "reason", "size", "sha256"]).to_pylist()
    return frozenset(
        (row["split"], row["reason"])
        for row in shards
        if row["status"] in UNREAD_STATES
        and row["reason"] != HELD_BACK
        and not row["size"]
        and row["sha256"] != _EMPTY_FILE
    )


def _partial(manifest: Manifest) -> tuple[Partial, ...]:
    shards = manifest.table("shards", ["shard", "size", "status", "rows", "bad_records", "bytes"])
    bad = shards.filter(
        pc.and_(pc.greater(shards["bad_records"], 0), pc.invert(pc.is_in(shards["status"], pa.array(UNREAD_STATES))))
    )
    counted = manifest.table("ledger").group_by("shard").aggregate([("bytes", "sum")]).to_pylist()
    lost = {row["shard"]: row["bytes_sum"] for row in counted}
    return tuple(
        Partial(
            shard=row["shard"],
            share=bad_share(row["bad_records"], row["rows"], bad_bytes, row["bytes"]),
            bad_bytes=bad_bytes,
            size=row["size"],
        )
        for row in bad.to_pylist()
        for bad_bytes in [lost.get(row["shard"], 0)]
    )


def _by_split(table: pa.Table, *columns: str) -> dict[str, frozenset[tuple[str, ...]]]:
    by_split: dict[str, set[tuple[str, ...]]] = {}
    rows = table.group_by(["split", *columns]).aggregate([])
    for split, *values in zip(*(rows[name].to_pylist() for name in ("split", *columns)), strict=True):
        by_split.setdefault(split, set()).add(tuple(values))
    return {split: frozenset(values) for split, values in by_split.items()}


def _is_folded(manifest: Manifest, sources: dict[str, frozenset[tuple[str, ...]]]) -> bool:
    """Return whether some sources have lost their names; a corpus may also have a source `other`."""
    named = {name for names in sources.values() for (name,) in names}
    limit = manifest.core.config.get("max_sources")
    return _OTHER in named and isinstance(limit, int) and len(named) >= limit


_BASELINE_MISSING = "baseline_missing"


def record_of(stat: Statistic, facts: Facts, scope: Scope) -> Metric | None:
    """Return the record of a scope; 0 where its absence means that there is none of it.

    A part that has nothing has no record. That it has nothing is known from elsewhere: from the tables of sources and
    languages, or from what was looked for and the record of the statistic for all parts together.
    """
    record = facts.records_of(stat).get(scope) or why_not_at_all(stat, facts, scope)
    if record is not None:
        return record
    if stat.zero_version and not facts.has(stat.metric) and scope.split in {None, *facts.held_out}:
        return replace(_zero(stat, scope, None), version=stat.zero_version)
    if stat.is_amount:
        return _no_amount(stat, facts, scope)
    zero = [name for name in stat.absent_is_zero if getattr(scope, name) is not None]
    if not zero or not _was_looked_for(stat, facts, scope):
        return None
    whole = facts.records_of(stat).get(replace(scope, **dict.fromkeys(zero)))
    if whole is None or whole.status != "ok":
        return None if whole is None else replace(whole, scope=scope)
    return _zero(stat, scope, whole)


def _no_amount(stat: Statistic, facts: Facts, scope: Scope) -> Metric | None:
    """Return 0 for a source or language that the manifest does not list; None where it does, or cannot tell."""
    unknown = scope.split is not None and scope.split not in facts.held_out
    unnamed = facts.is_folded and scope.source is not None
    unnamed = unnamed or (scope.language is not None and scope.language not in facts.detectable)
    records = facts.records_of(stat)
    if not records or unknown or unnamed or scope.source is scope.language is None or _is_listed(facts, scope):
        return None
    fields = scope.as_dict().keys()
    near = (item for at, item in records.items() if at.split == scope.split and at.as_dict().keys() == fields)
    return _zero(stat, scope, records.get(Scope(split=scope.split)) or next(near, None))


def _zero(stat: Statistic, scope: Scope, whole: Metric | None) -> Metric:
    """Return a record of nothing, of as much as another record speaks of."""
    zero = Metric(metric=stat.metric, stat=stat.stat, scope=scope, unit=stat.unit, value=0.0)
    if whole is None:
        return zero
    return replace(zero, n=whole.n, denominator=whole.denominator, version=whole.version)


def _was_looked_for(stat: Statistic, facts: Facts, scope: Scope) -> bool:
    """Return whether a part would have a record if there were any of it: names may be written wrongly."""
    if scope.entity is not None and "entity" in stat.absent_is_zero:
        return scope.entity in facts.entities.get(stat.metric, ())
    if scope.source is not None and "source" in stat.absent_is_zero:
        return any(scope.source in facts.sources.get(split, ()) for split in facts.splits(stat.sources_of))
    return True


def why_not_at_all(stat: Statistic, facts: Facts, scope: Scope) -> Metric | None:
    """Return why a part has no number, where the whole dataset has none for a reason that holds for its parts."""
    whole = facts.records_of(stat).get(Scope())
    if whole is None or whole.status == "ok" or whole.reason == EMPTY:
        return None
    return replace(whole, scope=scope)


def _is_listed(facts: Facts, scope: Scope) -> bool:
    """Return whether the manifest's own tables say that there is some of a source, of a language, or of both."""
    splits = facts.held_out if scope.split is None else (scope.split,)
    if scope.language is None:
        return any(scope.source in facts.sources.get(split, ()) for split in splits)
    pairs = (pair for split in splits for pair in facts.languages.get(split, ()))
    return any(scope.source in {None, source} and scope.language == language for source, language in pairs)


def declared_for(scope: Scope, now: Facts) -> Compared:
    """Return the share that the build's config declares for a source of a split, 0 where it does not name it."""
    declared = now.records.get((MIXTURE, "declared"), {})
    if scope in declared:
        return Compared(value=declared[scope].value)
    has_any = any(other.split == scope.split for other in declared)
    return Compared(value=0.0) if has_any else Compared(reason="no_mixture")


def is_in_corpus(facts: Facts, scope: Scope) -> bool:
    """Return whether a manifest lists the split, the source and the language of a scope, as far as it names them."""
    if scope.split is not None and scope.split not in facts.held_out:
        return False
    return scope.source is scope.language is None or _is_listed(facts, scope)


def compared_with(
    stat: Statistic, scope: Scope, record: Metric | None, baseline: Facts | None, meaning: Meaning | None
) -> Compared:
    """Return what a record is compared with in the baseline, or why there is nothing."""
    if baseline is None or meaning is None:
        return Compared(reason=NO_BASELINE)
    other = record_of(stat, baseline, scope)
    if other is None:
        return Compared(reason=_BASELINE_MISSING if is_part(stat, baseline, scope) else NEW)
    if baseline.is_at_least(stat.metric, stat.stat, scope):
        return Compared(reason=f"baseline_{AT_LEAST}")
    if other.value is None:
        return Compared(reason=f"baseline_{other.reason}" if other.status == "not_evaluated" else other.reason)
    was, now = (Meant(metric.unit, metric.version) for metric in (other, record or other))
    if why_not := meaning.between(was, now, stat.metric, stat.stat, scope.as_dict()):
        return Compared(reason=why_not)
    return Compared(value=other.value, denominator=other.denominator)


def is_part(stat: Statistic, facts: Facts, scope: Scope) -> bool:
    """Return whether the corpus has the split, source, language or set that a scope names: its record is missing."""
    return is_in_corpus(facts, scope) and (scope.set is None or scope.set in facts.sets_of(stat.metric))
