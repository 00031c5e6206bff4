"""The page of a manifest: head, verdict or what stands out, key figures, sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dataaudit import text as t
from dataaudit.diff.blocks import change_section, no_baseline
from dataaudit.diff.difference import Difference
from dataaudit.gate.verdict import Verdict
from dataaudit.gate.writers.blocks import area_tones, verdict_section, verdict_title
from dataaudit.manifest.load import Manifest
from dataaudit.metrics.coverage import facts as coverage
from dataaudit.metrics.drift import facts as drift
from dataaudit.metrics.language import facts as language
from dataaudit.metrics.lengths import facts as lengths
from dataaudit.metrics.padding import facts as padding
from dataaudit.metrics.pii import facts as pii
from dataaudit.metrics.quality import facts as quality
from dataaudit.metrics.registry import FAMILIES
from dataaudit.metrics.secrets import facts as secrets
from dataaudit.metrics.toxicity import facts as toxicity
from dataaudit.metrics.volume.facts import Overview, identity, mixture, overview, splits_table
from dataaudit.render.blocks import KeyFigure, Page, Point, Section, Tone, merged, softened, worst
from dataaudit.render.line import Line, Name, decimal, say
from dataaudit.report.outliers import oddities
from dataaudit.report.sections import duplicates, hotspots, leakage, of_family
from dataaudit.report.shards import shard_section
from dataaudit.report.standouts import Kind, standouts

_FINDINGS = 15
_AREAS = {
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


def page_of(
    manifest: Manifest,
    verdict: Verdict | None = None,
    difference: Difference | None = None,
    quarantined: Mapping[int, Line] | None = None,
) -> Page:
    """Return the page of a manifest.

    Args:
        manifest: What it is about.
        verdict: Of a policy on it; without one the page says what stands out.
        difference: From an older manifest to this one.
        quarantined: Shards that a quarantine list holds back, with reasons, by ordinal.
    """
    view = overview(manifest)
    shards = shard_section(manifest, oddities(manifest, quarantined or {}))
    changes = no_baseline() if difference is None else change_section(difference)
    found = _findings(manifest, view, (changes, shards))
    areas = {} if verdict is None else area_tones(verdict)
    if verdict is not None:
        found = [one if areas.get(one.section) == "bad" else _softer(one) for one in found]
    chief, others = (found, []) if verdict is None else ([], found)
    sections: tuple[Section, ...] = (
        changes,
        merged("mixture", "Mixture", [mixture(view), Section(id="", title="", blocks=(splits_table(view),))]),
        language.section(language.languages(manifest)),
        lengths.section(manifest),
        _tokens(manifest, view),
        merged("duplicates", "Duplicates", [duplicates(manifest, view), hotspots(manifest)]),
        leakage(manifest),
        quality.section(manifest),
        toxicity.section(toxicity.toxic(manifest)),
        pii.section(pii.personal_data(manifest)),
        secrets.section(secrets.secrets(manifest)),
        *(of_family(family, manifest) for family in FAMILIES if family.section),
        coverage.section(view),
        shards,
    )
    if verdict is not None:
        rules, chief = verdict_section(verdict)
        sections = (rules, *(_judged(one, areas.get(one.id, "")) for one in sections))
    headline, tone, subline = _headline(verdict, found)
    built = view.built.replace("T", " ").replace("+00:00", " UTC")
    return Page(
        title=Name(view.dataset),
        version=Name(view.version, 40),
        meta=f"Data audit report. Built {built} by {view.tool}. Manifest {view.id}",
        headline=headline,
        tone=tone,
        subline=subline,
        findings=tuple(chief[:_FINDINGS]),
        others=tuple(others[:_FINDINGS]),
        findings_left_out=max(0, len(chief) - _FINDINGS) + max(0, len(others) - _FINDINGS),
        figures=_figures(view, "bad" if verdict is None or areas.get("coverage") == "bad" else "warn"),
        sections=sections,
    )


def _findings(manifest: Manifest, view: Overview, own: Sequence[Section]) -> list[Point]:
    """Return what stands out, worst first, and what sections say that no part of a manifest does."""
    found = []
    for one in standouts(manifest, view):
        area = "duplicates" if one.kind == Kind.EXACT_DUPLICATES else _AREAS[one.part]
        found.append(Point(tone=one.kind.tone, text=say("{}.", one.sentence()), section=area))
    said = {one.section for one in found}
    loud = [one for one in own if one.tone in {"bad", "warn"} and one.id not in said]
    found += [Point(tone=one.tone, text=one.lead, section=one.id) for one in loud]
    return sorted(found, key=lambda one: one.tone != "bad")


def _tokens(manifest: Manifest, view: Overview) -> Section:
    """Return drift from the reference, padding, and who counted the tokens."""
    moved = drift.section(manifest, drift.drifts(manifest))
    fed = padding.section(manifest)
    whole = merged("tokens", "Tokens and drift", [moved, fed], moved.lead)
    return replace(whole, tone=moved.tone, blocks=(*whole.blocks, identity(view, here=False)))


def _judged(section: Section, held: Tone) -> Section:
    """Return a section in the colour that the rules of its area leave it: red only where one of them fails."""
    if held == "bad":
        return replace(section, tone="bad")
    soft = softened(section) if section.id != "shards" else replace(section, tone=softened(section).tone)
    return replace(soft, tone=worst((held, soft.tone))) if held else soft


def _softer(one: Point) -> Point:
    return replace(one, tone="warn") if one.tone == "bad" else one


def _headline(verdict: Verdict | None, findings: Sequence[Point]) -> tuple[str, Tone, Line]:
    if verdict is not None:
        headline, tone = verdict_title(verdict)
        older = verdict.baseline
        baseline = "no baseline" if older is None else say("baseline {}", Name(older.version, 40))
        return (
            headline,
            tone,
            say("Policy {} {}, {}.", Name(verdict.policy, 60), Name(verdict.policy_version, 40), baseline),
        )
    subline = "No policy was given, so nothing is passed or stopped: --policy POLICY.yaml has it judged."
    if not findings:
        return "Nothing stands out", "good", subline
    return f"{t.plural(len(findings), 'thing')} to look at", worst(one.tone for one in findings), subline


def _figures(view: Overview, lost: Tone) -> tuple[KeyFigure, ...]:
    shards, whole = view.ledger["shards"], view.totals
    unread = view.ledger["unread_bytes"]
    held_out = sum(one.documents for one in view.splits if one.held_out)
    return (
        KeyFigure(label="documents", value=whole.documents, detail=f"{t.count(held_out)} held out"),
        KeyFigure(label="tokens", value=whole.tokens, detail=f"{t.size(whole.bytes)} of text"),
        KeyFigure(
            label="shards read",
            value=f"{t.count(shards['read'])} of {t.count(shards['planned'])}",
            detail=f"{t.size(unread)} unread" if unread else "nothing unread",
            tone=lost if unread else "",
        ),
        KeyFigure(
            label="bytes per token",
            value=decimal(whole.bytes_per_token),
            detail=say("tokenizer {}", Name(view.tokenizer["name"], 40)),
        ),
    )
