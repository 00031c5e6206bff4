"""LanguageBatch: the language of every document of a batch, as a detector saw it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
