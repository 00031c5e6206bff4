"""What a model file says about added tokens and normalization, read without loading an encoder."""

from __future__ import annotations

import json
from typing import Any

from dataaudit.corpus.tokens.spec import TokenizerFile


def added_literals(file: TokenizerFile) -> tuple[str, ...]:
    """List the spellings that a model may treat as one token, in the order of the file."""
    if file.format == "sentencepiece":
        import sentencepiece  # noqa: PLC0415 - heavy

        model = sentencepiece.SentencePieceProcessor(model_proto=file.path.read_bytes())
        pieces = range(model.get_piece_size())
        odd = (piece for piece in pieces if model.is_control(piece) or model.is_unknown(piece))
        return tuple(model.id_to_piece(piece) for piece in odd)
    document: dict[str, Any] = json.loads(file.path.read_bytes())
    return tuple(token["content"] for token in document.get("added_tokens") or () if token["content"])


def has_normalizer(file: TokenizerFile) -> bool:
    """Tell whether the model rewrites characters before it splits; replacing a space does not count."""
    if file.format == "sentencepiece":
        return True
    document: dict[str, Any] = json.loads(file.path.read_bytes())
    return any(step["type"] not in {"Replace", "Prepend"} for step in _steps(document.get("normalizer")))


def _steps(normalizer: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Flatten nested sequences of normalizers."""
    if normalizer is None:
        return []
    if normalizer["type"] == "Sequence":
        return [step for inner in normalizer["normalizers"] for step in _steps(inner)]
    return [normalizer]
