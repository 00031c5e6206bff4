"""The toxicity screen that the package carries: what it finds, what it leaves alone, what it cannot judge."""

import io
import zipfile
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
from buffers import buffers
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.base.errors import DetectorError
from dataaudit.scan.detectors.base import LanguageBatch
from dataaudit.scan.detectors.toxicity import ToxicityScreen, find_screen
from dataaudit.scan.detectors.toxicity.screen import read_screen, write_screen
from dataaudit.scan.kernels.words import split_words

NAMES = ("und", "de", "en")
RUDE = "you are a stupid idiot, shut up"
CALM = (
    "The garden behind the house was planted last spring, and the roses have been in flower since the first week"
    " of June. We water them in the evening when the sun is low."
)
PLAIN = (
    "static int slave_abort(struct master *m) { if (m->dead) kill_children(m); return -EINVAL; }",
    "The process is killed when the parent dies; a dummy node is injected into the tree and then executed.",
    "Mounting a dirty file system in degraded mode is a bad idea: the journal is aborted and the daemon hangs.",
    "She is a Muslim woman from Jordan who studies medicine in Berlin.",
    "The Jewish community of the town built a school in 1890, and black soldiers served in its regiment.",
)


@pytest.fixture(scope="module")
def screen():
    return ToxicityScreen(find_screen())


def score(screen, texts, language="en", languages=True):
    """Score texts that are all of one language."""
    values, offsets = buffers(texts)
    count = len(texts)
    batch = LanguageBatch(
        names=NAMES,
        codes=np.full(count, NAMES.index(language), dtype=np.int32),
        confidence=np.ones(count, dtype=np.float32),
        sampled=np.zeros(count, dtype=bool),
        agreeing=np.zeros(count, dtype=bool),
    )
    return screen.score(values, offsets, split_words(values, offsets), batch if languages else None)


def test_insults_are_found(screen):
    found = score(screen, [RUDE, "what a pathetic loser", "go to hell you piece of crap"])
    assert found.probability.min() > 0.8


@pytest.mark.parametrize(
    "word", ["cr*p", "cr4p", "craaaap", "c r a p", "C.R.A.P", "cr\u200bap", "\uff43\uff52\uff41\uff50", "cr\u00e1p"]
)
def test_a_word_in_disguise_is_taken_for_the_word(screen, word):
    disguised, plain, clean = score(
        screen, [f"this is {word} and more", "this is crap and more", "this is it and more"]
    ).raw
    assert disguised > (plain + clean) / 2


@pytest.mark.parametrize("text", PLAIN)
def test_technical_text_and_names_of_groups_are_not_toxic(screen, text):
    assert score(screen, [text]).probability[0] < 0.5


def test_another_language_is_not_screened(screen):
    found = score(screen, [RUDE, CALM], language="de")
    assert not found.screened.any()
    assert found.raw.tolist() == found.probability.tolist() == [0, 0]


@pytest.mark.parametrize("known", [True, False])
def test_unknown_languages_are_screened_where_english_words_are(screen, known):
    """A language that nobody could tell, or that nobody looked for."""
    texts = [CALM, RUDE, "0x7f 0x1a 4096 MOV EAX EBX", "\u4f60\u597d\u4e16\u754c", "Donaudampfschiff Kapitaen Muetze"]
    found = score(screen, texts, language="und", languages=known)
    assert found.screened.tolist() == [True, True, False, False, False]


@pytest.mark.parametrize("text", ["", "  \n", "!!! --- ???", "\u200b"])
def test_a_document_without_words_is_not_screened(screen, text):
    assert not score(screen, [text]).screened[0]


def test_a_toxic_passage_is_not_hidden_by_what_stands_around_it(screen):
    """It scores within a clean document of any length as it does within one of a window's length."""
    for times in (5, 50, 500):
        padded = f"{CALM * times} {RUDE}. You stupid, disgusting liar. {CALM * times}"
        assert score(screen, [padded]).probability[0] > 10 * score(screen, [CALM * 2 * times]).probability[0]


def test_a_long_clean_document_is_clean(screen):
    assert score(screen, [CALM * 2000]).probability[0] < 0.05


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), st.sampled_from([RUDE, CALM]))),
    st.data(),
)
def test_a_document_scores_the_same_in_every_batch(texts, data):
    """Hostile characters beside it change nothing."""
    screen = ToxicityScreen(find_screen())
    cut = data.draw(st.integers(0, len(texts)))
    whole, parts = score(screen, texts), [score(screen, texts[:cut]), score(screen, texts[cut:])]
    for name in ("raw", "probability", "screened"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        assert np.array_equal(getattr(whole, name), joined)


def test_the_model_is_named_by_its_content():
    model = find_screen()
    data = model.path.read_bytes()
    assert model.sha256 == sha256(data).hexdigest()
    assert model.languages == ("en",)
    assert len(data) < 600_000


def test_the_model_holds_no_pickle_and_says_what_it_was_made_of():
    data = find_screen().path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert all(name.endswith(".npy") for name in archive.namelist())
        assert not any(b"'|O'" in archive.read(name)[:128] for name in archive.namelist())
    about = read_screen(data, "package").about
    assert {"CC0-1.0", "MIT"} <= {source.get("licence") for source in about["data"]}
    assert about["licence"] == "Apache-2.0"


def test_the_threshold_is_the_first_score_of_its_probability(screen):
    least = screen.threshold(0.5)
    places = np.searchsorted(screen.file.steps, [least - 1, least], side="right")
    below, at = screen.file.probabilities[places]
    assert below < 0.5 <= at
    assert screen.threshold(0.0) < screen.file.steps[0]
    assert screen.threshold(1.0) > screen.file.steps[-1]


def test_a_model_that_is_not_the_named_one_is_refused():
    with pytest.raises(DetectorError, match="not the model"):
        ToxicityScreen(replace(find_screen(), sha256="0" * 64))


def test_a_model_that_is_gone_is_said_so(tmp_path):
    with pytest.raises(DetectorError, match="cannot be read"):
        ToxicityScreen(replace(find_screen(), path=tmp_path / "gone.npz"))


def test_a_model_file_survives_writing():
    data = find_screen().path.read_bytes()
    assert write_screen(read_screen(data, "package")) == write_screen(
        read_screen(write_screen(read_screen(data, "package")), "again")
    )


def _damaged(**arrays):
    with np.load(io.BytesIO(find_screen().path.read_bytes()), allow_pickle=False) as archive:
        kept = {**archive, **arrays}
    out = io.BytesIO()
    np.savez(out, **{name: array for name, array in kept.items() if array is not None})
    return out.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\x03\x04",
        find_screen().path.read_bytes()[:5000],
        _damaged(words=None),
        _damaged(words=np.zeros(7, np.int8)),
        _damaged(words=np.zeros(8, np.int16)),
        _damaged(keys=np.ones(4096, np.uint64)),
        _damaged(disguised=np.zeros(3, np.int16)),
        _damaged(norms=np.zeros(1, np.int64)),
        _damaged(passage=np.array([0, 1])),
        _damaged(steps=np.array([2, 1])),
        _damaged(about=np.frombuffer(b"{}", np.uint8)),
        _damaged(about=np.frombuffer(b"{", np.uint8)),
        _damaged(about=np.array([{"a": 1}], dtype=object)),
    ],
    ids=range(14),
)
def test_a_file_that_is_no_model_is_refused(data):
    with pytest.raises(DetectorError, match="expected the screen's model in here"):
        read_screen(data, "here")
