"""The commands about training runs: attribute and reconstruct."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from dataaudit.base import text as t
from dataaudit.cli.shell import FOLDER, choice, ending, flag, note, option, path, print_text

if TYPE_CHECKING:
    from dataaudit.training.orders.reconstruct import Kind


@click.command(
    short_help="Name the shard behind a spike of a run's loss.",
    epilog=ending(
        "dataaudit attribute runs/7b --manifest manifests/2026-11",
        "dataaudit attribute runs/7b --manifest manifests/2026-11 --step 312",
        "dataaudit attribute runs/7b --manifest manifests/2026-11 --picture spike.png",
        "dataaudit attribute runs/7b --manifest manifests/2026-11 --json | jq '.episodes[].found.name'",
        "dataaudit attribute runs/7b --manifest manifests/2026-11 --replay train.py:replay",
        "dataaudit attribute trainer_log.csv --loss-column train_loss",
        codes={
            0: "nothing to explain",
            1: "a block or a shard accounts for the excess of an episode, or a replay proposes one",
            2: "wrong use: no run log, or another manifest than the run's",
            3: "there are episodes, and no data is named: why stands in the first line; of a table, any episode",
            4: "no data: no step, or too few for a line",
        },
    ),
)
@click.argument("runlog", type=FOLDER, metavar="RUNLOG")
@path("--manifest DIR", "The manifest that the run was trained on.")
@option("--step N", "Only the episode that step N is in.", type=click.IntRange(min=0))
@path("--reference RUNLOG", "A healthy run with the same schedule, to compare the loss with.")
@path("--picture FILE.png", "The loss with its band and episodes.")
@option(
    "--replay MODULE:FUNCTION",
    "Do parts of the run again: what FUNCTION(manifest, runlog) returns; MODULE may be a file.",
)
@option("--suspect SHARD[:ROW]", "With --replay: a shard, or the row's block.", to="suspects", multiple=True)
@option(
    "--before",
    "With --replay: steps before an episode from which on the arms differ.",
    type=click.IntRange(min=1, max=1_000),
    default=8,
)
@option("--step-column NAME", "Of another program's log: of the step; a usual name by default.")
@option("--loss-column NAME", "Of another program's log: of the loss.")
@flag("--json", "Print attribution.json instead of tables.", to="as_json")
def attribute(
    runlog: Path,
    manifest: Path | None,
    step: int | None,
    reference: Path | None,
    picture: Path | None,
    replay: str | None,
    suspects: tuple[str, ...],
    before: int,
    step_column: str | None,
    loss_column: str | None,
    *,
    as_json: bool,
) -> None:
    """Say which block or shard of the corpus accounts for the excess when a run's loss rose, and how sure that is.

    An episode is a run of steps above the band around a robust line; its excess over what the healthy past predicts is
    divided among the documents of its batches (`dataaudit explain attribution`). What is found is also written to
    RUNLOG/attribution.json. No text of documents is read or shown.

    RUNLOG may be a table of another program, .csv, .tsv, .jsonl or .parquet with a step and a loss: then spikes
    are found, and nothing else is said.
    """
    columns: dict[str, object] = {"--step-column": step_column, "--loss-column": loss_column}
    of_log: dict[str, object] = {"--manifest": manifest, "--step": step, "--reference": reference}
    of_log |= {"--picture": picture, "--replay": replay, "--suspect": suspects or None}
    if runlog.suffix in {".csv", ".tsv", ".jsonl", ".ndjson", ".parquet"} and not runlog.is_dir():
        _refuse(of_log, "a run log, and RUNLOG is a table: spikes are found in it, and no shard is named")
        _detect(runlog, step_column, loss_column, as_json=as_json)
    _refuse(columns, "a table, and RUNLOG is a run log")
    if manifest is None:
        raise click.UsageError("--manifest DIR: a run log is read beside the manifest that it was trained on.")
    from dataaudit.training.attribution import attribute as attribution
    from dataaudit.training.attribution.run_data import load_data
    from dataaudit.training.pages.blocks import render_text

    if picture is not None:
        from dataaudit.training.pages.picture import check_picture

        check_picture(picture)
    if suspects and replay is None:
        raise click.UsageError("--suspect names what --replay looks at; name the replay, too.")
    data = load_data(runlog, manifest, reference)
    result = attribution.attribute(data, step)
    if replay is not None:
        from dataaudit.training.replay.replaying import load_replay, replayed

        replayer = load_replay(replay, manifest, runlog)
        result = replayed(data, result, replayer, replay, suspects, before=before)
    if picture is not None:
        from dataaudit.training.pages.picture import write_picture

        write_picture(picture, result, data)
    print_text(t.as_json(result.model_dump(mode="json", by_alias=True)) if as_json else render_text(result, data))
    try:
        attribution.write_attribution(runlog, result)
    except OSError as error:
        note(f"dataaudit: attribution.json cannot be written to {runlog}: {error.strerror or error}")
    sys.exit(result.exit_code)


def _refuse(options: Mapping[str, object], what: str) -> None:
    """Refuse options that would change nothing; what they are of, in words."""
    if given := [name for name, value in options.items() if value is not None]:
        raise click.UsageError(f"{given[0]} is of {what}.")


def _detect(path: Path, step: str | None, loss: str | None, *, as_json: bool) -> NoReturn:
    """Judge the log of another program, and end."""
    from dataaudit.training.pages.foreign_log import detect, render_detection

    result, steps, values = detect(path, step=step, loss=loss)
    plain = t.as_json(result.model_dump(mode="json", by_alias=True))
    print_text(plain if as_json else render_detection(result, steps, values))
    sys.exit(result.exit_code)


@click.command(
    short_help="Write the run log of a run without one, from its saved order and its losses.",
    epilog=ending(
        "dataaudit reconstruct runs/7b --manifest manifests/2026-11 --order megatron --index cache \\",
        "    --file tokens/train.bin --batch 1024 --rampup 32 32 2000000 --steps 1-40000 --losses log.csv",
        "dataaudit reconstruct runs/gpt --manifest manifests/2026-11 --order nanogpt --state rng.pt \\",
        "    --file train.bin --context 1024 --micro-batch 12 --accumulate 40 --steps 0-999 --losses log.csv",
        "dataaudit reconstruct runs/olmo --manifest manifests/2026-11 --order olmo --context 2048 \\",
        "    --batch 512 --index global_indices_dataset_size91210_epoch1_seed0_v1.npy \\",
        "    --file a.bin --file b.bin --steps 1-178 --losses log.csv",
        "dataaudit attribute runs/7b --manifest manifests/2026-11",
        codes={
            0: "written",
            1: "the token files are of another manifest",
            2: "wrong use: an order is absent, damaged, or does not fit the files or the steps",
        },
    ),
)
@click.argument("runlog", type=FOLDER, metavar="RUNLOG")
@path("--manifest DIR", "The manifest that the files are of.", required=True)
@choice("--order", "megatron nanogpt olmo torchtitan", "Whose order it is.", to="kind", required=True)
@path("--file FILE", "Token file, with its map.", to="files", multiple=True, required=True)
@option("--steps FIRST-LAST", "Steps, as the run counts them.", required=True)
@option(
    "--consumed N",
    "Samples before the first step; 0 by default.",
    type=click.IntRange(0),
    default=0,
    show_default=False,
)
@path(
    "--index PATH",
    "megatron: folder of its cached indices. olmo: global_indices file, once for each pass.",
    multiple=True,
)
@option("--context N", "Labels of a row; olmo: its tokens. Megatron's index says it.", type=int)
@option("--batch N", "megatron, olmo: rows of a step, of all ranks; or SAMPLES:N,SAMPLES:N.")
@option("--rampup START INCREMENT SAMPLES", "megatron: its --rampup-batch-size.", type=int, nargs=3)
@option("--divisor N", "megatron: batches are rounded down to a multiple of N.", type=int)
@option("--skip STEPS", "Steps that were skipped, such as 17,100-120.")
@option("--split NAME", "megatron: its split; train by default.")
@flag("--no-extra-token", "megatron: samples have no token more than labels.")
@option("--micro-batch N", "nanogpt, torchtitan: rows of a micro-batch of a rank.", type=int)
@option("--accumulate N", "nanogpt, torchtitan: micro-batches of a step of a rank; 1.", type=int)
@option("--ranks N", "nanogpt, torchtitan: data-parallel processes; 1.", type=int)
@option(
    "--state FILE|SEED",
    "nanogpt: torch's generator before the first batch, once for each rank; or its seed.",
    multiple=True,
)
@option("--eval INTERVAL ITERS TOKENS", "nanogpt: evaluations, and tokens of val.bin.", type=int, nargs=3)
@flag("--begin-token", "torchtitan: the tokenizer has one, and the files do not hold it.")
@path("--losses FILE", "Losses by step: CSV with names, JSON lines, or Parquet.")
@option("--step-column NAME", "Of the step in it; a usual name by default.")
@option("--loss-column NAME", "Of the loss in it.")
@flag("--json", "Print what was written as JSON.", to="as_json")
def reconstruct(
    runlog: Path,
    manifest: Path,
    kind: Kind,
    files: tuple[Path, ...],
    steps: str,
    consumed: int,
    losses: Path | None,
    step_column: str | None,
    loss_column: str | None,
    *,
    as_json: bool,
    **options: Any,
) -> None:
    """Say which documents each step of a run was trained on, whose batches had no tags, and write it as a run log.

    The order is read from what the trainer saved, or drawn again; the maps of the token files lead back to documents.
    `attribute` and `report --run` then read the log. Losses are those of steps, so the event test says whether episodes
    follow upon a block or shard; what divides the excess of a step needs losses of stretches, which are not there. Such
    a log goes on with a further command from a later step, with another batch for one. `dataaudit explain
    reconstruct` says more.
    """
    from dataclasses import asdict

    from dataaudit.training.attribution.loss_table import read_losses
    from dataaudit.training.orders.reconstruct import Choice, parse_steps, reconstructed_text
    from dataaudit.training.orders.reconstruct import reconstruct as run

    if losses is None:
        _refuse({"--step-column": step_column, "--loss-column": loss_column}, "--losses FILE: name the file, too")
    options["skip"] = () if options["skip"] is None else parse_steps(options["skip"])
    span = parse_steps(steps)
    if len(span) != 1:
        raise click.UsageError("--steps: expected FIRST-LAST, such as 1-5000.")
    read = None if losses is None else read_losses(losses, step=step_column, loss=loss_column)
    result = run(
        runlog,
        manifest,
        files,
        Choice(kind=kind, **options),
        steps=(span[0].start, span[0].stop - 1),
        consumed=consumed,
        losses=read,
    )
    print_text(t.as_json(asdict(result)) if as_json else reconstructed_text(result))
