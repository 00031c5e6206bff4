import numpy as np
import pytest

from dataaudit.scan.corpus.tokens.libraries import TokenizersReference


@pytest.fixture
def long_text():
    """Two hundred thousand characters of lines in several scripts, special-token text among them."""
    lines = [
        f"{n}: it's line {n * 7919 % 1009} \u2014 \u0434\u0430 \u4e2d\u6587 e\u0301 <|end|>\n" for n in range(5_000)
    ]
    return "".join(lines)


def whole(file, text):
    import tokenizers

    return tokenizers.Tokenizer.from_file(str(file.path)).encode(text, add_special_tokens=False).ids


def test_windows_give_the_ids_of_the_whole(tiny_nfc_file, long_text, monkeypatch):
    """A text encoded in windows has the ids of the text encoded at once."""
    reference = TokenizersReference(tiny_nfc_file.path.read_bytes(), long_chars=10_000, window_chars=8_000)
    cuts = []
    honest = TokenizersReference._cut
    monkeypatch.setattr(TokenizersReference, "_cut", lambda *args: cuts.append(honest(*args)) or cuts[-1])
    monkeypatch.setattr("dataaudit.scan.corpus.tokens.libraries._BATCH_CHARS", 1)
    (ids,) = reference.encode([long_text])
    assert ids.tolist() == whole(tiny_nfc_file, long_text)
    assert len(cuts) > 10
    assert None not in cuts


def test_text_without_a_safe_cut_is_encoded_whole(tiny_nfc_file, monkeypatch):
    """No newline, no cut; the ids are right all the same."""
    monkeypatch.setattr("dataaudit.scan.corpus.tokens.libraries._BATCH_CHARS", 1)
    text = "word " * 6_000
    reference = TokenizersReference(tiny_nfc_file.path.read_bytes(), long_chars=10_000, window_chars=8_000)
    (ids,) = reference.encode([text])
    assert ids.tolist() == whole(tiny_nfc_file, text)


def test_model_that_changes_the_start_of_a_text_is_not_cut(bpe_trainer):
    """A model that puts a space before every text would count one too many at each cut: it is not cut."""
    from tokenizers import pre_tokenizers

    tokenizer = bpe_trainer()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    text = "".join(f"line {n}\nword" for n in range(3_000))
    reference = TokenizersReference(tokenizer.to_str().encode(), long_chars=10_000, window_chars=8_000)
    assert reference._cut(text, 0) is None
    assert np.array_equal(reference._encode_long(text), tokenizer.encode(text, add_special_tokens=False).ids)


def test_padding_and_truncation_of_the_file_are_ignored(bpe_trainer):
    """A file saved with padding and truncation does not shorten or lengthen a document."""
    tokenizer = bpe_trainer()
    plain = [encoding.ids for encoding in tokenizer.encode_batch(["one two three", "x"])]
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=9)
    reference = TokenizersReference(tokenizer.to_str().encode())
    assert [ids.tolist() for ids in reference.encode(["one two three", "x"])] == plain
