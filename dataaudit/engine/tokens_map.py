"""``dataaudit map``: whether token files hold the documents that a manifest audited, whoever wrote them.

Digests of the files' documents are compared with those of the audited shards, encoded again with the manifest's
tokenizer, in whatever order they stand. A document without an equal is searched once more: as the beginning of a
missing document, and as its text in other tokens.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from dataaudit import __version__
from dataaudit.base.errors import ConfigError, CorpusRefused, ManifestMismatch
from dataaudit.engine.build import open_runner
from dataaudit.engine.job import BuildOptions
from dataaudit.engine.progress import Progress
from dataaudit.engine.runner import PartUnit, Runner
from dataaudit.engine.store import PartialStore
from dataaudit.engine.tokens_encode import (
    DOCUMENTS,
    ENCODED,
    Encode,
    EncodedPart,
    Source,
    encode_shards,
    open_source,
    run_all,
    special_token,
)
from dataaudit.engine.tokens_match import (
    HEAD,
    READ_TOKENS,
    VERSION,
    WANTED_TOKENS,
    Beginnings,
    Digests,
    Ends,
    FileUnit,
    ReadTokens,
    Side,
    corpus_side,
    digest_of_numbers,
    digests_of,
    file_side,
    in_order,
    match,
    own_tokens,
    stored_documents,
)
from dataaudit.manifest.canonical import digest_json
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.outfiles import write_file
from dataaudit.manifest.token_proof import NAMED, Case, Fault, Faults, TokenProof, exit_code, proves
from dataaudit.scan.corpus.token_files import TokenFileHead, flat_borders, map_metadata, map_path, open_token_file
from dataaudit.training.checks import STREAMED, Roots
from dataaudit.training.corpus import Corpus
from dataaudit.training.opening import open_manifest

_CHOSEN, _HELD_OUT, _OTHER = range(3)
"""Kinds of shards: of the chosen splits, held out, of another split that is trained on."""
_PROOF = 32
"""Tokens of a beginning from which on it shows that a document is in the files that should not be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOptions:
    """What to compare."""

    files: tuple[Path, ...]
    dtype: str | None = None
    """Of flat files; that of their map, or by the vocabulary, when None."""
    end_token: str | None = None
    begin_token: str | None = None
    any_order: bool = False
    tokenizer: str | None = None
    out: Path | None = None

    @property
    def record(self) -> Path:
        """Where the record goes."""
        return self.out or self.files[0].with_name(f"{self.files[0].name}.proof.json")


def map_files(
    manifest: Manifest, corpus: Corpus, whole: Corpus, options: MapOptions, running: BuildOptions, progress: Progress
) -> TokenProof:
    """Compare token files with the documents of a manifest, and write the record."""
    with open_source(manifest, whole, running, options.tokenizer, progress) as source:
        proof = _proof(source, corpus, options, running)
    write_file(options.record, proof.model_dump_json(by_alias=True, indent=2).encode() + b"\n")
    return proof


def _proof(source: Source, corpus: Corpus, options: MapOptions, running: BuildOptions) -> TokenProof:
    manifest, whole = source.manifest, source.corpus
    end, begin = special_token(source, options.end_token, "end"), special_token(source, options.begin_token, "begin")
    most = max(source.tokenizer.vocab_size - 1, end or 0, begin or 0)
    heads = [open_token_file(path, _dtype(path, options.dtype, most)) for path in options.files]
    if len({head.format for head in heads}) > 1:
        raise ConfigError("some of the files have an index of Megatron, some have none", "Map them one kind at a time.")
    for head in heads:
        _check_holds(head, {"end": end, "begin": begin})
    ends = Ends(end, begin, heads[0].format == "flat")
    if ends.flat and end is None:
        raise ConfigError("documents of a flat file end with a token, and none is known", "Name it: --end-token TOKEN.")
    with open_runner(running.cluster, source.state, unit_seconds=running.unit_seconds, notes=[]) as runner:
        files, proven = file_side(source, heads, ends, runner)
        encode = Encode(
            state=source.state,
            tokens=source.tokens,
            dtype=None,
            end=None,
            look=Digests(ends),
            decides=f"digests {VERSION} {ends}",
        )
        kinds = _kinds(manifest, corpus, whole)
        parts = dict(encode_shards(source, np.flatnonzero(kinds == _CHOSEN).tolist(), encode, runner, phase="encode"))
        audited = corpus_side(corpus, parts)
        alignment = _Alignment(source, ends, heads, parts, audited, files, kinds)
        others = [*np.flatnonzero(kinds == _HELD_OUT).tolist(), *np.flatnonzero(kinds == _OTHER).tolist()]
        if others and alignment.leaves_some:
            more = dict(encode_shards(source, others, encode, runner, phase="encode"))
            alignment = _Alignment(source, ends, heads, more | parts, corpus_side(corpus, more | parts), files, kinds)
        alignment.look_again(runner)
    for head, proven_file in zip(heads, proven, strict=True):
        if head.path.stat().st_size != proven_file.size:
            raise ManifestMismatch(f"{head.path} changed while it was read", "Run the command again.")
    faults = alignment.faults(any_order=options.any_order)
    wrong = not proves(faults, any_order=options.any_order)
    return TokenProof(
        tool=__version__,
        at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        manifest=manifest.id,
        tokenizer=f"sha256:{source.tokenizer.sha256}",
        quarantine=corpus.digests["quarantine"],
        applied=corpus.digests["applied"],
        splits=corpus.splits,
        unread_splits=_unread(manifest, corpus, whole, kinds),
        files=tuple(proven),
        end_token=end,
        begin_token=ends.begin,
        any_order=options.any_order,
        expected=int((~audited.flags).sum()),
        found=len(files.lengths),
        matched=int(alignment.same.sum()),
        matched_tokens=int(files.lengths[alignment.same].sum()),
        empty=audited.empty,
        faults=faults,
        result="differs" if wrong else "proven",
        exit_code=exit_code(faults, proven=not wrong),
    )


def open_readable(manifest: Manifest, splits: Sequence[str], root: Roots) -> Corpus:
    """Open some splits, and all others whose shards can be read here, without any list."""
    readable = list(splits)
    for other in (split_record.name for split_record in manifest.core.splits if split_record.name not in splits):
        with suppress(CorpusRefused):
            open_manifest(manifest.folder, require="verified", root=root, splits=[other])
            readable.append(other)
    return open_manifest(manifest.folder, require="verified", root=root, splits=readable)


def _check_holds(head: TokenFileHead, tokens: Mapping[str, int | None]) -> None:
    """Refuse end and begin tokens that the type of a file's tokens cannot hold."""
    for what, token in tokens.items():
        if token is not None and token > np.iinfo(head.dtype).max:
            raise ConfigError(
                f"--{what}-token {token}: {head.path.name} has tokens of {head.dtype.name}, which end at"
                f" {np.iinfo(head.dtype).max:,}",
                "Name the token that the file has, or the type of its tokens with --dtype.",
            )


def _dtype(path: Path, given: str | None, most: int) -> str:
    """Return the type of a flat file's tokens: what is given, what its map says, or what holds the largest token."""
    if given is not None:
        return given
    try:
        return str(np.dtype(map_metadata(path)["dtype"])) if map_path(path).exists() else _smallest(most)
    except (ConfigError, TypeError):
        return _smallest(most)


def _smallest(most: int) -> str:
    return "uint16" if most < 1 << 16 else "uint32"


def _kinds(manifest: Manifest, corpus: Corpus, whole: Corpus) -> np.ndarray:
    """Return which shards the files may hold: int8[shards], -1 where a shard cannot be read."""
    held_out = {split.name for split in manifest.core.splits if split.held_out}
    each = []
    for row in whole.table.select(["split", "held", "format"]).to_pylist():
        kind = _CHOSEN if row["split"] in corpus.splits else _HELD_OUT if row["split"] in held_out else _OTHER
        each.append(-1 if row["held"] or (kind and row["format"] == STREAMED) else kind)
    return np.array(each, dtype=np.int8)


def _unread(manifest: Manifest, corpus: Corpus, whole: Corpus, kinds: np.ndarray) -> tuple[str, ...]:
    """Return the other splits that have shards which cannot be read."""
    unread = {row for row, kind in zip(whole.table["split"].to_pylist(), kinds.tolist(), strict=True) if kind < 0}
    return tuple(
        split_record.name
        for split_record in manifest.core.splits
        if split_record.name in unread and split_record.name not in corpus.splits
    )


class _Alignment:
    """Which document of the files is which of the manifest."""

    def __init__(
        self,
        source: Source,
        ends: Ends,
        heads: Sequence[TokenFileHead],
        parts: dict[int, list[EncodedPart]],
        audited: Side,
        files: Side,
        kinds: np.ndarray,
    ) -> None:
        self._source, self._ends, self._heads, self._parts = source, ends, heads, parts
        self._audited, self._files, self._kinds = audited, files, kinds
        matched = match(audited.digests, audited.flags, files.digests)
        self._partner = matched.partner.copy()
        self._excluded, self._surplus = matched.excluded, matched.surplus
        self.same = (matched.partner >= 0) & ~matched.excluded
        """bool[files' documents] an audited document, as it was audited."""
        self._truncated = np.zeros(len(files.lengths), dtype=bool)
        self._retokenized = np.zeros(len(files.lengths), dtype=bool)

    @property
    def leaves_some(self) -> bool:
        """Whether the files have documents that no document of the chosen splits explains."""
        return bool((self._partner < 0).any())

    def _unexplained(self) -> np.ndarray:
        return np.flatnonzero((self._partner < 0) & ~self._surplus)

    def _missing(self) -> np.ndarray:
        absent = self._absent()
        missing: np.ndarray = absent[~self._audited.flags[absent]]
        return missing

    def _absent(self) -> np.ndarray:
        """Return the documents that the files lack, those that they should lack behind all others."""
        there = np.zeros(len(self._audited.lengths), dtype=bool)
        there[self._partner[self._partner >= 0]] = True
        absent = np.flatnonzero(~there)
        ordered: np.ndarray = absent[np.argsort(self._audited.flags[absent], kind="stable")]
        return ordered

    def _pair(self, document: int, at: int, how: np.ndarray) -> None:
        """Pair a document of the files with an audited one that it was made of: cut short, or in other tokens."""
        self._partner[document] = at
        (self._excluded if self._audited.flags[at] else how)[document] = True

    def look_again(self, runner: Runner) -> None:
        """Look for documents that the files lack among what has no equal: cut short, or in other tokens."""
        if len(self._unexplained()) and len(self._absent()):
            self._find_texts(runner)
        if len(self._unexplained()) and len(self._absent()):
            self._find_beginnings(runner)

    def _find_texts(self, runner: Runner) -> None:
        unexplained, files, decides = self._unexplained(), self._files, self._source.tokenizer.sha256
        units, places = [], []
        for place, head in enumerate(self._heads):
            own = unexplained[files.where[unexplained] == place]
            own = own[files.flags[own]]
            if not len(own):
                continue
            for some in np.array_split(own, max(1, len(own) // 4096)):
                borders = self._borders(head, some)
                key = digest_json(["text", VERSION, str(head.path), digest_of_numbers(borders), decides])
                units.append(
                    FileUnit(
                        path=head.path,
                        dtype=head.dtype.str,
                        key=key.removeprefix("sha256:"),
                        size=int(files.lengths[some].sum()) * head.dtype.itemsize,
                        starts=borders,
                        only=np.arange(0, 2 * len(some), 2),
                    )
                )
                places.append(some)
        read = ReadTokens(self._source.state, self._ends, self._source.tokenizer)
        run_all(self._source, runner, read, units, kind=READ_TOKENS, phase="decode")
        by_text = defaultdict(list)
        absent = self._absent()
        for at, text in zip(absent.tolist(), self._audited.extra[absent], strict=True):
            by_text[text.tobytes()].append(at)
        store = PartialStore(self._source.state)
        for unit, some in zip(units, places, strict=True):
            digests = digests_of(stored_documents(store, [unit])["digest"])
            store.remove(READ_TOKENS, unit.key)
            for document, text in zip(some.tolist(), digests, strict=True):
                if left := by_text.get(text.tobytes()):
                    self._pair(document, left.pop(0), self._retokenized)

    def _borders(self, head: TokenFileHead, some: np.ndarray) -> np.ndarray:
        """Return int64[2 k] where each of some documents of a file begins and ends."""
        starts = self._files.extra[some]
        if head.starts is None:
            tokens = np.memmap(head.path, dtype=head.dtype, mode="r")
            assert self._ends.end is not None, "a flat file has end tokens"
            stops = [int(flat_borders(tokens, start, start + 1, self._ends.end)[1]) for start in starts.tolist()]
        else:
            stops = head.starts[np.searchsorted(head.starts, starts, "right")]
        return np.stack([starts, np.asarray(stops, dtype=np.int64)], axis=1).reshape(-1)

    def _find_beginnings(self, runner: Runner) -> None:
        absent, store = self._absent(), PartialStore(self._source.state)
        table = self._heads_of(self._unexplained())
        key = digest_json([VERSION, [row.hex() for row in table["head"].to_pylist()], table["length"].to_pylist()])
        key = key.removeprefix("sha256:")
        store.write(WANTED_TOKENS, key, {}, {"heads": table})
        encode = Encode(
            state=self._source.state,
            tokens=self._source.tokens,
            dtype=None,
            end=None,
            look=Beginnings(self._ends, self._source.state, key),
            decides=f"beginnings {VERSION} {key} {self._ends}",
        )
        units, places = self._units_of(absent, encode)
        run_all(self._source, runner, encode, units, kind=ENCODED, phase="compare")
        cut: list[tuple[int, int, bytes]] = []
        left, numbered = set(absent.tolist()), self._numbered(absent)
        for unit, (shard, base) in zip(units, places, strict=True):
            entry = store.read(ENCODED, unit.key)
            store.remove(ENCODED, unit.key)
            matches = None if entry is None else entry.tables.get(DOCUMENTS)
            for row in [] if matches is None else matches.to_pylist():
                at = numbered.get((shard, row["row"] + base, row["piece"]), -1)
                known = at in left and (row["length"] >= _PROOF or not self._audited.flags[at])
                cut += [(row["length"], at, row["tokens"])] if known else []
        store.remove(WANTED_TOKENS, key)
        by_digest: dict[bytes, list[int]] = defaultdict(list)
        for document in self._unexplained().tolist():
            by_digest[self._files.digests[document].tobytes()].append(document)
        flags = self._audited.flags
        for _, at, digest in sorted(cut, key=lambda item: (-item[0], flags[item[1]], item[1])):
            if at in left and (documents := by_digest.get(digest)):
                document = documents.pop(0)
                self._pair(document, at, self._truncated)
                left.remove(at)

    def _heads_of(self, documents: np.ndarray) -> pa.Table:
        """Return the different first tokens and lengths of some documents of the files, sorted."""
        distinct = set[tuple[bytes, int]]()
        for place, head in enumerate(self._heads):
            own = documents[self._files.where[documents] == place]
            tokens = np.memmap(head.path, dtype=head.dtype, mode="r")
            for start, stop in self._borders(head, own).reshape(-1, 2).tolist():
                document = own_tokens(tokens[start:stop], self._ends)
                distinct.add((document[:HEAD].astype("<u4").tobytes(), len(document)))
        heads, lengths = zip(*sorted(distinct), strict=True)
        return pa.table({"head": pa.array(heads, pa.binary()), "length": pa.array(lengths, pa.int64())})

    def _numbered(self, documents: np.ndarray) -> dict[tuple[int, int, int], int]:
        """Return some audited documents by shard, row and which piece of the row they are."""
        where, row = self._audited.where, self._audited.row
        new = np.concatenate([[True], (where[1:] != where[:-1]) | (row[1:] != row[:-1])])
        piece = np.arange(len(row)) - np.flatnonzero(new)[np.cumsum(new) - 1]
        columns = zip(where[documents].tolist(), row[documents].tolist(), piece[documents].tolist(), strict=True)
        return dict(zip(columns, documents.tolist(), strict=True))

    def _units_of(self, absent: np.ndarray, encode: Encode) -> tuple[list[PartUnit], list[tuple[int, int]]]:
        """Return the parts of shards that hold documents which the files lack, each asked for these alone."""
        audited, units, shards = self._audited, list[PartUnit](), list[tuple[int, int]]()
        for ordinal in np.unique(audited.where[absent]).tolist():
            rows = audited.row[absent[audited.where[absent] == ordinal]]
            parts = self._parts[ordinal]
            bases = [part.base for part in parts]
            at = np.searchsorted(bases, rows, "right") - 1
            for place in np.unique(at).tolist():
                own = np.unique(rows[at == place] - bases[place])
                unit = parts[place].unit
                key = encode.key(digest_json([unit.key, digest_of_numbers(own)]))
                units.append(replace(unit, key=key, request=replace(unit.request, only=own)))
                shards.append((ordinal, bases[place]))
        return units, shards

    def faults(self, *, any_order: bool) -> Faults:
        """Return what is not as it was audited."""
        paired = np.flatnonzero((self._partner >= 0) & ~self._excluded)
        stays = np.zeros(len(self._partner), dtype=bool)
        stays[paired[in_order(self._partner[paired])]] = True
        moved = np.zeros(0, dtype=np.int64) if any_order else paired[~stays[paired]]
        missing, audited = self._missing(), self._audited
        named = tuple(
            Case(document=self._name(at), file=None, at=None, start=None, tokens=int(audited.lengths[at]))
            for at in missing[:NAMED].tolist()
        )
        listed = np.flatnonzero(self._excluded)
        kinds = self._kinds[audited.where[self._partner[listed]]]
        return Faults(
            held_out=self._fault(listed[kinds == _HELD_OUT]),
            missing=Fault(documents=len(missing), tokens=int(audited.lengths[missing].sum()), named=named),
            extra=self._fault(self._unexplained()),
            other_split=self._fault(listed[kinds == _OTHER]),
            duplicated=self._fault(np.flatnonzero(self._surplus)),
            held_back=self._fault(listed[kinds == _CHOSEN]),
            truncated=self._fault(np.flatnonzero(self._truncated)),
            retokenized=self._fault(np.flatnonzero(self._retokenized)),
            reordered=self._fault(moved),
        )

    def _fault(self, documents: np.ndarray) -> Fault:
        files = self._files
        named = tuple(
            Case(
                document=None if self._partner[document] < 0 else self._name(int(self._partner[document])),
                file=self._heads[int(files.where[document])].path.name,
                at=int(files.row[document]),
                start=int(files.extra[document]),
                tokens=int(files.lengths[document]),
            )
            for document in documents[:NAMED].tolist()
        )
        return Fault(documents=len(documents), tokens=int(files.lengths[documents].sum()), named=named)

    def _name(self, at: int) -> str:
        """Return ``split/uri:row`` of an audited document."""
        table, shard = self._source.corpus.table, int(self._audited.where[at])
        return f"{table['split'][shard].as_py()}/{table['uri'][shard].as_py()}:{int(self._audited.row[at])}"
