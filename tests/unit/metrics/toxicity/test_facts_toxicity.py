"""What is shown of toxic documents: the screen's estimate and the judge's rate, each labelled as what it is."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from made_counts import judge, screened, share
from made_manifest import make, shard
from shown import shown, told

from dataaudit.base.render.line import per_million
from dataaudit.manifest.core import DetectorRecord
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Metric
from dataaudit.manifest.value_checks import check_records
from dataaudit.metrics.language.definition import languages
from dataaudit.metrics.shown import ABSENCES, Kind
from dataaudit.metrics.toxicity.definition import section, toxic
from dataaudit.present.report.highlights import highlights
from dataaudit.present.report.show import show_manifest

METRIC = "data_toxicity_rate"
SCREENED = screened({"web": (900, 800, 0.01), "forum": (100, 100, 0.6), "odd": (50, 0, 0.0)})


def text(folder):
    """Return the block with single blanks."""
    return told(section(toxic(load_manifest(folder))))


def absent(reason):
    """Return the record of a rate that was not evaluated."""
    return Metric(
        metric=METRIC, stat="rate", unit="ratio", value=None, method="sampled", status="not_evaluated", reason=reason
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A judged manifest."""
    made = tmp_path_factory.mktemp("toxic") / "m"
    rates = [
        share(METRIC, "rate", 0.02, 0.01, 0.03, 500),
        share(METRIC, "rate", 0.02, 0.01, 0.03, 500, entity="toxicity"),
        share(METRIC, "rate", 0.005, 0.001, 0.01, 500, entity="insult"),
        share(METRIC, "rate", 0.2, 0.1, 0.3, 90, source="forum"),
        share(METRIC, "rate", 0.01, 0.0, 0.02, 410, source="web"),
        share(METRIC, "rate", 0.03, 0.01, 0.05, 300, language="en"),
        share(METRIC, "rate", 0.0, 0.0, 0.02, 200, language="de"),
        share(METRIC, "rate_at_0.9", 0.004, 0.001, 0.01, 500),
    ]
    make(made, [shard("a.jsonl", toxicity_screen=0.0125)], metrics=[*SCREENED, *rates, *judge(METRIC, 500)])
    return made


def test_a_source_of_two_documents_is_not_in_front_of_the_most_toxic(tmp_path):
    sources = {"web": (9000, 0.01, 0.0, 0.02), "forum": (1000, 0.2, 0.1, 0.3), "tiny": (2, 1.0, 0.2, 1.0)}
    rates = [share(METRIC, "rate", *found, size, source=name) for name, (size, *found) in sources.items()]
    metrics = [*screened({name: (size, size, mean) for name, (size, mean, *_) in sources.items()}), *rates]
    metrics += [share(METRIC, "rate", 0.03, 0.02, 0.04, 900), *judge(METRIC, 900)]
    make(tmp_path / "m", [shard("a.jsonl", toxicity_screen=0.07)], metrics=metrics)
    (found,) = (item for item in highlights(load_manifest(tmp_path / "m")) if item.kind == Kind.TOXICITY)
    assert found.place == "forum"


def test_the_screen_speaks_of_what_it_can_judge(folder):
    shown = text(folder)
    assert "by the screen" in shown
    assert "web 900 0.8889 0.0100 0" in shown
    assert "forum 100 1.0000 0.6000 1.0000" in shown
    assert "odd 50 0 - -" in shown
    assert "(all) 1,050 0.8571 0.0756" in shown


def test_without_a_judge_the_screen_has_no_interval_and_says_why_and_what_its_number_is_not(tmp_path):
    """No cell is empty where somebody looks for an interval, also where an older manifest holds bounds."""
    bounds = {"low": 0.0, "high": 0.777, "confidence": 0.95, "reason": ""}
    older = [replace(one, **bounds) if one.stat == "screen" and one.value else one for one in SCREENED]
    for name, records in (("new", SCREENED), ("older", older)):
        make(tmp_path / name, [shard("a.jsonl")], metrics=[*records, absent("no_judge")])
        shown = text(tmp_path / name)
        assert "web 900 0.8889 0.0100 0 no interval: screen not judged" in shown
        assert "odd 50 0 - - -" in shown
        assert "0.0756 (no interval: screen not judged)" in shown
        assert "hate without slurs is not in it" in shown
        assert "0.7770" not in shown
        total = json.loads(show_manifest(tmp_path / name, None, as_json=True))["toxicity"]["total"]["screen"]
        assert (total["low"], total["high"], total["reason"]) == (None, None, "screen_alone")


def test_the_judge_stands_apart_with_intervals_sources_languages_and_classes(folder):
    shown = text(folder)
    assert "judged in a sample" in shown
    assert "forum 0.2000 0.1000 to 0.3000 90 (all) 0.0200 0.0100 to 0.0300 500" in shown
    assert "en 0.0300 0.0100 to 0.0500 300" in shown
    assert "insult 0.0050 0.0010 to 0.0100" in shown
    assert "with other bounds: 0.0040 at 0.9" in shown
    assert "500 documents, drawn by a hash" in shown


@pytest.mark.parametrize("reason", [one for one in ABSENCES if one not in {"no_analyzer", "not_judged"}])
def test_without_a_judge_the_reason_and_what_to_do_are_told_and_no_number(tmp_path, reason):
    make(tmp_path / "m", [shard("a.jsonl")], metrics=[*SCREENED, absent(reason)])
    shown = text(tmp_path / "m")
    assert f"Not evaluated: {ABSENCES[reason]} ({reason})." in shown
    assert "toxicity: {judge: original}" in shown
    facts = json.loads(show_manifest(tmp_path / "m", None, as_json=True))["toxicity"]
    assert facts["total"]["rate"]["value"] is None
    assert facts["judge"]["reason"] == reason
    assert facts["total"]["screen"]["value"] == pytest.approx(68 / 900)


def test_without_the_stage_nothing_is_said(tmp_path):
    make(tmp_path / "m", [shard("a.jsonl")])
    assert toxic(load_manifest(tmp_path / "m")) is None
    assert shown(section(None)) == []


def test_a_corpus_that_the_screen_cannot_read_says_so(tmp_path):
    """Without a document in English nothing was looked for: that is no corpus in which nothing stands out."""
    make(tmp_path / "m", [shard("a.jsonl")], metrics=[*screened({"web": (9, 0, 0.0)}), absent("no_judge")])
    assert "none of 9 documents screened: in no language" in show_manifest(tmp_path / "m", as_json=False)
    assert "The screen could read none of the documents: how many are toxic is not known." in text(tmp_path / "m")


def test_one_source_is_not_told_twice(tmp_path):
    make(tmp_path / "m", [shard("a.jsonl")], metrics=[*screened({"web": (9, 9, 0.1)}), absent("no_judge")])
    shown = text(tmp_path / "m")
    assert "web" not in shown
    assert "(all) 9 1.0000 0.1000" in shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (0, "0"), (0.1234, "0.123"), (3.14159, "3.14"), (31.4159, "31.4"), (1234.5, "1,234")],
)
def test_rates_per_million_keep_three_digits(value, shown):
    assert per_million(value) == shown


def test_the_screen_is_no_detector_of_languages(tmp_path):
    """It stands among the detectors of a manifest, with the languages that it reads."""
    make(tmp_path / "m", [shard("a.jsonl")])
    manifest = load_manifest(tmp_path / "m")
    screen = DetectorRecord(name="dataaudit-screen", version="1", sha256="ab" * 32, languages=("en",))
    language = DetectorRecord(name="pycld2", version="0.42", sha256="cd" * 32, languages=("en", "de"))
    core = manifest.core.model_copy(update={"detectors": (screen, language)})
    found = languages(replace(manifest, core=core))
    assert found is not None
    assert found.detectors == ("pycld2 0.42",)


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "estimated"},
        {"method": "estimated", "reason": "other"},
        {"method": "exact", "reason": "screen_alone"},
        {"method": "estimated", "reason": "screen_alone", "low": 0.0, "high": 1.0, "confidence": 0.95},
        {"method": "estimated", "reason": "screen_alone", "value": None, "status": "not_evaluated"},
        {"method": "estimated", "reason": "", "low": 0.0, "high": 1.0, "confidence": 1.5},
        {"method": "estimated", "reason": "", "low": 0.0, "high": 1.0, "confidence": 0.0},
    ],
)
def test_only_an_inexact_value_has_no_interval_and_only_for_a_named_reason(wrong):
    """Of one record and of a table of them."""
    columns = ("status", "method", "reason", "value", "low", "high", "confidence")
    good = Metric(
        metric=METRIC, stat="screen", unit="ratio", value=0.5, method="estimated", reason="screen_alone", version="2"
    )
    row = {name: getattr(good, name) for name in columns}
    schema = pa.schema([(name, pa.string() if name in columns[:3] else pa.float64()) for name in columns])
    check_records(pa.Table.from_pylist([row], schema=schema))
    with pytest.raises(ValueError, match=r"inexact|interval|confidence"):
        replace(good, **{"reason": "", **wrong})
    with pytest.raises(ValueError, match="a record has"):
        check_records(pa.Table.from_pylist([{**row, "reason": "", **wrong}], schema=schema))
