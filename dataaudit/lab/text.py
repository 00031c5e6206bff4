"""The text that the laboratory trains on: help topics of Python itself, or a file that the user names."""

from __future__ import annotations

import hashlib
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dataaudit.base.errors import ConfigError
from dataaudit.base.yamlfile import read_named

LEAST_BYTES = 50_000
VOCABULARY = 128
"""Tokens are bytes of ASCII; any other byte is a question mark."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text as tokens, with a name and a digest for the receipt."""

    name: str
    digest: str
    tokens: Any
    """int64[length], 0 to 127."""

    @classmethod
    def load(cls, path: Path | None = None) -> Text:
        """Read a file as text; without a path take ``pydoc_data.topics``, which every Python brings."""
        if path is None:
            topics = importlib.import_module("pydoc_data.topics").topics
            name, data = "pydoc_data.topics", "\n\n".join(topics[key] for key in sorted(topics)).encode()
        else:
            name, data = path.name, read_named(path, "lab: the text")
        if len(data) < LEAST_BYTES:
            raise ConfigError(
                f"lab: the text {path or name} has {len(data)} bytes: name a file of {LEAST_BYTES} or more by --text"
            )
        tokens = np.frombuffer(data, dtype=np.uint8).astype(np.int64)
        tokens[tokens >= VOCABULARY] = ord("?")
        return cls(name, hashlib.sha256(data).hexdigest(), tokens)

    def rows(self, draw: np.random.Generator, number: int, length: int) -> Any:
        """Return rows of neighbouring tokens from anywhere: int64[number, length]."""
        first = draw.integers(0, len(self.tokens) - length, number)
        return self.tokens[first[:, None] + np.arange(length)]
