"""Both detectors with their real models: what they say of text, and of what is no text."""

import numpy as np
import pyarrow as pa
import pycld2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from sentences import SENTENCES

from dataaudit.scan.detectors import language_detectors
from dataaudit.scan.detectors.base import Windows, identify, known_languages, language_code


def ask(detector, texts):
    """Return [(language, confidence)]."""
    codes, confidence = detector.detect(pa.array(texts, pa.large_string()))
    assert codes.dtype == np.int32
    assert confidence.dtype == np.float32
    names = detector.model.languages
    return [(names[code], float(sure)) for code, sure in zip(codes, confidence, strict=True)]


@pytest.mark.parametrize("language", sorted(SENTENCES))
def test_sentences_of_every_script_are_known(detector, language):
    """A sentence, three of them, and 200 KB of them are in their language, and surely so."""
    sentences = SENTENCES[language]
    whole = " ".join(sentences)
    for found, sure in ask(detector, [*sentences, whole, f"{whole}\n" * (200_000 // len(whole.encode()))]):
        assert found == language
        assert sure >= 0.5


@pytest.mark.parametrize(
    "text",
    [
        "", " \n", "1234 5,678", "--- | === | ***", "\U0001f600 \U0001f680", "\u200b\u2028",
        "https://example.org/a/b", "\x00\x01\x7f",
    ],
)  # fmt: skip
def test_a_text_without_letters_is_undetermined(detector, text):
    assert ask(detector, [text, f"{text} " * 500]) == [("und", 0.0)] * 2


def test_control_characters_and_noncharacters_cost_nothing(detector):
    """CLD2 refuses them, fastText does not care: the text around them is still German."""
    text = " ".join(SENTENCES["de"])
    for hostile in ("\x00", "\x0b", "\x85", "\x9f", "\ufdd0", "\uffff", "\U0010fffe", "\ufeff", "\u0300" * 50):
        assert ask(detector, [text.replace(" ", f" {hostile} ")])[0][0] == "de"


@given(
    texts=st.lists(
        st.sampled_from([" ".join(lines) * 3 for lines in SENTENCES.values()] + ["", "1"]), min_size=1, max_size=6
    ),
    data=st.data(),
)
@settings(max_examples=examples(25))
def test_the_cut_into_batches_changes_nothing(loaded, texts, data):
    """Alone, in slices or together, a document has the same language and confidence."""
    cut = data.draw(st.integers(0, len(texts)))
    array = pa.array(texts, pa.large_string())
    for detector in loaded.values():
        whole = detector.detect(array)
        pieces = [detector.detect(array.slice(0, cut)), detector.detect(array.slice(cut))]
        for index in range(2):
            assert np.concatenate([piece[index] for piece in pieces]).tolist() == whole[index].tolist()


def test_languages_that_one_does_not_know_are_said(loaded):
    """The codes that a detector can give are listed: Zulu is among those of one only."""
    zulu = "Isitimela sifike sekwephuzile namhlanje ekuseni ngoba iqhwa lalimboze imizila yesitimela."
    names = {name: one.model.languages for name, one in loaded.items()}
    assert "zu" in names["pycld2"]
    assert "zu" not in names["fasttext"]
    assert len(names["fasttext"]) == 1 + 176
    assert all(known[0] == "und" and list(known[1:]) == sorted(set(known[1:]) - {"und"}) for known in names.values())
    assert ask(loaded["pycld2"], [zulu])[0][0] == "zu"
    assert ask(loaded["fasttext"], [zulu])[0][1] < 0.5


def test_every_code_point_that_cld2_refuses_is_replaced():
    for start in range(0, 0x110000, 0x400):
        block = "".join(chr(point) for point in range(start, start + 0x400) if not 0xD800 <= point < 0xE000)
        pycld2.detect(block.translate(language_detectors._REFUSED), isPlainText=True)


def test_a_text_that_cld2_refuses_all_the_same_is_undetermined(loaded, monkeypatch):
    """A failure of the library costs one document its language, not a shard."""

    def refuse(*_, **__):
        raise pycld2.error("no")

    monkeypatch.setattr(pycld2, "detect", refuse)
    assert ask(loaded["pycld2"], ["some text"]) == [("und", 0.0)]


@pytest.mark.parametrize(
    ("label", "code"),
    [
        ("__label__de", "de"), ("__label__als", "gsw"), ("iw", "he"), ("jw", "jv"), ("zh-Hant", "zh"),
        ("sr-ME", "sr"), ("un", "und"), ("xx-Goth", "got"), ("xx-Latn", "und"), ("zzp", "und"), ("ceb", "ceb"),
        ("pt_BR", "pt"),
    ],
)  # fmt: skip
def test_codes_are_of_one_scheme(label, code):
    assert language_code(label) == code


def test_known_languages_are_sorted_behind_und():
    assert known_languages(["zh-Hant", "zh", "un", "iw"]) == ("und", "he", "zh")


LOOKS = Windows(first=(2, 16), second=(4, 32), sure=0.7)


def look(texts, answers):
    """Identify texts with a detector that says what it is told to; return its answers and what it saw."""
    seen = []

    def classify(text):
        seen.append(text)
        return answers(text)

    codes, confidence = identify(pa.array(texts, pa.large_string()), LOOKS, classify)
    return [(code, round(sure, 3)) for code, sure in zip(codes.tolist(), confidence.tolist(), strict=True)], seen


def test_a_first_look_that_is_sure_is_enough():
    found, seen = look(["word " * 1000], lambda _: (3, 0.9))
    assert found == [(3, 0.9)]
    assert len(seen) == 1
    assert len(seen[0]) <= 2 * (16 + 1)


def test_a_doubt_asks_for_more_text_and_the_second_answer_counts():
    """Also where it is less sure: it has seen more."""
    found, seen = look(["word " * 1000], lambda text: (3, 0.6) if len(text) < 60 else (4, 0.2))
    assert found == [(4, 0.2)]
    assert len(seen) == 2


def test_a_document_that_was_seen_as_a_whole_is_not_looked_at_again():
    found, seen = look(["a short one", "word " * 1000], lambda _: (1, 0.1))
    assert found == [(1, 0.1)] * 2
    assert len(seen) == 3


def test_words_without_letters_are_not_shown():
    """Emoji pass as words by their bytes; a detector never sees a text of them alone."""
    found, seen = look(["\U0001f600 \U0001f680", "12", ""], lambda _: (1, 1.0))
    assert found == [(0, 0.0)] * 3
    assert seen == []
