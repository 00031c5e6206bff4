"""What row groups, record batches and small files cost: the same documents in several forms, whole builds.

    python benchmarks/small_pieces.py TEXTS [--documents 20000] [--forms one-file groups-1 ...] [--rounds 1]

The text files (`.md`, `.rst`, `.txt`) below TEXTS are cut into documents of about a kilobyte. The same documents are
written as one file, as row groups (Parquet), record batches (Arrow) and files of 1,000, 10 and 1 rows; each form is
built with default stages, one worker and a fresh state folder. The table shows CPU seconds of the command and its
children, beside those of the first form, and what a row group, batch or file costs beyond it, in milliseconds.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from common import build, head, megabytes, options, row, text_files

FORMS = [
    "one-file",
    *(f"{kind}-{size}" for kind in ("groups", "batches", "files", "tables") for size in (1_000, 10, 1)),
]
"""`groups-N` is Parquet with row groups of N rows, `batches-N` an Arrow file with record batches, `files-N` JSON lines
with N documents a file, `tables-N` Parquet files with as many."""
CHARACTERS = 900


def documents(folder: Path, number: int) -> list[str]:
    """Return the first documents of the text files below a folder: paragraphs, joined until they are long enough."""
    found: list[str] = []
    for file in text_files(folder):
        text = ""
        for paragraph in file.split("\n\n"):
            text += paragraph[:CHARACTERS] + "\n\n"
            if len(text) >= CHARACTERS:
                found.append(text)
                text = ""
        if len(found) >= number:
            return found[:number]
    raise SystemExit(f"only {len(found)} documents below {folder}")


def write(folder: Path, texts: list[str], form: str) -> int:
    """Write the documents in a form; return how many row groups, batches or files that are."""
    folder.mkdir()
    kind, _, size = form.partition("-")
    rows = len(texts) if form == "one-file" else int(size)
    table = pa.table({"text": texts})
    if kind == "groups":
        pq.write_table(table, folder / "a.parquet", row_group_size=rows)
    elif kind == "batches":
        with pa.ipc.new_file(folder / "a.arrow", table.schema) as file:
            file.write_table(table, max_chunksize=rows)
    else:
        for start in range(0, len(texts), rows):
            below = folder / f"{start // rows // 1_000:03d}"
            below.mkdir(exist_ok=True)
            if kind == "tables":
                pq.write_table(table.slice(start, rows), below / f"{start:07d}.parquet")
                continue
            lines = (json.dumps({"text": text}) + "\n" for text in texts[start : start + rows])
            (below / f"{start:07d}.jsonl").write_text("".join(lines), encoding="utf-8")
    return -(-len(texts) // rows)


def main() -> None:
    """Build every form in turn and print the table."""
    folder = Path(tempfile.gettempdir())
    given = options(__doc__, texts=Path, documents=20_000, forms=(str, FORMS, *FORMS), rounds=1, folder=(Path, folder))
    texts = documents(given.texts, given.documents)
    seconds: dict[str, list[float]] = {form: [] for form in given.forms}
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        pieces = {form: write(Path(name, form), texts, form) for form in given.forms}
        write(Path(name, "first"), texts[:10], "files-10")
        for form in ("first", *given.rounds * given.forms):  # the first compiles what later ones find
            with tempfile.TemporaryDirectory(dir=given.folder) as work:
                seconds.setdefault(form, []).append(build(Path(name, form), Path(work)).cpu_s)
    print(f"{len(texts)} documents, {megabytes(texts):.1f} MB of text\n")
    head("form", "pieces", "CPU s", "beside the first", "ms a piece beyond it")
    first = statistics.median(seconds[given.forms[0]])
    for form, number in pieces.items():
        middle = statistics.median(seconds[form])
        more = 1000 * (middle - first) / number
        row(form, number, f"{middle:.1f}", f"{middle / first:.2f}", f"{more:.2f}")


if __name__ == "__main__":
    main()
