"""Names of tokens: the vocabulary's entries, harmless on a screen."""

from __future__ import annotations

import pytest

from dataaudit.scan.corpus.tokens import resolve_tokenizer
from dataaudit.scan.corpus.tokens.spec import escaped, vocabulary_pieces


def test_pieces_are_the_entries_of_the_vocabulary(default_file):
    """A byte-level space is U+0120, and an id that no entry has is empty."""
    import tokenizers

    known = tokenizers.Tokenizer.from_file(str(default_file.path))
    token = known.encode(" the", add_special_tokens=False).ids[0]
    found = vocabulary_pieces(default_file, [token, default_file.vocab_size + 5, token])
    assert found == {token: "\u0120the", default_file.vocab_size + 5: ""}
    assert vocabulary_pieces(default_file, []) == {}


def test_pieces_of_sentencepiece_are_its_own(sentencepiece_trainer, tmp_path):
    """The model names its pieces; a space is U+2581."""
    (tmp_path / "m.model").write_bytes(sentencepiece_trainer())
    file = resolve_tokenizer("m.model", base_dir=tmp_path, cache_dir=tmp_path / "cache")
    found = vocabulary_pieces(file, range(file.vocab_size + 1))
    assert any(piece.startswith("\u2581") for piece in found.values())
    assert found[file.vocab_size] == ""


@pytest.mark.parametrize(
    ("piece", "shown"),
    [
        ("a\x1b[31m", r"a\x1b[31m"),
        ("\n\t", r"\n\t"),
        ("\u202e", r"\u202e"),
        ("\\n", r"\\n"),
        ("\U0001f600", "\U0001f600"),
        ("\ue000", r"\ue000"),
        ("\u00e9\u4e2d", "\u00e9\u4e2d"),
    ],
)
def test_what_is_not_printable_is_escaped(piece, shown):
    """Control and direction marks cannot steer a terminal, and no two pieces look alike by escaping."""
    assert escaped(piece) == shown
