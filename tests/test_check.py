"""`make check`: which tests a change to some files touches, and what it says that it left out."""

import importlib.util
import re
import subprocess
from types import SimpleNamespace

import check
import pytest

ROOT = check.ROOT
pytestmark = pytest.mark.tables


@pytest.fixture(scope="module", autouse=True)
def _read_once():
    """Every file is parsed once for all of these tests."""
    named = check.modules_named()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "modules_named", lambda: named)
        yield


def touched(*files):
    """Return the names of the test files that a change to some files touches."""
    return {path.name for path in check.tests_of([ROOT / file for file in files])[0]}


@pytest.mark.parametrize(
    ("file", "test"),
    [
        ("dataaudit/api/building.py", "test_api_building.py"),
        ("dataaudit/training/opening.py", "test_quarantine_released.py"),
        ("dataaudit/vitals/vitals.py", "test_monitor.py"),
        ("dataaudit/engine/preload.py", "test_strangers.py"),
        ("dataaudit/metrics/near_dup/stage.py", "test_stages.py"),
        ("dataaudit/metrics/registry.py", "test_new_family.py"),
        ("dataaudit/scan/corpus/readers/text.py", "test_reader_text.py"),
        ("tests/made_verdict.py", "test_markdown_page.py"),
        ("docs/reference/gate.md", "test_gate_policy.py"),
    ],
)
def test_a_change_touches_tests_that_name_it_by_a_front_a_path_in_text_or_a_page(file, test):
    """`dataaudit.build` is of api/building.py, `resolve_name` loads stages, and a page is mentioned by its name."""
    assert test in touched(file)


def test_a_front_is_no_reason_to_run_the_tests_of_everything_behind_it():
    assert len(touched("dataaudit/training/opening.py")) < 20
    assert "test_packing.py" not in touched("dataaudit/training/proposing.py")


def test_what_is_left_out_is_printed_with_the_way_to_run_it(monkeypatch, capsys):
    """Tests that reach the change from farther away, and tests whose libraries are not installed."""
    ran = []

    def run(command, **_):
        ran.append(command)
        return SimpleNamespace(returncode=check.NO_TESTS if command[0] == "pytest" else 0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert check.main([str(ROOT / "dataaudit/vitals/vitals.py")]) == 0
    assert [command[0] for command in ran] == ["ruff", "ruff", "mypy", "lint-imports", "pytest"]
    far, marked = capsys.readouterr().out.splitlines()[-2:]
    assert re.match(
        r"left out: \d+ test files reach the change through other modules; `make test` and CI run them: tests/", far
    )
    assert marked.startswith(
        "left out: these need torch, which is not installed; `make test-ci PART=judges,torch,vitals` installs"
    )
    assert "tests/unit/vitals/test_memory.py" in marked
    named = [{word for word in line.split() if word.startswith("tests/")} for line in (far, marked)]
    assert named[0]
    assert not named[0] & named[1]


def test_no_module_of_the_package_has_a_name_that_test_runners_take_for_tests():
    """`test_*.py` and `*_test.py` are pytest's; others take them, too."""
    modules = [path.stem for folder in ("dataaudit", "pipelines", "examples") for path in (ROOT / folder).rglob("*.py")]
    assert len(modules) > 100
    assert [name for name in modules if name.startswith("test_") or name.endswith("_test")] == []
