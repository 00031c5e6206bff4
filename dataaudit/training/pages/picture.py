"""``dataaudit attribute --picture``: the loss over steps with its band, and the episodes with their data."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path

import numpy as np

from dataaudit.base.errors import ConfigError
from dataaudit.base.extras import require
from dataaudit.base.text import clean
from dataaudit.manifest.outfiles import check_files, writing
from dataaudit.training.attribution.findings import Attribution, Episode
from dataaudit.training.attribution.run_data import Data
from dataaudit.training.attribution.spikes import WINDOW

_NAME = 60
_NAMED = 6
"""Episodes that are named; all are shaded."""


def check_picture(path: Path) -> None:
    """Check the option before any work is done."""
    if importlib.util.find_spec("matplotlib") is None:
        require("attribute --picture", "train")
    if path.suffix.lower() != ".png":
        raise ConfigError(f"--picture: expected a name that ends in .png, found {path.name}")
    check_files({"--picture": path})


def write_picture(path: Path, result: Attribution, data: Data) -> None:
    """Draw the picture and write it whole or not at all."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    curve, judged = data.curve, data.judged
    figure = Figure(figsize=(10, 4.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.plot(curve.step, curve.value, color="#1f4e79", linewidth=0.9, label="loss")
    known = np.where(curve.step >= curve.step[0] + WINDOW, judged.limit, np.nan)  # before, nothing is judged
    low, high = judged.level - known, judged.level + known
    axes.fill_between(curve.step, low, high, color="#1f4e79", alpha=0.15, linewidth=0, label="band")
    for place, episode in enumerate(result.episodes):
        axes.axvspan(episode.first_step - 0.5, episode.last_step + 0.5, color="#c0392b", alpha=0.2, linewidth=0)
        if place < _NAMED:
            shown = np.isfinite(curve.value) & (curve.step >= episode.first_step) & (curve.step <= episode.last_step)
            top = float(curve.value[shown].max()) if shown.any() else float(np.nanmean(judged.level))
            axes.annotate(
                _label(episode),
                (episode.first_step, top),
                xytext=(0, 6 + 14 * (place % 2)),
                textcoords="offset points",
                fontsize=8,
                color="#7b241c",
                ha="right" if episode.first_step > (curve.step[0] + curve.step[-1]) / 2 else "left",
                parse_math=False,
            )
    axes.set_xlabel("step")
    axes.set_ylabel("loss, nats/token")
    axes.margins(x=0.01)
    finite = curve.value[np.isfinite(curve.value)]
    if len(finite):
        room = 0.15 * max(float(np.ptp(finite)), 1e-3)
        axes.set_ylim(finite.min() - room, finite.max() + room)
    axes.legend(loc="upper right", frameon=False, fontsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    FigureCanvasAgg(figure)
    with writing(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a sign that the font lacks is drawn as a box
        figure.savefig(file, format="png")


def _label(episode: Episode) -> str:
    if episode.found is None:
        return f"no data is named: {episode.reason}"
    name = clean(episode.found.name, _NAME)
    return (
        f"{name}: not finite"
        if episode.found.share is None
        else f"{name}: {min(1.0, episode.found.share):.0%} of the excess"
    )
