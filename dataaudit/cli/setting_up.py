"""The commands about the program itself: doctor, schema."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dataaudit.cli.options import FOLDER, block
from dataaudit.cli.shell import print_text


@click.command(
    short_help="Say what is installed and what is missing.",
    epilog=block(
        "Examples:",
        "dataaudit doctor",
        "dataaudit doctor --json | jq '.checks[] | select(.state != \"ok\")'",
    ),
)
@click.option(
    "--state",
    type=FOLDER,
    metavar="DIR",
    default=Path(".dataaudit"),
    show_default=True,
    help="State folder of builds, to try its file system.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the same facts as JSON.")
def doctor(state: Path, *, as_json: bool) -> None:
    """Say what is installed, what is missing and what it is for; exit 2 when something that is installed is broken.

    The check of the tokenizer takes some seconds where no build has run before.
    """
    from dataaudit.doctor import diagnose

    text, code = diagnose(state=state, as_json=as_json)
    print_text(text)
    sys.exit(code)


@click.command(
    short_help="Print JSON Schemas of config and manifest.",
    epilog=block(
        "Examples:",
        "dataaudit schema",
        "dataaudit schema config > dataaudit-config.schema.json",
        "dataaudit schema --out manifests/schema/v1",
    ),
)
@click.argument("name", required=False)
@click.option("--out", type=FOLDER, metavar="DIR", help="Write NAME, or every schema, into this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON; a schema is JSON anyway.")
def schema(name: str | None, out: Path | None, *, as_json: bool) -> None:
    """Print a JSON Schema: config, manifest, metric, or the columns of all tables; without NAME, list them."""
    from dataaudit.schemas import export_schemas

    print_text(export_schemas(name, out, as_json=as_json))
