"""The signatures that a manifest keeps: the keyed rows of every part, put together for each shard on the workers."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataaudit.atomic import write_synced
from dataaudit.link.joins import Join, Joined
from dataaudit.link.merged import each_listed
from dataaudit.link.step import DamagedEntryError, LinkContext
from dataaudit.manifest.minhash import digest_signatures, file_name, signature_schema
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.near_dup.stage import NearDup

NAME = "signatures"
"""Of the keyed rows, of the table and of the folder."""
_PARQUET = "parquet"
_VERSION = 3
"""Changes with the form of what is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureFiles:
    """Makes the file of signatures of each of some shards."""

    num_perm: int
    """Values of a signature."""

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return their rows of the table `signatures`, and the files, as ``shard`` and ``data``, bytes of Parquet.

        Args:
            files: With the rows ``signatures`` of some shards, those of a shard one after the other.
            start: First value of the key's first byte.
            stop: Value after the last.

        Raises:
            DamagedFileError: Files are absent or damaged; it names all of them.
        """
        schema, shards = signature_schema(self.num_perm), dict[int, list[pa.Table]]()
        for shard, first_row, table in each_listed(files, start, stop):
            ordered = table.take(pa.array(np.argsort(table["row"].to_numpy())))
            rows = pa.array(first_row + ordered["row"].to_numpy(), pa.int64())
            signatures = ordered["signature"].cast(schema.field(2).type)
            shards.setdefault(shard, []).append(pa.table([rows, ordered["key"], signatures], schema=schema))
        rows, data = [], []
        for shard, pieces in shards.items():
            table = pa.concat_tables(pieces).combine_chunks()
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
            rows.append({"shard": shard, "documents": table.num_rows, "digest": digest_signatures(table)})
            data.append(sink.getvalue().to_pybytes())
        made = pa.table(
            [pa.array(list(shards), pa.int32()), pa.array(data, pa.large_binary())], names=["shard", "data"]
        )
        return Joined(tables={NAME: pa.Table.from_pylist(rows, schema=TABLES[NAME].schema)}, rows={_PARQUET: made})


def collect_signatures(context: LinkContext) -> tuple[pa.Table, Callable[[Path], None]]:
    """Put the signatures of every shard together in the store.

    Returns:
        The table `signatures`, and what copies the files into the manifest's folder of them.

    Raises:
        ClusterError: The work cannot be done on these workers.
        DamagedEntryError: Keyed rows are absent or damaged.
    """
    stage, store = context.stage, context.store
    assert isinstance(stage, NearDup)
    joined = context.join(
        Join(
            kind="link-near-signatures",
            function=SignatureFiles(num_perm=stage.num_perm),
            identity=[_VERSION, stage.num_perm],
            files=context.files(NAME),
            rows=0,
            by_shard=True,
        )
    )
    kind, keys = joined.kind, joined.keys

    def fill(folder: Path) -> None:
        for key in keys:
            data = store.read_rows(kind, key, _PARQUET)
            if data is None:
                store.remove(kind, key)
                raise DamagedEntryError([f"{kind}/{key}"])
            table = pa.ipc.open_stream(data).read_all()
            for shard, file in zip(table["shard"].to_pylist(), table["data"], strict=True):
                write_synced(folder / os.path.basename(file_name(shard)), file.as_py())

    return joined.table(NAME, TABLES[NAME].schema), fill
