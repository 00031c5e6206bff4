"""``dataaudit lab run``: every scenario of each seed, scored by a plan that was fixed before, and its receipts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dataaudit.base.errors import ConfigError
from dataaudit.base.files import write_whole
from dataaudit.base.text import as_json
from dataaudit.lab.model import Size
from dataaudit.lab.plan import Plan
from dataaudit.lab.receipts import FILE, MECHANISM, receipts
from dataaudit.lab.scenarios import BY_NAME, Scenario
from dataaudit.lab.scoring import Verdict, judge
from dataaudit.lab.store import read_run, run_path, write_run
from dataaudit.lab.text import Text
from dataaudit.lab.training import Workshop

LIFTED_SEEDS = 3
"""Seeds whose faults are withdrawn at the first alarm, in a further run."""


def run_lab(
    folder: Path,
    plan: Plan,
    text: Text,
    scenarios: Sequence[Scenario],
    seeds: Sequence[int],
    command: str,
    report: Callable[[str], None],
    *,
    stored_only: bool = False,
) -> dict[str, Any]:
    """Make the runs that the folder lacks, score all, and write ``receipts.json``; return its content.

    Args:
        folder: Of runs and receipts.
        plan: With bands, limits and sizes.
        text: That is trained on.
        scenarios: In the order in which a seed runs them.
        seeds: None of them may be one of the plan's bands or pilots.
        command: For the receipts.
        report: Takes a line for each run.
        stored_only: Whether runs that are not there are left out instead of made.

    Raises:
        ConfigError: A seed is one that bands come from, or the plan lacks a scenario.
    """
    used = {*plan.content["seeds"]["band"], *plan.content["seeds"]["pilot"]}
    if shared := sorted(used & set(seeds)):
        raise ConfigError(f"lab: seed {shared[0]} is a seed of the plan's bands or pilots", "Score other seeds.")
    for item in scenarios:
        planned = plan.content["scenarios"].get(item.name)
        if planned is None or planned["words"] != item.words:
            raise ConfigError(
                f"lab: the plan does not have the scenario {item.name} at this strength",
                "Make a plan by `dataaudit lab pilot`, or name other scenarios.",
            )
    shop = Workshop(
        text=text,
        size=Size(**plan.content["size"]),
        onset=plan.onset,
        steps=plan.steps,
        delta=int(plan.content["delta"]),
        digest=plan.digest,
    )
    verdicts: list[Verdict] = []
    lifted: list[dict[str, Any]] = []
    for seed in seeds:
        own = scenarios
        if stored_only:
            own = [item for item in scenarios if run_path(folder, item.name, seed).exists()]
        for scenario, curves, facts in shop.piece(folder, seed, own, report):
            verdicts.append(judge(plan, scenario, curves, facts))
    for verdict in verdicts:
        alarm, scenario = verdict.caught(MECHANISM), BY_NAME[verdict.scenario]
        if verdict.seed in seeds[:LIFTED_SEEDS] and verdict.onset and not scenario.healthy and alarm is not None:
            lifted += _lifted(shop, plan, folder, verdict.seed, scenario, alarm, report, stored_only=stored_only)
    if not verdicts:
        raise ConfigError(f"lab: {folder} holds no run of this plan", "Make some: dataaudit lab run --quick")
    made = receipts(
        plan,
        verdicts,
        lifted,
        command=command,
        device=_device(),
        text={"name": text.name, "digest": text.digest},
    )
    write_whole(folder / FILE, as_json(made).encode())
    return made


def _lifted(
    shop: Workshop,
    plan: Plan,
    folder: Path,
    seed: int,
    scenario: Scenario,
    alarm: int,
    report: Callable[[str], None],
    *,
    stored_only: bool,
) -> list[dict[str, Any]]:
    """Return what follows where a fault is withdrawn right after its first alarm; weights stay as they are."""
    from dataaudit.lab.training import quiet

    path = run_path(folder, f"{scenario.name}.lifted", seed)
    if not path.exists():
        if stored_only:
            return []
        with quiet():
            run = shop.begin(seed, scenario.model, shop.onset)
            curves, facts = shop.finish(run.branch(), scenario, lifted=alarm)
            run.vitals.close()
        write_run(path, curves, facts)
        report(f"seed {seed}, {scenario.name}, withdrawn after step {alarm}: {facts['steps']} steps")
    curves, facts = read_run(path, plan.digest)
    scores = {
        name: round(float(own[-8:].max()), 3) for name, own in plan.scores(curves, scenario.model, shop.onset).items()
    }
    return [
        {
            "scenario": scenario.name,
            "seed": seed,
            **{key: facts[key] for key in ("lifted", "diverged")},
            "scores": scores,
        }
    ]


def _device() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu, one thread"


def exit_code(made: Mapping[str, Any]) -> int:
    """Return 0 where every aim is met, 1 where any is missed, 3 where there are too few runs for a bound."""
    rate = made["false_alarms"]["monitors"]
    verdicts = {own["verdict"] for own in made["aims"].values()}
    if "missed" in verdicts or (rate["per_10000_steps"] or 0) > rate["aim_per_10000_steps"]:
        return 1
    return 0 if verdicts <= {"met"} else 3


def seeds_of(text: str) -> list[int]:
    """Return the seeds of a text such as ``0-29`` or ``0,3,5``.

    Raises:
        ConfigError: It is no such text.
    """
    made: list[int] = []
    for part in filter(None, (item.strip() for item in text.split(","))):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            raise ConfigError(f"lab: --seeds: expected numbers such as 0-29 or 0,3,5, found {part}")
        made += range(int(first), int(last or first) + 1)
    if not made:
        raise ConfigError("lab: --seeds: expected numbers such as 0-29 or 0,3,5, found nothing")
    return made
