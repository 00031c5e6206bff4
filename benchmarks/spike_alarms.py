"""How often the detector of spikes flags curves without a spike, by noise and k.

    python benchmarks/spike_alarms.py [--steps 2500] [--long 20000]

Healthy curves fall as 2.5 + 5 / sqrt(t + 20), with noise of a standard deviation about 0.04; 8 of 2,500 steps each.
Prints flags above the band, below it, and changes of level, per 10,000 steps. Then the same for the band that follows
from the run, in 4 curves of 20,000 steps, from step 1,061 on: k at the end, false alarms above,
and below (clusters of flags) per 10,000 steps, and what the detector itself claims of the last curve.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
from common import head, options, row

from dataaudit.training.attribution.spikes import GAP, SpikeDetector

CURVES, LONG_CURVES, SD = 8, 4, 0.04
WIDTHS = (6.0, 7.0, 8.0, 10.0)
KINDS = ("loss_spike", "loss_dip", "level_shift")
FROM = 1_061
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


def curves(noise: Callable[[Random, int], np.ndarray], number: int, steps: int) -> Iterator[list[float]]:
    """Yield healthy curves with a noise."""
    for seed in range(number):
        trend = 2.5 + 5 * (np.arange(steps) + 21.0) ** -0.5
        yield (trend + SD * noise(np.random.default_rng(seed), steps)).tolist()


def long_alarms(noise: Callable[[Random, int], np.ndarray], steps: int) -> tuple[str, str, str]:
    """Return k at the end, false alarms above and below, and what the detector claims, of the band from the run."""
    widths, alarms = [], {1: 0, -1: 0}
    for values in curves(noise, LONG_CURVES, steps):
        detector, last = SpikeDetector(), {1: -steps, -1: -steps}
        for at, value in enumerate(values, 1):
            verdict = detector.see(at, value)
            if verdict.flagged and at >= FROM:
                side = 1 if verdict.distance > 0 else -1
                alarms[side] += at - last[side] > GAP + 1
                last[side] = at
        widths.append(detector.k)
    scale, rates = 1e4 / (LONG_CURVES * (steps - FROM + 1)), detector.alarm_rates()
    claimed = [f"{1e4 * part:.1f}" for part in (rates[0].value, rates[0].low, rates[0].high)] if rates else ["-"] * 3
    sides = f"{alarms[1] * scale:.1f} / {alarms[-1] * scale:.1f}"
    return f"{min(widths):.1f} to {max(widths):.1f}", sides, "{} ({} to {})".format(*claimed)


def main() -> None:
    """Print both tables."""
    given = options(__doc__, steps=2_500, long=20_000)
    head("noise", *(f"k = {k:g}" for k in WIDTHS))
    for name, noise in NOISES.items():
        cells = []
        for k in WIDTHS:
            found: Counter[str] = Counter()
            for values in curves(noise, CURVES, given.steps):
                detector = SpikeDetector(k=k, rate=None)
                found.update(detector.see(at, value).kind for at, value in enumerate(values, 1))
            cells.append(" / ".join(f"{1e4 * found[kind] / (CURVES * given.steps):g}" for kind in KINDS))
        row(name, *cells)
    print()
    head("noise", "k at the end", "above / below", "claimed above")
    for name, noise in NOISES.items():
        row(name, *long_alarms(noise, given.long))


if __name__ == "__main__":
    main()
