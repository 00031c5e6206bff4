"""What of a Croissant file only people know: licence, page, creator, purpose. Options and a YAML file give it."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from dataaudit.errors import ConfigError
from dataaudit.yamlfile import explain, load_yaml, read_named

REQUIRED = {
    "license": "--license",
    "url": "--url",
    "creator": "--creator",
    "description": "--description",
    "date_published": "--date-published",
}
"""Keys that Croissant requires and no manifest knows, with the option that gives each."""
_SPDX_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9.+-]*$")
_SPDX = "https://spdx.org/licenses/"


def _url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.netloc or re.search(r"[\s<>\"]", value):
        raise ValueError("expected an address that begins with https:// or http://")
    if parts.username or parts.password:
        raise ValueError("an address must not hold a name or password")
    return value


def _licence(value: str) -> str:
    return _SPDX + value if _SPDX_ID.match(value) else _url(value)


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str | dict) else value


def _day(value: object) -> object:
    return value.isoformat() if isinstance(value, dt.date) else value


def _date(value: str) -> str:
    dt.datetime.fromisoformat(value)
    return value


def _agent(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


Said = Annotated[str, Field(min_length=1)]
Texts = Annotated[tuple[Said, ...], BeforeValidator(_listed)]
Url = Annotated[str, AfterValidator(_url)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Agent(_Model):
    """A person or an organisation."""

    name: Said
    url: Url | None = None
    email: Said | None = None
    person: bool = Field(default=False, description="True for a person.")


Agents = Annotated[
    tuple[Annotated[Agent, BeforeValidator(_agent)], ...],
    BeforeValidator(_listed),
    Field(description="A name, or a list of names or of {name, url, email, person}."),
]


class Rai(_Model):
    """Fields of the vocabulary for responsible AI, as people know them; those that the manifest fills come after."""

    data_collection: Said | None = None
    data_collection_type: Texts = ()
    data_collection_missing_data: Said | None = None
    data_collection_raw_data: Said | None = None
    data_collection_timeframe: Texts = ()
    data_imputation_protocol: Said | None = None
    data_manipulation_protocol: Said | None = None
    data_preprocessing_protocol: Texts = ()
    data_annotation_protocol: Texts = ()
    data_annotation_platform: Texts = ()
    data_annotation_analysis: Texts = ()
    annotations_per_item: Said | None = None
    annotator_demographics: Texts = ()
    machine_annotation_tools: Texts = ()
    data_biases: Texts = ()
    data_use_cases: Texts = ()
    data_limitations: Texts = ()
    data_social_impact: Said | None = None
    personal_sensitive_information: Texts = ()
    data_release_maintenance_plan: Said | None = None


class About(_Model):
    """The file of --metadata."""

    license: Annotated[tuple[Annotated[str, AfterValidator(_licence)], ...], BeforeValidator(_listed)] = Field(
        default=(), description="SPDX identifier or address of a licence, or several."
    )
    url: Url | None = Field(default=None, description="Page of the dataset.")
    creator: Agents = ()
    description: Said | None = None
    date_published: Annotated[str, BeforeValidator(_day), AfterValidator(_date)] | None = Field(
        default=None, description="Such as 2026-11-22."
    )
    publisher: Agents = ()
    keywords: Texts = ()
    same_as: Annotated[tuple[Url, ...], BeforeValidator(_listed)] = ()
    cite_as: Said | None = Field(default=None, description="A citation, BibTeX if possible.")
    derived_from: Annotated[tuple[Url, ...], BeforeValidator(_listed)] = Field(
        default=(), description="Addresses of the datasets that this one was made of."
    )
    data_url: Url | None = Field(
        default=None, description="Address below which the shards lie; relative to the Croissant file when absent."
    )
    manifest_url: Url | None = Field(
        default=None, description="Address of the manifest's folder; `manifest/` beside the Croissant file when absent."
    )
    rai: Rai = Rai()


def about_of(metadata: Path | None, given: Mapping[str, Any]) -> About:
    """Return what the file and the options say; an option wins over the file.

    Args:
        metadata: The YAML file, if any.
        given: Options by key; empty ones were not given.

    Raises:
        ConfigError: The file cannot be read, a value is wrong, or a required one is absent; all are named.
    """
    plain: Any = {}
    where = "options"
    if metadata is not None:
        where = str(metadata)
        try:
            text = read_named(metadata, "the metadata").decode()
        except UnicodeDecodeError:
            raise ConfigError(f"the metadata {metadata} cannot be read: it is not UTF-8") from None
        plain = load_yaml(text, where=where) or {}
    if not isinstance(plain, dict):
        raise ConfigError(f"{where}: expected a mapping (keys with values)")
    plain |= {key: value for key, value in given.items() if value}
    try:
        about = About.model_validate(plain)
    except ValidationError as error:
        lines = explain(error, About)
        raise ConfigError("\n".join([f"{where}: {len(lines)} problem(s)", *(f"  {line}" for line in lines)])) from None
    absent = [f"{option} (`{key}` in the file)" for key, option in REQUIRED.items() if not getattr(about, key)]
    if absent:
        what = "Croissant requires what no manifest knows; give it here or in the YAML file of --metadata"
        raise ConfigError("\n".join([f"{what}:", *(f"  {name}" for name in absent)]))
    return about
