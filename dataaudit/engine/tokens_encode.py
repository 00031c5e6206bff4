"""Tokens of an opened corpus, part by part, on workers, with the manifest's tokenizer.

The result of a part is stored under a key of everything that decides it, so that stopped work goes on. Nothing is
believed of the files: their sha256, the digest of their decoded rows and their number of tokens must be the
manifest's.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from dataaudit.base.errors import ClusterError, ConfigError, CorpusRefused, ManifestMismatch, TokenizerError
from dataaudit.base.files import replacing
from dataaudit.base.process import give_memory_back
from dataaudit.base.text import plural
from dataaudit.config import Reader
from dataaudit.engine.job import BuildOptions, prepare_tokenizer, state_folder
from dataaudit.engine.plan import reading_key
from dataaudit.engine.plan_probe import probe_shards
from dataaudit.engine.plan_shards import ShardList
from dataaudit.engine.progress import Progress
from dataaudit.engine.runner import Outcome, PartUnit, Runner, Services, Unit, run_units
from dataaudit.engine.scan import as_outcome, hash_file, may_have_changed
from dataaudit.engine.state_folder import open_state
from dataaudit.engine.store import PartialStore
from dataaudit.manifest.canonical import digest_json
from dataaudit.manifest.load import Manifest
from dataaudit.scan.annotators import Tokens
from dataaudit.scan.corpus.batch import DocBatch
from dataaudit.scan.corpus.fields import FieldRule
from dataaudit.scan.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.scan.corpus.readers import PartStats, ReadRequest, read_part
from dataaudit.scan.corpus.shards import Shard
from dataaudit.scan.corpus.texts import row_digests, text_digests
from dataaudit.scan.corpus.tokens import TokenBatch, TokenizerFile, resolve_tokenizer
from dataaudit.scan.corpus.tokens.spec import DEFAULT_NAME
from dataaudit.training.checks import STREAMED
from dataaudit.training.corpus import Corpus

_VERSION = "2"
ENCODED = "encoded"
DOCUMENTS, _ROWS_TABLE = "documents", "rows"
DIGEST = pa.binary(16)
MOST_TOKEN = (1 << 32) - 1
"""Largest id that a token file can hold; programs add tokens of their own behind the vocabulary."""
_ENDS = (
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end\u2581of\u2581sentence|>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "<|eot|>",
    "</s>",
    "<eos>",
    "<eod>",
    "[EOS]",
    "<EOS>",
)
_BEGINS = ("<|begin_of_text|>", "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<s>", "<bos>", "[BOS]", "<BOS>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Encode:
    """Encodes parts: their tokens go to a file, what is known of each document to the store.

    ``look`` makes the table of documents of a batch from its rows, sources, texts and tokens; with ``dtype`` None the
    tokens are not kept.
    """

    state: Path
    tokens: Tokens
    dtype: str | None
    end: int | None
    look: Callable[[DocBatch, TokenBatch], pa.Table]
    decides: str
    """What tells the outcome from that of other work on the same part."""

    def key(self, reading: str) -> str:
        """Return the key of what is stored of a part."""
        own = [_VERSION, reading, self.tokens.decisive(), self.dtype, self.end, self.decides]
        return digest_json(own).removeprefix("sha256:")

    @as_outcome
    def __call__(self, unit: PartUnit) -> Outcome:
        """Encode a part."""
        give_memory_back()
        store = PartialStore(self.state)
        annotator, stats = self.tokens.load(), PartStats()
        tables: list[pa.Table] = []
        rows: list[bytes] = []
        num_tokens, written = 0, hashlib.sha256()
        path = tokens_path(self.state, unit.key)
        with store.writing(), self._file(path) as file:
            for raw in read_part(unit.request, LossLog(), stats):
                batch = replace(raw, digests=text_digests(raw.texts))
                assert batch.digests is not None
                rows.append(row_digests(batch.digests, raw.source_codes, raw.source_names).tobytes())
                encoded = annotator(batch)
                num_tokens += len(encoded.ids)
                tables.append(self.look(batch, encoded))
                if self.dtype is not None:
                    raw_ids = _ended(encoded, self.end).astype(np.dtype(self.dtype).newbyteorder("<")).tobytes()
                    written.update(raw_ids)
                    file.write(raw_ids)
            size = file.tell()
        if may_have_changed(unit) and hash_file(unit.request.path) != unit.sha256:
            raise ShardUnreadable(Reason.CHANGED)
        documents = pa.concat_tables(tables) if tables else None
        digests = np.frombuffer(b"".join(rows), dtype=np.uint8)
        kept = {_ROWS_TABLE: pa.table({"digest": digest_array(digests.reshape(-1, 16))})}
        if documents is not None:
            kept[DOCUMENTS] = documents.combine_chunks()
        meta = {"records": stats.records, "bytes": size, "sha256": written.hexdigest(), "tokens": num_tokens}
        store.write(ENCODED, unit.key, meta, kept)
        return Outcome()

    def _file(self, path: Path) -> AbstractContextManager[BinaryIO]:
        """Return where tokens go: nowhere when they are not kept."""
        if self.dtype is None:
            return io.BytesIO()
        path.parent.mkdir(parents=True, exist_ok=True)
        return replacing(path)


def tokens_path(state: Path, key: str) -> Path:
    """Return where the tokens of a part lie, as raw numbers."""
    return state / "tokens" / key[:2] / key


def digest_array(digests: np.ndarray) -> pa.Array:
    """Return uint8[n, 16] digests as a column."""
    return pa.Array.from_buffers(DIGEST, len(digests), [None, pa.py_buffer(np.ascontiguousarray(digests))])


def _ended(encoded: TokenBatch, end: int | None) -> np.ndarray:
    """Return the ids of documents one after another, each that has some with the end token behind."""
    if end is None:
        return encoded.ids
    stops = encoded.offsets[1:][np.diff(encoded.offsets) > 0]
    return np.insert(encoded.ids, stops, np.uint32(end))


def lengths_of(encoded: TokenBatch, end: int | None) -> np.ndarray:
    """Return int64[n] tokens of each document, with its end token; 0 of those without any."""
    own = np.diff(encoded.offsets)
    return own + (own > 0) * (end is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedPart:
    """What is stored of a part."""

    unit: PartUnit
    base: int
    """Records of the shard before it."""
    bytes: int
    state: Path

    def documents(self) -> pa.Table | None:
        """Return what was looked at of its documents; None when it has none."""
        entry = PartialStore(self.state).read(ENCODED, self.unit.key)
        if entry is None:
            raise ManifestMismatch(f"what was encoded is damaged in {self.state}", "Run the command again.")
        return entry.tables.get(DOCUMENTS)

    @property
    def tokens(self) -> Path:
        """Where its tokens lie, as raw numbers."""
        return tokens_path(self.state, self.unit.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An opened corpus, ready to be encoded."""

    manifest: Manifest
    corpus: Corpus
    state: Path
    tokens: Tokens
    progress: Progress

    @property
    def tokenizer(self) -> TokenizerFile:
        """The manifest's."""
        return self.tokens.tokenizer

    def pieces(self) -> Mapping[int, str]:
        """Return the special tokens by id, as the vocabulary writes them."""
        from dataaudit.scan.corpus.tokens.spec import vocabulary_pieces

        return vocabulary_pieces(self.tokenizer, self.tokenizer.special_ids)


@contextmanager
def open_source(
    manifest: Manifest, corpus: Corpus, options: BuildOptions, tokenizer: str | None, progress: Progress
) -> Iterator[Source]:
    """Find the tokenizer of a manifest, and yield what is to be encoded, under the state key."""
    home = state_folder(options)
    record = manifest.core.tokenizer
    spec = tokenizer or _known(home, record.sha256, record.name)
    file = resolve_tokenizer(spec, base_dir=Path.cwd(), cache_dir=home / "tokenizers")
    if file.sha256 != record.sha256:
        raise TokenizerError(
            f"tokenizer {file.name}: its sha256 is {file.sha256[:16]}..., the manifest's tokenizer {record.name} has"
            f" {record.sha256[:16]}...",
            "Name the tokenizer that the corpus was audited with: --tokenizer FILE.",
        )
    with open_state(home, key=options.state_key, once=False) as state:
        file, risks = prepare_tokenizer(spec, Path.cwd(), state, progress, home)
        tokens = Tokens(
            tokenizer=replace(file, name=record.name),
            risks=risks,
            force_reference=record.encoder == "reference",
            seed=manifest.core.seeds.get("sample", 0),
        )
        yield Source(manifest=manifest, corpus=corpus, state=state, tokens=tokens, progress=progress)


def _known(state: Path, sha256: str, name: str) -> str:
    """Return what names the tokenizer of a manifest, when nobody says where it is."""
    for suffix in (".json", ".model"):
        if (path := state / "tokenizers" / f"{sha256}{suffix}").is_file():
            return str(path)
    if name == DEFAULT_NAME or "/" in name:
        return name
    raise TokenizerError(
        f"the tokenizer {name} of the manifest is not in {state / 'tokenizers'}", "Name its file: --tokenizer FILE."
    )


def special_token(source: Source, given: str | None, what: str) -> int | None:
    """Return the id of a document's end or begin token."""
    if given == "none":
        return None
    pieces = source.pieces()
    by_name = {piece: number for number, piece in pieces.items()}
    if given is None:
        usual = (_unescaped(piece) for piece in (_ENDS if what == "end" else _BEGINS))
        return next((by_name[piece] for piece in usual if piece in by_name), None)
    if given.isascii() and given.isdecimal() and int(given) <= MOST_TOKEN:
        return int(given)
    if (found := by_name.get(_unescaped(given))) is not None:
        return found
    raise ConfigError(
        f"--{what}-token {given}: the tokenizer {source.tokenizer.name} has no such special token, and no file has ids"
        f" above {MOST_TOKEN:,}",
        f"Special tokens: {', '.join(list(by_name)[:10]) or 'none'}.",
    )


def _unescaped(piece: str) -> str:
    from dataaudit.scan.corpus.tokens.spec import escaped

    return escaped(piece)


def encode_shards(
    source: Source, ordinals: Sequence[int], encode: Encode, runner: Runner, *, phase: str
) -> Iterator[tuple[int, list[EncodedPart]]]:
    """Encode shards as far as that is not done yet, then yield each with its parts, in order."""
    rows = {row["shard"]: row for row in _rows(source.corpus, ordinals)}
    units, planned = _units(source, rows, encode, runner)
    lost = run_missing(source, runner, encode, list(units.values()), kind=ENCODED, phase=phase)
    store = PartialStore(source.state)
    for ordinal, parts in planned.items():
        row = rows[ordinal]
        if bad := next((lost[unit.key] for unit in parts if unit.key in lost), None):
            raise ManifestMismatch(f"{_name(row)} cannot be read: {bad}; it was read when it was audited", _AGAIN)
        yield ordinal, _checked(source, store, row, parts)


_AGAIN = "Restore the file, or build again."


def run_missing(
    source: Source,
    runner: Runner,
    function: Callable[[Any], Outcome],
    units: Sequence[Unit],
    *,
    kind: str,
    phase: str,
) -> dict[str, str]:
    """Do what is not stored yet under its key; return by key why something could not be done."""
    store = PartialStore(source.state)
    todo = [unit for unit in units if not store.has(kind, unit.key)]
    if len(todo) < len(units):
        source.progress.note(f"{phase}: {len(units) - len(todo):,} of {len(units):,} parts are known")
    failed, _ = run_units(phase, function, todo, Services(store=store, runner=runner, progress=source.progress))
    return {todo[index].key: f"{reason} {place}".rstrip() for index, (reason, place) in failed.items()}


def run_all(
    source: Source, runner: Runner, function: Callable[[Any], Outcome], units: Sequence[Unit], *, kind: str, phase: str
) -> None:
    """Do what :func:`run_missing` does, where nothing may be lost."""
    lost = run_missing(source, runner, function, units, kind=kind, phase=phase)
    if lost:
        raise ClusterError(f"{phase}: {plural(len(lost), 'part')} could not be done: {min(lost.values())}")


def _units(
    source: Source, rows: Mapping[int, dict[str, Any]], encode: Encode, runner: Runner
) -> tuple[dict[str, PartUnit], dict[int, list[PartUnit]]]:
    """Return the parts of shards by key, equal ones once, and by shard."""
    default = Reader()
    shards, fields = {}, dict[int, FieldRule]()
    for ordinal, row in rows.items():
        fields[ordinal] = source.corpus.fields(ordinal)
        shards[ordinal] = Shard(
            ordinal=ordinal,
            split=row["split"],
            uri=row["uri"],
            path=source.corpus.path(ordinal),
            format=row["format"],
            compression=row["compression"],
            skip=None,
            size=row["size"],
        )
    recorded = source.manifest.core.config.get("reader", {})
    reader = default.model_copy(update={"text_document": recorded.get("text_document", default.text_document)})
    services = Services(store=PartialStore(source.state), runner=runner, progress=source.progress)
    probed = probe_shards(ShardList(shards.values(), source.state), services, reader, rehash=False)
    units: dict[str, PartUnit] = {}
    planned: dict[int, list[PartUnit]] = {}
    for place, (ordinal, shard) in enumerate(shards.items()):
        probe = probed.probe(place)
        if probe is None or probe.reason is not None:
            failure = probed.failure(place)
            why = failure[0] if failure is not None else probe and probe.reason
            raise ManifestMismatch(f"{_name(rows[ordinal])} cannot be read: {why}", _AGAIN)
        if probe.sha256 != rows[ordinal]["sha256"]:
            raise ManifestMismatch(f"{_name(rows[ordinal])}: the bytes have changed since the build", _AGAIN)
        planned[ordinal] = []
        for part in probe.parts:
            reading = reading_key(probe.sha256, shard.split, shard.format, shard.compression, part, fields[ordinal])
            unit = PartUnit(
                request=ReadRequest.of(shard, part, fields[ordinal], default.batch_bytes),
                stat=probe.stat,
                sha256=probe.sha256,
                key=encode.key(reading),
                size=probe.stat.size // max(1, len(probe.parts)),
            )
            planned[ordinal].append(units.setdefault(unit.key, unit))
    return units, planned


def _rows(corpus: Corpus, ordinals: Sequence[int]) -> list[dict[str, Any]]:
    columns = ["shard", "split", "uri", "format", "compression", "size", "sha256", "rows_digest", "tokens"]
    rows: list[dict[str, Any]] = corpus.table.select(columns).take(pa.array(ordinals, pa.int64())).to_pylist()
    for row in rows:
        if row["format"] == STREAMED:
            raise CorpusRefused(f"{_name(row)} is no file: its rows are streamed", "Store the rows as files first.")
    return rows


def _checked(
    source: Source, store: PartialStore, row: Mapping[str, Any], units: Sequence[PartUnit]
) -> list[EncodedPart]:
    """Return the parts of a shard, compared with what the manifest says of it."""
    parts, base, num_tokens, state = [], 0, 0, hashlib.sha256()
    for unit in units:
        entry = store.read(ENCODED, unit.key)
        path = tokens_path(source.state, unit.key)
        if entry is None or (entry.meta["bytes"] and not _is_whole(path, entry.meta["sha256"])):
            path.unlink(missing_ok=True)
            store.remove(ENCODED, unit.key)
            raise ManifestMismatch(
                f"what was encoded of {_name(row)} is damaged in {store.root}; it is removed", "Run the command again."
            )
        digests = entry.tables[_ROWS_TABLE].combine_chunks()["digest"]
        for chunk in digests.chunks:
            state.update(chunk.buffers()[1].slice(16 * chunk.offset, 16 * len(chunk)))
        size = entry.meta["bytes"]
        parts.append(EncodedPart(unit=unit, base=base, bytes=size, state=source.state))
        base += entry.meta["records"]
        num_tokens += entry.meta["tokens"]
    if state.hexdigest() != row["rows_digest"]:
        raise ManifestMismatch(
            f"{_name(row)} does not give the documents that were audited: the digest of its rows is another one", _AGAIN
        )
    if num_tokens != row["tokens"] and not len(source.corpus.dropped(row["shard"])):
        raise ManifestMismatch(
            f"{_name(row)} gives {num_tokens:,} tokens, {row['tokens']:,} were audited",
            "The libraries that encode are not those of the build: core.libraries of the manifest names them.",
        )
    return parts


def _is_whole(path: Path, sha256: str) -> bool:
    """Return whether tokens are those that were encoded: who writes the state folder has no say in them."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['split']}/{row['uri']}"
