"""Bad shards among good ones, and what could be hidden from a build: each is named, the rest is audited."""

import gzip
import json
import random
import shutil
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bad_input import JSONL, LINES, TEXTS, zstd
from corpus import documents, rows, write_jsonl, write_parquet
from lanes import workers
from made_secrets import with_crc62
from running import build, metric, run

from dataaudit.manifest.verify import verify
from dataaudit.scan.detectors.patterns import screen

pytestmark = pytest.mark.inputs

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MB = 1_000_000


def damage(path, *, cut=0, flip=None):
    """Cut bytes off the end of a file, or flip the bits of one byte."""
    data = bytearray(path.read_bytes())
    if flip is not None:
        data[flip] ^= 0xFF
    path.write_bytes(bytes(data[: len(data) - cut]))


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """The manifest of a corpus with one shard of every kind of damage, and its folder."""
    root = tmp_path_factory.mktemp("broken")
    texts = [f"{number} {text}" for number, text in enumerate(documents(400, seed=4))]
    good = rows(texts, "s")
    train = root / "train"
    write_jsonl(train / "good.jsonl", good)
    write_jsonl(train / "truncated.jsonl.zst", good)
    damage(train / "truncated.jsonl.zst", cut=2000)
    write_jsonl(train / "truncated.jsonl.gz", good)
    damage(train / "truncated.jsonl.gz", cut=2000)
    write_parquet(train / "cut.parquet", good)
    damage(train / "cut.parquet", cut=500)
    write_parquet(train / "flipped.parquet", good)
    damage(train / "flipped.parquet", flip=5000)
    write_jsonl(train / "no-text.jsonl", [{"body": text} for text in texts])
    write_parquet(train / "number.parquet", [{"text": number, "source": "s"} for number in range(50)])
    lines = [json.dumps(row).encode() for row in good] * 3
    lines[7] = b'{"text": "\xff\xfe"}'
    (train / "one-bad-line.jsonl").write_bytes(b"\n".join(lines))
    (train / "empty.jsonl").write_bytes(b"")
    (train / "table.csv").write_text("text\nx\n")
    (root / "config.yaml").write_text(
        "splits: {train: {paths: [train], text: text, source: {constant: s}}}\n", encoding="utf-8"
    )
    summary, manifest = build(root / "config.yaml", *workers(2), manifest=root / "m", expect=3)
    return root, summary, manifest


def test_every_bad_shard_is_named_with_its_reason(broken):
    """Status and reason code of every shard are what its damage is."""
    _, _, manifest = broken
    found = {row["uri"]: (row["status"], row["reason"]) for row in manifest.table("shards").to_pylist()}
    assert found == {
        "train/cut.parquet": ("quarantined", "not_parquet"),
        "train/empty.jsonl": ("ok", ""),
        "train/flipped.parquet": ("quarantined", "corrupt_parquet"),
        "train/good.jsonl": ("ok", ""),
        "train/no-text.jsonl": ("quarantined", "too_many_bad_records"),
        "train/number.parquet": ("quarantined", "type_mismatch"),
        "train/one-bad-line.jsonl": ("partial", "invalid_utf8"),
        "train/table.csv": ("skipped", "unknown_format"),
        "train/truncated.jsonl.gz": ("quarantined", "truncated_stream"),
        "train/truncated.jsonl.zst": ("quarantined", "truncated_stream"),
    }


def test_the_good_shards_are_audited(broken):
    """Documents, duplicates and bad records are counted over what was read."""
    _, _, manifest = broken
    assert manifest.core.totals.documents == 400 + 1199
    assert metric(manifest, "exact_dup_rate", "documents") == 1199
    losses = [row for row in manifest.table("ledger").to_pylist() if row["reason"] == "invalid_utf8"]
    assert [(row["place"], row["records"]) for row in losses] == [("record 7", 1)]


def test_the_ledger_balances(broken):
    """Planned bytes are all accounted for, and verify agrees."""
    root, _, manifest = broken
    sizes = {path.name: path.stat().st_size for path in (root / "train").iterdir()}
    ledger = manifest.core.ledger
    assert ledger.shards.planned == len(sizes) == 10
    assert ledger.bytes.planned == sum(sizes.values())
    assert ledger.bytes.skipped == sizes["table.csv"]
    assert ledger.bytes.read == sum(sizes[name] for name in ("good.jsonl", "empty.jsonl", "one-bad-line.jsonl"))
    assert ledger.documents.bad == 1
    unread = ledger.bytes.quarantined + ledger.bytes.skipped
    assert metric(manifest, "coverage_unread_bytes", "bytes") == unread + len(b'{"text": "\xff\xfe"}')
    assert verify(manifest) == []


def test_damage_is_remembered_and_mended_by_content(broken, tmp_path):
    """A rerun reads nothing again; a mended shard is read, and only that one."""
    root, first, _ = broken
    root = shutil.copytree(root, tmp_path / "moved")
    again, _ = build(root / "config.yaml", manifest=root / "m", expect=3)
    assert (again["id"], again["parts_scanned"]) == (first["id"], 0)
    good = (root / "train" / "good.jsonl").read_bytes()
    (root / "train" / "truncated.jsonl.gz").write_bytes(gzip.compress(good, mtime=0))
    mended, manifest = build(root / "config.yaml", manifest=root / "m", expect=3)
    assert mended["parts_scanned"] == 1
    assert manifest.core.totals.documents == 800 + 1199


def test_nothing_to_evaluate_has_its_own_code(tmp_path):
    """A corpus without a document ends with code 4."""
    (tmp_path / "a.jsonl").write_text("\n\n")
    (tmp_path / "c.yaml").write_text("splits: {train: {paths: [a.jsonl], text: text, source: {constant: s}}}")
    _, manifest = build(tmp_path / "c.yaml", manifest=tmp_path / "m", expect=4)
    assert manifest.core.totals.documents == 0
    assert {record.status for record in manifest.metrics("exact_dup_rate", "rate")} == {"not_evaluated"}


def test_no_text_of_a_document_leaves_the_build(tmp_path):
    """A canary in every text, good and bad, is in no byte that is printed or published."""
    canary = "xyzzy-canary-5309"
    lines = [json.dumps({"text": f"{canary} {number}"}) for number in range(300)]
    lines += [f'{{"text": "{canary}', f'{{"text": ["{canary}"]}}', f'"{canary}"', f'{{"text": "{canary} \\ud800"}}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    config = "splits: {train: {paths: [a.jsonl], text: text, source: {constant: s}}}\nreader: {max_bad_records: 0.5}\n"
    (tmp_path / "c.yaml").write_text(config)
    out, err = run("build", tmp_path / "c.yaml", "--manifest", tmp_path / "m")
    shown, _ = run("show", tmp_path / "m")
    seen, _ = run("inspect", tmp_path / "m", "0:3")
    published = b"".join(path.read_bytes() for path in (tmp_path / "m").iterdir())
    state = b"".join(path.read_bytes() for path in (tmp_path / ".dataaudit").rglob("*") if path.is_file())
    assert canary not in out + err + shown + seen
    assert canary.encode() not in published
    assert canary.encode() not in state


@pytest.mark.inputs
@pytest.mark.timeout(400)
def test_a_shard_that_needs_too_much_memory_is_quarantined_by_name(tmp_path):
    """One record of 1.5 GB against workers of 1 GB: that shard is named, the others have their numbers."""
    texts = documents(200, seed=8)
    for name in ("a", "c", "d"):
        write_jsonl(tmp_path / "data" / f"{name}.jsonl", rows(texts, name))
    with zstd.open(tmp_path / "data" / "b.jsonl.zst", "wb") as stream:
        stream.write(b'{"text": "')
        for _ in range(150):
            stream.write(b"a " * 5_000_000)
        stream.write(b'"}\n')
    config = (
        "splits: {train: {paths: [data], text: text, source: {constant: s}}}\nreader: {max_line_bytes: 2000000000}\n"
    )
    (tmp_path / "c.yaml").write_text(config)
    _, manifest = build(
        tmp_path / "c.yaml", "--workers", 2, "--memory-limit", "1GB", manifest=tmp_path / "m", expect=3, timeout=380
    )
    found = {row["uri"]: (row["status"], row["reason"]) for row in manifest.table("shards").to_pylist()}
    assert found.pop("data/b.jsonl.zst") == ("quarantined", "out_of_memory")
    assert set(found.values()) == {("ok", "")}
    assert manifest.core.totals.documents == 600


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
