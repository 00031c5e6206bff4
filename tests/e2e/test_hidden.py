"""What could be hidden from a build: few bad records that are most of a shard."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bad_input import JSONL, LINES, TEXTS, zstd
from running import build, run

pytestmark = pytest.mark.stores

LONG = b"a hidden word " * 20_000
BAD = {
    "surrogate": b'{"text": "%s", "x": "\\ud800"}' % LONG,
    "beyond-a-double": b'{"text": "%s", "x": 1e999}' % LONG,
    "key-twice": b'{"text": "%s", "x": 1, "x": 1}' % LONG,
    "raw-nul": b'{"text": "%s\0"}' % LONG,
    "no-utf8": b'{"text": "%s\xff"}' % LONG,
    "array": b'[{"text": "%s"}]' % LONG,
    "no-text": b'{"texts": "%s"}' % LONG,
    "list-of-texts": b'{"text": ["%s"]}' % LONG,
    "nan-and-surrogate": b'{"text": "%s", "x": NaN, "y": "\\ud800"}' % LONG,
    "metadata-beside": b'{"text": "%s", "x": "\\ud800"}' % LONG[:4_000],
}


def written(folder):
    """Write a shard for each way, of 1,200 good records and a bad one, and one that NaN costs nothing."""
    folder.mkdir()
    for name, bad in BAD.items():
        (folder / f"{name}.jsonl").write_bytes(JSONL + bad)
    wide = [line[:-1] + b', "note": "%s"}' % LONG[:6_000] for line in LINES]
    (folder / "metadata-beside.jsonl").write_bytes(b"\n".join([*wide, BAD["metadata-beside"]]))
    (folder / "zipped.jsonl.gz").write_bytes(gzip.compress(JSONL + BAD["surrogate"]))
    (folder / "zipped.jsonl.zst").write_bytes(zstd.compress(JSONL + BAD["surrogate"]))
    (folder / "lines.txt").write_bytes(b"\n".join([*map(str.encode, TEXTS), LONG + b"\xff"]))
    values = pa.array([*(text.encode() for text in TEXTS), LONG + b"\xff"], pa.binary())
    table = pa.table({"text": values.view(pa.string()), "noise": [LONG[:4_000] for _ in range(1_201)]})
    pq.write_table(table, folder / "table.parquet", compression="none", use_dictionary=False)
    with pa.ipc.new_file(folder / "table.arrow", table.schema) as writer:
        writer.write_table(table)


def test_a_record_that_is_most_of_a_shard_is_not_tolerated(tmp_path):
    """One record of 1,201, in every format: the shard is quarantined, and screen and gate say what was not read."""
    written(tmp_path / "data")
    (tmp_path / "c.yaml").write_text(
        "splits: {train: {paths: [data], text: text, source: {constant: s}}}\nreader: {text_document: line}\n"
        "stages: {overlap: false, near_dup: false}\n"
    )
    _, manifest = build(tmp_path / "c.yaml", manifest=tmp_path / "m", expect=4)
    states = {row["uri"]: (row["status"], row["reason"]) for row in manifest.table("shards").to_pylist()}
    assert len(states) == len(BAD) + 5
    assert set(states.values()) == {("quarantined", "too_many_bad_records")}


def test_a_number_that_is_not_finite_costs_a_remark(tmp_path):
    """NaN stands beside most of the text: it is read, with what it holds, and the ledger and the screen say so."""
    key = "AKIA" + "IOSFODNN7ABCDEFG"
    lines = [
        *LINES,
        json.dumps({"text": f"aws_access_key_id = {key} " + "word " * 200_000, "n": float("nan")}).encode(),
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    (tmp_path / "c.yaml").write_text("splits: {train: {paths: [a.jsonl], text: text, source: {constant: s}}}\n")
    _, manifest = build(tmp_path / "c.yaml", manifest=tmp_path / "m")
    assert manifest.core.totals.documents == 1_201
    losses = [
        (row["reason"], row["place"], row["records"], row["bytes"]) for row in manifest.table("ledger").to_pylist()
    ]
    assert losses == [("not_finite", "1 record, the first is record 1200", 0, 0)]
    shown, _ = run("show", tmp_path / "m", "--section", "coverage")
    assert "NaN or an infinity outside the text, which is no JSON, was read as null in 1 shard." in " ".join(
        shown.split()
    )


def test_what_is_tolerated_is_said_in_bytes(tmp_path):
    """A bad record within the tolerance: screen and gate say its bytes."""
    (tmp_path / "a.jsonl").write_bytes(JSONL + b'{"text": "\\ud800"}')
    (tmp_path / "c.yaml").write_text("splits: {train: {paths: [a.jsonl], text: text, source: {constant: s}}}\n")
    build(tmp_path / "c.yaml", manifest=tmp_path / "m")
    shown, _ = run("show", tmp_path / "m", "--section", "coverage")
    assert "Left out of every number: 1 bad record in 1 shard, 18 B." in " ".join(shown.split())
