"""The one pass: all prefilters of a registry in one hyperscan database, compiled once on each machine."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dataaudit.detectors.patterns.context import compile_patterns, make_database
from dataaudit.detectors.patterns.entity import Rule
from dataaudit.detectors.patterns.registry import Registry
from dataaudit.errors import ConfigError

BLOCK_BYTES = 64 * 1024
"""Documents are looked at in blocks that begin at multiples of this."""
OVERLAP_BYTES = 2048
"""A block also sees this much of the next one, so that what begins in it ends in it."""
MAX_BLOCK_HITS = 64 * 1024
"""A block with more hits of prefilters than this, one a byte, is not looked at: it is hostile.

Lists of people have 12 to 24 thousand.
"""
MAX_DOCUMENT_HITS = 8 * MAX_BLOCK_HITS
"""Hits of a document that are kept at most.

When there are more, each prefilter that has over its even share keeps its first ones and gets no further ones; the
others are searched for to the end of the document. Only if these have too many, too, its rest is not looked at.
"""
_MOST_OF_ONE = MAX_DOCUMENT_HITS // 8


Hit = tuple[int, int, int]
"""Match of a prefilter: its place in :attr:`Prefilters.rules`, first byte in the document, byte after."""


@dataclass(frozen=True, slots=True)
class Prefilters:
    """The compiled prefilters of a registry."""

    database: Any
    """Of hyperscan; the ids are places in ``rules``."""
    rules: tuple[tuple[int, ...], ...]
    """The rules that share each prefilter, by their index over all rules of the registry."""


@lru_cache(maxsize=8)
def compile_database(registry: Registry) -> Prefilters:
    """Compile the registry's prefilters; rules that share one are searched for once.

    Raises:
        ConfigError: A pattern that hyperscan does not take, named with its entity.
    """
    import hyperscan

    shared: dict[tuple[str, bool], list[int]] = {}
    for index, (_, rule) in enumerate(registry.rules):
        shared.setdefault((rule.prefilter, _caseless(rule)), []).append(index)
    try:
        database = make_database([(prefilter.encode(), _flags(hyperscan, caseless)) for prefilter, caseless in shared])
    except hyperscan.error as error:
        raise _blame(hyperscan, registry) or ConfigError(f"the patterns cannot be compiled together: {error}") from None
    return Prefilters(database, tuple(tuple(rules) for rules in shared.values()))


def _caseless(rule: Rule) -> bool:
    return rule.ignore_case or rule.anchored


def _flags(hyperscan: Any, ignore_case: bool) -> int:
    flags: int = hyperscan.HS_FLAG_SOM_LEFTMOST
    return flags | hyperscan.HS_FLAG_CASELESS if ignore_case else flags


def _blame(hyperscan: Any, registry: Registry) -> ConfigError | None:
    """Compile the patterns one by one and say which is refused."""
    for code, rule in registry.rules:
        try:
            compile_patterns([(rule.prefilter.encode(), _flags(hyperscan, _caseless(rule)))])
        except hyperscan.error as error:
            return ConfigError(
                f"entity {registry.entities[code].name}, rule {rule.name}: the pattern `{rule.prefilter[:120]}` "
                f"cannot be searched for: {str(error).rstrip('.')}",
                "Give the rule a `prefilter` without lookarounds, backreferences and long repeats, "
                "and a `reach` if the regex extends beyond it.",
            )
    return None


def scan(prefilters: Prefilters, document: memoryview) -> tuple[list[Hit], bool]:
    """Return the hits in a document, and whether parts of it were not looked at.

    The order of hits means nothing. A hit that lies in the overlap of two blocks is given twice.
    """
    size = len(document)
    hits: list[Hit] = []
    truncated = False
    full: set[int] = set()
    for first in range(0, size, BLOCK_BYTES):
        block = _scan_block(prefilters.database, document[first : min(size, first + BLOCK_BYTES + OVERLAP_BYTES)])
        if block is None:
            truncated = True
            continue
        if full:
            block = [hit for hit in block if hit[0] not in full]
        hits += [(place, first + start, first + end) for place, start, end in block] if first else block
        if len(hits) > MAX_DOCUMENT_HITS:
            truncated = True
            counts = Counter(place for place, _, _ in hits)
            more = {place for place, number in counts.items() if number > _MOST_OF_ONE}
            hits, own = [hit for hit in hits if hit[0] not in more], hits
            for place in sorted(more):  # sorted: the order of hits in a block means nothing
                hits += sorted(hit for hit in own if hit[0] == place)[:_MOST_OF_ONE]
            full |= more
            if not more:
                break
    return hits, truncated


def _scan_block(database: Any, block: memoryview) -> list[Hit] | None:
    """Return the hits, or None when there are too many: their number, unlike their order, is the same everywhere."""
    import hyperscan

    hits: list[Hit] = []

    def on_match(place: int, start: int, end: int, _flags: int, _context: object) -> bool | None:
        hits.append((place, start, end))
        return len(hits) > MAX_BLOCK_HITS or None

    try:
        database.scan(block, match_event_handler=on_match)
    except hyperscan.ScanTerminated:
        return None
    return hits
