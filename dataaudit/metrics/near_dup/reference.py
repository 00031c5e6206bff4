"""Near-duplicates of the reference: its stored signatures are joined with this corpus, nothing of it is read again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from dataaudit.kernels.minhash import band_keys
from dataaudit.link.joins import Join, Joined, JoinedParts, KeyedFile, KeyedFiles
from dataaudit.link.keyed import KEYED_VERSION, read_keyed, write_keyed
from dataaudit.link.merged import each_listed
from dataaudit.link.places import distinct, key_array
from dataaudit.link.step import LinkContext, Store
from dataaudit.manifest.canonical import digest_json
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.manifest.minhash import read_signatures, signature_settings
from dataaudit.manifest.places import places_of, shards_of
from dataaudit.metrics.near_dup.bands import PAIRS
from dataaudit.metrics.near_dup.pairs import CANDIDATES, PairJoin
from dataaudit.metrics.near_dup.reference_join import EXACTLY, ReferenceJoin, equal_values
from dataaudit.metrics.near_dup.rows import BANDS
from dataaudit.metrics.near_dup.signatures import NAME as SIGNATURES
from dataaudit.metrics.near_dup.stage import NearDup

_KIND, _WANTED = "near_older", "wanted"
_FOUND = pa.schema([("place", pa.int64()), ("key", pa.binary(16)), ("signature", pa.binary())])
NO_REFERENCE, NO_SIGNATURES, OTHER_SETTINGS = "no_reference", "no_signatures", "other_signatures"


@dataclass(frozen=True, slots=True)
class BestMatches:
    """For each document that shares a band with an older one, its best estimate."""

    places: np.ndarray
    """int64[n], ascending; of equal words the first document stands for all."""
    equal: np.ndarray
    """int64[n] equal values of the two signatures, or :data:`dataaudit.metrics.near_dup.reference_join.EXACTLY`."""


@dataclass(frozen=True, slots=True)
class _Signatures:
    """Signatures of some documents."""

    places: np.ndarray
    """int64[n], ascending."""
    values: np.ndarray
    """uint32[n, num_perm]."""
    classes: np.ndarray
    """bytes[n] of width 16."""


def match_reference(context: LinkContext, documents: int) -> BestMatches | str:
    """Return the best match of each document in the reference, or why there is none.

    Args:
        context: What the family works with.
        documents: Documents of this corpus.

    Raises:
        ClusterError: A join cannot be done on these workers.
        DamagedEntryError: Stored rows are absent or damaged.
        ManifestError: The reference's signatures are damaged.
    """
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
    """Write the bands of the reference's signatures as a scan would have; return the files."""
    bands, rows = stage.bands()
    names = ("shard", "digest")
    digests = dict(zip(*(manifest.table(SIGNATURES)[name].to_pylist() for name in names), strict=True))
    keys = {
        shard: digest_json([digest, bands, rows, KEYED_VERSION]).removeprefix("sha256:")
        for shard, digest in digests.items()
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
    join = ReferenceJoin(small=stage.small_bucket, leaders=stage.leaders)
    bands = stage.bands()[0]

    def run(
        name: str,
        function: ReferenceJoin | PairJoin,
        files: Sequence[KeyedFile],
        rows: int,
        emits: Mapping[str, pa.Schema],
    ) -> JoinedParts:
        return context.join(
            Join(
                kind=f"link-near-{name}",
                function=function,
                identity=[stage.version, asdict(function)],
                files=files,
                rows=rows,
                emits=emits,
            )
        )

    files = KeyedFiles.of(chain(context.files("bands"), older))
    paired = run("older-bands", join, files, documents * bands, {"pairs": PAIRS})
    rows = sum(paired.table("rows", pa.schema([("rows", pa.int64())]))["rows"].to_pylist())
    by_pairs = PairJoin(limits=stage.limits(), values=stage.values())
    return run("older-pairs", by_pairs, paired.files("pairs"), rows, {}).table("candidates", CANDIDATES)


def _older_signatures(manifest: Manifest, places: np.ndarray, num_perm: int) -> _Signatures:
    shards, pieces = frozenset(np.unique(shards_of(places)).tolist()), []
    for shard, table in read_signatures(manifest, shards.__contains__):
        pieces.append(_chosen(table.rename_columns(["row", "key", "signature"]), shard, 0, places))
    return _joined(pieces, places, num_perm)


@dataclass(frozen=True, slots=True)
class WantedSignatures:
    """Finds the signatures of chosen documents among those of some shards."""

    wanted: str
    """Address of the places of the documents, as keyed rows."""

    def __call__(self, files: pa.Table, start: int, stop: int) -> Joined:
        """Return ``found``: place, class and signature of the documents.

        Args:
            files: With the rows ``signatures`` of some shards.
            start: First value of the key's first byte.
            stop: Value after the last.

        Raises:
            DamagedFileError: Files are absent or damaged; it names all of them.
        """
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
    joined = context.join(
        Join(
            kind="link-near-wanted",
            function=WantedSignatures(store.address(_KIND, key, _WANTED)),
            identity=[stage.version, key],
            files=context.files(SIGNATURES),
            rows=0,
            by_shard=True,
        )
    )
    store.remove(_KIND, key)
    found = joined.table("found", _FOUND)
    return _joined([(found["place"].to_numpy(), found)], places, stage.num_perm)


def _chosen(table: pa.Table, shard: int, first_row: int, places: np.ndarray) -> tuple[np.ndarray, pa.Table]:
    """Return the places and rows of those that are wanted."""
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
