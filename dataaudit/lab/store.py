"""Runs of the laboratory on disk: one file a run, written whole, so that a command that was stopped goes on."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from dataaudit.base.errors import ConfigError
from dataaudit.base.files import write_whole
from dataaudit.lab.monitors import MONITORS, Curves


def run_path(folder: Path, name: str, seed: int) -> Path:
    """Return where a run is kept."""
    return folder / "runs" / f"{name}-{seed}.npz"


def write_run(path: Path, curves: Curves, facts: dict[str, Any]) -> None:
    """Write a run whole: curves, and facts that JSON can hold."""
    stream = io.BytesIO()
    arrays: dict[str, Any] = {
        f"of_{name}": np.asarray(own, dtype=np.float64).reshape(-1, 2) for name, own in curves.points.items()
    }
    np.savez_compressed(stream, loss=curves.loss, norm=curves.norm, facts=np.array(json.dumps(facts)), **arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, stream.getvalue())


def read_run(path: Path, plan: str, text: str) -> tuple[Curves, dict[str, Any]]:
    """Read a run that was made by the plan with this digest, on the text with that digest."""
    try:
        with np.load(path, allow_pickle=False) as data:
            facts = json.loads(str(data["facts"]))
            points = {monitor.name: data[f"of_{monitor.name}"] for monitor in MONITORS}
            curves = Curves(data["loss"], data["norm"], points)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        name = quote(str(path))
        raise ConfigError(f"lab: {path} is damaged: {type(error).__name__}", f"Delete it: rm {name}") from None
    for what, own, wanted in (("by the plan", facts["plan"], plan), ("on the text", facts.get("text", "?"), text)):
        if own != wanted:
            raise ConfigError(
                f"lab: {path} was made {what} {own[:12]}, not {wanted[:12]}", "Give another folder by --out."
            )
    return curves, facts
