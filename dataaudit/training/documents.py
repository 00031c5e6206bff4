"""The documents of a split as tokens, by index: encoded once, kept as one Arrow file for each shard, memory-mapped.

Every format looks the same afterwards, rows are numbered by the reader of the audit, lengths are known before the first
step, and the workers of a loader share the pages. A file's name is the digest of what decides it: the shard's bytes,
where text and source are, the encoder.

An index counts the documents that the audit counted, shard by shard in the manifest's order. Bad records were never
documents. Quarantined documents keep their index; whoever orders documents replaces them by others.
"""

from __future__ import annotations

import json
import os
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dataaudit.base.errors import ConfigError, ManifestMismatch
from dataaudit.base.files import replacing
from dataaudit.manifest.canonical import digest_json
from dataaudit.scan.corpus.fields import FieldRule
from dataaudit.scan.corpus.loss import LossLog, ShardUnreadable
from dataaudit.scan.corpus.readers import READER_VERSION, PartStats, ReadRequest, plan_parts, read_part
from dataaudit.training.checks import digest_problem, sha256_of
from dataaudit.training.corpus import Corpus

_BATCH_BYTES = 16 << 20
_PART_BYTES = 1 << 40
_FORMAT = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """From text to tokens, with a name that stands for all that decides them."""

    encode: Callable[[str], Sequence[int] | np.ndarray]
    """Tokens of a text, without special ones: integers from 0, less than ``vocab``."""
    name: str
    """Names the encoder and its files' contents, for example a tokenizer's name and the sha256 of its file."""
    vocab: int
    end: int | None = None
    """Token that is put after each document; none by default."""

    @classmethod
    def of(cls, tokenizer: Any) -> Encoder:
        """Return that of a fast tokenizer of transformers, with its end token; the name is a digest of its file.

        Raises:
            ConfigError: The tokenizer is no fast one.
        """
        own = getattr(tokenizer, "backend_tokenizer", None)
        if own is None:
            raise ConfigError(
                f"{type(tokenizer).__name__} has no file that a name could stand for",
                "Encoder(encode=..., name=..., vocab=...) takes any tokenizer, with a name of your own.",
            )
        file = json.loads(own.to_str())
        decides = {name: item for name, item in file.items() if name not in {"truncation", "padding"}}
        name = digest_json(decides)
        encode = partial(tokenizer.encode, add_special_tokens=False)
        return cls(encode=encode, name=name, vocab=len(tokenizer), end=tokenizer.eos_token_id)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type that holds its tokens: uint16 or uint32."""
        return np.dtype(np.uint16 if self.vocab <= 1 << 16 else np.uint32)


def byte_encoder(end: int | None = None) -> Encoder:
    """Return the encoder whose tokens are the bytes of UTF-8.

    Args:
        end: Token after each document, 0 to 256.
    """
    return Encoder(encode=_bytes, name="utf-8 bytes", vocab=256 if end is None else max(256, end + 1), end=end)


def _bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-8"), dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class _Shard:
    """A shard's documents, memory-mapped."""

    ordinal: int
    rows: np.ndarray
    """int64[n]"""
    sources: np.ndarray
    """int32[n] index in the corpus's sources."""
    offsets: np.ndarray
    """int64[n + 1]"""
    values: np.ndarray
    """[offsets[n]] tokens."""


class Documents:
    """Documents of some splits, as tokens.

    Args:
        corpus: What was opened.
        splits: Names of splits.
        encoder: From text to tokens.
        cache: Folder for the encoded shards; the corpus's own by default.

    Raises:
        ConfigError: There is no such split, or the encoder gives what is no token.
        ManifestMismatch: A shard does not hold the documents that were audited.
    """

    def __init__(
        self,
        corpus: Corpus,
        splits: str | Sequence[str],
        encoder: Encoder,
        *,
        cache: str | os.PathLike[str] | None = None,
    ) -> None:
        names = (splits,) if isinstance(splits, str) else tuple(splits)
        table = corpus.table
        known = table["split"].to_pylist()
        for name in names:
            if name not in corpus.splits:
                raise ConfigError(
                    f"the split `{name}` is not among those that were opened: {', '.join(corpus.splits)}",
                    "For a loader of its own, as of held-out data, open it apart:"
                    f" open_manifest(..., splits=[{name!r}])."
                    if name in known
                    else "Name one of these.",
                )
        self.corpus = corpus
        self.encoder = encoder
        self.cache = Path(cache) if cache is not None else corpus.file.parent / "tokens"
        self.shards = np.array([index for index, split in enumerate(known) if split in names], dtype=np.int64)
        """int64[shards] ordinals of the shards of these splits, ascending."""
        counts = table["documents"].to_numpy()[self.shards]
        self.starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        """int64[shards + 1] index of the first document of each."""
        self._starts: list[int] = self.starts.tolist()
        self._excluded = np.array(list(map(bool, table["held"].to_pylist())), dtype=bool)[self.shards]
        kept = np.flatnonzero(~self._excluded)
        prepared = [self._prepare(shard) for shard in self.shards[kept].tolist()]
        self._paths = {place: path for place, (path, _) in zip(kept.tolist(), prepared, strict=True)}
        tokens = np.array([number for _, number in prepared], dtype=np.int64)
        corpus.add_encoder(encoder.name, self.shards[kept], counts[kept], tokens)
        corpus.readers.append(weakref.ref(self))

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getstate__(self) -> dict[str, Any]:
        """Pickle no maps: a worker opens its own."""
        return {name: value for name, value in self.__dict__.items() if name != "_maps"}

    @cached_property
    def _maps(self) -> dict[int, _Shard]:
        return {}

    @cached_property
    def held(self) -> np.ndarray:
        """bool[n] documents that are left out: of excluded shards, or on the drop list."""
        left_out = np.repeat(self._excluded, np.diff(self.starts))
        for at in np.flatnonzero(~self._excluded).tolist():
            dropped = self.corpus.dropped(int(self.shards[at]))
            left_out[self.starts[at] : self.starts[at + 1]] = np.isin(self._map(at).rows, dropped)
        return left_out

    @cached_property
    def lengths(self) -> np.ndarray:
        """int64[n] tokens of each document, the end token with them; 0 for those of excluded shards."""
        lengths = np.zeros(len(self), dtype=np.int64)
        for at in np.flatnonzero(~self._excluded).tolist():
            sizes = np.diff(self._map(at).offsets) + (self.encoder.end is not None)
            lengths[self.starts[at] : self.starts[at + 1]] = sizes
        return lengths

    def tokens(self, index: int) -> np.ndarray:
        """Return the tokens of a document, with the end token: [lengths[index]] of the encoder's dtype.

        Raises:
            LookupError: Its shard is excluded.
        """
        shard, inside = self._locate(index)
        tokens = shard.values[shard.offsets[inside] : shard.offsets[inside + 1]]
        return tokens if self.encoder.end is None else np.append(tokens, tokens.dtype.type(self.encoder.end))

    def tokens_of(self, shard: int, row: int) -> np.ndarray | None:
        """Return the tokens of the document that a tag names, as :meth:`tokens` does; None where it is none of these.

        Args:
            shard: Its ordinal.
            row: Its record.
        """
        at = int(np.searchsorted(self.shards, shard))
        if at == len(self.shards) or self.shards[at] != shard or at not in self._paths:
            return None
        rows = self._map(at).rows
        inside = int(np.searchsorted(rows, row))
        return self.tokens(self._starts[at] + inside) if inside < len(rows) and rows[inside] == row else None

    def token_blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield of each shard that is not excluded int64[documents + 1] bounds, and the tokens, without end tokens."""
        for at in sorted(self._paths):
            shard = self._map(at)
            yield shard.offsets, shard.values

    def places(self, indices: Sequence[int]) -> list[tuple[int, int, int]]:
        """Return shard, row and source of documents whose shards are not excluded."""
        located = map(self._locate, indices)
        return [(shard.ordinal, int(shard.rows[inside]), int(shard.sources[inside])) for shard, inside in located]

    def _locate(self, index: int) -> tuple[_Shard, int]:
        """Return the shard of a document, and its index within it."""
        at = bisect_right(self._starts, index) - 1
        return self._map(at), index - self._starts[at]

    def _map(self, at: int) -> _Shard:
        """Open the encoded documents of a shard."""
        if at not in self._maps:
            if at not in self._paths:
                raise LookupError(f"shard {int(self.shards[at])} is held back")
            batch = pa.ipc.open_file(pa.memory_map(os.fspath(self._paths[at]))).get_batch(0)
            codes = {name: code for code, name in enumerate(self.corpus.sources)}
            to_code = [codes.get(name, -1) for name in batch["source"].dictionary.to_pylist()]
            tokens = batch["tokens"]
            self._maps[at] = _Shard(
                ordinal=int(self.shards[at]),
                rows=batch["row"].to_numpy(),
                sources=np.array(to_code, dtype=np.int32)[batch["source"].indices.to_numpy()],
                offsets=tokens.offsets.to_numpy(),
                values=tokens.values.to_numpy(),
            )
        return self._maps[at]

    def _prepare(self, ordinal: int) -> tuple[Path, int]:
        """Return the file with a shard's encoded documents, and their tokens; encode them where that is not done."""
        row = self.corpus.table.slice(ordinal, 1).to_pylist()[0]
        fields = self.corpus.fields(ordinal)
        decides = {
            "format": [_FORMAT, READER_VERSION],
            "bytes": row["sha256"] or row["rows_digest"],
            "fields": asdict(fields),
            "encoder": [self.encoder.name, self.encoder.vocab],
        }
        path = self.cache / f"{digest_json(decides).removeprefix('sha256:')}.arrow"
        try:
            if not path.exists():
                batch = self._encoded(row, fields)
                path.parent.mkdir(parents=True, exist_ok=True)
                with replacing(path) as file, pa.ipc.new_file(file, batch.schema) as stream:
                    stream.write_batch(batch)
            with pa.memory_map(os.fspath(path)) as file, pa.ipc.open_file(file) as stream:
                batch = stream.get_batch(0)
                documents, tokens = batch.num_rows, len(batch["tokens"].values)
        except (OSError, pa.ArrowException) as error:
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise ConfigError(
                f"the encoded documents {path} cannot be read or written: {reason}", "Name another folder: cache=..."
            ) from None
        if documents != row["documents"]:
            raise ManifestMismatch(
                f"{row['split']}/{row['uri']}: {documents:,} documents are read, {row['documents']:,} were audited",
                "The file is not the one that was audited: build again, or restore it.",
            )
        return path, tokens

    def _encoded(self, row: dict[str, Any], fields: FieldRule) -> pa.RecordBatch:
        rows: list[np.ndarray] = []
        sources: list[pa.DictionaryArray] = []
        lengths: list[int] = []
        pieces: list[np.ndarray] = []
        path = self.corpus.path(row["shard"])
        if problem := digest_problem(sha256_of(path), row["sha256"]):  # else the cache kept these as the audited ones
            raise ManifestMismatch(
                f"{row['split']}/{row['uri']}: {problem}, as it is encoded", "Restore the file, or build again."
            )
        for numbers, names, texts in read_texts(row, path, fields):
            rows.append(numbers)
            sources.append(names)
            for text in texts:
                piece = np.asarray(self.encoder.encode(text))
                pieces.append(self._checked(piece))
                lengths.append(len(piece))
        values = np.concatenate([np.zeros(0, self.encoder.dtype), *pieces])
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        number = np.concatenate([np.zeros(0, np.int64), *rows]).astype(np.int64)
        named = pa.chunked_array([source.cast(pa.string()) for source in sources], pa.string()).combine_chunks()
        return pa.record_batch(
            {
                "row": _arrow(number),
                "source": named.dictionary_encode(),
                "tokens": pa.LargeListArray.from_arrays(_arrow(offsets), _arrow(values)),
            }
        )

    def _checked(self, piece: np.ndarray) -> np.ndarray:
        if piece.ndim != 1 or (
            len(piece) and (piece.dtype.kind not in "ui" or piece.min() < 0 or piece.max() >= self.encoder.vocab)
        ):
            raise ConfigError(
                f"the encoder `{self.encoder.name}` gave what are no tokens: expected integers from 0 to"
                f" {self.encoder.vocab - 1}, one after another"
            )
        return piece.astype(self.encoder.dtype)


def _arrow(values: np.ndarray) -> pa.Array:
    """Return an array that shares the memory of NumPy's."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def read_texts(
    row: dict[str, Any], path: str, fields: FieldRule
) -> Iterator[tuple[np.ndarray, pa.DictionaryArray, list[str]]]:
    """Read the documents of a shard as the audit did."""
    base = 0
    try:
        for part in plan_parts(path, row["format"], row["compression"], row["size"], _PART_BYTES, fields.text_document):
            stats = PartStats()
            request = ReadRequest(
                path=path,
                format=row["format"],
                compression=row["compression"],
                part=part,
                fields=fields,
                batch_bytes=_BATCH_BYTES,
            )
            for batch in read_part(request, LossLog(), stats):
                yield batch.rows + base, batch.sources(), batch.texts.to_pylist()
            base += stats.records
    except ShardUnreadable as error:
        if row["status"] != "partial":
            name = f"{row['split']}/{row['uri']}"
            raise ManifestMismatch(
                f"{name}: {error}; it was read when it was audited", "Restore the file, or build again."
            ) from None
    except OSError as error:
        raise ConfigError(f"{row['split']}/{row['uri']} cannot be read: {error.strerror or error}") from None
