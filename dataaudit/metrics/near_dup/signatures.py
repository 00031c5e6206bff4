"""The signatures that a manifest keeps: the keyed rows of every part, put together for each shard."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataaudit.atomic import DamagedFileError, write_synced
from dataaudit.link.keyed import NUM_BYTES, read_keyed
from dataaudit.link.step import DamagedEntryError, LinkShard, Store
from dataaudit.manifest.canonical import digest_json
from dataaudit.manifest.minhash import digest_signatures, file_name, signature_schema
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.near_dup.stage import NearDup

_KIND = "signatures"
_PARQUET = "parquet"
_VERSION = 2
"""Changes with the form of what is stored."""


def collect_signatures(
    shards: Iterable[LinkShard], stage: NearDup, store: Store
) -> tuple[pa.Table, Callable[[Path], None]]:
    """Put the signatures of every shard together in the store.

    Returns:
        The table `signatures`, and what copies the files into the manifest's folder of them.

    Raises:
        DamagedEntryError: Keyed rows are absent or damaged.
    """
    rows, files = [], {}
    for shard in shards:
        ordinal = shard.ordinal
        table = _of_shard(shard, stage, store)
        key = digest_json([digest_signatures(table), stage.num_perm, _VERSION]).removeprefix("sha256:")
        if store.side_path(_KIND, key, _PARQUET).exists():
            _read(store, key)
        else:
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
            store.write_rows(_KIND, key, sink.getvalue().to_pybytes(), _PARQUET)
        files[Path(file_name(ordinal)).name] = key
        rows.append({"shard": ordinal, "documents": table.num_rows, "digest": digest_signatures(table)})

    def fill(folder: Path) -> None:
        for name, key in files.items():
            write_synced(folder / name, _read(store, key).to_pybytes())

    return pa.Table.from_pylist(rows, schema=TABLES["signatures"].schema), fill


def _read(store: Store, key: str) -> pa.Buffer:
    data = store.read_rows(_KIND, key, _PARQUET)
    if data is None:
        store.remove(_KIND, key)
        raise DamagedEntryError([f"{_KIND}/{key}"])
    return data


def _of_shard(shard: LinkShard, stage: NearDup, store: Store) -> pa.Table:
    schema = signature_schema(stage.num_perm)
    pieces = [schema.empty_table()]
    for key, first_row in shard.keys(stage.name):
        try:
            table = read_keyed(store.address(stage.name, key, "signatures"), 0, NUM_BYTES)
        except DamagedFileError:
            store.remove(stage.name, key)
            raise DamagedEntryError([f"{stage.name}/{key}"]) from None
        table = table.take(pa.array(np.argsort(table["row"].to_numpy())))
        rows = first_row + table["row"].to_numpy()
        pieces.append(pa.table([rows, table["key"], table["signature"].cast(schema.field(2).type)], schema=schema))
    return pa.concat_tables(pieces).combine_chunks()
