"""The names that others write down: keys of JSON and YAML, options, codes, functions, states.

    PYTHONPATH=. python tests/public_names.py    # writes tests/golden/names.txt; the changelog names what has changed

Code may be renamed and moved at will as long as these stay.
"""

import ast
import inspect
import json
import re
from importlib import import_module
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "tests/golden/names.txt"
SCHEMAS = ROOT / "manifests/schema"
PACKAGES = tuple(f"dataaudit{room}" for room in ("", ".training", ".vitals", ".live", ".probes", ".manifest"))
PATH = re.compile(r"\"(dataaudit(?:\.\w+)+):(\w+)\"")


def sources(*folders):
    """Return the Python files below some folders."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def of_schemas():
    """Yield each property, and each value of an enumeration, of each JSON Schema."""

    def walk(value):
        match value:
            case dict():
                for name, own in (value.get("properties") or {}).items():
                    yield name
                    yield from walk(own)
                for constant in [*value.get("enum", ()), *([value["const"]] if "const" in value else [])]:
                    yield f"= {json.dumps(constant)}"
                for name, own in value.items():
                    if name != "properties":
                        yield from walk(own)
            case list():
                for own in value:
                    yield from walk(own)

    for path in sorted(SCHEMAS.glob("*.json")):
        yield from (f"{path.name} {name}" for name in walk(json.loads(path.read_text("utf-8"))))


def of_commands():
    """Yield each command with its options and arguments."""
    from dataaudit.cli import main

    def walk(command, called):
        for parameter in command.params:
            for name in [*parameter.opts, *parameter.secondary_opts]:
                yield f"{called} {name}"
        if isinstance(command, click.Group):
            with click.Context(command) as context:
                for name in command.list_commands(context):
                    yield from walk(command.get_command(context, name), f"{called} {name}")

    return walk(main, "dataaudit")


def of_codes():
    """Yield the values of enumerations: reasons, states, severities, exit codes."""
    for path in sources("dataaudit"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            bases = {base.id for base in getattr(node, "bases", ()) if isinstance(base, ast.Name)}
            if isinstance(node, ast.ClassDef) and (node.name == "ExitCode" or "StrEnum" in bases):
                yield from (str(member.value) for member in getattr(import_module(module_of(path)), node.name))


def module_of(path):
    """Return the dotted name of a module."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def of_the_api():
    """Yield what the public packages have: functions with parameters, classes with what can be called and read."""
    for package in PACKAGES:
        module = import_module(package)
        for name in sorted(getattr(module, "__all__", ())):
            value = getattr(module, name)
            yield f"{package}.{name}"
            if callable(value) and not inspect.ismodule(value):
                yield from (f"{package}.{name}({own})" for own in parameters(value))
            if inspect.isclass(value):
                for own in sorted(own for own in dir(value) if not own.startswith("_")):
                    yield f"{package}.{name}.{own}"
                    if inspect.isroutine(getattr(value, own)):
                        yield from (f"{package}.{name}.{own}({given})" for given in parameters(getattr(value, own)))


def parameters(value):
    """Return the names of a callable's parameters."""
    try:
        return [name for name in inspect.signature(value).parameters if name not in {"self", "cls", "args", "kwargs"}]
    except (TypeError, ValueError):  # a module that can be called, a class of C
        return []


def of_states():
    """Yield the keys that a checkpoint has: those that functions named `state_dict` and `state` write."""
    for path in sources("dataaudit"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name in {"state_dict", "state"}:
                written = [key for own in ast.walk(node) if isinstance(own, ast.Dict) for key in own.keys]
                yield from (key.value for key in written if isinstance(key, ast.Constant))


def path_strings():
    """Return each "module:name" that stands in a string, where it stands."""
    folders = ("dataaudit", "pipelines", "benchmarks", "examples")
    found = [(path, PATH.findall(path.read_text("utf-8"))) for path in sources(*folders)]
    return sorted({(path.relative_to(ROOT).as_posix(), *pair) for path, pairs in found for pair in pairs})


GROUPS = {"schema": of_schemas, "command": of_commands, "code": of_codes, "python": of_the_api, "state": of_states}


def collected(*groups):
    """Return a line for each name of some groups, of all if none is given, sorted."""
    return sorted({f"{group}: {name}" for group in groups or GROUPS for name in GROUPS[group]()})


if __name__ == "__main__":
    FILE.write_text("".join(f"{line}\n" for line in collected()), encoding="utf-8")
