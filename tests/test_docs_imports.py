"""What the pages import is there."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
IMPORT = re.compile(r"^\s*(?:>>> )?from (dataaudit[\w.]*) import ([\w, ]+)$", re.MULTILINE)
OF_TORCH = {
    "dataaudit.vitals",
    "dataaudit.training.loaders.ranks",
    "dataaudit.training.loaders.trainer",
    "dataaudit.training.replay.loop",
    "LoopReplay",
}
LIBRARIES = {f"dataaudit.training.loaders.{one}": one for one in ("lightning", "torchtitan", "olmo_core")}
LIBRARIES["dataaudit.training.loaders.torchtitan_trainer"] = "torchtitan"
"""Modules that subclass a library's own, which has an environment of its own: the tests there import them."""
NAMED = sorted(
    {
        (page.relative_to(ROOT).as_posix(), module, name.strip())
        for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
        for module, names in IMPORT.findall(page.read_text("utf-8"))
        for name in names.split(",")
    }
)


def test_pages_import_something():
    assert len(NAMED) > 5


@pytest.mark.parametrize(
    ("page", "module", "name"),
    [pytest.param(*one, marks=pytest.mark.torch if OF_TORCH & {*one} else ()) for one in NAMED],
)
def test_every_name_that_a_page_imports_is_there(page, module, name):
    if module in LIBRARIES:
        pytest.importorskip(LIBRARIES[module], reason="the module subclasses its own")
    assert hasattr(import_module(module), name), f"{page} imports {name} from {module}"
