"""What a column holds, as far as it was looked at, in words that messages show."""

from __future__ import annotations

from typing import Final

TEXT: Final = "text"
MIXED: Final = "text and other values"
NOTHING: Final = "nothing"
"""Null alone, which says nothing of the rest."""
LISTS: Final = "lists"
OBJECTS: Final = "objects"
BYTES: Final = "bytes"
OTHERS: Final = "numbers or other values"
