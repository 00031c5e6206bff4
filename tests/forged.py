"""A hand that edits a manifest's files and makes the pointer fit again: bytes alone, or digests and id too."""

from __future__ import annotations

from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from dataaudit.manifest.canonical import digest_json, digest_table, sorted_table
from dataaudit.manifest.files import file_record, files_below, open_file
from dataaudit.manifest.tables import TABLES


def hold_bytes(folder: Path) -> None:
    """Write the bytes that lie there now into the run, which the id does not cover; of files that are gone the old."""
    pointer = folder / "manifest.json"
    document = orjson.loads(pointer.read_bytes())
    for name in {*document["run"]["files"], *files_below(folder)}:
        if (folder / name).is_file():
            with open_file(folder / name) as file:
                document["run"]["files"][name] = file_record(file).model_dump()
    pointer.write_bytes(orjson.dumps(document))


def rewrite(folder: Path, name: str, how) -> None:
    """Write a changed table in the place of one; the run holds its bytes, the core's digest stays."""
    path = folder / f"{name}.parquet"
    pq.write_table(how(pq.read_table(path)), path)
    hold_bytes(folder)


def forge(folder: Path, tables: dict[str, pa.Table] | None = None, *, core=None) -> str:
    """Put tables in the place of others, change the core, and make digests, id and bytes fit; return the new id."""
    pointer = folder / "manifest.json"
    document = orjson.loads(pointer.read_bytes())
    for name, table in (tables or {}).items():
        ordered = sorted_table(table.cast(TABLES[name].schema), TABLES[name])
        pq.write_table(ordered, folder / f"{name}.parquet", compression="zstd", write_page_checksum=True)
        document["core"]["tables"][name] = {"rows": ordered.num_rows, "digest": digest_table(ordered)}
    if core is not None:
        core(document["core"])
    document["id"] = digest_json(document["core"])
    pointer.write_bytes(orjson.dumps(document))
    hold_bytes(folder)
    return document["id"]
