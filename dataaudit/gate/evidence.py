"""Where to look: the shards that hold most of what broke a rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.gate.facts import Facts
from dataaudit.gate.judge import UNREAD
from dataaudit.gate.policy import Rule
from dataaudit.gate.verdict import Case, Evidence, RuleResult, State, Verdict
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Scope
from dataaudit.manifest.tables import HELD_BACK
from dataaudit.metrics.family import Counted, Population, ShardColumn
from dataaudit.metrics.overlap.evidence import shards_with
from dataaudit.metrics.registry import METRICS

MOST_SHARDS = 5
_MOST_CASES = 20
"""Cases of a rule that get evidence: the worst."""
_DIGESTS = ("rows_digest", "sha256")


def evidence_columns(rules: Sequence[Rule]) -> set[str]:
    """Return the columns of the table of shards that evidence for some rules needs."""
    evidence = (METRICS[rule.metric].evidence for rule in rules)
    found = {one.column for one in evidence if isinstance(one, ShardColumn)}
    if any("source" in rule.scope.fields for rule in rules):
        found.add("sources")
    return found | {"shard", "uri", "split", "status", "reason", "documents", "tokens", *_DIGESTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Broken:
    """A case that does not hold, as the evidence of its metric sees it."""

    metric: str
    stat: str
    scope: Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Clues:
    """The tables in which evidence is looked up."""

    manifest: Manifest
    facts: Facts
    baseline: Manifest | None = None
    """The older manifest, to tell which shards are new."""
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    """What was made of tables, once for all cases."""

    @property
    def shards(self) -> pa.Table:
        """Return the table of shards, with the columns of :func:`evidence_columns`."""
        return self.facts.shards

    @property
    def sets(self) -> Sequence[str]:
        """Return the names of the evaluation sets."""
        return self.facts.protected

    def splits(self, population: Population) -> Sequence[str]:
        """Return the names of splits."""
        return self.facts.splits(population)

    def table(self, name: str) -> pa.Table:
        """Return a table of the manifest."""
        return self.manifest.table(name)

    def contents(self) -> np.ndarray:
        """Return what names the content of each shard."""
        if "contents" not in self.arrays:
            self.arrays["contents"] = _contents(self.facts.shards)
        return self.arrays["contents"]

    def fresh(self) -> np.ndarray:
        """Return which shards hold what no shard of the baseline holds; none without a baseline."""
        if self.baseline is None:
            return np.zeros(self.facts.shards.num_rows, dtype=bool)
        if "fresh" not in self.arrays:
            known = _contents(self.baseline.table("shards", _DIGESTS))
            self.arrays["fresh"] = ~np.isin(self.contents(), known)
        return self.arrays["fresh"]


def with_evidence(verdict: Verdict, clues: Clues) -> Verdict:
    """Return the verdict with the shards that count most, for the worst of the cases that broke a rule.

    Raises:
        ManifestError: A table is absent or damaged.
        ManifestMismatch: A table is not the one that the manifest was published with.
    """
    return replace(verdict, rules=tuple(_with_evidence(result, clues) for result in verdict.rules))


def _with_evidence(result: RuleResult, clues: Clues) -> RuleResult:
    worst, rest = result.cases[:_MOST_CASES], result.cases[_MOST_CASES:]
    found = (
        replace(case, evidence=_evidence(result.rule, case, clues)) if _is_broken(case) else case for case in worst
    )
    return replace(result, cases=(*found, *rest))


def _is_broken(case: Case) -> bool:
    return case.state in {State.FAILED, State.WARNED} or case.reason == UNREAD


def _evidence(rule: Rule, case: Case, clues: Clues) -> tuple[Evidence, ...]:
    metric = METRICS[rule.metric]
    if case.scope.shard is not None:
        return _equals(case.scope.shard, clues) if metric.finds_copies else ()
    if isinstance(metric.evidence, Counted):
        noun, counts = metric.evidence.count(_Broken(metric=rule.metric, stat=case.stat, scope=case.scope), clues)
        return _named(counts, clues, noun)
    return _newcomers(case.scope, clues) if metric.evidence is None else _of_column(metric.evidence, case.scope, clues)


def _newcomers(scope: Scope, clues: Clues) -> tuple[Evidence, ...]:
    """Name the largest shards that are new since the baseline: what moved, a share or a drift, moved by them."""
    shards = clues.shards
    chosen = clues.fresh() & (shards["tokens"].to_numpy() > 0)
    if scope.split is not None:
        chosen &= np.asarray(shards["split"].to_pylist(), dtype=object) == scope.split
    if scope.source is not None and chosen.any():
        chosen &= shards_with(shards, scope.source)
    tokens = shards["tokens"].to_numpy()
    return _named({int(one): int(tokens[one]) for one in np.flatnonzero(chosen)}, clues, "tokens")


def _equals(shard: int, clues: Clues) -> tuple[Evidence, ...]:
    """Name the shards that hold the same documents as one."""
    contents = clues.contents()
    twins = np.flatnonzero((contents == contents[shard]) & (contents != ""))
    documents = clues.facts.shards["documents"].to_numpy()
    return _named({int(one): int(documents[one]) for one in twins if one != shard}, clues, "documents, the same ones")


def _contents(shards: pa.Table) -> np.ndarray:
    """Return what names the content of each shard: the digest of its rows, else of its bytes."""
    rows, stored = (shards[name].to_pylist() for name in _DIGESTS)
    return np.asarray([one or other for one, other in zip(rows, stored, strict=True)], dtype=str)


def _of_column(evidence: ShardColumn, scope: Scope, clues: Clues) -> tuple[Evidence, ...]:
    shards = clues.shards
    values = pc.fill_null(pc.cast(shards[evidence.column], pa.float64()), 0.0).to_numpy().copy()
    if evidence.share_of:
        values *= shards[evidence.share_of].to_numpy()
    lost = pc.is_in(shards["status"], pa.array(["quarantined", "skipped"]))
    lost = pc.and_(lost, pc.not_equal(shards["reason"], HELD_BACK)).to_numpy()
    values[lost != evidence.unread] = 0
    if scope.split is not None:
        values[np.asarray(shards["split"].to_pylist(), dtype=object) != scope.split] = 0
    if scope.source is not None:
        values[~shards_with(shards, scope.source)] = 0
    counts = {int(index): round(float(values[index])) for index in np.flatnonzero(values >= evidence.least - 0.5)}
    return _named(counts, clues, evidence.noun)


def _named(counts: Mapping[int, int], clues: Clues, noun: str) -> tuple[Evidence, ...]:
    """Return the shards with most, those first that are new since the baseline."""
    fresh = clues.fresh() if counts else np.zeros(0, dtype=bool)
    worst = sorted(counts.items(), key=lambda item: (not fresh[item[0]], -item[1], item[0]))[:MOST_SHARDS]
    shards = clues.facts.shards
    return tuple(
        Evidence(
            shard=shard,
            uri=f"{shards['split'][shard].as_py()}/{shards['uri'][shard].as_py()}",
            count=count,
            noun=noun,
            fresh=bool(fresh[shard]),
        )
        for shard, count in worst
    )
