"""JUnit XML: read back by two parsers; errors and failures stand in it exactly when the gate stops."""

import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from junitparser import Error, Failure, JUnitXml, Skipped
from lanes import examples
from lxml import etree
from made_verdict import HOSTILE, case, hostile, many, mixed, result, rule, subject, verdict, verdicts

from dataaudit.base.errors import ExitCode
from dataaudit.decide.gate.verdict import State
from dataaudit.decide.gate.writers.junit import CASES, junit_xml


def read(made):
    """Return the only suite, as junitparser reads it."""
    (suite,) = JUnitXml.fromstring(junit_xml(made))
    return suite


def test_each_rule_is_a_case_with_the_result_that_it_has():
    """Fail is a failure, not evaluated an error, waiting is skipped; a warning passes and is printed."""
    suite = read(mixed())
    found = {test.name: [type(one) for one in test.result] for test in suite}
    assert found == {
        "copied-spans": [Failure],
        "personal-data": [Failure],
        "shard-lengths": [],
        "unread": [],
        "toxicity": [Error],
        "drift": [Skipped],
        "english": [],
        "waiver 6666666666666666 has expired": [Failure],
    }
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (8, 3, 1, 1)
    assert {test.classname for test in suite} == {"release-gate"}
    warned = next(test for test in suite if test.name == "shard-lengths")
    assert warned.system_out.startswith("warning: seq_len_p50_p95.p50, shard train/part-7.jsonl: 40 tokens")


def test_a_failure_names_place_value_limit_shard_and_owner():
    """What a reader needs to begin is in the failure."""
    test = next(test for test in read(mixed()) if test.name == "copied-spans")
    (failure,) = test.result
    assert failure.message == (
        "train_val_overlap.span, set val: 0.0012; limit <= 0; see train/part-3.jsonl (12 documents with copied spans)"
    )
    assert "owner: Evaluation" in failure.text
    assert "waived: train_val_overlap.span, set gsm8k" in test.system_out


def test_waivers_are_properties_of_the_suite():
    """All of them, with owner, reason and last day."""
    waivers = [one.value for one in read(mixed()).properties() if one.name == "waiver"]
    assert [one.partition(":")[0] for one in waivers] == ["used", "unused", "expired"]
    assert all("owner data team" in one and "known, and agreed on" in one for one in waivers)


def test_many_cases_are_one_failure_that_counts_them():
    """The worst are listed, the others counted."""
    (test,) = read(many(1000))
    (failure,) = test.result
    assert failure.message.endswith("(and 999 more cases)")
    assert len(failure.text.splitlines()) == CASES + 1
    assert failure.text.splitlines()[-1] == f"and {1000 - CASES} more cases"


def test_nothing_evaluated_is_an_error_even_when_every_rule_passes():
    """An empty corpus is never green."""
    made = verdict(result(rule(), case(State.PASSED)), subject=subject(documents=0))
    assert made.exit_code == ExitCode.NOTHING_EVALUATED
    assert read(made).errors == 1


def test_a_warning_is_a_failure_where_warnings_stop():
    """`--fail-on warn` reaches the file."""
    warned = result(rule(severity="warn"), case(State.WARNED))
    assert read(verdict(warned)).failures == 0
    assert read(verdict(warned, fail_on="warn")).failures == 1


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text_for_every_parser(name):
    """Two parsers read the same cases; no name adds an element."""
    made = junit_xml(hostile(name))
    tree = etree.fromstring(made)
    assert [one.get("name") for one in tree.iter("testcase")] == [
        one.get("name")
        for one in ET.fromstring(made).iter("testcase")  # noqa: S314 - our own file
    ]
    known = {
        "testsuites", "testsuite", "properties", "property", "testcase", "failure", "error", "skipped", "system-out",
    }  # fmt: skip
    assert {one.tag for one in tree.iter()} <= known


@pytest.mark.tables
def test_the_bytes_do_not_depend_on_lxml():
    """Where only the standard library is installed the file holds the same."""
    code = (
        "import sys; sys.modules['lxml'] = None\n"
        "from made_verdict import mixed\n"
        "from dataaudit.decide.gate.writers.junit import junit_xml\n"
        "sys.stdout.buffer.write(junit_xml(mixed()))"
    )
    where = str(__file__).rpartition("/unit/")[0]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=where)
    assert etree.canonicalize(done.stdout.decode()) == etree.canonicalize(junit_xml(mixed()).decode())


@given(verdicts())
@settings(max_examples=examples(60), deadline=None)
def test_it_is_red_exactly_when_the_gate_is(made):
    """For any verdict there is a file, and failures or errors if and only if the exit code is not 0."""
    suite = read(made)
    assert bool(suite.failures or suite.errors) == (not made.passed)
    assert junit_xml(made) == junit_xml(made)
