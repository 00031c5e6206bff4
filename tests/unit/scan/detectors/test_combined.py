"""CLD2 and lid.176 together: which of them decides, and how sure both are."""

import pyarrow as pa
import pytest

from dataaudit.scan.detectors import language, language_detectors
from dataaudit.scan.detectors.language_detectors import CombinedDetector, combine

SHORT = {
    "es": "Mi hermana compra pan en la plaza",
    "fr": "Le chat dort sur la table",
    "it": "Una lettera arriva dal comune",
    "ru": "Книга лежит на старом столе",
    "mk": "Утре нема да има настава",
    "sv": "Vi fick ett brev av kommunen",
    "id": "Kereta itu datang terlambat hari ini",
}
"""Sentences whose language CLD2 alone does not find."""


def ask(detector, *texts):
    """Return [(language, confidence)]."""
    codes, confidence = detector.detect(pa.array(texts, pa.large_string()))
    return [(detector.model.languages[code], float(sure)) for code, sure in zip(codes, confidence, strict=True)]


@pytest.mark.parametrize("name", sorted(SHORT))
def test_short_sentences_that_cld2_takes_for_another_language(loaded, name):
    found, confidence = ask(loaded["combined"], SHORT[name])[0]
    assert ask(loaded["pycld2"], SHORT[name])[0][0] != name
    assert found == name
    assert confidence >= 0.5


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Isitimela sifike sekwephuzile namhlanje ekuseni", "zu"),  # unknown to lid.176
        ("Vlak danas kasni jer pada kiša", "hr"),  # lid.176 takes it for Malay
        ("O tren chega hoxe moi tarde á vila", "gl"),  # and this for several
        ("Kereta api datang lambat hari ini kerana hujan", "ms"),
        ("Vlak dnes príde neskoro večer", "sk"),
        ("今天的火车又晚点了很久", "zh"),
    ],
)
def test_what_cld2_knows_better_stays(loaded, text, name):
    assert ask(loaded["combined"], text)[0][0] == name


@pytest.mark.parametrize(
    "text", [*SHORT.values(), "Der Zug kommt heute wieder zu spät", "Поезд придет сегодня вечером"]
)
def test_capitals_change_no_language(loaded, text):
    """lid.176 reads lower case; by itself it takes text in capitals for English."""
    plain, capitals = ask(loaded["combined"], text, text.upper())
    assert capitals[0] == plain[0]


@pytest.mark.parametrize(
    "text",
    [
        "The members of the council met again last week to discuss plans for the new library, and agreed on the price",
        "기차가 오늘도 늦게 온다",
        "The government announced that children would receive further information about their education",
    ],
)
def test_lid176_is_not_asked_where_cld2_is_sure(models, monkeypatch, text):
    """A sure claim of CLD2 in a long text, of a script of its own, or with a high score costs no second look."""
    detector = CombinedDetector(models.chosen)
    alone = ask(detector, text)
    monkeypatch.setattr(detector, "second", None)
    assert ask(detector, text) == alone
    assert alone[0][1] >= 0.7


def test_without_any_claim_it_is_undetermined(models, monkeypatch):
    detector = CombinedDetector(models.chosen)
    monkeypatch.setattr(detector.second, "candidates", lambda *_: [])
    assert ask(detector, "\ua4d0 \ua4d1 \ua4d2") == [("und", 0.0)]


def test_confidence_is_below_a_half_where_nothing_fits(loaded):
    assert all(
        confidence < 0.5 for _, confidence in ask(loaded["combined"], "asdf qwer zxcv hjkl uiop", "a b c d e f g")
    )


def test_the_digest_is_of_both_models_and_the_weights(models, monkeypatch):
    first, second = models.chosen.parts
    assert combine(first, second) == models.chosen
    digests = {models.chosen.sha256, combine(first, first).sha256}
    monkeypatch.setattr(language_detectors, "_SCORE", 1.0)
    assert len({*digests, combine(first, second).sha256}) == 3
    assert set(models.chosen.languages) == {*first.languages, *second.languages}


def test_a_sample_is_classified_by_the_model_that_is_there(models, monkeypatch):
    """lid.176 is loaded once, though it is a part and classifies the sample too."""
    loads, load = [], language.language_detectors._load
    monkeypatch.setattr(language.language_detectors, "_load", lambda *args: loads.append(args) or load(*args))
    language.load_languages(models, seed=0)
    assert len(loads) == 1
