"""Languages through a whole build: shares, `und`, tables, and the detectors."""

import random
from collections import Counter

import pytest
from corpus import write_jsonl, write_parquet
from lanes import workers
from running import build, metric, run
from sentences import SENTENCES

from dataaudit.manifest.verify import verify

pytestmark = pytest.mark.builds

CONFIG = """
splits:
  train: {{paths: [train], text: text, source: {{column: source}}}}
  val: {{paths: [val], text: text, source: {{column: source}}, held_out: true}}
language: {language}
{more}
"""
OFF = "stages: {language: false, toxicity: false, pii: false}"
"""The last two draw samples by language."""
NO_LANGUAGE = ["", " \n", "12 345 -- 678", "\U0001f600\U0001f680", "<br/>", "https://example.org/x"]


def write_corpus(root):
    """Write some documents of every language, and some of none; return the training documents as (text, source)."""
    rng = random.Random(4)
    made = []
    for number, (language, sentences) in enumerate(sorted(SENTENCES.items())):
        made += [(" ".join(rng.choices(sentences, k=rng.randrange(1, 40))), language) for _ in range(20 + number)]
    made += [(text, "none") for text in NO_LANGUAGE]
    rng.shuffle(made)
    records = [{"text": text, "source": f"of {source}"} for text, source in made]
    write_jsonl(root / "train" / "a.jsonl.zst", records[::2])
    write_parquet(root / "train" / "b.parquet", records[1::2])
    write_jsonl(root / "val" / "v.jsonl", [{"text": " ".join(lines), "source": "s"} for lines in SENTENCES.values()])
    return made


@pytest.fixture(scope="module")
def multilingual(tmp_path_factory):
    """The corpus, its documents, and its manifest."""
    root = tmp_path_factory.mktemp("languages")
    made = write_corpus(root)
    (root / "c.yaml").write_text(CONFIG.format(language="{}", more=""), encoding="utf-8")
    _, manifest = build(root / "c.yaml", *workers(2), manifest=root / "m")
    return root, made, manifest


def test_every_document_is_counted_under_its_language(multilingual):
    """18 languages of a dozen scripts, and `und` for what has none: documents and bytes are those that were written."""
    _, made, manifest = multilingual
    documents = Counter("und" if name == "none" else name for _, name in made)
    for language, number in documents.items():
        texts = [text for text, name in made if ("und" if name == "none" else name) == language]
        assert metric(manifest, "documents", "count", split="train", language=language) == number
        size = sum(len(text.encode()) for text in texts)
        assert metric(manifest, "bytes", "count", split="train", language=language) == size
    for language in SENTENCES:
        assert metric(manifest, "documents", "count", split="val", language=language) == 1
    found = {record.scope.language for record in manifest.metrics("documents", "count") if record.scope.language}
    assert found == set(documents)


def test_shares_tables_and_shards_tell_the_same(multilingual):
    """The share of a language is its tokens in the table over all tokens; shards list theirs."""
    _, _, manifest = multilingual
    table = manifest.table("languages").to_pylist()
    for split in ("train", "val"):
        rows = [row for row in table if row["split"] == split]
        whole = sum(row["tokens"] for row in rows)
        assert whole == metric(manifest, "tokens", "count", split=split)
        for language in {row["language"] for row in rows}:
            tokens = sum(row["tokens"] for row in rows if row["language"] == language)
            share = metric(manifest, "language_share", "share", split=split, language=language)
            assert share == pytest.approx(tokens / whole, rel=1e-11)
        listed = [
            row
            for shard in manifest.table("shards").to_pylist()
            if shard["split"] == split
            for row in shard["languages"]
        ]
        assert sum(row["tokens"] for row in listed) == whole
    assert metric(manifest, "language_share", "share", split="train", source="of de", language="de") == 1.0
    assert metric(manifest, "language_share", "share", split="val", language="und") == 0.0
    assert verify(manifest) == []


def test_the_manifest_says_who_looked(multilingual):
    """The detector that decides, and both models that it weighs, with version, digest and languages; no path."""
    _, _, manifest = multilingual
    core = manifest.core
    assert all(len(one.sha256) == 64 for one in core.detectors)
    combined, fasttext, cld2 = (one for one in core.detectors if one.name in {"combined", "fasttext", "pycld2"})
    assert combined.version == f"1+pycld2.{cld2.version}+fasttext.{fasttext.version}"
    assert all("looks" in one.version for one in (fasttext, cld2))
    assert set(combined.languages) == {*fasttext.languages, *cld2.languages}
    assert "zu" in cld2.languages
    assert "zu" not in fasttext.languages
    assert core.config["language"] == {"detector": "combined", "min_confidence": 0.5}
    (record,) = [one for one in manifest.metrics("language_share", "detector_agreement") if not one.scope.as_dict()]
    assert (record.method, record.value) == ("sampled", 1.0)
    assert record.n > 0
    assert record.low < 1.0


def test_number_of_workers_and_cut_change_nothing(multilingual, tmp_path):
    root, _, manifest = multilingual
    cut = CONFIG.format(language="{}", more="reader: {batch_bytes: 2000, part_bytes: 4000}")
    (root / "cut.yaml").write_text(cut, encoding="utf-8")
    summary, _ = build(root / "cut.yaml", manifest=tmp_path / "m")
    assert summary["parts_planned"] > 2 * len(manifest.table("shards"))
    assert summary["id"] == manifest.id


def test_the_other_detector_finds_the_same_here(multilingual, tmp_path):
    """The config names fastText, and who loads it: another identity, the same digest and documents in each language."""
    root, _, manifest = multilingual
    given = CONFIG.format(language="{detector: fasttext, model: fasttext-langdetect, min_confidence: 0.4}", more="")
    (root / "fasttext.yaml").write_text(given, encoding="utf-8")
    _, other = build(root / "fasttext.yaml", manifest=tmp_path / "m")
    assert other.id != manifest.id
    assert other.table("languages").equals(manifest.table("languages"))
    before, after = (next(d for d in one.core.detectors if d.name == "fasttext") for one in (manifest, other))
    assert after.sha256 == before.sha256
    assert "+fasttext-langdetect." in after.version


def test_without_the_stage_no_detector_is_needed(multilingual, tmp_path):
    """Nothing is said of languages then: no record, no detector, null in the table of shards."""
    root, _, _ = multilingual
    (root / "off.yaml").write_text(CONFIG.format(language="{model: absent.bin}", more=OFF))
    _, manifest = build(root / "off.yaml", manifest=tmp_path / "m")
    assert [one.name for one in manifest.core.detectors] == ["secrets"]
    assert manifest.metrics("language_share") == []
    assert set(manifest.table("shards")["languages"].to_pylist()) == {None}
    assert manifest.table("languages").num_rows == 0


def test_a_model_that_is_absent_is_one_clear_error(multilingual, tmp_path):
    root, _, _ = multilingual
    (root / "absent.yaml").write_text(CONFIG.format(language="{model: absent.bin}", more=""))
    _, shown = run("build", root / "absent.yaml", "--manifest", tmp_path / "m", expect=2)
    assert "absent.bin cannot be read" in shown
    assert "lid.176.bin" in shown
