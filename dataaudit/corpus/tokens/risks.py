"""The classes of text on which the fast encoder is not trusted with one vocabulary."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, Self


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
