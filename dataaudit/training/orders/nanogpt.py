"""nanoGPT's offsets, drawn again: each batch is ``torch.randint(len(data) - block_size, (batch_size,))``.

Each rank seeds torch's own generator with 1337 + rank, and whatever else draws from it comes between: the weights of
the model before the first batch, evaluations on the first rank, dropout where the model is trained on a CPU. So it is
known only as well as the generator's state before the first batch is, which is asked for. A run that goes on from its
checkpoint seeds again and reads the same offsets once more, as the script does.

How torch draws depends on its version where a file has 2^28 tokens or more: draw with the one that trained.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from dataaudit.errors import ConfigError
from dataaudit.regular import expect_regular
from dataaudit.training.orders.rows import MappedFiles, Pieces

if TYPE_CHECKING:
    import torch


class Evaluations(NamedTuple):
    """What `estimate_loss` draws, on the first rank."""

    interval: int
    """`eval_interval`"""
    batches: int
    """`eval_iters`, of each split."""
    tokens: int
    """Of `val.bin`."""


@dataclass
class OffsetOrder:
    """Random offsets of a flat file.

    Args:
        files: One file.
        context: `block_size`.
        batch: `batch_size`, of a micro-batch.
        micro_batches: `gradient_accumulation_steps` of each rank: the config's number divided by the ranks.
        states: Of each rank: the generator's state before its first batch (`torch.get_rng_state()`), or its seed where
            nothing drew before.
        first_step: `iter_num` at which these states are.
        evaluations: None where no evaluation was made.

    Raises:
        ConfigError: A number is out of range, or the file is too short.
    """

    files: MappedFiles
    context: int
    batch: int
    micro_batches: int
    states: Sequence[Path | int]
    first_step: int = 0
    evaluations: Evaluations | None = None
    shuffled: Literal["rows"] = field(default="rows", init=False)
    """Each offset is drawn by itself."""
    samples: None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Look at the numbers, and make the generators."""
        if len(self.files.paths) != 1:
            raise ConfigError(f"nanoGPT reads one file, {len(self.files.paths)} are named")
        if self._range < 1:
            raise ConfigError(f"the file holds {int(self.files.tokens[0]):,} tokens, a row takes {self.context + 1:,}")
        if self.evaluations is not None and self.evaluations.tokens <= self.context:
            raise ConfigError("--eval: val.bin has no more tokens than a row")
        self._start()

    @property
    def _range(self) -> int:
        return int(self.files.tokens[0]) - self.context

    def _start(self) -> None:
        self._generators = [_generator(one) for one in self.states]
        self._next: list[np.ndarray] = [self._draw(one, self._range) for one in self._generators]
        """Batches that were fetched ahead."""
        self._step = 0

    def pieces(self, first: int, number: int) -> Pieces:
        """Return what the samples of one step are made of, or of several whole ones.

        Raises:
            ConfigError: They are not those of whole steps.
        """
        size = self.batch * self.micro_batches * len(self.states)
        if first % size or number % size:
            raise ConfigError(f"--batch: a step takes {size:,} rows: micro-batch x accumulation x ranks")
        if first // size < self._step:
            self._start()
        while self._step < first // size:
            self._one_step()
        starts = [self._one_step() for _ in range(number // size)]
        return self.files.windows(np.concatenate(starts) if starts else np.zeros(0, np.int64), self.context + 1)

    def _one_step(self) -> np.ndarray:
        """Return the offsets of the next step: int64[micro-batches x ranks x batch]."""
        found = []
        evaluations, step = self.evaluations, self.first_step + self._step
        if evaluations is not None and step % evaluations.interval == 0:
            for high in (self._range, evaluations.tokens - self.context):
                for _ in range(evaluations.batches):
                    self._draw(self._generators[0], high)
        for _ in range(self.micro_batches):
            found += self._next
            self._next = [self._draw(one, self._range) for one in self._generators]
        self._step += 1
        return np.concatenate(found)

    def _draw(self, generator: torch.Generator, high: int) -> np.ndarray:
        import torch

        drawn: np.ndarray = torch.randint(high, (self.batch,), generator=generator).numpy()
        return drawn


def _generator(state: Path | int) -> torch.Generator:
    """Return a generator in a state.

    Raises:
        ConfigError: The file holds no state of one.
    """
    import torch

    found = torch.Generator()
    if isinstance(state, int):
        return found.manual_seed(state)
    try:
        expect_regular(state)
        return found.set_state(torch.load(state, weights_only=True))
    except OSError as error:
        raise ConfigError(f"{state} cannot be read: {error.strerror or error}") from None
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, TypeError, KeyError):
        raise ConfigError(
            f"{state} is no state of a generator", "torch.save(torch.get_rng_state(), FILE), before the first batch."
        ) from None
