import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dataaudit.scan.annotators import Tokens
from dataaudit.scan.corpus.tokens import Risks, load_encoder
from dataaudit.scan.corpus.tokens.encoder import sample_mask
from dataaudit.scan.corpus.tokens.libraries import FastEncoder, FastEncoderFailed

TRUST = Risks(supported=True, reason="ok")
TEXTS = ["first document", "", "second \u00e9", "third one's longer, with 123 numbers\n", "last"]
KEYS = np.arange(len(TEXTS), dtype=np.uint64)


def load(file, risks=TRUST, **options):
    settings = {"force_reference": False, "sample_one_in": 0, "seed": 0, **options}
    return load_encoder(file, risks, **settings)


def expected(file, texts):
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(file.path))
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


def rows(batch):
    return [batch.ids[low:high].tolist() for low, high in zip(batch.offsets[:-1], batch.offsets[1:], strict=True)]


def test_batch_has_the_declared_types(tiny_file):
    """Offsets are int64 from 0, ids uint32, the routing mask boolean."""
    batch = load(tiny_file).encode(pa.array(TEXTS, pa.large_string()), KEYS)
    assert (batch.offsets.dtype, batch.ids.dtype, batch.by_reference.dtype) == (np.int64, np.uint32, np.bool_)
    assert batch.offsets[0] == 0
    assert batch.offsets[-1] == len(batch.ids) > 0


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(("low", "size"), [(0, 5), (1, 3), (2, 2), (4, 1), (1, 1), (3, 0), (5, 0)])
def test_slices_of_an_array_are_encoded_as_themselves(tiny_file, low, size, force):
    """A slice that starts inside a larger Arrow buffer gives the ids of its own rows."""
    texts = pa.array(TEXTS, pa.large_string()).slice(low, size)
    batch = load(tiny_file, force_reference=force).encode(texts, KEYS[low : low + size])
    assert rows(batch) == expected(tiny_file, TEXTS[low : low + size])
    assert batch.by_reference.tolist() == [force] * size


def test_the_reference_is_read_from_the_copy_of_the_newest_build(tiny_file, tmp_path):
    """A second build in a process whose first state folder is gone could not load the tokenizer."""
    texts, loaded = pa.array(TEXTS, pa.large_string()), []
    for name in "ab":
        path = Path(shutil.copy(tiny_file.path, tmp_path / name))
        model = Tokens(tokenizer=replace(tiny_file, path=path), risks=TRUST, force_reference=True, seed=20_261)
        loaded.append(model.encoder())
        if name == "a":
            path.unlink()
    assert loaded[0] is loaded[1]
    assert rows(loaded[1].encode(texts, KEYS)) == expected(tiny_file, TEXTS)


@pytest.mark.inputs
def test_forced_reference_gives_the_same_ids(default_file, default_risks):
    """Both paths agree, and the batch says which one was taken."""
    texts = pa.array([*TEXTS, "a\U00010940b"], pa.large_string())
    keys = np.arange(len(texts), dtype=np.uint64)
    fast = load(default_file, default_risks).encode(texts, keys)
    forced = load(default_file, default_risks, force_reference=True).encode(texts, keys)
    assert rows(fast) == rows(forced)
    assert fast.by_reference.tolist() == [False] * len(TEXTS) + [True]
    assert forced.by_reference.all()


def test_unsupported_model_takes_the_reference_for_everything(tiny_file):
    """Where the check at load says unsupported, nothing is given to gigatoken."""
    encoder = load(tiny_file, Risks(supported=False, reason="unsupported_model"))
    batch = encoder.encode(pa.array(TEXTS, pa.large_string()), KEYS)
    assert batch.by_reference.all()
    assert rows(batch) == expected(tiny_file, TEXTS)


def test_special_token_text_is_what_tokenizers_makes_of_it(tiny_file):
    """Text that spells a special token becomes that token, and none is ever added."""
    texts = ["<|end|>", "a<|end|>b", "<|en", ""]
    batch = load(tiny_file).encode(pa.array(texts, pa.large_string()), KEYS[:4])
    assert rows(batch)[0] == list(tiny_file.special_ids)
    assert rows(batch) == expected(tiny_file, texts)


@pytest.mark.inputs
def test_one_huge_document_is_encoded_whole(tiny_file):
    """A document many times the size of a slice gets the same ids on both paths, as do its neighbours."""
    huge = "".join(f"line {number}: it's {number * 7919 % 10007} words,\n" for number in range(90_000))
    texts = pa.array(["before", huge, "after"], pa.large_string())
    fast = load(tiny_file).encode(texts, KEYS[:3])
    forced = load(tiny_file, force_reference=True).encode(texts, KEYS[:3])
    assert len(huge) > 2 * 2**20
    assert np.array_equal(fast.offsets, forced.offsets)
    assert np.array_equal(fast.ids, forced.ids)


def test_lying_fast_encoder_is_caught_by_the_sample(tiny_file, monkeypatch):
    """A fast path that gets one id wrong is seen on sampled documents, whose ids are the reference's."""
    honest = FastEncoder.encode

    def lie(self, texts):
        offsets, ids = honest(self, texts)
        wrong = ids.copy()
        wrong[offsets[3]] ^= 1
        return offsets, wrong

    monkeypatch.setattr(FastEncoder, "encode", lie)
    batch = load(tiny_file, sample_one_in=1).encode(pa.array(TEXTS, pa.large_string()), KEYS)
    assert (batch.sampled, batch.differing) == (len(TEXTS), 1)
    assert rows(batch) == expected(tiny_file, TEXTS)
    assert not batch.by_reference.any()
    unchecked = load(tiny_file, sample_one_in=0).encode(pa.array(TEXTS, pa.large_string()), KEYS)
    assert rows(unchecked) != expected(tiny_file, TEXTS)


def test_a_part_of_a_batch_is_what_its_documents_alone_give(tiny_file):
    """Ids, routes and the sample; a batch of which a document differed cannot be cut, for its number is of all."""
    encoder = load(tiny_file, sample_one_in=2)
    texts = pa.array(TEXTS, pa.large_string())
    whole = encoder.encode(texts, KEYS)
    for start, stop in ((0, len(TEXTS)), (1, 4), (2, 2), (3, len(TEXTS))):
        part, alone = whole.part(start, stop), encoder.encode(texts.slice(start, stop - start), KEYS[start:stop])
        assert rows(part) == rows(alone)
        assert part.by_reference.tolist() == alone.by_reference.tolist()
        assert part.sampled == alone.sampled
    assert 0 < whole.sampled < len(TEXTS)
    assert replace(whole, differing=1).part(0, 1) is None


def test_fast_encoder_that_splits_wrongly_is_caught(tiny_file, monkeypatch):
    """A wrong number of ids is a difference too, and the offsets are set right."""
    honest = FastEncoder.encode

    def lie(self, texts):
        offsets, ids = honest(self, texts)
        return np.concatenate((offsets[:-1], [offsets[-1] + 1])), np.concatenate((ids, ids[:1]))

    monkeypatch.setattr(FastEncoder, "encode", lie)
    batch = load(tiny_file, sample_one_in=1).encode(pa.array(TEXTS, pa.large_string()), KEYS)
    assert batch.differing == 1
    assert rows(batch) == expected(tiny_file, TEXTS)


def test_fast_encoder_that_gives_up_counts_as_differing(tiny_file, monkeypatch):
    """A crash inside the fast path costs no document: the batch goes to the reference and says so."""

    def give_up(self, texts):
        raise FastEncoderFailed("PanicException")

    monkeypatch.setattr(FastEncoder, "encode", give_up)
    batch = load(tiny_file).encode(pa.array(TEXTS, pa.large_string()), KEYS)
    assert batch.differing == 1
    assert batch.by_reference.all()
    assert rows(batch) == expected(tiny_file, TEXTS)


def test_sample_depends_on_key_and_seed_alone():
    """Neither the order nor the company of a document decides whether it is sampled."""
    keys = np.random.default_rng(0).integers(0, 2**64, size=40_000, dtype=np.uint64)
    mask = sample_mask(keys, one_in=100, seed=7)
    order = np.random.default_rng(1).permutation(len(keys))
    assert np.array_equal(sample_mask(keys[order], one_in=100, seed=7), mask[order])
    assert np.array_equal(sample_mask(keys[:50], one_in=100, seed=7), mask[:50])
    assert not np.array_equal(sample_mask(keys, one_in=100, seed=8), mask)


@pytest.mark.parametrize("one_in", [2, 50, 1000])
def test_sample_has_the_asked_size_even_for_consecutive_keys(one_in):
    """About one key in `one_in` is chosen (five standard deviations)."""
    num_keys = 200_000
    chosen = int(sample_mask(np.arange(num_keys, dtype=np.uint64), one_in=one_in, seed=0).sum())
    spread = (num_keys / one_in * (1 - 1 / one_in)) ** 0.5
    assert abs(chosen - num_keys / one_in) < 5 * spread


def test_sample_is_off_and_complete_at_its_ends():
    """0 samples nobody, 1 everybody."""
    keys = np.arange(10, dtype=np.uint64)
    assert not sample_mask(keys, one_in=0, seed=0).any()
    assert sample_mask(keys, one_in=1, seed=0).all()
