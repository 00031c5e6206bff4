"""A watch feeds rules from what lies around a log: heartbeats, its age, starts of the run, errors that it prints."""

import os
import time

import pytest
from live_logs import Run

from dataaudit.live import Heartbeat, triage
from dataaudit.live.rules import load_alerts
from dataaudit.live.watch import Watch

FAILED = """\
[rank3]: Traceback (most recent call last):
[rank3]:   File "train.py", line 10, in <module>
[rank3]: OSError: [Errno 5] Input/output error: '/data/shard-7'
"""
WENT_ON = "".join(f"2026-11-27 19:{{minute:02}}:{second} step {second} loss 3.0\n" for second in range(10, 30))


def state_of(watch, name):
    """Return how a rule stands."""
    return next(state for state in watch.response.judge.states() if state.rule == name)


def watched(folder, **options):
    """Return a watch that looked, with the shipped rules."""
    watch = Watch(folder, load_alerts(None), send=False, **options)
    watch.look()
    return watch


def test_a_log_that_has_no_beats_and_prints_nothing_leaves_their_rules_unfed(tmp_path):
    run = Run(tmp_path / "run")
    run.end_step(time=time.time())
    run.writer.flush()
    watch = watched(tmp_path / "run")
    assert state_of(watch, "heartbeat_missing").state == "not_evaluated"
    assert state_of(watch, "repeated_errors").state == "not_evaluated"
    assert state_of(watch, "ingest_lag").state == "ok"
    assert state_of(watch, "restart_storm").state == "ok"


def test_a_rank_that_stops_beating_is_missed(tmp_path):
    folder = tmp_path / "run"
    for rank in range(2):
        run = Run(folder, rank, 2)
        run.end_step(time=time.time())
        run.writer.flush()
    with Heartbeat(folder / "beats", 0, 0.05, ranks=2) as beat:
        beat.step(1)
        time.sleep(0.5)  # more than three beats: a rank that never came is not only late
        watch = watched(folder)
    assert state_of(watch, "heartbeat_missing").state == "firing"
    (incident,) = watch.response.incidents.all
    assert (incident.group, incident.severity, incident.ranks) == ("monitoring", 1, {1})
    ranks = (watch.response.evidence.path(incident) / "ranks.csv").read_text().splitlines()
    assert ranks[0].startswith("rank,node,pid,state,step")
    assert [line.split(",")[3] for line in ranks[1:]] == ["ok", "missing"]


def test_an_old_log_lags_and_its_age_does_not_make_a_rank_heard(tmp_path):
    folder = tmp_path / "run"
    run = Run(folder)
    run.end_step(time=time.time())
    run.writer.flush()
    old = time.time() - 3_000
    for path in (folder / "ranks/00000").iterdir():
        os.utime(path, (old, old))
    watch = watched(folder)
    assert state_of(watch, "ingest_lag").state == "firing"
    assert state_of(watch, "monitoring_blackout").state == "firing"


def test_restarts_count_as_restarts_an_hour_of_an_hour_at_least(tmp_path):
    folder = tmp_path / "run"
    for attempt in range(6):
        run = Run(folder, first=1 + attempt, resumed=attempt > 0)
        run.end_step(time=time.time())
        run.close()
        state = state_of(watched(folder), "restart_storm").state
        assert state == ("firing" if attempt > 3 else "ok")
    (incident,) = watched(folder).response.incidents.all
    assert (incident.group, incident.ranks) == ("restarts", set())
    assert [alert.document()["rank"] for alert in incident.alerts] == [None]
    book = (folder / "alerts" / incident.id / "runbook.md").read_text()
    assert "the whole run: restart_rate (per_hour) is 5;" in book


def test_a_rank_that_joins_a_resumed_run_is_silent_since_it_resumed(tmp_path):
    """The run began long before; a rank that wrote in an earlier start alone is missed, too."""
    folder = tmp_path / "run"
    for rank in range(2):
        run = Run(folder, rank, 2)
        run.end_step(time=time.time() - 9_000)
        run.close()
        for path in (folder / f"ranks/0000{rank}").iterdir():
            os.utime(path, (time.time() - 9_000,) * 2)
    for seconds, state in ((5, "ok"), (700, "firing")):
        run = Run(folder, first=2 + (state == "firing"))
        run.happen("resumed", ranks=3)
        run.end_step(time=time.time() - seconds)
        run.writer.flush()
        watch = watched(folder)
        assert state_of(watch, "monitoring_blackout").state == state
    assert {alert.rank for own in watch.response.incidents.all for alert in own.alerts} >= {1, 2}


def test_errors_of_the_text_log_are_rates_by_class(tmp_path):
    folder, log = tmp_path / "run", tmp_path / "out.log"
    run = Run(folder)
    run.end_step(time=time.time())
    run.writer.flush()
    log.write_text((FAILED + 2 * WENT_ON).format(minute=3))
    assert triage([log]).error_event_rate() == {"io": 1.0}
    assert state_of(watched(folder, log=log), "repeated_errors").state == "ok"
    log.write_text("".join((FAILED + WENT_ON).format(minute=minute) for minute in range(0, 60, 4)))
    state = state_of(watched(folder, log=log), "repeated_errors")
    assert (state.state, state.last_step) == ("firing", 1)


@pytest.mark.parametrize("lost", ["removed", "large", "rotated"])
def test_a_text_log_that_is_read_no_more_feeds_no_rule(tmp_path, monkeypatch, lost):
    """Its rate of before went on for ever; a log that names a class no more says 0 of it."""
    folder, log = tmp_path / "run", tmp_path / "out.log"
    run = Run(folder)
    run.end_step(time=time.time())
    run.writer.flush()
    log.write_text("".join((FAILED + WENT_ON).format(minute=minute) for minute in range(0, 60, 4)))
    monkeypatch.setattr("dataaudit.live.watch.EVERY_SECONDS", 0.0)
    watch = watched(folder, log=log)
    assert state_of(watch, "repeated_errors").state == "firing"
    if lost == "removed":
        log.unlink()
    elif lost == "large":
        monkeypatch.setattr("dataaudit.live.watch.MOST_LOG_BYTES", 9)
    else:
        log.write_text(WENT_ON.format(minute=3))
    for _ in range(5_000):
        run.end_step(time=time.time())
    run.writer.flush()
    watch.look()
    assert state_of(watch, "repeated_errors").state == ("ok" if lost == "rotated" else "not_evaluated")


STAMPS = ["2026-11-27 19:{minute:02}:00 ", "2026-11-27T19:{minute:02}:00.123456789Z ", "Nov 27 19:{minute:02}:00 "]


@pytest.mark.parametrize("stamp", [*STAMPS, "2026-11-27T19:{minute:02}:00.1+01:00 stderr F "])
@pytest.mark.parametrize("rank", ["[rank3]: ", ""])
def test_a_traceback_with_a_time_before_each_line_is_read(tmp_path, stamp, rank):
    """kubectl, docker and ts write logs so."""
    stamped = "".join(f"{stamp}{rank}{line.removeprefix('[rank3]: ')}\n" for line in FAILED.splitlines())
    log = tmp_path / "out.log"
    log.write_text("".join((stamped + WENT_ON).format(minute=minute) for minute in range(0, 60, 4)))
    (event,) = triage([log]).events
    assert (event.error, event.count, event.rank) == ("io", 15, 3 if rank else None)
