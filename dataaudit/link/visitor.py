"""Visitor: what looks a second time at documents that the link step asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import pyarrow as pa

from dataaudit.corpus.batch import DocBatch
from dataaudit.corpus.tokens import TokenBatch

Encode = Callable[[pa.LargeStringArray], TokenBatch]
"""Encodes texts with the tokenizer of the build."""


@runtime_checkable
class Visitor(Protocol):
    """A frozen, picklable dataclass of plain JSON parameters, unless it is :class:`Decided`.

    No I/O but the loading of a model, no clock, no unseeded randomness.
    """

    name: ClassVar[str]
    """Name in the partial store."""
    version: ClassVar[str]
    """Changes whenever the same documents may give another result."""
    needs_words: ClassVar[bool]
    """Whether it looks at words."""
    emits: ClassVar[Mapping[str, pa.Schema]]
    """Schemas of the results that are keyed rows for a further join; all other results are small tables."""

    def visit(self, batch: DocBatch, wanted: pa.Table, encode: Encode) -> dict[str, pa.Table]:
        """Return a table for each name, always the same names; they are joined over the batches of a part.

        Args:
            batch: Documents of one part that were asked for, in order; ``rows`` counts from the part's first record.
            wanted: What was asked of them: ``row`` int64, ascending, each at least once, and columns of its own.
            encode: Encodes texts.
        """
        ...


@runtime_checkable
class Decided(Protocol):
    """A visitor whose fields are no plain JSON, or do not all decide what it finds."""

    def decisive(self) -> dict[str, Any]:
        """Return what decides what it finds, as plain JSON values."""
        ...


@runtime_checkable
class Slow(Protocol):
    """A visitor that takes longer than reading does."""

    seconds: ClassVar[float]
    """Time that it may take for a document on the mean; a part that takes longer counts as stuck."""


def identity_of(visitor: Visitor) -> dict[str, Any]:
    """Return what decides what a visitor finds, as plain JSON values."""
    return visitor.decisive() if isinstance(visitor, Decided) else asdict(cast("Any", visitor))
