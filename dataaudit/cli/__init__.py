"""The command line: parse, call, exit code. No logic, and no heavy import before a command runs."""

from __future__ import annotations

import click

from dataaudit import __version__
from dataaudit.cli.building import build, sign
from dataaudit.cli.canary import canary
from dataaudit.cli.exporting import export
from dataaudit.cli.judging import diff, gate, policy, report
from dataaudit.cli.lab import lab
from dataaudit.cli.live import alerts, checkpoints, triage_log, watch
from dataaudit.cli.probing import probe, triage
from dataaudit.cli.quarantining import quarantine
from dataaudit.cli.reading import doctor, explain, history, inspect, schema, show, verify
from dataaudit.cli.shell import Group, ending
from dataaudit.cli.tokens import map_, tokenize
from dataaudit.cli.training import attribute, reconstruct

_EPILOG = ending(
    "dataaudit doctor",
    "dataaudit build data/train data/val --manifest manifests/first",
    "dataaudit show manifests/first",
    title="Start here:",
    codes={
        0: "pass, warnings included",
        1: "a budget is exceeded, or a manifest disagrees with itself or with the data",
        2: "wrong use or config",
        3: "could not evaluate: unread bytes, lost workers",
        4: "nothing was evaluated",
    },
)


@click.group(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EPILOG,
)
@click.version_option(__version__, prog_name="dataaudit")
def main() -> None:
    """Audit LLM pre-training corpora: shards in, a versioned and reproducible manifest out."""


_COMMANDS: tuple[click.Command, ...] = (
    *(build, sign, show, inspect, verify, diff, history),
    *(gate, policy, quarantine, report, export),
    *(attribute, reconstruct, probe, canary, triage, triage_log),
    *(watch, alerts, checkpoints, lab, tokenize, map_, doctor, explain, schema),
)
for _command in _COMMANDS:
    main.add_command(_command)

__all__ = ["main"]
