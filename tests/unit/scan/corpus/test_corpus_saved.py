"""Folders that `datasets` writes, and folders as they come from its hub."""

import json
import logging

import fsspec
import pytest

from dataaudit.base.errors import ConfigError, StoreError
from dataaudit.config import Split
from dataaudit.scan.corpus.infer import infer_splits
from dataaudit.scan.corpus.readers.arrow import plan_parts
from dataaudit.scan.corpus.shards import discover
from dataaudit.scan.corpus.storage.listing import is_no_data

ROWS = {"text": [f"document {number}" for number in range(30)], "source": ["a", "b", "c"] * 10}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A data set in three files, and a dictionary of three splits."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    logging.getLogger("datasets").setLevel(logging.ERROR)
    folder = tmp_path_factory.mktemp("saved")
    rows = datasets.Dataset.from_dict(ROWS)
    rows.save_to_disk(str(folder / "one"), num_shards=3)
    splits = {"train": rows, "validation": rows.select(range(5)), "train_more": rows.select(range(9))}
    datasets.DatasetDict(splits).save_to_disk(str(folder / "dict"))
    (folder / "one" / "cache-1234.arrow").write_bytes(b"rows of another data set")
    return folder


def found(folder, *paths, root=None):
    """Return (uris, what was left out) of one split."""
    discovery = discover({"train": Split(paths=paths)}, folder, root_at_base=True, follow_symlinks=False, root=root)
    return [shard.uri for shard in discovery.shards], list(discovery.left_out)


DATA = ["one/cache-1234.arrow", *(f"one/data-0000{number}-of-00003.arrow" for number in range(3))]
BESIDE = ["one/dataset_info.json", "one/state.json"]


@pytest.mark.parametrize("pattern", ["one", "one/*", "*/*", "o**/*.arrow", "one/**"])
def test_only_the_state_of_a_data_set_is_left_out(saved, pattern):
    """The files that it lists are shards, and so is what lies beside them: nobody else says what it is."""
    paths = [pattern] if pattern != "*/*" else ["one/*"]
    uris, left_out = found(saved, *paths)
    assert uris == DATA
    assert left_out == (BESIDE if "arrow" not in pattern else [])


def test_a_file_of_the_data_set_that_is_gone_is_a_shard(saved, tmp_path):
    """What the state lists and the folder lacks is a loss with a name, not silence."""
    (tmp_path / "one").mkdir()
    for name in ("state.json", "dataset_info.json"):
        (tmp_path / "one" / name).write_bytes((saved / "one" / name).read_bytes())
    assert found(tmp_path, "one")[0] == DATA[1:]


def test_a_dictionary_without_a_config_gives_its_splits(saved):
    """Each split has its own name; those whose last word says so are held out."""
    splits = infer_splits(["dict"], saved)
    assert {name: split.held_out for name, split in splits.items()} == {
        "train": False,
        "train_more": False,
        "validation": True,
    }
    assert {len(split.paths) for split in splits.values()} == {1}


def test_a_dictionary_is_no_single_split(saved):
    """A config that lists the whole folder would train on its test data."""
    for pattern in ("dict", "dict/*/*.arrow"):
        with pytest.raises(ConfigError, match=r"holds several splits: train, train_more, validation"):
            found(saved, pattern)
    assert len(found(saved, "dict/train", "dict/train_more")[0]) == 2


@pytest.fixture(scope="module")
def far(saved):
    """The same files in a store that lists keys."""
    memory = fsspec.filesystem("memory")
    for path in saved.rglob("*"):
        if path.is_file():
            memory.pipe(f"/saved/{path.relative_to(saved)}", path.read_bytes())
    yield "memory://saved"
    memory.rm("/saved", recursive=True)


@pytest.mark.parametrize("pattern", ["one", "one/*", "o*/*", "o**/*.arrow", "one/**", "dict/train", "dict/t*n/*"])
def test_a_data_set_in_a_store_has_the_same_shards(saved, far, pattern):
    """Its state is read from there; what is left out is left out there, too."""
    (uris, left_out), (far_uris, far_left_out) = found(saved, pattern), found(saved, pattern, root=far)
    assert uris
    assert (far_uris, far_left_out) == (uris, left_out)


def test_a_dictionary_in_a_store_is_no_single_split_either(saved, far):
    """From paths each split gets its name; joined, they are refused."""
    splits = infer_splits([f"{far}/dict"], saved)
    assert set(splits) == {"train", "train_more", "validation"}
    for pattern in ("dict", "dict/*/*.arrow"):
        with pytest.raises(ConfigError, match=r"memory://saved/dict holds several splits: train, train_more, val"):
            found(saved, pattern, root=far)


def test_a_file_that_a_state_in_a_store_lists_is_a_shard_when_gone(saved, far):
    """A loss with a name, as on a disk."""
    memory = fsspec.filesystem("memory")
    for name in ("state.json", "dataset_info.json"):
        memory.pipe(f"/saved/gone/{name}", (saved / "one" / name).read_bytes())
    assert found(saved, "gone", root=far)[0] == [uri.replace("one", "gone") for uri in DATA[1:]]
    memory.rm("/saved/gone", recursive=True)


def test_a_store_that_does_not_answer_is_no_folder_of_another_kind(saved, far, monkeypatch):
    """Without its state, the caches beside a data set would count as data."""

    def fail(*args, **kwargs):
        raise ConnectionResetError(104, "connection reset")

    monkeypatch.setattr("dataaudit.scan.corpus.storage.saved.open_binary", fail)
    with pytest.raises(StoreError, match=r"memory://saved/one/state.json could not be read: connection reset"):
        found(saved, "one", root=far)


def test_the_files_are_read_as_streams(saved):
    """What `datasets` writes has an end marker, and can be cut."""
    path = saved / "one" / "data-00000-of-00003.arrow"
    assert plan_parts(str(path), path.stat().st_size, 1 << 20)


@pytest.mark.parametrize(
    "state",
    [
        b"", b"{", b"[]", b'{"_data_files": 3}', b'{"_data_files": [{"filename": "../a.arrow"}]}',
        b'{"_data_files": [1]}', b'{"_data_files": [], "text": "a document"}',
        b'{"_data_files": []}\n{"text": "a document"}',
    ],
)  # fmt: skip
def test_a_state_that_cannot_be_trusted_makes_no_data_set(tmp_path, state):
    """Then the files of the folder are listed like any others, and the state is one that cannot be read."""
    (tmp_path / "one").mkdir()
    for name, data in (("state.json", state), ("dataset_info.json", b"{}"), ("a.arrow", b"")):
        (tmp_path / "one" / name).write_bytes(data)
    assert found(tmp_path, "one") == (["one/a.arrow", "one/state.json"], ["one/dataset_info.json"])


def test_a_selection_of_rows_is_refused(tmp_path):
    """Very old versions saved all rows and which of them count; to read all of them would be wrong."""
    state = {"_data_files": [{"filename": "a.arrow"}], "_indices_data_files": [{"filename": "i.arrow"}]}
    (tmp_path / "state.json").write_text(json.dumps(state))
    (tmp_path / "dataset_info.json").write_text("{}")
    with pytest.raises(ConfigError, match="selection of the rows"):
        found(tmp_path, ".")


def test_a_folder_of_the_hub_has_no_skipped_files(tmp_path):
    """What lies beside data in a repository is left out by name, and reported."""
    beside = [
        "README.md", "LICENSE", "LICENSE.txt", "LICENSE-CC-BY.txt", "NOTICE", "requirements.txt", "readme.TXT",
        "dataset_infos.json", "dataset_info.json", "load_data.py", "figure.png", "CITATION.cff", "SHA256SUMS",
    ]  # fmt: skip
    data = ["data/a.parquet", "data/story.txt", "data/state.json", "data/license_texts.jsonl", "data/x.csv"]
    for name in [*beside, ".gitattributes", *data]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"{}" if name.startswith("dataset") else b"")
    uris, left_out = found(tmp_path, ".")
    assert uris == sorted(data)
    assert sorted(left_out) == sorted([*beside, ".gitattributes"])


@pytest.mark.parametrize(
    ("name", "own", "other"),
    [
        ("dataset_info.json", {"features": {}, "splits": None}, {"features": {}, "text": "a document"}),
        ("dataset_infos.json", {"default": {"license": "mit"}}, {"default": {"text": "a document"}}),
        ("dataset_dict.json", {"splits": ["train"]}, {"splits": [], "text": "a document"}),
    ],
)
def test_a_file_about_a_data_set_is_left_out_for_what_it_says_not_for_its_name(tmp_path, name, own, other):
    """With a key that `datasets` does not write, as lines, or empty, it is a shard."""
    path = tmp_path / name
    (tmp_path / "a.jsonl").write_text("{}")
    path.write_text(json.dumps(own, indent=2))
    assert found(tmp_path, ".") == (["a.jsonl"], [name])
    for data in (json.dumps(other), f"{json.dumps(own)}\n" * 2, "", "[]"):
        path.write_text(data)
        assert found(tmp_path, ".") == (["a.jsonl", name], [])


@pytest.mark.parametrize("name", ["a.txt", "licenses.jsonl", "changes.txt", "notice-board.txt", "a.pkl", "data.pt"])
def test_what_may_be_data_is_never_left_out(name):
    """A file that only sounds like a note is a shard, and a pickle is a loss with a name."""
    assert not is_no_data(name)
