"""Corpora that the end-to-end tests make: real text of the standard library in every format that is read."""

import bz2
import gzip
import json
import lzma
import random
import sys
import sysconfig
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
from tokenizers import Tokenizer, models, pre_tokenizers

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CONFIG = """
dataset: {name: tiny, version: 1.0.0}
splits:
  train: {paths: ["data/train/*"], text: text, source: {column: source}}
  val: {paths: ["data/val/*"], text: text, source: {column: source}, held_out: true}
"""
COMPRESS = {".gz": gzip.compress, ".zst": zstd.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def documents(count, *, seed=0, size=1500):
    """Return `count` documents cut from the standard library's source, some of them alike."""
    rng = random.Random(seed)
    text = "".join(
        path.read_text("utf-8", "replace") for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:60]
    )
    made = []
    for number in range(count):
        if made and rng.random() < 0.1:
            made.append(rng.choice(made) + " " * rng.randrange(3))
            continue
        start = rng.randrange(len(text) - size)
        made.append(f"{number} \u00fc\u4e2d {text[start : start + rng.randrange(size)]}")
    return made


def words(rng, size):
    """Return random words, of which no two are the same by chance."""
    return ["".join(rng.choices(LETTERS, k=5)) for _ in range(size)]


def question(name):
    """Return a question of 25 words that no other text has."""
    rng = random.Random(name)
    return f"How many {' '.join(words(rng, 20))} were there in {rng.randrange(100, 999)}?"


def rows(texts, source):
    """Return records of `texts`, from two sources."""
    return [{"text": text, "source": f"{source}{number % 2}"} for number, text in enumerate(texts)]


def write_jsonl(path, records):
    """Write records as JSON lines, compressed as the suffix says."""
    data = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    elif path.suffix == ".zst":
        data = zstd.compress(data)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def write_ipc(path, table, *, stream, compression=None, size=50):
    """Write an Arrow file or stream with batches of so many rows."""
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as sink:
        writer = (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, table.schema, options=options)
        writer.write_table(table, max_chunksize=size)
        writer.close()


def write_every_format(folder, records):
    """Write the same records as lines, compressed in one member or several, as Parquet, and as Arrow of every form."""
    folder.mkdir()
    table = pa.Table.from_pylist(records)
    lines = b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)
    (folder / "a.jsonl").write_bytes(lines)
    for suffix, compress in COMPRESS.items():
        (folder / f"a.jsonl{suffix}").write_bytes(compress(lines))
        (folder / f"members.jsonl{suffix}").write_bytes(in_members(lines, compress, 7))
    pq.write_table(table, folder / "a.parquet", row_group_size=70)
    write_ipc(folder / "a.arrow", table, stream=False)
    write_ipc(folder / "zstd.ipc", table, stream=False, compression="zstd")
    write_ipc(folder / "a.arrows", table, stream=True)
    write_ipc(folder / "lz4.arrows", table, stream=True, compression="lz4")
    pyarrow.feather.write_feather(table, folder / "a.feather")


def in_members(data, compress, number):
    """Return data as so many members that meet anywhere."""
    size = -(-len(data) // number)
    return b"".join(compress(data[start : start + size]) for start in range(0, len(data), size))


def write_parquet(path, records, *, row_group_size=100):
    """Write records as Parquet with several row groups."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(records), path, row_group_size=row_group_size, write_page_checksum=True)


def write_corpus(root, *, per_shard=300, shards=2):
    """Write a corpus of two splits in all formats; return its root."""
    makers = {".jsonl": write_jsonl, ".jsonl.gz": write_jsonl, ".jsonl.zst": write_jsonl, ".parquet": write_parquet}
    seed = 0
    for split in ("train", "val"):
        for suffix, make in makers.items():
            for number in range(shards if split == "train" else 1):
                seed += 1
                texts = documents(per_shard, seed=seed % 5)
                make(root / split / f"part-{number}{suffix}", rows(texts, suffix.strip(".")))
    return root


def write_slow_tokenizer(path):
    """Write a tokenizer that the fast encoder does not know, so that a scan takes a while."""
    pieces = [*LETTERS, *("##" + letter for letter in LETTERS), "[UNK]"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    path.write_text(tokenizer.to_str(), encoding="utf-8")
    return path


def write_slow_corpus(root, *, per_shard):
    """Write a corpus in all formats whose scan takes some seconds, and its config."""
    write_corpus(root / "data", per_shard=per_shard)
    write_slow_tokenizer(root / "tokenizer.json")
    config = f"{CONFIG}tokenizer: tokenizer.json\nreader: {{part_bytes: 100000}}\n"
    (root / "config.yaml").write_text(config, encoding="utf-8")
