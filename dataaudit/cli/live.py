"""The commands about live runs: watch, alerts, checkpoints and triage-log."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from dataaudit.base import text as t
from dataaudit.cli.shell import FOLDER, JSON, check_new, ending, flag, option, path, print_text, print_written

_SHIPPED = "default"


@click.command(
    short_help="Follow a run's log, and alert when a rule fires.",
    epilog=ending(
        "dataaudit watch runs/7b --alert",
        "dataaudit watch runs/7b --serve --manifest manifests/2026-11",
        "dataaudit watch runs/7b --serve --beside runs/7b-before",
        "dataaudit watch runs/7b --alert alerts.yaml --log train.log",
        "dataaudit watch runs/7b --alert alerts.yaml --once --json | jq .incidents",
        codes={
            0: "no incident, or all of them acknowledged",
            1: "an incident that nobody acknowledged",
            2: "wrong use: no run log, or no such rules",
            3: "no incident, and a rule that is `required` is not evaluated, or the log is damaged",
            4: "no rule is evaluated: nothing of the run is there yet",
        },
    ),
)
@click.argument("runlog", type=FOLDER, metavar="RUNLOG")
@option(
    "--alert [FILE]",
    "Rules: an alerts.yaml; the shipped ones without a file.",
    to="rules",
    is_flag=False,
    flag_value=_SHIPPED,
    default=_SHIPPED,
    show_default=False,
)
@flag("--once", "Judge what is there, send what is new, and exit.")
@option(
    "--serve [PORT]",
    "Show it in a browser on this machine, with charts; port 8765 without a number.",
    to="port",
    is_flag=False,
    flag_value=8765,
    type=click.IntRange(0, 65_535),
)
@path("--manifest DIR", "The run's manifest, which its data are compared with.")
@path("--beside RUNLOG", "A further run on the same axes.", multiple=True)
@option("--interval", "Seconds between looks.", type=click.FloatRange(0.1), default=10.0)
@path("--log FILE", "The process's own log, whose end is kept as evidence.")
@flag("--no-send", "Send no message; evidence is written.")
@JSON
def watch(
    runlog: Path,
    rules: str,
    log: Path | None,
    port: int | None,
    manifest: Path | None,
    beside: tuple[Path, ...],
    *,
    once: bool,
    interval: float,
    no_send: bool,
    as_json: bool,
) -> None:
    """Judge a run by rules from another process, since a dead process cannot report itself, and show how it is.

    The log of all ranks is followed as it grows, until the run is closed or Ctrl-C. Each incident has its evidence in
    RUNLOG/alerts before a message is sent; what the run's own process sent already is not sent again. Without --once, a
    run that has not begun is waited for.

    A terminal shows the panels; a pipe gets a line for each incident. --serve shows the page of the run in a browser.
    """
    import threading

    from dataaudit.live.delivery import missing_variables
    from dataaudit.live.rules import load_alerts
    from dataaudit.live.watch import Watch, wait_for, watched_text

    if port is not None and (once or as_json):
        raise click.UsageError("--serve shows a page until Ctrl-C; leave out --once and --json.")
    if port is not None:
        from dataaudit.base.extras import require

        require("watch --serve", "report", "serve")
    shows = not (once or as_json) and (port is not None or sys.stdout.isatty())
    if beside and not shows:  # without a page --manifest changes nothing, and a script may name it all the same
        raise click.UsageError("--beside goes with what is shown: a terminal, or --serve.")
    if once and log is not None and not log.is_file():
        raise click.UsageError(f"--log: {t.clean(str(log))} is not there; name the file that the process writes.")
    file = None if rules == _SHIPPED else Path(rules)
    if not once:
        wait_for(runlog, interval, lambda line: click.echo(t.clean(line), err=True))
    if shows:
        _show(runlog, file, log, port, manifest, beside, interval=interval, send=not no_send)
        return
    rules_of = load_alerts(file)
    if once and not no_send and (missing := missing_variables(rules_of.deliver)):
        no_send = True
        click.echo(f"nothing is sent: the environment has no variable {', '.join(missing)}", err=True)
    watched = Watch(runlog, rules_of, log=log, send=not no_send)
    try:
        if once:
            watched.look()
        else:
            watched.follow(interval, threading.Event(), lambda line: None if as_json else print_text(line))
    finally:
        result = watched.close()
    print_text(t.as_json(result.document()) if as_json else watched_text(result))
    sys.exit(result.exit_code)


def _show(
    runlog: Path,
    rules: Path | None,
    log: Path | None,
    port: int | None,
    manifest: Path | None,
    beside: tuple[Path, ...],
    *,
    interval: float,
    send: bool,
) -> None:
    """Show a run in a browser or a terminal, while a process of its own judges it; then print what it saw."""
    import threading

    from dataaudit.live.rules import load_alerts
    from dataaudit.live.watch import Watch, WatchProcess, watched_text
    from dataaudit.manifest.load import load_manifest
    from dataaudit.training.pages.run_view import RunView

    Watch(runlog, load_alerts(rules), log=log, send=send).response.boxes.close(0.0)  # says what is wrong with any
    opened = None if manifest is None else load_manifest(manifest)
    judge = WatchProcess(runlog, rules, log=log, send=send, interval=interval)
    try:
        view = RunView(runlog, watch=judge, manifest=opened, beside=beside)
        if port is not None:
            from dataaudit.training.pages.serving import serve

            serve(view, port=port, interval=min(interval, 5.0), show=print_text)
        else:
            from dataaudit.training.pages.live_page import follow

            follow(view, min(interval, 5.0), threading.Event())
    finally:
        judge.close()
    if port is None:
        last = Watch(runlog, load_alerts(rules), log=log, send=False)
        last.look()
        result = last.close()
        print_text(watched_text(result))
        sys.exit(result.exit_code)


@click.group(
    short_help="Draft the rules of a live run, acknowledge its incidents.",
    epilog=ending("dataaudit alerts draft --out alerts.yaml", codes={0: "written, or acknowledged"}),
)
def alerts() -> None:
    """Rules that a live run is judged by, and its incidents; `dataaudit watch` judges."""


@alerts.command(
    short_help="Write the shipped rules, with comments.",
    epilog=ending("dataaudit alerts draft --out alerts.yaml", codes={0: "it is written"}),
)
@path("--out FILE", "Where to; stdout when left out.")
@flag("--force", "Replace the file if it is there.")
@JSON
def draft(out: Path | None, *, force: bool, as_json: bool) -> None:
    """Write an alerts.yaml that holds the shipped rules: read each limit, and leave out what your run does not have."""
    from dataaudit.live.rules import default_text, load_alerts

    check_new(out, force=force)
    words = "the shipped rules; `dataaudit watch RUNLOG --alert FILE --once` tries them"
    print_written(out, default_text().encode(), words, {"rules": len(load_alerts(None).rules)}, as_json=as_json)


@alerts.command(
    short_help="Acknowledge an incident: somebody takes care of it.",
    epilog=ending(
        "dataaudit alerts ack runs/7b step00031200-numerics --who ana --note 'back to step 31,000'",
        codes={0: "acknowledged", 2: "there is no such incident"},
    ),
)
@click.argument("runlog", type=FOLDER, metavar="RUNLOG")
@click.argument("incident", metavar="INCIDENT")
@option("--who NAME", "Who takes care of it.", required=True)
@option("--note TEXT", "What is done about it.", required=True)
@JSON
def ack(runlog: Path, incident: str, who: str, note: str, *, as_json: bool) -> None:
    """Write who takes care of an incident: no reminder follows, and further messages only if it becomes graver."""
    from dataaudit.live.incidents import acknowledge

    made = acknowledge(runlog, incident, who, note)
    line = f"{t.clean(incident)}: acknowledged by {t.clean(made.who)} at {made.time}\n"
    print_text(t.as_json(made) if as_json else line)


@alerts.command(
    short_help="Have a run that an action paused go on, or stop.",
    epilog=ending(
        "dataaudit alerts resume runs/7b --who ana",
        "dataaudit alerts resume runs/7b --who ana --stop",
        codes={0: "the run was answered", 2: "it is not paused"},
    ),
)
@click.argument("runlog", type=FOLDER, metavar="RUNLOG")
@option("--who NAME", "Who decides it.", required=True)
@flag("--stop", "The run stops; without it the run goes on.")
@JSON
def resume(runlog: Path, who: str, *, stop: bool, as_json: bool) -> None:
    """End a pause on all ranks, within seconds; the record of the action says who did."""
    from dataaudit.live.action_kinds import resume as answered

    answer = answered(runlog, who, stop=stop)
    line = f"{t.clean(str(runlog))}: {'stops' if stop else 'goes on'} behind step {answer['step']:,}\n"
    print_text(t.as_json(answer) if as_json else line)


@click.command(
    short_help="List checkpoints, compare their digests, and name the last good one.",
    epilog=ending(
        "dataaudit checkpoints runs/7b/checkpoints",
        "dataaudit checkpoints runs/7b/checkpoints --quick --json | jq .last_good",
        codes={
            0: "no damage, and a checkpoint is good",
            1: "damage, or a restore that failed",
            3: "no damage, and no checkpoint was tested yet",
            4: "there is no checkpoint",
        },
    ),
)
@click.argument("folder", type=FOLDER, metavar="FOLDER")
@flag("--quick", "Compare sizes alone; no file is read.")
@JSON
def checkpoints(folder: Path, *, quick: bool, as_json: bool) -> None:
    """Say which checkpoints a folder holds, which is the last good one, and which files are not what was saved.

    FOLDER is that of `Checkpoints(folder)`. Good is what passed its test after it was saved, and is not damaged since:
    it was restored in a process of its own, or read back where the run has no such test. Nothing is changed.
    """
    from dataaudit.live.checkpoint_files import survey

    result = survey(folder, digests=not quick)
    print_text(t.as_json(result.document()) if as_json else result.text())
    sys.exit(result.exit_code)


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
@option("--utc-offset +HH:MM", "Zone of times that name none; UTC when left out.", default="+00:00", show_default=False)
@flag("--history", "Each FILE is a run of its own: name the nodes that fail in several.")
@JSON
def triage_log(files: tuple[Path, ...], utc_offset: str, *, history: bool, as_json: bool) -> None:
    """Name the first failing rank, its node, time, stage and class of error; mark what other ranks report of it.

    FILE is a log of torchrun, srun, Megatron-LM, a rank or the kernel, plain or gzip, an error file of torch elastic,
    or a folder of them; together they are one run. Gigabytes are read in a stream. Secrets are not shown, nor long
    quotations of data.
    """
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
