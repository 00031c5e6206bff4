import numpy as np
import pyarrow as pa
import pytest

from dataaudit.base.errors import TokenizerError
from dataaudit.scan.corpus.tokens import Risks, load_encoder, resolve_tokenizer
from dataaudit.scan.corpus.tokens.libraries import load_reference
from dataaudit.scan.corpus.tokens.spec import ENCODINGS, byte_letters, encoding_for, read_ranks

TEXTS = [
    "The quick brown fox's 12345 jumps; we'll SEE 'S 'LL it'\u017f.\n\n  Two  spaces\t\r\n",
    "for (i = 0; i < n; ++i) { x[i] += 0xFF; }  // comment\n\n\n",
    (
        "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 \u0627\u0644"
        "\u0644\u0651\u064e\u063a\u0629 \u0661\u0662\u0663\u0664"
    ),
    (
        "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0 \ud55c\uad6d\uc5b4 \U0001f468\u200d\U0001f469 \u01c5\u02b0"
        "\u00aa HTMLParser camelCase/path/"
    ),
    "e\u0301\u0327 \u00a0\u3000\u2028x\x85 \x00\x7f",
    "",
    " ",
    "a" * 1000,
    "quick" * 400,
]


@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_converted_ranks_equal_the_tiktoken_library(name, ranks_writer, tmp_path):
    """Reference and fast path on the converted file give the ids of `tiktoken` on the same ranks."""
    import tiktoken

    ranks = ranks_writer(tmp_path / f"{name}.tiktoken")
    encoding = encoding_for(f"{name}.tiktoken")
    library = tiktoken.Encoding(name, pat_str=encoding.pattern, mergeable_ranks=ranks, special_tokens=encoding.specials)
    file = resolve_tokenizer(f"{name}.tiktoken", base_dir=tmp_path, cache_dir=tmp_path / "copies")
    expected = [library.encode_ordinary(text) for text in TEXTS]
    assert [ids.tolist() for ids in load_reference(file).encode(TEXTS)] == expected
    trust = Risks(supported=True, reason="ok")
    encoder = load_encoder(file, trust, force_reference=False, sample_one_in=0, seed=0)
    batch = encoder.encode(pa.array(TEXTS, pa.large_string()), np.arange(len(TEXTS), dtype=np.uint64))
    assert batch.ids.tolist() == [token for ids in expected for token in ids]
    assert not batch.by_reference.any()


def test_special_tokens_keep_their_published_ids(tiny_tiktoken_file):
    """The gap between the last rank and the special tokens stays open."""
    (ids,) = load_reference(tiny_tiktoken_file).encode(["<|endoftext|><|endofprompt|>"])
    assert ids.tolist() == [100257, 100276]
    assert tiny_tiktoken_file.special_ids == (100257, 100258, 100259, 100260, 100276)
    assert (tiny_tiktoken_file.format, tiny_tiktoken_file.vocab_size) == ("tiktoken", 100277)


def test_name_decides_the_split_rule_even_for_equal_bytes(ranks_writer, tmp_path):
    """Two files with the same ranks and different names do not share a converted copy."""
    ranks_writer(tmp_path / "r50k_base.tiktoken")
    (tmp_path / "cl100k_base.tiktoken").write_bytes((tmp_path / "r50k_base.tiktoken").read_bytes())
    files = [
        resolve_tokenizer(f"{name}.tiktoken", base_dir=tmp_path, cache_dir=tmp_path / "copies")
        for name in ("r50k_base", "cl100k_base")
    ]
    assert files[0].sha256 == files[1].sha256
    assert files[0].path != files[1].path
    assert (
        load_reference(files[0]).encode(["1234"])[0].tolist()
        != []
        != load_reference(files[1]).encode(["1234"])[0].tolist()
    )


def test_a_converted_copy_that_was_altered_is_converted_again(ranks_writer, tmp_path):
    """A flipped bit in it would be other tokens; the rank file says nothing of it, the seal beside it does."""
    ranks_writer(tmp_path / "r50k_base.tiktoken")
    call = {"base_dir": tmp_path, "cache_dir": tmp_path / "copies"}
    file = resolve_tokenizer("r50k_base.tiktoken", **call)
    whole = file.path.read_bytes()
    seal = file.path.with_suffix(".sha256").read_bytes()
    for path, content in ((file.path, whole.replace(b'"a"', b'"A"', 1)), (file.path.with_suffix(".sha256"), b"")):
        assert path.read_bytes() != content
        path.write_bytes(content)
        assert resolve_tokenizer("r50k_base.tiktoken", **call) == file
        assert (file.path.read_bytes(), file.path.with_suffix(".sha256").read_bytes()) == (whole, seal)


@pytest.mark.parametrize("name", ["tekken.tiktoken", "mine.tiktoken"])
def test_unknown_rank_file_is_refused_with_the_accepted_names(name, ranks_writer, tmp_path):
    """A rank file does not carry its split rule; a name that does not tell it is an error, not a guess."""
    ranks_writer(tmp_path / name)
    with pytest.raises(TokenizerError, match=r"cl100k_base\.tiktoken") as caught:
        resolve_tokenizer(name, base_dir=tmp_path, cache_dir=tmp_path)
    assert name in caught.value.message
    assert "tokenizer.json" in caught.value.hint


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"not a rank file at all\n", "line 1"),
        (b"YQ== 0\nYg==\n", "line 2"),
        (b"YQ== zero\n", "line 1"),
        (b"YQ== 0\n", "no token for byte"),
        (b"", "no token for byte"),
    ],
)
def test_damaged_rank_file_is_refused(data, found):
    """The error names the place."""
    with pytest.raises(TokenizerError, match=found):
        read_ranks(data, name="r50k_base.tiktoken")


def test_two_tokens_of_one_rank_are_refused(ranks_writer, tmp_path):
    """A rank that occurs twice would lose a token silently."""
    path = tmp_path / "r50k_base.tiktoken"
    ranks_writer(path)
    with pytest.raises(TokenizerError, match="one rank for two"):
        read_ranks(path.read_bytes() + b"enp6eg== 3\n", name=path.name)


def test_byte_letters_are_those_of_tokenizers():
    """The 256 letters are distinct and those of the library's byte-level alphabet."""
    from tokenizers import pre_tokenizers

    assert sorted(byte_letters()) == sorted(pre_tokenizers.ByteLevel.alphabet())
    assert byte_letters()[ord("A")] == "A"
    assert byte_letters()[ord(" ")] == "\u0120"
