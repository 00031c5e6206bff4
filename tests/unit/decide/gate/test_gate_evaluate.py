"""Every state of a rule, and what each makes of the exit code."""

import datetime as dt
import types

import pyarrow as pa
import pytest
from made_facts import covered, facts, policy, record, rule, sampled, shard_row
from made_manifest import shard

from dataaudit.base.errors import ExitCode
from dataaudit.decide.gate.run import evaluate
from dataaudit.decide.gate.scopes import judge_shards, shard_statistics
from dataaudit.decide.gate.verdict import State, WaiverState
from dataaudit.decide.gate.writers.words import Effect, effect_of
from dataaudit.manifest.tables import TABLES

TODAY = dt.date(2026, 11, 22)


def judged(made_policy, now, baseline=None, **more):
    return evaluate(made_policy, now, baseline, on=TODAY, **more)


def state_of(one, *records, baseline=None, **more):
    """Return state, reason and exit code of one rule."""
    verdict = judged(policy(one), facts(covered(), *records, **more), baseline)
    result = verdict.rules[0]
    return result.state, result.cases[0].reason, verdict.exit_code


TOXIC = {"metric": "data_toxicity_rate"}
HITS = {"metric": "secret_hit_rate", "stat": "validated_hits", "unit": "hits", "budget": 0}
DRIFT = {"metric": "token_kl_drift", "stat": "kl", "unit": "nats", "required": False}
ENGLISH = {"metric": "language_share", "stat": "share", "budget": 0.1}
OPTIONAL, PER_SOURCE = {"required": False}, {"scope": {"per": "source"}}
OF_WEB, OF_ENGLISH = record(value=0.1, source="web"), record("language_share", "share", 1.0, language="en")
NO_REFERENCE = record("token_kl_drift", "kl", None, "nats", status="not_applicable", reason="no_reference")
UNKNOWN, NOWHERE = (State.NOT_EVALUATED, "missing"), (State.NOT_EVALUATED, "no_such_part")
EMPTY = (State.NOT_EVALUATED, "empty_denominator")


def unjudged(reason):
    """Return the record of a judge without a number."""
    return record("data_toxicity_rate", "rate", None, reason=reason, method="sampled")


STATES = [
    ("a value within its budget", {}, [record(value=0.5)], (State.PASSED, "", ExitCode.PASS)),
    ("a value above its budget", {}, [record(value=0.51)], (State.FAILED, "", ExitCode.BUDGET_EXCEEDED)),
    ("a warning is no failure", {"severity": "warn"}, [record(value=0.51)], (State.WARNED, "", ExitCode.PASS)),
    ("a required metric that is missing", {}, [], (*UNKNOWN, ExitCode.NOT_EVALUATED)),
    ("an optional metric that nobody computed", OPTIONAL, [], (State.NOT_APPLICABLE, "missing", ExitCode.PASS)),
    ("an optional rule without its own record", OPTIONAL | PER_SOURCE, [OF_WEB], (*UNKNOWN, ExitCode.PASS)),
    ("a denominator of zero", {}, [record(value=None)], EMPTY),
    ("a denominator of zero of an optional rule", OPTIONAL, [record(value=None)], EMPTY),
    ("a denominator of zero that is allowed", {"allow_empty": True}, [record(value=None)], (State.NOT_APPLICABLE,)),
    *(
        (
            "a detector that failed was meant to look and did not",
            TOXIC | OPTIONAL,
            [unjudged(reason)],
            (State.NOT_EVALUATED, reason),
        )
        for reason in ("weights_absent", "not_installed", "broken_checkpoint", "not_judged")
    ),
    ("a judge that nobody set", TOXIC | OPTIONAL, [unjudged("no_judge")], (State.NOT_APPLICABLE, "no_judge")),
    ("a judge that is required", TOXIC, [unjudged("no_judge")], (State.NOT_EVALUATED, "no_judge")),
    ("a part of what has no number", DRIFT | PER_SOURCE, [NO_REFERENCE], (State.NOT_APPLICABLE, "no_reference")),
    ("a record in another unit", {}, [record(value=0.1, unit="percent")], (State.NOT_EVALUATED, "other_unit")),
    ("an exact value that is equal", {"budget": 0.25, "comparator": "=="}, [record(value=0.25)], (State.PASSED,)),
    ("an exact value that is not", {"budget": 0.25, "comparator": "=="}, [record(value=0.2500001)], (State.FAILED,)),
    ("a language that no detector gives", ENGLISH | {"scope": {"language": "english"}}, [OF_ENGLISH], NOWHERE),
    ("a language that is absent", ENGLISH | {"scope": {"language": "de"}}, [OF_ENGLISH], (State.PASSED,)),
    ("a split that is not there", {"scope": {"split": "training"}}, [record(value=0.1)], NOWHERE),
    ("a source that is not there", {"scope": {"source": "wbe"}}, [record(value=0.1)], NOWHERE),
    (
        "an entity that no detector knows",
        HITS | {"scope": {"entity": "JWTT"}},
        [record("secret_hit_rate", "validated_hits", 0.0, "hits")],
        (State.NOT_EVALUATED,),
    ),
    ("an entity when nothing was looked for", HITS | {"scope": {"entity": "JWT"}}, [], (State.NOT_EVALUATED,)),
]


@pytest.mark.parametrize(("keys", "records", "expected"), [pytest.param(*row[1:], id=row[0]) for row in STATES])
def test_every_number_and_every_lack_of_a_number_has_its_state(keys, records, expected):
    """State, reason and exit code; a name that is written wrongly is not zero."""
    assert state_of(rule(**keys), *records)[: len(expected)] == expected


def of_sources(**more):
    """Return a rule of which a source is beyond the budget where another has no number."""
    return rule(scope={"per": "source"}, **more)


BEYOND, FAILS, UNJUDGED = record(value=0.9, source="web"), ExitCode.BUDGET_EXCEEDED, ExitCode.NOT_EVALUATED
WARNS, STRICT = {"severity": "warn", "required": False}, {"fail_on": "warn"}
CODES = [
    ("a warning fails when asked", [rule(severity="warn")], [record(value=0.51)], STRICT, (FAILS,)),
    ("what an optional rule lacks stops a strict gate", [rule(**OPTIONAL | PER_SOURCE)], [OF_WEB], STRICT, (UNJUDGED,)),
    ("where 1 and 3 both hold", [rule(), rule("s", "exact_dup_rate")], [record(value=0.9)], {}, (FAILS, UNJUDGED)),
    ("a case fails and another has no number", [of_sources()], [BEYOND], {}, (FAILS, UNJUDGED)),
    ("a strict gate names both of a rule that warns", [of_sources(**WARNS)], [BEYOND], STRICT, (FAILS, UNJUDGED)),
]


@pytest.mark.parametrize(("rules", "records", "more", "codes"), [pytest.param(*row[1:], id=row[0]) for row in CODES])
def test_exit_codes_are_all_that_have_a_cause_and_the_last_decides(rules, records, more, codes):
    verdict = judged(policy(*rules), facts(covered(), *records), **more)
    assert (verdict.codes, verdict.exit_code) == (codes, codes[-1])


class TestStates:
    def test_nothing_to_judge_is_not_evaluated(self):
        """A rule about held-out splits does not hold because there are none."""
        one = rule(metric="train_val_overlap", stat="span", scope={"per": "set"})
        found = state_of(one, record("train_val_overlap", "span", 0.0), splits={"train": False})
        assert found[:2] == (State.NOT_EVALUATED, "nothing_to_judge")

    def test_an_empty_corpus_is_exit_4(self):
        verdict = judged(policy(rule()), facts(covered(), record(value=0.1), documents=0))
        assert verdict.exit_code == ExitCode.NOTHING_EVALUATED

    def test_a_gate_that_judged_nothing_is_exit_4(self):
        quiet = policy(rule(required=False), coverage=False)
        verdict = judged(quiet, facts())
        assert verdict.exit_code == ExitCode.NOT_EVALUATED  # the rule about coverage that it adds has no record
        assert ExitCode.NOTHING_EVALUATED in verdict.codes

    def test_a_warning_is_shown_also_beside_a_case_that_has_no_number(self):
        verdict = judged(policy(of_sources(**WARNS)), facts(covered(), BEYOND))
        assert verdict.exit_code == ExitCode.PASS
        assert effect_of(verdict, verdict.rules[0]) == Effect.WARNS

    def test_a_policy_of_which_no_rule_was_judged_is_exit_4_though_all_was_read(self):
        """The rule about coverage is the gate's own; that it holds says nothing of the policy."""
        verdict = judged(policy(rule(required=False), coverage=False), facts(covered()))
        assert verdict.rules[1].state == State.PASSED
        assert verdict.exit_code == ExitCode.NOTHING_EVALUATED

    def test_a_policy_of_which_every_rule_waits_for_a_baseline_passes(self):
        verdict = judged(policy(rule(change=0.1, baseline="optional"), coverage=False), facts(covered(), record()))
        assert verdict.exit_code == ExitCode.PASS


class TestBounds:
    NOW = sampled("data_toxicity_rate", "rate", 0.4, 0.45, 0.55)

    @pytest.mark.parametrize(
        ("more", "state"),
        [
            ({"budget": 0.5}, State.FAILED),
            ({"budget": 0.5, "bound": "value"}, State.PASSED),
            ({"budget": 0.42, "bound": "low"}, State.PASSED),
            ({"budget": 0.39, "bound": "low"}, State.FAILED),
            ({"budget": 0.42, "comparator": ">="}, State.FAILED),
            ({"budget": 0.4, "comparator": ">="}, State.PASSED),
            ({"budget": 0.4, "comparator": ">"}, State.FAILED),
            ({"budget": 0.56, "comparator": "<"}, State.PASSED),
            ({"budget": 0.55, "comparator": "<"}, State.FAILED),
            ({"budget": 0.45, "comparator": "=="}, State.FAILED),
        ],
    )
    def test_the_bound_against_the_limit_is_judged_unless_another_is_named(self, more, state):
        """A small sample cannot pass by luck."""
        assert state_of(rule(metric="data_toxicity_rate", **more), self.NOW)[0] == state


class TestChange:
    def change(self, now, before, **more):
        one = rule(**more)
        old = facts(record(value=before)) if before is not None else None
        return state_of(one, record(value=now), baseline=old)[:2]

    @pytest.mark.parametrize(
        ("now", "before", "more", "state"),
        [
            (0.12, 0.10, {"change": 0.02}, State.PASSED),  # as decimals; the binary difference is a little more
            (0.1201, 0.10, {"change": 0.02}, State.FAILED),
            (0.08, 0.10, {"change": 0.01}, State.FAILED),
            (0.08, 0.10, {"change": 0.01, "direction": "up"}, State.PASSED),
            (0.12, 0.10, {"change": 0.01, "direction": "down"}, State.PASSED),
            (0.15, 0.10, {"relative_change": 0.5}, State.PASSED),
            (0.16, 0.10, {"relative_change": 0.5}, State.FAILED),
            (0.0, 0.0, {"relative_change": 0.5}, State.PASSED),
            (0.001, 0.0, {"relative_change": 0.5}, State.FAILED),
            (0.0, 0.0, {"change": 0.0}, State.PASSED),
        ],
    )
    def test_changes_are_judged_in_their_direction(self, now, before, more, state):
        assert self.change(now, before, **more) == (state, "")

    def test_a_rule_waits_for_the_first_baseline_when_the_policy_says_so(self):
        verdict = judged(policy(rule(change=0.1, baseline="optional")), facts(covered(), record()))
        assert verdict.rules[0].state == State.NOT_APPLICABLE
        assert verdict.waiting == ("r",)
        assert verdict.exit_code == ExitCode.PASS

    def test_a_rule_that_demands_a_baseline_is_not_evaluated_without(self):
        assert self.change(0.1, None, change=0.1) == (State.NOT_EVALUATED, "no_baseline")

    def test_a_baseline_that_lacks_the_metric_is_not_a_pass(self):
        found = state_of(rule(change=0.1, baseline="optional"), record(), baseline=facts())
        assert found[:2] == (State.NOT_EVALUATED, "baseline_missing")

    @pytest.mark.parametrize("given", [{"version": "0"}, {"unit": "percent"}])
    def test_a_baseline_of_another_definition_is_not_compared(self, given):
        """The codes are those of a difference."""
        old = facts(record(**given))
        assert state_of(rule(change=0.1), record(), baseline=old)[1] == f"other_{next(iter(given))}"

    def test_tokens_of_another_tokenizer_are_not_compared(self):
        long = record("seq_len_p50_p95", "p95", 100.0, "tokens")
        one = rule(metric="seq_len_p50_p95", stat="p95", unit="tokens", relative_change=0.1)
        assert state_of(one, long, baseline=facts(long, tokenizer="u" * 64))[1] == "other_tokenizer"
        assert state_of(one, long, baseline=facts(long))[0] == State.PASSED

    def test_a_new_source_has_not_changed(self):
        """Its share did; its other numbers have no past."""
        one = rule(change=0.1, scope={"per": "source"})
        now = [record(value=0.1, source="web"), record(value=0.9, source="code")]
        old = facts(record(value=0.1, source="web"), sources=("web",))
        verdict = judged(policy(one), facts(covered(), *now), old)
        assert verdict.rules[0].counts == {State.PASSED: 1, State.NOT_APPLICABLE: 1}

    def share(self, name, value):
        return record("source_mix_share", "share", value, source=name)

    def test_a_source_that_vanished_has_fallen_to_nothing(self):
        one = rule(metric="source_mix_share", stat="share", change=0.02, scope={"per": "source"})
        now = facts(covered(), self.share("web", 1.0), sources=("web",))
        old = facts(self.share("web", 0.5), self.share("code", 0.5))
        cases = judged(policy(one), now, old).rules[0].cases
        assert [(case.scope.source, case.value, case.baseline, case.state) for case in cases] == [
            ("code", 0.0, 0.5, State.FAILED),
            ("web", 1.0, 0.5, State.FAILED),
        ]

    def test_a_share_that_is_missing_though_the_source_is_there_is_not_zero(self):
        one = rule(metric="source_mix_share", stat="share", change=1.0, scope={"per": "source"})
        now = facts(covered(), self.share("web", 1.0))
        old = facts(self.share("web", 0.5), self.share("code", 0.5))
        assert judged(policy(one), now, old).rules[0].counts == {State.NOT_EVALUATED: 1, State.PASSED: 1}


def test_an_entity_without_a_record_was_not_found_when_all_were_looked_for():
    one = rule(**HITS, scope={"entity": ["GITHUB_TOKEN", "JWT"]})
    hits = [record("secret_hit_rate", "validated_hits", 2.0, "hits", **more) for more in ({}, {"entity": "JWT"})]
    verdict = judged(policy(one), facts(covered(), *hits))
    assert verdict.rules[0].counts == {State.FAILED: 1, State.PASSED: 1}
    assert verdict.rules[0].cases[0].scope.entity == "JWT"


class TestCoverage:
    def test_unread_shards_are_not_evaluated_and_not_a_failure(self):
        verdict = judged(policy(rule()), facts(covered(100.0), record()))
        assert verdict.exit_code == ExitCode.NOT_EVALUATED
        assert verdict.rules[1].cases[0].reason == "unread_bytes"

    def test_a_tolerance_is_a_budget(self):
        made = policy(rule(), rule("c", "coverage_unread_bytes", "shard_bytes", "bytes", budget=100), coverage=False)
        assert judged(made, facts(covered(100.0), record())).exit_code == ExitCode.PASS

    def test_a_policy_without_a_rule_about_coverage_gets_one(self):
        verdict = judged(policy(rule("coverage"), coverage=False), facts(covered(1.0), record()))
        assert [result.rule.name for result in verdict.rules] == ["coverage", "coverage-of-all-shards"]
        assert verdict.exit_code == ExitCode.NOT_EVALUATED

    @pytest.mark.parametrize(
        "weak",
        [
            {"budget": 1000, "required": False},
            {"budget": 0, "scope": {"split": "val"}},
            {"comparator": ">=", "budget": 0},
            {"relative_change": 0, "baseline": "optional"},
        ],
    )
    def test_a_rule_that_is_optional_of_one_split_or_bounds_nothing_does_not_replace_it(self, weak):
        one = rule("c", "coverage_unread_bytes", "shard_bytes", "bytes", **weak)
        now = facts(covered(1.0), record("coverage_unread_bytes", "shard_bytes", 0.0, "bytes", split="val"))
        assert judged(policy(one, coverage=False), now).exit_code == ExitCode.NOT_EVALUATED


class TestWaivers:
    def waived(self, *, expires, fingerprint=None, value=0.9):
        now = facts(covered(), record(value=value))
        first = judged(policy(rule()), now).rules[0].cases[0]
        waiver = {
            "fingerprint": fingerprint or first.fingerprint or "0" * 16,
            "rule": "r",
            "owner": "data@example.com",
            "reason": "known",
            "expires": expires,
        }
        return judged(policy(rule(), waivers=[waiver]), now)

    def test_a_waived_case_is_shown_and_does_not_decide(self):
        verdict = self.waived(expires=TODAY)
        result = verdict.rules[0]
        assert verdict.exit_code == ExitCode.PASS
        assert (result.state, result.waived, result.counts) == (State.PASSED, 1, {State.FAILED: 1})
        assert (result.cases[0].state, result.cases[0].waived) == (State.FAILED, True)
        assert verdict.waivers[0].state == WaiverState.USED

    def test_an_expired_waiver_covers_nothing_and_fails(self):
        verdict = self.waived(expires=TODAY - dt.timedelta(days=1))
        assert verdict.rules[0].state == State.FAILED
        assert verdict.waivers[0].state == WaiverState.EXPIRED

    def test_an_expired_waiver_fails_also_when_what_it_covered_is_gone(self):
        verdict = self.waived(expires=TODAY - dt.timedelta(days=1), value=0.1)
        assert verdict.rules[0].state == State.PASSED
        assert verdict.exit_code == ExitCode.BUDGET_EXCEEDED

    def test_a_waiver_for_another_place_covers_nothing_and_is_shown(self):
        verdict = self.waived(expires=TODAY, fingerprint="0123456789abcdef")
        assert verdict.exit_code == ExitCode.BUDGET_EXCEEDED
        assert verdict.waivers[0].state == WaiverState.UNUSED

    def test_a_waiver_does_not_make_a_missing_number_pass(self):
        now = facts(covered())
        missing = judged(policy(rule()), now).rules[0].cases[0]
        assert missing.fingerprint == ""


class TestShards:
    def shards(self, *values, split="train", **more):
        return [shard_row(number, split=split, exact_dup_rate=value, **more) for number, value in enumerate(values)]

    def test_each_shard_is_a_case_and_the_worst_comes_first(self):
        one = rule(metric="exact_dup_rate", budget=0.5, scope={"per": "shard"})
        now = facts(covered(), record("exact_dup_rate"), shards=self.shards(0.1, 0.6, 0.9, 0.5))
        result = judged(policy(one), now).rules[0]
        assert result.counts == {State.PASSED: 2, State.FAILED: 2}
        assert [case.shard_uri for case in result.cases] == ["train/part-2.jsonl", "train/part-1.jsonl"]

    def test_a_shard_without_a_document_has_no_number(self):
        one = rule(metric="exact_dup_rate", scope={"per": "shard"})
        now = facts(covered(), record("exact_dup_rate"), shards=self.shards(None, documents=0))
        assert judged(policy(one), now).rules[0].cases[0].reason == "empty_denominator"

    @pytest.mark.parametrize(
        ("metric", "stat", "unit", "of"),
        [
            ("bytes_per_token", "ratio", "bytes/token", "tokens"),
            ("data_toxicity_rate", "screen", "ratio", "toxicity_screened"),
        ],
    )
    def test_a_shard_of_nothing_that_can_be_measured_is_empty(self, metric, stat, unit, of):
        """Documents without a text have no token; the screen reads some languages only."""
        one = rule(metric=metric, stat=stat, unit=unit, scope={"per": "shard"}, allow_empty=True)
        now = facts(covered(), record(metric, stat, 0.1, unit), shards=[shard_row(0, **{of: 0})])
        assert judged(policy(one), now).rules[0].counts == {State.NOT_APPLICABLE: 1}

    def test_a_shard_far_from_the_others_of_its_split_is_odd(self):
        one = rule(metric="bytes_per_token", stat="ratio", unit="bytes/token", robust_sd=6, scope={"per": "shard"})
        rows = [shard_row(n, bytes_per_token=value) for n, value in enumerate([4.0, 4.1, 3.9, 4.05, 3.95, 9.0])]
        result = judged(
            policy(one), facts(covered(), record("bytes_per_token", "ratio", unit="bytes/token"), shards=rows)
        ).rules[0]
        assert [(case.scope.shard, case.baseline) for case in result.cases] == [(5, 4.025)]

    @pytest.mark.parametrize(
        ("metric", "stat", "of", "more", "many"),
        [
            ("filter_reject_rate", "rate", "documents", {"filter_reject_rate": 0.25}, 0.9),
            ("data_toxicity_rate", "screen", "toxicity_screened", {"toxicity_screen": 0.25}, 0.9),
            ("exact_dup_rate", "rate", "documents", {"exact_dup_rate": 0.25}, 0.9),
            ("pii_hit_rate", "documents", "documents", {"pii_documents": 2}, 7),
        ],
    )
    def test_a_share_of_few_documents_is_odd_beyond_chance_alone(self, metric, stat, of, more, many):
        """Two documents of eight are none of six robust sd, seven are: a share moves with each of its documents."""
        asked = rule(metric=metric, stat=stat, unit="ratio", robust_sd=6, scope={"per": "shard"})
        ((column, value),) = more.items()
        for number, odd in ((value, []), (many, [19])):
            rows = [shard_row(n, **{of: 8, column: 0 if n < 19 else number}) for n in range(20)]
            now = facts(covered(), record(metric, stat), shards=rows)
            result = judged(policy(asked), now).rules[0]
            assert [case.scope.shard for case in result.cases if case.state != State.PASSED] == odd

    def test_a_shard_that_is_mostly_a_document_may_lie_farther_away(self):
        """The longest document of the shard that is far has most of its tokens, or as few as in all others."""
        asked = rule(metric="bytes_per_token", stat="ratio", unit="bytes/token", robust_sd=6, scope={"per": "shard"})
        ratio = record("bytes_per_token", "ratio", unit="bytes/token")
        for longest, odd in ((10, [19]), (900, [])):
            densities, lengths = [*(4.0 + 0.1 * (-1) ** n for n in range(19)), 5.2], [10] * 19 + [longest]
            rows = [shard_row(n, tokens=1000, seq_len_max=lengths[n], bytes_per_token=densities[n]) for n in range(20)]
            result = judged(policy(asked), facts(covered(), ratio, shards=rows)).rules[0]
            assert [case.scope.shard for case in result.cases if case.state != State.PASSED] == odd

    def test_a_shard_drifts_by_what_is_beyond_chance(self):
        """The `kl` of a small honest shard is large, and most of it is chance: the least beyond it is judged."""
        limits = {"budget": 0.05, "bound": "low", "required": False}
        asked = rule(metric="token_kl_drift", stat="kl_excess", unit="nats", scope={"per": "shard"}, **limits)
        drifts = [(0.6, 0.62), (0.6, 0.4), (0.6, 0.2), (0.06, 0.001), (0.6, None)]
        rows = [shard_row(n, token_kl_drift=kl, token_kl_bias=bias) for n, (kl, bias) in enumerate(drifts)]
        result = judged(policy(asked), facts(covered(), record("token_kl_drift", "kl_excess"), shards=rows)).rules[0]
        found = {case.scope.shard: (case.state, case.judged, case.reason) for case in result.cases}
        assert {shard: state for shard, (state, _, _) in found.items()} == {
            2: State.FAILED,
            3: State.FAILED,
            4: State.NOT_EVALUATED,
        }
        assert (found[2][1], found[4][2]) == (pytest.approx(0.2), "too_few_documents")

    def test_a_handful_of_shards_has_no_usual_value(self):
        one = rule(metric="bytes_per_token", stat="ratio", unit="bytes/token", robust_sd=6, scope={"per": "shard"})
        ratio, shards = record("bytes_per_token", "ratio", unit="bytes/token"), [shard_row(0, bytes_per_token=4.0)]
        assert judged(policy(one), facts(covered(), ratio, shards=shards)).rules[0].state == State.NOT_APPLICABLE

    def test_shards_have_no_number_where_the_whole_has_none(self):
        one = rule(metric="token_kl_drift", stat="kl", unit="nats", required=False, scope={"per": "shard"})
        lost = record("token_kl_drift", "kl", None, "nats", status="not_applicable", reason="no_reference")
        result = judged(policy(one), facts(covered(), lost, shards=[shard_row(n) for n in range(9)])).rules[0]
        assert (result.counts, result.cases[0].reason) == ({State.NOT_APPLICABLE: 1}, "no_reference")

    def test_shards_without_the_metric_are_one_case(self):
        one = rule(metric="near_dup_rate", scope={"per": "shard"})
        verdict = judged(policy(one), facts(covered(), shards=[shard_row(n) for n in range(9)]))
        assert verdict.rules[0].counts == {State.NOT_EVALUATED: 1}

    def test_a_share_of_documents_that_may_count_is_judged_with_them(self):
        """By its upper bound, of the documents that have words."""
        one = {"metric": "near_dup_rate", "scope": {"per": "shard"}, "budget": 0.5}
        row = shard_row(0, documents=100, no_words=60, near_dup_rate=0.25, near_dup_undecided=12)
        now = facts(covered(), record("near_dup_rate", "rate", 0.25), shards=[row])
        (case,) = judged(policy(rule(**one)), now).rules[0].cases
        assert (case.state, case.value, case.judged, case.denominator) == (State.FAILED, 0.25, 0.55, 40)
        (case,) = judged(policy(rule(**one, bound="value")), now).rules[0].cases
        assert (case.state, case.judged) == (State.PASSED, 0.25)


class TestLost:
    """A number that the baseline has, the corpus still has the part of, and the manifest has not."""

    RATE = types.MappingProxyType({"metric": "benchmark_contamination", "required": False, "budget": 0.5})
    SCOPE = types.MappingProxyType({"per": ["set", "entity"], "rule": "verbatim"})

    def item(self, name, tier="verbatim"):
        return record("benchmark_contamination", "rate", 0.0, set=name, entity="item", rule=tier)

    def judged(self, one, now, was):
        return judged(policy(one), facts(covered(), *now[0], **now[1]), facts(covered(), *was[0], **was[1]))

    def test_an_evaluation_set_that_is_looked_for_no_more(self):
        now, was = ([self.item("a")], {"protected": "a"}), ([self.item("a"), self.item("b")], {"protected": "ab"})
        verdict = self.judged(rule(scope=dict(self.SCOPE), **self.RATE), now, was)
        lost = verdict.rules[0].cases[0]
        assert verdict.exit_code == ExitCode.NOT_EVALUATED
        assert (lost.scope.set, lost.reason, lost.why) == ("b", "lost", "no evaluation set is named b")
        assert verdict.rules[0].counts == {State.PASSED: 1, State.NOT_EVALUATED: 1}

    def test_a_tier_that_is_counted_no_more(self):
        one = rule(scope={"per": ["set", "entity", "rule"]}, **self.RATE)
        now = ([self.item("a")], {"protected": "a"})
        was = ([self.item("a"), self.item("a", "similar")], {"protected": "a"})
        assert self.judged(one, now, was).exit_code == ExitCode.NOT_EVALUATED
        assert self.judged(one, was, now).exit_code == ExitCode.PASS

    def test_a_kind_of_secret_that_is_searched_for_no_more(self):
        one = rule(metric="secret_hit_rate", stat="hits", unit="hits", required=False, scope={"per": "entity"})
        records = [record("secret_hit_rate", "hits", 0.0, "hits")]
        now, was = (records, {"entities": ("JWT",)}), (records, {"entities": ("JWT", "GITHUB_TOKEN")})
        verdict = self.judged(one, now, was)
        assert verdict.exit_code == ExitCode.NOT_EVALUATED
        assert verdict.rules[0].cases[0].why == "GITHUB_TOKEN was not looked for"

    def test_a_source_or_split_that_the_corpus_has_no_more_is_not_lost(self):
        one = rule(scope={"per": ["split", "source"]}, required=False)
        old = [record(source=source, split=split) for source in ("web", "code") for split in ("train", "val")]
        now = ([record(source="web", split="train")], {"sources": ("web",), "splits": {"train": False}})
        assert self.judged(one, now, (old, {})).exit_code == ExitCode.PASS

    def test_a_denominator_of_0_is_none_to_be_lost(self):
        one = rule(required=False)
        assert self.judged(one, ([record(value=None)], {}), ([record()], {})).rules[0].cases[0].reason != "lost"

    def test_a_lost_number_is_not_waived(self):
        now, was = ([self.item("a")], {"protected": "a"}), ([self.item("a"), self.item("b")], {"protected": "ab"})
        assert self.judged(rule(scope=dict(self.SCOPE), **self.RATE), now, was).rules[0].cases[0].fingerprint == ""

    def test_single_shards_of_a_number_that_the_whole_lost(self):
        one = rule(metric="token_kl_drift", stat="kl", unit="nats", required=False, scope={"per": "shard"})
        none = record("token_kl_drift", "kl", None, "nats", status="not_applicable", reason="no_reference")
        shards = {"shards": [shard_row(n) for n in range(9)]}
        verdict = self.judged(one, ([none], shards), ([record("token_kl_drift", "kl", 0.0, "nats")], shards))
        assert verdict.exit_code == ExitCode.NOT_EVALUATED
        assert verdict.rules[0].cases[0].why == "the build had no reference"


def test_a_shard_is_odd_within_its_source():
    """Clean prose among code is not; a shard of another language among the code is, though others are like it."""
    ratios = [3.0 + 0.01 * number for number in range(12)] + [4.5 + 0.01 * number for number in range(5)] + [4.52]
    sources = ["code"] * 12 + ["prose"] * 5 + ["code"]
    rows = [
        shard(f"{number}.jsonl", bytes_per_token=ratio, sources={source: 100})
        for number, (ratio, source) in enumerate(zip(ratios, sources, strict=True))
    ]
    table = pa.Table.from_pylist(
        [row | {"shard": number} for number, row in enumerate(rows)], schema=TABLES["shards"].schema
    )
    asked = rule(metric="bytes_per_token", stat="ratio", unit="bytes/token", scope={"per": "shard"}, robust_sd=6)
    [statistic] = shard_statistics(asked)
    cases, _ = judge_shards(asked, statistic, table, {"train": False})
    assert [case.shard_uri for case in cases] == ["train/17.jsonl"]
