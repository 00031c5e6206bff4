"""What documents hold of everything that is protected: held-out documents and items of evaluation sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dataaudit.annotators.base import LoadedLast
from dataaudit.annotators.words import WORDS
from dataaudit.atomic import DamagedFileError
from dataaudit.corpus.batch import Annotation, DocBatch
from dataaudit.corpus.protected.index import IndexFile, open_index
from dataaudit.corpus.protected.match_batch import MatchBatch
from dataaudit.corpus.protected.matching import Matcher
from dataaudit.errors import ClusterError

MATCHES: Annotation[MatchBatch] = Annotation("matches")


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The index of what is protected."""

    annotation: ClassVar[Annotation[Any]] = MATCHES
    needs: ClassVar[tuple[Annotation[Any], ...]] = (WORDS,)
    index: IndexFile

    def decisive(self) -> str:
        """Return the digest of the index."""
        return self.index.sha256

    def load(self) -> MatchAnnotator:
        """Map the index, once in a process.

        Raises:
            ClusterError: It is not there or not whole, which is no shard's fault.
        """
        try:
            return MatchAnnotator(_open_once(self.index))
        except DamagedFileError as error:
            raise ClusterError(
                f"a worker cannot read the index of protected sets {error.paths[0]}",
                "Every worker has to see the state folder; run the same command again and the index is built anew.",
            ) from None


@dataclass(frozen=True, slots=True)
class MatchAnnotator:
    """Looks documents up in the index."""

    matcher: Matcher

    def annotate(self, batch: DocBatch) -> MatchBatch:
        """Return what the documents hold."""
        return self.matcher.match(batch.get(WORDS), batch.byte_values(), batch.byte_offsets())


@LoadedLast
def _open_once(file: IndexFile) -> Matcher:
    index, sha256 = open_index(file.path)
    if sha256 != file.sha256:
        raise DamagedFileError(str(file.path))
    return Matcher(index)
