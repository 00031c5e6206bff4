"""Runs of a seed: a healthy beginning of each model, and from there every scenario, each in a file of its own."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dataaudit.lab.detectors import Curves, divergence
from dataaudit.lab.model import Size
from dataaudit.lab.scenarios import Scenario
from dataaudit.lab.store import read_run, run_path, write_run
from dataaudit.lab.text import Text
from dataaudit.lab.training import Run

TAIL = 40
"""Steps that a run goes on after it diverged."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
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
                yield scenario, *read_run(path, self.digest)
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
