"""Keys that are named twice: found wherever they stand, and only there."""

import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.scan.corpus.fields import look_up
from dataaudit.scan.corpus.readers.jsonl import key_check

names = st.sampled_from(["text", "a", "b", "", 'q"', "te\\xt", "\u00e9", "meta.text", ":", '":'])
words = st.sampled_from(
    ["", "text", '"', '":', '"text": "b"', "\\", '\\"', "a" * 30, "\u4e2d\u6587", "{", "}", "\n", ":"]
)


def pairs_of(inner):
    """An object as a list of pairs, in which names may occur twice."""
    return st.lists(st.tuples(names, inner), max_size=4).map(tuple)


values = st.recursive(
    words | st.integers() | st.none(), lambda inner: st.lists(inner, max_size=3) | pairs_of(inner), max_leaves=6
)


def encode(value, *, ascii_only, gap):
    """Return JSON in which a tuple is an object, and whether item of its objects names a key twice."""
    if isinstance(value, tuple):
        inner = [
            (json.dumps(name, ensure_ascii=ascii_only), encode(item, ascii_only=ascii_only, gap=gap))
            for name, item in value
        ]
        twice = len({name for name, _ in value}) < len(value) or any(found for _, (_, found) in inner)
        return "{" + ("," + gap).join(f"{name}{gap}:{gap}{item}" for name, (item, _) in inner) + "}", twice
    if isinstance(value, list):
        items = [encode(item, ascii_only=ascii_only, gap=gap) for item in value]
        return "[" + ",".join(item for item, _ in items) + "]", any(found for _, found in items)
    return json.dumps(value, ensure_ascii=ascii_only), False


@given(
    record=pairs_of(values),
    ascii_only=st.booleans(),
    gap=st.sampled_from(["", " ", "\t\r"]),
    text=st.sampled_from(["text", "a", "meta.text", "\u00e9", 'q"']),
)
@settings(max_examples=examples(1_000), deadline=None)
def test_a_key_named_twice_is_found_at_any_depth(record, ascii_only, gap, text):
    """Quotes, colons and braces in texts mislead nobody, nor do a value and a key of the same name."""
    line, twice = encode(record, ascii_only=ascii_only, gap=gap)
    parsed = orjson.loads(line)
    assert key_check(text)(line.encode(), parsed, look_up(parsed, text)) == twice


@pytest.mark.parametrize(
    "line",
    [
        '{"text": "a", "text": "b"}',
        '{"text": "a", "text": "long enough to reach over the first one"}',
        '{"text": "long enough to reach over the second one", "text": "a"}',
        '{"te\\u0078t": "a", "text": "b"}',
        '{"text": "a", "te\\u0078t": "b"}',
        '{"text": "a", "n": {"b": 1, "\\u0062": 2}}',
        '{"text": null, "text": "a"}',
        '{"n": [[[{"a": 1, "a": 1}]]], "text": ""}',
        '{"a": 1, "a": 2, "a": 3, "text": "b", "c": 4}',
    ],
)
def test_each_way_to_name_a_key_twice(line):
    """Whatever the values, and with escapes in a name."""
    parsed = json.loads(line)
    assert key_check("text")(line.encode(), parsed, parsed["text"])


def test_deep_nesting_is_no_crash():
    """The walk keeps a list, not a stack of calls."""
    line = '{"text": "\\":", "n": ' + "[" * 1_000 + '{"a": 1, "a": 2}' + "]" * 1_000 + "}"
    parsed = orjson.loads(line)
    assert key_check("text")(line.encode(), parsed, parsed["text"])


@pytest.mark.inputs
def test_a_text_of_many_quotes_and_escapes_is_walked_in_bounded_memory(peak_bytes):
    """Strings of megabytes full of escapes are one token each."""
    growth, printed = peak_bytes(
        "import orjson\n"
        "from dataaudit.scan.corpus.readers.jsonl import key_check\n"
        "record = {'text': 'x', 'raw': chr(34) * 4_000_000 + ':'}\n"
        "line = orjson.dumps(record)\n"
        "print(key_check('text')(line, record, 'x'))"
    )
    assert printed == "False"
    assert growth < 100 << 20
