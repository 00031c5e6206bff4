"""Verdicts have colours where a person reads them, and none elsewhere."""

import io
import re
import sys

import pytest

from dataaudit.cli import shell

TEXT = """{headline}: corpus 1.0.0 by release-gate
  Do not release it: FAIL, PASS.

What does not hold
  state          rule   where
  fail           leaks  set val
  not evaluated  pass   fail  here
  warn           a      b
  failing        a      b
"""
_SEQUENCES = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    """Stands for a terminal."""

    def isatty(self):
        """It is."""
        return True


@pytest.fixture
def printed(monkeypatch):
    """Return what is printed of a verdict on a stream, with an environment."""

    def call(stream, headline="FAIL, NOT EVALUATED", **environ):
        for name in ("NO_COLOR", "TERM"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "stdout", stream)
        shell.print_verdict(TEXT.format(headline=headline))
        return stream.getvalue()

    return call


def test_states_have_colours_on_a_terminal_and_the_text_is_the_same(printed):
    shown = printed(Terminal(), TERM="xterm")
    assert _SEQUENCES.sub("", shown) == TEXT.format(headline="FAIL, NOT EVALUATED")
    coloured = re.findall(r"\x1b\[[0-9;]*m([^\x1b]+)\x1b", shown)
    assert coloured == ["FAIL", "NOT EVALUATED", "fail", "not evaluated", "warn"]


@pytest.mark.parametrize(
    ("headline", "words"),
    [
        ("PASS", ["PASS"]),
        ("PASS, 3 of 20 rules skipped", ["PASS"]),
        ("FAIL", ["FAIL"]),
        ("NOT EVALUATED", ["NOT EVALUATED"]),
        ("FAIL, NOTHING EVALUATED", ["FAIL", "NOTHING EVALUATED"]),
        ("FAILURE of a corpus", []),
    ],
)
def test_every_headline(printed, headline, words):
    first = printed(Terminal(), headline=headline).split("\n")[0]
    assert re.findall(r"\x1b\[[0-9;]*m([^\x1b]+)\x1b", first) == words
    assert _SEQUENCES.sub("", first).startswith(headline)


@pytest.mark.parametrize(
    ("stream", "environ"),
    [(io.StringIO(), {}), (Terminal(), {"NO_COLOR": "1"}), (Terminal(), {"TERM": "dumb"})],
    ids=["pipe", "NO_COLOR", "dumb"],
)
def test_no_colours_where_nobody_wants_them(printed, stream, environ):
    assert "\x1b" not in printed(stream, **environ)
