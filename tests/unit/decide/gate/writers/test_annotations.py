"""Annotations: what a runner takes for a command is ours, and there are never more than it shows."""

import re
import unicodedata

import pytest
from hypothesis import given, settings
from lanes import examples
from made_verdict import HOSTILE, case, hostile, many, mixed, result, rule, subject, verdict, verdicts

from dataaudit.decide.gate.verdict import State
from dataaudit.decide.gate.writers.annotations import (
    MOST,
    PER_TYPE,
    PolicyFile,
    annotation_lines,
    policy_file,
    rule_lines,
)

PLACE = PolicyFile(name="p.yaml", in_repository="p.yaml", lines={"copied-spans": 12})
COMMAND = re.compile(r"::(error|warning|notice) ((?:[a-z]+=[^,:]*)(?:,[a-z]+=[^,:]*)*)::(.*)")


def read(text):
    """Read lines as a runner does: commands with properties and message, unescaped."""
    found = []
    for line in re.split(r"\r\n|\r|\n", text)[:-1]:
        kind, given, message = COMMAND.fullmatch(line).groups()
        properties = dict(pair.split("=", 1) for pair in given.split(","))
        found.append((kind, {name: plain(value) for name, value in properties.items()}, plain(message)))
    return found


def plain(text):
    """Undo the escapes of the runner's toolkit."""
    for code, character in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        text = text.replace(code, character)
    return text


def test_a_failure_marks_the_rules_line():
    """Title, file, line, and what is wrong."""
    kind, properties, message = read(annotation_lines(mixed(), PLACE))[0]
    assert (kind, properties) == (
        "error",
        {"title": "dataaudit gate: FAIL, copied-spans", "file": "p.yaml", "line": "12"},
    )
    assert message.startswith(
        "train_val_overlap.span, set val: 0.0012; limit <= 0; see train/part-3.jsonl (12 documents"
    )
    assert "\nowner: Evaluation" in message


def test_kinds_follow_the_effects():
    """What stops is an error, what warns a warning, the rest a notice."""
    kinds = [kind for kind, _, _ in read(annotation_lines(mixed(), PLACE))]
    assert kinds == ["error"] * 4 + ["warning"] + ["notice"] * 2


def test_more_rules_than_a_runner_shows_are_summed_up_in_the_last():
    """Ten of a type; the tenth names the others."""
    failing = [result(rule(f"rule-{index}"), case(of=f"rule-{index}")) for index in range(15)]
    found = read(annotation_lines(verdict(*failing), PLACE))
    assert len(found) == PER_TYPE
    assert found[-1][1]["title"] == "dataaudit gate: 6 more"
    assert found[-1][2].startswith("FAIL, rule-9; FAIL, rule-10")


def test_many_cases_of_a_rule_are_one_annotation():
    """The worst are listed, the others counted."""
    (one,) = read(annotation_lines(many(1000), PLACE))
    assert "\nand 995 more cases" in one[2]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_begins_a_command_of_its_own(name):
    """Every line is one of our commands; nothing that older runners read anywhere in a line is left."""
    text = annotation_lines(hostile(name), PLACE)
    assert read(text)
    assert "##" not in text
    assert {unicodedata.category(one) for one in text.replace("\n", "")}.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp"})


def test_a_policy_outside_of_the_repository_marks_no_file():
    """A runner would look for it in the repository."""
    assert "file" not in read(annotation_lines(mixed(), PolicyFile(lines={"copied-spans": 12})))[0][1]


def test_an_empty_corpus_has_an_error():
    """Also when no rule fails."""
    made = verdict(result(rule(), case(State.PASSED)), subject=subject(documents=0))
    assert [kind for kind, _, _ in read(annotation_lines(made, PLACE))] == ["error"]


def test_nothing_is_printed_when_everything_holds():
    """No noise."""
    assert annotation_lines(verdict(result(rule(), case(State.PASSED))), PLACE) == ""


@given(verdicts())
@settings(max_examples=examples(80), deadline=None)
def test_limits_hold_and_errors_stand_exactly_when_the_gate_stops(made):
    """For any verdict."""
    found = read(annotation_lines(made, PLACE))
    kinds = [kind for kind, _, _ in found]
    assert all(kinds.count(kind) <= PER_TYPE for kind in kinds)
    assert ("error" in kinds) == (not made.passed)
    assert all(len(message) <= MOST + 4 for _, _, message in found)


def test_lines_of_rules_are_found_in_block_and_flow_style():
    """The line of the rule's name."""
    text = "policy: p\nrules:\n  - name: a\n    metric: m\n  - {metric: m, name: b}\n  - metric: m\n    name: c\n"
    assert rule_lines(text) == {"a": 3, "b": 5, "c": 7}


@pytest.mark.parametrize(
    "text", ["", "[", "rules: 3", "rules: [1, {name: [2]}]", "a: &a [*a]", "[" * 5000, "\x00", "a"]
)
def test_a_text_that_is_no_policy_has_no_lines(text):
    """The gate itself says what is wrong with it."""
    assert rule_lines(text) == {}


def test_a_path_is_told_from_the_root_of_the_repository(tmp_path, monkeypatch):
    """The nearest checkout, else the runner's folder, else the current one; nothing outside of it."""
    (tmp_path / "gates").mkdir()
    monkeypatch.chdir(tmp_path / "gates")
    environ = {"GITHUB_WORKSPACE": str(tmp_path)}
    assert policy_file("p.yaml", None, environ).in_repository == "gates/p.yaml"
    assert policy_file("p.yaml", None, {}).in_repository == "p.yaml"
    assert policy_file("../p.yaml", None, {}).in_repository is None
    assert policy_file("../p.yaml", None, {}).name == "p.yaml"
    (tmp_path / "gates/.git").mkdir()
    assert policy_file("p.yaml", None, environ).in_repository == "p.yaml"
    (tmp_path / "gates/deep").mkdir()
    assert policy_file("deep/p.yaml", None, environ).in_repository == "deep/p.yaml"
