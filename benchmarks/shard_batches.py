"""The documents of a folder of shards, for the benchmarks that look at texts without a build."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dataaudit.corpus.batch import DocBatch
from dataaudit.corpus.fields import FieldRule
from dataaudit.corpus.loss import LossLog
from dataaudit.corpus.readers import PartStats, ReadRequest, plan_parts, read_part
from dataaudit.corpus.shards import format_of

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
