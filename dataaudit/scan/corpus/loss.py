"""Reason codes of what was not read, and the log that counts every loss with its place.

A loss is a value, never an exception that ends a build: the ledger counts it, and everything else is audited.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

MAX_PLACES = 20


class Reason(StrEnum):
    """Reason codes of the ledger; public API, explained by ``dataaudit explain CODE``."""

    INVALID_UTF8 = "invalid_utf8"
    """A record's bytes are not UTF-8."""
    INVALID_JSON = "invalid_json"
    """A line is no JSON value: lone surrogates are no JSON; nesting beyond 1,024 levels and numbers beyond the range of
    a double are not read."""
    NOT_AN_OBJECT = "not_an_object"
    """A line is valid JSON but no object."""
    DUPLICATE_KEY = "duplicate_key"
    """An object in a line names a key twice."""
    TEXT_MISSING = "text_missing"
    """The text is absent or null."""
    TEXT_TYPE = "type_mismatch"
    """The text is no string; numbers are not coerced."""
    SOURCE_TYPE = "source_type_mismatch"
    """The source is neither a string nor absent."""
    OVERSIZE = "oversize_record"
    """A record is larger than ``reader.max_line_bytes`` (JSON lines: the line; other formats: the text)."""
    CSV_FIELDS = "wrong_number_of_fields"
    """A row of a CSV file has another number of fields than its header, or quotes do not match (evaluation sets)."""
    NOT_FINITE = "not_finite"
    """A remark, no loss: NaN or an infinity stands outside the text, which is no JSON, and is read as null."""
    TOO_MANY_BAD = "too_many_bad_records"
    """The bad records of a shard, or their bytes, are a larger share than ``reader.max_bad_records``."""
    TRUNCATED = "truncated_stream"
    """A compressed stream, or a stream of Arrow batches, ends before its end marker, or has no byte at all."""
    CORRUPT_STREAM = "corrupt_stream"
    """A compressed stream is damaged, or followed by bytes that are none."""
    WINDOW = "window_too_large"
    """A zstd frame or an xz stream needs more than 128 MiB of memory."""
    DICTIONARY = "dictionary_needed"
    """A zstd frame was compressed with a dictionary, which is a file of its own; none is taken."""
    EXPANSION = "expansion_too_large"
    """A compressed file holds more than 10,000 times its own size: a bomb, or damage that looks like one."""
    NOT_PARQUET = "not_parquet"
    """The file has no readable Parquet footer."""
    CORRUPT_PARQUET = "corrupt_parquet"
    """A page or row group of a Parquet file cannot be decoded."""
    ENCRYPTED = "encrypted"
    """The footer of a Parquet file, or a column that is asked for, is encrypted; no keys are taken."""
    NOT_ARROW = "not_arrow"
    """The file is no Arrow file (it has no readable footer) and no Arrow stream."""
    OLD_FEATHER = "feather_v1"
    """The file is Feather of version 1, which is no Arrow format and is not read."""
    CORRUPT_ARROW = "corrupt_arrow"
    """A record batch of an Arrow file cannot be decoded, or something follows its end."""
    DATASET = "unreadable_dataset"
    """Rows of a streamed dataset cannot be decoded."""
    TEXT_COLUMN = "text_column_missing"
    """The shard has no column of the configured name."""
    SOURCE_COLUMN = "source_column_missing"
    """The shard has no column of the configured name for the source."""
    AMBIGUOUS_COLUMN = "ambiguous_column"
    """The shard has two columns of the configured name."""
    NOT_A_FILE = "not_a_file"
    """A pipe, a device or a socket, which could be read only once or never ends."""
    UNKNOWN_FORMAT = "unknown_format"
    """The file's suffix names no format that is read."""
    OUTSIDE_ROOT = "link_outside_root"
    """A link leads out of the root folder, and ``reader.follow_symlinks`` is off."""
    PATTERN_MISMATCH = "source_pattern_mismatch"
    """The shard's URI does not match the pattern that gives its source."""
    NOT_FOUND = "not_found"
    """The file is gone."""
    PERMISSION = "permission_denied"
    """The file may not be read, or the folder may not be listed."""
    IO_ERROR = "io_error"
    """Reading failed repeatedly."""
    CHANGED = "changed_while_read"
    """The file changed between its hash and the end of its scan."""
    WORKER_DIED = "worker_died"
    """Reading it alone ends the process, again and again."""
    OUT_OF_MEMORY = "out_of_memory"
    """Reading it alone needs more memory than a worker has."""
    TIMED_OUT = "timed_out"
    """Reading it alone does not come to an end in time."""
    QUARANTINE_LIST = "quarantine_list"
    """The list that the build was given holds the shard back: left out on purpose, and not counted as unread."""
    INTERNAL = "internal_error"
    """Our own code failed on it; please report it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Records lost for a reason at a place, or at all places that are no longer listed."""

    reason: Reason
    place: str
    """``record 17``, ``row group 3``, empty for a whole shard."""
    records: int
    """-1 when it cannot be known."""
    num_bytes: int
    """Decoded bytes of a record, stored bytes of a whole shard."""


class ShardUnreadable(Exception):
    """A reader can trust nothing of a shard, which is quarantined."""

    def __init__(self, reason: Reason, place: str = "") -> None:
        super().__init__(reason, place)
        self.reason = reason
        self.place = place


@dataclass(slots=True)
class LossLog:
    """Counts the bad records of a sub-shard by reason, and their decoded bytes."""

    records: dict[Reason, int] = field(default_factory=dict)
    num_bytes: dict[Reason, int] = field(default_factory=dict)
    places: dict[Reason, list[tuple[int, int]]] = field(default_factory=dict)
    """(record number, bytes) of the first :data:`MAX_PLACES` of each reason."""
    remarks: dict[Reason, tuple[int, int]] = field(default_factory=dict)
    """(records, number of the first) of records that were read with a remark, by reason."""

    def add(self, reason: Reason, row: int, num_bytes: int) -> None:
        """Count a bad record, ``row`` being its number in the sub-shard."""
        self.records[reason] = self.records.get(reason, 0) + 1
        self.num_bytes[reason] = self.num_bytes.get(reason, 0) + num_bytes
        listed = self.places.setdefault(reason, [])
        if len(listed) < MAX_PLACES:
            listed.append((row, num_bytes))

    def remark(self, reason: Reason, row: int) -> None:
        """Count a record that is read all the same, ``row`` being its number in the sub-shard."""
        number, first = self.remarks.get(reason, (0, row))
        self.remarks[reason] = (number + 1, first)
