"""What is kept on disk is made once, and never trusted when it changed or when others could have written it."""

from __future__ import annotations

import os

import pytest

from dataaudit.base import cache as module
from dataaudit.base.cache import kept, kept_folder, private_folder


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept_folder.cache_clear()
    yield tmp_path / "dataaudit" / "kept"
    kept_folder.cache_clear()


class Maker:
    """Counts how often something is made."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> bytes:
        self.made += 1
        return b"value"


def _get(make: Maker, *inputs: bytes) -> str:
    return kept("things", inputs or (b"input",), make, bytes.decode)


def test_it_is_made_once_for_the_same_inputs(folder):
    make = Maker()
    assert [_get(make), _get(make), _get(make, b"a", b"b"), _get(make, b"ab", b"")] == ["value"] * 4
    assert make.made == 3
    assert len(list(folder.iterdir())) == 3


@pytest.mark.parametrize("damage", [b"", b"short", b"\0" * 32 + b"value"])
def test_a_damaged_file_is_made_again(folder, damage):
    make = Maker()
    _get(make)
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage)
    assert _get(make) == "value"
    assert make.made == 2
    assert path.read_bytes() == whole


def test_content_that_cannot_be_used_is_made_again(folder):
    make = Maker()
    _get(make)
    answers = iter([None, "useful"])
    assert kept("things", [b"input"], make, lambda _: next(answers)) == "useful"
    assert make.made == 2


def test_a_folder_that_others_can_write_is_not_used(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path / "absent" / "absent"))
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    (tmp_path / "absent").write_text("in the way", encoding="utf-8")
    make = Maker()
    assert [_get(make), _get(make)] == ["value", "value"]
    assert make.made == 2
    assert not list(folder.iterdir())


def test_a_full_disk_costs_time_only(folder, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    kept_folder()
    monkeypatch.setattr(module.Path, "replace", refuse)
    assert _get(Maker()) == "value"
    assert not list(folder.iterdir())


def test_the_oldest_files_of_a_kind_go(folder, monkeypatch):
    monkeypatch.setattr(module, "_MOST_FILES", 2)
    make = Maker()
    for number in range(4):
        _get(make, bytes([number]))
        for path in folder.iterdir():
            os.utime(path, ns=(0, path.stat().st_mtime_ns - 10**9))
    assert len(list(folder.iterdir())) == 2
    _get(make, bytes([3]))
    assert make.made == 4


def test_the_first_private_place_is_taken(tmp_path):
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    places = [str(tmp_path / "file"), str(tmp_path / "good")]
    assert private_folder(*places) == tmp_path / "good"
    assert private_folder(*places, within="inner") == tmp_path / "good" / "inner"
    assert private_folder(places[0]) is None
