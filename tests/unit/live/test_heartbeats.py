"""Heartbeats: a dead process, a hung loop and a slow rank are told apart, whatever the clocks say."""

import os
import signal
import subprocess
import sys
import threading
import time

import orjson
import pytest

from dataaudit.base.errors import ConfigError
from dataaudit.live import Heartbeat, Heartbeats
from dataaudit.live import heartbeats as module
from dataaudit.live.heartbeats import State

BEAT = {
    "rank": 0,
    "ranks": 2,
    "node": "gpu-01",
    "pid": 7,
    "every": 10.0,
    "beats": 50,
    "starts": [1000.0],
    "step": 40,
    "since": 1.0,
    "pace": 1.0,
    "where": "train.py:8 step",
    "end": "",
}
NOW = 5_000.0


def put(folder, rank, *, attempt=0, age=1.0, launch="00000000", **more):
    """Write the file of a rank as it was some seconds before NOW."""
    path = folder / f"{rank:05d}-{attempt:04d}-{launch}.beat"
    path.write_bytes(orjson.dumps(BEAT | {"rank": rank} | more))
    os.utime(path, (NOW - age, NOW - age))
    return path


def heartbeats(folder, now=None, **more):
    """Read once."""
    return Heartbeats(folder, **more).read(now)


def states(report):
    """Return the states by rank."""
    return [rank.state for rank in report.ranks]


def wait_for(what):
    """Wait until something holds, for ten seconds at most."""
    end = time.monotonic() + 10
    while not what() and time.monotonic() < end:
        time.sleep(0.01)
    assert what()


@pytest.fixture(autouse=True)
def without_launcher(monkeypatch):
    """No launcher has started these processes."""
    for name in module._LAUNCH:
        monkeypatch.delenv(name, raising=False)


def test_missing_stalled_slow_failed_and_ended_ranks_are_told_apart(tmp_path):
    """With node, process, last step and since when."""
    put(tmp_path, 0, ranks=7)
    put(tmp_path, 1, ranks=7, age=100, since=2.0)
    put(tmp_path, 2, ranks=7, since=500.0, step=38)
    put(tmp_path, 3, ranks=7, pace=2.0)
    put(tmp_path, 4, ranks=7, end="ended", age=900)
    put(tmp_path, 5, ranks=7, end="ValueError", age=900)
    report = heartbeats(tmp_path, NOW)
    assert states(report) == [
        State.OK,
        State.MISSING,
        State.STALLED,
        State.SLOW,
        State.ENDED,
        State.FAILED,
        State.MISSING,
    ]
    assert (report.heartbeat_missing, report.blackout) == (2, False)
    gone = report.ranks[1]
    assert (gone.node, gone.pid, gone.step, gone.beat_seconds, gone.step_seconds) == (
        "gpu-01",
        7,
        40,
        pytest.approx(100, abs=1),
        pytest.approx(102, abs=1),
    )
    text = report.text()
    assert "rank 1 on gpu-01, pid 7: missing, no beat for 100 s, last step 40" in text
    assert "rank 2 on gpu-01, pid 7: stalled, beats, last step 38, none for 501 s, in train.py:8 step" in text
    assert "rank 5 on gpu-01, pid 7: failed, last step 40, ended by ValueError" in text
    assert "rank 6: missing, it never beat" in text
    assert [rank.rank for rank in report.behind] == [6]


def test_a_loop_that_is_young_or_slow_by_nature_has_not_stalled(tmp_path):
    """The limit is twenty of its own steps."""
    put(tmp_path, 0, since=300.0, pace=40.0)
    put(tmp_path, 1, since=30.0, pace=None, step=None)
    assert states(heartbeats(tmp_path, NOW)) == [State.OK, State.STARTING]
    assert states(heartbeats(tmp_path, NOW, stalled=20.0)) == [State.STALLED, State.STALLED]


def test_ranks_with_the_lowest_step_are_behind(tmp_path):
    """If the others have gone on, and not those that have ended."""
    put(tmp_path, 0, step=40)
    put(tmp_path, 1, step=40)
    assert heartbeats(tmp_path, NOW).behind == []
    put(tmp_path, 0, step=41)
    assert [rank.rank for rank in heartbeats(tmp_path, NOW).behind] == [1]
    put(tmp_path, 1, step=40, end="ended")
    assert heartbeats(tmp_path, NOW).behind == []


def test_the_time_of_a_step_is_measured_from_beat_to_beat(tmp_path):
    """Smoothed, by the loop's own monotonic clock."""
    with Heartbeat(tmp_path, 0, every=3_600, ranks=1) as beat:
        paces = []
        for before, now in (((10, 100.0), (20, 120.0)), ((20, 120.0), (22, 132.0)), ((22, 132.0), (22, 132.0))):
            beat._now = now
            paces.append(beat._content(before)["pace"])
    assert paces == [2.0, 4.0, 4.0]


def test_a_blackout_is_named(tmp_path):
    """When nobody beats, it may be the file system."""
    put(tmp_path, 0, age=100)
    put(tmp_path, 1, age=100)
    report = heartbeats(tmp_path, NOW)
    assert report.blackout
    assert "no rank beats" in report.text()


def test_clocks_that_differ_or_jump_do_no_harm(tmp_path):
    """Times of files an hour ahead or behind: what changes beats, what does not is missing."""
    put(tmp_path, 0, age=3600, beats=50)
    put(tmp_path, 1, age=-3600, beats=50)
    reader = Heartbeats(tmp_path, missing=0.001)
    assert states(reader.read(NOW)) == [State.MISSING, State.OK]
    put(tmp_path, 0, age=3600, beats=51)
    time.sleep(0.05)
    assert states(reader.read(NOW - 1e6)) == [State.OK, State.MISSING]


def test_the_file_system_gives_the_time(tmp_path, monkeypatch):
    """The reader's own clock may be wrong."""
    path = put(tmp_path, 0, ranks=1)
    os.utime(path)
    monkeypatch.setattr(time, "time", lambda: 9e9)
    assert states(heartbeats(tmp_path)) == [State.OK]
    assert [name for name in os.listdir(tmp_path) if name.startswith(".reader")] == []


def test_files_of_an_older_attempt_are_no_ranks_of_the_newest(tmp_path):
    """A rank that has not begun it is missed; ranks that the run has no more are counted alone."""
    put(tmp_path, 0, attempt=2)
    put(tmp_path, 0, attempt=1)
    put(tmp_path, 1, attempt=1)
    put(tmp_path, 2, attempt=1)
    report = heartbeats(tmp_path, NOW)
    assert (report.attempt, states(report), report.older) == (2, [State.OK, State.MISSING], 1)
    assert "it beat in attempt 1 and has not begun attempt 2" in report.text()


def test_ranks_that_begin_a_little_later_are_not_missed_yet(tmp_path):
    """As long as the others are young."""
    put(tmp_path, 0, attempt=1, beats=2)
    put(tmp_path, 1, attempt=0)
    assert states(heartbeats(tmp_path, NOW)) == [State.OK, State.STARTING]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"{}", b"\xff" * 90_000])
def test_files_that_are_no_heartbeats_are_counted(content, tmp_path):
    """And the others read."""
    put(tmp_path, 0)
    (tmp_path / "00001-0000-00000000.beat").write_bytes(content)
    (tmp_path / "notes.txt").write_text("x")
    report = heartbeats(tmp_path, NOW)
    assert (report.unreadable, states(report)) == (1, [State.OK, State.MISSING])


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    """An empty one has no rank."""
    assert heartbeats(tmp_path).ranks == ()
    with pytest.raises(ConfigError, match="No such file"):
        heartbeats(tmp_path / "none")


def test_a_heartbeat_beats_while_the_loop_computes(tmp_path):
    """With the step that the loop left in memory, and where it is."""
    with Heartbeat(tmp_path, 0, every=0.02, ranks=1) as beat:
        beat.step(3)
        wait_for(lambda: heartbeats(tmp_path).ranks and heartbeats(tmp_path).ranks[0].step == 3)
        first = heartbeats(tmp_path).ranks[0]
        assert (first.state, first.pid) == (State.OK, os.getpid())
        where = []
        wait_for(lambda: where.append(heartbeats(tmp_path).ranks[0].where) or "wait_for" in where[-1])
        assert "test_heartbeats.py" in where[-1]
    assert heartbeats(tmp_path).ranks[0].state is State.ENDED
    assert not any(thread.name == "dataaudit-heartbeat" for thread in threading.enumerate())


def test_a_loop_that_fails_names_the_error(tmp_path):
    """Of its class alone; an exit without an error is an end."""
    for kind, state in (
        (ValueError("private"), State.FAILED),
        (SystemExit(0), State.ENDED),
        (SystemExit(3), State.FAILED),
    ):
        with pytest.raises(type(kind)), Heartbeat(tmp_path, 0, every=0.02, ranks=1):
            raise kind
        report = heartbeats(tmp_path)
        assert report.ranks[0].state is state
        assert "private" not in report.text()
    assert report.attempt == 2
    assert len(report.starts) == 3


def test_ranks_of_a_launch_share_an_attempt(tmp_path, monkeypatch):
    """A further launch is the next one, also of a rank that the attempt before did not reach."""

    def attempts(restart, *ranks):
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a")
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restart)
        for rank in ranks:
            Heartbeat(tmp_path, rank, every=0.02, ranks=3).close()
        return {name[:10] for name in os.listdir(tmp_path)}

    assert attempts("0", 0, 1) == {"00000-0000", "00001-0000"}
    assert attempts("1", 0, 1, 2) == {"00000-0001", "00001-0001", "00002-0001"}
    assert attempts("1", 0, 1) == {"00000-0002", "00001-0002", "00002-0001"}


def test_a_folder_that_cannot_be_written_costs_the_beats_alone(tmp_path):
    """They are counted, and the loop goes on."""
    (tmp_path / "file").touch()
    with Heartbeat(tmp_path / "file", 0, every=0.01) as beat:
        beat.step(1)
        wait_for(lambda: beat.lost > 2)
    assert beat.lost > 2


@pytest.mark.parametrize("arguments", [(-1,), (4, 10, 4), (0, 0), (0, 1e9)])
def test_wrong_arguments_are_refused(arguments, tmp_path):
    """A rank out of range, an interval that is none."""
    rank, every, ranks = (*arguments, 10.0, None)[:3] if len(arguments) < 3 else arguments
    with pytest.raises(ConfigError, match="heartbeat: expected"):
        Heartbeat(tmp_path, rank, every, ranks=ranks)


PROGRAM = """
import sys, time
from dataaudit.live import Heartbeat
beat = Heartbeat(sys.argv[1], int(sys.argv[2]), every=0.05, ranks=2)
for step in range(1, 1_000_000):
    beat.step(step)
    if sys.argv[3] == "hang" and step == 5:
        def wait_for_data():
            time.sleep(60)
        wait_for_data()
    time.sleep(0.01)
"""


@pytest.mark.children
def test_a_killed_process_is_missing_and_a_hung_one_stalled(tmp_path):
    """Of two real processes."""
    runs = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path), str(rank), what])
        for rank, what in enumerate(("go", "hang"))
    ]
    try:
        reader = Heartbeats(tmp_path, missing=20, stalled=1.0)
        wait_for(lambda: [rank.step is not None for rank in reader.read().ranks] == [True, True])
        runs[0].send_signal(signal.SIGKILL)
        wait_for(lambda: states(reader.read()) == [State.MISSING, State.STALLED])
        report = reader.read()
        assert (report.ranks[1].step, report.ranks[1].pid) == (5, runs[1].pid)
        assert "wait_for_data" in report.ranks[1].where
    finally:
        for run in runs:
            run.kill()
            run.wait()
