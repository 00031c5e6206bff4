"""Documents as digests of their tokens, of token files and of a manifest, and which of them are equal.

Begin and end tokens are left out on either side, so that it does not matter who wrote them and how.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.errors import ConfigError, ManifestMismatch
from dataaudit.base.process import give_memory_back
from dataaudit.engine.runner import Outcome, Runner, Unit
from dataaudit.engine.scan import as_outcome, hash_file
from dataaudit.engine.store import PartialStore
from dataaudit.engine.tokens_encode import DIGEST, EncodedPart, Source, digest_array, run_all
from dataaudit.manifest.canonical import digest_json
from dataaudit.manifest.token_proof import ProvenFile
from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.corpus.loss import Reason, ShardUnreadable
from dataaudit.scan.corpus.texts import text_digests
from dataaudit.scan.corpus.token_files import TokenFileHead, flat_borders, index_path, inner, token_digest
from dataaudit.scan.corpus.tokens import TokenBatch, TokenizerFile
from dataaudit.scan.corpus.tokens.libraries import load_decoder
from dataaudit.training.corpus import Corpus

READ_TOKENS, WANTED_TOKENS = "read-tokens", "wanted-tokens"
_RANGE_BYTES = 64 << 20
HEAD = 8
"""Tokens by which a document is looked up whose beginning may be in a file."""
VERSION = "2"


@dataclass(frozen=True, slots=True)
class Ends:
    """How documents are separated from each other, and from what stands around them."""

    end: int | None
    begin: int | None
    flat: bool
    """Whether an end token ends a document wherever it stands."""

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that may stand behind a document."""
        return frozenset(item for item in (self.end,) if item is not None)

    @property
    def begins(self) -> frozenset[int]:
        """Tokens that may stand before a document."""
        return frozenset(item for item in (self.begin, self.end) if item is not None)

    def own(self, tokens: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the tokens of a document without begin and end; of a flat file's those between end tokens."""
        pieces = [tokens]
        if self.flat and self.end is not None and (found := np.flatnonzero(tokens == self.end)).size:
            pieces = np.split(tokens, found + 1)
        for piece in pieces:
            start, stop = inner(piece, self.ends, self.begins)
            yield piece[start:stop]


@dataclass(frozen=True, slots=True)
class Digests:
    """Makes the table of documents of a batch: a row for each run of tokens that is looked for."""

    ends: Ends

    def __call__(self, batch: DocBatch, encoded: TokenBatch) -> pa.Table:
        """Return row, length and digests of tokens and text, a row for each run of tokens."""
        texts = text_digests(batch.texts)
        rows, lengths, tokens = [], [], []
        for place, (start, stop) in enumerate(pairwise(encoded.offsets.tolist())):
            for own in self.ends.own(encoded.ids[start:stop]):
                rows.append(place)
                lengths.append(len(own))
                tokens.append(token_digest(own))
        places = np.array(rows, dtype=np.int64)
        return pa.table(
            {
                "row": pa.array(batch.rows[places]),
                "length": pa.array(lengths, pa.int64()),
                "tokens": pa.array(tokens, DIGEST),
                "text": digest_array(texts[places]),
            }
        )


@dataclass(frozen=True, slots=True)
class Beginnings:
    """Makes the table of those documents of a batch whose beginning is wanted: its length and digest."""

    ends: Ends
    state: Path
    key: str

    def __call__(self, batch: DocBatch, encoded: TokenBatch) -> pa.Table:
        """Return row, piece of the row, length and digest of each beginning that is wanted."""
        wanted = _wanted(self.state, self.key)
        made: list[tuple[int, int, int, bytes]] = []
        for place, (start, stop) in enumerate(pairwise(encoded.offsets.tolist())):
            pieces = (own for own in self.ends.own(encoded.ids[start:stop]) if len(own))
            for piece, own in enumerate(pieces):
                for head in {own[:size].tobytes() for size in range(1, min(HEAD, len(own)) + 1)}:
                    shorter = (length for length in wanted.get(head, ()) if length < len(own))
                    made += [(int(batch.rows[place]), piece, number, token_digest(own[:number])) for number in shorter]
        columns = list(zip(*made, strict=True)) or [(), (), (), ()]
        types = (pa.int64(), pa.int64(), pa.int64(), DIGEST)
        names = ("row", "piece", "length", "tokens")
        return pa.table({name: pa.array(own, kind) for name, own, kind in zip(names, columns, types, strict=True)})


@lru_cache(maxsize=1)
def _wanted(state: Path, key: str) -> dict[bytes, list[int]]:
    """Return the lengths of the beginnings that are wanted, by their first tokens."""
    entry = PartialStore(state).read(WANTED_TOKENS, key)
    if entry is None:
        raise ShardUnreadable(Reason.INTERNAL, "what is wanted is not there")
    table = entry.tables["heads"]
    by_head: dict[bytes, list[int]] = defaultdict(list)
    for head, length in zip(table["head"].to_pylist(), table["length"].to_pylist(), strict=True):
        by_head[head].append(length)
    return by_head


@dataclass(frozen=True, slots=True, kw_only=True)
class FileUnit(Unit):
    """Some documents of a token file."""

    path: Path
    dtype: str
    start: int = 0
    stop: int = 0
    """Range of a flat file in which documents begin."""
    starts: np.ndarray | None = None
    """int64[n + 1] borders, of an index."""
    only: np.ndarray | None = None
    """int64[k] of which of them the text is wanted."""


@dataclass(frozen=True, slots=True)
class ReadTokens:
    """Digests the documents of token files; of those that are asked for by ``only``, their decoded text."""

    state: Path
    ends: Ends
    tokenizer: TokenizerFile

    @as_outcome
    def __call__(self, unit: FileUnit) -> Outcome:
        """Read some documents and store what they are."""
        give_memory_back()
        tokens = np.memmap(unit.path, dtype=unit.dtype, mode="r")
        borders = unit.starts
        if borders is None:
            assert self.ends.end is not None, "a flat file has end tokens"
            borders = flat_borders(tokens, unit.start, unit.stop, self.ends.end)
        decode = None if unit.only is None else load_decoder(self.tokenizer)
        chosen = range(len(borders) - 1) if unit.only is None else unit.only.tolist()
        lengths, digests, known, ended = [], [], [], []
        for at in chosen:
            document = tokens[borders[at] : borders[at + 1]]
            own = own_tokens(document, self.ends)
            ended.append(bool(len(document)) and int(document[-1]) in self.ends.ends)
            lengths.append(len(own))
            known.append(not len(own) or 0 <= int(own.min()) <= int(own.max()) < self.tokenizer.vocab_size)
            if decode is None:
                digests.append(token_digest(own))
            else:
                text = decode(own.tolist()) if known[-1] else ""
                digests.append(text_digests(pa.array([text], pa.large_string())).tobytes())
        table = pa.table(
            {
                "start": pa.array(borders[:-1] if unit.only is None else borders[unit.only]),
                "length": pa.array(lengths, pa.int64()),
                "digest": pa.array(digests, DIGEST),
                "known": pa.array(known, pa.bool_()),
                "ended": pa.array(ended, pa.bool_()),
            }
        )
        PartialStore(self.state).write(READ_TOKENS, unit.key, {}, {"documents": table})
        return Outcome()


def own_tokens(tokens: np.ndarray, ends: Ends) -> np.ndarray:
    """Return the tokens of a document without those that begin and end it."""
    start, stop = inner(tokens, ends.ends, ends.begins)
    return tokens[start:stop]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Documents that have tokens, of the manifest or of the files, in order."""

    digests: np.ndarray
    """uint8[n, 16] of their tokens."""
    lengths: np.ndarray
    empty: int
    where: np.ndarray
    """int64[n] shard, or place of the file."""
    row: np.ndarray
    """int64[n] row of the shard, or number of the document in the file."""
    extra: np.ndarray
    """uint8[n, 16] digests of texts; of files int64[n] first tokens."""
    flags: np.ndarray
    """bool[n] quarantined; of files: all tokens are the tokenizer's."""


def file_side(
    source: Source, heads: Sequence[TokenFileHead], ends: Ends, runner: Runner
) -> tuple[Side, list[ProvenFile]]:
    """Read the files, and digest them and their documents."""
    digests = {path: hash_file(str(path)) for path in {item.path for item in heads}}
    units = [_file_units(head, digests[head.path], ends) for head in heads]
    read = ReadTokens(source.state, ends, source.tokenizer)
    every = [unit for own in units for unit in own]
    run_all(source, runner, read, every, kind=READ_TOKENS, phase="read")
    store, tables, numbers, proven = PartialStore(source.state), [], [], []
    for place, (head, own) in enumerate(zip(heads, units, strict=True)):
        documents = stored_documents(store, own)
        tables.append(documents.append_column("file", pa.array(np.full(len(documents), place))))
        numbers.append(np.arange(len(documents)))
        index = index_path(head.path)
        proven.append(
            ProvenFile(
                name=head.path.name,
                size=head.tokens * head.dtype.itemsize,
                sha256=digests[head.path],
                index_sha256=None if head.starts is None else hash_file(str(index)),
                tokens=head.tokens,
                documents=len(documents),
                ended=None if ends.end is None else pc.sum(documents["ended"], min_count=0).as_py(),
            )
        )
    table = pa.concat_tables(tables)
    lengths = table["length"].to_numpy()
    there = lengths > 0
    return (
        Side(
            digests=digests_of(table["digest"])[there],
            lengths=lengths[there],
            empty=int((~there).sum()),
            where=table["file"].to_numpy()[there],
            row=np.concatenate(numbers)[there],
            extra=table["start"].to_numpy()[there],
            flags=table["known"].to_numpy(zero_copy_only=False)[there],
        ),
        proven,
    )


def _file_units(head: TokenFileHead, sha256: str, ends: Ends) -> list[FileUnit]:
    """Cut a file into ranges of some megabytes."""
    dtype, step = head.dtype.str, _RANGE_BYTES // head.dtype.itemsize
    decides = [VERSION, sha256, dtype, ends.end, ends.begin]
    units = []
    if head.starts is None:
        for start in range(0, head.tokens, step):
            stop = min(start + step, head.tokens)
            key = digest_json([*decides, start, stop]).removeprefix("sha256:")
            size = (stop - start) * head.dtype.itemsize
            units.append(FileUnit(path=head.path, dtype=dtype, key=key, size=size, start=start, stop=stop))
        return units
    cuts = np.unique(np.searchsorted(head.starts, np.arange(0, head.tokens + step, step)))
    for first, last in pairwise(np.unique([0, *cuts.clip(0, len(head.starts) - 1), len(head.starts) - 1]).tolist()):
        borders = np.ascontiguousarray(head.starts[first : last + 1])
        key = digest_json([*decides, digest_of_numbers(borders)]).removeprefix("sha256:")
        size = int(borders[-1] - borders[0]) * head.dtype.itemsize
        units.append(FileUnit(path=head.path, dtype=dtype, key=key, size=size, starts=borders))
    return units


def digest_of_numbers(values: np.ndarray) -> str:
    """Return what stands for some whole numbers in a key."""
    return token_digest(np.ascontiguousarray(values, dtype="<i8").view("<u4")).hex()


def stored_documents(store: PartialStore, units: Sequence[FileUnit]) -> pa.Table:
    """Return what was stored of the documents of some units."""
    tables = []
    for unit in units:
        entry = store.read(READ_TOKENS, unit.key)
        if entry is None:
            store.remove(READ_TOKENS, unit.key)
            raise ManifestMismatch(f"what was read of {unit.path} is damaged in {store.root}", "Run the command again.")
        tables.append(entry.tables["documents"])
    return pa.concat_tables(tables)


def digests_of(column: pa.ChunkedArray) -> np.ndarray:
    """Return digests as uint8[n, 16]."""
    if not len(column):
        return np.zeros((0, 16), dtype=np.uint8)
    whole = column.combine_chunks()
    whole = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
    raw = np.frombuffer(whole.buffers()[1], dtype=np.uint8)
    return raw[16 * whole.offset : 16 * (whole.offset + len(whole))].reshape(-1, 16)


def corpus_side(corpus: Corpus, parts: dict[int, list[EncodedPart]]) -> Side:
    """Return the audited documents, with those that are quarantined."""
    excluded = [bool(why) for why in corpus.table["held"].to_pylist()]
    columns: dict[str, list[np.ndarray]] = defaultdict(list)
    empty = 0
    for ordinal, own in parts.items():
        dropped = corpus.dropped(ordinal)
        for part in own:
            table = part.documents()
            if table is None:
                continue
            there = table["length"].to_numpy() > 0
            rows = table["row"].to_numpy() + part.base
            empty += len(np.setdiff1d(rows, rows[there]))
            columns["row"].append(rows[there])
            columns["shard"].append(np.full(int(there.sum()), ordinal))
            columns["length"].append(table["length"].to_numpy()[there])
            columns["tokens"].append(digests_of(table["tokens"])[there])
            columns["text"].append(digests_of(table["text"])[there])
            columns["excluded"].append(np.isin(rows[there], dropped) | excluded[ordinal])
    joined = {name: np.concatenate(values) for name, values in columns.items()}
    if not joined or not len(joined["row"]):
        raise ConfigError("the manifest has no document with tokens in these splits", "Choose other splits: --split.")
    return Side(
        digests=joined["tokens"],
        lengths=joined["length"],
        empty=empty,
        where=joined["shard"],
        row=joined["row"],
        extra=joined["text"],
        flags=joined["excluded"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """What belongs together; every document is in one of these."""

    partner: np.ndarray
    """int64[files' documents] place of the equal document of the corpus; -1: it has none left."""
    excluded: np.ndarray
    """bool[files' documents] the partner is quarantined."""
    surplus: np.ndarray
    """bool[files' documents] the corpus has such documents, and all of them have partners already."""


def match(corpus: np.ndarray, excluded: np.ndarray, files: np.ndarray) -> Matched:
    """Pair equal documents one to one.

    Where a document stands more often on one side, its copies are paired by their place among the documents of which
    that cannot be said: the copy that is missing, or too many, is then the one that was taken out or put in.
    """
    size = len(corpus)
    words = np.ascontiguousarray(np.concatenate([corpus, files])).view("<u8").reshape(-1, 2)
    order = np.lexsort((words[:, 1], words[:, 0]))
    ranked = words[order]
    new = np.concatenate([[True], (ranked[1:] != ranked[:-1]).any(axis=1)]) if len(order) else np.zeros(0, bool)
    group = np.cumsum(new) - 1
    of_file = order >= size
    is_excluded = np.zeros(len(order), dtype=bool)
    is_excluded[~of_file] = excluded[order[~of_file]]
    groups = int(group[-1]) + 1 if len(group) else 0
    in_files = np.bincount(group[of_file], minlength=groups)
    expected = np.bincount(group[~of_file & ~is_excluded], minlength=groups)
    partner = np.full(len(files), -1, dtype=np.int64)
    equal = in_files == expected
    partner[order[equal[group] & of_file] - size] = order[equal[group] & ~of_file & ~is_excluded]
    if (np.diff(partner[partner >= 0]) < 0).any():  # copies may be what was moved
        equal &= expected < 2
        partner[order[~equal[group] & of_file] - size] = -1
    matched = Matched(partner=partner, excluded=np.zeros(len(files), bool), surplus=np.zeros(len(files), bool))
    there = np.bincount(group[~of_file], minlength=groups)
    unequal = ~equal & (in_files > 0) & (there > 0)
    _pair_unequal(matched, order, group, unequal, excluded, size)
    return matched


def _pair_unequal(
    matched: Matched, order: np.ndarray, group: np.ndarray, unequal: np.ndarray, excluded: np.ndarray, size: int
) -> None:
    """Pair what stands more often on one side than on the other."""
    known = np.flatnonzero(matched.partner >= 0)
    anchors = known[in_order(matched.partner[known])]
    files, places = anchors.tolist(), matched.partner[anchors].tolist()
    chosen = unequal[group]
    copies: dict[int, tuple[list[int], list[int], list[int]]] = defaultdict(lambda: ([], [], []))
    for value, at in zip(group[chosen].tolist(), order[chosen].tolist(), strict=True):
        kind = 0 if at >= size else 2 if excluded[at] else 1
        copies[value][kind].append(at - size if at >= size else at)
    for own, wanted, listed in copies.values():
        left = []
        for document in own:
            after = bisect_left(files, document)
            low, high = places[after - 1] if after else -1, places[after] if after < len(places) else size
            at = bisect_right(wanted, low)
            if at < len(wanted) and wanted[at] < high:
                matched.partner[document] = wanted.pop(at)
            else:
                left.append(document)
        for document in left:
            if wanted or listed:
                matched.excluded[document] = not wanted
                matched.partner[document] = (wanted or listed).pop(0)
            else:
                matched.surplus[document] = True


def in_order(places: np.ndarray) -> np.ndarray:
    """Return the indices of a longest part of different numbers that ascends: all others have to be moved."""
    if len(places) < 2 or (np.diff(places) > 0).all():
        return np.arange(len(places))
    tails: list[int] = []
    last: list[int] = []
    before = np.full(len(places), -1, dtype=np.int64)
    for index, place in enumerate(places.tolist()):
        at = bisect_left(tails, place)
        if at:
            before[index] = last[at - 1]
        if at == len(tails):
            tails.append(place)
            last.append(index)
        else:
            tails[at], last[at] = place, index
    chain = np.empty(len(tails), dtype=np.int64)
    index = last[-1]
    for at in range(len(tails) - 1, -1, -1):
        chain[at], index = index, int(before[index])
    return chain
