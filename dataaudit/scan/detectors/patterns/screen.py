"""PatternScreen: what the patterns of a registry find in every document of a batch.

Digests of what was found, under a key that only the user has: equal values can be counted without being known.

Which of several findings at one place counts.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from dataaudit.scan.detectors.patterns import context
from dataaudit.scan.detectors.patterns.entity import (
    Candidate,
    Entity,
    Evidence,
    FindingBatch,
    Predicate,
    Rule,
    Validator,
)
from dataaudit.scan.detectors.patterns.folded import Folded
from dataaudit.scan.detectors.patterns.registry import Hit, Registry, compile_database, scan
from dataaudit.scan.detectors.patterns.written import MAX_MATCH_BYTES, full_regex

MAX_CANDIDATES = 50_000
"""Candidates of a document that each rule looks at, in order of their places; those beyond are not looked at.

Each rule has its own limit, so that no number of passwords in words can keep a token with a checksum from being seen.
"""
_MAX_WINDOWS = 4096
"""Windows of a document that are kept for the rules that meet there."""
AHEAD_BYTES = 64
"""Bytes behind the place of a match that a lookahead of its regex can see."""
MAX_UNBOUNDED_BYTES = 4096
"""Longest stretch in which a regex with an unbounded repeat is tried: its time may grow with the square."""
LONG_BYTES = 64
"""A longer stretch is asked for context words as a whole before its matches are; in a shorter one they are asked."""
_UNBOUNDED = re.compile(rb"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<loop>[*+]|\{\d+,\})", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class _Ready:
    """A rule with what it refers to; its regex, which was checked when it was read, is compiled when it is needed."""

    index: int
    code: int
    rule: Rule
    entity: Entity
    unbounded: bool
    needs_context: bool
    validators: tuple[Validator, ...]
    reserved: Predicate | None
    label: Predicate | None

    @cached_property
    def regex(self) -> re.Pattern[bytes]:
        """The regex with what must not stand beside a match."""
        return full_regex(self.rule)

    @cached_property
    def has_value(self) -> bool:
        """Whether a group of the regex is what is found."""
        return "value" in self.regex.groupindex


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternScreen:
    """Looks at every document of a batch, alone and from its start, so no cut of batches can change a finding."""

    registry: Registry
    """What is looked for."""

    def find(
        self,
        values: npt.NDArray[np.uint8],
        offsets: npt.NDArray[np.int64],
        *,
        key: bytes | None = None,
    ) -> FindingBatch:
        """Find the registry's entities."""
        found, truncated = [], np.zeros(len(offsets) - 1, dtype=np.bool_)
        digests: list[bytes] = []
        view = np.ascontiguousarray(values, dtype=np.uint8).data
        bounds = offsets.tolist()
        for number in range(len(bounds) - 1):
            document = view[bounds[number] : bounds[number + 1]]
            kept, truncated[number] = find_in(self.registry, document)
            found += [(number, match) for match in kept]
            if key is not None:
                digests += [self._digest(key, document, match) for match in kept]
        return self._batch(found, truncated, digests if key is not None else None)

    def _digest(self, key: bytes, document: memoryview, found: Found) -> bytes:
        entity = self.registry.entities[found.code]
        # The space stands for what came before, on which it depends whether %2B is a sign.
        text = Folded(b" " + bytes(document[found.start : found.end])).text[1:]
        return keyed_digest(key, entity.name, text, entity.normal)

    def _batch(
        self, found: list[tuple[int, Found]], truncated: npt.NDArray[np.bool_], digests: list[bytes] | None
    ) -> FindingBatch:
        entities = self.registry.entities
        scores = np.array([entity.scores for entity in entities], dtype=np.float32).reshape(-1, 3)
        codes = np.array([match.code for _, match in found], dtype=np.int16)
        tiers = np.array([match.tier for _, match in found], dtype=np.int8)
        keyed = None
        if digests is not None:
            keyed = np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, DIGEST_BYTES)
        return FindingBatch(
            detectors=tuple(entity.detector for entity in entities),
            entities=tuple(entity.name for entity in entities),
            documents=np.array([number for number, _ in found], dtype=np.int32),
            codes=codes,
            tiers=tiers,
            reserved=np.array([match.reserved for _, match in found], dtype=np.bool_),
            starts=np.array([match.start for _, match in found], dtype=np.int64),
            ends=np.array([match.end for _, match in found], dtype=np.int64),
            scores=scores[codes, tiers] if found else np.zeros(0, dtype=np.float32),
            truncated=truncated,
            keyed=keyed,
        )


def find_in(registry: Registry, document: memoryview) -> tuple[list[Found], bool]:
    """Return the findings in one document, sorted by (start, end, entity), and whether parts were not looked at."""
    prefilters = compile_database(registry)
    folded = Folded(bytes(document))
    text = folded.text
    hits, truncated = scan(prefilters, memoryview(text))
    if not hits:
        return [], truncated
    by_detector: dict[str, list[Found]] = {}
    ready = _prepare(registry)
    around = _Surroundings(_context_words(registry), text)
    looked_at: dict[int, int] = {}
    for rule, start, end, last in _stretches(hits, prefilters.rules, ready, len(text)):
        number = looked_at.get(rule, 0) + 1
        if number > MAX_CANDIDATES:
            truncated = True
            continue
        item = ready[rule]
        looked_at[rule] = number
        if item.needs_context and end - start > LONG_BYTES and not around.speaks(item, start, end):
            continue
        if item.unbounded and end - start > MAX_UNBOUNDED_BYTES:
            truncated = True
            continue
        for match in _matches(item.regex, text, start, end, last):
            if number >= MAX_CANDIDATES:
                truncated = True
                break
            number += 1
            judged = _judge(item, text, match, around)
            if judged is not None:
                by_detector.setdefault(item.entity.detector, []).append(judged)
        looked_at[rule] = number
    kept = [
        replace(overlap, start=folded.written(overlap.start), end=folded.written(overlap.end))
        for found in by_detector.values()
        for overlap in without_overlaps(found)
    ]
    return sorted(kept, key=lambda item: (item.start, item.end, item.code)), truncated


class _Surroundings:
    """Windows of one document and the words in them; the rules that meet at one place share them."""

    def __init__(self, words: context.ContextWords, text: bytes) -> None:
        self._words = words
        self._text = text
        self._seen: dict[tuple[int, int, int, int, bool], tuple[str, str, frozenset[int]]] = {}

    def look(
        self, start: int, end: int, behind: int, ahead: int, *, words: bool = True
    ) -> tuple[str, str, frozenset[int]]:
        """Return ``behind`` bytes before ``start``, ``ahead`` bytes from ``end``, and the entities of their words.

        Without ``words`` none are searched for, which most of the time goes to.
        """
        place = (start, end, behind, ahead, words)
        if place not in self._seen:
            if len(self._seen) >= _MAX_WINDOWS:
                self._seen.clear()
            first, last = context.before(self._text, start, behind), context.after(self._text, end, ahead)
            self._seen[place] = first, last, self._words.near(first, last) if words else frozenset()
        return self._seen[place]

    def speaks(self, ready: _Ready, start: int, end: int) -> bool:
        """Return whether a context word lies near or inside a stretch: without one, no match in it can have any."""
        behind, ahead = ready.entity.window
        size = end - start
        return ready.code in self.look(end, start, behind + size, ahead + size)[2]


def _judge(ready: _Ready, text: bytes, match: re.Match[bytes], around: _Surroundings) -> Found | None:
    """Return what a match of a rule's regex is, None when it is nothing."""
    start, end = match.span("value") if ready.has_value else match.span()
    if start < 0 or end <= start or end - start > MAX_MATCH_BYTES:
        return None
    before, after, speaking = around.look(start, end, *ready.entity.window, words=bool(ready.entity.context))
    near = ready.code in speaking
    if ready.needs_context and not near:
        return None
    candidate = Candidate(
        text=text[start:end].decode("latin-1"),
        before=before,
        after=after,
        context=near,
        groups={name: group.decode("latin-1") for name, group in match.groupdict().items() if group is not None}
        if ready.regex.groupindex
        else {},
    )
    if near and ready.label is not None and not _holds(ready.label, candidate):
        if ready.needs_context:
            return None
        near, candidate = False, replace(candidate, context=False)
    evidence = Evidence.FORM
    for validator in ready.validators:
        said = _said(validator, candidate)
        if said is Evidence.REJECTED:
            return None
        evidence = max(evidence, said)
    tier = ready.rule.tiers.tier(ready.rule.passes or evidence, near)
    if tier is None:
        return None
    reserved = ready.reserved is not None and _holds(ready.reserved, candidate)
    return Found(
        start=start,
        end=end,
        code=ready.code,
        rule=ready.index,
        tier=int(tier),
        score=ready.entity.scores[tier],
        reserved=reserved,
    )


def _said(validator: Validator, candidate: Candidate) -> Evidence:
    """Return what a check says; text that it is not made for, which a user's regex may give it, does not pass."""
    try:
        return validator(candidate)
    except (ValueError, LookupError, ArithmeticError):
        return Evidence.REJECTED


def _holds(predicate: Predicate, candidate: Candidate) -> bool:
    try:
        return predicate(candidate)
    except (ValueError, LookupError, ArithmeticError):
        return False


def _stretches(
    hits: list[Hit], sharing: tuple[tuple[int, ...], ...], ready: tuple[_Ready, ...], size: int
) -> list[tuple[int, int, int, int]]:
    """Merge the hits of each rule, extended by its reach, into stretches that do not overlap; sorted by place."""
    by_prefilter: dict[int, list[tuple[int, int]]] = {}
    for place, start, end in hits:
        by_prefilter.setdefault(place, []).append((start, end))
    merged: list[tuple[int, int, int, int]] = []
    for place, spans in by_prefilter.items():
        spans.sort()
        for rule in sharing[place]:
            behind, ahead = ready[rule].rule.reach
            beside = ahead if ready[rule].rule.anchored else 0
            first, last, hit = spans[0][0] - behind, 0, 0
            for start, end in spans:
                if start - behind >= last > 0:
                    merged.append((rule, max(0, first), min(size, last), hit))
                    first, last, hit = start - behind, 0, 0
                last, hit = max(last, end + ahead), max(hit, end + beside)
            merged.append((rule, max(0, first), min(size, last), hit))
    return sorted(merged, key=itemgetter(1, 0))


def _matches(regex: re.Pattern[bytes], text: bytes, start: int, end: int, hit: int) -> Iterator[re.Match[bytes]]:
    """Yield the matches that lie in a stretch and begin before ``hit``; a lookaround sees beyond it."""
    horizon = min(len(text), end + AHEAD_BYTES)
    while start < hit:
        match = regex.search(text, start, horizon)
        if match is None or match.end() > end:
            return
        yield match
        start = match.end()


@lru_cache(maxsize=8)
def _context_words(registry: Registry) -> context.ContextWords:
    return context.ContextWords((code, entity.context) for code, entity in enumerate(registry.entities))


@lru_cache(maxsize=8)
def _prepare(registry: Registry) -> tuple[_Ready, ...]:
    prepared = []
    for index, (code, rule) in enumerate(registry.rules):
        entity = registry.entities[code]
        prepared.append(
            _Ready(
                index=index,
                code=code,
                rule=rule,
                entity=entity,
                unbounded=any(found["loop"] for found in _UNBOUNDED.finditer(rule.regex.encode())),
                needs_context=rule.tiers.needs_context,
                validators=tuple(registry.validators[name] for name in rule.validators),
                reserved=registry.reserved[entity.reserved] if entity.reserved else None,
                label=registry.labels[entity.label] if entity.label else None,
            )
        )
    return tuple(prepared)


DIGEST_BYTES = 16


def normal_form(text: bytes, form: str) -> bytes:
    """Return the part of a value that names it: ``digits`` only, ``alnum`` upper-cased, ``lower`` or the ``text``."""
    if form == "digits":
        return bytes(byte for byte in text if 0x30 <= byte <= 0x39)
    if form == "alnum":
        return bytes(byte for byte in text.upper() if 0x30 <= byte <= 0x39 or 0x41 <= byte <= 0x5A)
    return text.strip().lower() if form == "lower" else text


def keyed_digest(key: bytes, entity: str, text: bytes, form: str) -> bytes:
    """Return the first 16 bytes of HMAC-SHA256 over the entity's name, a zero byte and the normal form."""
    message = entity.encode() + b"\0" + normal_form(text, form)
    return hmac.new(key, message, hashlib.sha256).digest()[:DIGEST_BYTES]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One finding in a document: a place and a class."""

    start: int
    """First byte."""
    end: int
    """Byte after the last."""
    code: int
    """Index of the entity."""
    rule: int
    """Index of the rule over all entities; only decides ties."""
    tier: int
    """Of :class:`dataaudit.scan.detectors.patterns.entity.Tier`."""
    score: float
    """Confidence."""
    reserved: bool
    """An example or a reserved value."""


def without_overlaps(found: Iterable[Found]) -> list[Found]:
    """Keep findings that do not overlap: the surer tier, then the longer, the earlier, the higher score."""
    kept: list[Found] = []
    meeting: list[Found] = []
    end = 0
    for match in sorted(found, key=lambda f: f.start):
        if match.start >= end and meeting:
            kept += meeting if len(meeting) == 1 else _without_overlaps(meeting)
            meeting = []
        meeting.append(match)
        end = max(end, match.end)
    return kept + _without_overlaps(meeting)


def _without_overlaps(meeting: list[Found]) -> list[Found]:
    """Keep findings of a place where each meets another; the work grows with the square of their number."""
    kept: list[Found] = []
    starts: list[int] = []
    for match in sorted(meeting, key=lambda f: (f.tier, f.start - f.end, f.start, -f.score, f.code, f.rule)):
        place = bisect_left(starts, match.end)
        if place and kept[place - 1].end > match.start:
            continue
        kept.insert(place, match)
        starts.insert(place, match.start)
    return kept
