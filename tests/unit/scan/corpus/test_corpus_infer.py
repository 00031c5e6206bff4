from __future__ import annotations

import gzip
import os
from itertools import product
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataaudit.base.errors import ConfigError
from dataaudit.config import SourceRule, Split
from dataaudit.scan.corpus.fields import MIXED, NOTHING, TEXT, field_rule
from dataaudit.scan.corpus.infer import infer_source, infer_splits, infer_text, peek
from dataaudit.scan.corpus.loss import Reason
from dataaudit.scan.corpus.shards import Shard, discover


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b'{"text":"a"}\n')


def split_names(root: Path, cwd: Path, *paths: str) -> dict[str, str]:
    return {
        os.path.relpath(path, root): name for name, split in infer_splits(paths, cwd).items() for path in split.paths
    }


def shard_of(path: Path, uri: str = "a") -> Shard:
    found = discover({"train": Split(paths=(str(path),))}, path.parent, root_at_base=True, follow_symlinks=False)
    shard = found.shards[0]
    return Shard(**{name: getattr(shard, name) for name in Shard.__dataclass_fields__} | {"uri": uri})


def with_uris(tmp_path: Path, *uris: str) -> list[Shard]:
    make(tmp_path, "a.jsonl")
    return [shard_of(tmp_path / "a.jsonl", uri) for uri in uris]


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("a.jsonl", "train"), ("train-00001-of-00002.jsonl", "train"), ("training.jsonl", "train"),
        ("val.jsonl", "val"), ("validation/a.jsonl", "val"), ("Valid_1.jsonl", "val"), ("dev/x/a.jsonl", "val"),
        ("c4-validation.00000.jsonl", "val"), ("test.jsonl", "test"), ("web.test.jsonl", "test"),
        ("holdout/a.jsonl", "heldout"), ("HELDOUT.jsonl", "heldout"), ("train/val/a.jsonl", "val"),
        ("val/train.jsonl", "train"), ("test/validation_train.jsonl", "train"), ("contest.jsonl", "train"),
        ("latest/evaluation/a.jsonl", "train"), ("device.jsonl", "train"),
    ],
)  # fmt: skip
def test_the_last_word_that_names_a_split_decides(tmp_path, name, split):
    """Whole words of the path count, the nearest to the file's end wins, and no word means train."""
    make(tmp_path, name)
    assert split_names(tmp_path, tmp_path, name) == {name: split}


def test_all_splits_but_train_are_held_out(tmp_path):
    """Validation and test data are held out; splits come in the order of their names."""
    make(tmp_path, "train.jsonl", "val.jsonl", "test.jsonl")
    splits = infer_splits(["."], tmp_path)
    assert {name: split.held_out for name, split in splits.items()} == {"test": True, "train": False, "val": True}
    assert list(splits) == ["test", "train", "val"]


def test_folders_above_the_data_name_no_split(tmp_path):
    """A user or a mount called ``dev`` or ``test`` does not turn a corpus into validation data."""
    make(tmp_path, "home/dev/test/web/a.jsonl", "home/dev/test/web/val/b.jsonl", "elsewhere/x")
    data = tmp_path / "home/dev/test/web"
    assert split_names(data, tmp_path / "elsewhere", str(data)) == {"a.jsonl": "train", "val/b.jsonl": "val"}


@pytest.mark.parametrize("cwd", [".", "elsewhere", "corpus/val"])
def test_the_folder_that_holds_all_files_may_be_a_split(tmp_path, cwd):
    """Naming only the files of a folder ``val`` gives a split ``val``, unless one stands in that folder."""
    make(tmp_path, "corpus/val/a.jsonl", "elsewhere/x")
    names = split_names(tmp_path, tmp_path / cwd, str(tmp_path / "corpus/val/a.jsonl"))
    assert names == {"corpus/val/a.jsonl": "train" if cwd == "corpus/val" else "val"}


def test_a_file_named_twice_is_listed_twice(tmp_path):
    """What is given twice is read twice, as a training run would."""
    make(tmp_path, "a.jsonl")
    assert infer_splits(["a.jsonl", "*.jsonl"], tmp_path)["train"].paths == (str(tmp_path / "a.jsonl"),) * 2


def test_what_is_left_out_is_told(tmp_path):
    """Names of what is no data reach the caller."""
    make(tmp_path, "a.jsonl", "README.md")
    left_out: list[str] = []
    infer_splits(["."], tmp_path, left_out)
    assert left_out == [str(tmp_path / "README.md")]


def test_what_was_listed_is_not_listed_again(tmp_path):
    """A link to a folder is a loss, as with a config, and so is a file that is gone by now; here and in a store."""
    make(tmp_path, "data/a.jsonl", "data/b.jsonl", "c.jsonl")
    (tmp_path / "data" / "up").symlink_to("..")
    memory = fsspec.filesystem("memory")
    for place in (str(tmp_path / "data"), "memory://listed"):
        memory.pipe({"/listed/a.jsonl": b"{}", "/listed/b.jsonl": b"{}"})
        splits = infer_splits([place], tmp_path)
        memory.rm("/listed/b.jsonl")
        (tmp_path / "data" / "b.jsonl").unlink(missing_ok=True)
        shards = discover(splits, tmp_path, root_at_base=False, follow_symlinks=False, listed_before=True).shards
        expected = {"a.jsonl": None, "b.jsonl": None} | ({} if "://" in place else {"up": Reason.OUTSIDE_ROOT})
        assert {shard.uri: shard.skip for shard in shards} == expected


def test_a_name_that_is_no_unicode_survives_the_config(tmp_path):
    """A config holds Unicode only, so such a file goes into it as an address that leads back to it."""
    path = tmp_path / os.fsdecode(b"val\xff 100%.jsonl")
    path.write_bytes(b"{}\n")
    splits = infer_splits(["*.jsonl"], tmp_path)
    shards = discover(splits, tmp_path, root_at_base=False, follow_symlinks=False).shards
    assert [shard.path for shard in shards] == [str(path)]
    assert [shard.split for shard in shards] == ["val"]


def test_paths_that_match_nothing_are_an_error(tmp_path):
    """A path without files ends the build before it begins."""
    with pytest.raises(ConfigError, match="no such file"):
        infer_splits(["absent"], tmp_path)


ID, TAGS = {"id": "int64"}, {"tags": "list"}


@pytest.mark.parametrize(
    ("seen", "others", "text"),
    [
        ([{"text": TEXT, "content": TEXT}], [], "text"),
        ([{"body": TEXT, "content": TEXT, "x": TEXT}], [], "content"),
        ([{"document": "int64", "raw_content": TEXT, **ID}], [], "raw_content"),
        ([{"poem": TEXT, **ID}], [], "poem"),
        ([{"document": "int64", "poem": TEXT}], [], "poem"),
        ([{"text": MIXED, "url": TEXT}], [], "text"),
        ([{"url": TEXT, "text": NOTHING}, {"url": TEXT, "text": TEXT}], [], "text"),
        ([{"url": TEXT}, {"url": TEXT, "content": TEXT}], [], "content"),
        ([{"url": TEXT, "text": "list"}, {"url": TEXT, "text": TEXT}], [], "text"),
        ([{"poem": NOTHING, **ID}, {"poem": TEXT}, TAGS], [], "poem"),
        ([{"text": TEXT, "story": TEXT}], ["story"], "story"),
        ([{"text": TEXT, "url": TEXT}], ["story"], "text"),
        ([{"body": "struct", "story_text": TEXT}], [], "story_text"),
        ([{"url": TEXT, "poem": TEXT}], ["url"], "url"),
        ([{"filed": TEXT, **ID}], [], "filed"),
    ],
)
def test_the_text_is_a_known_name_or_the_only_string(seen, others, text):
    """Known names come first, those of other splits before all, in whichever shard holds text; else a lone column."""
    assert infer_text("train", seen, others) == text


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *product(("text", "content", "raw_content", "story"), (NOTHING, "int64", "list", "struct", "binary")),
        ("document", NOTHING),
        ("body", NOTHING),
    ],
)
def test_a_column_named_like_the_text_that_holds_none_is_not_replaced(name, kind):
    """The other column would be audited in its place, with 0 of everything."""
    seen = [{"url": TEXT, name: kind}, {"url": TEXT}, {"url": TEXT, name: NOTHING}]
    with pytest.raises(ConfigError) as caught:
        infer_text("val", seen, ["story"])
    expected = ", ".join(sorted({kind, NOTHING}))
    assert f"`{name}` holds {expected} in the first 3 shards; text is in url" in caught.value.message
    assert "--text COLUMN" in caught.value.hint


@pytest.mark.parametrize(
    ("seen", "shown"),
    [
        ([{"a": TEXT, "b": TEXT, **ID}], "a, b, id"),
        ([{"a": TEXT, **ID}, {"b": TEXT}], "a, b, id"),
        ([{"a": TEXT}, {"a": "int64"}], ": a"),
        ([{"a": MIXED}], ": a"),
        ([{"text": "int64"}], "in the first shard"),
        ([{"url": TEXT, "messages": "list"}], "messages, url"),
        *(
            ([{name: TEXT}], f": {name}")
            for name in (
                *("id", "doc_id", "page_url", "URL", "file_name", "lang", "sha256", "date"),
                *("doc_uid", "guid", "docId", "pageURL", "sha1", "category"),
            )
        ),
        ([{"doc_uid": TEXT, "payload": "struct"}], ": doc_uid, payload"),
        ([{"a\x1b[31m": TEXT, "b": TEXT}], "a%1B[31m, b"),
        ([{f"c{number:03}": TEXT for number in range(99)}], ", c019, ..."),
    ],
)
def test_an_ambiguous_text_is_an_error_that_names_the_choices(seen, shown):
    """Nothing is guessed: the message lists the columns, printably and not all of hundreds."""
    with pytest.raises(ConfigError) as caught:
        infer_text("train", seen)
    assert caught.value.message.endswith(shown)
    assert "c020" not in caught.value.message
    assert "splits.train.text" in caught.value.hint


def test_the_hint_says_what_to_do_where_no_shard_can_be_read():
    """Naming a column does not help who gave an array, or a compressed file without its suffix."""
    with pytest.raises(ConfigError) as caught:
        infer_text("train", [])
    assert "none of the first shards can be read" in caught.value.message
    assert "jq -c '.[]'" in caught.value.hint
    assert "dataaudit inspect" in caught.value.hint


def test_the_hint_names_the_path_into_a_nested_record():
    """A text inside of records has no column of its own."""
    with pytest.raises(ConfigError) as caught:
        infer_text("train", [{"doc_uid": TEXT, "meta": "struct", "payload": "struct"}])
    assert caught.value.hint.endswith("Of a nested record name the path, as payload.FIELD.")


def test_the_source_is_a_column_of_strings_of_that_name(tmp_path):
    """A column ``source`` is the source, unless it holds something else than strings."""
    shards = with_uris(tmp_path, "a.jsonl")
    assert infer_source(shards, {"text": TEXT, "source": TEXT}) == SourceRule(column="source")
    assert infer_source(shards, {"text": TEXT, "source": "int64"}) == SourceRule(constant="all")


@pytest.mark.parametrize(
    ("uris", "sources"),
    [
        (["web/a.jsonl", "books/a.jsonl"], ["web", "books"]),
        (["x/web/a.jsonl", "y/books/a.jsonl#copy=2"], ["web", "books"]),
        (["web/a.jsonl", "web/b.jsonl"], ["all", "all"]),
        (["web/a.jsonl", "b.jsonl"], ["all", "all"]),
        (["a.jsonl"], ["all"]),
        (["lang=de/a.jsonl", "lang=fr/a.jsonl"], ["de", "fr"]),
        (["lang=de/year=2020/a.jsonl", "lang=fr/year=2020/a.jsonl"], ["de", "fr"]),
        (["year=2020/lang=de/a.jsonl", "year=2021/lang=de/a.jsonl"], ["all", "all"]),
        (["lang=de/source=web/a.jsonl", "lang=fr/source=web/a.jsonl"], ["web", "web"]),
        (["lang=de/domain=x.org/a.jsonl", "lang=de/domain=y.org/a.jsonl"], ["x.org", "y.org"]),
        (["dataset=c4/lang=de/a.jsonl", "dataset=c4/lang=fr/a.jsonl"], ["de", "fr"]),
        (["web/year=2020/a.jsonl", "code/year=2020/month=1/a.jsonl"], ["web", "code"]),
        (["year=2020/web/a.jsonl", "year=2020/code/a.jsonl"], ["web", "code"]),
        (["web/year=2020/a.jsonl", "web/year=2021/a.jsonl"], ["all", "all"]),
        (["year=2020/a.jsonl", "year=2021/a.jsonl"], ["all", "all"]),
        (["web/a.jsonl", "year=2021/a.jsonl"], ["all", "all"]),
        (["lang=de/a.jsonl", "fr/a.jsonl"], ["all", "all"]),
        (["lang=__HIVE_DEFAULT_PARTITION__/a.jsonl", "lang=fr/a.jsonl"], ["(none)", "fr"]),
        (["source=a%253Ab%252Fc/a.jsonl", "source=b c/x.jsonl"], ["a:b/c", "b c"]),
        (["lang=de/lang=gsw/a.jsonl", "lang=de/lang=de/a.jsonl"], ["gsw", "de"]),
        (["=x/a.jsonl", "=y/a.jsonl"], ["all", "all"]),
        (["web/lang=de.jsonl", "code/lang=fr.jsonl"], ["web", "code"]),
    ],
)
def test_the_folder_is_the_source_when_there_are_several(tmp_path, uris, sources):
    """Without a column, the shard's own folder is the source, unless all shards share one or one has none."""
    shards = with_uris(tmp_path, *uris)
    rule = infer_source(shards, {"text": TEXT})
    assert [field_rule("text", rule, uri, max_record_bytes=9).source_constant for uri in uris] == sources


@pytest.mark.parametrize(
    ("name", "separator"),
    [
        ("text;source", "semicolons"), ("id;text", "semicolons"), ("text\tsource", "tabs"),
        ("id\ttext;more", "semicolons"), ("text|lang", "vertical bars"), ("id,text", "commas"), ("text;", None),
        ("story", None), ("Story of the day", None), ("story-2", None), (",story", None),
    ],
)  # fmt: skip
def test_a_header_that_was_read_with_another_separator_is_no_name(name, separator):
    """A lone column ``id;text`` comes of a table that was read by commas: its values are whole rows."""
    if separator is None:
        assert infer_text("train", [{name: TEXT}]) == name
        return
    with pytest.raises(ConfigError, match=f"separated by {separator}") as caught:
        infer_text("train", [{name: TEXT}])
    assert "sep=" in caught.value.hint


@pytest.mark.parametrize(
    ("lines", "columns"),
    [
        (b'{"text":"a","id":1}\n', {"text": TEXT, "id": "number"}),
        (b'\n  \nnot json\n[1]\n{"text":"a"}\n', {"text": TEXT}),
        (b'{"text":null,"a":"x"}\n{"text":"b","a":2}\n', {"text": TEXT, "a": MIXED}),
        (b'{"text":null,"a":[1],"b":{}}\n', {"text": NOTHING, "a": "array", "b": "object"}),
        (b'{"a":[1],"b":1.5}\n{"a":{},"b":{}}\n', {"a": "array, object", "b": "number, object"}),
        (b'\xef\xbb\xbf{"text":"a"}', {"text": TEXT}),
        (b'{"text":"NaN","a":NaN}\n{"text":"b","a":-Infinity}\n', {"text": TEXT, "a": NOTHING}),
        (b'{"text":"a","a":NaN}\n{"text":"b","a":2}\n', {"text": TEXT, "a": "number"}),
        (b"", None),
        (b"[]\n1\n", None),
        (b"{}\n", None),
    ],
)
def test_columns_of_json_lines_are_those_of_the_first_records(tmp_path, lines, columns):
    """Bad lines are passed over, a null says nothing about a type, and a file without objects has no columns."""
    (tmp_path / "a.jsonl").write_bytes(lines)
    assert peek(shard_of(tmp_path / "a.jsonl")) == columns


def test_columns_of_parquet_are_those_of_its_schema(tmp_path):
    """Every type of string counts, plain or as a dictionary; nothing else does."""
    table = pa.table(
        {
            "a": ["x"],
            "b": pa.array(["x"], pa.large_string()),
            "c": pa.array(["x"], pa.string_view()),
            "d": pa.array(["x"]).dictionary_encode(),
            "e": [b"x"],
            "f": [1],
            "g": pa.nulls(1),
            "h": [["x"]],
            "i": [{"x": "y"}],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    assert peek(shard_of(tmp_path / "a.parquet")) == dict(
        zip("abcdefghi", (*4 * [TEXT], "binary", "int64", NOTHING, "list", "struct"), strict=True)
    )


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.parquet", b""),
        ("a.parquet", b"PAR1junkPAR1"),
        ("a.jsonl.gz", b"junk"),
        ("a.jsonl.gz", b""),
        ("a.jsonl.gz", gzip.compress(b'{"text":1}\n' * 99, mtime=0)[:-9]),
        ("a.jsonl.zst", b"junk junk"),
        ("a.jsonl.zst", b""),
    ],
)
def test_a_broken_shard_has_no_columns(tmp_path, name, data):
    """A shard that cannot be read says nothing, without an exception, so that the next one is asked."""
    (tmp_path / name).write_bytes(data)
    assert peek(shard_of(tmp_path / name)) is None


def test_a_shard_that_is_gone_has_no_columns(tmp_path):
    """A file that vanished since discovery is like a broken one."""
    (tmp_path / "a.jsonl").write_bytes(b"{}")
    shard = shard_of(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").unlink()
    assert peek(shard) is None


def test_keys_that_are_data_are_not_shown_and_not_taken_for_the_text():
    """An object from addresses to letters has values where others have names."""
    for key in ("anna.berg@sea.org", "call 0171 5551234", "http://sea.org/x", "some words that go on and on", "k" * 60):
        with pytest.raises(ConfigError, match="1 that look like data, not names") as caught:
            infer_text("train", [{key: TEXT, "id": "int64"}])
        assert key not in str(caught.value)
        assert "id and" in str(caught.value)
    assert infer_text("train", [{"\u30c6\u30ad\u30b9\u30c8": TEXT, "id": "int64"}]) == "\u30c6\u30ad\u30b9\u30c8"
