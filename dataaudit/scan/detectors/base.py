"""What a language detector is, what names one, and the codes that it gives.

One scheme of language codes: BCP 47 primary subtags, for every detector.

lid.176 gives them already, but for ``als``, by which it means Alemannic (``gsw``). CLD2 has older codes for some
languages, and tells scripts apart, which a primary subtag does not.

LanguageBatch: the language of every document of a batch, as a detector saw it.

How much of a document is looked at: a few short windows first, more of it only when they leave a doubt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataaudit.scan.corpus.segments import text_buffers

UND = "und"
"""BCP 47's code for a language that is not determined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageBatch:
    """Languages of ``n`` documents, and what a second detector says of a sample of them."""

    names: tuple[str, ...]
    """Language codes; fixed for a detector, ``und`` among them."""
    codes: npt.NDArray[np.int32]
    """int32[n] index into ``names``."""
    confidence: npt.NDArray[np.float32]
    """float32[n] of the detector's best guess, 0 to 1; it stays where that was not sure enough, or the text too
    short, to be said."""
    sampled: npt.NDArray[np.bool_]
    """bool[n]: the second detector looked too; chosen by a hash of the text and the seed."""
    agreeing: npt.NDArray[np.bool_]
    """bool[n]: it did, and found the same, ``und`` included."""

    def languages(self) -> pa.DictionaryArray:
        """[n] language code of each document."""
        return pa.DictionaryArray.from_arrays(pa.array(self.codes), pa.array(self.names, pa.string()))


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
        """Identify the language of each text by itself."""
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


WINDOWS_VERSION = "1"
"""Changes whenever the same document may be shown to a detector in another way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Windows of a document that are classified first, and those that a doubt asks for."""

    first: tuple[int, int] = (6, 64)
    """Windows of a document, and bytes of each."""
    second: tuple[int, int] = (12, 128)
    """The same, of documents that the first windows did not settle."""
    sure: float
    """Confidence at which the first windows settle a document that they do not hold as a whole."""


def identify(
    texts: pa.LargeStringArray, windows: Windows, classify: Callable[[str], tuple[int, float]]
) -> tuple[Codes, Confidence]:
    """Look at each text by itself; see :func:`dataaudit.scan.kernels.windows.gather_windows` for what is seen of it."""
    codes, confidence = np.zeros(len(texts), dtype=np.int32), np.zeros(len(texts), dtype=np.float32)
    rows = np.arange(len(texts), dtype=np.int64)
    for size in (windows.first, windows.second):
        found, sure, whole = _classify(texts, rows, size, classify)
        codes[rows], confidence[rows] = found, sure
        rows = rows[~whole & (sure < windows.sure)]
    return codes, confidence


def _classify(
    texts: pa.LargeStringArray, rows: np.ndarray, size: tuple[int, int], classify: Callable[[str], tuple[int, float]]
) -> tuple[Codes, Confidence, np.ndarray]:
    """Look at some of the texts once; return codes, confidence, and which were seen as a whole."""
    from dataaudit.scan.kernels.windows import gather_windows

    codes, confidence = np.zeros(len(rows), dtype=np.int32), np.zeros(len(rows), dtype=np.float32)
    if len(rows) == 0:
        return codes, confidence, np.zeros(0, dtype=np.bool_)
    offsets, values = text_buffers(texts)
    words, ends, whole = gather_windows(values, offsets, rows, windows=size[0], kept=size[1])
    data, places = words.tobytes(), ends.tolist()
    for index in range(len(rows)):
        text = data[places[index] : places[index + 1]].decode()
        if any(map(str.isalpha, text)):
            codes[index], confidence[index] = classify(text)
    return codes, confidence, whole
