"""What a list is asked to leave out: shards and rows that people name, and proposals of a verdict.

A proposal leaves nothing out: it is for somebody to look at. `quarantine accept` puts it in force, `quarantine lift`
turns it down; the gate does not make one again while one is open, in force, or was turned down with the same numbers.

Not proposed are: cases that are waived, that warn, or that could not be evaluated; shards that the build could not read
(lists leave them out anyway); and, for rules about duplicates, shards that have the same digest as another one (an
entry would leave out both, and the data with them) and held-out shards (what they share with training data is mended
there).
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.errors import ConfigError, ManifestError
from dataaudit.gate.verdict import Case, RuleResult, State, Verdict
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.place import find_place
from dataaudit.metrics.registry import COPIES, PERSONAL
from dataaudit.quarantine.changes import AddRequest, Author, Change, author, propose
from dataaudit.quarantine.entry import Evidence, Target
from dataaudit.quarantine.selection import COLUMNS, digests_of, row_digests_of
from dataaudit.text import plural
from dataaudit.yamlfile import NAME_PATTERN

_DIGEST = re.compile(r"(sha256|rows):([0-9a-f]{64})(?::([0-9]{1,15}))?")
_ABOUT_PEOPLE = "pii"
_LEAKS = frozenset({"train_val_overlap", "benchmark_contamination"})


def add_requests(
    places: Sequence[str], manifest: Manifest | None, *, reason: str, metric: str | None, run: str | None
) -> tuple[list[AddRequest], list[str]]:
    """Return what a user asks to leave out, and what an entry of it leaves out besides, in words.

    Args:
        places: Shards and rows as people write them, or digests.
        manifest: Where the shards stand; None when only digests are given.
        reason: Short code.
        metric: Column of the table of shards whose value becomes evidence.
        run: Id of a training run, as evidence.

    Raises:
        ConfigError: A place means nothing or several things, the shard has no digest, or there is no such number.
        ManifestError: The table of shards cannot be read.
    """
    columns = list(dict.fromkeys([*COLUMNS, *_numbers(metric)]))
    shards = None if manifest is None else manifest.table("shards", columns)
    requests, notes = [], []
    for place in places:
        if match := _DIGEST.fullmatch(place):
            kind, digest, record = match.groups()
            named = {"sha256" if kind == "sha256" else "rows_digest": digest}
            target = Target(kind="document" if record else "shard", row=int(record) if record else None, **named)
            evidence = Evidence(run=run)
        elif manifest is None or shards is None:
            raise ConfigError(
                f"`{place}` is no digest, and no manifest says which shard it is",
                "Name the manifest (--manifest DIR, in Python manifest=DIR), or give sha256:HEX of the stored bytes.",
            )
        else:
            found = find_place(place, shards)
            row = shards.slice(found.shard, 1).to_pylist()[0]
            target = target_of(row, found.row)
            value = None if metric is None else row[metric]
            evidence = Evidence(metric=metric, value=value, manifest=manifest.id, run=run)
            if found.row is None:
                notes += [f"{name} has the same digest: it is left out too" for name in _copies(row, shards)]
        requests.append(AddRequest(target=target, reason=reason, evidence=evidence))
    return requests, notes


def target_of(row: dict[str, Any], record: int | None = None) -> Target:
    """Return what an entry of a shard, or of one of its records, names.

    Args:
        row: Of the table of shards, with the columns of :data:`dataaudit.quarantine.selection.COLUMNS`.
        record: The document's row; None for the shard.

    Raises:
        ConfigError: The shard was not read, so it has no digest, or it has no such row.
        ManifestError: Its digests or its URI are none that a build writes.
    """
    name = f"{row['split']}/{row['uri']}"
    digests = digests_of(row) if record is None else row_digests_of(row)
    if not digests:
        raise ConfigError(
            f"{name} was not read ({row['reason']}), so it has no digest to name it by",
            "Lists of `quarantine apply` leave out what was not read anyway.",
        )
    if record is not None and record >= row["rows"]:
        raise ConfigError(f"{name} has {row['rows']} rows, counted from 0; found {record}")
    kind: Literal["shard", "document"] = "shard" if record is None else "document"
    try:
        return Target(kind=kind, row=record, split=row["split"], uri=row["uri"], **digests)
    except ValueError:
        raise ManifestError(
            f"shard {row['shard']} has a digest, or a split or URI, that no build writes",
            "Restore the manifest or build again; `dataaudit verify` says more.",
        ) from None


def _copies(row: dict[str, Any], shards: pa.Table) -> list[str]:
    """Return the names of other shards with a digest of a shard: an entry cannot tell them apart."""
    masks = [pc.equal(shards[name], digest) for name, digest in digests_of(row).items()]
    same = shards.filter(functools.reduce(pc.or_kleene, masks)).to_pylist()
    return [f"{other['split']}/{other['uri']}" for other in same if other["shard"] != row["shard"]]


def _numbers(metric: str | None) -> list[str]:
    """Return the column of a metric."""
    if metric is None:
        return []
    from dataaudit.manifest.tables import TABLES

    known = [
        field.name
        for field in TABLES["shards"].schema
        if (pa.types.is_floating(field.type) or pa.types.is_int64(field.type))
        and not field.name.startswith(_ABOUT_PEOPLE)
    ]
    if metric not in known:
        raise ConfigError(f"metric {metric}: the table of shards has no such number", f"Known: {', '.join(known)}.")
    return [metric]


COPY, HELD_OUT, UNREAD = "twin", "held_out", "unread"
_PASSED_OVER = {
    COPY: "as another shard has the same rows, and would be left out too",
    HELD_OUT: "as held-out data keeps its duplicates and training data loses them",
    UNREAD: "as it was not read, so that lists leave it out anyway",
}
_NAMED = 5


class PassedOver(NamedTuple):
    """A shard, as ``split/uri``, that broke a rule and is not proposed; why is a key of ``_PASSED_OVER``."""

    name: str
    rule: str
    why: str


class Proposed(NamedTuple):
    """What a verdict proposes, by rule, then by shard; a shard that broke two rules is there twice."""

    requests: tuple[AddRequest, ...]
    passed_over: tuple[PassedOver, ...]


def proposals(verdict: Verdict, shards: Sequence[Mapping[str, Any]], held_out: Collection[str]) -> Proposed:
    """Return what to propose for the shards that failed a per-shard rule, given the names of held-out splits.

    ``shards`` are the rows of the table of shards, in order, with the columns of
    :data:`dataaudit.quarantine.selection.COLUMNS`.
    """
    times = Counter(digest for row in shards for digest in set(digests_of(dict(row)).values()))
    requests, passed_over = [], []
    for result in verdict.rules:
        code = result.rule.metric if re.fullmatch(NAME_PATTERN, result.rule.metric) else "gate"
        for ordinal, case in sorted(_failed(result), key=lambda found: found[0]):
            row = dict(shards[ordinal])
            digests = digests_of(row)
            why = "" if digests else UNREAD
            if digests and result.rule.metric in COPIES:
                shared = any(times[digest] > 1 for digest in digests.values())
                why = HELD_OUT if row["split"] in held_out else COPY if shared else ""
            if why:
                passed_over.append(PassedOver(name=f"{row['split']}/{row['uri']}", rule=case.rule, why=why))
            else:
                evidence = _evidence(verdict, result, case)
                requests.append(AddRequest(target=target_of(row), reason=code, evidence=evidence))
    return Proposed(requests=tuple(requests), passed_over=tuple(passed_over))


def _failed(result: RuleResult) -> list[tuple[int, Case]]:
    """Return the cases of shards, with their ordinals, that failed and are not waived."""
    return [
        (case.scope.shard, case)
        for case in result.cases
        if case.scope.shard is not None and case.state == State.FAILED and not case.waived
    ]


def _evidence(verdict: Verdict, result: RuleResult, case: Case) -> Evidence:
    rule = result.rule
    shown = rule.metric not in PERSONAL  # one shard's value may point at people: metric and limit are named alone
    return Evidence(
        metric=rule.metric,
        stat=case.stat,
        unit=case.unit or None,
        value=case.value if shown else None,
        judged=case.judged if shown and case.judged != case.value else None,
        comparator=rule.comparator,
        limit=rule.limit,
        limit_kind=rule.limit_kind,
        rule=rule.name,
        policy=verdict.policy_digest,
        manifest=verdict.subject.id,
    )


def propose_verdict(path: Path, verdict: Verdict, manifest: Manifest, by: Author) -> tuple[Change, Proposed]:
    """Append the proposals of a verdict to a list; return what was appended or there already, and what is proposed.

    The list is made when there is none, and empty when nothing is proposed.
    """
    if manifest.id != verdict.subject.id:
        raise ManifestError(
            f"the manifest {manifest.place} was replaced while it was judged, or is another one: the verdict is of"
            f" {verdict.subject.id}, this is {manifest.id}",
            "Run the gate again.",
        )
    rows = manifest.table("shards", COLUMNS).to_pylist() if any(map(_failed, verdict.rules)) else []
    found = proposals(verdict, rows, [split.name for split in manifest.core.splits if split.held_out])
    return propose(path, found.requests, by), found


def propose_shards(path: Path, verdict: Verdict, folder: Path) -> str:
    """Append the proposals of a verdict on the manifest in a folder to a list; return what was done, for people."""
    change, found = propose_verdict(path, verdict, load_manifest(folder), author(None, None))
    lines = [f"quarantine: {plural(len(change.added), 'proposal')} added to {path}"]
    if change.known:
        lines[0] += f", {len(change.known):,} on the list already"
    if not found.requests and not found.passed_over:
        lines.append("  no rule about single shards (`scope: {per: shard}`) fails")
    if change.added:
        lines.append(f"  nothing is left out yet: dataaudit quarantine accept {path} ...")
    if any(one.state == State.FAILED and one.rule.metric in _LEAKS for one in verdict.rules):
        command = f"dataaudit quarantine apply {path} --manifest {folder} --out DIR --documents"
        lines.append(f"  documents that leak: {command}")
    for why, words in _PASSED_OVER.items():
        if names := sorted({one.name for one in found.passed_over if one.why == why}):
            more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
            lines.append(f"  not proposed, {words}: {', '.join(names[:_NAMED])}{more}")
    if change.bad:
        number = plural(len(change.bad), "line")
        lines.append(f"  {number} of the list cannot be read: dataaudit quarantine list {path}")
    return "\n".join(lines)
