"""Evidence: the shards with most of what broke a rule, or all rules; and the documents that stop a release.

Tables of the manifest list them as shard and row, without text. No table has the source or language of a document: of a
rule about a source or language, a document is certain where its shard has no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, product
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.errors import ManifestMismatch
from dataaudit.decide.gate.facts import UNREAD_STATES, Facts, read_facts
from dataaudit.decide.gate.judge import UNKNOWN_BYTES, UNREAD
from dataaudit.decide.gate.number_texts import reason_text, shown_count
from dataaudit.decide.gate.policy import Rule
from dataaudit.decide.gate.verdict import Case, Evidence, ShardBehind, State, Subject, Verdict
from dataaudit.decide.gate.writers.words import STOPPING, effect_of_case
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Scope, rounded
from dataaudit.metrics.family import TIERS, Broken, Counted, MetricDefinition, Population, ShardColumn
from dataaudit.metrics.overlap.evidence import shards_with
from dataaudit.metrics.peers import COLUMNS
from dataaudit.metrics.records import LISTED
from dataaudit.metrics.registry import METRICS, SHARD_STATISTICS, statistic

MOST_SHARDS = 5
MOST_BEHIND = 10_000
"""Shards behind all rules that a verdict lists; all are counted."""
_MOST_CASES = 20
"""Cases of a rule that get evidence: the worst."""
Counts = tuple[str, Mapping[int, int]]
"""A noun in the plural, and its number by shard."""
NOTHING: Counts = ("", {})
SAME, CHANGED, NEW = 0, 1, 2
"""A shard compared with the baseline, by content and by name."""
_DIGESTS = ("rows_digest", "sha256")
PARTS = ("source", "language")
"""Parts of a shard that the table of shards counts tokens of, in a column of that name and an s."""


def evidence_columns(rules: Sequence[Rule]) -> set[str]:
    """Return the columns of the table of shards that evidence for some rules needs."""
    columns = {"shard", "uri", *COLUMNS, "status", "reason", "documents", "tokens", *_DIGESTS}
    for rule in rules:
        columns |= {f"{name}s" for name in PARTS if name in rule.scope.fields}
        evidence = METRICS[rule.metric].evidence
        if isinstance(evidence, ShardColumn):
            columns |= {evidence.column, *filter(None, [evidence.but, evidence.kinds and evidence.kinds.name])}
        elif evidence is not None:
            columns |= set(evidence.columns)
    return columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Clues:
    """The tables in which evidence is looked up."""

    manifest: Manifest
    facts: Facts
    baseline: Manifest | None = None
    """The older manifest, against which shards are new."""
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    """Computed once for all cases."""

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

    def uri(self, shard: int) -> str:
        """Return ``split/uri`` of a shard."""
        return f"{self.shards['split'][shard].as_py()}/{self.shards['uri'][shard].as_py()}"

    def contents(self) -> np.ndarray:
        """Return what names the content of each shard."""
        if "contents" not in self.arrays:
            self.arrays["contents"] = _contents(self.facts.shards)
        return self.arrays["contents"]

    def since(self) -> np.ndarray:
        """Return uint8[n] of :data:`SAME`, :data:`CHANGED`, :data:`NEW`: each shard beside any baseline."""
        if self.baseline is None:
            return np.full(self.facts.shards.num_rows, SAME, dtype=np.uint8)
        if "since" not in self.arrays:
            older = self.baseline.table("shards", (*_DIGESTS, "split", "uri"))
            row_of = {name: row for row, name in enumerate(_names(older))}
            rows = np.array([row_of.get(name, -1) for name in _names(self.facts.shards)], dtype=np.int64)
            is_known = np.isin(self.contents(), _contents(older))
            self.arrays["rows"] = rows
            self.arrays["since"] = np.where(is_known, SAME, np.where(rows >= 0, CHANGED, NEW)).astype(np.uint8)
        return self.arrays["since"]


def with_evidence(verdict: Verdict, clues: Clues) -> Verdict:
    """Return the verdict with the shards that count most, for the worst of the cases that broke a rule, and for all."""
    results, ranking = [], Ranking()
    for result in verdict.rules:
        cases = []
        for index, case in enumerate(result.cases):
            noun, counts = counted(result.rule, case, clues) if index < _MOST_CASES and is_broken(case) else NOTHING
            cases.append(replace(case, evidence=_worst(counts, clues, noun)) if counts else case)
            if is_broken(case) and effect_of_case(verdict, result.rule, case) in STOPPING:
                ranking.add(result.rule, case, noun, counts)
        results.append(replace(result, cases=tuple(cases)))
    behind = tuple(
        ShardBehind(shard=shard, uri=clues.uri(shard), rules=rules, weight=weight, **_marks(clues.since()[shard]))
        for shard, rules, weight in ranking.first(MOST_BEHIND)
    )
    return replace(verdict, rules=tuple(results), shards_behind=behind, num_shards_behind=len(ranking))


class Ranking:
    """Shards by their part of what broke each rule, then by how many rules they broke."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[int]] = {}

    def __len__(self) -> int:
        return len(set().union(*self._counts.values()))

    def add(self, rule: Rule, case: Case, noun: str, counts: Mapping[int, int]) -> None:
        """Add what a case counts in each shard; of personal data as it is shown, so that no weight tells more.

        Shards that are cases themselves count the same each.
        """
        own = self._counts.setdefault(rule.name, Counter())
        if case.scope.shard is not None:
            own[case.scope.shard] += 1
            return
        shown = ((shard, shown_count(rule, number, noun)) for shard, number in counts.items())
        own.update({shard: number for shard, number in shown if number})

    def first(self, most: int) -> Iterator[tuple[int, tuple[str, ...], float]]:
        """Yield the first shards: row of the table, rules in the order that they came in, weight."""
        rules: dict[int, list[str]] = {}
        weights: dict[int, float] = {}
        for name, counts in self._counts.items():
            total = counts.total()
            for shard, number in counts.items():
                rules.setdefault(shard, []).append(name)
                weights[shard] = weights.get(shard, 0.0) + number / total
        order = sorted(rules, key=lambda shard: (-rounded(weights[shard]), -len(rules[shard]), shard))
        for shard in order[:most]:
            yield shard, tuple(rules[shard]), rounded(weights[shard])


def is_broken(case: Case) -> bool:
    """Return whether a number was beyond a limit, waived or not."""
    unread = case.reason == UNREAD or (case.reason == UNKNOWN_BYTES and bool(case.value))
    return case.state in {State.FAILED, State.WARNED} or unread


def counted(rule: Rule, case: Case, clues: Clues) -> Counts:
    """Return what of a case is counted in shards, and how much in each."""
    metric = METRICS[rule.metric]
    if case.scope.shard is not None:
        return _equals(case.scope.shard, clues) if metric.finds_copies else NOTHING
    if isinstance(metric.evidence, Counted):
        noun, counts = metric.evidence.count(Broken(metric=rule.metric, stat=case.stat, scope=case.scope), clues)
        return noun, clues.facts.beyond_tolerance(rule, counts)
    return _newcomers(rule, case, clues) if metric.evidence is None else _of_column(metric, case, clues)


def _newcomers(rule: Rule, case: Case, clues: Clues) -> Counts:
    """Count tokens of the shards that are new since the baseline, by which a share or a drift moved.

    Of a source or language they are its own tokens; where its share fell or is too small, those of the others. Of a
    shard that changed they are the difference; where there is none, all its tokens, unless tokens alone are counted.
    """
    shards, scope = clues.shards, case.scope
    fell = case.value is not None and case.baseline is not None and case.value < case.baseline
    fell |= rule.limit_kind == "budget" and rule.comparator in {">", ">="}
    known = statistic(rule.metric, case.stat)
    is_amount = known is not None and known.is_amount
    if fell and is_amount and rule.unit != "ratio":
        return NOTHING  # what came cannot have made it less
    if clues.baseline is None:
        return NOTHING
    noun, tokens = _tokens_in(shards, scope, others=fell and is_amount)
    older = clues.baseline.table("shards", ("tokens", *(f"{name}s" for name in PARTS)))
    _, before = _tokens_in(older, scope, others=fell and is_amount)
    since = clues.since()
    changed = since == CHANGED
    more = np.abs(tokens[changed] - before[clues.arrays["rows"][changed]])
    tokens[changed] = np.where(more, more, 0 if is_amount else tokens[changed])
    chosen = (since != SAME) & (tokens > 0)
    if scope.split is not None:
        chosen &= np.asarray(shards["split"].to_pylist(), dtype=object) == scope.split
    return noun, {int(shard): int(tokens[shard]) for shard in np.flatnonzero(chosen)}


def _tokens_in(shards: pa.Table, scope: Scope, *, others: bool) -> tuple[str, np.ndarray]:
    """Return int64[n] the tokens of each shard that are of a scope, or of the other sources or languages, in words."""
    noun, tokens = "tokens", shards["tokens"].to_numpy().copy()
    for name in PARTS:
        if (part := getattr(scope, name)) is not None:
            own = tokens_of(shards, name, part)
            if others:
                noun, own = f"tokens of other {name}s", shards["tokens"].to_numpy() - own
            tokens = np.minimum(tokens, own)
    return noun, tokens


def tokens_of(shards: pa.Table, name: str, part: str) -> np.ndarray:
    """int64[n]: tokens of a source or language in each shard."""
    column = shards[f"{name}s"]
    flat, parents = pc.list_flatten(column), pc.list_parent_indices(column).to_numpy()
    own = pc.equal(pc.struct_field(flat, name), part).to_numpy()
    tokens = np.zeros(shards.num_rows, dtype=np.int64)
    np.add.at(tokens, parents[own], pc.struct_field(flat, "tokens").to_numpy()[own])
    return tokens


def _equals(shard: int, clues: Clues) -> Counts:
    contents, documents = clues.contents(), clues.facts.shards["documents"].to_numpy()
    equal = np.flatnonzero(contents == contents[shard])
    return "documents, the same ones", {int(other): int(documents[other]) for other in equal if other != shard}


def _contents(shards: pa.Table) -> np.ndarray:
    """Return what names the content of each shard: the digest of its rows, else of its bytes, else its name."""
    columns = (shards[name].to_pylist() for name in (*_DIGESTS, "split", "uri"))
    contents = [rows or stored or f"{split}/{uri}" for rows, stored, split, uri in zip(*columns, strict=True)]
    return np.asarray(contents, dtype=str)


def _of_column(metric: MetricDefinition, case: Case, clues: Clues) -> Counts:
    evidence, shards, scope = metric.evidence, clues.shards, case.scope
    assert isinstance(evidence, ShardColumn)
    noun = evidence.noun
    values = pc.fill_null(pc.cast(shards[evidence.column], pa.float64()), 0.0).to_numpy().copy()
    if (kinds := evidence.kinds) is not None:
        tier, _, counted_in = case.stat.rpartition("_")
        if counted_in not in {"hits", "documents"} or tier not in {"", *TIERS}:
            return NOTHING
        if scope.entity is not None or tier != kinds.tier:
            noun, own = kinds.noun.format(tier).strip(), _of_kind(shards[kinds.name], kinds.counted, scope.entity, tier)
            values = own if kinds.counted == "hits" else np.minimum(own, values)  # tiers of a kind share documents
    documents = metric.documents if case.stat == evidence.listed else None
    rows = None if documents is None else documents(Broken(metric=metric.name, stat=case.stat, scope=scope), clues)
    if rows is not None:
        values = np.bincount(rows["shard"], minlength=len(values)).astype(float)
    elif evidence.share_of:
        of = shards[evidence.share_of].to_numpy()
        values *= of - pc.fill_null(shards[evidence.but], 0).to_numpy() if evidence.but else of
    values[pc.is_in(shards["status"], pa.array(UNREAD_STATES)).to_numpy()] = 0
    if scope.split is not None:
        values[np.asarray(shards["split"].to_pylist(), dtype=object) != scope.split] = 0
    if scope.source is not None:
        values[~shards_with(shards, scope.source)] = 0
    counts = {int(index): round(float(values[index])) for index in np.flatnonzero(values >= evidence.least - 0.5)}
    return noun, counts


def _of_kind(column: pa.ChunkedArray, counted_in: str, entity: str | None, tier: str) -> np.ndarray:
    """Return float64[n]: hits or documents of an entity and tier in each shard, of any where there is none."""
    flat, parents = pc.list_flatten(column), pc.list_parent_indices(column).to_numpy()
    own = np.ones(len(flat), dtype=bool)
    for name, wanted in (("entity", entity), ("tier", tier)):
        own &= pc.equal(pc.struct_field(flat, name), wanted).to_numpy() if wanted else True
    values = np.zeros(len(column))
    np.add.at(values, parents[own], pc.struct_field(flat, counted_in).to_numpy()[own])
    return values


def _worst(counts: Mapping[int, int], clues: Clues, noun: str) -> tuple[Evidence, ...]:
    """Return the shards with most, those first that are new since the baseline, then those that changed."""
    since = clues.since() if counts else np.zeros(0, dtype=np.uint8)
    worst = sorted(counts.items(), key=lambda item: (-int(since[item[0]]), -item[1], item[0]))[:MOST_SHARDS]
    return tuple(
        Evidence(shard=shard, uri=clues.uri(shard), count=count, noun=noun, **_marks(since[shard]))
        for shard, count in worst
    )


def _marks(since: int) -> dict[str, bool]:
    return {"fresh": bool(since == NEW), "changed": bool(since == CHANGED)}


def _names(shards: pa.Table) -> list[str]:
    names: list[str] = pc.binary_join_element_wise(shards["split"], shards["uri"], "/").to_pylist()
    return names


NO_ROWS, NO_NUMBER = "no_rows", "no_number"
BEYOND = "beyond_the_limit"
_ROWS = LISTED.append(pa.field("certain", pa.bool_()))
_NOUNS = {(item.metric, item.stat): item.noun for item in SHARD_STATISTICS}
_WHOLE = -1
"""Row of a line about a whole shard."""
_BATCH = 1 << 16
_AT_ONCE = 1 << 20
"""Bytes of lines that are written at once."""


class Failing(NamedTuple):
    """A document that broke a rule, or a shard; or why there is none."""

    rule: str
    metric: str
    split: str | None
    shard: str | None
    """URI, relative to the root of the split; None where nothing is listed."""
    row: int | None
    """Record of the shard, from 0, in reading order, bad records counted; None where the metric knows shards alone."""
    kind: str
    """What is wrong with it, joined by commas: a class of findings, ``exact_duplicate``, ``span`` ...; of a shard what
    is counted; ``no_rows`` and ``no_number`` where nothing is listed."""
    certain: bool
    """Whether it is of the rule's source or language for sure: its shard has no other."""
    why: str = ""
    """Why nothing is listed."""


def failing(verdict: Verdict, manifest: Manifest, baseline: Manifest | None = None) -> Iterator[Failing]:
    """Yield what broke each rule that stops a release: rules in the policy's order, then shards, then rows.

    Args:
        verdict: The verdict; nothing for a verdict that passes.
        manifest: The manifest that was judged.
        baseline: What it was compared with, to tell which shards are new.

    Raises:
        ManifestMismatch: The verdict is of another manifest or baseline, or a table is not the published one.
        ManifestError: A table is absent or damaged.
    """
    _same(verdict.subject, manifest, "manifest")
    if baseline is not None and verdict.baseline is not None:
        _same(verdict.baseline, baseline, "baseline")
    if verdict.passed:
        return
    stopped = {
        result.rule: [case for case in result.cases if effect_of_case(verdict, result.rule, case) in STOPPING]
        for result in verdict.rules
    }
    rules = [rule for rule, cases in stopped.items() if cases]
    columns = evidence_columns(rules) | {"sources", "languages"}
    partial = any(rule.max_bad_records is not None for rule in rules)
    clues = Clues(manifest=manifest, facts=read_facts(manifest, (), shards=columns, partial=partial), baseline=baseline)
    shards = _Shards(clues.shards)
    for rule in rules:
        yield from _of_rule(rule, stopped[rule], clues, shards)


def json_lines(items: Iterable[Failing]) -> Iterator[bytes]:
    """Yield JSON, a line for each item; the same items give the same bytes."""
    lines = bytearray()
    for item in items:
        line = item._asdict()
        if not item.why:
            del line["why"]
        lines += orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
        if len(lines) >= _AT_ONCE:
            yield bytes(lines)
            lines.clear()
    yield bytes(lines)


def _same(subject: Subject, manifest: Manifest, what: str) -> None:
    if subject.id != manifest.id:
        raise ManifestMismatch(
            f"the verdict is of another {what}: {subject.id}, this one is {manifest.id}", "Judge this one first."
        )


class _Shards:
    """The table of shards: names, and which shards are in a scope."""

    def __init__(self, table: pa.Table) -> None:
        self.splits: list[str] = table["split"].to_pylist()
        self.uris: list[str] = table["uri"].to_pylist()
        self._table = table
        self._parts: dict[str, list[list[str]]] = {}

    def _parts_of(self, name: str) -> list[list[str]]:
        if name not in self._parts:
            column = self._table[f"{name}s"].to_pylist()
            self._parts[name] = [[part[name] for part in parts or ()] for parts in column]
        return self._parts[name]

    def of(self, scopes: Collection[Scope]) -> tuple[np.ndarray, np.ndarray]:
        """Return bool[n]: shards in some scopes, and those with every document in them."""
        number = len(self.splits)
        alone = {scope.shard for scope in scopes if scope.shard is not None}
        if alone:
            chosen = np.isin(np.arange(number), sorted(alone))
            return chosen, chosen
        wanted = {(scope.split, scope.source, scope.language) for scope in scopes}
        if (None, None, None) in wanted:
            return np.ones(number, dtype=bool), np.ones(number, dtype=bool)
        named = [any(getattr(scope, name) is not None for scope in scopes) for name in PARTS]
        columns = [
            self._parts_of(name) if is_named else [[""]] * number for name, is_named in zip(PARTS, named, strict=True)
        ]
        chosen, certain = np.zeros(number, dtype=bool), np.zeros(number, dtype=bool)
        for shard, (split, *parts) in enumerate(zip(self.splits, *columns, strict=True)):
            is_in = [
                not wanted.isdisjoint(product((split, None), *((part, None) for part in pair)))
                for pair in product(*parts)
            ]
            chosen[shard], certain[shard] = any(is_in), all(is_in) and bool(is_in)
        return chosen, certain


def _of_rule(rule: Rule, cases: Sequence[Case], clues: Clues, shards: _Shards) -> Iterator[Failing]:
    broken = [case for case in cases if is_broken(case)]
    rows = _listed(rule, broken, clues, shards)
    batches = rows.to_batches(max_chunksize=_BATCH)
    lines = (line for batch in batches for line in zip(*(batch[name].to_pylist() for name in _ROWS.names), strict=True))
    for (shard, row), group in groupby(lines, itemgetter(0, 1)):
        same = list(group)
        kind = ", ".join(dict.fromkeys(item[2] for item in same))
        document = shards.splits[shard], shards.uris[shard], None if row == _WHOLE else row
        yield Failing(rule.name, rule.metric, *document, kind, any(item[3] for item in same))
    if broken and not rows.num_rows:
        yield _none(rule, NO_ROWS, "no table of the manifest holds rows or shards of it")
    if without := next((case for case in cases if not is_broken(case)), None):
        yield _none(rule, NO_NUMBER, reason_text(without.reason) + (f": {without.why}" if without.why else ""))


def _none(rule: Rule, kind: str, why: str) -> Failing:
    return Failing(rule.name, rule.metric, None, None, None, kind, certain=True, why=why)


def _listed(rule: Rule, cases: Sequence[Case], clues: Clues, shards: _Shards) -> pa.Table:
    """Return the documents, or shards, of all cases of a rule, sorted, with whether each is of the case for sure."""
    documents = METRICS[rule.metric].documents
    groups: dict[Broken, list[Case]] = {}
    for case in cases:
        scope = Scope(set=case.scope.set, entity=case.scope.entity, rule=case.scope.rule)
        groups.setdefault(Broken(metric=rule.metric, stat=case.stat, scope=scope), []).append(case)
    tables = [_ROWS.empty_table()]
    for broken, own in groups.items():
        chosen, certain = shards.of([case.scope for case in own])
        table = None if documents is None else documents(broken, clues)
        table = _shards_of(rule, own, clues, chosen) if table is None else table
        table = table.filter(pa.array(chosen).take(table["shard"]))
        alone = {case.scope.shard for case in own if case.scope.shard is not None}
        if alone:
            kind = _NOUNS.get((broken.metric, broken.stat)) or BEYOND
            table = pa.concat_tables([table, _whole(alone.difference(table["shard"].to_pylist()), kind)])
        tables.append(table.append_column("certain", pa.array(certain).take(table["shard"])))
    return pa.concat_tables(tables).sort_by([(name, "ascending") for name in _ROWS.names])


def _shards_of(rule: Rule, cases: Sequence[Case], clues: Clues, chosen: np.ndarray) -> pa.Table:
    if isinstance(METRICS[rule.metric].evidence, ShardColumn):
        cases = [replace(cases[0], scope=Scope())] if cases[0].scope.shard is None else ()
    tables = [LISTED.empty_table()]
    for case in cases:
        noun, counts = counted(rule, case, clues) if case.scope.shard is None else NOTHING
        shards = [shard for shard in counts if chosen[shard]]
        if METRICS[rule.metric].evidence is not None:
            tables.append(_whole(shards, noun))
            continue
        for since, word in ((NEW, "new"), (CHANGED, "changed")):
            some = [shard for shard in shards if clues.since()[shard] == since]
            tables.append(_whole(some, f"{noun}, {word} since the baseline"))
    return pa.concat_tables(tables).group_by(LISTED.names).aggregate([])


def _whole(shards: Collection[int | None], kind: str) -> pa.Table:
    rows = [{"shard": shard, "row": _WHOLE, "kind": kind} for shard in shards]
    return pa.Table.from_pylist(rows, schema=LISTED)
