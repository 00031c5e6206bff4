"""What is looked for: an entity and its rules, what a check of a candidate says, and which tier follows from it.

FindingBatch: what pattern detectors found in the documents of a batch. Places, classes and scores, never text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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


class Evidence(IntEnum):
    """What a validator says of a candidate."""

    REJECTED = 0
    """It is not one."""
    FORM = 1
    """The form is right, nothing more is known."""
    WEAK = 2
    """A check holds that chance meets once in ten or a hundred."""
    STRONG = 3
    """A check holds that chance seldom meets."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Candidate:
    """Text of a document that a rule's regex matched. It has no representation, so no message can show it."""

    text: str
    """What was found, bytes beyond ASCII as Latin-1: one character a byte."""
    before: str
    """Up to the entity's window of bytes before it, in lower case."""
    after: str
    """The same behind it."""
    context: bool
    """A context word of the entity is near."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """The regex's named groups that took part, as ``text``."""


Validator = Callable[[Candidate], Evidence]
"""Judges a candidate and depends on nothing else; a ValueError, LookupError or ArithmeticError rejects it."""
Predicate = Callable[[Candidate], bool]
"""Says whether a candidate that was found is an example or a reserved value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPolicy:
    """Which tier a finding gets by its evidence, with a context word near and without; None is no finding."""

    strong: Tier | None = Tier.VALIDATED
    """Strong evidence and context."""
    strong_bare: Tier | None = Tier.VALIDATED
    """Strong evidence, no context."""
    weak: Tier | None = Tier.CONTEXTUAL
    """Weak evidence and context."""
    weak_bare: Tier | None = None
    """Weak evidence, no context: chance meets these too often."""
    form: Tier | None = Tier.CONTEXTUAL
    """The form and context."""
    form_bare: Tier | None = Tier.PATTERN
    """The form alone."""

    def tier(self, evidence: Evidence, context: bool) -> Tier | None:
        """Return the tier; None when it is no finding."""
        if evidence is Evidence.STRONG:
            return self.strong if context else self.strong_bare
        if evidence is Evidence.WEAK:
            return self.weak if context else self.weak_bare
        if evidence is Evidence.FORM:
            return self.form if context else self.form_bare
        return None

    @property
    def needs_context(self) -> bool:
        """Whether nothing is ever found without a context word."""
        return self.strong_bare is None and self.weak_bare is None and self.form_bare is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One way in which an entity is written."""

    name: str
    """Unique in its entity."""
    regex: str
    """Python's ``re`` on bytes: the truth. ``(?P<value>...)`` marks what is found, else all of it."""
    prefilter: str
    """What the one pass looks for, without lookaround: a match of ``regex`` lies within ``reach`` of a match of it."""
    reach: tuple[int, int] = (0, 0)
    """Bytes before and behind the prefilter's match that a match of ``regex`` can extend to."""
    left: str = r"\w"
    """Characters (inside of a bracket) none of which stands right before a match; empty for any."""
    right: str = r"\w"
    """Characters none of which follows a match."""
    before_not: tuple[str, ...] = ()
    """Regexes of fixed width none of which ends right before a match."""
    after_not: tuple[str, ...] = ()
    """Regexes none of which begins right behind a match."""
    ignore_case: bool = False
    """Whether case is ignored, of ASCII letters."""
    anchored: bool = False
    """Whether the prefilter is the entity's context words, in any case, and a match lies beside them."""
    validators: tuple[str, ...] = ()
    """Checks by name; all must hold, and the strongest evidence counts."""
    passes: Evidence | None = None
    """Replaces the evidence that the validators of a candidate that is not rejected give."""
    tiers: TierPolicy = TierPolicy()
    """Which tier follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """A kind of thing that is looked for."""

    name: str
    """Name in tables and metrics: ``EMAIL_ADDRESS``."""
    detector: str
    """``pii`` or ``secrets``; findings of one detector do not overlap."""
    rules: tuple[Rule, ...]
    """How it is written."""
    languages: tuple[str, ...] = ()
    """Languages or regions that it belongs to; empty for all. It narrows nothing, it says where the rules fit."""
    context: tuple[str, ...] = ()
    """Words near a candidate that speak for it, in any language; a ``*`` at the end allows more letters."""
    window: tuple[int, int] = (64, 32)
    """Bytes before and behind in which a context word must lie."""
    label: str | None = None
    """Name of the predicate that says whether a context word that is near speaks for a candidate; None: it does."""
    reserved: str | None = None
    """Name of the predicate that knows examples and reserved values."""
    normal: str = "text"
    """Normal form for the keyed digest: text, lower, digits or alnum."""
    scores: tuple[float, float, float] = (0.95, 0.7, 0.3)
    """Confidence of the tiers validated, contextual, pattern."""
