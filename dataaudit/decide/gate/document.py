"""``gate.json``: a verdict as JSON with a schema of its own, and back.

It is passed on like the other outputs, so it keeps their rule about personal data: small counts are left out, larger
counts are rounded.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

import orjson
from pydantic import ConfigDict, Field, ValidationError

from dataaudit.base.errors import ManifestError
from dataaudit.base.files import read_safely
from dataaudit.decide.gate.number_texts import discreet
from dataaudit.decide.gate.verdict import RuleResult, Verdict
from dataaudit.manifest.core import Model

SCHEMA_NAME: Final = "dataaudit-gate"
SCHEMA_VERSION: Final = 1
MOST_CASES: Final = 10_000
"""Cases of a rule that are listed; all are counted."""


class GateSchema(Model):
    """Name and version of the form."""

    name: Literal["dataaudit-gate"] = SCHEMA_NAME
    version: Literal[1] = SCHEMA_VERSION


class GateFile(Model):
    """The whole of ``gate.json``."""

    model_config = ConfigDict(ser_json_inf_nan="null")

    schema_: GateSchema = Field(default_factory=GateSchema, alias="schema")
    passed: bool = Field(description="Whether the manifest may be released.")
    exit_code: int = Field(description="Of the gate.")
    exit_codes: tuple[int, ...] = Field(description="Every code for which there was a cause.")
    waiting: tuple[str, ...] = Field(description="Rules that wait for a baseline.")
    verdict: Verdict = Field(
        description="Rules in the policy's order with the cases that do not pass, at most 10,000 of a rule; `counts`"
        " counts all. `judged` is null where a change from 0 has no number."
    )


def gate_json(verdict: Verdict) -> bytes:
    """Return the bytes of ``gate.json``, ASCII alone; the same verdict gives the same bytes."""
    document = GateFile(
        passed=verdict.passed,
        exit_code=int(verdict.exit_code),
        exit_codes=tuple(map(int, verdict.codes)),
        waiting=verdict.waiting,
        verdict=replace(verdict, rules=tuple(_shortened(result) for result in verdict.rules)),
    )
    plain = orjson.loads(document.model_dump_json(by_alias=True))
    return (json.dumps(plain, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def read_verdict(path: Path) -> Verdict:
    """Return the verdict of a ``gate.json``."""
    try:
        document: Any = orjson.loads(read_safely(path))
    except (OSError, orjson.JSONDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not JSON"
        raise ManifestError(f"the verdict {path} cannot be read: {reason}") from None
    try:
        return GateFile.model_validate(document).verdict
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors(include_url=False)[0]["loc"])
        raise ManifestError(
            f"{path} is no verdict that this version reads: {error.error_count()} problem(s), the first at {where}",
            "`dataaudit gate ... --out gate.json` writes one.",
        ) from None


def gate_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``gate.json``."""
    return GateFile.model_json_schema(by_alias=True, mode="serialization")


def _shortened(result: RuleResult) -> RuleResult:
    """Return the result with its worst cases, and a case of every state, from which its exit codes follow."""
    cases = list(result.cases[:MOST_CASES])
    listed = {case.state for case in cases if not case.waived}
    for case in result.cases[MOST_CASES:]:
        if not case.waived and case.state not in listed:
            listed.add(case.state)
            cases.append(case)
    return replace(result, cases=tuple(discreet(result.rule, case) for case in cases))
