"""Secrets as people read them: the confirmed ones first, by kind, and where most of them lie.

Small counts are shown: a key is no person, and one that leaked has to be revoked however few there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dataaudit import text as t
from dataaudit.layout import name_column, number_column, prose, section, table
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Metric, Scope

METRIC = "secret_hit_rate"
TIERS = ("validated", "contextual", "pattern")
_NAME_LIMIT = 40
_NAMED = 3
_PLACES = 5
_LEGEND = (
    "validated: a checksum or the structure confirms it; contextual: words beside it say what it is; pattern: the form"
    " alone; docs: documents that hold one; reserved: placeholders, documented examples and allowed ones, in no other"
    " number."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """One kind of secret."""

    entity: str
    """Empty for all of them together."""
    validated: int
    """Hits whose checksum or structure confirms them."""
    contextual: int
    pattern: int
    documents: int
    """Documents that hold one, of whatever tier."""
    validated_documents: int
    reserved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretPlace:
    """A shard that holds secrets."""

    shard: int
    split: str
    uri: str
    validated: int
    hits: int
    """Of every tier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretSource:
    """A source that holds secrets."""

    source: str
    validated: int
    hits: int
    documents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Secrets of a manifest."""

    total: Secret
    entities: tuple[Secret, ...]
    """The most validated hits first, then the most hits."""
    sources: tuple[SecretSource, ...]
    """Those that hold some; the most validated hits first."""
    places: tuple[SecretPlace, ...]
    """The shards with the most validated hits, then with the most hits."""
    shards: int
    """Shards that hold some."""
    truncated: int
    """Documents with more candidates than are looked at."""


def secrets(manifest: Manifest) -> Secrets | None:
    """Return the secrets; None when they were not looked for."""
    records: dict[Scope, dict[str, Metric]] = {}
    for record in manifest.metrics(METRIC):
        records.setdefault(record.scope, {})[record.stat] = record
    whole = records.get(Scope())
    if whole is None:
        return None
    entities = [_secret(scope.entity or "", held) for scope, held in records.items() if _only(scope, "entity")]
    sources = [
        SecretSource(
            source=scope.source,
            validated=_number(held, "validated_hits"),
            hits=_number(held, "hits"),
            documents=_number(held, "documents"),
        )
        for scope, held in records.items()
        if _only(scope, "source") and scope.source and _number(held, "hits")
    ]
    names = ["shard", "split", "uri", "secrets_validated", "secret_hits"]
    places = [
        SecretPlace(
            shard=row["shard"],
            split=row["split"],
            uri=row["uri"],
            validated=row["secrets_validated"] or 0,
            hits=row["secret_hits"],
        )
        for row in manifest.table("shards", names).to_pylist()
        if row["secret_hits"]
    ]
    places.sort(key=lambda one: (-one.validated, -one.hits, one.shard))
    return Secrets(
        total=_secret("", whole),
        entities=tuple(sorted(entities, key=lambda one: (-one.validated, -_hits(one), one.entity))),
        sources=tuple(sorted(sources, key=lambda one: (-one.validated, -one.hits, one.source))),
        places=tuple(places[:_PLACES]),
        shards=len(places),
        truncated=_number(whole, "truncated"),
    )


def secret_facts(manifest: Manifest) -> dict[str, Any]:
    """Return the same as plain JSON values."""
    found = secrets(manifest)
    return {"secrets": None if found is None else asdict(found)}


def secret_warning(found: Secrets | None, width: int) -> list[str]:
    """Return the line that stands above everything else when secrets are confirmed; empty otherwise."""
    if found is None or not found.total.validated:
        return []
    named = [f"{t.clean(one.entity, _NAME_LIMIT)} {t.count(one.validated)}" for one in found.entities if one.validated]
    more = f", {len(named) - _NAMED} more kinds" if len(named) > _NAMED else ""
    kinds = ", ".join(named[:_NAMED]) + more
    what = "secret, confirmed by its structure" if found.total.validated == 1 else "secrets, confirmed by structure"
    text = (
        f"WARNING: {t.count(found.total.validated)} {what}, in {t.plural(found.total.validated_documents, 'document')}"
        f" ({kinds}). Revoke them; the table `findings` has their places."
    )
    return [line.strip() for line in prose(text, width)]


def secret_lines(found: Secrets | None, width: int, limit: int) -> list[str]:
    """Return the block of secrets; empty when they were not looked for.

    Args:
        found: Of :func:`secrets`.
        width: Of the terminal.
        limit: Kinds and sources that are listed at most.
    """
    if found is None:
        return []
    columns = [
        name_column("kind"),
        number_column("validated"),
        number_column("contextual"),
        number_column("pattern"),
        number_column("docs"),
        number_column("reserved"),
    ]
    shown = found.entities if len(found.entities) <= limit + 1 else found.entities[:limit]
    rows = [
        [
            t.clean(one.entity, _NAME_LIMIT) or "(all)",
            t.count(one.validated),
            t.count(one.contextual),
            t.count(one.pattern),
            t.count(one.documents),
            t.count(one.reserved),
        ]
        for one in ([*shown, found.total] if shown else [])
    ]
    lines = table(columns, rows, width) or prose("None was found.", width)
    if len(shown) < len(found.entities):
        lines += prose(f"and {t.count(len(found.entities) - len(shown))} more; --json lists all", width)
    lines += prose(_LEGEND, width) if rows else []
    lines += _sources(found, width, limit) + _places(found, width)
    if found.truncated:
        lines += prose(
            f"{t.plural(found.truncated, 'document')} with too many candidates: only the first ones were checked.",
            width,
        )
    return section("Secrets", lines)


def _sources(found: Secrets, width: int, limit: int) -> list[str]:
    if len(found.sources) < 2:
        return []
    columns = [name_column("source"), number_column("validated"), number_column("hits"), number_column("docs")]
    rows = [
        [t.clean(one.source, _NAME_LIMIT), t.count(one.validated), t.count(one.hits), t.count(one.documents)]
        for one in found.sources[:limit]
    ]
    return ["", *table(columns, rows, width)]


def _places(found: Secrets, width: int) -> list[str]:
    if not found.places:
        return []
    columns = [number_column("shard"), name_column("split/uri"), number_column("validated"), number_column("hits")]
    rows = [
        [str(one.shard), t.clean(f"{one.split}/{one.uri}"), t.count(one.validated), t.count(one.hits)]
        for one in found.places
    ]
    lines = ["", *table(columns, rows, width)]
    if found.shards > len(rows):
        lines += prose(f"and {t.plural(found.shards - len(rows), 'more shard')} with some", width)
    return lines


def _secret(name: str, records: Mapping[str, Metric]) -> Secret:
    return Secret(
        entity=name,
        **{tier: _number(records, f"{tier}_hits") for tier in TIERS},
        documents=_number(records, "documents"),
        validated_documents=_number(records, "validated_documents"),
        reserved=_number(records, "reserved"),
    )


def _hits(one: Secret) -> int:
    return one.validated + one.contextual + one.pattern


def _number(records: Mapping[str, Metric], stat: str) -> int:
    record = records.get(stat)
    return 0 if record is None else int(record.value or 0)


def _only(scope: Scope, name: str) -> bool:
    return list(scope.as_dict()) == [name]
