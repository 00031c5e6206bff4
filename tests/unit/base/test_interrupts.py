"""Ctrl-C and SIGTERM: held while workers start, taken by a command, and raised again where something swallowed them."""

import contextlib
import importlib
import os
import signal
import sys
import threading

import pytest

from dataaudit.base.errors import BuildInterrupted
from dataaudit.base.process import _take, raise_if_interrupted, signals_held, signals_taken
from dataaudit.engine.progress import Progress


@pytest.fixture
def handled():
    """SIGINT and SIGTERM handled as the command does; a job in the background would ignore SIGINT."""
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    for number, _ in before:
        signal.signal(number, signal.default_int_handler)
    yield
    for number, handler in before:
        signal.signal(number, handler)


@pytest.mark.usefixtures("handled")
def test_signals_wait_while_workers_start():
    """Ctrl-C is not taken then, SIGTERM is kept and told afterwards, and handlers are put back."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    reached = []

    def start():
        with signals_held():
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        start()
    assert reached
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_thread_that_takes_the_signal_ends_nothing_early(number):
    """Threads of libraries, which run already, do not block SIGINT: what one of them takes waits like the rest."""
    done, reached = threading.Event(), []
    other = threading.Thread(target=done.wait)
    other.start()
    arrived, told = os.pipe()
    os.set_blocking(told, False)
    before = signal.set_wakeup_fd(told)

    def start():
        with signals_held():
            signal.pthread_kill(other.ident, number)
            reached.append(os.read(arrived, 1))
            reached.append(b"still here")

    try:
        with pytest.raises(KeyboardInterrupt):
            start()
    finally:
        signal.set_wakeup_fd(before)
        done.set()
        other.join()
        os.close(arrived)
        os.close(told)
    assert reached == [bytes([number]), b"still here"]


def test_a_handler_of_the_caller_gets_what_came(handled):
    """Each signal once, after the handlers are back; what it does is its own choice."""
    came = []
    signal.signal(signal.SIGTERM, lambda number, _: came.append((number, signal.getsignal(number) is not None)))
    with signals_held():
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert came == []
    assert came == [(signal.SIGTERM, True)]


def test_a_signal_that_nobody_handles_is_left_alone():
    """SIGTERM ends a notebook at once, as ever, also while workers start."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with signals_held():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_ignored_signal_stays_ignored():
    """A build in the background of a shell, say, that ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with signals_held():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def swallowing(number):
    """Raise a signal where something takes whatever is raised, as the imports of some libraries do."""
    with contextlib.suppress(BaseException):
        signal.raise_signal(number)


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_was_swallowed_is_raised_where_progress_is_told(number):
    """A phase that begins, and a unit that is done, ask for it; afterwards it is forgotten."""
    before = signal.getsignal(number)
    with signals_taken(), Progress(quiet=True) as progress:
        progress.begin("scan", 2, 0)
        progress.advance(0)
        swallowing(number)
        with pytest.raises(KeyboardInterrupt):
            progress.advance(0)
        with pytest.raises(KeyboardInterrupt):
            progress.begin("scan", 1, 0)
    assert signal.getsignal(number) is before
    Progress(quiet=True).begin("scan", 1, 0)


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_that_became_another_error_is_still_one(number):
    """A library that turns whatever is raised into an error of its own; what nothing interrupted stays what it is."""

    def fail(error, *, interrupted):
        with signals_taken():
            if interrupted:
                swallowing(number)
            raise error

    with pytest.raises(ValueError, match="of a library"):
        fail(ValueError("of a library"), interrupted=False)
    with pytest.raises(KeyboardInterrupt):
        fail(ValueError("of a library"), interrupted=True)
    with pytest.raises(BuildInterrupted, match="kept"):
        fail(BuildInterrupted("what was finished is kept"), interrupted=True)


@pytest.mark.usefixtures("handled")
def test_a_signal_in_an_import_is_raised_when_the_import_is_done(tmp_path, monkeypatch):
    """Code in C that imports, as pyarrow's, would print what is raised there, and go on."""
    (tmp_path / "imported_now.py").write_text("import signal\nsignal.raise_signal(signal.SIGTERM)\nDONE = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    with signals_taken(), pytest.raises(KeyboardInterrupt):
        importlib.import_module("imported_now")
    assert sys.modules.pop("imported_now").DONE
    assert sys.gettrace() is None


@pytest.mark.usefixtures("handled")
@pytest.mark.timeout(30)
@pytest.mark.parametrize("line", range(12))
def test_a_signal_that_comes_while_another_is_taken_hangs_nothing(line):
    """Wherever the handler stands: nothing in it waits for itself."""
    left = [line]

    def trace(frame, event, _):
        if event == "line" and (frame.f_code is _take.__code__ or left[0] < line):
            left[0] -= 1
            if left[0] == -1:
                signal.raise_signal(signal.SIGTERM)
        return trace

    def interrupted():
        sys.settrace(trace)
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            sys.settrace(None)

    with signals_taken():
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        with pytest.raises(KeyboardInterrupt):
            raise_if_interrupted()


def test_a_process_that_ignores_ctrl_c_goes_on_to():
    """In the background of a shell without job control SIGINT is ignored; SIGTERM is taken all the same."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with signals_taken():
            os.kill(os.getpid(), signal.SIGINT)
            raise_if_interrupted()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
