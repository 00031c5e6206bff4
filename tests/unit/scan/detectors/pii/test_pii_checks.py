"""Check digits by other means than the code's: long division, tables written out, all last digits tried."""

import re
from string import ascii_uppercase

import phonenumbers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples
from stdnum import numdb

from dataaudit.scan.detectors.pii import contacts, payments
from dataaudit.scan.detectors.pii.national import NATIONAL

DIGITS = st.text(alphabet="0123456789", min_size=2, max_size=24)
D5 = [
    "0123456789", "1234067895", "2340178956", "3401289567", "4012395678", "5987604321", "6598710432", "7659821043",
    "8765932104", "9876543210",
]  # fmt: skip
PERMUTED = [
    "0123456789", "1576283094", "5803796142", "8916043527", "9453126870", "4286573901", "2793806415", "7046913258",
]  # fmt: skip


def taken(check, plain):
    """Whether a check passes; a ValueError is a refusal."""
    try:
        return bool(NATIONAL[check].check(plain))
    except ValueError:
        return False


@given(DIGITS)
def test_luhn_is_the_sum_of_digits_with_every_second_doubled(digits):
    total = sum(int(item) for item in digits[-1::-2])
    total += sum(sum(map(int, str(2 * int(item)))) for item in digits[-2::-2])
    assert payments.luhn(digits) == (total % 10 == 0)


@given(DIGITS)
def test_verhoeff_follows_the_published_tables(digits):
    check = "0"
    for place, digit in enumerate(reversed(digits)):
        check = D5[int(check)][int(PERMUTED[place % 8][int(digit)])]
    assert payments.verhoeff(digits) == (check == "0")


@given(st.text(alphabet="0123456789ABCXYZ", min_size=3, max_size=34))
def test_mod97_is_a_remainder_taken_digit_by_digit(text):
    remainder = 0
    for letter in text:
        value = ord(letter) - 48 if letter.isdigit() else ord(letter) - 55
        remainder = (remainder * (10 if value < 10 else 100) + value) % 97
    assert payments.mod97(text) == (remainder == 1)


def test_lengths_of_ibans_are_those_of_stdnums_registry():
    """Of every country, and of no other."""
    countries = {a + b for a in ascii_uppercase for b in ascii_uppercase}
    found = {country: numdb.get("iban").info(f"{country}0")[0][1] for country in countries}
    lengths = {
        country: str(4 + sum(map(int, re.findall(r"([0-9]+)!", about["bban"]))))
        for country, about in found.items()
        if about
    }
    assert lengths == payments.LENGTHS


@given(st.text(alphabet="0123456789", min_size=1, max_size=15))
def test_mod11_10_accepts_one_last_digit(digits):
    """That of the recursion of ISO/IEC 7064."""
    product = 10
    for digit in digits:
        product = 2 * ((product + int(digit)) % 10 or 10) % 11
    right = str((1 - product) % 10)
    assert [last for last in "0123456789" if payments.mod11_10(digits + last)] == [right]


@pytest.mark.parametrize(
    ("check", "length", "accepted"),
    [
        ("uk_nhs", 9, {0, 1}), ("nl_bsn", 8, {0, 1}), ("au_tfn", 8, {0, 1}), ("hr_oib", 10, {1}),
        ("tr_kimlik", 10, {0, 1}), ("th_tnin", 12, {0, 1}), ("pt_nif", 8, {0, 1}), ("ch_ahv", 12, {0, 1}),
        ("br_cpf", 10, {0, 1}), ("au_medicare", 8, {0, 1}), ("ca_sin", 8, {0, 1}), ("in_aadhaar", 11, {0, 1}),
    ],
)  # fmt: skip
@settings(max_examples=examples(40))
@given(data=st.data())
def test_of_all_last_digits_at_most_one_is_right(check, length, accepted, data):
    digits = data.draw(st.text(alphabet="0123456789", min_size=length, max_size=length))
    assert sum(NATIONAL[check].check(digits + last) for last in "0123456789") in accepted


@pytest.mark.parametrize(
    ("check", "number"),
    [
        ("uk_nhs", "9434765919"), ("de_tax_id", "65929970489"), ("in_aadhaar", "234123412346"),
        ("br_cpf", "52998224725"), ("nl_bsn", "111222333"), ("pl_pesel", "44051401359"),
        ("tr_kimlik", "17291716060"), ("hr_oib", "33392005961"), ("ch_ahv", "7569217076985"),
        ("no_fnr", "15108695088"), ("be_nrn", "85073003328"), ("za_id", "8001015009087"),
    ],
)  # fmt: skip
def test_a_published_example_holds_and_no_digit_of_it_can_be_changed(check, number):
    assert NATIONAL[check].check(number)
    changed = [
        number[:place] + other + number[place + 1 :]
        for place in range(len(number))
        for other in "0123456789"
        if other != number[place]
    ]
    assert sum(taken(check, item) for item in changed) <= 2


@pytest.mark.parametrize(
    ("message", "digest"),
    [
        (b"", "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"),
        (b"abc", "4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45"),
        (b"testing", "5f16f4c7f149ac4f9510d9cf8cf384038ad348b3bcdc01915f95de12df9d1b02"),
    ],
)
def test_keccak_gives_the_published_digests(message, digest):
    assert payments.keccak256(message).hex() == digest


@pytest.mark.parametrize("length", [134, 135, 136, 137, 272])
def test_keccak_differs_from_sha3_by_one_byte_of_padding(length, monkeypatch):
    import hashlib

    data = bytes(range(256))[:length] if length < 256 else bytes(length)
    padded = bytearray(data + b"\x06" + bytes(135 - len(data) % 136))
    padded[-1] |= 0x80
    state = [0] * 25
    for first in range(0, len(padded), 136):
        for lane in range(17):
            state[lane] ^= int.from_bytes(padded[first + 8 * lane : first + 8 * lane + 8], "little")
        state = payments._permuted(state)
    assert b"".join(lane.to_bytes(8, "little") for lane in state[:4]) == hashlib.sha3_256(data).digest()
    assert payments.keccak256(data) != hashlib.sha3_256(data).digest()


@pytest.mark.parametrize(
    ("address", "valid"),
    [
        ("BC1QW508D6QEJXTDG4Y5R3ZARVARY0C5XW7KV8F3T4", True),
        ("bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqzk5jj0", True),
        ("tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx", True),
        ("bc1Qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4", False),
        ("bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqh2y7hd", False),
    ],
)
def test_bech32_takes_the_vectors_of_bips_173_and_350(address, valid):
    assert payments.bech32(address) is valid


@pytest.mark.parametrize(
    "address",
    [
        "0x52908400098527886E0F7030069857D2E4169EE7",
        "0xde709f2102306220921060314715629080e2fb77",
        "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
        "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
    ],
)
def test_eip55_takes_the_vectors_of_its_text(address):
    assert payments.eip55(address)


def test_numbering_plans_say_of_example_numbers_what_phonenumbers_says():
    for region in sorted(phonenumbers.SUPPORTED_REGIONS):
        number = phonenumbers.example_number(region)
        digits = f"{number.country_code}{phonenumbers.national_significant_number(number)}"
        assert contacts.in_use(digits) is True
        national = phonenumbers.national_significant_number(number)
        assert contacts.in_use_in(national, (region,))


@settings(max_examples=examples(100))
@given(
    code=st.sampled_from(sorted(phonenumbers.COUNTRY_CODE_TO_REGION_CODE)),
    rest=st.from_regex(r"[1-9][0-9]{6,10}", fullmatch=True),
)
def test_numbering_plans_take_no_number_that_phonenumbers_refuses(code, rest):
    parsed = phonenumbers.PhoneNumber(country_code=code, national_number=int(rest))
    assert not contacts.in_use(f"{code}{rest}") or phonenumbers.is_valid_number(parsed)


def test_a_code_that_no_country_has_is_told_apart():
    assert contacts.in_use("99912345678") is None
    assert contacts.in_use("0123456789") is None
