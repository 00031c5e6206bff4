"""Record sets of a Croissant file: text and source of each split, where the format has columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from dataaudit import text as t
from dataaudit.export.croissant.files import Group
from dataaudit.manifest.load import Manifest

_COUNT = "http://www.wikidata.org/entity/Q4049983"
"""Cardinality, as the specification writes the number of records."""
_NAME_LIMIT = 200
_SPLITS = "splits"
"""The record set that says what each split is for; a split of that name has the format in its own one's."""


def record_sets(manifest: Manifest, found: Sequence[Group]) -> list[dict[str, Any]]:
    """Return the record sets of splits, and one that says what each split is for."""
    loadable = [group for group in found if group.loadable and group.documents]
    number = Counter(group.split for group in loadable)
    made = []
    for group in loadable:
        fields = _fields(manifest.core.config.get("splits", {}).get(group.split, {}))
        if not fields:
            continue
        alone = number[group.split] == 1 and group.split != _SPLITS
        identity = "/".join(quote(part, safe="") for part in (group.split, *(() if alone else (group.format,))))
        made.append(_record_set(identity, group, fields))
    return [_splits(manifest), *made]


def _record_set(identity: str, group: Group, fields: Sequence[tuple[str, str, str]]) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": identity,
        "name": t.clean(group.split, _NAME_LIMIT),
        "description": f"{t.plural(group.documents, 'document')} in {group.format}.",
        "annotation": [
            {
                "@type": "cr:Field",
                "@id": f"{identity}/documents",
                "name": "documents",
                "dataType": _COUNT,
                "value": group.documents,
            }
        ],
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{identity}/{name}",
                "name": name,
                "description": meaning,
                "dataType": "sc:Text",
                "source": {"fileSet": {"@id": group.id}, "extract": {"column": column}},
            }
            for name, column, meaning in fields
        ],
    }


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
        "field": [
            {"@type": "cr:Field", "@id": "splits/name", "name": "name", "dataType": "sc:Text"},
            {"@type": "cr:Field", "@id": "splits/url", "name": "url", "dataType": "sc:URL"},
        ],
        "data": [
            {
                "splits/name": t.clean(split.name, _NAME_LIMIT),
                "splits/url": _purpose(split.name, held_out=split.held_out),
            }
            for split in manifest.core.splits
        ],
    }


def _purpose(name: str, *, held_out: bool) -> str:
    if not held_out:
        return "cr:TrainingSplit"
    return "cr:TestSplit" if "test" in name.lower() else "cr:ValidationSplit"
