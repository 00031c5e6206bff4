"""Progress: plain lines where nobody watches, one live line on a terminal, nothing when quiet."""

import io
import sys

import pytest

from dataaudit.engine import progress as module
from dataaudit.engine.progress import Progress


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    def isatty(self):
        """Say so."""
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def phase(progress, clock):
    """Run one phase of three pieces, six seconds each, the last unreadable."""
    with progress:
        progress.note("found: 3 shards")
        progress.begin("scan", 3, 30_000_000)
        for number in range(3):
            clock[0] += 6.0
            progress.advance(10_000_000, failed=number == 2)
        progress.end()
        progress.note("careful", important=True)


def test_plain_lines(clock, monkeypatch):
    """Without a terminal: a line every few seconds with rate and time left, one at the end, no escapes."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    phase(Progress(), clock)
    assert sys.stderr.getvalue().splitlines() == [
        "found: 3 shards",
        "scan: 1/3, 1.7 MB/s, 0:12 left",
        "scan: 2/3, 1.7 MB/s, 0:06 left",
        "scan: 3 done, 30.0 MB, 18.0 s, 1 unreadable",
        "careful",
    ]


def test_small_files_that_come_last_are_time_that_is_left(clock, monkeypatch):
    """Half of the bytes are read with the first file, but hardly any of the work is done."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with Progress() as progress:
        progress.begin("scan", 1001, 20_000_000)
        for size in (10_000_000, *[10_000] * 199):
            clock[0] += 6.0 if size > 10_000 else 0.06
            progress.advance(size)
    lefts = [line.rpartition(" ")[0].rpartition(" ")[2] for line in sys.stderr.getvalue().splitlines()]
    assert lefts == ["1:05", "0:57", "0:51"]


def test_quiet_says_only_what_is_important(clock, monkeypatch):
    """With --quiet, also on a terminal."""
    for stderr in (io.StringIO(), Terminal()):
        monkeypatch.setattr(sys, "stderr", stderr)
        phase(Progress(quiet=True), clock)
        assert stderr.getvalue() == "careful\n"


def test_a_terminal_gets_a_live_line_and_the_same_notes(monkeypatch):
    """Notes stay on the screen; the live display is taken away at the end, also after an error."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")

    def watched():
        progress = Progress()
        with progress:
            for name in ("hash", "scan"):
                progress.begin(name, 1, 0)
                progress.advance(0)
                progress.end()
            progress.note("[bold]a note[/bold]")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watched()
    shown = sys.stderr.getvalue()
    assert "[bold]a note[/bold]" in shown
    assert "scan: 1 done" in shown
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l")


def test_a_phase_of_nothing_says_nothing(clock, monkeypatch):
    """No units, no line."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with Progress() as progress:
        progress.begin("scan", 0, 0)
        progress.end()
    assert sys.stderr.getvalue() == ""


def test_short_steps_share_a_line_and_long_ones_are_named(clock, monkeypatch):
    """A phase of several words is a step of what the first word names."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with Progress() as progress:
        for name, seconds in (
            ("link near bands", 0.2),
            ("link near pairs", 0.3),
            ("link near verify", 7.0),
            ("second-pass", 0.1),
            ("link exact", 0.1),
        ):
            progress.begin(name, 1, 0)
            clock[0] += seconds
            progress.advance(0)
            progress.end()
    assert sys.stderr.getvalue().splitlines() == [
        "link: 2 short steps, 0.5 s",
        "link near verify: 1 done, 7.0 s",
        "second-pass: 1 done, 0.1 s",
        "link: 1 short step, 0.1 s",
    ]


def test_what_the_driver_does_itself_is_told_when_it_takes_a_second(clock, monkeypatch):
    """A short phase leaves the terminal as it was; a long one says where it is, and what it took."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with Progress() as progress:
        assert list(progress.over("partials", iter("abc"), 3)) == ["a", "b", "c"]
        for _ in progress.over("partials", range(3), 3):
            clock[0] += 6.0
    assert sys.stderr.getvalue().splitlines() == ["partials: 1/3", "partials: 2/3", "partials: 3 done, 18.0 s"]
