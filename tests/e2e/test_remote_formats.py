"""A corpus in every format that is read, on a disk and in S3: one manifest; and folders that `datasets` saved there."""

import pytest
from corpus import COMPRESS, documents, rows, write_every_format
from lanes import workers
from running import build, run

pytestmark = pytest.mark.stores

CONFIG = """
splits:
  train: {paths: [x], text: text, source: {column: source}}
  web: {paths: [web/*.txt*], text: text, source: {constant: web}}
reader: {text_document: paragraph, part_bytes: 20000, batch_bytes: 5000}
"""


@pytest.fixture(scope="module")
def root(store, tmp_path_factory):
    """The same documents in every format, on disk and in the bucket ``formats``; the folder on disk."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    root = tmp_path_factory.mktemp("formats")
    data, web = root / "x", root / "web"
    web.mkdir()
    records = rows(documents(200, seed=9), "s")
    write_every_format(data, records)
    text = "".join(f"one {number}\ntwo\n\n" for number in range(3_000)).encode()
    for suffix, compress in COMPRESS.items():
        (web / f"a.txt{suffix}").write_bytes(compress(text))
    (web / "a.txt").write_bytes(text)
    made = datasets.Dataset.from_list(records)
    made.save_to_disk(str(data / "saved"), num_shards=2)
    splits = {"train": made, "validation": made.select(range(20))}
    datasets.DatasetDict(splits).save_to_disk(str(root / "dict"))
    (root / "config.yaml").write_text(CONFIG)
    store.copy(root, "formats")
    return root


def test_every_format_has_the_id_in_a_store_that_it_has_on_disk(store, root, tmp_path):
    """Also where parts are cut: at record batches, at lines, and at decoded bytes of compressed files."""
    local, expected = build(root / "config.yaml", manifest=tmp_path / "a")
    (tmp_path / "far.yaml").write_text(CONFIG + "root: s3://formats\n")
    far, found = build(tmp_path / "far.yaml", *workers(2), manifest=tmp_path / "b")
    assert {row["status"] for row in found.table("shards").to_pylist()} == {"ok"}
    assert found.core.totals == expected.core.totals
    assert (far["id"], far["parts_planned"]) == (local["id"], local["parts_planned"])
    assert local["parts_planned"] >= 2 * found.core.totals.shards  # an Arrow stream is one part
    uris = [row["uri"] for row in found.table("shards").to_pylist()]
    assert [uri for uri in uris if "saved" in uri] == [f"x/saved/data-0000{number}-of-00002.arrow" for number in (0, 1)]


def test_a_dictionary_of_data_sets_in_a_store_keeps_its_splits(store, root, tmp_path):
    """On the command line they are found; a split of a config that joins them is refused, as on disk."""
    local = build("dict", manifest=tmp_path / "a", cwd=root)[0]["id"]
    far, manifest = build("s3://formats/dict", manifest=tmp_path / "b")
    assert far["id"] == local
    assert [row["split"] for row in manifest.table("shards").to_pylist()] == ["train", "validation"]
    for pattern in ("s3://formats/dict", "s3://formats/dict/*/*.arrow", "s3://formats/dict/[tv]*/data-*"):
        (tmp_path / "c.yaml").write_text(f"splits: {{train: {{paths: ['{pattern}']}}}}\n")
        _, err = run("build", tmp_path / "c.yaml", "--manifest", tmp_path / "n", expect=2)
        assert "s3://formats/dict holds several splits: train, validation" in " ".join(err.split())
