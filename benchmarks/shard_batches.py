"""The documents of a folder of shards, for benchmarks that need no build; and what each way to store them costs one.

    python benchmarks/shard_batches.py TEXTS [--documents 20000] [--forms one-file groups-1 ...] [--rounds 1]

The text files (`.md`, `.rst`, `.txt`) below TEXTS are cut into documents of about a kilobyte. The same documents are
written as one file, as row groups (Parquet), record batches (Arrow) and files of 1,000, 10 and 1 rows; each form is
built with default stages, one worker and a fresh state folder. The table shows CPU seconds of the command and its
children, beside those of the one file, and what a row group, batch or file costs beyond it, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dataaudit.corpus.batch import DocBatch
from dataaudit.corpus.fields import FieldRule
from dataaudit.corpus.loss import LossLog
from dataaudit.corpus.readers import PartStats, ReadRequest, plan_parts, read_part
from dataaudit.corpus.shards import format_of

PROGRAM = str(Path(sys.executable).with_name("dataaudit"))
ONE_FILE = "one-file"
SIZES = (1_000, 10, 1)
FORMS = (ONE_FILE, *(f"{kind}-{size}" for kind in ("groups", "batches", "files", "tables") for size in SIZES))
"""`groups-N` is Parquet with row groups of N rows, `batches-N` an Arrow file with record batches, `files-N` JSON lines
with N documents a file, `tables-N` Parquet files with as many."""
DOCUMENT_CHARACTERS = 900
_BATCH_BYTES = 1 << 22


def shard_batches(folder: Path, source_column: str | None = None) -> Iterator[DocBatch]:
    """Yield the batches of all shards, whose text is in the column ``text``, in the order of their paths."""
    fields = FieldRule(text="text", source_column=source_column, source_constant="all", max_record_bytes=1 << 30)
    for path in sorted(path for path in folder.rglob("*") if format_of(str(path))[0] != "unknown"):
        format_, compression = format_of(str(path))
        for part in plan_parts(str(path), format_, compression, path.stat().st_size, 1 << 60):
            request = ReadRequest(
                path=str(path),
                format=format_,
                compression=compression,
                part=part,
                fields=fields,
                batch_bytes=_BATCH_BYTES,
            )
            yield from read_part(request, LossLog(), PartStats())


def documents(folder: Path, number: int) -> list[str]:
    """Return the first documents of the text files below a folder: paragraphs, joined until they are long enough."""
    found: list[str] = []
    for path in sorted(path for path in folder.rglob("*") if path.suffix in {".md", ".rst", ".txt"} and path.is_file()):
        held = ""
        for paragraph in path.read_text(encoding="utf-8", errors="replace").split("\n\n"):
            held += paragraph[:DOCUMENT_CHARACTERS] + "\n\n"
            if len(held) >= DOCUMENT_CHARACTERS:
                found.append(held)
                held = ""
        if len(found) >= number:
            return found[:number]
    raise SystemExit(f"only {len(found)} documents below {folder}")


def write(folder: Path, texts: list[str], form: str) -> int:
    """Write the documents in one form; return how many row groups, batches or files that are."""
    folder.mkdir()
    kind, _, size = form.partition("-")
    if form == ONE_FILE:
        kind, size = "files", str(len(texts))
    table, rows = pa.table({"text": texts}), int(size)
    if kind == "groups":
        pq.write_table(table, folder / "a.parquet", row_group_size=rows)
    elif kind == "batches":
        with pa.ipc.new_file(folder / "a.arrow", table.schema) as file:
            file.write_table(table, max_chunksize=rows)
    else:
        for start in range(0, len(texts), rows):
            below = folder / f"{start // rows // 1_000:03d}"
            below.mkdir(exist_ok=True)
            if form.startswith("tables"):
                pq.write_table(pa.table({"text": texts[start : start + rows]}), below / f"{start:07d}.parquet")
                continue
            lines = (json.dumps({"text": text}) + "\n" for text in texts[start : start + rows])
            (below / f"{start:07d}.jsonl").write_text("".join(lines), encoding="utf-8")
    return -(-len(texts) // rows)


def cpu_seconds(folder: Path, work: Path) -> float:
    """Build a folder as a user does; return CPU seconds of the command and its children, those of killed ones apart."""
    command = [PROGRAM, "build", str(folder), "--manifest", str(work / "manifest"), "--state", str(work / "state")]
    process = subprocess.Popen([*command, "--workers", "1", "--quiet"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the build ended with code {process.returncode}: {' '.join(command)}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Build every form in turn and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=FORMS)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    given = parser.parse_args()
    texts = documents(given.texts, given.documents)
    size = sum(len(text.encode()) for text in texts) / 1e6
    pieces: dict[str, int] = {}
    seconds: dict[str, list[float]] = {form: [] for form in given.forms}
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        for form in given.forms:
            pieces[form] = write(Path(name, form), texts, form)
        write(Path(name, "first"), texts[:10], "files-10")
        with tempfile.TemporaryDirectory(dir=given.folder) as work:
            cpu_seconds(Path(name, "first"), Path(work))  # compiles what later ones find
        for _ in range(given.rounds):
            for form in given.forms:
                with tempfile.TemporaryDirectory(dir=given.folder) as work:
                    seconds[form].append(cpu_seconds(Path(name, form), Path(work)))
    middle = {form: statistics.median(found) for form, found in seconds.items()}
    first = middle[given.forms[0]]
    print(f"{len(texts)} documents, {size:.1f} MB of text\n")
    print("| form | pieces | CPU s | beside the first | ms a piece beyond it |\n|---|--:|--:|--:|--:|")
    for form, found in middle.items():
        more = 1000 * (found - first) / pieces[form]
        print(f"| {form} | {pieces[form]} | {found:.1f} | {found / first:.2f} | {more:.2f} |")


if __name__ == "__main__":
    main()
