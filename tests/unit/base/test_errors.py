"""The error tree: what users see, exit codes, and survival on the way from a worker."""

from __future__ import annotations

import pickle

import pytest

from dataaudit.base import errors
from dataaudit.base.errors import DataAuditError, ExitCode


def tree(kind: type[DataAuditError]) -> list[type[DataAuditError]]:
    """Return a class and all below it."""
    return [kind, *(one for sub in kind.__subclasses__() for one in tree(sub))]


ERRORS = [kind for kind in tree(DataAuditError) if kind.__module__ == errors.__name__]


class TestTree:
    def test_exit_codes_are_public(self):
        """Scripts rely on these numbers."""
        assert {code.name: int(code) for code in ExitCode} == {
            "PASS": 0,
            "BUDGET_EXCEEDED": 1,
            "WRONG_USE": 2,
            "NOT_EVALUATED": 3,
            "NOTHING_EVALUATED": 4,
            "HELD_OUT": 5,
            "INTERRUPTED": 130,
        }

    def test_every_error_is_in_the_picture(self):
        """The tree that the module's text draws names every class, with its exit code when it is not 2."""
        assert errors.__doc__ is not None
        for kind in ERRORS:
            [line] = [line for line in errors.__doc__.splitlines() if kind.__name__ in line and "exit" not in line] or [
                line for line in errors.__doc__.splitlines() if line.strip().startswith(kind.__name__)
            ]
            if kind is not DataAuditError and kind.exit_code != ExitCode.WRONG_USE:
                assert line.rstrip().endswith(f"({int(kind.exit_code)})")

    @pytest.mark.parametrize("kind", ERRORS)
    def test_it_survives_pickling(self, kind):
        """An error that a worker raises arrives with its class, message, hint and exit code."""
        again = pickle.loads(pickle.dumps(kind("what happened", "what to do")))
        assert type(again) is kind
        assert (again.message, again.hint) == ("what happened", "what to do")
        assert again.exit_code == kind.exit_code != ExitCode.PASS

    def test_text_is_message_then_hint(self):
        """The hint stands on its own line, and no empty line stands for none."""
        assert str(DataAuditError("what happened", "what to do")) == "what happened\n  what to do"
        assert str(DataAuditError("what happened")) == "what happened"
