"""The records of a file of lines or of text: good ones become batches of documents, bad ones are counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dataaudit.corpus.batch import BatchBuilder, DocBatch
from dataaudit.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.corpus.readers.part import PartStats, ReadRequest
from dataaudit.corpus.readers.stream import ByteStream

Record = tuple[str, str] | Reason | None
"""(text, source) of a document, or why there is none; None for one that was not asked for."""


def batches(
    request: ReadRequest,
    records: Callable[[ByteStream], Iterator[tuple[Record, int]]],
    losses: LossLog,
    stats: PartStats,
) -> Iterator[DocBatch]:
    """Stream the documents of one part.

    Args:
        request: The part.
        records: From the open file to (record, its bytes) of each record of the part, in order.
        losses: Where bad records are counted.
        stats: Where all are.

    Raises:
        ShardUnreadable: The file is damaged; the place says how many records came before.
    """
    builder = BatchBuilder(request.batch_bytes)
    row = -1
    try:
        with ByteStream(request.path, request.compression, restart=request.part.restart) as stream:
            for row, (record, length) in enumerate(records(stream)):
                stats.records = row + 1
                if isinstance(record, Reason):
                    losses.add(record, row, length)
                elif record is not None and builder.add(record[0], row, record[1], length):
                    yield builder.take()
    except ShardUnreadable as error:
        raise ShardUnreadable(error.reason, f"after {row + 1} records") from None
    if len(builder):
        yield builder.take()
