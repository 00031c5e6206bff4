"""``dataaudit report``: the page of a manifest (verdict or what stands out, key figures, sections) as one HTML file.

Beside the manifest a report may be given a verdict, a baseline, a quarantine list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dataaudit.base import text as t
from dataaudit.base.errors import ConfigError, ManifestError, ManifestMismatch
from dataaudit.base.extras import require
from dataaudit.base.render.blocks import KeyFigure, Page, Point, Section, Tone, softened, worst
from dataaudit.base.render.line import PERCENT, Line, Name, decimal, join, say, spell
from dataaudit.decide.diff.blocks import change_section
from dataaudit.decide.diff.compare import load_pair
from dataaudit.decide.diff.difference import Difference
from dataaudit.decide.gate.document import read_verdict
from dataaudit.decide.gate.run import files_of, judge, policy_of
from dataaudit.decide.gate.verdict import Verdict
from dataaudit.decide.gate.writers.blocks import area_tones, verdict_section, verdict_title
from dataaudit.decide.quarantine.list import load_quarantine
from dataaudit.decide.quarantine.released import compared_lists
from dataaudit.decide.quarantine.selection import COLUMNS, digests_of, row_digests_of
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.outfiles import check_files, write_file
from dataaudit.metrics.relations import load_consistent
from dataaudit.metrics.volume.definition import Overview, overview
from dataaudit.present.report.highlights import highlights, odd_shards
from dataaudit.present.report.overlays import overlays
from dataaudit.present.report.shards import shard_section
from dataaudit.present.report.show import areas

if TYPE_CHECKING:
    from dataaudit.manifest.trust import Signer

_FINDINGS = 15
_FIRST = "mixture languages lengths tokens duplicates leakage quality encoding toxicity privacy secrets"
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
    """Return the page of a manifest."""
    view = overview(manifest)
    shards = shard_section(manifest, odd_shards(manifest, quarantined or {}))
    changes = change_section(difference)
    if difference is not None and baseline is not None and not difference.equal:
        changes = replace(changes, blocks=(*changes.blocks, *overlays(baseline, manifest)))
    findings = _findings(manifest, (changes, shards))
    tones = {} if verdict is None else area_tones(verdict)
    if verdict is not None:
        findings = [
            replace(point, tone="warn") if point.tone == "bad" and tones.get(point.section) != "bad" else point
            for point in findings
        ]
    chief, others = (findings, []) if verdict is None else ([], findings)
    made = areas(manifest, _TITLES)
    first = _FIRST.split()
    order = (*first, *(name for name in made if name not in {*first, "coverage"}), "coverage")
    sections = (changes, *(made[name] for name in order), shards)
    if verdict is not None:
        rules, chief = verdict_section(verdict)
        sections = (rules, *(_judged(section, tones.get(section.id, "")) for section in sections))
    headline, tone, subline = _headline(verdict, findings, unchecked=unchecked)
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
    points = [
        Point(tone=standout.kind.tone, text=say("{}.", standout.sentence()), section=standout.area)
        for standout in highlights(manifest)
    ]
    known = {point.section for point in points}
    points += [
        Point(tone=section.tone, text=section.lead, section=section.id)
        for section in own
        if section.tone in {"bad", "warn"} and section.id not in known
    ]
    return sorted(points, key=lambda point: point.tone != "bad")


def _judged(section: Section, verdict: Tone) -> Section:
    """Return a section in the colour that the rules of its area leave it: red only where a rule fails."""
    if verdict == "bad":
        return replace(section, tone="bad")
    soft = softened(section) if section.id != "shards" else replace(section, tone=softened(section).tone)
    return replace(soft, tone=worst((verdict, soft.tone))) if verdict else soft


def _headline(verdict: Verdict | None, findings: Sequence[Point], *, unchecked: bool) -> tuple[str, Tone, Line]:
    if verdict is not None:
        headline, tone = verdict_title(verdict)
        older = verdict.baseline
        baseline = "no baseline" if older is None else say("baseline {}", Name(older.version, 40))
        subline = say("Policy {} {}, {}.", Name(verdict.policy, 60), Name(verdict.policy_version, 40), baseline)
        if not unchecked:
            return headline, tone, subline
        text = "{} This is what gate.json says; it was not judged here. --policy POLICY.yaml has it judged."
        return f"Unchecked: {headline}", worst((tone, "warn")), say(text, subline)
    hint = "No policy was given, so nothing is passed or stopped: --policy POLICY.yaml has it judged."
    if not findings:
        return "Nothing stands out", "good", hint
    return f"{t.plural(len(findings), 'thing')} to look at", worst(point.tone for point in findings), hint


def _figures(view: Overview, lost: Tone) -> tuple[KeyFigure, ...]:
    shards, whole = view.ledger["shards"], view.totals
    unread = view.ledger["unread_bytes"]
    listed = view.ledger["listed_shards"]
    held_back = f", {t.count(listed)} held back by the list" if listed else ""
    held_out = sum(split["documents"] for split in view.splits if split["held_out"])
    return (
        KeyFigure(label="documents", value=whole["documents"], detail=f"{t.count(held_out)} held out"),
        KeyFigure(label="tokens", value=whole["tokens"], detail=f"{t.size(whole['bytes'])} of text"),
        KeyFigure(
            label="shards read",
            value=f"{t.count(shards['read'])} of {t.count(shards['planned'])}",
            detail=f"{t.size(unread)} unread{held_back}" if unread else f"nothing unread{held_back}",
            tone=lost if unread else "",
        ),
        KeyFigure(
            label="bytes per token",
            value=decimal(whole["bytes_per_token"]),
            detail=say("tokenizer {}", Name(view.tokenizer["name"], 40)),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a report is made with beside the manifest."""

    baseline: Path | None = None
    """An older manifest to compare with."""
    policy: Path | None = None
    """A policy to judge by."""
    verdict: Path | Verdict | None = None
    """A verdict, or a ``gate.json``, instead; without either, that in the manifest's folder is shown."""
    quarantine: Path | None = None
    """A list of quarantined shards to mark."""
    signer: Signer | None = None
    """Who has to have signed manifest and baseline; a policy may ask for that."""


def make_report(manifest: Manifest, out: Path, given: Given) -> tuple[Page, int]:
    """Write the report of a loaded manifest; return its page, and the bytes of the file."""
    require("report", "report")
    read = files_of(given.policy) | {"--quarantine": given.quarantine}
    read["--verdict"] = None if isinstance(given.verdict, Verdict) else given.verdict
    check_files({"--out": out}, read, (manifest.folder, given.baseline))
    older = None if given.baseline is None else load_manifest(given.baseline)
    if given.signer is not None:
        from dataaudit.manifest.trust import attested

        manifest = attested(manifest, given.signer)
        older = None if older is None else attested(older, given.signer)
    from dataaudit.base.render.html import render

    page = page_of(
        manifest,
        verdict=_verdict(manifest, older, given),
        unchecked=given.policy is None and not isinstance(given.verdict, Verdict),
        difference=None if older is None else load_pair(older, manifest),
        baseline=older,
        quarantined=quarantined_shards(manifest, given.quarantine),
    )
    data = render(page).encode("utf-8")
    write_file(out, data)
    return page, len(data)


def write_report(folder: Path, out: Path, given: Given, *, as_json: bool) -> str:
    """Write the report and return what the command prints."""
    manifest = load_consistent(folder)
    page, num_bytes = make_report(manifest, out, given)
    if not as_json:
        return f"{t.clean(str(out))}: {t.size(num_bytes)}, {page.headline}\n"
    findings = [spell(point.text, PERCENT).replace("\xa0", " ") for point in page.findings]
    head = {"report": str(out), "bytes": num_bytes, "id": manifest.id}
    return t.as_json(head | {"headline": page.headline, "findings": findings})


VERDICT = "gate.json"


def _verdict(manifest: Manifest, older: Manifest | None, given: Given) -> Verdict | None:
    """Return the verdict of a policy, or of a file that the gate wrote; None without either."""
    if given.policy is not None and given.verdict is not None:
        raise ConfigError("--policy judges anew, --verdict shows what was judged", "Give one of them.")
    if given.policy is not None:
        rules = policy_of(given.policy)
        return judge(manifest, rules, baseline=older, lists=compared_lists(manifest, rules, baseline=older))
    path = given.verdict or manifest.folder / VERDICT
    if isinstance(path, Path) and given.verdict is None:
        if not path.exists():
            return None
        if not path.is_file():  # a pipe would be waited for
            raise ManifestError(f"{path} is no file", "Take it away, or give --policy.")
    verdict = path if isinstance(path, Verdict) else read_verdict(path)
    if verdict.subject.id != manifest.id:
        name = "the verdict" if isinstance(path, Verdict) else path
        raise ManifestMismatch(
            f"{name} judges the manifest {verdict.subject.id}, this one is {manifest.id}",
            "Run `dataaudit gate` again, or give --policy.",
        )
    return verdict


def quarantined_shards(manifest: Manifest, path: Path | None) -> dict[int, Line]:
    """Return the shards that a quarantine list holds back, with reasons in words, by ordinal."""
    if path is None:
        return {}
    quarantine, words = load_quarantine(path), dict[int, Line]()
    for row in manifest.table("shards", COLUMNS).to_pylist():
        if not (digests := digests_of(row)):
            continue
        if entries := quarantine.shard_entries(**digests):
            codes = join(", ", (Name(code, 60) for code in sorted({str(entry.reason) for entry in entries})))
            until = max((str(entry.until) for entry in entries if entry.until), default="")
            words[row["shard"]] = say("on the quarantine list: {}{}", codes, f", until {until}" if until else "")
        elif rows := quarantine.rows(**row_digests_of(row)):
            words[row["shard"]] = f"{t.plural(len(rows), 'document')} of it on the quarantine list"
    return words
