"""A dirty corpus, its list applied, its documents dropped: what is built of the rest has no duplicate and no leak."""

import json

import pyarrow.parquet as pq
import pytest
from corpus import CONFIG as SPLITS
from corpus import documents, question, write_jsonl, zstd
from running import build, metric, run

CONFIG = f"""{SPLITS}
protected:
  quiz: {{paths: ["eval/quiz.jsonl"], question: question, answer: answer}}
stages: {{language: false, filters: false, histogram: false, padding: false, toxicity: false, repeats: false}}
reader: {{max_bad_records: 0.5}}
"""


def distinct(count, **more):
    """Return documents of which no two are the same."""
    return list(dict.fromkeys(text.strip() for text in documents(2 * count, **more)))[:count]


def write_dirty(folder):
    """Write three training shards and a held-out one; return the rows that are planted as dirt, by shard."""
    train, val = distinct(90, seed=1), distinct(8, seed=2, size=3000)
    shards = {"a.jsonl": train[:30], "b.jsonl.zst": train[30:60], "spam.jsonl": train[60:]}
    shards["a.jsonl"][4] = val[1]  # a copy of a held-out document, and so an exact duplicate that the manifest keeps
    shards["b.jsonl.zst"][5] = shards["a.jsonl"][9]
    shards["b.jsonl.zst"][6] = shards["spam.jsonl"][3]
    shards["spam.jsonl"][8] = shards["spam.jsonl"][3]
    shards["b.jsonl.zst"][7] = f"{shards['a.jsonl'][2]} And a few more words at its end."
    shards["b.jsonl.zst"][11] += f"\n{question('alpha')} Seven of them.\n"
    shards["a.jsonl"][20] = f"Before. {val[4]} After."
    for name, texts in shards.items():
        lines = [{"text": text, "source": name[0]} for text in texts]
        write_jsonl(folder / "data" / "train" / name, lines)
    held = folder / "data/train/a.jsonl"
    held.write_bytes(b"no json\n" + held.read_bytes())  # a bad record moves all rows by one
    write_jsonl(folder / "data" / "val" / "v.jsonl", [{"text": text, "source": "v"} for text in val])
    write_jsonl(
        folder / "eval" / "quiz.jsonl", [{"question": question(n), "answer": "seven"} for n in ("alpha", "beta")]
    )
    (folder / "config.yaml").write_text(CONFIG, encoding="utf-8")


def records(path):
    """Return the lines of a shard as they are counted: bad ones too."""
    data = zstd.decompress(path.read_bytes()) if path.suffix == ".zst" else path.read_bytes()
    return data.splitlines()


@pytest.fixture(scope="module")
def cleaned(tmp_path_factory):
    """The corpus, its manifest, what `apply` said, and the manifest of what is left."""
    folder = tmp_path_factory.mktemp("dirty")
    write_dirty(folder)
    _, before = build("config.yaml", manifest=folder / "m", cwd=folder)
    places = ("train/data/train/spam.jsonl", "data/train/a.jsonl:1")
    run("quarantine", "add", "q.jsonl", "--manifest", "m", *places, "--reason", "spam", cwd=folder)
    call = ("quarantine", "apply", "q.jsonl", "--manifest", "m", "--out", "clean", "--documents", "--rows", "--json")
    out, _ = run(*call, "--ngram-score", "0.05", cwd=folder)
    drop = {}
    for row in pq.read_table(folder / "clean/documents.parquet").to_pylist():
        drop.setdefault((row["split"], row["uri"]), set()).add(row["row"])
    again = folder / "again"
    for split in ("train", "val"):
        for path in map(type(folder), (folder / "clean" / f"{split}.txt").read_text().splitlines()):
            lines = records(path)
            skip = drop.get((split, str(path.relative_to(folder))), set())
            kept = [line for row, line in enumerate(lines) if row not in skip]
            target = again / "data" / split / path.name.removesuffix(".zst")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(b"\n".join(kept) + b"\n")
    (again / "eval").symlink_to(folder / "eval")
    (again / "config.yaml").write_text(CONFIG, encoding="utf-8")
    _, after = build("config.yaml", manifest=again / "m", cwd=again)
    return folder, before, json.loads(out), after


def test_the_corpus_was_dirty(cleaned):
    _, before, _, _ = cleaned
    assert metric(before, "exact_dup_rate", "documents") > 3
    for stat in ("ngram", "span", "near_dup"):
        assert metric(before, "train_val_overlap", stat, set="val") > 0
    assert metric(before, "benchmark_contamination", "rate", set="quiz", entity="question", rule="verbatim") == 0.5


def test_what_is_left_has_no_duplicate_and_no_leak(cleaned):
    """Exact and near duplicates, held-out copies by every measure, evaluation items."""
    _, _, _, after = cleaned
    assert metric(after, "exact_dup_rate", "rate") == 0
    assert metric(after, "near_dup_rate", "rate") == 0
    for stat in ("ngram", "span", "near_dup"):
        assert metric(after, "train_val_overlap", stat, set="val") == 0
    for tier in ("verbatim", "similar"):
        assert metric(after, "benchmark_contamination", "rate", set="quiz", entity="question", rule=tier) == 0


def test_nothing_else_is_lost(cleaned):
    """The held-out split is whole, and training lacks the quarantined shard and the planted rows alone."""
    folder, _, said, after = cleaned
    documents_left = {split.name: split.documents for split in after.core.splits}
    rows = pq.read_table(folder / "clean/documents.parquet").to_pylist()
    assert {(row["uri"].removeprefix("data/train/"), row["row"]): row["reasons"] for row in rows} == {
        ("a.jsonl", 1): ["quarantine:spam"],
        ("a.jsonl", 5): ["held_out:val"],
        ("a.jsonl", 21): ["held_out:val"],
        ("b.jsonl.zst", 5): ["exact_duplicate"],
        ("b.jsonl.zst", 7): ["near_duplicate"],
        ("b.jsonl.zst", 11): ["benchmark:quiz"],
    }
    assert documents_left == {"train": 60 - 6, "val": 8}
    assert said["exit_code"] == 0
    assert said["documents"]["dropped"] == 6


def test_rows_as_text_are_those_of_the_table(cleaned):
    """One file for each shard that loses rows, named by its ordinal."""
    folder, *_ = cleaned
    table = pq.read_table(folder / "clean/documents.parquet").to_pylist()
    expected = {}
    for row in table:
        expected.setdefault(f"{row['shard']:06d}.txt", []).append(row["row"])
    found = {path.name: [*map(int, path.read_text().split())] for path in (folder / "clean/rows").iterdir()}
    assert found == expected
