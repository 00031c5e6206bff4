"""The issuers that gitleaks knows, by its rules: found in lines like its samples, by name where they have a form."""

from __future__ import annotations

import pytest
from issuer_forms import ASSIGNED, NAMED, NOT_LOOKED_FOR, OWN_LINES, samples

from dataaudit.detectors.patterns.screen import find_in
from dataaudit.detectors.secrets.rules import load_secrets


@pytest.fixture(scope="module")
def registry():
    return load_secrets()


def found_at(registry, text, start, end):
    found, _ = find_in(registry, memoryview(text.encode()))
    return [registry.entities[one.code].name for one in found if one.start <= start < end <= one.end]


@pytest.mark.parametrize("rule", NAMED)
def test_a_token_with_a_form_is_found_as_what_it_is(registry, rule):
    entity, maker = NAMED[rule]
    item = rule.partition("-")[0]
    made = samples(rule, item, maker, rounds=20 if rule in OWN_LINES else 3)
    assert sum(found_at(registry, *one) == [entity] for one in made) >= 0.9 * len(made)


@pytest.mark.parametrize("rule", ASSIGNED)
def test_a_value_behind_the_name_of_a_service_is_found(registry, rule):
    item, maker = ASSIGNED[rule]
    made = samples(rule, item, maker, rounds=3)
    assert sum(bool(found_at(registry, *one)) for one in made) >= 0.9 * len(made)


def test_what_is_not_looked_for_has_a_reason():
    assert all(NOT_LOOKED_FOR.values())
    assert not set(NOT_LOOKED_FOR) & (set(NAMED) | set(ASSIGNED))
