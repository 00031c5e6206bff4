from __future__ import annotations

import pytest

from dataaudit.base.errors import TokenizerError
from dataaudit.scan.corpus.tokens.spec import facts_of, resolve_tokenizer


def never():
    raise AssertionError("asked again")


def test_an_answer_is_asked_for_once(tmp_path):
    assert facts_of("ab", "tokenizer.json", tmp_path, lambda: (7, (1, 2))) == (7, (1, 2))
    assert facts_of("ab", "tokenizer.json", tmp_path, never) == (7, (1, 2))


@pytest.mark.parametrize(("digest", "form"), [("cd", "tokenizer.json"), ("ab", "sentencepiece")])
def test_another_content_or_format_is_asked_for(tmp_path, digest, form):
    facts_of("ab", "tokenizer.json", tmp_path, lambda: (7, ()))
    assert facts_of(digest, form, tmp_path, lambda: (8, ())) == (8, ())


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"key": "other", "vocab_size": 1, "special_ids": []}', b"\xff"]
)
def test_a_damaged_answer_is_asked_for_again(tmp_path, content):
    facts_of("ab", "tokenizer.json", tmp_path, lambda: (7, ()))
    (path,) = tmp_path.iterdir()
    path.write_bytes(content)
    assert facts_of("ab", "tokenizer.json", tmp_path, lambda: (9, (3,))) == (9, (3,))


def test_a_folder_that_cannot_be_written_costs_only_the_memory(tmp_path):
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    assert facts_of("ab", "tokenizer.json", tmp_path / "file", lambda: (7, ())) == (7, ())


def test_without_a_folder_it_is_asked_each_time():
    assert facts_of("ab", "tokenizer.json", None, lambda: (7, ())) == (7, ())
    with pytest.raises(AssertionError, match="asked again"):
        facts_of("ab", "tokenizer.json", None, never)


def test_a_tokenizer_is_the_same_with_what_was_remembered(tmp_path):
    first = resolve_tokenizer(None, base_dir=tmp_path, cache_dir=tmp_path, facts_dir=tmp_path / "facts")
    assert resolve_tokenizer(None, base_dir=tmp_path, cache_dir=tmp_path, facts_dir=tmp_path / "facts") == first
    assert resolve_tokenizer(None, base_dir=tmp_path, cache_dir=tmp_path) == first


def test_a_broken_file_is_refused_each_time(tmp_path):
    (tmp_path / "bad.json").write_text("{}")
    for _ in range(2):
        with pytest.raises(TokenizerError):
            resolve_tokenizer("bad.json", base_dir=tmp_path, cache_dir=tmp_path, facts_dir=tmp_path / "facts")
