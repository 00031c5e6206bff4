"""What a verdict comes to, in words."""

from dataclasses import replace

import pytest
from made_verdict import case, result, rule, rule_result, verdict

from dataaudit.decide.gate.judge import UNREAD
from dataaudit.decide.gate.verdict import State
from dataaudit.decide.gate.writers.blocks import area_tones, verdict_section
from dataaudit.decide.gate.writers.words import advice, judged_words, value_words

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


def test_a_verdict_of_both_kinds_says_how_many_of_each_and_why_the_code_is_3():
    unknown = result(rule("mixture"), case(State.NOT_EVALUATED, of="mixture", value=None))
    text = advice(verdict(result(rule("leaks"), case(of="leaks")), HOLDS, unknown))
    assert text.startswith("Do not release it: 1 rule fails, and 1 could not be judged, for which the exit code is 3.")


@pytest.mark.parametrize(
    ("value", "judged", "said"),
    [
        (190_147, 190_147, "190,147 bytes not read"),
        (
            190_147,
            189_961,
            "189,961 bytes, which count as not read (another 186 are bad records that the policy tolerates)",
        ),
        (
            758_786,
            898_631,
            (
                "898,631 bytes, which count as not read"
                " (758,786 were not read; a shard with too many bad records counts whole)"
            ),
        ),
        (186, 0, "0 bytes, which count as not read (another 186 are bad records that the policy tolerates)"),
        (0, 0, "0 bytes"),
    ],
)
def test_unread_bytes_are_said_as_they_count(value, judged, said):
    """Nobody has to compare a value with what was judged of it."""
    every = rule("read", metric="coverage_unread_bytes", stat="bytes", unit="bytes", budget=0, max_bad_records=0.001)
    one = case(State.NOT_EVALUATED, of="read", value=value, judged=judged, unit="bytes", stat="bytes", reason=UNREAD)
    assert value_words(every, one) == said
    assert judged_words(every, one) == ""


def test_hits_that_are_validated_are_called_so():
    secrets = rule("secrets", metric="secret_hit_rate", stat="validated_hits", unit="hits", budget=0)
    none = case(State.PASSED, of="secrets", value=0.0, judged=0.0, unit="hits", stat="validated_hits")
    assert value_words(secrets, none) == "0 validated hits"


@pytest.mark.parametrize(("fail_on", "tone"), [("fail", "warn"), ("warn", "bad")])
@pytest.mark.parametrize("rule", [{"state": State.NOT_EVALUATED, "required": False}, {"state": State.WARNED}])
def test_a_page_is_red_only_where_a_rule_stops_the_release(rule, fail_on, tone):
    """An optional rule that is not evaluated was red, and a warning that stops the release was not."""
    shown = replace(verdict(rule_result("r", **rule)), fail_on=fail_on)
    assert area_tones(shown) == {"duplicates": tone}
    assert [point.tone for point in verdict_section(shown)[1]] == [tone]
