"""The stat index: trusted only while nothing can have changed, and done without when it fails."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import fields, replace

import pytest
from made_build import stat

from dataaudit.engine.plan_probe import StatIndex
from dataaudit.scan.corpus.storage.address import Access, RemotePath, RemoteStat
from dataaudit.scan.corpus.storage.files import FileStat, listed_stat, stat_file

SECOND = 1_000_000_000
NOW = 100 * SECOND


@pytest.fixture
def index(tmp_path):
    """An index with one settled file."""
    opened = StatIndex(tmp_path / "files.sqlite")
    opened.store([("/data/a", stat(), NOW, {"sha256": "x"})])
    opened.close()
    opened = StatIndex(tmp_path / "files.sqlite")
    yield opened
    opened.close()


def test_an_unchanged_file_is_known(index):
    """What was stored is found after the database was closed and opened again."""
    assert index.find("/data/a", stat()) == {"sha256": "x"}
    assert index.find("/data/b", stat()) is None


@pytest.mark.parametrize("name", [field.name for field in fields(FileStat)])
def test_any_change_of_the_stat_is_a_change(index, name):
    """Size, times, inode and device: when one differs, the file is hashed again."""
    assert index.find("/data/a", replace(stat(), **{name: 1234})) is None


@pytest.mark.parametrize("name", ["mtime_ns", "ctime_ns"])
def test_a_file_hashed_too_soon_after_a_change_is_not_trusted(index, name, tmp_path):
    """A second change could hide within the clock's granularity; after two seconds it cannot."""
    recent = replace(stat(), **{name: NOW - 2 * SECOND + 1})
    settled = replace(stat(), **{name: NOW - 2 * SECOND})
    index.store([("/data/r", recent, NOW, {}), ("/data/s", settled, NOW, {"ok": 1})])
    index.close()
    again = StatIndex(tmp_path / "files.sqlite")
    assert again.find("/data/r", recent) is None
    assert again.find("/data/s", settled) == {"ok": 1}
    again.close()


def remote(validator, mtime_ns=0):
    """Return the stat of a remote file."""
    return stat(mtime_ns=mtime_ns, ctime_ns=0, inode=0, device=0, validator=validator)


def test_a_remote_file_is_known_by_its_validator(tmp_path):
    """An ETag is trusted at once, a time when it was a minute old, nothing never."""
    rows = {
        "s3://b/etag": remote("etag x"),
        "s3://b/old": remote("time x", NOW - 60 * SECOND),
        "s3://b/new": remote("time x", NOW - 60 * SECOND + 1),
        "s3://b/none": remote(""),
    }
    index = StatIndex(tmp_path / "files.sqlite")
    index.store([(path, found, NOW, {}) for path, found in rows.items()])
    index.close()
    again = StatIndex(tmp_path / "files.sqlite")
    assert {path: again.find(path, found) for path, found in rows.items()} == {
        "s3://b/etag": {},
        "s3://b/old": {},
        "s3://b/new": None,
        "s3://b/none": None,
    }
    assert again.find("s3://b/etag", remote("etag y")) is None
    again.close()


def test_a_listing_spares_the_request_for_each_file(monkeypatch):
    """What the listing said counts, unless it said nothing that vouches for the bytes."""
    monkeypatch.setattr(
        "dataaudit.scan.corpus.storage.files.stat_remote", lambda path: RemoteStat(size=2, validator="asked")
    )
    listed = {
        validator: RemotePath("s3://b/k", "s3://b/k", Access(), RemoteStat(size=1, validator=validator))
        for validator in ("seen", "")
    }
    assert listed_stat(listed["seen"]).validator == "seen"
    assert listed_stat(listed[""]).validator == "asked"
    assert listed_stat(RemotePath("s3://b/k", "s3://b/k", Access())).size == 2


def test_a_file_replaced_by_one_of_equal_size_and_mtime_is_seen(tmp_path):
    """Copying old times onto other bytes does not hide them: ctime and inode tell."""
    path = tmp_path / "a"
    path.write_bytes(b"one")
    before = stat_file(str(path))
    path.write_bytes(b"two")
    os.utime(path, ns=(before.mtime_ns, before.mtime_ns))
    after = stat_file(str(path))
    assert (after.size, after.mtime_ns, after.inode) == (before.size, before.mtime_ns, before.inode)
    assert after != before


def test_names_that_are_not_unicode_and_huge_inodes(tmp_path):
    """A name of any bytes and numbers beyond 63 bits are stored and found."""
    name = os.fsdecode(b"/data/\xff\xfe.jsonl")
    huge = stat(inode=2**64 - 1, device=2**64 - 2)
    index = StatIndex(tmp_path / "files.sqlite")
    index.store([(name, huge, NOW, {"n": 1})])
    index.close()
    index = StatIndex(tmp_path / "files.sqlite")
    assert index.fault == ""
    assert index.find(name, huge) == {"n": 1}
    index.close()


@pytest.mark.parametrize("content", [b"no database at all", b"SQLite format 3\0" + b"\xff" * 4000, b"\0" * 8192])
def test_a_damaged_database_is_made_anew(tmp_path, content):
    """It costs one pass of hashing."""
    path = tmp_path / "files.sqlite"
    path.write_bytes(content)
    index = StatIndex(path)
    assert index.fault == ""
    assert index.find("/data/a", stat()) is None
    index.store([("/data/a", stat(), NOW, {"n": 1})])
    index.close()
    index = StatIndex(path)
    assert index.find("/data/a", stat()) == {"n": 1}
    index.close()


def test_a_flipped_bit_anywhere_gives_the_right_answer_or_none(tmp_path):
    """Never another one: where a part ends is in a row, and SQLite checks no byte of it."""
    path, probe = tmp_path / "files.sqlite", {"sha256": "x" * 64, "parts": [[0, 4000]]}
    index = StatIndex(path)
    index.store([(f"/data/{name}", stat(), NOW, probe | {"name": name}) for name in "abc"])
    index.close()
    whole = path.read_bytes()
    places = [*range(0, len(whole), 61), *range(whole.index(b'{"stat"') - 64, len(whole), 3)]
    lost = 0
    for place in places:
        for suffix in ("", "-journal"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        index = StatIndex(path)
        for name in "abc":
            found = index.find(f"/data/{name}", stat())
            assert found in (None, probe | {"name": name}), place
            lost += found is None
        notes = list(index.notes())
        index.close()
        assert not index.damaged or any("1 damaged row" in note for note in notes)
    assert lost > 50


def test_rows_that_have_changed_places_are_damage(tmp_path):
    """A row is of one path: under another it is not trusted, and the note says so."""
    path = tmp_path / "files.sqlite"
    index = StatIndex(path)
    index.store([(f"/data/{name}", stat(), NOW, {"name": name}) for name in "ab"])
    index.close()
    with sqlite3.connect(path) as database:
        rows = dict(database.execute("select path, row from files").fetchall())
        swapped = zip(rows, reversed(list(rows.values())), strict=True)
        database.executemany("insert or replace into files values (?, ?)", swapped)
    database.close()
    index = StatIndex(path)
    assert [index.find(f"/data/{name}", stat()) for name in "ab"] == [None, None]
    assert list(index.notes()) == ["files.sqlite: 2 damaged rows, so as many files are hashed again"]
    index.close()


def test_damage_that_shows_later_ends_the_use_of_the_index_only(tmp_path, index):
    """A page that turns out to be damaged in the middle of a build raises nothing."""
    index.close()
    path = tmp_path / "files.sqlite"
    data = bytearray(path.read_bytes())
    for position in range(4096 + 8, len(data)):
        data[position] = 0xFF
    path.write_bytes(bytes(data))
    damaged = StatIndex(path)
    damaged.find("/data/a", stat())
    damaged.store([(f"/data/{number}", stat(), NOW, {}) for number in range(300)])
    damaged.close()
    assert any("made anew" in note for note in damaged.notes())
    index = StatIndex(path)
    assert index.find("/data/7", stat()) == {}
    index.close()


def test_a_database_that_another_build_holds_is_left_alone(tmp_path):
    """A lock is waited for, then the build goes on without the index; the other's rows stay."""
    path = tmp_path / "files.sqlite"
    index = StatIndex(path)
    index.store([("/data/a", stat(), NOW, {"n": 1})])
    index.close()
    other = sqlite3.connect(path)
    other.execute("begin exclusive")
    waiting = StatIndex(path, seconds=0.05)
    assert "locked" in waiting.fault
    assert waiting.find("/data/a", stat()) is None
    waiting.store([("/data/b", stat(), NOW, {})])
    waiting.close()
    other.rollback()
    other.close()
    index = StatIndex(path)
    assert index.find("/data/a", stat()) == {"n": 1}
    index.close()


def test_a_place_that_cannot_hold_a_database_is_no_error(tmp_path):
    """A folder in its place: done without, and said."""
    (tmp_path / "files.sqlite").mkdir()
    index = StatIndex(tmp_path / "files.sqlite")
    assert index.fault
    index.store([("/data/a", stat(), NOW, {})])
    index.close()
