"""Names that a document may hold: how many words within its sentences begin with a capital letter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dataaudit.corpus.batch import Annotation, DocBatch
from dataaudit.kernels.characters import count_names

NAMES: Annotation[np.ndarray] = Annotation("names")
"""int64[n]."""


@dataclass(frozen=True, slots=True)
class Names:
    """Counts them; nothing decides them but the program and the version of Unicode."""

    annotation: ClassVar[Annotation[Any]] = NAMES
    needs: ClassVar[tuple[Annotation[Any], ...]] = ()

    def decisive(self) -> None:
        """Return nothing: the program alone decides."""

    def load(self) -> Names:
        """Return itself."""
        return self

    def annotate(self, batch: DocBatch) -> np.ndarray:
        """Return the capitalised words within the sentences of every document."""
        return count_names(batch.byte_values(), batch.byte_offsets())
