"""Which shards are behind a verdict: ranked over all rules that fail, the same in every output."""

import datetime as dt
from dataclasses import replace

import orjson
import pytest
from made_facts import record, rule
from made_manifest import make, shard

from dataaudit.base.render.line import spell
from dataaudit.decide.gate.document import gate_json, read_verdict
from dataaudit.decide.gate.policy import Policy
from dataaudit.decide.gate.run import judge
from dataaudit.decide.gate.writers.blocks import terminal_text
from dataaudit.decide.gate.writers.writing import comment
from dataaudit.manifest.load import load_manifest
from dataaudit.present.report.page import page_of

pytestmark = pytest.mark.usefixtures("odd_numbers")
DAY = dt.date(2026, 11, 22)
COPIES = rule("copies", "exact_dup_rate", budget=0)
SECRETS = rule("keys", "secret_hit_rate", "validated_hits", "hits", budget=0)
UNREAD = rule("read", "coverage_unread_bytes", "shard_bytes", "bytes", budget=0)


def judged(folder, *rules, baseline=None, **more):
    made = Policy.model_validate({"policy": "p", "rules": [one.model_dump() for one in rules], **more})
    older = None if baseline is None else load_manifest(baseline)
    return judge(load_manifest(folder), made, baseline=older, on=DAY)


@pytest.fixture
def broken(tmp_path):
    """Return a manifest: `a` holds most copies, `b` some and a key, `lost` was not read, eight more hold a few."""
    few = [shard(f"c{n}.jsonl", sha256=f"c{n}" * 32, exact_dup_rate=0.1, secrets_validated=0) for n in range(8)]
    shards = [
        shard("a.jsonl", documents=100, exact_dup_rate=0.9, secrets_validated=0),
        shard("b.jsonl", sha256="bb" * 32, exact_dup_rate=0.2, secrets_validated=1),
        *few,
        shard("lost.jsonl", status="quarantined", size=77, sha256=""),
    ]
    metrics = [
        record("exact_dup_rate", "rate", 0.5),
        record("secret_hit_rate", "validated_hits", 1.0, "hits"),
        record("coverage_unread_bytes", "shard_bytes", 77.0, "bytes"),
    ]
    make(tmp_path / "m", shards, metrics=metrics)
    return tmp_path / "m"


def behind(verdict):
    return [(one.uri, one.rules, one.weight) for one in verdict.shards_behind]


def test_little_of_many_rules_hides_no_shard_that_holds_most_of_one(tmp_path):
    """Rules about one fault, as those of leaks, break together: a shard with a bit of each is not the worst."""
    shards = [
        shard("bits.jsonl", documents=100, exact_dup_rate=0.1, secrets_validated=1, sha256="bb" * 32),
        shard("copies.jsonl", documents=100, exact_dup_rate=0.9, secrets_validated=0),
        shard("keys.jsonl", documents=100, exact_dup_rate=0.0, secrets_validated=9, sha256="cc" * 32),
    ]
    metrics = [record("exact_dup_rate", "rate", 0.5), record("secret_hit_rate", "validated_hits", 10.0, "hits")]
    make(tmp_path / "m", shards, metrics=metrics)
    found = [(one.uri, len(one.rules)) for one in judged(tmp_path / "m", COPIES, SECRETS).shards_behind]
    assert found == [("train/copies.jsonl", 1), ("train/keys.jsonl", 1), ("train/bits.jsonl", 2)]


def test_the_shard_of_most_weight_comes_first(broken):
    """`b` broke two rules; `lost` is all of one, `a` 90 of 100 copies of another."""
    found = behind(judged(broken, COPIES, SECRETS, UNREAD))
    assert found[:4] == [
        ("train/b.jsonl", ("copies", "keys"), 1.02),
        ("train/lost.jsonl", ("read",), 1.0),
        ("train/a.jsonl", ("copies",), 0.9),
        ("train/c0.jsonl", ("copies",), 0.01),
    ]
    assert len(found) == 11


def test_what_does_not_stop_the_release_has_no_part_in_it(broken):
    """A rule that warns, one that holds, and what a waiver covers."""
    warns = rule("copies", "exact_dup_rate", budget=0, severity="warn")
    holds = rule("keys", "secret_hit_rate", "validated_hits", "hits", budget=9)
    assert [one.uri for one in judged(broken, warns, holds, UNREAD).shards_behind] == ["train/lost.jsonl"]
    case = judged(broken, UNREAD, SECRETS).rules[1].cases[0]
    waiver = {"fingerprint": case.fingerprint, "rule": "keys", "owner": "me", "reason": "-", "expires": dt.date.max}
    waived = judged(broken, UNREAD, SECRETS, waivers=[waiver])
    assert [one.uri for one in waived.shards_behind] == ["train/lost.jsonl"]


def test_shards_that_are_cases_themselves_count_alike(broken):
    """Two of eleven are beyond the limit: half of the rule each."""
    one = rule("each", "exact_dup_rate", budget=0.15, scope={"per": "shard"}, allow_empty=True)
    found = [(shard.uri, shard.weight) for shard in judged(broken, one, UNREAD).shards_behind if "each" in shard.rules]
    assert found == [("train/a.jsonl", 0.5), ("train/b.jsonl", 0.5)]


def test_several_cases_of_a_rule_are_one_rule(tmp_path):
    """The copies of all sources are added; a shard in two cases is in one rule."""
    shards = [
        shard("a.jsonl", exact_dup_rate=0.6, sources={"code": 50, "web": 50}),
        shard("b.jsonl", exact_dup_rate=0.4, sha256="bb" * 32),
    ]
    metrics = [record("exact_dup_rate", "rate", 0.5, source=name) for name in ("code", "web")]
    make(tmp_path / "m", shards, metrics=metrics)
    one = rule("copies", "exact_dup_rate", budget=0, scope={"per": "source"})
    assert behind(judged(tmp_path / "m", one))[:2] == [
        ("train/a.jsonl", ("copies",), 0.75),
        ("train/b.jsonl", ("copies",), 0.25),
    ]


def test_no_weight_tells_a_small_count_of_personal_data(tmp_path):
    """A shard of 4 documents is not named; 6 and 14 are 10 each, as they are shown."""
    shards = [shard(f"{n}.jsonl", pii_documents=n, documents=50, sha256=f"{n:02}" * 32) for n in (4, 6, 14)]
    make(tmp_path / "m", shards, metrics=[record("pii_hit_rate", "documents", 0.2)])
    found = judged(tmp_path / "m", rule("people", "pii_hit_rate", "documents", budget=0))
    told = {one.uri: one.weight for one in found.shards_behind if "people" in one.rules}
    assert told == {"train/6.jsonl": 0.5, "train/14.jsonl": 0.5}


def test_every_output_names_them_first(broken, tmp_path):
    """Five in the terminal and in the comment, all in gate.json and on the page."""
    verdict = judged(broken, COPIES, SECRETS, UNREAD)
    text, page = terminal_text(verdict, width=120), comment(verdict)
    for shown in (text, page):
        assert shown.index("Shards behind this") < shown.index("What does not hold") < shown.index("Where to look")
        part = shown[shown.index("Shards behind this") : shown.index("What does not hold")]
        assert part.index("b.jsonl") < part.index("lost.jsonl") < part.index("a.jsonl")
        assert part.count(".jsonl") == 5
        assert "6 more shards" in part
    assert text.index("Shards behind this") < text.index("manifest  ")
    document = orjson.loads(gate_json(verdict))["verdict"]
    assert len(document["shards_behind"]) == document["num_shards_behind"] == 11
    (tmp_path / "gate.json").write_bytes(gate_json(verdict))
    assert read_verdict(tmp_path / "gate.json").shards_behind == verdict.shards_behind
    report = page_of(load_manifest(broken), verdict)
    assert report.findings[0].head == "Shards behind this"
    assert len(report.sections[0].blocks[0].rows) == 11
    six = page_of(load_manifest(broken), replace(verdict, num_shards_behind=6))
    assert spell(six.findings[0].text).endswith(", 1 more shard.")


def test_shards_that_are_new_since_the_baseline_are_marked(broken, tmp_path):
    """One that could not be read goes by its name, as nobody knows what it holds."""
    shards = [shard("b.jsonl", sha256="bb" * 32), shard("lost.jsonl", status="quarantined", sha256="")]
    make(tmp_path / "old", shards, metrics=[record("exact_dup_rate", "rate", 0.0)])
    verdict = judged(broken, COPIES, SECRETS, UNREAD, baseline=tmp_path / "old")
    assert {one.uri: one.fresh for one in verdict.shards_behind[:3]} == {
        "train/b.jsonl": False,
        "train/lost.jsonl": False,
        "train/a.jsonl": True,
    }
    assert "copies, new since the baseline" in " ".join(terminal_text(verdict, width=160).split())


def test_a_verdict_that_passes_names_no_shard(tmp_path):
    make(tmp_path / "m", [shard("a.jsonl")], metrics=[record("exact_dup_rate", "rate", 0.1)])
    verdict = judged(tmp_path / "m", rule("copies", "exact_dup_rate", budget=0.5))
    assert (verdict.shards_behind, verdict.num_shards_behind) == ((), 0)
    assert "Shards behind" not in terminal_text(verdict)


DATA, SUCH = "documents with personal data", "documents with such personal data"


def found(entity, tier, number):
    return {"entity": entity, "tier": tier, "hits": 2 * number, "documents": number}


@pytest.mark.parametrize(
    ("metric", "stat", "unit", "entity", "named"),
    [
        ("secret_hit_rate", "validated_hits", "hits", None, [("a", 2, "validated secrets")]),
        ("secret_hit_rate", "contextual_hits", "hits", None, [("b", 4, "contextual secrets")]),
        ("secret_hit_rate", "hits", "hits", None, [("b", 4, "secrets"), ("a", 2, "secrets")]),
        ("secret_hit_rate", "hits", "hits", "URL_PASSWORD", [("b", 4, "secrets")]),
        ("secret_hit_rate", "truncated", "documents", None, []),
        ("secret_hit_rate", "reserved", "hits", None, []),
        ("pii_hit_rate", "documents", "ratio", None, [("a", 80, DATA), ("b", 9, DATA)]),
        ("pii_hit_rate", "documents", "ratio", "CREDIT_CARD", [("b", 9, SUCH)]),
        ("pii_hit_rate", "contextual_documents", "ratio", None, [("b", 9, SUCH)]),
        ("pii_hit_rate", "documents", "ratio", "EMAIL_ADDRESS", [("a", 80, SUCH)]),
        ("pii_hit_rate", "analyzer_documents", "ratio", None, []),
    ],
)
def test_only_findings_of_the_rule_s_kind_and_tier_name_a_shard(tmp_path, metric, stat, unit, entity, named):
    """A shard of mail addresses is not behind a rule about credit cards, nor are confirmed keys behind passwords."""
    mails = [found("EMAIL_ADDRESS", "pattern", 70), found("EMAIL_ADDRESS", "validated", 75)]
    cards = [found("CREDIT_CARD", "contextual", 9), found("CREDIT_CARD", "validated", 2)]
    keys = {"secret_hits": 2, "secrets_validated": 2, "secrets": [found("GITHUB_TOKEN", "validated", 1)]}
    passwords = {"secret_hits": 4, "secrets_validated": 0, "secrets": [found("URL_PASSWORD", "contextual", 2)]}
    shards = [
        shard("a", documents=100, pii_documents=80, pii=mails, **keys),
        shard("b", documents=100, pii_documents=9, pii=cards, sha256="bb" * 32, **passwords),
    ]
    scope = {} if entity is None else {"entity": entity}
    make(tmp_path / "m", shards, metrics=[record(metric, stat, 0.5 if unit == "ratio" else 5.0, unit, **scope)])
    one = rule("r", metric, stat, unit, budget=0, scope=scope)
    evidence = judged(tmp_path / "m", one).rules[0].cases[0].evidence
    assert [(place.uri.removeprefix("train/"), place.count, place.noun) for place in evidence] == named


def test_copies_within_a_split_are_not_those_of_other_splits(tmp_path):
    """Of `copies`, three documents stand in training; in its own split `again` alone repeats one."""
    shards = [
        shard("train.jsonl", documents=10),
        shard("copies.jsonl", split="val", documents=10, exact_dup_rate=0.3, sha256="bb" * 32),
        shard("again.jsonl", split="val", documents=10, exact_dup_rate=0.1, sha256="cc" * 32),
    ]
    clusters = [("exact", place, 0, place, True) for place in range(3)]
    clusters += [("exact", place, 1, place, False) for place in range(3)] + [("exact", 0, 2, 5, False)]
    metrics = [record("exact_dup_rate", "within_split_rate", 0.05, split="val")]
    make(tmp_path / "m", shards, metrics=metrics, clusters=clusters, odd=True)
    one = rule("r", "exact_dup_rate", "within_split_rate", budget=0, scope={"split": "val"})
    assert [place.uri for place in judged(tmp_path / "m", one).rules[0].cases[0].evidence] == ["val/again.jsonl"]
