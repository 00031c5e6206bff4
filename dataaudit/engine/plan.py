"""The plan of a shard, pure: from what was found in its file to parts, and keys by the content of each.

Keys of partials: digests of everything that decides a result, and of nothing else.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cache, lru_cache
from importlib.metadata import version
from typing import Any

import numpy as np
import orjson

from dataaudit import __version__
from dataaudit.config import AuditConfig
from dataaudit.engine.store import STORE_VERSION
from dataaudit.engine.units import Probe
from dataaudit.manifest.canonical import digest_json
from dataaudit.manifest.formats import FORMATS
from dataaudit.scan.annotators import FINDINGS, AnnotatorModel, in_order
from dataaudit.scan.corpus.fields import FieldRule, field_rule
from dataaudit.scan.corpus.loss import Reason, ShardUnreadable
from dataaudit.scan.corpus.readers import READER_VERSION, Part, ReadRequest
from dataaudit.scan.corpus.shards import Compression, Shard
from dataaudit.scan.corpus.texts import NORMAL_FORM, NORMAL_FORM_VERSION
from dataaudit.scan.detectors.language_detectors import FASTTEXT
from dataaudit.scan.stages.base import Stage, applies, parameters

_DIGITS = 64
"""Of a key."""
NUMERIC_LIBRARIES = (
    "detect-secrets",
    FASTTEXT,
    "gigatoken",
    "hyperscan",
    "numba",
    "numpy",
    "orjson",
    "phonenumbers",
    "pyarrow",
    "pycld2",
    "python-stdnum",
    "scipy",
    "sentencepiece",
    "tokenizers",
)


def library_versions() -> dict[str, str]:
    """Return the versions of everything that affects numbers; part of every key and of the manifest."""
    return {**_installed(), "unicode": unicodedata.unidata_version}


@cache
def _installed() -> dict[str, str]:
    """Ask once: every key holds these versions, and asking takes over a millisecond."""
    return {name: version(name) for name in NUMERIC_LIBRARIES}


def reading_key(sha256: str, split: str, format_: str, compression: Compression, part: Part, fields: FieldRule) -> str:
    """Return the key of what reading a part gives, whatever is done with it."""
    versions = _versions(__version__, STORE_VERSION, READER_VERSION, tuple(sorted(library_versions().items())))
    return _short([versions, sha256, split, format_, compression, part.start, part.stop, *_values(fields)])


@cache
def _values(fields: FieldRule) -> tuple[Any, ...]:
    return astuple(fields)


@cache
def _versions(tool: str, store: int, reader: int, libraries: tuple[tuple[str, str], ...]) -> str:
    return digest_json({"tool": tool, "store": store, "reader": reader, "libraries": dict(libraries)})


def stage_identity(stage: Stage, decisive: Mapping[str, Any]) -> str:
    """Return the digest of what decides a stage's partials beside the part: version, parameters, what it looks at."""
    value: dict[str, Any] = {
        "stage": stage.name,
        "version": stage.version,
        "parameters": parameters(stage),
        "normal_form": [NORMAL_FORM, NORMAL_FORM_VERSION],
    }
    for name in _looked_at(stage):
        assert decisive.get(name) is not None, f"{name} is part of the key of a stage that looks at it"
        value[name] = decisive[name]
    return digest_json(value)


def stage_key(reading: str, identity: str, *, without: Sequence[int] = ()) -> str:
    """Return the key of one stage's partial of a part."""
    return _short([reading, identity, *without])


def keys_as_text(keys: np.ndarray) -> list[str]:
    """Return keys of 32 bytes each, in an array of whatever form, as hexadecimal digits."""
    text = keys.tobytes().hex()
    return [text[start : start + _DIGITS] for start in range(0, len(text), _DIGITS)]


@dataclass(frozen=True, slots=True)
class PartKeys:
    """The keys of a part by stage, made when they are asked for: those of a million parts would be gigabytes."""

    reading: str
    """Key of what reading the part gives."""
    stages: tuple[str, ...]
    """Names of the stages that look at it."""
    identities: Mapping[str, str]
    """Of stages by name, from :func:`stage_identity`; shared by all parts."""
    without: tuple[int, ...] = ()
    """Records of the part that are held back, ascending."""

    def __getitem__(self, stage: str) -> str:
        """Return the key of one stage's partial."""
        return stage_key(self.reading, self.identities[stage], without=self.without)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield each stage with its key."""
        return ((stage, self[stage]) for stage in self.stages)

    def __contains__(self, stage: object) -> bool:
        """Tell whether a stage looks at the part."""
        return stage in self.stages

    def __len__(self) -> int:
        """Return how many stages look at it."""
        return len(self.stages)


def decisive_values(models: Sequence[AnnotatorModel]) -> dict[str, Any]:
    """Return what decides each annotation, and what that needs, as plain JSON values; findings by their detectors."""
    found: dict[str, Any] = {}
    for model in models:
        value = model.decisive()
        if model.annotation == FINDINGS:
            found |= value
        else:
            found[model.annotation.name] = [item.decisive() for item in in_order([model.annotation], models)]
    return found


def _looked_at(stage: Stage) -> list[str]:
    names = [annotation.name for annotation in stage.needs if annotation != FINDINGS]
    return [*names, stage.detector] if stage.detector else names


def _short(value: list[Any]) -> str:
    """Return the sha256 of a list of plain values, hex; there are some for every part, so nothing long is in it."""
    return hashlib.sha256(orjson.dumps(value)).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPart:
    """One part of a shard with the keys of everything that is computed of it."""

    request: ReadRequest
    reading_key: str
    stage_keys: PartKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedShard:
    """A shard with its parts, or why it is not read."""

    shard: Shard
    probe: Probe | None
    parts: tuple[PlannedPart, ...]
    reason: Reason | None
    place: str = ""
    stages: tuple[str, ...] = ()
    """Names of the stages that look at it."""


def plan_shard(
    shard: Shard,
    probe: Probe | None,
    failure: tuple[Reason, str] | None,
    config: AuditConfig,
    stages: Sequence[Stage],
    identities: Mapping[str, str],
) -> PlannedShard:
    """Plan one shard."""
    if shard.skip is not None:
        return PlannedShard(shard=shard, probe=None, parts=(), reason=shard.skip)
    if failure is not None or probe is None:
        reason, place = failure or (Reason.INTERNAL, "")
        return PlannedShard(shard=shard, probe=probe, parts=(), reason=reason, place=place)
    if probe.reason is not None:
        return PlannedShard(shard=shard, probe=probe, parts=(), reason=probe.reason, place=probe.place)
    try:
        fields = _fields(shard, config)
    except ShardUnreadable as error:
        return PlannedShard(shard=shard, probe=probe, parts=(), reason=error.reason)
    chosen = [stage for stage in stages if applies(stage, held_out=config.splits[shard.split].held_out)]
    names = _shared_names(tuple(stage.name for stage in chosen))
    parts = []
    for part in probe.parts:
        reading = reading_key(probe.sha256, shard.split, shard.format, shard.compression, part, fields)
        request = ReadRequest(
            path=shard.path,
            format=shard.format,
            compression=shard.compression,
            part=part,
            fields=fields,
            batch_bytes=config.reader.batch_bytes,
        )
        parts.append(PlannedPart(request=request, reading_key=reading, stage_keys=PartKeys(reading, names, identities)))
    return PlannedShard(shard=shard, probe=probe, parts=tuple(parts), reason=None, stages=names)


def _fields(shard: Shard, config: AuditConfig) -> FieldRule:
    split = config.splits[shard.split]
    assert split.text is not None, "text and source are resolved before planning"
    assert split.source is not None, "text and source are resolved before planning"
    rule = field_rule(
        split.text,
        split.source,
        shard.uri,
        max_record_bytes=config.reader.max_line_bytes,
        text_document=config.reader.text_document if FORMATS[shard.format].has_text_document else "",
    )
    return _shared(rule)


@lru_cache(maxsize=1024)
def _shared(rule: FieldRule) -> FieldRule:
    """Return one object for equal rules: most shards have the same."""
    return rule


@lru_cache(maxsize=64)
def _shared_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return one object for equal names of stages."""
    return names
