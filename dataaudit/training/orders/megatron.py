"""Megatron's saved indices: which sequences of a token file each sample is made of, and how files are blended.

In the cache of data (`--data-cache-path`; without it `PREFIX/cache/GPTDataset_indices`), of each data set::

    HASH-GPTDataset-train-description.txt        JSON; HASH is its md5
    HASH-GPTDataset-train-document_index.npy     int32[E * D] sequences of the .bin, shuffled
    HASH-GPTDataset-train-sample_index.npy       int32 or int64[N + 1, 2] place in it and token of a sample's beginning
    HASH-GPTDataset-train-shuffle_index.npy      uint32 or int64[N] which sample is read when
    HASH-BlendedDataset-train-dataset_index.npy  int16[M] which data set each sample of the blend is of
    HASH-BlendedDataset-train-dataset_sample_index.npy  int64[M] which sample of it

A sample ends one token behind where the next one begins, unless the data set was made without that token
(`add_extra_token_to_sequence=False`). Samples are read in their order by all data-parallel ranks together
(`--dataloader-type single`).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dataaudit.base import text as t
from dataaudit.base.errors import ConfigError
from dataaudit.base.files import expect_file, read_safely
from dataaudit.base.statistics import Ints
from dataaudit.training.orders.rows import MappedFiles, Pieces, expanded

_NAMED = 5


def open_megatron(
    index: Path, files: MappedFiles, *, split: str = "train", extra: bool = True
) -> BlendedOrder | SampleOrder:
    """Open a saved order."""
    prefix = _prefix(index, split)
    about = _described(prefix)
    if "-BlendedDataset" not in prefix.name:
        return _sample_order(prefix, about, files, extra)
    parts = []
    for item in about.get("datasets", ()):
        digest = hashlib.md5(json.dumps(item, indent=4).encode(), usedforsecurity=False).hexdigest()
        part = prefix.with_name(f"{digest}-{item.get('class')}-{split}")
        parts.append(_sample_order(part, item, files, extra))
    dataset, sample = (_loaded(prefix, name, 1) for name in ("dataset_index", "dataset_sample_index"))
    return BlendedOrder(parts=tuple(parts), dataset=dataset, sample=sample)


def _sample_order(prefix: Path, about: dict[str, Any], files: MappedFiles, extra: bool) -> SampleOrder:
    length = about.get("sequence_length")
    if not isinstance(length, int) or not isinstance(about.get("dataset_path"), str):
        raise ConfigError(f"{prefix}-description.txt says no sequence_length and dataset_path: it is no GPT data set's")
    return SampleOrder(
        name=prefix.name,
        files=files,
        file=files.file(about["dataset_path"]),
        length=length,
        extra=int(extra),
        document=_loaded(prefix, "document_index", 1),
        sample=_loaded(prefix, "sample_index", 2),
        shuffle=_loaded(prefix, "shuffle_index", 1),
    )


@dataclass(frozen=True)
class SampleOrder:
    """The samples of one token file."""

    name: str
    files: MappedFiles
    file: int
    length: int
    extra: int
    document: np.ndarray
    sample: np.ndarray
    shuffle: np.ndarray

    def __post_init__(self) -> None:
        """Compare the indices with each other and with the file."""
        sequences = int(self.files.firsts[self.file + 1] - self.files.firsts[self.file])
        wrong = not len(self.document) or self.document.min() < 0 or self.document.max() >= sequences
        if wrong or self.sample.shape != (len(self.shuffle) + 1, 2):
            raise ConfigError(
                f"{self.name}: the indices do not fit {self.files.paths[self.file]}, which has {sequences:,} documents",
                "The file was written anew since, or holds several sequences a document.",
            )

    @property
    def samples(self) -> int:
        """How many there are."""
        return len(self.shuffle)

    @cached_property
    def epochs(self) -> Ints | None:
        """int64[document index] how often each document came before; None where each comes once."""
        order = np.argsort(self.document, kind="stable")
        document = self.document[order]
        new = np.concatenate([[True], document[1:] != document[:-1]])
        if new.all():
            return None
        epochs = np.empty(len(order), dtype=np.int64)
        epochs[order] = np.arange(len(order)) - np.flatnonzero(new)[np.cumsum(new) - 1]
        return epochs

    @property
    def shuffled(self) -> Literal["", "rows"]:
        """Rows, unless a last epoch was shuffled by itself."""
        tops = np.maximum.accumulate(self.shuffle)
        apart = np.flatnonzero(tops[:-1] == np.arange(len(tops) - 1))
        return "rows" if not len(apart) else ""

    def pieces(self, first: int, number: int) -> Pieces:
        """Return what some samples in the order of reading are made of."""
        return self.pieces_of(np.arange(first, first + number, dtype=np.int64))

    def pieces_of(self, samples: Ints) -> Pieces:
        """Return what samples are made of."""
        if len(samples) and samples.max() >= len(self.shuffle):
            raise ConfigError(
                f"{self.name} has {len(self.shuffle):,} samples, the blend names number {int(samples.max()):,}",
                "One of the two indices was changed.",
            )
        chosen = self.shuffle[samples].astype(np.int64)
        begin, end = self.sample[chosen].astype(np.int64), self.sample[chosen + 1].astype(np.int64)
        row, at = expanded(begin[:, 0], np.maximum(begin[:, 0], end[:, 0]))
        at = np.minimum(at, len(self.document) - 1)
        document = self.document[at].astype(np.int64) + self.files.firsts[self.file]
        whole = self.files.ends[document] - self.files.begins[document]
        offset = np.where(at == begin[row, 0], begin[row, 1], 0)
        stop = np.where(at == end[row, 0], end[row, 1] + self.extra, whole)
        totals = np.bincount(row, stop - offset, minlength=len(samples))
        if (offset < 0).any() or (stop > whole).any() or (totals != self.length + self.extra).any():
            raise ConfigError(
                f"{self.name}: samples do not come out at {self.length + self.extra:,} tokens of"
                f" {self.files.paths[self.file]}",
                "The index is of another file, or samples have no extra token: --no-extra-token.",
            )
        epochs = np.zeros(len(at), np.int64) if self.epochs is None else self.epochs[at]
        return Pieces(row=row, document=document, offset=offset, length=stop - offset, epoch=epochs)


@dataclass(frozen=True)
class BlendedOrder:
    """Samples of several token files in turn."""

    parts: tuple[SampleOrder, ...]
    dataset: np.ndarray
    sample: np.ndarray

    def __post_init__(self) -> None:
        """Compare the indices with each other."""
        known = len(self.dataset) and self.dataset.min() >= 0 and self.dataset.max() < len(self.parts)
        if len(self.dataset) != len(self.sample) or not known:
            raise ConfigError("the index of the blend and its description do not belong together: one was changed")

    @property
    def samples(self) -> int:
        """How many there are."""
        return len(self.dataset)

    shuffled: Literal[""] = ""
    """Which file comes next is decided by the weights, not drawn."""

    def pieces(self, first: int, number: int) -> Pieces:
        """Return what some samples of the blend are made of."""
        of, sample = (np.asarray(values[first : first + number], np.int64) for values in (self.dataset, self.sample))
        each = []
        for part in np.unique(of).tolist():
            rows = np.flatnonzero(of == part)
            own = self.parts[part].pieces_of(sample[rows])
            each.append(np.stack([rows[own.row], own.document, own.offset, own.length, own.epoch]))
        return Pieces.joined(each)


def _prefix(index: Path, split: str) -> Path:
    """Return the beginning of the files of a data set: that of the blend, where there is one."""
    if not index.is_dir():
        return index
    orders: list[Path] = []
    for kind, name in (("BlendedDataset", "dataset_index"), ("GPTDataset", "document_index")):
        files = sorted(index.glob(f"*-{kind}-{split}-{name}.npy"))
        orders = orders or [path.with_name(path.name.removesuffix(f"-{name}.npy")) for path in files]
    if len(orders) != 1:
        shown = ", ".join(t.clean(path.name, 100) for path in orders[:_NAMED])
        raise ConfigError(
            f"{index} holds {len(orders)} orders of the split {split}{': ' if shown else ''}{shown}",
            "Name one: --index FOLDER/HASH-GPTDataset-train. description.txt beside it says what it is of.",
        )
    return orders[0]


def _described(prefix: Path) -> dict[str, Any]:
    path = prefix.with_name(f"{prefix.name}-description.txt")
    try:
        about = json.loads(read_safely(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError:
        about = None
    if not isinstance(about, dict):
        raise ConfigError(f"{path} is damaged: expected a JSON object")
    return about


def _loaded(prefix: Path, name: str, dimensions: int) -> np.ndarray:
    path = prefix.with_name(f"{prefix.name}-{name}.npy")
    try:
        expect_file(path)
        index: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError):
        raise ConfigError(f"{path} is damaged: it is no .npy of numbers") from None
    if index.ndim != dimensions or index.dtype.kind not in "iu":
        raise ConfigError(
            f"{path}: expected {dimensions} dimensions of whole numbers, found {index.dtype}{list(index.shape)}"
        )
    return index
