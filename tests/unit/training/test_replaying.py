"""What `--replay` loads: a module, or a file whose siblings it imports, now and when it is called."""

import sys
from pathlib import Path

import pytest

from dataaudit.base.errors import ConfigError
from dataaudit.training.replay.replaying import load_replay

LOOP = """
import doors_model

def make(manifest, runlog):
    import doors_data
    return doors_model.NAME, doors_data.NAME, manifest, runlog
"""


@pytest.fixture
def loop(tmp_path, monkeypatch):
    """A loop in a folder of its own with two modules beside it; the current folder is another one."""
    folder, elsewhere = tmp_path / "train", tmp_path / "elsewhere"
    for made in (folder, elsewhere):
        made.mkdir()
    (folder / "doors_loop.py").write_text(LOOP)
    for name in ("model", "data"):
        (folder / f"doors_{name}.py").write_text(f"NAME = {name!r}")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield folder
    for name in ("loop", "model", "data"):
        sys.modules.pop(f"doors_{name}", None)


@pytest.mark.parametrize("by", ["absolute", "relative"])
def test_a_loop_imports_its_siblings_as_python_lets_it(loop, by):
    """When the file is loaded, and when the function is called."""
    file = loop / "doors_loop.py" if by == "absolute" else Path("../train/doors_loop.py")
    made = load_replay(f"{file}:make", Path("m"), Path("run"))
    assert made == ("model", "data", Path("m"), Path("run"))


def test_a_module_comes_from_the_current_folder(loop, monkeypatch):
    """As `python -m` finds it."""
    monkeypatch.chdir(loop)
    assert load_replay("doors_loop:make", Path("m"), Path("run"))[0] == "model"


def test_what_cannot_be_imported_is_named(loop):
    """Also where it is the loop's own import that fails."""
    (loop / "doors_model.py").write_text("import doors_absent")
    with pytest.raises(ConfigError, match=r"doors_loop\.py cannot be imported: No module named 'doors_absent'"):
        load_replay(f"{loop / 'doors_loop.py'}:make", Path("m"), Path("run"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("LR = undefined", r"NameError: name 'undefined' is not defined \(doors_loop\.py, line 1\)"),
        ("import os; os.nothing", r"AttributeError: .* \(doors_loop\.py, line 1\)"),
    ],
)
def test_a_fault_of_the_users_file_is_no_fault_of_the_program(loop, line, words):
    """The first was an internal error, and after the second the file had no `make`, which stands in it."""
    (loop / "doors_loop.py").write_text(f"{line}\ndef make(manifest, log): ...\n")
    with pytest.raises(ConfigError, match=rf"doors_loop\.py cannot be imported: {words}"):
        load_replay(f"{loop / 'doors_loop.py'}:make", Path("m"), Path("run"))
