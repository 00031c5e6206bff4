"""The last step: is the model too small? It decides only where artifacts, data and internals are clean.

A model that is too small underfits what it trains on and what it does not alike, and its loss stalls above that of the
baseline. A loss that is worse without a smaller shape is not explained, and triage says so. What tests an axis of the
architecture are controlled runs; the experiments name these with their cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from dataaudit.probes.estimates import Estimate, difference
from dataaudit.probes.report import Number, ProbeReport
from dataaudit.probes.triage.evaluation import Probed
from dataaudit.probes.triage.internals import Vital
from dataaudit.probes.triage.steps import Check, Step, absent
from dataaudit.training.attribution.curve import Curve
from dataaudit.training.attribution.run_findings import RunFacts

WORSE = 0.02
"""Part of the baseline's loss from which on a loss is worse: as the shipped alert on the validation loss."""
SCORE: Final = "microbench_score"
SHARES: Final = ("value", "acc", "acc_norm", "exact_match", "f1")
"""Statistics of a score that fall where a model gets worse."""
TAIL, GROUPS = 0.5, 10
"""Newest part of the common steps whose losses are compared, and parts of it that an error is made of."""
_T95 = 2.262
"""97.5 % quantile of Student's t with 9 degrees of freedom."""
STEPS: Final = (200, 2_000)
"""Least and most steps of an arm: those of a canary run."""
EXPERIMENTS: Final = (
    (
        "depth or width",
        "",
        "twice the layers and twice the width at equal parameters: small changes mend no large drop",
    ),
    ("heads or head dimension", "", "half and twice the heads at the same width: where drops are of long contexts"),
    ("experts and capacity", "experts", "capacity 1.25 and 2, then more experts: where drops are of a domain"),
    ("sparse or full attention", "", "sparse or windowed layers and full ones: where drops are of long contexts alone"),
)
"""Name, what the model has to have, and the two arms with when they are worth it."""


@dataclass(frozen=True, slots=True)
class Side:
    """What is known of a run, and of its baseline."""

    curve: Curve
    facts: RunFacts
    vital: Vital
    probed: Probed | None

    @property
    def report(self) -> ProbeReport | None:
        """Its newest report."""
        return None if self.probed is None else self.probed.report


def compared(run: Side, baseline: Side | None) -> dict[str, tuple[Number, Number]]:
    """Return numbers of the run's newest report, compared with the baseline's of the same step, by name."""
    mine, theirs = run.report, None if baseline is None else baseline.report
    if mine is None or theirs is None or mine.step != theirs.step:
        return {}
    mine.compare(theirs)
    old = {number.key: number for number in theirs.numbers if number.value is not None}
    own = [number for number in mine.numbers if number.value is not None and number.task is not None]
    return {number.name: (number, old[number.key]) for number in own if number.key in old}


def symptoms(run: Side, baseline: Side | None) -> tuple[Check, ...]:
    """Return how numbers of the probes moved since the baseline, paired."""
    checks = []
    for name, (number, theirs) in compared(run, baseline).items():
        if number.metric in {"val_loss", "fixed_probe_loss", SCORE}:
            moved = "; not compared: the artifacts differ" if number.invalid else ""
            if number.change is not None and number.change.low is not None:
                moved = f": {number.change.value:+.3g} ({number.change.low:+.2g} to {number.change.high:+.2g})"
            words = f"{number.value:.4g}, the baseline's {theirs.value:.4g} {number.unit}{moved}"
            checks.append(Check(name, "clean", words, numbers={"value": number.value, "baseline": theirs.value}))
    return tuple(checks)


def architecture_step(run: Side, baseline: Side | None, worse: float = WORSE) -> Step:
    """Return whether a smaller model explains a loss that is worse by more than a share of the baseline's."""
    if baseline is None:
        why = "there is no baseline to compare width, depth, parameters and losses with"
        return Step("architecture", (absent("shape", why, "--baseline RUNLOG"),))
    shape, smaller = _shape(run.vital.shape, baseline.vital.shape)
    trained, held_out = _train_loss(run.curve, baseline.curve), _held_out(run, baseline)
    if "not_evaluated" in (trained.state, held_out.state):
        checks = [shape, trained, held_out]
        if trained.state == "clean" and _is_worse(trained, worse):
            checks.append(absent("capacity", f"training loss is worse by more than {worse:.1%}, and nothing says why"))
        return Step("architecture", tuple(checks))
    off = [check.name for check in (trained, held_out) if _is_worse(check, worse)]
    off += dropped([pair for pair in compared(run, baseline).values() if pair[0].metric == SCORE])
    change, high = held_out.numbers["change"], trained.numbers["high"]
    if not off:
        fit = Check("capacity", "clean", f"no loss is worse than the baseline's by more than {worse:.1%}")
    elif smaller and held_out.name in off and trained.numbers["change"] > 0 and change <= high:
        gains = [f"{_gain(side.curve):.2g}" for side in (run, baseline)]
        stalls = f"a doubling of its tokens gains {gains[0]} nats, the baseline's {gains[1]}"
        words = f"{smaller}; training and held-out loss are worse alike: it underfits; {stalls}"
        fit = Check("capacity", "found", words, part="too small")
    else:
        why = f"{' and '.join(off)} worse than the baseline's, and no smaller shape explains it"
        fit = absent("capacity", why, "the experiments below, an axis at a time; --worse SHARE if seeds differ by more")
    return Step("architecture", (shape, trained, held_out, fit))


def dropped(scores: Sequence[tuple[Number, Number]]) -> list[str]:
    """Return the names of scores that fell, of pairs of the run's and the baseline's, more than chance lets any fall.

    Paired by items, or by both intervals where a harness gives none; 95 % of all scores together (Bonferroni).
    """
    found, wide = [], NormalDist().inv_cdf(1 - 0.025 / max(1, len(scores))) / NormalDist().inv_cdf(0.975)
    for mine, theirs in scores:
        change: Any = mine.change
        if change is None:
            if mine.invalid or mine.stat not in SHARES or mine.value is None or theirs.value is None:
                continue
            now, then = (Estimate(own.value or 0.0, own.low, own.high, own.units) for own in (mine, theirs))
            change = difference(now, then)
        if change.high is not None and change.value + wide * (change.high - change.value) < 0:
            found.append(mine.name)
    return found


def _is_worse(check: Check, worse: float) -> bool:
    """Return whether a loss is worse by more than a share of the baseline's, and beyond its interval."""
    own = check.numbers
    return bool(own["change"] > worse * abs(own["value"] - own["change"]) and (own["low"] is None or own["low"] > 0))


def _shape(mine: dict[str, Any], theirs: dict[str, Any]) -> tuple[Check, str]:
    """Return how the models differ in shape, and what of the run's model is smaller in words."""
    common = [key for key in mine if key in theirs]
    if not common:
        feed = "Vitals(model, optimizer, VitalsConfig(), sinks=[monitor])"
        return absent("shape", "a log does not say what the model is", feed), ""
    counted = [key for key in ("parameters", "layers", "width") if key in common]
    words = ", ".join(f"{key} {mine[key]:,}, the baseline's {theirs[key]:,}" for key in counted)
    if all(mine[key] == theirs[key] for key in common):
        words = "as the baseline's: " + ", ".join(f"{key} {mine[key]:,}" for key in counted)
    numbers = {key: [theirs[key], mine[key]] for key in common}
    less = [key for key in counted if mine[key] < theirs[key]]
    smaller = words if less and ("parameters" not in counted or "parameters" in less) else ""
    return Check("shape", "clean", words, numbers=numbers), smaller


def _train_loss(run: Curve, baseline: Curve) -> Check:
    """Return how the training loss compares at the newest common steps, with the error of means of parts of them."""
    steps, at, other = np.intersect1d(run.step, baseline.step, return_indices=True)
    newest = max(int(len(steps) * TAIL), 2 * GROUPS)
    tails = run.value[at[-newest:]], baseline.value[other[-newest:]]
    if len(steps) < newest or not all(np.isfinite(own).all() for own in tails):
        return absent(
            "training loss", f"fewer than {2 * GROUPS} common steps, or losses not finite", "monitor.step(loss)"
        )
    change = np.array([part.mean() for part in np.array_split(tails[0] - tails[1], GROUPS)])
    half = _T95 * float(change.std(ddof=1)) / GROUPS**0.5
    mean = float((tails[0] - tails[1]).mean())
    what = f"newest {newest:,} common steps"
    return _loss("training loss", what, float(tails[0].mean()), mean, (mean - half, mean + half))


def _held_out(run: Side, baseline: Side) -> Check:
    """Return how a held-out loss compares: of reports with the same artifacts, else of the run logs."""
    name, reports = "held-out loss", compared(run, baseline)
    for metric in ("val_loss", "fixed_probe_loss"):
        if metric in reports and (change := reports[metric][0].change) is not None:
            value = float(reports[metric][0].value or 0.0)
            return _loss(name, f"{metric} of the probes", value, change.value, (change.low, change.high))
    sets = [{own.name: own.points[-1] for own in side.facts.held_out if own.points} for side in (run, baseline)]
    for held_out in sorted(sets[0].keys() & sets[1].keys()):
        mine, theirs = sets[0][held_out], sets[1][held_out]
        if mine.val_loss is not None and theirs.val_loss is not None and mine.step == theirs.step:
            return _loss(name, "newest validation", mine.val_loss, mine.val_loss - theirs.val_loss, (None, None))
    why = "no reports of the same step and artifacts, and no validation of the same step, are in both"
    step, folder = "N", f"{run.vital.log.folder}/probes"
    own, old = run.report, baseline.report
    if own is not None and old is not None and own.step != old.step and baseline.probed is not None:
        why = f"the run's newest report is of step {own.step:,}, and the baseline has none of that step"
        step, folder = str(own.step), str(baseline.probed.folder)
    return absent(name, why, f"dataaudit probe CHECKPOINT --manifest DIR --step {step} --out {quote(folder)}")


def _loss(name: str, what: str, value: float, change: float, bounds: tuple[float | None, float | None]) -> Check:
    words = f"{what}: {value:.4g}, the baseline's {value - change:.4g}: {change:+.3g}"
    words += "" if bounds[0] is None else f" ({bounds[0]:+.2g} to {bounds[1]:+.2g})"
    return Check(name, "clean", words, numbers={"value": value, "change": change, "low": bounds[0], "high": bounds[1]})


def _gain(curve: Curve) -> float:
    """Return by how many nats the loss falls at a doubling of the tokens, in the newer half of a run."""
    tokens = np.cumsum(curve.targets.astype(np.float64))
    newer = (tokens > tokens[-1] / 2) & np.isfinite(curve.value)
    return -float(np.polyfit(np.log2(tokens[newer]), curve.value[newer], 1)[0])


def experiments(run: Side, ranks: int) -> tuple[dict[str, Any], ...]:
    """Return the controlled runs that test an axis each, with what two arms of a canary's length cost here."""
    shape, times, tokens = run.vital.shape, run.facts.times, run.facts.tokens_per_update
    units = {
        "tokens": tokens,
        "flops": 6.0 * shape["parameters"] * tokens if tokens and shape.get("parameters") else None,
        "device_hours": None if times is None else times.step_time_p50 * ranks / 3_600,
    }
    made = []
    for name, asks, words in EXPERIMENTS:
        lacks = asks and str(shape.get(asks, "0 of")).startswith("0 of")
        cost = {key: None if unit is None else [2 * own * unit for own in STEPS] for key, unit in units.items()}
        own = {"name": name, "state": "not_applicable" if lacks else "named", "arms": 2, "steps": list(STEPS)}
        made.append(own | cost | {"words": f"the model has no {asks}" if lacks else words})
    return tuple(made)
