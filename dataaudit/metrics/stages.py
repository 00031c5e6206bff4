"""The stages of a build: those of all families, as the config chooses and sets them."""

from __future__ import annotations

import dataclasses
from pkgutil import resolve_name
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from dataaudit.base.errors import ConfigError
from dataaudit.base.yamlfile import nearest
from dataaudit.metrics.registry import FAMILIES
from dataaudit.scan.stages.base import Stage

STAGES: tuple[type[Any], ...] = tuple(resolve_name(family.stage) for family in FAMILIES if family.stage)
"""Every stage, in the order in which they run and report."""
REQUIRED = ("volume",)
"""Stages that cannot be switched off: the manifest's own columns rest on them."""


def make_stages(chosen: dict[str, bool | dict[str, Any]]) -> tuple[Stage, ...]:
    """Return the stages of a build: all by default, ``false`` leaves one out, a mapping sets parameters."""
    known = {kind.name: kind for kind in STAGES}
    problems = [f"stages.{name}: unknown stage{nearest(name, list(known))}" for name in chosen if name not in known]
    made: list[Stage] = []
    for name, kind in known.items():
        choice = chosen.get(name, True)
        if choice is False:
            if name in REQUIRED:
                problems.append(f"stages.{name}: this stage cannot be switched off; leave the line out")
            continue
        stage = _make(kind, {} if choice is True else choice)
        if isinstance(stage, list):
            problems += stage
        else:
            made.append(stage)
    if problems:
        raise ConfigError(
            problems[0] if len(problems) == 1 else _listed(problems), "`dataaudit explain stages` lists them."
        )
    return tuple(made)


def stage_schema(kind: type[Any]) -> dict[str, Any]:
    """Return the JSON Schema of a stage's parameters."""
    schema = TypeAdapter(kind).json_schema()
    schema["additionalProperties"] = False
    return schema


def _listed(problems: list[str]) -> str:
    return f"stages: {len(problems)} problems\n" + "\n".join(f"  - {line}" for line in problems)


def _make(kind: type[Any], given: dict[str, Any]) -> Stage | list[str]:
    """Return the stage, or what is wrong with its parameters."""
    if not given:
        made: Stage = kind()  # pydantic takes its time to learn a class
        return made
    known = [item.name for item in dataclasses.fields(kind)]
    problems = [
        f"stages.{kind.name}.{name}: unknown parameter{nearest(name, known or ['(none)'])}"
        for name in given
        if name not in known
    ]
    right = {name: value for name, value in given.items() if name in known}
    try:
        stage: Stage = TypeAdapter(kind).validate_json(orjson.dumps(right), strict=True)
    except ValidationError as error:
        for entry in error.errors(include_url=False):
            key = ".".join(map(str, (kind.name, *entry["loc"])))
            problems.append(f"stages.{key}: {entry['msg'].removeprefix('Value error, ')}")
        return problems
    return problems or stage
