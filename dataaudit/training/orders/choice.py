"""Which order a run had, as its user says it, what opens it, and which samples each step took.

Samples follow from the size of a batch, its ramp, and the steps that were skipped. Megatron's rule, of which a constant
batch is the simplest case: before each iteration the size of the batch follows from the samples that are consumed by
then; samples of a skipped iteration are consumed and not trained on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from dataaudit.base.errors import ConfigError
from dataaudit.base.extras import require
from dataaudit.training.orders.frameworks import Evaluations, OffsetOrder, RankedOrder, open_olmo
from dataaudit.training.orders.megatron import open_megatron
from dataaudit.training.orders.rows import MappedFiles, Order

Kind = Literal["megatron", "nanogpt", "olmo", "torchtitan"]
_NEEDS: Mapping[Kind, tuple[str, ...]] = {
    "megatron": ("index", "batch"),
    "nanogpt": ("context", "micro_batch", "state"),
    "olmo": ("index", "batch", "context"),
    "torchtitan": ("context", "micro_batch"),
}
_MAY: Mapping[Kind, tuple[str, ...]] = {
    "megatron": ("rampup", "divisor", "skip", "split", "no_extra_token"),
    "nanogpt": ("accumulate", "ranks", "eval"),
    "olmo": ("skip",),
    "torchtitan": ("accumulate", "ranks", "begin_token"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The samples of a step."""

    step: int
    first: int
    """Number of the first sample."""
    samples: int
    skipped: bool
    """Consumed, and not trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """How many samples each step takes.

    Raises:
        ConfigError: Numbers are out of range, or the ramp does not come out even.
    """

    sizes: Sequence[tuple[int, int]]
    """(samples consumed, batch from there on), ascending, the first from 0; one pair for a constant batch."""
    ramp: tuple[int, int, int] | None = None
    """`--rampup-batch-size`: first batch, increment, samples over which it grows to the last of ``sizes``."""
    divisor: int = 1
    """Batches are rounded down to a multiple: micro-batch x data parallel, with `--decrease-batch-size-if-needed`."""
    skipped: Sequence[range] = ()
    """Steps that were skipped."""

    def __post_init__(self) -> None:
        """Look at the numbers."""
        starts = [start for start, _ in self.sizes]
        if not starts or starts[0] != 0 or starts != sorted(set(starts)) or min(size for _, size in self.sizes) < 1:
            raise ConfigError("--batch: expected a size from 1 on, or SAMPLES:SIZE,... ascending from 0")
        if self.divisor < 1:
            raise ConfigError(f"--divisor: expected a number from 1 on, found {self.divisor}")
        if self.ramp is not None:
            first, increment, samples = self.ramp
            more = self.sizes[-1][1] - first
            if len(self.sizes) > 1 or first < 1 or increment < 1 or samples < 0 or more <= 0 or more % increment:
                raise ConfigError(
                    f"--rampup {first} {increment} {samples}: from {first} to {self.sizes[-1][1]} it takes no whole"
                    f" number of increments of {increment}"
                )

    def size(self, consumed: int) -> int:
        """Return the batch after so many samples."""
        wanted = next(size for start, size in reversed(self.sizes) if consumed >= start)
        if self.ramp is not None:
            first, increment, samples = self.ramp
            if consumed <= samples and samples:
                # In floating point, as the trainer divides: its steps are where it has them.
                wanted = first + int(consumed / (samples / ((wanted - first) // increment))) * increment
        found = wanted // self.divisor * self.divisor
        if not found:
            raise ConfigError(f"a batch of {wanted:,} has no multiple of {self.divisor:,}", "--divisor is too large.")
        return found

    def steps(self, first: int, last: int, consumed: int = 0) -> Iterator[Batch]:
        """Yield the samples of steps."""
        for step in range(first, last + 1):
            size = self.size(consumed)
            yield Batch(step=step, first=consumed, samples=size, skipped=any(step in some for some in self.skipped))
            consumed += size


def parse_sizes(text: str) -> tuple[tuple[int, int], ...]:
    """Read a size, or ``SAMPLES:SIZE,...``."""
    try:
        if text.strip().isdecimal():
            return ((0, int(text)),)
        pairs = [part.split(":") for part in text.split(",")]
        return tuple((int(start), int(size)) for start, size in pairs)
    except ValueError:
        raise ConfigError(f"--batch {text}: expected a size, or SAMPLES:SIZE,SAMPLES:SIZE") from None


def parse_steps(text: str) -> tuple[range, ...]:
    """Read steps: ``17,100-120``."""
    try:
        found = []
        for part in text.split(","):
            first, _, last = part.partition("-")
            found.append(range(int(first), int(last or first) + 1))
        if not all(found):
            raise ValueError
        return tuple(found)
    except ValueError:
        raise ConfigError(f"--skip {text}: expected steps and ranges of them, such as 17,100-120") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the options say; those that were not given are None, or empty."""

    kind: Kind
    index: tuple[Path, ...] = ()
    context: int | None = None
    batch: str | None = None
    """Rows of a batch of all ranks, or ``SAMPLES:SIZE,...``."""
    rampup: tuple[int, int, int] | None = None
    divisor: int | None = None
    skip: tuple[range, ...] = ()
    split: str | None = None
    no_extra_token: bool = False
    micro_batch: int | None = None
    accumulate: int | None = None
    ranks: int | None = None
    state: tuple[str, ...] = ()
    eval: tuple[int, int, int] | None = None
    begin_token: bool = False

    def __post_init__(self) -> None:
        """Hold that what is needed is there, and nothing that is of another order."""
        if self.kind == "nanogpt":
            require("reconstruct --order nanogpt", "train")
        given = {field.name for field in fields(self) if field.name != "kind" and getattr(self, field.name)}
        if missing := [name for name in _NEEDS[self.kind] if name not in given]:
            raise ConfigError(f"--order {self.kind} needs {', '.join(map(_option, missing))}")
        if other := sorted(given - {*_NEEDS[self.kind], *_MAY[self.kind]}):
            raise ConfigError(f"{', '.join(map(_option, other))}: not of --order {self.kind}")
        for name in ("context", "micro_batch", "accumulate", "ranks", "divisor"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{_option(name)}: expected a number from 1 on, found {value}")

    def said(self) -> dict[str, Any]:
        """Return what was given, for the log's settings."""
        held = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: _plain(value) for name, value in held.items() if value}

    def batches(self) -> Batches:
        """Return how many samples each step takes."""
        if self.kind in ("megatron", "olmo"):
            return Batches(
                sizes=parse_sizes(self.batch or ""), ramp=self.rampup, divisor=self.divisor or 1, skipped=self.skip
            )
        return Batches(sizes=((0, (self.micro_batch or 1) * (self.accumulate or 1) * (self.ranks or 1)),))

    def open(self, files: MappedFiles, first: int) -> Order:
        """Open the order."""
        ranks, context = self.ranks or 1, self.context or 1
        if self.kind == "megatron":
            if len(self.index) != 1:
                raise ConfigError(f"--index: Megatron's order is in one folder, {len(self.index)} are named")
            return open_megatron(self.index[0], files, split=self.split or "train", extra=not self.no_extra_token)
        if self.kind == "olmo":
            return open_olmo(self.index, files, context=context, batch=parse_sizes(self.batch or "")[-1][1])
        if self.kind == "torchtitan":
            return RankedOrder(files, context, self.micro_batch or 1, ranks, self.begin_token)
        states = [int(name) if name.isdecimal() else Path(name) for name in self.state]
        if len(states) == 1 and isinstance(states[0], int):
            states = [states[0] + rank for rank in range(ranks)]
        if len(states) != ranks:
            raise ConfigError(f"--state: {len(states)} are given for {ranks} ranks", "One a rank, in their order.")
        if self.eval is not None and min(self.eval) < 1:
            raise ConfigError("--eval: expected numbers from 1 on")
        evaluations = None if self.eval is None else Evaluations(*self.eval)
        return OffsetOrder(files, context, self.micro_batch or 1, self.accumulate or 1, states, first, evaluations)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, range):
        return f"{value.start}-{value.stop - 1}"
    return str(value) if isinstance(value, Path) else value
