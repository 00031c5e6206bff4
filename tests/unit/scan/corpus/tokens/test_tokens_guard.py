import pickle

import pytest

from dataaudit.base.files import read_sealed
from dataaudit.scan.corpus.tokens import Risks, guard, inspect_risks


@pytest.mark.inputs
def test_risks_survive_json_and_pickle(default_risks):
    """What is stored or sent to a worker comes back equal, with the same digest."""
    for copy in (Risks.from_json(default_risks.to_json()), pickle.loads(pickle.dumps(default_risks))):
        assert copy == default_risks
        assert copy.digest == default_risks.digest


@pytest.mark.parametrize("ranges", [((5, 4),), ((1, 3), (3, 9)), ((7, 8), (1, 2)), ((0, 0x110000),)])
def test_ranges_must_ascend(ranges):
    """A damaged list of ranges is refused, not used."""
    with pytest.raises(ValueError, match="ascend"):
        Risks(supported=True, reason="ok", code_points=ranges)


@pytest.mark.inputs
def test_default_vocabulary_is_supported_with_narrow_risks(default_risks):
    """Below the empty planes only code points newer than one of the two tables are risky, no surrogate."""
    import unicodedata

    low_planes = [n for low, high in default_risks.code_points for n in range(low, min(high, 0x33480) + 1)]
    assert (default_risks.supported, default_risks.reason) == (True, "ok")
    assert {unicodedata.category(chr(number)) for number in low_planes} <= {"Cn", "Lo", "Mn", "Lm", "Lu", "Ll", "So"}
    assert all(number > 0x800 for number in low_planes)
    assert len(default_risks.code_points) < 100
    assert default_risks.patterns == default_risks.normal_forms == ()


@pytest.mark.inputs
def test_second_call_reads_the_first_ones_answer(default_file, default_risks, token_cache, monkeypatch):
    """The check runs once per tokenizer and library version."""
    monkeypatch.setattr(guard, "_inspect", lambda file: pytest.fail("ran again"))
    assert inspect_risks(default_file, cache_dir=token_cache) == default_risks


def test_other_library_version_asks_again(tiny_file, tmp_path, monkeypatch):
    """An answer found with another gigatoken is not used."""
    asked = []
    monkeypatch.setattr(guard, "_inspect", lambda file: asked.append(file) or Risks(supported=True, reason="ok"))
    inspect_risks(tiny_file, cache_dir=tmp_path)
    monkeypatch.setattr(guard, "version", lambda package: "99.0")
    again = inspect_risks(tiny_file, cache_dir=tmp_path)
    assert len(asked) == 2
    assert "gigatoken-99.0" in again.key


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"supported": true}', "flip"])
def test_damaged_cache_is_written_anew(tiny_file, tmp_path, monkeypatch, damage):
    """A cache file that cannot be read costs a new check, nothing else."""
    monkeypatch.setattr(guard, "_inspect", lambda file: Risks(supported=True, reason="ok"))
    first = inspect_risks(tiny_file, cache_dir=tmp_path)
    (path,) = tmp_path.glob("risks-*.json")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"true", b"false") if damage == "flip" else damage.encode())
    assert inspect_risks(tiny_file, cache_dir=tmp_path) == first
    assert Risks.from_json(read_sealed(path).decode()) == first


def test_model_that_gigatoken_cannot_load_is_unsupported(sentencepiece_trainer, tmp_path):
    """A SentencePiece unigram model is left to its own library."""
    from dataaudit.scan.corpus.tokens import resolve_tokenizer

    (tmp_path / "unigram.model").write_bytes(
        sentencepiece_trainer(model_type="unigram", byte_fallback=False, vocab_size=170)
    )
    file = resolve_tokenizer("unigram.model", base_dir=tmp_path, cache_dir=tmp_path)
    risks = inspect_risks(file, cache_dir=tmp_path)
    assert (risks.supported, risks.reason) == (False, "unsupported_model")


def test_fast_encoder_wrong_on_plain_text_is_unsupported(tiny_file, tmp_path, monkeypatch):
    """Who differs on ASCII is not used at all."""
    from dataaudit.scan.corpus.tokens.libraries import FastEncoder

    honest = FastEncoder.encode

    def lie(self, texts):
        offsets, ids = honest(self, texts)
        return offsets, ids ^ 1

    monkeypatch.setattr(FastEncoder, "encode", lie)
    risks = inspect_risks(tiny_file, cache_dir=tmp_path)
    assert (risks.supported, risks.reason) == (False, "differs_on_ascii")


def test_sentencepiece_model_that_rewrites_characters_is_left_to_its_library(sentencepiece_trainer, tmp_path):
    """The two apply a table of rewritten characters differently, so the fast path is not used."""
    from dataaudit.scan.corpus.tokens import resolve_tokenizer

    (tmp_path / "nfkc.model").write_bytes(sentencepiece_trainer(normalization_rule_name="nmt_nfkc"))
    file = resolve_tokenizer("nfkc.model", base_dir=tmp_path, cache_dir=tmp_path)
    risks = inspect_risks(file, cache_dir=tmp_path)
    assert (risks.supported, risks.reason) == (False, "rewrites_characters")


def test_few_code_points_cover_all_differing_texts():
    """The character that most texts share is taken, not one of each."""
    texts = [{"\u03ac", "\u0334"}, {"\u03ad", "\u0334"}, {"\u200c"}]
    assert guard._cover(texts) == [0x334, 0x200C]


def test_difference_behind_a_pair_becomes_a_risk(tiny_file, monkeypatch):
    """A fast path that errs on one letter before one mark has that mark declared risky, and no letter."""
    from dataaudit.scan.corpus.tokens.libraries import FastEncoder, load_reference

    honest = FastEncoder.encode

    def lie(self, texts):
        offsets, ids = honest(self, texts)
        wrong = ids.copy()
        for row, text in enumerate(texts.to_pylist()):
            if "\u044f\u0301" in text:
                wrong[offsets[row]] ^= 1
        return offsets, wrong

    monkeypatch.setattr(FastEncoder, "encode", lie)
    pair = guard._Pair(FastEncoder(tiny_file), load_reference(tiny_file))
    trust = Risks(supported=True, reason="ok")
    risks = guard._widen(pair, trust, ["fine", "abc \u044f\u0301\u4e2d"], (), forms=())
    assert risks.code_points == ((0x301, 0x301),)
    assert pair.differing(risks, ["abc \u044f\u0301\u4e2d"]) == []


def test_difference_on_ascii_alone_gives_the_fast_path_up(tiny_file, monkeypatch):
    """What any document may hold cannot be routed around."""
    from dataaudit.scan.corpus.tokens.libraries import FastEncoder, load_reference

    honest = FastEncoder.encode

    def lie(self, texts):
        offsets, ids = honest(self, texts)
        return (offsets, ids ^ 1) if any("qj" in text for text in texts.to_pylist()) else (offsets, ids)

    monkeypatch.setattr(FastEncoder, "encode", lie)
    pair = guard._Pair(FastEncoder(tiny_file), load_reference(tiny_file))
    risks = guard._widen(pair, Risks(supported=True, reason="ok"), ["\u044fqj"], (), forms=())
    assert (risks.supported, risks.reason) == (False, "differs_on_ascii")
