"""The table of code points: what is kept on disk is what is built, and damage costs time only."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest

from dataaudit.scan.kernels import word_classes
from dataaudit.scan.kernels.word_classes import WordClasses, build_word_classes


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setattr("dataaudit.base.cache.kept_folder", lambda: tmp_path)
    word_classes.word_classes.cache_clear()
    yield tmp_path
    word_classes.word_classes.cache_clear()


def same(left: WordClasses, right: WordClasses) -> bool:
    """Tell whether two tables hold the same values of the same types."""
    pairs = [(getattr(left, name), getattr(right, name)) for name in ("pages", "blocks", "expansions", "ascii")]
    return all(one.dtype == other.dtype and np.array_equal(one, other) for one, other in pairs)


def test_what_is_kept_is_what_is_built(folder):
    built = word_classes.word_classes()
    word_classes.word_classes.cache_clear()
    assert same(word_classes.word_classes(), built)
    assert same(built, build_word_classes())
    assert len(list(folder.iterdir())) == 1


def test_another_version_of_unicode_has_a_table_of_its_own(folder, monkeypatch):
    word_classes.word_classes()
    word_classes.word_classes.cache_clear()
    monkeypatch.setattr(unicodedata, "unidata_version", "99")
    word_classes.word_classes()
    assert len(list(folder.iterdir())) == 2


@pytest.mark.tables
@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "other"])
def test_a_damaged_table_is_built_again(folder, harm):
    built = word_classes.word_classes()
    (path,) = folder.iterdir()
    data = path.read_bytes()
    harmed = {
        "cut": data[:-100],
        "flip": data[:50_000] + bytes([data[50_000] ^ 1]) + data[50_001:],
        "empty": b"",
        "other": b"no table",
    }
    path.write_bytes(harmed[harm])
    word_classes.word_classes.cache_clear()
    assert same(word_classes.word_classes(), built)
    assert path.read_bytes() != harmed[harm]


def test_without_a_folder_it_is_built(monkeypatch):
    monkeypatch.setattr("dataaudit.base.cache.kept_folder", lambda: None)
    word_classes.word_classes.cache_clear()
    assert len(word_classes.word_classes().pages) == 0x1100
    word_classes.word_classes.cache_clear()
