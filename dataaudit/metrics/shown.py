"""What a family has to say of a manifest: its parts of `show` and of the report, what stands out, its facts as JSON.

Who reads manifests goes through the families and asks each for its :class:`Shown`; none of them is named elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.manifest.load import Manifest
from dataaudit.render.blocks import Block, Section, Tone
from dataaudit.render.line import Line, Name, join, say, share
from dataaudit.text import plural

Floats = npt.NDArray[np.float64]
MANY = 0.01
"""Share of documents from which duplicates, a repeated span, toxic text and personal data stand out."""
LONG, NAMED = 80, 10
"""Characters of a name in a sentence that is published, and sources, languages or entities that are named there."""
SHORT = 24
"""Characters of a name in a line that says what stands out."""
_LEAST_NAME = 12


class Kind(IntEnum):
    """What stands out of a manifest, the gravest first."""

    NOTHING_READ = 0
    SECRETS = 1
    UNREAD = 2
    LEAKED = 3
    SIMILAR = 4
    MIXTURE = 5
    DRIFT = 6
    FAR = 7
    BAD_RECORDS = 8
    EXACT_DUPLICATES = 9
    NEAR_DUPLICATES = 10
    REPEATS = 11
    TOXICITY = 12
    PERSONAL_DATA = 13
    UNCONFIRMED = 14
    NOT_JUDGED = 15
    NOT_LOOKED_AT = 16
    ENCODER = 17

    @property
    def grave(self) -> bool:
        """Whether it asks for action before the data is used."""
        return self <= Kind.LEAKED

    @property
    def tone(self) -> Tone:
        """How it is coloured."""
        return "bad" if self.grave else "warn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standout:
    """One thing that stands out."""

    kind: Kind
    part: str
    """Name of the part of `dataaudit show` that says more."""
    area: str = ""
    """Id of the section of the report that says more; that of its family when empty."""
    size: float
    """The larger stands first among those of its kind."""
    text: Line
    """What, with its number; names are short."""
    link: Line = ", in"
    """What leads from the text to the place."""
    place: str = ""
    """Source, or ``split/uri`` of a shard; as it is in the data. Empty without one."""
    shard: int | None = None
    """Ordinal of the shard, when the place is one."""

    def sentence(self, width: int = 120) -> Line:
        """Return the whole in words.

        Args:
            width: Cells that the name of the place may take; a shard's is cut from the left, and left out below 12, as
                its number says which it is. 8 or more.
        """
        if not self.place:
            return self.text
        if self.shard is None:
            return say("{}{} {}", self.text, self.link, Name(self.place, width, ends=True))
        if width < _LEAST_NAME:
            return say("{}{} shard {}", self.text, self.link, str(self.shard))
        return say("{}{} shard {} {}", self.text, self.link, str(self.shard), Name(self.place, width, tail=True))


class Where(TypedDict, total=False):
    """What a place is given as."""

    link: Line
    place: str
    shard: int


def first_of(number: int, many: str = "largest") -> str:
    """Return what leads to the one place, or to the first of several."""
    return ", in" if number == 1 else f", {many} in"


def not_looked_at(part: str, documents: int) -> Standout:
    """Return that documents had more candidates than are looked at, so that every number is a lower bound."""
    text = f"{plural(documents, 'document')} not searched to the end, for too many candidates: numbers are `at least`"
    return Standout(kind=Kind.NOT_LOOKED_AT, part=part, size=documents, text=text)


class Oddity(IntEnum):
    """Why a shard stands out, the gravest first."""

    UNREAD = 0
    LEAK = 1
    SECRET = 2
    FAR = 3
    COPIES = 4
    FEW_COPIES = 5
    BAD_RECORDS = 6
    LISTED = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class OddShard:
    """A reason why a shard stands out."""

    shard: int
    kind: Oddity
    size: float
    """The larger is the graver among those of its kind."""
    text: Line
    shared: Line = ""
    """What it is whatever the shard, in words: most shards may have it. Empty where that is no excuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardValues:
    """A number of every shard, of which each is compared with the median of its source."""

    column: str
    """Name in JSON."""
    text: Line
    """What the number is, in words that it follows."""
    values: Floats
    """By shard, float64; NaN without one."""
    least_sd: float = 0.0
    """Least robust standard deviation, as small shards differ by chance alone."""
    documents: Floats | None = None
    """Documents of each shard, where the number is a share that moves with each of them."""
    only_above: bool = False
    """Whether less than the others have is nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of what is shown."""

    name: str = ""
    """In `dataaudit show`; empty of what only the report has. Parts of several families may have one name."""
    area: str = ""
    """Id of the section of the report that it belongs to; empty of what only `show` has."""
    blocks: Callable[[Manifest], Iterable[Section | Block]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """All that a family says of a manifest."""

    parts: tuple[Part, ...]
    standouts: Callable[[Manifest], Iterable[Standout]] | None = None
    odd_shards: Callable[[Manifest], Iterable[OddShard]] | None = None
    shard_values: Callable[[Manifest], Iterable[ShardValues]] | None = None
    facts: Mapping[str, Callable[[Manifest], Any]] = field(default_factory=dict)
    """What `show --json` and `build --json` say, by key: data classes, lists of them, plain values."""
    long_facts: Mapping[str, Callable[[Manifest], Any]] = field(default_factory=dict)
    """The same of `show --json` alone."""

    sentences: Callable[[Manifest], Iterable[Line]] | None = None
    """What may be published of it, in a card or a catalogue: whole sentences."""

    @property
    def area(self) -> str:
        """Return the section of the report that says most."""
        return next((one.area for one in self.parts if one.area), "")


def listed_shares(shares: Sequence[tuple[Name, float | None]], noun: str) -> Line:
    """Return names with their shares, and how many further ones there are."""
    rest = len(shares) - NAMED
    more = f", {plural(rest, noun)}" if rest > 0 else ""
    return say("{}{}", join(", ", (say("{} {}", name, share(value)) for name, value in shares[:NAMED])), more)


def above(column: pa.ChunkedArray, bound: float) -> list[tuple[int, float]]:
    """Return ordinal and value of the shards whose value is above a bound."""
    chosen = pc.indices_nonzero(pc.fill_null(pc.greater(column, bound), pa.scalar(value=False)))
    return list(zip(chosen.to_pylist(), column.take(chosen).to_pylist(), strict=True))


def floats(column: pa.ChunkedArray | pa.Array) -> Floats:
    """Return a column as float64, NaN where it is null."""
    return np.asarray(pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
