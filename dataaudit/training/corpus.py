"""A corpus that was opened: what loaders, tags, the run log and attribution ask of it, shared by a node's processes."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from dataaudit import __version__
from dataaudit.corpus.fields import FieldRule, recorded_rule
from dataaudit.corpus.storage.address import Access, parse_address, scheme_of
from dataaudit.errors import ConfigError, CorpusRefused
from dataaudit.training.shardtable import About, Passed, about_of, open_shared, rows_in
from dataaudit.yamlfile import nearest

_DECIDE_HELD = frozenset({"manifest", "quarantine", "applied", "splits"})
_SHOWN = 26
"""Characters of a digest, or of a version, in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """What :func:`dataaudit.training.opening.open_manifest` allows to be trained on.

    It is pickled as the paths of two files; whoever gets it, a loader's worker for one, maps the same memory.

    **Twins.** A file that is listed twice, or two files of equal bytes, are shards of their own: each is read, tagged
    and counted under its own ordinal. They are held together, since a quarantine list goes by digests. ``twin_of``
    names the lowest ordinal of equal bytes, under which attribution adds them up.
    """

    file: Path
    """The table of shards: an Arrow IPC file."""
    drops_file: Path
    """The documents to skip: an Arrow IPC file."""
    notes: tuple[str, ...] = ()
    """How the files were checked, and what nobody should overlook; a sentence each."""

    table: pa.Table = field(init=False, repr=False, compare=False)
    """Memory-mapped; a row a shard, its number the shard's ordinal: :data:`dataaudit.training.shardtable.SCHEMA`."""
    drops: np.ndarray = field(init=False, repr=False, compare=False)
    """int64[documents to skip], sorted and memory-mapped: ``shard << 40 | row``."""
    encoders: dict[str, bool] = field(init=False, repr=False, compare=False, default_factory=dict)
    """Those whose tokens this process reads, by name: whether they count tokens as the audit did."""
    readers: list[weakref.ref[Any]] = field(init=False, repr=False, compare=False, default_factory=list)
    """Documents and token files that this process reads, as long as they are there: they know the tokens of a tag."""
    _about: About = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Map both files.

        Raises:
            ConfigError: One of them is absent or damaged.
        """
        table, drops = open_shared(self.file), open_shared(self.drops_file)
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "drops", drops["place"].chunk(0).to_numpy())
        object.__setattr__(self, "_about", about_of(table))

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Corpus, file=self.file, drops_file=self.drops_file, notes=self.notes), ()

    def __repr__(self) -> str:
        """Return what it is of and how many shards loaders get, on one line."""
        held = self.table["held"].to_pylist()
        return f"<Corpus {self.dataset}: {held.count('')} of {len(held)} shards; {self.id}>"

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
        """Who said PASSED; None when the manifest was verified only."""
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
        """Every source of the manifest, of held shards too, sorted; a source's code is its place, -1 any other one."""
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

        Documents may have one or two special tokens more, all of them alike. Shards that lack documents say nothing.

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
            CorpusRefused: It is held, or is no file.
        """
        found: str = self.table["path"][shard].as_py()
        if not found:
            row = {name: self.table[name][shard].as_py() for name in ("split", "uri", "held")}
            raise CorpusRefused(
                f"{row['split']}/{row['uri']} has no file to open: {row['held'] or 'its rows are streamed'}"
            )
        return parse_address(found, "path").remote_path(Access()) if scheme_of(found) else found

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
        """Hold what a checkpoint keeps against this corpus.

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
        if _DECIDE_HELD.intersection(differ) and "held" in differ:
            differ.remove("held")
        if others := [name for name in differ if name not in allowed]:
            said = "; ".join(f"{name} was {_shown(state[name])}, is {_shown(own[name])}" for name in others)
            raise CorpusRefused(
                f"the checkpoint is of another corpus: {said}",
                f"Open what it was made with, or allow what differs by name: allow={tuple(differ)!r}.",
            )


def _shown(value: object) -> str:
    text = str(value)
    return f"{text[:_SHOWN]}..." if len(text) > _SHOWN else text or "none"
