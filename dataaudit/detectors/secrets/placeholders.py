"""Values that stand for a secret and are none: placeholders, templates, documented examples, keyboards."""

from __future__ import annotations

import re

_LONG = 120
"""Letters, beyond which words are not looked for: chance writes them."""
_WORDS = re.compile(
    r"x{5}|\*{3}|\.{3}|example|sample|change[-_ ]?(?:me|this|it)|place[-_]?holder|redacted|removed|hidden|masked|"
    r"replace|dummy|insert|not[-_ ]?a[-_ ]?real|foo_?bar|secret[-_]?key|your[-_ ]|(?<![a-z])your(?=[A-Z])|"
    r"[-_ ]here(?![a-z])|my[-_](?:secret|token|key|pass|api)|(?:api|access|auth)[-_]?(?:key|token)(?![a-z0-9])|"
    r"s3cr3t|deadbeef|cafebabe|qwerty|letmein|hunter2|correct[-_ ]?horse|pass(?:word|wd|phrase)",
    re.IGNORECASE,
)
_TEMPLATE = re.compile(
    r"\$\{|\{\{|\}\}|\$\(|#\{|<[A-Za-z%$]|(?<![A-Za-z0-9])%[sdv@](?![A-Za-z0-9])|%\(|"
    r"\[[A-Za-z_ -]+\]|\{[A-Za-z0-9_.]*\}|"
    r"^\$[A-Za-z_]|^%[A-Za-z_]+%?$|^@[A-Za-z_]+@$"
)
_RUN = re.compile(r"(.)\1{5,}|(..)\2{4,}|(...)\3{4,}|(....)\4{3,}")
_SEQUENCES = tuple(
    line[i : i + 8]
    for line in ("0123456789", "1234567890", "9876543210", "abcdefghijklmnopqrstuvwxyz", "zyxwvutsrqponmlkjihgfedcba")
    for i in range(len(line) - 7)
)
_EMPTY = frozenset(
    re.findall(
        r"\w+",
        "none null nil true false undefined default password passwd pass secret token admin root test user guest key "
        "string str username login foo bar baz foobar abc 123 1234 12345 123456 pwd pw apikey api_key",
    )
)


def is_placeholder(value: str) -> bool:
    """Tell whether a value is meant to be replaced, or is known to be given to every reader.

    Rests on the value alone: a template's marks, a word such as ``example`` or ``changeme`` in it, one letter or a
    short group again and again, a row of the alphabet, at most three different letters.
    """
    if value.lower() in _EMPTY or len(set(value)) <= min(3, len(value) - 1):
        return True
    if len(value) > _LONG:
        return len(set(value)) < 12
    lower = value.lower()
    return bool(
        _TEMPLATE.search(value)
        or _WORDS.search(value)
        or _RUN.search(value)
        or any(sequence in lower for sequence in _SEQUENCES)
    )
