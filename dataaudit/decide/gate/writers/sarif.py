"""SARIF 2.1.0, the form of findings that code hosts show beside the code: what does not hold, at the rule's line.

GitHub's limits: 25,000 results and rules a run, of which 5,000 results are shown, and 10 MB compressed.
"""

from __future__ import annotations

import gzip
from typing import Any
from urllib.parse import quote

import sarif_pydantic as sp

from dataaudit import __version__
from dataaudit.base.render.blocks import web_address
from dataaudit.decide.gate.policy import Rule, Severity, Waiver
from dataaudit.decide.gate.verdict import Case, State, Verdict, WaiverResult, WaiverState
from dataaudit.decide.gate.writers import words as w
from dataaudit.decide.gate.writers.annotations import PolicyFile

MOST_RESULTS = 5000
MOST_RULES = 25_000
MOST_BYTES = 10_000_000
"""Compressed."""
_WHOLE = 5
"""Times as large as it may be when compressed; what is larger is not even compressed, to save time."""
_MOST_TEXT = 2000
"""Characters of a message."""
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ROOT, _DATA = "%SRCROOT%", "DATA"
_EXPIRED = "waivers/expired"
_VERDICT = "gate/verdict"
"""Rules of our own; a policy's names hold no slash."""
_LEVELS = {
    w.Effect.STOPS: sp.Level.ERROR,
    w.Effect.UNKNOWN: sp.Level.ERROR,
    w.Effect.WARNS: sp.Level.WARNING,
    w.Effect.WAIVED: sp.Level.NOTE,
}


def sarif_json(verdict: Verdict, policy: PolicyFile, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the file, UTF-8."""
    room = MOST_RESULTS
    while True:
        text: str = _file(verdict, policy, room).model_dump_json(by_alias=True, exclude_none=True)
        made = text.encode("utf-8") + b"\n"
        if room <= 1 or len(made) <= most_bytes:
            return made
        if len(made) <= _WHOLE * most_bytes and len(gzip.compress(made, 6, mtime=0)) <= most_bytes:
            return made
        room //= 2


def _file(verdict: Verdict, policy: PolicyFile, room: int) -> sp.Sarif:
    late = w.expired(verdict)
    picked, left_out = w.pick(verdict, room - min(len(late), room // 2) - 1)
    waivers = {
        waiver_result.waiver.fingerprint: waiver_result.waiver
        for waiver_result in verdict.waivers
        if waiver_result.state == WaiverState.USED
    }
    numbered = {result.rule.name: number for number, result in enumerate(verdict.rules[: MOST_RULES - 2])}
    base = len(numbered)
    known = [shown for shown in picked if shown.result.rule.name in numbered]
    results = [_result(shown, policy, numbered[shown.result.rule.name], waivers) for shown in known]
    results += [_expired(waiver_result, policy, base) for waiver_result in late[: room // 2]]
    if not verdict.passed and not any(result.level == sp.Level.ERROR for result in results):
        results.append(_own(_VERDICT, base + 1, f"{w.headline(verdict)}: {w.advice(verdict)}", policy))
    left = left_out + max(0, len(late) - room // 2) + len(picked) - len(known)
    driver = sp.ToolDriver(
        name="dataaudit",
        version=__version__,
        semantic_version=__version__,
        rules=[*(_descriptor(result.rule) for result in verdict.rules[:base]), *_own_rules()],
    )
    return sp.Sarif.model_validate(
        {
            "$schema": _SCHEMA,
            "version": "2.1.0",
            "runs": [
                sp.Run(
                    tool=sp.Tool(driver=driver),
                    results=results,
                    invocations=[_invocation(verdict, left)],
                    original_uri_base_ids={
                        _ROOT: sp.ArtifactLocation(description=sp.Message(text="The root of the repository.")),
                        _DATA: sp.ArtifactLocation(description=sp.Message(text="The splits of the audited corpus.")),
                    },
                    properties=_facts(verdict) | {"resultsLeftOut": left},
                )
            ],
        }
    )


def _descriptor(rule: Rule) -> sp.ReportingDescriptor:
    what = f"{w.metric_words(rule, None)} {w.limit_words(rule)}"
    lines = [w.prose(rule.reason) or what, *w.about(rule, "Owner", "Runbook")]
    level = sp.Level.ERROR if rule.severity == Severity.FAIL else sp.Level.WARNING
    more: dict[str, Any] = {"help_uri": web_address(rule.runbook) or None, "properties": {"tags": ["data-quality"]}}
    return _described(w.name(rule.name), (what, lines[0], "\n".join(lines)), level, **more)


def _own_rules() -> list[sp.ReportingDescriptor]:
    texts = {_EXPIRED: "A waiver whose day has passed stops the release.", _VERDICT: "The verdict as a whole."}
    return [_described(name, (text, text, text), sp.Level.ERROR) for name, text in texts.items()]


def _described(name: str, texts: tuple[str, str, str], level: sp.Level, **more: Any) -> sp.ReportingDescriptor:
    fields = ("short_description", "full_description", "help")
    messages: dict[str, Any] = {field: sp.Message(text=_text(text)) for field, text in zip(fields, texts, strict=True)}
    configuration = sp.ReportingConfiguration(level=level.value)
    return sp.ReportingDescriptor(id=name, **messages, default_configuration=configuration, **more)


def _result(shown: w.Shown, policy: PolicyFile, index: int, waivers: dict[str, Waiver]) -> sp.Result:
    rule, case = shown.result.rule, shown.case
    text = f"{shown.effect}: {w.message(rule, case)}"
    if shown.effect in w.STOPPING or shown.effect == w.Effect.WARNS:
        text += f"; owner {w.prose(rule.owner, 200)}" if rule.owner else ""
    more: dict[str, Any] = {}
    if shown.effect == w.Effect.WAIVED and case is not None:
        more["suppressions"] = [_suppression(waivers.get(case.fingerprint))]
    return sp.Result(
        rule_id=w.name(rule.name),
        rule_index=index,
        level=_LEVELS.get(shown.effect, sp.Level.NOTE),
        message=sp.Message(text=_text(text)),
        locations=[_location(policy, policy.lines.get(rule.name), case)],
        related_locations=[_related(uri, text) for uri, text in _evidence(rule, case)] or None,
        partial_fingerprints=_fingerprints(case.fingerprint if case else ""),
        **more,
    )


def _expired(late: WaiverResult, policy: PolicyFile, index: int) -> sp.Result:
    result = _own(_EXPIRED, index, w.waiver_words(late), policy)
    return result.model_copy(update={"partial_fingerprints": _fingerprints(late.waiver.fingerprint)})


def _own(name: str, index: int, text: str, policy: PolicyFile) -> sp.Result:
    return sp.Result(
        rule_id=name,
        rule_index=index,
        level=sp.Level.ERROR,
        message=sp.Message(text=_text(text)),
        locations=[_location(policy, None, None)],
    )


def _suppression(waiver: Waiver | None) -> dict[str, str]:
    why = "waived by the policy"
    if waiver is not None:
        why = f"{w.prose(waiver.reason)} (owner {w.prose(waiver.owner, 200)}, expires {waiver.expires.isoformat()})"
    return {"kind": "external", "status": "accepted", "justification": why}


def _location(policy: PolicyFile, line: int | None, case: Case | None) -> sp.Location:
    names = [sp.LogicalLocation(fully_qualified_name=text, kind=field) for field, text in w.scope_pairs(case)]
    inside = policy.in_repository is not None
    return sp.Location(
        physical_location=sp.PhysicalLocation(
            artifact_location=sp.ArtifactLocation(uri=_uri(policy.name), uri_base_id=_ROOT if inside else None),
            region=sp.Region(start_line=line or 1),
        ),
        logical_locations=names or None,
    )


def _related(uri: str, text: str) -> sp.Location:
    place = sp.ArtifactLocation(uri=_uri(uri), uri_base_id=_DATA)
    return sp.Location(
        physical_location=sp.PhysicalLocation(artifact_location=place), message=sp.Message(text=_text(f"{uri}: {text}"))
    )


def _evidence(rule: Rule, case: Case | None) -> list[tuple[str, str]]:
    shards = w.evidence(rule, case)
    if case is not None and case.shard_uri is not None and not shards:
        return [(w.name(case.shard_uri), "this shard")]
    return shards


def _fingerprints(fingerprint: str) -> dict[str, str] | None:
    """Return what identifies a finding across runs; GitHub reads the first name alone."""
    shown = w.name(fingerprint, 40)
    return {"primaryLocationLineHash": f"{shown}:1", "dataauditCase/v1": shown} if shown else None


def _invocation(verdict: Verdict, left: int) -> sp.Invocation:
    more: dict[str, Any] = {
        "exitCode": int(verdict.exit_code),
        "exitCodeDescription": f"{w.headline(verdict)}: {w.tally(verdict)}",
    }
    if left:
        text = f"{left:,} results are left out; `--out gate.json` writes them to a file."
        more["toolExecutionNotifications"] = [{"level": "warning", "message": {"text": text}}]
    judged = not any(result.state == State.NOT_EVALUATED for result in verdict.rules)
    return sp.Invocation(execution_successful=judged and verdict.exit_code in {0, 1}, **more)


def _facts(verdict: Verdict) -> dict[str, Any]:
    return {
        "manifest": w.name(verdict.subject.id),
        "dataset": w.name(verdict.subject.name),
        "datasetVersion": w.name(verdict.subject.version),
        "baseline": w.name(verdict.baseline.id) if verdict.baseline else "none",
        "canary": w.canary_words(verdict.canary) if verdict.canary else "none",
        "policy": w.name(verdict.policy),
        "policyDigest": w.name(verdict.policy_digest),
        "on": w.name(verdict.on),
        "waivers": [w.waiver_words(waiver) for waiver in verdict.waivers[:1000]],
    }


def _uri(path: str) -> str:
    """Return a relative reference that leads to nowhere above its base."""
    parts = [quote(part, safe="") for part in path.split("/") if part]
    return "/".join(part.replace(".", "%2E") if part in {".", ".."} else part for part in parts) or "unnamed"


def _text(text: str) -> str:
    """Escape what a SARIF message takes for a link (section 3.11.6); a text that is too long is cut."""
    text = text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT] + " ..."
    return text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
