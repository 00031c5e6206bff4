"""The files of a Croissant file: shards with their digests, sets of shards, and the manifest that has every digest.

A set of files carries no digests, and a million shards cannot be listed. So up to :data:`MOST_FILES` shards
are listed with their sha256; beyond, the sets say which files there are, and ``shards.parquet`` of the manifest, itself
listed with its sha256, has the sha256 of each. A set says so by patterns, but only by such that no file of another
split fits: a loader of training data must not be given held-out files.

What of a Croissant file only people know: licence, page, creator, purpose. Options and a YAML file give it.
"""

from __future__ import annotations

import bisect
import datetime as dt
import hashlib
import posixpath
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, unquote, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from dataaudit.base import text as t
from dataaudit.base.errors import ConfigError
from dataaudit.base.yamlfile import explain, load_yaml, read_named
from dataaudit.manifest.core import Model
from dataaudit.manifest.formats import FORMATS
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.replace import POINTER
from dataaudit.metrics.recomputed import LOST

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


def _agent_given(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


NonEmpty = Annotated[str, Field(min_length=1)]
Texts = Annotated[tuple[NonEmpty, ...], BeforeValidator(_listed)]
Url = Annotated[str, AfterValidator(_url)]


class Agent(Model):
    """A person or an organisation."""

    name: NonEmpty
    url: Url | None = None
    email: NonEmpty | None = None
    person: bool = Field(default=False, description="True for a person.")


Agents = Annotated[
    tuple[Annotated[Agent, BeforeValidator(_agent_given)], ...],
    BeforeValidator(_listed),
    Field(description="A name, or a list of names or of {name, url, email, person}."),
]


class Rai(Model):
    """Fields of the vocabulary for responsible AI, as people know them; those that the manifest fills come after."""

    data_collection: NonEmpty | None = None
    data_collection_type: Texts = ()
    data_collection_missing_data: NonEmpty | None = None
    data_collection_raw_data: NonEmpty | None = None
    data_collection_timeframe: Texts = ()
    data_imputation_protocol: NonEmpty | None = None
    data_manipulation_protocol: NonEmpty | None = None
    data_preprocessing_protocol: Texts = ()
    data_annotation_protocol: Texts = ()
    data_annotation_platform: Texts = ()
    data_annotation_analysis: Texts = ()
    annotations_per_item: NonEmpty | None = None
    annotator_demographics: Texts = ()
    machine_annotation_tools: Texts = ()
    data_biases: Texts = ()
    data_use_cases: Texts = ()
    data_limitations: Texts = ()
    data_social_impact: NonEmpty | None = None
    personal_sensitive_information: Texts = ()
    data_release_maintenance_plan: NonEmpty | None = None


class About(Model):
    """The file of --metadata."""

    license: Annotated[tuple[Annotated[str, AfterValidator(_licence)], ...], BeforeValidator(_listed)] = Field(
        default=(), description="SPDX identifier or address of a licence, or several."
    )
    url: Url | None = Field(default=None, description="Page of the dataset.")
    creator: Agents = ()
    description: NonEmpty | None = None
    date_published: Annotated[str, BeforeValidator(_day), AfterValidator(_date)] | None = Field(
        default=None, description="Such as 2026-11-22."
    )
    publisher: Agents = ()
    keywords: Texts = ()
    same_as: Annotated[tuple[Url, ...], BeforeValidator(_listed)] = ()
    cite_as: NonEmpty | None = Field(default=None, description="A citation, BibTeX if possible.")
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
    """Return what the file and the options say; an option wins over the file."""
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


MOST_FILES = 1000
"""Most shards that are listed one by one."""
MANIFEST_FOLDER = "manifest/"
_COPY = "#copy="
_FORMATS = {row.name: row for row in FORMATS.values() if row.media_types}
"""Formats of files."""
_CODECS = {
    "gzip": "application/gzip",
    "zstd": "application/zstd",
    "bzip2": "application/x-bzip2",
    "xz": "application/x-xz",
}
_NAME_LIMIT = 300
_COUNT = "http://www.wikidata.org/entity/Q4049983"
"""Cardinality, as the specification writes the number of records."""
_SPLIT_LIMIT = 200
_SPLITS = "splits"
"""The record set that says what each split is for; a record set of a split of that name has the format in its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Shards of a split in a format."""

    id: str
    split: str
    format: str
    compression: str
    paths: tuple[str, ...]
    """Paths of those that were read, relative to the root; perhaps none."""
    unread: tuple[str, ...]
    """Paths of those that were not."""
    documents: int

    @property
    def loadable(self) -> bool:
        """Whether its columns can be described as fields."""
        return self.compression in _FORMATS[self.format].croissant_fields


def groups(manifest: Manifest) -> list[Group]:
    """Return the shards that are files, by split and format; streamed datasets have none."""
    columns = ["split", "uri", "format", "compression", "status", "documents"]
    grouped: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in manifest.table("shards", columns).to_pylist():
        if row["format"] in _FORMATS:
            grouped.setdefault((row["split"], row["format"], row["compression"]), []).append(row)
    return [
        Group(
            id=_id("files", split, kind if codec == "none" else f"{kind}.{codec}"),
            split=split,
            format=kind,
            compression=codec,
            paths=_paths(row for row in rows if row["status"] not in LOST),
            unread=_paths(row for row in rows if row["status"] in LOST),
            documents=sum(row["documents"] for row in rows),
        )
        for (split, kind, codec), rows in sorted(grouped.items())
    ]


def distribution(manifest: Manifest, grouped: Sequence[Group], about: About) -> list[dict[str, Any]]:
    """Return every FileObject and FileSet."""
    listed = sum(len(group.paths) + len(group.unread) for group in grouped) <= MOST_FILES
    shards = [_shard(row, about) for row in _readable(manifest)] if listed else []
    every = [] if listed else sorted({path for group in grouped for path in (*group.paths, *group.unread)})
    sets = [_set(group, every, listed=listed) for group in grouped if group.paths]
    return [*_own(manifest, about), *sets, *shards]


def encodings(kind: str, codec: str) -> list[str]:
    """Return the media types of a format and the codec around it."""
    return [*_FORMATS[kind].media_types, *([_CODECS[codec]] if codec in _CODECS else [])]


def _readable(manifest: Manifest) -> list[dict[str, Any]]:
    columns = ["shard", "split", "uri", "format", "compression", "status", "size", "sha256"]
    rows = manifest.table("shards", columns).to_pylist()
    return [row for row in rows if row["format"] in _FORMATS and row["status"] not in LOST and row["sha256"]]


def _shard(row: dict[str, Any], about: About) -> dict[str, Any]:
    path = quote(_path(row["uri"]), safe="/")
    address = posixpath.join(about.data_url, path) if about.data_url else _relative(path)
    name, kinds = f"{row['split']}/{row['uri']}", encodings(row["format"], row["compression"])
    return _file(f"shards/{row['shard']}", name, address, row["size"], kinds, row["sha256"])


def _file(
    identity: str, name: str, address: str, size: int, kinds: list[str], sha256: str, **more: str
) -> dict[str, Any]:
    """Return a FileObject."""
    made: dict[str, Any] = {"@type": "cr:FileObject", "@id": identity, "name": t.clean(name, _NAME_LIMIT), **more}
    return made | {"contentUrl": address, "contentSize": f"{size} B", "encodingFormat": kinds, "sha256": sha256}


def _set(group: Group, every: Sequence[str], *, listed: bool) -> dict[str, Any]:
    codec = "" if group.compression == "none" else f", {group.compression}"
    where = "listed one by one with its sha256" if listed else "with its sha256 in shards.parquet of the manifest"
    made: dict[str, Any] = {
        "@type": "cr:FileSet",
        "@id": group.id,
        "name": t.clean(f"{group.split} ({group.format}{codec})", _NAME_LIMIT),
        "description": f"{t.plural(len(group.paths), 'shard')} of one split and format, each {where}.",
        "encodingFormat": encodings(group.format, group.compression),
        "includes": _globs(group, every),
    }
    if group.unread:
        made["excludes"] = [_literal(path) for path in group.unread[:MOST_FILES]]
    return made


def _own(manifest: Manifest, about: About) -> list[dict[str, Any]]:
    """Return the manifest's pointer and its table of shards."""
    base = about.manifest_url.rstrip("/") + "/" if about.manifest_url else MANIFEST_FOLDER
    made = []
    parts = (
        (POINTER, "application/json", "The audit: its id, what decided the numbers, and the digest of every table."),
        ("shards.parquet", None, "A row per shard, read or not: URI, size, sha256, counts."),
    )
    for name, kind, meaning in parts:
        data = read_named(manifest.folder / name, "the manifest")
        kinds = [kind] if kind else list(_FORMATS["parquet"].media_types)
        sha256 = hashlib.sha256(data).hexdigest()
        made.append(_file(f"manifest/{name}", name, base + name, len(data), kinds, sha256, description=meaning))
    return made


def _paths(rows: Any) -> tuple[str, ...]:
    """Return the paths of shards, each once: a file may be listed twice."""
    return tuple(sorted({_path(row["uri"]) for row in rows}))


def _path(uri: str) -> str:
    """Return the path of a URI, its copy number dropped; bytes that are not UTF-8 become replacement characters."""
    path = unquote(uri.partition(_COPY)[0], errors="replace")
    if path.startswith("/") or ".." in path.split("/"):
        raise ConfigError(f"the URI {uri} leads out of its root; no build writes such a one")
    return path


def _relative(path: str) -> str:
    """Return a relative address that cannot be taken for an absolute address."""
    return path if ":" not in path.split("/", 1)[0] else f"./{path}"


def _globs(group: Group, every: Sequence[str]) -> list[str]:
    """Return patterns for the files of a group: each path when there are few, else what paths begin and end with.

    Where a pattern would fit a file that is not of the group, each path is listed, however many there are.
    """
    mine = frozenset(group.paths if len(group.unread) > MOST_FILES else (*group.paths, *group.unread))
    if len(group.paths) > MOST_FILES:
        folders: dict[tuple[str, str], list[str]] = {}
        for path in group.paths:
            folders.setdefault((posixpath.dirname(path), _suffix(path)), []).append(path)
        ends = [(_head(paths, suffix), suffix) for (_, suffix), paths in sorted(folders.items())]
        if len(ends) > MOST_FILES:
            ends = sorted({("", suffix) for _, suffix in ends})
        if len(ends) <= MOST_FILES and not any(_fits_others(*end, mine, every) for end in ends):
            return [f"{_literal(head)}*{_literal(tail)}" for head, tail in ends]
    return [_literal(path) for path in group.paths]


def _head(paths: Sequence[str], suffix: str) -> str:
    """Return what all paths begin with, their suffix left out; of sorted paths the first and the last differ most."""
    first, last = (path[: len(path) - len(suffix)] for path in (paths[0], paths[-1]))
    same = (index for index, (name, other) in enumerate(zip(first, last, strict=False)) if name != other)
    return first[: next(same, min(len(first), len(last)))]


def _fits_others(head: str, tail: str, mine: frozenset[str], every: Sequence[str]) -> bool:
    """Tell whether `head*tail` fits a path that is not of a group; the star may stand for slashes too."""
    for path in every[bisect.bisect_left(every, head) :]:
        if not path.startswith(head):
            break
        if path not in mine and path.endswith(tail):
            return True
    return False


def _literal(path: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in path)


def _suffix(path: str) -> str:
    name = posixpath.basename(path)
    return "." + name.partition(".")[2] if "." in name else ""


def _id(*parts: str) -> str:
    return "/".join(quote(part, safe="") for part in parts)


def record_sets(manifest: Manifest, grouped: Sequence[Group]) -> list[dict[str, Any]]:
    """Return the record sets of splits, and a further set that says what each split is for."""
    loadable = [group for group in grouped if group.loadable and group.documents]
    number = Counter(group.split for group in loadable)
    made = []
    for group in loadable:
        fields = _fields(manifest.core.config.get("splits", {}).get(group.split, {}))
        if not fields:
            continue
        alone = number[group.split] == 1 and group.split != _SPLITS
        identity = _id(group.split, *(() if alone else (group.format,)))
        made.append(_record_set(identity, group, fields))
    return [_splits(manifest), *made]


def _record_set(identity: str, group: Group, fields: Sequence[tuple[str, str, str]]) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": identity,
        "name": t.clean(group.split, _SPLIT_LIMIT),
        "description": f"{t.plural(group.documents, 'document')} in {group.format}.",
        "annotation": [_field(identity, "documents", dataType=_COUNT, value=group.documents)],
        "field": [
            _field(
                identity,
                name,
                description=meaning,
                dataType="sc:Text",
                source={"fileSet": {"@id": group.id}, "extract": {"column": column}},
            )
            for name, column, meaning in fields
        ],
    }


def _field(identity: str, name: str, **more: Any) -> dict[str, Any]:
    """Return a field of a record set."""
    return {"@type": "cr:Field", "@id": f"{identity}/{name}", "name": name, **more}


def _fields(split: Any) -> list[tuple[str, str, str]]:
    """Return name, column and meaning of each field; a column inside another has no name that a field could use."""
    if not isinstance(split, dict):
        return []
    source = split.get("source")
    columns = (
        ("text", split.get("text"), "The text that was audited."),
        ("source", source.get("column") if isinstance(source, dict) else None, "Where the document comes from."),
    )
    return [(name, column, meaning) for name, column, meaning in columns if column and "." not in column]


def _splits(manifest: Manifest) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": _SPLITS,
        "name": _SPLITS,
        "description": "What each split is for.",
        "dataType": "cr:Split",
        "key": {"@id": "splits/name"},
        "field": [_field(_SPLITS, "name", dataType="sc:Text"), _field(_SPLITS, "url", dataType="sc:URL")],
        "data": [
            {
                "splits/name": t.clean(split.name, _SPLIT_LIMIT),
                "splits/url": _purpose(split.name, held_out=split.held_out),
            }
            for split in manifest.core.splits
        ],
    }


def _purpose(name: str, *, held_out: bool) -> str:
    if not held_out:
        return "cr:TrainingSplit"
    return "cr:TestSplit" if "test" in name.lower() else "cr:ValidationSplit"
