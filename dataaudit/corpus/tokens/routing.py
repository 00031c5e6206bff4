"""Which documents of a batch hold text that the fast encoder is not trusted with."""

from __future__ import annotations

import unicodedata
from typing import Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.corpus.tokens.risks import Risks

_Form = Literal["NFC", "NFD", "NFKC", "NFKD"]


def risky_documents(texts: pa.LargeStringArray, risks: Risks) -> npt.NDArray[np.bool_]:
    """Mark the documents that go to the reference: risky[n]."""
    risky = np.zeros(len(texts), dtype=np.bool_)
    if len(texts) == 0:
        return risky
    for pattern in routing_patterns(risks):
        risky |= pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False)
    if risks.normal_forms:
        for row in np.flatnonzero(
            ~risky & ~pc.string_is_ascii(texts).to_numpy(zero_copy_only=False)
        ).tolist():
            text = texts[row].as_py()
            risky[row] = not all(unicodedata.is_normalized(cast(_Form, f), text) for f in risks.normal_forms)
    return risky


def routing_patterns(risks: Risks) -> list[str]:
    """Write the risks as RE2 expressions."""
    patterns = list(risks.patterns)
    if risks.code_points:
        spans = "".join(f"\\x{{{low:X}}}-\\x{{{high:X}}}" for low, high in risks.code_points)
        patterns.append(f"[{spans}]")
    return patterns
