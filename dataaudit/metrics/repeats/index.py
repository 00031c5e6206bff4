"""Text look-up: an index of all fingerprints of a corpus beside its manifest finds the documents that share some text.

A folder of Parquet files, ``000.parquet`` on: ``fingerprint`` uint64, ``shard`` int32, ``row`` int64 and ``word``
uint32 (where the 13 words begin), each file sorted by ``fingerprint`` and holding a range of them, in row groups that a
reader passes over by their least and largest fingerprint. ``index.json`` has the kind, the version and the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataaudit.base.errors import ManifestError
from dataaudit.base.files import sync_file, write_synced
from dataaudit.manifest.files import open_file
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.metrics.repeats.stage import FINGERPRINT_ROWS, KEY_BYTES
from dataaudit.scan.cross_shard.joins import Joined
from dataaudit.scan.cross_shard.keyed import key_matrix, read_keyed, read_placed
from dataaudit.scan.kernels.winnow import GRAM, WINDOW, winnow
from dataaudit.scan.kernels.words import split_words

FOLDER = "repeat_index"
"""In the manifest's folder."""
INDEX_ROWS = pa.schema(
    [("key", pa.binary(KEY_BYTES)), ("row", pa.int64()), ("shard", pa.int32()), ("word", pa.uint32())]
)
COLUMNS = pa.schema([("fingerprint", pa.uint64()), ("shard", pa.int32()), ("row", pa.int64()), ("word", pa.uint32())])
"""Columns of the files of the index."""
_POINTER = "index.json"
_KIND = {"kind": "dataaudit repeat index", "version": 1}
_ROW_GROUP = 1 << 16
_FARTHEST = WINDOW - GRAM
"""Most words between neighbouring fingerprints of a shared span."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A document of the corpus that shares words with a text."""

    shard: int
    """Row of the manifest's table of shards."""
    row: int
    """Record of the shard."""
    start: int
    """First word of the text that is known to be shared."""
    stop: int
    """Word after the last. Of a shared span it is the part from its first to its last fingerprint: up to 37 words
    are missing at either end. At least 13."""
    document_start: int
    """Word of the document that ``start`` is."""


def link_index(files: pa.Table, start: int, stop: int) -> Joined:
    """Return all fingerprints with their shards, keyed rows ``index``; memory is 64 bytes a row of the range."""
    read = read_placed(files, FINGERPRINT_ROWS, start, stop)
    word = pc.add(read.table["position"], pc.cast(read.table["offset"], pa.uint32()))
    columns = [read.table["key"], pa.array(read.rows), pa.array(read.shards), word]
    return Joined(tables={}, keyed={"index": pa.table(columns, schema=INDEX_ROWS)})


def write_index(folder: Path, paths: Sequence[Path]) -> None:
    """Write the index of a corpus."""
    names: list[str] = []
    for path in paths:
        table = read_keyed(path, 0, 256)
        if table.num_rows == 0:
            continue
        matrices = [key_matrix(chunk) for chunk in table["key"].chunks]
        values = np.concatenate([np.zeros((0, KEY_BYTES), np.uint8), *matrices]).view("<u8").reshape(-1)
        columns = pa.table([values.byteswap(), table["shard"], table["row"], table["word"]], schema=COLUMNS)
        order = [(name, "ascending") for name in COLUMNS.names]
        names.append(f"{len(names):03d}.parquet")
        with (folder / names[-1]).open("wb") as handle:
            pq.write_table(columns.sort_by(order), handle, compression="zstd", row_group_size=_ROW_GROUP)
            sync_file(handle)
    write_synced(folder / _POINTER, orjson.dumps(_KIND | {"files": names}, option=orjson.OPT_INDENT_2))


class RepeatIndex:
    """Looks up text.

    Args:
        manifest: Folder of a manifest that was built with ``stages: {repeats: {index: true}}``.

    Raises:
        ManifestError: There is no manifest, it has no index, or one of another version.
        ManifestMismatch: A file of the index is not the one that was published; all of them are read to know.
    """

    def __init__(self, manifest: Path) -> None:
        self._folder, loaded = manifest / FOLDER, load_manifest(manifest)
        try:
            with open_file(self._folder / _POINTER) as file:
                loaded.reader.hold_bytes(f"{FOLDER}/{_POINTER}", file)
                head = orjson.loads(file.read())
            known = {name: head.get(name) for name in _KIND} == _KIND
            self._files = [_open_file(loaded, name) for name in head["files"]] if known else []
        except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException):
            known = False
        if not known:
            raise ManifestError(
                f"{manifest} has no index of its text in {FOLDER}/, or a damaged one, or one of another version",
                "Build it with `stages: {repeats: {index: true}}` in the config.",
            )

    def look_up(self, text: str) -> list[Shared]:
        """Return the documents that may share 50 words in a row with a text, in order.

        Every document of a training split that does is among them (winnowing's guarantee); one that shares 13 to 49
        words in a row may be.
        """
        values = np.frombuffer(text.encode(), dtype=np.uint8)
        words = split_words(values, np.array([0, len(values)], dtype=np.int64))
        own = winnow(words.hashes, words.offsets)
        stored: np.ndarray = own.values.byteswap()  # low byte first, because a selected one's high bits are not even
        order = np.argsort(stored, kind="stable")
        wanted, positions = stored[order], (own.positions.astype(np.int64) + own.offsets)[order]
        rows = pa.concat_tables([COLUMNS.empty_table(), *(file.rows(wanted) for file in self._files)])
        return _spans(rows, wanted, positions)


@dataclass(frozen=True, slots=True)
class _File:
    """A file of the index, with the least and the largest fingerprint of each row group."""

    file: pq.ParquetFile
    low: np.ndarray
    high: np.ndarray

    def rows(self, wanted: np.ndarray) -> pa.Table:
        """Return the rows with a fingerprint of some, which ascend."""
        first, last = np.searchsorted(wanted, self.low), np.searchsorted(wanted, self.high, side="right")
        groups = np.flatnonzero(first < last).tolist()
        if not groups:
            return COLUMNS.empty_table()
        table = self.file.read_row_groups(groups)
        return table.filter(pc.is_in(table["fingerprint"], value_set=pa.array(wanted)))


def _open_file(manifest: Manifest, name: str) -> _File:
    handle = open_file(manifest.folder / FOLDER / name)
    manifest.reader.hold_bytes(f"{FOLDER}/{name}", handle)
    file = pq.ParquetFile(handle)
    groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    assert all(group.num_rows for group in groups)
    low, high = (
        np.array([getattr(group.column(0).statistics, bound) for group in groups], dtype=np.uint64)
        for bound in ("min", "max")
    )
    return _File(file, low, high)


def _spans(rows: pa.Table, wanted: np.ndarray, positions: np.ndarray) -> list[Shared]:
    """Join the matches of a document that are at one distance to those of the text, and follow each other."""
    values = rows["fingerprint"].to_numpy()
    low, high = np.searchsorted(wanted, values), np.searchsorted(wanted, values, side="right")
    match = np.repeat(np.arange(len(values)), high - low)
    index = np.arange(len(match)) + np.repeat(low - np.concatenate([[0], np.cumsum(high - low)])[:-1], high - low)
    position = positions[index]
    shard, row = rows["shard"].to_numpy()[match].astype(np.int64), rows["row"].to_numpy()[match]
    shift = rows["word"].to_numpy()[match].astype(np.int64) - position
    order = np.lexsort((position, shift, row, shard))
    shared: list[Shared] = []
    for own_shard, own_row, distance, start in zip(
        *(column[order].tolist() for column in (shard, row, shift, position)), strict=True
    ):
        last = shared[-1] if shared else None
        if (
            last is not None
            and (last.shard, last.row, last.document_start - last.start) == (own_shard, own_row, distance)
            and start <= last.stop + _FARTHEST
        ):
            shared[-1] = replace(last, stop=start + GRAM)
        else:
            span = Shared(shard=own_shard, row=own_row, start=start, stop=start + GRAM, document_start=start + distance)
            shared.append(span)
    return sorted(shared, key=lambda item: (item.shard, item.row, item.start, item.document_start))
