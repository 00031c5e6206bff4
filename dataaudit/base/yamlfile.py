"""YAML that people write: loaded strictly, with errors in plain words."""

from __future__ import annotations

import datetime as dt
import difflib
import re
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from dataaudit.base.errors import ConfigError
from dataaudit.base.files import read_safely
from dataaudit.base.redact import without_secrets

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
_MAPPING = "expected a mapping (keys with values)"
_CLOSE = 0.7
"""Similarity, by difflib, from which a known name is suggested for an unknown one."""
_WORDS = {
    "missing": "required, but absent",
    "string_type": "expected text",
    "string_too_short": "expected text that is not empty",
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number",
    "int_parsing_size": "expected a smaller whole number",
    "float_type": "expected a number",
    "finite_number": "expected a finite number",
    "bool_type": "expected true or false",
    "tuple_type": "expected a list",
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "too_short": "expected at least one entry",
    "greater_than_equal": "expected at least {ge}",
    "greater_than": "expected more than {gt}",
    "less_than_equal": "expected at most {le}",
    "less_than": "expected less than {lt}",
    "recursion_loop": "it contains itself",
    "invalid_key": "expected a key that is text",
}
_NAME_WORDS = "expected a name of letters, digits, `.`, `_` and `-` that begins with a letter or digit"
_INT = re.compile(r"^[-+]?(?:0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(
    r"^[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)\Z"
    r"|^[-+]?\.(?:inf|Inf|INF)\Z|^\.(?:nan|NaN|NAN)\Z"
)
_UNSEEN = re.compile("\r(?!\n)|[\x85\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Characters by which a file shows other lines, or another order, than are read: with a line end that no editor shows,
what looks like a comment holds a key."""
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_KEY_TAGS = frozenset({"tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"})
_KEY_LIMIT = 60
_NUMBERS = {"tag:yaml.org,2002:int": _INT, "tag:yaml.org,2002:float": _FLOAT}


class _Loader(yaml.SafeLoader):
    """Plain values only; a key that is given twice, or is no text, is an error; numbers as in YAML 1.2.

    1e6 is a number. 010, 1:30, 0x10 and 1_0 are none: YAML 1.1 reads 8, 90, 16 and 10, other readers text.
    """

    def compose_scalar_node(self, anchor: Any) -> Any:
        node = super().compose_scalar_node(anchor)
        if found := _NO_TEXT.search(node.value):
            raise yaml.MarkedYAMLError(
                problem=f"a text holds U+{ord(found[0]):04X}, which no file, name or column can hold",
                problem_mark=node.start_mark,
            )
        return node

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        seen: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                name = (key.tag, key.value)
                if name in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key `{key.value}` is given twice, first in line {seen[name]}",
                        problem_mark=key.start_mark,
                    )
                seen[name] = key.start_mark.line + 1
        for key, _ in node.value:
            if not (isinstance(key, yaml.ScalarNode) and key.tag in _KEY_TAGS):
                self._refuse_key(key)
        return node

    def _refuse_key(self, key: yaml.Node) -> NoReturn:
        """Name a key that is no text as it stands in the file: `yes` and not True."""
        start, end = key.start_mark, key.end_mark
        written = "" if start.buffer is None else " ".join(start.buffer[start.pointer : end.pointer].split())
        shown = without_secrets(written)
        named = f"the key `{shown[:_KEY_LIMIT]}`" if written else "a key that is empty"
        found = "a mapping" if isinstance(key, yaml.MappingNode) else "a list"
        if isinstance(key, yaml.ScalarNode):
            found = in_words(self.construct_object(key))
            found = "no value (null)" if found == "nothing" else found
        hint = "; put it in quotes" if isinstance(key, yaml.ScalarNode) else ""
        raise yaml.MarkedYAMLError(problem=f"{named} is read as {found}, expected text{hint}", problem_mark=start)

    def construct_object(self, node: Any, deep: Any = False) -> Any:
        try:
            if node.tag in _NUMBERS and not _NUMBERS[node.tag].match(node.value):
                raise ValueError  # a tag, `!!int 0x10`, says what the spelling does not
            return super().construct_object(node, deep=deep)
        except (ValueError, LookupError, TypeError):
            raise yaml.MarkedYAMLError(
                problem=f"the value {without_secrets(str(node.value))[:60]!r} cannot be read; put text in quotes",
                problem_mark=node.start_mark,
            ) from None


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag not in _NUMBERS]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, _pattern in _NUMBERS.items():
    _Loader.add_implicit_resolver(_tag, _pattern, list("-+.0123456789"))


def load_yaml(text: str, *, where: str) -> Any:
    """Return the plain values of one YAML document."""
    if unseen := _UNSEEN.search(text):
        line = text.count("\n", 0, unseen.start()) + 1
        raise ConfigError(
            f"{where} is refused, line {line}: U+{ord(unseen[0]):04X} shows other lines than are read",
            f'End lines with a line feed; in text write "\\u{ord(unseen[0]):04x}", in double quotes.',
        )
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        position = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise ConfigError(f"{where} is not valid YAML{position}: {problem}") from None
    except RecursionError:
        raise ConfigError(f"{where} is nested too deeply to be read") from None


def explain(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """Return one line for each problem that pydantic found: place, what was expected, what was found."""
    items = error.errors(include_url=False)
    return [_line(dict(item), model) for item in items if item["type"] != "too_short" or not item["input"]]


def nearest(name: str, known: Sequence[str]) -> str:
    """Return `` (did you mean `x`?)`` for the nearest known name, or the known names."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=_CLOSE)
    return f" (did you mean `{close[0]}`?)" if close else f" (known: {', '.join(sorted(known))})"


def in_words(value: object) -> str:
    """Return what a YAML value is, shortly."""
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f"the text {without_secrets(value)[:60]!r}" if value else "empty text"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, dt.date):
        return f"the date {value.isoformat()}"
    kind = "mapping" if isinstance(value, dict) else "list"
    return f"a {kind}" if value else f"an empty {kind}"


def _line(item: dict[str, Any], model: type[BaseModel]) -> str:
    loc: tuple[int | str, ...] = item["loc"]
    kind: str = item["type"]
    found = item["input"]
    subject = ""
    if loc and loc[-1] == "[key]":
        subject, loc = f"the name `{loc[-2]}`: ", loc[:-2]
    position = ".".join(str(part) for part in loc) or "(top level)"
    if kind == "extra_forbidden":
        name = str(loc[-1])
        deeper = _deeper(model, name) if len(loc) == 1 else None
        return f"{position}: unknown key" + (
            f" (did you mean `{deeper}`?)" if deeper else nearest(name, _keys(model, loc[:-1]))
        )
    if kind == "value_error":
        return f"{position}: {str(item['msg']).removeprefix('Value error, ')}"
    words = _WORDS[kind].format(**item.get("ctx", {})) if kind in _WORDS else str(item["msg"])
    if kind == "string_pattern_mismatch" and item["ctx"]["pattern"] == NAME_PATTERN:
        words = _NAME_WORDS
    if kind == "missing":
        return f"{position}: {words}"
    hint = ""
    if kind in {"string_type", "invalid_key"} and isinstance(found, bool | int | float | dt.date):
        hint = "; put it in quotes"
    return f"{position}: {subject}{words}, found {in_words(found)}{hint}"


def _deeper(model: type[BaseModel], name: str) -> str | None:
    """Return where a key belongs that is one of the entries of a mapping by name, such as ``splits.NAME.text``."""
    for section in _keys(model, ()):
        if get_origin(_unwrapped(_step(model, section))) is dict and name in _keys(model, (section, "NAME")):
            return f"{section}.NAME.{name}"
    return None


def _keys(kind: Any, path: Sequence[int | str]) -> list[str]:
    """Return the keys that the section at ``path`` knows, by walking the annotations of the models."""
    for part in path:
        kind = _step(kind, part)
    kind = _unwrapped(kind)
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return []
    return [field.alias or name for name, field in kind.model_fields.items()]


def _step(kind: Any, part: int | str) -> Any:
    kind = _unwrapped(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = {field.alias or name: field.annotation for name, field in kind.model_fields.items()}
        return fields.get(str(part))
    arguments = get_args(kind)
    return arguments[1 if get_origin(kind) is dict else 0] if arguments else None


def _unwrapped(kind: Any) -> Any:
    """Take off Annotated and None."""
    if get_origin(kind) is Annotated:
        return _unwrapped(get_args(kind)[0])
    if get_origin(kind) in {Union, types.UnionType}:
        return _unwrapped(next(argument for argument in get_args(kind) if argument is not type(None)))
    return kind


def read_named(path: Path, what: str) -> bytes:
    """Read a whole file that the user named, of YAML or not."""
    try:
        return read_safely(path)
    except OSError as error:
        raise ConfigError(f"{what} {path} cannot be read: {error.strerror}") from None
