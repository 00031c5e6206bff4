"""What detection and attribution of spikes find and accuse, on logs of real runs and of what is resampled of them.

    python benchmarks/spike_power.py RUNS [--part runs rules clean jumps residual ...] [--trials 60]

RUNS is a folder of logs: ``FOLDER/runs`` of ``benchmarks/spike_runs.py``, or kept ones. Prints Markdown. Real are the
parts ``runs`` and ``rules``. All others resample losses of real runs; what is drawn is said with each. Bounds are those
of Clopper and Pearson, 95 %.
"""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from common import head, options, row
from spike_corpus import FAULTS
from spike_draws import (
    many_blocks,
    of_blocks,
    onsets_after,
    order_of,
    planted_among,
    pooled,
    read,
    relabelled,
    resampled,
    trend,
)
from spike_logs import BLOCK_ROWS, Log, data_of, load
from spike_rules import RULES, alarms

from dataaudit.scan.kernels.intervals import clopper_pearson
from dataaudit.training.attribution.attribute import attribute
from dataaudit.training.attribution.event_permutation import (
    alpha_of_look,
    event_test,
    event_test_of,
    exposure_of,
    read_without_a_gap,
)
from dataaudit.training.attribution.findings import Attribution, EventTestFound
from dataaudit.training.attribution.residual_outliers import residual_test
from dataaudit.training.attribution.spikes import GAP

ORDERS = ("shuffled", "buffered", "sequential")
CONTEXT = 128
FROM = 130
"""First step that all rules judge."""
AFTER = 5
"""Steps after the last planted one within which an alarm is about it."""
JUMP_LASTS = 25
MUCH = 0.25
"""Share of a step's targets from which what is planted there makes a spike."""
PROPOSED = 0.01
"""What all looks at a run may spend of alpha for proposals."""
TIMES = (1, 4, 16)
"""Real batches that are taken for one."""
Random = np.random.Generator


def main() -> None:
    """Print the tables."""
    given = options(__doc__, runs=Path, part=(str, list(PARTS), *PARTS), trials=60, logs=299, relabelings=300)
    folders = sorted(path for path in given.runs.iterdir() if path.suffix == ".npz" or (path / "truth.json").exists())
    logs = {path.stem: load(path) for path in folders}
    for name in given.part:
        print(f"\n## {name}\n", flush=True)
        PARTS[name](logs, given)


def share(found: int, tried: int, confidence: float = 0.95) -> str:
    """Return a share with its bounds."""
    if not tried:
        return "-"
    low, high = clopper_pearson(found, tried, confidence)
    return f"{found}/{tried}, {100 * low:.0f} to {100 * high:.0f} %"


def spans(chosen: np.ndarray, gap: int = GAP) -> list[tuple[int, int]]:
    """Return first and last step, from 1, of chosen ones that are at most so many steps apart."""
    at = np.flatnonzero(chosen) + 1
    cuts = np.flatnonzero(np.diff(at) > gap + 1) + 1
    return [(int(one[0]), int(one[-1])) for one in np.split(at, cuts)] if len(at) else []


def planted_spikes(log: Log) -> list[tuple[int, int]]:
    """Return when something is wrong: steps with much of what is planted, and with and after a jump."""
    held = spans(log.share(log.planted) >= MUCH)
    held = [(first, last + AFTER) for first, last in held]
    return [one for one in held if one[0] >= FROM] + [(step, step + JUMP_LASTS) for step in log.jumps]


def plain(log: Log) -> bool:
    """Whether nothing is planted, and the learning rate is as it should be."""
    return not log.blocks and not log.jumps


# Real runs


@dataclass
class Said:
    """What ``attribute`` named in some runs."""

    runs: int = 0
    found: int = 0
    """Runs in which a block or shard held the excess of an episode."""
    follows: int = 0
    odd: int = 0
    """Runs with an outlier."""
    named: int = 0
    """Outlying blocks that were not planted."""

    def add(self, log: Log, said: Attribution) -> None:
        """Count a run."""
        names = odd_blocks(said) - set(log.blocks)
        self.runs += 1
        self.found += any(one.found is not None for one in said.episodes)
        self.follows += said.event_test is not None and said.event_test.outcome == "follows"
        self.odd += bool(names)
        self.named += len(names)


def odd_blocks(said: Attribution) -> set[tuple[int, int]]:
    """Return shard and block of the blocks that are called outliers."""
    tests = [one for one in said.residual_tests if one.kind == "block"]
    return {(unit.shard, (unit.first_row or 0) // BLOCK_ROWS) for one in tests for unit in one.units if unit.outlier}


def repeated(test: EventTestFound | None) -> bool:
    """Return whether an event test is evidence for a proposal without a replay."""
    if test is None or test.null != "redrawn":
        return False
    return any(one.episodes > 1 and one.p <= alpha_of_look(test.look, PROPOSED) for one in test.units)


def runs_part(logs: dict[str, Log], _: Namespace) -> None:
    """Real runs: what is found of what was planted, and what else is named."""
    head("planted", "order", "runs", "spikes seen", "laid to it", "its blocks odd", "other blocks odd, a run")
    seen_odd: Counter[tuple[int, int]] = Counter()
    for fault in ("", "jump", *FAULTS):
        for order in ORDERS:
            chosen = [one for one in logs.values() if one.order == order and kind_of(one) == fault]
            if not chosen:
                continue
            spikes = seen = right = odd = blocks = other = 0
            for log in chosen:
                said = attribute(data_of(log))
                for first, last in planted_spikes(log):
                    met = [one for one in said.episodes if one.first_step <= last and one.last_step >= first]
                    spikes, seen = spikes + 1, seen + bool(met)
                    right += any(one.found is not None and one.found.shard in dict(log.blocks) for one in met)
                names = odd_blocks(said)
                odd, blocks = odd + len(names & set(log.blocks)), blocks + len(log.blocks)
                other += len(names - set(log.blocks))
                seen_odd.update(names - set(log.blocks))
            right_of = share(right, seen) if fault not in ("", "jump") else f"{right}"
            shares = share(seen, spikes), right_of, share(odd, blocks)
            row(fault or "nothing", order, len(chosen), *shares, f"{other / len(chosen):.1f}")
    again = sum(1 for one in seen_odd.values() if one > 1)
    times = sum(one for one in seen_odd.values() if one > 1)
    print(
        f"\n{sum(seen_odd.values())} times a block that was not planted is called odd: {len(seen_odd)} blocks, {again}"
        f" of them in more than one run, which is {times} of the times."
    )


def kind_of(log: Log) -> str:
    """Return what is planted."""
    return log.fault or ("jump" if log.jumps else "")


def rules_part(logs: dict[str, Log], _: Namespace) -> None:
    """Real runs: rules of others beside ours."""
    orders = ("alarms of clean runs, per 10,000 steps: shuffled", *ORDERS[1:])
    head("rule", *orders, "spikes of random bytes found", "of other faults", "of jumps")
    for name in RULES:
        cells = []
        for order in ORDERS:
            clean = [one for one in logs.values() if plain(one) and one.order == order]
            number = sum(len(spans(_late(alarms(name, one.curve, one.norms)))) for one in clean)
            cells.append(f"{1e4 * number / max(1, sum(one.steps - FROM + 1 for one in clean)):.0f}")
        events: dict[str, list[bool]] = {"random bytes": [], "other": [], "jump": []}
        for log in logs.values():
            steps = np.flatnonzero(alarms(name, log.curve, log.norms)) + 1
            kind = kind_of(log) if kind_of(log) in events else "other"
            for first, last in planted_spikes(log):
                events[kind].append(bool(((steps >= first) & (steps <= last)).any()))
        cells += [share(sum(one), len(one)) for one in events.values()]
        row(name, *cells)


def _late(found: np.ndarray) -> np.ndarray:
    return np.where(np.arange(1, len(found) + 1) >= FROM, found, False)


# Clean runs, and runs whose learning rate jumps, resampled


def clean_part(logs: dict[str, Log], given: Namespace) -> None:
    """Clean runs: what is named."""
    clean = {order: [one for one in logs.values() if plain(one) and one.order == order] for order in ORDERS}
    head("clean", "n", "excess laid to data", "episodes follow data", "a block odd", "odd, a run")
    for order, chosen in clean.items():
        print_row(f"{order}, real", chosen)
    for order, chosen in clean.items():
        print_row(f"{order}, resampled", _resampled(chosen, _part_of(given.logs, order)))


def jumps_part(logs: dict[str, Log], given: Namespace) -> None:
    """Runs whose learning rate jumps: what is named, and what the jump's own spike is laid to."""
    jumped = [one for one in logs.values() if one.jumps]
    shown = ("jumps with a spike", "laid to data", "episodes follow data", "a block odd", "odd, a run")
    head("runs with a jump", "n", *shown)
    print_row("all orders, real", jumped, jumps=True)
    for order in ORDERS:
        clean = [one for one in logs.values() if plain(one) and one.order == order]
        made = _resampled(clean, _part_of(given.logs, order), jumped)
        print_row(f"{order}, resampled", made, jumps=True)


def repeated_part(logs: dict[str, Log], given: Namespace) -> None:
    """Clean logs of shuffled order, and ones with a jump: the event test alone."""
    clean = [one for one in logs.values() if plain(one) and one.order == "shuffled"]
    head("shuffled, resampled", "n", "with an episode", "episodes follow data", "repeated")
    for name, jumped in (("clean", []), ("learning rate jumps", [one for one in logs.values() if one.jumps])):
        tested = follows = proposed = number = 0
        for log in _resampled(clean, given.logs, jumped):
            data = data_of(log)
            said = event_test_of(data, [])
            number, tested = number + 1, tested + bool(data.judged.spikes)
            follows, proposed = follows + (said.outcome == "follows"), proposed + repeated(said)
        row(name, number, share(tested, number), share(follows, number), share(proposed, number, 0.9))


def _part_of(logs: int, order: str) -> int:
    """Return how many of so many logs are of an order."""
    place = ORDERS.index(order)
    return (place + 1) * logs // len(ORDERS) - place * logs // len(ORDERS)


def _resampled(clean: Sequence[Log], number: int, jumped: Sequence[Log] = ()) -> Iterator[Log]:
    for one in range(number if clean else 0):
        random = np.random.default_rng([one, len(jumped)])
        logs = [clean[place] for place in random.permutation(len(clean))]
        yield resampled(logs, random, jumped[int(random.integers(len(jumped)))] if jumped else None)


def print_row(name: str, logs: Iterable[Log], *, jumps: bool = False) -> None:
    """Print what is named in some runs."""
    said, seen, laid, made = Said(), 0, 0, 0
    for log in logs:
        found = attribute(data_of(log))
        said.add(log, found)
        for first, last in planted_spikes(log):
            own = [one for one in found.episodes if first <= one.first_step <= last]
            made, seen, laid = made + 1, seen + bool(own), laid + any(one.found is not None for one in own)
    first_cells = [share(seen, made), share(laid, seen)] if jumps else [share(said.found, said.runs)]
    cells = [*first_cells, *(share(one, said.runs) for one in (said.follows, said.odd))]
    row(name, said.runs, *cells, f"{said.named / max(1, said.runs):.1f}")


# Power of the residual test, resampled


def residual_part(logs: dict[str, Log], given: Namespace) -> None:
    """Power of the residual test by fault, order, share and batch size."""
    plans = [(1, 4, 1), (1, 8, 1), *((3, 8, times) for times in TIMES)]
    heads = [
        f"{blocks} of 528 blocks{', half' if documents < BLOCK_ROWS else ''}, {8 * times} rows"
        for blocks, documents, times in plans
    ]
    head("fault", "order", "bad documents", *heads)
    for order in ORDERS:
        clean = {
            times: [
                one.regrouped(times).documents()
                for one in logs.values()
                if plain(one) and not one.masked and one.order == order
            ]
            for times in TIMES
        }
        for fault in FAULTS:
            faulty = [one for one in logs.values() if one.fault == fault and one.order == order]
            if not faulty or not clean[1]:
                continue
            prose = faulty[0].sources.index("prose") + 1
            cells = []
            for blocks, documents, times in plans:
                bad = pooled([of_blocks(one, one.regrouped(times).documents()) for one in faulty])
                found = 0
                rounds = given.trials // blocks
                for trial in range(rounds):
                    random = np.random.default_rng([trial, blocks, times])
                    base = clean[times][trial % len(clean[times])]
                    made, chosen = planted_among(base, bad, blocks, documents, prose, random)
                    odd = [one.shard for one in residual_test(made, seed=trial).units if one.outlier]
                    found += int(np.isin(chosen, odd).sum())
                cells.append(share(found, rounds * blocks))
            row(fault, order, len(bad.unit), *cells)


# Power of the event test, by draws


def event_part(logs: dict[str, Log], given: Namespace) -> None:
    """Power of the event test: a block is followed by episodes, in orders of real documents.

    Documents and lengths are those of a real run, four passes. An episode begins 1 to 8 steps after a document of the
    bad block with the probability of the table, five others anywhere.
    """
    log = next(one for one in logs.values() if one.order == "shuffled" and plain(one))
    first = log["epoch"] == 0
    key = log["shard"][first] * log.rows + log["row"][first]
    lengths = np.bincount(key, log["targets"][first]).astype(np.int64)
    shard, place = np.divmod(np.arange(len(lengths)), log.rows)
    kept = lengths > 0
    lengths, shard, place = lengths[kept], shard[kept], place[kept]
    starts = np.concatenate([[0], np.cumsum(np.bincount(shard))])
    batches = (8, 32, 128, 512)
    head("order", "an episode after a read", *(f"{one} rows" for one in batches))
    trials = max(1, given.trials // 2)
    for order in ORDERS:
        for chance in (0.1, 0.25, 1.0):
            cells = []
            for rows in batches:
                found = untested = 0
                for trial in range(trials):
                    random = np.random.default_rng([trial, rows, int(100 * chance)])
                    exposure = read(order_of(order, starts, 4, trial), lengths, shard, place, rows, CONTEXT)
                    unit = int(random.choice(exposure.units[exposure.units >= 0]))
                    onsets = onsets_after(exposure, unit, chance, random)
                    flagged = np.unique(np.concatenate([onsets, onsets + 1]))
                    said = event_test(
                        exposure, onsets, flagged, random_order=order == "shuffled", orders=199, seed=trial
                    )
                    found += any(one.shard in (unit, -1 - (unit >> 40)) and one.p <= 0.05 for one in said.units)
                    untested += unit in exposure.units[read_without_a_gap(exposure)]
                cells.append(share(found, trials) + (f" ({untested} not identifiable)" if untested else ""))
            row(order, f"{chance:g}", *cells)


# p-values of relabelled runs


def uniform_part(logs: dict[str, Log], given: Namespace) -> None:
    """How often p is at most a when names of documents are permuted, of one packed and one masked clean run."""
    levels = (0.001, 0.002, 0.005, 0.01, 0.02)
    heads = [f"p ≤ {one:g}" for one in levels]
    head("residual test, relabelled within sources", "p-values", *heads, "runs with an outlier")
    chosen = {
        masked: next(one for one in logs.values() if one.order == "shuffled" and plain(one) and one.masked == masked)
        for masked in (False, True)
    }
    for masked, log in chosen.items():
        counts, tested, outliers = Counter[float](), 0, 0
        for one in range(given.relabelings):
            made = relabelled(log, np.random.default_rng(one), within_source=True)
            said = residual_test(made.documents(), seed=one)
            tested += said.tested
            outliers += any(unit.outlier for unit in said.units)
            counts.update(level for level in levels for unit in said.units if unit.p <= level)
        cells = [f"{counts[level] / tested:.4f}" for level in levels]
        row("masked" if masked else "packed", f"{tested:,}", *cells, share(outliers, given.relabelings))
    levels = (0.05, 0.1, 0.25, 0.5, 0.75)
    print()
    heads = [f"p ≤ {one:g}" for one in levels]
    head("event test, relabelled, the 12 highest steps as episodes", "p-values", *heads)
    for masked, log in chosen.items():
        above = log.curve - trend(log.curve)
        above[:100] = -np.inf
        onsets = np.sort(np.argsort(-above)[:12])
        smallest = []
        for one in range(given.relabelings):
            made = relabelled(log, np.random.default_rng([one, 1]), within_source=False)
            steps = np.arange(1, made.steps + 1)
            zero = np.zeros(len(made["step"]), dtype=np.int64)
            table = pa.table(
                {name: made[name].astype(np.int64) for name in made.columns if name != "loss"} | {"rank": zero}
            )
            targets = np.bincount(made["step"], made["targets"])[1:].astype(np.int64)
            exposure = exposure_of(table, steps, targets, np.arange(int(made["shard"].max()) + 1), BLOCK_ROWS)
            assert exposure is not None
            said = event_test(exposure, onsets, onsets, random_order=True, orders=199, seed=one)
            smallest.append(said.units[0].p)
        cells = [f"{np.mean(np.array(smallest) <= level):.3f}" for level in levels]
        row("masked" if masked else "packed", len(smallest), *cells)


# False discoveries


def discoveries_part(logs: dict[str, Log], given: Namespace) -> None:
    """False discoveries among 10,000 blocks of 8 documents, 20 of them bad: documents of real runs, drawn again."""
    shuffled = [one for one in logs.values() if one.order == "shuffled" and not one.masked]
    clean = pooled([one.documents() for one in shuffled if plain(one)])
    head("what is drawn", "fault", "rounds", "found of 20", "false discoveries")
    rounds = max(3, given.trials // 6)
    for name in ("documents of their source", "whole blocks"):
        for fault in FAULTS:
            faulty = [of_blocks(one, one.documents()) for one in shuffled if one.fault == fault]
            if not faulty:
                continue
            bad, found, wrong = pooled(faulty), 0, []
            for one in range(rounds):
                made = many_blocks(clean, bad, np.random.default_rng(one), whole=name == "whole blocks")
                said = [unit.shard for unit in residual_test(made, seed=one).units if unit.outlier]
                found += sum(1 for unit in said if unit < 20)
                wrong.append(sum(1 for unit in said if unit >= 20) / max(1, len(said)))
            row(name, fault, rounds, share(found, 20 * rounds), f"{np.mean(wrong):.3f}")


PARTS = {
    "runs": runs_part,
    "rules": rules_part,
    "clean": clean_part,
    "jumps": jumps_part,
    "repeated": repeated_part,
    "residual": residual_part,
    "event": event_part,
    "uniform": uniform_part,
    "discoveries": discoveries_part,
}


if __name__ == "__main__":
    main()
