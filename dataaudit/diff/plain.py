"""The difference as JSON, and the JSON Schema of it, both from the types alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from dataaudit.diff.difference import Difference
from dataaudit.manifest.metric import Scope

SCHEMA_NAME: Final = "dataaudit-diff"
SCHEMA_VERSION: Final = 1
_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
Json = dict[str, Any]


def render_json(difference: Difference) -> str:
    """Return the whole difference as JSON in ASCII, a line for each item of a list; equal manifests, equal bytes."""
    held = {"schema": {"name": SCHEMA_NAME, "version": SCHEMA_VERSION}, **_plain(difference)}
    return "{\n" + ",\n".join(f"  {_compact(name)}: {_value(value)}" for name, value in held.items()) + "\n}\n"


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
    """Return plain JSON values; a scope keeps only the fields that are given."""
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
        plain = [_plain(one) for one in value]
    return plain


def _schema(kind: Any, definitions: Json) -> Json:
    """Return the schema of a type; classes of several fields go into the definitions."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in _SIMPLE:
        schema: Json = {"type": _SIMPLE[kind]}
    elif origin in {Union, UnionType}:
        schema = {"anyOf": [_schema(one, definitions) for one in inner]}
    elif origin is Literal:
        schema = {"enum": list(inner)}
    elif origin is tuple:
        schema = {"type": "array", "items": _schema(inner[0], definitions)}
    elif origin is Mapping:
        schema = {"type": "object", "additionalProperties": _schema(inner[1], definitions)}
    elif isinstance(kind, type) and issubclass(kind, StrEnum):
        schema = {"enum": [str(one) for one in kind]}
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
            properties = {key: one["anyOf"][0] for key, one in properties.items()}
        definitions[name] = {
            "type": "object",
            "properties": properties,
            "required": [] if kind is Scope else list(properties),
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{name}"}
