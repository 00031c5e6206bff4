"""The Stage protocol: one metric family, as a frozen dataclass of its parameters.

Laws, checked for every registered stage by ``tests/conformance``:

* ``merge`` is associative and commutative, ``empty()`` is its identity, zeros are kept;
* a partial survives an Arrow round trip;
* one part or many, one batch or many, give the same merged partial and the same metrics;
* ``map`` of no documents merges as nothing.

A stage does no I/O, knows no clock and no Dask, and draws no unseeded random numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import pyarrow as pa

from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Metric, Scope
from dataaudit.scan.corpus.batch import Annotation, DocBatch
from dataaudit.scan.corpus.tokens import TokenizerFile
from dataaudit.scan.stages.partial import Partial, Reference, TableShape, empty, merge_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What ``finalize`` may know besides its partial."""

    scope: Scope
    """Whole dataset (empty) or one split."""
    mixture: Mapping[str, float]
    """Declared weights by source; empty but for training splits of a config that declares them."""
    reference: Reference | None = None
    """Token counts to compare with; None without a reference."""
    vocab_size: int = 0
    """Largest token id + 1 of the tokenizer."""
    folded: bool = False
    """Whether the source `other` of this stage's partials stands for several."""
    protects: frozenset[str] = frozenset({"held_out", "items"})
    """What the build protects: ``held_out`` documents, ``items`` of evaluation sets."""
    trains: bool = True
    """Whether the build has a training document: without one nothing can be said of what is in training data."""


class StageDefaults:
    """What a stage is unless it says otherwise: it looks at texts alone, on every split, and emits nothing."""

    __slots__ = ()
    needs: ClassVar[tuple[Annotation[Any], ...]] = ()
    detector: ClassVar[str] = ""
    training_only: ClassVar[bool] = False
    emits: ClassVar[Mapping[str, pa.Schema]] = MappingProxyType({})

    def emit(self, batch: DocBatch) -> dict[str, pa.Table]:
        """Nothing has to meet other shards."""
        del batch
        return {}


@runtime_checkable
class Stage(Protocol):
    """One metric family."""

    name: ClassVar[str]
    """Name in config, partial store and manifest."""
    version: ClassVar[str]
    """Changes whenever the same input may give other partials or metrics."""
    needs: ClassVar[tuple[Annotation[Any], ...]]
    """What ``map`` or ``emit`` looks at of documents beside their texts."""
    detector: ClassVar[str]
    """The pattern detector whose findings ``map`` or ``emit`` looks at; empty when none."""
    training_only: ClassVar[bool]
    """Whether held-out splits are left out."""
    emits: ClassVar[Mapping[str, pa.Schema]]
    """Schemas, by name, of the keyed tables for what must meet other shards; the first column is the key, a
    fixed-size binary, the second ``row``, the record number within the part."""

    def shapes(self) -> Mapping[str, TableShape]:
        """Return the tables of its partials; every one has the key column ``source``."""
        ...

    def map(self, batch: DocBatch) -> Partial:
        """Return the partial of some documents."""
        ...

    def emit(self, batch: DocBatch) -> dict[str, pa.Table]:
        """Return keyed rows for the link step: a table for every name of ``emits``."""
        ...

    def finalize(self, partial: Partial, context: Context) -> Sequence[Metric]:
        """Return the metrics of a scope and of each source in it."""
        ...

    def shard_columns(self, partial: Partial) -> Mapping[str, Any]:
        """Return the per-shard columns of the manifest that this stage fills."""
        ...


@runtime_checkable
class Comparing(Protocol):
    """A stage whose per-shard columns compare the shard with the reference; without one they are null."""

    def read_reference(self, manifest: Manifest, tokenizer: TokenizerFile) -> tuple[Reference, str]:
        """Return what is compared with, and what the user should be told where nothing can be."""
        ...

    def compare_shard(self, partial: Partial, context: Context) -> dict[str, float | int | None]:
        """Return per-shard columns of the manifest; the context's scope is the shard's split."""
        ...


@runtime_checkable
class Limited(Protocol):
    """A stage with a large table per source: the engine folds all but the largest sources into `other`."""

    @property
    def max_sources(self) -> int:
        """Sources that are kept apart."""
        ...


def applies(stage: Stage, *, held_out: bool) -> bool:
    """Tell whether a stage looks at a split."""
    return not (stage.training_only and held_out)


def parameters(stage: Stage) -> dict[str, Any]:
    """Return a stage's parameters as plain JSON values."""
    names = (item.name for item in dataclasses.fields(cast("Any", stage)))
    return {name: getattr(stage, name) for name in names}


def merge(stage: Stage, partials: Sequence[Partial]) -> Partial:
    """Merge partials of one stage."""
    return merge_all(stage.shapes(), partials)


def nothing(stage: Stage) -> Partial:
    """Return the identity of a stage's merge."""
    return empty(stage.shapes())


_MAX_HELD = 256
_MIN_ROWS = 1_000_000


class Accumulator:
    """Holds one merged partial and some that are not merged yet.

    What is held is merged once it has as many rows as the merged partial, and a million at least: so there
    are never more rows than twice those of the result and two million, and every row is merged a bounded number
    of times. A merge is lossless, so when it happens changes nothing.

    Args:
        stage: Whose partials these are.
        min_rows: Rows below which nothing is merged but for its number of pieces.
    """

    def __init__(self, stage: Stage, *, min_rows: int = _MIN_ROWS) -> None:
        self._stage = stage
        self._min_rows = min_rows
        self._merged: Partial = nothing(stage)
        self._held: list[Partial] = []
        self._rows = 0

    def add(self, partial: Partial) -> None:
        """Take one more partial."""
        self._held.append(partial)
        self._rows += num_rows(partial)
        if self._rows >= max(self._min_rows, num_rows(self._merged)) or len(self._held) >= _MAX_HELD:
            self.result()

    def result(self) -> Partial:
        """Merge what is held and return all that was added."""
        if self._held:
            self._merged = merge(self._stage, [self._merged, *self._held])
            self._held, self._rows = [], 0
        return self._merged


def num_rows(partial: Partial) -> int:
    """Return the rows of all tables of a partial."""
    return sum(table.num_rows for table in partial.values())
