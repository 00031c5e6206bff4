"""What a language detector is, what names one, and the codes that it gives.

One scheme of language codes: BCP 47 primary subtags, for every detector.

lid.176 gives them already, but for ``als``, by which it means Alemannic (``gsw``). CLD2 has older codes for some
languages, and tells scripts apart, which a primary subtag does not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataaudit.detectors.languages import UND

Codes = npt.NDArray[np.int32]
Confidence = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorModel:
    """A detector and its model, named so that every worker loads the same; small enough to be sent."""

    name: str
    """Name in the config and the manifest."""
    version: str
    """Versions of the library and of the way documents are looked at."""
    sha256: str
    """Of the model: of its file, or of its answers where it is part of a library."""
    languages: tuple[str, ...]
    """Codes that it can give, ``und`` first, the others sorted."""
    path: Path | None = field(default=None, compare=False)
    """The model's file under its content's name; None where it is part of a library."""
    loader: str = ""
    """The package that reads the file, where there are several; empty where there is one."""
    parts: tuple[DetectorModel, ...] = ()
    """The models that it combines; each is loaded by itself."""

    def identity(self) -> dict[str, Any]:
        """Return all of it that decides an answer, as plain JSON values."""
        plain = {name: getattr(self, name) for name in ("name", "version", "sha256", "loader")}
        return {**plain, "languages": list(self.languages), "parts": [part.identity() for part in self.parts]}


class LanguageDetector(Protocol):
    """Texts in, a language each out."""

    model: DetectorModel
    """What it is."""

    def detect(self, texts: pa.LargeStringArray) -> tuple[Codes, Confidence]:
        """Identify the language of each text by itself.

        Args:
            texts: large_string[n], without nulls.

        Returns:
            ``codes`` int32[n] into ``model.languages`` (the best guess, however unsure), ``confidence`` float32[n]
            from 0 to 1. A text without a letter is ``und`` with confidence 0.
        """
        ...

    def classify(self, text: str) -> tuple[int, float]:
        """Return (code, confidence) of words on one line, some letter among them; all of them are looked at."""
        ...


_ALIASES = {
    "als": "gsw",  # Wikipedia's code; in BCP 47 it is Tosk Albanian
    "iw": "he",
    "in": "id",
    "ji": "yi",
    "jw": "jv",
    "mo": "ro",
    "un": UND,
    "xxx": UND,
    "zzp": UND,  # Pig Latin
}
_SCRIPTS = {"bugi": "bug", "goth": "got"}
"""CLD2 names two languages by their script alone."""


@cache
def language_code(label: str) -> str:
    """Return the code of a detector's own label: ``__label__als``, ``zh-Hant``, ``iw``, ``xx-Goth``, ``un``."""
    primary, _, rest = label.removeprefix("__label__").lower().replace("_", "-").partition("-")
    if primary == "xx":
        return _SCRIPTS.get(rest, UND)
    return _ALIASES.get(primary, primary)


def known_languages(labels: list[str]) -> tuple[str, ...]:
    """Return the codes of a detector's labels, ``und`` first, the others sorted."""
    return (UND, *sorted({language_code(label) for label in labels} - {UND}))
