"""What detectors see of bursts of bad documents, on the same kept logs.

    python benchmarks/spike_seen.py LOGS

LOGS is what ``benchmarks/spike_bursts.py`` wrote. A burst is seen when a detector flags a step of it, or of the five
after. A false episode is flagged steps, at most ten apart, of which none lies in a burst or in the 25 steps after it.
Detectors: ours, by composition and by the loss alone; median + 6 MAD and mean + 6 sd of the 50 losses before; gradient
spike score (norm over the moving average of earlier norms, 0.9 a step, above 2); CUSUM of trainscope 1.8, written anew.
Bounds are those of Clopper and Pearson, 95 %.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import head, options, row
from scipy.stats import beta
from spike_rules import cusum, six_deviations

from dataaudit.training.attribution.spikes import GAP, SpikeDetector, Verdict
from dataaudit.training.attribution.step_detector import SCALES, Segments, StepDetector

FIRST = 100
"""Step from which alarms count."""
AFTER, QUIET = 5, 25


@dataclass(frozen=True)
class Log:
    """A kept log."""

    segments: list[Segments]
    """By step, from 1."""
    norms: np.ndarray
    truth: dict[str, Any]

    @property
    def losses(self) -> np.ndarray:
        """Return float64[steps]."""
        return np.array([np.average(one.loss, weights=one.targets) for one in self.segments])


def load(path: Path) -> Log:
    """Read a log."""
    with np.load(path) as held:
        columns = {name: held[name].astype(np.float64 if name == "loss" else np.int64) for name in Segments._fields}
        edges = np.searchsorted(held["step"], np.arange(1, int(held["step"].max()) + 2))
        truth, norms = json.loads(held["truth"].tobytes()), held["norms"].astype(np.float64)
    pairs = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    return Log([Segments(**{name: one[a:b] for name, one in columns.items()}) for a, b in pairs], norms, truth)


def verdicts(log: Log) -> list[Verdict]:
    """Return what our detector says of each step."""
    detector = StepDetector(len(log.truth["sources"]))
    return [
        detector.see(step, value, held)
        for step, (value, held) in enumerate(zip(log.losses.tolist(), log.segments, strict=True), 1)
    ]


def ours(log: Log) -> np.ndarray:
    """Flagged steps, above or below."""
    found = np.zeros(len(log.segments), dtype=bool)
    for place, one in enumerate(verdicts(log)):
        if one.flagged:
            found[(one.since or one.step) - 1 : place + 1] = True
    return found


def by_loss(log: Log) -> np.ndarray:
    """Flagged steps of the loss alone, above or below."""
    detector = SpikeDetector()
    return np.array([detector.see(step, one).flagged for step, one in enumerate(log.losses.tolist(), 1)])


def mad(log: Log) -> np.ndarray:
    """Median + 6 MAD of the last 50 losses."""
    losses, found = log.losses, np.zeros(len(log.segments), dtype=bool)
    for step in range(50, len(losses)):
        middle = np.median(losses[step - 50 : step])
        found[step] = losses[step] > middle + 6 * np.median(np.abs(losses[step - 50 : step] - middle))
    return found


def gradient_score(log: Log) -> np.ndarray:
    """Norm over the moving average of earlier norms, above 2."""
    average, found = log.norms[0], np.zeros(len(log.norms), dtype=bool)
    for step, norm in enumerate(log.norms.tolist()):
        found[step] = norm > 2 * average
        average = 0.9 * average + 0.1 * norm
    return found


RULES: dict[str, Callable[[Log], np.ndarray]] = {
    "dataaudit, composition": ours,
    "dataaudit, loss alone": by_loss,
    "median + 6 MAD": mad,
    "mean + 6 sd": lambda log: six_deviations(log.losses),
    "gradient spike score": gradient_score,
    "CUSUM": lambda log: cusum(log.losses),
}


def bounds(found: int, among: int) -> str:
    """Return a share with its bounds."""
    if not among:
        return "-"
    low = 0.0 if not found else float(beta.ppf(0.025, found, among - found + 1))
    high = 1.0 if found == among else float(beta.ppf(0.975, found + 1, among - found))
    return f"{found}/{among}, {low:.0%} to {high:.0%}".replace("%", " %")


def episodes(flagged: np.ndarray) -> list[np.ndarray]:
    """Return places of flagged steps, those of an episode together."""
    places = np.flatnonzero(flagged)
    return np.split(places, np.flatnonzero(np.diff(places) > GAP + 1) + 1) if len(places) else []


def main() -> None:
    """Print the tables."""
    given = options(__doc__, logs=Path)
    logs = {path.stem: load(path) for path in sorted(given.logs.glob("*.npz"))}
    alarms = {name: {rule: of(log) for rule, of in RULES.items()} for name, log in logs.items()}
    limits = {
        name: np.array([one.limits or (np.nan,) * len(SCALES) for one in verdicts(log)]) for name, log in logs.items()
    }
    clean, false = 0, dict.fromkeys(RULES, 0)
    seen: list[tuple[str, int, float, float, dict[str, bool]]] = []
    for name, log in logs.items():
        quiet = np.arange(1, len(log.segments) + 1) >= FIRST
        for one in log.truth["bursts"]:
            quiet[one["first"] - 1 : one["last"] + QUIET] = False
            length, rise = one["last"] - one["first"] + 1, float(np.mean(one["rise"]))
            limit = float(limits[name][one["first"] - 1, SCALES.index(length)])
            place = slice(one["first"] - 1, one["last"] + AFTER)
            hits = {rule: bool(flagged[place].any()) for rule, flagged in alarms[name].items()}
            seen.append((one["fault"], length, rise, limit, hits))
        clean += int(quiet.sum())
        for rule, flagged in alarms[name].items():
            false[rule] += sum(bool(quiet[one].all()) for one in episodes(flagged & (np.arange(len(quiet)) >= FIRST)))
    visible = np.concatenate([one[FIRST:] for one in limits.values()])
    print(f"{len(logs)} logs, {clean:,} clean steps, {len(seen)} bursts; limits over {SCALES} steps:", end=" ")
    print(", ".join(f"{one:.3f}" for one in np.nanmedian(visible, axis=0)))
    ranges = {"1.5 limits or more": (1.5, np.inf), "1 to 1.5": (1.0, 1.5), "0.5 to 1": (0.5, 1.0), "less": (-0.5, 0.5)}
    head("rule", "false episodes", "in 10,000 steps", *(f"seen: {one}" for one in ranges), "loss lower by 1 limit")
    for rule in RULES:
        chosen = [
            [hits[rule] for _, _, rise, limit, hits in seen if low <= rise / limit < high]
            for low, high in [*ranges.values(), (-np.inf, -1.0)]
        ]
        cells = [bounds(sum(one), len(one)) for one in chosen]
        row(rule, false[rule], f"{1e4 * false[rule] / max(1, clean):.1f}", *cells)
    print()
    head("fault", "steps", *RULES, "rise / limit of those seen by composition", "of the others")
    for fault in sorted({one[0] for one in seen}):
        for length in (1, 5, 20):
            own = [one for one in seen if one[:2] == (fault, length)]
            if own:
                by = [", ".join(f"{a[2] / a[3]:.1f}" for a in own if a[4][next(iter(RULES))] == hit) for hit in (1, 0)]
                row(fault, length, *(f"{sum(one[4][rule] for one in own)}/{len(own)}" for rule in RULES), *by)


if __name__ == "__main__":
    main()
