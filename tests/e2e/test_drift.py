"""Drift through whole builds: against an older manifest, whose corpus is gone."""

import json
import shutil

import pyarrow.compute as pc
import pytest
from corpus import LETTERS, documents, write_jsonl, write_slow_tokenizer
from forged import hold_bytes
from lanes import workers
from running import build, metric, run

from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.verify import verify

pytestmark = pytest.mark.builds

CONFIG = """
splits:
  train: {paths: [train], text: text, source: {column: source}}
  val: {paths: [val], text: text, source: {column: source}, held_out: true}
"""

OTHERS_OFF = "near_dup: false, overlap: false, repeats: false, filters: false, language: false, toxicity: false"
"""Stages that drift does not rest on."""
ALONE = f"stages: {{{OTHERS_OFF}}}\n"


def records(texts, source):
    """Return records of one source."""
    return [{"text": text, "source": source} for text in texts]


def write(root, *, books, val=True, stages=ALONE):
    """Write a corpus of two sources, one of them given, and a config; it leaves stages off that drift does not need."""
    write_jsonl(root / "train" / "code.jsonl", records(documents(120, seed=1), "code"))
    write_jsonl(root / "train" / "books.jsonl", records(books, "books"))
    if val:
        write_jsonl(root / "val" / "v.jsonl", records(documents(60, seed=2), "code"))
    config = CONFIG if val else CONFIG.rpartition("  val")[0]
    (root / "c.yaml").write_text(config + stages, encoding="utf-8")
    return root / "c.yaml"


@pytest.fixture(scope="module")
def older(tmp_path_factory):
    """The manifest of a corpus that no longer exists."""
    root = tmp_path_factory.mktemp("older")
    config = write(root / "data", books=documents(120, seed=3))
    build(config, manifest=root / "m")
    shutil.rmtree(root / "data")
    return root / "m"


def drift(manifest, stat="kl", **scope):
    """Return one value."""
    return metric(manifest, "token_kl_drift", stat, **scope)


def test_the_same_corpus_has_not_drifted_at_all(older, tmp_path):
    """Identical corpora are exactly 0 apart, per dataset, split and source; another reference is another id."""
    config = write(tmp_path, books=documents(120, seed=3), stages="")
    summary, manifest = build(config, "--reference", older, manifest=tmp_path / "m")
    held = [record for record in manifest.metrics("token_kl_drift") if record.stat in ("kl", "js")]
    assert {record.value for record in held} == {0.0}
    assert len(held) == 2 * (3 + 2 + 1 + 2)
    assert manifest.table("drift").num_rows == 0
    assert verify(manifest) == []
    assert manifest.core.parents == (load_manifest(older).id,)
    again, _ = build(config, *workers(2), "--reference", tmp_path / "m", manifest=tmp_path / "again")
    assert again["id"] != summary["id"]


def test_a_replaced_source_is_found_and_its_tokens_are_named(older, tmp_path):
    """Its drift is above what chance gives, the other source's is not, and the new word leads the list."""
    books = [f"zebra quagga {LETTERS[number % 26]} zebra" * 30 for number in range(120)]
    _, manifest = build(write(tmp_path, books=books), "--reference", older, manifest=tmp_path / "m")
    scope = {"split": "train", "source": "books"}
    assert drift(manifest, **scope) > 1
    record = next(one for one in manifest.metrics("token_kl_drift", "kl_excess") if one.scope.as_dict() == scope)
    assert record.low > 0.5
    assert drift(manifest, split="train", source="code") == drift(manifest, split="val") == 0.0
    assert 0 < drift(manifest, split="train") < drift(manifest, **scope)
    assert drift(manifest) < drift(manifest, split="train")
    top = [row for row in manifest.table("drift").to_pylist() if (row["split"], row["source"]) == ("train", "books")]
    assert {"zeb", "ag", "ga"} <= {row["piece"].strip("\u0120") for row in top if row["rank"] <= 6}
    assert sorted(row["rank"] for row in top) == list(range(1, 21))
    shards = {row["uri"]: row for row in manifest.table("shards").to_pylist()}
    assert shards["train/books.jsonl"]["token_kl_drift"] > 1
    assert shards["val/v.jsonl"]["token_kl_drift"] == 0.0
    assert shards["train/code.jsonl"]["token_kl_bias"] > 0
    assert verify(manifest) == []


def test_another_sample_of_the_same_text_is_within_chance(older, tmp_path):
    """Other documents of the same kind: KL is clearly above 0 and lies in the interval of its bias."""
    config = write(tmp_path, books=documents(120, seed=9))
    _, manifest = build(config, "--reference", older, manifest=tmp_path / "m")
    found = {
        one.stat: one
        for one in manifest.metrics("token_kl_drift")
        if one.scope.as_dict() == {"split": "train", "source": "books"}
    }
    assert found["kl"].value > 0.01
    assert found["kl_bias"].low < found["kl"].value < found["kl_bias"].high
    assert found["kl_excess"].low < 0 < found["kl_excess"].high


def test_what_the_reference_lacks_has_a_reason(older, tmp_path):
    """A new source and a new split are not applicable, by name; the rest is compared."""
    write(tmp_path, books=documents(50, seed=3), val=False)
    write_jsonl(tmp_path / "train" / "new.jsonl", records(documents(30, seed=4), "new"))
    write_jsonl(tmp_path / "test" / "t.jsonl", records(documents(30, seed=5), "code"))
    config = (
        CONFIG.replace("val: {paths: [val]", "test: {paths: [test]") + ALONE + f"reference: {json.dumps(str(older))}\n"
    )
    (tmp_path / "c.yaml").write_text(config, encoding="utf-8")
    _, manifest = build(tmp_path / "c.yaml", manifest=tmp_path / "m")
    held = manifest.metrics("token_kl_drift", "kl")
    reasons = {(one.scope.split, one.scope.source): one.reason for one in held}
    absent = {key for key, reason in reasons.items() if reason == "absent_in_reference"}
    assert absent == {("train", "new"), ("test", None), ("test", "code"), (None, "new")}
    shards = {row["uri"]: row["token_kl_drift"] for row in manifest.table("shards").to_pylist()}
    assert shards["test/t.jsonl"] is None
    assert shards["train/new.jsonl"] > 0


def test_another_tokenizer_is_said_once_and_compares_nothing(older, tmp_path):
    """The screen says which two tokenizers; the records say other_tokenizer; the build is good."""
    config = write(tmp_path, books=documents(20, seed=3))
    tokenizer = write_slow_tokenizer(tmp_path / "other.json")
    _, err = run("build", config, "--tokenizer", tokenizer, "--reference", older, "--manifest", tmp_path / "m")
    assert err.count("another tokenizer") == 1
    manifest = load_manifest(tmp_path / "m")
    held = manifest.metrics("token_kl_drift")
    assert {(one.status, one.reason) for one in held} == {("not_applicable", "other_tokenizer")}
    assert manifest.table("shards")["token_kl_drift"].null_count == 3
    assert verify(manifest) == []


def test_a_reference_without_token_counts_compares_nothing(tmp_path):
    """A manifest whose stage was off is a parent all the same."""
    config = write(tmp_path, books=documents(20, seed=3))
    off = tmp_path / "off.yaml"
    off.write_text(CONFIG + f"stages: {{histogram: false, {OTHERS_OFF}}}\n", encoding="utf-8")
    summary, _ = build(off, manifest=tmp_path / "old")
    _, manifest = build(config, "--reference", tmp_path / "old", manifest=tmp_path / "m")
    held = manifest.metrics("token_kl_drift")
    assert {one.reason for one in held} == {"no_histogram_in_reference"}
    assert manifest.core.parents == (summary["id"],)


def test_a_reference_that_is_missing_or_damaged_is_wrong_use(older, tmp_path):
    """Exit 2 with the folder, what is wrong with it, and where it was named; nothing is published."""
    config = write(tmp_path, books=documents(20, seed=3))

    def refused(folder, *words):
        options = ("--reference", folder, "--manifest", tmp_path / "m", "--state", tmp_path / "s")
        _, err = run("build", config, *options, expect=2)
        assert all(word in err for word in (str(folder), "--reference", *words)), err
        assert not (tmp_path / "m").exists()

    refused(tmp_path / "none", "no manifest")
    for name, words in (("manifest.json", ["the id says"]), ("histogram.parquet", ["histogram"])):
        folder = shutil.copytree(older, tmp_path / f"damaged-{name}")
        if name == "manifest.json":
            path = folder / name
            path.write_text(path.read_text(encoding="utf-8").replace('"documents": 2', '"documents": 3', 1))
        else:
            shutil.copy(folder / "pairs.parquet", folder / name)
        refused(folder, *words)
    (folder / "histogram.parquet").unlink()
    refused(folder, "histogram")


def test_a_reference_with_other_rows_is_refused(older, tmp_path):
    """A table of the right columns whose counts were changed has not the digest of the core."""
    import pyarrow.parquet as pq

    config = write(tmp_path, books=documents(20, seed=3))
    folder = shutil.copytree(older, tmp_path / "old")
    table = pq.read_table(folder / "histogram.parquet")
    changed = table.set_column(3, table.schema.field(3), pc.add(table["count"], 1))
    pq.write_table(changed.cast(table.schema), folder / "histogram.parquet", write_page_checksum=True)
    _, err = run("build", config, "--reference", folder, "--manifest", tmp_path / "m", expect=2)
    assert "histogram.parquet" in err
    assert "not the file that was published" in err
    hold_bytes(folder)
    _, err = run("build", config, "--reference", folder, "--manifest", tmp_path / "m", expect=2)
    assert "not those that the manifest was published with" in err


def test_a_manifest_can_be_replaced_by_the_build_that_it_is_the_reference_of(tmp_path):
    """It is read before anything is written."""
    config = write(tmp_path, books=documents(40, seed=3))
    first, _ = build(config, manifest=tmp_path / "m")
    _, manifest = build(config, "--reference", tmp_path / "m", manifest=tmp_path / "m")
    assert manifest.core.parents == (first["id"],)
    assert drift(manifest) == 0.0


def test_few_kept_sources_leave_the_totals_exact(tmp_path):
    """Beyond max_sources histograms are added up as `other`; tokens of every split still add up."""
    write(tmp_path, books=documents(40, seed=3))
    for number in range(4):
        write_jsonl(tmp_path / "train" / f"{number}.jsonl", records(documents(5, seed=number), f"small{number}"))
    config = tmp_path / "c.yaml"
    few = CONFIG + f"stages: {{histogram: {{max_sources: 2}}, {OTHERS_OFF}}}\n"
    config.write_text(few, encoding="utf-8")
    _, manifest = build(config, manifest=tmp_path / "m")
    table = manifest.table("histogram")
    assert table["source"].unique().to_pylist() == ["books", "code", "other"]
    sums = table.group_by("split").aggregate([("count", "sum")]).to_pylist()
    assert {row["split"]: row["count_sum"] for row in sums} == {
        split.name: split.tokens for split in manifest.core.splits
    }
    assert {row["source"] for row in manifest.table("sources").to_pylist()} > {"small0", "small3"}
    config.write_text(few + "reference: m\n", encoding="utf-8")
    _, again = build(config, manifest=tmp_path / "again")
    reasons = {one.scope.source: one.reason for one in again.metrics("token_kl_drift", "kl")}
    assert reasons["other"] == "folded_sources"
    config.write_text(CONFIG + ALONE + "reference: m\n", encoding="utf-8")
    _, every = build(config, manifest=tmp_path / "every")
    reasons = {one.scope.source: one.reason for one in every.metrics("token_kl_drift", "kl")}
    assert (reasons["small0"], reasons["code"], reasons[None]) == ("folded_in_reference", "", "")
