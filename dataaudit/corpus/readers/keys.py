r"""Keys that an object of JSON names twice: the parser keeps the last value and says nothing.

Every key is followed by a quote, white space or none, and a colon. When a line holds as many of these as the
parsed record has keys, no key occurs twice. Only where it holds more, because a text contains them too or a key does
occur twice, the line is walked token by token. The text's value, most of the line, is left out of the count: it
takes at least as many bytes as it has characters. (So a text whose key is written twice, once with escapes in
its name and behind the other, may be taken for one: ``{"text": "a", "te\u0078t": "..."}``.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import orjson

_KEY_END = re.compile(rb'"[ \t\r\n]*:').findall
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}:]', re.DOTALL).finditer
_NESTED = (dict, list)
_BLANK = b" \t\r\n"


def key_check(text: str) -> Callable[[bytes, dict[str, Any], Any], bool]:
    """Return a function that tells whether a line names a key twice in one object.

    Its arguments are the line (valid JSON, an object), what the parser made of it, and the text in that. It is
    called once a record and takes about a microsecond, a twentieth of reading the record.

    Args:
        text: Column or dotted path of the text.
    """
    name = orjson.dumps(text.rpartition(".")[2])
    size, key_end = len(name), _KEY_END

    def repeats(line: bytes, record: dict[str, Any], value: Any) -> bool:
        start = -1
        if type(value) is str:
            length = len(value)
            start = line.rfind(name, 0, len(line) - length)
            if start >= 0 and line.find(name, 0, start) < 0:
                begin = line.find(b":", start + size) + 1
                if len(key_end(line, 0, begin)) + len(key_end(line, begin + 1 + length)) == len(record):
                    return False
            else:
                start = -1
        number = _num_keys(record)
        if start >= 0:  # the value may hold what looks like a key behind as many bytes as it has characters
            while line[begin] in _BLANK:
                begin += 1
            for written in (orjson.dumps(value), json.dumps(value).encode()):
                if line.startswith(written, begin):
                    return number != len(key_end(line, 0, begin)) + len(key_end(line, begin + len(written))) and _walk(
                        line
                    )
        return number != len(key_end(line)) and _walk(line)

    return repeats


def names_a_key_twice(data: bytes, value: list[Any]) -> bool:
    """Tell whether an object in a JSON array names a key twice.

    Args:
        data: The array, valid JSON.
        value: What the parser made of it.
    """
    return _num_keys(value) != len(_KEY_END(data)) and _walk(data)


def _num_keys(record: dict[str, Any] | list[Any]) -> int:
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


def _walk(line: bytes) -> bool:
    """Tell it by walking a valid line token by token."""
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
