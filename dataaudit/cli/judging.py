"""The commands that say what manifests come to, gate, diff, report; and the draft of a policy."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Literal

import click

from dataaudit.cli.shell import (
    JSON,
    MANIFEST,
    POLICY,
    REQUIRE_SIGNATURE,
    SIDE,
    check_new,
    choice,
    ending,
    flag,
    lean_process,
    note,
    option,
    path,
    print_text,
    print_verdict,
    print_written,
    signer_options,
)
from dataaudit.decide.gate import BUILTIN


@click.command(
    short_help="Judge a manifest by a policy: pass or fail.",
    epilog=ending(
        "dataaudit gate manifests/2026-11 --policy release-gate",
        "dataaudit gate manifests/2026-11 --policy gate.yaml --baseline manifests/2026-10",
        "dataaudit gate manifests/2026-11 --policy gate.yaml --junit junit.xml --sarif findings.sarif",
        "dataaudit gate manifests/2026-11 --policy gate.yaml --require-signature --public-key build.pub",
        "dataaudit gate s3://bucket/manifests/2026-11 --policy gate.yaml",
        codes={
            0: "every rule holds, or only warns",
            1: "a budget is exceeded, or a waiver has expired; a manifest was changed, or is not signed",
            2: "the policy is wrong",
            3: "a required rule could not be judged: unread shards, a missing metric or baseline",
            4: "nothing was judged",
        },
    ),
)
@click.argument("folder", type=MANIFEST, metavar="DIR")
@path(
    "--policy FILE",
    "The rules: a file, or a policy that is ready: release-gate, strict, canary.",
    kind=POLICY,
    required=True,
)
@path("--baseline DIR", "Older manifest that rules of change compare with.", kind=MANIFEST)
@REQUIRE_SIGNATURE
@signer_options
@choice("--fail-on", "fail warn", "Least severity that ends with code 1.", default="fail")
@path("--out FILE", "gate.json: the whole verdict.")
@path("--junit FILE", "JUnit XML, one test a rule.")
@path("--sarif FILE", "SARIF 2.1.0, for code scanning.")
@path("--summary FILE", "Markdown for a job's summary page.")
@path("--markdown FILE", "Markdown for a comment on a pull request.")
@path("--failing FILE", "JSON lines: shard and row of each document that broke a rule; empty when it passes.")
@option(
    "--annotations/--no-annotations",
    "Print GitHub's ::error:: commands; by default where a GitHub runner runs it.",
    default=None,
)
@path("--quarantine FILE", "List to which shards that fail rules about shards are proposed.")
@path("--quarantine-list FILE", "List of which nothing may be released: else exit code 1.")
@flag("--json", "Print gate.json instead of tables.", to="as_json")
@lean_process
def gate(
    folder: Path,
    policy: Path,
    baseline: Path | None,
    signer: dict[str, Any],
    fail_on: Literal["fail", "warn"],
    quarantine: Path | None,
    quarantine_list: Path | None,
    *,
    require_signature: bool,
    annotations: bool | None,
    as_json: bool,
    **files: Any,
) -> None:
    """Judge a manifest by a policy, and say what does not hold, where, and by how much.

    Fail closed: a metric that is missing, a denominator of 0, a detector that failed, a shard that was not read never
    pass a required rule. Without --require-signature, which asks it of manifest and baseline, whoever can write their
    folders can write any number into them. Nothing but manifests is read; no document text is in any output.
    """
    from dataaudit import api
    from dataaudit.api.arguments import OPTIONS, signer_of
    from dataaudit.decide.gate.document import gate_json
    from dataaudit.decide.gate.run import files_of
    from dataaudit.decide.gate.writers.blocks import terminal_text
    from dataaudit.decide.gate.writers.writing import Outputs, check_outputs, on_runner, write_outputs

    if as_json and annotations:
        raise click.UsageError("--json and --annotations both print on stdout: --out FILE writes gate.json.")
    marks = on_runner(os.environ) and not as_json if annotations is None else annotations
    outputs = Outputs(annotations=marks, environ=os.environ, **files)
    read = files_of(policy) | {"--public-key": signer["public_key"]}
    read |= {"--quarantine": quarantine, "--quarantine-list": quarantine_list}
    check_outputs(outputs, read, (folder, baseline))
    signer_of(**signer, words=OPTIONS, asked="--require-signature" if require_signature else None)
    verdict = api.gate(folder, policy, baseline=baseline, fail_on=fail_on, quarantine=quarantine_list, **signer)
    if outputs.failing is not None:  # first: it reads further tables, of which one may have been changed
        from dataaudit.decide.gate.evidence import json_lines
        from dataaudit.manifest.outfiles import write_pieces

        write_pieces(outputs.failing, json_lines(api.failing(folder, verdict, baseline=baseline)))
    lines = write_outputs(verdict, outputs, policy)
    if as_json:
        print_text(gate_json(verdict).decode("utf-8"))
    else:
        print_verdict(terminal_text(verdict))
    print_text(lines)
    if quarantine is not None:
        from dataaudit.decide.quarantine.changes import propose_shards

        note(propose_shards(quarantine, verdict, folder))
    sys.exit(verdict.exit_code)


class _Policies(click.Group):
    """Sends who names a policy in place of a command to the gate."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is named."""
        from dataaudit.base.yamlfile import nearest

        meant = nearest(args[0], BUILTIN).partition(" (known")[0]
        if args[0] not in self.commands and meant:
            raise click.UsageError(
                f"{args[0]} is no command{meant}: `dataaudit gate DIR --policy NAME` judges by a policy."
                f" With the package come {', '.join(BUILTIN)}.",
                ctx,
            )
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Policies,
    short_help="Draft a policy from what a manifest measured.",
    epilog=ending(
        "dataaudit policy draft manifests/first --out policy.yaml",
        codes={0: "it is written", 1: "a table is not the one that was published"},
    ),
)
def policy() -> None:
    """Policies say what a manifest has to keep (`dataaudit explain gate`); `dataaudit gate` judges by them."""


@policy.command(
    short_help="Write a first policy, its limits drawn from a manifest.",
    epilog=ending(
        "dataaudit policy draft manifests/first",
        "dataaudit policy draft manifests/first --out policy.yaml",
        "dataaudit gate manifests/second --policy policy.yaml --baseline manifests/first",
        codes={
            0: "it is written",
            1: "a table is not the one that was published",
            2: "the manifest cannot be read, or the file is there already",
        },
    ),
)
@click.argument("folder", type=MANIFEST, metavar="DIR")
@path("--out FILE", "Where to write it; printed by default.")
@flag("--force", "Replace the file of --out when it is there already.")
@JSON
@lean_process
def draft(folder: Path, out: Path | None, *, force: bool, as_json: bool) -> None:
    """Write a commented policy: release-gate's bounds, then limits drawn from what the manifest measured.

    Drawn limits are the measured numbers with their intervals, rounded outward to two digits, so the manifest passes;
    each comment says what was measured. A bound of release-gate that the manifest fails is kept and marked: such a
    draft does not pass. The same manifest gives the same bytes.
    """
    from dataaudit.decide.gate.draft import FAILS
    from dataaudit.decide.gate.draft import draft as drafted
    from dataaudit.decide.gate.policy import parse_policy
    from dataaudit.manifest.load import load_manifest

    check_new(out, folder, force=force)
    manifest = load_manifest(folder)
    text = drafted(manifest)
    facts = {"manifest": manifest.id, "rules": len(parse_policy(text, where="the draft").rules)}
    words = "a draft; read every limit, then gate by it"
    if failed := text.count(f"\n\n  # {FAILS}"):
        words = f"a draft that this manifest fails, by {failed} of its rules: mend the data, build, and draft again"
    print_written(out, text.encode("utf-8"), words, facts, as_json=as_json)


@click.command(
    short_help="Say what changed between two manifests.",
    epilog=ending(
        "dataaudit diff manifests/2026-10 manifests/2026-11",
        "dataaudit diff manifests/2026-10 manifests/2026-11 --format md > comment.md",
        "dataaudit diff manifests/2026-10 manifests/2026-11 --json | jq .proposal",
        codes={0: "both are the same", 1: "they differ", 2: "one cannot be read"},
    ),
)
@click.argument("old", type=SIDE, metavar="OLD")
@click.argument("new", type=SIDE, metavar="NEW")
@choice("--format", "text json md", "A page of text, JSON, or Markdown for a comment.", to="form", default="text")
@flag("--all", "List every row, not the first of each section; JSON has all.", to="everything")
@flag("--json", "The same as --format json.", to="as_json")
@lean_process
def diff(old: Path, new: Path, form: str, *, everything: bool, as_json: bool) -> None:
    """Say what changed from manifest OLD to manifest NEW, and which version bump that means.

    Shards that were added, removed, changed or only stored otherwise; every metric with its interval, and whether its
    change is larger than the noise; drift of tokens per source; what else differs. Neither corpus is read.
    """
    from dataaudit import api
    from dataaudit.decide.diff.blocks import render

    difference = api.diff(old, new)
    print_text(render(difference, "json" if as_json else form, everything=everything))
    sys.exit(0 if difference.equal else 1)


@click.command(
    short_help="Write one HTML file of a manifest, or of a training run.",
    epilog=ending(
        "dataaudit report manifests/first --out report.html",
        "dataaudit report --run runs/7 --out run.html",
        "dataaudit report manifests/new --out report.html --baseline manifests/old --policy strict",
        codes={
            0: "it is written, whatever it shows",
            1: "the manifest contradicts itself, or is not signed as asked",
            4: "the run log holds nothing",
        },
    ),
)
@click.argument("folder", type=MANIFEST, metavar="[DIR]", required=False)
@path("--run RUNLOG", "A run log; DIR is then its manifest.")
@path("--out FILE.html", "Where to write it.", required=True)
@path("--baseline OLD", "Older manifest: the report says what changed.", kind=MANIFEST)
@path("--policy POLICY.yaml", "Policy to judge by.", kind=POLICY)
@path("--verdict FILE", "The gate's gate.json, instead of --policy; DIR/gate.json is shown when it is there.")
@path("--quarantine FILE", "Quarantine list whose shards are marked.")
@signer_options
@flag("--json", "Print what was written as JSON.", to="as_json")
@lean_process
def report(
    folder: Path | None, run: Path | None, out: Path, signer: dict[str, Any], *, as_json: bool, **given: Any
) -> None:
    """Write the report of a manifest: one HTML file that opens from disk, fetches nothing and holds no document text.

    Verdict or what stands out first, then what changed, then every area, then all shards. With --run it is that of a
    training run: alarms, the loss with its episodes, heads and layers over steps; with DIR its data stand beside what
    was audited. The exit code is 0 when the file was written: the report shows a verdict, `dataaudit gate` decides.
    """
    if folder is None and run is None:
        raise click.UsageError(
            "expected a manifest, DIR, or --run RUNLOG, or both: the run is compared with its manifest"
        )
    from dataaudit.manifest.outfiles import check_files

    if run is not None:
        check_files({"--out": out})
        named = {name: given[name] for name in ("baseline", "policy", "verdict", "quarantine")}
        named |= {name.replace("_", "-"): value for name, value in signer.items()}
        if wrong := [name for name, value in named.items() if value is not None]:
            raise click.UsageError(
                f"--{wrong[0]} is of a manifest's report; --run takes a run log, and DIR if you have it"
            )
        from dataaudit.training.pages.page import write_run_report

        print_text(write_run_report(run, out, manifest=folder, as_json=as_json))
        return
    from dataaudit.api.arguments import OPTIONS, signer_of
    from dataaudit.present.report.page import Given, write_report

    assert folder is not None
    wanted = signer_of(**signer, words=OPTIONS)
    check_files({"--out": out}, {"--public-key": signer["public_key"]})
    print_text(write_report(folder, out, Given(signer=wanted, **given), as_json=as_json))
