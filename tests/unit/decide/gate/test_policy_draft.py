"""The draft of a policy: what it holds, that it loads and passes, and that odd manifests give one too."""

import datetime as dt
import math
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from forged import rewrite
from hypothesis import given
from hypothesis import strategies as st
from lanes import sample
from made_facts import facts, record, sampled, shard_row
from made_manifest import make, shard

from dataaudit import cli
from dataaudit.base.errors import ExitCode
from dataaudit.decide.gate import builtin_path
from dataaudit.decide.gate.draft import DRAWN, candidates, draft, draft_of, outward
from dataaudit.decide.gate.number_texts import discreet_ceiling
from dataaudit.decide.gate.policy import parse_policy
from dataaudit.decide.gate.run import evaluate, judge, policy_of
from dataaudit.decide.gate.scopes import rule_problems
from dataaudit.decide.gate.verdict import Case, State
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Scope
from dataaudit.metrics.registry import FAMILIES

ROOT = Path(__file__).parents[4]
DEMO = ROOT / "manifests/demo"
DAY = dt.date(2026, 11, 22)
UNREAD = record("coverage_unread_bytes", "bytes", 0.0, "bytes")
LEAKS = ("span_without_common", "ngram_without_common", "edited_without_common")
CLEAN = (
    UNREAD,
    record("secret_hit_rate", "validated_hits", 0.0, "hits"),
    *(record("train_val_overlap", stat, 0.0, set="val") for stat in ("near_dup", "span", *LEAKS)),
    *(record("near_dup_rate", "rate", value, source=name) for name, value in (("web", 0.1234), ("code", 0.02))),
)


def loaded(text):
    """Return the policy of a draft, held against the catalogue of metrics as the gate does."""
    return parse_policy(text, where="draft", more=rule_problems, on=DAY)


def rule_of(text, name):
    """Return one rule of a draft."""
    return next(rule for rule in loaded(text).rules if rule.name == name)


def comment_of(text, name):
    """Return what stands above a rule."""
    before = text.partition(f"- name: {name}\n")[0].rstrip(" ").rpartition("\n\n")[2]
    return " ".join(line.strip().removeprefix("# ") for line in before.splitlines())


def code_of(found, text=None):
    """Return the exit code of facts by their own draft."""
    return evaluate(loaded(text or draft_of(found)), found, on=DAY).exit_code


def test_the_demo_fails_only_the_bounds_that_the_draft_says_it_fails():
    """Everything drawn holds; what fails is release-gate's and marked."""
    manifest = load_manifest(DEMO)
    text = draft(manifest)
    verdict = judge(manifest, loaded(text), on=DAY)
    bounds, changes = candidates()
    broken = {one.rule.name for one in verdict.rules if one.state in {State.FAILED, State.NOT_EVALUATED}}
    marked = {rule.name for rule in loaded(text).rules if "This manifest fails it" in comment_of(text, rule.name)}
    assert broken == marked <= {rule.name for rule in bounds}
    assert not any(one.state == State.WARNED for one in verdict.rules)
    kept = {rule.name: rule for rule in loaded(text).rules}
    assert [kept[rule.name] for rule in bounds] == list(bounds), "bounds are release-gate's, word for word"
    assert all(kept[rule.name] == rule for rule in changes if rule.name in kept)
    waiting = {name for name in kept if "Waits for a baseline." in comment_of(text, name)}
    assert waiting == {name for name, rule in kept.items() if rule.needs_baseline}
    assert "which wait without a baseline; and shards, which are compared with each other" in text
    assert {one.rule.name for one in judge(manifest, loaded(text), baseline=manifest, on=DAY).rules} == set(kept)


@pytest.mark.parametrize("name", sample(["pii", "secrets", "dataaudit-screen"], 3))
def test_a_draft_demands_the_detectors_that_measured_its_numbers(name):
    """Less may be looked for by another, so nothing that rests on it passes."""
    manifest = load_manifest(DEMO)
    detectors = {one.name: (one.sha256,) for one in manifest.core.detectors}
    policy = loaded(draft(manifest))
    assert detectors.items() >= policy.detectors.items() > set()
    others = [
        one.model_copy(update={"sha256": "0" * 64}) if one.name == name else one for one in manifest.core.detectors
    ]
    other = replace(manifest, core=manifest.core.model_copy(update={"detectors": tuple(others)}))
    changed = {
        one.rule.metric
        for one, before in zip(judge(other, policy, on=DAY).rules, judge(manifest, policy, on=DAY).rules, strict=True)
        if one.state != before.state
    }
    assert changed == {"pii": {"pii_hit_rate"}, "secrets": {"secret_hit_rate"}}.get(name, {"data_toxicity_rate"})


def test_every_rule_of_release_gate_and_every_family_has_its_part():
    """A warning of release-gate about a measured number is drawn instead; no family is forgotten."""
    bounds, changes = candidates()
    drawn = {(rule.metric, rule.stat) for rule in DRAWN}
    for rule in policy_of(builtin_path("release-gate")).rules:
        assert rule in bounds or rule in changes or (rule.metric, rule.stat) in drawn
    spoken_of = {rule.metric for rule in (*bounds, *DRAWN, *changes)}
    for family in FAMILIES:
        assert not family.metrics or spoken_of & {metric.name for metric in family.metrics}, family.name
        for metric in family.metrics:
            for one in metric.statistics:
                assert not one.headline or one.metric in {rule.metric for rule in (*bounds, *DRAWN)}, one


def test_a_clean_manifest_passes_by_its_draft_and_one_step_beyond_does_not():
    """Drawn is the worst part, rounded outward; more than that fails."""
    text = draft_of(facts(*CLEAN))
    rule = rule_of(text, "near-duplicates-at-most")
    assert (rule.budget, rule.scope.per) == (0.13, ("source",))
    assert comment_of(text, "near-duplicates-at-most") == (
        "Measured: 0.1234 at source web, the highest of 2 (sources). The number is rounded up to 2 digits."
    )
    assert code_of(facts(*CLEAN)) == ExitCode.PASS
    worse = facts(*CLEAN[:-2], record("near_dup_rate", "rate", 0.1301, source="web"), CLEAN[-1])
    assert code_of(worse, text) == ExitCode.BUDGET_EXCEEDED


def test_of_an_interval_the_wrong_bound_is_drawn():
    """The upper one where less is better, the lower one where more is; a rule that names the value takes that."""
    found = facts(
        *CLEAN,
        sampled("near_dup_rate", "recall", 0.9612, 0.98, 0.99),
        sampled("data_toxicity_rate", "rate", 0.01, 0.02, 0.0312),
        sampled("data_toxicity_rate", "screen", 0.1, 0.211, 0.4, source="web"),
    )
    text = draft_of(found)
    assert rule_of(text, "near-duplicates-recall-at-least").budget == 0.96
    assert rule_of(text, "toxic-documents-judged-at-most").budget == 0.032
    assert rule_of(text, "toxic-documents-screened-at-most").budget == 0.22
    assert "0.02 (0.01 to 0.0312, 95 %)" in comment_of(text, "toxic-documents-judged-at-most")
    assert code_of(found) == ExitCode.PASS


def test_a_bound_that_the_manifest_breaks_is_kept_and_said():
    """The draft then fails, as release-gate would; a drawn limit beyond the bound is left out."""
    copies = record("near_dup_rate", "rate", 0.8, source="web")
    text = draft_of(facts(*CLEAN[:-2], copies, CLEAN[-1]))
    assert rule_of(text, "source-mostly-duplicates").budget == 0.5
    assert comment_of(text, "source-mostly-duplicates").startswith("This manifest fails it: 0.8 at source web")
    assert "near-duplicates-at-most" not in text


@pytest.mark.parametrize("missing", ["secret_hit_rate", "train_val_overlap", "coverage_unread_bytes"])
def test_secrets_leaks_and_coverage_stay_required_without_a_number(missing):
    """Whoever switched the stage off gets a draft that says so and does not pass."""
    found = facts(*(one for one in CLEAN if one.metric != missing))
    text = draft_of(found)
    assert all(rule.required for rule in loaded(text).rules if rule.metric == missing and rule.budget is not None)
    assert "This manifest fails it: there is no number" in text
    assert code_of(found) == ExitCode.NOT_EVALUATED


def test_without_a_held_out_split_the_rules_of_leaks_are_not_required():
    """There is nothing to leak; the comment says that release-gate requires it."""
    kept = [one for one in CLEAN if one.metric != "train_val_overlap"]
    found = facts(*kept, record("train_val_overlap", "train_documents", 0.0), splits={"train": False})
    text = draft_of(found)
    assert not rule_of(text, "val-copied-spans").required
    assert "no held-out split" in comment_of(text, "val-copied-spans")
    assert code_of(found) == ExitCode.PASS


def test_what_has_no_number_is_listed_and_not_drafted():
    """A limit from nothing would be a guess."""
    shards = [shard_row(number, bytes_per_token=4.0) for number in range(3)]
    ratio = record("bytes_per_token", "ratio", 4.2, "bytes/token")
    text = draft_of(facts(*CLEAN, ratio, record("tokens", "count", 0.0, "tokens"), shards=shards))
    listed = text.partition("# Not drafted, for want of a number:\n")[2]
    assert "#   token-drift-at-most, token_kl_drift.kl_excess: " in listed
    assert "#   personal-data-at-most, pii_hit_rate.validated_hits: " in listed
    assert "#   odd-shards, bytes_per_token.ratio: fewer than 5 shards have no usual value" in listed
    assert "#   tokens-at-least, tokens.count: it is 0" in listed
    assert not any(rule.metric in {"token_kl_drift", "pii_hit_rate"} for rule in loaded(text).rules)


@pytest.mark.parametrize(("low", "limit", "words"), [(-3.25, 0.0, "below the limit 0"), (0.0132, 0.014, "rounded up")])
def test_what_is_surely_beyond_chance_is_drawn_from_its_lower_bound(low, limit, words):
    """Where chance alone explains the drift, nothing may be beyond it."""
    beyond = {"low": low, "high": 0.5, "confidence": 0.95, "method": "estimated"}
    found = facts(*CLEAN, record("token_kl_drift", "kl_excess", 0.1, "nats", source="web", **beyond))
    text = draft_of(found)
    assert rule_of(text, "token-drift-at-most").budget == limit
    assert f"The lower bound is {words}" in comment_of(text, "token-drift-at-most")
    assert code_of(found, text) == ExitCode.PASS


def test_a_part_without_a_number_makes_a_drawn_rule_optional():
    """Its other parts are still held to the limit."""
    broken = record("exact_dup_rate", "rate", None, source="code", status="not_evaluated", reason="not_judged")
    found = facts(*CLEAN, record("exact_dup_rate", "rate", 0.25, source="web"), broken)
    text = draft_of(found)
    assert not rule_of(text, "exact-duplicates-at-most").required
    assert "Not required: 1 part without a number" in comment_of(text, "exact-duplicates-at-most")
    assert code_of(found) == ExitCode.PASS


def test_a_corpus_that_lost_its_near_duplicates_still_passes_by_its_draft():
    """Without a near-duplicate there is nothing to find again: the recall has no number."""
    text = draft_of(facts(*CLEAN, sampled("near_dup_rate", "recall", 0.96, 0.98, 0.99)))
    unmeasured = record("near_dup_rate", "recall", None, reason="no_neighbour")
    assert code_of(facts(*CLEAN, unmeasured), text) == ExitCode.PASS


def test_shards_unlike_the_others_are_told_of():
    """The rule is release-gate's; it warns, and the draft says so."""
    shards = [shard_row(number, bytes_per_token=4.0 + number / 100) for number in range(8)]
    shards.append(shard_row(9, bytes_per_token=90.0))
    found = facts(*CLEAN, record("bytes_per_token", "ratio", 4.2, "bytes/token"), shards=shards)
    text = draft_of(found)
    assert "This manifest warns: 1 shard." in comment_of(text, "odd-shards")
    assert code_of(found) == ExitCode.PASS


@pytest.mark.parametrize("hits", [0, 1, 3, 49, 50, 77, 12_345])
def test_a_limit_of_personal_data_tells_no_count_that_is_not_shown(hits):
    """Every count of fewer than 50 hits gives the same limit and the same words."""
    tokens = 3_000_000
    unit = "hits per million tokens"

    def drafted(number):
        rate = number / tokens * 1e6
        return facts(*CLEAN, record("pii_hit_rate", "validated_hits", rate, unit, denominator=tokens))

    text = draft_of(drafted(hits))
    assert code_of(drafted(hits)) == ExitCode.PASS
    assert rule_of(text, "personal-data-at-most").budget >= hits / tokens * 1e6
    if 0 < hits < 50:
        assert text == draft_of(drafted(7))
        assert "withheld" in comment_of(text, "personal-data-at-most")


@given(st.integers(1, 10**7), st.integers(1, 10**9), st.sampled_from(["documents", "ratio", "hits per million tokens"]))
def test_what_is_drawn_of_personal_data_is_never_below_it(count, of, unit):
    """However numbers are rounded before they are shown."""
    value = float(count) if unit == "documents" else count / of * (1e6 if "million" in unit else 1.0)
    rule = next(rule for rule in DRAWN if rule.metric == "pii_hit_rate")
    case = Case(
        rule="r", stat="s", scope=Scope(), state=State.FAILED, unit=unit, value=value, judged=value, denominator=of
    )
    assert discreet_ceiling(rule, case) >= value


@given(st.floats(0, 1e15, allow_subnormal=False), st.booleans())
def test_rounding_goes_outward_and_keeps_two_digits(value, up):
    """By less than a tenth of the number, and never to its other side."""
    limit = outward(value, up=up)
    assert limit >= value if up else limit <= value
    assert math.isclose(limit, value, rel_tol=0.1)
    assert limit == float(f"{limit:.2g}")


ODD = st.text(min_size=1, max_size=30)


@given(
    st.lists(ODD, min_size=1, max_size=4, unique=True),
    st.lists(st.floats(0, 1), min_size=4, max_size=4),
    st.floats(0, 1e12, allow_subnormal=False),
)
def test_any_names_and_numbers_give_a_policy_that_loads_and_passes(names, rates, amount):
    """Names come from the data: none leaves its comment."""
    values = dict(zip(names, rates, strict=False))
    found = facts(
        *CLEAN[:-2],
        *(record("near_dup_rate", "rate", value / 2, source=name) for name, value in values.items()),
        *(record("filter_reject_rate", "rate", value, source=name) for name, value in values.items()),
        *(record("exact_dup_rate", "rate", value, source=name) for name, value in values.items()),
        record("tokens", "count", round(amount), "tokens"),
        record("seq_len_p50_p95", "p95", amount, "tokens"),
        record("pad_fraction", "packed_2048", rates[0]),
        sources=names,
    )
    text = draft_of(found)
    assert text == draft_of(found)
    assert code_of(found, text) == ExitCode.PASS
    assert max(len(line) for line in text.split("\n") if not line.startswith("  # ")) <= 120
    kinds = {line.strip()[:2].strip() for line in text.partition("rules:")[2].splitlines() if line.strip()}
    assert kinds <= {"#", "- ", "-"} | {key[:2] for key in type(DRAWN[0]).model_fields}


def draft_by_command(*arguments):
    """Run `policy draft` in this process."""
    return CliRunner().invoke(cli.main, ["policy", "draft", *map(str, arguments)])


def test_a_file_that_is_there_is_replaced_by_force_alone(tmp_path):
    """Whoever has edited a draft does not lose it; stdout and file are the same bytes."""
    out = tmp_path / "policy.yaml"
    assert draft_by_command(DEMO, "--out", out).exit_code == 0
    first = out.read_text()
    assert draft_by_command(DEMO).stdout == first
    failed = first.count("# This manifest fails it")
    words = f"a draft that this manifest fails, by {failed} of its rules: mend the data, build, and draft again"
    assert words in draft_by_command(DEMO, "--out", tmp_path / "again.yaml").stdout
    out.write_text("mine")
    refused = draft_by_command(DEMO, "--out", out)
    assert (refused.exit_code, out.read_text()) == (2, "mine")
    assert "is there already" in refused.stderr
    assert draft_by_command(DEMO, "--out", out, "--force").exit_code == 0
    assert out.read_text() == first
    policy_of(out)


@pytest.mark.parametrize("name", ["made", "-.", "日本", "a b: #c", "yes", "12", "x" * 300])
def test_an_empty_corpus_and_any_dataset_name_give_a_policy(tmp_path, name):
    """There is nothing to draw from: the bounds stay, and the gate says that nothing was read."""
    make(tmp_path / "m", [], dataset=name)
    manifest = load_manifest(tmp_path / "m")
    verdict = judge(manifest, loaded(draft(manifest)), on=DAY)
    assert verdict.exit_code == ExitCode.NOTHING_EVALUATED


def test_a_manifest_that_was_changed_gives_no_draft(tmp_path):
    """Limits are not drawn from numbers that were not published."""
    make(tmp_path / "m", [shard("a.jsonl")])
    rewrite(tmp_path / "m", "metrics", lambda table: table.slice(1))
    shown = draft_by_command(tmp_path / "m", "--out", tmp_path / "p.yaml")
    assert shown.exit_code == 1
    assert not (tmp_path / "p.yaml").exists()
