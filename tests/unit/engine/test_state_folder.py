"""The state folder is the user's alone, and under a key nothing counts that was not sealed under it."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from dataaudit.base.errors import BuildInterrupted, ClusterError, ConfigError
from dataaudit.base.files import DamagedFileError, read_sealed, write_sealed
from dataaudit.base.sealing import key_here, key_id, under_key
from dataaudit.engine.inputs import read_state_key
from dataaudit.engine.plan_probe import StatIndex
from dataaudit.engine.state_folder import StateFolderError, open_state, own_folder
from dataaudit.engine.store import PartialStore
from dataaudit.engine.store_entries import Packs, entry_item, write_pack
from dataaudit.scan.corpus.protected.index_file import map_arrays, write_arrays
from dataaudit.scan.corpus.storage.files import stat_file

KEY, OTHER = b"k" * 32, b"o" * 32
ENTRY = "ab" * 32
STRANGER = 12345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def _refused(folder, match):
    with pytest.raises(ConfigError, match=match) as caught:
        own_folder(folder)
    assert str(folder) in caught.value.message
    assert caught.value.hint


def test_a_new_folder_is_private_whatever_the_umask(tmp_path):
    """And a build finds it good again, with all that it makes under that umask."""
    before = os.umask(0o002)
    try:
        for folder in (tmp_path / "own" / "state", tmp_path / "given"):
            if folder.name == "given":
                folder.mkdir(mode=0o755)
            PartialStore(own_folder(folder)).write("volume", ENTRY, {}, {})
            assert own_folder(folder) == folder
    finally:
        os.umask(before)
    assert (tmp_path / "own" / "state").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757, 0o1777])
@pytest.mark.parametrize("inside", ["", "partials", "partials/volume"])
def test_a_folder_that_others_may_write_is_refused(tmp_path, mode, inside):
    """A sticky bit keeps nobody from putting new files there."""
    folder = tmp_path / "state"
    PartialStore(own_folder(folder)).write("volume", ENTRY, {}, {})
    for above in (folder, folder / "partials"):
        above.chmod(0o755)
    (folder / inside).chmod(mode)
    _refused(folder, f"other users may write .*mode {mode:o}")


def test_what_nobody_else_can_reach_may_have_any_mode(tmp_path):
    folder = tmp_path / "state"
    PartialStore(own_folder(folder)).write("volume", ENTRY, {}, {})
    (folder / "partials" / "volume").chmod(0o777)
    assert own_folder(folder) == folder


def test_a_file_that_others_may_write_is_refused(tmp_path):
    folder = own_folder(tmp_path / "state")
    folder.chmod(0o755)
    (folder / "files.sqlite").touch()
    (folder / "files.sqlite").chmod(0o666)
    _refused(folder, "other users may write .*files.sqlite")


def test_a_link_to_a_folder_of_ours_is_followed_and_links_inside_are_not(tmp_path):
    real, link = own_folder(tmp_path / "real"), tmp_path / "link"
    link.symlink_to(real)
    assert own_folder(link) == link
    (real / "partials").rmdir()
    (real / "partials").symlink_to(tmp_path)
    _refused(link, "is a link")


def test_a_link_to_nothing_is_refused(tmp_path):
    """Else the build would make the folder that somebody chose."""
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    _refused(tmp_path / "link", "cannot be written")
    assert not (tmp_path / "elsewhere").exists()


@as_root
@pytest.mark.parametrize("inside", ["", "partials", "partials/volume/ab", f"partials/volume/ab/{ENTRY}"])
def test_what_belongs_to_another_user_is_refused(tmp_path, inside):
    """The folder, one in it, and a file in it, though nobody else may write there now."""
    folder = tmp_path / "state"
    PartialStore(own_folder(folder)).write("volume", ENTRY, {}, {})
    os.chown(folder / inside, STRANGER, STRANGER)
    _refused(folder, f"belongs to user {STRANGER}, not to 0")


@as_root
def test_a_link_of_another_user_is_refused(tmp_path):
    """In a sticky folder anybody may put one; it leads to a folder of ours that was not meant."""
    own_folder(tmp_path / "meant")
    (tmp_path / "state").symlink_to(tmp_path / "meant")
    os.chown(tmp_path / "state", STRANGER, STRANGER, follow_symlinks=False)
    _refused(tmp_path / "state", f"is a link of user {STRANGER}")


def _write_all(folder: Path) -> None:
    """Write one of each kind of what a state folder is read for."""
    store = PartialStore(folder)
    store.write("volume", ENTRY, {"n": 1}, {})
    store.write_rows("volume", ENTRY, b"rows")
    write_pack(store.packs.folder, [entry_item("lengths", ENTRY, {"n": 2}, {})])
    write_sealed(folder / "facts.json", b"{}")
    write_arrays(folder / "x.index", {}, {})
    (folder / "file").write_text("content")
    index = StatIndex(folder / "files.sqlite")
    stat = stat_file(str(folder / "file"))
    index.store([("file", stat, stat.mtime_ns + 10**10, {"sha256": "forged"})])
    index.close()


def _readable(folder: Path) -> list[bool]:
    """Tell of each kind whether it is believed."""
    store = PartialStore(folder)
    packs = Packs(store.packs.folder)
    try:
        packed = packs.find("lengths", ENTRY) is not None
    except DamagedFileError:
        packed = False
    try:
        mapped = map_arrays(folder / "x.index", check=True) is not None
    except DamagedFileError:
        mapped = False
    index = StatIndex(folder / "files.sqlite")
    known = index.find("file", stat_file(str(folder / "file"))) is not None
    index.close()
    loose = PartialStore(folder / "without-packs")
    if (folder / "partials" / "volume").is_dir():
        shutil.copytree(folder / "partials" / "volume", loose.root / "partials" / "volume", dirs_exist_ok=True)
    entries = [loose.read("volume", ENTRY) is not None, loose.read_rows("volume", ENTRY) is not None]
    return [*entries, packed, read_sealed(folder / "facts.json") is not None, mapped, known]


@pytest.mark.parametrize("written", [b"", KEY, OTHER])
@pytest.mark.parametrize("read", [b"", KEY, OTHER])
def test_only_what_was_sealed_under_the_same_key_is_believed(tmp_path, written, read):
    """Entries, rows, packs, facts of tokenizers, the index of what is protected, the index of hashed files."""
    with under_key(written):
        _write_all(tmp_path)
    with under_key(read):
        assert _readable(tmp_path) == [written == read] * 6


def test_builds_with_and_without_keys_have_folders_of_their_own(tmp_path):
    home = own_folder(tmp_path / "state")
    found = set()
    for key in (None, KEY, OTHER):
        with open_state(home, key=key, once=False) as folder:
            found.add(folder)
            assert key_here() == (key or b"")
    assert found == {home, *(home / f"keyed-{key_id(key)}" for key in (KEY, OTHER))}
    assert key_here() == b""


def test_a_folder_for_one_build_is_new_sealed_and_gone_afterwards(tmp_path):
    """Whatever lies in the state folder."""
    home = own_folder(tmp_path / "state")
    _write_all(home)
    with open_state(home, key=None, once=True) as folder:
        assert folder.parent == home
        assert len(key_here()) == 32
        assert [path for path in folder.rglob("*") if path.is_file()] == [folder / ".gitignore"]
    assert not folder.exists()


def test_what_killed_builds_left_is_removed_and_what_others_use_is_not(tmp_path):
    home = own_folder(tmp_path / "state")
    left = own_folder(home / "once-0123456789abcdef")
    with open_state(home, key=KEY, once=True), open_state(home, key=KEY, once=True):
        pass
    with open_state(home, key=None, once=True) as first:
        done = []

        def other():
            with (
                pytest.raises(ConfigError, match="another build of this process"),
                open_state(home, key=OTHER, once=True),
            ):
                pass
            done.append(True)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert done
        assert first.is_dir()
        assert not left.exists()


@pytest.mark.parametrize("error", [BuildInterrupted, ClusterError, StateFolderError])
def test_an_error_does_not_promise_what_is_gone(tmp_path, error):
    home = own_folder(tmp_path / "state")
    with pytest.raises(error) as caught, open_state(home, key=None, once=True):
        raise error("stopped; what was finished is kept", "Run it again.")
    assert caught.value.message == "stopped"
    assert "begins anew" in caught.value.hint


def test_a_key_that_others_may_read_or_get_is_refused(tmp_path):
    path = tmp_path / "keys" / "state.key"
    path.parent.mkdir()
    path.write_bytes(b"0123456789abcdef\n")
    path.chmod(0o600)
    assert read_state_key(path, tmp_path / "state", tmp_path / "m") == b"0123456789abcdef"
    with pytest.raises(ConfigError, match=r"lies in .*keys, where whoever gets the folder gets it too"):
        read_state_key(path, path.parent)
    for mode in (0o644, 0o640, 0o604, 0o620):
        path.chmod(mode)
        with pytest.raises(ConfigError, match=f"other users have, or may have, the state key .*mode {mode:o}"):
            read_state_key(path)
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(ConfigError, match="5 bytes, expected 16 or more"):
        read_state_key(path)
