"""What decided the numbers and is not as it was: everything of the core that is no number and no digest of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dataaudit.diff.difference import Setting
from dataaudit.manifest.canonical import canonical_json
from dataaudit.manifest.core import core_json
from dataaudit.manifest.load import Manifest

_AREAS = {
    "dataset": "dataset",
    "config": "config",
    "libraries": "libraries",
    "mixture": "mixture",
    "seeds": "seeds",
    "redaction": "redaction",
    "hmac_key": "redaction",
    "parents": "parents",
    "tool": "tool",
}
_NAMED = {
    "stages": "stages",
    "detectors": "detectors",
    "protected": "protected",
    "upstream_filters": "upstream filters",
}
"""Lists whose items have a name."""
_COUNTED = frozenset({"counted_by", "sampled"})
"""Of the tokenizer: numbers, not settings."""
_ABSENT = object()


def settings(old: Manifest, new: Manifest) -> tuple[Setting, ...]:
    """Return every setting that differs, sorted by area and name."""
    one, other = dict(_settings(old)), dict(_settings(new))
    found = [
        Setting(area=area, name=name, old=_text(one, (area, name)), new=_text(other, (area, name)))
        for area, name in one.keys() | other.keys()
        if one.get((area, name), _ABSENT) != other.get((area, name), _ABSENT)
    ]
    return tuple(sorted(found, key=lambda setting: (setting.area, setting.name)))


def _settings(manifest: Manifest) -> Iterator[tuple[tuple[str, str], object]]:
    """Yield ((area, dotted name), value) of every setting."""
    core = core_json(manifest.core)
    yield ("schema", "version"), manifest.written_as
    for name, area in _AREAS.items():
        for dotted, value in _flat(core[name], () if isinstance(core[name], dict) else (name,)):
            yield (area, dotted), value
    for name, area in _NAMED.items():
        for item in core[name]:
            for dotted, value in _flat({key: item[key] for key in item if key != "name"}, (item["name"],)):
                yield (area, dotted), value
    for name, value in core["tokenizer"].items():
        if name not in _COUNTED:
            yield ("tokenizer", name), value
    for split in core["splits"]:
        yield ("splits", f"{split['name']}.held_out"), split["held_out"]


def _flat(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    """Yield (dotted name, value) of every value that is no mapping; an empty mapping is a value."""
    if isinstance(value, Mapping) and value:
        for name in value:
            yield from _flat(value[name], (*path, str(name)))
    elif path:
        yield ".".join(path), value


def _text(held: Mapping[tuple[str, str], object], key: tuple[str, str]) -> str | None:
    return canonical_json(held[key]).decode() if key in held else None
