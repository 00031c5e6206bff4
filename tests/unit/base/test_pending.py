"""How long steps take is asked of the device that does their work, and waited for by nobody."""

import pytest

torch = pytest.importorskip("torch", reason="devices are torch's")

from dataaudit.base.async_copy import Laps  # noqa: E402 - after the skip

pytestmark = pytest.mark.torch


class Event:
    """An event of a GPU that does nothing by itself: its clock stands where the test puts it."""

    now, done = 0.0, 0.0

    def __init__(self, *, device, enable_timing):
        assert device.type == "cuda"
        assert enable_timing

    def record(self, stream):
        assert stream == "stream of cuda:1", "another device's stream says nothing of this one's work"
        self.at = Event.now

    def query(self):
        return self.at <= Event.done

    def elapsed_time(self, other):
        assert other.query(), "a time that is not known yet was asked for"
        return 1e3 * (other.at - self.at)


def test_seconds_of_a_gpus_steps_come_when_it_has_done_them_with_the_cadence_they_had(monkeypatch):
    monkeypatch.setattr(torch, "Event", Event)
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(Event, "now", 0.0)
    laps, found = Laps(torch.device("cuda:1")), []
    for step, (every, done) in enumerate(((1, 0.0), (1, 0.0), (2, 5.0), (2, 11.0)), 1):
        laps.begin()
        Event.now, Event.done = Event.now + 2 + step % 2, done
        found.append(list(laps.end(step, every)))
    assert found == [[], [], [(1, 1, 3.0), (2, 1, 2.0)], [(3, 2, 3.0), (4, 2, 2.0)]]


def test_seconds_of_a_cpus_steps_are_there_at_once(monkeypatch):
    clock = iter([1.0, 2.0, 4.5])
    monkeypatch.setattr("dataaudit.base.async_copy.time.perf_counter", lambda: next(clock))
    laps = Laps(torch.device("cpu"))
    laps.begin()
    assert list(laps.end(7, 1)) == [(7, 1, 2.5)]
