"""The commands of canaries: baseline, run and show."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from dataaudit.cli.shell import FOLDER, JSON, choice, ending, note, option, path, print_text

_CONFIG = path("--config FILE", "File that decides the training; recorded by digest.", multiple=True)
_VERDICTS = {
    0: "pass: every metric is within what healthy seeds differ by, or better as expected",
    1: "regressed: a loss is worse, a logged value moved, or a loss is not finite; better: a loss fell unexpectedly",
    2: "wrong use: no function, no baseline, or the function fails",
    3: "undecidable: too few seeds or no loss; invalid: other shards, another order or other steps",
    4: "nothing was evaluated: no seed in common",
}


@click.group(
    short_help="Train changed code for some hundred steps, beside healthy seeds.",
    epilog=ending(
        "dataaudit canary baseline train.py:canary --manifest manifests/2026-11 --out canary",
        "dataaudit canary run train.py:canary --baseline canary",
        codes=_VERDICTS,
    ),
)
def canary() -> None:
    """A short training after each change of code, data or optimizer: `dataaudit explain canary`."""


@canary.command(
    short_help="Train the healthy code with each seed, and keep the runs.",
    epilog=ending(
        "dataaudit canary baseline train.py:canary --manifest manifests/2026-11 --seeds 8 --steps 500 --out canary",
        codes={
            0: "the baseline is written",
            2: "wrong use: no function, no manifest, or the function fails",
            3: "the baseline is written, and fewer than 8 seeds are healthy",
        },
    ),
)
@click.argument("function", metavar="MODULE:FUNCTION")
@path("--manifest DIR", "The manifest that it trains on.", required=True)
@option("--seeds N", "Seeds 0 to N - 1.", type=click.IntRange(8), default=8)
@option("--steps N", "Steps of each.", type=click.IntRange(200, 2_000), default=500)
@_CONFIG
@path("--out DIR", "Folder of runs; a stopped command goes on.", required=True)
@JSON
def baseline(
    function: str, manifest: Path, seeds: int, steps: int, config: tuple[Path, ...], out: Path, *, as_json: bool
) -> None:
    """Train FUNCTION(task) with each of some seeds, and write OUT/baseline.json: what healthy seeds differ by.

    FUNCTION trains task.steps steps with task.seed on the shards of task.manifest, and hands each loss and batch to
    task.step(loss, batch). MODULE may be a file, whose folder is imported from.
    """
    from dataaudit.manifest.canary_record import LEAST_SEEDS, read_baseline
    from dataaudit.probes.canary import baseline_text, make_baseline

    path = make_baseline(function, manifest, out, seeds=range(seeds), steps=steps, config=config, report=note)
    record = read_baseline(path)
    print_text(path.read_text("utf-8") if as_json else baseline_text(record))
    if (healthy := len(record.core.healthy)) < LEAST_SEEDS:
        more = f"mend what breaks the others, or train more, --seeds {seeds + LEAST_SEEDS - healthy}"
        note(f"{healthy} healthy seeds, {LEAST_SEEDS} are needed: {more}")
        sys.exit(3)


@canary.command(
    short_help="Train changed code with the seeds of a baseline, and judge it.",
    epilog=ending(
        "dataaudit canary run train.py:canary --baseline canary",
        "dataaudit canary run train.py:canary --baseline canary --seeds 3 --out canary/quick",
        "dataaudit canary run train.py:canary --baseline canary --manifest manifests/2026-12 --changed data",
        codes=_VERDICTS,
    ),
)
@click.argument("function", metavar="MODULE:FUNCTION")
@path("--baseline DIR", "Folder of `canary baseline`.", to="folder", required=True)
@path("--manifest DIR", "The manifest to train on; the baseline's by default.")
@option("--seeds N", "Only the first N seeds; all by default.", type=click.IntRange(1))
@choice(
    "--changed", "code data", "data: training shards may differ, and only held-out losses are compared.", default="code"
)
@choice("--expect", "better", "better: the change is meant to lower losses.")
@_CONFIG
@path("--out DIR", "Folder of this canary; run in the baseline's by default.")
@JSON
def run(function: str, folder: Path, out: Path | None, *, as_json: bool, **options: Any) -> None:
    """Train FUNCTION(task) with the baseline's seeds, shards and order, and write OUT/canary.json: the verdict.

    Each metric is compared pair by pair, with Student's prediction interval from the healthy seeds. Seconds of a step
    stand apart, in no verdict. The record's id has no time in it: the same runs give the same id.
    """
    from dataaudit.probes.canary import CANARY_FILE, canary_text, run_canary

    target = out or folder / "run"
    record = run_canary(function, folder, target, report=note, **options)
    print_text((target / CANARY_FILE).read_text("utf-8") if as_json else canary_text(record))
    sys.exit(record.core.exit_code)


@canary.command(
    short_help="Judge a record again, and show it.",
    epilog=ending("dataaudit canary show canary/run/canary.json", codes=_VERDICTS),
)
@click.argument("record", type=FOLDER, metavar="RECORD")
@JSON
def show(record: Path, *, as_json: bool) -> None:
    """Show the record of a canary, or of a folder, whose verdict is computed anew from its runs; or a baseline.json."""
    from dataaudit.manifest.canary_record import read_baseline, read_canary
    from dataaudit.probes.canary import BASELINE_FILE, CANARY_FILE, baseline_text, canary_text

    if record.is_dir():
        record /= CANARY_FILE if (record / CANARY_FILE).exists() else BASELINE_FILE
    if record.name == BASELINE_FILE:
        healthy = read_baseline(record)
        print_text(record.read_text("utf-8") if as_json else baseline_text(healthy))
        return
    made = read_canary(record)
    print_text(record.read_text("utf-8") if as_json else canary_text(made))
    sys.exit(made.core.exit_code)
