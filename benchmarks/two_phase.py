"""How often two-phase intervals hold the truth, and how much narrower they are than those of a plain sample.

    python benchmarks/two_phase.py [--labelled labelled.csv] [--corpora 5000] [--table all]

Simulates corpora of 300,000 documents (`labelled_corpora.py`) at every setting, samples each once, as `allocate` says
and plainly, and compares intervals at 95 % with what each corpus holds. Prints Markdown.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np
from labelled_corpora import SHARES, Corpora, Scores, Setting, draw
from other_intervals import INTERVALS, Z

from dataaudit.kernels.two_phase import Units, score_bounds, share_bounds

BASES = (0.001, 0.01, 0.05)
SQUARES = (0.0, 0.25, 0.5, 0.75, 0.9)
CALLS = (1_000, 4_000, 16_000)
TOLD = ("calibrated", "twice as sure", "ten times too high", "ten times too low", "made up")
Bounds = tuple[np.ndarray, np.ndarray]


def ours(sizes: np.ndarray, judged: np.ndarray, positives: np.ndarray, guesses: np.ndarray) -> Bounds:
    """Return the product's bounds of every corpus."""
    order = np.lexsort((sizes, guesses))
    return share_bounds(sizes[order], judged[order], positives[:, order], 0.95)


def plainly(corpora: Corpora) -> Bounds:
    """Return the product's bounds of the plain samples: one stratum."""
    one = np.array([corpora.sizes.sum()]), np.array([corpora.judged.sum()])
    return share_bounds(*one, corpora.plain[:, None], 0.95)


def held(bounds: Bounds, truth: np.ndarray) -> tuple[float, float, float, float]:
    """Return, in percent, how often bounds hold the truth and miss it above and below, and their mean width."""
    low, high = bounds[0] - 1e-9, bounds[1] + 1e-9
    above, below = 100 * np.mean(low > truth), 100 * np.mean(high < truth)
    return 100 - above - below, above, below, float(np.mean(bounds[1] - bounds[0]))


def sources(corpora: Corpora) -> list[float]:
    """Return coverage for each source on its own."""
    found = []
    for number in range(len(SHARES)):
        own = corpora.source == number
        truth = corpora.truth[:, own].sum(axis=1) / corpora.sizes[own].sum()
        bounds = ours(corpora.sizes[own], corpora.judged[own], corpora.positives[:, own], corpora.guesses[own])
        found.append(held(bounds, truth)[0])
    return found


def truth_of(corpora: Corpora) -> np.ndarray:
    """Return the share of positives in every corpus."""
    return corpora.truth.sum(axis=1) / corpora.sizes.sum()


def table_coverage(scores: Scores, count: int, told: str = "calibrated", seed: int = 1) -> None:
    """Print coverage overall and by source, and the gain."""
    print(
        "| base rate | R^2 | calls | positives: plain, ours | overall % (above, below) | sources % | plain % | gain |"
    )
    print("|--:|--:|--:|--:|--:|--:|--:|--:|")
    squares = (0.0,) if told == "made up" else SQUARES if told == "calibrated" else (0.25, 0.75)
    for base, square, calls in itertools.product(BASES, squares, CALLS):
        corpora = draw(scores, Setting(base, square, calls, told), count, seed)
        truth = truth_of(corpora)
        all_, plain = (
            held(ours(corpora.sizes, corpora.judged, corpora.positives, corpora.guesses), truth),
            held(plainly(corpora), truth),
        )
        found = corpora.plain.mean(), corpora.positives.sum(axis=1).mean()
        print(
            f"| {100 * base:g} % | {square:g} | {calls:,} | {found[0]:.1f}, {found[1]:.0f} "
            f"| {all_[0]:.1f} ({all_[1]:.1f}, {all_[2]:.1f}) | {' '.join(f'{one:.1f}' for one in sources(corpora))} "
            f"| {plain[0]:.1f} | {plain[3] / all_[3]:.2f} |",
            flush=True,
        )


def profile(sizes: np.ndarray, judged: np.ndarray, positives: np.ndarray) -> Bounds:
    """Return the score interval without third moments."""
    open_ = judged < sizes
    certain = positives[:, ~open_].sum(axis=1) / sizes.sum()
    n, size, found = judged[open_], sizes[open_], positives[:, open_]
    units = Units(size / sizes.sum(), found / n, n * (size - 1) / (size - n), np.zeros(len(n)))
    low, high = score_bounds(units, 0.95)
    return low + certain, high + certain


def tuned(corpora: Corpora) -> Bounds:
    """Return PPI++ on a plain sample (Angelopoulos, Duchi and Zrnic 2023): lambda tuned, normal interval."""
    rng = np.random.default_rng(2)
    total, calls, guess = corpora.sizes.sum(), int(corpora.judged.sum()), corpora.guesses
    drawn = np.minimum(rng.multinomial(calls, corpora.sizes / total, size=len(corpora.truth)), corpora.sizes)
    found = rng.hypergeometric(corpora.truth, corpora.sizes - corpora.truth, drawn)
    n = drawn.sum(axis=1)
    mean, square = (drawn * guess).sum(axis=1) / n, (drawn * guess**2).sum(axis=1) / n
    rate, both = found.sum(axis=1) / n, (found * guess).sum(axis=1) / n
    spread = square - mean**2
    factor = np.divide(both - rate * mean, spread * (1 + n / total), out=np.zeros(len(n)), where=spread > 1e-15)
    value = rate + factor * ((corpora.sizes * guess).sum() / total - mean)
    variance = rate * (1 - rate) - 2 * factor * (both - rate * mean) + factor**2 * spread
    half = Z * np.sqrt(np.maximum(variance, 0) / n * (1 - n / total))
    return np.maximum(value - half, 0), value + half


def table_intervals(scores: Scores, count: int) -> None:
    """Print coverage and width of other intervals."""
    chosen = [
        (0.001, 0, 4_000),
        (0.001, 0.25, 16_000),
        (0.001, 0.75, 4_000),
        (0.01, 0, 1_000),
        (0.01, 0.5, 1_000),
        (0.01, 0.75, 4_000),
        (0.05, 0.25, 1_000),
        (0.05, 0.9, 4_000),
    ]
    settings = [Setting(*one) for one in chosen]
    names = [f"{100 * s.base:g} %, {s.r2:g}, {s.calls:,}" for s in settings]
    print(f"| interval | {' | '.join(names)} | worst |")
    print("|---|" + "--:|" * (len(settings) + 1))
    drawn = [draw(scores, setting, count) for setting in settings]
    for name in ("this one", "profile score, no third moment", *INTERVALS, "PPI++, plain sample"):
        cells, worst = [], []
        for corpora in drawn:
            plain = held(plainly(corpora), truth_of(corpora))
            some = corpora.judged > 0
            args = corpora.sizes[some], corpora.judged[some], corpora.positives[:, some]
            with np.errstate(all="ignore"):
                if name == "this one":
                    bounds = ours(*args, corpora.guesses[some])
                elif name in INTERVALS:
                    bounds = INTERVALS[name](*args)
                elif name.startswith("PPI"):
                    bounds = tuned(corpora)
                else:
                    bounds = profile(*args)
            found = held(bounds, truth_of(corpora))
            worst.append(found[0])
            cells.append(f"{found[0]:.1f} x{plain[3] / found[3]:.2f}")
        print(f"| {name} | {' | '.join(cells)} | {min(worst):.1f} |", flush=True)


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labelled", type=Path, help="CSV with columns score, label or text, is_toxic")
    parser.add_argument("--corpora", type=int, default=5_000)
    parser.add_argument("--table", choices=["coverage", "intervals", "guesses", "all"], default="all")
    parser.add_argument("--seed", type=int, default=1, help="of the corpora and samples of the first table")
    args = parser.parse_args()
    scores = Scores.read(args.labelled)
    if args.table in {"coverage", "all"}:
        print(f"\n## Coverage and gain, {args.corpora:,} corpora a setting\n")
        table_coverage(scores, args.corpora, seed=args.seed)
    if args.table in {"guesses", "all"}:
        for told in TOLD[1:]:
            print(f"\n## Guesses {told}\n")
            table_coverage(scores, args.corpora, told)
    if args.table in {"intervals", "all"}:
        print("\n## Other intervals: coverage %, times narrower than a plain sample's\n")
        table_intervals(scores, args.corpora)


if __name__ == "__main__":
    main()
