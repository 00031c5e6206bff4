"""Whether a quoted value that is assigned to a password is one, or program text, a message or a path."""

from __future__ import annotations

import re

from dataaudit.detectors.secrets.entropy import bits_per_letter

_PROGRAM = re.compile(
    r"[(){}<>\[\]\\]|::|->|=>|\.\.|//|^[/.~-]|^--?[a-z]|[:=,;.]$|^[a-z]+(?:[._:/-][a-z]+\d?)+$|^[A-Z]+(?:[_-][A-Z0-9]+)+$|"
    r"^[A-Z]?[a-z]+(?:_[A-Z]?[a-z0-9]+)+$|^&|^\.?[\w-]+\.(?:c|h|py|js|ts|json|ya?ml|txt|conf|pem|key|crt|php|html?|com|org|net)$",
)
_MIN_BITS = 2.4


def is_password(value: str) -> bool:
    """Tell whether a value looks chosen or made to be secret: letters with digits or signs, not program text.

    A password that is a plain word is not told from a label, and is not found.
    """
    if _PROGRAM.search(value) or not value.isprintable():
        return False
    letters = sum(letter.isalpha() for letter in value)
    digits = sum(letter.isdigit() for letter in value)
    signs = sum(not letter.isalnum() and letter not in "_-. " for letter in value)
    return bool(letters and (digits or signs)) and letters + digits >= 4 and bits_per_letter(value) >= _MIN_BITS
