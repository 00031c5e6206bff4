"""The pilot of an experiment: healthy runs for bands and limits, and how long each fault takes to diverge."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, Final

from dataaudit.base.files import write_whole
from dataaudit.lab.model import Size, Text
from dataaudit.lab.monitors import Curves
from dataaudit.lab.plan import Plan, calibrate, sealed
from dataaudit.lab.running import Workshop
from dataaudit.lab.scenarios import SCENARIOS, Scenario
from dataaudit.manifest.outfiles import check_folder

BAND_SEEDS: Final = tuple(range(1_000, 1_007))
PILOT_SEEDS: Final = tuple(range(2_000, 2_002))
SCORED_SEEDS: Final = tuple(range(30))
ONSET, STEPS, DELTA = 256, 832, 16
LEAST_MEDIAN = 300
"""Median steps from an onset to divergence below which a fault is too strong."""
PILOT = "pilot"


def pilot(
    folder: Path,
    text: Text,
    report: Callable[[str], None],
    *,
    band_seeds: Sequence[int] = BAND_SEEDS,
    pilot_seeds: Sequence[int] = PILOT_SEEDS,
    scored_seeds: Sequence[int] = SCORED_SEEDS,
    onset: int = ONSET,
    steps: int = STEPS,
    size: Size | None = None,
    scenarios: Sequence[Scenario] = SCENARIOS,
    every: bool = False,
) -> Plan:
    """Run the pilot, and return the plan; runs that are in the folder already are not made again.

    No monitor is scored here: of faults only the steps to divergence are looked at, of those that ``--quick`` leaves
    out with ``every`` alone.
    """
    size = size or Size()
    shop = Workshop(text=text, size=size, onset=onset, steps=steps, delta=DELTA, digest=PILOT)
    healthy = [item for item in scenarios if item.family == "healthy"]
    curves: dict[str, list[Curves]] = {item.model: [] for item in healthy}
    alarms = dict.fromkeys(curves, 0)
    for seed in band_seeds:
        for scenario, recorded, facts in shop.piece(folder, seed, healthy, report):
            curves[scenario.model].append(recorded)
            alarms[scenario.model] += facts["diverged"] is not None
    faults = [item for item in scenarios if item.family != "healthy"]
    times: dict[str, list[int | None]] = {item.name: [] for item in faults}
    for seed in pilot_seeds:
        own = [item for item in faults if item.quick or every]
        for scenario, _, facts in shop.piece(folder, seed, own, report):
            diverged = facts["diverged"]
            times[scenario.name].append(None if diverged is None else diverged - facts["onset"])
    stored: dict[str, Any] = {
        item.name: {"family": item.family, "model": item.model, "words": item.words, "start": item.start}
        | ({"pilot": times[item.name], "verdict": verdict_of(times[item.name])} if item.name in times else {})
        for item in scenarios
    }
    return sealed(
        {
            "size": asdict(size),
            "onset": onset,
            "steps": steps,
            "delta": DELTA,
            "text": {"name": text.name, "digest": text.digest},
            "seeds": {"band": list(band_seeds), "pilot": list(pilot_seeds), "scored": list(scored_seeds)},
            "scenarios": stored,
            "healthy_that_diverged": alarms,
            **calibrate(curves, onset=onset, steps=steps),
        }
    )


def write_plan(folder: Path, text: Text, report: Callable[[str], None], **given: Any) -> Plan:
    """Run the pilot, and write ``plan.json`` into its folder."""
    check_folder("--out", folder)
    plan = pilot(folder, text, report, **given)
    write_whole(folder / "plan.json", json.dumps(plan.content, separators=(",", ":")).encode())
    return plan


def verdict_of(times: Sequence[int | None]) -> str:
    """Return what a pilot says of a strength, from the steps to divergence of its seeds."""
    if not times:
        return "not in the pilot"
    diverged = [step for step in times if step is not None]
    if 2 * len(diverged) <= len(times):
        return f"{len(diverged)} of {len(times)} diverged: its runs are censored"
    middle = median([step if step is not None else 10**9 for step in times])
    if middle < LEAST_MEDIAN:
        return f"too strong: the median is {middle:g} steps to divergence, below {LEAST_MEDIAN}"
    return f"kept: the median is {middle:g} steps to divergence"
