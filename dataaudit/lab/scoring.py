"""What each signal did in each run, and what follows from all runs: leads, misses, false alarms, specificity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

import numpy as np

from dataaudit.base.statistics import wilson
from dataaudit.lab.monitors import EVERY, MECHANISM, OUTSIDE, RATE, SIGNALS, Curves, module_of
from dataaudit.lab.plan import Plan, first_judged
from dataaudit.lab.scenarios import Scenario

CONFIDENCE: Final = 0.95
AIM: Final = {"attention": 0.9, "rate": 0.9, "router": 0.9}
"""Share of diverging runs, by family of the fault, that some monitor has to catch before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What happened in a run."""

    scenario: str
    family: str
    model: str
    seed: int
    onset: int
    begin: int
    """Step behind which alarms count."""
    steps: int
    diverged: int | None
    first: dict[str, int | None]
    """By signal the first step behind the onset at which it was beyond its limit."""
    vitals: dict[str, int]
    """By metric the first alarm of vitals themselves behind the onset, by their own rules."""

    def caught(self, signals: Iterable[str]) -> int | None:
        """Return the earliest step at which any of some signals was beyond its limit."""
        return min((step for name in signals if (step := self.first.get(name)) is not None), default=None)


def judge(plan: Plan, scenario: Scenario, curves: Curves, facts: Mapping[str, Any]) -> Verdict:
    """Return the verdict on a run."""
    onset = int(facts["onset"])
    begin = first_judged(onset, plan.steps)
    first: dict[str, int | None] = dict.fromkeys(SIGNALS)
    for signal, scores in plan.scores(curves, scenario.model, onset).items():
        beyond = np.flatnonzero(scores[begin // EVERY :] > plan.limit(signal, scenario.model, onset))
        first[signal] = int((beyond[0] + begin // EVERY + 1) * EVERY) if len(beyond) else None
    vitals: dict[str, int] = {}
    for metric, _, step in facts["alarms"]:
        if step > onset:
            vitals.setdefault(metric, step)
    return Verdict(
        scenario=scenario.name,
        family=scenario.family,
        model=scenario.model,
        seed=int(facts["seed"]),
        onset=onset,
        begin=begin,
        steps=int(facts["steps"]),
        diverged=facts["diverged"],
        first=first,
        vitals=vitals,
    )


def outcome(verdicts: Sequence[Verdict], signals: Sequence[str]) -> dict[str, Any]:
    """Return what some signals, taken together, did in the runs of a scenario or family."""
    diverged = [(item, item.diverged) for item in verdicts if item.diverged is not None]
    censored = [item for item in verdicts if item.diverged is None]
    steps = [(item, end, item.caught(signals)) for item, end in diverged]
    caught = [(item, end, step) for item, end, step in steps if step is not None and step < end]
    low, high = wilson(len(caught) / len(diverged), len(diverged), CONFIDENCE) if diverged else (0.0, 1.0)
    rivals = [(item.caught(OUTSIDE), step, item.steps) for item, _, step in caught]
    over = [(last if loss is None else loss) - step for loss, step, last in rivals]
    return {
        "runs": len(verdicts),
        "diverged": len(diverged),
        "censored": [item.seed for item in censored],
        "median_steps_to_divergence": median([end - item.onset for item, end in diverged]) if diverged else None,
        "caught_before": len(caught),
        "missed": [item.seed for item, end, step in steps if step is None or step >= end],
        "share_low_high": [round(low, 4), round(high, 4)],
        "fired_in_censored": sum(item.caught(signals) is not None for item in censored),
        "median_delay": median([step - item.onset for item, _, step in caught]) if caught else None,
        "lead_over_divergence": _spread([end - step for _, end, step in caught]),
        "lead_over_earliest_loss_or_gradient": _spread(over),
        "earlier_than_all_loss_and_gradient": sum(lead > 0 for lead in over),
    }


def false_alarms(verdicts: Sequence[Verdict], signals: Sequence[str]) -> dict[str, Any]:
    """Return how often any of some signals was beyond its limit in healthy runs; a run counts up to its first alarm."""
    exposed, alarms, of = 0, 0, []
    for item in verdicts:
        first = item.caught(signals)
        exposed += (first if first is not None else item.steps) - item.begin
        alarms += first is not None
        if first is not None:
            of.append([item.scenario, item.seed, first, [name for name in signals if item.first.get(name) == first]])
    rate = 1e4 * alarms / exposed if exposed else None
    return {
        "healthy_runs": len(verdicts),
        "healthy_steps": exposed,
        "alarms": alarms,
        "per_10000_steps": None if rate is None else round(rate, 3),
        "aim_per_10000_steps": RATE * 1e4,
        "which": of,
    }


def specificity(verdicts: Sequence[Verdict]) -> dict[str, dict[str, list[int]]]:
    """Return by module and scenario in how many runs its signals fired up to the divergence, as the first; of all."""
    modules: dict[str, list[str]] = {}
    for name in SIGNALS:
        modules.setdefault(module_of(name), []).append(name)
    made: dict[str, dict[str, list[int]]] = {}
    for module, names in modules.items():
        for scenario in dict.fromkeys(item.scenario for item in verdicts):
            own = [item for item in verdicts if item.scenario == scenario]
            steps = [(item.caught(names), item.diverged or item.steps) for item in own]
            fired = sum(step is not None and step <= end for step, end in steps)
            first = sum(
                step is not None and step <= end and step == item.caught(MECHANISM)
                for (step, end), item in zip(steps, own, strict=True)
            )
            made.setdefault(module, {})[scenario] = [fired, first, len(own)]
    return made


def order(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return whether the first order of QK moved before the spectrum of updates, and both before the loss.

    That is the claim of arXiv 2606.28116 for low-precision attention.
    """
    of_loss = [name for name in OUTSIDE if name.startswith("loss")]
    of_updates = ["delta_w_entropy.query", "delta_w_entropy.key"]
    signals = (["qk_first_order_entropy"], of_updates, of_loss)
    never = 1 << 30
    steps = [[never if (step := item.caught(own)) is None else step for own in signals] for item in verdicts]
    return {
        "runs": len(verdicts),
        "first_order_fired": sum(first < never for first, _, _ in steps),
        "delta_w_fired": sum(updates < never for _, updates, _ in steps),
        "first_order_before_delta_w": sum(first < updates for first, updates, _ in steps),
        "delta_w_before_loss": sum(updates < loss for _, updates, loss in steps),
        "all_in_order": sum(first < updates < loss for first, updates, loss in steps),
    }


def verdicts_digest(verdicts: Sequence[Verdict]) -> str:
    """Return a digest of all verdicts, in the order of scenario and seed."""
    ordered = sorted(map(asdict, verdicts), key=lambda item: (item["scenario"], item["seed"]))
    return hashlib.sha256(json.dumps(ordered, sort_keys=True).encode()).hexdigest()


def _spread(values: Sequence[int]) -> dict[str, float] | None:
    """Return least, median and largest of some steps."""
    return {"least": min(values), "median": median(values), "largest": max(values)} if values else None
