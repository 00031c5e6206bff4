"""What was looked for: less than in the baseline, or by other detectors than the policy demands."""

import datetime as dt

import pytest
from made_facts import covered, facts, policy, record, rule, shard_row

from dataaudit.base.errors import ConfigError, ExitCode
from dataaudit.decide.gate import builtin_path
from dataaudit.decide.gate.missing import check_detectors
from dataaudit.decide.gate.policy import Policy
from dataaudit.decide.gate.run import evaluate, policy_of
from dataaudit.decide.gate.verdict import State
from dataaudit.manifest.core import DetectorRecord, Named
from dataaudit.scan.detectors.pii import load_pii
from dataaudit.scan.detectors.secrets.rules import load_secrets
from dataaudit.scan.detectors.toxicity import find_screen

METRIC = "secret_hit_rate"
WHOLE = {"metric": METRIC, "stat": "hits", "unit": "hits", "required": False, "budget": 5}
SHARDS = {**WHOLE, "scope": {"per": "shard"}}
OWN, OTHER = "a" * 64, "b" * 64


def searching(digest, tool="1", name="secrets", **more):
    """Return for `facts` what was looked for: entities, and the digest of everything else."""
    detectors = (DetectorRecord(name=name, version="v 1", sha256=digest),) if digest else ()
    return {"core": {"detectors": detectors, "tool": Named(name="dataaudit", version=tool)}, **more}


def searched(hits=(0, 0), **more):
    """Return facts of two shards with so many secrets each."""
    rows = [shard_row(number, secret_hits=one, tokens=10) for number, one in enumerate(hits)]
    return facts(covered(), record(METRIC, "hits", float(sum(hits)), "hits"), shards=rows, **more)


def verdict_of(one, now, baseline=None, detectors=None):
    """Return the verdict of one rule by a policy that demands these detectors."""
    demanding = Policy.model_validate(policy(one).model_dump() | {"detectors": detectors})
    return evaluate(demanding, now, baseline, on=dt.date(2026, 11, 27))


@pytest.mark.parametrize("keys", [WHOLE, SHARDS], ids=["whole", "shards"])
class TestLess:
    """Kinds that are off show in the manifest; rules, tiers and allow-lists in the detector's digest."""

    @pytest.mark.parametrize(
        ("now", "why"),
        [
            (searching(OWN, entities=("JWT",)), "GITHUB_TOKEN: looked for in the baseline, and not here"),
            (searching(OTHER), "are not those of the baseline: less may be looked for"),
            (searching(OTHER, tool="2"), ""),
            (searching(OWN), ""),
        ],
    )
    def test_less_that_is_looked_for_is_no_pass(self, keys, now, why):
        was = searched(**searching(OWN))
        verdict = verdict_of(rule(**keys), searched(**now), was)
        assert why in verdict.rules[0].cases[0].why
        assert verdict.exit_code == (ExitCode.NOT_EVALUATED if why else ExitCode.PASS)
        assert verdict_of(rule(**keys, allow_lost="a narrower search"), searched(**now), was).passed

    def test_what_was_found_all_the_same_fails(self, keys):
        found = verdict_of(rule(**keys), searched((0, 9), **searching(OTHER)), searched(**searching(OWN)))
        assert found.rules[0].state == State.FAILED
        assert ExitCode.BUDGET_EXCEEDED in found.codes


@pytest.mark.parametrize("keys", [WHOLE, SHARDS], ids=["whole", "shards"])
class TestDemanded:
    """A policy names the detectors that have to have searched."""

    def test_the_one_that_is_demanded_passes_and_any_of_several(self, keys):
        for wanted in (OWN, [OWN], [OTHER, OWN]):
            assert verdict_of(rule(**keys), searched(**searching(OWN)), detectors={"secrets": wanted}).passed

    @pytest.mark.parametrize(
        "now", [searching(OTHER), searching(""), searching(OWN, name="pii"), searching(OTHER, "2")]
    )
    def test_another_one_or_none_is_not_evaluated_though_the_rule_is_optional(self, keys, now):
        found = verdict_of(rule(**keys), searched(**now), detectors={"secrets": OWN})
        (case,) = found.rules[0].cases
        assert (case.state, case.reason) == (State.NOT_EVALUATED, "other_than_demanded")
        assert found.exit_code == ExitCode.NOT_EVALUATED

    def test_a_stage_that_is_off_is_not_evaluated(self, keys):
        found = verdict_of(rule(**keys), facts(covered(), **searching("")), detectors={"secrets": OWN})
        assert found.exit_code == ExitCode.NOT_EVALUATED

    def test_what_was_found_all_the_same_fails(self, keys):
        found = verdict_of(rule(**keys), searched((9, 0), **searching(OTHER)), detectors={"secrets": OWN})
        assert found.rules[0].state == State.FAILED

    def test_a_rule_that_warns_or_waits_for_a_baseline_does_not_hide_it(self, keys):
        change = {key: value for key, value in WHOLE.items() if key != "budget"} | {"change": 1, "baseline": "optional"}
        for one in ({**keys, "severity": "warn", "budget": 0}, change if keys is WHOLE else keys):
            found = verdict_of(rule(**one), searched((1, 0), **searching(OTHER)), detectors={"secrets": OWN})
            assert found.exit_code == ExitCode.NOT_EVALUATED
            assert not found.waiting


def test_it_is_said_which_detector_and_what_to_type():
    found = verdict_of(rule(**WHOLE), searched(**searching(OTHER)), detectors={"secrets": OWN})
    assert found.rules[0].cases[0].why == "secrets bbbbbbbbbbbb..., demanded aaaaaaaaaaaa..."
    (remark,) = found.remarks
    assert remark.startswith(
        "The policy demands the detector secrets of sha256 aaaaaaaaaaaa...; the manifest was searched by another: v 1."
    )
    assert f"write `secrets: {OTHER}` under `detectors`" in remark
    (remark,) = verdict_of(rule(**WHOLE), searched(**searching("")), detectors={"secrets": OWN}).remarks
    assert "was searched without it. Build again with the stage" in remark


def test_rules_that_rest_on_other_detectors_are_judged():
    other = rule(name="near", required=False)
    demanding = Policy.model_validate(policy(rule(**WHOLE), other).model_dump() | {"detectors": {"secrets": OWN}})
    found = evaluate(
        demanding,
        facts(covered(), record(METRIC, "hits", 0.0, "hits"), record(), **searching(OTHER)),
        on=dt.date(2026, 11, 27),
    )
    assert [one.state for one in found.rules[:2]] == [State.NOT_EVALUATED, State.PASSED]


def test_a_judge_of_toxicity_can_be_demanded():
    keys = {"metric": "data_toxicity_rate", "stat": "rate", "budget": 0.5}
    now = facts(covered(), record("data_toxicity_rate", "rate", 0.1), **searching(OTHER, name="detoxify original"))
    for wanted, code in ((OTHER, ExitCode.PASS), (OWN, ExitCode.NOT_EVALUATED)):
        assert verdict_of(rule(**keys), now, detectors={"detoxify original": wanted}).exit_code == code


@pytest.mark.parametrize("name", ["secret", "presidio", "detoxify original", "combined", "judge", "language detection"])
def test_a_detector_that_no_rule_rests_on_is_an_error(name):
    demanding = Policy.model_validate(policy(rule(**WHOLE)).model_dump() | {"detectors": {name: OWN}})
    with pytest.raises(ConfigError, match=f"no rule rests on a detector `{name}`"):
        check_detectors(demanding, "policy p")


@pytest.mark.parametrize("wanted", ["", "a" * 63, "A" * 64, "sha256:" + OWN, [], 5, None, True])
def test_what_is_no_digest_is_refused(wanted):
    with pytest.raises(ValueError, match="detectors"):
        Policy.model_validate(policy(rule(**WHOLE)).model_dump() | {"detectors": {"secrets": wanted}})


def test_a_policy_that_demands_none_keeps_its_digest():
    plain = policy(rule(**WHOLE)).model_dump()
    assert Policy.model_validate(plain | {"detectors": None}).digest == policy(rule(**WHOLE)).digest
    assert Policy.model_validate(plain | {"detectors": {"secrets": OWN}}).digest != policy(rule(**WHOLE)).digest


@pytest.mark.parametrize("name", ["release-gate", "strict"])
def test_ready_policies_demand_the_detectors_that_ship(name):
    shipped = {"pii": load_pii().own_digest, "secrets": load_secrets().own_digest}
    shipped = {key: digest.removeprefix("sha256:") for key, digest in shipped.items()}
    expected = {key: (digest,) for key, digest in {**shipped, "dataaudit-screen": find_screen().sha256}.items()}
    assert policy_of(builtin_path(name)).detectors == expected


def test_versions_of_libraries_are_no_part_of_the_digest_that_is_demanded(monkeypatch):
    own, whole = load_pii().own_digest, load_pii().digest
    monkeypatch.setattr("dataaudit.scan.detectors.pii.shipped.version", lambda name: "99.0")
    assert load_pii().own_digest == own
    assert load_pii().digest != whole


NARROWED = {
    "a kind that is off": "JSON_WEB_TOKEN: {enabled: false}",
    "a rule that can match nothing": "JSON_WEB_TOKEN: {rules: [{regex: 'zzzzqqqqzzzz[0-9]{9}'}]}",
    "another kind": "OURS: {rules: [{regex: 'ours_[0-9]{9}'}]}",
}


@pytest.mark.parametrize("text", NARROWED.values(), ids=NARROWED)
def test_rules_of_a_config_change_the_digest(tmp_path, text):
    (tmp_path / "rules.yaml").write_text(f"entities: {{{text}}}")
    assert load_secrets([tmp_path / "rules.yaml"]).own_digest != load_secrets().own_digest


def test_an_allow_list_of_a_config_changes_the_digest(tmp_path):
    (tmp_path / "allow.txt").write_text("0" * 64 + "\n")
    assert load_secrets(allow=tmp_path / "allow.txt").own_digest != load_secrets().own_digest


@pytest.mark.parametrize(("validated", "said"), [(0, "0 validated secrets"), (1, "1 validated secret"), (7, "")])
def test_secrets_that_nothing_confirms_are_remarked_on(validated, said):
    """`secrets 0 hits` is not all that there is to say where seven passwords were found."""
    only = rule(metric=METRIC, stat="validated_hits", unit="hits", budget=9)
    records = [record(METRIC, "validated_hits", float(validated), "hits"), record(METRIC, "hits", 7.0, "hits")]
    found = verdict_of(only, facts(covered(), *records))
    expected = f"Beside {said} there are {7 - validated} hits that nothing confirms"
    assert [remark.startswith(expected) for remark in found.remarks] == [True] * bool(said)
    both = policy(only, rule(name="all", **WHOLE))
    assert not evaluate(both, facts(covered(), *records), on=dt.date(2026, 11, 27)).remarks


def test_a_corpus_without_a_held_out_split_is_not_said_to_have_a_stage_off():
    """Nobody switched it off: a build without one has nothing to compare."""
    leaks = rule(metric="train_val_overlap", stat="near_dup", scope={"per": "set"})
    found = evaluate(policy(leaks), facts(covered(), splits={"train": False}), on=dt.date(2026, 11, 27))
    assert found.rules[0].cases[0].why == "no held-out split"
