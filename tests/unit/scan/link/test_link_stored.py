"""Stored bytes: read from their place, as far as they are there."""

from __future__ import annotations

import os

import pytest

from dataaudit.scan.link import keyed as module
from dataaudit.scan.link.keyed import Stored

DATA = bytes(range(200))


@pytest.fixture
def path(tmp_path):
    """A file of 200 bytes whose name is no Unicode."""
    place = os.path.join(tmp_path, os.fsdecode(b"a \xff b"))
    with open(place, "wb") as file:
        file.write(DATA)
    return place


@pytest.mark.parametrize(
    ("offset", "size", "expected"),
    [
        (0, None, DATA),
        (0, 200, DATA),
        (64, 10, DATA[64:74]),
        (190, 40, DATA[190:]),
        (300, 5, b""),
        (64, 0, b""),
    ],
)
def test_bytes_come_from_their_place(path, offset, size, expected, monkeypatch):
    """Whole files, places in a file, what is left of a file that was cut; also where few come at a time."""
    one = Stored(path, "kind/key", offset, size)
    assert one.read().to_pybytes() == expected
    assert one.read().address % 64 == 0
    few = os.preadv
    monkeypatch.setattr(module.os, "preadv", lambda file, views, place: few(file, [views[0][:7]], place))
    assert one.read().to_pybytes() == expected
    assert Stored.at(str(one)).read().to_pybytes() == expected


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    """The caller says what that means."""
    with pytest.raises(FileNotFoundError):
        Stored(str(tmp_path / "gone"), "kind/gone").read()
    with pytest.raises(OSError, match=r"."):
        Stored(str(tmp_path), "kind/folder").read()
