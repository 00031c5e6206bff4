"""Windows: the stretches of a document that a judge looks at, as tokens of its own tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

STRETCH = 1 << 15
"""Characters of a stretch. A document of more than ``max_windows`` of them is never encoded as a whole: as many
stretches are drawn, and one window of each."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of one document."""

    tokens: list[list[int]]
    """Ids of each window, with those that the tokenizer adds; [1, max_windows] of them, in the document's order."""
    whole: bool
    """Whether they are all of the document."""


def windows_of(text: str, tokenizer: Any, *, window: int, max_windows: int, seed: int) -> Windows:
    """Cut a document into windows, and draw some where there are more than are looked at.

    The draw depends on the text and the seed alone, so that it is the same wherever the document lies.

    Args:
        text: The document; an empty one has one window of the added tokens alone.
        tokenizer: Of transformers, a fast one.
        window: Tokens of a window at most, with the added ones.
        max_windows: Windows that are looked at, at most.
        seed: Of the draw.
    """
    if len(text) <= STRETCH * max_windows:
        tokens = _encode(text, tokenizer, window)
        if len(tokens) <= max_windows:
            return Windows(tokens, whole=True)
        return Windows([tokens[index] for index in draw(text, len(tokens), max_windows, seed)], whole=False)
    chosen = []
    for index in draw(text, -(-len(text) // STRETCH), max_windows, seed):
        stretch = text[index * STRETCH : (index + 1) * STRETCH]
        tokens = _encode(stretch, tokenizer, window)
        chosen.append(tokens[draw(stretch, len(tokens), 1, seed)[0]])
    return Windows(chosen, whole=False)


def draw(text: str, among: int, number: int, seed: int) -> Sequence[int]:
    """Draw some of the first natural numbers by a hash of a text: the ``number`` with the smallest hashes, ascending.

    Args:
        text: What decides.
        among: How many there are.
        number: How many are drawn; all where there are no more.
        seed: Makes another draw.
    """
    key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, key=seed.to_bytes(8, "little")).digest()
    ranks = sorted(
        (blake2b(index.to_bytes(8, "little"), digest_size=8, key=key).digest(), index) for index in range(among)
    )
    return sorted(index for _, index in ranks[:number])


def _encode(text: str, tokenizer: Any, window: int) -> list[list[int]]:
    tokens: list[list[int]] = tokenizer(
        text,
        truncation=True,
        max_length=window,
        return_overflowing_tokens=True,
        return_attention_mask=False,
        return_token_type_ids=False,
    )["input_ids"]
    return tokens


def window_limit(tokenizer: Any, config: Any, window: int) -> int:
    """Return how many tokens a model can take at once, if fewer than a window."""
    limit = min(window, int(tokenizer.model_max_length))
    positions = getattr(config, "max_position_embeddings", None)
    if positions:
        # Models of the RoBERTa family count positions from the padding token on.
        first = config.pad_token_id + 1 if "roberta" in config.model_type else 0
        limit = min(limit, int(positions) - first)
    return limit
