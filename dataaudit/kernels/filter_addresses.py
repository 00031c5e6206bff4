"""Web and mail addresses: pieces of text that stay one word, whatever signs they hold."""

from __future__ import annotations

import numpy as np

from dataaudit.kernels.characters import DIGIT, LETTER, UPPER, class_and_width
from dataaudit.kernels.jit import Integer, cold, helper

_DOT, _SLASH, _COLON, _AT, _MINUS = 46, 47, 58, 64, 45
_NOT_UPPER = LETTER | UPPER


@cold
def is_address(data: np.ndarray, low: Integer, high: Integer, classes: np.ndarray) -> bool:
    """Tell whether the bytes are a web or mail address.

    ``[scheme://][user@]host[:port][/path|?query|#fragment]``: the host is two or more labels of letters, digits, ``-``
    and ``_`` with full stops between, the last of at least two letters none of which is upper case; a port has
    2 to 5 digits. The scheme ends at the first ``://``, the user at the last ``@``.
    """
    dotted, at, host = False, -1, low
    for pos in range(low, high):
        byte = data[pos]
        if byte == _DOT:
            dotted = True
        elif byte == _AT:
            at = pos
        elif byte == _COLON and host == low and pos + 2 < high and data[pos + 1] == _SLASH and data[pos + 2] == _SLASH:
            host = pos + 3
    if not dotted:
        return False
    return _is_host(data, host, high, classes) or (at > host and _is_host(data, at + 1, high, classes))


@helper
def _is_host(data: np.ndarray, low: Integer, high: Integer, classes: np.ndarray) -> bool:
    """Tell whether ``host[:port][/path]`` fills the bytes."""
    pos, label, dots, letters = low, 0, 0, True
    while pos < high:
        kind, width = class_and_width(data, pos, classes)
        byte = np.int64(data[pos])
        if byte == _DOT:
            if label == 0:
                return False
            dots, label, letters = dots + 1, 0, True
        elif kind & (LETTER | DIGIT) or byte in (_MINUS, 95):
            label += 1
            letters = letters and kind & _NOT_UPPER == LETTER
        else:
            break
        pos += width
    if dots == 0 or label < 2 or not letters:
        return False
    if pos < high and data[pos] == _COLON:
        first = pos + 1
        pos = first
        while pos < high and 48 <= data[pos] <= 57:
            pos += 1
        if not 2 <= pos - first <= 5:
            return False
    return bool(pos == high or data[pos] in (35, _SLASH, 63))
