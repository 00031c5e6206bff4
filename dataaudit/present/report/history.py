"""``dataaudit history``: headlines over versions of a corpus, with a policy's limits, the last and a baseline overlaid.

Manifests stand in the order of when they were built. A number of the whole dataset is followed; a limit of a policy
that speaks of each source, set or shard is named with that, since the whole may keep what a part does not.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from dataaudit.base import text as t
from dataaudit.base.errors import ConfigError, ExitCode
from dataaudit.base.extras import require
from dataaudit.base.render.blocks import (
    Block,
    Cell,
    Curves,
    Declared,
    Figure,
    KeyFigure,
    Page,
    Point,
    Section,
    Table,
    Tone,
    table_of,
    toned,
)
from dataaudit.base.render.line import Line, Name, percent
from dataaudit.base.render.terminal import render as terminal
from dataaudit.decide.gate.judge import is_within
from dataaudit.decide.gate.number_texts import number
from dataaudit.decide.gate.policy import Policy, Rule
from dataaudit.decide.gate.run import files_of, judge, policy_of
from dataaudit.decide.gate.verdict import Verdict
from dataaudit.decide.gate.writers.blocks import verdict_section
from dataaudit.decide.gate.writers.words import WORDS
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.manifest.outfiles import check_files, write_file
from dataaudit.metrics.relations import load_consistent
from dataaudit.present.report.overlays import overlays

_TERMINAL = 4
"""Newest versions that a terminal has columns for, beside the baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """A number of the whole dataset over versions."""

    metric: str
    stat: str
    unit: str
    values: tuple[float | None, ...]
    """By version."""
    limits: tuple[Rule, ...]
    """Rules of the policy with a budget for it."""

    @property
    def name(self) -> str:
        """The metric, with its statistic where that says more."""
        return (
            self.metric if self.stat in {"rate", "count", "ratio", "bytes", "value"} else f"{self.metric} {self.stat}"
        )

    def beyond(self, value: float | None) -> bool:
        """Return whether a value is beyond a limit of the whole dataset, or of parts of which it is the mean."""
        if value is None:
            return False
        ratio = self.unit == "ratio"
        for rule in self.limits:
            of_parts = ratio and rule.comparator.startswith("<") and not rule.scope.fixed()
            judged = rule.budget is not None and (of_parts or not rule.scope.fields)
            if judged and not is_within(rule, value, rule.budget or 0.0):
                return True
        return False

    def shown(self, value: float | None) -> Line:
        """Return a value as people read it."""
        return t.NOTHING if value is None else percent(value) if self.unit == "ratio" else number(value)


class History:
    """Manifests in the order of when they were built, with a policy's limits, and the last beside a baseline."""

    def __init__(
        self, manifests: Sequence[Manifest], policy: Policy | None = None, baseline: Manifest | None = None
    ) -> None:
        self.manifests = sorted(manifests, key=lambda manifest: manifest.run.finished)
        self.policy = policy
        self.given = baseline

    @property
    def last(self) -> Manifest:
        """The version that was built last."""
        return self.manifests[-1]

    @property
    def baseline(self) -> Manifest:
        """The version that the last is compared with."""
        return self.given or self.manifests[-2]

    @cached_property
    def names(self) -> list[str]:
        """Versions, with a number where two have the same."""
        versions = [manifest.core.dataset.version or "-" for manifest in self.manifests]
        return [
            f"{name} #{versions[:at].count(name) + 1}" if versions.count(name) > 1 else name
            for at, name in enumerate(versions)
        ]

    @cached_property
    def followed(self) -> list[Followed]:
        """Headlines, then what the policy limits of the whole dataset."""
        tables = [_of_all(manifest) for manifest in self.manifests]
        headlines = [(record.metric, record.stat) for record in self.last.core.headline]
        rules = () if self.policy is None else self.policy.rules
        limited = [
            key for key in sorted(tables[-1]) if any(_names(rule, *key) for rule in rules if rule.budget is not None)
        ]
        found = []
        for metric, stat in dict.fromkeys([*headlines, *limited]):
            records = [table.get((metric, stat)) for table in tables]
            known = [record for record in records if record is not None]
            if any(record.value is not None for record in known):
                values = tuple(None if record is None else record.value for record in records)
                own = tuple(rule for rule in rules if rule.budget is not None and _names(rule, metric, stat))
                found.append(Followed(metric=metric, stat=stat, unit=known[-1].unit, values=values, limits=own))
        return found

    @cached_property
    def before(self) -> dict[tuple[str, str], float | None]:
        """Values of the baseline."""
        return {key: record.value for key, record in _of_all(self.baseline).items()}

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """What the policy says of each version, against the one before it; the last against the baseline."""
        if self.policy is None:
            return []
        older = [None, *self.manifests[:-2], self.baseline]
        pairs = zip(self.manifests, older, strict=True)
        return [judge(manifest, self.policy, baseline=before) for manifest, before in pairs]

    def document(self) -> dict[str, Any]:
        """Return it in plain types."""
        rows = [
            {
                "metric": own.metric,
                "stat": own.stat,
                "unit": own.unit,
                "values": list(own.values),
                "baseline": self.before.get((own.metric, own.stat)),
                "limits": [_limit(rule) | {"rule": rule.name} for rule in own.limits],
            }
            for own in self.followed
        ]
        versions = [
            {"id": manifest.id, "version": name, "built": manifest.run.finished, "folder": str(manifest.folder)}
            for name, manifest in zip(self.names, self.manifests, strict=True)
        ]
        verdicts = [int(verdict.exit_code) for verdict in self.verdicts]
        return {"versions": versions, "baseline": self.baseline.id, "verdicts": verdicts, "metrics": rows}


def _of_all(manifest: Manifest) -> dict[tuple[str, str], Metric]:
    """Return the records of the whole dataset."""
    whole = manifest.metric_rows().where(**dict.fromkeys(Scope.__slots__))
    return {(record.metric, record.stat): record for record in whole}


def _names(rule: Rule, metric: str, stat: str) -> bool:
    return rule.metric == metric and fnmatchcase(stat, rule.stat)


def _limit(rule: Rule) -> dict[str, Any]:
    return {"comparator": rule.comparator, "budget": rule.budget, "per": sorted(rule.scope.fields)}


def _limit_words(own: Followed) -> Line:
    parts = []
    for rule in own.limits:
        of = f" of each {', '.join(sorted(rule.scope.fields))}" if rule.scope.fields else ""
        parts.append(f"{rule.comparator} {own.shown(rule.budget)}{of}")
    return "; ".join(dict.fromkeys(parts))


def history_table(history: History, shown: Sequence[int]) -> Table:
    """Return headlines by version, of some versions, with the change from the baseline."""

    def of(at: int) -> Declared:
        def cell(own: Followed) -> Line | Cell:
            return toned(own.shown(own.values[at]), "bad", when=own.beyond(own.values[at]))

        return Name(history.names[at], 24), "number", cell

    def change(own: Followed) -> Line:
        now, before = own.values[-1], history.before.get((own.metric, own.stat))
        if now is None or before is None:
            return t.NOTHING
        if now == before:
            return "none"
        if own.unit == "ratio":
            return f"{(now - before) * 100:+.3g} points"
        return f"{(now - before) / before:+.1%}" if before else f"{now - before:+.4g}"

    limits: list[Declared] = [("limit", "text", _limit_words)] if any(own.limits for own in history.followed) else []
    return table_of(
        "Headlines by version",
        history.followed,
        ("metric", "name", lambda own: Name(own.name)),
        ("unit", "word", lambda own: "" if own.unit == "ratio" else own.unit),
        *map(of, shown),
        ("change", "word", change),
        *limits,
        most=None,
        noun="metric",
        note=f"Change: the last against {_version(history.baseline)}. Red: beyond a limit.",
        whole=True,
    )


def history_page(history: History) -> Page:
    """Return the page of a history: headlines, a chart of each, the last over the baseline."""
    wrong = [own for own in history.followed if own.beyond(own.values[-1])]
    places = range(len(history.manifests))
    table = history_table(history, places)
    verdicts = list(history.verdicts)
    headline, tone, points = _headline(history, wrong)
    lead = f"{t.plural(len(places), 'version')}, the first built {history.manifests[0].run.finished[:10]}."
    charts = tuple(_figure(history, place, own) for place, own in enumerate(history.followed))
    figures = [
        KeyFigure(label="versions", value=len(places), detail=f"last: {history.names[-1]}"),
        KeyFigure(label="documents", value=history.last.core.totals.documents, detail="of the last"),
        KeyFigure(label="tokens", value=history.last.core.totals.tokens, detail="of the last"),
    ]
    own: list[Block] = [table]
    if verdicts:
        own.insert(0, _verdict_table(history))
    sections = (
        Section(id="versions", title="Versions", lead=lead, tone=tone if wrong or verdicts else "", blocks=tuple(own)),
        Section(
            id="metrics",
            title="Each headline",
            lead="Dashed: limits of the policy, and the baseline.",
            blocks=charts,
            side_by_side=True,
        ),
        Section(
            id="overlaid",
            title="The last over the baseline",
            blocks=overlays(history.baseline, history.last),
            lead=f"Version {history.names[-1]} over {_version(history.baseline)}.",
        ),
    )
    return Page(
        title=Name(history.last.core.dataset.name),
        version="",
        meta=f"History of a corpus. The last manifest: {history.last.id}",
        headline=headline,
        tone=tone,
        subline=lead if history.policy is None else f"Policy {t.clean(history.policy.policy, 60)}. {lead}",
        findings=tuple(points),
        others=(),
        findings_left_out=0,
        figures=tuple(figures),
        sections=sections,
    )


def _headline(history: History, wrong: Sequence[Followed]) -> tuple[str, Tone, list[Point]]:
    points = [
        Point(
            text=f"{own.name} of the last is {own.shown(own.values[-1])}; the limit is {_limit_words(own)}.",
            tone="bad",
            section="versions",
        )
        for own in wrong
    ]
    if history.verdicts:
        code = history.verdicts[-1].exit_code
        _, chief = verdict_section(history.verdicts[-1])
        points = [replace(point, section="versions") for point in chief]
        tone: Tone = "good" if code == ExitCode.PASS else "bad"
        return f"{WORDS[code]}: version {t.clean(history.names[-1], 40)}", tone, points
    return f"{t.plural(len(history.manifests), 'version')} of a corpus", "bad" if points else "", points


def _verdict_table(history: History) -> Table:
    return table_of(
        "Verdicts",
        list(zip(history.names, history.manifests, history.verdicts, strict=True)),
        ("version", "name", lambda row: Name(row[0])),
        ("built", "word", lambda row: row[1].run.finished[:16].replace("T", " ")),
        ("verdict", "word", lambda row: toned(WORDS[row[2].exit_code], "bad", when=row[2].exit_code != ExitCode.PASS)),
        note="Each against the version before it, the last against the baseline.",
    )


def _figure(history: History, place: int, own: Followed) -> Figure:
    known = [(at, value) for at, value in enumerate(own.values, 1) if value is not None]
    before = history.before.get((own.metric, own.stat))
    lines: list[tuple[float, Line]] = [] if before is None else [(before, "baseline")]
    lines += [(rule.budget, Name(rule.name)) for rule in own.limits if rule.budget is not None]
    steps, values = tuple(float(at) for at, _ in known), tuple(value for _, value in known)
    chart = Curves(
        series=((Name(own.name), steps, values),),
        unit="" if own.unit == "ratio" else own.unit,
        order="version",
        percent=own.unit == "ratio",
        ticks=tuple((float(at), Name(history.names[at - 1])) for at, _ in known),
        limits=tuple(lines),
    )
    table = table_of(
        own.name,
        known,
        ("version", "name", lambda row: Name(history.names[row[0] - 1])),
        ("value", "number", lambda row: own.shown(row[1])),
        folded=True,
    )
    says = f"{own.shown(values[0])} to {own.shown(values[-1])}"
    return Figure(id=f"history-{place}", title=Name(own.name), chart=chart, table=table, says=says, height=180)


def _version(manifest: Manifest) -> str:
    return t.clean(manifest.core.dataset.version or "the baseline", 40)


def write_history(
    folders: Sequence[Path], policy: Path | None, baseline: Path | None, out: Path | None, *, as_json: bool
) -> tuple[str, ExitCode]:
    """Return what the command prints and its exit code; write the page where one is asked for."""
    if out is not None:
        require("history --out", "report")
        check_files({"--out": out}, files_of(policy), tuple(folders))
    manifests = [load_consistent(folder) for folder in folders]
    if len({manifest.id for manifest in manifests}) < 2:
        raise ConfigError(
            "expected two manifests or more, of different ids", "`dataaudit show DIR` shows a single one."
        )
    names = sorted({manifest.core.dataset.name for manifest in manifests})
    if len(names) > 1:
        raise ConfigError(f"the manifests are of several datasets: {', '.join(t.clean(name, 60) for name in names)}")
    rules = None if policy is None else policy_of(policy)
    history = History(manifests, rules, None if baseline is None else load_manifest(baseline))
    code = history.verdicts[-1].exit_code if history.verdicts else ExitCode.PASS
    if out is not None:
        from dataaudit.base.render.html import render

        data = render(history_page(history)).encode("utf-8")
        write_file(out, data)
    if as_json:
        return t.as_json(history.document() | ({} if out is None else {"report": str(out)})), code
    blocks: list[Block] = [_verdict_table(history)] if history.verdicts else []
    newest = range(max(0, len(manifests) - _TERMINAL), len(manifests))
    title = f"{t.clean(names[0], 80)}: {t.plural(len(manifests), 'version')}"
    text = terminal(title, [*blocks, history_table(history, newest)])
    if code != ExitCode.PASS and policy is not None:
        older = shlex.quote(str(history.baseline.folder))
        why = f"dataaudit gate {shlex.quote(str(history.last.folder))} --policy {policy} --baseline {older}"
        text += f"Why the last fails: {t.clean(why, 400)}\n"
    left = len(manifests) - len(newest)
    text += f"{t.plural(left, 'older version')} left out: --out FILE.html, or --json.\n" if left else ""
    return text + ("" if out is None else f"{t.clean(str(out))}: {t.size(len(data))}\n"), code
