"""From rows of token files to stretches: whose tokens the labels of a row are.

An order names the tokens in each row of a batch, as *pieces* of documents. Most trainers have the next token of
the row as the label: its first token is no label, and is taken away. What is left are the labels, each a target.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa

from dataaudit.base.errors import ConfigError, ManifestMismatch
from dataaudit.base.statistics import Ints
from dataaudit.scan.corpus.token_files import map_path, read_map


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """Pieces of documents in the rows of a batch, in the order of the rows and of the tokens in them; int64[n] each."""

    row: Ints
    """Row of the batch, ascending."""
    document: Ints
    """Number of the document in :class:`MappedFiles`."""
    offset: Ints
    """Which token of the document the piece begins with."""
    length: Ints
    """Tokens; pieces without any count for nothing."""
    epoch: Ints
    """Pass over the data, from 0."""
    labels: bool = False
    """Whether these are the labels already, the first of a row too."""

    @classmethod
    def joined(cls, parts: Iterable[Ints], *, labels: bool = False) -> Pieces:
        """Return pieces of several files or ranks, each int64[5, n] row to epoch, in the order of the rows."""
        whole = np.concatenate([np.zeros((5, 0), np.int64), *parts], axis=1)
        row, document, offset, length, epoch = whole[:, np.argsort(whole[0], kind="stable")]
        return cls(row=row, document=document, offset=offset, length=length, epoch=epoch, labels=labels)


class Order(Protocol):
    """Which pieces the samples of a run are made of."""

    @property
    def samples(self) -> int | None:
        """How many there are; None: without end."""

    @property
    def shuffled(self) -> Literal["", "rows"]:
        """``rows``: any order of the rows of a pass was as likely as this; empty: not so, or not known."""

    def pieces(self, first: int, number: int) -> Pieces:
        """Return what some samples that follow each other are made of."""


class MappedFiles:
    """Token files of a manifest in the trainer's order, as one row of documents, and one of tokens, by their maps."""

    def __init__(self, paths: Sequence[Path], manifest: str) -> None:
        if not paths:
            raise ConfigError("no token file is named", "--file FILE.bin, whose map lies beside it.")
        self.paths = tuple(paths)
        tables, tokens = [], []
        for path in paths:
            table, about = read_map(path)
            if about["manifest"] != manifest:
                raise ManifestMismatch(
                    f"{path} holds tokens of the manifest {about['manifest']}, named is {manifest}",
                    "Name the manifest that the file was written of.",
                )
            total, size = int(about["tokens"]), np.dtype(about["dtype"]).itemsize
            if path.exists() and path.stat().st_size != total * size:
                raise ConfigError(
                    f"{path} has {path.stat().st_size:,} bytes, its map says {total * size:,}", "Write it anew."
                )
            starts, stops = table["start"].to_numpy(), table["stop"].to_numpy()
            if not len(starts) or starts[0] != 0 or stops[-1] != total or (starts[1:] != stops[:-1]).any():
                raise ConfigError(f"{map_path(path)} is damaged: its documents do not follow one another")
            tables.append(table)
            tokens.append(total)
        self.tokens = np.array(tokens, dtype=np.int64)
        """int64[files]"""
        self.bases = np.concatenate([[0], np.cumsum(self.tokens)]).astype(np.int64)
        """int64[files + 1] token at which each file begins, were they a single file."""
        counts = np.array(list(map(len, tables)), dtype=np.int64)
        self.firsts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        """int64[files + 1] number of the first document of each file."""
        base = np.repeat(self.bases[:-1], counts)
        whole = pa.concat_tables(tables)
        columns = {name: whole[name].to_numpy() for name in whole.column_names}
        self.begins: Ints = columns["start"] + base
        """int64[documents] first token of each."""
        self.ends: Ints = columns["stop"] + base
        self.shard, self.row, self.source = (columns[name] for name in ("shard", "row", "source"))

    def file(self, name: str) -> int:
        """Return the number of the file of a path that may be another machine's, by its name."""
        stem = Path(name).name.removesuffix(".bin")
        matches = [number for number, path in enumerate(self.paths) if path.name.removesuffix(".bin") == stem]
        exact = [number for number in matches if self.paths[number].with_suffix("") == Path(name)]
        if len(matches) != 1 and len(exact) != 1:
            raise ConfigError(
                f"the order reads {name}, which {'several' if matches else 'none'} of the files that are named is",
                "--file, once for each file of tokens; its name has to be that in the order.",
            )
        return (exact or matches)[0]

    def windows(self, starts: Ints, tokens: int, epoch: Ints | int = 0) -> Pieces:
        """Return the pieces of rows that are windows of the tokens."""
        first = np.searchsorted(self.ends, starts, "right")
        last = np.searchsorted(self.ends, starts + (tokens - 1), "right")
        row, document = expanded(first, last)
        begin = np.maximum(self.begins[document], starts[row])
        end = np.minimum(self.ends[document], starts[row] + tokens)
        passes = np.broadcast_to(np.asarray(epoch, dtype=np.int64), len(starts))
        return Pieces(
            row=row, document=document, offset=begin - self.begins[document], length=end - begin, epoch=passes[row]
        )


def expanded(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """Return every whole number of ranges, and which range each is of."""
    counts = last - first + 1
    of = np.repeat(np.arange(len(first)), counts)
    number = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts) + first[of]
    return of, number.astype(np.int64)


def stretches_of(pieces: Pieces, files: MappedFiles) -> dict[str, Ints]:
    """Return the stretches of a batch: the columns of the run log's table but step, micro-batch and loss."""
    there = pieces.length > 0
    row, document, offset, length, epoch = (
        values[there] for values in (pieces.row, pieces.document, pieces.offset, pieces.length, pieces.epoch)
    )
    first = np.ones(len(row), dtype=np.int64)
    first[1:] = row[1:] != row[:-1]
    if not pieces.labels:
        offset, length = offset + first, length - first
    start = np.cumsum(length) - length
    start -= np.repeat(start[first == 1], np.diff(np.append(np.flatnonzero(first), len(row))))
    kept = length > 0
    document = document[kept]
    return {
        "batch_row": row[kept],
        "start": start[kept],
        "shard": files.shard[document].astype(np.int64),
        "row": files.row[document].astype(np.int64),
        "offset": offset[kept],
        "source": files.source[document].astype(np.int64),
        "epoch": epoch[kept],
        "targets": length[kept],
    }
