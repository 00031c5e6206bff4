import numpy as np
import pytest
from pii_cases import FOUND, MISSED

from dataaudit.scan.detectors.patterns.screen import PatternScreen
from dataaudit.scan.detectors.pii import load_pii

SCREEN = PatternScreen(registry=load_pii())


def find(text):
    encoded = text.encode()
    batch = SCREEN.find(np.frombuffer(encoded, dtype=np.uint8), np.array([0, len(encoded)], dtype=np.int64))
    return [
        (batch.entities[code], int(tier), bool(reserved), encoded[start:end].decode())
        for code, tier, reserved, start, end in zip(
            batch.codes, batch.tiers, batch.reserved, batch.starts, batch.ends, strict=True
        )
    ]


@pytest.mark.judges
@pytest.mark.parametrize(("entity", "tier", "reserved", "before", "value", "after"), FOUND)
def test_an_entity_is_found_with_its_tier_and_its_place(entity, tier, reserved, before, value, after):
    assert (entity, tier, reserved, value) in find(before + value + after)


@pytest.mark.parametrize(("entity", "text"), MISSED)
def test_what_only_looks_like_an_entity_is_not_found_as_it(entity, text):
    assert entity not in [one[0] for one in find(text)]


def test_every_entity_has_a_case_and_a_near_miss():
    names = {entity.name for entity in SCREEN.registry.entities}
    assert names == {case[0] for case in FOUND} == {case[0] for case in MISSED}
