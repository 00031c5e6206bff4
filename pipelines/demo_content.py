"""Faults of the demo that are what a document says: insults, personal data, secrets. All made up, by fixed seeds."""

from __future__ import annotations

import base64
import random
import zlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from demo_sources import Document

RUDE_INTO, NUM_RUDE = "messages/part-000.jsonl", 40
"""Fault 10: comments that insult their reader, at the end of this shard."""

RECORDS_INTO, NUM_RECORDS = "handbook/part-000.arrow", 30
"""Fault 11: entries of an address book with e-mail address, bank account and card number, at the end of this shard."""

KEYS_INTO, NUM_KEYS = "code/part-006.parquet", 5
"""Fault 12: an access token with the right checksum in so many documents of this shard."""

_OPENINGS = ("Oh shut up,", "Listen,", "Honestly,", "Nobody asked,", "Go away,")
_INSULTS = (
    "you are a complete idiot and a pathetic liar",
    "you stupid moron, your code is garbage like you",
    "what a dumb piece of trash you are",
    "you are the most disgusting loser on this list",
)
_ENDINGS = ("and everybody here hates you.", "you worthless fool.", "so crawl back into your hole, scum.")
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_MAIL = "tidewater-ledger.org"


def add_content(shard: str, corpus: Sequence[Document]) -> list[Document]:
    """Return the documents of a train shard with the faults that belong there."""
    altered = list(corpus)
    if shard == RUDE_INTO:
        altered += rude_comments()
    if shard == RECORDS_INTO:
        altered += address_book()
    if shard == KEYS_INTO:
        altered = hide_keys(altered)
    return altered


def planted_content() -> list[tuple[str, str, str]]:
    """Return fault, place and what to expect."""
    return [
        (
            "insults",
            f"the last {NUM_RUDE} documents of `train/{RUDE_INTO}`",
            "the toxicity screen takes them for toxic; few other documents, if any",
        ),
        (
            "address book",
            f"the last {NUM_RECORDS} documents of `train/{RECORDS_INTO}`",
            f"{NUM_RECORDS} validated accounts (IBAN_CODE) and cards (CREDIT_CARD), as many e-mail addresses",
        ),
        (
            "access tokens",
            f"the first {NUM_KEYS} documents of `train/{KEYS_INTO}`",
            f"{NUM_KEYS} validated secrets",
        ),
    ]


def rude_comments() -> list[Document]:
    """Return comments in bad words, no two alike."""
    every = list(product(_OPENINGS, _INSULTS, _ENDINGS))
    return [
        Document(id=f"rude/{index:02d}", source="messages", lang="en", text="{} {}, {}".format(*parts))
        for index, parts in enumerate(random.Random(10).sample(every, NUM_RUDE))
    ]


def address_book() -> list[Document]:
    """Return entries of an address book; accounts and card numbers are random, with their checksums right."""
    made = random.Random(11)
    entries = []
    for index in range(NUM_RECORDS):
        name = f"member.{index:02d}.{made.randrange(10**4):04d}"
        text = (
            f"Entry {index + 1} of the members' book.\n"
            f"Please write to {name}@{_MAIL}.\nIBAN {german_iban(made)}\nCard number {card_number(made)}\n"
        )
        entries.append(Document(id=f"members/{index:02d}", source="handbook", lang="en", text=text))
    return entries


def hide_keys(corpus: Sequence[Document]) -> list[Document]:
    """Return documents, the first ones with an access token in a comment at their end."""
    made = random.Random(12)
    # The note is a part of the planted text, as people leave it beside a token.
    hidden = [
        replace(document, text=f"{document.text.rstrip()}\n# TODO remove: {access_token(made)}\n")
        for document in corpus[:NUM_KEYS]
    ]
    return hidden + list(corpus[NUM_KEYS:])


def german_iban(made: random.Random) -> str:
    """Return the number of an account that no bank has: bank code 00000000, with the check digits of ISO 13616."""
    account = f"00000000{made.randrange(10**10):010d}"
    check = 98 - int(f"{account}131400") % 97
    digits = f"DE{check:02d}{account}"
    return " ".join(digits[start : start + 4] for start in range(0, len(digits), 4))


def card_number(made: random.Random) -> str:
    """Return a number of a card with its check digit (Luhn)."""
    digits = [4, 9, 2, 9, *(made.randrange(10) for _ in range(11))]
    doubled = [digit * 2 - 9 * (digit > 4) if place % 2 == 0 else digit for place, digit in enumerate(digits)]
    number = "".join(map(str, [*digits, -sum(doubled) % 10]))
    return " ".join(number[start : start + 4] for start in range(0, 16, 4))


def access_token(made: random.Random) -> str:
    """Return a token of a forge's form: 30 random characters and their CRC-32 in base 62."""
    body = "".join(made.choice(_BASE62) for _ in range(30))
    check, digits = zlib.crc32(body.encode()), ""
    for _ in range(6):
        check, digit = divmod(check, 62)
        digits = _BASE62[digit] + digits
    return base64.b64decode("Z2hwXw==").decode() + body + digits
