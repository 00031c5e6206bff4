"""What vitals add to a step, by family and beside other ways, as paired ratios of one run; on a GPU or a CPU.

    PYTHONPATH=.:tests python3 -m gpu.overhead [--size 10m|124m|1b] [--compile] [--rounds 12] [--steps 4] [--ways NAMES]

Blocks of steps alternate between ways, each at least as long as the way's cadence: a ratio is of neighbouring blocks,
and the first steps are not counted. The ways of vitals share a model, an optimizer and compiled code: what is measured
is decided on the host, step by step; no alarm makes them measure more. The bare loop, and each other way, has its own.
On a CPU seconds are CPU seconds of all threads; on a GPU they are wall seconds up to a synchronisation at the end of a
block. Sizes: 10 million parameters with 8 x 512 tokens in float32; 124 million and 1 billion with 8 x 1024, on a GPU in
bfloat16.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from dataaudit.vitals.cadence import PRESETS
from dataaudit.vitals.config import FAMILIES

from .checks import ON_A_CPU, Machine, NotEvaluated, Row
from .models import SIZES, Loop, Model
from .other_ways import OTHERS
from .parts import NO_TIME, NOT_EVALUATED, OK

BARE = "bare"
VITALS = {  # families that are measured, and steps between two looks
    "all, every step": (FAMILIES, PRESETS["nano"].every),
    **{f"{name}, every step": ((name,), PRESETS["nano"].every) for name in ("attention", "activations")},
    "weights, an eighth a step": (("weights",), PRESETS["nano"].every),
    "updates, every step": (("updates",), PRESETS["nano"].every),
    "spectra, every step": (("spectra",), PRESETS["nano"].every),
    "all, medium": (FAMILIES, PRESETS["medium"].every),
    "all, large": (FAMILIES, PRESETS["large"].every),
    "hooks alone, nothing measured": ((), PRESETS["nano"].every),
}
INTERVAL = 16
"""Steps whose values are handed over together."""
_MIB = 2**20


class Trained:
    """A model in training, and what looks at it.

    Args:
        machine: Where.
        size: Of the model.
        compiled: Whether it is compiled.
        other: One of the other ways; empty: none.
        watched: Whether vitals are there.
    """

    def __init__(self, machine: Machine, size: str, *, compiled: bool, other: str = "", watched: bool = False) -> None:
        torch.manual_seed(0)
        self.cuda, before = machine.device.type == "cuda", machine.allocated()
        with torch.device(machine.device):
            model = Model(size)
        self.parameters = sum(one.numel() for one in model.parameters())
        self.after = OTHERS[other](model) if other else lambda: None
        self.loop = Loop(
            machine,
            model,
            optimizer=lambda own: torch.optim.AdamW(own, lr=1e-4, fused=self.cuda),
            vitals={"interval": INTERVAL, "window": 128, "escalate": 0} if watched else None,
            compiler=machine.compiler if compiled else None,
            autocast=torch.bfloat16 if self.cuda else None,
        )
        torch._dynamo.config.recompile_limit = 64  # or a way would run eagerly because others were compiled before
        _, _, _, vocabulary, rows, length = SIZES[size]
        self._shape, self._draw = (vocabulary, (rows, length + 1)), torch.Generator(machine.device).manual_seed(0)
        self.steps(2)
        self.resident_mib = (machine.allocated() - before) / _MIB
        """What lies on a GPU between two steps."""

    def measure(self, families: Sequence[str], every: int) -> None:
        """Have vitals look at some families, every so many steps."""
        assert self.loop.vitals is not None
        vitals = self.loop.vitals
        vitals.config = vitals._sources.config = replace(vitals.config, measure=tuple(families) or FAMILIES)
        vitals._cadence.budget.every = every if families else 1 << 30

    def steps(self, number: int) -> tuple[float, float]:
        """Return the seconds of some steps, and the most MiB that they took on a GPU above what lay there before."""
        if self.cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() if self.cuda else 0
        began = time.perf_counter() if self.cuda else time.process_time()
        loop = self.loop
        for _ in range(number):
            # others at each step: a model that learns one batch by heart ends in tiny numbers, which CPUs are slow with
            tokens = torch.randint(*self._shape, device=loop.device, generator=self._draw)
            with loop.vitals.step() if loop.vitals else contextlib.nullcontext():
                loop.loss(tokens).backward()
                loop.optimizer.step()
                self.after()
                loop.optimizer.zero_grad()
        if self.cuda:
            torch.cuda.synchronize()
        ended = time.perf_counter() if self.cuda else time.process_time()
        return ended - began, (torch.cuda.max_memory_allocated() - before) / _MIB if self.cuda else 0.0


class Ways:
    """The bare loop, and ways that are timed against it.

    Args:
        machine: Where.
        size: Of the model.
        compiled: Whether it is compiled.
        bare: A bare loop that is there already.
    """

    def __init__(self, machine: Machine, size: str, *, compiled: bool, bare: Trained | None = None) -> None:
        self._machine, self._size, self._compiled = machine, size, compiled
        self.prepared = 0.0
        """Seconds until all ways were ready, compiling included."""
        self.bare = bare or self._make()
        self._trained: dict[str, Trained] = {}
        self._vitals: Trained | None = None
        self.measured = 0.0
        """Seconds of all rounds."""

    def add(self, name: str) -> None:
        """Make a way ready: of vitals, or another one."""
        if name in OTHERS:
            self._trained[name] = self._make(other=name)
            return
        self._vitals = self._vitals or self._make(watched=True)
        self._trained[name] = self._vitals

    def close(self) -> None:
        """End vitals.

        Raises:
            AssertionError: They did not see a part of the model, or refused a source.
        """
        if self._vitals is not None:
            self._vitals.loop.close()

    def rounds(self, rounds: int, steps: int) -> dict[str, dict[str, float]]:
        """Return the numbers of each way, from blocks that alternate with bare ones."""
        began = time.monotonic()
        ratios: dict[str, list[float]] = {name: [] for name in self._trained}
        added: dict[str, list[float]] = {name: [] for name in self._trained}
        bare: list[tuple[float, float]] = []
        for number in range(rounds):
            names = list(self._trained)
            turn = number % len(names)
            for name in [*names[turn:], *names[:turn]]:
                trained, block = self._trained[name], steps
                if name in VITALS:
                    families, every = VITALS[name]
                    trained.measure(families, every)
                    if trained.cuda:
                        block = max(steps, INTERVAL, every)
                        trained.steps(INTERVAL)  # what the way before measured is handed over in these
                pair = {}
                for one in (self.bare, trained) if number % 2 else (trained, self.bare):
                    pair[one] = one.steps(block)
                ratios[name].append(pair[trained][0] / pair[self.bare][0])
                added[name].append(pair[trained][1] - pair[self.bare][1])
                bare.append((pair[self.bare][0] / block, pair[self.bare][1]))
        self.measured += time.monotonic() - began
        of_bare = {
            "bare_ms": statistics.median(seconds for seconds, _ in bare) * 1e3,
            "bare_mib": self.bare.resident_mib + max(peak for _, peak in bare),
        }
        return {
            name: quartiles(held)
            | of_bare
            | {"added_mib": max(added[name]) + self._trained[name].resident_mib - self.bare.resident_mib}
            for name, held in ratios.items()
        }

    def _make(self, *, other: str = "", watched: bool = False) -> Trained:
        began = time.monotonic()
        trained = Trained(self._machine, self._size, compiled=self._compiled, other=other, watched=watched)
        self.prepared += time.monotonic() - began
        return trained


def quartiles(ratios: list[float]) -> dict[str, float]:
    """Return the median of ratios and their quartiles."""
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return {"ratio": middle, "low": low, "high": high, "rounds": len(ratios)}


def in_words(found: dict[str, float]) -> str:
    """Return the numbers of a way in words."""
    memory = f", {found['added_mib']:+.1f} MiB beside {found['bare_mib']:,.0f}" if found["bare_mib"] else ""
    return (
        f"{found['ratio']:.4f} of a bare step of {found['bare_ms']:.1f} ms"
        f" (quartiles {found['low']:.4f} to {found['high']:.4f}){memory}"
    )


def part_rows(
    machine: Machine, part: str, ways: Ways, names: Sequence[str], *, rounds: int, steps: int
) -> Iterator[Row]:
    """Make some ways ready, time them alone on the device, and yield a row for each."""
    found: dict[str, dict[str, float]] = {}

    def said(name: str) -> tuple[str, dict[str, float]]:
        if machine.dry:
            raise NotEvaluated(ON_A_CPU)
        return in_words(found[name]), found[name]

    failed = [row for row in (machine.attempt(part, name, ways.add, name) for name in names) if row.status != OK]
    yield from failed
    if len(failed) < len(names):
        with machine.busy(alone=True):
            found |= ways.rounds(rounds, steps)
    for name in found:
        yield machine.attempt(part, name, said, name)


def of_vitals(machine: Machine) -> Iterator[Row]:
    """Yield the rows of vitals by family, at 124 million parameters; leave the bare loop to later parts."""
    ways = machine.shared["ways"] = Ways(machine, "dry" if machine.dry else "124m", compiled=not machine.dry)
    yield from part_rows(machine, "overhead", ways, list(VITALS), **_effort(machine))
    yield machine.attempt("overhead", "vitals saw all parts", ways.close)


def of_others(machine: Machine) -> Iterator[Row]:
    """Yield the rows of other ways, beside the same bare loop."""
    size = "dry" if machine.dry else "124m"
    before = machine.shared.get("ways")
    bare = None if before is None else before.bare
    for name in OTHERS:
        ways = Ways(machine, size, compiled=not machine.dry, bare=bare)
        bare = ways.bare
        yield from part_rows(machine, "other_ways", ways, [name], **_effort(machine))


def of_a_billion(machine: Machine) -> Iterator[Row]:
    """Yield the rows of vitals at a billion parameters, if what is left is as much as they take.

    A model of 18 layers compiles 1.5 times as long as one of 12. Its steps take some seven times as long, and two of
    seven ways are timed.
    """
    before: Ways | None = machine.shared.get("ways")
    expected = 0.0 if before is None else 1.5 * before.prepared + 2 * before.measured
    del before
    release(machine)
    if machine.left() < expected:
        yield Row(part="one_billion", check="all", status=NOT_EVALUATED, detail=f"{NO_TIME}: it takes {expected:.0f} s")
        return
    ways = Ways(machine, "dry" if machine.dry else "1b", compiled=not machine.dry)
    yield from part_rows(machine, "one_billion", ways, ["all, every step", "all, large"], **_effort(machine))


def release(machine: Machine) -> None:
    """Free the memory of the device, and forget what was compiled."""
    machine.shared.clear()
    torch._dynamo.reset()
    gc.collect()
    if not machine.dry:
        torch.cuda.empty_cache()


def _effort(machine: Machine) -> dict[str, int]:
    return {"rounds": 2, "steps": 1} if machine.dry else {"rounds": 6, "steps": 8}


def main() -> None:
    """Time ways and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--ways", help="names, separated by semicolons; all by default")
    given = parser.parse_args()
    torch.set_flush_denormal(True)
    machine = Machine(dry=not torch.cuda.is_available(), folder=Path(), deadline=float("inf"))
    size = given.size or ("10m" if machine.dry else "124m")
    known = (*VITALS, *OTHERS)
    names = known if given.ways is None else [name.strip() for name in given.ways.split(";")]
    if unknown := set(names).difference(known):
        parser.error(f"no such way: {', '.join(sorted(unknown))}. Ways: {'; '.join(known)}")
    ways = Ways(machine, size, compiled=given.compile)
    for name in names:
        ways.add(name)
    kind = f"CPU, {torch.get_num_threads()} threads" if machine.dry else torch.cuda.get_device_name()
    how = "compiled" if given.compile else "eager"
    print(f"{ways.bare.parameters / 1e6:.1f} M parameters, {kind}, torch {torch.__version__}, {how}")
    for name, found in ways.rounds(given.rounds, given.steps).items():
        print(f"{name}: {in_words(found)}")


if __name__ == "__main__":
    main()
