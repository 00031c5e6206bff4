"""Patterns are compiled once on a machine, rules checked once: counted in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import hyperscan
import pytest

from dataaudit.base.cache import kept_folder
from dataaudit.scan.detectors.content import shipped_patterns
from dataaudit.scan.detectors.patterns import context
from dataaudit.scan.detectors.patterns.context import compile_patterns, make_database
from dataaudit.scan.detectors.pii import shipped
from dataaudit.scan.detectors.secrets import rules

_PATTERNS = [(b"ab+c", 0), (b"secret", hyperscan.HS_FLAG_CASELESS), (b"[0-9]{3}", hyperscan.HS_FLAG_SOM_LEFTMOST)]
_TEXT = b"abbc SECRET 1234 abc"
_CODE = """
import json, sys
from dataaudit.scan.detectors.patterns import context, screen, written
calls = {"compiled": 0, "parsed": 0, "regexes": 0}
def counted(module, name, key):
    real = getattr(module, name)
    def wrapper(*args, **kwargs):
        calls[key] += name != "compile_patterns" or len(args[0]) > 1
        return real(*args, **kwargs)
    setattr(module, name, wrapper)
counted(context, "compile_patterns", "compiled")
counted(written, "load_yaml", "parsed")
counted(screen, "full_regex", "regexes")
from dataaudit.scan.detectors.content import shipped_patterns
from dataaudit.scan.detectors.patterns.screen import find_in
registry = shipped_patterns()
found = find_in(registry, memoryview(b"write to alice.smith@some-company.com or bob"))[0]
libraries = [name for name in ("detect_secrets", "requests") if name in sys.modules]
print(json.dumps({**calls, "digest": registry.digest, "found": repr(found), "libraries": libraries}))
"""


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept_folder.cache_clear()
    yield tmp_path / "dataaudit" / "kept"
    kept_folder.cache_clear()


def _process() -> dict:
    done = subprocess.run([sys.executable, "-c", _CODE], check=True, capture_output=True, text=True, env=os.environ)
    return json.loads(done.stdout)


def _matches(database) -> list:
    found: list = []
    database.scan(_TEXT, match_event_handler=lambda *match: found.append(match[:3]))
    return sorted(found)


@pytest.mark.judges
def test_a_second_process_compiles_and_parses_nothing(folder):
    first, second = _process(), _process()
    assert first["compiled"] == 3, "the prefilters, those with an @ apart, and the context words"
    assert first["parsed"] > 2
    assert first["libraries"]
    assert (second["compiled"], second["parsed"], second["libraries"]) == (0, 0, [])
    assert second["found"] == first["found"] != "[]"
    assert second["digest"] == first["digest"]
    assert second["regexes"] < 10, "a regex is compiled when its prefilter hits"


def test_a_kept_database_finds_what_a_fresh_one_finds(folder):
    make_database(_PATTERNS)
    assert _matches(make_database(_PATTERNS)) == _matches(compile_patterns(_PATTERNS)) != []


def test_a_damaged_database_is_compiled_again(folder, monkeypatch):
    counted = []
    monkeypatch.setattr(context, "compile_patterns", lambda given: counted.append(given) or compile_patterns(given))
    make_database(_PATTERNS)
    (path,) = folder.glob("patterns-*")
    path.write_bytes(path.read_bytes()[:-8] + b"\xff" * 8)
    make_database(_PATTERNS)
    assert counted.count(_PATTERNS) == 2
    assert _matches(make_database(_PATTERNS)) == _matches(compile_patterns(_PATTERNS))
    assert counted.count(_PATTERNS) == 2


def test_bytes_that_are_no_database_are_of_no_use():
    assert context._read(b"something else") is None


def test_a_refused_pattern_keeps_nothing(folder):
    with pytest.raises(hyperscan.error):
        make_database([(b"(?=a)", 0)])
    assert not list(folder.glob("patterns-*"))


def test_kept_rules_are_those_of_the_files(monkeypatch):
    def parsed(folder, file, make, *_versions):
        return make((folder / file).read_text(encoding="utf-8"))

    known = shipped_patterns()
    monkeypatch.setattr(shipped, "shipped_layer", parsed)
    monkeypatch.setattr(rules, "shipped_layer", parsed)
    shipped_patterns.cache_clear()
    fresh = shipped_patterns()
    shipped_patterns.cache_clear()
    assert repr(known.entities) == repr(fresh.entities)
    assert known.digest == fresh.digest
