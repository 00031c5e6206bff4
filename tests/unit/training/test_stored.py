"""Files of `streaming` and `litdata`, written and read by these libraries: every stretch is its document's bytes."""

import json
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
from together import run_together

from dataaudit.base.errors import ConfigError, CorpusRefused
from dataaudit.training.documents import Documents, byte_encoder
from dataaudit.training.loaders.collator import TaggedCollator
from dataaudit.training.loaders.stored import write_litdata, write_mds, written_of
from dataaudit.training.packing import SHARD

torch = pytest.importorskip("torch", reason="their readers are torch's data sets")
from reading import batches, padded, read_back  # noqa: E402 - after the skip

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # those of other people's libraries
ROWS = 4


def stand_in_for_pictures():
    """`streaming` imports its readers of pictures, which no text needs: stand in for torchvision where it is not.

    Returns the names of the modules that were made.
    """
    try:
        import_module("torchvision")
    except (ImportError, RuntimeError):
        return _no_pictures()
    return ()


def _no_pictures():
    names = ("torchvision", "torchvision.datasets", "torchvision.transforms", "torchvision.transforms.functional")
    for name in names:
        module = sys.modules[name] = ModuleType(name)
        module.__spec__, module.__path__, module.__version__ = ModuleSpec(name, None), [], "0"
    sys.modules["torchvision.datasets"].VisionDataset = object
    sys.modules["torchvision.transforms.functional"].to_tensor = None
    return names


@pytest.fixture
def mds():
    """The library, alone as far as its shared memory goes."""
    names = stand_in_for_pictures()
    streaming = pytest.importorskip("streaming", reason="its readers are what is tested")
    yield streaming
    streaming.base.util.clean_stale_shared_memory()
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def lit():
    return pytest.importorskip("litdata", reason="its readers are what is tested")


def read_mds(mds, folder, workers=0, **options):
    options = {"local": str(folder), "batch_size": ROWS, "shuffle": True, "shuffle_seed": 3, **options}
    rows = mds.StreamingDataset(**options)
    return mds.StreamingDataLoader(rows, batch_size=ROWS, num_workers=workers, collate_fn=TaggedCollator(padded))


@pytest.mark.parametrize("workers", [0, 2])
def test_records_of_mds_are_their_documents(mds, made, documents, tmp_path, workers):
    folder = write_mds(documents, tmp_path / "mds", size_limit=1 << 14, compression="zstd")
    assert len(list(folder.glob("shard.*"))) > 3
    read_back(made, documents.corpus, read_mds(mds, written_of(folder, documents.corpus), workers))


def test_a_run_on_mds_goes_on_in_the_middle(mds, documents, tmp_path):
    folder = write_mds(documents, tmp_path / "mds", size_limit=1 << 14)
    loader = read_mds(mds, folder)
    whole = batches(loader)
    first, state = [], None
    mds.base.util.clean_stale_shared_memory()
    for batch in (loader := read_mds(mds, folder)):
        first += batches([batch])
        state = loader.state_dict()
        if len(first) == 3:
            break
    mds.base.util.clean_stale_shared_memory()
    again = read_mds(mds, folder)
    again.load_state_dict(state)
    assert first + batches(again) == whole


@pytest.mark.parametrize("workers", [0, 2])
def test_records_of_litdata_are_their_documents(lit, made, documents, tmp_path, workers):
    folder = write_litdata(documents, tmp_path / "lit", chunk_bytes=1 << 14)
    assert len(list(folder.glob("*.bin"))) > 3
    rows = lit.StreamingDataset(str(written_of(folder, documents.corpus)), shuffle=True, seed=3)
    collate = TaggedCollator(padded)
    read_back(
        made, documents.corpus, lit.StreamingDataLoader(rows, batch_size=ROWS, num_workers=workers, collate_fn=collate)
    )


def test_a_run_on_litdata_goes_on_in_the_middle(lit, documents, tmp_path):
    folder = write_litdata(documents, tmp_path / "lit", chunk_bytes=1 << 14)

    def loader():
        rows = lit.StreamingDataset(str(folder), shuffle=True, seed=3)
        return lit.StreamingDataLoader(rows, batch_size=ROWS, num_workers=0, collate_fn=TaggedCollator(padded))

    whole = batches(loader())
    first, part = [], loader()
    for batch in part:
        first += batches([batch])
        if len(first) == 3:
            break
    again = loader()
    again.load_state_dict(part.state_dict())
    assert first + batches(again) == whole


def read_by_two(made, kind, folder, out):
    """Have two processes read a folder together; return what each met, its tokens held against the documents."""
    run_together("stored_run.py", 2, kind, folder, out)
    met = [json.loads((out / f"met-{rank}.json").read_bytes()) for rank in range(2)]
    for shard, row, tokens in met[0] + met[1]:
        text = made.text(shard, row)[0].encode() + b"\0"
        assert bytes(tokens) == text
    return [[tuple(one[:2]) for one in own] for own in met]


def test_two_ranks_read_mds_together(mds, made, documents, tmp_path):
    """Each about half; every document is met, and few twice, so that both have as many."""
    folder = write_mds(documents, tmp_path / "mds", size_limit=1 << 14)
    met = read_by_two(made, "mds", folder, tmp_path)
    whole = set(zip(*documents_of(documents), strict=True))
    assert set(met[0]) | set(met[1]) == whole
    assert len(met[0]) == len(met[1])
    assert len(met[0]) + len(met[1]) - len(whole) < 2 * ROWS


def test_two_ranks_read_litdata_together(lit, made, documents, tmp_path):
    """Each about half; none is met twice, and few not at all, so that both have as many."""
    folder = write_litdata(documents, tmp_path / "lit", chunk_bytes=1 << 14)
    met = read_by_two(made, "lit", folder, tmp_path)
    whole = set(zip(*documents_of(documents), strict=True))
    assert not set(met[0]) & set(met[1])
    assert len(met[0]) == len(set(met[0])) == len(met[1]) == len(set(met[1]))
    assert set(met[0]) | set(met[1]) <= whole
    assert len(whole) - len(met[0]) - len(met[1]) < 2 * ROWS


def documents_of(documents):
    """Return shards and rows of all documents."""
    places = documents.places(range(len(documents)))
    return [one[0] for one in places], [one[1] for one in places]


def test_what_is_held_is_not_in_the_files_and_another_list_is_refused(mds, made, documents, tmp_path):
    held = made.hold("train/d.arrow")
    corpus = made.open(quarantine=held)
    folder = write_mds(Documents(corpus, "train", byte_encoder(end=0)), tmp_path / "mds")
    out = next(index for index, uri in enumerate(made.uris) if uri.endswith("d.arrow"))
    met = {shard for batch in read_mds(mds, folder) for shard in batch["tags"][..., SHARD].flatten().tolist()}
    assert len(met) > 2
    assert out not in met
    assert written_of(folder, corpus) == folder
    with pytest.raises(CorpusRefused, match="another opening: held"):
        written_of(folder, documents.corpus)


@pytest.mark.parametrize("write", [write_mds, write_litdata])
def test_a_folder_that_is_there_is_left_alone_and_half_of_one_is_never_seen(
    mds, lit, documents, tmp_path, write, monkeypatch
):
    (tmp_path / "there").mkdir()
    with pytest.raises(ConfigError, match="is there already"):
        write(documents, tmp_path / "there")
    real, asked = documents.tokens, iter(range(5))

    def breaks(index):
        next(asked)
        return real(index)

    monkeypatch.setattr(documents, "tokens", breaks)
    with pytest.raises((RuntimeError, StopIteration)):
        write(documents, tmp_path / "half")
    assert [one.name for one in tmp_path.iterdir() if "half" in one.name] == []


def test_a_folder_that_says_nothing_is_refused(documents, tmp_path):
    with pytest.raises(ConfigError, match="absent or damaged"):
        written_of(tmp_path, documents.corpus)
