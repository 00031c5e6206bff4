"""Models of ``manifest.json``: ``{"id", "core", "run"}``.

``id`` is the sha256 of ``core`` in canonical JSON (RFC 8785). ``core`` holds the numbers and what decided them; ``run``
may differ between two runs with the same numbers. Integers stay below 2^53. Every change of a field or a column is a
new schema version, and a reader refuses a newer version, so it never ignores a field that it does not understand.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field

from dataaudit.manifest.canonical import digest_json

SCHEMA_NAME: Final = "dataaudit-manifest"
SCHEMA_VERSION: Final = 2
PROGRAM: Final = "urn:dataaudit"
"""Prefix of this program's own URIs; none is an address on a network."""
VERDICT_LISTS: Final = "quarantineLists"
"""Field of a signed verdict: digest and ids of lines of the quarantine lists that the manifest was compared with."""
Count = Annotated[int, Field(ge=0, lt=2**53)]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class Model(BaseModel):
    """A record of JSON whose every key is known."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class SchemaId(Model):
    """Name and version of the manifest's schema."""

    name: Literal["dataaudit-manifest"] = SCHEMA_NAME
    version: Literal[2] = SCHEMA_VERSION


class Named(Model):
    """A name with a version."""

    name: str
    version: str

    @property
    def label(self) -> str:
        """``name@version``."""
        return f"{self.name}@{self.version}"


class CountedBy(Model):
    """Documents and bytes that one encoder counted."""

    documents: Count
    bytes: Count


class TokenizerRecord(Model):
    """The tokenizer, and which implementation counted what."""

    name: str
    format: Literal["tokenizer.json", "tiktoken", "sentencepiece"]
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="Of the model file as it was given.")
    vocab_size: Count = Field(description="Largest id + 1, added tokens included.")
    special_ids: tuple[Count, ...]
    encoder: Literal["gigatoken", "reference"] = Field(description="The path that this build took.")
    encoder_reason: str = Field(description="Why it took the reference path; `ok` for the fast one.")
    counted_by: dict[str, CountedBy] = Field(description="By `gigatoken` and by `reference`.")
    sampled: Count = Field(description="Documents encoded by both to compare them.")


class DetectorRecord(Model):
    """A detector with the digest of its model."""

    name: str
    version: str
    sha256: str
    languages: tuple[str, ...] = Field(
        default=(), description="Of a language detector: the codes it can give. It knows no other language."
    )
    entities: tuple[str, ...] = Field(
        default=(), description="Of a detector of patterns: the entity types it looks for, found or not."
    )


class ProtectedRecord(Model):
    """An evaluation set that was looked for in training data."""

    name: str
    items: Count = Field(description="Items, repeated ones too.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="Of every item's [id, question, answer].")


class StageRecord(Model):
    """A stage that ran, with the parameters that decided its numbers."""

    name: str
    version: str
    parameters: dict[str, Any]


class UpstreamFilterRecord(Model):
    """A filter that ran before the build, as declared."""

    name: str
    version: str
    documents_in: Count = Field(alias="in")
    documents_out: Count = Field(alias="out")


class SplitRecord(Model):
    """Totals of one split."""

    name: str
    held_out: bool
    shards: Count
    documents: Count
    bytes: Count
    tokens: Count


class Totals(Model):
    """Totals of the dataset; quarantined shards are not in them."""

    shards: Count
    documents: Count
    bytes: Count
    tokens: Count


class Coverage(Model):
    """One line of the coverage ledger: planned = read + bad + held_back + quarantined + skipped."""

    planned: Count
    read: Count
    bad: Count = Field(default=0, description="Bad records inside shards that were read.")
    held_back: Count = Field(
        default=0, description="Documents of shards that were read which the quarantine list holds back one by one."
    )
    quarantined: Count
    skipped: Count


class LedgerRecord(Model):
    """What was planned and what became of it."""

    shards: Coverage
    bytes: Coverage = Field(description="Stored bytes of whole shards.")
    documents: Coverage = Field(description="Records; of quarantined shards those that are known.")
    uncounted_shards: Count = Field(description="Quarantined shards whose records cannot be known.")
    listed_shards: Count = Field(default=0, description="Of the skipped shards those on the quarantine list.")
    listed_bytes: Count = Field(default=0, description="Their stored bytes, which do not count as unread.")


class TableRecord(Model):
    """Rows and digest of one table."""

    rows: Count
    digest: Digest


class HeldBack(Model):
    """A shard that a quarantine list held back, or the rows of one; the digests are those of the list."""

    sha256: str | None = Field(pattern=r"^[0-9a-f]{64}$")
    rows_digest: str | None = Field(pattern=r"^[0-9a-f]{64}$")
    rows: tuple[Count, ...] | None = Field(description="Records of the shard, ascending; null for all of it.")


class HeadlineMetric(Model):
    """One of the few metrics that are shown first, as in the metrics table."""

    metric: str
    stat: str
    scope: dict[str, str | int]
    unit: str
    value: float | None
    status: Literal["ok", "not_evaluated", "not_applicable"]


class Core(Model):
    """What the numbers are and what decided them; its digest is the manifest's id."""

    schema_: SchemaId = Field(default_factory=SchemaId, alias="schema")
    tool: Named
    dataset: Named
    parents: tuple[Digest, ...] = Field(default=(), description="Ids of the reference manifests.")
    config: dict[str, Any] = Field(description="The semantic configuration, resolved.")
    stages: tuple[StageRecord, ...]
    libraries: dict[str, str] = Field(description="Versions of the libraries that affect numbers.")
    tokenizer: TokenizerRecord
    detectors: tuple[DetectorRecord, ...] = ()
    protected: tuple[ProtectedRecord, ...] = ()
    upstream_filters: tuple[UpstreamFilterRecord, ...] = ()
    mixture: dict[str, dict[str, float]] = Field(default_factory=dict)
    splits: tuple[SplitRecord, ...]
    totals: Totals
    headline: tuple[HeadlineMetric, ...]
    ledger: LedgerRecord
    quarantine: tuple[HeldBack, ...] = Field(
        default=(), description="What the quarantine list of the build had in force, in the data or not."
    )
    seeds: dict[str, Count]
    redaction: Literal["no_text"] = Field(default="no_text", description="No document text is stored.")
    hmac_key: str | None = Field(
        default=None, pattern=r"^[0-9a-f]{16}$", description="Id of the user's key that findings are digested with."
    )
    tables: dict[str, TableRecord]


class FileRecord(Model):
    """Bytes of one file."""

    size: Count
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class QuarantineRecord(Model):
    """The quarantine list that a build was given."""

    digest: Digest = Field(description="Of the file.")
    lines: tuple[Digest, ...] = Field(description="Ids of its lines, sorted: a list that lacks one has lost lines.")
    on: str = Field(pattern=r"^\d{4}-\d\d-\d\d$", description="The day, UTC, that expiries were held against.")


class Run(Model):
    """What may differ between two runs with the same numbers."""

    roots: dict[str, str] = Field(description="Where the URIs of each split are relative to.")
    started: str = Field(description="UTC, ISO 8601.")
    finished: str = Field(description="UTC, ISO 8601.")
    hosts: tuple[str, ...]
    workers: int
    versions: dict[str, str] = Field(description="Versions that do not affect numbers.")
    parts_planned: int = Field(description="Sub-shards in the plan.")
    parts_scanned: int = Field(description="Sub-shards read in this run; the others were known.")
    notes: tuple[str, ...] = Field(default=(), description="What the run met and survived.")
    quarantine: QuarantineRecord | None = Field(default=None, description="The list of the build; null without one.")
    files: dict[str, FileRecord] = Field(
        default_factory=dict,
        description="Every file of the manifest but this one, by its path below the folder; none before version 2.",
    )


class ManifestFile(Model):
    """The whole of ``manifest.json``."""

    id: Digest
    core: Core
    run: Run


def core_json(core: Core) -> dict[str, Any]:
    """Return the core as the plain JSON values whose digest is the id."""
    return core.model_dump(mode="json", by_alias=True)


def manifest_id(core: Core) -> str:
    """Return the id of a core."""
    return digest_json(core_json(core))


def tokenizer_of(core: Core) -> tuple[str, str, int]:
    """Return the identity of the tokenizer: token counts of different tokenizers are not compared."""
    return core.tokenizer.sha256, core.tokenizer.format, core.tokenizer.vocab_size


def manifest_uri(identity: str) -> str:
    """Return ``urn:dataaudit:manifest:sha256:...`` of a manifest's id."""
    return f"{PROGRAM}:manifest:{identity}"


def dataset_uri(name: str, version: str) -> str:
    """Return the package URL of a dataset's version: ``pkg:generic/web@1.0.0``."""
    return f"pkg:generic/{quote(name, safe='')}@{quote(version, safe='')}"


def digest_of(identity: str) -> str:
    """Return the hex digits of ``sha256:...``."""
    return identity.removeprefix("sha256:")
