"""``dataaudit lab run``: every scenario of each seed, scored by a plan that was fixed before, and its receipts.

Of a seed each model has a healthy beginning, and every scenario goes on from there, each in a file of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dataaudit.base.errors import ConfigError
from dataaudit.base.files import write_whole
from dataaudit.base.text import as_json
from dataaudit.lab.model import Run, Size, Text
from dataaudit.lab.monitors import MECHANISM, Curves, divergence, read_run, run_path, write_run
from dataaudit.lab.plan import Plan
from dataaudit.lab.receipts import FILE, receipts
from dataaudit.lab.scenarios import BY_NAME, Scenario
from dataaudit.lab.scoring import Verdict, judge
from dataaudit.manifest.outfiles import check_folder

TAIL = 40
"""Steps that a run goes on after it diverged."""
LIFTED_SEEDS = 3
"""Seeds whose faults are withdrawn at the first alarm, in a further run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What all runs of an experiment share."""

    text: Text
    size: Size
    onset: int
    steps: int
    delta: int
    digest: str
    """Of the plan; ``pilot`` before there is a plan."""

    def begin(self, seed: int, model: str, onset: int) -> Run:
        """Train a healthy run up to an onset."""
        run = Run(seed, self.text, self.size, sparse=model == "experts", delta=self.delta)
        for _ in range(onset):
            run.step()
        return run

    def finish(self, run: Run, scenario: Scenario, *, lifted: int | None = None) -> tuple[Curves, dict[str, Any]]:
        """Train to the end, or until 40 steps after it diverged; the fault is withdrawn after the step ``lifted``."""
        onset, began = len(run.losses), time.perf_counter()
        diverged: int | None = None
        while len(run.losses) < (self.steps if diverged is None else min(self.steps, diverged + TAIL)):
            done = len(run.losses)
            if lifted is not None and done == lifted:
                run.withdraw()
            if lifted is None or done < lifted:
                scenario.plant(run, done - onset)
            run.step()
            if diverged is None and (done % 20 == 0 or not np.isfinite(run.losses[-1])):
                diverged = divergence(np.array(run.losses))
        run.vitals.close()
        points = {name: np.array(own, dtype=np.float64) for name, own in run.series.points.items()}
        curves = Curves(np.array(run.losses), np.array(run.norms), points)
        facts = {
            "plan": self.digest,
            "text": self.text.digest,
            "scenario": scenario.name,
            "seed": run.seed,
            "onset": onset,
            "steps": len(run.losses),
            "diverged": divergence(curves.loss),
            "lifted": lifted,
            "alarms": sorted({(metric, rule, step) for step, metric, rule in run.series.alarms}, key=lambda it: it[2]),
            "failures": dict(run.vitals.failures),
            "seconds": round(time.perf_counter() - began, 3),
        }
        return curves, facts

    def piece(
        self, folder: Path, seed: int, scenarios: Sequence[Scenario], report: Callable[[str], None]
    ) -> Iterator[tuple[Scenario, Curves, dict[str, Any]]]:
        """Yield the runs of a seed, those that are in the folder already, too."""
        begun: dict[tuple[str, int], Run] = {}
        with quiet():
            for scenario in scenarios:
                path = run_path(folder, scenario.name, seed)
                if not path.exists():
                    key = scenario.model, 0 if scenario.start else self.onset
                    if key not in begun:
                        begun[key] = self.begin(seed, *key)
                    curves, facts = self.finish(begun[key].branch(), scenario)
                    write_run(path, curves, facts)
                    ended = f"diverged at step {facts['diverged']}" if facts["diverged"] else "did not diverge"
                    report(f"seed {seed}, {scenario.name}: {ended}, {facts['steps']} steps, {facts['seconds']:.1f} s")
                yield scenario, *read_run(path, self.digest, self.text.digest)
        for run in begun.values():
            run.vitals.close()


@contextmanager
def quiet() -> Iterator[None]:
    """Use one thread of torch, and keep alarms of faults that were planted off the terminal; both are put back."""
    threads, logger = torch.get_num_threads(), logging.getLogger("dataaudit")
    level = logger.level
    torch.set_num_threads(1)
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        logger.setLevel(level)


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

    A seed runs the scenarios in their order, and may be none of the plan's bands or pilots. With ``stored_only`` runs
    that are not there are left out instead of made.
    """
    check_folder("--out", folder)
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
        own = [item for item in scenarios if not stored_only or run_path(folder, item.name, seed).exists()]
        for scenario, curves, facts in shop.piece(folder, seed, own, report):
            verdicts.append(judge(plan, scenario, curves, facts))
    for verdict in verdicts:
        alarm, scenario = verdict.caught(MECHANISM), BY_NAME[verdict.scenario]
        if verdict.seed in seeds[:LIFTED_SEEDS] and verdict.onset and not scenario.healthy and alarm is not None:
            lifted += _lifted(shop, plan, folder, verdict.seed, scenario, alarm, report, stored_only=stored_only)
    if not verdicts:
        raise ConfigError(f"lab: {folder} holds no run of this plan", "Make some: dataaudit lab run --quick")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu, one thread"
    about = {"name": text.name, "digest": text.digest}
    made = receipts(plan, verdicts, lifted, command=command, device=device, text=about)
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
    curves, facts = read_run(path, plan.digest, shop.text.digest)
    by_signal = plan.scores(curves, scenario.model, shop.onset)
    scores = {name: round(float(own[-8:].max()), 3) for name, own in by_signal.items()}
    known = {key: facts[key] for key in ("lifted", "diverged")}
    return [{"scenario": scenario.name, "seed": seed, **known, "scores": scores}]


def exit_code(made: Mapping[str, Any]) -> int:
    """Return 0 where every aim is met, 1 where any is missed, 3 where there are too few runs for a bound."""
    rate = made["false_alarms"]["monitors"]
    verdicts = {own["verdict"] for own in made["aims"].values()}
    if "missed" in verdicts or (rate["per_10000_steps"] or 0) > rate["aim_per_10000_steps"]:
        return 1
    return 0 if verdicts <= {"met"} else 3


def seeds_of(text: str) -> list[int]:
    """Return the seeds of a text such as ``0-29`` or ``0,3,5``, each once."""
    made: dict[int, None] = {}
    for part in filter(None, (item.strip() for item in text.split(","))):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            raise ConfigError(f"lab: --seeds: expected numbers such as 0-29 or 0,3,5, found {part}")
        made |= dict.fromkeys(range(int(first), int(last or first) + 1))
    if not made:
        raise ConfigError("lab: --seeds: expected numbers such as 0-29 or 0,3,5, found nothing")
    return list(made)
