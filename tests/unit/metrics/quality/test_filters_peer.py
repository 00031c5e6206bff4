"""Agreement with datatrove's filters on a few documents; the whole comparison is benchmarks/filters.py."""

import sys
import warnings
from pathlib import Path

import pytest
from filter_cases import CASES

ROOT = Path(__file__).parents[4]
pytest.importorskip("spacy", reason="install dataaudit[peers]")
pytest.importorskip("datatrove", reason="install dataaudit[peers]")

PROSE = (
    "The rules of the house (see section 3.1) are read out loud, and that is all we do with them. Don't ask for more! "
    'What you have is in e.g. https://example.org/some-page or in a well-known book; "To be" is not in it... '
)
KNOWN = frozenset(
    {
        "gopher_repetition.duplicate_lines",
        "gopher_repetition.duplicate_paragraphs",
        "fineweb.line_punctuation",
        "fineweb.short_lines",
        "fineweb.duplicate_line_chars",
    }
)
"""Rules whose cases hold what docs/concepts/quality-rules.md lists as a difference: CRLF, blank lines, the bound."""


@pytest.mark.filterwarnings("ignore")
def test_rules_agree_with_datatrove():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from filters import agreement_table

    texts = [text for sides in CASES.values() for side in sides for text in side if text and len(text) < 10_000]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows, _, _ = agreement_table(texts + [PROSE * times for times in range(1, 6)])
    for rule, agreement, _, _ in rows:
        assert agreement >= (0.9 if rule in KNOWN else 0.96), rule
