"""The commands of the laboratory: pilot, run, show, page, ingest, compare and check."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from dataaudit.base import text as t
from dataaudit.cli.shell import FOLDER, JSON, ending, flag, note, option, path, print_text

_TEXT = path("--text FILE", "Text to train on; Python's help topics by default.")
_OUT = path("--out DIR", "Folder of runs and receipts; a stopped command goes on.", required=True)
_PLAN = path("--plan FILE", "Plan of `lab pilot`; the shipped plan by default.")


@click.group(
    short_help="Inject faults into small runs, and write receipts of monitors.",
    epilog=ending(
        "dataaudit lab run --quick --out lab",
        "dataaudit lab ingest runs/7b --healthy 2000-9000 --fault 'router rate too high'",
        "dataaudit lab check alerts.yaml --receipts lab",
        codes={
            0: "it is done",
            1: "an aim is missed, verdicts differ, or a receipt is lacking",
            3: "there are too few seeds for an aim",
            4: "a run log without a loss",
        },
    ),
)
def lab() -> None:
    """Show what a monitor catches before you rely on it: small models, faults that are planted, receipts."""


@lab.command(
    short_help="Fix strengths, bands and limits on seeds that are never scored.",
    epilog=ending("dataaudit lab pilot --out lab-pilot --text corpus.txt", codes={0: "DIR/plan.json is written"}),
)
@_OUT
@_TEXT
@option("--seeds N", "Seeds of bands.", type=click.IntRange(4), default=7)
@flag("--all", "Pilot the faults that `lab run --quick` leaves out, too.", to="every")
@JSON
def pilot(out: Path, text: Path | None, seeds: int, *, every: bool, as_json: bool) -> None:
    """Train healthy runs and faults of pilot seeds, and write DIR/plan.json: commit it before anything is scored."""
    _require_torch("lab pilot")
    from dataaudit.lab.model import Text
    from dataaudit.lab.piloting import BAND_SEEDS, write_plan

    first = BAND_SEEDS[0]
    plan = write_plan(out, Text.load(text), note, band_seeds=tuple(range(first, first + seeds)), every=every)
    facts = {"plan": plan.digest} | {key: plan.content[key] for key in ("scenarios", "healthy_that_diverged")}
    lines = [f"{out / 'plan.json'}: {plan.digest}"]
    for model, number in facts["healthy_that_diverged"].items():
        if number:
            lines.append(
                f"  {model}: {number} of {seeds} healthy runs diverged, so its bands mean nothing: another --text"
            )
    lines += [f"  {name}: {own['verdict']}" for name, own in facts["scenarios"].items() if "verdict" in own]
    print_text(t.as_json(facts) if as_json else "\n".join(lines) + "\n")


@lab.command(
    short_help="Run faults, score monitors, write receipts.",
    epilog=ending(
        "dataaudit lab run --quick --out lab",
        "dataaudit lab run --full --out lab",
        "dataaudit lab run --out lab --seeds 0-4 --scenarios healthy_dense,rate_creep",
        codes={
            0: "receipts are written, and every aim is met",
            1: "receipts are written, and an aim is missed or there are too many false alarms",
            2: "wrong use, or runs of another plan",
            3: "receipts are written, and there are too few seeds for an aim",
        },
    ),
)
@_OUT
@flag("--quick", "3 seeds of the scenarios healthy, attention, rate, router and data.")
@flag("--full", "30 seeds of all scenarios.")
@option("--seeds N-M", "Other seeds, such as 0-9 or 0,3.")
@option("--scenarios NAMES", "Some scenarios, with commas.", multiple=True)
@flag("--stored", "Score the runs that are in DIR, and make none.")
@_TEXT
@_PLAN
@JSON
def run(
    out: Path,
    seeds: str | None,
    scenarios: tuple[str, ...],
    text: Path | None,
    plan: Path | None,
    *,
    quick: bool,
    full: bool,
    stored: bool,
    as_json: bool,
) -> None:
    """Train small models with planted faults, and write DIR/receipts.json: what each monitor caught, and when.

    A run takes seconds, and each is stored by itself: a command that was stopped goes on where it was. Bands and limits
    come from the plan, so nothing is fitted to the runs that are scored.
    """
    if quick and full:
        raise click.UsageError("--quick and --full: give one of them.")
    _require_torch("lab run")
    from dataaudit.lab.model import Text
    from dataaudit.lab.plan import load_plan
    from dataaudit.lab.running import exit_code, run_lab, seeds_of
    from dataaudit.lab.scenarios import scenarios_of

    known = load_plan(plan)
    chosen = seeds_of(seeds) if seeds else known.content["seeds"]["scored"][: None if full else 3]
    wanted = scenarios_of(",".join(scenarios), quick=not full)
    command = shlex.join(["dataaudit", *sys.argv[1:]])
    made = run_lab(out, known, Text.load(text), wanted, chosen, command, note, stored_only=stored)
    _print(made, as_json=as_json)
    sys.exit(exit_code(made))


@lab.command(
    short_help="Show receipts, or write their page.",
    epilog=ending(
        "dataaudit lab show lab", "dataaudit lab show lab --page receipts.html", codes={0: "shown", 2: "no receipts"}
    ),
)
@click.argument("folder", type=FOLDER, metavar="RECEIPTS")
@path("--page FILE", "Write a page with each signal, its band and the loss.")
@_PLAN
@JSON
def show(folder: Path, page: Path | None, plan: Path | None, *, as_json: bool) -> None:
    """Show a file of receipts, or DIR/receipts.json; the page draws the runs that are beside it."""
    from dataaudit.lab.receipts import load_receipts

    made = load_receipts(folder)
    if page is not None:
        from dataaudit.lab.page import write_page
        from dataaudit.lab.plan import load_plan
        from dataaudit.manifest.outfiles import check_files

        check_files({"--page": page})
        write_page(made, load_plan(plan), folder if folder.is_dir() else folder.parent, page)
        note(f"{page} is written")
    _print(made, as_json=as_json)


@lab.command(
    short_help="Make a receipt from a run log of yours.",
    epilog=ending(
        "dataaudit lab ingest runs/7b --healthy 2000-9000 --fault 'router rate too high' --out receipts.json",
        codes={0: "the receipt is written", 2: "no run log, or too short a span", 4: "the log has no loss"},
    ),
)
@click.argument("runlog", type=FOLDER, metavar="RUNLOG")
@option("--healthy N-M", "First and last step of a span that was healthy.", required=True)
@option("--fault TEXT", "What went wrong afterwards; without it nothing did.", default="", show_default=False)
@path("--out FILE", "Where to; RUNLOG/receipts.json by default.")
@JSON
def ingest(runlog: Path, healthy: str, fault: str, out: Path | None, *, as_json: bool) -> None:
    """Judge what followed a healthy span of a run by limits from that span, and write the receipt."""
    from dataaudit.lab import ingest as own
    from dataaudit.lab.receipts import FILE
    from dataaudit.manifest.outfiles import check_files, write_file

    match = re.fullmatch(r"(\d+)-(\d+)", healthy)
    if match is None:
        raise click.UsageError("--healthy: expected a first and a last step, such as 2000-9000.")
    target = out or runlog / FILE
    check_files({"--out": out})
    command = shlex.join(["dataaudit", *sys.argv[1:]])
    made = own.ingest(runlog, (int(match[1]), int(match[2])), t.clean(fault, 200), command)
    write_file(target, t.as_json(made).encode())
    note(f"{target} is written")
    _print(made, as_json=as_json)


@lab.command(
    short_help="Compare two files of receipts.",
    epilog=ending(
        "dataaudit lab compare lab-1 lab-2", codes={0: "the same verdicts", 1: "verdicts differ", 2: "no receipts"}
    ),
)
@click.argument("first", type=FOLDER, metavar="RECEIPTS")
@click.argument("second", type=FOLDER, metavar="RECEIPTS")
@JSON
def compare(first: Path, second: Path, *, as_json: bool) -> None:
    """Say which settings, runs and monitors of two files of receipts differ."""
    from dataaudit.lab.receipts import compare as compared
    from dataaudit.lab.receipts import compared_text, load_receipts

    made = compared(load_receipts(first), load_receipts(second))
    print_text(t.as_json(made) if as_json else compared_text(made))
    sys.exit(0 if made["same_verdicts"] else 1)


@lab.command(
    short_help="Demand a receipt for each monitor that rules of alerts rely on.",
    epilog=ending(
        "dataaudit lab check alerts.yaml --receipts lab",
        "dataaudit lab check --receipts lab --receipts runs/7b/receipts.json",
        codes={
            0: "each rule that needs a receipt has one",
            1: "a rule lacks a receipt that the file demands",
            2: "wrong use: no rules, or no receipts",
        },
    ),
)
@click.argument("rules", type=FOLDER, metavar="[ALERTS]", required=False)
@path("--receipts FILE", "Receipts; may be given several times.", multiple=True)
@flag("--all", "Demand a receipt for every rule of a metric, whatever it cites.", to="every")
@JSON
def check(rules: Path | None, receipts: tuple[Path, ...], *, every: bool, as_json: bool) -> None:
    """Say of each rule of an alerts.yaml where its limit comes from, and whether its monitor has a receipt."""
    from dataaudit.lab.receipts import check_rules, demands_text, load_receipts
    from dataaudit.live.rules import load_alerts

    made = check_rules(load_alerts(rules), [load_receipts(path) for path in receipts], every=every)
    print_text(t.as_json(made) if as_json else demands_text(made))
    sys.exit(1 if made["lacking"] else 0)


def _print(made: dict[str, Any], *, as_json: bool) -> None:
    from dataaudit.lab.page import terminal_text

    print_text(t.as_json(made) if as_json else terminal_text(made))


def _require_torch(command: str) -> None:
    import importlib.util

    from dataaudit.base.extras import require

    if importlib.util.find_spec("torch") is None:
        require(command, "train")
