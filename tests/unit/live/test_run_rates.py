"""How old the newest row of each rank is, and how often a run restarts."""

import os
import time

import numpy as np
import pytest

from dataaudit.base.errors import RunLogError
from dataaudit.live import Heartbeats
from dataaudit.live.run_rates import live_values, metrics_ingest_lag, restart_rate
from dataaudit.runlog.format import RunFile
from dataaudit.runlog.writer import RankWriter, create_run, event
from dataaudit.vitals.sinks import MemorySink

RUN = {
    "manifest": None,
    "dataset": "d",
    "sources": (),
    "block_rows": 1,
    "started": "2026-03-14T00:00:00Z",
    "program": "0",
}


def write(folder, rank, first, moments):
    """Write an attempt of a rank: a step at each time."""
    log = RankWriter(folder, rank, first, 1)
    for step, moment in enumerate(moments, first):
        row = {name: np.zeros(1) for name in ("micro_batches", "targets", "scored", "loss_sum", "merged")}
        log.add_step(step, {"step": [step], "time": [moment], **row, "user_loss": [1.0]})
    log.close()


@pytest.fixture
def runlog(tmp_path):
    """A run of three ranks, of which the last wrote nothing."""
    create_run(tmp_path / "run", RunFile(**RUN, ranks=3), None)
    return tmp_path / "run"


def test_the_lag_is_the_age_of_a_ranks_newest_row(runlog):
    """By rank; of one that has written nothing it is not known."""
    write(runlog, 0, 1, [1000.0, 1010.0])
    write(runlog, 1, 1, [1000.0])
    assert metrics_ingest_lag(runlog, now=1030.0) == {0: 20.0, 1: 30.0, 2: None}
    assert metrics_ingest_lag(runlog, now=900.0) == {0: 0.0, 1: 0.0, 2: None}


def test_ranks_that_left_do_not_lag_and_those_that_joined_do(runlog):
    """A run of three ranks goes on with one, then with four."""
    for ranks, moment in ((3, 1000.0), (1, 2000.0), (4, 3000.0)):
        for rank in range(ranks):
            log = RankWriter(runlog, rank, 1, 1)
            log.add("events", event(0, "started", {"ranks": ranks}))
            log.close()
            write(runlog, rank, 1, [moment])
        assert metrics_ingest_lag(runlog, now=moment + 5) == dict.fromkeys(range(ranks), 5.0)


def test_a_log_without_steps_is_as_old_as_its_files(runlog):
    """Rows of values have no time."""
    log = RankWriter(runlog, 0, 1, 1)
    log.add("events", event(1, "started", {}))
    log.close()
    for path in (runlog / "ranks/00000").iterdir():
        os.utime(path, (5000, 5000))
    assert metrics_ingest_lag(runlog, now=5007.0)[0] == 7.0


def test_restarts_an_hour_are_those_of_the_attempts(runlog):
    """Of the newest hour: a storm is seen at once, however old the run is."""
    write(runlog, 0, 1, [0.0, 60.0])
    write(runlog, 0, 2, [3600.0])
    write(runlog, 0, 2, [5400.0])
    assert [restart_rate(runlog, now=now) for now in (7200.0, 7201.0, 1e9)] == [2.0, 1.0, 0.0]
    for _ in range(4):
        write(runlog, 0, 2, [86_400.0])
    assert restart_rate(runlog, now=86_500.0) == 4.0


def test_starts_of_heartbeats_count_where_they_are_more(runlog):
    """A run that dies before its first step writes no row."""
    write(runlog, 0, 1, [0.0])
    assert restart_rate(runlog, starts=(0.0, 1000.0, 2000.0), now=3600.0) == 2.0
    assert restart_rate(starts=(0.0,), now=3600.0) == 0.0
    assert restart_rate(starts=(), now=time.time()) is None


def test_what_is_no_run_log_is_an_error(tmp_path):
    """For both."""
    for read in (metrics_ingest_lag, restart_rate):
        with pytest.raises(RunLogError, match="no run log"):
            read(tmp_path / "none")


def test_a_sink_takes_what_is_known_as_rows(tmp_path):
    """So that the alerts of a run judge it; what is not known has no row."""
    sink = MemorySink()
    beats = Heartbeats(tmp_path).read()
    sink.add_values(live_values(7, beats=beats, lag={0: 2.0, 1: 5.0, 2: None}, errors={"io": 0.5, "data": None}))
    assert sink.values == [
        (7, "heartbeat_missing", -1, -1, "ranks", 0.0),
        (7, "metrics_ingest_lag", -1, -1, "max", 5.0),
        (7, "error_event_rate", -1, -1, "io", 0.5),
    ]
    sink.add_values(live_values(8))
    assert len(sink.values) == 3
