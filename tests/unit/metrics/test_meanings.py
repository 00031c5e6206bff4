"""Texts for codes."""

import ast
import inspect

from dataaudit.base.errors import ExitCode
from dataaudit.metrics import shown
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.corpus.tokens import guard


def test_every_reason_code_has_a_text_and_no_text_is_left_over():
    """The texts are for exactly the codes of the ledger."""
    assert set(shown.REASONS) == {str(reason) for reason in Reason}


def test_every_exit_code_has_a_text():
    """Each exit code is explained."""
    assert set(shown.EXIT_CODES) == {int(code) for code in ExitCode}


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
    assert found <= set(shown.ENCODERS)


def test_an_unknown_code_is_shown_and_said_to_be_unknown():
    """A manifest of a newer version can still be read."""
    assert "no text" in shown.reason_text("melted")
    assert "melted" in shown.encoder_text("melted")
    assert "no text" in shown.exit_text(77)
