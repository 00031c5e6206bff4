"""A state folder that somebody prepared leads no build that signs: it finds the leak that the folder denies."""

import json
import os
import shutil
from pathlib import Path

import pytest
from made_keys import write_keys
from running import run

from dataaudit.base.sealing import key_id
from dataaudit.engine.plan_probe import StatIndex
from dataaudit.manifest.load import load_manifest
from dataaudit.scan.corpus.storage.files import stat_file

pytestmark = pytest.mark.stores
SECRET = " ".join(f"answer{number}" for number in range(80))
CLEAN = " ".join(f"lesson{number:01d}"[:8] for number in range(80))
TRAIN = Path("data/train/a.jsonl")


def _write(folder, text):
    path = folder / TRAIN
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"text": text}) + "\n")
    held_out = folder / "data/val/v.jsonl"
    held_out.parent.mkdir(exist_ok=True)
    held_out.write_text(json.dumps({"text": SECRET}) + "\n")


def _leaks(folder):
    return load_manifest(folder / "m").table("overlap").num_rows


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Return a leaky corpus with a state folder that says of its leaky file what is true of a clean one."""
    folder = tmp_path_factory.mktemp("prepared")
    _write(folder, CLEAN)
    run("build", "data/train", "data/val", "--manifest", "m", "--text", "text", cwd=folder)
    assert not _leaks(folder)
    index = StatIndex(folder / ".dataaudit/files.sqlite")
    place = str(folder / TRAIN)
    old = stat_file(place)
    row = index._database.execute("select row from files where path = ?", (os.fsencode(place),)).fetchone()[0]
    probe = json.loads(row[32:])["probe"]
    _write(folder, SECRET)
    new = stat_file(place)
    assert new != old
    index.store([(place, new, new.ctime_ns + 10**11, probe)])
    index.close()
    return folder


def _copy(prepared, tmp_path):
    """Return the prepared folder itself: copies of its files would have other inodes."""
    shutil.rmtree(prepared / "m", ignore_errors=True)
    key, state_key = tmp_path / "build.pem", tmp_path / "state.key"
    write_keys(tmp_path)
    state_key.write_bytes(os.urandom(32).hex().encode())
    state_key.chmod(0o600)
    return key, state_key


ARGUMENTS = ("build", "data/train", "data/val", "--manifest", "m", "--text", "text")


def test_a_build_that_does_not_sign_believes_its_own_folder(prepared, tmp_path):
    """Which shows that the folder was prepared well: nothing of the other tests is true by accident."""
    _copy(prepared, tmp_path)
    run(*ARGUMENTS, cwd=prepared)
    assert not _leaks(prepared)


def test_a_build_that_signs_believes_nothing_there(prepared, tmp_path):
    key, _ = _copy(prepared, tmp_path)
    _, said = run(*ARGUMENTS, "--sign", "--key", key, cwd=prepared)
    assert "everything is computed anew" in said
    assert _leaks(prepared)
    assert not [*(prepared / ".dataaudit").glob("once-*")]


def test_a_build_that_signs_believes_what_it_sealed_itself(prepared, tmp_path):
    """The prepared folder under the name of the key is made again; what was written under the key is read."""
    key, state_key = _copy(prepared, tmp_path)
    home = prepared / ".dataaudit"
    keyed = home / f"keyed-{key_id(state_key.read_bytes())}"
    keyed.mkdir(mode=0o700)
    for name in ("partials", "files.sqlite", "protected"):
        path = home / name
        (shutil.copytree if path.is_dir() else shutil.copy)(path, keyed / name)
    signed = ("--sign", "--key", key, "--state-key", state_key)
    _, first = run(*ARGUMENTS, *signed, cwd=prepared)
    assert "only what is sealed under the state key is believed" in first
    assert _leaks(prepared)
    _, second = run(*ARGUMENTS, *signed, "--workers", "2", cwd=prepared)
    assert "scan: 2 of 2 parts are known" in second
    assert _leaks(prepared)
