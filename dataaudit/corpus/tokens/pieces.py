"""Names of tokens: the vocabulary's own entries, made printable."""

from __future__ import annotations

import os
from collections.abc import Iterable

from dataaudit.corpus.tokens.spec import TokenizerFile


def vocabulary_pieces(file: TokenizerFile, tokens: Iterable[int]) -> dict[int, str]:
    """Return the vocabulary's entry of each token, escaped; empty where it has none.

    An entry is what the model file says, not what it decodes to: byte-level vocabularies write a space as U+0120,
    SentencePiece as U+2581.
    """
    wanted = sorted(set(tokens))
    if not wanted:
        return {}
    if file.format == "sentencepiece":
        import sentencepiece

        processor = sentencepiece.SentencePieceProcessor(model_file=str(file.path))
        size = int(processor.get_piece_size())
        return {token: escaped(processor.id_to_piece(token)) if token < size else "" for token in wanted}
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(file.path))
    return {token: escaped(tokenizer.id_to_token(token) or "") for token in wanted}


def escaped(piece: str) -> str:
    """Return a piece with every character that is not printable, and the backslash, as an escape of Python."""
    return "".join(
        character if character.isprintable() and character != "\\" else character.encode("unicode_escape").decode()
        for character in piece
    )
