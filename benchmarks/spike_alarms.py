"""How often the detector of spikes flags curves without a spike, by noise and k: `python benchmarks/spike_alarms.py`.

Healthy curves fall as 2.5 + 5 / sqrt(t + 20), with noise of a standard deviation about 0.04; 8 of 2,500 steps each.
Prints flags above the band, below it, and changes of level, per 10,000 steps; and what a step costs. Then the same for
the band that follows from the run, in 4 curves of 20,000 steps, from step 1,061 on: k at the end, false alarms above,
and below (clusters of flags) per 10,000 steps, and what the detector itself claims of the last curve.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from dataaudit.training.spikes import GAP, SpikeDetector

STEPS, CURVES, SD = 2_500, 8, 0.04
WIDTHS = (6.0, 7.0, 8.0, 10.0)
LONG, LONG_CURVES, FROM = 20_000, 4, 1_061
Random = np.random.Generator


def correlated(noise: np.ndarray, share: float) -> np.ndarray:
    """Return noise of which each value keeps a share of the one before, with the variance that it had."""
    kept, last = np.empty(len(noise)), noise[0]
    for place, one in enumerate(noise * np.sqrt(1 - share**2)):
        last = share * last + one
        kept[place] = last
    return kept


def gamma(random: Random, shape: float, steps: int) -> np.ndarray:
    """Return skewed noise."""
    return (random.gamma(shape, 1, steps) - shape) / np.sqrt(shape)


NOISES: dict[str, Callable[[Random, int], np.ndarray]] = {
    "normal": lambda random, steps: random.normal(size=steps),
    "correlated 0.3": lambda random, steps: correlated(random.normal(size=steps), 0.3),
    "correlated 0.6": lambda random, steps: correlated(random.normal(size=steps), 0.6),
    "correlated 0.9": lambda random, steps: correlated(random.normal(size=steps), 0.9),
    "t, 8 degrees": lambda random, steps: random.standard_t(8, steps),
    "t, 5 degrees": lambda random, steps: random.standard_t(5, steps),
    "t, 3 degrees": lambda random, steps: random.standard_t(3, steps),
    "t, 4 degrees, correlated 0.6": lambda random, steps: correlated(random.standard_t(4, steps), 0.6),
    "gamma, shape 16": lambda random, steps: gamma(random, 16, steps),
    "gamma, shape 4": lambda random, steps: gamma(random, 4, steps),
    "mean of 24 lognormal documents": lambda random, steps: (
        1.5 * np.exp(0.8 * random.normal(size=(steps, 24))).mean(axis=1)
    ),
    "normal, of a size that wanders": lambda random, steps: (
        random.normal(size=steps) * np.exp(0.5 * correlated(random.normal(size=steps), 0.98))
    ),
}


def main() -> None:
    """Print the table."""
    step = np.arange(1, STEPS + 1)
    print(f"{'noise':<32}" + "".join(f"{f'k = {k:g}':>16}" for k in WIDTHS))
    spent = 0.0
    for name, noise in NOISES.items():
        cells = []
        for k in WIDTHS:
            said: list[str] = []
            for seed in range(CURVES):
                values = 2.5 + 5 * (step + 20.0) ** -0.5 + SD * noise(np.random.default_rng(seed), STEPS)
                detector, begun = SpikeDetector(k=k, rate=None), time.perf_counter()
                said += [detector.see(at, value).kind for at, value in enumerate(values.tolist(), 1)]
                spent += time.perf_counter() - begun
            scale = 1e4 / len(said)
            cells.append(
                " / ".join(f"{said.count(kind) * scale:g}" for kind in ("loss_spike", "loss_dip", "level_shift"))
            )
        print(f"{name:<32}" + "".join(f"{cell:>16}" for cell in cells), flush=True)
    print(f"\n{'noise':<32}{'k at the end':>24}{'above / below':>16}{'claimed above':>24}")
    for name, noise in NOISES.items():
        widths, alarms = [], {1: 0, -1: 0}
        for seed in range(LONG_CURVES):
            values = 2.5 + 5 * (np.arange(LONG) + 21.0) ** -0.5 + SD * noise(np.random.default_rng(seed), LONG)
            detector, last = SpikeDetector(), {1: -LONG, -1: -LONG}
            for at, value in enumerate(values.tolist(), 1):
                verdict = detector.see(at, value)
                if verdict.flagged and at >= FROM:
                    side = 1 if verdict.distance > 0 else -1
                    alarms[side] += at - last[side] > GAP + 1
                    last[side] = at
            widths.append(detector.k)
        scale = 1e4 / (LONG_CURVES * (LONG - FROM + 1))
        rates = detector.alarm_rates()
        claimed = (
            f"{rates[0].value * 1e4:.1f} ({rates[0].low * 1e4:.1f} to {rates[0].high * 1e4:.1f})" if rates else "-"
        )
        cells = (
            f"{min(widths):.1f} to {max(widths):.1f}",
            f"{alarms[1] * scale:.1f} / {alarms[-1] * scale:.1f}",
            claimed,
        )
        print(f"{name:<32}{cells[0]:>24}{cells[1]:>16}{cells[2]:>24}", flush=True)
    print(f"{1e6 * spent / (len(NOISES) * len(WIDTHS) * CURVES * STEPS):.0f} microseconds a step")


if __name__ == "__main__":
    main()
