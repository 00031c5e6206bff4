"""The command that decides: gate."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

import click

from dataaudit.cli.options import FOLDER, POLICY, block
from dataaudit.cli.shell import note, print_text


@click.command(
    short_help="Judge a manifest by a policy: pass or fail.",
    epilog="\n\n".join(
        (
            block(
                "Examples:",
                "dataaudit gate manifests/2026-11 --policy release-gate",
                "dataaudit gate manifests/2026-11 --policy gate.yaml --baseline manifests/2026-10",
                "dataaudit gate manifests/2026-11 --policy gate.yaml --junit junit.xml --sarif findings.sarif",
            ),
            block(
                "Exit codes:",
                "0  every rule holds, or only warns",
                "1  a budget is exceeded, or a waiver has expired",
                "2  the policy is wrong",
                "3  a required rule could not be judged: unread shards, a missing metric or baseline",
                "4  nothing was judged",
            ),
        )
    ),
)
@click.argument("folder", type=FOLDER, metavar="DIR")
@click.option(
    "--policy",
    type=POLICY,
    required=True,
    metavar="FILE",
    help="The rules: a file, or a policy that is ready: release-gate, strict, canary.",
)
@click.option("--baseline", type=FOLDER, metavar="DIR", help="Older manifest that rules of change compare with.")
@click.option(
    "--fail-on",
    type=click.Choice(["fail", "warn"]),
    default="fail",
    show_default=True,
    help="Least severity that ends with code 1.",
)
@click.option("--out", type=FOLDER, metavar="FILE", help="gate.json: the whole verdict.")
@click.option("--junit", type=FOLDER, metavar="FILE", help="JUnit XML, one test a rule.")
@click.option("--sarif", type=FOLDER, metavar="FILE", help="SARIF 2.1.0, for code scanning.")
@click.option("--summary", type=FOLDER, metavar="FILE", help="Markdown for a job's summary page.")
@click.option("--markdown", type=FOLDER, metavar="FILE", help="Markdown for a comment on a pull request.")
@click.option(
    "--annotations/--no-annotations",
    default=None,
    help="Print GitHub's ::error:: commands; by default where a GitHub runner runs it.",
)
@click.option(
    "--quarantine", type=FOLDER, metavar="FILE", help="List to which shards that fail rules about shards are proposed."
)
@click.option("--json", "as_json", is_flag=True, help="Print gate.json instead of tables.")
def gate(
    folder: Path,
    policy: Path,
    baseline: Path | None,
    fail_on: Literal["fail", "warn"],
    out: Path | None,
    junit: Path | None,
    sarif: Path | None,
    summary: Path | None,
    markdown: Path | None,
    quarantine: Path | None,
    *,
    annotations: bool | None,
    as_json: bool,
) -> None:
    """Judge a manifest by a policy, and say what does not hold, where, and by how much.

    Fail closed: a metric that is missing, a denominator of 0, a detector that failed, a shard that was not read never
    pass a required rule. Nothing but the manifest is read; no document text is in any output.
    """
    from dataaudit import api
    from dataaudit.gate.document import gate_json
    from dataaudit.gate.writers.blocks import terminal_text
    from dataaudit.gate.writers.writing import Outputs, check_outputs, on_runner, write_outputs

    outputs = Outputs(
        verdict=out,
        junit=junit,
        sarif=sarif,
        summary=summary,
        comment=markdown,
        annotations=on_runner(os.environ) and not as_json if annotations is None else annotations,
        environ=os.environ,
    )
    check_outputs(outputs, policy, (folder, baseline))
    verdict = api.gate(folder, policy, baseline=baseline, fail_on=fail_on)
    lines = write_outputs(verdict, outputs, policy)
    print_text(gate_json(verdict).decode("utf-8") if as_json else terminal_text(verdict))
    print_text(lines)
    if quarantine is not None:
        from dataaudit.quarantine.proposals import propose_shards

        note(propose_shards(quarantine, verdict, folder))
    sys.exit(verdict.exit_code)
