"""Probing: files are hashed once, known ones not at all, and columns are seen where nothing names them."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest
from made_build import HereRunner, Notes, config, probe, shard, shard_list, write_file

from dataaudit.base.errors import ConfigError
from dataaudit.config import AuditConfig, Reader, SourceRule
from dataaudit.engine.plan_probe import Probed, probe_shards, resolve_columns
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.corpus.readers import Part
from dataaudit.scan.corpus.storage.address import Access, RemotePath

LINE = b'{"text": "x", "source": "s"}\n'


@pytest.fixture
def files(tmp_path):
    """Three old files, one of them gone again."""
    paths = [write_file(tmp_path / "data" / f"{number}.jsonl", LINE * (number + 1)) for number in range(3)]
    Path(paths[2]).unlink()
    return paths


def look(tmp_path, shards, *, rehash=False, part_bytes=1 << 20):
    """Probe shards with the index of a state folder; return probes, failures and what was hashed."""
    runner, reader = HereRunner(), Reader.model_construct(part_bytes=part_bytes, text_document="file")
    found = probe_shards(shard_list(*shards), tmp_path, runner, Notes(), reader, rehash=rehash)
    by_path = {one.path: (found.probe(place), found.failure(place)) for place, one in enumerate(shards)}
    probes = {path: probe for path, (probe, _) in by_path.items() if probe is not None}
    failures = {path: failure for path, (_, failure) in by_path.items() if failure is not None}
    return probes, failures, len(runner.ran), runner.notes


def test_files_are_hashed_and_their_faults_named(tmp_path, files):
    """Digest and parts by path; what is gone has a reason; what is skipped is not looked at."""
    shards = [shard(number, path=path) for number, path in enumerate(files)]
    shards += [shard(3, path=files[0], uri="x#copy=2"), shard(4, path="/p", skip=Reason.NOT_A_FILE)]
    probes, failures, hashed, _ = look(tmp_path, shards)
    assert {path: probe.sha256 for path, probe in probes.items()} == {
        path: hashlib.sha256(LINE * (number + 1)).hexdigest() for number, path in enumerate(files[:2])
    }
    assert probes[files[1]].parts == (Part(0, 2 * len(LINE)),)
    assert failures == {files[2]: (Reason.NOT_FOUND, "")}
    assert hashed == 3


def test_known_files_are_not_read_again(tmp_path, files, monkeypatch):
    """Settled files are known; --rehash, another cut and a touch each hash again, to the same answer."""
    monkeypatch.setattr("dataaudit.engine.plan_probe._SETTLED_NS", -(10**12))
    shards = [shard(number, path=path) for number, path in enumerate(files[:2])]
    first = look(tmp_path, shards)[0]
    again, _, hashed, _ = look(tmp_path, shards)
    assert hashed == 0
    assert {path: (probe.sha256, probe.parts) for path, probe in again.items()} == {
        path: (probe.sha256, probe.parts) for path, probe in first.items()
    }
    assert look(tmp_path, shards, rehash=True)[2] == 2
    assert look(tmp_path, shards, part_bytes=30)[2] == 2
    assert look(tmp_path, shards, part_bytes=30)[2] == 0
    os.utime(files[0], ns=(1, 1))
    assert look(tmp_path, shards, part_bytes=30)[2] == 1


def test_an_index_that_fails_is_done_without_and_noted(tmp_path, files):
    """A folder in its place costs hashing, and the manifest's notes say so."""
    (tmp_path / "files.sqlite").mkdir()
    probes, _, hashed, notes = look(tmp_path, [shard(path=files[0])])
    assert (len(probes), hashed) == (1, 1)
    assert "index" in notes[0]


def test_a_store_without_validators_is_hashed_in_every_build_and_that_is_said(tmp_path, monkeypatch):
    """The numbers stay right, the time is spent, and the manifest's notes say why."""
    fsspec.filesystem("memory").pipe("/probing/a.jsonl", LINE)
    monkeypatch.setattr("dataaudit.scan.corpus.storage.remote._TIMES", ())
    path = RemotePath("memory://probing/a.jsonl", "memory://probing/a.jsonl", Access())
    for _ in range(2):
        probes, _, hashed, notes = look(tmp_path, [shard(path=path)])
        assert probes[path].sha256 == hashlib.sha256(LINE).hexdigest()
        assert hashed == 1
        assert "1 remote file(s) have no ETag" in notes[0]


def test_a_file_whose_name_is_not_unicode(tmp_path):
    """Any name that a file system allows can be probed and remembered."""
    path = tmp_path / os.fsdecode(b"\xff.jsonl")
    path.write_bytes(LINE)
    probes, _, _, notes = look(tmp_path, [shard(path=str(path))])
    assert str(path) in probes
    assert notes == []


def test_what_the_config_names_is_not_inferred(tmp_path, files):
    """Text and source that are given stay as they are; a column that no first shard has is warned of."""
    runner = HereRunner()
    settings = config()
    assert resolve_columns(settings, shard_list(*[shard(path=files[0])]), runner, Notes()) == settings
    assert runner.notes == ["split val is not marked `held_out: true`, so it counts as training data"]
    split = settings.splits["train"].model_copy(update={"text": "txt", "source": SourceRule(column="sorce")})
    slip = settings.model_copy(update={"splits": {"train": split, "val": split}})
    write_file(files[0], b'{"text": "x", "source": "y"}\n')
    shards = [shard(path=files[0]), shard(1, path=files[0], split="val")]
    assert resolve_columns(slip, shard_list(*shards), runner, Notes()) == slip
    assert "split val is not marked `held_out: true`" in "".join(runner.notes)
    for words in ("text column `txt` (did you mean `text`?)", "source column `sorce` (did you mean `source`?)"):
        assert sum(words in note for note in runner.notes) == 2


def test_the_first_shard_with_columns_decides(tmp_path, files):
    """Shards that are gone or empty are passed over, in the manifest's order whatever comes first."""
    write_file(files[2], b'{"content": "x"}\n')
    Path(files[0]).write_bytes(b"")
    shards = [shard(number, path=path) for number, path in enumerate(files)]
    settings = AuditConfig.model_validate({"splits": {"train": {"paths": ["x"]}}})
    for reverse in (False, True):
        resolved = resolve_columns(settings, shard_list(*shards), HereRunner(reverse=reverse), Notes())
        assert resolved.splits["train"].text == "text"
        assert resolved.splits["train"].source.column == "source"


def test_nothing_to_infer_from_is_said(tmp_path, files):
    """No readable shard: the split is named, with what to do."""
    settings = AuditConfig.model_validate({"splits": {"train": {"paths": ["x"]}}})
    with pytest.raises(ConfigError, match="train"):
        resolve_columns(settings, shard_list(*[shard(path=files[2])]), HereRunner(), Notes())


def test_times_of_files_may_lie_anywhere(tmp_path):
    """Some file systems know the year 2600 and 1600: more nanoseconds than 64 bits hold."""
    path = write_file(tmp_path / "a.jsonl", LINE)
    made = Probed(shard_list(shard(path=path)), tmp_path)
    odd = probe()
    odd = replace(odd, stat=replace(odd.stat, mtime_ns=2**65, ctime_ns=-(2**64), inode=2**64, device=2**70))
    made.add(0, odd)
    assert made.done().probe(0) == odd
