"""``dataaudit tokenize``: token files of a manifest's documents, each with the map of whose tokens it holds.

Workers encode parts of shards (:mod:`dataaudit.engine.tokens_encode`). The driver puts their tokens one after another,
in the manifest's order, without quarantined documents, so the bytes depend on no worker. A file is written beside its
place and moved there whole; its map comes last, and without its map it is none of ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

import numpy as np
import pyarrow as pa

from dataaudit.base import text as t
from dataaudit.base.errors import ConfigError
from dataaudit.base.files import replacing, sync_file, sync_folder
from dataaudit.engine.build import open_runner
from dataaudit.engine.job import BuildOptions
from dataaudit.engine.progress import Progress
from dataaudit.engine.tokens_encode import (
    Encode,
    EncodedPart,
    Source,
    encode_shards,
    lengths_of,
    open_source,
    special_token,
)
from dataaudit.manifest.canonical import digest_json
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.outfiles import check_folder
from dataaudit.runlog.parts import numbers
from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.corpus.token_files import (
    SCHEMA,
    index_path,
    map_metadata,
    map_path,
    read_index,
    write_index,
    write_map,
)
from dataaudit.scan.corpus.tokens import TokenBatch
from dataaudit.training.corpus import Corpus

Format = Literal["megatron", "flat"]
FORMATS: tuple[Format, ...] = get_args(Format)
DTYPES = ("uint16", "int32", "uint32")
_MEGATRON_SMALL = 65_500
"""Vocabulary below which Megatron's own programs write uint16."""
_BLOCK = 8 << 20
_VERSION = "1"
"""Of how documents become a file: raised when equal input gives other bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizeOptions:
    """What to write."""

    out: Path
    format: Format
    dtype: str | None = None
    end_token: str | None = None
    tokenizer: str | None = None
    """Where the manifest's tokenizer is, when the state folder has no copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """One token file."""

    path: Path
    split: str
    documents: int
    tokens: int
    """Those of ends too."""
    held_back: int
    """Documents of shards that were read which were left out, as the lists say."""
    empty: int
    """Documents without tokens, which are left out."""
    written: bool


@dataclass(frozen=True, slots=True)
class _Look:
    """Makes the table of documents of a batch."""

    end: int | None

    def __call__(self, batch: DocBatch, encoded: TokenBatch) -> pa.Table:
        return pa.table(
            {
                "row": pa.array(batch.rows),
                "source": batch.sources().cast(pa.string()),
                "length": pa.array(lengths_of(encoded, self.end)),
            }
        )


def tokenize(
    manifest: Manifest, corpus: Corpus, options: TokenizeOptions, running: BuildOptions, progress: Progress
) -> list[WrittenFile]:
    """Write a token file for each chosen split of an opened corpus."""
    check_folder("--out", options.out)
    with open_source(manifest, corpus, running, options.tokenizer, progress) as source:
        return _tokenized(source, options, running)


def _tokenized(source: Source, options: TokenizeOptions, running: BuildOptions) -> list[WrittenFile]:
    corpus = source.corpus
    end = special_token(source, options.end_token, "end")
    if end is None and options.format == "flat":
        raise ConfigError(
            "a flat file needs a token after each document, or nobody can tell where one ends",
            "Name one that the tokenizer has: --end-token TOKEN or ID.",
        )
    dtype = _dtype(options, max(source.tokenizer.vocab_size, (end or 0) + 1))
    encode = Encode(
        state=source.state, tokens=source.tokens, dtype=dtype, end=end, look=_Look(end), decides=f"tokenize {_VERSION}"
    )
    reasons = corpus.table["held"].to_pylist()
    by_split: dict[str, list[int]] = {}
    for ordinal, (split, why) in enumerate(zip(corpus.table["split"].to_pylist(), reasons, strict=True)):
        if not why:
            by_split.setdefault(split, []).append(ordinal)
    facts = {
        "manifest": source.manifest.id,
        "encoder": f"{source.tokenizer.name} sha256:{source.tokenizer.sha256}",
        "format": options.format,
        "dtype": dtype,
        "end": "" if end is None else str(end),
    }
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        with open_runner(running.cluster, source.state, unit_seconds=running.unit_seconds, notes=[]) as runner:
            written = []
            for split, ordinals in by_split.items():
                shards = encode_shards(source, ordinals, encode, runner, phase="tokenize")
                written.append(_write(source, split, shards, options, facts))
            return written
    except OSError as error:
        raise ConfigError(
            f"{options.out} cannot be written: {error.strerror or error}", "Name another folder."
        ) from None


def _dtype(options: TokenizeOptions, vocabulary: int) -> str:
    """Return the type of the tokens."""
    megatron = options.format == "megatron"
    small = vocabulary < _MEGATRON_SMALL if megatron else vocabulary <= 1 << 16
    chosen = options.dtype or ("uint16" if small else "int32" if megatron else "uint32")
    if chosen not in DTYPES or (megatron and chosen == "uint32"):
        raise ConfigError(f"--dtype {chosen}: {options.format} files have {', '.join(DTYPES[: 3 - megatron])}")
    if vocabulary - 1 > np.iinfo(chosen).max:
        raise ConfigError(
            f"{chosen} does not hold the tokens, which go up to {vocabulary - 1:,}",
            f"Leave --dtype out: {_dtype(replace(options, dtype=None), vocabulary)} is taken."
            if options.dtype
            else f"Name a smaller --end-token: {options.format} files have no larger type.",
        )
    return chosen


def _write(
    source: Source,
    split: str,
    shards: Iterator[tuple[int, list[EncodedPart]]],
    options: TokenizeOptions,
    facts: Mapping[str, str],
) -> WrittenFile:
    """Put the tokens of a split into a file, unless it is there already."""
    path, gathered = file_of(options.out, split), list(shards)
    keys = [[ordinal, [part.unit.key for part in parts]] for ordinal, parts in gathered]
    own = {**facts, "split": split, "content": digest_json([_VERSION, keys, source.corpus.digests["held"]])}
    if (known := _known(path, own)) is not None:
        return known
    map_path(path).unlink(missing_ok=True)
    places, dtype = {name: place for place, name in enumerate(source.corpus.sources)}, np.dtype(facts["dtype"])
    made: list[pa.Table] = []
    counts = dict.fromkeys(("tokens", "documents", "held_back", "empty"), 0)
    source.progress.begin("write", len(gathered), sum(part.bytes for _, parts in gathered for part in parts))
    with replacing(path) as file:
        for ordinal, parts in gathered:
            dropped = source.corpus.dropped(ordinal)
            made += [_append(file, part, ordinal, dropped, places, counts, dtype) for part in parts]
            source.progress.advance(sum(part.bytes for part in parts))
        if not counts["documents"]:
            raise ConfigError(f"nothing is left of the split {split}: every document is held back or empty")
        sync_file(file)
    if options.format == "megatron":
        with replacing(index_path(path)) as file:
            write_index(file, dtype, [_lengths(table) for table in made])
            sync_file(file)
    write_map(path, [pa.concat_tables(made)], own | {name: str(number) for name, number in counts.items()})
    sync_folder(path.parent)
    source.progress.end()
    return WrittenFile(path=path, split=split, written=True, **counts)


def file_of(folder: Path, split: str) -> Path:
    """Return the token file of a split."""
    if not split or Path(split).name != split:
        raise ConfigError(
            f"the split {t.clean(split, 100)} has a name that no file can have", "Name it anew: build again."
        )
    return folder / f"{split}.bin"


def _append(
    file: BinaryIO,
    part: EncodedPart,
    ordinal: int,
    dropped: np.ndarray,
    places: Mapping[str, int],
    counts: dict[str, int],
    dtype: np.dtype[Any],
) -> pa.Table:
    """Write the tokens of a part's documents that are kept; return their rows of the map, and count them."""
    table = part.documents()
    if table is None:
        return SCHEMA.empty_table()
    rows, lengths = table["row"].to_numpy() + part.base, table["length"].to_numpy()
    excluded = np.isin(rows, dropped)
    kept = ~excluded & (lengths > 0)
    counts["held_back"] += int(excluded.sum())
    counts["empty"] += int((~excluded & (lengths == 0)).sum())
    counts["documents"] += int(kept.sum())
    stops = np.cumsum(lengths)
    borders = np.flatnonzero(
        np.diff(np.concatenate([[False], kept | (lengths == 0) & ~excluded, [False]]).astype(np.int8))
    )
    with part.tokens.open("rb") as tokens:
        for first, last in borders.reshape(-1, 2).tolist():
            begin = int(stops[first] - lengths[first]) * dtype.itemsize
            tokens.seek(begin)
            _copy(tokens, file, int(stops[last - 1]) * dtype.itemsize - begin)
    own = lengths[kept]
    ends = counts["tokens"] + np.cumsum(own)
    counts["tokens"] += int(own.sum())
    named = table["source"].combine_chunks().dictionary_encode()
    named = named.combine_chunks() if isinstance(named, pa.ChunkedArray) else named
    codes = np.array([places.get(name, -1) for name in named.dictionary.to_pylist()], dtype=np.int32)
    columns = {
        "start": ends - own,
        "stop": ends,
        "shard": np.full(len(own), ordinal),
        "row": rows[kept],
        "source": codes[named.indices.to_numpy()][kept],
    }
    return pa.table([numbers(columns[item.name], item) for item in SCHEMA], schema=SCHEMA)


def _lengths(table: pa.Table) -> np.ndarray:
    lengths: np.ndarray = (table["stop"].to_numpy() - table["start"].to_numpy()).astype(np.int32)
    return lengths


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    """Copy bytes."""
    while size:
        block = source.read(min(size, _BLOCK))
        if not block:
            raise OSError("the encoded tokens in the state folder are cut")
        target.write(block)
        size -= len(block)


def _known(path: Path, own: Mapping[str, str]) -> WrittenFile | None:
    """Return what is there already of the same input; None when there is no such file."""
    if not map_path(path).exists():
        return None
    try:
        facts = map_metadata(path)
        if any(facts.get(name) != value for name, value in own.items()):
            return None
        counts = {name: int(facts[name]) for name in ("tokens", "documents", "held_back", "empty")}
        size = counts["tokens"] * np.dtype(facts["dtype"]).itemsize
        if path.stat().st_size != size or (own["format"] == "megatron" and not read_index(index_path(path), size)):
            return None
    except (ConfigError, OSError, KeyError, ValueError):
        return None
    return WrittenFile(path=path, split=own["split"], written=False, **counts)


def tokenized_json(written: Sequence[WrittenFile], manifest: Manifest) -> str:
    """Return what was written as JSON."""
    files = [asdict(written_file) | {"path": str(written_file.path)} for written_file in written]
    return t.as_json({"manifest": manifest.id, "files": files})


def tokenized_text(written: Sequence[WrittenFile], manifest: Manifest) -> str:
    """Return what was written, for a terminal."""
    lines = [f"{manifest.core.dataset.label}: {t.plural(len(written), 'token file')} of {manifest.id}"]
    for written_file in written:
        left_out = [
            f"{number:,} {why}"
            for number, why in ((written_file.held_back, "held back"), (written_file.empty, "empty"))
            if number
        ]
        lines.append(
            f"  {t.clean(str(written_file.path))}: {t.plural(written_file.documents, 'document')}, "
            f"{t.plural(written_file.tokens, 'token')}"
            + (f"; left out: {', '.join(left_out)}" if left_out else "")
            + ("" if written_file.written else "; there already")
        )
    return "\n".join(lines) + "\n"
