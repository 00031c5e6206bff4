"""``dataaudit schema``: JSON Schemas of config, manifest and metric record, and the tables' columns.

Files are written as ``<name>-v<version>.schema.json``, each with a version of its own; equal code gives equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from dataaudit.base.errors import ConfigError
from dataaudit.base.text import clean
from dataaudit.base.yamlfile import nearest
from dataaudit.config import AuditConfig
from dataaudit.decide.diff import difference
from dataaudit.decide.gate import document
from dataaudit.decide.gate.policy import Policy
from dataaudit.decide.quarantine import entry
from dataaudit.live.rules import alerts_schema
from dataaudit.manifest import canary_record, core, token_proof
from dataaudit.manifest.metric import METHODS, STATUSES
from dataaudit.manifest.outfiles import check_folder, write_file
from dataaudit.manifest.tables import TABLES, TableSpec
from dataaudit.metrics.stages import REQUIRED, STAGES, stage_schema
from dataaudit.runlog import format as runlog
from dataaudit.training.attribution import findings
from dataaudit.training.pages import foreign_log

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
Json = dict[str, Any]


def config_schema() -> Json:
    """Return the schema of a config file, every stage with its parameters.

    It is as strict as the program, but for what only reading can show (a file that is absent, a pattern
    without its group); numbers written as strings are refused here and taken there.
    """
    schema = AuditConfig.model_json_schema(by_alias=True)
    definitions = schema["$defs"]
    stages: Json = {}
    for kind in STAGES:
        definitions[kind.__name__] = stage_schema(kind)
        switch: Json = {"const": True} if kind.name in REQUIRED else {"type": "boolean"}
        stages[kind.name] = {"anyOf": [switch, {"$ref": f"#/$defs/{kind.__name__}"}]}
    schema["properties"]["stages"] |= {"properties": stages, "additionalProperties": False}
    schema["properties"]["splits"]["additionalProperties"] = False
    for form in definitions["Split"]["properties"]["paths"]["anyOf"]:
        if form["type"] == "array":
            form["minItems"] = 1
    given: Json = {"type": "string"}
    definitions["SourceRule"]["oneOf"] = [
        {"required": [name], "properties": {name: given}} for name in definitions["SourceRule"]["properties"]
    ]
    return schema


def metric_schema() -> Json:
    """Return the schema of a metric record, as `show --metric NAME --json` prints it."""
    properties = {field.name: _column_schema(field) for field in TABLES["metrics"].schema}
    scope = {field.name: _column_schema(field) for field in TABLES["metrics"].schema.field("scope").type}
    for given in scope.values():
        given["type"] = given["type"][0]
    properties["scope"] |= {"properties": scope, "additionalProperties": False}
    properties["method"] = properties["method"] | {"enum": list(METHODS)}
    properties["status"] = properties["status"] | {"enum": list(STATUSES)}
    return {
        "title": "Metric",
        "description": "One metric record. A field that is absent from `scope` means all.",
        "type": "object",
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
        "if": {"properties": {"status": {"const": "ok"}}},
        "then": {"properties": {"value": {"type": "number"}}},
        "else": {"properties": {"value": {"type": "null"}, "reason": {"minLength": 1}}},
    }


def tables_description(title: str, description: str, tables: Mapping[str, TableSpec]) -> Json:
    """Return columns, types, meanings and key of every table."""
    head = {"title": title, "description": f"{description}: columns in their order, Arrow types, keys."}
    return {**head, "tables": {name: _table(spec) for name, spec in tables.items()}}


SCHEMAS: Mapping[str, tuple[str, Callable[[], Json], int]] = {
    "config": ("JSON Schema of a config file, for editors and checks", config_schema, 1),
    "manifest": ("JSON Schema of manifest.json", core.ManifestFile.model_json_schema, core.SCHEMA_VERSION),
    "metric": ("JSON Schema of one metric record", metric_schema, 1),
    "policy": ("JSON Schema of a gate's policy", Policy.model_json_schema, 1),
    "gate": ("JSON Schema of gate.json, a verdict", document.gate_schema, document.SCHEMA_VERSION),
    "quarantine": ("JSON Schema of one line of a quarantine list", entry.entry_schema, entry.SCHEMA_VERSION),
    "tables": (
        "columns, types, meanings and keys of every table",
        partial(tables_description, "Tables", "The Parquet tables of a manifest", TABLES),
        core.SCHEMA_VERSION,
    ),
    "attribution": (
        "JSON Schema of attribution.json, what a run log says",
        findings.attribution_schema,
        findings.SCHEMA_VERSION,
    ),
    "detection": ("JSON Schema of what `attribute` says of another program's log", foreign_log.detection_schema, 1),
    "diff": ("JSON Schema of what `diff --json` prints", difference.diff_schema, difference.SCHEMA_VERSION),
    "token-proof": (
        "JSON Schema of the record of `map`, what token files hold",
        token_proof.TokenProof.model_json_schema,
        token_proof.SCHEMA_VERSION,
    ),
    "canary": (
        "JSON Schema of the record of `canary run`, a short training beside healthy seeds",
        canary_record.CanaryRecord.model_json_schema,
        canary_record.SCHEMA_VERSION,
    ),
    "run": (
        "JSON Schema of run.json, the head of a training run's log",
        runlog.RunFile.model_json_schema,
        runlog.SCHEMA_VERSION,
    ),
    "alerts": ("JSON Schema of alerts.yaml, rules of a live run", alerts_schema, 1),
    "runlog": (
        "columns, types, meanings and keys of a run log's tables",
        partial(tables_description, "Run log", "The Arrow streams of a training run's log", runlog.TABLES),
        runlog.SCHEMA_VERSION,
    ),
}
"""What it is of, what makes it, and the version of that form, by name."""


def export_schemas(name: str | None, out: Path | None, *, as_json: bool) -> str:
    """Return one schema, or the list of them; with ``out`` write files and return their names."""
    if name is not None and name not in SCHEMAS:
        raise ConfigError(f"no schema `{clean(name)}`{nearest(name, list(SCHEMAS))}")
    if out is not None:
        paths = [str(path) for path in _write(out, [name] if name else list(SCHEMAS))]
        return json.dumps(paths, indent=2) + "\n" if as_json else "".join(f"{clean(path)}\n" for path in paths)
    if name is not None:
        return render(name)
    if as_json:
        return json.dumps({schema: about for schema, (about, _, _) in SCHEMAS.items()}, indent=2) + "\n"
    width = max(map(len, SCHEMAS)) + 2
    return "".join(f"{schema:<{width}}{about}\n" for schema, (about, _, _) in SCHEMAS.items())


def render(name: str) -> str:
    """Return the text of a schema's file."""
    head = {"$schema": _DIALECT} if name not in {"tables", "runlog"} else {}
    _, make, version = SCHEMAS[name]
    value = {**head, "$id": f"urn:dataaudit:schema:{name}:v{version}", **make()}
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=True) + "\n"


def file_name(name: str) -> str:
    """Return the name of a schema's file."""
    return f"{name}-v{SCHEMAS[name][2]}.schema.json"


def _write(folder: Path, names: list[str]) -> list[Path]:
    paths = [folder / file_name(name) for name in names]
    check_folder("--out", folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, path in zip(names, paths, strict=True):
            write_file(path, render(name).encode())
    except OSError as error:
        raise ConfigError(f"--out {folder}: cannot be written: {error.strerror}", "Name another folder.") from None
    return paths


def _table(spec: TableSpec) -> Json:
    return {"about": spec.about, "key": list(spec.key), "columns": [_column(field) for field in spec.schema]}


def _column(field: pa.Field) -> Json:
    column: Json = {
        "name": field.name,
        "type": _type(field.type),
        "nullable": field.nullable,
        "meaning": _meaning(field),
    }
    inner = field.type.value_type if pa.types.is_list(field.type) else field.type
    if pa.types.is_struct(inner):
        column["fields"] = [_column(child) for child in inner]
    return column


def _type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"list<{_type(kind.value_type)}>"
    return "struct" if pa.types.is_struct(kind) else str(kind)


def _column_schema(field: pa.Field) -> Json:
    kind = field.type
    if pa.types.is_struct(kind):
        json_type = "object"
    elif pa.types.is_string(kind):
        json_type = "string"
    else:
        json_type = "integer" if pa.types.is_integer(kind) else "number"
    return {"description": _meaning(field), "type": [json_type, "null"] if field.nullable else json_type}


def _meaning(field: pa.Field) -> str:
    return str((field.metadata or {}).get(b"meaning", b"").decode())
