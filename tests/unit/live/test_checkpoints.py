"""Checkpoints on disk: what is published, kept, protected, damaged and restored; kills and full disks."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from saved_steps import content, read, save, write

from dataaudit.base import files
from dataaudit.base.errors import CheckpointDamaged, ConfigError
from dataaudit.cli import main
from dataaudit.live import Checkpoints
from dataaudit.live import checkpoints as module
from dataaudit.live.checkpoint_files import survey
from dataaudit.vitals.sinks import MemorySink, RunLogSink

TESTS = Path(__file__).parents[2]
KILLS = 30


def command(*arguments):
    """Run `dataaudit checkpoints`."""
    done = CliRunner().invoke(main, ["checkpoints", *map(str, arguments)])
    return done.exit_code, done.output


def values(sink):
    """Return (step, metric, value) of all that a sink was given."""
    return [(step, metric, value) for step, metric, _, _, _, value in sink.values]


@pytest.fixture
def folder(tmp_path):
    """Two good checkpoints."""
    save(tmp_path / "c", 10, 20)
    return tmp_path / "c"


def test_a_checkpoint_appears_whole_and_restores(tmp_path):
    """Every byte is that of the user's function; the numbers go to the sink; no draft is left."""
    sink, seen = MemorySink(), []
    with Checkpoints(tmp_path, sinks=[sink]) as checkpoints:
        assert checkpoints.restore(seen.append) is None
        published = checkpoints.save(10, write(10))
    assert published.step == 10
    assert published.size_bytes == 73_000
    assert checkpoints.restore(lambda path: seen.append(read(path))).step == 10
    assert seen == [content(10)]
    assert os.listdir(tmp_path) == ["step-00000010"]
    assert {metric: value for _, metric, value in values(sink)}.keys() == {
        "checkpoint_ok", "checkpoint_time", "checkpoint_size"
    }  # fmt: skip
    assert (10, "checkpoint_ok", 1.0) in values(sink)
    assert (10, "checkpoint_size", 73e-6) in values(sink)
    assert sink.events[-1][1:] == (
        "checkpoint",
        {"folder": "step-00000010", "step": 10, "what": "read back", "why": ""},
    )


def test_the_block_form_publishes_too(tmp_path):
    """What a block writes is the checkpoint; a block that fails leaves none."""
    checkpoints = Checkpoints(tmp_path)
    with checkpoints.saving(1) as path:
        write(1)(path)
    with checkpoints.saving(2) as path:
        (path / "half").write_bytes(b"half")
        raise ZeroDivisionError
    checkpoints.close()
    assert [own.step for own in checkpoints.list()] == [1]
    assert os.listdir(tmp_path) == ["step-00000001"]


def flip(path):
    """Change a bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES = {
    "a flipped bit": ("data/optimizer/0.bin", flip, "other bytes: sha256"),
    "cut": ("data/model.bin", lambda path: os.truncate(path, 2_999), "2,999 bytes, 3,000 were saved"),
    "cut to nothing": ("data/model.bin", lambda path: os.truncate(path, 0), "0 bytes, 3,000 were saved"),
    "missing": ("data/model.bin", os.unlink, "it is missing"),
    "more": ("data/more.bin", lambda path: path.write_bytes(b"x"), "it was not saved with the checkpoint"),
    "a link": ("data/link", lambda path: path.symlink_to("model.bin"), "expected a file, found a link"),
    "its record": ("checkpoint.json", flip, "it is altered"),
    "no record": ("checkpoint.json", os.unlink, "it is missing"),
    "its outcome": ("test.json", flip, "test.json is altered"),
    "what was in memory": ("ranks/00000.json", flip, "other bytes"),
    "its manifest": ("reproducibility.json", os.unlink, "it is missing"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_the_good_one_before_a_damaged_one_restores_and_the_damage_is_named(folder, case, caplog):
    """By the log, by the command with exit code 1, and as a checkpoint that is not ok."""
    name, spoil, words = DAMAGES[case]
    spoil(folder / "step-00000020" / name)
    sink, seen = MemorySink(), []
    checkpoints = Checkpoints(folder, sinks=[sink])
    assert checkpoints.restore(lambda path: seen.append(read(path))).step == 10
    assert seen == [content(10)]
    assert words in caplog.text
    assert checkpoints.last_good.step == 10
    assert checkpoints.restore(at=10).step == 10
    code, output = command(folder)
    assert code == 1
    assert words in output
    assert "step-00000020" in output
    assert "last good: step 10" in output
    if case != "its outcome":
        assert {value for _, metric, value in values(sink) if metric == "checkpoint_ok"} == {0.0}
        assert words in sink.events[-1][2]["why"]


def test_all_that_is_damaged_is_named_where_nothing_restores(folder):
    """With the command to type."""
    flip(folder / "step-00000010/data/model.bin")
    os.unlink(folder / "step-00000020/data/model.bin")
    checkpoints = Checkpoints(folder)
    for _ in range(2):  # the second time both are known as damaged
        with pytest.raises(CheckpointDamaged) as raised:
            checkpoints.restore(lambda _: pytest.fail("it is damaged"))
    assert "step-00000010: data/model.bin: other bytes" in str(raised.value)
    assert "step-00000020: data/model.bin: it is missing" in str(raised.value)
    assert f"dataaudit checkpoints {folder}" in raised.value.hint
    assert checkpoints.last_good is None
    for at in ("latest", 20):
        with pytest.raises(CheckpointDamaged, match=f"{at} cannot be restored"):
            checkpoints.restore(at=at)


def test_a_flipped_byte_is_seen_by_digests_alone(folder):
    """`--quick` compares sizes, so it sees a cut file and no flipped byte."""
    flip(folder / "step-00000020/data/model.bin")
    assert command(folder, "--quick")[0] == 0
    assert command(folder)[0] == 1
    os.truncate(folder / "step-00000010/data/model.bin", 5)
    assert command(folder, "--quick")[0] == 1


def test_the_command_lists_newest_first(folder):
    """And JSON has the same facts."""
    Checkpoints(folder).protect(10, "before the spike")
    code, output = command(folder)
    assert code == 0
    lines = output.splitlines()
    assert lines[0] == "2 checkpoints, last good: step 20"
    assert lines[1].split()[0] == "step-00000020"
    assert lines[1].endswith("read back    latest, last good")
    assert lines[2].endswith("protected")
    document = json.loads(command(folder, "--json")[1])
    assert document["last_good"] == document["latest"] == 20
    assert [own["protected"] for own in document["checkpoints"]] == [True, False]
    assert document["damage"] == []


def test_the_command_has_an_exit_code_for_nothing(tmp_path):
    """4: no checkpoint. 2: no folder. 3: none was tested."""
    assert command(tmp_path)[0] == 4
    assert command(tmp_path / "no")[0] == 2
    save(tmp_path, 1)
    os.unlink(tmp_path / "step-00000001/test.json")
    assert command(tmp_path)[0] == 3


def test_what_a_kill_left_untested_is_tested_when_it_is_restored(tmp_path):
    """Else a run that was killed before its first test ended could not go on."""
    save(tmp_path, 1)
    os.unlink(tmp_path / "step-00000001/test.json")
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.last_good is None
    assert checkpoints.restore().step == 1
    assert checkpoints.last_good.step == 1


def test_a_run_that_went_back_saves_a_step_again(folder):
    """Both stay; the later one is the latest, by the order of saving and not by steps."""
    checkpoints = save(folder, 10)
    assert [own.folder.name for own in checkpoints.list()] == ["step-00000010", "step-00000020", "step-00000010-2"]
    assert checkpoints.latest.folder.name == checkpoints.last_good.folder.name == "step-00000010-2"


def test_old_checkpoints_are_deleted_but_good_and_protected_ones(tmp_path):
    """Protection holds across processes, until it ends."""
    save(tmp_path, 1, 2)
    assert Checkpoints(tmp_path).protect(1).protected
    checkpoints = save(tmp_path, 3, 4, 5, keep=1)
    assert [own.step for own in checkpoints.list()] == [1, 4, 5]
    checkpoints.unprotect(1)
    assert [own.step for own in save(tmp_path, 6, keep=3).list()] == [4, 5, 6]


def test_the_last_good_one_stays_while_later_ones_fail(tmp_path, monkeypatch):
    """However many: it and the good one before it are kept."""
    save(tmp_path, 1, 2)
    check = type("Fails", (), {"run": lambda *_: {"ok": False, "what": "restored", "why": "a weight differs"}})()
    checkpoints = Checkpoints(tmp_path, keep=2, sinks=[sink := MemorySink()])
    checkpoints._check = check
    monkeypatch.setattr(checkpoints, "_in_memory", lambda _: {"leaves": {}})
    for step in range(3, 9):
        checkpoints.save(step, write(step))
        checkpoints.wait()
    assert [own.step for own in checkpoints.list()] == [1, 2, 7, 8]
    assert checkpoints.latest.step == 8
    assert checkpoints.last_good.step == checkpoints.protect("last_good").step == 2
    assert checkpoints.restore().step == 2
    assert [own for own in values(sink) if own[1] == "checkpoint_ok"] == [
        (at, "checkpoint_ok", 0.0) for at in range(3, 9)
    ]
    assert "step-00000008: test.json: a weight differs" in command(tmp_path)[1]


def test_what_is_protected_while_it_is_being_deleted_stays(tmp_path, monkeypatch):
    """Another process protects it between the look and the deletion."""
    save(tmp_path, 1)
    rename = Path.rename

    def late(path, target):
        if str(target).endswith(".deleting"):
            (path / "protected.json").write_text("{}")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", late)
    assert [own.step for own in save(tmp_path, 2, 3, keep=1).list()] == [1, 2, 3]


def test_names_that_are_not_there_are_errors(folder):
    """They say what to type."""
    checkpoints = Checkpoints(folder)
    for ask in (checkpoints.protect, checkpoints.unprotect, lambda at: checkpoints.restore(at=at)):
        with pytest.raises(ConfigError, match="there is none of step 15"):
            ask(15)
    with pytest.raises(ConfigError, match="there is none that is last good"):
        Checkpoints(folder / "no").protect("last_good")
    for wrong in ({"keep": 0}, {"test_every": 0}, {"rank": 2, "ranks": 2}):
        with pytest.raises(ConfigError, match="expected keep"):
            Checkpoints(folder, **wrong)
    with pytest.raises(ConfigError, match="launch="):
        Checkpoints(folder, rank=0, ranks=2)


def test_a_first_save_that_fails_raises_and_a_later_one_is_reported(tmp_path, caplog):
    """A function that never worked is a fault of the loop; a run of days goes on."""
    checkpoints = Checkpoints(tmp_path, sinks=[sink := MemorySink()])
    with pytest.raises(ZeroDivisionError):
        checkpoints.save(1, lambda _: 1 / 0)
    checkpoints.save(2, write(2))
    checkpoints.wait()
    assert checkpoints.save(3, lambda _: 1 / 0) is None
    assert [value for step, metric, value in values(sink) if metric == "checkpoint_ok"] == [0.0, 1.0, 0.0]
    assert "ZeroDivisionError: division by zero; " in sink.events[-1][2]["why"]
    assert sink.events[-1][2]["why"].endswith("are free there; last good: step 2")
    assert "checkpoint of step 3 could not be saved" in caplog.text
    assert os.listdir(tmp_path) == ["step-00000002"]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [(lambda _: None, "nothing was written"), (lambda path: (path / "a").symlink_to("/dev/null"), "found a link")],
)
def test_what_is_no_checkpoint_is_not_published(tmp_path, spoil, words):
    with pytest.raises(ConfigError, match=words):
        Checkpoints(tmp_path).save(1, spoil)


def test_a_full_disk_at_any_file_costs_that_checkpoint_alone(folder, monkeypatch):
    """The user's function, our records or the last rename: nothing in part is left, and the run goes on."""
    calls = dict.fromkeys(("sync_file", "write_synced", "sync_folder", "write_whole"), 0)
    counted = {"number": 0, "fails": 0}

    def failing(call):
        def instead(*given, **options):
            counted["number"] += 1
            if counted["number"] == counted["fails"]:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*given, **options)

        return instead

    for name in calls:
        for own in (files, module, sys.modules["dataaudit.live.checkpoint_files"]):
            if hasattr(own, name):
                monkeypatch.setattr(own, name, failing(getattr(files, name)))
    save(folder, 30)
    every = counted["number"]
    assert every > 10
    for fails in range(1, every + 1):
        counted |= {"number": 0, "fails": fails}
        checkpoints = Checkpoints(folder, sinks=[sink := MemorySink()], reproducibility={})
        checkpoints.save(31, write(31))
        checkpoints.wait()
        counted["fails"] = 0
        restored = checkpoints.restore(lambda path: None)
        assert read(restored.path) == content(restored.step)
        assert survey(folder).damage == []
        if restored.step != 31:
            assert (31, "checkpoint_ok", 0.0) in values(sink)
            assert "No space left on device" in sink.events[-1][2]["why"]
            assert not list(folder.glob(".*"))
        for own in checkpoints.list():
            if own.step == 31:
                module.shutil.rmtree(own.folder)


def test_a_device_that_is_full_is_named(folder):
    """The user's own write fails."""

    def full(path):
        write(30)(path)
        with open("/dev/full", "wb", buffering=0) as file:
            file.write(b"x")

    checkpoints = Checkpoints(folder, sinks=[sink := MemorySink()])
    assert checkpoints.save(30, full) is None
    assert "OSError: No space left on device; " in sink.events[-1][2]["why"]
    assert checkpoints.restore().step == 20


@pytest.mark.children
def test_a_kill_at_any_moment_leaves_a_last_good_checkpoint(tmp_path):
    """At 30 moments drawn among all that touch the file system: it restores to the byte, and none is damaged."""
    folder = tmp_path / "c"
    environment = {"PYTHONPATH": f"{TESTS.parent}:{TESTS}", "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}

    def run(moment):
        line = [sys.executable, str(Path(__file__).with_name("saved_steps.py")), str(folder), str(moment)]
        return subprocess.run(line, env=environment, capture_output=True, text=True, check=False, timeout=120)

    every = int(run(0).stdout)
    moments = random.Random(20).sample(range(1, every), KILLS)
    assert every > 3 * KILLS
    tested = 0
    for moment in moments:
        assert run(moment).returncode == -signal.SIGKILL
        checkpoints = Checkpoints(folder)
        good = checkpoints.last_good
        restored = checkpoints.restore()
        assert restored.step == good.step >= int(Path(f"{folder}.good").read_text())
        assert read(restored.path) == content(restored.step)
        assert survey(folder).damage == []
        tested += restored.step > int(Path(f"{folder}.good").read_text())
        Path(f"{folder}.good").write_text(str(restored.step))
    assert len(Checkpoints(folder).list()) <= 4
    save(folder, 10_000)
    assert not list(folder.glob(".*"))  # what the kills left is deleted


def saved_by(folder, rank, ranks, step=5, launch="a", seconds=60.0, **options):
    """Save a part of a checkpoint as a rank."""
    checkpoints = Checkpoints(folder, rank=rank, ranks=ranks, launch=launch, rank_seconds=seconds, **options)
    checkpoints.save(step, lambda path: (path / f"{rank}.bin").write_bytes(bytes([rank]) * 1_000))
    return checkpoints


@pytest.mark.children
def test_ranks_publish_when_all_parts_are_there(tmp_path):
    """In whatever order they come; each hashes its share, and the last of them completes it."""
    sinks = [MemorySink() for _ in range(3)]
    made = [saved_by(tmp_path, rank, 3, sinks=[sinks[rank]]) for rank in (2, 0)]
    threading.Event().wait(0.1)
    assert made[1].latest is None
    made.append(saved_by(tmp_path, 1, 3, sinks=[sinks[1]]))
    for own in made:
        assert own.wait(60)
    assert read(Checkpoints(tmp_path, rank=0, ranks=1).restore().path) == {
        f"{rank}.bin": bytes([rank]) * 1_000 for rank in range(3)
    }
    assert made[0].latest.ranks == 3
    assert {name for name in made[0].latest.files if name.startswith("ranks/")} == {
        f"ranks/0000{at}.json" for at in range(3)
    }
    metrics = [{metric for _, metric, _ in values(sink)} for sink in sinks]
    assert metrics == [
        {"checkpoint_time", "checkpoint_size", "checkpoint_ok"},
        {"checkpoint_time"},
        {"checkpoint_time"},
    ]


@pytest.mark.children
def test_ranks_restore_the_same_checkpoint_whoever_sees_the_damage(tmp_path):
    """Each reads a share of the files; only the share of rank 1 has the damage."""
    for step in (5, 6):
        for own in [saved_by(tmp_path, rank, 3, step=step, launch=f"a{step}") for rank in range(3)]:
            assert own.wait(60)
    flip(tmp_path / "step-00000006/data/1.bin")
    taken, sinks = {}, [MemorySink() for _ in range(3)]

    def restored(rank):
        checkpoints = Checkpoints(tmp_path, rank=rank, ranks=3, launch="b", sinks=[sinks[rank]], rank_seconds=60.0)
        checkpoints.restore(lambda path: taken.update({rank: read(path)}))

    threads = [threading.Thread(target=restored, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    whole = {f"{rank}.bin": bytes([rank]) * 1_000 for rank in range(3)}
    assert taken == {0: whole, 1: whole, 2: whole}
    assert Checkpoints(tmp_path, rank=0, ranks=1).last_good.step == 5
    assert [len(sink.events) for sink in sinks] == [1, 0, 0]
    assert "step-00000006: data/1.bin: other bytes" in sinks[0].events[0][2]["why"]


def test_a_folder_that_cannot_be_made_stops_no_run(folder, monkeypatch):
    """Neither as a function nor as a block; the reason is that of the folder."""

    def mkdir(*_, **__):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(Path, "mkdir", mkdir)
    checkpoints = Checkpoints(folder, sinks=[sink := MemorySink()])
    assert checkpoints.save(30, write(30)) is None
    with checkpoints.saving(31) as path:
        os.makedirs(path)
    assert [event[2]["why"].split(";")[0] for event in sink.events] == ["OSError: Disk quota exceeded"] * 2
    assert checkpoints.save(-1, write(1)) is None
    assert "expected a step from 0" in sink.events[-1][2]["why"]


@pytest.mark.children
def test_a_rank_that_does_not_come_is_named(tmp_path):
    """And what the others wrote is deleted; parts of another start are never mixed in."""
    save(tmp_path, 1)
    old = saved_by(tmp_path, 1, 2, launch="before", seconds=0.0)
    sink = MemorySink()
    checkpoints = saved_by(tmp_path, 0, 2, seconds=0.2, sinks=[sink])
    assert checkpoints.wait(60)
    assert old.wait(60)
    assert sink.events[-1][2]["why"].startswith("TimeoutError: no part of rank 1 came within 0 s; ")
    assert (5, "checkpoint_ok", 0.0) in values(sink)
    assert os.listdir(tmp_path) == ["step-00000001"]


def test_a_checkpoint_of_a_trainer_survives_the_trainers_own_deletion(tmp_path):
    """By hard links: no byte is copied."""
    theirs = tmp_path / "checkpoint-7"
    theirs.mkdir()
    write(7)(theirs)
    checkpoints = Checkpoints(tmp_path / "c")
    own = checkpoints.adopt(theirs, 7)
    assert (own.path / "model.bin").samefile(theirs / "model.bin")
    module.shutil.rmtree(theirs)
    checkpoints.close()
    assert read(checkpoints.restore().path) == content(7)
    (tmp_path / "last.ckpt").write_bytes(b"x")
    assert read(checkpoints.adopt(tmp_path / "last.ckpt", 8).path) == {"last.ckpt": b"x"}
    assert checkpoints.adopt(tmp_path / "no.ckpt", 9) is None


def test_a_copy_stays_when_the_trainer_writes_into_its_file_again(tmp_path):
    """A link changes with it, and that is damage."""
    theirs, checkpoints = tmp_path / "last.ckpt", Checkpoints(tmp_path / "c", reproducibility={})
    theirs.write_bytes(b"first")
    for step, copy in ((1, True), (2, False)):
        checkpoints.adopt(theirs, step, copy=copy)
        checkpoints.wait()
    theirs.write_bytes(b"again")
    assert checkpoints.restore().step == 1
    assert read(checkpoints.last_good.path) == {"last.ckpt": b"first"}


def test_a_link_that_crosses_file_systems_is_copied(tmp_path, monkeypatch):
    theirs = tmp_path / "their.ckpt"
    theirs.write_bytes(b"x" * 10)

    def link(*_, **__):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", link)
    own = Checkpoints(tmp_path / "c").adopt(theirs, 1)
    assert not (own.path / "their.ckpt").samefile(theirs)
    assert read(own.path) == {"their.ckpt": b"x" * 10}


def test_the_shipped_rules_fire(tmp_path):
    """`checkpoint_failed` at severity 0, `checkpoint_size` at a jump; in the process, and from its log."""
    from dataaudit.live.alerts import Alerts
    from dataaudit.live.rules import load_alerts
    from dataaudit.live.watch import Watch

    run = tmp_path / "run"
    with Alerts(run, load_alerts(None)) as alerts, RunLogSink(run, alerts=alerts) as log:
        checkpoints = Checkpoints(tmp_path / "c", sinks=[log])
        for step in (10, 20, 30):
            log.add_step(step, 3.0)
            checkpoints.save(
                step, lambda path, step=step: (path / "a").write_bytes(b"x" * (1_000 + (step == 30) * 200))
            )
            checkpoints.wait()
        checkpoints.save(40, lambda _: 1 / 0)
        log.add_step(40, 3.0)
    watch = Watch(run, load_alerts(None))
    watch.look()
    for incidents in (alerts.response.incidents, watch.response.incidents):
        fired = {alert.rule.name: alert.step for incident in incidents.all for alert in incident.alerts}
        assert {name: step for name, step in fired.items() if "checkpoint" in name} == {
            "checkpoint_size": 30, "checkpoint_failed": 40
        }  # fmt: skip
    watch.close()
