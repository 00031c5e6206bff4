"""The signatures that a manifest keeps: the keyed rows of every part, put together for each shard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataaudit.engine.gather import GatheredShard
from dataaudit.engine.partials import DamagedEntryError
from dataaudit.engine.store import PartialStore, write_atomic
from dataaudit.link.keyed import NUM_BYTES, DamagedRowsError, read_keyed
from dataaudit.manifest.canonical import digest_json
from dataaudit.manifest.signatures import digest_signatures, file_name, signature_schema
from dataaudit.manifest.tables import TABLES
from dataaudit.stages.base import Stage
from dataaudit.stages.near_dup import NearDup

_KIND = "signatures"


def collect_signatures(
    shards: Sequence[GatheredShard], stages: Sequence[Stage], store: PartialStore
) -> tuple[pa.Table, dict[str, Path]]:
    """Write the signatures of every shard that was read, if the build keeps them.

    Returns:
        The table `signatures`, and the files to publish by their names in the manifest's folder.

    Raises:
        DamagedEntryError: Keyed rows are absent or damaged.
    """
    stage = next((stage for stage in stages if isinstance(stage, NearDup) and stage.signatures), None)
    rows, files = [], {}
    for shard in shards if stage is not None else ():
        if stage is None or stage.name not in shard.partials:
            continue
        ordinal = shard.planned.shard.ordinal
        table = _of_shard(shard, stage, store)
        key = digest_json([digest_signatures(table), stage.num_perm]).removeprefix("sha256:")
        path = store.path(_KIND, f"{key}.parquet")
        if not path.is_file():
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
            with store.writing():
                write_atomic(path, sink.getvalue().to_pybytes())
        files[file_name(ordinal)] = path
        rows.append({"shard": ordinal, "documents": table.num_rows, "digest": digest_signatures(table)})
    return pa.Table.from_pylist(rows, schema=TABLES["signatures"].schema), files


def _of_shard(shard: GatheredShard, stage: NearDup, store: PartialStore) -> pa.Table:
    schema = signature_schema(stage.num_perm)
    pieces = [schema.empty_table()]
    for part, first_row in zip(shard.planned.parts, shard.first_rows, strict=True):
        key = part.stage_keys[stage.name]
        try:
            table = read_keyed(store.side_path(stage.name, key, "signatures"), 0, NUM_BYTES)
        except DamagedRowsError:
            store.remove(stage.name, key)
            raise DamagedEntryError([f"{stage.name}/{key}"]) from None
        table = table.take(pa.array(np.argsort(table["row"].to_numpy())))
        rows = first_row + table["row"].to_numpy()
        pieces.append(pa.table([rows, table["key"], table["signature"].cast(schema.field(2).type)], schema=schema))
    return pa.concat_tables(pieces).combine_chunks()
