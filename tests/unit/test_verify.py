"""`dataaudit verify`."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
from made_manifest import make, shard

from dataaudit.base.errors import ConfigError, ExitCode, ManifestError
from dataaudit.manifest.load import load_manifest
from dataaudit.verify import verify_folder

FILES = {"a.jsonl": b"{}\n", "deep/b%25c.jsonl": b"second", "held.jsonl": b"third"}


@pytest.fixture
def root(tmp_path):
    """A folder with three shards, one of them listed twice, and one that nobody could read."""
    for uri, data in FILES.items():
        path = tmp_path / "data" / uri.replace("%25", "%")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "data"


@pytest.fixture
def folder(tmp_path, root):
    """The manifest of these shards."""
    shards = [_of(uri, data) for uri, data in FILES.items()]
    shards.append(_of("a.jsonl#copy=2", FILES["a.jsonl"]))
    shards.append(shard("locked.jsonl", status="quarantined", reason="permission_denied", size=7, sha256=""))
    make(tmp_path / "m", shards, ledger=[(4, "permission_denied", "", -1, 7)], roots=root)
    return tmp_path / "m"


def _of(uri, data):
    return shard(uri, size=len(data), sha256=hashlib.sha256(data).hexdigest())


def check(folder, **more):
    """Return the JSON of a check and its exit code."""
    options = {"data": False, "root": None, "quiet": True} | more
    shown, code = verify_folder(folder, as_json=True, **options)
    text, same = verify_folder(folder, as_json=False, **options)
    assert same == code
    value = json.loads(shown)
    assert value["exit_code"] == code
    for problem in value["problems"]:
        assert problem["code"] in text
    return value, code


def test_a_manifest_as_it_was_published_is_well(folder):
    """Without --data only the manifest is checked, and the answer says so."""
    value, code = check(folder)
    assert (code, value["well"], value["problems"], value["data"]) == (ExitCode.PASS, True, [], None)
    assert value["id"] == load_manifest(folder).id
    assert "all is well" in verify_folder(folder, data=False, root=None, as_json=False)[0]


def test_unchanged_shards_are_well_and_what_has_no_digest_is_named(folder, root):
    """Every shard with a digest is counted; one that could not be read is no failure, and not hidden."""
    value, code = check(folder, data=True)
    assert code == ExitCode.PASS
    assert value["data"]["shards_checked"] == 4
    assert value["data"]["bytes_checked"] == 3 + 6 + 5 + 3
    assert value["data"]["not_checkable"] == ["train/locked.jsonl"]
    assert "train/locked.jsonl" in verify_folder(folder, data=True, root=None, as_json=False, quiet=True)[0]


def test_a_file_that_is_listed_twice_is_hashed_once(folder, monkeypatch):
    """A second listing costs no second reading."""
    hashed = []
    monkeypatch.setattr(
        "dataaudit.engine.scan.hash_file",
        lambda path: hashed.append(path) or hashlib.sha256(Path(path).read_bytes()).hexdigest(),
    )
    verify_folder(folder, data=True, root=None, as_json=True, quiet=True)
    assert len(hashed) == 3


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda path: path.write_bytes(b"[]\n"), "shard_digest"),
        (lambda path: path.write_bytes(b"{}\n\n"), "shard_size"),
        (lambda path: path.unlink(), "shard_gone"),
        (lambda path: (path.unlink(), path.mkdir()), "shard_kind"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "shard_kind"),
    ],
)
def test_each_change_of_a_shard_is_found_in_both_of_its_listings(folder, root, damage, code):
    """Other bytes, another size, no file, and what is no file (a pipe would block) are told apart."""
    damage(root / "a.jsonl")
    value, exit_code = check(folder, data=True)
    assert exit_code == ExitCode.BUDGET_EXCEEDED
    assert [problem["code"] for problem in value["problems"]] == [code, code]
    assert value["data"]["shards_checked"] == 2


def test_moved_shards_are_found_below_the_root_that_is_given(folder, root, tmp_path):
    """The recorded root is gone: an error says so, and --root helps."""
    shutil.move(root, tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="no such folder") as caught:
        verify_folder(folder, data=True, root=None, as_json=False, quiet=True)
    assert "--root" in str(caught.value)
    assert check(folder, data=True, root=tmp_path / "elsewhere")[1] == ExitCode.PASS


def test_a_root_without_data_is_wrong_use(folder, root):
    """An option that would do nothing is refused."""
    with pytest.raises(ConfigError, match="--data"):
        verify_folder(folder, data=False, root=root, as_json=False)


@pytest.mark.parametrize("uri", ["../secret", "deep/../../secret", "/etc/passwd", "%2E%2E/secret"])
def test_a_manifest_cannot_point_outside_its_root(tmp_path, root, uri):
    """A URI that leads out of the root is a problem and its file is not opened."""
    (tmp_path / "secret").write_bytes(b"{}\n")
    make(tmp_path / "m", [_of(uri, b"{}\n")], roots=root)
    value, code = check(tmp_path / "m", data=True)
    assert code == ExitCode.BUDGET_EXCEEDED
    assert [problem["code"] for problem in value["problems"]] == ["uri_outside_root"]


def test_a_changed_core_is_a_problem_and_not_a_crash(folder):
    """An id that is not the digest of the core gives exit code 1, also as JSON."""
    pointer = folder / "manifest.json"
    document = json.loads(pointer.read_text())
    document["core"]["dataset"]["name"] = "other"
    pointer.write_text(json.dumps(document))
    value, code = check(folder)
    assert code == ExitCode.BUDGET_EXCEEDED
    assert [problem["code"] for problem in value["problems"]] == ["id"]
    assert value["id"] is None


def test_a_damaged_table_stops_the_check_of_the_shards(folder):
    """What the manifest says of the shards is not used when it cannot be trusted."""
    table = folder / "shards.parquet"
    table.write_bytes(table.read_bytes()[:-20])
    value, code = check(folder, data=True)
    assert code == ExitCode.BUDGET_EXCEEDED
    assert value["data"] is None
    assert "not read" in verify_folder(folder, data=True, root=None, as_json=False, quiet=True)[0]


def test_no_manifest_is_wrong_use(tmp_path):
    """The error carries exit code 2."""
    with pytest.raises(ManifestError) as caught:
        verify_folder(tmp_path, data=False, root=None, as_json=True)
    assert caught.value.exit_code == ExitCode.WRONG_USE
