"""The Stage protocol: a metric family, as a frozen dataclass of its parameters.

``tests/conformance`` checks for every registered stage that

* ``merge`` is associative and commutative, ``empty()`` is its identity, zeros are kept;
* a partial survives an Arrow round trip;
* one part or many, one batch or many, give the same merged partial and the same metrics;
* ``map`` of no documents merges as nothing.

A stage does no I/O, has no clock and no Dask, and draws no unseeded random numbers.
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
    """Inputs of ``finalize`` besides its partial."""

    scope: Scope
    """Whole dataset (empty) or a split."""
    mixture: Mapping[str, float]
    """Declared weights by source; empty but for training splits of a config that declares them."""
    reference: Reference | None = None
    """Token counts to compare with."""
    vocab_size: int = 0
    """Largest token id + 1 of the tokenizer."""
    folded: bool = False
    """Whether the source `other` of this stage's partials stands for several."""
    protects: frozenset[str] = frozenset({"held_out", "items"})
    """What the build protects: ``held_out`` documents, ``items`` of evaluation sets; ``held_out_sample``: a sample."""
    trains: bool = True
    """Whether the build has a training document: without any, nothing is known of training data."""


class StageDefaults:
    """Defaults of a stage: it reads texts alone, on every split, and emits nothing."""

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
    """A metric family."""

    name: ClassVar[str]
    """Name in config, partial store and manifest."""
    version: ClassVar[str]
    """Changes whenever the same input may give other partials or metrics."""
    needs: ClassVar[tuple[Annotation[Any], ...]]
    """Annotations that ``map`` or ``emit`` reads."""
    detector: ClassVar[str]
    """The pattern detector whose findings ``map`` or ``emit`` reads; empty when none."""
    training_only: ClassVar[bool]
    """Whether held-out splits are left out."""
    emits: ClassVar[Mapping[str, pa.Schema]]
    """Schemas, by name, of the keyed tables whose rows meet those of other shards; the first column is the key, a
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
        """Return the reference, and a message for the user where nothing can be compared."""
        ...

    def compare_shard(self, partial: Partial, context: Context) -> dict[str, float | int | None]:
        """Return per-shard columns of the manifest; the context's scope is the shard's split."""
        ...


@runtime_checkable
class Limited(Protocol):
    """A stage with a large table per source: the engine folds all but the largest sources into `other`."""

    @property
    def max_sources(self) -> int:
        """Sources that are not folded."""
        ...


def applies(stage: Stage, *, held_out: bool) -> bool:
    """Tell whether a stage reads a split."""
    return not (stage.training_only and held_out)


def parameters(stage: Stage) -> dict[str, Any]:
    """Return a stage's parameters as plain JSON values."""
    return {item.name: getattr(stage, item.name) for item in dataclasses.fields(cast("Any", stage))}


def merge(stage: Stage, partials: Sequence[Partial]) -> Partial:
    """Merge partials of one stage."""
    return merge_all(stage.shapes(), partials)


def nothing(stage: Stage) -> Partial:
    """Return the identity of a stage's merge."""
    return empty(stage.shapes())


_MAX_PENDING = 256
_MIN_ROWS = 1_000_000


class Accumulator:
    """Merges partials of a stage as they come.

    Pending partials are merged once they have as many rows as the merged partial, and ``min_rows`` at least. So there
    are never more rows than twice those of the result and two million, and every row is merged a bounded number of
    times. A merge is lossless, so when it happens changes nothing.
    """

    def __init__(self, stage: Stage, *, min_rows: int = _MIN_ROWS) -> None:
        self._stage = stage
        self._min_rows = min_rows
        self._merged: Partial = nothing(stage)
        self._pending: list[Partial] = []
        self._rows = 0

    def add(self, partial: Partial) -> None:
        """Add a partial."""
        self._pending.append(partial)
        self._rows += num_rows(partial)
        if self._rows >= max(self._min_rows, num_rows(self._merged)) or len(self._pending) >= _MAX_PENDING:
            self.result()

    def result(self) -> Partial:
        """Return the merge of all that was added."""
        if self._pending:
            self._merged = merge(self._stage, [self._merged, *self._pending])
            self._pending, self._rows = [], 0
        return self._merged


def num_rows(partial: Partial) -> int:
    """Return the rows of all tables of a partial."""
    return sum(table.num_rows for table in partial.values())
