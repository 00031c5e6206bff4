"""nanoGPT's offsets, drawn again: each batch is ``torch.randint(len(data) - block_size, (batch_size,))``.

Each rank seeds torch's own generator with 1337 + rank, and whatever else draws from it comes between: the weights of
the model before the first batch, evaluations on the first rank, dropout where the model is trained on a CPU. So it is
known only as well as the generator's state before the first batch is, which is asked for. A run that goes on from its
checkpoint seeds again and reads the same offsets once more, as the script does.

How torch draws depends on its version where a file has 2^28 tokens or more: draw with the version that trained.

OLMo-core's saved orders: ``global_indices_*.npy`` of its loader of rows of one length (`NumpyFSLDataLoader`).

A file is the numbers alone, uint32 without a header, of one pass: instances, that is rows of ``sequence_length`` tokens
that are cut from each token file from its beginning on; what is left at a file's end is in no row. The name says how
many there are, the seed, the pass and how many rows are moved together::

    global_indices_chunk8_dataset_size1000_epoch1_seed34521_v1.npy

A batch is the next so many of them, whatever the number of ranks; those at the end of a pass that fill no batch are
left out.

The order of torchtitan's text loader (0.3, `HuggingFaceTextDataset`) on a map-style data set.

Its checkpoint holds no order, but where each rank is: `sample_idx` documents read of its part in this pass, `epoch`,
and `inputs_buffer`, tokens that are read and not yet trained on. The order follows from the loader's rules: rank r has
the r-th part of the documents, which follow each other in the data set's order; the first pass is in that order, and
each later one is `Dataset.shuffle(seed=42 + epoch)` of the part. Labels are shifted within documents: one of n tokens
has n - 1 labels, and rows are cut from these in turn.

What cannot be known: streamed data sets (`IterableDataset`), whose order is their reader's; versions since that load by
Grain, whose checkpoints hold positions in a graph of transformations; documents that a `sample_processor` changed.
"""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from dataaudit.base.errors import ConfigError
from dataaudit.base.files import expect_file
from dataaudit.base.statistics import Ints
from dataaudit.training.orders.rows import MappedFiles, Pieces, expanded

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
    """Random offsets of a flat file."""

    files: MappedFiles
    context: int
    """`block_size`"""
    batch: int
    """`batch_size`, of a micro-batch."""
    micro_batches: int
    """`gradient_accumulation_steps` of each rank: the config's number divided by the ranks."""
    states: Sequence[Path | int]
    """Of each rank: the generator's state before its first batch (`torch.get_rng_state()`), or its seed where nothing
    drew before."""
    first_step: int = 0
    """`iter_num` at which these states are."""
    evaluations: Evaluations | None = None
    shuffled: Literal["rows"] = field(default="rows", init=False)
    """Each offset is drawn by itself."""
    samples: None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Check the numbers, and make the generators."""
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
        self._generators = [_generator(state) for state in self.states]
        self._next: list[np.ndarray] = [self._draw(generator, self._range) for generator in self._generators]
        """Batches that were fetched ahead."""
        self._step = 0

    def pieces(self, first: int, number: int) -> Pieces:
        """Return what the samples of one step are made of, or of several whole steps."""
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
        offsets = []
        evaluations, step = self.evaluations, self.first_step + self._step
        if evaluations is not None and step % evaluations.interval == 0:
            for high in (self._range, evaluations.tokens - self.context):
                for _ in range(evaluations.batches):
                    self._draw(self._generators[0], high)
        for _ in range(self.micro_batches):
            offsets += self._next
            self._next = [self._draw(generator, self._range) for generator in self._generators]
        self._step += 1
        return np.concatenate(offsets)

    def _draw(self, generator: torch.Generator, high: int) -> np.ndarray:
        import torch

        drawn: np.ndarray = torch.randint(high, (self.batch,), generator=generator).numpy()
        return drawn


def _generator(state: Path | int) -> torch.Generator:
    """Return a generator in a state."""
    import torch

    generator = torch.Generator()
    if isinstance(state, int):
        return generator.manual_seed(state)
    try:
        expect_file(state)
        return generator.set_state(torch.load(state, weights_only=True))
    except OSError as error:
        raise ConfigError(f"{state} cannot be read: {error.strerror or error}") from None
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, TypeError, KeyError):
        raise ConfigError(
            f"{state} is no state of a generator", "torch.save(torch.get_rng_state(), FILE), before the first batch."
        ) from None


_NAME = re.compile(
    r"global_indices(?:_chunk(?P<chunk>\d+))?_dataset_size(?P<size>\d+)"
    r"(?:_epoch(?P<epoch>\d+))?(?:_seed(?P<seed>\d+))?_v1\.npy"
)


def _index_of(path: Path) -> Path:
    """Return the file of an order; of a folder, the single one in it."""
    if not path.is_dir():
        return path
    files = sorted(path.glob("global_indices_*.npy"))
    if len(files) != 1:
        raise ConfigError(
            f"{path} holds {len(files)} files global_indices_*.npy, expected 1",
            "Name the file in it, once for each pass: --index FILE.",
        )
    return files[0]


def open_olmo(indices: Sequence[Path], files: MappedFiles, *, context: int, batch: int) -> InstanceOrder:
    """Open saved orders, one a pass."""
    passes, chunks, drawn = [], set(), True
    for path in map(_index_of, indices):
        name = _NAME.fullmatch(path.name)
        if name is None:
            raise ConfigError(
                f"{path} is no order that is known: expected global_indices_dataset_size..._v1.npy",
                "Orders of rows of several lengths (global_batch_indices) and of its composable loader are not.",
            )
        chunk, size = int(name["chunk"] or 1), int(name["size"])
        rows = files.tokens // (chunk * context) * chunk
        if int(rows.sum()) != size:
            raise ConfigError(
                f"{path.name} is of {size:,} rows, the files that are named hold {int(rows.sum()):,} of {context:,}",
                "Name all files of the data set, in its order, and its sequence length: --file, --context.",
            )
        passes.append(_loaded(path, size))
        chunks.add(chunk)
        drawn &= name["seed"] is not None
    borders = np.concatenate([[0], np.cumsum(rows)])
    return InstanceOrder(
        files=files,
        context=context,
        batch=batch,
        borders=borders,
        passes=tuple(passes),
        shuffled="rows" if drawn and chunks == {1} else "",
    )


@dataclass(frozen=True)
class InstanceOrder:
    """Rows of token files, pass after pass."""

    files: MappedFiles
    context: int
    batch: int
    borders: np.ndarray
    """int64[files + 1] number of the first row of each file."""
    passes: tuple[np.ndarray, ...]
    shuffled: Literal["", "rows"]

    @property
    def samples(self) -> int:
        """How many are read."""
        return sum(self._used)

    @property
    def _used(self) -> list[int]:
        return [len(pass_) // self.batch * self.batch for pass_ in self.passes]

    def pieces(self, first: int, number: int) -> Pieces:
        """Return what some samples are made of."""
        rows, epochs, base = list[np.ndarray](), list[np.ndarray](), 0
        for epoch, (values, used) in enumerate(zip(self.passes, self._used, strict=True)):
            chosen = values[max(0, first - base) : min(used, max(0, first + number - base))]
            rows.append(np.asarray(chosen, np.int64))
            epochs.append(np.full(len(chosen), epoch))
            base += used
        row = np.concatenate(rows)
        file = np.searchsorted(self.borders, row, "right") - 1
        starts = self.files.bases[file] + (row - self.borders[file]) * self.context
        return self.files.windows(starts, self.context, np.concatenate(epochs))


def _loaded(path: Path, size: int) -> np.ndarray:
    try:
        expect_file(path)
        there = os.stat(path).st_size
        if there != 4 * size:
            raise ConfigError(f"{path} has {there:,} bytes, by its name it has {4 * size:,}: it is damaged")
        rows: np.ndarray = np.memmap(path, dtype="<u4", mode="r")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if int(rows.max()) >= size:
        raise ConfigError(f"{path} names the row {int(rows.max()):,} of {size:,}: it is damaged")
    return rows


_SEED = 42


@dataclass
class RankedOrder:
    """Rows of ranks that read a part of the documents each."""

    files: MappedFiles
    """In the order of the data set, written with the end token that the loader adds."""
    context: int
    """`seq_len`"""
    batch: int
    """`local_batch_size`, of a rank's micro-batch."""
    ranks: int
    begin: bool
    """Whether the tokenizer has a token of beginning, which the loader adds and the files do not hold."""
    shuffled: Literal[""] = field(default="", init=False)
    samples: None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Divide the documents."""
        number = len(self.files.begins)
        if not 0 < self.ranks <= number:
            raise ConfigError(f"{number:,} documents cannot be divided among {self.ranks:,} ranks")
        each, more = divmod(number, self.ranks)
        self._borders = [rank * each + min(rank, more) for rank in range(self.ranks + 1)]
        lengths = self.files.ends - self.files.begins
        self._labels = lengths - (not self.begin)
        self._totals = [int(self._labels[start:stop].sum()) for start, stop in self._parts()]
        self._passes = lru_cache(maxsize=2 * self.ranks)(self._pass)

    def _parts(self) -> list[tuple[int, int]]:
        return list(zip(self._borders[:-1], self._borders[1:], strict=True))

    def _pass(self, rank: int, epoch: int) -> tuple[Ints, Ints]:
        """Return the documents of a rank in a pass, and the labels up to the end of each."""
        start, stop = self._parts()[rank]
        order = np.arange(stop - start)
        if epoch:
            order = np.random.default_rng(_SEED + epoch).permutation(stop - start)
        documents = (start + order).astype(np.int64)
        return documents, np.cumsum(self._labels[documents])

    def pieces(self, first: int, number: int) -> Pieces:
        """Return what samples are made of: of each micro-batch, the rows of the first rank, of the second, ..."""
        sample = np.arange(first, first + number)
        rank = sample // self.batch % self.ranks
        own = sample // (self.batch * self.ranks) * self.batch + sample % self.batch
        each = [self._of_rank(value, np.flatnonzero(rank == value), own) for value in np.unique(rank).tolist()]
        return Pieces.joined(each, labels=True)

    def _of_rank(self, rank: int, rows: Ints, own: Ints) -> Ints:
        """Return row, document, offset, length and pass of the pieces of one rank's rows: int64[5, n]."""
        pieces, total = [], self._totals[rank]
        starts = own[rows] * self.context
        for epoch in range(int(starts.min()) // total, int(starts.max() + self.context - 1) // total + 1):
            documents, ends = self._passes(rank, epoch)
            begin = np.maximum(starts - epoch * total, 0)
            end = np.minimum(starts + self.context - epoch * total, total)
            inside = begin < end
            if not inside.any():
                continue
            begin, end = begin[inside], end[inside]
            row, met = expanded(np.searchsorted(ends, begin, "right"), np.searchsorted(ends, end - 1, "right"))
            at = ends[met] - self._labels[documents[met]]
            low, high = np.maximum(begin[row], at), np.minimum(end[row], ends[met])
            offset = low - at + (not self.begin)
            pieces.append(np.stack([rows[inside][row], documents[met], offset, high - low, np.full(len(row), epoch)]))
        return np.concatenate(pieces, axis=1)

    def positions(self, samples: int) -> tuple[dict[str, int], ...]:
        """Return where each rank is after so many samples of all ranks."""
        return tuple(self.position(rank, samples) for rank in range(self.ranks))

    def position(self, rank: int, samples: int) -> dict[str, int]:
        """Return where a rank is after so many samples of all ranks, as its checkpoint has it, of a buffer its size."""
        labels = samples // self.ranks * self.context
        total = self._totals[rank]
        # The loader reads the document that fills a row, and starts over only when the next row asks for more.
        epoch = max(0, (labels - 1) // total)
        _, ends = self._passes(rank, epoch)
        read = int(np.searchsorted(ends, labels - epoch * total, "left")) + (labels > 0)
        fetched = int(ends[read - 1]) if read else 0
        return {"sample_idx": read, "epoch": epoch, "inputs_buffer": fetched - (labels - epoch * total)}
