"""The plan of a shard, pure: from what was found in its file to parts, and keys by the content of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from dataaudit.config import AuditConfig
from dataaudit.corpus.fields import FieldRule, field_rule
from dataaudit.corpus.loss import Reason, ShardUnreadable
from dataaudit.corpus.readers import ReadRequest
from dataaudit.corpus.shards import Shard
from dataaudit.engine.keys import PartKeys, reading_key
from dataaudit.engine.units import Probe
from dataaudit.manifest.formats import FORMATS
from dataaudit.stages.base import Stage, applies


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
    """Plan one shard.

    Args:
        shard: The shard.
        probe: What was found in its file, None when it was not looked at.
        failure: Why its file could not be looked at.
        config: With text and source resolved for every split.
        stages: Stages to run.
        identities: Of the stages by name, as of :func:`dataaudit.engine.keys.stage_identity`.
    """
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
