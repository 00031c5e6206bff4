"""The command that compares two manifests."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dataaudit.cli.options import FOLDER, block
from dataaudit.cli.shell import print_text


@click.command(
    short_help="Say what changed between two manifests.",
    epilog="\n\n".join(
        (
            block(
                "Examples:",
                "dataaudit diff manifests/2026-10 manifests/2026-11",
                "dataaudit diff manifests/2026-10 manifests/2026-11 --format md > comment.md",
                "dataaudit diff manifests/2026-10 manifests/2026-11 --json | jq .proposal",
            ),
            block("Exit codes:", "  0  both are the same", "  1  they differ", "  2  one cannot be read"),
        )
    ),
)
@click.argument("old", type=FOLDER, metavar="OLD")
@click.argument("new", type=FOLDER, metavar="NEW")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "md"]),
    default="text",
    show_default=True,
    help="A page of text, JSON, or Markdown for a comment.",
)
@click.option("--all", "everything", is_flag=True, help="List every row, not the first of each section; JSON has all.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def diff(old: Path, new: Path, form: str, *, everything: bool, as_json: bool) -> None:
    """Say what changed from manifest OLD to manifest NEW, and which version bump that means.

    Shards that were added, removed, changed or only stored otherwise; every metric with its interval, and whether its
    change is larger than the noise; drift of tokens per source; what else differs. Neither corpus is read.
    """
    from dataaudit import api
    from dataaudit.diff.blocks import render

    difference = api.diff(old, new)
    print_text(render(difference, "json" if as_json else form, everything=everything))
    sys.exit(0 if difference.equal else 1)
