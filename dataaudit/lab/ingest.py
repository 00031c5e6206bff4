"""Receipts of a user's own run: its healthy span gives bands and limits, what followed gives the verdict."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.errors import ConfigError, NothingEvaluated
from dataaudit.base.statistics import Floats, pairs_of, robust_line
from dataaudit.lab.monitors import EVERY, MONITORS, SIGNALS, Band, Curves, Monitor, divergence, less_own, limit_of
from dataaudit.lab.plan import sealed
from dataaudit.lab.receipts import receipts
from dataaudit.lab.scenarios import Scenario
from dataaudit.lab.scoring import judge
from dataaudit.runlog.reader import RunLog, load_run

BLOCKS: Final = 10
"""Parts of the healthy span whose largest scores a limit follows from."""
LEAST_SPAN: Final = 400
_MODEL = "run"
_POINTS = 400
"""Points of the span that a line is fitted to, at most."""


def ingest(folder: Path, healthy: tuple[int, int], words: str, command: str) -> dict[str, Any]:
    """Return the file of receipts of a run log.

    Args:
        folder: Of the run log, with values of vitals and losses.
        healthy: First and last step of a span that is known to be healthy; what follows is the fault, or more health.
        words: What went wrong after the span; empty where nothing did.
        command: For the receipts.
    """
    first, last = healthy
    log = load_run(folder)
    curves, begin = curves_of(log, first)
    onset, steps = last - begin + 1, len(curves.loss)
    if onset < LEAST_SPAN:
        raise ConfigError(
            f"lab: --healthy: the log has {max(0, onset)} of the steps {first}-{last}, and limits need {LEAST_SPAN}",
            f"Name a longer span, such as --healthy {begin}-{begin + 999}.",
        )
    if steps <= onset:
        raise ConfigError(
            f"lab: {folder} ends at step {begin + steps - 1}, and the healthy span at {last}: nothing is left to judge"
        )
    broken, diverged = np.flatnonzero(~np.isfinite(curves.loss[:onset])), divergence(curves.loss)
    why = f"the loss of step {begin + int(broken[0])} is not finite" if len(broken) else ""
    if diverged is not None and diverged <= onset:
        why = why or f"the run diverged at step {begin + diverged - 1}"
    if why:
        raise ConfigError(
            f"lab: --healthy: {why}, so steps {first}-{last} are not healthy", "Name a span before it, or behind it."
        )
    bands, limits = _own_limits(curves, onset, steps)
    name, family = folder.resolve().name, "own" if words else "healthy"
    scenario = Scenario(name=name, family=family, model=_MODEL, words=words or "no fault")
    plan = sealed(
        {
            "onset": onset,
            "steps": steps,
            "text": {"name": log.run.dataset, "digest": log.run.manifest or ""},
            "seeds": {"band": [begin, last]},
            "scenarios": {name: {"words": scenario.words}},
            "bands": {_MODEL: bands},
            "limits": {_MODEL: {"later": limits}},
        }
    )
    facts = {"onset": onset, "seed": 0, "steps": steps, "diverged": diverged, "alarms": _alarms(log, begin)}
    verdict = judge(plan, scenario, curves, facts)
    made = receipts(plan, [verdict], [], command=command, device="as the run log has it", text=plan.content["text"])
    made["first_step"] = begin
    for own in made["receipts"].values():
        own["healthy_baseline"] = f"steps {begin} to {last} of the run itself: a line, and the deviations from it"
        own["injection"] = dict.fromkeys(own["injection"], f"not injected: what happened after step {last} of a run")
        own["limits"] = [
            f"A single run: numbers of steps count from step {begin}, and a share of 1 run has no bound worth having.",
            "The healthy span gave the limits, so it cannot show false alarms.",
        ]
    return made


def curves_of(log: RunLog, first: int) -> tuple[Curves, int]:
    """Return the curves of a log from a step on, and that step; a step without a loss counts with that before it."""
    from dataaudit.training.attribution.curve import GRADIENT, curve_of

    curve = curve_of(log.table("steps"), log.table("events"))
    kept = curve.step >= first
    if not kept.any():
        raise NothingEvaluated(
            f"lab: {log.folder} has no loss from step {first} on", "Log losses: `monitor.step(loss)`."
        )
    values = log.table("values")
    begin, end = int(curve.step[kept].min()), int(curve.step.max())
    norms = _latest(values, Monitor("", "", GRADIENT, "", "max"), any_stat=True)
    grid = np.arange(begin, end + 1)
    loss = curve.value[np.searchsorted(curve.step, grid, side="right") - 1]
    norm = np.full(len(grid), np.nan)
    if len(norms):
        norm = norms[np.maximum(np.searchsorted(norms[:, 0], grid, side="right") - 1, 0), 1]
    points = {}
    for monitor in MONITORS:
        own = _latest(values, monitor)
        own = own[(own[:, 0] >= begin) & (own[:, 0] <= end)]
        own[:, 0] -= begin - 1
        points[monitor.name] = own
    return Curves(loss, norm if np.isfinite(norm).any() else norm[:0], points), begin


def _latest(values: pa.Table, monitor: Monitor, *, any_stat: bool = False) -> Floats:
    """Return what a monitor would have kept of the values of a log's first rank: (step, value), float64[n, 2]."""
    chosen = pc.equal(values["metric"], monitor.metric)
    if not any_stat:
        chosen = pc.and_(chosen, pc.equal(values["stat"], monitor.stat))
    own = values.filter(chosen)
    own = own.filter(pc.equal(own["rank"], pc.min(own["rank"]))) if len(own) else own
    latest: dict[tuple[int, int], float] = {}
    rows: list[tuple[int, float]] = []
    columns = (own[name].to_pylist() for name in ("step", "layer", "head", "value"))
    known = (row for row in zip(*columns, strict=True) if row[3] is not None and not np.isnan(row[3]))
    for step, measured in groupby(sorted(known, key=itemgetter(0)), itemgetter(0)):
        latest |= {(layer, head): value for _, layer, head, value in measured}
        rows.append((step, float(getattr(np, monitor.over)(list(latest.values())))))
    return np.array(rows, dtype=np.float64).reshape(-1, 2)


def _own_limits(curves: Curves, onset: int, steps: int) -> tuple[dict[str, Any], dict[str, float]]:
    """Return bands around a line through the healthy span, and limits from the largest scores of its ten parts."""
    bands: dict[str, Any] = {}
    limits: dict[str, float] = {}
    points, block = onset // EVERY, onset // EVERY // BLOCKS

    def limit(scores: Floats) -> float:
        maxima = [float(scores[at * block : (at + 1) * block].max()) for at in range(BLOCKS)]
        return limit_of(maxima, block * EVERY, len(SIGNALS))

    for name, raw in curves.grid(steps).items():
        values = less_own(raw, onset)
        known = np.flatnonzero(np.isfinite(values[:points]))
        if len(known) < BLOCKS * 3:
            continue
        chosen = known[np.linspace(0, len(known) - 1, min(len(known), _POINTS)).astype(int)]
        slope, level, spread = robust_line(chosen - points, values[chosen], pairs_of(len(chosen)))
        ahead = np.minimum(np.arange(len(values)) - points, 0)  # the line goes on level behind the span
        middle = level + slope * ahead
        wide = np.full(len(values), 1.4826 * max(spread, 1e-3 * abs(level), 1e-9))
        bands[name] = {"later": {"middle": middle.tolist(), "spread": wide.tolist()}}
        limits[name] = limit(Band(middle, wide).score(values))
    return bands, limits | {name: limit(scores) for name, scores in curves.detected(steps).items()}


def _alarms(log: RunLog, begin: int) -> list[tuple[str, str, int]]:
    """Return first alarms of vitals in the log, as steps since the first that is judged."""
    import orjson

    made = []
    events = log.table("events")
    for step, kind, text in zip(*(events[name].to_pylist() for name in ("step", "kind", "detail")), strict=True):
        if kind in {"alarm", "warning", "nan_inf"} and step >= begin:
            detail = orjson.loads(text)
            if detail.get("incident") and detail.get("severity", 3) < 3:
                made.append((str(detail.get("metric", kind)), str(detail.get("rule", "")), int(step) - begin + 1))
    return sorted(made, key=lambda item: item[2])
