"""The sample of a judge: drawn evenly, whatever cut, order or copies there are."""

import os
from collections import Counter
from itertools import pairwise, product

import numpy as np
import pyarrow as pa
import pytest

from dataaudit.manifest.locate import places_of
from dataaudit.scan.cross_shard.joins import LINK_FILES
from dataaudit.scan.cross_shard.keyed import write_keyed
from dataaudit.scan.cross_shard.sampling import DRAWN, OTHER, Frame, SampleJoin, first_of_each, wanted_rows
from dataaudit.scan.stages.groups import MEMBER_ROWS

SOURCES, LANGUAGES = ("books", "web"), ("en",)
FRAME = Frame(
    sources=SOURCES,
    languages=LANGUAGES,
    strata=tuple(sorted(product((0, 1), (*SOURCES, OTHER), (*LANGUAGES, OTHER), (-1, 0, 5)))),
)


def documents(number, *, copies=False):
    """Return (shard, split, row, key, source, language, level) of documents."""
    random = np.random.default_rng(7)
    made = []
    for index in range(number):
        key = b"same key" if copies else random.bytes(8)
        source = ("books", "web", "rare", "scarce")[index % 4]
        made.append(
            (index % 3, index % 2, index // 3, key, source, ("en", "de")[index // 7 % 2], (-1, 0, 5)[index % 3])
        )
    return made


def files_of(folder, rows, *, parts=1):
    """Write the keyed rows of every shard, in parts, and list them."""
    listed = []
    for shard, split in sorted({row[:2] for row in rows}):
        own = sorted((row for row in rows if row[:2] == (shard, split)), key=lambda row: row[2])
        for part in range(parts):
            own_part = own[len(own) * part // parts : len(own) * (part + 1) // parts]
            first = own_part[0][2] if own_part else 0
            columns = [list(column) for column in zip(*own_part, strict=True)] or [[] for _ in range(7)]
            columns[2] = [row - first for row in columns[2]]
            table = pa.table(dict(zip(MEMBER_ROWS.names, [columns[3], columns[2], *columns[4:]], strict=True)))
            path = folder / f"{parts}-{shard}-{split}-{part}.members"
            write_keyed(path, [table.cast(MEMBER_ROWS)], MEMBER_ROWS)
            listed.append((os.fsencode(path), shard, split, first))
    names = ("path", "shard", "split", "first_row")
    return pa.table(dict(zip(names, zip(*listed, strict=True), strict=True))).cast(LINK_FILES)


def drawn(files, counts, *, cuts=(0, 256), seed=0, salt=1):
    """Draw from every partition and take the first of each stratum."""
    join = SampleJoin(frame=FRAME, counts=tuple(counts), seed=seed, salt=salt)
    pieces = [join(files, start, stop).tables["drawn"] for start, stop in pairwise(cuts)]
    table = pa.concat_tables(pieces)
    return first_of_each(*(table[name].to_numpy() for name in DRAWN.names), np.array(counts))


def test_any_cut_of_parts_and_partitions_draws_the_same(tmp_path):
    """One part or five, one partition or four: the same documents of the same strata."""
    rows, counts = documents(600), [3] * len(FRAME.strata)
    once = drawn(files_of(tmp_path, rows), counts)
    assert once.equals(drawn(files_of(tmp_path, rows, parts=5), counts, cuts=(0, 3, 64, 200, 256)))
    assert not once.equals(drawn(files_of(tmp_path, rows), counts, seed=1))
    assert not once.equals(drawn(files_of(tmp_path, rows), counts, salt=2))


def test_each_stratum_gets_what_is_wanted_of_it_and_only_its_documents(tmp_path):
    """Rare sources and languages share a stratum; one with too few documents gives all it has."""
    rows = documents(600)
    counts = [index % 5 for index in range(len(FRAME.strata))]
    table = drawn(files_of(tmp_path, rows), counts)
    kinds = {}
    for shard, split, row, _, source, language, level in rows:
        place = int(places_of(np.array([shard]), np.array([row]))[0])
        folded = (split, source if source in SOURCES else OTHER, language if language in LANGUAGES else OTHER, level)
        kinds[place] = FRAME.strata.index(folded)
    sizes = Counter(kinds.values())
    assert [kinds[place] for place in table["place"].to_pylist()] == table["stratum"].to_pylist()
    found = Counter(table["stratum"].to_pylist())
    assert all(found[number] == min(count, sizes[number]) for number, count in enumerate(counts))


def test_a_document_outside_the_frame_is_never_drawn(tmp_path):
    """A level, a language or a split that no stratum holds is left out."""
    rows = [(0, 0, 0, b"12345678", "web", "en", 9), (0, 0, 1, b"22345678", "web", "en", 5)]
    assert drawn(files_of(tmp_path, rows), [5] * len(FRAME.strata))["place"].to_pylist() == [1]


def test_copies_are_drawn_one_by_one(tmp_path):
    """Documents of equal text are not all in or all out: about the share that is wanted of them."""
    rows = [(0, 0, index, b"same key", "web", "en", 0) for index in range(400)]
    counts = [0] * len(FRAME.strata)
    counts[FRAME.strata.index((0, "web", "en", 0))] = 100
    rows_drawn = drawn(files_of(tmp_path, rows), counts)["place"].to_numpy()
    assert len(rows_drawn) == 100
    assert 30 < (rows_drawn < 200).sum() < 70


def test_the_draw_is_even(tmp_path):
    """Over many seeds every document is drawn as often as any other, by a chi-squared bound."""
    rows = [(0, 0, index, index.to_bytes(8, "little"), "web", "en", 0) for index in range(50)]
    files = files_of(tmp_path, rows)
    counts = [0] * len(FRAME.strata)
    counts[FRAME.strata.index((0, "web", "en", 0))] = 10
    times = Counter()
    for seed in range(400):
        times.update(drawn(files, counts, seed=seed)["place"].to_pylist())
    spread = sum((times[index] - 80) ** 2 / (80 * 0.8) for index in range(50))
    assert 20 < spread < 90  # 49 degrees of freedom: 1e-4 to 1 - 1e-4


@pytest.mark.parametrize("counts", [[], [0, 0]])
def test_nothing_wanted_is_nothing_drawn(counts):
    """No strata, or none that is asked for."""
    none = np.zeros(0, dtype=np.int64)
    assert first_of_each(none, none.astype(np.uint64), none, np.array(counts, dtype=np.int64)).num_rows == 0
    assert wanted_rows(none).num_rows == 0
