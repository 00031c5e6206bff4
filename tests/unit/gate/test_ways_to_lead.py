"""Ways to lead the gate: what somebody does who wants a manifest through that should not pass, and what he gets.

Each row is a name, what is done, the exit code and words of the answer. A way is a function that gets an empty folder
and returns the arguments of `dataaudit`; a change of the program that lets one of them through fails here.
"""

from __future__ import annotations

import datetime as dt
import functools
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from made_facts import record
from made_manifest import make, shard

from dataaudit.cli import main
from dataaudit.gate.run import today

RATE = {"name": "copies", "metric": "near_dup_rate", "stat": "rate", "unit": "ratio", "budget": 0.5}
SECRETS = {"name": "keys", "metric": "secret_hit_rate", "stat": "validated_hits", "unit": "hits", "budget": 0}
READ = record("coverage_unread_bytes", "shard_bytes", 0.0, "bytes")
COPIES = record(value=0.9)


def manifest(folder: Path, *records, name="m", **more) -> Path:
    """Publish a manifest that read everything, with these records beside."""
    make(folder / name, more.pop("shards", None) or [shard("a.jsonl")], metrics=[READ, *records], **more)
    return folder / name


def policy(folder: Path, *rules, **more) -> Path:
    """Write a policy of these rules."""
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump({"policy": "p", "rules": list(rules), **more}))
    return path


def gated(folder: Path, rules, *records, baseline=None, more=(), **given) -> list[str]:
    """Return the call of the gate on a manifest with these records."""
    older = [] if baseline is None else ["--baseline", str(manifest(folder, *baseline, name="old"))]
    call = ["gate", str(manifest(folder, *records)), "--policy", str(policy(folder, *rules, **given)), *older]
    return [*call, *more]


@functools.cache
def fingerprint() -> str:
    """Return the fingerprint of the rule about copies, as the gate gives it."""
    from made_facts import covered, facts, rule
    from made_facts import policy as made

    from dataaudit.gate.evaluate import evaluate

    one = rule(**RATE)
    return evaluate(made(one), facts(covered(), COPIES), on=today()).rules[0].cases[0].fingerprint


def waiver(days: int, **more):
    """Return a waiver of the rule about copies whose last day lies so many days ahead."""
    last = today() + dt.timedelta(days=days)
    return {"fingerprint": fingerprint(), "rule": "copies", "owner": "o", "reason": "known", "expires": last} | more


def waived(days, **more):
    """Return a way: a waiver for a manifest of copies."""
    return lambda folder: gated(folder, [RATE], COPIES, waivers=[waiver(days, **more)])


def exported(days, *more):
    """Return a way: a verdict is exported of a manifest of copies with a waiver."""

    def way(folder):
        call = gated(folder, [RATE], COPIES, waivers=[waiver(days)])
        return ["export", "verdict", *call[1:], "--out", str(folder / "v.json"), *more]

    return way


TIME = [
    ("a waiver covers what is known until its day", waived(10), 0, "1 case is waived"),
    ("on its last day too", waived(0), 0, "1 case is waived"),
    ("a waiver that has expired", waived(-1), 1, "expired"),
    ("a waiver without an end worth the name", waived(181), 2, "expected at most 180"),
    ("a waiver for ever", waived(365 * 900), 2, "expected at most 180"),
    ("a number that grew beyond the waiver's ceiling", waived(10, up_to=0.8), 1, "exceeded"),
    ("a number within the waiver's ceiling", waived(10, up_to=0.9), 0, "1 case is waived"),
    ("a ceiling that covers nothing", waived(10, up_to=0.2), 2, "expected a number beyond the rule's limit, 0.5"),
    ("a ceiling in quotes", waived(10, up_to="1"), 2, "waivers.0.up_to: expected a number"),
    ("a ceiling without end", waived(10, up_to=float("inf")), 2, "up_to"),
    ("a statement dated before the waiver expired", exported(-5, "--time", "2020-01-01"), 0, "FAILED"),
    ("a statement with a waiver that holds", exported(5, "--time", "2020-01-01"), 0, "PASSED"),
]


@pytest.mark.parametrize(("way", "code", "says"), [row[1:] for row in TIME], ids=[row[0] for row in TIME])
def test_the_gate_is_not_led(tmp_path, way, code, says):
    result = CliRunner().invoke(main, way(tmp_path), env={"COLUMNS": "200"})
    told = " ".join(result.output.split())
    assert (result.exit_code, says in told) == (code, True), result.output
