"""The pattern screen: findings of a registry's entities in every document of a batch.

Patterns see bytes of a *folded* text. People write numbers with spaces and hyphens that do not break a line, and with
digits of full width or of their script; HTML and URLs encode what stands between digits. All of these are folded to
ASCII first; offsets of findings are those of the text as it is written.
"""

from __future__ import annotations

import hmac
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dataaudit.scan.corpus.segments import runs
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
from dataaudit.scan.detectors.patterns.registry import Hit, Registry, compile_database, scan
from dataaudit.scan.detectors.patterns.written import MAX_MATCH_BYTES, full_regex

R = TypeVar("R")
MAX_CANDIDATES = 50_000
"""Candidates of a document that each rule checks, the first ones.

Each rule has its own limit, so that no number of passwords in words can hide a token with a checksum.
"""
_AT_ONCE = 1 << 18
"""Bytes of documents that are searched before their hits are looked at: either drives the other out of the caches."""
_MAX_WINDOWS = 4096
"""Windows of a document that are cached for the rules that meet there."""
AHEAD_BYTES = 64
"""Bytes behind a segment that a lookahead of its regex can see."""
MAX_UNBOUNDED_BYTES = 4096
"""Longest segment in which a regex with an unbounded repeat is tried: its time may grow with the square."""
LONG_BYTES = 64
"""A longer segment is searched for context words as a whole before its matches are; else only the matches are."""
_UNBOUNDED = re.compile(rb"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<loop>[*+]|\{\d+,\})", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class _Ready:
    """A rule with the functions that it names; its regex is compiled when it is first needed."""

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
        """The regex with its conditions on what stands beside a match."""
        return full_regex(self.rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternScreen:
    """Screens each document alone and from its start, so the cut of batches changes no finding."""

    registry: Registry

    def find(
        self, values: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], *, key: bytes | None = None
    ) -> FindingBatch:
        """Find the registry's entities in documents, given as bytes uint8[b] and their bounds int64[n + 1]."""
        entities = self.registry.entities
        found: list[tuple[int, Finding]] = []
        truncated = np.zeros(len(offsets) - 1, dtype=np.bool_)
        digests: list[bytes] = []
        view = np.ascontiguousarray(values, dtype=np.uint8).data
        documents = [view[start:end] for start, end in pairwise(offsets.tolist())]
        for low, high in runs(offsets, _AT_ONCE):
            searched = [_search(self.registry, document) for document in documents[low:high]]
            for number, document_searched in enumerate(searched, low):
                findings, truncated[number] = _findings(self.registry, *document_searched)
                found += [(number, finding) for finding in findings]
                if key is not None:
                    document = documents[number]
                    digests += [_digest(key, document, finding, entities[finding.code]) for finding in findings]
        scores = np.array([entity.scores for entity in entities], dtype=np.float32).reshape(-1, 3)
        codes = np.array([finding.code for _, finding in found], dtype=np.int16)
        tiers = np.array([finding.tier for _, finding in found], dtype=np.int8)
        keyed = None if key is None else np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, DIGEST_BYTES)
        return FindingBatch(
            detectors=tuple(entity.detector for entity in entities),
            entities=tuple(entity.name for entity in entities),
            documents=np.array([number for number, _ in found], dtype=np.int32),
            codes=codes,
            tiers=tiers,
            reserved=np.array([finding.reserved for _, finding in found], dtype=np.bool_),
            starts=np.array([finding.start for _, finding in found], dtype=np.int64),
            ends=np.array([finding.end for _, finding in found], dtype=np.int64),
            scores=scores[codes, tiers] if found else np.zeros(0, dtype=np.float32),
            truncated=truncated,
            keyed=keyed,
        )


def _digest(key: bytes, document: memoryview, finding: Finding, entity: Entity) -> bytes:
    # The space stands for what came before, on which it depends whether %2B is a sign.
    text = Folded(b" " + bytes(document[finding.start : finding.end])).text[1:]
    return keyed_digest(key, entity.name, text, entity.normal)


def find_in(registry: Registry, document: memoryview) -> tuple[list[Finding], bool]:
    """Return the findings in a document, sorted by (start, end, entity), and whether parts were not screened."""
    return _findings(registry, *_search(registry, document))


def _search(registry: Registry, document: memoryview) -> tuple[Folded, list[Hit], bool]:
    """Return the folded text of a document, the hits of prefilters in it, and whether parts were not searched."""
    folded = Folded(bytes(document))
    return folded, *scan(compile_database(registry), folded.text)


def _findings(registry: Registry, folded: Folded, hits: list[Hit], truncated: bool) -> tuple[list[Finding], bool]:
    """Return the findings at the hits in a document, as :func:`find_in` does."""
    if not hits:
        return [], truncated
    text, prefilters = folded.text, compile_database(registry)
    by_detector: dict[str, list[Finding]] = {}
    ready = _prepare(registry)
    around = _Surroundings(_context_words(registry), text)
    checked: dict[int, int] = {}
    for index, start, end, last in _segments(hits, prefilters.rules, ready, len(text)):
        number = checked.get(index, 0) + 1
        if number > MAX_CANDIDATES:
            truncated = True
            continue
        rule = ready[index]
        checked[index] = number
        if rule.needs_context and end - start > LONG_BYTES and not around.has_context(rule, start, end):
            continue
        if rule.unbounded and end - start > MAX_UNBOUNDED_BYTES:
            truncated = True
            continue
        for match in _matches(rule.regex, text, start, end, last):
            if number >= MAX_CANDIDATES:
                truncated = True
                break
            number += 1
            finding = _classify(rule, text, match, around)
            if finding is not None:
                by_detector.setdefault(rule.entity.detector, []).append(finding)
        checked[index] = number
    kept = [finding for findings in by_detector.values() for finding in without_overlaps(findings)]
    if folded.is_changed:
        kept = [
            replace(finding, start=folded.written(finding.start), end=folded.written(finding.end)) for finding in kept
        ]
    return sorted(kept, key=lambda finding: (finding.start, finding.end, finding.code)), truncated


class _Surroundings:
    """Windows of a document and the words in them; rules that meet at a position share them."""

    def __init__(self, words: context.ContextWords, text: bytes) -> None:
        self._words = words
        self._text = text
        self._seen: dict[tuple[int, int, int, int, bool], tuple[str, str, frozenset[int]]] = {}

    def windows(
        self, start: int, end: int, behind: int, ahead: int, *, words: bool = True
    ) -> tuple[str, str, frozenset[int]]:
        """Return ``behind`` bytes before ``start``, ``ahead`` bytes from ``end``, and the entities of their words.

        Without ``words`` none are searched for, which most of the time goes to.
        """
        key = (start, end, behind, ahead, words)
        if key not in self._seen:
            if len(self._seen) >= _MAX_WINDOWS:
                self._seen.clear()
            first, last = context.before(self._text, start, behind), context.after(self._text, end, ahead)
            self._seen[key] = first, last, self._words.near(first, last) if words else frozenset()
        return self._seen[key]

    def has_context(self, rule: _Ready, start: int, end: int) -> bool:
        """Return whether a context word lies near or inside a segment: without one, no match in it can have any."""
        behind, ahead = rule.entity.window
        size = end - start
        return rule.code in self.windows(end, start, behind + size, ahead + size)[2]


def _classify(rule: _Ready, text: bytes, match: re.Match[bytes], around: _Surroundings) -> Finding | None:
    """Return the finding that a match of a rule's regex is, None when it is none."""
    start, end = match.span("value" if "value" in rule.regex.groupindex else 0)
    if start < 0 or end <= start or end - start > MAX_MATCH_BYTES:
        return None
    before, after, entities = around.windows(start, end, *rule.entity.window, words=bool(rule.entity.context))
    near = rule.code in entities
    if rule.needs_context and not near:
        return None
    groups = match.groupdict() if rule.regex.groupindex else {}
    candidate = Candidate(
        text=text[start:end].decode("latin-1"),
        before=before,
        after=after,
        context=near,
        groups={name: group.decode("latin-1") for name, group in groups.items() if group is not None},
    )
    if near and rule.label is not None and not _call(rule.label, candidate):
        if rule.needs_context:
            return None
        near, candidate = False, replace(candidate, context=False)
    evidence = Evidence.FORM
    for validator in rule.validators:
        result = _call(validator, candidate)
        if not result:
            return None
        evidence = max(evidence, result)
    tier = rule.rule.tiers.tier(rule.rule.passes or evidence, near)
    if tier is None:
        return None
    return Finding(
        start=start,
        end=end,
        code=rule.code,
        rule=rule.index,
        tier=int(tier),
        score=rule.entity.scores[tier],
        reserved=rule.reserved is not None and bool(_call(rule.reserved, candidate)),
    )


def _call(check: Callable[[Candidate], R], candidate: Candidate) -> R | None:
    """Return the result of a check; None for text that it is not made for, which a user's regex may give it."""
    try:
        return check(candidate)
    except (ValueError, LookupError, ArithmeticError):
        return None


def _segments(
    hits: list[Hit], sharing: tuple[tuple[int, ...], ...], ready: tuple[_Ready, ...], size: int
) -> list[tuple[int, int, int, int]]:
    """Merge the hits of each rule, extended by its reach, into segments that do not overlap; sorted by start."""
    by_prefilter: dict[int, list[tuple[int, int]]] = {}
    for prefilter, start, end in hits:
        by_prefilter.setdefault(prefilter, []).append((start, end))
    merged: list[tuple[int, int, int, int]] = []
    for prefilter, spans in by_prefilter.items():
        spans.sort()
        for rule in sharing[prefilter]:
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
    """Yield the matches that lie in a segment and begin before ``hit``; a lookaround sees beyond it."""
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
                unbounded=any(match["loop"] for match in _UNBOUNDED.finditer(rule.regex.encode())),
                needs_context=rule.tiers.needs_context,
                validators=tuple(registry.validators[name] for name in rule.validators),
                reserved=registry.reserved[entity.reserved] if entity.reserved else None,
                label=registry.labels[entity.label] if entity.label else None,
            )
        )
    return tuple(prepared)


_SCRIPTS = (
    (b"\xef", rb"\xef\xbc[\x90-\x99]"),
    (b"\xd9", rb"\xd9[\xa0-\xa9]"),
    (b"\xdb", rb"\xdb[\xb0-\xb9]"),
    (b"\xe0", rb"\xe0(?:[\xa5\xa7][\xa6-\xaf]|\xb9[\x90-\x99])"),
)
"""Digits of full width, Arabic, Persian; Devanagari, Bengali, Thai: in UTF-8, each behind its first byte."""
_DIGIT_PARTS = tuple((lead, re.compile(digits)) for lead, digits in _SCRIPTS)
_DIGITS = {
    letter.encode(): b"%d" % int(letter)
    for letter in "０１２３４５６７８９٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹०१२३४५६७८९০১২৩৪৫৬৭৮৯๐๑๒๓๔๕๖๗๘๙"
}
_UNBROKEN = {b"\xc2\xa0": b" ", b"\xe2\x80\xaf": b" ", b"\xe2\x80\x91": b"-"}
"""U+00A0 and U+202F, spaces; U+2011, a hyphen; in UTF-8."""
_SIGNS = (
    (b"\xc2", rb"\xc2\xa0"),
    (b"\xe2", rb"\xe2(?:\x80[\xaf\x91]|(?<=[0-9)]\xe2)(?P<sign>\x80[\x87-\x8a\x90\x92\x93]|\x88\x92)(?=[0-9(]))"),
    (
        b"\xef",
        (
            rb"\xef(?:(?<=[0-9)]\xef)(?P<wide>\xbc\x8d)(?=[0-9(])|\xbc(?:(?P<wide_plus>\x8b)|(?P<opens>\x88))(?=[0-9])"
            rb"|(?<=[0-9]\xef)\xbc(?P<closes>\x89)|(?<=[A-Za-z0-9_.-]\xef)\xbc(?P<at>\xa0)(?=[A-Za-z0-9]))"
        ),
    ),
    (b"\xe3", rb"\xe3(?<=[0-9)]\xe3)(?P<asian>\x80\x80|\x83\xbc)(?=[0-9(])"),
    (
        b"&",
        rb"&(?<=[0-9)]&)(?P<entity>nbsp|thinsp|hyphen|[nm]dash|minus|#160|#[xX][aA]0|#8239|#8209|#45|#[xX]2[dD]|#821[12]);(?=[0-9(])",
    ),
    (b"%", rb"%(?:(?<=[0-9)]%)(?P<encoded>20|2[dD])(?=[0-9(])|(?<=[=:/ \"'>]%)(?P<plus>2[bB])(?=[0-9]))"),
)
"""By their first byte these, and between two digits also other spaces (U+2007 to U+200A, U+3000) and hyphens (U+2010,
U+2012, U+2013, U+2212, U+FF0D, U+30FC), what HTML and URLs write for them; ``%2B``, a plus and brackets of full width
beside a digit; an ``@`` of full width between letters."""
_SIGN_PARTS = tuple((lead, re.compile(signs)) for lead, signs in _SIGNS)
_PLAIN_PARTS = tuple((lead, signs) for lead, signs in _SIGN_PARTS if lead.isascii())
_ALONE = {"plus": b"+", "wide_plus": b"+", "opens": b"(", "closes": b")", "at": b"@"}
_SPACES = frozenset(b"\x80\x87 \x80\x88 \x80\x89 \x80\x8a \x80\x80 nbsp thinsp #160 #xa0 #8239 20".split(b" "))


_ESCAPES = (
    (b"\\", re.compile(rb"\\(?:[nrt]|u00(2[267Bb]|3[C-Ec-e]))")),
    (b"%", re.compile(rb"%(2[02]|0[9ADad]|3[CEce])")),
)
"""What JSON and URLs write for spaces, quotes and brackets, JSON for ``&``, ``+``, ``=``: words begin behind it."""


def _plain(match: re.Match[bytes]) -> bytes:
    """Return the sign that an escape stands for, behind spaces, so that offsets stay."""
    sign = bytes.fromhex(match[1].decode()) if match[1] else b"\n" if match[0] == b"\\n" else b" "
    return sign.rjust(len(match[0]))


def _written(parts: tuple[tuple[bytes, re.Pattern[bytes]], ...], text: bytes) -> list[re.Match[bytes]]:
    """Return all matches in order; a search from a first byte, if the text has it, is the fastest that there is."""
    found = [match for lead, part in parts if lead in text for match in part.finditer(text)]
    return sorted(found, key=re.Match.start)


def _sign(match: re.Match[bytes]) -> bytes:
    kind = match.lastgroup
    if kind is None:
        return _UNBROKEN[match[0]]
    return _ALONE[kind] if kind in _ALONE else b" " if match[kind].lower() in _SPACES else b"-"


class Folded:
    """A text with digits, spaces and hyphens of ASCII; :meth:`written` maps its offsets to the text as it is written.

    Digits are folded first: signs are known by what stands beside them. A plain text stays the same object.
    """

    __slots__ = ("_steps", "text")

    def __init__(self, written: bytes) -> None:
        self.text = written
        self._steps: list[tuple[list[int], list[int]]] = []
        plain = written.isascii()
        if not plain and (digits := _written(_DIGIT_PARTS, written)):
            self._fold(digits, lambda match: _DIGITS[match[0]])
        if signs := _written(_PLAIN_PARTS if plain else _SIGN_PARTS, self.text):
            self._fold(signs, _sign)
        for lead, escape in _ESCAPES:
            if lead in self.text:
                self.text = escape.sub(_plain, self.text)

    @property
    def is_changed(self) -> bool:
        """Whether offsets differ."""
        return bool(self._steps)

    def _fold(self, matches: list[re.Match[bytes]], instead: Callable[[re.Match[bytes]], bytes]) -> None:
        """Replace each match by a byte; remember the offset of each, and the bytes that were saved up to it."""
        offsets: list[int] = []
        saved = [0]
        pieces: list[bytes] = []
        size = end = 0
        for match in matches:
            start = match.start()
            pieces += self.text[end:start], instead(match)
            size += start - end
            end = match.end()
            offsets.append(size)
            saved.append(saved[-1] + end - start - 1)
            size += 1
        self.text = b"".join((*pieces, self.text[end:]))
        self._steps.insert(0, (offsets, saved))

    def written(self, offset: int) -> int:
        """Return the offset in the written text of an offset in the folded one."""
        for offsets, saved in self._steps:
            offset += saved[bisect_left(offsets, offset)]
        return offset


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
    return hmac.digest(key, message, "sha256")[:DIGEST_BYTES]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A finding in a document: its bytes and its class."""

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
    reserved: bool
    """An example or a reserved value."""


def without_overlaps(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings that do not overlap: the surer tier, then the longer, the earlier, the higher score."""
    kept: list[Finding] = []
    meeting: list[Finding] = []
    end = 0
    for finding in sorted(findings, key=lambda f: f.start):
        if finding.start >= end and meeting:
            kept += meeting if len(meeting) == 1 else _without_overlaps(meeting)
            meeting = []
        meeting.append(finding)
        end = max(end, finding.end)
    return kept + _without_overlaps(meeting)


def _without_overlaps(meeting: list[Finding]) -> list[Finding]:
    """Do the same where each finding overlaps another; the work grows with the square of their number."""
    kept: list[Finding] = []
    for finding in sorted(meeting, key=lambda f: (f.tier, f.start - f.end, f.start, -f.score, f.code, f.rule)):
        at = bisect_left(kept, finding.end, key=lambda f: f.start)
        if not at or kept[at - 1].end <= finding.start:
            kept.insert(at, finding)
    return kept
