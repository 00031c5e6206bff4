"""The commands about checkpoints and what they lost: probe, triage."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from dataaudit.base import text as t
from dataaudit.cli.shell import FOLDER, JSON, choice, ending, flag, note, option, path, print_text

PROBES = ("frozen", "held_out", "cloze", "memorization", "contamination", "rtp", "lm_eval")
DEFAULT = "frozen,held_out,cloze,memorization,contamination"
_READ_BY = {"rtp": ("--rtp", "rtp"), "tasks": ("--task", "lm_eval"), "sets": ("--set", "contamination")}
_READ_BY |= {"domains": ("--domains", "held_out")}
"""Option and probe that alone reads it, by argument."""


@click.command(
    short_help="Measure a checkpoint beside the manifest that it was trained on.",
    epilog=ending(
        "dataaudit probe runs/7b/checkpoint-1000 --manifest manifests/2026-11 --step 1000 --out probes/7b",
        "dataaudit probe out/ckpt.pt --manifest manifests/2026-11 --tokenizer gpt2.json --probes frozen,held_out",
        "dataaudit probe last.ckpt --model train.py:load --tokenizer bytes --manifest manifests/2026-11",
        "dataaudit probe http://localhost:8000/v1#my-model --tokenizer gpt2.json --manifest manifests/2026-11",
        "dataaudit probe CHECKPOINT --manifest DIR --probes rtp --rtp prompts.jsonl --judge unbiased --json",
        "dataaudit probe OLD --cross NEW --new tokenizer=new.json --manifest DIR --tokenizer old.json",
        codes={
            0: "every probe that was named is evaluated",
            1: "--cross: a change follows the checkpoint, the harness, or both",
            2: "wrong use: no checkpoint, no manifest, or a tokenizer that does not fit",
            3: "a number is not evaluated, or a comparison is invalid: artifacts differ; --cross: undecidable",
            4: "nothing was evaluated",
        },
    ),
)
@click.argument("checkpoint", metavar="CHECKPOINT")
@path("--manifest DIR", "The manifest that it was trained on.", required=True)
@path("--root DIR", "Folder that holds the shards now.")
@option("--tokenizer FILE", "The model's tokenizer: a file, folder, hub id or `bytes`.")
@option("--end TOKEN", "Token that ends a document, by its id or text.")
@option("--model MODULE:FUNCTION", "Loads the checkpoint; MODULE may be a file.", to="function")
@option("--context N", "Tokens that the model takes at once.", type=click.IntRange(8))
@choice("--dtype", "float32 bfloat16 float16", "Of the weights; theirs by default.")
@option("--device NAME", "cpu, cuda, ...; a GPU where there is one by default.")
@option("--step N", "Step of the run that it is of.", type=click.IntRange(0), default=0, show_default=False)
@option("--probes NAMES", f"Some of {', '.join(PROBES)}.", default=(DEFAULT,), multiple=True)
@option("--documents", "Held-out documents, at most.", type=click.IntRange(1), default=2_000)
@option("--prompts", "Prompts of the other probes.", type=click.IntRange(1), default=200)
@path("--domains FILE", "YAML: the domain of each source, for slices.")
@path("--rtp FILE", "Prompts in the format of RealToxicityPrompts.")
@option("--judge NAME", "Judge of toxicity, or a checkpoint.", default="original")
@option("--generations", "Continuations of a prompt of --rtp.", type=click.IntRange(1), default=25)
@option("--task NAME", "Task of lm-evaluation-harness; for lm_eval.", to="tasks", multiple=True)
@option("--set NAME=FILE", "A set of texts to be tested for contamination.", to="sets", multiple=True)
@option("--seed", "Of samples and of generation.", type=click.IntRange(0), default=0)
@path("--out DIR", "Folder of reports: kept, resumed, compared with the step before.")
@path("--baseline DIR", "Report to compare with: a folder step-... of --out.")
@path("--run DIR", "Run log of probes: numbers by step, which `watch` judges.", to="runlog")
@path("--alert FILE", "With --run: rules that the numbers are judged by.")
@option("--cross NEW", "A newer checkpoint: measure both by both harnesses.")
@option("--new NAME=VALUE", "With --cross: option of the new harness.", to="changes", multiple=True)
@JSON
def probe(
    checkpoint: str,
    manifest: Path,
    probes: tuple[str, ...],
    cross: str | None,
    changes: tuple[str, ...],
    *,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure losses, memorisation, contamination and safety of a checkpoint; each number has an interval.

    Numbers carry an eval_artifact_hash of tokenizer, prompts, templates, decoding, harness and dtype. With --out they
    are compared with the report of the step before; where a hash differs, the comparison is invalid, not different.
    A probe that was killed goes on where it was. Reports hold no text of documents or outputs.

    With --cross, CHECKPOINT is the old one. The other options are the old harness, and --new names what differs in the
    new. The table of all four says whether a change follows the checkpoint or the harness.
    """
    from dataaudit.probes.command import ProbeOptions, exit_code, report_text, run_probes

    names = [name.strip() for name in ",".join(probes).split(",") if name.strip()]
    if unknown := [name for name in names if name not in PROBES] or not names:
        shown = ", ".join(unknown) if isinstance(unknown, list) else "none"
        raise click.UsageError(f"--probes: expected some of {', '.join(PROBES)}, found {t.clean(shown)}.")
    for key, (option_, reader) in _READ_BY.items():
        if options[key] and reader not in names:
            raise click.UsageError(f"{option_} is read by the probe {reader}: name it in --probes, too.")
    chosen = ProbeOptions(checkpoint=checkpoint, manifest=manifest, probes=tuple(names), **options)
    if changes and cross is None:
        raise click.UsageError("--new names the new harness of --cross; name the newer checkpoint, too.")
    if cross is not None and (chosen.runlog or chosen.alert or chosen.baseline):
        raise click.UsageError("--cross compares its own four reports: leave out --run, --alert and --baseline.")
    if cross is not None:
        from dataaudit.probes.cross import cross_product, cross_text, parse_changes

        table = cross_product(chosen, cross, parse_changes(changes), note)
        print_text(t.as_json(table.document()) if as_json else cross_text(table))
        sys.exit(table.exit_code)
    if chosen.out is not None and not chosen.step:
        note("no --step: the report is of step 0, replaces an earlier report, and is compared with none")
    report = run_probes(chosen, note)
    print_text(t.as_json(report.document()) if as_json else report_text(report))
    sys.exit(exit_code(report))


@click.command(
    short_help="Name the cause of a silent regression: evaluation, data, internals, architecture.",
    epilog=ending(
        "dataaudit triage runs/7b --manifest manifests/2026-11 --baseline runs/7a",
        "dataaudit triage runs/7b --manifest manifests/new --baseline runs/7a --baseline-manifest manifests/old",
        "dataaudit triage runs/7b --manifest manifests/2026-11 --baseline runs/7a --format md > issue.md",
        "dataaudit triage runs/7b --manifest DIR --baseline runs/7a --json | jq '.cause, .missing'",
        codes={
            0: "every step was looked at, and is clean",
            1: "a cause is named",
            2: "wrong use: no run log, another manifest than the run's, or reports that cannot be read",
            3: "undecidable: what is missing stands in the first line",
            4: "no data: the run log has no step",
        },
    ),
)
@click.argument("runlog", type=FOLDER, metavar="RUNLOG")
@path("--manifest DIR", "The manifest that it was trained on.", required=True)
@path("--baseline RUNLOG", "A healthy run, of the same steps where possible.")
@path("--baseline-manifest DIR", "The baseline's manifest, where it is another.")
@path("--probes DIR", "Reports of the run's checkpoints; beside RUNLOG by default.")
@path("--baseline-probes DIR", "Reports of the baseline's checkpoints.")
@option(
    "--worse SHARE",
    "Part of the baseline's loss from which on a loss is worse: more where seeds of your runs differ by more.",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.02,
)
@choice("--format", "text json md", "A page of text, JSON, or Markdown for an issue.", to="form", default="text")
@flag("--json", "The same as --format json.", to="as_json")
def triage(runlog: Path, manifest: Path, form: str, *, as_json: bool, **given: Any) -> None:
    """Say why benchmarks dropped while the loss looked fine, in a strict order, each step with its evidence.

    First whether both runs were measured alike; then whether the data is what the manifest, and the baseline, let
    expect; then attention, routers, activations and updates; at last whether the model is too small. A step that could
    not be looked at is not clean: the verdict is undecidable then, and says what to type. Nothing is changed.
    """
    from dataaudit.probes.triage.run import shown
    from dataaudit.probes.triage.run import triage as triaged

    result = triaged(runlog, manifest, **given)
    print_text(shown(result, "json" if as_json else form))
    sys.exit(result.exit_code)
