"""Words of every document: what near-duplicates, leaks, repeats and the toxicity screen compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dataaudit.corpus.batch import Annotation, DocBatch
from dataaudit.kernels.words import WordBatch, split_words

WORDS: Annotation[WordBatch] = Annotation("words")


@dataclass(frozen=True, slots=True)
class Words:
    """Splits documents into words; nothing decides them but the program and the version of Unicode."""

    annotation: ClassVar[Annotation[Any]] = WORDS
    needs: ClassVar[tuple[Annotation[Any], ...]] = ()

    def decisive(self) -> None:
        """Return nothing: the program alone decides."""

    def load(self) -> Words:
        """Return itself."""
        return self

    def annotate(self, batch: DocBatch) -> WordBatch:
        """Return the words of every document."""
        return split_words(batch.byte_values(), batch.byte_offsets())
