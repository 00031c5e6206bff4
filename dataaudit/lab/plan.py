"""The plan of an experiment: sizes, seeds, strengths, bands and limits, fixed by pilot runs before anything is scored.

A plan is a JSON file with a digest of its own content. Every run carries the digest, and scoring refuses runs of
another plan. Bands and limits come from seeds that are never scored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np

from dataaudit.base.errors import ConfigError
from dataaudit.base.statistics import Floats
from dataaudit.lab.monitors import EVERY, SIGNALS, Band, Curves, less_own, limit_of

SHIPPED: Final = "plan.json"
FORMAT = "dataaudit-lab-plan-1"


@dataclass(frozen=True)
class Plan:
    """A plan as it is stored.

    Raises:
        ConfigError: It is damaged: its digest is not that of its content.
    """

    content: Mapping[str, Any]

    def __post_init__(self) -> None:
        if self.content.get("format") != FORMAT:
            raise ConfigError(f"lab: the plan is no {FORMAT}", "`dataaudit lab pilot --out DIR` writes DIR/plan.json.")
        if self.content.get("digest") != digest_of(self.content):
            raise ConfigError(
                "lab: the digest of the plan is not that of its content: it was changed after the pilot",
                "Take the plan that was committed, or make another by `dataaudit lab pilot`.",
            )

    @property
    def digest(self) -> str:
        """Of the content."""
        return str(self.content["digest"])

    @property
    def onset(self) -> int:
        """Healthy steps before a fault that comes later."""
        return int(self.content["onset"])

    @property
    def steps(self) -> int:
        """Steps of a run that does not diverge."""
        return int(self.content["steps"])

    def scores(self, curves: Curves, model: str, onset: int) -> dict[str, Floats]:
        """Return by signal the score at each point: float64[steps // 4]; of a step-wise detector its largest since."""
        made = {}
        for name, values in curves.grid(self.steps).items():
            known = self.content["bands"][model].get(name, {}).get(_mode(onset))
            if known is not None:
                middle, spread = (np.array(known[part], np.float64) for part in ("middle", "spread"))  # null: NaN
                made[name] = Band(middle, spread).score(less_own(values, onset))
        return made | curves.detected(self.steps)

    def limit(self, signal: str, model: str, onset: int) -> float:
        """Return the score above which a signal is an alarm."""
        return float(self.content["limits"][model][_mode(onset)][signal])


def first_judged(onset: int, steps: int) -> int:
    """Return the step behind which alarms count: the onset; of a fault from the start on, a quarter of the run."""
    return onset or steps // 4


def load_plan(path: Path | None) -> Plan:
    """Read a plan; the shipped one without a path."""
    try:
        content = json.loads((path or resources.files("dataaudit.lab").joinpath(SHIPPED)).read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"lab: the plan {path or SHIPPED} cannot be read: {error}") from None
    return Plan(content if isinstance(content, dict) else {})


def digest_of(content: Mapping[str, Any]) -> str:
    """Return the digest of a plan without its own entry."""
    rest = {name: value for name, value in content.items() if name != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def calibrate(runs: Mapping[str, list[Curves]], *, onset: int, steps: int) -> dict[str, Any]:
    """Return bands and limits from healthy runs of each model.

    Each run is scored by the band of the others, so that a limit is that of a run that the band has not seen.
    """
    bands: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    for model, own in runs.items():
        bands[model], limits[model] = {}, {}
        grids = [curves.grid(steps) for curves in own]
        detected = [curves.detected(steps) for curves in own]
        for mode, begin in (("later", onset), ("start", 0)):
            judged = slice(first_judged(begin, steps) // EVERY, None)
            number = steps - first_judged(begin, steps)
            limits[model][mode] = {}
            for signal in grids[0]:
                values = [less_own(grid[signal], begin) for grid in grids]
                band = Band.of(values)
                if not np.isfinite(band.middle[judged]).any():
                    continue
                stored = {"middle": _stored(band.middle), "spread": _stored(band.spread)}
                bands[model].setdefault(signal, {})[mode] = stored
                maxima = []
                for at, item in enumerate(values):
                    others = Band.of([*values[:at], *values[at + 1 :]])
                    maxima.append(float(others.score(item)[judged].max()))
                limits[model][mode][signal] = limit_of(maxima, number, len(SIGNALS))
            for signal in detected[0]:
                maxima = [float(scores[signal][judged].max()) for scores in detected]
                limits[model][mode][signal] = limit_of(maxima, number, len(SIGNALS))
    return {"bands": bands, "limits": limits}


def sealed(content: dict[str, Any]) -> Plan:
    """Return a plan with its digest."""
    made = json.loads(json.dumps({"format": FORMAT, **content}))
    return Plan({**made, "digest": digest_of(made)})


def _mode(onset: int) -> str:
    return "later" if onset else "start"


def _stored(values: Floats) -> list[float | None]:
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values.tolist()]
