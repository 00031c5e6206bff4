"""The rules on both sides of their thresholds, and the rates that the stage makes of them."""

import numpy as np
import pytest
from filter_cases import CASES
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import filters as twin
from strategies import DOCUMENTS, make_batch

from dataaudit.base.errors import ConfigError
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.quality.stage import RULES, SETS, Filters
from dataaudit.metrics.stages import make_stages
from dataaudit.scan.annotators import TOKENS
from dataaudit.scan.corpus.tokens import TokenBatch
from dataaudit.scan.stages.base import Context, merge

LIMITS = {"short_line_chars": 30, "least_words": 5, "most_word_chars": 1000}
RUN = "repeated_ngrams.periodic_run"


def verdicts(texts, stage=None):
    """Return, for each text, the rules that reject it."""
    found = (stage or Filters()).rejections(make_batch([(text, "s") for text in texts]))
    return [{rule for rule, mask in found.items() if "." in rule and mask[place]} for place in range(len(texts))]


def test_every_rule_has_cases():
    assert [rule.name for rule in RULES if rule.name != RUN] == list(CASES)
    assert {rule.name.split(".")[0] for rule in RULES} == set(SETS)


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_rejects_from_its_threshold_on(rule):
    passing, rejected = CASES[rule]
    for text, found in zip(passing, verdicts(passing), strict=True):
        assert rule not in found, ascii(text)[:200]
    for text, found in zip(rejected, verdicts(rejected), strict=True):
        assert rule in found, ascii(text)[:200]


@settings(deadline=None)
@given(documents=DOCUMENTS)
def test_rules_decide_as_plain_fractions_do(documents):
    texts = [text for text, _ in documents]
    expected = [twin.rejecting_rules(twin.filter_counts(text, **LIMITS)) for text in texts]
    assert [found - {RUN} for found in verdicts(texts)] == expected


@pytest.mark.tables
def test_the_slow_twin_agrees_on_every_case():
    texts = [text for pair in CASES.values() for side in pair for text in side]
    expected = [twin.rejecting_rules(twin.filter_counts(text, **LIMITS)) for text in texts]
    assert [found - {RUN} for found in verdicts(texts)] == expected


@pytest.mark.parametrize(("copies", "rejects"), [(31, False), (32, True)])
def test_repeated_tokens_count_within_a_document(copies, rejects):
    """Of two documents, one holds the run; ids that go on in the next one do not count."""
    ids = [7, 8, 9] * copies + [7, 8, 9]
    tokens = TokenBatch(
        offsets=np.array([0, 3 * copies, len(ids)]),
        ids=np.array(ids, dtype=np.uint32),
        by_reference=np.zeros(2, dtype=bool),
        sampled=0,
        differing=0,
    )
    batch = make_batch([("x", "s"), ("y", "s")]).annotated(TOKENS, tokens)
    found = Filters().rejections(batch)
    assert found[RUN].tolist() == [rejects, False]
    assert found["repeated_ngrams"].tolist() == [rejects, False]


def test_rates_are_rejected_documents_over_all_documents():
    stage = Filters(sets=("gopher_quality", "c4"))
    documents = [("{", "code"), ("word " * 50 + "the of. A b. C d e. F.", "web"), ("the of", "web")]
    partial = merge(stage, [stage.map(make_batch(documents[:1])), stage.map(make_batch(documents[1:]))])
    records = stage.finalize(partial, Context(scope=Scope(split="train"), mixture={}))
    rate = {(record.scope.source, record.scope.rule): (record.value, record.n) for record in records}
    assert rate[None, "c4.curly_bracket"] == (pytest.approx(1 / 3), 3)
    assert rate["web", "c4.curly_bracket"] == (0.0, 2)
    assert rate["code", "c4"] == (1.0, 1)
    assert rate["web", "gopher_quality.word_count"] == (0.5, 2)
    assert rate[None, None][0] == pytest.approx(sum(map(bool, verdicts([text for text, _ in documents], stage))) / 3)
    assert not any(rule and rule.startswith("fineweb") for _, rule in rate)
    columns = stage.shard_columns(partial)
    assert {"rule": "c4.curly_bracket", "documents": 1} in columns["filters"]
    assert {"rule": "c4", "documents": 3} in columns["filters"]
    assert [row["rule"] for row in columns["filters"]] == sorted([*stage.sets, *(rule.name for rule in stage.rules())])


def test_a_threshold_of_the_config_replaces_the_published_one():
    text = "a\nb\nc d e f g h i"
    name = "fineweb.new_lines"
    assert name not in verdicts([text])[0]
    assert name in verdicts([text], Filters(thresholds={name: (None, 0.2)}))[0]
    made = make_stages({"filters": {"thresholds": {"c4.words_per_line": [2, None]}, "sets": ["c4"]}})
    changed = next(stage for stage in made if stage.name == "filters")
    three = "a b\nc d\ne f"
    assert "c4.words_per_line" in verdicts([three])[0]
    assert "c4.words_per_line" not in verdicts([three], changed)[0]


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"sets": ["gofer_quality"]}, "unknown set 'gofer_quality'.*gopher_quality"),
        ({"sets": []}, "one at least"),
        ({"sets": ["c4", "c4"]}, "at most once"),
        ({"thresholds": {"c4.sentence": [5, None]}}, "unknown rule 'c4.sentence'.*c4.sentences"),
        ({"thresholds": {"c4.sentences": [None, 5]}}, "a lower bound"),
        ({"thresholds": {"c4.sentences": [2.5, None]}}, "whole things"),
        ({"thresholds": {"c4.javascript": [1, None]}}, "no bound of its own"),
        ({"thresholds": {RUN: [None, 1]}}, "at least 2"),
        ({"thresholds": {"fineweb.new_lines": [None, -0.1]}}, "expected a number"),
        ({"thresholds": {"fineweb.new_lines": [None, 0.1234567]}}, "six decimals"),
        ({"thresholds": {"gopher_quality.word_count": [10, 5]}}, "above the upper"),
    ],
)
def test_parameters_that_cannot_be_meant_are_errors(given_, message):
    with pytest.raises(ConfigError, match=message):
        make_stages({"filters": given_})


@given(st.floats(0, 10**6).map(lambda value: round(value, 4)))
def test_thresholds_are_the_decimals_that_are_written(value):
    """0.1 is one tenth, not the nearest binary fraction."""
    stage = Filters(thresholds={"gopher_quality.mean_word_length": (0, value)})
    assert stage.thresholds["gopher_quality.mean_word_length"][1] == value
