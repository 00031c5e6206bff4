"""Words in disguise: with letters masked (``d*mn``, ``d4mn``), stretched (``daaaamn``) or set apart (``d a m n``).

Each disguise gives a key, and a small table says for which keys it stands for a word that weighs something. The
table holds whole keys of 64 bits, so that code, which is full of asterisks and digits, meets none by chance.
"""

from __future__ import annotations

import numpy as np

from dataaudit.kernels.jit import Integer, cold, helper
from dataaudit.kernels.toxic_features import EDGE, NO_LETTER, letter_at

MIN_DISGUISED, MAX_DISGUISED = 4, 20
"""Letters of a disguised word, masks included."""
MASKED, PLAIN = np.uint64(0x8EBC6AF09C88C6E3), np.uint64(0x589965CC75374CC3)
"""Where the keys of masked words begin, and of stretched and spaced ones, whose letters are taken once a run."""
MASK = 42
_STEP = np.uint64(0xD6E8FEB86659FD93)


def masked_key(letters: bytes) -> int:
    """Return the key of a word's lower-case letters, ``*`` where one is masked."""
    return _key_of(int(MASKED), letters)


def plain_key(letters: bytes) -> int:
    """Return the key of a word's lower-case letters, whatever the length of runs of one of them."""
    return _key_of(
        int(PLAIN),
        bytes(letter for place, letter in enumerate(letters) if letters[place - 1 : place] != bytes([letter])),
    )


def _key_of(key: int, letters: bytes) -> int:
    for letter in letters:
        key = (key ^ letter) * int(_STEP) % (1 << 64)
        key ^= key >> 32
    return key


@helper
def next_key(key: np.uint64, letter: np.uint64) -> np.uint64:
    """Return the key with one letter more."""
    key = np.uint64((key ^ letter) * _STEP)
    return key ^ (key >> np.uint64(32))


@helper
def look_up(key: np.uint64, keys: np.ndarray, weights: np.ndarray) -> Integer:
    """Return a key's weight in an open-addressed table of ``2^k`` places; 0 where it is not in it."""
    last = np.uint64(len(keys) - 1)
    place = key & last
    while keys[place] != np.uint64(0):
        if keys[place] == key:
            return np.int64(weights[place])
        place = (place + np.uint64(1)) & last
    return np.int64(0)


@helper
def is_mask(byte: Integer) -> bool:
    """Tell whether a byte is one of ``! # $ % * @`` that stand for letters."""
    return bool(byte == 33 or 35 <= byte <= 37 or byte in (42, 64))


@helper
def _is_letter(data: np.ndarray, place: Integer, stop: Integer) -> bool:
    return bool(place < stop and 97 <= data[place] | np.uint8(32) <= 122)


@cold
def masked_weight(data: np.ndarray, place: Integer, stop: Integer, keys: np.ndarray, weights: np.ndarray) -> Integer:
    """Weigh what begins at ``place``, symbols and digits between letters being masks; to its end, or its last letter.

    Two digits are no mask: ``F105`` is the name of something.
    """
    key, upto, count, count_upto, masks, masks_upto = MASKED, MASKED, 0, 0, 0, 0
    while place < stop and count < MAX_DISGUISED:
        byte = data[place]
        lower = byte | np.uint8(32)
        if 97 <= lower <= 122:
            key = next_key(key, np.uint64(lower))
            count += 1
            upto, count_upto, masks_upto = key, count, masks
        elif count and (is_mask(byte) or (48 <= byte <= 57 and _is_letter(data, place + np.uintp(1), stop))):
            key = next_key(key, np.uint64(MASK))
            count += 1
            masks += 1
        else:
            break
        place += np.uintp(1)
    found = np.int64(0)
    if masks and count >= MIN_DISGUISED:
        found = look_up(key, keys, weights)
    if found == 0 and masks_upto and count_upto >= MIN_DISGUISED:
        found = look_up(upto, keys, weights)
    return found


@cold
def stretched_weight(data: np.ndarray, place: Integer, stop: Integer, keys: np.ndarray, weights: np.ndarray) -> Integer:
    """Weigh a word of which some letter is repeated three times or more."""
    key, last, count = PLAIN, EDGE, 0
    while place < stop:
        letter, size = letter_at(data, place)
        place += size
        if letter in (NO_LETTER, last):
            continue
        key, last = next_key(key, letter), letter
        count += 1
        if count > MAX_DISGUISED:
            return np.int64(0)
    return look_up(key, keys, weights)


@cold
def spaced_weight(
    data: np.ndarray,
    begun: Integer,
    word: Integer,
    last_word: Integer,
    starts: np.ndarray,
    ends: np.ndarray,
    keys: np.ndarray,
    weights: np.ndarray,
) -> Integer:
    """Weigh words of one letter that follow each other with one byte between, from ``word`` on; the shortest found."""
    key, last, count = PLAIN, EDGE, 0
    while word < last_word and count < MAX_DISGUISED:
        letter = np.uint64(data[begun + np.uintp(starts[word])] | np.uint8(32))
        if ends[word] - starts[word] != 1 or letter < 97 or letter > 122:
            break
        if count and starts[word] - ends[word - 1] != 1:
            break
        count += 1
        if letter != last:
            key, last = next_key(key, letter), letter
        if count >= MIN_DISGUISED:
            found = look_up(key, keys, weights)
            if found != 0:
                return found
        word += 1
    return np.int64(0)
