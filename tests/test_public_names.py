"""Names that others write down stay as they are, and every path in a string leads somewhere."""

from importlib import import_module

import pytest
from public_names import FILE, GROUPS, collected, path_strings

PATHS = path_strings()


@pytest.mark.parametrize(
    "group", [pytest.param(one, marks=pytest.mark.torch if one == "python" else ()) for one in GROUPS]
)
def test_public_names_are_as_they_were(group):
    before = {line for line in FILE.read_text("utf-8").splitlines() if line.startswith(f"{group}: ")}
    now = set(collected(group))
    assert len(before) > 10
    assert {"gone": sorted(before - now), "new": sorted(now - before)} == {"gone": [], "new": []}


def test_strings_name_something():
    assert len(PATHS) > 20


@pytest.mark.parametrize(("place", "module", "name"), PATHS)
def test_every_path_in_a_string_leads_somewhere(place, module, name):
    assert hasattr(import_module(module), name), f"{place} names {module}:{name}"
