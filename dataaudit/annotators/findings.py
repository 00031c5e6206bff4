"""What the pattern detectors find in every document, all of them in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dataaudit.corpus.batch import Annotation, DocBatch
from dataaudit.detectors import PatternScreen, Registry, key_id
from dataaudit.detectors.findings import FindingBatch

FINDINGS: Annotation[FindingBatch] = Annotation("findings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the detectors look for."""

    annotation: ClassVar[Annotation[Any]] = FINDINGS
    needs: ClassVar[tuple[Annotation[Any], ...]] = ()
    patterns: Registry
    """Of all detectors together."""
    digests: Mapping[str, str]
    """Digest of what each detector looks for, by the detector's name."""
    key: bytes | None = field(default=None, repr=False)
    """The user's key for digests of findings."""

    def decisive(self) -> dict[str, Any]:
        """Return what decides the findings of each detector, by its name; the key is named by its id alone.

        What one detector looks for decides how soon a document full of candidates is given up for both.
        """
        return {name: [digest, self.patterns.digest, key_id(self.key)] for name, digest in self.digests.items()}

    def load(self) -> FindingAnnotator:
        """Return the screen."""
        return FindingAnnotator(PatternScreen(registry=self.patterns), self.key)


@dataclass(frozen=True, slots=True)
class FindingAnnotator:
    """Finds patterns."""

    screen: PatternScreen
    key: bytes | None = field(repr=False)

    def annotate(self, batch: DocBatch) -> FindingBatch:
        """Return the findings of every document."""
        return self.screen.find(batch.byte_values(), batch.byte_offsets(), key=self.key)
