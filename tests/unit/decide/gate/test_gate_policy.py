"""Policies: what may stand in one, and what is said of what may not."""

import datetime as dt
import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from made_facts import rule

from dataaudit.base.errors import ConfigError
from dataaudit.decide import gate
from dataaudit.decide.gate import policy_path
from dataaudit.decide.gate.number_texts import REASONS, reason_text
from dataaudit.decide.gate.policy import parse_policy
from dataaudit.decide.gate.run import policy_of
from dataaudit.decide.gate.scopes import SHARD_STATISTICS, rule_problems
from dataaudit.explain import names
from dataaudit.schemas import SCHEMAS

ROOT = Path(__file__).parents[4]
SCHEMA = SCHEMAS["policy"][1]()
HEAD = "policy: p\nrules:\n  - {name: r, metric: near_dup_rate, stat: rate, unit: ratio, budget: 0.1"

WAIVER = "rule: r, owner: o, reason: x"


def parsed(more):
    """Return the policy with this behind its one rule's keys."""
    return parse_policy(f"{HEAD}{more}", where="p.yaml", more=rule_problems)


@pytest.mark.parametrize("name", ["release-gate", "strict", "canary"])
def test_the_policies_that_are_ready_can_be_judged_and_meet_the_schema(name):
    path = policy_path(Path(name))
    assert path == ROOT / "pipelines" / f"{name}.yaml"
    assert policy_of(path).policy == name
    jsonschema.validate(yaml.safe_load(path.read_text("utf-8")), SCHEMA)


@pytest.mark.parametrize("name", ["release-gate", "strict", "canary"])
def test_runbooks_of_the_ready_policies_are_commands_that_print_a_page(name):
    """Where the wheel is installed and no repository is."""
    known, _ = names()
    for one in policy_of(policy_path(Path(name))).rules:
        assert one.runbook is None or one.runbook.removeprefix("dataaudit explain ") in known


def test_a_file_of_the_current_folder_comes_before_the_ready_policy_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert policy_path(Path("strict")).parent == ROOT / "pipelines"
    Path("strict").write_text(HEAD)
    assert policy_path(Path("strict")) == Path("strict")
    assert policy_path(Path("./lenient")) == Path("lenient")


def test_in_an_installed_package_the_ready_policies_lie_beside_the_gate(tmp_path, monkeypatch):
    monkeypatch.setattr(gate, "_PACKAGE", tmp_path)
    (tmp_path / "policies").mkdir()
    assert policy_path(Path("canary")) == tmp_path / "policies/canary.yaml"


@pytest.mark.parametrize(
    "budget", ["yes", "true", "'0.1'", "010", "1:30", ".inf", ".nan", "1e400", "2027-01-31", "1_0", "0x1"]
)
def test_a_budget_that_looks_like_a_number_and_is_none_is_refused(budget):
    """YAML 1.1 takes `010` for 8, and a program may take `yes` for 1: a rate would never be above it."""
    with pytest.raises(ConfigError, match=r"budget: expected a (finite )?number"):
        parse_policy(HEAD.replace("budget: 0.1", f"budget: {budget}") + "}", where="p.yaml")


@pytest.mark.parametrize("budget", ["0", "1", "-2", "0.001", "1e-3", "1E3", "1.5e+2", ".5"])
def test_a_budget_may_be_written_in_any_form_of_a_number(budget):
    made = parse_policy(HEAD.replace("budget: 0.1", f"budget: {budget}") + "}", where="p.yaml")
    assert made.rules[0].budget == float(budget)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("}", None),
        (", scope: {per: source}}", None),
        (", scope: {per: [split, source]}}", None),
        (", scope: {split: train, per: source}}", None),
        (", change: 0.1}", "expected exactly one of budget, change, relative_change, robust_sd, found budget, change"),
        (", comparator: '!='}", "comparator"),
        (", severity: critical}", "severity"),
        (", owner: 7}", "put it in quotes"),
        (", required: 'no'}", "expected true or false"),
        (", allow_empty: 1}", "expected true or false"),
        ("}\nwaivers: [{fingerprint: 0123456789abcdef, expires: 1830297600, " + WAIVER + "}]", "expected a day"),
        (", bugdet: 0.2}", "did you mean `budget`?"),
        (", direction: up}", "`direction` goes with a change"),
        (", scope: {per: source, source: web}}", "either named or in `per`"),
        (", scope: {per: language}}", "is not kept per language, but for: the whole dataset, source, split"),
        (", scope: {per: planet}}", "scope.per"),
        (", scope: {source: []}}", "scope.source"),
        (", budget: .nan}", "given twice"),
    ],
)
def test_a_rule_is_checked_and_the_message_says_what_is_wrong(more, says):
    if says is None:
        assert parsed(more).rules[0].name == "r"
        return
    with pytest.raises(ConfigError, match=re.escape(says)):
        parsed(more)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"metric": "near_dup_rat"}, "no metric is named `near_dup_rat` (did you mean `near_dup_rate`?)"),
        ({"stat": "rates"}, "`near_dup_rate` has no stat `rates` (did you mean `rate`?)"),
        ({"stat": "zz*"}, "has no stat `zz*`"),
        ({"unit": "percent"}, "`near_dup_rate.rate` is in ratio, the rule's unit is `percent`"),
        ({"metric": "pad_fraction", "stat": "*"}, None),
        ({"metric": "near_dup_rate", "stat": "*"}, "is in clusters and count and documents and pairs and ratio"),
        ({"metric": "pad_fraction", "stat": "packed_*", "scope": {"per": "source"}}, "packed_2048` is not kept"),
        (
            {
                "metric": "pii_hit_rate",
                "stat": "validated_hits",
                "unit": "hits per million tokens",
                "scope": {"per": "shard"},
            },
            "is not kept per shard; these are: documents.count",
        ),
        ({"budget": 5}, "a ratio lies between 0 and 1, the limit is 5; five percent are 0.05"),
        ({"budget": -0.1}, "a ratio lies between 0 and 1"),
        ({"change": 2}, "a ratio lies between 0 and 1"),
        ({"relative_change": 2}, None),
        ({"scope": {"per": ["shard", "source"]}}, "`per: shard` goes with `split` alone"),
        ({"scope": {"per": "shard"}, "change": 0.1}, "shards are not compared with those of a baseline"),
    ],
)
def test_a_rule_that_could_never_be_judged_is_an_error(given, says):
    """A name that is written wrongly would be `not_applicable` for ever in an optional rule."""
    made = parse_policy("policy: p\nrules: [{name: x, metric: m, stat: s, unit: u, budget: 1}]", where="p.yaml")
    made = made.model_copy(update={"rules": (rule(**given),)})
    if says is None:
        assert policy_of(made) is made
        return
    with pytest.raises(ConfigError, match=re.escape(says)):
        policy_of(made)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected a mapping"),
        ("policy: p\nrules: []", "expected at least one entry"),
        ("policy: p\nrules: 3", "rules: expected a list"),
        ("rules:\n- a: [", "not valid YAML, line"),
        (
            f"{HEAD}}}\n  - {{name: r, metric: near_dup_rate, stat: rate, unit: ratio, budget: 1}}",
            "two rules are named `r`",
        ),
        (
            f"{HEAD}}}\nwaivers: [{{fingerprint: abc, rule: r, owner: o, reason: x, expires: 2026-01-01}}]",
            "fingerprint",
        ),
        (f"{HEAD}}}\nwaivers: [{{fingerprint: {'a' * 16}, rule: r, owner: o, reason: x, expires: soon}}]", "expires"),
        (
            f"{HEAD}}}\nwaivers: [{{fingerprint: {'a' * 16}, rule: r, reason: x, expires: 2026-01-01}}]",
            "owner: required",
        ),
    ],
)
def test_a_file_that_is_no_policy_says_why(text, says):
    with pytest.raises(ConfigError, match=re.escape(says)):
        parse_policy(text, where="p.yaml")


def test_a_policy_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nothing.yaml cannot be read: No such file"):
        policy_of(tmp_path / "nothing.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"policy: \xff")
    with pytest.raises(ConfigError, match="it is not UTF-8"):
        policy_of(tmp_path / "latin.yaml")


def test_the_schema_refuses_what_the_program_refuses():
    good = yaml.safe_load(f"{HEAD}, scope: {{per: source}}}}")
    jsonschema.validate(good, SCHEMA)
    for more in ({"change": 0.1}, {"severity": "critical"}, {"bugdet": 1}, {"scope": {"per": "planet"}}):
        bad = {"policy": "p", "rules": [good["rules"][0] | more]}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, SCHEMA)


def test_the_digest_of_a_policy_is_of_what_it_says_and_not_of_how_it_is_written():
    spaced = parse_policy(f"# a comment\n{HEAD} , severity:   fail}}", where="p")
    assert spaced.digest == parse_policy(f"{HEAD}}}", where="p").digest
    assert spaced.digest != parse_policy(f"{HEAD}, severity: warn}}", where="p").digest


class TestPage:
    PAGE = (ROOT / "docs/reference/gate.md").read_text("utf-8")

    def test_the_policy_of_the_page_is_one(self, tmp_path):
        (tmp_path / "p.yaml").write_text(re.search(r"```yaml\n(.*?)```", self.PAGE, re.DOTALL)[1])
        assert [one.name for one in policy_of(tmp_path / "p.yaml").rules] == ["no-leaks", "mixture", "odd-shards"]

    def test_every_key_of_a_rule_is_explained(self):
        told = set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (.*?) \|", self.PAGE, re.MULTILINE))))
        assert set(SCHEMA["$defs"]["Rule"]["properties"]) <= told

    def test_the_reasons_are_those_of_the_code(self):
        rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", self.PAGE.partition("## Reasons")[2], re.MULTILINE))
        assert rows == REASONS

    def test_a_reason_of_the_baseline_is_said_to_be_one(self):
        assert reason_text("baseline_no_judge") == "of the baseline: the build had no judge"
        assert reason_text("something_new") == "something new"

    def test_the_numbers_of_single_shards_are_those_of_the_code(self):
        told = re.findall(r"`(\w+\.\w+)`", re.split(r"Per\s+shard\s+there\s+are:", self.PAGE)[1].partition(".\n\n")[0])
        assert told == [f"{one.metric}.{one.stat}" for one in SHARD_STATISTICS]


def test_a_key_that_came_later_and_is_not_given_leaves_the_digest_as_it_was():
    """Statements and pins name policies by digest."""
    before = "sha256:98a7664df71fee4ff81804ddfaf7ce61d31d8aefa77984bb5d1e0373f92cc1f8"
    waiver = f"waivers: [{{fingerprint: {'a' * 16}, rule: r, owner: o, reason: x, expires: 2027-01-31"
    assert parse_policy(f"{HEAD}}}\n{waiver}}}]", where="p").digest == before
    assert parse_policy(f"{HEAD}}}\n{waiver}, up_to: 2}}]", where="p").digest != before


def test_all_that_is_wrong_with_a_policy_is_said_at_once_by_rule():
    """Of each kind one: form, what does not go together, the catalogue, two rules, waivers."""
    text = """
policy: p
rules:
  - {name: typo, metric: near_dup_rate, stat: rate, unit: ratio, bugdet: 1}
  - {name: both, metric: near_dup_rate, stat: rate, unit: ratio, change: 0.1, comparator: '>=', warn: 0.2}
  - {name: far, metric: near_dup_rat, stat: rate, unit: ratio, budget: 1}
  - {name: far, metric: near_dup_rate, stat: rate, unit: percent, budget: 1}
  - {metric: near_dup_rate}
  - {name: two-ways, metric: near_dup_rat, stat: rate, unit: ratio, budget: '1'}
  - {name: capped, metric: near_dup_rate, stat: rate, unit: ratio, budget: 0.5}
waivers:
  - {fingerprint: 0123456789abcdef, rule: farr, owner: o, reason: x, expires: 2027-01-31}
  - {fingerprint: 0123456789abcdef, rule: far, owner: o, reason: x, expires: soon}
  - {fingerprint: 1123456789abcdef, rule: capped, owner: o, reason: x, expires: 2026-12-31, up_to: 0.4}
  - {fingerprint: 2123456789abcdef, rule: capped, owner: o, reason: x, expires: 2027-12-31}
"""
    with pytest.raises(ConfigError) as error:
        parse_policy(text, where="p.yaml", more=rule_problems, on=dt.date(2026, 11, 23))
    lines = str(error.value).splitlines()
    told = [
        "  rule `typo`: bugdet: unknown key (did you mean `budget`?)",
        "  rule `both`: a limit of change is compared with `<=` or `<`",
        "  rule `far`: no metric is named `near_dup_rat`",
        "  rule `far`: `near_dup_rate.rate` is in ratio, the rule's unit is `percent`",
        "  rules.4.name: required, but absent",
        "  two rules are named `far`",
        "  rule `two-ways`: budget: expected a number, found the text '1'",
        "  rule `two-ways`: no metric is named `near_dup_rat`",
        "  the waiver 0123456789abcdef of the rule `far`: expires: ",
        "  the waiver 1123456789abcdef of the rule `capped`: `up_to` is 0.4, expected a number beyond the rule's limit",
        "  the waiver 2123456789abcdef of the rule `capped`: it ends on 2027-12-31, 403 days from now; expected",
        "  a waiver names the rule `farr`, which is not here (did you mean `far`?)",
    ]
    assert [one for one in told if not any(line.startswith(one) for line in lines)] == []
    assert f"{len(lines) - 1} problem(s)" in lines[0]


def test_what_is_wrong_with_waivers_is_said_beside_a_wrong_rule(tmp_path):
    """A term that is too long waits for no second run."""
    policy = tmp_path / "p.yaml"
    policy.write_text(
        "policy: p\nrules: [{name: a, metric: tokens, stat: cuont, unit: tokens, budget: 1}]\n"
        "waivers: [{fingerprint: 0123456789abcdef, rule: a, owner: o, reason: x, expires: 2999-12-31}]\n"
    )
    with pytest.raises(ConfigError) as error:
        policy_of(policy)
    assert "2 problem(s)" in str(error.value)
    assert "no stat `cuont`" in str(error.value)
    assert "the waiver 0123456789abcdef of the rule `a`: it ends on 2999-12-31" in str(error.value)
