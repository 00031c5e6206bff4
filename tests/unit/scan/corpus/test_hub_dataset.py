"""Streamed datasets from a folder: their shards, rows, keys and faults."""

import errno
import json
import os
import pickle
import sys
import types

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataaudit.base.errors import ConfigError, MissingExtra, StoreError
from dataaudit.config import DatasetSource, SourceRule
from dataaudit.scan.corpus.fields import TEXT, field_rule
from dataaudit.scan.corpus.loss import LossLog, Reason, ShardUnreadable
from dataaudit.scan.corpus.readers import Part, PartStats, ReadRequest, hub_rows, plan_parts, read_part
from dataaudit.scan.corpus.readers.hub_rows import key_of_rows
from dataaudit.scan.corpus.storage import hub
from dataaudit.scan.corpus.storage.address import Access
from dataaudit.scan.corpus.storage.hub import RowsPath, RowsSource, find_rows, root_of, stat_rows, uri_of

FIELDS = field_rule("text", SourceRule(column="source"), "u", max_record_bytes=100)
ACCESS = Access(timeout_seconds=1, retries=0)
PINNED = RowsSource(name="org/x", config="default", split="train", revision="c0ffee", shard=0, shards=2, access=ACCESS)


@pytest.fixture(autouse=True)
def _fresh():
    """No dataset of another test is remembered."""
    hub._load_once.cache_clear()


def write(folder, name, texts, **columns):
    """Write a Parquet file of texts."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": texts, "source": ["s"] * len(texts), **columns}), folder / name)


def find(folder, *, base="/", **more):
    """Return the shards of a dataset in a folder."""
    return find_rows(DatasetSource(id=str(folder), **more), str(base), ACCESS, "splits.train.dataset")


def read(path, fields=FIELDS, batch_bytes=1000):
    """Read a shard; return its (text, source, row), the losses and what reading showed."""
    losses, stats = LossLog(), PartStats()
    request = ReadRequest(
        path=path, format="datasets", compression="none", part=Part(0, 1), fields=fields, batch_bytes=batch_bytes
    )
    found = []
    for batch in read_part(request, losses, stats):
        names = [batch.source_names[code] for code in batch.source_codes]
        found += zip(batch.texts.to_pylist(), names, batch.rows.tolist(), strict=True)
    return found, losses, stats


def test_the_shards_of_a_dataset_are_its_files(tmp_path):
    """In the order of their names, each with its own rows; a relative folder starts from the config's."""
    for number in range(3):
        write(tmp_path / "d", f"train-{number}.parquet", [f"t{number}", "x"], noise=[1, 2])
    write(tmp_path / "d", "test-0.parquet", ["held out"], noise=[1])
    paths = find("./d", base=tmp_path)
    assert [uri_of(path.source) for path in paths] == [f"default/train/{number:05d}-of-00003" for number in range(3)]
    assert root_of(paths[0].source) == str(tmp_path / "d")
    assert [read(path)[0][0] for path in paths] == [(f"t{number}", "s", 0) for number in range(3)]
    assert [read(path)[0] for path in find(tmp_path / "d", split="test")] == [[("held out", "s", 0)]]
    assert hub_rows.peek_columns(paths[1]) == {"text": TEXT, "source": TEXT, "noise": "int64"}
    assert plan_parts(paths[0], "datasets", "none", 0, 1) == [Part(0, 1)]
    again = pickle.loads(pickle.dumps(paths[2]))
    assert (again, again.source, type(again)) == (paths[2], paths[2].source, RowsPath)


def test_bad_rows_are_counted_and_the_others_read(tmp_path):
    """Missing and oversize texts are losses with their rows, a null source has its own name."""
    table = pa.table({"text": ["a", None, "x" * 101, "b"], "source": ["s", "s", "s", None]})
    (tmp_path / "d").mkdir()
    pq.write_table(table, tmp_path / "d" / "train.parquet")
    found, losses, stats = read(find(tmp_path / "d")[0])
    assert found == [("a", "s", 0), ("b", "(none)", 3)]
    assert losses.records == {Reason.TEXT_MISSING: 1, Reason.OVERSIZE: 1}
    assert stats.records == 4


def test_rows_do_not_depend_on_how_they_are_cut(tmp_path):
    """Batches of any size hold the same rows in the same order."""
    texts = [f"text {number}" for number in range(1000)]
    write(tmp_path / "d", "train.parquet", texts)
    path = find(tmp_path / "d")[0]
    expected = [(text, "s", row) for row, text in enumerate(texts)]
    assert read(path, batch_bytes=50)[0] == read(path, batch_bytes=10**6)[0] == expected


def test_json_lines_are_read_too(tmp_path):
    """Any builder of the library that needs no code."""
    (tmp_path / "d").mkdir()
    lines = [json.dumps({"text": f"t{number}", "source": "s"}) for number in range(5)]
    (tmp_path / "d" / "train.jsonl").write_text("\n".join(lines))
    found, _, stats = read(find(tmp_path / "d")[0])
    assert [text for text, _, _ in found] == [f"t{number}" for number in range(5)]
    assert len(stats.columns) == 2


def test_the_key_of_local_rows_follows_the_rows(tmp_path):
    """Equal rows have an equal key wherever they lie, another value in any column gives another one."""
    keys = []
    for name, noise in (("a", 1), ("b", 1), ("c", 2)):
        write(tmp_path / name, "train.parquet", ["x", "y"], noise=[0, noise])
        keys.append(key_of_rows(find(tmp_path / name)[0]))
    assert keys[0] == keys[1] != keys[2]


def test_the_key_of_pinned_rows_is_what_they_are_pinned_to():
    """Nothing is read; commit, configuration, split and shard each count."""
    source = PINNED
    fields = [field for field in RowsSource.__dataclass_fields__ if field != "access"]
    values = {field: getattr(source, field) for field in fields}
    others = {"name": "org/y", "config": "en", "split": "test", "revision": "beef", "shard": 1, "shards": 3}
    keys = {key_of_rows(RowsPath(source))}
    keys |= {key_of_rows(RowsPath(RowsSource(**values | {field: others[field]}, access=ACCESS))) for field in fields}
    assert len(keys) == 1 + len(fields)
    assert key_of_rows(RowsPath(RowsSource(**values, access=Access(retries=9)))) in keys
    assert stat_rows(RowsPath(source)).validator == "commit c0ffee"


@pytest.mark.parametrize("module", ["aiohttp.client_exceptions", "httpcore2", "httpx", "httpx2", "huggingface_hub"])
def test_an_error_of_the_network_may_pass(module):
    """Also one with no errno and no cause: it says nothing of the rows, and none of its words is shown."""
    kind = type("RemoteProtocolError", (Exception,), {"__module__": module})
    error = hub_rows._explained(kind("secret"), RowsPath(PINNED))
    assert isinstance(error, OSError)
    assert error.errno == errno.EIO
    assert "RemoteProtocolError" in str(error)
    assert "secret" not in str(error)


def test_a_change_in_the_folder_is_seen(tmp_path):
    """Another time, size or name of a file changes what vouches for the rows."""
    write(tmp_path / "d", "train.parquet", ["x"])
    path = find(tmp_path / "d")[0]
    before = stat_rows(path)
    assert stat_rows(path) == before
    os.utime(tmp_path / "d" / "train.parquet", ns=(1, 1))
    changed = stat_rows(path)
    assert changed.validator != before.validator
    (tmp_path / "d" / "more").mkdir()
    (tmp_path / "d" / "more" / "x").touch()
    assert stat_rows(path).validator != changed.validator


def test_what_cannot_be_found_is_said(tmp_path):
    """Folder, split, configuration and an empty folder: the place, and what there is."""
    write(tmp_path / "d", "train.parquet", ["x"])
    (tmp_path / "empty").mkdir()
    cases = [
        ({"folder": tmp_path / "none"}, "there is no folder"),
        ({"folder": tmp_path / "d", "split": "val"}, "has no split val"),
        ({"folder": tmp_path / "d", "config": "nope"}, "cannot be opened"),
        ({"folder": tmp_path / "empty"}, "cannot be opened"),
    ]
    for given, words in cases:
        with pytest.raises(ConfigError, match=words) as caught:
            find(given.pop("folder"), **given)
        assert caught.value.message.startswith("splits.train.dataset")


def test_a_hub_that_may_not_be_asked_is_no_fault_of_the_config():
    """Exit code 3: what is there is not known."""
    with pytest.raises(StoreError, match="does not answer"):
        find("org/name")


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        ("ReadTimeout", 0, StoreError),
        ("RemoteProtocolError", 0, StoreError),
        ("HfHubHTTPError", 429, StoreError),
        ("HfHubHTTPError", 503, StoreError),
        ("RepositoryNotFoundError", 404, ConfigError),
        ("HfHubHTTPError", 403, ConfigError),
    ],
)
def test_a_hub_that_fails_is_told_from_a_dataset_that_is_not_there(kind, status, expected, tmp_path, monkeypatch):
    """A server that is down or busy says nothing of the id; its words are not shown."""

    def fail(*_):
        error = type(kind, (Exception,), {})("secret")
        error.response = types.SimpleNamespace(status_code=status)
        raise error

    monkeypatch.setattr(hub, "load_splits", fail)
    write(tmp_path / "d", "train.parquet", ["x"])
    with pytest.raises(expected) as caught:
        find(tmp_path / "d")
    assert "secret" not in str(caught.value)


def test_a_library_that_is_not_installed_is_named(tmp_path, monkeypatch):
    """With the extra that brings it."""
    monkeypatch.setitem(sys.modules, "datasets", None)
    (tmp_path / "d").mkdir()
    with pytest.raises(MissingExtra, match=r"pip install 'dataaudit\[hf\]'$"):
        find(tmp_path / "d")


@pytest.mark.parametrize(("text", "reason"), [("body", Reason.TEXT_COLUMN), ("number", Reason.TEXT_TYPE)])
def test_a_shard_without_the_text_is_unreadable(tmp_path, text, reason):
    """As for files: the column is missing, or holds no text."""
    write(tmp_path / "d", "train.parquet", ["x"], number=[1])
    fields = field_rule(text, SourceRule(constant="s"), "u", max_record_bytes=100)
    with pytest.raises(ShardUnreadable) as caught:
        read(find(tmp_path / "d")[0], fields)
    assert caught.value.reason is reason


def test_damage_is_told_from_a_file_that_is_gone(tmp_path):
    """A damaged page costs the shard; a file that went away is an input error that may pass."""
    for number in range(2):
        write(tmp_path / "d", f"train-{number}.parquet", [f"{number} {row}" for row in range(2000)])
    paths = find(tmp_path / "d")
    target = tmp_path / "d" / "train-1.parquet"
    data = bytearray(target.read_bytes())
    data[50:4000] = bytes(3950)
    target.write_bytes(data)
    with pytest.raises(ShardUnreadable) as caught:
        read(paths[1])
    assert caught.value.reason is Reason.DATASET
    target.unlink()
    with pytest.raises(FileNotFoundError):
        read(paths[1])
