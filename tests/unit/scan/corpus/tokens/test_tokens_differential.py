"""The encoder's ids against those of the reference library, document by document."""

import os
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from lanes import thinned

from dataaudit.scan.corpus.tokens import inspect_risks, load_encoder, probes, resolve_tokenizer
from dataaudit.scan.corpus.tokens.probes import added_literals

pytestmark = pytest.mark.inputs

SCRIPTS = {
    "english": ("It's 10:30 -- we'll SEE what they've done, don't you? (Perhaps.)  Two  spaces.\n\n\n\tTabbed\r\n"),
    "code": 'for (int i = 0; i < n; ++i) {\n\t\tx[i] += 0xFF_u8;  // \u20ac\n}\n<div class="a">&nbsp;</div>\n',
    "german": "\u00dcber Stra\u00dfen, \u00c4pfel und na\u00efve Caf\u00e9s.",
    "vietnamese": (
        "Ti\u1ebfng Vi\u1ec7t c\u00f3 nhi\u1ec1u d\u1ea5u; vi\u1ebft r\u1eddi: e\u0302\u0301 o\u031b\u0300."
    ),
    "turkish": "\u0130stanbul'da \u0131\u015f\u0131k; I\u0130i\u0131.",
    "greek": (
        "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac \u03c2\u03c3\u03a3 \u1f04\u03bd\u03b8\u03c1"
        "\u03c9\u03c0\u03bf\u03c2."
    ),
    "russian": "\u0401\u0436\u0438\u043a \u0438 \u0439\u043e\u0434: \u0435\u0308 \u0438\u0306.",
    "arabic": ("\u0627\u0644\u0644\u0651\u064e\u063a\u0629\u064f \u0661\u0662\u0663\u060c \u0644\u0640\u0640\u0627."),
    "hebrew": "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd \u05e2\u05d5\u05dc\u05dd.",
    "hindi": (
        "\u0939\u093f\u0928\u094d\u0926\u0940 \u0915\u094d\u0937 \u0928\u0941\u0915\u094d\u0924\u093e "
        "\u0958 \u0915\u093c \u0967\u0968\u0969\u0964"
    ),
    "bengali": "\u09ac\u09be\u0982\u09b2\u09be \u0995\u09cb \u0995\u09c7\u09be \u09af\u09bc.",
    "tamil": "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd \u0b95\u0bca \u0b95\u0bc6\u0bbe \u0b9c\u0bcd\u0bb7.",
    "thai": "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 \u0e19\u0e49\u0e33 \u0e53\u0e54.",
    "lao_khmer": "\u0e9e\u0eb2\u0eaa\u0eb2 \u1797\u17b6\u179f\u17b6\u1781\u17d2\u1798\u17c2\u179a.",
    "chinese": "\u4e2d\u6587\u53e5\u5b50\uff0c\u6ca1\u6709\u7a7a\u683c\u30022026\u5e74\u3002\u9fff\U00020000",
    "japanese": ("\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3001\u304b\u3099\u30fc\u3005\uff76\uff9e\u300d"),
    "korean": "\ud55c\uad6d\uc5b4 \u1112\u1161\u11ab\u1100\u116e\u11a8 \uac01\u11a8.",
    "emoji": (
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea\U0001f1eb \U0001f44d\U0001f3fd #"
        "\ufe0f\u20e3 \u2764\ufe0f"
    ),
    "math": "\U0001d4d0\U0001d7d8\u2200x\u2208\u211d: x\u00b2\u2265\u00bd \u2167 \u2460",
    "spaces": "a\u00a0b\u2003c\u3000d\u2028e\u2029f\x85g\u180eh\ufeffi\u200bj \x1c\x1d\x0b\x0c \n \r\n\r \t ",
    "controls": "nul\x00bell\x07esc\x1b[0m del\x7f c1\x80\x9f",
    "contractions": "IT'S it'\u017f It's it\u2019s 'LL 'll'Ve'RE'd'D'M can'tt 's's '\u212a",
    "private_use": "\ue000\uf8ff icon \ufffd\ufffe\uffff",
    "new_unicode": "\U0001fae8 \U0001fae9 \U0001face \u0cdc \U00010940\U000323b0 \U000e0001\U000e0067",
    "far_planes": "\U00040000 \U000f0000x\U0010fffd",
    "indic_new_marks": "\u0345\u08cb \u1ace\u1dd0 a\u0301\u1aca \u08d1\u0327 \u0eba\u0eb8",
}


MIXES = thinned(3_000, 200)


def documents(file, *, num_mixes=MIXES):
    """Everything the two encoders could differ on, seeded differently from the check at load."""
    chance = random.Random(20261)
    texts = [*SCRIPTS.values(), "", " ", "\n", "".join(SCRIPTS.values())]
    for text in SCRIPTS.values():
        for _ in range(8):
            low = chance.randrange(len(text))
            texts.append(text[low : low + chance.randrange(1, len(text) + 1)])
    literals = added_literals(file)
    for literal in literals[:40]:
        texts += [literal, f"x{literal}y", f" {literal} {literal}{literal}\n", literal[:-1], literal[1:]]
    everything = [chr(number) for number in range(0x34000) if not 0xD800 <= number < 0xE000]
    for _ in range(num_mixes):
        size = chance.randrange(2, 9)
        texts.append("".join(chance.choice(everything if chance.random() < 0.3 else "aB 1.'\n") for _ in range(size)))
    return texts + probes.mixes(literals, seed=20262, num_texts=num_mixes)


def tokenizers_ids(file, texts):
    """Encode with `tokenizers` itself, without any code of ours between."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(file.path))
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def encode(file, risks, texts, **options):
    """Run the encoder over one Arrow array."""
    settings = {"force_reference": False, "sample_one_in": 0, "seed": 0, **options}
    encoder = load_encoder(file, risks, **settings)
    return encoder.encode(pa.array(texts, pa.large_string()), np.arange(len(texts), dtype=np.uint64))


def rows(batch):
    """Split a batch into one list of ids a document."""
    return [batch.ids[low:high].tolist() for low, high in zip(batch.offsets[:-1], batch.offsets[1:], strict=True)]


def assert_equal(batch, expected, texts):
    """Compare document by document and show the first text that differs."""
    assert len(batch.offsets) == len(texts) + 1
    wrong = [ascii(text) for text, ids, right in zip(texts, rows(batch), expected, strict=True) if ids != right]
    assert not wrong, f"{len(wrong)} of {len(texts)} differ, first {wrong[0]}"


def test_default_vocabulary_equals_tokenizers(default_file, default_risks):
    """Every script, every risk class and random mixes get the ids of `tokenizers`, most on the fast path."""
    texts = documents(default_file)
    batch = encode(default_file, default_risks, texts)
    assert_equal(batch, tokenizers_ids(default_file, texts), texts)
    assert 0 < batch.by_reference.mean() < 0.5


def test_normalizing_vocabulary_equals_tokenizers(tiny_nfc_file, token_cache):
    """A vocabulary that composes characters gets the ids of `tokenizers`, odd mark sequences included."""
    risks = inspect_risks(tiny_nfc_file, cache_dir=token_cache)
    texts = documents(tiny_nfc_file)
    batch = encode(tiny_nfc_file, risks, texts)
    assert risks.supported
    assert_equal(batch, tokenizers_ids(tiny_nfc_file, texts), texts)
    marks = SCRIPTS["indic_new_marks"]
    assert encode(tiny_nfc_file, risks, [marks]).by_reference.all()


def test_sentencepiece_model_equals_its_library(tiny_sentencepiece_file, token_cache):
    """A SentencePiece model gets the ids of `sentencepiece`; text that spells a control piece is plain text."""
    import sentencepiece

    risks = inspect_risks(tiny_sentencepiece_file, cache_dir=token_cache)
    texts = documents(tiny_sentencepiece_file, num_mixes=1_000)
    batch = encode(tiny_sentencepiece_file, risks, texts)
    model = sentencepiece.SentencePieceProcessor(model_file=str(tiny_sentencepiece_file.path))
    assert risks.supported
    assert_equal(batch, [model.encode(text) for text in texts], texts)
    assert not batch.by_reference[: len(SCRIPTS)].all()
    assert encode(tiny_sentencepiece_file, risks, ["<s>"]).by_reference.all()


@pytest.mark.parametrize(
    "name", ["german", "vietnamese", "arabic", "hebrew", "hindi", "thai", "chinese", "korean", "emoji"]
)
def test_common_scripts_stay_on_the_fast_path(default_file, default_risks, name):
    """Text in a living language is not sent to the slow path, decomposed or pointed though it may be."""
    batch = encode(default_file, default_risks, [SCRIPTS[name]])
    assert not batch.by_reference.any()


def test_risky_documents_are_routed(default_file, default_risks):
    """Each document with a risky code point goes to the reference, its neighbours do not."""
    risky = [chr(low) for low, _ in default_risks.code_points]
    texts = [text for char in risky for text in (f"before {char} after", "plain text")]
    batch = encode(default_file, default_risks, texts)
    assert batch.by_reference.tolist() == [True, False] * len(risky)
    assert_equal(batch, tokenizers_ids(default_file, texts), texts)


def test_gigatoken_alone_would_be_wrong(default_file, default_risks):
    """The risk classes are not idle: without them some of these documents get other ids."""
    from dataaudit.scan.corpus.tokens import Risks

    texts = documents(default_file)
    blind = encode(default_file, Risks(supported=True, reason="ok"), texts)
    guarded = encode(default_file, default_risks, texts)
    differing = [left != right for left, right in zip(rows(blind), rows(guarded), strict=True)]
    assert any(differing)
    assert guarded.by_reference[np.flatnonzero(differing)].all()


@pytest.mark.skipif("DATAAUDIT_VOCABULARIES" not in os.environ, reason="DATAAUDIT_VOCABULARIES names no folder")
def test_given_vocabularies_equal_tokenizers(tmp_path):
    """Every tokenizer.json in the folder that DATAAUDIT_VOCABULARIES names gets the ids of `tokenizers`."""
    paths = sorted(Path(os.environ["DATAAUDIT_VOCABULARIES"]).glob("*.json"))
    assert paths
    for path in paths:
        file = resolve_tokenizer(str(path), base_dir=tmp_path, cache_dir=tmp_path)
        risks = inspect_risks(file, cache_dir=tmp_path)
        texts = documents(file)
        assert_equal(encode(file, risks, texts), tokenizers_ids(file, texts), texts)
