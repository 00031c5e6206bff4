"""What is shown of a family: its parts of `show` and of the report, what stands out, its facts as JSON.

Readers of manifests ask each family for its :class:`Shown`; no family is named elsewhere. Below stands what codes mean
(reasons of losses, paths of encoders, absent judges, exit codes); a test finds codes without a text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.errors import ExitCode
from dataaudit.base.render.blocks import Block, Prose, Section, Tone
from dataaudit.base.render.line import Line, Name, join, say, share
from dataaudit.base.text import plural
from dataaudit.manifest.load import Manifest

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
class Highlight:
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
    """Source, or ``split/uri`` of a shard; as it is in the data. Empty where there is none."""
    shard: int | None = None
    """Ordinal of the shard, when the place is a shard."""

    def sentence(self, width: int = 120) -> Line:
        """Return the whole in words."""
        if not self.place:
            return self.text
        if self.shard is None:
            return say("{}{} {}", self.text, self.link, Name(self.place, width, ends=True))
        if width < _LEAST_NAME:
            return say("{}{} shard {}", self.text, self.link, str(self.shard))
        return say("{}{} shard {} {}", self.text, self.link, str(self.shard), Name(self.place, width, tail=True))


def first_of(number: int, many: str = "largest") -> str:
    """Return what leads to the place, or to the first of several."""
    return ", in" if number == 1 else f", {many} in"


def cut_short(documents: int) -> list[Block]:
    """Return that documents had more candidates than are looked at; nothing where none had."""
    many = plural(documents, "document")
    text = f"{many} with too many candidates: not searched to the end. Every number is at least what it says."
    return [Prose(text=text)] if documents else []


def not_looked_at(part: str, documents: int) -> Highlight:
    """Return that documents had more candidates than are looked at, so that every number is a lower bound."""
    text = f"{plural(documents, 'document')} not searched to the end, for too many candidates: numbers are `at least`"
    return Highlight(kind=Kind.NOT_LOOKED_AT, part=part, size=documents, text=text)


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
    """By shard, float64; NaN without a value."""
    least_sd: float = 0.0
    """Least robust standard deviation, as small shards differ by chance alone."""
    documents: Floats | None = None
    """Documents of each shard, where the number is a share that moves with each of them."""
    largest: Floats | None = None
    """Part of each shard that its longest document makes, where the number is a mean that this document moves."""
    only_above: bool = False
    """Whether less than the others have is nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of what is shown."""

    name: str = ""
    """In `dataaudit show`; empty of what only the report has. Parts of several families may share a name."""
    area: str = ""
    """Id of the section of the report that it belongs to; empty of what only `show` has."""
    blocks: Callable[[Manifest], Iterable[Section | Block]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """All that is shown of a family."""

    parts: tuple[Part, ...]
    highlights: Callable[[Manifest], Iterable[Highlight]] | None = None
    odd_shards: Callable[[Manifest], Iterable[OddShard]] | None = None
    shard_values: Callable[[Manifest], Iterable[ShardValues]] | None = None
    facts: Mapping[str, Callable[[Manifest], Any]] = field(default_factory=dict)
    """What `show --json` and `build --json` print, by key: plain values and data classes."""
    long_facts: Mapping[str, Callable[[Manifest], Any]] = field(default_factory=dict)
    """The same of `show --json` alone."""

    sentences: Callable[[Manifest], Iterable[Line]] | None = None
    """What may be published of it, in a card or a catalogue: whole sentences."""

    @property
    def area(self) -> str:
        """Return the main section of the report."""
        return next((part.area for part in self.parts if part.area), "")


def split_and_uri(row: Mapping[str, Any]) -> str:
    """Return ``split/uri`` of a row of the table of shards."""
    return f"{row['split']}/{row['uri']}"


def listed_shares(shares: Sequence[tuple[Name, float | None]], noun: str) -> Line:
    """Return names with their shares, and how many more there are."""
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


_UNEXPLAINED = "a code that this version has no text for"

REASONS: dict[str, str] = {
    "invalid_utf8": "bytes of a record are not UTF-8",
    "invalid_json": "a line is not one JSON value that can be read",
    "not_an_object": "a line is valid JSON, but no object",
    "duplicate_key": "an object in a line names a key twice: readers disagree on which value counts",
    "text_missing": "the text of a record is absent or null",
    "type_mismatch": "the text of a record is no string; numbers are not converted",
    "source_type_mismatch": "the source of a record is neither a string nor absent",
    "oversize_record": "a record is larger than reader.max_line_bytes",
    "not_finite": "NaN or an infinity stands outside the text and is read as null; nothing is lost",
    "wrong_number_of_fields": "a row of a CSV file has another number of fields than its header",
    "too_many_bad_records": "the bad records, or their bytes, are a larger share than reader.max_bad_records",
    "truncated_stream": "the file ends before the end marker of its stream, or is empty: it was cut short",
    "window_too_large": "the zstd or xz file needs over 128 MiB of memory to read; compress it anew",
    "dictionary_needed": "a zstd frame was compressed with a dictionary of its own",
    "expansion_too_large": "the compressed file holds far more than its own size, as a bomb does",
    "corrupt_stream": "the compressed file is damaged, or bytes follow its end",
    "not_parquet": "the file has no readable Parquet footer",
    "corrupt_parquet": "a page or row group of the Parquet file cannot be decoded",
    "encrypted": "the footer or a column of the Parquet file is encrypted; no keys are taken: write it anew, decrypted",
    "not_arrow": "the file is no Arrow stream, and no Arrow file with a readable footer",
    "feather_v1": "the file is Feather of version 1, which is not read; write it anew",
    "corrupt_arrow": "a record batch of the Arrow file cannot be decoded, or something follows its end",
    "unreadable_dataset": "rows of the streamed dataset cannot be decoded",
    "text_column_missing": "no column has the name of the text column",
    "source_column_missing": "no column has the name of the source column",
    "ambiguous_column": "two columns have the name that is asked for",
    "unknown_format": "the file's suffix names no format that is read",
    "link_outside_root": "the file is a link out of the root folder; reader.follow_symlinks allows that",
    "source_pattern_mismatch": "the URI does not match the pattern that gives the source",
    "not_a_file": "a pipe, a device or a socket, not a file",
    "not_found": "the file is gone",
    "permission_denied": "the file may not be read, or its folder not be listed, by this user",
    "io_error": "reading the file failed again and again",
    "changed_while_read": "the file changed while it was read; build again when it is at rest",
    "worker_died": "reading it alone ends the worker process",
    "out_of_memory": "reading it alone needs more memory than a worker has (--memory-limit)",
    "timed_out": "reading it alone does not end in time (--shard-timeout)",
    "quarantine_list": "the quarantine list of the build holds it back",
    "internal_error": "our own code failed on it; please report it",
}

STATUSES: dict[str, str] = {
    "ok": "read as a whole",
    "partial": "read, without its bad records",
    "quarantined": "in no number: it cannot be read, or too much of it is bad",
    "skipped": "in no number: its name or place, or the quarantine list, says that it is not to be read",
}

ENCODERS: dict[str, str] = {
    "ok": "the fast encoder, checked against the reference",
    "unsupported_model": "the reference encoder: the fast one cannot load this model",
    "rewrites_characters": "the reference encoder: the model rewrites characters, which the fast one does otherwise",
    "differs_on_ascii": "the reference encoder: the fast one differs on plain ASCII text with this model",
    "differs_on_mixes": "the reference encoder: the fast one differs on mixed text with this model",
    "sample_difference": "the reference encoder: the fast one differed on a sampled document",
}

ABSENCES: dict[str, str] = {
    "no_judge": "no judge is set in the config",
    "no_analyzer": "no analyzer is set in the config",
    "not_installed": "a library that the judge needs is not installed",
    "weights_absent": "the judge's model is not on this machine and could not be fetched",
    "config_absent": "the settings that belong to the judge's model are not on this machine and could not be fetched",
    "broken_checkpoint": "the file of the judge's model is damaged, or of a form that is not known",
    "unsafe_checkpoint": "the file of the judge's model asks to run code while it is read",
    "no_device": "the device that the config names is not here",
    "not_judged": "the judge has no answer for any document of the sample",
    "empty_denominator": "no document is in a language that the judge reads",
}
"""Why there is no rate of a judge."""

EXIT_CODES: dict[int, str] = {
    ExitCode.PASS: "pass",
    ExitCode.BUDGET_EXCEEDED: "a budget is exceeded",
    ExitCode.WRONG_USE: "wrong use or config",
    ExitCode.NOT_EVALUATED: "could not evaluate: published, but not every shard is in the numbers",
    ExitCode.NOTHING_EVALUATED: "nothing was evaluated: no shard entered the numbers",
    ExitCode.HELD_OUT: "held-out documents are in token files",
    ExitCode.INTERRUPTED: "interrupted",
}


def reason_text(code: str) -> str:
    """Return what a reason code means."""
    return REASONS.get(code, _UNEXPLAINED)


def encoder_text(code: str) -> str:
    """Return who counted the tokens, and why."""
    return ENCODERS.get(code, f"the reference encoder: {code}, {_UNEXPLAINED}")


def absence_text(code: str) -> str:
    """Return why a judge has no rate."""
    return ABSENCES.get(code, f"{code}, {_UNEXPLAINED}")


def exit_text(code: int) -> str:
    """Return what an exit code means."""
    return EXIT_CODES.get(code, _UNEXPLAINED)
