"""What the shipped rules find in a text."""

from functools import cache
from typing import NamedTuple

from dataaudit.scan.detectors.patterns.entity import Tier
from dataaudit.scan.detectors.patterns.screen import find_in
from dataaudit.scan.detectors.secrets.rules import load_secrets

shipped = cache(load_secrets)


class Hit(NamedTuple):
    entity: str
    start: int
    end: int
    tier: Tier
    reserved: bool


def all_hits(text, registry=None):
    """Return every hit, and whether the search was cut short."""
    registry = registry or shipped()
    found, truncated = find_in(registry, memoryview(text.encode() if isinstance(text, str) else text))
    return [Hit(registry.entities[one.code].name, one.start, one.end, Tier(one.tier), one.reserved) for one in found], (
        truncated
    )


def hits(text):
    """Return the hits that count."""
    return [one for one in all_hits(text)[0] if not one.reserved]


def hits_at(text, start, end):
    """Return the hits that count and overlap a place."""
    return [one for one in hits(text) if one.start < end and one.end > start]
