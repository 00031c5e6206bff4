"""What a token says, from its entry in a vocabulary."""

import pytest

from dataaudit.metrics.drift.definition import text_or_id


@pytest.mark.parametrize(
    ("piece", "text"),
    [
        ("Ġjest", '" jest"'), ("ĠÃ©", '" é"'), ("æĹ¥æľ¬", '"日本"'), ("Ċ", '"\\n"'), ("čĊĠĠ", '"\\r\\n  "'),
        ("âĢĵ", '"–"'), ("\u2581jest", '" jest"'), ("<0x0A>", '"\\n"'), ("plain", '"plain"'),
        ("<|end|>", '"<|end|>"'), ("\\\\n", '"\\\\n"'),
    ],
)  # fmt: skip
def test_the_text_of_a_token(piece, text):
    assert text_or_id(piece, 5) == text


@pytest.mark.parametrize("piece", ["čas", "ģimene", "ě", "ñ", "日", "ünï"])
def test_letters_that_byte_level_vocabularies_use_are_letters_elsewhere(piece):
    """A Czech, Latvian or Spanish entry of SentencePiece is no byte of another one."""
    assert text_or_id(piece, 5) == f'"{piece}"'


@pytest.mark.parametrize(("piece", "text"), [("<0xE2>", "<0xE2>"), ("âĢ", '"âĢ"'), ("", "id 5"), (None, "id 5")])
def test_a_part_of_a_character_keeps_its_entry(piece, text):
    assert text_or_id(piece, 5) == text
