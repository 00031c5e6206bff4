"""Classes of text on which the fast encoder is not trusted with a vocabulary, and the documents that hold some."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import asdict, dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, Literal, Self, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.corpus.texts import text_buffers
from dataaudit.kernels.characters import code_point_bits, documents_with


@dataclass(frozen=True, slots=True, kw_only=True)
class Risks:
    """What goes to the reference encoder; plain data, safe to pickle and to store as JSON."""

    supported: bool
    """False: the fast encoder cannot load this model, every document goes to the reference."""

    reason: str
    """``ok``, ``unsupported_model``, ``rewrites_characters``, ``differs_on_ascii`` or ``differs_on_mixes``."""

    code_points: tuple[tuple[int, int], ...] = ()
    """Inclusive ranges, ascending and disjoint; a document with one of them goes to the reference."""

    normal_forms: tuple[str, ...] = ()
    """A document that is not in all of these forms goes to the reference."""

    patterns: tuple[str, ...] = ()
    """RE2 expressions; a document that matches one goes to the reference."""

    key: str = ""
    """What the answer depends on: tokenizer digest and library versions."""

    def __post_init__(self) -> None:
        """Check that ranges are ascending and disjoint."""
        last = -1
        for low, high in self.code_points:
            if not last < low <= high <= 0x10FFFF:
                raise ValueError(f"code point ranges must ascend, found {low:#x}-{high:#x} after {last:#x}")
            last = high

    @property
    def digest(self) -> str:
        """sha256 of the canonical JSON, so that two builds can tell whether they route alike."""
        return sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Write every field as JSON with sorted keys."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; raises ValueError, KeyError or TypeError on anything else."""
        fields: dict[str, Any] = json.loads(text)
        fields["code_points"] = tuple((int(low), int(high)) for low, high in fields["code_points"])
        fields["normal_forms"] = tuple(fields["normal_forms"])
        fields["patterns"] = tuple(fields["patterns"])
        return cls(**fields)


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
