"""Joining exact duplicates, against a slow twin that looks at every pair."""

import os
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.basics import earlier_duplicates

from dataaudit.base.files import DamagedFileError
from dataaudit.manifest.locate import ROW_BITS
from dataaudit.metrics.exact_dup.stage import COUNTS, MEMBERS, link_exact
from dataaudit.scan.cross_shard.joins import LINK_FILES
from dataaudit.scan.cross_shard.keyed import write_keyed

SCHEMA = pa.schema([("key", pa.binary(16)), ("row", pa.int64()), ("source", pa.string())])
KEYS = st.sampled_from([bytes([first]) + bytes(14) + bytes([last]) for first in (0, 7, 128, 255) for last in (0, 1)])
PARTS = st.lists(st.lists(st.tuples(KEYS, st.sampled_from(["web", "code", ""])), max_size=6), min_size=1, max_size=4)
LISTED = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=6)
CUTS = st.lists(st.integers(1, 255), max_size=3)


def write_parts(folder, parts):
    """Write a keyed file for every part, its rows having gaps; return the paths."""
    paths = []
    for number, rows in enumerate(parts):
        paths.append(folder / str(number))
        columns = [[key for key, _ in rows], [2 * row for row in range(len(rows))], [name for _, name in rows]]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        write_keyed(paths[-1], [pa.table(arrays, schema=SCHEMA)], SCHEMA)
    return paths


def files_of(rows):
    """Return the list of keyed files as the link step takes it."""
    return pa.Table.from_pylist([dict(zip(LINK_FILES.names, row, strict=True)) for row in rows], schema=LINK_FILES)


@given(parts=PARTS, listed=LISTED, cuts=CUTS, order=st.randoms())
def test_duplicates_are_those_of_the_slow_twin(parts, listed, cuts, order, tmp_path_factory):
    """Counts and groups agree for several files, twins, splits, any order of files and any partitions."""
    paths = write_parts(tmp_path_factory.mktemp("parts"), parts)
    shards = [(parts[part % len(parts)], paths[part % len(parts)], held_out) for part, held_out in listed]
    shards.sort(key=lambda item: item[2])  # shards are ordered by split
    rows, documents = [], []
    for ordinal, (held, path, held_out) in enumerate(shards):
        for offset in (0, 1000) if ordinal == 0 else (0,):  # the first shard is of two equal parts
            rows.append((os.fsencode(path), ordinal, int(held_out), offset))
            documents += [(key, (ordinal, offset + 2 * row), name, held_out) for row, (key, name) in enumerate(held)]
    order.shuffle(rows)
    keys, places, splits = ([document[column] for document in documents] for column in (0, 1, 3))
    truth = earlier_duplicates(keys, places, splits)
    duplicates, in_split = Counter(), Counter()
    for (_, (shard, _), name, _), (seen, seen_in_split, _) in zip(documents, truth, strict=True):
        duplicates[shard, name] += seen
        in_split[shard, name] += seen_in_split
    grouped = Counter(first for _, _, first in truth)
    members = {
        (*places[first], *place) for place, (_, _, first) in zip(places, truth, strict=True) if grouped[first] > 1
    }
    found = Counter()
    seen_members = []
    for start, stop in zip([0, *sorted(set(cuts))], [*sorted(set(cuts)), 256], strict=True):
        linked = link_exact(files_of(rows), start, stop)
        assert (linked.tables["counts"].schema, linked.tables["members"].schema) == (COUNTS, MEMBERS)
        for row in linked.tables["counts"].to_pylist():
            found[row["shard"], row["source"], "all"] += row["duplicates"]
            found[row["shard"], row["source"], "split"] += row["duplicates_in_split"]
        seen_members += [
            (*divmod(row["first"], 1 << ROW_BITS), *divmod(row["place"], 1 << ROW_BITS))
            for row in linked.tables["members"].to_pylist()
        ]
    expected = Counter({(*key, "all"): value for key, value in duplicates.items()})
    expected.update({(*key, "split"): value for key, value in in_split.items()})
    assert +found == +expected
    assert len(seen_members) == len(set(seen_members))
    assert set(seen_members) == members


def test_no_files_and_no_rows(tmp_path):
    (path,) = write_parts(tmp_path, [[]])
    for rows in ([], [(os.fsencode(path), 0, 0, 0)]):
        linked = link_exact(files_of(rows), 0, 256)
        assert (linked.tables["counts"].num_rows, linked.tables["members"].num_rows) == (0, 0)
        assert (linked.tables["counts"].schema, linked.tables["members"].schema) == (COUNTS, MEMBERS)


def test_every_damaged_file_is_named(tmp_path):
    paths = write_parts(tmp_path, [[(bytes(16), "s")]] * 4)
    paths[1].write_bytes(paths[1].read_bytes()[:-1])
    paths[3].unlink()
    with pytest.raises(DamagedFileError) as caught:
        link_exact(files_of([(os.fsencode(path), number, 0, 0) for number, path in enumerate(paths)]), 0, 256)
    assert caught.value.paths == (str(paths[1]), str(paths[3]))


def test_a_folder_whose_name_is_not_unicode(tmp_path):
    folder = tmp_path / os.fsdecode(b"state-\xff")
    folder.mkdir()
    (path,) = write_parts(folder, [[(bytes(16), "s"), (bytes(16), "s")]])
    linked = link_exact(files_of([(os.fsencode(path), 0, 0, 0)]), 0, 256)
    assert linked.tables["counts"].to_pylist() == [
        {"shard": 0, "source": "s", "duplicates": 1, "duplicates_in_split": 1}
    ]
