"""The page on secrets names every kind."""

from __future__ import annotations

import re
from pathlib import Path

from dataaudit.scan.detectors.secrets.rules import load_secrets

PAGE = Path(__file__).parents[5] / "docs/reference/detectors.md"


def test_the_table_of_kinds_is_that_of_the_rules():
    named = re.findall(r"^\| `([A-Z0-9_]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert named == [entity.name for entity in load_secrets().entities]
