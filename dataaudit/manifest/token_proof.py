"""Token proofs: the record of ``dataaudit map`` proves which audited documents token files hold, and which not.

A record names its manifest, lists and files by digest. It is not signed, as ``gate.json`` is not: whoever can write it
can forge it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, ValidationError, model_validator

from dataaudit.base.errors import ManifestError
from dataaudit.base.files import read_safely
from dataaudit.manifest.core import Count, Digest, Model

SCHEMA_NAME: Final = "dataaudit-token-proof"
SCHEMA_VERSION: Final = 1
NAMED = 1_000
"""Most cases of a kind that a record names; all are counted."""
Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ProofSchema(Model):
    """Name and version of the record's schema."""

    name: Literal["dataaudit-token-proof"] = SCHEMA_NAME
    version: Literal[1] = SCHEMA_VERSION


class ProvenFile(Model):
    """A token file as it was read."""

    name: str
    size: Count
    sha256: Hex
    index_sha256: Hex | None = Field(description="Of Megatron's .idx; null of a flat file.")
    tokens: Count
    documents: Count = Field(description="Of a flat file what lies between end tokens.")
    ended: Count | None = Field(description="Documents whose last token is the end token; null: none is known.")


class Case(Model):
    """One document that is not as it was audited."""

    document: str | None = Field(description="`split/uri:row` of the audited document; null: there is none.")
    file: str | None = Field(description="Name of the token file; null: it is in none.")
    at: Count | None = Field(description="Number of the document in the file, from 0.")
    start: Count | None = Field(description="Its first token in the file.")
    tokens: Count = Field(description="Its tokens there; of one that is in no file, those that were audited.")


class Fault(Model):
    """All cases of a kind."""

    documents: Count
    tokens: Count
    named: tuple[Case, ...] = Field(description="The first 1,000.")


class Faults(Model):
    """Documents that are not as they were audited, by kind."""

    held_out: Fault = Field(description="In a file although its split is held out: other tokens or its beginning, too.")
    missing: Fault = Field(description="Audited, and in no file.")
    extra: Fault = Field(description="In a file, and not audited.")
    other_split: Fault = Field(description="In a file although its split was not chosen, and is not held out.")
    duplicated: Fault = Field(description="In the files more often than it was audited.")
    held_back: Fault = Field(description="In a file although a list holds it back.")
    truncated: Fault = Field(description="Only the beginning of an audited document.")
    retokenized: Fault = Field(description="The text of an audited document in other tokens.")
    reordered: Fault = Field(
        description="The fewest documents that have to be moved to have the files in the manifest's order."
    )


Kind = Literal[
    "held_out", "missing", "extra", "other_split", "duplicated", "held_back", "truncated", "retokenized", "reordered"
]
"""Names of :class:`Faults`."""


class TokenProof(Model):
    """The whole record."""

    schema_: ProofSchema = Field(default_factory=ProofSchema, alias="schema")
    tool: str = Field(description="Version of the program.")
    at: str = Field(description="UTC, ISO 8601.")
    manifest: Digest
    tokenizer: Digest
    quarantine: str = Field(description="Digest of the quarantine list; empty without one.")
    applied: str = Field(description="Digest of the applied drop list; empty without one.")
    splits: tuple[str, ...]
    unread_splits: tuple[str, ...] = Field(
        default=(), description="Other splits whose documents were not looked for: their shards cannot be read here."
    )
    files: tuple[ProvenFile, ...]
    end_token: Count | None = Field(description="Ends documents; how often is counted by file, and is no fault.")
    begin_token: Count | None = Field(description="Begins documents; as the end token.")
    any_order: bool = Field(description="Whether another order is no fault.")
    expected: Count = Field(description="Documents that were audited, are held back by nothing, and have tokens.")
    found: Count = Field(description="Documents of the files that have tokens.")
    matched: Count = Field(description="Of both, with the same tokens, one to one.")
    matched_tokens: Count
    empty: Count = Field(description="Documents of the manifest that have no tokens: they are not looked for.")
    faults: Faults
    result: Literal["proven", "differs"]
    exit_code: Literal[0, 1, 5] = Field(description="5: held-out documents are in the files.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.result == "proven") != self.proves or self.exit_code != exit_code(self.faults, proven=self.proves):
            raise ValueError("the result is not what the counts say")
        return self

    @property
    def proves(self) -> bool:
        """Whether by the counts the files hold the audited documents, and nothing else."""
        return proves(self.faults, any_order=self.any_order) and self.expected == self.found == self.matched > 0


def proves(faults: Faults, *, any_order: bool) -> bool:
    """Return whether no document differs."""
    return not any(
        getattr(faults, name).documents for name in Faults.model_fields if not (any_order and name == "reordered")
    )


def exit_code(faults: Faults, *, proven: bool) -> Literal[0, 1, 5]:
    """Return the exit code of the command."""
    return 0 if proven else 5 if faults.held_out.documents else 1


def read_proof(path: Path) -> TokenProof:
    """Read a record."""
    try:
        return TokenProof.model_validate_json(read_safely(path))
    except OSError as error:
        raise ManifestError(
            f"{path} cannot be read: {error.strerror or error}", "`dataaudit map FILE --manifest DIR` writes it."
        ) from None
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"])) or "the whole"
        raise ManifestError(
            f"{path} is no record of token files, or one of a newer version ({place})",
            "`dataaudit map FILE --manifest DIR` writes one.",
        ) from None
