"""The commands that write other programs' formats."""

from __future__ import annotations

from pathlib import Path

import click

from dataaudit.cli.options import FOLDER, block
from dataaudit.cli.shell import print_text


@click.group(
    short_help="Write a manifest in other programs' formats.",
    epilog=block("Examples:", "dataaudit export lsh manifests/first --out first.lsh"),
)
def export() -> None:
    """Write what a manifest holds in the format of another program."""


@export.command(
    name="lsh",
    short_help="An index of datasketch, of the stored signatures.",
    epilog=block("Examples:", "dataaudit export lsh manifests/first --out first.lsh"),
)
@click.argument("folder", type=FOLDER, metavar="DIR")
@click.option("--out", type=FOLDER, metavar="FILE", required=True, help="Where to write it.")
def export_lsh(folder: Path, out: Path) -> None:
    """Write a pickled datasketch.MinHashLSH whose keys are shard:row.

    The manifest has to keep signatures: `stages: {near_dup: {signatures: true}}` in the config.
    """
    from dataaudit.export.lsh import export_lsh as write

    print_text(write(folder, out))
