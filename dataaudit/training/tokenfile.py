"""Flat files of tokens (``.bin``, as nanoGPT reads them) with a map of which document each token is from.

``write_tokens`` writes ``FILE``: tokens of the documents one after another, little-endian uint16 or uint32; and
``FILE.map.parquet``: a row a document, with the range of tokens and shard, row and source. The map's metadata says what
manifest it is of, so that a file and a manifest that do not belong together are refused.
"""

from __future__ import annotations

import os
import weakref
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dataaudit.base.errors import ConfigError, ManifestMismatch
from dataaudit.base.files import replacing
from dataaudit.manifest.locate import ROW_BITS
from dataaudit.runlog.parts import numbers
from dataaudit.scan.corpus.token_files import SCHEMA, map_path, read_map, write_map
from dataaudit.training.corpus import Corpus
from dataaudit.training.documents import Documents
from dataaudit.training.packing import Shift, check_shift, check_sizes, empty_tags, needed_stretches, window_tags

_WAITING_DOCUMENTS = 1_024


def write_tokens(documents: Documents, path: str | os.PathLike[str]) -> Path:
    """Write the documents that are not quarantined, in the manifest's order, and their map.

    Args:
        documents: What is written, with the end token of its encoder after each.
        path: The file; its map lies beside it. Both appear whole, the map last.

    Returns:
        The file.

    Raises:
        ConfigError: Nothing is left to write, or it cannot be written.
    """
    target = Path(path)
    kept = np.flatnonzero(~documents.held)
    if not len(kept):
        raise ConfigError("every document is held back: there is nothing to write")
    stops = np.cumsum(documents.lengths[kept])
    places = np.array(documents.places(kept.tolist()), dtype=np.int64)
    columns = {"start": stops - documents.lengths[kept], "stop": stops}
    columns |= {"shard": places[:, 0], "row": places[:, 1], "source": places[:, 2]}
    about = {
        "manifest": documents.corpus.id,
        "encoder": documents.encoder.name,
        "dtype": documents.encoder.dtype.name,
        "tokens": str(int(stops[-1])),
    }
    table = pa.table([numbers(columns[item.name], item) for item in SCHEMA], schema=SCHEMA)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        map_path(target).unlink(missing_ok=True)
        with replacing(target) as file:
            waiting: list[np.ndarray] = []
            for index in kept.tolist():
                waiting.append(documents.tokens(index))
                if len(waiting) >= _WAITING_DOCUMENTS:
                    file.write(_stored(waiting))
                    waiting = []
            file.write(_stored(waiting))
        write_map(target, [table], about)
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror or error}") from None
    return target


class TokenFile:
    """A map-style dataset of the rows of a flat file: ``input_ids``, ``labels`` and ``tags`` as NumPy arrays.

    A row with a document that is quarantined by now is replaced in place by a row without such a document.

    Args:
        path: The file, with its map beside it.
        corpus: What was opened; the file must be of its manifest.
        context: Labels of a row.
        seed: Decides the order.
        epochs: Passes over the rows.
        shuffled: Whether rows stand in random order.
        shift: As of :class:`dataaudit.training.packing.PackedDocuments`.
        stretches: As of :class:`dataaudit.training.packing.PackedDocuments`.

    Raises:
        ConfigError: The file or its map is absent or damaged, or too short for a row.
        ManifestMismatch: It is of another manifest.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        corpus: Corpus,
        context: int,
        *,
        seed: int = 0,
        epochs: int = 1,
        shuffled: bool = True,
        shift: Shift = "outer",
        stretches: int | None = None,
    ) -> None:
        check_sizes(context=context, epochs=epochs)
        if stretches is not None:
            check_sizes(stretches=stretches)
        self.path, self.context = Path(path), context
        self.shift = check_shift(shift)
        table, about = read_map(self.path)
        if about["manifest"] != corpus.id:
            raise ManifestMismatch(
                f"{self.path} holds tokens of the manifest {about['manifest']}, opened is {corpus.id}",
                "Write it anew with `write_tokens` or `dataaudit tokenize`, or open its manifest.",
            )
        self._dtype, self._total = np.dtype(about["dtype"]), int(about["tokens"])
        size, stored = self._total * self._dtype.itemsize, self.path.stat().st_size
        if stored != size:
            raise ConfigError(f"{self.path} has {stored:,} bytes, its map says {size:,}", "Write it anew.")
        _check_map(self.path, table, self._total, corpus)
        self._begins, self._ends = table["start"].to_numpy(), table["stop"].to_numpy()
        self._places = np.stack(
            [table[name].to_numpy().astype(np.int64) for name in ("shard", "row", "source")], axis=1
        )
        shards, of, documents = np.unique(self._places[:, 0], return_inverse=True, return_counts=True)
        tokens = np.bincount(of, self._ends - self._begins).astype(np.int64)
        corpus.add_encoder(about.get("encoder", ""), shards, documents, tokens)
        corpus.readers.append(weakref.ref(self))
        rows = (self._total - (shift == "outer")) // context
        if rows < 1:
            raise ConfigError(f"{self.path} holds {self._total:,} tokens, a row takes {context + (shift == 'outer'):,}")
        self.stretches = stretches or needed_stretches(self._ends, int(shift == "outer"), context, rows)
        self.order = self._ordered(rows, corpus, seed, epochs, shuffled=shuffled)
        """int64[rows · epochs] number of the row of the file at each index."""
        self._rows = rows

    def __len__(self) -> int:
        return len(self.order)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle no map: a worker opens its own."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_tokens", "_keys")}

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        """Return a row, as :class:`dataaudit.training.packing.PackedDocuments` does."""
        if not 0 <= index < len(self.order):
            raise IndexError(index)
        start = int(self.order[index]) * self.context
        outer = self.shift == "outer"
        tokens, tags = self.window(start, start + self.context + outer), self._tags(start, index // self._rows)
        tokens = tokens.astype(np.int64)
        return {"input_ids": tokens[: self.context], "labels": tokens[int(outer) :], "tags": tags}

    def window(self, start: int, stop: int) -> np.ndarray:
        """Return tokens of the file: [stop - start] of its dtype."""
        if not hasattr(self, "_tokens"):
            self._tokens = np.memmap(self.path, dtype=self._dtype.newbyteorder("<"), mode="r")
        tokens: np.ndarray = self._tokens[start:stop]
        return tokens

    def tokens_of(self, shard: int, row: int) -> np.ndarray | None:
        """Return the tokens of the document that a tag names; None where it is none of the file's.

        Args:
            shard: Its ordinal.
            row: Its record.
        """
        order, keys = self._keys
        at = int(np.searchsorted(keys, shard << ROW_BITS | row))
        if at == len(keys) or keys[at] != shard << ROW_BITS | row:
            return None
        return self.window(int(self._begins[order[at]]), int(self._ends[order[at]]))

    @cached_property
    def _keys(self) -> tuple[np.ndarray, np.ndarray]:
        """Documents of the file by shard and row: int64[documents] indices, int64[documents] keys."""
        keys = self._places[:, 0] << ROW_BITS | self._places[:, 1]
        order = np.argsort(keys, kind="stable")
        return order, keys[order]

    def tags(self, starts: np.ndarray) -> np.ndarray:
        """Return the tags of rows that begin anywhere, for loops that draw offsets at random, as nanoGPT's does.

        Args:
            starts: int64[B] token of the file that is the first *input* of each row.

        Returns:
            int64[B, stretches, 7]

        Raises:
            ConfigError: A row does not lie within the file.
        """
        outer, given = self.shift == "outer", np.atleast_1d(starts)
        if given.ndim != 1 or given.dtype.kind not in "iu":
            raise ConfigError(f"starts: expected int64[B], found {given.dtype}{list(given.shape)}")
        tags = empty_tags(len(given), self.stretches)
        for row, start in enumerate(given.tolist()):
            if not 0 <= start <= self._total - self.context - outer:
                raise ConfigError(f"a row from token {start:,} on leaves the file, which holds {self._total:,}")
            tags[row] = self._tags(start, 0)
        return tags

    def _tags(self, row: int, epoch: int) -> np.ndarray:
        """Return the tags of a row by the token that is its first input."""
        outer = self.shift == "outer"
        start, stop = row + outer, row + outer + self.context
        first, last = np.searchsorted(self._ends, [start, stop - 1], "right")
        met = slice(int(first), int(last) + 1)
        return window_tags(
            self._begins[met].tolist(),
            self._ends[met].tolist(),
            [(*place, epoch) for place in self._places[met].tolist()],
            start,
            stop,
            stretches=self.stretches,
            first_target=None if outer else row + 1,
        )

    def _ordered(self, rows: int, corpus: Corpus, seed: int, epochs: int, *, shuffled: bool) -> np.ndarray:
        counts = np.concatenate([[0], np.cumsum(self._left_out(corpus))])
        borders = np.arange(rows) * self.context
        stops = borders + self.context + (self.shift == "outer") - 1
        first, last = (np.searchsorted(self._ends, at, "right") for at in (borders, stops))
        bad = counts[np.minimum(last + 1, len(counts) - 1)] > counts[first]
        kept = np.flatnonzero(~bad)
        if not len(kept):
            raise ConfigError(
                "every row holds a document that is held back", "Write the file anew: it then leaves them out."
            )
        orders = []
        for epoch in range(epochs):
            random = np.random.Generator(np.random.PCG64([seed, epoch]))
            order = random.permutation(rows) if shuffled else np.arange(rows)
            draw = np.random.Generator(np.random.PCG64([seed, epoch, 1])).random(rows)
            orders.append(np.where(bad[order], kept[(draw * len(kept)).astype(np.int64)], order))
        return np.concatenate(orders).astype(np.int64)

    def _left_out(self, corpus: Corpus) -> np.ndarray:
        """Return which documents of the file are quarantined now: bool[documents]."""
        shards, rows = self._places[:, 0], self._places[:, 1]
        excluded = np.array(list(map(bool, corpus.table["held"].to_pylist())), dtype=bool)
        left_out: np.ndarray = excluded[shards].copy()
        for shard in np.unique(shards[~left_out]).tolist():
            own = shards == shard
            left_out[own] = np.isin(rows[own], corpus.dropped(shard))
        return left_out


def _check_map(path: Path, table: pa.Table, total: int, corpus: Corpus) -> None:
    """Compare the map of a file with its length and the corpus."""
    start, stop, shard, row, source = (table[name].to_numpy() for name in SCHEMA.names)
    follow = len(start) and start[0] == 0 and stop[-1] == total and (stop >= start).all()
    rows = corpus.table["rows"].to_numpy()
    known = len(start) and ((shard >= 0) & (shard < len(rows))).all()
    if (
        not (follow and (start[1:] == stop[:-1]).all() and known)
        or not ((row >= 0) & (row < rows[shard])).all()
        or not ((source >= -1) & (source < len(corpus.sources))).all()
    ):
        raise ConfigError(
            f"{map_path(path)} is damaged: its documents do not follow one another, or are not in the manifest",
            "Write the file anew with `write_tokens`.",
        )


def _stored(pieces: list[np.ndarray]) -> bytes:
    return b"".join(np.ascontiguousarray(piece, dtype=piece.dtype.newbyteorder("<")).tobytes() for piece in pieces)
