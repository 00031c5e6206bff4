"""`gate --failing`: shard and row of what broke each rule, as far as the tables hold rows; never a text."""

import datetime as dt
import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from forged import rewrite
from made_facts import record, rule
from made_manifest import make, shard

from dataaudit import api
from dataaudit.base.errors import ManifestMismatch
from dataaudit.cli import main as program
from dataaudit.decide.gate.evidence import Broken, Clues, failing, json_lines
from dataaudit.decide.gate.facts import read_facts
from dataaudit.decide.gate.policy import Policy
from dataaudit.decide.gate.run import judge
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Scope
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.records import LISTED
from dataaudit.metrics.registry import METRICS

pytestmark = pytest.mark.usefixtures("odd_numbers")
DEMO = Path(__file__).parents[4] / "manifests/demo"
DAY = dt.date(2026, 11, 22)
A, B, LOST, V = 0, 1, 2, 3
"""Shards are ordered by split and URI."""


def finding(shard_, row, class_, *, detector="secrets", tier="validated", reserved=False, start=0):
    place = {"shard": shard_, "row": row, "start": start, "end": start + 9}
    found = {"detector": detector, "class": class_, "tier": tier, "score": 0.9, "reserved": reserved, "hmac": None}
    return found | place


def match(shard_, row, *, set_="val", kind="span", part="document", tier="verbatim"):
    place = {"shard": shard_, "row": row, "start": 0, "end": 9}
    return {
        "set": set_,
        "item": "3:0",
        "part": part,
        "tier": tier,
        "rule": kind,
        "score": 1.0,
        "score_without_common": 1.0,
    } | place


def pair(left, right, *, verified=True):
    sides = zip(("left_shard", "left_row", "right_shard", "right_row"), (*left, *right), strict=True)
    return dict(sides) | {"jaccard": 0.9, "verified": verified}


RATES = (
    record("secret_hit_rate", "validated_hits", 5.0, "hits"),
    record("secret_hit_rate", "hits", 6.0, "hits"),
    record("secret_hit_rate", "reserved", 1.0, "hits"),
    record("secret_hit_rate", "hits", 6.0, "hits", entity="AWS_ACCESS_KEY_ID"),
    record("secret_hit_rate", "hits", 3.0, "hits", source="web"),
    record("secret_hit_rate", "hits", 3.0, "hits", source="code"),
    record("secret_hit_rate", "truncated", 3.0, "documents"),
    record("pii_hit_rate", "documents", 0.9),
    record("pii_hit_rate", "analyzer_documents", 0.9),
    record("data_toxicity_rate", "rate", 0.9),
    record("data_toxicity_rate", "rate_at_0.9", 0.9),
    record("data_toxicity_rate", "screen", 0.9),
    record("exact_dup_rate", "rate", 0.9),
    record("exact_dup_rate", "within_split_rate", 0.9, split="train"),
    record("near_dup_rate", "rate", 0.9),
    record("near_dup_component_rate", "rate", 0.9),
    record("train_val_overlap", "span", 0.9, set="val"),
    record("train_val_overlap", "near_dup", 0.9, set="val"),
    record("benchmark_contamination", "rate", 0.9, set="quiz", entity="question", rule="verbatim"),
    record("doc_repeat_hotspots", "token_share", 0.9),
    record("filter_reject_rate", "rate", 0.9),
    record("filter_reject_rate", "rate", 0.9, rule="c4.sentences"),
    record("coverage_unread_bytes", "shard_bytes", 77.0, "bytes"),
    record("source_mix_share", "share", 0.9, split="train", source="web"),
    record("token_kl_drift", "kl", 3.0, "nats"),
)
FINDINGS = [
    finding(A, 4, "JSON_WEB_TOKEN"),
    finding(A, 4, "JSON_WEB_TOKEN", start=20),
    finding(A, 4, "AWS_ACCESS_KEY_ID", start=40),
    finding(B, 1, "AWS_ACCESS_KEY_ID"),
    finding(B, 2, "AWS_ACCESS_KEY_ID", tier="pattern"),
    finding(B, 7, "AWS_ACCESS_KEY_ID", reserved=True),
    finding(A, 3, "CREDIT_CARD", detector="pii"),
    finding(A, 5, "PERSON", detector="presidio", tier="judged"),
    finding(B, 6, "toxicity", detector="detoxify", tier="judged"),
]
TABLES_HELD = {
    "findings": FINDINGS,
    "overlap": [
        match(A, 8),
        match(A, 9, kind="ngram"),
        match(B, 0, set_="quiz", kind="verbatim", part="question"),
        match(B, 3, set_="quiz", kind="similar", part="question", tier="similar"),
    ],
    "pairs": [pair((A, 1), (A, 2)), pair((A, 6), (V, 0)), pair((B, 0), (B, 1), verified=False)],
    "hotspots": [
        {"hotspot": 1, "hash": "0" * 16, "words": 60, "documents": 2, "occurrences": 2, "tokens": 120, "variants": 0}
        | {"shards": [], "sources": []}
    ],
    "hotspot_members": [{"hotspot": 1, "shard": one, "row": 5, "start": 0, "end": 9} for one in (A, B)],
}
CLUSTERS = [
    ("exact", 0, A, 0, True),
    ("exact", 0, B, 4, False),
    ("exact", 0, V, 1, False),
    ("near", 0, A, 1, True),
    ("near", 0, A, 2, False),
]


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """Return a manifest in whose tables something of every kind is listed; `b` holds two sources, `a` one."""
    rejected = [{"rule": "", "documents": 3}, {"rule": "c4.sentences", "documents": 2}]
    shards = [
        shard("a.jsonl", exact_dup_rate=0.9, toxicity_screen=0.5, toxicity_screened=10, filters=rejected),
        shard("b.jsonl", sha256="bb" * 32, sources={"code": 50, "web": 50}, filters=[{"rule": "", "documents": 1}]),
        shard("lost.jsonl", status="quarantined", reason="unreadable", size=77, sha256=""),
        shard("v.jsonl", split="val", sha256="ee" * 32),
    ]
    folder = tmp_path_factory.mktemp("failing") / "m"
    make(folder, shards, metrics=RATES, tables=TABLES_HELD, clusters=CLUSTERS, odd=True)
    return load_manifest(folder)


def judged(manifest, *rules, baseline=None, **more):
    made = Policy.model_validate({"policy": "p", "rules": [one.model_dump() for one in rules]})
    return judge(manifest, made, baseline=baseline, on=DAY, **more)


def lines(manifest, one, baseline=None):
    """Return what is listed of a rule: shard, row, kind."""
    found = failing(judged(manifest, one, baseline=baseline), manifest, baseline)
    return [(place.shard, place.row, place.kind) for place in found if place.rule == one.name]


def of(metric, stat, unit="ratio", **more):
    return rule("r", metric, stat, unit, **{"budget": 0, **more})


AWS, BOTH = "AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY_ID, JSON_WEB_TOKEN"


@pytest.mark.parametrize(
    ("one", "listed"),
    [
        (of("secret_hit_rate", "validated_hits", "hits"), [("a.jsonl", 4, BOTH), ("b.jsonl", 1, AWS)]),
        (
            of("secret_hit_rate", "hits", "hits", scope={"entity": AWS}),
            [("a.jsonl", 4, AWS), ("b.jsonl", 1, AWS), ("b.jsonl", 2, AWS)],
        ),
        (of("secret_hit_rate", "reserved", "hits"), [("b.jsonl", 7, AWS)]),
        (of("secret_hit_rate", "truncated", "documents"), [(None, None, "no_rows")]),
        (of("pii_hit_rate", "documents"), [("a.jsonl", 3, "CREDIT_CARD")]),
        (of("pii_hit_rate", "analyzer_documents"), [("a.jsonl", 5, "PERSON")]),
        (of("data_toxicity_rate", "rate"), [("b.jsonl", 6, "toxicity")]),
        (of("data_toxicity_rate", "rate_at_0.9"), [("b.jsonl", 6, "toxicity")]),
        (of("data_toxicity_rate", "screen"), [("a.jsonl", None, "documents that the screen classifies as toxic")]),
        (of("exact_dup_rate", "rate"), [("b.jsonl", 4, "exact_duplicate"), ("v.jsonl", 1, "exact_duplicate")]),
        (of("exact_dup_rate", "within_split_rate", scope={"split": "train"}), [("b.jsonl", 4, "exact_duplicate")]),
        (of("near_dup_rate", "rate"), [("a.jsonl", 2, "near_duplicate"), ("v.jsonl", 0, "near_duplicate")]),
        (of("near_dup_component_rate", "rate"), [("a.jsonl", 2, "near_duplicate")]),
        (of("train_val_overlap", "span", scope={"per": "set"}), [("a.jsonl", 8, "span")]),
        (of("train_val_overlap", "near_dup", scope={"per": "set"}), [("a.jsonl", 6, "near_duplicate")]),
        (
            of("benchmark_contamination", "rate", scope={"set": "quiz", "entity": "question", "rule": "verbatim"}),
            [("b.jsonl", 0, "verbatim")],
        ),
        (of("doc_repeat_hotspots", "token_share"), [("a.jsonl", 5, "repeated_span"), ("b.jsonl", 5, "repeated_span")]),
        (
            of("filter_reject_rate", "rate"),
            [(name, None, "documents that a quality rule rejects") for name in ("a.jsonl", "b.jsonl")],
        ),
        (
            of("filter_reject_rate", "rate", scope={"rule": "c4.sentences"}),
            [("a.jsonl", None, "documents that a quality rule rejects")],
        ),
        (of("coverage_unread_bytes", "shard_bytes", "bytes"), [("lost.jsonl", None, "bytes not read")]),
        (of("source_mix_share", "share", scope={"split": "train", "source": "web"}), [(None, None, "no_rows")]),
        (of("token_kl_drift", "kl", "nats"), [(None, None, "no_rows")]),
        (of("language_share", "share", scope={"per": "language"}), [(None, None, "no_number")]),
        (of("exact_dup_rate", "rate", scope={"per": "shard"}, budget=0.5), [("a.jsonl", None, "beyond_the_limit")]),
        (
            of("bytes_per_token", "ratio", "bytes/token", scope={"per": "shard"}, budget=3.5),
            [(name, None, "beyond_the_limit") for name in ("a.jsonl", "b.jsonl", "v.jsonl")],
        ),
    ],
)
def test_a_rule_names_the_documents_that_broke_it(broken, one, listed):
    """Documents where a table holds rows, shards where the metric knows no more, one line that says so elsewhere."""
    assert lines(broken, one) == listed


def test_what_moved_names_the_shards_that_are_new(broken, tmp_path):
    """No table says which document moved a mixture or a divergence; shards that came since the baseline did."""
    old = [shard("a.jsonl"), shard("v.jsonl", split="val", sha256="ee" * 32)]
    share = record("source_mix_share", "share", 0.5, split="train", source="web")
    make(tmp_path / "old", old, metrics=[share])
    older = load_manifest(tmp_path / "old")
    moved = rule("r", "source_mix_share", "share", change=0.1, scope={"split": "train", "source": "web"})
    assert lines(broken, moved, older) == [("b.jsonl", None, "tokens, new since the baseline")]
    assert lines(broken, of("token_kl_drift", "kl", "nats"), older) == [
        ("b.jsonl", None, "tokens, new since the baseline")
    ]


def test_of_a_source_only_what_stands_alone_in_its_shard_is_certain(broken):
    """`a` holds `web` alone; a document of `b` may be of either source, which no table tells."""
    one = of("secret_hit_rate", "hits", "hits", scope={"per": "source"})
    found = [place for place in failing(judged(broken, one), broken) if place.rule == "r"]
    assert {(place.shard, place.row): place.certain for place in found} == {
        ("a.jsonl", 4): True,
        ("b.jsonl", 1): True,
        ("b.jsonl", 2): True,
    }
    web = of("secret_hit_rate", "hits", "hits", scope={"source": "web"})
    found = [place for place in failing(judged(broken, web), broken) if place.rule == "r"]
    assert [(place.shard, place.certain) for place in found] == [
        ("a.jsonl", True),
        ("b.jsonl", False),
        ("b.jsonl", False),
    ]
    code = of("secret_hit_rate", "hits", "hits", scope={"source": "code"})
    assert {place.shard for place in failing(judged(broken, code), broken) if place.rule == "r"} == {"b.jsonl"}


def test_what_warns_or_is_waived_is_not_listed_unless_it_stops(broken):
    warns = of("exact_dup_rate", "rate", severity="warn")
    assert lines(broken, warns) == []
    strict = judged(broken, warns, fail_on="warn")
    assert [place.row for place in failing(strict, broken) if place.rule == "r"] == [4, 1]


@pytest.mark.parametrize(
    ("metric", "stat", "unit", "kind"),
    [
        ("exact_dup_rate", "documents", "documents", "exact_duplicate"),
        ("near_dup_rate", "documents", "documents", "near_duplicate"),
        ("secret_hit_rate", "documents", "documents", ""),
        ("doc_repeat_hotspots", "documents", "documents", "repeated_span"),
    ],
)
def test_as_many_documents_are_listed_as_the_metric_counts(metric, stat, unit, kind):
    """Of the demo, by another path: a record counts what the tables list; repeated spans list the widest alone."""
    manifest = load_manifest(DEMO)
    counted = next(one.value for one in manifest.metrics(metric, stat) if not one.scope.as_dict())
    found = lines(manifest, of(metric, stat, unit))
    assert len({place[:2] for place in found}) == len(found)
    assert len(found) == counted if metric != "doc_repeat_hotspots" else 0 < len(found) <= counted
    assert all(kind in place[2] for place in found)


def test_every_statistic_lists_rows_or_leaves_it_to_the_shards(broken):
    """One that comes later is asked too."""
    clues = Clues(manifest=broken, facts=read_facts(broken, (), shards=TABLES["shards"].schema.names))
    asked = [(metric, stat) for metric in METRICS.values() for stat in {one.stat for one in metric.statistics}]
    found = {
        (metric.name, stat): metric.documents(Broken(metric=metric.name, stat=stat, scope=Scope()), clues)
        for metric, stat in asked
        if metric.documents is not None
    }
    assert {name for name, table in found.items() if table is not None and table.schema != LISTED} == set()
    assert {metric for metric, _ in found} == {
        *("secret_hit_rate", "pii_hit_rate", "data_toxicity_rate", "train_val_overlap", "benchmark_contamination"),
        *("exact_dup_rate", "near_dup_rate", "near_dup_component_rate", "doc_repeat_hotspots"),
    }


class TestFile:
    """The file of the command."""

    def call(self, tmp_path, manifest, *rules, more=()):
        (tmp_path / "p.yaml").write_text(
            json.dumps({"policy": "p", "rules": [one.model_dump(exclude_defaults=True) for one in rules]}, default=str)
        )
        done = CliRunner(env={"GITHUB_ACTIONS": None}).invoke(
            program, ["gate", str(manifest), "--policy", str(tmp_path / "p.yaml"), "--failing", *map(str, more)]
        )
        return done.exit_code, done.output

    def test_each_line_is_a_place_without_text_and_the_bytes_are_always_the_same(self, broken, tmp_path):
        rules = (of("secret_hit_rate", "hits", "hits"), rule("t", "token_kl_drift", "kl", "nats", budget=0))
        read = []
        for name in ("one", "two"):
            code, output = self.call(tmp_path, broken.folder, *rules, more=[tmp_path / name])
            assert (code, "::error" in output) == (3, False)  # nor is there a line that steers a runner
            read.append((tmp_path / name).read_bytes())
        assert read[0] == read[1]
        first = {"rule": "r", "metric": "secret_hit_rate", "split": "train", "shard": "a.jsonl", "row": 4}
        held = [json.loads(line) for line in read[0].splitlines()]
        assert held[0] == first | {"kind": BOTH, "certain": True}
        assert Counter(line["rule"] for line in held) == {"r": 3, "t": 1, "coverage": 1}
        none = {"split": None, "shard": None, "row": None, "kind": "no_rows", "certain": True}
        why = {"why": "no table of the manifest holds rows or shards of it"}
        assert held[3] == {"rule": "t", "metric": "token_kl_drift"} | none | why

    def test_a_pass_leaves_an_empty_file_and_nothing_of_an_older_one(self, tmp_path):
        make(tmp_path / "m", [shard("a.jsonl")], metrics=[record("exact_dup_rate", "rate", 0.1)])
        (tmp_path / "f").write_text("old\n")
        code, output = self.call(
            tmp_path, tmp_path / "m", of("exact_dup_rate", "rate", budget=0.5), more=[tmp_path / "f"]
        )
        assert (code, (tmp_path / "f").read_bytes()) == (0, b""), output

    @pytest.mark.parametrize("name", ["absent/f", ".", "p.yaml", "m/metrics.parquet"])
    def test_a_path_that_cannot_be_written_is_said_before_the_work(self, tmp_path, name):
        make(tmp_path / "m", [shard("a.jsonl")], metrics=[record("exact_dup_rate", "rate", 0.1)])
        before = (tmp_path / "m/metrics.parquet").read_bytes()
        code, output = self.call(tmp_path, tmp_path / "m", of("exact_dup_rate", "rate"), more=[tmp_path / name])
        assert code == 2
        assert "--failing" in output
        assert (tmp_path / "m/metrics.parquet").read_bytes() == before

    @pytest.mark.parametrize("wrong", ["rules: [}", "policy: absent"])
    def test_a_refusal_leaves_no_verdict_of_before(self, broken, tmp_path, wrong):
        files = [tmp_path / name for name in ("f", "gate.json", "note.md")]
        for path in files:
            path.write_text("passed\n")
        (tmp_path / "p.yaml").write_text(wrong)
        options = [
            part for pair in zip(("--failing", "--out", "--markdown"), map(str, files), strict=True) for part in pair
        ]
        done = CliRunner().invoke(program, ["gate", str(broken.folder), "--policy", str(tmp_path / "p.yaml"), *options])
        assert (done.exit_code, [path.exists() for path in files]) == (2, [False] * 3)

    def test_a_full_disk_is_a_clear_error_and_leaves_no_verdict_of_before(self, broken, tmp_path, monkeypatch):
        (tmp_path / "f").write_text("old\n")

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("pathlib.Path.replace", full)
        code, output = self.call(tmp_path, broken.folder, of("exact_dup_rate", "rate"), more=[tmp_path / "f"])
        assert (code, (tmp_path / "f").exists()) == (2, False)
        assert "No space left on device" in output

    def test_a_table_that_was_changed_leaves_no_file(self, broken, tmp_path):
        """Rules of the mixture read no findings; the list does."""
        make(tmp_path / "m", [shard("a.jsonl")], metrics=[RATES[0]], tables={"findings": FINDINGS[:1]})
        rewrite(tmp_path / "m", "findings", lambda table: table.slice(0, 0))
        one = of("secret_hit_rate", "validated_hits", "hits")
        code, output = self.call(tmp_path, tmp_path / "m", one, more=[tmp_path / "f", "--out", tmp_path / "gate.json"])
        assert code == 1, output
        assert not (tmp_path / "f").exists()
        assert not (tmp_path / "gate.json").exists()

    def test_names_of_an_enemy_stay_in_their_line(self, tmp_path):
        make(
            tmp_path / "m",
            [shard('a\n{"rule":"x"}\x1b[31m.jsonl')],
            metrics=[RATES[0]],
            tables={"findings": FINDINGS[:1]},
        )
        manifest = load_manifest(tmp_path / "m")
        found = judged(manifest, of("secret_hit_rate", "validated_hits", "hits"))
        text = b"".join(json_lines(failing(found, manifest)))
        assert text.count(b"\n") == 1
        assert b"\x1b" not in text


def test_a_verdict_of_another_manifest_is_refused(broken, tmp_path):
    make(tmp_path / "m", [shard("other.jsonl")])
    verdict = judged(broken, of("exact_dup_rate", "rate"))
    with pytest.raises(ManifestMismatch, match="another manifest"):
        list(api.failing(tmp_path / "m", verdict))
    assert list(api.failing(broken, verdict)) == list(failing(verdict, broken))
