"""Where to look: the shards that hold most of what broke a rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.gate.coverage import COVERAGE
from dataaudit.gate.facts import Facts
from dataaudit.gate.judge import UNREAD
from dataaudit.gate.policy import Rule
from dataaudit.gate.verdict import Case, Evidence, RuleResult, State, Verdict
from dataaudit.manifest.checked import checked_shards, checked_table
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Scope

MOST_SHARDS = 5
_MOST_CASES = 20
"""Cases of a rule that get evidence: the worst."""
_FEW = 5
"""Documents with personal data below which no number is given: it could point at a person."""
_COLUMNS = {
    "exact_dup_rate": ("exact_dup_rate", "documents seen before"),
    "near_dup_rate": ("near_dup_rate", "near-duplicates"),
    "near_dup_component_rate": ("near_dup_rate", "near-duplicates"),
    "filter_reject_rate": ("filter_reject_rate", "documents that a quality rule rejects"),
    "doc_repeat_hotspots": ("repeat_token_share", "tokens in repeated spans"),
    "data_toxicity_rate": ("toxicity_screen", "documents that the screen classifies as toxic"),
    "pii_hit_rate": ("pii_documents", "documents with personal data"),
    "secret_hit_rate": ("secrets_validated", "validated secrets"),
    COVERAGE: ("size", "bytes not read"),
}
"""Column of the table of shards by metric, and what it counts."""
_DIGESTS = ("rows_digest", "sha256")
_OF_TOKENS = frozenset({"doc_repeat_hotspots"})
_COUNTS = frozenset({"pii_hit_rate", "secret_hit_rate", COVERAGE})
"""Metrics whose column is a count already; the others are shares of documents or of tokens."""
_OF_COPIES = frozenset({"exact_dup_rate", "near_dup_rate"})
_SPAN_RULES = {"span": ("span", "whole"), "ngram": ("ngram", "whole")}


def evidence_columns(rules: Sequence[Rule]) -> set[str]:
    """Return the columns of the table of shards that evidence for some rules needs."""
    found = {_COLUMNS[rule.metric][0] for rule in rules if rule.metric in _COLUMNS}
    if any("source" in rule.scope.fields for rule in rules):
        found.add("sources")
    return found | {"shard", "uri", "split", "status", "documents", "tokens", *_DIGESTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Clues:
    """The tables in which evidence is looked up."""

    manifest: Manifest
    facts: Facts
    baseline: Manifest | None = None
    """The older manifest, to tell which shards are new."""
    tables: dict[str, pa.Table] = field(default_factory=dict)
    """Tables that were read and held against their digests."""
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    """What was made of them, once for all cases."""

    def table(self, name: str) -> pa.Table:
        """Return a table of the manifest, checked once."""
        if name not in self.tables:
            self.tables[name] = checked_table(self.manifest, name)
        return self.tables[name]

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
            known = _contents(checked_shards(self.baseline, _DIGESTS))
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
    held_out = clues.facts.held_out
    if case.scope.shard is not None:
        return _equals(case.scope.shard, clues) if rule.metric in _OF_COPIES else ()
    if rule.metric == "train_val_overlap" and case.stat.startswith("near_dup"):
        return _named(_near_copies(case, clues), clues, "near-duplicates of held-out documents")
    if rule.metric in {"train_val_overlap", "benchmark_contamination"}:
        noun = "documents with text of it" if rule.metric == "train_val_overlap" else "documents that hold an item"
        sets = (
            tuple(name for name, held in held_out.items() if held)
            if rule.metric == "train_val_overlap"
            else (clues.facts.protected)
        )
        return _named(_matches(case, clues, sets), clues, noun)
    if rule.metric in _COLUMNS:
        return _of_column(rule.metric, case.scope, clues)
    return ()


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


def _matches(case: Case, clues: Clues, sets: Sequence[str]) -> dict[int, int]:
    """Count the training documents of each shard that hold something of a set."""
    table = clues.table("overlap")
    wanted = [case.scope.set] if case.scope.set is not None else list(sets)
    kept = pc.is_in(table["set"], pa.array(wanted, pa.string()))
    rules = _SPAN_RULES.get(case.stat.removesuffix("_without_common"))
    for column, values in (
        ("rule", rules),
        ("tier", case.scope.rule and [case.scope.rule]),
        ("part", case.scope.entity and [case.scope.entity]),
    ):
        if values:
            kept = pc.and_(kept, pc.is_in(table[column], pa.array(list(values), pa.string())))
    rows = table.filter(kept).group_by(["shard", "row"]).aggregate([])
    counted = rows.group_by("shard").aggregate([([], "count_all")])
    found = dict(zip(counted["shard"].to_pylist(), counted["count_all"].to_pylist(), strict=True))
    if case.scope.source is None:
        return found
    held = _with_source(clues.facts.shards, case.scope.source)
    return {shard: number for shard, number in found.items() if held[shard]}


def _near_copies(case: Case, clues: Clues) -> dict[int, int]:
    """Count the training documents of each shard that are near-duplicates of held-out ones."""
    pairs = clues.table("pairs").filter(pc.field("verified"))
    splits = np.asarray(clues.facts.shards["split"].to_pylist(), dtype=object)
    sets = (case.scope.set,) if case.scope.set is not None else clues.facts.splits("held_out")
    leaked, training = np.isin(splits, sets), np.isin(splits, clues.facts.splits("training"))
    sides = [(pairs[f"{side}_shard"].to_numpy(), pairs[f"{side}_row"].to_numpy()) for side in ("left", "right")]
    copies = []
    for (shard, row), (other, _) in (sides, sides[::-1]):
        chosen = training[shard] & leaked[other]
        copies.append(np.column_stack([shard[chosen], row[chosen]]))
    documents = np.unique(np.concatenate(copies), axis=0)
    shards, counts = np.unique(documents[:, 0], return_counts=True)
    return dict(zip(shards.tolist(), counts.tolist(), strict=True))


def _of_column(metric: str, scope: Scope, clues: Clues) -> tuple[Evidence, ...]:
    column, noun = _COLUMNS[metric]
    shards = clues.facts.shards
    values = pc.fill_null(pc.cast(shards[column], pa.float64()), 0.0).to_numpy().copy()
    if metric not in _COUNTS:
        values *= shards["tokens" if metric in _OF_TOKENS else "documents"].to_numpy()
    lost = pc.is_in(shards["status"], pa.array(["quarantined", "skipped"])).to_numpy()
    values[lost != (metric == COVERAGE)] = 0
    if scope.split is not None:
        values[np.asarray(shards["split"].to_pylist(), dtype=object) != scope.split] = 0
    if scope.source is not None:
        values[~_with_source(shards, scope.source)] = 0
    least = _FEW if metric == "pii_hit_rate" else 1
    counts = {int(index): round(float(values[index])) for index in np.flatnonzero(values >= least - 0.5)}
    return _named(counts, clues, noun)


def _with_source(shards: pa.Table, source: str) -> np.ndarray:
    """Return which shards hold a source."""
    flat = pc.list_flatten(shards["sources"])
    parents = pc.list_parent_indices(shards["sources"]).to_numpy()
    held = np.zeros(shards.num_rows, dtype=bool)
    held[parents[pc.equal(pc.struct_field(flat, "source"), source).to_numpy()]] = True
    return held


def _named(counts: dict[int, int], clues: Clues, noun: str) -> tuple[Evidence, ...]:
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
