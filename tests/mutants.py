"""Change the source in one place at a time, and say of how many changes the tests take notice.

    python tests/mutants.py draw 300 > mutants.jsonl     # draws places of the source, one JSON object a line
    python tests/mutants.py run mutants.jsonl            # changes each, runs the tests that import its module

A mutant is named by the shape of its function (the tree without names and texts) and by its name, so that it is found
again after moves, and by the shape alone after renames; ``run`` says of those that are not found that they are gone.
The tests of a module are the files that import it, those with its name first, eight at most. ``run`` changes files in
place and restores them: use a worktree of its own. What has run stands in ``mutants.jsonl.done``, and is not run again.
"""

import ast
import functools
import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "dataaudit"
SEED = 20_000
MOST_FILES = 8
LIMIT = 300
"""Seconds after which tests count as having taken notice."""
COMPARED = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="}
COMPUTED = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.Div: "*", ast.FloorDiv: "*"}


def module_of(path):
    """Return the dotted name of a module."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def shape_of(function):
    """Return a digest of a function's tree, names and texts left out."""
    kinds = []
    for node in ast.walk(function):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        value = f"={node.value!r}" if isinstance(node, ast.Constant) and not is_text else ""
        kinds.append(type(node).__name__ + value)
    return hashlib.sha256(" ".join(kinds).encode()).hexdigest()[:16]


def changes(function):
    """Yield the changes of a function in order: what is replaced, from where to where, by what."""
    quoted = {id(inner) for node in ast.walk(function) if isinstance(node, ast.JoinedStr) for inner in ast.walk(node)}
    for node in ast.walk(function):
        if id(node) in quoted:  # positions within f-strings are those of the whole text before Python 3.12
            continue
        match node:
            case ast.Compare(ops=[operator]) if type(operator) in COMPARED:
                yield "compare", (node.left, node.comparators[0]), COMPARED[type(operator)]
            case ast.BinOp() if type(node.op) in COMPUTED:
                yield "compute", (node.left, node.right), COMPUTED[type(node.op)]
            case ast.BoolOp():
                yield "and or", (node.values[0], node.values[1]), "or" if isinstance(node.op, ast.And) else "and"
            case ast.UnaryOp(op=ast.Not()):
                yield "not", node, ""
            case ast.Constant(value=bool()):
                yield "flag", node, str(not node.value)
            case ast.Constant(value=int()):
                yield "number", node, str(node.value + 1)
            case ast.Return(value=ast.expr()) if not isinstance(node.value, ast.Constant):
                yield "return", node.value, "None"


def functions():
    """Yield each function of the package with its file, its name, its shape and its tree."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                yield path, node.name, shape_of(node), node


def draw(number):
    """Print some of all changes, drawn with a fixed seed."""
    every = [
        {"module": module_of(path), "function": name, "shape": shape, "place": place, "kind": change[0]}
        for path, name, shape, node in functions()
        for place, change in enumerate(changes(node))
    ]
    for mutant in random.Random(SEED).sample(every, number):
        print(json.dumps(mutant))


def changed(path, change):
    """Return the text of a file with one change."""
    _, where, by = change
    lines = path.read_bytes().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    text = b"".join(lines)
    if isinstance(where, tuple):  # an operator between two expressions; brackets around them stay
        begin = starts[where[0].end_lineno - 1] + where[0].end_col_offset
        end = starts[where[1].lineno - 1] + where[1].col_offset
        between = text[begin:end]
        opened, closed = between.count(b"("), between.count(b")")
        return text[:begin] + b")" * closed + b" " + by.encode() + b" " + b"(" * opened + text[end:]
    begin = starts[where.lineno - 1] + where.col_offset
    end = starts[where.end_lineno - 1] + where.end_col_offset
    inner = text[begin:end].removeprefix(b"not") if by == "" else by.encode()
    return text[:begin] + inner + text[end:]


def tests_of(module):
    """Return the files of tests that import a module, those with its name first."""
    parent, _, name = module.rpartition(".")
    found = [path for path, imports in imported().items() if module in imports or name in imports.get(parent, ())]
    return sorted(found, key=lambda path: (name not in path.stem, path.stat().st_size))[:MOST_FILES]


@functools.cache
def imported():
    """Return the files of tests, each with the names that it imports by module."""
    found = {path: {} for path in sorted((ROOT / "tests").rglob("test_*.py"))}
    for path, imports in found.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                imports.setdefault(node.module, set()).update(alias.name for alias in node.names)
    return found


def judged(mutant, known):
    """Return what became of a mutant: killed, survived, untested, invalid, gone, or broken: its tests fail anyway."""
    found = known.get((mutant["shape"], mutant["function"]), known.get(mutant["shape"]))
    if found is None:
        return "gone"
    path, node = found
    files = tests_of(module_of(path))
    if not files:
        return "untested"
    before = path.read_bytes()
    after = changed(path, list(changes(node))[mutant["place"]])
    try:
        ast.parse(after)
    except SyntaxError:
        return "invalid"
    path.write_bytes(after)
    try:
        if passes(tuple(files)):
            return "survived"
    finally:
        path.write_bytes(before)
    return "killed" if sound(tuple(files)) else "broken"


def passes(files):
    """Return whether tests pass; those that do not end have failed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", *map(str, files)]
    path = f"{ROOT}:{ROOT / 'tests'}"
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


sound = functools.cache(passes)
"""Whether tests pass without a change."""


def run(listed):
    """Judge the mutants of a file, and print how many were killed."""
    record = Path(f"{listed}.done")
    done = [json.loads(line) for line in record.read_text("utf-8").splitlines()] if record.exists() else []
    known = {key: (path, node) for path, name, shape, node in functions() for key in (shape, (shape, name))}
    for line in Path(listed).read_text("utf-8").splitlines()[len(done) :]:
        done.append({**json.loads(line), "outcome": judged(json.loads(line), known)})
        with record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(done[-1]) + "\n")
    outcomes = [mutant["outcome"] for mutant in done]
    print(", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in sorted(set(outcomes))))


def main(arguments):
    """Do what the command line names."""
    match arguments:
        case ["draw", number]:
            draw(int(number))
        case ["run", listed]:
            run(listed)
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
