"""Signatures that a manifest keeps: published with it, checked by `verify`, and an index of datasketch of them."""

import pickle
import random

import numpy as np
import pytest
from corpus import rows, write_jsonl
from near_corpus import batch_of, random_words
from running import build, run

from dataaudit.manifest.metric import Scope
from dataaudit.manifest.minhash import read_signatures
from dataaudit.manifest.verify import verify
from dataaudit.scan.annotators import WORDS
from dataaudit.scan.kernels.minhash import permutations, sketch

VOCABULARY = [f"word{number}" for number in range(300)]
CONFIG = """
splits: {{train: {{paths: ["train/*"], text: text, source: {{column: source}}}}}}
stages: {{language: false, filters: false, near_dup: {{signatures: {keep}}}}}
reader: {{part_bytes: {part_bytes}}}
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Texts in two shards, and the folder that they lie in."""
    folder = tmp_path_factory.mktemp("signatures")
    generator = random.Random(6)
    texts = [[" ".join(random_words(generator, VOCABULARY, 60)) for _ in range(40)] for _ in range(2)]
    texts[1] += ["", texts[0][3]]
    for number, held in enumerate(texts):
        write_jsonl(folder / "train" / f"{number}.jsonl", rows(held, "web"))
    return folder, texts


@pytest.fixture(scope="module")
def built(corpus):
    """A manifest that keeps signatures."""
    folder, _ = corpus
    (folder / "c.yaml").write_text(CONFIG.format(keep="true", part_bytes=16_384))
    return build(folder / "c.yaml", manifest=folder / "m")[1]


def test_every_document_with_words_has_its_signature(corpus, built):
    _, texts = corpus
    assert verify(built) == []
    for shard, table in read_signatures(built):
        words = batch_of(texts[shard], range(len(texts[shard]))).get(WORDS)
        signatures, classes = sketch(words.hashes, words.offsets)
        expected = [row for row, text in enumerate(texts[shard]) if text]
        assert table["row"].to_pylist() == expected
        assert table["signature"].to_pylist() == [signatures[row].tobytes() for row in expected]
        assert table["class"].to_pylist() == [classes[row].tobytes() for row in expected]


def test_a_changed_or_strange_file_is_found_out(corpus, built, tmp_path):
    folder, _ = corpus
    manifest = folder / "m"
    path = manifest / "signatures" / "0000001.parquet"
    data = path.read_bytes()
    try:
        path.write_bytes(data[:-9] + b"x" + data[-8:])
        assert [problem.code for problem in verify(built)] == ["file_bytes"]
    finally:
        path.write_bytes(data)
    (manifest / "signatures" / "more").touch()
    assert [problem.text for problem in verify(built)] == ["signatures/more is not part of the manifest"]
    (manifest / "signatures" / "more").unlink()
    assert verify(built) == []


def test_the_index_finds_documents_that_are_alike(corpus, built, tmp_path):
    """A query with the shingles of a document, or of nearly the same one, gives its place."""
    datasketch = pytest.importorskip("datasketch", minversion="2.0")
    folder, texts = corpus
    out, _ = run("export", "lsh", folder / "m", "--out", tmp_path / "index")
    assert "81 documents in 21 bands of 6 values" in out
    index = pickle.loads((tmp_path / "index").read_bytes())
    queries = [texts[1][7], texts[0][3], " ".join(texts[0][9].split()[:-2])]
    words = batch_of(queries, range(3)).get(WORDS)
    signatures, _ = sketch(words.hashes, words.offsets)
    found = [
        set(
            index.query(
                datasketch.MinHash(
                    seed=1, hashvalues=values, permutations=np.array(permutations(128)), scheme="affine32"
                )
            )
        )
        for values in signatures
    ]
    assert found == [{"1:7"}, {"0:3", "1:41"}, {"0:9"}]


def test_without_signatures_there_is_no_folder_and_no_index(corpus, tmp_path):
    folder, _ = corpus
    (folder / "d.yaml").write_text(CONFIG.format(keep="false", part_bytes=67_108_864))
    build(folder / "d.yaml", manifest=folder / "n")
    assert not (folder / "n" / "signatures").exists()
    _, err = run("export", "lsh", folder / "n", "--out", tmp_path / "index", expect=2)
    assert "keeps no signatures" in err
    build(folder / "d.yaml", "--state", tmp_path / "s", manifest=folder / "n")


def test_a_later_corpus_is_joined_with_the_signatures_of_an_older_one(corpus, built, tmp_path):
    """The older corpus is not read again: equal words are certain, similar ones estimated with an interval."""
    folder, texts = corpus
    generator = random.Random(9)
    new = [" ".join(random_words(generator, VOCABULARY, 60)) for _ in range(20)]
    near = [" ".join(text.split()[:-1]) for text in texts[0][10:20]]
    equal = [text.title() for text in texts[1][5:10]]
    write_jsonl(tmp_path / "train" / "new.jsonl", rows([*new, *near, *equal, equal[0], ""], "web"))
    config = CONFIG.format(keep="true", part_bytes=67_108_864)
    (tmp_path / "c.yaml").write_text(config + f"reference: {folder / 'm'}\n")
    _, manifest = build(tmp_path / "c.yaml", manifest=tmp_path / "m")
    (whole,) = [one for one in manifest.metrics("near_dup_rate", "in_reference") if one.scope == Scope()]
    assert (whole.method, whole.n) == ("estimated", 37)
    assert whole.value == pytest.approx(16 / 37)
    assert 6 / 37 <= whole.low <= whole.value <= whole.high <= 16 / 37 + 1e-9
    assert manifest.core.parents == (built.id,)
    (other,) = [one for one in built.metrics("near_dup_rate", "in_reference") if one.scope == Scope()]
    assert (other.status, other.reason) == ("not_applicable", "no_reference")
