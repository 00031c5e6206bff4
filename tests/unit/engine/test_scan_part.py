"""What runs on a worker, run here: files that change, twins, and a state folder that refuses."""

import errno
import json
import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from made_build import STAGE_LIST, config, identities, missing, shard, write_file

from dataaudit.engine import plan_probe
from dataaudit.engine import scan as work
from dataaudit.engine.plan import plan_shard
from dataaudit.engine.plan_probe import probe_file
from dataaudit.engine.runner import READING, PeekUnit, ProbeUnit
from dataaudit.engine.scan import hash_file, scan_part
from dataaudit.engine.store import PartialStore
from dataaudit.manifest.formats import FORMATS, UNKNOWN
from dataaudit.scan.annotators import Languages
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.corpus.shards import Shard

LINES = "".join(json.dumps({"text": f"document {number}"}) + "\n" for number in range(20)).encode()


def scan_unit(settings, *paths, part_bytes=1 << 20):
    """Probe files of equal bytes and return the unit that scans them."""
    planned = []
    for number, path in enumerate(paths):
        unit = ProbeUnit(path=path, format="jsonl", compression="none", part_bytes=part_bytes, size=len(LINES))
        found = probe_file(unit).probe
        one = shard(number, uri=f"{number}.jsonl", path=path)
        planned.append(plan_shard(one, found, None, config(), STAGE_LIST, identities(STAGE_LIST)))
    (unit,) = missing(planned, PartialStore(settings.state))
    return unit


def test_a_scan_leaves_everything_that_a_rerun_looks_for(settings, tmp_path):
    """Partials, rows and the reading are there; the same scan twice writes the same bytes."""
    unit = scan_unit(settings, write_file(tmp_path / "a.jsonl", LINES))
    assert scan_part(unit, settings).reason is None
    files = {path: path.read_bytes() for path in settings.state.rglob("*") if path.is_file()}
    store = PartialStore(settings.state)
    assert all(store.read(name, key) is not None for name, key in unit.stage_keys)
    assert store.read(READING, unit.reading_key).meta["records"] == 20
    assert scan_part(pickle.loads(pickle.dumps(unit)), settings).reason is None
    assert {path: path.read_bytes() for path in settings.state.rglob("*") if path.is_file()} == files


def test_a_file_that_changes_between_hash_and_scan_leaves_nothing(settings, tmp_path):
    """Other bytes under the same name give no partial under the old key."""
    path = write_file(tmp_path / "a.jsonl", LINES)
    unit = scan_unit(settings, path)
    write_file(path, LINES.replace(b"document 7", b"document X"))
    os.utime(path, ns=(unit.stat.mtime_ns, unit.stat.mtime_ns))
    assert scan_part(unit, settings).reason == Reason.CHANGED
    assert not [found for found in settings.state.rglob("*") if found.is_file()]


def test_a_file_that_is_only_touched_has_not_changed(settings, tmp_path):
    """New times or rights with the same bytes cost one more hash, not the shard."""
    path = write_file(tmp_path / "a.jsonl", LINES)
    unit = scan_unit(settings, path)
    os.utime(path, ns=(5, 5))
    Path(path).chmod(0o600)
    assert scan_part(unit, settings).reason is None


def test_a_twin_stands_in_for_a_file_that_is_gone_or_changed(settings, tmp_path):
    """Equal bytes at another place are read instead; only when none is left is there a loss."""
    paths = [write_file(tmp_path / f"{number}.jsonl", LINES) for number in range(3)]
    unit = scan_unit(settings, *paths)
    Path(paths[0]).unlink()
    write_file(paths[1], LINES + b"{}\n")
    assert scan_part(unit, settings).reason is None
    assert PartialStore(settings.state).read(READING, unit.reading_key).meta["records"] == 20
    Path(paths[2]).unlink()
    assert scan_part(unit, settings).reason == Reason.NOT_FOUND


def test_a_file_that_grows_while_it_is_hashed_is_said(tmp_path, monkeypatch):
    """A file that never stands still has no digest; one that is touched once has."""
    path = Path(write_file(tmp_path / "a.jsonl", LINES))
    unit = ProbeUnit(path=str(path), format="jsonl", compression="none", part_bytes=1 << 20, size=1)
    times = []

    def touching(_, *, limit=99):
        digest = hash_file(path)
        if len(times) < limit:
            times.append(1)
            path.write_bytes(path.read_bytes() + b"\n")
        return digest

    monkeypatch.setattr(plan_probe, "hash_file", touching)
    assert probe_file(unit).reason == Reason.CHANGED
    times.clear()
    monkeypatch.setattr(plan_probe, "hash_file", lambda given: touching(given, limit=1))
    assert probe_file(unit).probe.sha256 == hash_file(path)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), PermissionError(13, "Permission denied")]
)
def test_a_state_folder_that_refuses_is_no_shards_fault(settings, tmp_path, monkeypatch, error):
    """A full or read-only disk is told as such, with the folder and the way out; no shard is blamed."""
    unit = scan_unit(settings, write_file(tmp_path / "a.jsonl", LINES))

    def refuse(*_, **__):
        raise error

    monkeypatch.setattr("dataaudit.engine.store_entries.write_whole", refuse)
    outcome = scan_part(unit, settings)
    assert outcome.reason is None
    assert str(settings.state) in outcome.fault[0]
    assert error.strerror in outcome.fault[0]
    assert "--state" in outcome.fault[1]


def test_a_tokenizer_that_a_worker_cannot_load_is_no_shards_fault(settings, tmp_path):
    """A vocabulary that is gone from the state folder ends the build instead of every shard."""
    unit = scan_unit(settings, write_file(tmp_path / "a.jsonl", LINES))
    tokens, *others = settings.annotators
    gone = replace(tokens, tokenizer=replace(tokens.tokenizer, path=tmp_path / "gone.json", sha256="0" * 64))
    outcome = scan_part(unit, replace(settings, annotators=(gone, *others)))
    assert outcome.reason is None
    assert tokens.tokenizer.name in outcome.fault[0]


@pytest.mark.parametrize("role", ["chosen", "second"])
def test_a_detector_that_a_worker_cannot_load_is_no_shards_fault(settings, tmp_path, role):
    """A model that is gone from the state folder, or another one than was planned with, ends the build."""
    unit = scan_unit(settings, write_file(tmp_path / "a.jsonl", LINES))
    models = next(one.models for one in settings.annotators if isinstance(one, Languages))
    wrong = replace(models, **{role: replace(getattr(models, role), sha256="0" * 64)})
    others = [one for one in settings.annotators if not isinstance(one, Languages)]
    outcome = scan_part(unit, replace(settings, annotators=(*others, Languages(models=wrong, seed=0))))
    assert outcome.reason is None
    assert "language detector" in outcome.fault[0]


def test_input_errors_that_may_pass_are_raised(settings, tmp_path, monkeypatch):
    """The runner repeats them; they are neither a loss yet nor the state folder's fault."""
    unit = scan_unit(settings, write_file(tmp_path / "a.jsonl", LINES))
    monkeypatch.setattr(work, "read_part", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(OSError, match="Input/output"):
        scan_part(unit, settings)


def test_a_fault_of_ours_costs_one_shard_and_shows_no_text(settings, tmp_path, monkeypatch):
    """It is named by kind and place; its message, which may hold text, is not."""
    unit = scan_unit(settings, write_file(tmp_path / "a.jsonl", LINES))
    monkeypatch.setattr(work, "read_part", lambda *_: (_ for _ in ()).throw(ValueError("document 7")))
    outcome = scan_part(unit, settings)
    assert outcome.reason == Reason.INTERNAL
    assert outcome.place.startswith("ValueError at ")
    assert "document" not in outcome.place


@pytest.mark.parametrize("kind", [*FORMATS, UNKNOWN])
def test_what_native_code_parses_is_isolated(kind):
    """Parquet, Arrow and streamed datasets, which are files of such formats; lines and text are not."""
    shard = Shard(ordinal=0, split="s", uri="a", path="/a", format=kind, compression="none", skip=None, size=1)
    probe = ProbeUnit(path="/a", format=kind, compression="none", part_bytes=1, size=1)
    assert {PeekUnit(shard=shard).isolated, probe.isolated} == {kind in {"parquet", "arrow", "datasets"}}
