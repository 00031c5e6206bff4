"""What a manifest among the data may leave out: its own files, by content, and nothing beside or below them."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import fsspec
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataaudit.config import Split
from dataaudit.manifest.canonical import digest_json
from dataaudit.scan.corpus.shards import discover

DEMO = Path(__file__).parents[4] / "manifests/demo"
OWN = tuple(sorted(path.name for path in DEMO.iterdir() if path.is_file()))
DATA = ("a.jsonl", "m/deep/manifest/d.jsonl", "m/objects/e.jsonl", "m/x.jsonl", "m/y.parquet")


@pytest.fixture
def corpus(tmp_path):
    """A folder of data with a manifest in it, and data beside and below that."""
    shutil.copytree(DEMO, tmp_path / "m")
    for name in DATA:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"text": "x"}\n')
    return tmp_path


def found(folder, *paths, root=None):
    """Return (uris, what was left out) of one split."""
    discovery = discover({"train": Split(paths=paths)}, folder, root_at_base=True, follow_symlinks=False, root=root)
    return [shard.uri for shard in discovery.shards], list(discovery.left_out)


def repointed(folder, change):
    """Change what a pointer says, and make its id fit."""
    pointer = json.loads((folder / "manifest.json").read_bytes())
    change(pointer)
    pointer["id"] = digest_json(pointer["core"])
    (folder / "manifest.json").write_bytes(orjson.dumps(pointer))


def listing(folder, name):
    """Return what makes a pointer list a file."""
    data = (folder / name).read_bytes()
    record = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    return lambda pointer: pointer["run"]["files"].update({name: record})


def forged_table(folder):
    """Put documents into the place of a table, and make the pointer list them."""
    pq.write_table(pa.table({"text": ["a document"]}), folder / "pairs.parquet")
    repointed(folder, listing(folder, "pairs.parquet"))


def forged_below(folder):
    """Put documents into a folder that a manifest may have, and make the pointer list them."""
    (folder / "signatures").mkdir()
    pq.write_table(pa.table({"text": ["a document"]}), folder / "signatures/0000000.parquet")
    repointed(folder, listing(folder, "signatures/0000000.parquet"))


@pytest.mark.parametrize("pattern", [".", "**", "m/*", "m", "**/*"])
def test_only_the_files_that_a_manifest_lists_are_left_out(corpus, pattern):
    """Data in its folder and in folders below it are shards, by a folder, a pattern, and in a store."""
    memory = fsspec.filesystem("memory")
    memory.put(os.fspath(corpus), "/own", recursive=True)
    try:
        uris, left_out = found(corpus, pattern)
        below = pattern == "m/*"
        wanted = [name for name in DATA if pattern in (".", "**", "**/*") or name.startswith("m/")]
        assert uris == [name for name in wanted if not below or name.count("/") == 1]
        assert left_out == sorted(f"m/{name}" for name in (*OWN, *(("deep/", "objects/") if below else ())))
        assert found(corpus, "memory://own" if pattern == "." else pattern, root="memory://own") == (uris, left_out)
    finally:
        memory.rm("/own", recursive=True)


def test_objects_of_a_manifest_in_a_store_are_left_out_by_content(corpus):
    """There its files are named by their content; an object with other bytes is a shard that is not read."""
    files = json.loads((DEMO / "manifest.json").read_bytes())["run"]["files"]
    for name, record in files.items():
        shutil.move(corpus / "m" / name, corpus / "m/objects" / record["sha256"])
    harmed = f"m/objects/{files['pairs.parquet']['sha256']}"
    (corpus / harmed).write_bytes(b"other")
    uris, left_out = found(corpus, ".")
    assert uris == sorted([*DATA, harmed])
    assert len(left_out) == len(OWN) - 1


WAYS = {
    "two empty files": (
        lambda folder: [(folder / name).write_bytes(b"") for name in ("manifest.json", "shards.parquet")],
        OWN,
    ),
    "an empty pointer": (lambda folder: (folder / "manifest.json").write_bytes(b""), OWN),
    "a pointer that is data": (lambda folder: (folder / "manifest.json").write_bytes(b'{"text": "a"}\n'), OWN),
    "a pointer that was edited": (
        lambda folder: (folder / "manifest.json").write_bytes(
            (folder / "manifest.json").read_bytes().replace(b'"name"', b'"name" ', 1).replace(b"1", b"2", 1)
        ),
        OWN,
    ),
    "a pointer with a key more": (
        lambda folder: repointed(folder, lambda pointer: pointer.update({"text": "a document"})),
        OWN,
    ),
    "no pointer": (lambda folder: (folder / "manifest.json").unlink(), OWN),
    "a table of other bytes": (lambda folder: (folder / "metrics.parquet").write_bytes(b""), ("metrics.parquet",)),
    "a table with a byte more": (
        lambda folder: (folder / "metrics.parquet").write_bytes((folder / "metrics.parquet").read_bytes() + b"\0"),
        ("metrics.parquet",),
    ),
    "data that the pointer lists": (lambda folder: repointed(folder, listing(folder, "x.jsonl")), ()),
    "documents in the place of a table": (forged_table, ("pairs.parquet",)),
    "documents in a folder of manifests": (forged_below, ("signatures/0000000.parquet",)),
    "a pointer that is a folder": (
        lambda folder: [(folder / "manifest.json").unlink(), (folder / "manifest.json").mkdir()],
        OWN,
    ),
    "a pointer that leads to itself": (
        lambda folder: [(folder / "manifest.json").unlink(), (folder / "manifest.json").symlink_to("manifest.json")],
        OWN,
    ),
    "a pipe": (lambda folder: [(folder / "manifest.json").unlink(), os.mkfifo(folder / "manifest.json")], OWN),
    "a signature that is data": (
        lambda folder: (folder / "attestation.json").write_text('{"payload": "", "text": "a document"}'),
        ("attestation.json",),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_not_what_its_name_says_is_a_shard(corpus, way):
    """However a manifest is forged or harmed, what it does not list by content is among the shards."""
    change, shards = WAYS[way]
    change(corpus / "m")
    uris, _ = found(corpus, ".")
    present = {name for name in shards if not (corpus / "m" / name).is_dir() and os.path.lexists(corpus / "m" / name)}
    assert set(uris) == {*DATA, *(f"m/{name}" for name in present)}


def test_a_signed_manifest_among_the_data_leaves_its_signature_out(corpus):
    """Else a corpus that holds its own signed audit could not be built twice."""
    (corpus / "m/attestation.json").write_text('{"payload": "", "payloadType": "", "signatures": []}')
    assert found(corpus, ".")[0] == list(DATA)
