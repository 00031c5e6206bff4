"""The third step: attention, routers, activations and updates, by fixed rules and beside the baseline's at each step.

A number of the baseline is a healthy level, and a number of the run that stays far from it is off. Amounts are far from
four times on, as vitals judge a fold; shares and normalised entropies from a quarter of their range on. Of models of
another shape, only what does not grow with the shape is compared, and only towards harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.render.line import Line, Name, say
from dataaudit.base.statistics import Floats, Ints
from dataaudit.live.incidents import FOLDER as ALERTS
from dataaudit.live.incidents import INCIDENT_FILE
from dataaudit.probes.triage.steps import Check, Step, absent, lines_of
from dataaudit.runlog.reader import RunLog
from dataaudit.vitals.metric import FOLD

QUARTER = 0.25
"""Distance from which on a share, or an entropy over its maximum, is far."""
LEAST_POINTS = 8
"""Measured steps of both runs, at least."""
SMOOTHED = 5
"""Measured steps whose median is compared: a single step is noise."""
LATE = 0.25
"""Newest part of the common steps in half of which a number has to be off."""
_VITALS = "Vitals(model, optimizer, VitalsConfig(), sinks=[monitor])"


@dataclass(frozen=True, slots=True)
class Number:
    """A number of vitals that is compared."""

    part: str
    metric: str
    stat: str
    over: str
    """How heads of a layer become a number: max, min or median."""
    harm: int
    """1: large values are harmful; -1: small ones are; 0: both."""
    amount: bool = True
    """Whether it is an amount, compared by its ratio where models have the same shape; else by its difference."""


NUMBERS: Final = (
    Number("attention", "attn_entropy", "normalised", "median", -1, amount=False),
    Number("attention", "max_attn_logit", "sampled", "max", 1),
    Number("attention", "q_norm", "rms", "max", 1),
    Number("attention", "k_norm", "rms", "max", 1),
    Number("router", "router_token_entropy", "normalised", "median", -1, amount=False),
    Number("router", "moe_util_entropy", "normalised", "median", -1, amount=False),
    Number("router", "router_weight_similarity", "mean_cosine", "max", 1, amount=False),
    Number("router", "router_centered_conditioning", "ratio", "max", 1),
    Number("router", "moe_drop_rate", "share", "max", 1, amount=False),
    Number("activations", "residual_rms", "block", "max", 1),
    Number("activations", "activation_kurtosis", "block", "max", 1),
    Number("weights", "spectral_norm", "largest", "max", 1),
    Number("weights", "stable_rank", "least", "min", -1),
    Number("optimizer", "update_to_weight", "matrices", "max", 0),
)
_PARTS: Final = dict.fromkeys(number.part for number in NUMBERS)
_PART_OF: Final = {number.metric: number.part for number in NUMBERS} | {"moe_dead_experts": "router"}
_SHAPE: Final = ("parameters", "layers", "width", "attention", "experts")
_BY_TURNS: Final = frozenset({"weights", "optimizer"})
"""Parts whose matrices are measured in turn, so that short logs have few steps in common."""
_FIXED: Final = frozenset({"not_finite", "state", "lost", "collapse", "dead", "frozen", "unused", "tying", "limit"})
"""Rules of vitals that need no past of the run."""


@dataclass(frozen=True)
class Vital:
    """What the log of a run holds of vitals."""

    log: RunLog

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """What vitals found in the model and what they measure; empty where the run had none."""
        own = [detail for _, kind, detail in self.events if kind == "vitals"]
        return own[-1] if own else {}

    @cached_property
    def events(self) -> list[tuple[int, str, Mapping[str, Any]]]:
        """Step, kind and detail of each event of vitals."""
        table = self.log.table("events")
        table = table.filter(pc.is_in(table["kind"], pa.array(["vitals", "alarm", "warning", "nan_inf"])))
        columns = (table[name].to_pylist() for name in ("step", "kind", "detail"))
        return [(step, kind, orjson.loads(detail)) for step, kind, detail in zip(*columns, strict=True)]

    @cached_property
    def shape(self) -> dict[str, Any]:
        """Layers, width, parameters, heads and experts of the model, as far as the log has them."""
        found = self.summary.get("found", {})
        return {name: found[name] for name in _SHAPE if name in found}

    @cached_property
    def _values(self) -> pa.Table:
        table = self.log.table("values")
        return table.filter(pc.is_in(table["metric"], pa.array(sorted(_PART_OF))))

    def series(self, number: Number, *, whole: bool = False) -> dict[int, tuple[Ints, Floats]]:
        """Return measured steps and values of a number by layer, heads reduced to a value; -1: the mean over layers."""
        table = self._values
        table = table.filter(pc.and_(pc.equal(table["metric"], number.metric), pc.equal(table["stat"], number.stat)))
        step, layer, value = (table[name].to_numpy() for name in ("step", "layer", "value"))
        made: dict[int, tuple[Ints, Floats]] = {}
        for own in np.unique(layer[~np.isnan(value)]).tolist():
            rows = np.flatnonzero((layer == own) & ~np.isnan(value))
            rows = rows[np.argsort(step[rows], kind="stable")]
            steps, first = np.unique(step[rows], return_index=True)
            groups = np.split(value[rows], first[1:])
            made[own] = steps.astype(np.int64), np.array([getattr(np, number.over)(group) for group in groups])
        if not whole or not made:
            return made
        steps = np.array(sorted(set.intersection(*(set(own[0].tolist()) for own in made.values()))), np.int64)
        return {-1: (steps, np.mean([values[np.isin(at, steps)] for at, values in made.values()], axis=0))}


def internals_step(run: Vital, baseline: Vital | None) -> Step:
    """Return whether what goes on in the model is as it should be."""
    if not run.summary:
        why = "the log has no vitals: attention, routers, activations and weights were not measured"
        return Step("internals", (absent("vitals", why, _VITALS),))
    checks = [_rules(run, baseline), _alerts(run, baseline)]
    if baseline is None or not baseline.summary:
        why = "there is no baseline, or its log has no vitals"
        checks.append(absent("levels", why, "--baseline RUNLOG" if baseline is None else _VITALS))
    else:
        checks += [_levels(part, run, baseline) for part in _PARTS]
    return Step("internals", tuple(checks))


def _rules(run: Vital, baseline: Vital | None) -> Check:
    """Return whether fixed rules of vitals were broken that the baseline's run kept."""
    mine, known = _broken(run), {} if baseline is None else _broken(baseline)
    off = {key: step for key, step in mine.items() if key not in known}
    if not off:
        return Check("fixed rules", "clean", "none was broken" + (" that the baseline kept" if mine else ""))
    shown = [say("{} ({}) from step {}", Name(key[0]), key[1].replace("_", " "), step) for key, step in off.items()]
    first = min(off, key=lambda key: off[key])
    part = _PART_OF.get(first[0], "numbers" if first[1] == "not_finite" else "rules")
    return Check("fixed rules", "found", lines_of(shown), part=part, onset=off[first])


def _broken(own: Vital) -> dict[tuple[str, str], int]:
    """Return the first step of each metric and rule that was broken."""
    made: dict[tuple[str, str], int] = {}
    for step, kind, detail in own.events:
        rule = "not_finite" if kind == "nan_inf" else str(detail.get("rule", ""))
        if kind != "vitals" and rule in _FIXED and detail.get("severity", 0 if kind == "nan_inf" else 3) < 3:
            made.setdefault((str(detail.get("metric", kind)), rule), step)
    return made


def _alerts(run: Vital, baseline: Vital | None) -> Check:
    """Return whether the run has incidents of numbers of the model that the baseline's has not."""
    name, folder = "alerts", run.log.folder / ALERTS
    if not folder.is_dir():
        return absent(name, "no incident is on disk: no rule fired, or nobody judged the run by rules", needed=False)
    known = set() if baseline is None else _incidents(baseline.log.folder / ALERTS).keys()
    off = {metric: own for metric, own in _incidents(folder).items() if metric not in known}
    if not off:
        return Check(name, "clean", "no incident is of numbers of the model, or the baseline has it, too")
    shown: list[Line] = [say("{} ({})", Name(own[1]), Name(metric)) for metric, own in off.items()]
    first = min(off, key=lambda metric: off[metric][0])
    return Check(name, "found", lines_of(shown), part=_PART_OF[first], onset=off[first][0])


def _incidents(folder: Path) -> dict[str, tuple[int, str]]:
    """Return first step and id of the first incident of severity 0 or 1 of each number of the model."""
    made: dict[str, tuple[int, str]] = {}
    for path in sorted(folder.glob(f"*/{INCIDENT_FILE}")):
        try:
            plain = orjson.loads(path.read_bytes())
            metrics = [rule.get("metric") or rule["where"]["metric"] for rule in plain["rules"] if rule["severity"] < 2]
            made = {metric: (int(plain["first_step"]), str(plain["id"])) for metric in metrics} | made
        except (OSError, ValueError, KeyError, TypeError):
            continue  # of an event, or damaged: `dataaudit alerts` says so
    return {metric: own for metric, own in made.items() if metric in _PART_OF}


def _levels(part: str, run: Vital, baseline: Vital) -> Check:
    """Return whether the numbers of a part of the model stay where the baseline's are."""
    alike = run.shape == baseline.shape
    if part == "router" and str(run.shape.get("experts", "")).startswith("0 of"):
        return Check(part, "not_applicable", "the model has no experts")
    numbers = [number for number in NUMBERS if number.part == part and (alike or not number.amount)]
    if not numbers:
        return absent(part, "the models differ in shape, and so do these numbers", needed=False)
    off: list[tuple[int, str, float, float]] = []
    compared = []
    for number in numbers:
        mine, theirs = (own.series(number, whole=not alike) for own in (run, baseline))
        both = [_compared(mine[layer], theirs[layer], number, alike=alike) for layer in mine.keys() & theirs.keys()]
        results = [result for result in both if result is not None]
        compared += [number.metric] * bool(results)
        off += sorted((own[0], number.metric, own[1], own[2]) for own in results if own[0] >= 0)[:1]
    if not compared:
        states = {str(run.summary["metrics"].get(number.metric, "")).partition(": ")[2] for number in numbers}
        why = f"both logs have fewer than {LEAST_POINTS} measured steps of these: "
        why += "; ".join(sorted(states - {""})) or "measured too seldom"
        return absent(part, why, _VITALS, needed=part not in _BY_TURNS)
    if off:
        words: list[Line] = [
            f"{metric} is {now:.3g}, the baseline's {then:.3g}, from step {step:,}"
            for step, metric, now, then in sorted(off)
        ]
        values = {metric: {"step": step, "value": now, "baseline": then} for step, metric, now, then in off}
        return Check(part, "found", lines_of(words, 3), part=part, onset=min(off)[0], numbers=values)
    how = "" if alike else " (the models differ in shape: only what does not depend on it)"
    return Check(part, "clean", f"{', '.join(compared)} near the baseline's{how}")


def _compared(
    mine: tuple[Ints, Floats], theirs: tuple[Ints, Floats], number: Number, *, alike: bool
) -> tuple[int, float, float] | None:
    """Return since which step a number is off (-1: it is not) with both newest levels; None: too few steps."""
    steps, at, other = np.intersect1d(mine[0], theirs[0], return_indices=True)
    if len(steps) < LEAST_POINTS:
        return None
    now, then = _smoothed(mine[1][at]), _smoothed(theirs[1][other])
    distance, limit = now - then, QUARTER
    if number.amount:
        floor = 1.0 if number.metric == "max_attn_logit" else 1e-12
        distance = np.log(np.maximum(np.abs(now), floor) / np.maximum(np.abs(then), floor))
        limit = float(np.log(FOLD))
    if number.harm and (number.amount or not alike):
        distance = np.maximum(distance * number.harm, 0.0)
    out = ~(np.abs(distance) <= limit)
    late = max(LEAST_POINTS // 2, int(len(steps) * LATE))
    levels = float(np.median(now[-late:])), float(np.median(then[-late:]))
    if out[-late:].mean() < 0.5:
        return -1, *levels
    inside = np.flatnonzero(~out[: len(steps) - late // 2])
    return int(steps[inside[-1] + 1 if len(inside) else 0]), *levels


def _smoothed(values: Floats) -> Floats:
    """Return the median of each value and those before it: float64[n]."""
    padded = np.concatenate([np.full(SMOOTHED - 1, values[0]), values])
    return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(padded, SMOOTHED), axis=-1), np.float64)
