"""Builds without a config over shards whose text is not what the first of them says."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_manifest import make, shard
from running import build, run

from dataaudit.base.errors import ManifestMismatch
from dataaudit.decide.gate.policy import Policy
from dataaudit.decide.gate.run import judge
from dataaudit.manifest.load import load_manifest

pytestmark = pytest.mark.inputs
TEXTS = [
    f"A sentence of its own about {number} boats and the {number * 7} people who row them home." for number in range(8)
]
URLS = [f"https://example.org/{number}" for number in range(8)]
FORMS = {
    "null": pa.nulls(8),
    "absent": None,
    "a list": pa.array([["a"]] * 8),
    "a number": pa.array(range(8)),
    "bytes": pa.array([b"x"] * 8),
    "null strings": pa.nulls(8, pa.string()),
    "a record": pa.array([{"body": "x"}] * 8),
}
CATEGORIES = pa.dictionary(pa.int8(), pa.string(), ordered=True)
LINES = {"null lines": None, "lists in lines": ["a"], "numbers in lines": 1, "records in lines": {"body": "x"}}


def write(folder, split, form):
    """Write shard 0 of a split with this form of text, as Parquet or JSON lines."""
    (folder / split).mkdir(exist_ok=True, parents=True)
    if form in LINES:
        rows = [{"url": url, "text": LINES[form]} for url in [*URLS, *URLS] * 10]
        (folder / split / "0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return
    columns = {"url": URLS, "text": TEXTS if form == "text" else FORMS[form]}
    table = pa.table({name: column for name, column in columns.items() if column is not None})
    pq.write_table(table, folder / split / "0.parquet")


@pytest.mark.parametrize("form", [*FORMS, *LINES])
def test_a_later_shard_says_which_column_is_the_text(tmp_path, form):
    """All of val stands in train: read as `url`, it would be 0 of 8."""
    write(tmp_path, "train", form)
    pq.write_table(pa.table({"url": URLS, "text": TEXTS}), tmp_path / "train/1.parquet")
    write(tmp_path, "val", "text")
    _, manifest = build(".", manifest=tmp_path / "m", cwd=tmp_path, expect=3)  # shard 0 is quarantined by name
    assert {rule["text"] for rule in manifest.core.config["splits"].values()} == {"text"}
    assert {record.value for record in manifest.metrics("train_val_overlap", "near_dup")} == {1.0}


@pytest.mark.parametrize("form", [*(name for name in FORMS if name not in {"absent", "null strings"}), *LINES])
def test_where_no_shard_has_a_text_both_columns_are_named(tmp_path, form):
    write(tmp_path, "train", form)
    write(tmp_path, "val", "text")
    _, shown = run("build", ".", "--manifest", tmp_path / "m", cwd=tmp_path, expect=2)
    assert "splits.train.text: cannot tell which column is the text: `text` holds" in shown
    assert "text is in url" in shown
    assert not (tmp_path / "m").exists()


def test_addresses_alone_are_no_text(tmp_path):
    for split in ("train", "val"):
        (tmp_path / split).mkdir()
        chats = [[{"role": "user", "content": text}] for text in TEXTS]
        rows = [{"url": url, "messages": chat} for url, chat in zip(URLS, chats, strict=True)]
        (tmp_path / split / "0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, shown = run("build", ".", "--manifest", tmp_path / "m", cwd=tmp_path, expect=2)
    assert "cannot tell which column is the text: messages, url" in shown


def test_splits_that_read_other_names_are_remarked_on_and_release_gate_fails(tmp_path):
    (tmp_path / "train").mkdir()
    pq.write_table(pa.table({"story": TEXTS}), tmp_path / "train/0.parquet")
    write(tmp_path, "val", "text")
    _, shown = run("build", ".", "--manifest", tmp_path / "m", cwd=tmp_path)
    remark = "the splits read differently named columns as their text: train `story`, val `text`"
    assert f"warning: {remark}" in shown
    assert remark in " ".join(load_manifest(tmp_path / "m").run.notes)
    _, shown = run("gate", tmp_path / "m", "--policy", "release-gate", expect=1)
    assert remark in shown


@pytest.mark.parametrize(
    ("texts", "formats", "fails"),
    [
        ({"train": "text", "val": "text"}, {}, False),
        ({"train": "content", "val": "text"}, {}, True),
        ({"train": "content", "val": "text"}, {"val": "text"}, False),  # plain text has no columns
    ],
)
def test_a_policy_may_forbid_other_names(tmp_path, texts, formats, fails):
    shards = [shard(f"{name}.jsonl", split=name, format=formats.get(name, "jsonl")) for name in texts]
    make(tmp_path / "m", shards, config={"splits": {name: {"text": text} for name, text in texts.items()}})
    rule = {"name": "r", "metric": "documents", "stat": "count", "unit": "documents", "comparator": ">=", "budget": 1}
    for asked in (True, None):
        policy = Policy.model_validate({"policy": "p", "rules": [rule], "same_text_column": asked})
        if fails and asked:
            with pytest.raises(ManifestMismatch, match="train `content`, val `text`") as refused:
                judge(load_manifest(tmp_path / "m"), policy)
            assert "dataaudit policy draft" in refused.value.hint  # a config that names them changes nothing
        else:
            assert judge(load_manifest(tmp_path / "m"), policy).exit_code == 0


NOTHING = {
    "empty": "",
    "points": "... !!! ---",
    "white space": " \n\t ",
    "emoji": "\U0001f600\U0001f600",
    "zero width": "\u200b\u200b",
    "a word among ten": "",
}


@pytest.mark.parametrize("form", [*NOTHING, "words"])
def test_a_split_without_words_is_never_fine(tmp_path, form):
    """0 leaks of 10 documents that hold none: release-gate does not pass; with words it does."""
    held_out = [NOTHING.get(form, f"{form} {number} of its own") for number in range(9)]
    held_out.append("a few words" if form == "a word among ten" else held_out[0])
    for name, texts in {"train": TEXTS, "val": held_out}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    run("build", ".", "--manifest", tmp_path / "m", cwd=tmp_path)
    shown, _ = run("gate", tmp_path / "m", "--policy", "release-gate", expect=0 if form == "words" else 3)
    assert ("No word is in" in shown) == (form != "words")


@pytest.mark.parametrize("form", ["categories", "folders", "links", "column of folders"])
def test_texts_and_sources_are_found_wherever_a_tool_puts_them(tmp_path, form):
    """Categories of pandas, folders of Hive, links of the hub's cache give what plain files do."""
    made = tmp_path / "repo" / "snapshots" / ("0123456789" * 4)
    for place, source in enumerate(("code", "web")):
        table = pa.table({"text": TEXTS[place * 4 : place * 4 + 4]})
        own = {"folders": f"source={source}/year=2020", "column of folders": f"lang={source}/a=b"}.get(form, source)
        (tmp_path / "plain" / source).mkdir(parents=True)
        pq.write_table(table, tmp_path / "plain" / source / "a.parquet")
        (made / own).mkdir(parents=True)
        path = made / own / "a.parquet"
        if form == "categories":
            table = pa.Table.from_arrays([table["text"].dictionary_encode()], ["text"])
            table = table.append_column("source", pa.array([source] * 4).dictionary_encode().cast(CATEGORIES))
        if form == "links":
            path = tmp_path / "repo" / "blobs" / (str(place) * 64)
            path.parent.mkdir(exist_ok=True)
            (made / own / "a.parquet").symlink_to(f"../../../blobs/{path.name}")
        pq.write_table(table, path)
    asked = str(made)
    if form == "column of folders":
        splits = {"train": {"paths": [asked], "text": "text", "source": {"column": "lang"}}}
        (made / "config.yaml").write_text(json.dumps({"splits": splits}))
        asked = str(made / "config.yaml")
    found = [build(path, manifest=tmp_path / f"m{path[:1]}", cwd=tmp_path)[1] for path in ("plain", asked)]
    for table in ("shards", "sources"):
        rows = [manifest.table(table).to_pylist() for manifest in found]
        names = ("rows_digest", "documents") if table == "shards" else ("source", "documents")
        assert [[row[name] for name in names] for row in rows[0]] == [[row[name] for name in names] for row in rows[1]]
    assert [row["source"] for row in found[1].table("sources").to_pylist()] == ["code", "web"]
