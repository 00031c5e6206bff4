"""One corpus in every format: the same numbers, the same rows; and cut or not, the same manifest."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus import documents, rows, write_every_format, write_ipc
from lanes import thinned, workers
from running import build, run

from dataaudit.manifest.load import load_manifest

pytestmark = pytest.mark.inputs


def lines(records):
    """Return records as JSON lines."""
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


@pytest.fixture(scope="module")
def every_format(tmp_path_factory):
    """The same 400 documents in every format, each a split of its own."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    root = tmp_path_factory.mktemp("formats")
    data = root / "data"
    texts = [f"{number} {text}\x00" if number % 50 == 0 else text for number, text in enumerate(documents(400, seed=9))]
    records = rows(texts, "s")
    write_every_format(data, records)
    table = pa.Table.from_pylist(records)
    coded = table.set_column(0, "text", table["text"].dictionary_encode())
    write_ipc(data / "coded.arrow", coded.set_column(1, "source", coded["source"].dictionary_encode()), stream=False)
    datasets.Dataset.from_list(records).save_to_disk(str(data / "saved"))
    paths = {path.name.replace(".", "-"): f"data/{path.name}" for path in sorted(data.iterdir())}
    splits = {name: {"paths": [path], "text": "text", "source": {"column": "source"}} for name, path in paths.items()}
    (root / "config.yaml").write_text(json.dumps({"splits": splits}), encoding="utf-8")
    cut = {"splits": splits, "reader": {"part_bytes": thinned(20_000, few=30_000), "batch_bytes": 5_000}}
    (root / "cut.yaml").write_text(json.dumps(cut), encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def whole(every_format, tmp_path_factory):
    """Summary and manifest of the files, uncut."""
    return build(every_format / "config.yaml", *workers(2), manifest=tmp_path_factory.mktemp("whole") / "m")


def test_every_format_gives_the_same_numbers_and_the_same_rows(whole):
    """Documents, bytes, tokens, lengths, sources and duplicates of each split, and the digest of its decoded rows."""
    manifest = whole[1]
    shards = manifest.table("shards").to_pylist()
    assert len(shards) == 17
    assert len({shard["rows_digest"] for shard in shards}) == 1
    assert {(shard["status"], shard["documents"]) for shard in shards} == {("ok", 400)}
    by_split = {}
    for record in manifest.metrics():
        scope = record.scope.as_dict()
        split = scope.pop("split", None)
        looks_across = record.metric in ("near_dup_rate", "near_dup_component_rate") or record.stat == "rate"
        if split is None or looks_across or (record.metric, record.stat) == ("exact_dup_rate", "documents"):
            continue  # copies in other splits are found, too
        key = (record.metric, record.stat, tuple(sorted(scope.items())))
        by_split.setdefault(split, {})[key] = (record.value, record.n, record.denominator, record.low, record.high)
    first, *others = by_split.values()
    assert len(others) == 16
    assert len(first) > 40
    assert all(other == first for other in others)
    assert first["documents", "with_nul", ()][0] == 8


def test_parts_of_every_format_change_nothing(every_format, whole, tmp_path):
    """Whole files and parts of a few kilobytes give the same id, compressed files among them."""
    summary = whole[0]
    cut, _ = build(every_format / "cut.yaml", *workers(2), manifest=tmp_path / "n")
    assert (summary["id"], summary["parts_planned"]) == (cut["id"], 17)
    assert cut["parts_planned"] > 3 * 17  # an Arrow stream is one part
    again, _ = build(every_format / "cut.yaml", manifest=tmp_path / "n")
    assert (again["id"], again["parts_scanned"]) == (summary["id"], 0)


@pytest.mark.parametrize("unit", ["file", "paragraph", "line"])
def test_plain_text_is_cut_into_what_counts_as_a_document(tmp_path, unit):
    """The same text by file, paragraph and line, plain and compressed, in one part or many."""
    found = set()
    text = "".join(f"one {number}\ntwo\n\n" for number in range(3_000)).encode()
    for name, data in {"a.txt": text, "b.txt.gz": gzip.compress(text), "LICENSE.txt": b"no data"}.items():
        (tmp_path / "web" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "web" / name).write_bytes(data)
    for part_bytes in (2_000, 1 << 20):
        config = {
            "splits": {"train": {"paths": ["web"], "source": {"pattern": "(?P<source>[a-z]+)/"}}},
            "reader": {"text_document": unit, "part_bytes": part_bytes},
        }
        (tmp_path / "c.yaml").write_text(json.dumps(config))
        summary, manifest = build(tmp_path / "c.yaml", *workers(2), manifest=tmp_path / "m")
        found.add(summary["id"])
    assert len(found) == 1
    assert {row["documents"] for row in manifest.table("shards").to_pylist()} == {
        {"file": 1, "paragraph": 3_000, "line": 6_000}[unit]
    }
    assert [row["source"] for row in manifest.table("sources").to_pylist()] == ["web"]


def test_a_dictionary_of_data_sets_is_built_without_a_config(tmp_path):
    """A folder that `datasets` saved gives its splits, and nothing in it is skipped."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    made = datasets.Dataset.from_list(rows(documents(60, seed=1), "s"))
    splits = {"train": made, "validation": made.select(range(20, 30))}
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "saved"), num_shards={"train": 2, "validation": 1})
    _, err = run("build", "saved", "--manifest", tmp_path / "m", cwd=tmp_path)
    assert "saved/dataset_dict.json" in err
    manifest = load_manifest(tmp_path / "m")
    assert [(row["split"], row["uri"]) for row in manifest.table("shards").to_pylist()] == [
        ("train", "train/data-00000-of-00002.arrow"),
        ("train", "train/data-00001-of-00002.arrow"),
        ("validation", "validation/data-00000-of-00001.arrow"),
    ]


FORMS = {
    "one file": ("a.jsonl", 1_000),
    "files of one": ("jsonl", 1),
    "files of seven": ("jsonl", 7),
    "row groups of one": ("a.parquet", 1),
    "record batches of one": ("a.arrow", 1),
}


def write_form(folder, records, form):
    """Write documents in one form, so that they have the same order."""
    kind, size = FORMS[form]
    folder.mkdir()
    table = pa.Table.from_pylist(records)
    if kind == "a.parquet":
        pq.write_table(table, folder / kind, row_group_size=size)
    elif kind == "a.arrow":
        with pa.ipc.new_file(folder / kind, table.schema) as file:
            file.write_table(table, max_chunksize=size)
    else:
        for start in range(0, len(records), size):
            (folder / f"{start:04d}.jsonl").write_bytes(lines(records[start : start + size]))


def test_the_same_documents_give_the_same_numbers_however_they_are_stored(tmp_path):
    """Every statistic, with leaks and copies; and of each file what its documents are."""
    texts = documents(24, seed=4)
    texts += [texts[3], texts[20] + " and a word", "", "Write to anna.berger@firma-berger.de about it."]
    train = [{"text": text, "source": f"s{number % 3}"} for number, text in enumerate(texts)]
    held = rows([texts[11], *documents(5, seed=5)], "s0")
    (tmp_path / "val.jsonl").write_bytes(lines(held))
    numbers, shards = {}, {}
    for form in FORMS:
        write_form(tmp_path / form, train, form)
        of = {"text": "text", "source": {"column": "source"}}
        splits = {"train": {"paths": [form], **of}, "val": {"paths": ["val.jsonl"], "held_out": True, **of}}
        (tmp_path / f"{form}.yaml").write_text(json.dumps({"splits": splits}), encoding="utf-8")
        manifest = build(tmp_path / f"{form}.yaml", *workers(0), manifest=tmp_path / "manifests" / form)[1]
        numbers[form] = {
            (record.metric, record.stat, record.scope): (record.value, record.n, record.denominator, record.low)
            for record in manifest.metrics()
            if not record.metric.startswith("coverage")
        }
        shards[form] = [row for row in manifest.table("shards").to_pylist() if row["split"] == "train"]
    first = numbers.pop("one file")
    assert len(first) > 200
    assert {form: numbers[form] == first for form in numbers} == dict.fromkeys(numbers, True)
    assert len(shards["files of one"]) == len(texts)
    for form, found in shards.items():
        assert sum(shard["documents"] for shard in found) == len(texts), form
    sizes = [(shard["documents"], shard["bytes"], shard["sources"][0]["source"]) for shard in shards["files of one"]]
    assert sizes == [(1, len(text.encode()), f"s{number % 3}") for number, text in enumerate(texts)]


def test_every_form_of_arrow_has_the_same_rows(tmp_path):
    """Files and streams, each compression, each type of text, batches of one record and of all."""
    texts = [*documents(20, seed=6), "", "naïve 番地 😀"]
    coded = pa.dictionary(pa.int16(), pa.string())
    forms = [
        (stream, compression, kind, size)
        for stream in (False, True)
        for compression in (None, "lz4", "zstd")
        for kind, size in ((pa.string(), 100), (pa.large_string(), 1), (pa.string_view(), 7), (coded, 5))
    ]
    for number, (stream, compression, kind, size) in enumerate(forms):
        table = pa.table({"text": pa.chunked_array([pa.array(texts, pa.string()).cast(kind)])})
        (tmp_path / "data").mkdir(exist_ok=True)
        path = tmp_path / "data" / f"{number:02}.{'arrows' if stream else 'arrow'}"
        write_ipc(path, table, stream=stream, compression=compression, size=size)
    manifest = build(tmp_path / "data", *workers(0), manifest=tmp_path / "m")[1]
    shards = manifest.table("shards").to_pylist()
    assert [shard["status"] for shard in shards] == ["ok"] * len(forms)
    assert {(shard["documents"], shard["rows_digest"]) for shard in shards} == {(22, shards[0]["rows_digest"])}


@pytest.mark.builds
def test_very_many_row_groups_are_read_whole(tmp_path):
    count = thinned(40_000, few=2_000)
    schema = pa.schema([("text", pa.string())])
    (tmp_path / "data").mkdir()
    with pq.ParquetWriter(tmp_path / "data/a.parquet", schema) as writer:
        for number in range(count):
            writer.write_table(pa.table([[f"document {number}"]], schema=schema))
            if number % 1000 == 0:
                writer.write_table(schema.empty_table(), row_group_size=1)
    summary, manifest = build(tmp_path / "data", *workers(0), manifest=tmp_path / "m")
    assert summary["totals"]["documents"] == count
    assert manifest.table("shards")["bad_records"].to_pylist() == [0]
