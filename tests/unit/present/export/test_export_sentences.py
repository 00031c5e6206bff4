"""Sentences about a manifest: numbers that point at people are in none of them."""

import pytest
from made_counts import docs, make_found
from made_manifest import make, shard
from made_verdict import HOSTILE

from dataaudit.base.render.markdown import code, markdown
from dataaudit.base.text import clean
from dataaudit.manifest.load import load_manifest
from dataaudit.metrics.volume.definition import overview
from dataaudit.present.export.card import section, sentences
from dataaudit.present.export.croissant import croissant
from dataaudit.present.export.croissant_files import About

SHOWN = ["EMAIL_ADDRESS: in 40 documents, 0.1143 of all, as patterns find it."]
CLOSING = "What no pattern knows, names of people among it, is in no number."


def found(folder, *documents):
    make_found(folder, [one for group in documents for one in group])
    return load_manifest(folder)


@pytest.mark.parametrize("few", [1, 2, 4])
def test_a_kind_in_few_documents_is_counted_and_neither_named_nor_numbered(tmp_path, few):
    small = [*docs(few, "CREDIT_CARD.validated"), *docs(3, "IBAN_CODE.validated")]
    manifest = found(tmp_path / "m", docs(40, "EMAIL_ADDRESS.validated"), small, docs(307 - few))
    said = sentences(manifest, "privacy")
    assert said == [*SHOWN, "2 further kinds of personal data: in so few documents that no number is given.", CLOSING]
    everywhere = section(manifest, overview(manifest)) + str(croissant(manifest, About()))
    assert "CREDIT_CARD" not in everywhere
    assert "IBAN_CODE" not in everywhere


def test_a_kind_that_would_tell_a_small_one_is_not_numbered_either(tmp_path):
    """A small number is all of them less the other kinds."""
    manifest = found(tmp_path / "m", docs(40, "EMAIL_ADDRESS.validated"), docs(2, "CREDIT_CARD.validated"))
    assert not any("40" in one for one in sentences(manifest, "privacy"))


def test_a_kind_in_five_documents_is_told(tmp_path):
    manifest = found(tmp_path / "m", docs(5, "CREDIT_CARD.validated"), docs(95))
    assert sentences(manifest, "privacy")[0] == "CREDIT_CARD: in 5 documents, 0.0500 of all, as patterns find it."


def test_nothing_found_is_told(tmp_path):
    manifest = found(tmp_path / "m", docs(10))
    assert sentences(manifest, "privacy") == ["Patterns for personal data found none."]
    assert sentences(manifest, "secrets") == ["Patterns for secrets (keys, tokens, passwords) found none."]


@pytest.mark.parametrize(
    ("number", "words"), [(1, "fewer than 5"), (4, "fewer than 5"), (5, "about 10"), (44, "about 40")]
)
def test_the_number_of_secrets_is_rounded(tmp_path, number, words):
    manifest = found(tmp_path / "m", docs(number, "secrets:JWT.validated"), docs(5))
    assert sentences(manifest, "secrets") == [
        f"Secrets (keys, tokens, passwords) are in {words} documents; some are confirmed by their structure."
    ]


def test_secrets_by_their_form_alone_are_told_as_such(tmp_path):
    manifest = found(tmp_path / "m", docs(6, "secrets:JWT.pattern"))
    assert "none is confirmed by its structure" in sentences(manifest, "secrets")[0]


def test_sources_beyond_ten_are_counted(tmp_path):
    make(tmp_path / "m", [shard("a", documents=20, tokens=78, sources={f"s{n:02}": n + 1 for n in range(12)})])
    said = sentences(load_manifest(tmp_path / "m"), "mixture")[0]
    assert said.startswith("Sources by share of the training tokens: s11 0.1538, s10 0.1410,")
    assert said.endswith(", 2 further sources.")


def test_shards_that_were_not_read_are_told_with_the_reason(tmp_path):
    shards = [shard("a"), shard("b", status="quarantined", reason="not_parquet")]
    make(tmp_path / "m", shards, ledger=[(1, "not_parquet", "the file", -1, 50)])
    assert sentences(load_manifest(tmp_path / "m"), "coverage") == [
        "The audit read 1 of 2 shards, 50 of 100 stored bytes.",
        "1 shard could not be read and is in no number: the file has no readable Parquet footer.",
    ]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_written_as_its_format_asks_for(tmp_path, name):
    text = name.encode("utf-8", "replace").decode() or "x"
    make(tmp_path / "m", [shard("a", sources={text: 10, "web": 20})])
    manifest = load_manifest(tmp_path / "m")
    assert clean(text, 80) in sentences(manifest, "mixture")[0]
    assert code(text) in sentences(manifest, "mixture", write=markdown)[0]
