"""The commands about training runs: attribute."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dataaudit.cli.shell import FOLDER, block, note, print_text


@click.command(
    short_help="Name the shard behind a spike of a run's loss.",
    epilog="\n\n".join(
        (
            block(
                "Examples:",
                "dataaudit attribute runs/7b --manifest manifests/2026-11",
                "dataaudit attribute runs/7b --manifest manifests/2026-11 --step 312",
                "dataaudit attribute runs/7b --manifest manifests/2026-11 --picture spike.png",
                "dataaudit attribute runs/7b --manifest manifests/2026-11 --json | jq '.episodes[].found.name'",
            ),
            block(
                "Exit codes:",
                "0  nothing to explain",
                "1  a block or a shard held the excess of an episode",
                "2  wrong use: no run log, or another manifest than the run's",
                "3  there are episodes, and none can be told: why stands in the first line",
                "4  no data: no step, or too few for a line",
            ),
        )
    ),
)
@click.argument("runlog", type=FOLDER, metavar="RUNLOG")
@click.option("--manifest", type=FOLDER, required=True, metavar="DIR", help="The manifest that the run was trained on.")
@click.option("--step", type=click.IntRange(min=0), metavar="N", help="Only the episode that step N is in.")
@click.option(
    "--reference", type=FOLDER, metavar="RUNLOG", help="A healthy run with the same schedule, to hold the loss against."
)
@click.option("--picture", type=FOLDER, metavar="FILE.png", help="The loss with its band and episodes.")
@click.option("--json", "as_json", is_flag=True, help="Print attribution.json instead of tables.")
def attribute(
    runlog: Path, manifest: Path, step: int | None, reference: Path | None, picture: Path | None, *, as_json: bool
) -> None:
    """Say which block or shard of the corpus held the excess when a run's loss rose, and how sure that is.

    An episode is a run of steps above the band around a robust line; its excess over what the healthy past predicts is
    divided among the documents of its batches (docs/reference/attribution.md). What is found is also written to
    RUNLOG/attribution.json. No text of documents is read or shown.
    """
    from dataaudit import text as t
    from dataaudit.training import attribution
    from dataaudit.training.blocks import render_text

    if picture is not None:
        from dataaudit.training.picture import check_picture

        check_picture(picture)
    data = attribution.load_data(runlog, manifest, reference)
    found = attribution.attribute(data, step)
    if picture is not None:
        from dataaudit.training.picture import write_picture

        write_picture(picture, found, data)
    print_text(t.as_json(found.model_dump(mode="json", by_alias=True)) if as_json else render_text(found, data))
    try:
        attribution.write_attribution(runlog, found)
    except OSError as error:
        note(f"dataaudit: attribution.json cannot be written to {runlog}: {error.strerror or error}")
    sys.exit(found.exit_code)
