"""What a verdict comes to, in words."""

from __future__ import annotations

import pytest
from made_verdict import case, result, rule, verdict

from dataaudit.gate.verdict import State
from dataaudit.gate.writers.words import advice

HOLDS = result(rule("leaks"), case(State.PASSED, of="leaks", value=0.0))


def skipped(number):
    """Return rules without anything to judge."""
    return [result(rule(f"rule-{index:02d}"), state=State.NOT_APPLICABLE) for index in range(number)]


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, ""),
        (2, " It says nothing of 2 rules without anything to judge: rule-00, rule-01."),
        (13, " It says nothing of 13 rules without anything to judge: "),
    ],
)
def test_a_verdict_that_passes_names_what_it_says_nothing_of(number, said):
    """A rule that had nothing to judge is no rule that holds."""
    text = advice(verdict(HOLDS, *skipped(number)))
    assert text.startswith(f"The manifest may be released.{said}")
    assert ("rule-12" in text) == (number > 13)
    assert text.endswith(" and 1 more.") == (number == 13)


def test_a_verdict_that_fails_says_first_what_to_do():
    bad = verdict(result(rule("leaks"), case(of="leaks")), *skipped(3))
    assert "says nothing of" not in advice(bad)
