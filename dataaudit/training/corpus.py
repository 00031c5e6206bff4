"""A corpus that was opened: what loaders, tags, the run log and attribution ask of it, shared by a node's processes.

The processes map the same Arrow IPC files, named by their digest. A row of the table is a shard, and its number the
shard's ordinal in the manifest. What else a training run asks of the manifest is JSON in the schema's metadata. The
documents to skip lie in a second file, a sorted number for each document: :func:`dataaudit.manifest.locate.places_of`.
"""

from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit import __version__
from dataaudit.base.cache import private_folder, user_places
from dataaudit.base.errors import ConfigError, CorpusRefused
from dataaudit.base.files import write_whole
from dataaudit.base.yamlfile import nearest
from dataaudit.manifest.locate import places_of, rows_of
from dataaudit.manifest.tables import COUNT, RATIO, STRING
from dataaudit.manifest.tables import field as column
from dataaudit.scan.corpus.fields import FieldRule, recorded_rule
from dataaudit.scan.corpus.storage.address import Access, parse_address, scheme_of

FORM: Final = {"name": "dataaudit-corpus", "version": 1}
_ABOUT = b"dataaudit"
COPIED = ("shard", "split", "uri", "format", "compression", "size", "sha256", "rows_digest", "status")
COUNTS = ("rows", "documents", "tokens", "bytes")
METRICS = (
    "bytes_per_token",
    "seq_len_p50",
    "exact_dup_rate",
    "near_dup_rate",
    "repeat_token_share",
    "token_kl_drift",
    "filter_reject_rate",
    "toxicity_screen",
    "pii_documents",
    "secret_hits",
    "contaminated",
    "held_out_copies",
)
"""What attribution shows of a shard."""
COUNTED = frozenset({"pii_documents", "secret_hits", "contaminated", "held_out_copies"})
"""Those of them that count documents."""
SCHEMA: Final = pa.schema(
    [
        column("shard", pa.int32(), "ordinal in the manifest; the number of the row"),
        column("split", STRING, "split"),
        column("uri", STRING, "URI relative to the root"),
        column("format", STRING, "how its records are stored"),
        column("compression", STRING, "how its bytes are compressed"),
        column("size", COUNT, "stored bytes"),
        column("sha256", STRING, "of the stored bytes, hex; of a streamed dataset its rows_digest; empty: unread"),
        column("rows_digest", STRING, "sha256 over the documents' texts and sources in order", null=True),
        column("status", STRING, "ok, partial, quarantined or skipped"),
        column("rows", COUNT, "rows of the shard, as in the manifest"),
        column("documents", COUNT, "documents that are read of it, with those that the list of the build held back"),
        *(column(name, COUNT, f"{name} of the shard, as in the manifest") for name in COUNTS[2:]),
        column("path", STRING, "file or address that opens it now; empty when it is held or streamed"),
        column("held", STRING, "why loaders do not get it; empty: they do"),
        column("twin_of", pa.int32(), "lowest ordinal of the shards with equal bytes; its own when there is none"),
        *(column(name, COUNT if name in COUNTED else RATIO, "as in the manifest", null=True) for name in METRICS),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """Who judged that the manifest passed."""

    policy: str
    """Name, or URI, of the policy."""
    version: str
    """Of the policy; empty when unknown."""
    digest: str
    """``sha256:<hex>`` of the policy; empty when unknown."""
    signer: str
    """Whose signature holds; empty when the manifest was judged as it was opened."""
    at: str
    """When the signed verdict was given, UTC, ISO 8601; empty when the manifest was judged as it was opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Metadata of the table."""

    id: str
    """Of the manifest."""
    dataset: str
    """``name@version``."""
    passed: Passed | None
    """None when the manifest was verified only."""
    digests: Mapping[str, str]
    """Digests that the run depends on, by name; empty where there is no such thing."""
    splits: tuple[str, ...]
    """Those that were chosen, sorted."""
    sources: tuple[str, ...]
    """Every source of the corpus, sorted: a source's code is its index."""
    config: Mapping[str, Any]
    """``core.config`` of the manifest."""


def make_table(shards: pa.Table, *, paths: Sequence[str], held: Sequence[str], about: About) -> pa.Table:
    """Return the table of shards."""
    made = {
        "path": pa.array(paths, STRING),
        "held": pa.array(held, STRING),
        "documents": _documents(shards),
        "twin_of": pa.array(lowest_equal(shards["sha256"]), pa.int32()),
    }
    columns = [made[name] if name in made else shards[name] for name in SCHEMA.names]
    metadata = json.dumps({"schema": FORM, **asdict(about)}, sort_keys=True).encode()
    return pa.table(columns, schema=SCHEMA.with_metadata({_ABOUT: metadata})).combine_chunks()


def _documents(shards: pa.Table) -> pa.ChunkedArray:
    """Return the documents that are read of each shard: those that are quarantined are in the file as well."""
    was_read = pc.is_in(shards["status"], pa.array(["ok", "partial"]))
    there = pc.subtract(shards["rows"], shards["bad_records"])
    return pc.if_else(was_read, there, shards["documents"])


def about_of(table: pa.Table) -> About:
    """Return the metadata of a table."""
    about = json.loads((table.schema.metadata or {}).get(_ABOUT, b"null"))
    schema = about.pop("schema", None) if isinstance(about, dict) else None
    if schema != FORM:
        raise ConfigError(f"expected a table of shards, {FORM}, found {str(schema)[:100]}")
    about["passed"] = None if about["passed"] is None else Passed(**about["passed"])
    return About(**about | {name: tuple(about[name]) for name in ("splits", "sources")})


def sources_of(shards: pa.Table) -> tuple[str, ...]:
    """Return every source in the column ``sources`` of a table of shards, sorted."""
    return tuple(sorted(pc.unique(pc.struct_field(pc.list_flatten(shards["sources"]), "source")).to_pylist()))


def listed_places(lists: Sequence[pa.Table]) -> np.ndarray:
    """Return ``shard << 40 | row`` of the documents that any of some lists names."""
    places = [places_of(part["shard"].to_numpy(), part["row"].to_numpy()) for part in lists]
    return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *places]))


def rows_in(places: np.ndarray, shard: int) -> np.ndarray:
    """Return the rows of one shard."""
    low, high = np.searchsorted(places, places_of(np.array([shard, shard + 1]), np.zeros(2, dtype=np.int64)))
    return rows_of(places[low:high])


def cache_folder(given: Path | None) -> Path:
    """Return the folder of the shared files, created."""
    if given is not None:
        try:
            given.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"the cache folder {given} cannot be made: {error.strerror}") from None
        return given.absolute()
    folder = private_folder(*user_places("corpora"))
    if folder is None:
        raise ConfigError("no folder for the shared table of shards can be written", "Name one: cache=FOLDER.")
    return folder


def share(table: pa.Table, kind: str, folder: Path) -> Path:
    """Write a table as one Arrow IPC file, named by its digest, unless it is there; return its path.

    A file that is there is compared with the digest, and written anew when it was cut or changed. Processes that do so
    at once write equal bytes, and each file appears whole.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        for batch in table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]:
            writer.write_batch(batch)
    data = sink.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    path = folder / f"{kind}-{digest}.arrow"
    try:
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            write_whole(path, data)
    except OSError as error:
        raise ConfigError(
            f"the shared table {path} cannot be written: {error.strerror}", "Free space or name a folder: cache=FOLDER."
        ) from None
    return path


def open_shared(path: Path) -> pa.Table:
    """Return a table of :func:`share`, memory-mapped."""
    try:
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(
            f"the shared table {path} cannot be read: {str(error).partition(chr(10))[0]}", "Open the manifest again."
        ) from None


def lowest_equal(digests: pa.ChunkedArray) -> np.ndarray:
    """Return for each shard the lowest ordinal with equal bytes, its own where it was not read: int64[shards]."""
    codes = digests.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    return np.where(pc.equal(digests, "").to_numpy(), np.arange(len(codes)), first[inverse]).astype(np.int64)


_DECIDE_EXCLUDED = frozenset({"manifest", "quarantine", "applied", "splits"})
_SHOWN = 26
"""Characters of a digest, or of a version, in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """What :func:`dataaudit.training.opening.open_manifest` allows to be trained on.

    It is pickled as the paths of two files; whoever gets it, a loader's worker for one, maps the same memory.

    **Duplicate files.** A file that is listed twice, or two files of equal bytes, are shards of their own: each is
    read, tagged and counted under its own ordinal. They are quarantined together, since the list goes by digests.
    ``twin_of`` names the lowest ordinal of equal bytes, under which attribution adds them up.
    """

    file: Path
    """The table of shards: an Arrow IPC file."""
    drops_file: Path
    """The documents to skip: an Arrow IPC file."""
    notes: tuple[str, ...] = ()
    """How the files were checked, and what nobody should overlook; a sentence each."""

    table: pa.Table = field(init=False, repr=False, compare=False)
    """Memory-mapped; a row a shard, its number the shard's ordinal: :data:`dataaudit.training.corpus.SCHEMA`."""
    drops: np.ndarray = field(init=False, repr=False, compare=False)
    """int64[documents to skip], sorted and memory-mapped: ``shard << 40 | row``."""
    encoders: dict[str, bool] = field(init=False, repr=False, compare=False, default_factory=dict)
    """Those whose tokens this process reads, by name: whether they count tokens as the audit did."""
    readers: list[weakref.ref[Any]] = field(init=False, repr=False, compare=False, default_factory=list)
    """Documents and token files that this process reads, as long as they are there: they know the tokens of a tag."""
    _about: About = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Map both files."""
        table, drops = open_shared(self.file), open_shared(self.drops_file)
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "drops", drops["place"].chunk(0).to_numpy())
        object.__setattr__(self, "_about", about_of(table))

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Corpus, file=self.file, drops_file=self.drops_file, notes=self.notes), ()

    def __repr__(self) -> str:
        """Return what it is of and how many shards loaders get, on one line."""
        reasons = self.table["held"].to_pylist()
        return f"<Corpus {self.dataset}: {reasons.count('')} of {len(reasons)} shards; {self.id}>"

    @property
    def id(self) -> str:
        """Id of the manifest."""
        return self._about.id

    @property
    def dataset(self) -> str:
        """``name@version``."""
        return self._about.dataset

    @property
    def verdict(self) -> Passed | None:
        """Who judged that it passed; None when the manifest was verified only."""
        return self._about.passed

    @property
    def quarantine_digest(self) -> str:
        """Digest of the quarantine list; empty without one."""
        return self._about.digests["quarantine"]

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that were chosen, sorted."""
        return self._about.splits

    @property
    def sources(self) -> tuple[str, ...]:
        """Every source of the manifest, of excluded shards too, sorted; a source's code is its index, -1 any other."""
        return self._about.sources

    @property
    def digests(self) -> Mapping[str, str]:
        """By name: manifest, policy, quarantine, applied, tokenizer, config, held; empty where there is no such thing.

        ``held`` is the digest of what is left out, shards and documents: that of the same list changes on the day when
        an entry of it ends.
        """
        return MappingProxyType(dict(self._about.digests))

    @property
    def tokenizer(self) -> str:
        """Whose ids this process reads: the manifest's tokenizer's digest, or encoders' names; empty: not known."""
        if self.encoders and all(self.encoders.values()):
            return self.digests["tokenizer"]
        return "" if "" in self.encoders else ", ".join(sorted(self.encoders))

    def add_encoder(self, name: str, shards: np.ndarray, documents: np.ndarray, tokens: np.ndarray) -> None:
        """Keep whose tokens are read, and whether they are as many as the audit counted.

        Documents may have one or two special tokens more, all of them alike. Shards that lack documents do not count.

        Args:
            name: Of the encoder.
            shards: int64[n] ordinals.
            documents: int64[n] documents of each.
            tokens: int64[n] tokens of these.
        """
        there, audited = (self.table[column].to_numpy()[shards] for column in ("documents", "tokens"))
        whole = (documents == there) & [not len(self.dropped(shard)) for shard in shards.tolist()]
        documents, more = documents[whole], (tokens - audited)[whole]
        same = documents.any() and any((more == special * documents).all() for special in range(3))
        same = bool(same) or name.endswith(self.digests["tokenizer"])
        self.encoders[name] = same and self.encoders.get(name, True)

    def path(self, shard: int) -> str:
        """Return what opens a shard's file; of a remote one an address that the readers know as such.

        Raises:
            CorpusRefused: It is excluded, or is no file.
        """
        path: str = self.table["path"][shard].as_py()
        if not path:
            split, uri, why = (self.table[name][shard].as_py() for name in ("split", "uri", "held"))
            raise CorpusRefused(f"{split}/{uri} has no file to open: {why or 'its rows are streamed'}")
        return parse_address(path, "path").remote_path(Access()) if scheme_of(path) else path

    def dropped(self, shard: int) -> np.ndarray:
        """Return the rows of a shard to skip: int64, sorted."""
        return rows_in(self.drops, shard)

    def fields(self, shard: int) -> FieldRule:
        """Return the rule of text and source that the audit read a shard by.

        Raises:
            ConfigError: The manifest's config does not have it.
            ShardUnreadable: The shard's URI does not tell its source; the audit did not read it either.
        """
        split, uri, format_ = (self.table[name][shard].as_py() for name in ("split", "uri", "format"))
        return recorded_rule(self._about.config, split, uri, format_)

    def state(self) -> dict[str, str]:
        """Return what a checkpoint keeps, to be compared when the run goes on."""
        return {**self._about.digests, "splits": ",".join(self.splits), "library": __version__}

    def compare(self, state: Mapping[str, str], allow: Iterable[str] = ()) -> None:
        """Compare what a checkpoint keeps with this corpus.

        Args:
            state: Of :meth:`state`.
            allow: Names of what may differ: ``manifest``, ``policy``, ``quarantine``, ``applied``, ``tokenizer``,
                ``config``, ``held``, ``splits``, ``library``. What is left out may differ when something else that
                decides it may.

        Raises:
            CorpusRefused: Something else differs; all of it is named.
            ConfigError: ``allow`` has an unknown name, or ``state`` is none of a corpus.
        """
        own = self.state()
        allowed = (allow,) if isinstance(allow, str) else tuple(allow)
        for name in allowed:
            if name not in own:
                raise ConfigError(f"allow: no `{name}`{nearest(name, list(own))}")
        if not isinstance(state, Mapping) or own.keys() != state.keys():
            raise ConfigError(f"expected the state of a corpus, with {', '.join(own)}; found something else")
        differ = [name for name in own if state[name] != own[name]]
        if _DECIDE_EXCLUDED.intersection(differ) and "held" in differ:
            differ.remove("held")
        if others := [name for name in differ if name not in allowed]:
            shown = "; ".join(f"{name} was {_shown(state[name])}, is {_shown(own[name])}" for name in others)
            raise CorpusRefused(
                f"the checkpoint is of another corpus: {shown}",
                f"Open what it was made with, or allow what differs by name: allow={tuple(differ)!r}.",
            )


def _shown(value: object) -> str:
    text = str(value)
    return f"{text[:_SHOWN]}..." if len(text) > _SHOWN else text or "none"
