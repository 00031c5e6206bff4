"""FindingBatch: what pattern detectors found in the documents of a batch. Places, classes and scores, never text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt


class Tier(IntEnum):
    """How sure a finding is; the lower, the surer."""

    VALIDATED = 0
    """A checksum, a registry of ranges or a structure that chance seldom meets confirms it."""
    CONTEXTUAL = 1
    """The form is right and words near it say what it is."""
    PATTERN = 2
    """The form alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingBatch:
    """``f`` findings in a batch, sorted by (document, start, end, entity); none overlaps another of its detector."""

    detectors: tuple[str, ...]
    """[e] detector of each entity: ``pii`` or ``secrets``."""
    entities: tuple[str, ...]
    """[e] names of the entities that are looked for, as in the registry; fixed for a build."""
    documents: npt.NDArray[np.int32]
    """int32[f] index of the document in the batch."""
    codes: npt.NDArray[np.int16]
    """int16[f] index into ``entities``."""
    tiers: npt.NDArray[np.int8]
    """int8[f] of :class:`Tier`."""
    reserved: npt.NDArray[np.bool_]
    """bool[f]: an example or a reserved value (example.com, a test card), or one of the allow-list; counted apart."""
    starts: npt.NDArray[np.int64]
    """int64[f] first byte in the document's UTF-8."""
    ends: npt.NDArray[np.int64]
    """int64[f] byte after the last."""
    scores: npt.NDArray[np.float32]
    """float32[f] confidence, 0 to 1: fixed by entity, tier and context."""
    truncated: npt.NDArray[np.bool_]
    """bool[n]: the document holds more candidates than are looked at; those beyond are counted as not looked at."""
    keyed: npt.NDArray[np.uint8] | None = None
    """uint8[f, 16] HMAC-SHA256 of the normal form of what was found, cut; only with the user's key."""
