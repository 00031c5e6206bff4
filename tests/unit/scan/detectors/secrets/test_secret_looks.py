"""How random a string looks, what a password is, and what stands for a secret."""

import math
import random

import pytest
from made_secrets import ALNUM, HEX, LOWER_ALNUM, URL64, password, pick

from dataaudit.scan.detectors.patterns.entity import Candidate
from dataaudit.scan.detectors.secrets.assigned import bits_per_letter, is_random, is_varied
from dataaudit.scan.detectors.secrets.rules import Allowed
from dataaudit.scan.detectors.secrets.validators import RESERVED, is_password, is_placeholder


def test_entropy_is_shannon_s():
    assert bits_per_letter("aabb") == 1.0
    assert bits_per_letter("") == 0.0
    assert math.isclose(bits_per_letter("abcd" * 5), 2.0)


@pytest.mark.parametrize("alphabet", [ALNUM, HEX, LOWER_ALNUM, URL64])
@pytest.mark.parametrize("size", [20, 32, 64])
def test_99_of_100_random_strings_look_random(alphabet, size):
    rng = random.Random(f"{alphabet}{size}")
    texts = [pick(rng, alphabet, size) for _ in range(500)]
    assert sum(map(is_random, texts)) >= 495
    assert sum(map(is_varied, texts)) >= 495


@pytest.mark.parametrize(
    "text",
    [
        "get_password_for_user", "internationalization", "aaaaaaaabbbbbbbb1", "2016090821474612345", "CONFIG_CRYPTO",
        "lbm_base_align_mask_v4x2", "dlist-entry-of-channel-0", "short1",
    ],
)  # fmt: skip
def test_words_numbers_and_repeats_do_not(text):
    assert not is_random(text)


@pytest.mark.parametrize(
    "text",
    [
        "changeme", "<token>", "${TOKEN}", "{{ token }}", "xxxxxxxxxxxx", "AKIAIOSFODNN7" + "EXAMPLE", "your-key-here",
        "00000000000000000000", "abcdefghijkl", "%s", "$PASSWORD", "REDACTED-1", "secret",
        "aaaa1111aaaa1111aaaa1111aaaa1111",
    ],
)  # fmt: skip
def test_a_placeholder_is_told(text):
    assert is_placeholder(text)


def test_random_values_are_no_placeholders():
    rng = random.Random(8)
    assert not any(is_placeholder(pick(rng, ALNUM, 40)) for _ in range(2000))
    assert not any(is_placeholder(pick(rng, HEX, 32)) for _ in range(2000))


def test_passwords_are_told_from_program_text():
    rng = random.Random(9)
    assert sum(is_password(password(rng)) for _ in range(500)) >= 495
    for text in (
        "user_name",
        "/etc/pass.d/x1",
        "get(1)",
        "config.password1",
        "scram-sha-x",
        "--flag2",
        "main.c",
        "monkey",
    ):
        assert not is_password(text)


def test_nothing_that_holds_a_text_shows_it():
    canary = "canary" + "Kq7Zp2"
    candidate = Candidate(text=canary, before=canary, after=canary, context=False)
    allowed = Allowed(entity="X", placeholder=RESERVED["allowed_only"], fingerprints=frozenset())
    assert canary not in repr(candidate) + repr(allowed) + str(candidate)
