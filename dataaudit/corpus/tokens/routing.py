"""Which documents of a batch hold text that the fast encoder is not trusted with."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.corpus.buffers import text_buffers
from dataaudit.corpus.tokens.risks import Risks
from dataaudit.kernels.characters import code_point_bits, documents_with

_Form = Literal["NFC", "NFD", "NFKC", "NFKD"]


def risky_documents(texts: pa.LargeStringArray, risks: Risks) -> npt.NDArray[np.bool_]:
    """Mark the documents that go to the reference: risky[n]."""
    risky = np.zeros(len(texts), dtype=np.bool_)
    if len(texts) == 0:
        return risky
    if risks.patterns:
        matches = pc.match_substring_regex(texts, "|".join(risks.patterns))
        risky |= np.asarray(matches.to_numpy(zero_copy_only=False), dtype=np.bool_)
    if risks.code_points:
        risky |= documents_with(*text_buffers(texts), _bits(risks.code_points))
    if risks.normal_forms:
        ascii_only = pc.string_is_ascii(texts).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(~risky & ~ascii_only).tolist():
            text = texts[row].as_py()
            risky[row] = not all(unicodedata.is_normalized(cast(_Form, f), text) for f in risks.normal_forms)
    return risky


@lru_cache(maxsize=4)
def _bits(ranges: tuple[tuple[int, int], ...]) -> npt.NDArray[np.uint8]:
    return code_point_bits(ranges)
