"""Numbers of a case: rounded for people, withheld where they are few people's data."""

import math

import pytest
from made_verdict import case, mixed, rule

from dataaudit.decide.gate.number_texts import FEW_DOCUMENTS, discreet, evidence_count, number, numbers, with_unit
from dataaudit.decide.gate.verdict import Evidence, State
from dataaudit.decide.gate.writers import words
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.disclosure import FEW

HITS = "hits per million tokens"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""), (0.0, "0"), (-0.0, "0"), (3.0, "3"), (1234567.0, "1,234,567"), (0.00012345, "0.0001234"),
        (0.5, "0.5"), (88.4183767, "88.42"), (1234.56, "1,234.6"), (2.1e-6, "2.1e-06"), (math.nan, "nan"),
        (math.inf, "inf"), (-math.inf, "-inf"), (1e300, "1e+300"), (-0.25, "-0.25"),
    ],
)  # fmt: skip
def test_numbers_have_four_significant_digits(value, shown):
    """Counts are whole, and nothing that is not 0 looks like 0."""
    assert number(value) == shown


def test_a_number_next_to_the_limit_does_not_look_like_it():
    """0.10001 against 0.1 is shown with the digit that decided."""
    found = numbers(rule(budget=0.1), case(value=0.10001))
    assert (found.value, found.limit) == ("0.10001", "<= 0.1")


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({"budget": 0.001}, "<= 0.001"),
        ({"budget": 1_000_000}, "<= 1,000,000"),
        ({"change": 0.05, "direction": "up"}, "change up <= 0.05"),
        ({"relative_change": 0.5}, "relative change <= 0.5"),
        ({"robust_sd": 5, "scope": {"per": "shard"}}, "distance <= 5"),
    ],
)
def test_a_limit_says_what_it_limits(given, limit):
    """As the policy has it."""
    assert numbers(rule(**given), None).limit == limit


SAMPLED = {"value": 0.0009, "low": 0.0006, "high": 0.0013, "judged": 0.0013, "confidence": 0.95, "method": "sampled"}


@pytest.mark.parametrize(
    ("of", "one", "said"),
    [
        ({"budget": 0.001}, SAMPLED, "0.0009 (0.0006 to 0.0013, 95 %); judged: 0.0013; limit <= 0.001"),
        (
            {"change": 0.1, "unit": "nats"},
            {"unit": "nats", "value": 0.5, "baseline": 0.2, "judged": 0.3},
            "0.5 nats; baseline 0.2; change: 0.3; limit change <= 0.1 nats",
        ),
    ],
)
def test_a_value_comes_with_its_interval_or_its_baseline_and_what_was_judged(of, one, said):
    """So that a reader sees why a value below the limit fails."""
    assert words.message(rule(**of), case(**one)) == f"train_val_overlap.span, set val: {said}"


def test_what_could_not_be_judged_says_why():
    """In words, not an empty cell."""
    one = case(State.NOT_EVALUATED, value=None, reason="empty_denominator")
    assert (
        words.message(rule(), one)
        == "train_val_overlap.span, set val: no number: there is nothing to divide by; limit <= 0"
    )


@pytest.mark.parametrize("few", range(1, 5))
def test_few_documents_with_personal_data_are_withheld(few):
    """A count of 1 to 4 is in none of the texts."""
    of = rule(metric="pii_hit_rate", stat="documents")
    one = case(stat="documents", value=few / 1000, denominator=1000)
    assert numbers(of, one).value == "withheld (few)"
    assert number(few / 1000) not in words.message(of, one)
    kept = rule(metric="secret_hit_rate", stat="documents")
    assert number(few / 1000) in words.message(kept, one)


@pytest.mark.parametrize("hits", [1, 4, 49])
def test_few_hits_of_personal_data_are_withheld_with_what_follows_from_them(hits):
    """They may be of fewer documents still; the change from the baseline would tell them, too."""
    of = rule(metric="pii_hit_rate", stat="hits", unit=HITS, relative_change=0.5)
    million = {"unit": HITS, "denominator": 1_000_000, "stat": "hits"}
    shown = numbers(of, case(value=float(hits), baseline=200.0, judged=hits / 200 - 1, **million))
    assert (shown.value, shown.judged) == ("withheld (few)", "")
    shown = numbers(of, case(value=200.0, baseline=float(hits), judged=200 / hits - 1, **million))
    assert (shown.baseline, shown.judged) == ("withheld (few)", "")


def test_the_reports_keep_the_same_bound():
    """One rule for all that is shown."""
    assert FEW_DOCUMENTS == FEW


@pytest.mark.parametrize("value", [1e18, 1e300, math.inf, math.nan, -1e18, 7.5])
def test_absurd_counts_of_personal_data_are_no_error(value):
    """A damaged number is shown as it is, or not at all."""
    of = rule(metric="pii_hit_rate", stat="reserved", unit="hits")
    assert words.message(of, case(unit="hits", value=value, judged=value, denominator=10**15))


def test_larger_counts_of_personal_data_are_rounded():
    """The hits to tens and two digits, here 687 to 690, so that no exact one follows from two of them."""
    of = rule(metric="pii_hit_rate", stat="hits", unit=HITS)
    one = case(stat="hits", unit=HITS, value=88.4183767107, denominator=7_769_878, scope=Scope(source="web"))
    assert words.value_words(of, one) == "about 89 hits per million tokens"
    assert words.value_words(of, case(value=0.0, unit=HITS)) == "0 hits per million tokens"


def test_what_is_withheld_does_not_follow_from_a_total_and_its_other_parts():
    """Of 11 documents 7 are of one kind: the 4 of the other one are not the difference of what is shown."""
    of = rule(metric="pii_hit_rate", stat="documents")
    total, part = (words.value_words(of, case(stat="documents", value=n / 1000, denominator=1000)) for n in (11, 7))
    assert (total, part) == ("about 0.01", "about 0.01")


def test_a_baseline_of_few_documents_is_withheld_however_many_there_are_now():
    """0.004 of 1,000 documents points at four of them, in a corpus of a million it is a statistic."""
    of = rule(metric="pii_hit_rate", stat="documents", relative_change=0.5)
    one = case(stat="documents", value=0.02, denominator=10**6, baseline=0.004, baseline_denominator=1000, judged=4.0)
    assert (numbers(of, one).baseline, numbers(of, one).judged) == ("withheld (few)", "")
    assert (discreet(of, one).baseline, discreet(of, one).judged) == (None, None)


@pytest.mark.parametrize("documents", [0, 3, 7, 23, 456, 98765])
def test_text_and_data_of_one_run_tell_the_same_number_of_personal_data(documents):
    """Two roundings of one number would tell more than one."""
    of = rule(metric="pii_hit_rate", stat="documents")
    one = case(stat="documents", value=documents / 10**6, denominator=10**6)
    kept = discreet(of, one).value
    assert numbers(of, one).value.removeprefix("about ") == ("withheld (few)" if kept is None else number(kept))


@pytest.mark.parametrize(
    ("count", "shown"), [(1, "fewer than 5"), (4, "fewer than 5"), (7, "about 10"), (1234, "about 1,200")]
)
def test_counts_of_evidence_keep_the_same_rule(count, shown):
    """In every shard."""
    one = Evidence(shard=0, uri="train/a", count=count, noun="documents with findings")
    assert evidence_count(rule(metric="pii_hit_rate"), one) == f"{shown} documents with findings"
    assert evidence_count(rule(), one).startswith(f"{count:,} document")


def test_one_piece_of_evidence_is_singular():
    """Of the nouns that there are."""
    nouns = {
        "documents that hold an item": "1 document that holds an item",
        "validated secrets": "1 validated secret",
        "near-duplicates of held-out documents": "1 near-duplicate of held-out documents",
        "text": "1 text",
    }
    for noun, shown in nouns.items():
        assert evidence_count(rule(), Evidence(shard=0, uri="train/a", count=1, noun=noun)) == shown


def test_a_ratio_has_no_unit():
    """And what is no number has none either."""
    assert with_unit("0.5", "ratio") == "0.5"
    assert with_unit("0.5", "nats") == "0.5 nats"
    assert with_unit("withheld (few)", HITS) == "withheld (few)"


def test_the_tally_counts_rules_waiting_waived_and_expired():
    """In one sentence."""
    assert words.tally(mixed()) == (
        "2 rules fail, 1 rule could not be evaluated, 1 rule warns, 2 rules hold, 1 rule is skipped, 1 of them waits"
        " for a baseline, 1 case is waived, 1 waiver has expired"
    )


def test_texts_of_people_are_one_line():
    """A folded YAML text keeps its words."""
    assert words.prose("one\n  two\t three\x1b[0m") == "one two three\\x1b[0m"
    assert words.prose(None) == ""
    assert words.prose("a b " * 400).endswith("more characters)")
