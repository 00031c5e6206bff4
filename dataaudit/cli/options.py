"""What the commands share: types of options, options that several take, paragraphs of help."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from dataaudit.gate.ready import policy_path

FOLDER = click.Path(path_type=Path)


class _Policy(click.Path):
    """A policy: a file, or the name of one that comes with the package."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        return policy_path(Path(os.fsdecode(super().convert(value, param, ctx))))


POLICY = _Policy(path_type=Path)

SAMPLES = click.option(
    "--samples",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Findings of each kind whose surroundings are written, masked, to --samples-dir.",
)
SAMPLES_DIR = click.option(
    "--samples-dir",
    type=FOLDER,
    metavar="DIR",
    help="New folder for samples; it will hold parts of documents, for your eyes alone.",
)


def chosen_samples(number: int | None, folder: Path | None) -> tuple[int, Path] | None:
    """Return both options of samples, or None when neither was given."""
    if number is not None and folder is not None:
        return number, folder
    if number is None and folder is None:
        return None
    raise click.UsageError("--samples N and --samples-dir DIR go together: how many, and where they may be written.")


def block(title: str, *lines: str) -> str:
    """Return a paragraph of help that click leaves as it is."""
    return "\b\n" + "\n".join([title, *(f"  {line}" for line in lines)])
