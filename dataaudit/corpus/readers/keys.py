r"""Keys that an object of JSON names twice: the parser keeps the last value and says nothing.

Every key is followed by a quote, white space or none, and a colon. When a line holds as many of these as the
parsed record has keys, no key occurs twice. Only where it holds more, because a text contains them too or a key does
occur twice, the line is walked token by token. The text's value, most of the line, is left out of the count: it
takes at least as many bytes as it has characters. (So a text whose key is written twice, once with escapes in
its name and behind the other, may be taken for one: ``{"text": "a", "te\u0078t": "..."}``.)
"""

from __future__ import annotations

import re
from typing import Any

import orjson

_KEY_END = re.compile(rb'"[ \t\r\n]*:').findall
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}:]', re.DOTALL).finditer
_NESTED = (dict, list)


class KeyCheck:
    """Tells whether a line of JSON names a key twice in one object.

    Args:
        text: Column or dotted path of the text, whose value is left out of the count.
    """

    def __init__(self, text: str) -> None:
        self._names = tuple(orjson.dumps(name) for name in dict.fromkeys((text, text.rpartition(".")[2])))

    def repeats(self, line: bytes, record: dict[str, Any], text: Any) -> bool:
        """Tell it of one line.

        Args:
            line: Valid JSON, an object.
            record: What the parser made of it.
            text: The value of the text in it.
        """
        found = -1
        if type(text) is str:
            for name in self._names:
                start = line.rfind(name, 0, len(line) - len(text))
                if start >= 0 and line.find(name, 0, start) < 0:
                    colon = line.find(b":", start + len(name))
                    found = len(_KEY_END(line, 0, colon + 1)) + len(_KEY_END(line, colon + 2 + len(text)))
                    break
        if found < 0:
            found = len(_KEY_END(line))
        return found != _num_keys(record) and _repeats(line)


def _num_keys(record: dict[str, Any]) -> int:
    """Return how many keys a record has, nested ones included."""
    number = 0
    held: list[Any] = [record]
    while held:
        value = held.pop()
        if type(value) is dict:
            number += len(value)
            value = value.values()
        held += [one for one in value if type(one) in _NESTED]
    return number


def _repeats(line: bytes) -> bool:
    """Walk a valid line token by token."""
    objects: list[set[str]] = []
    string = b""
    for match in _TOKEN(line):
        token = match.group()
        if token == b"{":
            objects.append(set())
        elif token == b"}":
            objects.pop()
        elif token == b":":
            name: str = orjson.loads(string)
            if name in objects[-1]:
                return True
            objects[-1].add(name)
        else:
            string = token
    return False
