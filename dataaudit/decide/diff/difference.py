"""What changed between two manifests, as plain values; also as JSON with its schema, both from the types alone.

Names come from the data, and nothing here is made safe to print: each writer escapes for its own format.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from dataaudit.base.render.result import Result
from dataaudit.manifest.metric import Method, Scope, Status


class Bump(StrEnum):
    """Which part of the version ``MAJOR.MINOR.PATCH`` a change of the data moves, as Croissant 1.1 defines it."""

    NONE = "none"
    PATCH = "patch"
    MINOR = "minor"
    MAJOR = "major"


class ShardChangeKind(StrEnum):
    """How a shard, or a pair of shards, changed; the gravest first."""

    MOVED_SPLIT = "moved_split"
    """The same rows stand in another split."""
    REMOVED = "removed"
    """No shard of the new manifest has its rows."""
    CHANGED = "changed"
    """The shard of this name holds other rows, or a quarantine list leaves out others of them."""
    LOST = "lost"
    """It was read and is not any more: quarantined or skipped."""
    UNKNOWN = "unknown"
    """Read in neither, and the stored bytes are not known to be the same."""
    RECUT = "recut"
    """Other shards, but all that can be compared of their split agrees: cut or ordered otherwise, not proven."""
    ADDED = "added"
    """No shard of the old manifest has its rows."""
    RECOVERED = "recovered"
    """It was not read and now is."""
    MOVED = "moved"
    """The same rows and stored bytes under another URI of the split."""
    REPACKED = "repacked"
    """The same rows in the same split, stored as other bytes; under the same URI or another."""


class ShardChange(NamedTuple):
    """A shard that is not as it was; what a side lacks is None. A tuple, as there may be 10^5."""

    fate: ShardChangeKind
    old_split: str | None
    old_uri: str | None
    new_split: str | None
    new_uri: str | None
    old_status: str | None
    """ok, partial, quarantined or skipped."""
    new_status: str | None
    old_reason: str | None
    """Reason code where it is not ok."""
    new_reason: str | None
    old_documents: int | None
    new_documents: int | None
    old_bytes: int | None
    """UTF-8 bytes of text."""
    new_bytes: int | None
    old_tokens: int | None
    new_tokens: int | None


class FateCount(NamedTuple):
    """How much changed in one way."""

    fate: ShardChangeKind
    old_shards: int
    new_shards: int
    old_documents: int
    new_documents: int
    old_tokens: int
    new_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recut:
    """A split whose shards differ, compared in all that does not depend on how it is cut into shards; in words."""

    split: str
    consistent: bool
    """Whether all of it agrees, token counts included: then cutting or ordering explains the difference, unproven."""
    fell: bool
    """Whether some count of a source fell: then not all old documents are in the split as they were, for sure."""
    agree: tuple[str, ...]
    differ: tuple[str, ...]
    unknown: tuple[str, ...]
    """What cannot be compared, with the reason."""


class MetricChangeKind(StrEnum):
    """How a metric record changed."""

    CHANGED = "changed"
    """Both are exact and differ: the corpora differ. Or an estimate has no interval: the cause is unknown."""
    BEYOND_NOISE = "beyond_noise"
    """At least one is sampled or estimated, and the interval of the difference excludes 0."""
    WITHIN_NOISE = "within_noise"
    """At least one is sampled or estimated, and the interval of the difference includes 0."""
    ADDED = "added"
    """Only the new manifest has the record."""
    REMOVED = "removed"
    """Only the old manifest has the record."""
    GAINED = "gained"
    """There was no value, and now there is."""
    LOST = "lost"
    """There was a value, and now there is none."""
    NOT_COMPARABLE = "not_comparable"
    """Both have a value, of different meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One side of a metric."""

    value: float | None
    low: float | None
    high: float | None
    confidence: float | None
    denominator: int
    method: Method
    status: Status
    reason: str
    """Code of why there is no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricChange:
    """A metric record that is not as it was."""

    metric: str
    stat: str
    scope: Scope
    unit: str
    """Of the new side, if any."""
    fate: MetricChangeKind
    reason: str = ""
    """Code of why it cannot be compared, or why a side has no value; see ``dataaudit explain diff``."""
    old: Number | None
    new: Number | None
    difference: float | None = None
    """New - old; None where they cannot be compared."""
    low: float | None = None
    """Lower bound of the difference; of a sampled or estimated metric from what is not known of both values."""
    high: float | None = None
    confidence: float | None = None
    chance_low: float | None = None
    """Of an exact ratio: lower bound of the difference of two processes, were each corpus a random sample."""
    chance_high: float | None = None
    chance: bool | None = None
    """Whether two corpora of these sizes, drawn from one process, differ this much by chance; None if not asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenShift:
    """One token of a drift: its counts, and what it adds to both divergences, nats."""

    token: int
    piece: str | None
    """Its entry in the vocabulary where a manifest names it."""
    old: int
    new: int
    kl: float
    """Negative where it became rarer."""
    js: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How far the token counts of a split, or of a source in it, are apart."""

    split: str | None
    """None for the whole dataset."""
    source: str | None
    """None for the whole split."""
    old_tokens: int
    new_tokens: int
    kl: float | None = None
    """KL(new || old) with half a count added to every token, nats."""
    js: float | None = None
    """Jensen-Shannon divergence, nats."""
    by_chance: float | None = None
    """KL that chance alone gives on average, nats."""
    by_chance_high: float | None = None
    """Upper bound of the KL that chance alone gives, confidence 0.95; None for a floor."""
    floor: bool = False
    """Whether ``by_chance`` takes tokens as independent: then it is a floor, real text gives several times as much."""
    reason: str = ""
    """Code of why there is no number: new, gone, folded_sources, no_histogram, other_tokenizer."""
    top: tuple[TokenShift, ...] = ()
    """The tokens that add most to ``js``, most first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting that decided the numbers and is not as it was, in canonical JSON; None where it is absent."""

    area: str
    """schema, tool, dataset, config, stages, libraries, tokenizer, detectors, protected, ..."""
    name: str
    """Dotted."""
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a bump is proposed."""

    bump: Bump
    code: str
    """A kind of change of shards, or ``split_role``."""
    text: str
    """Without any name from the data."""
    proven: bool = True
    """Whether digests prove it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The version bump that the data demand, and whether the versions have it."""

    bump: Bump
    proven: bool
    """Whether every cause is proven."""
    causes: tuple[Cause, ...]
    """The gravest first."""
    version: str | None
    """The least version that the new manifest may have; None where it is unknown."""
    complaint: str
    """Code of what is wrong with the versions: too_small, unchanged, backwards, not_semver, other_dataset; or empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two manifests."""

    id: str
    name: str
    """Of the dataset."""
    version: str
    schema: int
    """Version of the manifest's schema, as it was written."""
    tool: str
    """Version of dataaudit that wrote it."""
    tokenizer: str
    shards: int
    """In the numbers."""
    unread_shards: int
    documents: int
    bytes: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Difference(Result):
    """What changed from an older manifest to a newer one."""

    line_by = "dataaudit.decide.diff.blocks:line"
    blocks_by = "dataaudit.decide.diff.blocks:difference_blocks"

    old: Side
    new: Side
    equal: bool
    """Whether both are the same: the same id, or the same core written under two schema versions."""
    descends: bool
    """Whether the old manifest is a parent of the new."""
    proposal: Proposal
    unchanged_shards: int
    fates: tuple[FateCount, ...]
    """Only those that occur, in the order of :class:`ShardChangeKind`."""
    shards: tuple[ShardChange, ...]
    """In the order of :class:`ShardChangeKind`, then by documents, most first, then by split and URI."""
    recuts: tuple[Recut, ...]
    unchanged_metrics: int
    hidden_metrics: int
    """Records that are not shown, because a small count may point at people."""
    metrics: tuple[MetricChange, ...]
    """What matters most first: the order of ``dataaudit explain diff``."""
    drifts: tuple[Drift, ...]
    """The dataset, splits, sources; those that moved most first among the sources."""
    unchanged_drifts: int
    """Splits and sources whose token counts are the same."""
    settings: tuple[Setting, ...]
    """Sorted by area and name."""
    parents: Mapping[str, tuple[str, ...]]
    """Ids, of ``old`` and ``new``."""


FATES = {
    ShardChangeKind.MOVED_SPLIT: "moved to another split",
    ShardChangeKind.REMOVED: "removed",
    ShardChangeKind.CHANGED: "changed",
    ShardChangeKind.LOST: "no longer read",
    ShardChangeKind.UNKNOWN: "unread in both",
    ShardChangeKind.RECUT: "cut otherwise",
    ShardChangeKind.ADDED: "added",
    ShardChangeKind.RECOVERED: "read now",
    ShardChangeKind.MOVED: "renamed",
    ShardChangeKind.REPACKED: "repacked",
}
REASONS = {
    "other_unit": "another unit",
    "other_version": "another version of the definition",
    "other_tokenizer": "another tokenizer",
    "other_detector": "another detector or model",
    "other_protected_set": "other items in the evaluation set",
    "other_reference": "another reference manifest",
    "other_parameters": "other parameters of the stage",
    "shard_ordinal": "shards are numbered anew",
    "new": "only in the new manifest",
    "gone": "only in the old manifest",
    "folded_sources": "added up with other small sources",
    "no_histogram": "token counts were not kept",
    "empty_denominator": "nothing to divide by",
}
SCHEMA_NAME: Final = "dataaudit-diff"
SCHEMA_VERSION: Final = 1
_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
Json = dict[str, Any]


def render_json(difference: Difference) -> str:
    """Return the whole difference as JSON in ASCII, a line for each item of a list; equal manifests, equal bytes."""
    whole = {"schema": {"name": SCHEMA_NAME, "version": SCHEMA_VERSION}, **_plain(difference)}
    return "{\n" + ",\n".join(f"  {_compact(name)}: {_value(value)}" for name, value in whole.items()) + "\n}\n"


def diff_schema() -> Json:
    """Return the JSON Schema of what :func:`render_json` gives."""
    definitions: Json = {}
    _schema(Difference, definitions)
    whole = definitions.pop(Difference.__name__)
    known: Json = {
        "type": "object",
        "properties": {"name": {"const": SCHEMA_NAME}, "version": {"const": SCHEMA_VERSION}},
        "required": ["name", "version"],
        "additionalProperties": False,
    }
    return {
        **whole,
        "title": Difference.__name__,
        "description": "What changed between two manifests, as `dataaudit diff --json` prints it.",
        "properties": {"schema": known, **whole["properties"]},
        "required": ["schema", *whole["required"]],
        "$defs": definitions,
    }


def _value(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"    {_compact(item)}" for item in value) + "\n  ]"
    if isinstance(value, dict) and value:
        return "{\n" + ",\n".join(f"    {_compact(name)}: {_compact(value[name])}" for name in value) + "\n  }"
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False)


def _plain(value: Any) -> Any:
    if value is None or type(value) in _SIMPLE:  # nearly all of them
        return value
    if isinstance(value, StrEnum):
        plain: Any = str(value)
    elif isinstance(value, Scope):
        plain = value.as_dict()
    elif is_dataclass(value) and not isinstance(value, type):
        plain = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        plain = value._asdict()  # of plain values; there may be very many
    elif isinstance(value, Mapping):
        plain = {name: _plain(value[name]) for name in sorted(value)}
    else:
        plain = [_plain(item) for item in value]
    return plain


def _schema(kind: Any, definitions: Json) -> Json:
    origin, inner = get_origin(kind), get_args(kind)
    if kind in _SIMPLE:
        schema: Json = {"type": _SIMPLE[kind]}
    elif origin in {Union, UnionType}:
        schema = {"anyOf": [_schema(item, definitions) for item in inner]}
    elif origin is Literal:
        schema = {"enum": list(inner)}
    elif origin is tuple:
        schema = {"type": "array", "items": _schema(inner[0], definitions)}
    elif origin is Mapping:
        schema = {"type": "object", "additionalProperties": _schema(inner[1], definitions)}
    elif isinstance(kind, type) and issubclass(kind, StrEnum):
        schema = {"enum": [str(member) for member in kind]}
    else:
        schema = _defined(kind, definitions)
    return schema


def _defined(kind: Any, definitions: Json) -> Json:
    """Return a reference to the schema of a class with fields; of a scope only given fields are there."""
    name = kind.__name__
    if name not in definitions:
        definitions[name] = {}  # a class may hold itself
        properties = {key: _schema(hint, definitions) for key, hint in get_type_hints(kind).items()}
        if kind is Scope:
            properties = {key: property_["anyOf"][0] for key, property_ in properties.items()}
        definitions[name] = {
            "type": "object",
            "properties": properties,
            "required": [] if kind is Scope else list(properties),
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{name}"}
