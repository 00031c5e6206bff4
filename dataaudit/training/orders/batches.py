"""Which samples each step took: from the size of a batch, its ramp, and the steps that were skipped.

Megatron's rule, of which a constant batch is the simplest case: before each iteration the size of the batch follows
from the samples that are consumed by then; samples of a skipped iteration are consumed and not trained on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dataaudit.errors import ConfigError


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
        """Return the batch after so many samples.

        Raises:
            ConfigError: It is rounded down to nothing.
        """
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
        """Yield the samples of steps.

        Args:
            first: The step to begin with.
            last: The last one.
            consumed: Samples before it.
        """
        for step in range(first, last + 1):
            size = self.size(consumed)
            yield Batch(step=step, first=consumed, samples=size, skipped=any(step in some for some in self.skipped))
            consumed += size


def parse_sizes(text: str) -> tuple[tuple[int, int], ...]:
    """Read a size, or ``SAMPLES:SIZE,...``.

    Raises:
        ConfigError: It is neither.
    """
    try:
        if text.strip().isdecimal():
            return ((0, int(text)),)
        pairs = [one.split(":") for one in text.split(",")]
        return tuple((int(start), int(size)) for start, size in pairs)
    except ValueError:
        raise ConfigError(f"--batch {text}: expected a size, or SAMPLES:SIZE,SAMPLES:SIZE") from None


def parse_steps(text: str) -> tuple[range, ...]:
    """Read steps: ``17,100-120``.

    Raises:
        ConfigError: It is no such list.
    """
    try:
        found = []
        for one in text.split(","):
            first, _, last = one.partition("-")
            found.append(range(int(first), int(last or first) + 1))
        if not all(found):
            raise ValueError
        return tuple(found)
    except ValueError:
        raise ConfigError(f"--skip {text}: expected steps and ranges of them, such as 17,100-120") from None
