"""Where each rule broke: the documents that stop a release, or the shards where a metric knows no more.

Tables of the manifest hold them as shard and row; no text is anywhere. Which source or language a document is of, no
table tells: of a rule about one of them a document is certain where its shard holds no other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, product
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from dataaudit.errors import ManifestMismatch
from dataaudit.gate.evidence import CHANGED, NEW, NOTHING, PARTS, Broken, Clues, counted, evidence_columns, is_broken
from dataaudit.gate.facts import read_facts
from dataaudit.gate.policy import Rule
from dataaudit.gate.reasons import reason_text
from dataaudit.gate.verdict import Case, Subject, Verdict
from dataaudit.gate.writers.effects import STOPPING, effect_of_case
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.documents import LISTED
from dataaudit.metrics.family import ShardColumn
from dataaudit.metrics.registry import METRICS, SHARD_STATISTICS

NO_ROWS, NO_NUMBER = "no_rows", "no_number"
BEYOND = "beyond_the_limit"
_FOUND = LISTED.append(pa.field("certain", pa.bool_()))
_NOUNS = {(one.metric, one.stat): one.noun for one in SHARD_STATISTICS}
_WHOLE = -1
"""Row of a line about a whole shard."""
_BATCH = 1 << 16
_AT_ONCE = 1 << 20
"""Bytes of lines that are written at once."""


class Failing(NamedTuple):
    """One document of what broke a rule, or one shard; or why there is none."""

    rule: str
    metric: str
    split: str | None
    shard: str | None
    """Its URI, relative to the root of the split; None where nothing is listed."""
    row: int | None
    """Record of the shard, from 0, in reading order, bad records counted; None where the metric knows shards alone."""
    kind: str
    """What is wrong with it, several joined by a comma: a class of findings, ``exact_duplicate``, ``span`` ...; of a
    shard what it holds; ``no_rows`` and ``no_number`` where nothing is listed."""
    certain: bool
    """Whether it is of the rule's source or language for sure: its shard holds no other."""
    why: str = ""
    """Why nothing is listed."""


def failing(verdict: Verdict, manifest: Manifest, baseline: Manifest | None = None) -> Iterator[Failing]:
    """Yield what broke each rule that stops a release: rules in the policy's order, then shards, then rows.

    Args:
        verdict: The verdict; of one that passes there is nothing.
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
    every = [
        (one, [case for case in one.cases if effect_of_case(verdict, one.rule, case) in STOPPING])
        for one in verdict.rules
    ]
    stopped = [(result, cases) for result, cases in every if cases]
    columns = evidence_columns([result.rule for result, _ in stopped]) | {"sources", "languages"}
    partial = any(result.rule.max_bad_records is not None for result, _ in stopped)
    clues = Clues(manifest=manifest, facts=read_facts(manifest, (), shards=columns, partial=partial), baseline=baseline)
    shards = _Shards(clues.shards)
    for result, cases in stopped:
        yield from _of_rule(result.rule, cases, clues, shards)


def json_lines(found: Iterable[Failing]) -> Iterator[bytes]:
    """Yield them as JSON, one a line; the same ones give the same bytes."""
    held = bytearray()
    for one in found:
        line = one._asdict()
        if not one.why:
            del line["why"]
        held += orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
        if len(held) >= _AT_ONCE:
            yield bytes(held)
            held.clear()
    yield bytes(held)


def _same(subject: Subject, manifest: Manifest, what: str) -> None:
    if subject.id != manifest.id:
        raise ManifestMismatch(
            f"the verdict is of another {what}: {subject.id}, this one is {manifest.id}", "Judge this one first."
        )


class _Shards:
    """The table of shards, by which lines are named and scopes are told."""

    def __init__(self, table: pa.Table) -> None:
        self.splits: list[str] = table["split"].to_pylist()
        self.uris: list[str] = table["uri"].to_pylist()
        self._table = table
        self._parts: dict[str, list[list[str]]] = {}

    def _held(self, name: str) -> list[list[str]]:
        """Return the sources, or the languages, of each shard."""
        if name not in self._parts:
            column = self._table[f"{name}s"].to_pylist()
            self._parts[name] = [[one[name] for one in held or ()] for held in column]
        return self._parts[name]

    def of(self, scopes: Collection[Scope]) -> tuple[np.ndarray, np.ndarray]:
        """Return bool[n]: shards that any of some scopes speaks of, and those of which every document is of one."""
        number = len(self.splits)
        alone = {scope.shard for scope in scopes if scope.shard is not None}
        if alone:
            chosen = np.isin(np.arange(number), sorted(alone))
            return chosen, chosen
        wanted = {(scope.split, scope.source, scope.language) for scope in scopes}
        if (None, None, None) in wanted:
            return np.ones(number, dtype=bool), np.ones(number, dtype=bool)
        named = [any(getattr(scope, name) is not None for scope in scopes) for name in PARTS]
        held = [self._held(name) if is_named else [[""]] * number for name, is_named in zip(PARTS, named, strict=True)]
        chosen, certain = np.zeros(number, dtype=bool), np.zeros(number, dtype=bool)
        for shard, (split, *parts) in enumerate(zip(self.splits, *held, strict=True)):
            found = [
                not wanted.isdisjoint(product((split, None), *((one, None) for one in ones)))
                for ones in product(*parts)
            ]
            chosen[shard], certain[shard] = any(found), all(found) and bool(found)
        return chosen, certain


def _of_rule(rule: Rule, cases: Sequence[Case], clues: Clues, shards: _Shards) -> Iterator[Failing]:
    broken = [case for case in cases if is_broken(case)]
    found = _listed(rule, broken, clues, shards)
    for (shard, row), group in groupby(_rows(found), itemgetter(0, 1)):
        same = list(group)
        kind = ", ".join(dict.fromkeys(one[2] for one in same))
        place = shards.splits[shard], shards.uris[shard], None if row == _WHOLE else row
        yield Failing(rule.name, rule.metric, *place, kind, any(one[3] for one in same))
    if broken and not found.num_rows:
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
    found = [_FOUND.empty_table()]
    for broken, own in groups.items():
        chosen, certain = shards.of([case.scope for case in own])
        table = None if documents is None else documents(broken, clues)
        table = _told(rule, own, clues, chosen) if table is None else table
        told = table.filter(pa.array(chosen).take(table["shard"]))
        alone = {case.scope.shard for case in own if case.scope.shard is not None}
        if alone:
            kind = _NOUNS.get((broken.metric, broken.stat)) or BEYOND
            told = pa.concat_tables([told, _of_shards(alone.difference(told["shard"].to_pylist()), kind)])
        found.append(told.append_column("certain", pa.array(certain).take(told["shard"])))
    return pa.concat_tables(found).sort_by([(name, "ascending") for name in _FOUND.names])


def _told(rule: Rule, cases: Sequence[Case], clues: Clues, chosen: np.ndarray) -> pa.Table:
    """Return the shards that evidence names for some cases."""
    if isinstance(METRICS[rule.metric].evidence, ShardColumn):
        cases = [replace(cases[0], scope=Scope())] if cases[0].scope.shard is None else ()
    found = [LISTED.empty_table()]
    for case in cases:
        noun, counts = counted(rule, case, clues) if case.scope.shard is None else NOTHING
        shards = [shard for shard in counts if chosen[shard]]
        if METRICS[rule.metric].evidence is not None:
            found.append(_of_shards(shards, noun))
            continue
        for since, word in ((NEW, "new"), (CHANGED, "changed")):
            some = [shard for shard in shards if clues.since()[shard] == since]
            found.append(_of_shards(some, f"{noun}, {word} since the baseline"))
    return pa.concat_tables(found).group_by(LISTED.names).aggregate([])


def _of_shards(shards: Collection[int | None], kind: str) -> pa.Table:
    """Return lines of whole shards."""
    rows = [{"shard": shard, "row": _WHOLE, "kind": kind} for shard in shards]
    return pa.Table.from_pylist(rows, schema=LISTED)


def _rows(table: pa.Table) -> Iterator[tuple[int, int, str, bool]]:
    for batch in table.to_batches(max_chunksize=_BATCH):
        yield from zip(*(batch[name].to_pylist() for name in _FOUND.names), strict=True)
