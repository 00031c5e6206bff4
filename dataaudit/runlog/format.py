"""What a run log is made of: ``run.json``, and the tables that every rank writes as Arrow IPC streams in parts.

::

    RUNLOG/run.json                                what the run is, written by rank 0
    RUNLOG/shards.arrow                            the table of shards as it was opened
    RUNLOG/ranks/00000/steps-00000.arrows          of each rank and table, part by part
    RUNLOG/attribution.json                        what ``dataaudit attribute`` found

A part's schema says, in its metadata, which attempt wrote it and from which step on: a run that is resumed is a further
attempt, and supersedes that step and all later ones of the attempts before it. No table holds text.
"""

from __future__ import annotations

import zlib
from typing import Annotated, Any, Final, Literal

import pyarrow as pa
from pydantic import Field

from dataaudit.manifest.canonical import canonical_json
from dataaudit.manifest.core import Model
from dataaudit.manifest.tables import COUNT, STRING, TableSpec, field

SCHEMA_NAME: Final = "dataaudit-runlog"
SCHEMA_VERSION: Final = 1
RUN_FILE = "run.json"
SHARDS_FILE = "shards.arrow"
RANKS_FOLDER = "ranks"
ATTRIBUTION_FILE = "attribution.json"
SUFFIX = ".arrows"
WINDOW_STEPS = 256
"""Steps whose stretches are summed together where they are thinned."""
MERGED, UNUSED = -1, -2
"""In place of a shard: stretches that did not fit into a batch's tags, and places that are not used."""

_STEP = field("step", COUNT, "update of the weights, from 1")
_TIME = field("time", pa.float64(), "seconds since 1970, UTC")
_SHARD = field("shard", pa.int32(), "row of the table of shards; -1: several documents that were merged")
_SOURCE = field("source", pa.int32(), "place in the sources of run.json; -1: another one")
_TARGETS = field("targets", COUNT, "tokens that a loss was to be computed of")
_SCORED = field("scored", COUNT, "of these, tokens whose loss is known")
_LOSS_SUM = field("loss_sum", pa.float64(), "their losses added up, nats")

STEPS = TableSpec(
    name="steps",
    about="A row a step, of this rank's part of it.",
    key=("step",),
    schema=pa.schema(
        [
            _STEP,
            _TIME,
            field("micro_batches", pa.int32(), "batches whose gradients were added up"),
            _TARGETS,
            _SCORED,
            _LOSS_SUM,
            field("user_loss", pa.float64(), "the loss that the loop itself reports, nats", null=True),
            field("merged", COUNT, "targets of stretches that did not fit into the tags"),
        ]
    ),
)
STRETCHES = TableSpec(
    name="stretches",
    about="A row a stretch: the part of one document in one row of a batch.",
    key=("step", "micro_batch", "batch_row", "start"),
    schema=pa.schema(
        [
            _STEP,
            field("micro_batch", pa.int32(), "batch within the step, from 0"),
            field("batch_row", pa.int32(), "row of the batch"),
            field("start", pa.int32(), "place of its first label in the row"),
            _SHARD,
            field("row", COUNT, "record of the shard; -1 where several were merged"),
            field("offset", COUNT, "token of the document that its first label is"),
            _SOURCE,
            field(
                "epoch",
                pa.int32(),
                "pass over the data, from 0; -1 - pass: a repeat, so that all ranks have as many rows",
            ),
            field("targets", pa.int32(), "tokens that a loss was to be computed of"),
            field("loss", pa.float32(), "mean loss of its targets, nats/token; null: not scored", null=True),
        ]
    ),
)
SUMS = TableSpec(
    name="sums",
    about="Exact sums of the stretches that are no longer kept one by one.",
    key=("window", "shard", "block", "source"),
    schema=pa.schema(
        [
            field("window", COUNT, f"first of {WINDOW_STEPS} steps"),
            _SHARD,
            field("block", COUNT, "row of the shard // block_rows; -1 where several were merged"),
            _SOURCE,
            field("stretches", COUNT, "how many"),
            _TARGETS,
            _SCORED,
            _LOSS_SUM,
        ]
    ),
)
VALUES = TableSpec(
    name="values",
    about="Any other number of a step: of the optimizer, of the model.",
    key=("step", "metric", "layer", "head", "stat"),
    schema=pa.schema(
        [
            _STEP,
            field("metric", STRING, "name"),
            field("layer", pa.int32(), "layer; -1 for the whole model"),
            field("head", pa.int32(), "head; -1 for the whole layer"),
            field("stat", STRING, "statistic"),
            field("value", pa.float64(), "value"),
        ]
    ),
)
EVENTS = TableSpec(
    name="events",
    about="What happened: started, resumed, skipped, flagged, lost, scored, closed, what is wrong with the optimizer.",
    key=("step", "time", "kind"),
    schema=pa.schema([_STEP, _TIME, field("kind", STRING, "kind"), field("detail", STRING, "an object of JSON")]),
)
TOKENS = TableSpec(
    name="tokens",
    about="Exact counts of the targets by token, of the steps since the rows before; steps without labels have none.",
    key=("step", "source", "token"),
    schema=pa.schema(
        [
            field("step", COUNT, "last of the steps that are counted; they follow upon those of the rows before"),
            _SOURCE,
            field("token", pa.int32(), "token id; -1: outside of the vocabulary"),
            field("count", COUNT, "targets that are it"),
            field("half", COUNT, "of these, those in a random half of the documents, drawn by shard and row"),
        ]
    ),
)
LENGTHS = TableSpec(
    name="lengths",
    about="Exact counts of the stretches by length, of the steps since the rows before.",
    key=("step", "source", "length"),
    schema=pa.schema(
        [
            field("step", COUNT, "last of the steps that are counted; they follow upon those of the rows before"),
            _SOURCE,
            field("length", pa.int32(), "targets of a stretch"),
            field("stretches", COUNT, "stretches of this length; several documents that were merged are one"),
            field("begun", COUNT, "of these, stretches that hold the first token of their document"),
        ]
    ),
)
TABLES: Final[dict[str, TableSpec]] = {
    table_spec.name: table_spec for table_spec in (STEPS, STRETCHES, SUMS, VALUES, EVENTS, TOKENS, LENGTHS)
}


class SchemaId(Model):
    """Name and version of the log's schema."""

    name: Literal["dataaudit-runlog"] = SCHEMA_NAME
    version: Literal[1] = SCHEMA_VERSION


class RunFile(Model):
    """What a run is, and what it was trained on."""

    schema_: SchemaId = Field(default_factory=SchemaId, alias="schema")
    manifest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None = Field(
        description="Id of the manifest that was opened; null: the run opened none, and its batches have no tags."
    )
    dataset: str = Field(description="Name and version of the dataset.")
    verdict: dict[str, str] = Field(default_factory=dict, description="Who said that it passed.")
    digests: dict[str, str] = Field(default_factory=dict, description="Of what decides the run, by name.")
    sources: tuple[str, ...] = Field(description="Names of sources; the tables say their places.")
    block_rows: Annotated[int, Field(gt=0, le=1 << 30)] = Field(description="Rows of a block, a power of two.")
    ranks: Annotated[int, Field(gt=0)] = Field(description="Processes that write a log each.")
    order: Literal["", "documents", "rows"] = Field(
        default="",
        description="What was put in order at random, uniformly within each pass, whole documents or whole rows; empty:"
        " neither, or not known.",
    )
    started: str = Field(description="UTC, ISO 8601.")
    program: str = Field(description="Version of dataaudit that wrote it.")
    settings: dict[str, Any] = Field(default_factory=dict, description="How often what is written.")
    checksums: dict[str, str] = Field(
        default_factory=dict,
        description="CRC-32 of shards.arrow, and of this file as canonical JSON with run.json's own left out.",
    )

    def sealed(self, shards: bytes | None) -> RunFile:
        """Return it with checksums of itself and of the stored table of shards."""
        own = {} if shards is None else {SHARDS_FILE: checksum(shards)}
        made = self.model_copy(update={"checksums": own})
        return made.model_copy(update={"checksums": {**own, RUN_FILE: checksum(made.to_json())}})

    @property
    def intact(self) -> bool:
        """Whether it is as it was written."""
        rest = {name: value for name, value in self.checksums.items() if name != RUN_FILE}
        return self.checksums.get(RUN_FILE) == checksum(self.model_copy(update={"checksums": rest}).to_json())

    def to_json(self) -> bytes:
        """Return it as canonical JSON."""
        return canonical_json(self.model_dump(mode="json", by_alias=True))


def checksum(data: bytes) -> str:
    """Return the CRC-32 of some bytes, in hexadecimal digits."""
    return f"{zlib.crc32(data):08x}"
