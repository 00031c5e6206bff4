"""What is said of held-out splits and evaluation sets in training data."""

from dataclasses import replace

from made_manifest import make, shard
from shown import shown, told

from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Metric, Scope, count, ratio
from dataaudit.metrics.contamination.definition import section as set_section
from dataaudit.metrics.contamination.definition import set_leaks
from dataaudit.metrics.overlap.definition import held_out_leaks, section
from dataaudit.present.report.show import facts_of, show_manifest


def share(metric, stat, part, whole, **scope):
    """Return a ratio."""
    return ratio(metric, stat, part, whole, scope=Scope(**scope), unit="ratio", version="1")


def number(metric, stat, value, **scope):
    """Return a count."""
    return count(metric, stat, value, scope=Scope(**scope), unit="items", n=10, version="1")


OVERLAP = [
    number("train_val_overlap", "documents", 8, set="val"),
    share("train_val_overlap", "ngram", 2, 8, set="val"),
    share("train_val_overlap", "ngram", 1, 8, set="val", source="web"),
    share("train_val_overlap", "ngram_without_common", 1, 8, set="val"),
    Metric(
        metric="train_val_overlap",
        stat="span",
        scope=Scope(set="val"),
        unit="ratio",
        value=0.25,
        low=0.1,
        high=0.5,
        confidence=0.95,
        method="sampled",
    ),
    share("train_val_overlap", "near_dup", 3, 8, set="val"),
]
CONTAMINATION = [
    number("benchmark_contamination", "items", 9, set="quiz"),
    number("benchmark_contamination", "too_short", 1, set="quiz", entity="question"),
    number("benchmark_contamination", "boilerplate", 2, set="quiz", entity="question"),
    number("benchmark_contamination", "common", 1, set="quiz", entity="question"),
    share("benchmark_contamination", "rate", 3, 6, set="quiz", entity="question", rule="verbatim"),
    share("benchmark_contamination", "rate", 4, 6, set="quiz", entity="question", rule="similar"),
    share("benchmark_contamination", "rate", 1, 6, set="quiz", entity="question", rule="similar", source="web"),
    share("benchmark_contamination", "rate", 1, 5, set="quiz", entity="both", rule="verbatim"),
]


def test_rows_are_those_of_all_training_data(tmp_path):
    """A row for each split, and for each part of a set that has it; sources are left to `--metric`."""
    make(tmp_path / "m", [shard("a.jsonl"), shard("b.jsonl", split="val")], metrics=[*OVERLAP, *CONTAMINATION])
    manifest = load_manifest(tmp_path / "m")
    assert held_out_leaks(manifest) == [
        {
            "split": "val",
            "documents": 8,
            "near_dup": 0.375,
            "ngram": 0.25,
            "ngram_without_common": 0.125,
            "span": 0.25,
            "span_without_common": None,
            "edited": None,
            "edited_without_common": None,
            "sampled": False,
            "bounds": {"span": (0.1, 0.5)},
            "why": "",
        }
    ]
    assert set_leaks(manifest) == [
        {
            "set": "quiz",
            "items": 9,
            "part": "question",
            "findable": 6,
            "too_short": 1,
            "boilerplate": 2,
            "verbatim": 0.5,
            "similar": 0.666666666667,
            "common": 1,
            "why": "",
            "context": None,
            "context_found": None,
        },
        {
            "set": "quiz",
            "items": 9,
            "part": "both",
            "findable": 5,
            "too_short": None,
            "boilerplate": None,
            "verbatim": 0.2,
            "similar": None,
            "common": 0,
            "why": "",
            "context": None,
            "context_found": None,
        },
    ]
    splits, sets = told(section([], held_out_leaks(manifest), [])), told(set_section(set_leaks(manifest)))
    assert "val 8 0.3750" in splits
    assert "val, from a sample, 95 % intervals: spans 0.1000 to 0.5000" in splits
    assert "quiz 9 question 6" in sets
    assert {"held_out_leaks", "set_leaks"} <= set(facts_of(manifest))


def test_without_anything_protected_nothing_is_said(tmp_path):
    """No empty table."""
    make(tmp_path / "m", [shard("a.jsonl")])
    manifest = load_manifest(tmp_path / "m")
    assert shown(section([], held_out_leaks(manifest), [])) == shown(set_section(set_leaks(manifest))) == []


def test_a_rate_that_is_absent_has_its_reason_on_the_screen(tmp_path):
    """A dash alone might be read as nothing found."""
    absent = [
        replace(share("train_val_overlap", stat, 0, 8, set="val"), value=None, status="not_evaluated", reason=reason)
        for stat, reason in (("ngram", "no_training_documents"), ("span", "no_training_documents"))
    ]
    empty = share("benchmark_contamination", "rate", 0, 0, set="quiz", entity="question", rule="verbatim")
    metrics = [OVERLAP[0], *absent, number("benchmark_contamination", "items", 2, set="quiz"), empty]
    make(tmp_path / "m", [shard("b.jsonl", split="val")], metrics=metrics)
    manifest = load_manifest(tmp_path / "m")
    splits, sets = told(section([], held_out_leaks(manifest), [])), told(set_section(set_leaks(manifest)))
    assert "val: - because there are no training documents" in splits
    assert "quiz, question: - because no rule can find any of its items: all are too short, or a template" in sets


def test_questions_that_no_share_speaks_of_are_said(tmp_path):
    """How many, and how many of them were found; where nothing else is left, that is why there is no share."""
    beside = [
        number("benchmark_contamination", stat, value, set="quiz", entity="question")
        for stat, value in (("context", 2), ("context_found", 1))
    ]
    empty = share("benchmark_contamination", "rate", 0, 0, set="quiz", entity="question", rule="verbatim")
    metrics = [OVERLAP[0], number("benchmark_contamination", "items", 2, set="quiz"), empty, *beside]
    make(tmp_path / "m", [shard("b.jsonl", split="val")], metrics=metrics)
    manifest = load_manifest(tmp_path / "m")
    (one,) = set_leaks(manifest)
    assert (one["context"], one["context_found"], one["findable"]) == (2, 1, 0)
    sets = told(set_section(set_leaks(manifest)))
    assert "quiz: 2 questions are found only beside the answer, or alone between line breaks, and in no share" in sets
    assert "1 was found so" in sets
    assert "its items are found only beside their answers, or alone between line breaks" in sets


def test_of_a_split_without_words_nothing_is_known(tmp_path):
    """A rate of 0 where nothing could be found is no good news, and the page says why."""
    empty = [number("train_val_overlap", "no_words", 8, set="val")]
    empty.append(share("train_val_overlap", "ngram", 0, 8, set="val"))
    make(tmp_path / "m", [shard("a.jsonl"), shard("b.jsonl", split="val")], metrics=[OVERLAP[0], *empty])
    [found] = held_out_leaks(load_manifest(tmp_path / "m"))
    assert found["why"] == "8 of its 8 documents have no word"
    part = section([], [found], [])
    assert (part.tone, "is not known" in str(part.lead)) == ("quiet", True)


def test_what_is_common_alone_is_no_leak(tmp_path):
    """Notices are counted, and the page says that it is they."""
    rates = [share("train_val_overlap", stat, 3, 8, set="val") for stat in ("ngram", "span")]
    rates += [share("train_val_overlap", f"{stat}_without_common", 0, 8, set="val") for stat in ("ngram", "span")]
    make(tmp_path / "m", [shard("a.jsonl"), shard("b.jsonl", split="val")], metrics=[OVERLAP[0], *rates])
    part = section([], held_out_leaks(load_manifest(tmp_path / "m")), [])
    assert (part.tone, "notices, or one text" in str(part.lead)) == ("good", True)


def test_more_items_than_documents_that_hold_them_are_of_one_template(tmp_path):
    """Twenty documents held twenty items, and sixty were reported: the others only resemble these."""
    match = {"set": "quiz", "part": "question", "tier": "similar", "rule": "similar", "shard": 0, "start": 0, "end": 9}
    match |= {"score": 0.8, "score_without_common": 0.8}
    part = {"set": "quiz", "entity": "question"}
    rates = [share("benchmark_contamination", "rate", 1, 6, rule="verbatim", **part), CONTAMINATION[0]]
    rates.append(share("benchmark_contamination", "rate", 4, 6, rule="similar", **part))
    for documents in (2, 4):
        overlap = [match | {"item": f"q{at}", "row": at % documents} for at in range(4)]
        folder = tmp_path / str(documents)
        make(folder, [shard("a.jsonl")], metrics=rates, tables={"overlap": overlap})
        text = " ".join(show_manifest(folder, part="leaks", as_json=False).split())
        assert ("quiz: 3 items are only similar to text of 2 training documents." in text) == (documents == 2)
