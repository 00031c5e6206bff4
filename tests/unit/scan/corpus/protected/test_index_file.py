"""The index as a file: what was written comes back, damage is seen, the digest says what is in it."""

import numpy as np
import pytest
from protected_made import match, matcher, numbered

from dataaudit.base.files import DamagedFileError
from dataaudit.scan.corpus.protected.index_file import map_arrays, open_index, write_arrays, write_index
from dataaudit.scan.corpus.protected.matching import Matcher

TEXT = " ".join(numbered("w", 70))


def test_a_mapped_index_finds_what_the_built_one_finds(tmp_path):
    """All arrays survive; the same content has the same digest wherever it lies."""
    built = matcher([TEXT, "short one"], [[(TEXT[:200], "the answer is long")]])
    files = [write_index(tmp_path / name / "a.index", built.index) for name in ("one", "two")]
    assert files[0].sha256 == files[1].sha256
    index, sha256 = open_index(files[0].path, check=True)
    assert sha256 == files[0].sha256
    texts = [f"before {TEXT} after", TEXT[:200] + " and the answer is long", "Short one!"]
    first, second = match(built, texts), match(Matcher(index), texts)
    for name in ("entries", "held_out", "items"):
        assert getattr(first, name).tolist() == getattr(second, name).tolist() != []


def test_an_empty_index_is_an_index(tmp_path):
    """Nothing held out and no set."""
    file = write_index(tmp_path / "a.index", matcher().index)
    found = match(Matcher(open_index(file.path, check=True)[0]), [TEXT])
    assert (len(found.entries), len(found.held_out), len(found.items)) == (0, 0, 0)


@pytest.mark.parametrize("place", [0, 30, 100, -100])
def test_a_changed_byte_is_seen(tmp_path, place):
    """In the magic, the head's digest, the head, or an array."""
    path = tmp_path / "a.index"
    write_arrays(path, {"numbers": np.arange(100)}, {"name": "value"})
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedFileError):
        map_arrays(path, check=True)


def test_a_file_cut_short_or_absent_is_seen(tmp_path):
    """Without reading the arrays, too."""
    path = tmp_path / "a.index"
    write_arrays(path, {"numbers": np.arange(100)}, {})
    path.write_bytes(path.read_bytes()[:-200])
    for gone in (path, tmp_path / "no.index"):
        with pytest.raises(DamagedFileError):
            map_arrays(gone, check=False)
    path.write_bytes(b"")
    with pytest.raises(DamagedFileError):
        map_arrays(path, check=False)
