"""The pieces of repeated spans: listings, coverage, the floor, the index, and what is damaged."""

import hashlib
import os
from collections import Counter
from functools import partial
from itertools import pairwise

import made_manifest
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lanes import thinned
from repeats_made import batch_of, spell

from dataaudit.base.errors import ManifestError, ManifestMismatch
from dataaudit.base.files import DamagedFileError
from dataaudit.manifest.locate import places_of, rows_of
from dataaudit.metrics.repeats import runs as by_file
from dataaudit.metrics.repeats.hotspots import PATHS, SEEDS, Round
from dataaudit.metrics.repeats.index import FOLDER, INDEX_ROWS, RepeatIndex, link_index, write_index
from dataaudit.metrics.repeats.matching import SavedSearch, Search, link_members, link_reaches
from dataaudit.metrics.repeats.runs import (
    HISTOGRAM,
    RUN_ROWS,
    by_place,
    choose_floor,
    file_numbers,
    link_hosts,
    link_runs,
    listing_of,
    merged,
)
from dataaudit.metrics.repeats.stage import FINGERPRINT_ROWS, FINGERPRINTS, Repeats
from dataaudit.metrics.repeats.windows import (
    FREQUENT_ROWS,
    OCCURRENCE_ROWS,
    WINDOW_ROWS,
    link_fingerprints,
    link_ranges,
    link_windows,
)
from dataaudit.scan.cross_shard.joins import LINK_FILES
from dataaudit.scan.cross_shard.keyed import write_keyed

JOINS = {
    "fingerprints": (partial(link_fingerprints, min_documents=2), FINGERPRINT_ROWS),
    "ranges": (link_ranges, FREQUENT_ROWS),
    "windows": (partial(link_windows, min_documents=2), WINDOW_ROWS),
    "runs": (link_runs, OCCURRENCE_ROWS),
    "hosts": (partial(link_hosts, floor=2), RUN_ROWS),
    "index": (link_index, FINGERPRINT_ROWS),
}


def files_of(*rows):
    """Return the list of keyed files as joins take it, of (path, shard, first row)."""
    listed = [(os.fsencode(path), shard, 0, first) for path, shard, first in rows]
    return pa.Table.from_pylist([dict(zip(LINK_FILES.names, row, strict=True)) for row in listed], schema=LINK_FILES)


@pytest.mark.parametrize("name", JOINS)
def test_every_damaged_file_is_named(tmp_path, name):
    function, schema = JOINS[name]
    paths = [tmp_path / str(number) for number in range(4)]
    for path in paths:
        values = [bytes(schema.field(0).type.byte_width), *([0] * (len(schema) - 1))]
        arrays = [pa.array([value], field.type) for value, field in zip(values, schema, strict=True)]
        write_keyed(path, [pa.table(arrays, schema=schema)], schema)
    paths[1].write_bytes(paths[1].read_bytes()[:-100])
    paths[3].unlink()
    with pytest.raises(DamagedFileError) as caught:
        function(files_of(*((path, number, 0) for number, path in enumerate(paths))), 0, 256)
    assert caught.value.paths == (str(paths[1]), str(paths[3]))


@pytest.mark.parametrize("name", JOINS)
def test_no_rows_are_no_failure(tmp_path, name):
    function, schema = JOINS[name]
    write_keyed(tmp_path / "none", [], schema)
    for files in (files_of(), files_of((tmp_path / "none", 0, 0))):
        joined = function(files, 0, 256)
        assert all(table.num_rows == 0 for name, table in {**joined.tables, **joined.keyed}.items() if name != "counts")


@pytest.mark.parametrize("rows", [1, 7, 65536])
def test_tables_hold_whole_files_in_order_and_no_more_than_they_must(tmp_path, monkeypatch, rows):
    """However many rows a table may have: small files share one, and no file is cut."""
    monkeypatch.setattr(by_file, "_ROWS", rows)
    rng = np.random.default_rng(5)
    numbers, own = np.sort(rng.integers(0, 600, 900)), rng.integers(0, 1 << 40, 900)
    schema, partitions = pa.schema([("key", by_file.FILE_KEY), ("row", pa.int64())]), []
    for place in range(3):
        table = pa.table([by_file.file_keys(numbers[place::3]), own[place::3]], schema=schema)
        partitions.append((tmp_path / str(place), place, 0))
        write_keyed(tmp_path / str(place), [table], schema)
    tables = [*by_file.tables_by_file(files_of(*partitions), 0, 256)]
    found = [table["document"].to_pylist() for table in tables]
    assert sorted(document for documents in found for document in documents) == sorted(places_of(numbers, own).tolist())
    files = [{document >> 40 for document in documents} for documents in found]
    assert all(max(before) < min(after) for before, after in pairwise(files))
    sizes = Counter(numbers.tolist())
    assert all(sum(sizes[file] for file in own) < rows + max(sizes.values()) for own in files)
    assert len(tables) <= 900 // rows + 1


@pytest.mark.parametrize("join", [link_reaches, link_members])
@pytest.mark.parametrize("harm", ["absent", "cut", "flipped"])
def test_a_damaged_search_is_named(tmp_path, join, harm):
    firsts = pa.table({name: pa.array([], pa.int64()) for name in ("document", "start", "windows")})
    empty = Round(PATHS.empty_table(), SEEDS.empty_table())
    data = Search(empty, firsts, pa.table({"times": pa.array([1], pa.int64())})).packed()
    path = tmp_path / "search"
    saved = SavedSearch(os.fsencode(path), hashlib.sha256(data).hexdigest())
    harmed = {"cut": data[:-8], "flipped": bytes([data[0] ^ 1]) + data[1:]}
    if harm != "absent":
        path.write_bytes(harmed[harm])
    with pytest.raises(DamagedFileError) as caught:
        join(files_of(), 0, 256, floor=2, search=saved)
    assert caught.value.paths == (str(path),)
    path.write_bytes(data)
    assert join(files_of(), 0, 256, floor=2, search=saved).tables


def test_files_are_numbered_by_where_they_are_listed_first():
    files = files_of(("b", 5, 0), ("c", 2, 10), ("a", 2, 3), ("b", 0, 0), ("c", 7, 0), ("b", 9, 9))
    listing = listing_of(files)
    assert listing.paths == ("b", "a", "c")
    assert listing.times.tolist() == [3, 1, 2]


@given(file=st.integers(0, 2**23 - 1), row=st.integers(0, 2**40 - 1))
def test_a_document_has_one_number(file, row):
    number = places_of(file, np.array([row]))
    assert (file_numbers(number).tolist(), rows_of(number).tolist()) == ([file], [row])


@given(places=st.lists(st.tuples(st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**40 - 1]), st.integers(0, 2**32 - 1))))
def test_places_are_sorted_whatever_their_size(places):
    rows, positions = (np.array([place[index] for place in places], dtype=np.int64) for index in range(2))
    order = by_place(rows, positions)
    assert [places[index] for index in order.tolist()] == sorted(places)


SPANS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 9)), max_size=12)


@given(drawn=SPANS)
def test_merged_spans_hold_the_same_words(drawn):
    rows = sorted((document, start, start + size) for document, start, size in drawn)
    columns = (np.array([row[index] for row in rows], dtype=np.int64) for index in range(3))
    found = [tuple(row.values()) for row in merged(*columns).to_pylist()]
    assert {(one, word) for one, start, stop in found for word in range(start, stop)} == {
        (one, word) for one, start, stop in rows for word in range(start, stop)
    }
    assert all(before[0] != after[0] or before[2] < after[1] for before, after in pairwise(found))


@given(
    levels=st.lists(st.tuples(st.integers(2, 12), st.integers(1, 9), st.integers(1, 999)), max_size=8),
    least=st.integers(2, 5),
    most=st.integers(0, 40_000),
)
def test_the_floor_rises_just_enough(levels, least, most):
    levels = [(max(documents, least), runs, windows) for documents, runs, windows in levels]
    table = pa.Table.from_pylist(
        [dict(zip(HISTOGRAM.names, (*level, 0), strict=True)) for level in levels], schema=HISTOGRAM
    )
    kept = {
        floor: sum(800 * runs + 4 * windows for documents, runs, windows in levels if documents >= floor)
        for floor in range(least, 14)
    }
    assert choose_floor(table, least, most) == min(floor for floor, size in kept.items() if size <= most)


def noise(seed, size):
    """Return random numbered words."""
    return np.random.default_rng(seed).integers(0, 17_000, size).tolist()


@pytest.fixture
def indexed(tmp_path):
    """An index of six documents in two shards, the second one listed twice, cut at odd bytes."""
    texts = [noise(number, 400) for number in range(6)]
    texts[5] = texts[0][100:200] + noise(9, 300)
    paths = []
    for part in range(2):
        paths.append(tmp_path / str(part))
        batch = batch_of([spell(text) for text in texts[part::2]])
        write_keyed(paths[-1], [Repeats().emit(batch)[FINGERPRINTS]], FINGERPRINT_ROWS)
    files = files_of((paths[0], 0, 0), (paths[1], 1, 0), (paths[1], 2, 1000))
    sorted_paths = []
    for start, stop in ((0, 77), (77, 78), (78, 256)):
        sorted_paths.append(tmp_path / f"index-{start}")
        write_keyed(sorted_paths[-1], [link_index(files, start, stop).keyed["index"]], INDEX_ROWS)
    made_manifest.make(
        tmp_path / "m", [made_manifest.shard("a")], folders={FOLDER: partial(write_index, paths=sorted_paths)}
    )
    return tmp_path / "m", texts


def test_a_look_up_finds_every_document_and_where(indexed):
    folder, texts = indexed
    index = RepeatIndex(folder)
    quote = texts[0][100:200]
    found = index.look_up(spell(noise(77, 20) + quote + noise(78, 20)))
    assert [(one.shard, one.row) for one in found] == [(0, 0), (1, 4), (2, 1004)]
    for one, begin in zip(found, (100, 0, 0), strict=True):
        assert 20 <= one.start <= 57
        assert 83 <= one.stop <= 120
        assert one.document_start == begin + one.start - 20
    assert index.look_up(spell(noise(79, 500))) == []
    assert index.look_up("") == []
    assert index.look_up(spell(texts[2]))[0].row == 2


@pytest.mark.parametrize("start", range(0, 350, 25))
def test_fifty_words_are_enough(indexed, start):
    folder, texts = indexed
    found = RepeatIndex(folder).look_up(spell(texts[3][start : start + 50]))
    assert {(one.shard, one.row) for one in found} == {(1, 2), (2, 1002)}


@pytest.mark.parametrize("harm", ["no folder", "other kind", "no file", "cut"])
def test_an_index_that_cannot_be_read_is_said(indexed, harm):
    folder, _ = indexed
    pointer = folder / FOLDER / "index.json"
    first = folder / FOLDER / "000.parquet"
    if harm == "no folder":
        folder = folder / "elsewhere"
    elif harm == "other kind":
        pointer.write_text('{"kind": "something else", "version": 1, "files": []}')
    elif harm == "no file":
        first.unlink()
    else:
        first.write_bytes(first.read_bytes()[:-9])
    with pytest.raises(ManifestError, match=r"index of its text|is not the file that was published|no manifest"):
        RepeatIndex(folder)


def test_no_harm_to_a_file_of_the_index_goes_unseen(indexed):
    """A flipped bit at every sampled place, a file in another's place, a cut, a loss: an error that names the file."""
    folder, _ = indexed
    files = sorted((folder / FOLDER).iterdir())
    contents = [path.read_bytes() for path in files]
    harmed = list(zip(files, [*contents[1:], contents[0]], strict=True))
    for path, content in zip(files, contents, strict=True):
        harmed += [(path, content[: len(content) // 2])]
        for place in range(0, len(content), max(1, len(content) // thinned(700, few=40))):
            harmed.append((path, content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :]))
    for path, content in harmed:
        whole = path.read_bytes()
        path.write_bytes(content)
        with pytest.raises(ManifestMismatch, match=path.name):
            RepeatIndex(folder)
        path.write_bytes(whole)
    for path in files:
        path.rename(path.with_suffix(".gone"))
        with pytest.raises(ManifestError, match=f"{path.name}|has no index of its text"):
            RepeatIndex(folder)
        path.with_suffix(".gone").rename(path)
    assert RepeatIndex(folder).look_up("") == []
