"""The configuration of a build: one YAML file, checked by pydantic, or the same made from paths.

Everything has a default but ``splits``. Unknown keys are errors that name the nearest known key.
Paths in the file are relative to the file. :func:`AuditConfig.semantic` is the part that enters a
manifest's identity: it holds no path of a machine, no number of workers and no order of listing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from dataaudit.base.errors import ConfigError
from dataaudit.base.files import read_safely
from dataaudit.base.redact import without_secrets
from dataaudit.base.yamlfile import NAME_PATTERN, explain, in_words, load_yaml

MIB = 1024 * 1024
MAX_LINE_BYTES = 2**31 - 1024
"""Kernels count the bytes of a document in 32 bits, with a sign."""
_Text = Annotated[str, Field(min_length=1)]


class _Strict(BaseModel):
    """Base of every section: immutable, unknown keys are errors, and no value is turned into another type."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, strict=True)


class Dataset(_Strict):
    """Name and version that the manifest carries."""

    name: str = Field(default="dataset", pattern=NAME_PATTERN, description="Short name of the corpus.")
    version: _Text = Field(default="0.0.0", description="Version of the corpus, semver advised.")


class SourceRule(_Strict):
    """Where a document's source comes from; exactly one of the three."""

    column: _Text | None = Field(default=None, description="Column (dotted path) holding it.")
    pattern: str | None = Field(
        default=None, description="Regular expression searched in the shard's URI; its group `source` is the source."
    )
    constant: _Text | None = Field(default=None, description="One name for every document.")

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


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Listed = Annotated[tuple[_Text, ...], BeforeValidator(_listed, json_schema_input_type=_Text | tuple[_Text, ...])]


class DatasetSource(_Strict):
    """A Hugging Face dataset that is streamed."""

    id: _Text = Field(description="Id on the hub, or a folder that begins with ./, ../, / or ~.")
    config: _Text | None = Field(default=None, description="Configuration of the dataset.")
    split: _Text = Field(default="train", description="Split of the dataset.")
    revision: _Text | None = Field(default=None, description="Branch, tag or commit on the hub.")


class Split(_Strict):
    """One split: which files or which dataset, which column is the text, where the source comes from."""

    paths: Listed = Field(
        default=(), strict=False, description="Files, folders, globs (** allowed) or addresses; this or `dataset`."
    )
    dataset: DatasetSource | None = Field(default=None, description="Rows of a dataset instead of files.")
    text: _Text | None = Field(default=None, description="Text column, dotted path allowed; inferred when left out.")
    source: SourceRule | None = Field(default=None, description="Source of a document; inferred when absent.")
    held_out: bool = Field(default=False, description="True for validation and test data.")

    @model_validator(mode="after")
    def _paths_or_dataset(self) -> Self:
        if bool(self.paths) == (self.dataset is not None):
            found = "found both" if self.paths else "found neither"
            raise ValueError(f"expected exactly one of paths, dataset; {found}")
        return self


class ProtectedSet(_Strict):
    """An evaluation set that must not be in training data."""

    paths: Listed = Field(min_length=1, strict=False, description="Files of items: JSON lines, CSV or Parquet.")
    question: _Text = Field(description="Column of the question, dotted path allowed.")
    answer: _Text | None = Field(default=None, description="Column of the answer.")
    id: _Text | None = Field(default=None, description="Column of the item's name; its number if absent.")


class UpstreamFilter(_Strict):
    """A filter that ran before this build, with its counts as declared."""

    name: _Text = Field(description="Name of the filter.")
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
    max_line_bytes: int = Field(
        default=64 * MIB, ge=1024, le=MAX_LINE_BYTES, description="Longest line or text that is read."
    )
    max_bad_records: float = Field(
        default=0.001,
        ge=0,
        le=1,
        description="Share of a shard's records, and of its bytes, that may be bad; beyond it is quarantined.",
    )
    text_document: Literal["file", "paragraph", "line"] = Field(
        default="file", description="What is a document in a file of plain text (.txt)."
    )
    follow_symlinks: bool = Field(default=False, description="Read links that leave the root folder.")
    timeout_seconds: float = Field(
        default=30.0, gt=0, allow_inf_nan=False, description="Silence of a remote store after which a request failed."
    )
    retries: int = Field(default=3, ge=0, le=20, description="Further tries of a failed request to a remote store.")


class LanguageConfig(_Strict):
    """How the language of a document is found."""

    detector: Literal["combined", "pycld2", "fasttext"] = Field(
        default="combined",
        description="The detector that decides: both weighted, or one. fastText, or else pycld2, classifies a sample.",
    )
    model: _Text | None = Field(
        default=None,
        description="lid.176.bin or another fastText model, or `fasttext-langdetect`; lid.176.ftz when left out.",
    )
    min_confidence: float = Field(default=0.5, ge=0, le=1, description="Confidence below which a language is `und`.")


class ToxicityConfig(_Strict):
    """Which judge looks at a sample for toxicity, and how large the sample is."""

    judge: _Text | None = Field(
        default=None,
        description="`original`, `unbiased`, `multilingual`, or the file of a Detoxify checkpoint; none when left out.",
    )
    config_path: _Text | None = Field(
        default=None,
        description="Folder with the settings and vocabulary of the judge's weights; found by itself when left out.",
    )
    languages: Listed = Field(
        default=(), strict=False, description="Languages that the judge reads; those it was made for when left out."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="Where the judge runs.")
    half_width: float = Field(
        default=0.005, gt=0, lt=0.5, description="Half of the 95 % interval that the sample is planned for."
    )
    most_judged: int = Field(default=5000, ge=1, lt=2**31, description="Documents that the judge sees at most.")


class PiiConfig(_Strict):
    """Which entities are looked for, and whether presidio looks at a sample."""

    entities: _Text | None = Field(
        default=None, description="File of further entities, or of changes to those that are shipped."
    )
    analyzer: Literal["presidio"] | None = Field(
        default=None, description="`presidio` judges a sample and the candidates in it; none when left out."
    )
    model: _Text | None = Field(
        default=None, description="spaCy model for names, places and organisations; none when left out."
    )
    language: _Text = Field(default="en", description="Language that the analyzer reads.")
    half_width: float = Field(
        default=0.02, gt=0, lt=0.5, description="Half of the 95 % interval that the sample is planned for."
    )
    most_judged: int = Field(default=1000, ge=1, lt=2**31, description="Documents that the analyzer sees at most.")

    @model_validator(mode="after")
    def _model_of_an_analyzer(self) -> Self:
        if self.model is not None and self.analyzer is None:
            raise ValueError("model is given, but not who uses it; expected analyzer: presidio")
        return self


class SecretsConfig(_Strict):
    """Which secrets are looked for, and which are known."""

    rules: _Text | None = Field(
        default=None, description="File of further rules, or of changes to those that are shipped."
    )
    allow: _Text | None = Field(
        default=None, description="File of fingerprints of findings that are known and allowed."
    )


def _stage_choice(value: object) -> object:
    if isinstance(value, bool) or (isinstance(value, dict) and all(isinstance(key, str) for key in value)):
        return value
    raise ValueError(f"expected true, false or the stage's parameters by name, found {in_words(value)}")


StageParameters = Annotated[
    bool | dict[str, Any],
    BeforeValidator(_stage_choice),
    Field(description="true, false, or the parameters of the stage."),
]


class AuditConfig(_Strict):
    """The whole configuration; see ``dataaudit explain config``."""

    dataset: Dataset = Dataset()
    splits: dict[Annotated[str, Field(pattern=NAME_PATTERN)], Split] = Field(
        min_length=1, description="Splits by name."
    )
    root: _Text | None = Field(default=None, description="Folder or address that the paths of splits start from.")
    protected: dict[Annotated[str, Field(pattern=NAME_PATTERN)], ProtectedSet] = Field(
        default_factory=dict, description="Evaluation sets by name."
    )
    tokenizer: _Text | None = Field(
        default=None, description="tokenizer.json, .tiktoken, SentencePiece .model, hub id or `default`."
    )
    reference: _Text | None = Field(default=None, description="Folder of an older manifest to compare with.")
    language: LanguageConfig = LanguageConfig()
    toxicity: ToxicityConfig = ToxicityConfig()
    pii: PiiConfig = PiiConfig()
    secrets: SecretsConfig = SecretsConfig()
    stages: dict[str, StageParameters] = Field(default_factory=dict, description="Stages by name.")
    upstream_filters: tuple[UpstreamFilter, ...] = Field(
        default=(), strict=False, description="Filters that ran before."
    )
    mixture: dict[str, MixtureEntry] = Field(default_factory=dict, description="Declared mixture by source.")
    reader: Reader = Reader()
    max_sources: int = Field(default=10_000, ge=1, description="Sources reported by name; the rest is `other`.")
    seed: int = Field(default=0, ge=0, lt=2**53, description="Seed of every sample.")

    def semantic(self) -> dict[str, Any]:
        """Return the part that decides numbers, as plain JSON values (no paths, no tokenizer location).

        Splits appear by name only with what was resolved for them; their shards are in the manifest's
        table, so neither globs nor their order can change an identity. Nor can a secret: what looks like one in an
        address is replaced.
        """
        dumped = self.model_dump(mode="json", by_alias=True, exclude={"dataset", "tokenizer", "reference", "root"})
        for split in dumped["splits"].values():
            del split["paths"], split["dataset"]
            if split["source"] is not None:
                split["source"] = {name: value for name, value in split["source"].items() if value is not None}
        for protected in dumped["protected"].values():
            del protected["paths"]
        del dumped["language"]["model"]  # its digest is among the detectors
        for section, keys in (("toxicity", ("judge", "config_path", "device")), ("pii", ("entities", "model"))):
            for key in keys:  # as above
                del dumped[section][key]
        for key in ("batch_bytes", "part_bytes", "timeout_seconds", "retries"):  # no number depends on these
            del dumped["reader"][key]
        for key in ("secrets", "stages", "upstream_filters", "mixture", "seed"):  # carried by sections of their own
            del dumped[key]
        return {key: _without_secrets(value) for key, value in dumped.items()}


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_secrets(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_secrets(item) for item in value]
    return without_secrets(value) if isinstance(value, str) else value


def load_config(path: Path) -> AuditConfig:
    """Read and check a YAML config."""
    try:
        raw = read_safely(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"cannot read the config file {path}: {reason}") from None
    data = load_yaml(raw, where=str(path))
    if not isinstance(data, dict):
        raise ConfigError(
            f"{path}: expected a mapping with a key `splits`, found {in_words(data)}",
            "A smallest config is: splits: {train: {paths: ['data/*.parquet']}}",
        )
    return parse_config(data, where=str(path))


def parse_config(data: dict[str, Any], *, where: str) -> AuditConfig:
    """Check a parsed config; every problem is listed, each with its place."""
    try:
        return AuditConfig.model_validate(data)
    except ValidationError as error:
        problems = explain(error, AuditConfig)
        raise ConfigError(
            f"{where}: {len(problems)} problem(s)\n" + "\n".join(f"  - {line}" for line in problems),
            "`dataaudit schema config` prints the JSON Schema, `dataaudit explain config` says what each key means.",
        ) from None
