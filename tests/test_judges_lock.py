"""The lock file of the judges agrees with the others, and brings no torch."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def locked(name):
    """Return the versions of each package in a lock file."""
    found = {}
    for package, version in re.findall(r"^([a-z0-9-]+)==([^ \\]+)", (ROOT / name).read_text(), re.MULTILINE):
        found.setdefault(package, set()).add(version)
    return found


def test_the_judges_lock_file_agrees_with_that_of_the_tests():
    judges, dev = locked("requirements-judges.lock"), locked("requirements-dev.lock")
    assert not {name for name, versions in judges.items() if name in dev and not versions <= dev[name]}
    assert {"detoxify", "presidio-analyzer", "spacy", "transformers"} <= set(judges)


def test_torch_is_locked_by_its_version_alone():
    """Its builds differ from machine to machine, so no hash holds for all of them."""
    assert "torch" not in locked("requirements-judges.lock")
    assert re.search(r"^torch==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)


def test_every_package_of_the_judges_lock_file_has_a_hash():
    text = (ROOT / "requirements-judges.lock").read_text()
    assert all("--hash=sha256:" in entry for entry in re.split(r"\n(?=[a-z0-9])", text.strip()))
