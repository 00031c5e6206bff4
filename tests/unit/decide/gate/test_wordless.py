"""Texts without words: a number that holds because nothing could be found is not evaluated."""

import datetime as dt
from dataclasses import replace

import pytest
from made_facts import covered, facts, policy, record, rule

from dataaudit.decide.gate.run import evaluate
from dataaudit.decide.gate.verdict import State
from dataaudit.manifest.metric import Scope

DAY = dt.date(2026, 11, 26)
TRAIN, VAL, WEB = Scope(split="train"), Scope(split="val"), Scope(split="train", source="web")
LEAKS = {"metric": "train_val_overlap", "stat": "ngram", "budget": 0.1, "scope": {"set": "val"}}


def judged(wordless, *records, **asked):
    """Return state and reason of a rule over a corpus with so many documents without words."""
    now = replace(facts(covered(), *records), wordless=wordless)
    verdict = evaluate(policy(rule(**asked)), now, on=DAY)
    (case, *_) = verdict.rules[0].cases
    return case.state, case.reason, verdict.remarks


@pytest.mark.parametrize(
    ("wordless", "evaluated"),
    [
        ({}, True),
        ({VAL: (89, 100)}, True),
        ({VAL: (90, 100)}, False),
        ({VAL: (100, 100)}, False),
        ({VAL: (1, 1)}, False),
        ({TRAIN: (100, 100)}, False),  # nothing can stand there
        ({TRAIN: (50, 100), Scope(): (100, 100)}, True),
        ({WEB: (100, 100)}, True),
    ],
)
def test_leaks_of_a_split_without_words_are_not_evaluated(wordless, evaluated):
    state, reason, _ = judged(wordless, record("train_val_overlap", "ngram", 0.0, set="val"), **LEAKS)
    assert (state, reason) == ((State.PASSED, "") if evaluated else (State.NOT_EVALUATED, "no_words"))


def test_what_was_found_all_the_same_fails():
    """A limit that is not kept is news, whatever else could not be found."""
    found = judged({VAL: (100, 100)}, record("train_val_overlap", "ngram", 0.5, set="val"), **LEAKS)
    assert found[0] == State.FAILED


@pytest.mark.parametrize(
    ("metric", "stat", "unit", "searches"),
    [
        ("near_dup_rate", "rate", "ratio", True),
        ("pii_hit_rate", "documents", "ratio", True),
        ("secret_hit_rate", "validated_hits", "hits", True),
        ("filter_reject_rate", "rate", "ratio", True),
        ("data_toxicity_rate", "screen", "ratio", True),
        ("doc_repeat_hotspots", "token_share", "ratio", True),
        ("exact_dup_rate", "rate", "ratio", False),  # two empty texts are the same
        ("bytes_per_token", "ratio", "bytes/token", False),
    ],
)
def test_it_concerns_what_looks_for_something(metric, stat, unit, searches):
    zero = record(metric, stat, 0.0, unit)
    own = {"metric": metric, "stat": stat, "unit": unit, "budget": 0.5}
    both = {TRAIN: (10, 10), VAL: (10, 10)}
    assert (judged(both, zero, **own)[0] == State.NOT_EVALUATED) == searches
    assert judged({VAL: (10, 10)}, zero, **own)[0] == State.PASSED or metric == "doc_repeat_hotspots"


def test_a_source_is_judged_by_its_own_documents():
    zero = record("near_dup_rate", "rate", 0.0, split="train", source="web")
    own = {"metric": "near_dup_rate", "budget": 0.5, "scope": {"split": "train", "source": "web"}}
    assert judged({WEB: (10, 10)}, zero, **own)[:2] == (State.NOT_EVALUATED, "no_words")
    assert judged({TRAIN: (10, 10)}, zero, **own)[0] == State.PASSED


def test_a_split_of_which_half_has_no_words_is_remarked_on():
    own = {"metric": "near_dup_rate", "budget": 0.5}
    wordless = {VAL: (5, 10), TRAIN: (4, 10), WEB: (10, 10), Scope(): (9, 20)}
    remarks = judged(wordless, record("near_dup_rate", "rate", 0.0), **own)[2]
    expected = "No word is in 5 of 10 documents of the split val: look whether these are its texts"
    assert [remark.partition(";")[0] for remark in remarks if "No word" in remark] == [expected]
