from __future__ import annotations

import base64
import io
from pathlib import Path

import pytest

from dataaudit.scan.corpus.tokens import TokenizerFile, inspect_risks, resolve_tokenizer

# Enough repetition for merges to form; several scripts, digits, code and contractions.
LINES = [
    "The quick brown fox jumps over the lazy dog. It's the 1st of 12,345 and we'll see what they've done.\n",
    "def main(argv):\n    return {'key': argv[0] ** 2}  # comment\n",
    "Der schnelle braune Fuchs springt \u00fcber den faulen Hund; na\u00efve caf\u00e9s.\n",
    (
        "\u0411\u044b\u0441\u0442\u0440\u0430\u044f \u043b\u0438\u0441\u0430 \u0438 \u043b\u0435\u043d"
        "\u0438\u0432\u0430\u044f \u0441\u043e\u0431\u0430\u043a\u0430.\n"
    ),
    (
        "\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e \u092e\u0947\u0902 \u0932\u093f"
        "\u0916\u093e \u0939\u0941\u0906 \u0932\u0947\u0916\u0964\n"
    ),
    (
        "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3068\u4e2d\u6587\u7684\u53e5\u5b50\u3002\ud55c\uad6d\uc5b4"
        " \ubb38\uc7a5.\n"
    ),
    (
        "\u0627\u0644\u0644\u063a\u0629 \u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0648\u0627\u0644"
        "\u0643\u062a\u0627\u0628\u0629 \u0628\u0647\u0627.\n"
    ),
    (
        "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22\u0e40\u0e02\u0e35\u0e22\u0e19\u0e15\u0e34\u0e14\u0e01"
        "\u0e31\u0e19 Ti\u1ebfng Vi\u1ec7t c\u00f3 d\u1ea5u.\n"
    ),
    (
        "Emoji \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 and flags \U0001f1e9\U0001f1ea, dashe"
        "s \u2014 \u2026 and \u201cquotes\u201d.\n"
    ),
]

_CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_bpe(*, normalizer=None, specials=("<|end|>",), vocab_size=700):
    """Train a small byte-level BPE on LINES; gives a `tokenizers.Tokenizer`."""
    import tokenizers
    from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

    tokenizer = tokenizers.Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_CL100K), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES * 4, trainer)
    return tokenizer


def write_ranks(path: Path, *, num_merges=300) -> dict[bytes, int]:
    """Write a small .tiktoken file trained on LINES and give its ranks."""
    from tokenizers import pre_tokenizers

    tokenizer = train_bpe(specials=(), vocab_size=256 + num_merges)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    odd = iter([letter for letter in letters if ord(letter) >= 0x100])
    by_byte = {byte: chr(byte) if byte in plain else next(odd) for byte in range(256)}
    bytes_of = {letter: byte for byte, letter in by_byte.items()}
    vocab = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    tokens = [bytes(bytes_of[letter] for letter in text) for text, _ in vocab]
    ranks = {token: rank for rank, token in enumerate(tokens)}
    lines = [base64.b64encode(token) + b" " + str(rank).encode() for token, rank in ranks.items()]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return ranks


def train_sentencepiece(**options) -> bytes:
    """Train a small SentencePiece model on LINES, as large published ones are made unless the options differ."""
    import sentencepiece

    model = io.BytesIO()
    settings = {"model_type": "bpe", "byte_fallback": True, "vocab_size": 600, "minloglevel": 2}
    settings |= {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, **options}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 4), model_writer=model, character_coverage=1.0, **settings
    )
    return model.getvalue()


@pytest.fixture(scope="session")
def bpe_trainer():
    return train_bpe


@pytest.fixture(scope="session")
def ranks_writer():
    return write_ranks


@pytest.fixture(scope="session")
def sentencepiece_trainer():
    return train_sentencepiece


@pytest.fixture(scope="session")
def token_cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("tokenizers")


@pytest.fixture(scope="session")
def default_file(token_cache) -> TokenizerFile:
    return resolve_tokenizer(None, base_dir=token_cache, cache_dir=token_cache)


@pytest.fixture(scope="session")
def default_risks(default_file, token_cache):
    return inspect_risks(default_file, cache_dir=token_cache)


@pytest.fixture(scope="session")
def tiny_file(token_cache) -> TokenizerFile:
    train_bpe().save(str(token_cache / "tiny.json"))
    return resolve_tokenizer("tiny.json", base_dir=token_cache, cache_dir=token_cache / "copies")


@pytest.fixture(scope="session")
def tiny_nfc_file(token_cache) -> TokenizerFile:
    from tokenizers import normalizers

    train_bpe(normalizer=normalizers.NFC()).save(str(token_cache / "tiny-nfc.json"))
    return resolve_tokenizer("tiny-nfc.json", base_dir=token_cache, cache_dir=token_cache / "copies")


@pytest.fixture(scope="session")
def tiny_sentencepiece_file(token_cache) -> TokenizerFile:
    (token_cache / "tiny.model").write_bytes(train_sentencepiece())
    return resolve_tokenizer("tiny.model", base_dir=token_cache, cache_dir=token_cache / "copies")


@pytest.fixture(scope="session")
def tiny_tiktoken_file(token_cache) -> TokenizerFile:
    write_ranks(token_cache / "cl100k_base.tiktoken")
    return resolve_tokenizer("cl100k_base.tiktoken", base_dir=token_cache, cache_dir=token_cache / "copies")
