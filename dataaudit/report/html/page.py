"""The whole page as plain values: head, verdict or what stands out, key figures, sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dataaudit import text as t
from dataaudit.diff.difference import Difference
from dataaudit.gate.verdict import Verdict
from dataaudit.manifest.load import Manifest
from dataaudit.report.html.area_changes import change_section, no_baseline
from dataaudit.report.html.area_copies import copies_section
from dataaudit.report.html.area_corpus import language_section, length_section, mixture_section
from dataaudit.report.html.area_coverage import coverage_section
from dataaudit.report.html.area_harm import privacy_section, secret_section, toxicity_section
from dataaudit.report.html.area_leaks import leak_section
from dataaudit.report.html.area_quality import quality_section
from dataaudit.report.html.area_shards import shard_section
from dataaudit.report.html.area_tokens import token_section
from dataaudit.report.html.area_verdict import area_tones, verdict_section, verdict_title
from dataaudit.report.html.oddities import Oddities, oddities
from dataaudit.report.html.pieces import Figure, Finding, Section, Tone, named, percent, worst
from dataaudit.report.html.tones import judged_finding, judged_section
from dataaudit.report.standouts import Kind, standouts
from dataaudit.report.view import Overview, overview

_FINDINGS = 12
_GRAVITY = {"bad": 0, "warn": 1}
_LAST = 99
_SECTIONS = {
    "coverage": "coverage",
    "drift": "tokens",
    "leaks": "leakage",
    "mixture": "mixture",
    "near_dup": "duplicates",
    "pii": "privacy",
    "repeats": "duplicates",
    "secrets": "secrets",
    "shards": "shards",
    "splits": "tokens",
    "toxicity": "toxicity",
}
"""Where the page says more of what a part of `dataaudit show` has."""
_OWN = {"coverage", "leakage", "mixture", "shards", "secrets"}
"""Sections that say in their own words what stands out of them."""
_FURTHER = {Kind.UNCONFIRMED, Kind.NOT_LOOKED_AT}
"""What they do not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figured:
    """One key figure."""

    label: str
    value: str
    detail: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What the report says."""

    dataset: str
    version: str
    id: str
    built: str
    tool: str
    parents: tuple[str, ...]
    headline: str
    """The verdict, or what stands in its place."""
    tone: Tone
    subline: str
    """Who judged it."""
    findings: tuple[Finding, ...]
    """What stands out, gravest first."""
    others: tuple[Finding, ...]
    """What stands out besides, when a verdict stands first."""
    findings_left_out: int
    figures: tuple[Figured, ...]
    sections: tuple[Section, ...]
    odd: Oddities
    """Shards that stand out."""

    @property
    def charts(self) -> tuple[Figure, ...]:
        """All figures of the page, in order."""
        return tuple(block for one in self.sections for block in one.blocks if isinstance(block, Figure))


def page_of(
    manifest: Manifest,
    verdict: Verdict | None = None,
    difference: Difference | None = None,
    quarantined: Mapping[int, str] | None = None,
) -> Page:
    """Return the page of a manifest.

    Args:
        manifest: What it is about.
        verdict: Of a policy on it; without one the page says what stands out.
        difference: From an older manifest to this one.
        quarantined: Shards that a quarantine list holds back, with reasons, by ordinal.
    """
    view, odd = overview(manifest), oddities(manifest, quarantined or {})
    leaks, leak_findings = leak_section(manifest)
    secret, secret_findings = secret_section(manifest)
    coverage, coverage_findings = coverage_section(view)
    shards, shard_findings = shard_section(manifest, odd)
    judged, rule_findings = ([], []) if verdict is None else _judged(verdict)
    changes = no_baseline() if difference is None else change_section(difference)
    mixture = mixture_section(view)
    found = [*coverage_findings, *leak_findings, *secret_findings, *shard_findings]
    if mixture.tone == "warn":
        found.append(Finding(tone="warn", text=mixture.lead, section="mixture"))
    if changes.tone == "warn":
        found.append(Finding(tone="warn", text=changes.lead, section="changes"))
    found = _all(found, manifest, view)
    areas = {} if verdict is None else area_tones(verdict)
    if verdict is not None:
        found = [judged_finding(one, areas) for one in found]
    found.sort(key=lambda one: _GRAVITY.get(one.tone, 2))
    chief, others = (found, []) if verdict is None else (rule_findings, found)
    headline, tone, subline = _headline(verdict, found)
    sections: tuple[Section, ...] = (
        changes,
        mixture,
        language_section(manifest),
        length_section(manifest, view),
        token_section(manifest, view),
        copies_section(manifest, view),
        leaks,
        quality_section(manifest),
        toxicity_section(manifest),
        privacy_section(manifest),
        secret,
        coverage,
    )
    if verdict is not None:
        sections = tuple(judged_section(one, areas) for one in sections)
        shards = replace(shards, tone=judged_section(shards, areas).tone)
    return Page(
        dataset=named(view.dataset),
        version=named(view.version, 40),
        id=view.id,
        built=view.built,
        tool=view.tool,
        parents=view.parents,
        headline=headline,
        tone=tone,
        subline=subline,
        findings=tuple(chief[:_FINDINGS]),
        others=tuple(others[:_FINDINGS]),
        findings_left_out=max(0, len(chief) - _FINDINGS) + max(0, len(others) - _FINDINGS),
        figures=_figures(view, "bad" if verdict is None or areas.get("coverage") == "bad" else "warn"),
        odd=odd,
        sections=(*judged, *sections, shards),
    )


def _all(own: Sequence[Finding], manifest: Manifest, view: Overview) -> list[Finding]:
    """Return what stands out, worst first as :class:`Kind` has it: in a section's own words, where it has some."""
    further: list[Finding] = []
    ranks: dict[tuple[str, Tone], int] = {}
    for one in standouts(manifest, view, percent):
        tone: Tone = "bad" if one.kind.grave else "warn"
        section = "duplicates" if one.kind == Kind.EXACT_DUPLICATES else _SECTIONS[one.part]
        ranks.setdefault((section, tone), one.kind)
        if section not in _OWN or one.kind in _FURTHER:
            further.append(Finding(tone=tone, text=f"{one.sentence()}.", section=section))
    return sorted([*own, *further], key=lambda one: ranks.get((one.section, one.tone), _LAST))


def _judged(verdict: Verdict) -> tuple[list[Section], list[Finding]]:
    section, findings = verdict_section(verdict)
    return [section], findings


def _headline(verdict: Verdict | None, findings: Sequence[Finding]) -> tuple[str, Tone, str]:
    if verdict is not None:
        headline, tone = verdict_title(verdict)
        baseline = "no baseline" if verdict.baseline is None else f"baseline {named(verdict.baseline.version, 40)}"
        subline = f"Policy {named(verdict.policy, 60)} {named(verdict.policy_version, 40)}, {baseline}."
        return headline, tone, subline
    subline = "No policy was given, so nothing is passed or stopped: --policy POLICY.yaml has it judged."
    if not findings:
        return "Nothing stands out", "good", subline
    return f"{t.plural(len(findings), 'thing')} to look at", worst(one.tone for one in findings), subline


def _figures(view: Overview, lost: Tone) -> tuple[Figured, ...]:
    shards = view.ledger["shards"]
    unread = view.ledger["unread_bytes"]
    held_out = [one for one in view.splits if one.held_out]
    return (
        Figured(
            label="documents",
            value=t.count(view.totals.documents),
            detail=f"{t.count(sum(one.documents for one in held_out))} held out",
        ),
        Figured(label="tokens", value=t.count(view.totals.tokens), detail=f"{t.size(view.totals.bytes)} of text"),
        Figured(
            label="shards read",
            value=f"{t.count(shards['read'])} of {t.count(shards['planned'])}",
            detail=f"{t.size(unread)} unread" if unread else "nothing unread",
            tone=lost if unread else "",
        ),
        Figured(
            label="bytes per token",
            value=t.decimal(view.totals.bytes_per_token),
            detail=f"tokenizer {named(view.tokenizer['name'], 40)}",
        ),
    )
