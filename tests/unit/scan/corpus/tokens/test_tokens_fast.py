import numpy as np
import pyarrow as pa
import pytest

from dataaudit.scan.corpus.segments import text_buffers
from dataaudit.scan.corpus.tokens import libraries
from dataaudit.scan.corpus.tokens.libraries import FastEncoder, UnsupportedModelError
from dataaudit.scan.corpus.tokens.spec import TokenizerFile


def test_text_buffers_view_only_the_rows_of_a_slice():
    """Offsets start at 0 and the bytes are those of the slice, without a copy."""
    texts = pa.array(["aa", "b\u00e9", "", "dddd"], pa.large_string())
    offsets, data = text_buffers(texts.slice(1, 2))
    assert offsets.tolist() == [0, 3, 3]
    assert bytes(data) == "b\u00e9".encode()
    assert data.base is not None


@pytest.mark.parametrize("texts", [[], [""], ["", ""]])
def test_nothing_to_encode_gives_no_ids(tiny_file, texts):
    """Empty arrays and empty texts are no special case for the caller."""
    offsets, ids = FastEncoder(tiny_file).encode(pa.array(texts, pa.large_string()))
    assert offsets.tolist() == [0] * (len(texts) + 1)
    assert len(ids) == 0


def test_slicing_does_not_change_the_ids(tiny_file, monkeypatch):
    """Any slice size gives the same offsets and ids."""
    texts = pa.array([f"text {number} it's {'x' * number}" for number in range(50)], pa.large_string())
    whole = FastEncoder(tiny_file).encode(texts)
    monkeypatch.setattr(libraries, "_SLICE_BYTES", 64)
    cut = FastEncoder(tiny_file).encode(texts)
    assert np.array_equal(whole[0], cut[0])
    assert np.array_equal(whole[1], cut[1])


def test_tokenizer_is_rebuilt_when_its_caches_have_grown(tiny_file, monkeypatch):
    """Past the limit of growth a new tokenizer takes over, and the ids stay the same."""
    monkeypatch.setattr(libraries, "_resident_bytes", iter(range(0, 10**9, 10_000)).__next__)
    texts = pa.array(["some text to grow on"], pa.large_string())
    encoder = FastEncoder(tiny_file, growth_limit_bytes=25_000)
    monkeypatch.setattr(libraries, "_resident_bytes", iter(range(1, 10**9, 10_000)).__next__)
    answers = [encoder.encode(texts)[1].tolist() for _ in range(10)]
    assert encoder.num_builds == 4
    assert all(answer == answers[0] for answer in answers)


def test_growth_is_estimated_where_the_system_tells_nothing(tiny_file, monkeypatch):
    """Without /proc the bytes encoded stand for the growth."""
    monkeypatch.setattr(libraries, "_STATM", libraries.Path("/nonexistent/statm"))
    encoder = FastEncoder(tiny_file, growth_limit_bytes=1_000)
    for _ in range(4):
        encoder.encode(pa.array(["x" * 300], pa.large_string()))
    assert encoder.num_builds == 4


def test_unloadable_model_is_one_error(tmp_path):
    """What gigatoken cannot load is told apart from everything else."""
    path = tmp_path / "bad.json"
    path.write_text('{"model": {"type": "Unigram"}}')
    file = TokenizerFile(name="bad", format="tokenizer.json", sha256="0", path=path, vocab_size=1, special_ids=())
    with pytest.raises(UnsupportedModelError):
        FastEncoder(file)


@pytest.mark.parametrize("lack", [MemoryError, KeyboardInterrupt])
def test_a_lack_of_memory_is_not_the_encoders_failure(default_file, monkeypatch, lack):
    """Memory and Ctrl-C pass through: neither may move a build to the reference, or mark a model unsupported."""

    def fail(*_, **__):
        raise lack

    encoder = FastEncoder(default_file)
    with monkeypatch.context() as patch:
        patch.setattr(type(encoder._tokenizer), "encode_batch", fail)
        with pytest.raises(lack):
            encoder.encode(pa.array(["a"], pa.large_string()))
    monkeypatch.setattr("gigatoken.Tokenizer.from_json", fail)
    with pytest.raises(lack):
        FastEncoder(default_file)


def test_an_encoder_that_fails_otherwise_is_named(default_file, monkeypatch):
    """Any other error of the library is the encoder's failure, which the caller routes around."""

    def fail(*_, **__):
        raise ValueError

    encoder = FastEncoder(default_file)
    monkeypatch.setattr(type(encoder._tokenizer), "encode_batch", fail)
    with pytest.raises(libraries.FastEncoderFailed, match="ValueError"):
        encoder.encode(pa.array(["a"], pa.large_string()))
