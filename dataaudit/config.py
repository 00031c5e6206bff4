"""The configuration of a build: one YAML file, checked by pydantic, or the same made from paths.

Everything has a default but ``splits``. Unknown keys are errors that name the nearest known key.
Paths in the file are relative to the file. :func:`AuditConfig.semantic` is the part that enters a
manifest's identity: it holds no path of a machine, no number of workers and no order of listing.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from dataaudit.errors import ConfigError

MIB = 1024 * 1024
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


class _Strict(BaseModel):
    """Base of every section: immutable, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Dataset(_Strict):
    """Name and version that the manifest carries."""

    name: str = Field(default="dataset", pattern=_NAME, description="Short name of the corpus.")
    version: str = Field(default="0.0.0", min_length=1, description="Version of the corpus, semver advised.")


class SourceRule(_Strict):
    """Where a document's source comes from; exactly one of the three."""

    column: str | None = Field(default=None, min_length=1, description="Column (dotted path) holding it.")
    pattern: str | None = Field(
        default=None,
        description="Regular expression searched in the shard's URI; its group `source` is the source.",
    )
    constant: str | None = Field(default=None, min_length=1, description="One name for every document.")

    @model_validator(mode="after")
    def _one_of_three(self) -> Self:
        given = [name for name in ("column", "pattern", "constant") if getattr(self, name) is not None]
        if len(given) != 1:
            found = f"found {', '.join(given)}" if given else "found none"
            raise ValueError(f"expected exactly one of column, pattern, constant; {found}")
        if self.pattern is not None:
            try:
                groups = re.compile(self.pattern).groupindex
            except re.error as error:
                raise ValueError(f"pattern is not a regular expression: {error}") from None
            if "source" not in groups:
                raise ValueError("pattern needs a group named source, for example 'train/(?P<source>[^/]+)/'")
        return self


class Split(_Strict):
    """One split: which files, which column is the text, where the source comes from."""

    paths: tuple[str, ...] = Field(min_length=1, description="Files, folders, globs (** allowed) or URIs.")
    text: str | None = Field(
        default=None, min_length=1, description="Text column, dotted path allowed; inferred when left out."
    )
    source: SourceRule | None = Field(default=None, description="Source of a document; inferred when absent.")
    held_out: bool = Field(default=False, description="True for validation and test data.")

    @field_validator("paths", mode="before")
    @classmethod
    def _single_path(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value


class UpstreamFilter(_Strict):
    """A filter that ran before this build, with its counts as declared."""

    name: str = Field(min_length=1, description="Name of the filter.")
    version: str = Field(default="", description="Version of the filter.")
    documents_in: int = Field(alias="in", ge=0, lt=2**53, description="Documents that went in.")
    documents_out: int = Field(alias="out", ge=0, lt=2**53, description="Documents that came out.")

    @model_validator(mode="after")
    def _out_within_in(self) -> Self:
        if self.documents_out > self.documents_in:
            raise ValueError(f"out ({self.documents_out}) is larger than in ({self.documents_in})")
        return self


class MixtureEntry(_Strict):
    """Declared weight and epochs of a source."""

    weight: float = Field(ge=0, allow_inf_nan=False, description="Share of training tokens, any scale.")
    epochs: float = Field(default=1.0, gt=0, allow_inf_nan=False, description="Passes over the source.")


class Reader(_Strict):
    """Limits of the readers; those that decide what is read are part of the manifest's identity."""

    batch_bytes: int = Field(default=4 * MIB, ge=1024, description="Text bytes a batch holds at most.")
    part_bytes: int = Field(default=64 * MIB, ge=1024, description="Stored bytes of a sub-shard.")
    max_line_bytes: int = Field(default=64 * MIB, ge=1024, description="Longest line that is read.")
    max_bad_records: float = Field(
        default=0.001, ge=0, le=1, description="Share of bad records above which a shard is quarantined."
    )
    follow_symlinks: bool = Field(default=False, description="Read links that leave the root folder.")


StageParameters = Annotated[
    bool | dict[str, Any], Field(description="true, false, or the parameters of the stage.")
]


class AuditConfig(_Strict):
    """The whole configuration; see ``docs/config.md``."""

    dataset: Dataset = Dataset()
    splits: dict[Annotated[str, Field(pattern=_NAME)], Split] = Field(
        min_length=1, description="Splits by name."
    )
    tokenizer: str | None = Field(
        default=None, description="tokenizer.json, .tiktoken, SentencePiece .model, hub id or `default`."
    )
    reference: str | None = Field(default=None, description="Folder of an older manifest to compare with.")
    stages: dict[str, StageParameters] = Field(default_factory=dict, description="Stages by name.")
    upstream_filters: tuple[UpstreamFilter, ...] = Field(default=(), description="Filters that ran before.")
    mixture: dict[str, MixtureEntry] = Field(default_factory=dict, description="Declared mixture by source.")
    reader: Reader = Reader()
    max_sources: int = Field(
        default=10_000, ge=1, description="Sources reported by name; the rest is `other`."
    )
    seed: int = Field(default=0, ge=0, lt=2**53, description="Seed of every sample.")

    def semantic(self) -> dict[str, Any]:
        """Return the part that decides numbers, as plain JSON values (no paths, no tokenizer location).

        Splits appear by name only with what was resolved for them; their shards are in the manifest's
        table, so neither globs nor their order can change an identity.
        """
        dumped = self.model_dump(mode="json", by_alias=True, exclude={"dataset", "tokenizer", "reference"})
        for split in dumped["splits"].values():
            del split["paths"]
            if split["source"] is not None:
                split["source"] = {name: value for name, value in split["source"].items() if value is not None}
        for key in ("batch_bytes", "part_bytes"):  # how the work is cut, which no number depends on
            del dumped["reader"][key]
        for key in ("stages", "upstream_filters", "mixture", "seed"):  # carried by sections of their own
            del dumped[key]
        return dumped


def load_config(path: Path) -> AuditConfig:
    """Read and check a YAML config.

    Raises:
        ConfigError: The file cannot be read, is not YAML, or a key or value is wrong.
    """
    try:
        raw = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"cannot read the config file {path}: {reason}") from None
    try:
        data = yaml.safe_load(raw)
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        where = f", line {place.line + 1}, column {place.column + 1}" if place else ""
        raise ConfigError(f"{path} is not valid YAML{where}: {getattr(error, 'problem', error)}") from None
    if not isinstance(data, dict):
        raise ConfigError(
            f"{path}: expected a mapping with a key `splits`, found {type(data).__name__}",
            "A smallest config is: splits: {train: {paths: ['data/*.parquet']}}",
        )
    return parse_config(data, where=str(path))


def parse_config(data: dict[str, Any], *, where: str) -> AuditConfig:
    """Check a parsed config; every problem is listed, each with its place.

    Raises:
        ConfigError: One or more keys or values are wrong.
    """
    try:
        return AuditConfig.model_validate(data)
    except ValidationError as error:
        problems = [_explain(dict(item)) for item in error.errors(include_url=False)]
        raise ConfigError(
            f"{where}: {len(problems)} problem(s)\n" + "\n".join(f"  - {line}" for line in problems),
            "`dataaudit schema config` prints the JSON Schema, docs/config.md explains each key.",
        ) from None


def nearest(name: str, known: list[str]) -> str:
    """Return `` (did you mean `x`?)`` for the nearest known name, or the known names."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f" (did you mean `{close[0]}`?)" if close else f" (known: {', '.join(sorted(known))})"


def _explain(item: dict[str, Any]) -> str:
    place = ".".join(str(part) for part in item["loc"]) or "(top level)"
    if item["type"] == "extra_forbidden":
        return f"{place}: unknown key" + nearest(str(item["loc"][-1]), _known_keys(item["loc"][:-1]))
    message = str(item["msg"]).removeprefix("Value error, ")
    if item["type"] == "missing":
        return f"{place}: required, but absent"
    shown = repr(item["input"])
    found = "" if item["type"] == "value_error" else f"; found {shown[:60]}"
    return f"{place}: {message}{found}"


def _known_keys(path: tuple[int | str, ...]) -> list[str]:
    """Return the keys of the section at ``path``, by walking the models."""
    sections: dict[str, type[BaseModel]] = {
        "dataset": Dataset,
        "splits": Split,
        "upstream_filters": UpstreamFilter,
        "mixture": MixtureEntry,
        "reader": Reader,
    }
    model: type[BaseModel] = AuditConfig
    if path:
        model = sections.get(str(path[0]), AuditConfig)
    if "source" in path[2:]:
        model = SourceRule
    return [field.alias or name for name, field in model.model_fields.items()]
