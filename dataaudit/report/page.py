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
from dataaudit.metrics.volume.facts import Overview, overview
from dataaudit.render.blocks import KeyFigure, Page, Point, Section, Tone, softened, worst
from dataaudit.render.line import Line, Name, decimal, say
from dataaudit.report.outliers import odd_shards
from dataaudit.report.overlays import overlays
from dataaudit.report.sections import areas
from dataaudit.report.shards import shard_section
from dataaudit.report.standouts import standouts

_FINDINGS = 15
_FIRST = (
    "mixture",
    "languages",
    "lengths",
    "tokens",
    "duplicates",
    "leakage",
    "quality",
    "encoding",
    "toxicity",
    "privacy",
    "secrets",
)
"""Ids of sections in the order of reading; others follow, coverage last."""
_TITLES = {"leakage": "Leakage", "tokens": "Tokens and drift"}
"""Of sections that several families make."""


def page_of(
    manifest: Manifest,
    verdict: Verdict | None = None,
    difference: Difference | None = None,
    quarantined: Mapping[int, Line] | None = None,
    *,
    baseline: Manifest | None = None,
    unchecked: bool = False,
) -> Page:
    """Return the page of a manifest.

    Args:
        manifest: What it is about.
        verdict: Of a policy on it; without one the page says what stands out.
        difference: From an older manifest to this one.
        quarantined: Shards that a quarantine list holds back, with reasons, by ordinal.
        baseline: The older manifest, whose distributions are drawn over those of this one.
        unchecked: Whether the verdict is what a file says, which anybody may have edited: the page says so.
    """
    view = overview(manifest)
    shards = shard_section(manifest, odd_shards(manifest, quarantined or {}))
    changes = no_baseline() if difference is None else change_section(difference)
    if difference is not None and baseline is not None and not difference.equal:
        changes = replace(changes, blocks=(*changes.blocks, *overlays(baseline, manifest)))
    found = _findings(manifest, (changes, shards))
    tones = {} if verdict is None else area_tones(verdict)
    if verdict is not None:
        soft = [one.tone == "bad" and tones.get(one.section) != "bad" for one in found]
        found = [replace(one, tone="warn") if is_soft else one for one, is_soft in zip(found, soft, strict=True)]
    chief, others = (found, []) if verdict is None else ([], found)
    made = areas(manifest, _TITLES)
    order = (*_FIRST, *(one for one in made if one not in {*_FIRST, "coverage"}), "coverage")
    sections = (changes, *(made[one] for one in order), shards)
    if verdict is not None:
        rules, chief = verdict_section(verdict)
        sections = (rules, *(_judged(one, tones.get(one.id, "")) for one in sections))
    headline, tone, subline = _headline(verdict, found, unchecked=unchecked)
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
        figures=_figures(view, "bad" if verdict is None or tones.get("coverage") == "bad" else "warn"),
        sections=sections,
    )


def _findings(manifest: Manifest, own: Sequence[Section]) -> list[Point]:
    """Return what stands out, worst first, and what sections say that no part of a manifest does."""
    found = [
        Point(tone=one.kind.tone, text=say("{}.", one.sentence()), section=one.area) for one in standouts(manifest)
    ]
    said = {one.section for one in found}
    loud = [one for one in own if one.tone in {"bad", "warn"} and one.id not in said]
    found += [Point(tone=one.tone, text=one.lead, section=one.id) for one in loud]
    return sorted(found, key=lambda one: one.tone != "bad")


def _judged(section: Section, held: Tone) -> Section:
    """Return a section in the colour that the rules of its area leave it: red only where one of them fails."""
    if held == "bad":
        return replace(section, tone="bad")
    soft = softened(section) if section.id != "shards" else replace(section, tone=softened(section).tone)
    return replace(soft, tone=worst((held, soft.tone))) if held else soft


def _headline(verdict: Verdict | None, findings: Sequence[Point], *, unchecked: bool) -> tuple[str, Tone, Line]:
    if verdict is not None:
        headline, tone = verdict_title(verdict)
        older = verdict.baseline
        baseline = "no baseline" if older is None else say("baseline {}", Name(older.version, 40))
        subline = say("Policy {} {}, {}.", Name(verdict.policy, 60), Name(verdict.policy_version, 40), baseline)
        if not unchecked:
            return headline, tone, subline
        told = say(
            "{} This is what gate.json says; it was not judged here. --policy POLICY.yaml has it judged.", subline
        )
        return f"Unchecked: {headline}", worst((tone, "warn")), told
    hint = "No policy was given, so nothing is passed or stopped: --policy POLICY.yaml has it judged."
    if not findings:
        return "Nothing stands out", "good", hint
    return f"{t.plural(len(findings), 'thing')} to look at", worst(one.tone for one in findings), hint


def _figures(view: Overview, lost: Tone) -> tuple[KeyFigure, ...]:
    shards, whole = view.ledger["shards"], view.totals
    unread = view.ledger["unread_bytes"]
    listed = view.ledger["listed_shards"]
    held_back = f", {t.count(listed)} held back by the list" if listed else ""
    held_out = sum(one.documents for one in view.splits if one.held_out)
    return (
        KeyFigure(label="documents", value=whole.documents, detail=f"{t.count(held_out)} held out"),
        KeyFigure(label="tokens", value=whole.tokens, detail=f"{t.size(whole.bytes)} of text"),
        KeyFigure(
            label="shards read",
            value=f"{t.count(shards['read'])} of {t.count(shards['planned'])}",
            detail=f"{t.size(unread)} unread{held_back}" if unread else f"nothing unread{held_back}",
            tone=lost if unread else "",
        ),
        KeyFigure(
            label="bytes per token",
            value=decimal(whole.bytes_per_token),
            detail=say("tokenizer {}", Name(view.tokenizer["name"], 40)),
        ),
    )
