"""`validated` means that lengths and checksums hold: a token that was cut, or has a letter too many, loses the tier."""

from __future__ import annotations

import random

import pytest
from issuer_forms import NAMED, samples
from made_secrets import ALNUM, HEX, KINDS, b64, documents, pick, vault_signed
from secret_hits import hits

from dataaudit.scan.detectors.patterns.entity import Tier
from dataaudit.scan.detectors.secrets import issuers

FREE_LENGTH = ("basic header",)
"""Kinds without a length of their own: base64 of any name, a colon and any password."""


def tiers(text):
    return [hit.tier for hit in hits(text)]


def stored_address(secret: str) -> int:
    """The last letter; of a block of lines, one in the middle of a line in the middle."""
    if "\n" not in secret and "\\n" not in secret:
        return len(secret) - 1
    middle = max(len(secret) // 2, secret.find("Private-Lines") + 20)
    return next(place for place in range(middle, len(secret)) if secret[place - 4 : place + 4].isalnum())


def shorter(secret: str) -> str:
    place = stored_address(secret)
    return secret[:place] + secret[place + 1 :]


def longer(secret: str) -> str:
    place = stored_address(secret)
    letter = secret[place] if secret[place].isalnum() else "a"
    return secret[: place + 1] + letter + secret[place + 1 :]


@pytest.mark.parametrize("change", [shorter, longer])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in FREE_LENGTH])
def test_a_letter_less_or_more_loses_the_tier(kind, change):
    for text, start, end in documents(kind, 8, seed=4):
        changed = text[:start] + change(text[start:end]) + text[end:]
        assert Tier.VALIDATED not in tiers(changed)


def test_a_sentry_token_whose_claims_are_none_is_not_validated():
    rng = random.Random(4)
    for claims in (b"{}", b'{"iat":1700000000}', b'{"url":"https://x"}', b"nothing", rng.randbytes(60)):
        token = "sntry" + f"s_{b64(claims)}_{pick(rng, ALNUM, 43)}"
        assert Tier.VALIDATED not in tiers(f"token: {token}")
    claims = b64(b'{"iat":1687336543.698,"url":null,"region_url":"http://localhost:8000","org":"acme"}')
    for size, holds in ((42, False), (43, True), (44, False)):
        token = "sntry" + f"s_{claims}_{pick(rng, ALNUM, size)}"
        assert (Tier.VALIDATED in tiers(f"token: {token}")) is holds
    for size, holds in ((63, False), (64, True), (65, False)):
        token = "sntry" + "u_" + pick(rng, HEX, size)
        assert (Tier.VALIDATED in tiers(f"token: {token}")) is holds


def test_the_types_of_an_xml_schema_are_no_telegram_tokens():
    for name in ("AAgencyIdentificationCodeContentType", "AAccountTypeCodeContentTypeOfToken2"):
        text = f'<xsd:element name="bot token" type="clm63055:{name}"/> type="12345678:{name[:35]}" telegram bot'
        assert tiers(text) == []


def test_a_telegram_token_is_never_more_than_contextual():
    for text, _, _ in documents("telegram bot", 20):
        assert tiers(text) in ([Tier.CONTEXTUAL], [Tier.PATTERN])


def test_a_signed_vault_token_has_its_parts():
    token = vault_signed(random.Random(5))
    assert issuers.is_vault_token(token)
    assert not issuers.is_vault_token(token[:-4])
    assert not issuers.is_vault_token("hvs." + "CAES" + pick(random.Random(6), ALNUM, 90))


@pytest.mark.parametrize("rule", NAMED)
def test_a_letter_less_or_more_loses_the_tier_of_every_issuer(rule):
    _, maker = NAMED[rule]
    for text, start, end in samples(rule, rule.partition("-")[0], maker, rounds=1):
        for change in (shorter, longer):
            changed = text[:start] + change(text[start:end]) + text[end:]
            assert Tier.VALIDATED not in tiers(changed)
