"""From text to rows with tags: every stretch is the bytes of the document that its tags name, whatever the order."""

import pickle
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_corpus import MadeCorpus
from made_manifest import make, shard

from dataaudit.base.errors import ConfigError, ManifestMismatch
from dataaudit.runlog.format import MERGED, UNUSED
from dataaudit.training.documents import Documents, Encoder, byte_encoder
from dataaudit.training.opening import open_manifest
from dataaudit.training.packing import EPOCH, ROW, SHARD, TARGETS, PackedDocuments, ordered, window_tags
from dataaudit.training.tokenfile import TokenFile, map_path, write_tokens

STRETCHES_READ = 1_000
CONTEXT = 128


def read_back(made, rows, sources, *, inner=False):
    """Read random rows until a thousand stretches were held against the texts."""
    random, found = np.random.default_rng(0), 0
    while found < STRETCHES_READ:
        row = rows[int(random.integers(len(rows)))]
        if not inner:
            assert row["input_ids"][1:].tolist() == row["labels"][:-1].tolist()
        found += made.check(row, sources, inner=inner)[0]


@pytest.mark.parametrize("order", ["shuffled", "interleaved", "sequential"])
@pytest.mark.parametrize("shift", ["outer", "inner"])
def test_a_thousand_random_stretches_are_their_documents(made, documents, order, shift):
    rows = PackedDocuments(documents, CONTEXT, seed=3, epochs=2, order=order, shift=shift)
    read_back(made, rows, documents.corpus.sources, inner=shift == "inner")


def test_a_thousand_random_stretches_of_a_token_file_are_their_documents(made, documents, tmp_path):
    path = write_tokens(documents, tmp_path / "train.bin")
    file = TokenFile(path, documents.corpus, CONTEXT, epochs=2)
    read_back(made, file, documents.corpus.sources)
    random = np.random.default_rng(1)
    starts = random.integers(0, path.stat().st_size // 2 - CONTEXT - 1, 500)
    for start, tags in zip(starts.tolist(), file.tags(starts), strict=True):
        tokens = file.window(start, start + CONTEXT + 1).astype(np.int64)
        made.check({"labels": tokens[1:], "tags": tags}, documents.corpus.sources)


def test_each_epoch_reads_every_token_once(documents):
    rows = PackedDocuments(documents, CONTEXT, seed=1, epochs=2, stretches=64)
    found = {}
    for row in (rows[index] for index in range(len(rows))):
        for tag in row["tags"]:
            if tag[SHARD] >= 0:
                key = (int(tag[EPOCH]), int(tag[SHARD]), int(tag[ROW]))
                found[key] = found.get(key, 0) + int(tag[TARGETS])
    total = int(documents.lengths.sum())
    by_epoch = [sum(size for key, size in found.items() if key[0] == epoch) for epoch in (0, 1)]
    assert by_epoch[0] == total - 1  # the first token of all is no label
    assert total - CONTEXT <= by_epoch[1] <= total
    places = documents.places(range(len(documents)))
    names = [(shard, row) for shard, row, _ in places]
    lengths = dict(zip(names, documents.lengths.tolist(), strict=True))
    short = {key[1:]: size for key, size in found.items() if key[0] == 0 and size != lengths[key[1:]]}
    assert len(short) <= 1


def test_two_epochs_have_orders_of_their_own_and_the_same_seed_the_same(documents):
    one, same = (PackedDocuments(documents, CONTEXT, seed=5, epochs=2).order for _ in range(2))
    assert one.tolist() == same.tolist()
    first, second = one[: len(documents)], one[len(documents) :]
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(len(documents)))
    assert first.tolist() != second.tolist()
    assert one.tolist() != PackedDocuments(documents, CONTEXT, seed=6, epochs=2).order.tolist()


def test_interleaving_reads_some_shards_in_turn(documents):
    order = ordered(documents, seed=0, epoch=0, order="interleaved", open_shards=3)
    shards = np.searchsorted(documents.starts, order, "right") - 1
    assert sorted(order.tolist()) == list(range(len(documents)))
    for place in range(0, len(order), 3):
        unfinished = len(set(shards[place:].tolist()))
        assert len(set(shards[place : place + 3].tolist())) >= min(2, unfinished)
        assert len(set(shards[place : place + 30].tolist())) <= 6
    turns = [len(set(shards[place : place + 3].tolist())) for place in range(0, len(order) // 2, 3)]
    assert np.mean(np.array(turns) == 3) > 0.9
    for one in range(len(documents.shards)):
        mine = order[shards == one]
        assert mine.tolist() == sorted(mine.tolist())


def test_what_is_held_is_replaced_in_place_and_nobody_else_moves(made, documents):
    dropped = (made.uris.index("c.parquet"), 3)
    names = ["train/b.jsonl", f"train/c.parquet:{dropped[1]}"]
    held = Documents(made.open(quarantine=made.hold(*names)), "train", byte_encoder(end=0))
    shards = {index for index, uri in enumerate(made.uris) if uri.startswith("b.jsonl")}
    assert len(shards) == 2  # a list goes by digests, so it holds both listings of the file
    assert len(held) == len(documents)
    for order in ("shuffled", "interleaved"):
        before = ordered(documents, seed=2, epoch=1, order=order, open_shards=2)
        after = ordered(held, seed=2, epoch=1, order=order, open_shards=2)
        moved = before != after
        assert moved.tolist() == held.held[before].tolist()
        assert not held.held[after].any()
        assert 0 < moved.sum() < len(moved)
    for row in (PackedDocuments(held, CONTEXT, seed=2)[index] for index in range(50)):
        made.check(row, held.corpus.sources)
        tags = row["tags"]
        assert not set(tags[:, SHARD].tolist()) & shards
        assert dropped not in {(int(tag[SHARD]), int(tag[ROW])) for tag in tags}


def test_a_token_file_of_before_a_quarantine_replaces_rows_in_place(made, documents, tmp_path):
    path = write_tokens(documents, tmp_path / "train.bin")
    before = TokenFile(path, documents.corpus, CONTEXT, seed=4)
    corpus = made.open(quarantine=made.hold("train/d.arrow"))
    after, shard = TokenFile(path, corpus, CONTEXT, seed=4), made.uris.index("d.arrow")
    holds = np.array([shard in before[index]["tags"][:, SHARD] for index in range(len(before))])
    moved = before.order != after.order
    assert holds.any()
    assert not (holds & ~moved).any()
    assert (moved & ~holds).sum() <= 2  # a row whose first input alone is of the shard
    for index in range(len(after)):
        assert shard not in after[index]["tags"][:, SHARD]


def test_what_does_not_fit_is_merged_and_counted(made, documents):
    rows = PackedDocuments(documents, 1_024, seed=0, stretches=2)
    merged = 0
    for index in range(len(rows)):
        row = rows[index]
        assert made.check(row, documents.corpus.sources)[1] == 1_024
        merged += int(row["tags"][row["tags"][:, SHARD] == MERGED, TARGETS].sum())
    whole = PackedDocuments(documents, 1_024, seed=0, stretches=64)
    tags = np.stack([whole[index]["tags"] for index in range(len(whole))])
    too_many = tags[(tags[..., SHARD] != UNUSED).sum(axis=1) > 2]
    assert merged == too_many[:, 1:, TARGETS].sum() > 0


@pytest.mark.parametrize("shift", ["outer", "inner"])
def test_a_row_has_a_place_for_each_document_of_the_fullest_one(documents, tmp_path, shift):
    """Of packed rows and of a file; rows of few documents have sixteen places, and none has more than 256."""
    path = write_tokens(documents, tmp_path / "t.bin")
    for rows in (
        PackedDocuments(documents, 16_384, shift=shift),
        TokenFile(path, documents.corpus, 16_384, shift=shift),
    ):
        shards = np.stack([rows[index]["tags"][:, SHARD] for index in range(len(rows))])
        assert rows.stretches == (shards != UNUSED).sum(axis=1).max() > 16
        assert not (shards == MERGED).any()
    assert PackedDocuments(documents, CONTEXT).stretches == 16
    assert PackedDocuments(documents, int(documents.lengths.sum()) - 1).stretches == 256


def slow_tags(documents, start, stop, stretches, first_target):
    """Return the tags of a window, label by label."""
    owners = [(name, place, number) for number, (name, length) in enumerate(documents) for place in range(length)]
    found = []
    for at in range(start, stop):
        name, place, number = owners[at]
        if not found or found[-1][0] != number:
            found.append([number, name, at - start, place, 0])
        found[-1][4] += at >= first_target
    rows = [[*name, begin, place, targets] for _, name, begin, place, targets in found]
    if len(rows) > stretches:
        rest = rows[stretches - 1 :]
        rows = [*rows[: stretches - 1], [MERGED, -1, -1, rest[0][3], rest[0][4], 0, sum(one[6] for one in rest)]]
    return rows + [[UNUSED, 0, 0, 0, 0, 0, 0]] * (stretches - len(rows))


@given(st.lists(st.integers(0, 12), min_size=1, max_size=12), st.integers(1, 6), st.data())
def test_tags_of_a_window_are_those_of_its_labels(lengths, stretches, data):
    total = sum(lengths)
    if total == 0:
        return
    start = data.draw(st.integers(0, total - 1))
    stop = data.draw(st.integers(start + 1, total))
    inner = data.draw(st.booleans())
    ends = list(accumulate(lengths))
    begins = [end - length for end, length in zip(ends, lengths, strict=True)]
    places = [(7, number, number % 3, 1) for number in range(len(lengths))]
    first = start + 1 if inner else start
    made = window_tags(begins, ends, places, start, stop, stretches=stretches, first_target=first)
    named = list(zip(places, lengths, strict=True))
    assert made.tolist() == slow_tags(named, start, stop, stretches, first)


def test_a_worker_gets_the_same_rows(documents, tmp_path):
    rows = PackedDocuments(documents, CONTEXT, seed=0)
    again = pickle.loads(pickle.dumps(rows))
    file = TokenFile(write_tokens(documents, tmp_path / "t.bin"), documents.corpus, CONTEXT)
    file[0]
    for one, other in ((rows, again), (file, pickle.loads(pickle.dumps(file)))):
        assert all((one[9][name] == other[9][name]).all() for name in ("input_ids", "labels", "tags"))


def test_documents_are_encoded_once(made, tmp_path):
    calls = []

    def encode(text):
        calls.append(text)
        return np.frombuffer(text.encode(), np.uint8)

    encoder = Encoder(encode=encode, name="counted", vocab=256)
    for _ in range(2):
        Documents(made.open(), "train", encoder, cache=tmp_path)
    once = len({uri.partition("#")[0] for uri in made.uris} - {"twin.jsonl"})
    assert len(list(tmp_path.iterdir())) == once
    assert len(calls) == sum(len(made.truth[uri]) for uri in made.uris if "#" not in uri and uri != "twin.jsonl")
    Documents(made.open(), "train", Encoder(encode=encode, name="another", vocab=256), cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2 * once


@pytest.mark.parametrize("tokens", [[256], [-1], [0.5], [[1]], ["a"]])
def test_what_is_no_token_is_refused(made, tmp_path, tokens):
    encoder = Encoder(encode=lambda _: tokens, name="wrong", vocab=256)
    with pytest.raises(ConfigError, match="gave what are no tokens: expected integers from 0 to 255"):
        Documents(made.open(), "train", encoder, cache=tmp_path)


def test_a_file_with_other_documents_of_the_same_size_is_refused_until_it_is_restored(tmp_path):
    made = MadeCorpus(tmp_path)
    path = tmp_path / "data" / "a.jsonl"
    audited = path.read_bytes()
    path.write_bytes(audited.replace(b'{"text"', b'["text"', 1))
    with pytest.raises(ManifestMismatch, match=r"^train/a.jsonl: other bytes of the same size, as it is encoded"):
        Documents(made.open(), "train", byte_encoder())
    path.write_bytes(audited)
    assert len(Documents(made.open(), "train", byte_encoder())) == made.open().table["documents"].to_numpy().sum()


def test_errors_of_use(made, documents, tmp_path):
    with pytest.raises(ConfigError, match="the split `trian` is not among those that were opened: train"):
        Documents(made.open(), "trian", byte_encoder())
    with pytest.raises(ConfigError, match=r"hold [\d,]+ tokens, a row takes 1,000,001"):
        PackedDocuments(documents, 1_000_000)
    with pytest.raises(ConfigError, match="no order `random`"):
        PackedDocuments(documents, CONTEXT, order="random")
    with pytest.raises(ConfigError, match="cannot be read: "):
        TokenFile(tmp_path / "none.bin", documents.corpus, CONTEXT)
    path = write_tokens(documents, tmp_path / "t.bin")
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(ConfigError, match="its map says"):
        TokenFile(path, documents.corpus, CONTEXT)
    map_path(path).write_bytes(b"PAR1")
    with pytest.raises(ConfigError, match="cannot be read"):
        TokenFile(path, documents.corpus, CONTEXT)
    with pytest.raises(IndexError):
        PackedDocuments(documents, CONTEXT)[10**9]


@pytest.mark.parametrize("wrong", [("start", -1), ("shard", 10**6), ("row", 10**6), ("source", 9), None])
def test_a_damaged_map_is_refused(documents, tmp_path, wrong):
    """A number of its fourth document is another, or it has the first five alone."""
    path = write_tokens(documents, tmp_path / "t.bin")
    table = pq.read_table(map_path(path))
    if wrong is None:
        table = table.slice(0, 5)
    else:
        name, more = wrong
        values = table[name].to_numpy().copy()
        values[3] += more
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(name), pa.array(values, table.schema.field(name).type))
    pq.write_table(table, map_path(path))
    with pytest.raises(ConfigError, match="is damaged: its documents do not follow one another, or are not in"):
        TokenFile(path, documents.corpus, CONTEXT)


@pytest.mark.parametrize("wrong", [{"context": 0}, {"context": 1.5}, {"epochs": 0}, {"stretches": 0}, {"shift": "in"}])
def test_sizes_that_make_no_sense_are_refused(documents, tmp_path, wrong):
    path = write_tokens(documents, tmp_path / "t.bin")
    how = {"context": CONTEXT} | wrong
    for make_rows in (lambda: PackedDocuments(documents, **how), lambda: TokenFile(path, documents.corpus, **how)):
        with pytest.raises(ConfigError, match=f"{next(iter(wrong))}: expected"):
            make_rows()
    with pytest.raises(ConfigError, match="starts: expected int64"):
        TokenFile(path, documents.corpus, CONTEXT).tags(np.array([1.5]))


def test_a_token_file_of_another_manifest_is_refused(documents, tmp_path):
    path = write_tokens(documents, tmp_path / "t.bin")
    (tmp_path / "other").mkdir()
    make(tmp_path / "m", [shard("x.jsonl")], roots=tmp_path / "other")
    (tmp_path / "other" / "x.jsonl").write_bytes(b"x" * 50)
    corpus = open_manifest(tmp_path / "m", require="verified", cache=tmp_path / "cache")
    with pytest.raises(ManifestMismatch, match="holds tokens of the manifest sha256:"):
        TokenFile(path, corpus, CONTEXT)
