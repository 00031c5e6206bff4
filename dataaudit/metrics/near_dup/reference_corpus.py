"""Near-duplicates of the reference's corpus, which is not read again: its stored signatures meet the bands of this one.

The similarity of such a pair can only be estimated: the share of equal values of two signatures is, on average, the
Jaccard similarity, and the number of equal ones is binomial (Broder 1997). So that a later build can do the same,
:func:`collect_signatures` puts this corpus's signatures into files, one for each shard.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataaudit.base.files import write_synced
from dataaudit.manifest.canonical import digest_json
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.locate import places_of, shards_of
from dataaudit.manifest.minhash import (
    digest_signatures,
    file_name,
    read_signatures,
    signature_schema,
    signature_settings,
)
from dataaudit.manifest.tables import TABLES
from dataaudit.metrics.near_dup.candidates import CANDIDATES, PAIRS, BucketRows, PairJoin, bucket_bounds, pairs_table
from dataaudit.metrics.near_dup.stage import BANDS, NearDup
from dataaudit.scan.cross_shard.joins import Joined, KeyedFile, KeyedFiles
from dataaudit.scan.cross_shard.keyed import (
    KEYED_VERSION,
    distinct,
    each_listed,
    key_array,
    named,
    read_keyed,
    read_placed,
    write_keyed,
)
from dataaudit.scan.cross_shard.step import DamagedEntryError, LinkContext, Store
from dataaudit.scan.kernels.intervals import clopper_pearson
from dataaudit.scan.kernels.minhash import band_keys
from dataaudit.scan.kernels.pairing import LATER, form_probe_pairs

CONFIDENCE = 0.95
EXACTLY = -1
"""In place of the number of equal values: the words are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceJoin:
    """Pairs the documents of this corpus with those of the older corpus in the same bucket."""

    small: int
    """Older documents of a bucket up to which all are paired."""
    leaders: int
    """First older documents of a larger bucket that are paired."""

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return the keyed rows ``pairs``; left is the older document."""
        older = BucketRows.of(read_placed(named(files, "older"), BANDS, start, stop))
        rows = BucketRows.of(read_placed(named(files, "bands"), BANDS, start, stop))
        older = older.take(older.first_of_same())
        bounds = bucket_bounds(older.keys)
        heads = bounds[:-1]
        rows = rows.take(np.flatnonzero(np.isin(rows.keys, older.keys[heads])))
        rows = rows.take(rows.first_of_same())
        lefts, rights = form_probe_pairs(
            bounds,
            np.zeros(len(older.keys), dtype=np.int32),
            1,
            np.searchsorted(older.keys[heads], rows.keys),
            small=self.small + 1,
            leaders=self.leaders,
        )
        left, right = older.places[lefts], rows.places[rights]
        once = np.ones(len(left), dtype=np.int16)
        asked = np.full(len(left), LATER, dtype=np.uint8)
        pairs = pairs_table(left, right, bands=once, agreed=np.zeros_like(once), flags=asked)
        return Joined(tables={"rows": pa.table({"rows": pa.array([len(left)], pa.int64())})}, keyed={"pairs": pairs})


def equal_values(left: np.ndarray, right: np.ndarray, lefts: np.ndarray, rights: np.ndarray) -> np.ndarray:
    """Return int64[p], how many values the signatures of each pair share."""
    step = 1 << 16
    counts = [
        (left[lefts[start : start + step]] == right[rights[start : start + step]]).sum(axis=1)
        for start in range(0, len(lefts), step)
    ]
    return np.concatenate([np.zeros(0, dtype=np.int64), *counts])


def decide(counts: np.ndarray, num_perm: int, threshold: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return bool[n] thrice: whether the estimate, its lower and its upper bound reach the threshold."""
    bounds = [clopper_pearson(number, num_perm, CONFIDENCE) for number in range(num_perm + 1)]
    tables = (
        [number / num_perm >= threshold for number in range(num_perm + 1)] + [True],
        [low >= threshold for low, _ in bounds] + [True],
        [high >= threshold for _, high in bounds] + [True],
    )
    near, low, high = (np.array(table)[counts] for table in tables)  # EXACTLY is the last entry
    return near, low & near, high | near


def count_matches(
    places: np.ndarray, counts: np.ndarray, members: pa.Table, splits: np.ndarray, *, num_perm: int, threshold: float
) -> np.ndarray:
    """Return int64[s, 3]: by split, documents near by estimate, by its lower and by its upper bound."""
    matches = np.zeros((int(splits.max(initial=0)) + 1, 3), dtype=np.int64)
    if len(places) == 0:
        return matches
    flags = np.stack(decide(counts, num_perm, threshold), axis=1)
    firsts, others = members["first"].to_numpy(), members["place"].to_numpy()
    later = firsts != others
    at = np.minimum(np.searchsorted(places, firsts[later]), len(places) - 1)
    shared = places[at] == firsts[later]
    np.add.at(matches, splits[shards_of(places)], flags)
    np.add.at(matches, splits[shards_of(others[later][shared])], flags[at[shared]])
    return matches


NAME = "signatures"
"""Name of the keyed rows, of the table and of the folder."""
_PARQUET = "parquet"
_VERSION = 3
"""Of the stored form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureFiles:
    """Makes the file of signatures of each shard."""

    num_perm: int

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return rows of the table ``signatures``, and the files, as ``shard`` and ``data``, bytes of Parquet."""
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
        files_of = pa.table({"shard": pa.array(list(shards), pa.int32()), "data": pa.array(data, pa.large_binary())})
        return Joined(tables={NAME: pa.Table.from_pylist(rows, schema=TABLES[NAME].schema)}, rows={_PARQUET: files_of})


def collect_signatures(context: LinkContext) -> tuple[pa.Table, Callable[[Path], None]]:
    """Return the table ``signatures``, and what fills its folder."""
    stage, store = context.stage, context.store
    assert isinstance(stage, NearDup)
    function, identity = SignatureFiles(num_perm=stage.num_perm), [_VERSION, stage.num_perm]
    joined = context.join("near-signatures", function, context.files(NAME), identity=identity, by_shard=True)
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


_KIND, _WANTED = "near_older", "wanted"
_FOUND = pa.schema([("place", pa.int64()), ("key", pa.binary(16)), ("signature", pa.binary())])
NO_REFERENCE, NO_SIGNATURES, OTHER_SETTINGS = "no_reference", "no_signatures", "other_signatures"


@dataclass(frozen=True, slots=True)
class BestMatches:
    """Documents that share a band with an older document, with their best match."""

    places: np.ndarray
    """int64[n], ascending; of equal words the first document stands for all."""
    equal: np.ndarray
    """int64[n] equal values of the two signatures, or :data:`EXACTLY`."""


@dataclass(frozen=True, slots=True)
class _Signatures:
    """Signatures of documents: int64[n] ascending places, uint32[n, num_perm] values, bytes[n] classes of width 16."""

    places: np.ndarray
    values: np.ndarray
    classes: np.ndarray


def match_reference(context: LinkContext, documents: int) -> BestMatches | str:
    """Return the best match of each document in the reference, or the reason why there is none."""
    stage, folder = context.stage, context.older
    assert isinstance(stage, NearDup)
    if folder is None:
        return NO_REFERENCE
    manifest = load_manifest(folder)
    settings = signature_settings(manifest)
    if settings is None or not stage.signatures:
        return NO_SIGNATURES
    if (settings.num_perm, settings.ngram, settings.version) != (stage.num_perm, stage.ngram, stage.version):
        return OTHER_SETTINGS
    older = _older_bands(manifest, stage, context.store)
    pairs = _candidates(context, stage, older, documents)
    lefts, rights = pairs["left"].to_numpy(), pairs["right"].to_numpy()
    left = _older_signatures(manifest, distinct(lefts), stage.num_perm)
    right = _own_signatures(context, distinct(rights), stage)
    to_left, to_right = np.searchsorted(left.places, lefts), np.searchsorted(right.places, rights)
    equal = equal_values(left.values, right.values, to_left, to_right)
    equal[left.classes[to_left] == right.classes[to_right]] = stage.num_perm + 1
    best = np.zeros(len(right.places), dtype=np.int64)
    np.maximum.at(best, to_right, equal)
    best[best > stage.num_perm] = EXACTLY
    return BestMatches(right.places, best)


def _older_bands(manifest: Manifest, stage: NearDup, store: Store) -> list[KeyedFile]:
    """Write the bands of the reference's signatures as a scan would have written them; return the files."""
    bands, rows = stage.bands()
    table = manifest.table(NAME)
    keys = {
        shard: digest_json([digest, bands, rows, KEYED_VERSION]).removeprefix("sha256:")
        for shard, digest in zip(table["shard"].to_pylist(), table["digest"].to_pylist(), strict=True)
    }  # what was written before is not read
    for shard, table in read_signatures(manifest, lambda shard: not store.has(_KIND, keys[shard])):
        key = keys[shard]
        classes = _matrix(table["class"], 16)
        values = band_keys(_matrix(table["signature"], 4 * stage.num_perm).view("<u4").astype(np.uint32), bands, rows)
        columns = [
            key_array(values.reshape(-1, 8).view(">u8").reshape(-1).astype(np.uint64)),
            np.repeat(table["row"].to_numpy(), bands),
            np.repeat(classes.view("<u4")[:, 0], bands),
        ]
        with store.writing():
            write_keyed(store.side_path(_KIND, key, "older"), [pa.table(columns, schema=BANDS)], BANDS)
        store.write(_KIND, key, {}, {})
    return [KeyedFile(kind=_KIND, key=key, name="older", shard=shard, split=0) for shard, key in keys.items()]


def _matrix(column: pa.ChunkedArray, width: int) -> np.ndarray:
    """Return uint8[n, width] of fixed-size or variable binary values that all have this width."""
    return np.frombuffer(b"".join(column.to_pylist()), dtype=np.uint8).reshape(-1, width)


def _candidates(context: LinkContext, stage: NearDup, older: list[KeyedFile], documents: int) -> pa.Table:
    files = KeyedFiles.of(chain(context.files("bands"), older))
    by_bands = ReferenceJoin(small=stage.small_bucket, leaders=stage.leaders)
    paired = context.join("near-older-bands", by_bands, files, documents * stage.bands()[0], pairs=PAIRS)
    rows = sum(paired.table("rows", pa.schema([("rows", pa.int64())]))["rows"].to_pylist())
    by_pairs = PairJoin(limits=stage.limits(), values=stage.values())
    return context.join("near-older-pairs", by_pairs, paired.files("pairs"), rows).table("candidates", CANDIDATES)


def _older_signatures(manifest: Manifest, places: np.ndarray, num_perm: int) -> _Signatures:
    shards, pieces = frozenset(np.unique(shards_of(places)).tolist()), []
    for shard, table in read_signatures(manifest, shards.__contains__):
        pieces.append(_chosen(table.rename_columns(["row", "key", "signature"]), shard, 0, places))
    return _joined(pieces, places, num_perm)


@dataclass(frozen=True, slots=True)
class WantedSignatures:
    """Reads the signatures of chosen documents."""

    wanted: str
    """Address of their places, as keyed rows."""

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return ``found``: place, class and signature."""
        places = read_keyed(self.wanted, start, stop)["place"].to_numpy()
        pieces = [_FOUND.empty_table()]
        for shard, first_row, table in each_listed(files, start, stop):
            there, rows = _chosen(table, shard, first_row, places)
            pieces.append(pa.table([there, rows["key"], rows["signature"].cast(pa.binary())], schema=_FOUND))
        return Joined(tables={"found": pa.concat_tables(pieces)})


def _own_signatures(context: LinkContext, places: np.ndarray, stage: NearDup) -> _Signatures:
    if len(places) == 0:
        return _joined([], places, stage.num_perm)
    store = context.store
    key = hashlib.sha256(places.astype("<i8").tobytes()).hexdigest()
    wanted = pa.table({"key": key_array(places.astype(np.uint64)), "place": places})
    with store.writing():
        write_keyed(store.side_path(_KIND, key, _WANTED), [wanted], wanted.schema)
    function = WantedSignatures(store.address(_KIND, key, _WANTED))
    joined = context.join("near-wanted", function, context.files(NAME), identity=key, by_shard=True)
    store.remove(_KIND, key)
    found = joined.table("found", _FOUND)
    return _joined([(found["place"].to_numpy(), found)], places, stage.num_perm)


def _chosen(table: pa.Table, shard: int, first_row: int, places: np.ndarray) -> tuple[np.ndarray, pa.Table]:
    """Return the places and rows of wanted documents."""
    there = places_of(np.full(table.num_rows, shard), first_row + table["row"].to_numpy())
    kept = np.flatnonzero(np.isin(there, places))
    return there[kept], table.take(pa.array(kept)).select(["key", "signature"])


def _joined(pieces: list[tuple[np.ndarray, pa.Table]], places: np.ndarray, num_perm: int) -> _Signatures:
    found = np.concatenate([np.zeros(0, dtype=np.int64), *(piece for piece, _ in pieces)])
    order = np.argsort(found)
    assert (found[order] == places).all(), "every document that has bands has a signature"
    values = [_matrix(table["signature"], 4 * num_perm).view("<u4") for _, table in pieces]
    classes = [np.array(table["key"].to_pylist(), dtype="S16") for _, table in pieces]
    return _Signatures(
        places,
        np.concatenate([np.zeros((0, num_perm), dtype="<u4"), *values])[order],
        np.concatenate([np.zeros(0, dtype="S16"), *classes])[order],
    )
