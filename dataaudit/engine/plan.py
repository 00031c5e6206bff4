"""Plan of a shard: its parts, the keys of their results, and what a quarantine list leaves out.

A key is a digest of everything that decides a result, and of nothing else.

The list knows a shard by the sha256 of its bytes, or by the digest of its rows once it was read. It knows a document by
the digests of its shard and its row; once the shard's rows have changed, the entry is stale and leaves nothing out.
What is left out enters no stage. It stays in the digest of the shard's rows and in its number of records: the list, and
the next build, know the shard by these.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cache
from importlib.metadata import version
from itertools import accumulate
from typing import Any

import numpy as np
import orjson

from dataaudit import __version__
from dataaudit.base.errors import ConfigError
from dataaudit.base.text import plural
from dataaudit.config import AuditConfig
from dataaudit.decide.quarantine.list import Quarantine
from dataaudit.decide.quarantine.selection import digests_of, row_digests_of
from dataaudit.engine.runner import READING, Probe
from dataaudit.engine.store import STORE_VERSION, Damage, PartialStore
from dataaudit.manifest.canonical import digest_json
from dataaudit.manifest.core import HeldBack, QuarantineRecord
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
    annotations = [annotation.name for annotation in stage.needs if annotation != FINDINGS]
    for name in [*annotations, *filter(None, [stage.detector])]:
        assert decisive.get(name) is not None, f"{name} is part of the key of a stage that looks at it"
        value[name] = decisive[name]
    return digest_json(value)


def stage_key(reading: str, identity: str, *, without: Sequence[int] = ()) -> str:
    """Return the key of a stage's partial of a part."""
    return _short([reading, identity, *without])


def keys_as_text(keys: np.ndarray) -> list[str]:
    """Return keys of 32 bytes each, in an array of whatever form, as hexadecimal digits."""
    text = keys.tobytes().hex()
    return [text[start : start + _DIGITS] for start in range(0, len(text), _DIGITS)]


@dataclass(frozen=True, slots=True)
class PartKeys:
    """The keys of a part by stage, made when they are asked for: those of a million parts would be gigabytes."""

    reading: str
    stages: tuple[str, ...]
    """Names of the stages that look at it."""
    identities: Mapping[str, str]
    """Of stages by name, from :func:`stage_identity`; shared by all parts."""
    without: tuple[int, ...] = ()
    """Records of the part that are quarantined, ascending."""

    def __getitem__(self, stage: str) -> str:
        """Return the key of a stage's partial."""
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
    values: dict[str, Any] = {}
    for model in models:
        value = model.decisive()
        if model.annotation == FINDINGS:
            values |= value
        else:
            values[model.annotation.name] = [item.decisive() for item in in_order([model.annotation], models)]
    return values


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
    parts: tuple[PlannedPart, ...] = ()
    reason: Reason | None = None
    place: str = ""
    stages: tuple[str, ...] = ()


def plan_shard(
    shard: Shard,
    probe: Probe | None,
    failure: tuple[Reason, str] | None,
    config: AuditConfig,
    stages: Sequence[Stage],
    identities: Mapping[str, str],
) -> PlannedShard:
    """Plan a shard."""
    if shard.skip is not None:
        return PlannedShard(shard=shard, probe=None, reason=shard.skip)
    if failure is not None or probe is None:
        reason, place = failure or (Reason.INTERNAL, "")
        return PlannedShard(shard=shard, probe=probe, reason=reason, place=place)
    if probe.reason is not None:
        return PlannedShard(shard=shard, probe=probe, reason=probe.reason, place=probe.place)
    try:
        fields = _fields(shard, config)
    except ShardUnreadable as error:
        return PlannedShard(shard=shard, probe=probe, reason=error.reason)
    chosen = [stage for stage in stages if applies(stage, held_out=config.splits[shard.split].held_out)]
    names = tuple(stage.name for stage in chosen)
    parts = []
    for part in probe.parts:
        reading = reading_key(probe.sha256, shard.split, shard.format, shard.compression, part, fields)
        request = ReadRequest.of(shard, part, fields, config.reader.batch_bytes)
        parts.append(PlannedPart(request=request, reading_key=reading, stage_keys=PartKeys(reading, names, identities)))
    return PlannedShard(shard=shard, probe=probe, parts=tuple(parts), stages=names)


def _fields(shard: Shard, config: AuditConfig) -> FieldRule:
    split = config.splits[shard.split]
    assert split.text is not None, "text and source are resolved before planning"
    assert split.source is not None, "text and source are resolved before planning"
    return field_rule(
        split.text,
        split.source,
        shard.uri,
        max_record_bytes=config.reader.max_line_bytes,
        text_document=config.reader.text_document if FORMATS[shard.format].has_text_document else "",
    )


def worker_versions() -> dict[str, str]:
    """Return the versions that have to be the same everywhere."""
    return {"dataaudit": __version__, **library_versions()}


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Return how versions differ from ours, in words; empty when they do not."""
    pairs = ((name, ours.get(name), theirs.get(name)) for name in sorted({*ours, *theirs}))
    return ", ".join(f"{name} {here} here, {there} there" for name, here, there in pairs if here != there)


@dataclass(slots=True, kw_only=True)
class ExclusionFilter:
    """The list of a build, and what is known of its shards."""

    quarantine: Quarantine
    store: PartialStore
    read: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    """Digest of the rows, documents and bad records of shards that were read, by ordinal."""

    def applied(self, planned: PlannedShard, stages: Sequence[Stage], identities: Mapping[str, str]) -> PlannedShard:
        """Return a shard as it is read under the list."""
        digests = digests_of(self._row(planned))
        if digests and self.quarantine.holds(**digests):
            return replace(planned, parts=(), reason=Reason.QUARANTINE_LIST, place="", stages=())
        rows = self.rows(planned)
        if not rows or planned.reason is not None:
            return planned
        looking = tuple(stage.name for stage in stages if stage.name in planned.stages)
        firsts, parts = self._first_rows(planned), []
        for part, first in zip(planned.parts, firsts, strict=True):
            stop = first + self._records(part)
            without = frozenset(row - first for row in rows if first <= row < stop)
            keys = PartKeys(part.reading_key, looking, identities, tuple(sorted(without)))
            parts.append(replace(part, request=replace(part.request, without=without), stage_keys=keys))
        return replace(planned, parts=tuple(parts))

    def learn(self, planned: PlannedShard, rows_digest: str | None, records: int, bad_records: int) -> bool:
        """Take what the scan showed of a shard; tell whether more of it is quarantined than was known before."""
        ordinal = planned.shard.ordinal
        if rows_digest is None or ordinal in self.read:
            return False
        rows = self.rows(planned)
        self.read[ordinal] = rows_digest, records - bad_records, bad_records
        return self.quarantine.holds(**digests_of(self._row(planned))) or self.rows(planned) != rows

    def identities(self) -> tuple[HeldBack, ...]:
        """Return what is in force: a shard once, and the rows of one together."""
        rows_of: dict[tuple[str, str], set[int | None]] = {}
        for target in (entry.target for entry in self.quarantine.entries):
            assert target is not None
            rows_of.setdefault((target.sha256 or "", target.rows_digest or ""), set()).add(target.row)
        return tuple(
            HeldBack(
                sha256=stored or None,
                rows_digest=digest or None,
                rows=None if None in rows else tuple(sorted(row for row in rows if row is not None)),
            )
            for (stored, digest), rows in sorted(rows_of.items())
        )

    def record(self) -> QuarantineRecord:
        """Return which list it was."""
        listed = self.quarantine
        return QuarantineRecord(digest=listed.digest, lines=listed.lines, on=listed.on.isoformat())

    def _row(self, planned: PlannedShard) -> dict[str, object]:
        """Return what the table of shards knows a shard by."""
        digest, documents, bad = self.read.get(planned.shard.ordinal, (None, 0, 0))
        stored = "" if planned.probe is None else planned.probe.sha256
        if planned.shard.format == "datasets":
            stored = digest or ""
        return {"sha256": stored, "rows_digest": digest, "documents": documents, "bad_records": bad}

    def rows(self, planned: PlannedShard) -> frozenset[int]:
        """Return the rows of a shard that are quarantined one by one."""
        digests = row_digests_of(self._row(planned))
        return self.quarantine.rows(**digests) if digests else frozenset()

    def _records(self, part: PlannedPart) -> int:
        """Return the records of a part, 0 for one that was not read."""
        if not self.store.has(READING, part.reading_key):
            return 0
        damage = Damage(self.store)
        entry = damage.read(READING, part.reading_key)
        damage.tell()
        return 0 if entry is None else int(entry.meta["records"])

    def _first_rows(self, planned: PlannedShard) -> list[int]:
        return [0, *accumulate(map(self._records, planned.parts[:-1]))]


def check_splits(shards: Iterable[PlannedShard]) -> None:
    """Refuse a list that leaves nothing of a split: its numbers would be gone without a word."""
    total: Counter[str] = Counter()
    gone: Counter[str] = Counter()
    for planned_shard in shards:
        total[planned_shard.shard.split] += 1
        gone[planned_shard.shard.split] += planned_shard.reason == Reason.QUARANTINE_LIST
    for split, number in gone.items():
        if number == total[split]:
            raise vanished(split, plural(number, "shard"))


def vanished(split: str, what: str) -> ConfigError:
    """Return the error for a list that quarantines all of a split."""
    return ConfigError(
        f"the split `{split}` would vanish: the quarantine list holds back all of it ({what})",
        "Take the split out of the config, or lift entries with `dataaudit quarantine lift`.",
    )
