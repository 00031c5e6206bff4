"""What could be hidden from a build: bad records that are most of a shard, folders that a name hides, floods."""

import gzip
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bad_input import JSONL, LINES, TEXTS, zstd
from made_secrets import with_crc62
from running import build, metric, run

from dataaudit.scan.detectors.patterns import screen

pytestmark = pytest.mark.inputs

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
    (tmp_path / "a.jsonl").write_bytes(JSONL + b'{"text": "\\ud800"}')
    (tmp_path / "c.yaml").write_text("splits: {train: {paths: [a.jsonl], text: text, source: {constant: s}}}\n")
    build(tmp_path / "c.yaml", manifest=tmp_path / "m")
    shown, _ = run("show", tmp_path / "m", "--section", "coverage")
    assert "Left out of every number: 1 bad record in 1 shard, 18 B." in " ".join(shown.split())


def test_two_empty_files_hide_no_folder(tmp_path):
    """Of 7 files none goes unread in silence: the empty ones are shards, and one of them is no Parquet."""
    for name in ("a.jsonl", "b/c.jsonl", "b/d.jsonl", "b/e/f.jsonl", "b/e/g.jsonl", "h/i.jsonl"):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_bytes(JSONL)
    for name in ("b/manifest.json", "b/shards.parquet", "h/state.json", "h/dataset_info.json"):
        (tmp_path / "data" / name).write_bytes(b"")
    for pattern, wanted in (("data", 10), ("data/**", 10), ("data/**/*.jsonl", 6)):
        (tmp_path / "c.yaml").write_text(
            f"splits: {{train: {{paths: ['{pattern}'], text: text, source: {{constant: s}}}}}}"
        )
        _, manifest = build(tmp_path / "c.yaml", manifest=tmp_path / "m", expect=3 if wanted == 10 else 0)
        ledger = manifest.core.ledger.shards
        assert (ledger.planned, ledger.read) == (wanted, wanted - (wanted == 10))
        assert manifest.core.totals.documents == 6 * 1_200


def test_a_flood_of_passwords_hides_no_token(tmp_path):
    """451 kB of passwords before 50 tokens with a checksum: all 50 are counted, and the gate fails."""
    rng = random.Random(1)
    token = with_crc62("ghp_", 30)
    flood = 'password = "hunter2x"\n' * 20_500 + "\n".join(token(rng) for _ in range(50))
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": flood}))
    (tmp_path / "c.yaml").write_text("splits: {train: {paths: [a.jsonl], text: text, source: {constant: s}}}\n")
    _, manifest = build(tmp_path / "c.yaml", manifest=tmp_path / "m")
    assert metric(manifest, "secret_hit_rate", "validated_hits") == 50
    assert metric(manifest, "secret_hit_rate", "reserved") == 20_500  # a placeholder, counted apart
    assert metric(manifest, "secret_hit_rate", "truncated") == 0


KEYS = {"name": "keys", "metric": "secret_hit_rate", "stat": "validated_hits", "unit": "hits", "budget": 0}


def test_what_was_not_searched_to_the_end_is_at_least_what_was_found(tmp_path, monkeypatch):
    """Without a token the rule cannot be evaluated; with one it fails. Gate and screen say why."""
    monkeypatch.setattr(screen, "MAX_CANDIDATES", 100)
    policy = {"policy": "p", "version": "1", "rules": [KEYS, KEYS | {"name": "each", "scope": {"per": "shard"}}]}
    (tmp_path / "p.yaml").write_text(json.dumps(policy))
    (tmp_path / "c.yaml").write_text("splits: {train: {paths: [a.jsonl], text: text, source: {constant: s}}}\n")
    flood = 'password = "hunter2x"\n' * 200
    for text, code, said in (
        (flood, 3, "at least this"),
        (flood + with_crc62("ghp_", 30)(random.Random(1)), 1, "at least"),
    ):
        (tmp_path / "a.jsonl").write_text(json.dumps({"text": text}))
        build(tmp_path / "c.yaml", "--fresh", manifest=tmp_path / "m")
        out, _ = run("gate", tmp_path / "m", "--policy", tmp_path / "p.yaml", expect=code)
        assert said in " ".join(out.split())
        shown, _ = run("show", tmp_path / "m")
        assert "1 document not searched to the end" in " ".join(shown.split())
