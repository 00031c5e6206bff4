"""The issuers that gitleaks knows, by its rules: found in lines like its samples, by name where they have a form."""

import re
from pathlib import Path

import pytest
from issuer_forms import ASSIGNED, NAMED, NOT_LOOKED_FOR, OWN_LINES, PREFIXED, samples

from dataaudit.scan.detectors.patterns.screen import find_in
from dataaudit.scan.detectors.secrets.rules import load_secrets


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


@pytest.mark.parametrize("issuer", PREFIXED)
def test_a_token_that_its_prefix_names_is_found_behind_any_name_and_alone(registry, issuer):
    made = samples(issuer, "settings", PREFIXED[issuer], rounds=2)
    made += [("see the note\n" + text[start:end] + "\n", 13, 13 + end - start) for text, start, end in made]
    assert sum(found_at(registry, *one) == ["ISSUED_TOKEN"] for one in made) >= 0.9 * len(made)


def test_words_behind_the_prefixes_of_issuers_are_no_tokens(registry):
    for text in (
        "sdk-initialization-of-the-second-client-12 api-gateway-authorization-token-of-2024",
        "sk_buff_of_the_first_fragment_in_the_queue secret_of_the_second_service_account_2024",
        "aio_read_completion_handler_of_the_device ptr_to_the_first_element_of_the_array_of_2",
        "ph_register_all_the_filters_of_the_device fig_caption_of_the_second_figure_in_the_text",
        "token ya29.the-access-token-of-the-second-user and 1000.abcdef.abcdef",
        "xai-grok-and-other-models-of-the-second-generation r8_versions_of_the_models_of_2024",
        "pk_2024_THE_PRIMARY_KEY_OF_THE_SECOND_TABLE da2-the-second-version-of-the-api",
    ):
        found, _ = find_in(registry, memoryview(text.encode()))
        assert [registry.entities[one.code].name for one in found if not one.reserved] == []


def test_what_is_not_looked_for_has_a_reason():
    assert all(NOT_LOOKED_FOR.values())
    assert not set(NOT_LOOKED_FOR) & (set(NAMED) | set(ASSIGNED))


PAGE = Path(__file__).parents[5] / "docs/reference/detectors.md"


def test_the_table_of_kinds_is_that_of_the_rules():
    named = re.findall(r"^\| `([A-Z0-9_]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert named == [entity.name for entity in load_secrets().entities]
