"""Files that appear whole or not at all."""

import errno
import os

import pytest

from dataaudit.base import files


def names(folder):
    return sorted(os.listdir(os.fsencode(folder)))


@pytest.mark.parametrize("name", [b"plain", b"\xff\xfe of no encoding", "\u4e2d".encode() * 85, b".hidden"])
def test_a_file_of_any_name_is_written_over_an_older_one(tmp_path, name):
    """Names as long as the file system takes them, too."""
    path = tmp_path / "made" / os.fsdecode(name)
    files.write_whole(path, b"old")
    files.write_whole(path, b"new ", b"content")
    assert path.read_bytes() == b"new content"
    assert names(path.parent) == [name]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def write_half():
        with files.replacing(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        write_half()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == [b"x"]


def test_others_see_the_old_file_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with files.replacing(path) as file:
        file.write(b"half")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"half"


def test_a_file_that_holds_the_same_is_left_alone(tmp_path):
    path = tmp_path / "x"
    files.write_changed(path, b"one")
    before = path.stat().st_ino
    files.write_changed(path, b"one")
    assert path.stat().st_ino == before
    files.write_changed(path, b"two")
    assert (path.read_bytes(), path.stat().st_ino == before) == (b"two", False)


@pytest.mark.parametrize(("number", "passes"), [(errno.EINVAL, True), (errno.EOPNOTSUPP, True), (errno.EIO, False)])
def test_a_file_system_that_cannot_sync_folders_need_not(tmp_path, monkeypatch, number, passes):
    def refuse(_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    if passes:
        files.sync_folder(tmp_path)
    else:
        with pytest.raises(OSError, match=os.strerror(number)):
            files.sync_folder(tmp_path)


def test_what_is_sealed_is_read_as_it_was_written_or_not_at_all(tmp_path):
    """Absent, cut, flipped anywhere, or under another's name: None."""
    path, other = tmp_path / "one", tmp_path / "two"
    assert files.read_sealed(path) is None
    for content in (b"", b"some bytes\n"):
        files.write_sealed(path, content)
        assert files.read_sealed(path) == content
        whole = path.read_bytes()
        for place in range(len(whole)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
            assert files.read_sealed(path) is None
            path.write_bytes(whole[:place])
            assert files.read_sealed(path) is None
        other.write_bytes(whole)
        assert files.read_sealed(other) is None
