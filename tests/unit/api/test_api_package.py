"""The top of the package: cheap to import, its functions callable whatever was imported before, typed."""

import importlib
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BASE = (
    "_cffi_backend", "_yaml", "annotated_types", "cffi", "click", "cryptography", "dataaudit", "numpy", "orjson",
    "pyarrow", "pycparser", "pydantic", "pydantic_core", "rfc8785", "rich", "typing_extensions", "typing_inspection",
    "yaml",
)  # fmt: skip
"""Packages of the base install and of what it needs, as they are imported."""


def python(program, cwd):
    """Run a program in a Python of its own; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_importing_the_package_imports_nothing(tmp_path):
    """Neither our own modules nor anybody else's, not even typing."""
    said = python(
        """
        import sys
        before = set(sys.modules)
        import dataaudit
        print(sorted(set(sys.modules) - before))
        """,
        tmp_path,
    )
    assert said == "['dataaudit']\n"


@pytest.mark.judges
def test_the_base_install_loads_judges_compares_and_holds_back(tmp_path):
    """Everything but a build, a report and data frames works where only the base install is, and shows itself."""
    said = python(
        f"""
        import sys
        class Absent:
            def find_spec(self, name, path=None, target=None):
                top = name.partition(".")[0]
                if top not in sys.stdlib_module_names and not top.startswith("_sysconfigdata") and top not in {BASE!r}:
                    raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        sys.meta_path.insert(0, Absent())
        import dataaudit
        root = {str(ROOT)!r}
        manifest = dataaudit.load(root + "/manifests/demo")
        verdict = dataaudit.gate(manifest, root + "/pipelines/release-gate.yaml")
        difference = dataaudit.diff(manifest, manifest)
        held = dataaudit.quarantine("list.jsonl")
        held.add("14", manifest=manifest, reason="drift", who="test")
        applied = held.apply(manifest, "clean", formats=["list", "datatrove"], documents=True)
        shown = [one._repr_html_() for one in (manifest, verdict, difference)]
        print(verdict.passed, difference.equal, len(held.held().entries), int(applied.exit_code), all(shown))
        """,
        tmp_path,
    )
    assert said == "False True 1 0 True\n"


@pytest.mark.judges
@pytest.mark.parametrize(
    "before", ["", "import dataaudit.api", "import dataaudit.decide.gate.run, dataaudit.present.report.page"]
)
def test_a_function_is_callable_whatever_was_imported_before(before, tmp_path):
    """Each function of the front is the API's own."""
    said = python(
        f"""
        {before}
        import dataaudit, importlib, inspect
        from dataaudit import api
        for name in ("diff", "gate", "quarantine", "report"):
            function = getattr(dataaudit, name)
            try:
                function(nothing_of_this_name=1)
            except TypeError as error:
                assert "nothing_of_this_name" in str(error)
            else:
                raise AssertionError(name)
            assert function is getattr(api, name)
        """,
        tmp_path,
    )
    assert said == ""


FRONTS = sorted(
    ".".join(path.parent.relative_to(ROOT).parts)
    for path in ROOT.glob("dataaudit/**/__init__.py")
    if "__getattr__" in path.read_text()
)
"""Packages that import their names when these are first asked for."""


@pytest.mark.parametrize("name", FRONTS)
def test_a_lazy_front_lists_its_names_and_an_unknown_one_is_an_attribute_error(name, tmp_path):
    """Before anything of it is imported; the error says name and package, so that Python can name the nearest."""
    said = python(f"import {name} as front\nprint(*dir(front), dir(front) == sorted(front.__all__))", tmp_path)
    *names, same = said.split()
    assert same == "True"
    front = importlib.import_module(name)
    wrong = names[0][:-1] + "_"
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute '{wrong}'") as caught:
        getattr(front, wrong)
    assert (caught.value.name, caught.value.obj) == (wrong, front)


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.torch] * (one != "dataaudit")) for one in FRONTS]
)
def test_a_lazy_front_has_each_name_that_it_lists(name):
    """Most of vitals, and the loop's replay, are of torch."""
    front = importlib.import_module(name)
    assert all(getattr(front, one) is not None for one in front.__all__)


def test_the_lazy_fronts_are_found():
    """The test above is of all."""
    assert FRONTS == ["dataaudit", "dataaudit.live", "dataaudit.probes", "dataaudit.training", "dataaudit.vitals"]


def test_the_package_says_that_it_is_typed():
    """Type checkers of those who use it look for this file."""
    assert (ROOT / "dataaudit/py.typed").is_file()
