"""Files of fastText models: what is whole is taken, what is not is refused before fastText sees it."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataaudit.scan.detectors.language_detectors import model_labels, packaged_model

DATA = packaged_model().read_bytes()


def made(*, labels=("__label__en",), rows=3, magic=793_712_314, pruned=-1):
    """Return a small model whose matrices are not quantized."""
    entries = b"".join(name.encode() + b"\0" + struct.pack("<qb", 5, name.startswith("__label__")) for name in labels)
    dictionary = struct.pack("<3iqq", len(labels), 0, len(labels), 9, pruned) + entries
    matrix = struct.pack("<?qq", False, rows, 2) + bytes(4 * 2 * rows)
    return struct.pack("<2i", magic, 12) + struct.pack("<12id", *range(12), 0.5) + dictionary + matrix * 2


def test_the_packaged_model_has_its_labels():
    """176 of them, in the file's order."""
    labels = model_labels(DATA)
    assert len(labels) == 176
    assert labels[:2] == ["__label__en", "__label__ru"]


@given(st.integers(0, len(DATA) - 1))
def test_no_cut_passes(size):
    """Wherever it was cut short, it is seen."""
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
    """Nothing is read or allocated by a length that the file does not hold."""
    with pytest.raises(ValueError, match=says):
        model_labels(data)
