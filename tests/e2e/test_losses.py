"""Bad shards among good ones: each is named with its reason, the rest is audited, and the ledger balances."""

import gzip
import json
import shutil
import sys

import pytest
from corpus import documents, rows, write_jsonl, write_parquet
from lanes import workers
from running import build, metric, run

from dataaudit.manifest.verify import verify

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
