"""Which cases a rule has, and what a record that is not there means."""

import datetime as dt
from dataclasses import replace

import pytest
from made_facts import covered, facts, policy, record, rule, shard_row
from made_manifest import make, shard

from dataaudit.decide.gate.facts import Partial, record_of
from dataaudit.decide.gate.policy import Waiver
from dataaudit.decide.gate.run import evaluate, facts_for
from dataaudit.decide.gate.scopes import SHARD_STATISTICS, expected_scopes, rule_problems
from dataaudit.decide.gate.verdict import State
from dataaudit.manifest.core import DetectorRecord, ProtectedRecord, StageRecord
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.overlap.link import PARTS
from dataaudit.metrics.registry import METRICS, is_of_tokens, statistic, stats_of
from dataaudit.scan.detectors.content import shipped_patterns

TODAY = dt.date(2026, 11, 22)


def result_of(one, *records, baseline=None, **more):
    return evaluate(policy(one), facts(covered(), *records, **more), baseline, on=TODAY).rules[0]


def places(one, *records, **more):
    found = expected_scopes(one, statistic(one.metric, one.stat), facts(*records, **more))
    return [tuple(scope.as_dict().values()) for scope in found]


SPAN = {"metric": "train_val_overlap", "stat": "span", "scope": {"per": ["set", "source"]}, "budget": 0.001}


class TestLeaks:
    def overlap(self, value, **scope):
        return record("train_val_overlap", "span", value, **scope)

    def with_leak(self):
        now = facts(covered(), self.overlap(0.2, set="val"), self.overlap(0.2, set="val", source="crawl"))
        return replace(now, sources={"train": frozenset({"crawl", "web"}), "val": frozenset({"books"})})

    def test_a_leak_is_told_by_the_training_source_that_holds_it(self):
        """The held-out split has sources of other names; they are not the ones to judge."""
        result = evaluate(policy(rule(**SPAN)), self.with_leak(), on=TODAY).rules[0]
        assert result.counts == {State.FAILED: 1, State.PASSED: 1}
        assert result.cases[0].scope == Scope(set="val", source="crawl")

    def test_a_source_that_training_does_not_have_is_not_free_of_leaks(self):
        one = rule(**SPAN | {"scope": {"per": "set", "source": "crawll"}})
        assert evaluate(policy(one), self.with_leak(), on=TODAY).rules[0].state == State.NOT_EVALUATED


class TestRecordsThatAreThere:
    def test_every_record_is_a_case_also_of_what_no_table_lists(self):
        """A source that the mixture declares and that was not found has a share of 0."""
        shares = [
            record("source_mix_share", "share", value, source=name)
            for name, value in (("web", 0.5), ("code", 0.5), ("ghost", 0.0))
        ]
        one = rule(metric="source_mix_share", stat="share", scope={"per": "source"}, comparator=">=", budget=0.1)
        assert result_of(one, *shares).cases[0].scope.source == "ghost"

    def test_statistics_of_one_metric_do_not_share_their_rules(self):
        kept = [
            record("near_dup_rate", "recall", 1.0, rule="jaccard=0.90"),
            record("near_dup_rate", "clusters_by_size", 3.0, "clusters", rule="documents=2"),
        ]
        assert places(rule(stat="recall", scope={"per": "rule"}), *kept) == [("jaccard=0.90",)]

    def test_an_evaluation_set_has_the_parts_that_it_has(self):
        kept = [
            record("benchmark_contamination", "rate", 0.0, set=name, entity=part, rule="verbatim")
            for name, part in (("a", "question"), ("a", "answer"), ("b", "question"))
        ]
        one = rule(metric="benchmark_contamination", scope={"per": ["set", "entity"], "rule": "verbatim"})
        found = places(one, *kept, protected=("a", "b"))
        assert found == [("a", "answer", "verbatim"), ("a", "question", "verbatim"), ("b", "question", "verbatim")]

    def test_an_evaluation_set_without_a_record_is_a_case_without_a_number(self):
        kept = record("benchmark_contamination", "rate", 0.0, set="a", entity="question", rule="verbatim")
        one = rule(metric="benchmark_contamination", scope={"per": ["set", "entity"], "rule": "verbatim"})
        assert result_of(one, kept, protected=("a", "b")).counts == {State.PASSED: 1, State.NOT_EVALUATED: 1}


class TestNames:
    def test_a_split_that_is_named_wrongly_is_not_evaluated_beside_one_that_is_not(self):
        one = rule(scope={"per": "source", "split": ["train", "vall"]})
        kept = [record(value=0.1, split="train", source=name) for name in ("web", "code")]
        assert result_of(one, *kept).counts == {State.PASSED: 2, State.NOT_EVALUATED: 1}

    def test_nor_is_it_in_a_rule_about_single_shards(self):
        one = rule(scope={"per": "shard", "split": ["train", "vall"]})
        result = result_of(one, record(), shards=[shard_row(0, near_dup_rate=0.1, no_words=0)])
        assert result.counts == {State.PASSED: 1, State.NOT_EVALUATED: 1}
        assert (result.cases[0].scope, result.cases[0].reason) == (Scope(split="vall"), "no_such_part")

    def test_a_reason_of_a_loss_that_no_build_gives_is_no_loss_of_0_bytes(self):
        one = rule(
            "r", "coverage_unread_bytes", "bytes", "bytes", budget=0, scope={"rule": ["not_found", "invalid_jsn"]}
        )
        [problem] = rule_problems(one)
        assert problem.startswith("no reason of a loss is named `invalid_jsn` (did you mean `invalid_json`?)")

    def test_a_kind_of_personal_data_is_not_a_kind_of_secret(self):
        one = rule(
            metric="pii_hit_rate",
            stat="validated_hits",
            unit="hits per million tokens",
            budget=0,
            scope={"entity": "JWT"},
        )
        found = record("pii_hit_rate", "validated_hits", 0.0, "hits per million tokens")
        assert result_of(one, found).state == State.NOT_EVALUATED


class TestNothingFound:
    def test_a_clean_corpus_passes_a_rule_for_each_kind_of_secret(self):
        one = rule(metric="secret_hit_rate", stat="validated_hits", unit="hits", budget=0, scope={"per": "entity"})
        result = result_of(one, record("secret_hit_rate", "validated_hits", 0.0, "hits"))
        assert result.counts == {State.PASSED: 2}

    def test_no_reason_of_a_loss_is_no_loss(self):
        one = rule(metric="coverage_unread_bytes", stat="bytes", unit="bytes", budget=0, scope={"per": "rule"})
        assert result_of(one, record("coverage_unread_bytes", "bytes", 0.0, "bytes")).state == State.PASSED

    def test_what_a_sample_did_not_find_is_not_zero(self):
        """Its upper bound is above 0, and only a record has one."""
        one = rule(metric="pii_hit_rate", stat="analyzer_documents", scope={"entity": "PERSON"})
        assert result_of(one, record("pii_hit_rate", "analyzer_documents", 0.2)).state == State.NOT_EVALUATED

    def test_an_empty_part_is_empty_for_each_kind_too(self):
        kept = [record("secret_hit_rate", "documents", 0.0, "documents", source=name) for name in ("web",)]
        kept.append(record("secret_hit_rate", "documents", None, "documents", source="code"))
        one = rule(
            metric="secret_hit_rate",
            stat="documents",
            unit="documents",
            allow_empty=True,
            scope={"per": "source", "entity": "JWT"},
        )
        assert result_of(one, *kept).counts == {State.PASSED: 1, State.NOT_APPLICABLE: 1}

    def test_a_language_that_a_source_does_not_have_has_no_share_of_it(self):
        one = rule(metric="language_share", stat="share", scope={"per": ["source", "language"]})
        now = facts(record("language_share", "share", 1.0, source="web", language="en"), sources=("web",))
        assert record_of(statistic(one.metric, one.stat), now, Scope(source="web", language="fr")).value == 0.0
        assert places(one, sources=("web",), languages=("en", "fr")) == [("web", "en"), ("web", "fr")]


class TestAmounts:
    def amount(self, metric, value, **scope):
        return record(metric, "count", value, metric, **scope)

    @pytest.mark.parametrize("metric", ["documents", "bytes", "tokens"])
    def test_a_source_that_vanished_has_no_document_left(self, metric):
        one = rule(metric=metric, stat="count", unit=metric, scope={"per": "source"}, relative_change=0.5)
        old = facts(self.amount(metric, 10.0, source="web"), self.amount(metric, 10.0, source="code"))
        result = result_of(one, self.amount(metric, 10.0, source="web"), sources=("web",), baseline=old)
        assert [(case.scope.source, case.value, case.baseline, case.state) for case in result.cases] == [
            ("code", 0.0, 10.0, State.FAILED)
        ]

    def test_a_source_that_is_named_and_nowhere_counts_0_and_is_told(self):
        one = rule(metric="tokens", stat="count", unit="tokens", scope={"source": ["web", "wbe"]}, budget=50)
        records = [covered(), self.amount("tokens", 10.0), self.amount("tokens", 10.0, source="web")]
        verdict = evaluate(policy(one), facts(*records), on=TODAY)
        assert (verdict.exit_code, verdict.rules[0].counts) == (0, {State.PASSED: 2})
        [remark] = verdict.remarks
        assert "The rule r names the source wbe, which no split has: 0 of it is counted" in remark
        older = facts(*records, sources=("web", "wbe"))
        assert not [text for text in evaluate(policy(one), facts(*records), older, on=TODAY).remarks if "wbe" in text]

    def test_a_source_that_may_have_lost_its_name_is_not_gone(self):
        """With more sources than the config names, those of `other` are not told apart."""
        one = rule(metric="source_mix_share", stat="share", scope={"source": "code"})
        kept = record("source_mix_share", "share", 1.0, source="web")
        assert result_of(one, kept, sources=("web", "other")).state == State.PASSED
        assert result_of(one, kept, sources=("web", "other"), is_folded=True).state == State.NOT_EVALUATED

    def test_nothing_is_told_of_as_much_as_its_split_holds(self):
        shares = [
            record("source_mix_share", "share", 1.0, split=split, source="web", denominator=total)
            for split, total in (("train", 900), ("val", 100))
        ]
        now = facts(*shares, sources=("web",))
        found = record_of(statistic("source_mix_share", "share"), now, Scope(split="val", source="code"))
        assert (found.value, found.denominator) == (0.0, 100)


def test_the_entities_that_the_gate_knows_are_those_that_ship():
    known = {name: METRICS[name].entities for name in ("pii_hit_rate", "secret_hit_rate")}
    shipped = {(one.detector, one.name) for one in shipped_patterns().entities}
    assert shipped == {(METRICS[metric].searches_with, name) for metric, names in known.items() for name in names}
    assert METRICS["benchmark_contamination"].entities == frozenset(PARTS)


def near_dup(threshold):
    return {"stages": [StageRecord(name="near_dup", version="1", parameters={"threshold": threshold})]}


def quiz(digit, items=5):
    return {"protected": [ProtectedRecord(name="quiz", items=items, sha256=digit * 64)]}


def screened(digit):
    return {"detectors": [DetectorRecord(name="secrets", version="1", sha256=digit * 64)]}


@pytest.mark.parametrize(
    ("metric", "stat", "unit", "scope", "old", "new", "says"),
    [
        ("near_dup_rate", "rate", "ratio", {}, near_dup(0.8), near_dup(1.0), "other_parameters"),
        ("near_dup_rate", "rate", "ratio", {}, near_dup(0.8), near_dup(0.8), ""),
        ("exact_dup_rate", "rate", "ratio", {}, near_dup(0.8), near_dup(1.0), ""),
        ("benchmark_contamination", "rate", "ratio", {"set": "quiz"}, quiz("1"), quiz("2"), "other_protected_set"),
        ("benchmark_contamination", "rate", "ratio", {"set": "quiz"}, quiz("1"), quiz("1"), ""),
        ("token_kl_drift", "kl", "nats", {}, {"parents": ("1",)}, {"parents": ("2",)}, "other_reference"),
        ("secret_hit_rate", "validated_hits", "hits", {}, screened("1"), screened("2"), "other_detector"),
    ],
)
def test_what_diff_does_not_compare_the_gate_does_not_either(metric, stat, unit, scope, old, new, says):
    """A number of another meaning cannot have changed: it is not evaluated, never passed."""
    one = rule(metric=metric, stat=stat, unit=unit, change=0.5, scope=scope)
    number = record(metric, stat, 0.5, unit, **scope)
    before = facts(covered(), number, core=old, protected=("quiz",))
    found = result_of(one, number, baseline=before, core=new, protected=("quiz",))
    assert found.cases[0].reason == says
    assert found.state == (State.NOT_EVALUATED if says else State.PASSED)


def test_a_set_that_is_new_waits_for_a_baseline_that_has_it():
    """One that was added is no other one."""
    one = rule(metric="benchmark_contamination", stat="rate", change=0.5, scope={"set": "quiz"})
    number = record("benchmark_contamination", "rate", 0.5, set="quiz")
    before = facts(covered(), core={"protected": ()})
    found = result_of(one, number, baseline=before, core=quiz("1"), protected=("quiz",))
    assert (found.cases[0].reason, found.state) == ("new_scope", State.NOT_APPLICABLE)


def test_a_set_that_is_not_the_baselines_is_remarked_on():
    """Fewer leaks into less say nothing; the rules with limits of their own are judged as ever."""
    one = rule(metric="benchmark_contamination", stat="rate", scope={"set": "quiz"})
    number = record("benchmark_contamination", "rate", 0.0, set="quiz")
    old = facts(covered(), number, core=quiz("1"), protected=("quiz",), documents=60)
    now = facts(covered(), number, core=quiz("2", items=1), protected=("quiz",), documents=1)
    found = evaluate(policy(one), now, old, on=TODAY)
    assert found.rules[0].state == State.PASSED
    assert found.remarks[-2:] == (
        "The evaluation set quiz is not the baseline's: 1 item, 5 before.",
        "The held-out split val is not the baseline's: 1 document, 60 before.",
    )
    other = replace(now, subject=replace(now.subject, id="sha256:0"))
    assert evaluate(policy(one), other, now, on=TODAY).remarks == ()
    rows = [replace(one, held_out_rows={"val": digest}) for one, digest in ((other, "x"), (now, "y"))]
    said = "The held-out split val has other shards than the baseline's: other documents, or packed anew."
    assert evaluate(policy(one), *rows, on=TODAY).remarks == (said,)
    assert evaluate(policy(one), rows[0], replace(rows[1], held_out_rows={"val": "x"}), on=TODAY).remarks == ()
    assert evaluate(policy(one), rows[0], now, on=TODAY).remarks == ()


def test_questions_that_no_share_speaks_of_are_remarked_on():
    """Where a rule asks for shares of leaked questions, and only there; without a baseline, too."""
    one = rule(metric="benchmark_contamination", stat="rate", scope={"set": "quiz"})
    number = record("benchmark_contamination", "rate", 0.0, set="quiz")
    counts = [
        record("benchmark_contamination", stat, value, "items", set="quiz", entity="question")
        for stat, value in (("context", 3.0), ("too_short", 2.0), ("boilerplate", 0.0))
    ]
    now = facts(covered(), number, *counts, protected=("quiz",))
    (said,) = evaluate(policy(one), now, on=TODAY).remarks
    assert said.startswith("In no share of leaked questions are 5 of ")
    assert "of the evaluation set quiz" in said
    assert evaluate(policy(rule(metric="documents", stat="count", unit="documents")), now, on=TODAY).remarks == ()
    assert evaluate(policy(one), facts(covered(), number, protected=("quiz",)), on=TODAY).remarks == ()


@pytest.mark.parametrize(
    ("metric", "stat", "unit", "says"),
    [
        ("source_mix_share", "share", "ratio", "other_tokenizer"),
        ("tokens", "count", "tokens", "other_tokenizer"),
        ("documents", "count", "documents", ""),
    ],
)
def test_what_another_tokenizer_counts_otherwise_is_not_compared_as_in_diff(metric, stat, unit, says):
    one = rule(metric=metric, stat=stat, unit=unit, change=0.5, scope={"per": "source"})
    old = facts(covered(), record(metric, stat, 0.5, unit, source="web"), sources=("web",), tokenizer="u" * 64)
    now = record(metric, stat, 0.5, unit, source="web")
    assert result_of(one, now, baseline=old, sources=("web",)).cases[0].reason == says
    assert bool(says) == is_of_tokens(metric, stat, unit, None)


@pytest.mark.parametrize(
    ("limit", "judged"),
    [
        ({"robust_sd": 6}, 12.5),
        ({"robust_sd": 6, "direction": "down"}, 12.5),
        ({"robust_sd": 6, "bound": "value"}, 12.5),
        ({"budget": 0.2, "comparator": ">="}, 0.0),
        ({"budget": 0.25, "comparator": "=="}, 0.0),
    ],
)
def test_a_shard_is_judged_by_the_bound_that_breaks_the_rule(limit, judged):
    """Its documents that may be duplicates bring the upper bound of a shard without any to the others' share."""
    rates = [(0.25, 0)] * 7 + [(0.0, 250)]
    rows = [
        shard_row(number, documents=1000, no_words=0, near_dup_rate=rate, near_dup_undecided=undecided)
        for number, (rate, undecided) in enumerate(rates)
    ]
    result = result_of(rule(scope={"per": "shard"}, **limit), record(), shards=rows)
    assert result.counts == {State.PASSED: 7, State.FAILED: 1}
    assert [(case.scope.shard, case.judged) for case in result.cases] == [(7, judged)]


@pytest.mark.parametrize("limit", [{"comparator": ">="}, {"comparator": "=="}, {"comparator": "<="}])
def test_a_limit_with_more_digits_than_numbers_have_is_that_number(limit):
    result = result_of(rule(budget=2 / 3, **limit), record(value=2 / 3))
    assert result.state == State.PASSED
    waiver = {"fingerprint": "0" * 16, "rule": "r", "owner": "o", "reason": "r", "expires": TODAY, "up_to": 2 / 3}
    assert Waiver.model_validate(waiver).covers(rule(budget=0.5, **limit), result.cases[0].judged)


@pytest.mark.parametrize(("share", "code"), [(0.01, 0), (0.5, 3)])
def test_a_streamed_shard_with_too_many_bad_records_is_of_unknown_size(share, code):
    """It has no stored bytes, so the whole of it counted 0: less than its bad records alone."""
    one = rule("read", "coverage_unread_bytes", "bytes", "bytes", budget=100, max_bad_records=0.1)
    now = facts(covered(), record("coverage_unread_bytes", "bytes", 7.0, "bytes"))
    bad = Partial(shard=0, share=share, bad_bytes=7, size=0)
    verdict = evaluate(policy(one, coverage=False), replace(now, partial=(bad,)), on=TODAY)
    assert (verdict.exit_code, verdict.rules[0].cases[0].reason) == (code, "unknown_bytes" if code else "")


@pytest.mark.parametrize("ceiling", [{}, {"up_to": 1e9}])
def test_no_waiver_of_unread_bytes_covers_a_shard_of_unknown_size(ceiling):
    now = facts(covered(100.0), record())
    waiver = {"rule": "covered", "owner": "o", "reason": "r", "expires": "2026-12-31"} | ceiling
    name = evaluate(policy(rule()), now, on=TODAY).rules[1].cases[0].fingerprint
    asked = policy(rule(), waivers=[waiver | {"fingerprint": name}])
    assert evaluate(asked, now, on=TODAY).exit_code == 0
    verdict = evaluate(asked, replace(now, unsized=frozenset({("train", "not_found")})), on=TODAY)
    assert (verdict.exit_code, verdict.rules[1].cases[0].reason) == (3, "unknown_bytes")


@pytest.mark.parametrize("kept", SHARD_STATISTICS, ids=lambda item: f"{item.metric}.{item.stat}")
def test_a_policy_reads_every_column_that_its_rules_over_shards_need(tmp_path, kept):
    """Documents without words, undecided ones and what chance gives are in columns of their own."""
    make(tmp_path / "m", [shard("a.jsonl"), shard("b.jsonl")])
    unit = next(item.unit for item in stats_of(kept.metric) if item.stat == kept.stat)
    asked = rule(metric=kept.metric, stat=kept.stat, unit=unit, scope={"per": "shard"})
    assert set(kept.needs) <= set(facts_for(load_manifest(tmp_path / "m"), policy(asked)).shards.column_names)
