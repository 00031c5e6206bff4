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
    ascii_only = pc.string_is_ascii(texts).to_numpy(zero_copy_only=False)
    if risks.patterns:
        risky |= _matches(texts, "|".join(risks.patterns))
    if risks.code_points and not (ascii_only.all() and risks.code_points[0][0] >= 0x80):
        risky |= _matches(texts, character_class(risks))
    if risks.normal_forms:
        for row in np.flatnonzero(~risky & ~ascii_only).tolist():
            text = texts[row].as_py()
            risky[row] = not all(unicodedata.is_normalized(cast(_Form, f), text) for f in risks.normal_forms)
    return risky


def character_class(risks: Risks) -> str:
    """Write the risky code points as one RE2 character class."""
    return "[" + "".join(f"\\x{{{low:X}}}-\\x{{{high:X}}}" for low, high in risks.code_points) + "]"


def _matches(texts: pa.LargeStringArray, pattern: str) -> npt.NDArray[np.bool_]:
    """Search an expression in every text."""
    return np.asarray(pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False), dtype=np.bool_)
