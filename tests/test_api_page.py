"""docs/reference/api.md and the docstrings of the API: every example runs, and the page names all there is."""

import doctest
import inspect
import json
import re
import shutil
from pathlib import Path

import pytest
from made_keys import write_keys

import dataaudit
from dataaudit import api
from dataaudit.api import arguments, building, judging, quarantining

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
_BLOCKS = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_NAMES = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FLAGS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
HELD = "train/train/manual/part-000.jsonl.zst"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """What the examples find: the demo's manifest, one of their own, a key, a corpus of two files, a config of it."""
    for name in ("manifests", "data/train", "data/val"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "manifests/demo").symlink_to(ROOT / "manifests/demo")
    shutil.copytree(ROOT / "manifests/demo", tmp_path / "manifests/mine")
    write_keys(tmp_path)
    for split, number in (("train", 40), ("val", 8)):
        texts = (f"Document {row} of {split} says that {row * 7} and {row * 13} are numbers." for row in range(number))
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (tmp_path / f"data/{split}/part-0.jsonl").write_text(lines, encoding="utf-8")
    config = "splits: {train: {paths: data/train}, val: {paths: data/val, held_out: true}}\n"
    (tmp_path / "corpus.yaml").write_text(config, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_examples(test):
    """Run the examples of a doctest; return how many there were and what went wrong."""
    said = []
    done = doctest.DocTestRunner(optionflags=_FLAGS).run(test, out=said.append)
    return done.attempted, "".join(said)


@pytest.mark.judges
def test_every_example_of_the_page_runs(folder):
    """The blocks run one after another, as a reader would run them, and give what stands below them."""
    source = "\n".join(_BLOCKS.findall(PAGE))
    test = doctest.DocTestParser().get_doctest(source, {}, "api.md", "docs/reference/api.md", 0)
    attempted, said = run_examples(test)
    assert not said, said
    assert attempted > 30
    assert not [line for line in source.splitlines() if "noqa" in line or "doctest:" in line]


EXAMPLES = [
    test
    for module in (building, judging, arguments, quarantining)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs=vars(api))
    if test.examples
]


@pytest.mark.judges
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.name)
def test_every_example_of_a_docstring_runs(folder, example):
    """Each in a folder of its own, with a list that holds one shard back."""
    api.quarantine("quarantine.jsonl").add(HELD, manifest="manifests/demo", reason="drift", who="test")
    attempted, said = run_examples(example)
    assert attempted
    assert not said, said


def public(kind):
    """Return the functions of a class that are for use, by name."""
    found = inspect.getmembers(kind, inspect.isfunction)
    return {name: one for name, one in found if not name.startswith("_")}


def signature(name, function):
    """Return a line as the page has it: names and defaults, and what comes back."""
    found = inspect.signature(function)
    kept = [one.replace(annotation=inspect.Parameter.empty) for one in found.parameters.values() if one.name != "self"]
    return f"{name}{inspect.Signature(kept)} -> {found.return_annotation}"


def test_every_function_has_an_example():
    names = {test.name.rpartition("dataaudit.api.")[2].split(".", 1)[1] for test in EXAMPLES}
    functions = {name for name in api.__all__ if inspect.isfunction(getattr(api, name))}
    methods = {f"QuarantineList.{name}" for name in public(api.QuarantineList)}
    assert names == functions | methods | {"Manifest.pandas", "Manifest.polars"}


def test_the_page_names_all_there_is():
    told = [" ".join(line.split()) for line in re.split(r"\n(?! )", _NAMES.search(PAGE)[1].strip())]
    functions = {name: getattr(api, name) for name in api.__all__ if inspect.isfunction(getattr(api, name))}
    functions |= {f"QuarantineList.{name}": one for name, one in public(api.QuarantineList).items()}
    functions |= {f"Manifest.{name}": getattr(api.Manifest, name) for name in ("metrics", "pandas", "polars", "table")}
    assert sorted(line for line in told if "(" in line) == sorted(signature(*pair) for pair in functions.items())
    kinds = dict(line.split(": ") for line in told if "(" not in line)
    assert set(kinds) == {name for name in api.__all__ if inspect.isclass(getattr(api, name))}
    for kind, names in kinds.items():
        missing = [name for name in names.split(", ") if not hasattr(getattr(api, kind), name)]
        assert missing == [], kind
    assert sorted(kinds["Build"].split(", ")) == [name for name in dir(api.Build) if not name.startswith("_")]


def test_the_top_of_the_package_has_every_name():
    """``dataaudit.NAME`` for each name of ``dataaudit.api``, and for the errors that callers catch."""
    assert sorted(dataaudit.__all__) == sorted(["__version__", "ConfigError", "DataAuditError", *api.__all__])
    assert dir(dataaudit) == sorted(dataaudit.__all__)
