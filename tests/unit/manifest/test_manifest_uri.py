import os
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lanes import examples

from dataaudit.manifest.locate import decode_path, encode_path, is_roundabout, relative_path, with_copy

file_names = st.binary(min_size=1, max_size=60).filter(lambda name: b"\0" not in name)


@given(name=file_names, copy=st.integers(1, 3))
@settings(max_examples=examples(500), deadline=None)
def test_a_uri_leads_back_to_the_bytes_of_its_path(name, copy):
    relative = os.fsdecode(name)
    assert os.fsencode(decode_path(with_copy(encode_path(relative), copy))) == name


@given(first=file_names, second=file_names)
@settings(max_examples=examples(300), deadline=None)
def test_different_paths_have_different_uris(first, second):
    same = encode_path(os.fsdecode(first)) == encode_path(os.fsdecode(second))
    assert same == (first == second)


@given(name=file_names)
@settings(max_examples=examples(300), deadline=None)
def test_a_uri_can_be_printed_and_sorted_by_its_utf8(name):
    uri = encode_path(os.fsdecode(name))
    uri.encode("utf-8")
    assert not {unicodedata.category(character) for character in uri} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert not set("#?") & set(uri)


def test_every_unsafe_character_of_unicode_is_encoded():
    """The written-out list of unsafe characters holds those of this Python's tables."""
    unsafe = [
        chr(point)
        for point in range(0x110000)
        if unicodedata.category(chr(point)) in {"Cc", "Cf", "Zl", "Zp"} or chr(point) in "%#?"
    ]
    assert [character for character in unsafe if encode_path(character) == character] == []


@pytest.mark.parametrize(
    ("relative", "uri"),
    [
        ("data/part 1.jsonl", "data/part 1.jsonl"),
        ("100%.jsonl", "100%25.jsonl"),
        ("a#copy=2.jsonl", "a%23copy=2.jsonl"),
        ("what?.jsonl", "what%3F.jsonl"),
        ("two\nlines.jsonl", "two%0Alines.jsonl"),
        ("\u202egnp.jsonl", "%E2%80%AEgnp.jsonl"),
        ("caf\u00e9", "caf\u00e9"),
        ("cafe\u0301", "cafe\u0301"),
        (os.fsdecode(b"\xff\xfe.jsonl"), "%FF%FE.jsonl"),
        ("\ud800", "%ED%A0%80"),
    ],
)
def test_uris_are_as_documented(relative, uri):
    assert encode_path(relative) == uri


def test_copies_are_numbered_from_two():
    assert [with_copy("a", copy) for copy in (1, 2, 3)] == ["a", "a#copy=2", "a#copy=3"]


@pytest.mark.parametrize("uri", ["", "/etc/passwd", "%2Fetc/passwd", "a/../b", "%2E%2E/b", "..", "a%00b", "#copy=2"])
def test_a_uri_that_leaves_its_root_has_no_path(uri):
    assert relative_path(uri) is None


@pytest.mark.parametrize("uri", ["a.jsonl", "a/..b/c", "a/b#copy=2", "%FF", "a%23b"])
def test_every_other_uri_has_the_path_that_it_was_made_of(uri):
    assert relative_path(uri) == decode_path(uri)


@pytest.mark.parametrize("uri", ["./a", "a/./b", "a//b", "%2E/a", "a/%2E/b", "//", "a/b//", "./a#copy=2", "."])
def test_a_second_name_of_a_file_is_roundabout(uri):
    assert is_roundabout(uri)


@pytest.mark.parametrize("uri", ["a", "a/b", "a/b/", ".a/b.", "a/...", "..a"])
def test_the_only_name_of_a_file_is_not(uri):
    assert not is_roundabout(uri)
