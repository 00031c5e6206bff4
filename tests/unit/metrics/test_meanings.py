"""Texts for codes."""

from __future__ import annotations

import ast
import inspect

from dataaudit.corpus.loss import Reason
from dataaudit.corpus.tokens import guard
from dataaudit.errors import ExitCode
from dataaudit.metrics import meanings


def test_every_reason_code_has_a_text_and_no_text_is_left_over():
    """The texts are for exactly the codes of the ledger."""
    assert set(meanings.REASONS) == {str(reason) for reason in Reason}


def test_every_exit_code_has_a_text():
    """Each exit code is explained."""
    assert set(meanings.EXIT_CODES) == {int(code) for code in ExitCode}


def test_every_path_to_the_reference_encoder_has_a_text():
    """Each reason that the check of the encoders can give is explained."""
    tree = ast.parse(inspect.getsource(guard))
    found = {
        keyword.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "reason" and isinstance(keyword.value, ast.Constant)
    }
    assert "ok" in found
    assert found <= set(meanings.ENCODERS)


def test_an_unknown_code_is_shown_and_said_to_be_unknown():
    """A manifest of a newer version can still be read."""
    assert "no text" in meanings.reason_text("melted")
    assert "melted" in meanings.encoder_text("melted")
    assert "no text" in meanings.exit_text(77)
