"""The near-duplicate joins at scale: synthetic bands of known clusters and one template, up to clusters.

    python benchmarks/link_scale.py [--documents 1000000 10000000] [--workers 2] [--folder DIR]

Of every ten documents three are in clusters of 2 to 10 that share 8 bands, and one, a tenth of all, shares one
band with all others of its template, and the values of their sketches with a chance of 0.6. Bands and sketches are
written as the scan writes them, in parts of 200,000 documents.
Every pair of a cluster counts as verified, no other does; what comes out is compared with what was put in. Reported
are wall time of each step, the largest memory of a worker, and the exponent of time over documents.
"""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
from common import exponents, options

from dataaudit.manifest.locate import places_of
from dataaudit.metrics.near_dup.candidates import (
    CLASS_MEMBERS,
    CROWDS,
    CUT,
    KEYED_CANDIDATES,
    MEMBERS,
    PAIRS,
    BandJoin,
    CrowdJoin,
    PairJoin,
    SketchJoin,
)
from dataaudit.metrics.near_dup.clusters import Corpus, cluster
from dataaudit.metrics.near_dup.stage import BANDS, SKETCHES, NearDup
from dataaudit.scan.cross_shard.joins import LINK_FILES, JoinFunction
from dataaudit.scan.cross_shard.keyed import NUM_BYTES, key_array, write_keyed

BAND_COUNT, SHARED, PART = 21, 8, 200_000
ROWS_PER_PARTITION = 2_000_000
_U64 = np.uint64


def mixed(values: np.ndarray) -> np.ndarray:
    """Return uint64 hashes of numbers."""
    values = (values ^ (values >> _U64(31))) * _U64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> _U64(29))) * _U64(0xBF58476D1CE4E5B9)
    return np.asarray(values ^ (values >> _U64(32)))


def clusters_of(documents: np.ndarray) -> np.ndarray:
    """Return the cluster of each document, -1 for none: 24 of 80 are in clusters of 2, 3, 4, 5 and 10."""
    place = documents % 80
    ends = np.array([2, 5, 9, 14, 24])
    number = np.searchsorted(ends, place, side="right")
    return np.where(place < 24, documents // 80 * 5 + number, -1)


def write_part(folder: Path, part: int, count: int) -> None:
    """Write the bands of one part."""
    documents = part * PART + np.arange(count, dtype=np.int64)
    numbers = np.repeat(documents, BAND_COUNT).astype(np.uint64)
    bands = np.tile(np.arange(BAND_COUNT, dtype=np.uint64), count)
    keys = mixed(numbers * _U64(64) + bands)
    cluster_of = np.repeat(clusters_of(documents), BAND_COUNT)
    shared = (cluster_of >= 0) & (bands < SHARED)
    keys[shared] = mixed(cluster_of[shared].astype(np.uint64) * _U64(64) + bands[shared] + _U64(1 << 60))
    keys[(numbers % _U64(10) == 9) & (bands == BAND_COUNT - 1)] = 12345
    same = np.repeat(mixed(documents.astype(np.uint64) + _U64(1 << 50)) >> _U64(32), BAND_COUNT).astype(np.uint32)
    rows = np.repeat(np.arange(count, dtype=np.int64), BAND_COUNT)
    write_keyed(folder / f"{part}.bands", [pa.table([key_array(keys), rows, same], schema=BANDS)], BANDS)
    classes = mixed(documents.astype(np.uint64) + _U64(1 << 50)) >> _U64(32)
    of_class = key_array(classes.astype("<u4").byteswap().astype(np.uint64) << _U64(32))
    values = np.random.default_rng(part).integers(0, 256, (count, NearDup().values()), dtype=np.uint8)
    template = (documents % 10 == 9)[:, None] & (np.random.default_rng(part + 1).random(values.shape) < 0.6)
    sketches = pa.array(map(bytes, np.where(template, 7, values).astype(np.uint8)), pa.binary())
    table = pa.table([of_class, np.arange(count, dtype=np.int64), sketches], schema=SKETCHES)
    write_keyed(folder / f"{part}.sketches", [table], SKETCHES)


def run(task: tuple[JoinFunction, list[str], int, int, str, dict[str, pa.Schema]]) -> tuple[dict[str, pa.Table], int]:
    """Run one partition on a worker; return its small tables and the worker's largest memory, bytes."""
    function, paths, start, stop, out, emits = task
    names = [Path(path).name.partition(".")[0] for path in paths]
    shards = [int(name) if name.isdecimal() else -1 for name in names]
    columns = [[os.fsencode(path) for path in paths], shards, [0] * len(paths), [0] * len(paths)]
    files = pa.table([pa.array(c, f.type) for c, f in zip(columns, LINK_FILES, strict=True)], schema=LINK_FILES)
    joined = function(files, start, stop)
    for name, schema in emits.items():
        write_keyed(Path(f"{out}.{name}"), [joined.keyed[name]], schema)
    return dict(joined.tables), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def partitions(rows: int) -> list[tuple[int, int]]:
    """Return ranges of the first byte, as the engine cuts them."""
    number = min(NUM_BYTES, max(1, -(-rows // ROWS_PER_PARTITION)))
    return list(pairwise([NUM_BYTES * index // number for index in range(number + 1)]))


def measure(documents: int, workers: int, folder: Path) -> dict[str, float]:
    """Return seconds of each step, and the largest memory in GB."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    parts = -(-documents // PART)
    seconds, peak = {}, 0
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        list(pool.map(abs, range(workers)))
        start = time.perf_counter()
        sizes = [min(PART, documents - part * PART) for part in range(parts)]
        list(pool.map(write_part, [folder] * parts, range(parts), sizes))
        seconds["write"] = time.perf_counter() - start

        def step(
            name: str, function: JoinFunction, paths: list[str], rows: int, emits: dict[str, pa.Schema]
        ) -> tuple[list[dict[str, pa.Table]], list[str]]:
            nonlocal peak
            start = time.perf_counter()
            tasks = [
                (function, paths, low, high, str(folder / f"{name}{low}"), emits) for low, high in partitions(rows)
            ]
            done = list(pool.map(run, tasks))
            seconds[name] = time.perf_counter() - start
            peak = max(peak, *(memory for _, memory in done))
            return [tables for tables, _ in done], [f"{task[4]}.{kind}" for kind in emits for task in tasks]

        stage, held_out = NearDup(), (False,)
        bands, sketches = ([str(folder / f"{part}.{kind}") for part in range(parts)] for kind in ("bands", "sketches"))
        by_bands = BandJoin(small=stage.small_bucket, met=0, held_out=held_out)
        _, formed = step("bands", by_bands, bands, documents * BAND_COUNT, {"pairs": PAIRS, "crowds": CROWDS})
        crowds = [path for path in formed if path.endswith("crowds")]
        by_class = SketchJoin(values=stage.values(), drawn=())
        _, members = step("sketches", by_class, [*sketches, *crowds], documents * 6, {"members": MEMBERS})
        by_crowds = CrowdJoin(values=stage.values(), held_out=held_out, limits=stage.limits())
        missed, more = step("crowds", by_crowds, members, documents, {"pairs": PAIRS})
        by_pairs = PairJoin(limits=stage.limits(), values=stage.values())
        rows = documents + sum(tables["missed"]["rows"][0].as_py() for tables in missed)
        paired = [path for path in formed if path.endswith("pairs")] + more
        done, _ = step("pairs", by_pairs, paired, rows, {"candidates": KEYED_CANDIDATES})

    start = time.perf_counter()
    candidates = pa.concat_tables([tables["candidates"] for tables in done])
    found = check(candidates, documents, parts)
    seconds["clusters"] = time.perf_counter() - start
    print(f"{documents:,} documents: {candidates.num_rows:,} candidates, {found:,} clusters, all as made")
    print("  " + ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items()), end="")
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"; largest worker {peak / 1e9:.2f} GB, driver {own / 1e9:.2f} GB")
    shutil.rmtree(folder)
    return seconds


def check(candidates: pa.Table, documents: int, parts: int) -> int:
    """Cluster the pairs of clusters and compare with what was made; return how many clusters there are."""
    lefts, rights = candidates["left"].to_numpy(), candidates["right"].to_numpy()
    shard = np.int64(1) << 40
    left, right = (places // shard * PART + places % shard for places in (lefts, rights))
    made = clusters_of(left)
    near = (made >= 0) & (made == clusters_of(right))
    ones = np.full(int(near.sum()), 9, dtype=np.int64)
    edges = pa.table({"left": lefts[near], "right": rights[near], "intersection": ones, "union": ones + 1})
    numbers = np.arange(documents, dtype=np.int64)
    places = places_of(numbers // PART, numbers % PART)
    sources = pa.table({"place": places, "source": pa.array(["s"]).take(pa.array(np.zeros(documents, np.int8)))})
    corpus = Corpus(split_of=np.zeros(parts, dtype=np.int32), held_out=np.array([False]))
    found = cluster(CLASS_MEMBERS.empty_table(), edges, sources, corpus, CUT.empty_table())
    expected = np.bincount(clusters_of(numbers) + 1)[1:]
    assert sorted(found.sizes.tolist()) == sorted(expected[expected > 1].tolist()), "every cluster as it was made"
    return len(found.sizes)


def main() -> None:
    """Measure each size and state the exponent between the first and the last."""
    folder = Path(tempfile.gettempdir()) / "link_scale"
    given = options(__doc__, documents=[1_000_000, 10_000_000], workers=2, folder=(Path, folder))
    costs = []
    for documents in given.documents:
        seconds = measure(documents, given.workers, given.folder)
        costs.append({"documents": documents, "s": sum(seconds.values()) - seconds["write"]})
    if len(costs) > 1:
        print(f"exponent of all joins and clusters: {exponents(costs[0], costs[-1], 'documents', ['s'])['s']}")


if __name__ == "__main__":
    main()
