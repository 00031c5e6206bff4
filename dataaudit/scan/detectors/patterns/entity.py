"""Entities and their rules, the evidence that a check of a candidate gives, and the tier that follows from it."""

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
    """The form is right and words near it name it."""
    PATTERN = 2
    """The form alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingBatch:
    """``f`` findings in ``n`` documents, sorted by (document, start, end, entity): offsets and classes, never text.

    Findings of one detector do not overlap.
    """

    detectors: tuple[str, ...]
    """[e] detector of each entity: ``pii`` or ``secrets``."""
    entities: tuple[str, ...]
    """[e] names of the entities of the registry; fixed for a build."""
    documents: npt.NDArray[np.int32]
    """int32[f] index of the document in the batch."""
    codes: npt.NDArray[np.int16]
    """int16[f] index into ``entities``."""
    tiers: npt.NDArray[np.int8]
    """int8[f] of :class:`Tier`."""
    reserved: npt.NDArray[np.bool_]
    """bool[f]: an example, a reserved value (example.com, a test card) or an allowed value; counted apart."""
    starts: npt.NDArray[np.int64]
    """int64[f] first byte in the document's UTF-8."""
    ends: npt.NDArray[np.int64]
    """int64[f] byte after the last."""
    scores: npt.NDArray[np.float32]
    """float32[f] confidence, 0 to 1: fixed by entity, tier and context."""
    truncated: npt.NDArray[np.bool_]
    """bool[n]: the document has more candidates than are checked; the others are not findings."""
    keyed: npt.NDArray[np.uint8] | None = None
    """uint8[f, 16] truncated HMAC-SHA256 of each finding's normal form; only with the user's key."""


class Evidence(IntEnum):
    """How strongly a check supports a candidate."""

    REJECTED = 0
    FORM = 1
    """The form is right, nothing more is known."""
    WEAK = 2
    """Chance passes the check once in ten or a hundred."""
    STRONG = 3
    """Chance seldom passes the check."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Candidate:
    """Text of a document that a rule's regex matched. It has no representation, so no message can show it."""

    text: str
    """The match, bytes beyond ASCII as Latin-1: one character a byte."""
    before: str
    """Up to the entity's window of bytes before it, in lower case."""
    after: str
    """The same behind it."""
    context: bool
    """A context word of the entity is near."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """The regex's named groups that took part, as ``text``."""


Validator = Callable[[Candidate], Evidence]
"""Checks a candidate by itself; a ValueError, LookupError or ArithmeticError rejects it."""
Predicate = Callable[[Candidate], bool]
"""Tells whether a candidate is an example or a reserved value, or whether a label stands beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPolicy:
    """Tier by evidence, with a context word near and (``_bare``) without; None is no finding."""

    strong: Tier | None = Tier.VALIDATED
    strong_bare: Tier | None = Tier.VALIDATED
    weak: Tier | None = Tier.CONTEXTUAL
    weak_bare: Tier | None = None
    form: Tier | None = Tier.CONTEXTUAL
    form_bare: Tier | None = Tier.PATTERN

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
        """Whether nothing is a finding without a context word."""
        return self.strong_bare is None and self.weak_bare is None and self.form_bare is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One way in which an entity is written."""

    name: str
    """Unique in its entity."""
    regex: str
    """Python's ``re`` on bytes; it alone decides. ``(?P<value>...)`` marks the finding, else all of it is."""
    prefilter: str
    """The pattern of the first pass, without lookaround: a match of ``regex`` lies within ``reach`` of its match."""
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
    """Of ASCII letters."""
    anchored: bool = False
    """Whether the prefilter is the entity's context words, in any case, and a match lies beside them."""
    validators: tuple[str, ...] = ()
    """Checks by name; all must pass, and the strongest evidence counts."""
    passes: Evidence | None = None
    """Replaces the evidence of validators that do not reject."""
    tiers: TierPolicy = TierPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """A kind of personal data or secret, with its rules."""

    name: str
    """Name in tables and metrics: ``EMAIL_ADDRESS``."""
    detector: str
    """``pii`` or ``secrets``; findings of one detector do not overlap."""
    rules: tuple[Rule, ...]
    languages: tuple[str, ...] = ()
    """Languages or regions whose forms the rules fit; empty for all. Decides nothing."""
    context: tuple[str, ...] = ()
    """Words near a candidate that speak for it, in any language; a ``*`` at the end allows more letters."""
    window: tuple[int, int] = (64, 32)
    """Bytes before and behind in which a context word must lie."""
    label: str | None = None
    """Name of the predicate that confirms a context word that is near; None: none is asked."""
    reserved: str | None = None
    """Name of the predicate that knows examples and reserved values."""
    normal: str = "text"
    """Normal form for the keyed digest: text, lower, digits or alnum."""
    scores: tuple[float, float, float] = (0.95, 0.7, 0.3)
    """Confidence of the tiers validated, contextual, pattern."""
