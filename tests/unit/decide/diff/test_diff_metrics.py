"""Every metric, old and new: what changed, what cannot be compared, what is not shown."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from diff_made import change_core, difference, made, shard

from dataaudit.decide.diff.compare import compare
from dataaudit.decide.diff.compared_records import in_turns
from dataaudit.decide.diff.difference import MetricChangeKind
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Metric, Scope

pytestmark = pytest.mark.usefixtures("odd_numbers")
BASE = [shard("a")]
SAMPLED = Metric(
    metric="data_toxicity_rate",
    stat="screen",
    unit="ratio",
    value=0.10,
    low=0.08,
    high=0.13,
    confidence=0.95,
    method="estimated",
    n=100,
    denominator=100,
)
EXACT = Metric(metric="exact_dup_rate", stat="rate", unit="ratio", value=0.10, n=1000, denominator=1000)
NONE = Metric(metric="m", stat="s", unit="ratio", value=None, status="not_evaluated", reason="empty_denominator")


def only(tmp_path, old, new, **more):
    """Return the change of one record, and the whole difference."""
    found = difference(tmp_path, BASE, BASE, old_with={"metrics": old}, new_with={"metrics": new, **more})
    changes = [change for change in found.metrics if change.metric in {record.metric for record in [*old, *new]}]
    return changes[0] if len(changes) == 1 else changes, found


def with_core(folder, old, new, changes, *, also=None):
    """Compare two records in manifests whose cores differ."""
    made(folder / "old", BASE, metrics=[old])
    made(folder / "new", BASE, metrics=[new])
    change_core(folder / "old", also or {})
    change_core(folder / "new", changes)
    pair = [load_manifest(folder / name) for name in ("old", "new")]
    return next(change for change in compare(*pair).metrics if change.metric == old.metric)


@pytest.mark.parametrize(("now", "moved", "chance"), [(0.12, 0.02, True), (0.2, 0.1, False)])
def test_an_exact_change_is_a_change_and_chance_stands_beside_it(tmp_path, now, moved, chance):
    """0.10 and 0.12 of a thousand documents each: the corpora differ, and chance could do it, unlike 0.20."""
    change, _ = only(tmp_path, [EXACT], [replace(EXACT, value=now)])
    assert (change.fate, change.difference, change.low, change.high) == (MetricChangeKind.CHANGED, moved, None, None)
    assert (change.chance, change.chance_low < 0 < change.chance_high) == (chance, chance)


def test_a_leak_is_never_played_down_by_chance(tmp_path):
    """One document more of a held-out split: no interval of chance stands beside it."""
    leak = replace(EXACT, metric="train_val_overlap", stat="ngram")
    change, _ = only(tmp_path, [leak], [replace(leak, value=0.101)])
    assert (change.fate, change.chance, change.chance_low) == (MetricChangeKind.CHANGED, None, None)


@pytest.mark.parametrize(
    ("value", "low", "high", "fate"),
    [(0.12, 0.10, 0.15, MetricChangeKind.WITHIN_NOISE), (0.20, 0.18, 0.23, MetricChangeKind.BEYOND_NOISE)],
)
def test_a_sampled_change_is_held_against_its_interval(tmp_path, value, low, high, fate):
    """Beyond noise when the interval of the difference excludes 0."""
    change, _ = only(tmp_path, [SAMPLED], [replace(SAMPLED, value=value, low=low, high=high)])
    assert (change.fate, change.confidence, change.chance) == (fate, 0.95, None)
    assert change.low == pytest.approx(value - 0.1 - ((value - low) ** 2 + 0.03**2) ** 0.5)
    assert change.high == pytest.approx(value - 0.1 + ((high - value) ** 2 + 0.02**2) ** 0.5)


def test_an_interval_that_moved_under_the_same_value_is_a_change(tmp_path):
    """Every record is shown with its interval, so another interval is something else."""
    change, _ = only(tmp_path, [SAMPLED], [replace(SAMPLED, high=0.2)])
    assert (change.fate, change.difference) == (MetricChangeKind.WITHIN_NOISE, 0)


def test_what_only_one_side_has_is_named(tmp_path):
    """Added, removed, lost and gained, with the reason of what has no value."""
    change, _ = only(tmp_path / "1", [], [EXACT])
    assert (change.fate, change.old, change.new.value) == (MetricChangeKind.ADDED, None, 0.10)
    change, _ = only(tmp_path / "2", [EXACT], [])
    assert (change.fate, change.old.value, change.new) == (MetricChangeKind.REMOVED, 0.10, None)
    change, _ = only(tmp_path / "3", [replace(NONE, value=0.5, status="ok", reason="")], [NONE])
    assert (change.fate, change.reason) == (MetricChangeKind.LOST, "empty_denominator")
    change, _ = only(tmp_path / "4", [NONE], [replace(NONE, value=0.5, status="ok", reason="")])
    assert (change.fate, change.reason) == (MetricChangeKind.GAINED, "empty_denominator")


def test_two_records_without_a_value_are_no_change(tmp_path):
    """Whatever their reasons are."""
    changes, found = only(tmp_path, [NONE], [replace(NONE, reason="no_judge")])
    assert changes == []
    assert found.unchanged_metrics > 0


@pytest.mark.parametrize(
    ("changes", "reason"), [({"unit": "percent"}, "other_unit"), ({"version": "2"}, "other_version")]
)
def test_records_of_other_meaning_give_no_number(tmp_path, changes, reason):
    """Unit and version of the definition stand in the record; equal values do not help."""
    change, _ = only(tmp_path, [EXACT], [replace(EXACT, **changes)])
    assert (change.fate, change.reason, change.difference) == (MetricChangeKind.NOT_COMPARABLE, reason, None)


DETECTORS = {
    short: {"name": name, "version": "1", "sha256": short}
    for short, name in (
        ("screen", "dataaudit-screen"),
        ("pii", "pii"),
        ("secrets", "secrets"),
        ("cld", "pycld2"),
        ("judge", "detoxify"),
        ("presidio", "presidio"),
    )
}


@pytest.mark.parametrize(
    ("metric", "stat", "scope", "detector"),
    [
        ("data_toxicity_rate", "screen_positive", Scope(), "screen"),
        ("data_toxicity_rate", "rate", Scope(), "judge"),
        ("pii_hit_rate", "documents", Scope(), "pii"),
        ("pii_hit_rate", "confirmed", Scope(), "presidio"),
        ("secret_hit_rate", "hits", Scope(), "secrets"),
        ("language_share", "share", Scope(language="en"), "cld"),
        ("documents", "empty", Scope(language="en"), "cld"),
    ],
)
def test_what_another_detector_found_is_not_compared(tmp_path, metric, stat, scope, detector):
    """The digest of its model differs; all other detectors may differ and this one is compared."""
    record = replace(EXACT, metric=metric, stat=stat, scope=scope)
    config = {"language": {"detector": "pycld2"}}
    old = {"detectors": list(DETECTORS.values()), "config": config}
    other = {name: held | {"sha256": "00"} for name, held in DETECTORS.items()}
    changed = old | {"detectors": [other[detector], *(one for name, one in DETECTORS.items() if name != detector)]}
    change = with_core(tmp_path / "1", record, replace(record, value=0.3), changed, also=old)
    assert (change.fate, change.reason) == (MetricChangeKind.NOT_COMPARABLE, "other_detector")
    needs_language = {"screen": {"cld"}}.get(detector, set())
    same = [DETECTORS[name] if name in {detector, *needs_language} else other[name] for name in DETECTORS]
    change = with_core(tmp_path / "2", record, replace(record, value=0.3), old | {"detectors": same}, also=old)
    assert change.fate == MetricChangeKind.CHANGED


@pytest.mark.parametrize(
    ("metric", "stat", "unit", "scope"),
    [
        ("tokens", "count", "tokens", Scope()),
        ("bytes_per_token", "ratio", "bytes/token", Scope()),
        ("seq_len_p50_p95", "p50", "tokens", Scope(rule="x")),
        ("source_mix_share", "share", "ratio", Scope(source="a")),
        ("pii_hit_rate", "hits", "hits per million tokens", Scope()),
        ("pad_fraction", "packed_2048", "ratio", Scope()),
        ("filter_reject_rate", "rate", "ratio", Scope()),
        ("filter_reject_rate", "rate", "ratio", Scope(rule="repeated_ngrams.periodic_run")),
    ],
)
def test_what_tokens_are_in_is_not_compared_across_tokenizers(tmp_path, metric, stat, unit, scope):
    """Units of tokens, shares of tokens, and the rule that looks at tokens, also where the numbers are equal."""
    record = replace(EXACT, metric=metric, stat=stat, unit=unit, scope=replace(scope, set="x"))
    tokenizer = made(tmp_path / "0", BASE).core.tokenizer.model_dump(mode="json")
    change = with_core(tmp_path, record, record, {"tokenizer": tokenizer | {"sha256": "ef" * 32}})
    assert (change.fate, change.reason) == (MetricChangeKind.NOT_COMPARABLE, "other_tokenizer")


def test_other_rules_are_compared_across_tokenizers(tmp_path):
    """They look at characters and words."""
    record = replace(EXACT, metric="filter_reject_rate", scope=Scope(rule="c4.sentences"))
    tokenizer = made(tmp_path / "0", BASE).core.tokenizer.model_dump(mode="json")
    changed = {"tokenizer": tokenizer | {"sha256": "ef" * 32}}
    assert with_core(tmp_path, record, replace(record, value=0.3), changed).fate == MetricChangeKind.CHANGED


@pytest.mark.parametrize(
    ("name", "parameters", "comparable"),
    [
        ("near_dup", ({"threshold": 0.8}, {"threshold": 0.7}), False),
        ("near_dup", ({"signatures": True}, {"signatures": False}), True),
        ("near_dup", ({"threshold": 0.8}, {"threshold": 0.8}), True),
    ],
)
def test_other_parameters_of_the_stage_are_another_meaning(tmp_path, name, parameters, comparable):
    """Those that change what is counted; those that only keep more do not."""
    record = replace(EXACT, metric="near_dup_rate")
    sides = [{"stages": [{"name": name, "version": "1", "parameters": one}]} for one in parameters]
    change = with_core(tmp_path, record, replace(record, value=0.3), sides[1], also=sides[0])
    assert (change.fate == MetricChangeKind.CHANGED) == comparable
    assert change.reason == ("" if comparable else "other_parameters")


def test_another_evaluation_set_under_the_same_name_is_not_compared(tmp_path):
    """Its items differ; a set that stayed is compared."""
    record = replace(EXACT, metric="benchmark_contamination", scope=Scope(set="quiz"))
    held = [
        [{"name": "quiz", "items": 3, "sha256": digit * 64}, {"name": "exam", "items": 3, "sha256": "1" * 64}]
        for digit in "23"
    ]
    cores = [{"protected": one} for one in held]
    change = with_core(tmp_path / "1", record, replace(record, value=0.3), cores[1], also=cores[0])
    assert change.reason == "other_protected_set"
    record = replace(record, scope=Scope(set="exam"))
    change = with_core(tmp_path / "2", record, replace(record, value=0.3), cores[1], also=cores[0])
    assert change.fate == MetricChangeKind.CHANGED


def test_drift_from_another_reference_is_not_compared(tmp_path):
    """Each build's drift is from its own parent."""
    record = Metric(metric="token_kl_drift", stat="kl", unit="nats", value=0.1, n=5, denominator=5)
    parents = [{"parents": [f"sha256:{digit * 64}"]} for digit in "12"]
    change = with_core(tmp_path, record, replace(record, value=0.3), parents[1], also=parents[0])
    assert change.reason == "other_reference"


def personal(documents, hits=None):
    """Return records of one entity in so many of 1,000 documents, and of all of them."""
    hits = documents if hits is None else hits
    found = []
    for scope in (Scope(), Scope(entity="EMAIL_ADDRESS")):
        for tier in ("", "validated_", "contextual_", "pattern_"):
            some = documents if tier in {"", "validated_"} else 0
            own = hits if tier in {"", "validated_"} else 0
            found += [
                Metric(
                    metric="pii_hit_rate",
                    stat=f"{tier}documents",
                    scope=scope,
                    unit="ratio",
                    value=some / 1000,
                    n=1000,
                    denominator=1000,
                ),
                Metric(
                    metric="pii_hit_rate",
                    stat=f"{tier}hits",
                    scope=scope,
                    unit="hits per million tokens",
                    value=own / 1e5 * 1e6,
                    n=own,
                    denominator=10**5,
                ),
            ]
    return found


def test_small_counts_of_personal_data_are_left_out_when_either_side_hides_them(tmp_path):
    """3 documents grew to 40: neither number is shown, nor that there is a record; 40 to 60 is."""
    shown = difference(
        tmp_path / "1",
        BASE,
        BASE,
        old_with={"metrics": personal(40)},
        new_with={"metrics": personal(60)},
    )
    assert shown.hidden_metrics == 0
    assert {change.scope.entity for change in shown.metrics} == {None, "EMAIL_ADDRESS"}
    for number, (old, new) in enumerate(((3, 40), (40, 3), (0, 2))):
        found = difference(
            tmp_path / f"2{number}",
            BASE,
            BASE,
            old_with={"metrics": personal(old)},
            new_with={"metrics": personal(new)},
        )
        assert found.metrics == ()
        assert found.hidden_metrics > 0


def test_what_matters_most_comes_first(tmp_path):
    """Beyond chance before what chance could; duplicates before padding; what repeats a row of the whole last."""
    old = [
        EXACT,
        replace(EXACT, metric="near_dup_rate"),
        replace(EXACT, scope=Scope(split="train")),
        Metric(metric="pad_fraction", stat="packed_2048", unit="ratio", value=0.5, n=1, denominator=1),
        Metric(metric="pad_fraction", stat="packed_4096", unit="ratio", value=0.5, n=1, denominator=1),
    ]
    values = (0.2, 0.11, 0.2, 0.05, 0.06)
    _, found = only(tmp_path, old, [replace(one, value=value) for one, value in zip(old, values, strict=True)])
    assert [(change.metric, change.stat, change.scope.split) for change in found.metrics] == [
        ("exact_dup_rate", "rate", None),
        ("pad_fraction", "packed_2048", None),
        ("pad_fraction", "packed_4096", None),
        ("exact_dup_rate", "rate", "train"),
        ("near_dup_rate", "rate", None),
    ]


def test_a_fault_of_the_mixture_is_among_the_first_ten_rows(tmp_path):
    """Three sources, largest change in points first, above many rows of padding, lengths and counts that moved more."""
    source = Metric(metric="source_mix_share", stat="share", unit="ratio", value=0.5, n=1000, denominator=1000)
    sized = Metric(metric="seq_len_p50_p95", stat="p50", unit="tokens", value=100.0, n=1000, denominator=1000)
    pairs = [
        *((replace(source, value=0.2, scope=Scope(source=f"s{n}")), 0.2 + n / 100) for n in range(1, 6)),
        *((replace(sized, scope=Scope(source=f"s{n}")), 5.0 + n) for n in range(20)),
        *((replace(EXACT, metric="pad_fraction", stat=f"packed_{n}", value=0.9), n / 100) for n in range(1, 20)),
        *((replace(EXACT, metric="train_val_overlap", stat=f"s{n}"), 0.1 + n / 1000) for n in range(1, 9)),
        *((replace(EXACT, metric="secret_hit_rate", stat=f"s{n}"), 0.1 + n / 700) for n in range(1, 9)),
        *((replace(EXACT, metric="benchmark_contamination", stat=f"s{n}"), 0.1 + n / 900) for n in range(1, 9)),
    ]
    _, found = only(tmp_path, [one for one, _ in pairs], [replace(one, value=value) for one, value in pairs])
    first = [(change.metric, change.scope.source or change.stat) for change in found.metrics[:9]]
    assert first == [
        ("train_val_overlap", "s8"), ("train_val_overlap", "s7"), ("train_val_overlap", "s6"),
        ("benchmark_contamination", "s8"), ("secret_hit_rate", "s8"), ("source_mix_share", "s5"),
        ("source_mix_share", "s4"), ("source_mix_share", "s3"), ("seq_len_p50_p95", "s0"),
    ]  # fmt: skip


def test_the_rows_that_are_listed_are_of_as_many_metrics_as_can_be():
    names = ["overlap", "overlap", "overlap", "toxic", "toxic", "faults"]
    changes = [SimpleNamespace(metric=name, at=at) for at, name in enumerate(names)]
    assert [change.at for change in in_turns(changes, 4)] == [0, 1, 3, 5, 2, 4]
    assert in_turns(changes, 6) == changes
