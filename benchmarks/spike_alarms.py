"""How often the detector of spikes flags curves without a spike, by noise and k: `python benchmarks/spike_alarms.py`.

Healthy curves fall as 2.5 + 5 / sqrt(t + 20), with noise of a standard deviation about 0.04; 8 of 2,500 steps each.
Prints flags above the band, below it, and changes of level, per 10,000 steps; and what a step costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from dataaudit.training.spikes import SpikeDetector

STEPS, CURVES, SD = 2_500, 8, 0.04
WIDTHS = (6.0, 7.0, 8.0, 10.0)
Random = np.random.Generator


def correlated(noise: np.ndarray, share: float) -> np.ndarray:
    """Return noise of which each value keeps a share of the one before, with the variance that it had."""
    kept, last = np.empty(len(noise)), noise[0]
    for place, one in enumerate(noise * np.sqrt(1 - share**2)):
        last = share * last + one
        kept[place] = last
    return kept


def gamma(random: Random, shape: float) -> np.ndarray:
    """Return skewed noise."""
    return (random.gamma(shape, 1, STEPS) - shape) / np.sqrt(shape)


NOISES: dict[str, Callable[[Random], np.ndarray]] = {
    "normal": lambda random: random.normal(size=STEPS),
    "correlated 0.3": lambda random: correlated(random.normal(size=STEPS), 0.3),
    "correlated 0.6": lambda random: correlated(random.normal(size=STEPS), 0.6),
    "correlated 0.9": lambda random: correlated(random.normal(size=STEPS), 0.9),
    "t, 8 degrees": lambda random: random.standard_t(8, STEPS),
    "t, 5 degrees": lambda random: random.standard_t(5, STEPS),
    "t, 3 degrees": lambda random: random.standard_t(3, STEPS),
    "t, 4 degrees, correlated 0.6": lambda random: correlated(random.standard_t(4, STEPS), 0.6),
    "gamma, shape 16": lambda random: gamma(random, 16),
    "gamma, shape 4": lambda random: gamma(random, 4),
    "mean of 24 lognormal documents": lambda random: 1.5 * np.exp(0.8 * random.normal(size=(STEPS, 24))).mean(axis=1),
    "normal, of a size that wanders": lambda random: (
        random.normal(size=STEPS) * np.exp(0.5 * correlated(random.normal(size=STEPS), 0.98))
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
                values = 2.5 + 5 * (step + 20.0) ** -0.5 + SD * noise(np.random.default_rng(seed))
                detector, begun = SpikeDetector(k=k), time.perf_counter()
                said += [detector.see(at, value).kind for at, value in enumerate(values.tolist(), 1)]
                spent += time.perf_counter() - begun
            scale = 1e4 / len(said)
            cells.append(
                " / ".join(f"{said.count(kind) * scale:g}" for kind in ("loss_spike", "loss_dip", "level_shift"))
            )
        print(f"{name:<32}" + "".join(f"{cell:>16}" for cell in cells), flush=True)
    print(f"{1e6 * spent / (len(NOISES) * len(WIDTHS) * CURVES * STEPS):.0f} microseconds a step")


if __name__ == "__main__":
    main()
