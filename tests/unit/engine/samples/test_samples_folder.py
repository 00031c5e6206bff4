"""The folder of samples: its owner's alone, apart from everything that is published or kept."""

import os
import stat

import pytest

from dataaudit.base.errors import ConfigError
from dataaudit.engine.samples import Sample, check_folder, write_samples

SAMPLE = Sample(group=("pii", "EMAIL_ADDRESS", "validated"), place="shard 0, row 1", text="to <<EMAIL_ADDRESS>> now")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_files_are_for_their_owner_whatever_the_umask(tmp_path):
    """0700 and 0600, also where the user's own files are for everybody, and in a folder that was there."""
    (tmp_path / "s").mkdir(mode=0o755)
    before = os.umask(0)
    try:
        folder = check_folder(tmp_path / "s", {})
        assert write_samples(folder, [SAMPLE, SAMPLE]) == 1
    finally:
        os.umask(before)
    assert mode(folder) == 0o700
    assert sorted((path.name, mode(path)) for path in folder.iterdir()) == [
        (".gitignore", 0o600),
        ("pii.EMAIL_ADDRESS.validated.txt", 0o600),
    ]


def test_each_file_says_what_it_is_and_how_to_delete_it(tmp_path):
    """The banner comes first; the entries follow."""
    folder = check_folder(tmp_path / "s", {})
    write_samples(folder, [SAMPLE])
    text = (folder / "pii.EMAIL_ADDRESS.validated.txt").read_text()
    assert text.startswith("# SAMPLES OF FINDINGS: THIS FILE HOLDS PARTS OF DOCUMENTS.")
    assert "Who may see it" in text
    assert f"rm -r {folder}" in text
    assert text.endswith("shard 0, row 1\n    to <<EMAIL_ADDRESS>> now\n")


@pytest.mark.parametrize("inside", ["m", "m/deep/er", "state", "state/s", "."])
def test_a_folder_in_or_around_the_manifest_or_the_state_is_refused(tmp_path, inside):
    """Samples would be published, or kept, with it; a link is followed first."""
    (tmp_path / "m").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "m")
    forbidden = {"the manifest": tmp_path / "m", "the state folder": tmp_path / "state"}
    for name in (inside, inside.replace("m", "link", 1) if inside.startswith("m") else inside):
        with pytest.raises(ConfigError, match="expected a folder apart from"):
            check_folder(tmp_path / name, forbidden)
    assert list((tmp_path / "m").iterdir()) == []


def test_nothing_is_written_over(tmp_path):
    """A folder that holds anything is refused, so is a file, and a file that appears later."""
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "mine.txt").write_text("x")
    with pytest.raises(ConfigError, match=r"found mine\.txt in it"):
        check_folder(tmp_path / "s", {})
    with pytest.raises(ConfigError, match="expected a folder that can be written"):
        check_folder(tmp_path / "s" / "mine.txt", {})
    folder = check_folder(tmp_path / "new", {})
    (folder / "pii.EMAIL_ADDRESS.validated.txt").symlink_to(tmp_path / "s" / "mine.txt")
    with pytest.raises(FileExistsError):
        write_samples(folder, [SAMPLE])
    assert (tmp_path / "s" / "mine.txt").read_text() == "x"


def test_names_of_classes_cannot_lead_elsewhere(tmp_path):
    """A class of the user's own may be called anything."""
    folder = check_folder(tmp_path / "s", {})
    write_samples(folder, [Sample(group=("pii", "../../x/\x1b", "pattern"), place="p\n::error::", text="t")])
    (path,) = folder.glob("*.txt")
    assert path.name == "pii._x_.pattern.txt"
    assert "\n::error" not in path.read_text()


def test_a_sample_shows_no_text_in_its_repr():
    """Whatever prints it."""
    assert "EMAIL_ADDRESS>>" not in repr(SAMPLE)
