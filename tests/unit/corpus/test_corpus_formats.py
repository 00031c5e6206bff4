"""Every format of shards is known wherever formats are told apart: none is left out in silence."""

from __future__ import annotations

from typing import get_args

from dataaudit.corpus.readers import _READERS
from dataaudit.corpus.shards import Format
from dataaudit.export.croissant.files import _FORMATS

FILES = set(get_args(Format)) - {"datasets", "unknown"}
"""Formats of files; a streamed dataset has no file, an unknown format no reader."""


def test_each_has_a_reader():
    assert set(_READERS) == FILES


def test_each_has_a_media_type():
    """A shard of a format without one would be missing in Croissant."""
    assert set(_FORMATS) == FILES
