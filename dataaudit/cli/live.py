"""The commands about a live run: triage-log."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from dataaudit.cli.shell import FOLDER, JSON, ending, print_text


@click.command(
    name="triage-log",
    short_help="Say what failed first in a run's logs, and what only followed.",
    epilog=ending(
        "dataaudit triage-log slurm-1234.out",
        "dataaudit triage-log logs/run-7/ --utc-offset +01:00",
        "dataaudit triage-log logs/run-5 logs/run-6 logs/run-7 --history",
        "dataaudit triage-log train.log.gz --json | jq '.events[.roots[-1]]'",
        codes={
            0: "no error event",
            1: "error events",
            2: "wrong use: a log is absent or cannot be read",
            4: "no line to read",
        },
    ),
)
@click.argument("files", type=FOLDER, metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--utc-offset", metavar="+HH:MM", default="+00:00", help="Zone of times that name none; UTC when left out."
)
@click.option("--history", is_flag=True, help="Each FILE is a run of its own: name the nodes that fail in several.")
@JSON
def triage_log(files: tuple[Path, ...], utc_offset: str, *, history: bool, as_json: bool) -> None:
    """Name the first failing rank, its node, time, stage and class of error; mark what other ranks report of it.

    FILE is a log of torchrun, srun, Megatron-LM, a rank or the kernel, plain or gzip, an error file of torch elastic,
    or a folder of them; together they are one run. Gigabytes are read in a stream. Secrets are not shown, nor long
    quotations of data.
    """
    from dataaudit.base import text as t
    from dataaudit.live.log_triage import failing_nodes, triage, triage_text

    match = re.fullmatch(r"([+-])(\d\d):?(\d\d)", utc_offset)
    if match is None:
        raise click.UsageError("--utc-offset: expected +HH:MM or -HH:MM, such as +01:00.")
    zone = (1 if match[1] == "+" else -1) * (int(match[2]) * 3600 + int(match[3]) * 60)
    runs = [triage([path], zone_seconds=zone) for path in files] if history else [triage(files, zone_seconds=zone)]
    nodes = failing_nodes(runs)
    if as_json:
        plain = [run.to_json() for run in runs]
        print_text(t.as_json({"runs": plain, "failing_nodes": nodes} if history else plain[0]))
    else:
        names = [f"{t.clean(str(path))}: " if history else "" for path in files]
        parts = [f"{name}{triage_text(run)}" for name, run in zip(names, runs, strict=False)]
        parts += [f"node {t.clean(node)}: first to fail in {number} runs\n" for node, number in nodes.items()]
        if history and not nodes:
            parts.append("no node was the first to fail in two runs\n")
        print_text("\n".join(parts))
    codes = {run.exit_code for run in runs}
    sys.exit(1 if 1 in codes else max(codes))
