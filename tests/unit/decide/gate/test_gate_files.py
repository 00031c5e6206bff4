"""The gate from files: facts of a published manifest, evidence, gate.json, and what a changed table means."""

import datetime as dt

import jsonschema
import orjson
import pytest
from forged import rewrite
from made_facts import covered, facts, policy, record, rule
from made_manifest import make, shard

from dataaudit.base.errors import ExitCode, ManifestError, ManifestMismatch
from dataaudit.decide.gate.document import gate_json, read_verdict
from dataaudit.decide.gate.evidence import failing
from dataaudit.decide.gate.policy import Policy
from dataaudit.decide.gate.run import evaluate, judge
from dataaudit.decide.gate.verdict import State, WaiverState
from dataaudit.decide.gate.writers.blocks import terminal_text, verdict_title
from dataaudit.manifest.load import load_manifest
from dataaudit.metrics.overlap.evidence import leak_sites
from dataaudit.schemas import SCHEMAS

pytestmark = pytest.mark.usefixtures("odd_numbers")
DAY = dt.date(2026, 11, 22)


def span(set_, shard_, row, kind="span"):
    """Return a row of the table of overlaps."""
    return {
        "set": set_,
        "item": "4:0",
        "part": "document",
        "tier": "verbatim",
        "rule": kind,
        "shard": shard_,
        "row": row,
        "start": 0,
        "end": 9,
        "score": 1.0,
        "score_without_common": 1.0,
    }


@pytest.fixture
def leaked(tmp_path):
    """Return a manifest with copies of `val` in two shards, near-duplicates in one, duplicates and secrets."""
    shards = [
        shard("a.jsonl", documents=100, exact_dup_rate=0.5, secrets_validated=3, pii_documents=2),
        shard("b.jsonl", documents=100, sha256="bb" * 32, exact_dup_rate=0.02, secrets_validated=0, pii_documents=40),
        shard(
            "c.jsonl",
            documents=10,
            sources={"code": 100},
            sha256="cc" * 32,
            exact_dup_rate=1.0,
            secrets_validated=1,
            pii_documents=6,
        ),
        shard("d.jsonl", documents=10, sources={"code": 100}, sha256="cc" * 32),
        shard("broken.jsonl", status="quarantined", size=77, sha256=""),
        shard("v.jsonl", split="val", documents=10),
    ]
    metrics = [
        record("train_val_overlap", "span", 0.2, set="val"),
        record("train_val_overlap", "near_dup", 0.3, set="val"),
        record("exact_dup_rate", "rate", 0.3),
        record("exact_dup_rate", "rate", 0.2, source="web"),
        record("exact_dup_rate", "rate", 0.9, source="code"),
        record("secret_hit_rate", "validated_hits", 4.0, "hits"),
        record("pii_hit_rate", "documents", 0.2),
        record("pii_hit_rate", "documents", 0.2346, source="web"),
        record("pii_hit_rate", "documents", 0.04, source="code"),
        record("coverage_unread_bytes", "shard_bytes", 77.0, "bytes"),
    ]
    # Shards are ordered by split and URI: a, b, broken, c, d, v.
    overlap = [span("val", 1, 3), span("val", 1, 4), span("val", 0, 7), span("val", 0, 8, "ngram"), span("quiz", 3, 1)]
    pair = {"left_shard": 1, "left_row": 5, "right_shard": 5, "right_row": 1, "jaccard": 0.9, "verified": True}
    pairs = [pair, pair | {"right_row": 2}, pair | {"left_row": 6}, pair | {"left_row": 9, "verified": False}]
    make(
        tmp_path / "m",
        sorted(shards, key=lambda row: (row["split"], row["uri"])),
        metrics=metrics,
        tables={"overlap": overlap, "pairs": pairs},
    )
    return tmp_path / "m"


def judged(folder, *rules, baseline=None, **more):
    made = Policy.model_validate({"policy": "p", "rules": [one.model_dump() for one in rules]})
    older = None if baseline is None else load_manifest(baseline)
    return judge(load_manifest(folder), made, baseline=older, on=DAY, **more)


def evidence(folder, one):
    return [(found.uri, found.count) for found in judged(folder, one).rules[0].cases[0].evidence]


OVERLAP = {"metric": "train_val_overlap", "scope": {"per": "set"}, "budget": 0}
COVERAGE = {"metric": "coverage_unread_bytes", "unit": "bytes"}


@pytest.mark.parametrize(
    ("scores", "named"),
    [({0: 0.2, 1: 0.7}, ["b.jsonl"]), ({0: 0.2, 1: 0.5}, ["b.jsonl"]), ({0: 0.2, 1: 0.3}, ["a.jsonl", "b.jsonl"])],
)
def test_documents_with_less_than_half_of_the_grams_are_named_where_no_others_are(tmp_path, scores, named):
    """A tenth of the 13-grams makes no document leak: a template that many share stood before the copies."""
    shards = [shard("a.jsonl"), shard("b.jsonl", sha256="bb" * 32), shard("v.jsonl", split="val")]
    overlap = [
        span("val", at, 0, "ngram") | {"score": score, "score_without_common": score} for at, score in scores.items()
    ]
    metrics = [record("train_val_overlap", stat, 0.2, set="val") for stat in ("ngram", "ngram_without_common")]
    make(tmp_path / "m", shards, metrics=metrics, tables={"overlap": overlap})
    for stat in ("ngram", "ngram_without_common"):
        assert [uri for uri, _ in evidence(tmp_path / "m", rule(stat=stat, **OVERLAP))] == [f"train/{x}" for x in named]
    sites = [site.name for site in leak_sites(load_manifest(tmp_path / "m"))]
    assert sites == [f"train/{x}" for x in named if scores["ab".index(x[0])] >= 0.5]


class TestEvidence:
    @pytest.mark.parametrize(
        ("about", "shards"),
        [
            ({"stat": "span", **OVERLAP}, {"b": 2, "a": 1}),
            ({"stat": "near_dup", **OVERLAP}, {"b": 2}),  # on the side of training, each once, verified pairs alone
            ({"metric": "exact_dup_rate", "budget": 0}, {"a": 50, "c": 10, "b": 2}),  # documents
            ({**COVERAGE, "stat": "shard_bytes", "budget": 0}, {"broken": 77}),
            ({"metric": "pii_hit_rate", "stat": "documents", "budget": 0}, {"b": 40, "c": 6}),  # few point at nobody
            ({"metric": "exact_dup_rate", "budget": 0.9}, {}),  # what holds needs none
        ],
    )
    def test_what_broke_a_rule_is_counted_in_shards(self, leaked, about, shards):
        assert evidence(leaked, rule(**about)) == [(f"train/{name}.jsonl", count) for name, count in shards.items()]

    def test_a_case_of_a_source_names_shards_of_that_source(self, leaked):
        one = rule(metric="exact_dup_rate", budget=0, scope={"per": "source"})
        cases = judged(leaked, one).rules[0].cases
        assert [(case.scope.source, [found.uri for found in case.evidence]) for case in cases] == [
            ("code", ["train/c.jsonl"]),
            ("web", ["train/a.jsonl", "train/b.jsonl"]),
        ]

    @pytest.mark.parametrize(
        ("more", "named"),
        [
            ({}, [("train/b.jsonl", 90), ("train/lost.jsonl", 77), ("train/a.jsonl", 8)]),
            ({"scope": {"rule": "bad_json"}}, [("train/a.jsonl", 8)]),
            ({"scope": {"rule": "unreadable"}}, [("train/lost.jsonl", 77)]),
            ({"max_bad_records": 0.2}, [("train/b.jsonl", 500), ("train/lost.jsonl", 77)]),
        ],
    )
    def test_bytes_of_bad_records_name_the_shards_that_were_read_without_them(self, tmp_path, more, named):
        """By reason where the rule names one; with a tolerance a shard beyond it counts whole, one below it not."""
        shards = [
            shard("a.jsonl", bad=1, size=300, status="partial"),
            shard("b.jsonl", bad=10, size=500, status="partial", sha256="bb" * 32),
            shard("lost.jsonl", status="quarantined", reason="unreadable", size=77, sha256=""),
        ]
        ledger = [(0, "bad_json", "line 3", 1, 8), (1, "bad_utf8", "line 1", 10, 90)]
        metrics = [
            record("coverage_unread_bytes", "bytes", 1000.0, "bytes"),
            record("coverage_unread_bytes", "bytes", 1000.0, "bytes", rule="bad_json"),
            record("coverage_unread_bytes", "bytes", 1000.0, "bytes", rule="unreadable"),
        ]
        make(tmp_path / "m", shards, metrics=metrics, ledger=ledger)
        assert evidence(tmp_path / "m", rule(stat="bytes", budget=0, **COVERAGE, **more)) == named

    def test_shards_that_the_baseline_does_not_have_come_first(self, leaked, tmp_path):
        """What broke the rule came with them, whoever held more all along."""
        make(tmp_path / "old", [shard("b.jsonl", sha256="bb" * 32)], metrics=[record("exact_dup_rate", "rate", 0.0)])
        one = rule(stat="span", **OVERLAP)
        found = judged(leaked, one, baseline=tmp_path / "old").rules[0].cases[0].evidence
        assert [(one.uri, one.fresh) for one in found] == [("train/a.jsonl", True), ("train/b.jsonl", False)]

    def test_a_shard_of_copies_names_the_shards_that_equal_it(self, leaked):
        one = rule(metric="exact_dup_rate", budget=0.9, scope={"per": "shard"})
        case = judged(leaked, one).rules[0].cases[0]
        assert (case.shard_uri, [found.uri for found in case.evidence]) == ("train/c.jsonl", ["train/d.jsonl"])


class TestDigests:
    @pytest.mark.parametrize("name", ["metrics", "sources", "languages", "shards", "overlap"])
    def test_a_table_that_was_changed_is_a_mismatch(self, leaked, name):
        """The gate would judge what nobody measured."""
        if name == "languages":
            row = {"split": "train", "source": "web", "language": "en", "documents": 1, "bytes": 1, "tokens": 1}
            import pyarrow as pa

            rewrite(leaked, name, lambda table: pa.Table.from_pylist([row], schema=table.schema))
        else:
            rewrite(leaked, name, lambda table: table.slice(0, table.num_rows - 1))
        with pytest.raises(ManifestMismatch, match=f"table {name} of .*: its rows are not those"):
            judged(leaked, rule(stat="span", **OVERLAP))

    def test_shards_out_of_order_are_a_mismatch(self, leaked):
        rewrite(leaked, "shards", lambda table: table.sort_by([("shard", "descending")]))
        with pytest.raises(ManifestMismatch, match="not numbered"):
            judged(leaked, rule(metric="exact_dup_rate"))

    def test_a_manifest_that_is_not_there_is_named(self, tmp_path):
        with pytest.raises(ManifestError, match="no manifest at"):
            judged(tmp_path / "none", rule())


class TestDocument:
    def test_it_meets_its_schema_and_comes_back_as_it_was(self, leaked, tmp_path):
        steers = rule("w", metric="exact_dup_rate", severity="warn", reason="a\u202e\x9b2J")
        verdict = judged(leaked, rule(stat="span", **OVERLAP), steers)
        (tmp_path / "gate.json").write_bytes(gate_json(verdict))
        document = orjson.loads((tmp_path / "gate.json").read_bytes())
        jsonschema.validate(document, SCHEMAS["gate"][1]())
        assert (document["exit_code"], document["exit_codes"]) == (3, [1, 3])
        assert read_verdict(tmp_path / "gate.json") == verdict
        assert gate_json(verdict) == gate_json(read_verdict(tmp_path / "gate.json"))
        assert gate_json(verdict).isascii()  # a name that steers a terminal is an escape, also in `gate --json`

    def test_a_change_from_nothing_has_no_number(self, leaked, tmp_path):
        """JSON knows no infinity."""
        make(tmp_path / "old", [shard("a.jsonl")], metrics=[record("exact_dup_rate", "rate", 0.0)])
        verdict = judged(leaked, rule(metric="exact_dup_rate", relative_change=1.0), baseline=tmp_path / "old")
        case = verdict.rules[0].cases[0]
        assert (case.state, case.judged, case.baseline) == (State.FAILED, float("inf"), 0.0)
        assert orjson.loads(gate_json(verdict))["verdict"]["rules"][0]["cases"][0]["judged"] is None

    def test_numbers_of_personal_data_are_rounded_or_left_out(self, leaked):
        one = rule(metric="pii_hit_rate", stat="documents", budget=0, scope={"per": "source"})
        cases = orjson.loads(gate_json(judged(leaked, one)))["verdict"]["rules"][0]["cases"]
        assert [(case["scope"]["source"], case["value"], case["reason"]) for case in cases] == [
            ("web", 0.2, ""),
            ("code", None, "withheld"),
        ]

    @pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"schema": {"name": "dataaudit-gate", "version": 2}}'])
    def test_another_file_is_no_verdict(self, content, tmp_path):
        (tmp_path / "gate.json").write_bytes(content)
        with pytest.raises(ManifestError, match=r"gate\.json"):
            read_verdict(tmp_path / "gate.json")


def test_the_terminal_says_what_where_how_much_and_what_to_do(leaked):
    text = terminal_text(judged(leaked, rule("leak", stat="span", runbook="docs/leaks.md", **OVERLAP)), 100)
    assert text.startswith("FAIL, NOT EVALUATED: made 1.0.0 by p\n")
    assert "Do not release it" in text
    for part in ("set val", "0.2", "<= 0", "train/b.jsonl", "docs/leaks.md", "fingerprint", "exit code  3 (also 1)"):
        assert part in text, part
    assert all(len(line) <= 100 for line in text.splitlines())


def test_an_empty_corpus_is_exit_4(tmp_path):
    make(tmp_path / "m", [shard("a.jsonl", status="quarantined")])
    assert judged(tmp_path / "m", rule(metric="exact_dup_rate")).exit_code == ExitCode.NOTHING_EVALUATED


def test_a_rule_about_several_statistics_says_which_one_does_not_hold():
    """Otherwise its rows would differ in nothing but the number."""
    kept = [record("pad_fraction", stat, 0.2) for stat in ("packed_2048", "packed_4096")]
    one = rule("padding", "pad_fraction", "packed_*", budget=0.05)
    text = terminal_text(evaluate(policy(one), facts(covered(), *kept), on=DAY), 120)
    assert [text.count(f"{stat}, whole dataset") for stat in ("packed_2048", "packed_4096")] == [1, 1]


class TestClock:
    """The day of a verdict can be given; waivers are held against the clock as well."""

    LAST = DAY - dt.timedelta(days=3)

    def judged(self, leaked, monkeypatch, on):
        monkeypatch.setattr("dataaudit.decide.gate.run.today", lambda: DAY)
        one = rule("dups", metric="exact_dup_rate", budget=0)
        failing = judged(leaked, one).rules[0].cases[0].fingerprint
        waiver = {"fingerprint": failing, "rule": "dups", "owner": "o", "reason": "x", "expires": self.LAST}
        made = Policy.model_validate({"policy": "p", "rules": [one.model_dump()], "waivers": [waiver]})
        return judge(load_manifest(leaked), made, on=on)

    @pytest.mark.parametrize("days", [3, 4, 5000])
    def test_an_earlier_day_revives_no_waiver(self, leaked, monkeypatch, days):
        verdict = self.judged(leaked, monkeypatch, DAY - dt.timedelta(days=days))
        assert (verdict.waivers[0].state, verdict.on) == (WaiverState.EXPIRED, DAY.isoformat())
        assert verdict.rules[0].state == State.FAILED

    def test_a_verdict_of_an_earlier_day_is_written_again_where_nothing_has_expired_since(self, leaked, monkeypatch):
        yesterday = DAY - dt.timedelta(days=1)
        assert self.judged(leaked, monkeypatch, yesterday).on == yesterday.isoformat()

    def test_a_later_day_looks_ahead(self, leaked, monkeypatch):
        monkeypatch.setattr(self, "LAST", DAY + dt.timedelta(days=3), raising=False)
        assert self.judged(leaked, monkeypatch, DAY + dt.timedelta(days=3)).waivers[0].state == WaiverState.USED
        assert self.judged(leaked, monkeypatch, DAY + dt.timedelta(days=4)).waivers[0].state == WaiverState.EXPIRED

    def test_what_nothing_but_an_expired_waiver_stops_is_said(self, leaked, monkeypatch):
        monkeypatch.setattr("dataaudit.decide.gate.run.today", lambda: DAY)
        one = rule("dups", metric="exact_dup_rate", budget=1)
        waiver = {"fingerprint": "0" * 16, "rule": "dups", "owner": "o", "reason": "x", "expires": self.LAST}
        made = Policy.model_validate(
            {"policy": "p", "rules": [one.model_dump(), READ_ALL.model_dump()], "waivers": [waiver]}
        )
        verdict = judge(load_manifest(leaked), made)
        assert verdict.exit_code == ExitCode.BUDGET_EXCEEDED
        told = " ".join(terminal_text(verdict).split())
        assert "no rule fails, but the last day of 1 waiver has passed: rule dups, 2026-11-19" in told
        assert verdict_title(verdict)[0] == "Stopped: 1 waiver of the policy expired, no rule fails"


READ_ALL = rule("read", metric="coverage_unread_bytes", stat="shard_bytes", unit="bytes", budget=1000)


@pytest.mark.parametrize(
    ("scope", "nouns"),
    [
        ({"per": "source"}, ["tokens", "tokens of other sources"]),
        ({"source": "code"}, ["tokens"]),
        ({"source": "web"}, ["tokens of other sources"]),
    ],
)
def test_a_mixture_that_moved_names_the_shards_that_are_new(tmp_path, scope, nouns):
    """Of the source that rose; of one that fell those of the others, which took its place."""
    web, code = shard("a.jsonl", tokens=100), shard("b.jsonl", tokens=50, sha256="b" * 64, sources={"code": 50})
    again = code | {"sha256": "b1" * 32, "rows_digest": "b1" * 32}  # its rows in another order move no share
    new = shard("c.jsonl", tokens=200, sha256="c" * 64, sources={"code": 200})
    shares = [
        [
            record("source_mix_share", "share", value, source=name)
            for name, value in (("code", moved), ("web", 1 - moved))
        ]
        for moved in (0.3, 0.7)
    ]
    make(tmp_path / "old", [web, code], metrics=shares[0])
    make(tmp_path / "new", [web, again, new], metrics=shares[1])
    one = rule(metric="source_mix_share", stat="share", change=0.1, scope=scope)
    cases = judged(tmp_path / "new", one, baseline=tmp_path / "old").rules[0].cases
    told = [(found.uri, found.count, found.noun, found.fresh) for case in cases for found in case.evidence]
    assert told == [("train/c.jsonl", 200, noun, True) for noun in nouns]


@pytest.mark.parametrize(
    ("metric", "more", "noun"),
    [
        ("tokens", {"stat": "count", "unit": "tokens", "budget": 900, "comparator": ">="}, None),
        ("tokens", {"stat": "count", "unit": "tokens", "budget": 100}, "tokens"),
        ("tokens", {"stat": "count", "unit": "tokens", "change": 50, "direction": "down"}, None),
        ("source_mix_share", {"budget": 0.9, "comparator": ">", "scope": {"source": "web"}}, "tokens of other sources"),
        ("source_mix_share", {"budget": 0.1, "scope": {"source": "code"}}, "tokens"),
    ],
)
def test_a_new_shard_is_not_behind_too_little(tmp_path, metric, more, noun):
    """A release with fewer tokens than it needs named the shards that had brought some."""
    old = shard("a.jsonl", tokens=100)
    new = shard("c.jsonl", tokens=200, sha256="c" * 64, sources={"code": 200})
    for name, shards, total in (("old", [old], 400.0), ("new", [old, new], 300.0)):
        shares = [record("source_mix_share", "share", 0.5, source=source) for source in ("web", "code")]
        make(tmp_path / name, shards, metrics=[record("tokens", "count", total, "tokens"), *shares])
    one = rule(metric=metric, **({"stat": "share"} | more))
    (case,) = judged(tmp_path / "new", one, baseline=tmp_path / "old").rules[0].cases
    assert [(found.uri, found.noun) for found in case.evidence] == ([("train/c.jsonl", noun)] if noun else [])


@pytest.mark.parametrize(
    ("now", "named"),
    [
        ({"tokens": 196, "documents": 98}, [("train/c.jsonl", 60, True, False), ("train/a.jsonl", 4, False, True)]),
        ({"tokens": 260, "documents": 130}, [("train/c.jsonl", 60, True, False), ("train/a.jsonl", 60, False, True)]),
        ({"tokens": 200, "documents": 100}, [("train/a.jsonl", 200, False, True), ("train/c.jsonl", 60, True, False)]),
        (None, [("train/c.jsonl", 60, True, False)]),
    ],
)
def test_a_shard_that_changed_is_not_all_new(tmp_path, now, named):
    """It counts for what it has more or fewer of, for all where as many were exchanged. New ones come first."""
    old = shard("a.jsonl", tokens=200, documents=100)
    new = old if now is None else shard("a.jsonl", sha256="a0" * 32, **now)
    moved = [record("token_kl_drift", "kl", value, "nats") for value in (0.0, 2.0)]
    make(tmp_path / "old", [old], metrics=moved[:1])
    make(tmp_path / "new", [new, shard("c.jsonl", tokens=60, sha256="cc" * 32)], metrics=moved[1:])
    drift = rule(metric="token_kl_drift", stat="kl", unit="nats", budget=0.1)
    verdict = judged(tmp_path / "new", drift, baseline=tmp_path / "old")
    found = [(place.uri, place.count, place.fresh, place.changed) for place in verdict.rules[0].cases[0].evidence]
    assert found == sorted(named, key=lambda row: not row[2])
    shown = terminal_text(verdict, width=200)
    assert ("in a shard that changed since the baseline" in shown) == (now is not None)
    assert read_verdict_again(verdict, tmp_path) == verdict.rules
    kinds = {place.kind for place in failing(verdict, load_manifest(tmp_path / "new"), load_manifest(tmp_path / "old"))}
    words = {"tokens, new since the baseline"} | ({"tokens, changed since the baseline"} if now else set())
    assert kinds == words


def read_verdict_again(verdict, folder):
    """Return the rules of a verdict that was written and read."""
    (folder / "gate.json").write_bytes(gate_json(verdict))
    return read_verdict(folder / "gate.json").rules


def test_findings_of_a_shard_that_lost_two_rows_are_not_called_new(leaked, tmp_path):
    """They may all have been there: which of its rows are new no manifest knows."""
    shards = [shard("a.jsonl", documents=102, sha256="99" * 32), shard("b.jsonl", documents=100, sha256="bb" * 32)]
    make(tmp_path / "old", shards)
    found = judged(leaked, rule(metric="exact_dup_rate", budget=0), baseline=tmp_path / "old").rules[0].cases[0]
    assert [(place.uri, place.fresh, place.changed) for place in found.evidence] == [
        ("train/c.jsonl", True, False),
        ("train/a.jsonl", False, True),
        ("train/b.jsonl", False, False),
    ]
