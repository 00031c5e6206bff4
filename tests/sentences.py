"""Sentences about trains, gardens and books in 18 languages of all kinds of scripts, written for these tests."""

from __future__ import annotations

import json
from pathlib import Path

SENTENCES: dict[str, list[str]] = json.loads(Path(__file__).with_name("sentences.json").read_text(encoding="utf-8"))
"""Language code to its sentences."""
