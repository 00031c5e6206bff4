"""Loaders of torch and `datasets`: every stretch is the bytes of the document that its tags name."""

import pickle

import numpy as np
import pytest
from lanes import sample
from reading import batches, padded, read_back

from dataaudit.base.errors import ConfigError, TagsError
from dataaudit.runlog.format import MERGED, UNUSED
from dataaudit.training.documents import Documents, byte_encoder
from dataaudit.training.loaders.collator import TaggedCollator
from dataaudit.training.loaders.hub import ReplayedStream, tagged_dataset, tagged_stream
from dataaudit.training.loaders.token_tags import tag_tokens, tag_tokens_batched, token_columns
from dataaudit.training.packing import EPOCH, SHARD, TARGETS, PackedDocuments, empty_tags
from dataaudit.training.segment_losses import IGNORED

torch = pytest.importorskip("torch", reason="batches are torch's")
datasets = pytest.importorskip("datasets", reason="its data sets are what is tagged")
from dataaudit.training.loaders.ranks import Passes, StreamedRows, mark_repeats, repeats  # noqa: E402 - after the skip

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more workers than the machine has cores
]
CONTEXT, ROWS = 128, 4


@pytest.fixture(scope="module")
def texts(made):
    """The same documents without an end token: those that text is had of."""
    return Documents(made.open(), "train", byte_encoder())


def padded_left(records):
    return padded(records, left=True)


def flattened(records):
    """Join as padding-free collators do: the first token of each record is no target."""
    ids = [torch.as_tensor(one["input_ids"]) for one in records]
    labels = [torch.cat([torch.tensor([-100]), one[1:]]) for one in ids]
    sizes = torch.tensor([len(one) for one in ids])
    batch = {"input_ids": torch.cat(ids)[None], "labels": torch.cat(labels)[None]}
    batch["position_ids"] = torch.cat([torch.arange(len(one)) for one in ids])[None]
    return batch | {"cu_seq_lens_q": torch.cat([torch.zeros(1), sizes.cumsum(0)]).to(torch.int32)}


def packed(columns):
    """Pack as TRL does: every column that is a list is joined and cut alike, whatever it is."""
    joined = {name: np.concatenate([np.asarray(one) for one in values]) for name, values in columns.items()}
    size = len(joined["input_ids"])
    return {name: [one[at : at + CONTEXT] for at in range(0, size, CONTEXT)] for name, one in joined.items()}


def loader_of(rows, workers, *, persistent=False, collate=None, **more):
    """Return a loader; a second pass of persistent workers is one of the same ones."""
    return torch.utils.data.DataLoader(
        rows, ROWS, num_workers=workers, persistent_workers=persistent, collate_fn=collate, drop_last=True, **more
    )


@pytest.mark.parametrize(
    ("workers", "persistent"), sample([(0, False), (1, False), (2, True), (3, False), (4, True)], 2)
)
def test_rows_are_their_documents_and_the_same_for_any_number_of_workers(made, documents, workers, persistent):
    rows = PackedDocuments(documents, CONTEXT, seed=3)
    plain = batches(loader_of(rows, 0))
    mapped = loader_of(rows, workers, persistent=persistent)
    streamed = loader_of(StreamedRows(rows, ROWS), workers, persistent=persistent)
    for _ in range(1 + persistent):
        assert batches(mapped) == plain
        assert batches(streamed) == plain
    assert len(streamed) == len(plain)
    read_back(made, documents.corpus, mapped, inner=False)
    read_back(made, documents.corpus, streamed, inner=False)


def test_streamed_rows_of_ranks_are_all_batches_once_and_go_on_where_they_were(documents):
    rows = PackedDocuments(documents, CONTEXT)
    plain = batches(loader_of(rows, 0))
    ranks = [batches(loader_of(StreamedRows(rows, ROWS, rank=one, ranks=3), 2)) for one in range(3)]
    assert [ranks[place % 3][place // 3] for place in range(len(plain) // 3 * 3)] == plain[: len(plain) // 3 * 3]
    assert {len(one) for one in ranks} == {len(plain) // 3}
    rest = loader_of(StreamedRows(rows, ROWS, rank=1, ranks=3, first=5), 2)
    assert batches(rest) == ranks[1][5:]
    assert len(rest) == len(ranks[1]) - 5
    for wrong in ({"rank": 3, "ranks": 3}, {"rank": -1}, {"first": -1}, {"batch_size": 0}):
        with pytest.raises(ConfigError):
            StreamedRows(rows, **{"batch_size": ROWS} | wrong)


@pytest.mark.parametrize("collate", [padded, padded_left, flattened])
@pytest.mark.parametrize("workers", sample([2, 0], 2))
def test_documents_that_are_padded_or_joined_are_their_documents(made, documents, tmp_path, collate, workers):
    found = tagged_dataset(documents, order="shuffled", seed=1, cache=tmp_path)
    assert found.column_names == ["input_ids", "shard", "row", "source"]
    full = found.shuffle(seed=2).filter(lambda record: len(record["input_ids"]) < 300)
    read_back(made, documents.corpus, loader_of(full, workers, collate=TaggedCollator(collate)))


@pytest.mark.parametrize("shift", ["inner", "outer"])
def test_packed_rows_of_datasets_are_their_documents(made, texts, tmp_path, shift):
    named = tagged_dataset(texts, content="text", cache=tmp_path)
    assert texts.corpus.tokenizer == ""  # who encodes the texts is not known
    encoded = named.map(lambda record: {"input_ids": [*list(record["text"].encode()), 0]})
    tagged = encoded.map(tag_tokens_batched, batched=True).select_columns(["input_ids", "tag_document", "tag_token"])
    rows = tagged.shuffle(seed=0).map(packed, batched=True, batch_size=100)
    loader = loader_of(
        rows.filter(lambda row: len(row["input_ids"]) == CONTEXT), 2, collate=TaggedCollator(shift=shift)
    )
    read_back(made, texts.corpus, loader, inner=shift == "inner")
    assert next(iter(loader))["input_ids"].shape == (ROWS, CONTEXT - (shift == "outer"))


def mixed(documents, *, buffer=20, exhausted="first_exhausted", **more):
    """Return two streams, the one shuffled by a buffer, interleaved by weights, packed or not."""
    one = tagged_stream(documents, **more).filter(lambda record: record["source"] == 0)
    two = tagged_stream(documents, order="shuffled", seed=4, **more).filter(lambda record: record["source"] == 1)
    if buffer:
        one = one.shuffle(seed=1, buffer_size=buffer)
    return datasets.interleave_datasets([one, two], probabilities=[0.7, 0.3], seed=3, stopping_strategy=exhausted)


def key(record):
    return record["shard"], record["row"], record["source"], record["epoch"]


@pytest.mark.parametrize("workers", [0, 2])
def test_streams_that_are_shuffled_and_interleaved_are_their_documents(made, documents, workers):
    loader = loader_of(mixed(documents), workers, collate=TaggedCollator(padded))
    read_back(made, documents.corpus, loader)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("kind", ["map-style", "streamed", "streamed by parts"])
def test_ranks_that_split_a_data_set_by_node_read_each_document_once(made, documents, tmp_path, kind, ranks):
    """Map-style, streams whose shards are divided, and those whose records are: `parts` that do not divide evenly."""
    split = pytest.importorskip("datasets.distributed").split_dataset_by_node
    if kind == "map-style":
        whole = tagged_dataset(documents, order="shuffled", cache=tmp_path)
    else:
        whole = tagged_stream(documents, order="shuffled", parts=7 if kind == "streamed" else 12)
    met = []
    for rank in range(ranks):
        own = split(whole, rank, ranks)
        met.append([(one["shard"], one["row"]) for one in own])
        read_back(made, documents.corpus, loader_of(own, 0, collate=TaggedCollator(padded)))
    assert sorted(one for own in met for one in own) == sorted((one["shard"], one["row"]) for one in whole)
    assert all(met)
    if kind != "map-style":
        loader = loader_of(split(whole, 1, ranks), 2, collate=TaggedCollator(padded))
        assert len({tuple(tag[:2]) for batch in loader for tag in batch["tags"].reshape(-1, 7).tolist()}) > 10


def test_interleaved_streams_keep_their_weights(documents):
    found = [key(record)[2] for record in mixed(documents, exhausted="all_exhausted", epochs=3)]
    assert 0.6 < np.mean(np.array(found) == 0) < 0.8
    assert {key(record)[3] for record in mixed(documents, buffer=0, epochs=3, exhausted="all_exhausted")} == {0, 1, 2}


@pytest.mark.parametrize("stop", [1, 37, 90])
def test_a_stream_goes_on_in_the_middle_as_if_it_had_not_stopped(documents, stop):
    whole = [key(record) for record in mixed(documents)]
    before = ReplayedStream(mixed(documents))
    head = [key(record) for _, record in zip(range(stop), before, strict=False)]
    after = ReplayedStream(mixed(documents))
    after.load_state_dict(pickle.loads(pickle.dumps(before.state_dict())))
    assert head + [key(record) for record in after] == whole
    plain, rest = mixed(documents, buffer=0), mixed(documents, buffer=0)
    whole = [key(record) for record in mixed(documents, buffer=0)]
    head = [key(record) for _, record in zip(range(stop), plain, strict=False)]
    rest.load_state_dict(plain.state_dict())
    assert head + [key(record) for record in rest] == whole


def test_a_second_pass_of_a_stream_is_another_order_and_goes_on_too(documents):
    stream = ReplayedStream(mixed(documents))
    one, two = ([key(record) for record in stream] for _ in range(2))
    assert one != two
    assert {record[:2] for record in one} & {record[:2] for record in two}
    again = ReplayedStream(mixed(documents))
    again.load_state_dict({"epoch": 1, "records": 50})
    assert [key(record) for record in again] == two[50:]


@pytest.mark.parametrize("streaming", [False, True])
def test_what_is_held_is_replaced_in_the_records(made, documents, tmp_path, streaming):
    names = ["train/b.jsonl", "train/c.parquet:3"]
    held = Documents(made.open(quarantine=made.hold(*names)), "train", byte_encoder(end=0))
    make = tagged_stream if streaming else lambda one: tagged_dataset(one, cache=tmp_path)
    before, after = ([(one["shard"], one["row"]) for one in make(of)] for of in (documents, held))
    assert len(before) == len(after) == len(documents)
    gone = {made.uris.index(name) for name in ("b.jsonl", "b.jsonl#copy=2")}
    out = [one[0] in gone or one == (made.uris.index("c.parquet"), 3) for one in before]
    assert sum(out) > 100
    for was, now, moved in zip(before, after, out, strict=True):
        assert (was != now) == moved
        assert now[0] not in gone


def test_a_map_style_data_set_is_written_once_for_what_decides_it(documents, tmp_path):
    first = tagged_dataset(documents, cache=tmp_path)
    same = tagged_dataset(documents, cache=tmp_path)
    tagged_dataset(documents, cache=tmp_path, order="shuffled")
    assert first[:5] == same[:5]
    assert len(list(tmp_path.glob("*.hf.arrow"))) == 2
    with pytest.raises(ConfigError, match="byte_encoder"):
        tagged_dataset(documents, content="text")


def test_a_collator_that_changes_tokens_is_refused(documents, tmp_path):
    records = list(tagged_dataset(documents, cache=tmp_path).select(range(3)))

    def masked(records):
        batch = padded(records)
        batch["input_ids"][0, 1] ^= 1
        return batch

    def cut(records):
        return {name: value[:, :5] for name, value in padded(records).items()}

    for collate in (masked, cut):
        with pytest.raises(TagsError, match="cut, changed or moved"):
            TaggedCollator(collate)(records)
    with pytest.raises(TagsError, match="has no column shard"):
        TaggedCollator(padded)([{"input_ids": [1, 2]}])
    for record in ({"text": "a", "content": "b"}, {"tags": empty_tags(1, 1)[0], "text": "a"}):
        with pytest.raises(TagsError, match=r"has no column input_ids; it has .*text"):
            TaggedCollator()([record])
    with pytest.raises(TagsError, match="2 tokens, 1 of them tagged"):
        TaggedCollator(padded)([{"input_ids": [1, 2], "tag_document": [1], "tag_token": [1]}])
    with pytest.raises(TagsError, match="Give a collator that pads"):
        TaggedCollator()(records)
    with pytest.raises(ConfigError):
        TaggedCollator(shift="both")


@pytest.mark.parametrize("labels", [[5, 6, 7, 8], [IGNORED, 6, 7, 8], [6, 7, 8, 9]])
def test_labels_of_a_record_that_are_not_shifted_are_refused(labels):
    """They were handed on as they are, a place too late, with tags that began too late or too low."""
    record = {"input_ids": [5, 6, 7, 8], "shard": 0, "row": 3, "source": 0}
    with pytest.raises(TagsError, match="Leave the column `labels` out"):
        TaggedCollator(shift="outer")([{**record, "labels": labels}])
    shifted = TaggedCollator(shift="outer")([{**record, "labels": [6, 7, 8, IGNORED]}])
    made = TaggedCollator(shift="outer")([record])
    assert shifted["tags"].tolist() == made["tags"].tolist()
    assert made["tags"][0, 0].tolist() == [0, 3, 0, 0, 0, 1, 3]


def test_places_that_do_not_suffice_are_merged_and_counted(documents, tmp_path):
    records = list(tagged_dataset(documents, cache=tmp_path).select(range(6)))
    every = TaggedCollator(flattened)(records)["tags"]
    few = TaggedCollator(flattened, stretches=3)(records)["tags"]
    used = every[every[..., SHARD] != UNUSED]
    assert few.shape == (1, 3, 7)
    assert few[0, :2].tolist() == used[:2].tolist()
    assert few[0, 2, SHARD] == MERGED
    assert few[0, 2, TARGETS] == used[2:, TARGETS].sum()


def test_numbers_of_a_token_are_held_to_their_ranges():
    documents, tokens = token_columns(3, shard=5, row=1 << 39, source=-1, epoch=7, offset=9)
    assert (documents >> 40).tolist() == [5] * 3
    assert (tokens & 0xFFFFFFFF).tolist() == [9, 10, 11]
    for wrong in ({"shard": -1}, {"row": 1 << 40}, {"source": 1 << 16}, {"epoch": -1}, {"offset": 1 << 32}):
        with pytest.raises(TagsError):
            token_columns(1, **{"shard": 0, "row": 0, "source": 0} | wrong)
    assert tag_tokens({"input_ids": [1, 2], "shard": 1, "row": 2, "source": 0, "offset": 4})["tag_token"].tolist() == [
        1 << 32 | 4,
        1 << 32 | 5,
    ]


@pytest.mark.parametrize(("rows", "ranks", "size"), [(10, 2, 4), (16, 2, 4), (9, 4, 1), (17, 3, 2), (8, 2, 8)])
@pytest.mark.parametrize("dealt", ["batches", "rows"])
def test_repeats_are_marked_as_samplers_make_them(rows, ranks, size, dealt):
    data, met, marked = list(range(rows)), [], 0
    for rank in range(ranks):
        if dealt == "rows":
            sampler = torch.utils.data.DistributedSampler(data, ranks, rank, shuffle=False)
            loader = torch.utils.data.DataLoader(data, size, sampler=sampler)
        else:
            shard = pytest.importorskip("accelerate.data_loader").BatchSamplerShard
            plain = torch.utils.data.BatchSampler(range(rows), size, drop_last=False)
            loader = torch.utils.data.DataLoader(data, batch_sampler=shard(plain, ranks, rank, even_batches=True))
        passes = Passes(rank, ranks)
        passes.rows, passes.dealt = rows, dealt
        for place, batch in enumerate(loader):
            found = repeats(place, size, rows=rows, rank=rank, ranks=ranks, dealt=dealt)[: len(batch)]
            counted = passes.marked(np.zeros((len(batch), 1, 7), np.int64))
            assert (counted[:, 0, EPOCH] < 0).tolist() == found.tolist()
            met += [one for one, again in zip(batch.tolist(), found, strict=True) if not again]
            marked += int(found.sum())
    assert sorted(met) == data
    assert marked == (-rows % ranks if dealt == "rows" else -rows % (ranks * size))


def test_a_marked_row_tells_its_pass_and_that_it_is_a_repeat():
    tags = np.zeros((2, 2, 7), np.int64)
    tags[..., EPOCH], tags[:, 1, SHARD] = 3, UNUSED
    for kind in (np.asarray, torch.as_tensor):
        found = np.asarray(mark_repeats(kind(tags), np.array([False, True])))
        assert found[..., EPOCH].tolist() == [[3, 3], [-4, 3]]
    assert (tags[..., EPOCH] == 3).all()
    with pytest.raises(ConfigError):
        repeats(0, 1, rows=1, rank=0, ranks=1, dealt="both")
