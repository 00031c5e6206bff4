"""``dataaudit map``: whether token files hold the documents that a manifest audited, whoever wrote them.

Documents are compared by digests of their tokens, on both sides without begin and end tokens: those of the files as
they are read, those of the manifest as its tokenizer encodes the audited shards again. So the order of a file does not
matter to what is found in it. What has no equal is looked at once more: as the beginning of a document that is missing,
and as its text in other tokens.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from dataaudit import __version__
from dataaudit import text as t
from dataaudit.atomic import write_whole
from dataaudit.corpus.batch import DocBatch
from dataaudit.corpus.loss import Reason, ShardUnreadable
from dataaudit.corpus.texts import text_digests
from dataaudit.corpus.tokenfiles.maps import map_path, said_of
from dataaudit.corpus.tokenfiles.megatron import index_path
from dataaudit.corpus.tokenfiles.reading import TokenFileHead, flat_borders, inner, open_token_file, token_digest
from dataaudit.corpus.tokens import TokenBatch, TokenizerFile
from dataaudit.corpus.tokens.hf_tokenizer import load_decoder
from dataaudit.engine.build import open_runner
from dataaudit.engine.encoding import (
    DIGEST,
    DOCUMENTS,
    ENCODED,
    Encode,
    EncodedPart,
    EncodeUnit,
    Source,
    digest_array,
    encode_shards,
    open_source,
    run_all,
    special_token,
)
from dataaudit.engine.job import BuildOptions
from dataaudit.engine.matching import in_order, match
from dataaudit.engine.progress import Progress
from dataaudit.engine.runner import Runner
from dataaudit.engine.store import PartialStore
from dataaudit.engine.units import Outcome
from dataaudit.engine.work import as_value, hash_file
from dataaudit.errors import ConfigError, ManifestMismatch
from dataaudit.lean import give_memory_back
from dataaudit.manifest.canonical import digest_json
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.token_proof import NAMED, Case, Fault, Faults, ProvenFile, TokenProof, proves
from dataaudit.render.terminal import facts, page, section, terminal_width
from dataaudit.training.corpus import Corpus

_READ, _WANTED = "read-tokens", "wanted-tokens"
_RANGE_BYTES = 64 << 20
_HEAD = 8
"""Tokens by which a document is looked up whose beginning may be in a file."""
_VERSION = "1"
"""Of what is stored of a document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOptions:
    """What to compare."""

    files: tuple[Path, ...]
    dtype: str | None = None
    """Of flat files; that of their map, or by the vocabulary, when None."""
    end_token: str | None = None
    begin_token: str | None = None
    """Both as of :func:`dataaudit.engine.encoding.special_token`."""
    any_order: bool = False
    tokenizer: str | None = None
    out: Path | None = None
    """Where the record goes; beside the first file when None."""

    @property
    def record(self) -> Path:
        """Where the record goes."""
        return self.out or self.files[0].with_name(f"{self.files[0].name}.proof.json")


@dataclass(frozen=True, slots=True)
class _Ends:
    """How documents are told from one another, and from what stands around them."""

    end: int | None
    begin: int | None
    flat: bool
    """Whether an end token ends a document wherever it stands."""

    @property
    def ends(self) -> frozenset[int]:
        return frozenset({self.end} - {None})  # type: ignore[arg-type]

    @property
    def begins(self) -> frozenset[int]:
        return frozenset({self.begin, self.end} - {None})  # type: ignore[arg-type]

    def own(self, tokens: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the tokens of a document without begin and end; of a flat file's those between end tokens."""
        pieces = [tokens]
        if self.flat and self.end is not None and (found := np.flatnonzero(tokens == self.end)).size:
            pieces = np.split(tokens, found + 1)
        for piece in pieces:
            start, stop = inner(piece, self.ends, self.begins)
            yield piece[start:stop]


@dataclass(frozen=True, slots=True)
class _Digests:
    """Makes the table of documents of a batch: a row for each run of tokens that is looked for."""

    ends: _Ends

    def __call__(self, batch: DocBatch, found: TokenBatch) -> pa.Table:
        texts = text_digests(batch.texts)
        rows, lengths, tokens = [], [], []
        for place, (start, stop) in enumerate(pairwise(found.offsets.tolist())):
            for own in self.ends.own(found.ids[start:stop]):
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
class _Beginnings:
    """Makes the table of those documents of a batch whose beginning is wanted: its length and digest."""

    ends: _Ends
    state: Path
    key: str

    def __call__(self, batch: DocBatch, found: TokenBatch) -> pa.Table:
        wanted = _wanted(self.state, self.key)
        made: list[tuple[int, int, int, bytes]] = []
        for place, (start, stop) in enumerate(pairwise(found.offsets.tolist())):
            pieces = (own for own in self.ends.own(found.ids[start:stop]) if len(own))
            for piece, own in enumerate(pieces):
                for head in {own[:size].tobytes() for size in range(1, min(_HEAD, len(own)) + 1)}:
                    shorter = (length for length in wanted.get(head, ()) if length < len(own))
                    made += [(int(batch.rows[place]), piece, one, token_digest(own[:one])) for one in shorter]
        columns = list(zip(*made, strict=True)) or [(), (), (), ()]
        types = (pa.int64(), pa.int64(), pa.int64(), DIGEST)
        names = ("row", "piece", "length", "tokens")
        return pa.table({name: pa.array(own, kind) for name, own, kind in zip(names, columns, types, strict=True)})


@lru_cache(maxsize=1)
def _wanted(state: Path, key: str) -> dict[bytes, list[int]]:
    """Return the lengths of the beginnings that are wanted, by their first tokens."""
    entry = PartialStore(state).read(_WANTED, key)
    if entry is None:
        raise ShardUnreadable(Reason.INTERNAL, "what is wanted is not there")
    table = entry.tables["heads"]
    found: dict[bytes, list[int]] = defaultdict(list)
    for head, length in zip(table["head"].to_pylist(), table["length"].to_pylist(), strict=True):
        found[head].append(length)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileUnit:
    """Some documents of a token file."""

    path: Path
    dtype: str
    key: str
    size: int
    start: int = 0
    stop: int = 0
    """Range of a flat file in which documents begin."""
    starts: np.ndarray | None = None
    """int64[n + 1] borders, of an index."""
    only: np.ndarray | None = None
    """int64[k] of which of them the text is wanted."""

    @property
    def name(self) -> str:
        """What names it from run to run."""
        return self.key

    @property
    def isolated(self) -> bool:
        """Numbers alone are read."""
        return False


@dataclass(frozen=True, slots=True)
class _ReadTokens:
    """Digests the documents of token files; of those that are asked for by ``only``, their decoded text."""

    state: Path
    ends: _Ends
    tokenizer: TokenizerFile

    def __call__(self, unit: _FileUnit) -> Outcome:
        give_memory_back()
        return as_value(partial(self._read, unit))

    def _read(self, unit: _FileUnit) -> Outcome:
        tokens = np.memmap(unit.path, dtype=unit.dtype, mode="r")
        borders = unit.starts
        if borders is None:
            assert self.ends.end is not None, "a flat file has end tokens"
            borders = flat_borders(tokens, unit.start, unit.stop, self.ends.end)
        decode = None if unit.only is None else load_decoder(self.tokenizer)
        chosen = range(len(borders) - 1) if unit.only is None else unit.only.tolist()
        lengths, digests, known = [], [], []
        for at in chosen:
            own = _own(tokens[borders[at] : borders[at + 1]], self.ends)
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
            }
        )
        PartialStore(self.state).write(_READ, unit.key, {}, {"documents": table})
        return Outcome()


def _own(tokens: np.ndarray, ends: _Ends) -> np.ndarray:
    start, stop = inner(tokens, ends.ends, ends.begins)
    return tokens[start:stop]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """Documents that have tokens, of the manifest or of the files, in order."""

    digests: np.ndarray
    """uint8[n, 16] of their tokens."""
    lengths: np.ndarray
    """int64[n]"""
    empty: int
    where: np.ndarray
    """int64[n] shard, or place of the file."""
    row: np.ndarray
    """int64[n] row of the shard, or number of the document in the file."""
    extra: np.ndarray
    """uint8[n, 16] digests of texts; of files int64[n] first tokens."""
    flags: np.ndarray
    """bool[n] held back; of files: all tokens are the tokenizer's."""


def map_files(
    manifest: Manifest, corpus: Corpus, whole: Corpus, options: MapOptions, running: BuildOptions, progress: Progress
) -> TokenProof:
    """Compare token files with the documents of a manifest, and write the record.

    Args:
        manifest: The manifest.
        corpus: What was opened of it, with the lists: what may be in the files.
        whole: The same splits, opened without any list, so that what is held back is known when it is met.
        options: What to compare.
        running: State folder and workers.
        progress: Where to report.

    Raises:
        ConfigError: A file is absent, empty, cut or damaged, or the options do not go with it.
        TokenizerError: The tokenizer cannot be found, or is another one.
        ManifestMismatch: A shard is not the one that was audited, or a file changed meanwhile.
        ClusterError: The workers cannot do the work.
    """
    source = open_source(manifest, whole, running, options.tokenizer, progress)
    heads = [open_token_file(path, _dtype(path, options.dtype, source.tokenizer.vocab_size)) for path in options.files]
    if len({head.format for head in heads}) > 1:
        raise ConfigError("some of the files have an index of Megatron, some have none", "Map them one kind at a time.")
    end = special_token(source, options.end_token, "end")
    ends = _Ends(end, special_token(source, options.begin_token, "begin"), heads[0].format == "flat")
    if ends.flat and end is None:
        raise ConfigError("documents of a flat file end with a token, and none is known", "Name it: --end-token TOKEN.")
    with open_runner(running.cluster, source.state, unit_seconds=running.unit_seconds, notes=[]) as runner:
        files, proven = _file_side(source, heads, ends, runner)
        encode = Encode(
            state=source.state,
            tokens=source.tokens,
            dtype=None,
            end=None,
            look=_Digests(ends),
            decides=f"digests {_VERSION} {ends}",
        )
        chosen = [number for number, why in enumerate(whole.table["held"].to_pylist()) if not why]
        parts = dict(encode_shards(source, chosen, encode, runner, phase="encode"))
        audited = _corpus_side(corpus, parts)
        found = _Alignment(source, ends, heads, parts, audited, files)
        found.look_again(runner)
    for head, one in zip(heads, proven, strict=True):
        if head.path.stat().st_size != one.size:
            raise ManifestMismatch(f"{head.path} changed while it was read", "Run the command again.")
    faults = found.faults(any_order=options.any_order)
    wrong = not proves(faults, any_order=options.any_order)
    proof = TokenProof(
        tool=__version__,
        at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        manifest=manifest.id,
        tokenizer=f"sha256:{source.tokenizer.sha256}",
        quarantine=corpus.digests["quarantine"],
        applied=corpus.digests["applied"],
        splits=corpus.splits,
        files=tuple(proven),
        end_token=end,
        begin_token=ends.begin,
        any_order=options.any_order,
        expected=int((~audited.flags).sum()),
        found=len(files.lengths),
        matched=int(found.same.sum()),
        matched_tokens=int(files.lengths[found.same].sum()),
        empty=audited.empty,
        faults=faults,
        result="differs" if wrong else "proven",
        exit_code=1 if wrong else 0,
    )
    try:
        write_whole(options.record, proof.model_dump_json(by_alias=True, indent=2).encode() + b"\n")
    except OSError as error:
        raise ConfigError(
            f"{options.record} cannot be written: {error.strerror or error}", "Name another file: --out FILE."
        ) from None
    return proof


def _dtype(path: Path, given: str | None, vocabulary: int) -> str:
    """Return the type of a flat file's tokens: what is given, what its map says, or what holds the vocabulary."""
    if given is not None:
        return given
    try:
        return str(np.dtype(said_of(path)["dtype"])) if map_path(path).exists() else _smallest(vocabulary)
    except (ConfigError, TypeError):
        return _smallest(vocabulary)


def _smallest(vocabulary: int) -> str:
    return "uint16" if vocabulary <= 1 << 16 else "uint32"


def _file_side(
    source: Source, heads: Sequence[TokenFileHead], ends: _Ends, runner: Runner
) -> tuple[_Side, list[ProvenFile]]:
    """Read the files, and digest them and their documents."""
    digests = {path: hash_file(str(path)) for path in {one.path for one in heads}}
    units = [_file_units(head, digests[head.path], ends) for head in heads]
    read = _ReadTokens(source.state, ends, source.tokenizer)
    every = [unit for own in units for unit in own]
    run_all(source, runner, read, every, kind=_READ, phase="read")
    store, tables, numbers, proven = PartialStore(source.state), [], [], []
    for place, (head, own) in enumerate(zip(heads, units, strict=True)):
        documents = _stored(store, own)
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
            )
        )
    table = pa.concat_tables(tables)
    lengths = table["length"].to_numpy()
    there = lengths > 0
    return (
        _Side(
            digests=_bytes_of(table["digest"])[there],
            lengths=lengths[there],
            empty=int((~there).sum()),
            where=table["file"].to_numpy()[there],
            row=np.concatenate(numbers)[there],
            extra=table["start"].to_numpy()[there],
            flags=table["known"].to_numpy(zero_copy_only=False)[there],
        ),
        proven,
    )


def _file_units(head: TokenFileHead, sha256: str, ends: _Ends) -> list[_FileUnit]:
    """Cut a file into ranges of some megabytes."""
    dtype, step = head.dtype.str, _RANGE_BYTES // head.dtype.itemsize
    decides = [_VERSION, sha256, dtype, ends.end, ends.begin]
    units = []
    if head.starts is None:
        for start in range(0, head.tokens, step):
            stop = min(start + step, head.tokens)
            key = digest_json([*decides, start, stop]).removeprefix("sha256:")
            size = (stop - start) * head.dtype.itemsize
            units.append(_FileUnit(path=head.path, dtype=dtype, key=key, size=size, start=start, stop=stop))
        return units
    cuts = np.unique(np.searchsorted(head.starts, np.arange(0, head.tokens + step, step)))
    for first, last in pairwise(np.unique([0, *cuts.clip(0, len(head.starts) - 1), len(head.starts) - 1]).tolist()):
        borders = np.ascontiguousarray(head.starts[first : last + 1])
        key = digest_json([*decides, digest_of_numbers(borders)]).removeprefix("sha256:")
        size = int(borders[-1] - borders[0]) * head.dtype.itemsize
        units.append(_FileUnit(path=head.path, dtype=dtype, key=key, size=size, starts=borders))
    return units


def digest_of_numbers(values: np.ndarray) -> str:
    """Return what stands for some whole numbers in a key."""
    return token_digest(np.ascontiguousarray(values, dtype="<i8").view("<u4")).hex()


def _stored(store: PartialStore, units: Sequence[_FileUnit]) -> pa.Table:
    found = []
    for unit in units:
        entry = store.read(_READ, unit.key)
        if entry is None:
            store.remove(_READ, unit.key)
            raise ManifestMismatch(f"what was read of {unit.path} is damaged in {store.root}", "Run the command again.")
        found.append(entry.tables["documents"])
    return pa.concat_tables(found)


def _bytes_of(column: pa.ChunkedArray) -> np.ndarray:
    """Return digests as uint8[n, 16]."""
    if not len(column):
        return np.zeros((0, 16), dtype=np.uint8)
    whole = column.combine_chunks()
    whole = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
    raw = np.frombuffer(whole.buffers()[1], dtype=np.uint8)
    return raw[16 * whole.offset : 16 * (whole.offset + len(whole))].reshape(-1, 16)


def _corpus_side(corpus: Corpus, parts: dict[int, list[EncodedPart]]) -> _Side:
    """Return the audited documents, with those that are held back."""
    held = [bool(why) for why in corpus.table["held"].to_pylist()]
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
            columns["tokens"].append(_bytes_of(table["tokens"])[there])
            columns["text"].append(_bytes_of(table["text"])[there])
            columns["held"].append(np.isin(rows[there], dropped) | held[ordinal])
    joined = {name: np.concatenate(values) for name, values in columns.items()}
    if not joined or not len(joined["row"]):
        raise ConfigError("the manifest has no document with tokens in these splits", "Choose other splits: --split.")
    return _Side(
        digests=joined["tokens"],
        lengths=joined["length"],
        empty=empty,
        where=joined["shard"],
        row=joined["row"],
        extra=joined["text"],
        flags=joined["held"],
    )


class _Alignment:
    """Which document of the files is which of the manifest."""

    def __init__(
        self,
        source: Source,
        ends: _Ends,
        heads: Sequence[TokenFileHead],
        parts: dict[int, list[EncodedPart]],
        audited: _Side,
        files: _Side,
    ) -> None:
        self._source, self._ends, self._heads, self._parts = source, ends, heads, parts
        self._audited, self._files = audited, files
        found = match(audited.digests, audited.flags, files.digests)
        self._partner = found.partner.copy()
        self._held, self._surplus = found.held, found.surplus
        self.same = (found.partner >= 0) & ~found.held
        """bool[files' documents] an audited document, as it was audited."""
        self._truncated = np.zeros(len(files.lengths), dtype=bool)
        self._retokenized = np.zeros(len(files.lengths), dtype=bool)

    def _unexplained(self) -> np.ndarray:
        return np.flatnonzero((self._partner < 0) & ~self._surplus)

    def _missing(self) -> np.ndarray:
        there = np.zeros(len(self._audited.lengths), dtype=bool)
        there[self._partner[self._partner >= 0]] = True
        return np.flatnonzero(~there & ~self._audited.flags)

    def look_again(self, runner: Runner) -> None:
        """Look for missing documents among what has no equal: cut short, or in other tokens."""
        if len(self._unexplained()) and len(self._missing()):
            self._find_texts(runner)
        if len(self._unexplained()) and len(self._missing()):
            self._find_beginnings(runner)

    def _find_texts(self, runner: Runner) -> None:
        unexplained, files = self._unexplained(), self._files
        units, places = [], []
        for place, head in enumerate(self._heads):
            own = unexplained[files.where[unexplained] == place]
            own = own[files.flags[own]]
            if not len(own):
                continue
            for some in np.array_split(own, max(1, len(own) // 4096)):
                borders = self._borders(head, some)
                key = digest_json(["text", _VERSION, str(head.path), digest_of_numbers(borders), self._decides()])
                units.append(
                    _FileUnit(
                        path=head.path,
                        dtype=head.dtype.str,
                        key=key.removeprefix("sha256:"),
                        size=int(files.lengths[some].sum()) * head.dtype.itemsize,
                        starts=borders,
                        only=np.arange(0, 2 * len(some), 2),
                    )
                )
                places.append(some)
        read = _ReadTokens(self._source.state, self._ends, self._source.tokenizer)
        run_all(self._source, runner, read, units, kind=_READ, phase="decode")
        by_text = defaultdict(list)
        missing = self._missing()
        for at, text in zip(missing.tolist(), self._audited.extra[missing], strict=True):
            by_text[text.tobytes()].append(at)
        store = PartialStore(self._source.state)
        for unit, some in zip(units, places, strict=True):
            digests = _bytes_of(_stored(store, [unit])["digest"])
            store.remove(_READ, unit.key)
            for document, text in zip(some.tolist(), digests, strict=True):
                if left := by_text.get(text.tobytes()):
                    self._partner[document], self._retokenized[document] = left.pop(0), True

    def _decides(self) -> str:
        return self._source.tokenizer.sha256

    def _borders(self, head: TokenFileHead, some: np.ndarray) -> np.ndarray:
        """Return int64[2 k] where each of some documents of a file begins and ends."""
        starts = self._files.extra[some]
        if head.starts is None:
            tokens = np.memmap(head.path, dtype=head.dtype, mode="r")
            assert self._ends.end is not None, "a flat file has end tokens"
            stops = [int(flat_borders(tokens, one, one + 1, self._ends.end)[1]) for one in starts.tolist()]
        else:
            stops = head.starts[np.searchsorted(head.starts, starts, "right")]
        return np.stack([starts, np.asarray(stops, dtype=np.int64)], axis=1).reshape(-1)

    def _find_beginnings(self, runner: Runner) -> None:
        missing, store = self._missing(), PartialStore(self._source.state)
        table = self._heads_of(self._unexplained())
        key = digest_json([_VERSION, [one.hex() for one in table["head"].to_pylist()], table["length"].to_pylist()])
        key = key.removeprefix("sha256:")
        store.write(_WANTED, key, {}, {"heads": table})
        encode = Encode(
            state=self._source.state,
            tokens=self._source.tokens,
            dtype=None,
            end=None,
            look=_Beginnings(self._ends, self._source.state, key),
            decides=f"beginnings {_VERSION} {key} {self._ends}",
        )
        units, places = self._units_of(missing, encode)
        run_all(self._source, runner, encode, units, kind=ENCODED, phase="compare")
        cut: list[tuple[int, int, bytes]] = []
        left, numbered = set(missing.tolist()), self._numbered(missing)
        for unit, (shard, base) in zip(units, places, strict=True):
            entry = store.read(ENCODED, unit.key)
            store.remove(ENCODED, unit.key)
            found = None if entry is None else entry.tables.get(DOCUMENTS)
            for one in [] if found is None else found.to_pylist():
                at = numbered.get((shard, one["row"] + base, one["piece"]), -1)
                cut += [(one["length"], at, one["tokens"])] if at in left else []
        store.remove(_WANTED, key)
        by_digest: dict[bytes, list[int]] = defaultdict(list)
        for document in self._unexplained().tolist():
            by_digest[self._files.digests[document].tobytes()].append(document)
        for _, at, digest in sorted(cut, key=lambda one: (-one[0], one[1])):
            if at in left and (documents := by_digest.get(digest)):
                document = documents.pop(0)
                self._partner[document], self._truncated[document] = at, True
                left.remove(at)

    def _heads_of(self, documents: np.ndarray) -> pa.Table:
        """Return the different first tokens and lengths of some documents of the files, sorted."""
        found = set[tuple[bytes, int]]()
        for place, head in enumerate(self._heads):
            own = documents[self._files.where[documents] == place]
            tokens = np.memmap(head.path, dtype=head.dtype, mode="r")
            for start, stop in self._borders(head, own).reshape(-1, 2).tolist():
                document = _own(tokens[start:stop], self._ends)
                found.add((document[:_HEAD].astype("<u4").tobytes(), len(document)))
        heads, lengths = zip(*sorted(found), strict=True)
        return pa.table({"head": pa.array(heads, pa.binary()), "length": pa.array(lengths, pa.int64())})

    def _numbered(self, documents: np.ndarray) -> dict[tuple[int, int, int], int]:
        """Return some audited documents by shard, row and which piece of the row they are."""
        where, row = self._audited.where, self._audited.row
        new = np.concatenate([[True], (where[1:] != where[:-1]) | (row[1:] != row[:-1])])
        piece = np.arange(len(row)) - np.flatnonzero(new)[np.cumsum(new) - 1]
        columns = zip(where[documents].tolist(), row[documents].tolist(), piece[documents].tolist(), strict=True)
        return dict(zip(columns, documents.tolist(), strict=True))

    def _units_of(self, missing: np.ndarray, encode: Encode) -> tuple[list[EncodeUnit], list[tuple[int, int]]]:
        """Return the parts of shards that hold missing documents, each asked for these alone."""
        audited, units, shards = self._audited, list[EncodeUnit](), list[tuple[int, int]]()
        for ordinal in np.unique(audited.where[missing]).tolist():
            rows = audited.row[missing[audited.where[missing] == ordinal]]
            parts = self._parts[ordinal]
            bases = [part.base for part in parts]
            at = np.searchsorted(bases, rows, "right") - 1
            for place in np.unique(at).tolist():
                own = np.unique(rows[at == place] - bases[place])
                unit = parts[place].unit
                key = encode.key(digest_json([unit.key, digest_of_numbers(own)]))
                units.append(replace(unit, key=key, request=replace(unit.request, only=frozenset(own.tolist()))))
                shards.append((ordinal, bases[place]))
        return units, shards

    def faults(self, *, any_order: bool) -> Faults:
        """Return what is not as it was audited."""
        paired = np.flatnonzero((self._partner >= 0) & ~self._held)
        stays = np.zeros(len(self._partner), dtype=bool)
        stays[paired[in_order(self._partner[paired])]] = True
        moved = np.zeros(0, dtype=np.int64) if any_order else paired[~stays[paired]]
        missing, audited = self._missing(), self._audited
        named = tuple(
            Case(document=self._name(at), file=None, at=None, start=None, tokens=int(audited.lengths[at]))
            for at in missing[:NAMED].tolist()
        )
        return Faults(
            missing=Fault(documents=len(missing), tokens=int(audited.lengths[missing].sum()), named=named),
            extra=self._fault(self._unexplained()),
            duplicated=self._fault(np.flatnonzero(self._surplus)),
            held_back=self._fault(np.flatnonzero(self._held)),
            truncated=self._fault(np.flatnonzero(self._truncated)),
            retokenized=self._fault(np.flatnonzero(self._retokenized)),
            reordered=self._fault(moved),
        )

    def _fault(self, documents: np.ndarray) -> Fault:
        files = self._files
        named = tuple(
            Case(
                document=None if self._partner[one] < 0 else self._name(int(self._partner[one])),
                file=self._heads[int(files.where[one])].path.name,
                at=int(files.row[one]),
                start=int(files.extra[one]),
                tokens=int(files.lengths[one]),
            )
            for one in documents[:NAMED].tolist()
        )
        return Fault(documents=len(documents), tokens=int(files.lengths[documents].sum()), named=named)

    def _name(self, at: int) -> str:
        """Return ``split/uri:row`` of an audited document."""
        table, shard = self._source.corpus.table, int(self._audited.where[at])
        return f"{table['split'][shard].as_py()}/{table['uri'][shard].as_py()}:{int(self._audited.row[at])}"


def proof_json(proof: TokenProof) -> str:
    """Return the record as JSON."""
    return proof.model_dump_json(by_alias=True, indent=2) + "\n"


_TOLD = {
    "missing": "missing",
    "extra": "not audited",
    "duplicated": "too often",
    "held_back": "held back",
    "truncated": "truncated",
    "retokenized": "in other tokens",
    "reordered": "in other order",
}
_SHOWN = 5


def proof_text(proof: TokenProof, record: Path) -> str:
    """Return the record for a terminal."""
    width = terminal_width()
    names = ", ".join(t.clean(one.name, 200) for one in proof.files[:_SHOWN])
    names += f" and {len(proof.files) - _SHOWN:,} more" if len(proof.files) > _SHOWN else ""
    proven = proof.result == "proven"
    pairs = [
        ("manifest", proof.manifest),
        ("audited", f"{t.plural(proof.expected, 'document')} that nothing holds back"),
        ("in the files", t.plural(proof.found, "document")),
        ("the same", f"{t.plural(proof.matched, 'document')}, {t.plural(proof.matched_tokens, 'token')}"),
    ]
    if not proof.matched:
        pairs.append(("", "none is the same: the files are of another corpus, tokenizer, type or end token"))
    faults = [(name, getattr(proof.faults, name)) for name in _TOLD]
    told = []
    for name, fault in faults:
        if fault.documents:
            shown = "; ".join(_case(one) for one in fault.named[:_SHOWN])
            more = f"; and {fault.documents - _SHOWN:,} more" if fault.documents > _SHOWN else ""
            told.append((_TOLD[name], f"{t.plural(fault.documents, 'document')}: {shown}{more}"))
    return page(
        f"{names}: {'what was audited, and nothing else' if proven else 'not what was audited'}",
        facts([*pairs, ("record", t.clean(str(record)))], width),
        section("What differs", facts(told, width)),
    )


def _case(one: Case) -> str:
    place = "" if one.file is None else f"{t.clean(one.file, 100)} document {one.at:,}"
    return " is ".join(part for part in (place, t.clean(one.document or "", 200)) if part)
