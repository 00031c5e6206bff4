"""A leak that is planted in training data is named: which item, where it stands, by which rule."""

import gzip
import json
import random

import pytest
from corpus import CONFIG as SPLITS
from corpus import documents, question, words, write_jsonl
from running import build, metric, run

from dataaudit.manifest.verify import verify

QUIZ = 'quiz: {paths: ["eval/quiz.jsonl.gz"], question: question, answer: answer, id: name}'
CONFIG = f"""{SPLITS}
protected:
  {QUIZ}
stages: {{language: false, filters: false, histogram: false, padding: false}}
"""
PLACES = {"alpha": ("train/a.jsonl", 3), "beta": ("train/b.jsonl.zst", 11), "gamma": ("train/a.jsonl", 20)}


def make(folder, *, reverse=False):
    """Write a corpus with an item in three training documents and a held-out document in one."""
    train = documents(60, seed=1)
    val = documents(8, seed=2, size=3000)
    edited = question("beta").split()
    edited[8], edited[16] = "other", "words"
    planted = {
        "alpha": question("alpha").upper().replace(" ", "\n"),
        "beta": " ".join(edited),
        "gamma": question("gamma"),
    }
    halves = {"train/a.jsonl": train[:30], "train/b.jsonl.zst": train[30:]}
    for name, (file, row) in PLACES.items():
        halves[file][row] += f"\n{planted[name]} Seven of them.\n"
    halves["train/b.jsonl.zst"][25] = f"Before. {val[4]} After."
    for file, texts in halves.items():
        write_jsonl(folder / "data" / file, [{"text": text, "source": file[6]} for text in texts])
    write_jsonl(folder / "data" / "val" / "a.jsonl", [{"text": text, "source": "v"} for text in val])
    names = [*PLACES, "delta", "epsilon"]
    items = [{"name": name, "question": question(name), "answer": "seven of them"} for name in names]
    (folder / "eval").mkdir(exist_ok=True)
    lines = [json.dumps(item) for item in (reversed(items) if reverse else items)]
    (folder / "eval" / "quiz.jsonl.gz").write_bytes(gzip.compress("\n".join([*lines, "no json"]).encode()))
    (folder / "config.yaml").write_text(CONFIG, encoding="utf-8")


@pytest.fixture(scope="module")
def leaky(tmp_path_factory):
    """The corpus and its manifest."""
    folder = tmp_path_factory.mktemp("leaky")
    make(folder)
    _, manifest = build("config.yaml", manifest=folder / "m", cwd=folder)
    return folder, manifest


def test_each_planted_item_is_named(leaky):
    """Item, part, tier, document and bytes; and nothing else is flagged."""
    folder, manifest = leaky
    uris = [row["uri"] for row in manifest.table("shards").to_pylist()]
    rows = [row for row in manifest.table("overlap").to_pylist() if row["set"] == "quiz"]
    tiers = {(row["item"], row["part"]): (row["tier"], row["rule"]) for row in rows}
    assert tiers == {
        ("alpha", "question"): ("verbatim", "verbatim"),
        ("alpha", "answer"): ("verbatim", "context"),
        ("alpha", "both"): ("verbatim", "verbatim"),
        ("gamma", "question"): ("verbatim", "verbatim"),
        ("gamma", "answer"): ("verbatim", "context"),
        ("gamma", "both"): ("verbatim", "verbatim"),
        ("beta", "question"): ("similar", "similar"),
        ("beta", "answer"): ("verbatim", "context"),
        ("beta", "both"): ("similar", "similar"),
    }
    for row in rows:
        file, number = PLACES[row["item"]]
        assert (uris[row["shard"]], row["row"]) == (f"data/{file}", number)
    row = next(row for row in rows if (row["item"], row["part"]) == ("gamma", "question"))
    record = (folder / "data" / "train" / "a.jsonl").read_text("utf-8").splitlines()[20]
    text = json.loads(record)["text"].encode()
    assert text[row["start"] : row["end"]].decode() == question("gamma")[:-1]


def test_the_rates_are_those_of_what_was_planted(leaky):
    """Of five questions two are there word for word and a third with two words changed; a record was lost."""
    _, manifest = leaky
    assert verify(manifest) == []
    scope = {"set": "quiz", "entity": "question"}
    assert metric(manifest, "benchmark_contamination", "rate", **scope, rule="verbatim") == 0.4
    assert metric(manifest, "benchmark_contamination", "rate", **scope, rule="similar") == 0.6
    assert metric(manifest, "benchmark_contamination", "rate", **scope, rule="similar", source="b") == 0.2
    assert metric(manifest, "benchmark_contamination", "indexed", **scope) == 5
    assert metric(manifest, "benchmark_contamination", "lost", set="quiz", rule="invalid_json") == 1
    assert [(one.name, one.items) for one in manifest.core.protected] == [("quiz", 5)]
    shards = {row["uri"]: (row["held_out_copies"], row["contaminated"]) for row in manifest.table("shards").to_pylist()}
    assert shards["data/train/a.jsonl"][1] == 2
    assert shards["data/val/a.jsonl"] == (None, None)


def test_the_leaked_held_out_document_is_named(leaky):
    """As a span in the document that holds it, and by the share of its 13-grams."""
    _, manifest = leaky
    val = [row["shard"] for row in manifest.table("shards").to_pylist() if row["split"] == "val"]
    rows = [row for row in manifest.table("overlap").to_pylist() if row["item"] == f"{val[0]}:4" and row["score"] == 1]
    assert {(row["rule"], row["row"]) for row in rows} == {("span", 25), ("ngram", 25), ("edited", 25)}
    assert metric(manifest, "train_val_overlap", "ngram", set="val") >= 1 / 8
    assert metric(manifest, "train_val_overlap", "span", set="val") > 0.05


def test_another_set_is_looked_for_without_counting_tokens_again(leaky, tmp_path):
    """The items' digest is part of the identity and of the keys; the order of items is, too, since rows name them."""
    _, manifest = leaky
    make(tmp_path, reverse=True)
    _, other = build("config.yaml", manifest=tmp_path / "m", cwd=tmp_path)
    assert other.id != manifest.id
    assert other.core.protected[0].sha256 != manifest.core.protected[0].sha256
    assert other.core.totals == manifest.core.totals


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("question: qestion", "did you mean"),
        ("paths: [eval/none.jsonl]", "protected.quiz.paths: no such file"),
        ("paths: [eval/broken.jsonl.gz]", "truncated_stream"),
        ("paths: [eval/lost.jsonl]", "its files give no item: 1 not_an_object"),
    ],
)
def test_a_set_that_cannot_be_used_is_an_error(tmp_path, line, said):
    """An unknown column, no file, a damaged file: exit code 2, and what is wrong."""
    make(tmp_path)
    whole = (tmp_path / "eval" / "quiz.jsonl.gz").read_bytes()
    (tmp_path / "eval" / "broken.jsonl.gz").write_bytes(whole[:-9])
    (tmp_path / "eval" / "lost.jsonl").write_bytes(b'"text"\n')
    keys = {"paths": "[eval/quiz.jsonl.gz]", "question": "question", "answer": "answer"}
    name, _, value = line.partition(": ")
    quiz = ", ".join(f"{key}: {given}" for key, given in {**keys, name: value}.items())
    (tmp_path / "config.yaml").write_text(CONFIG.replace(QUIZ, f"quiz: {{{quiz}}}"), encoding="utf-8")
    _, err = run("build", "config.yaml", "--manifest", tmp_path / "m", cwd=tmp_path, expect=2)
    assert said in err
    assert not (tmp_path / "m").exists()


def notices(folder):
    """Write a corpus in which 30 files have one notice; held-out files have it, too, and leak three times."""

    def words_of(name, number):
        return " ".join(words(random.Random(name), number))

    notice, inner = words_of("notice", 90), words_of("inner", 60)
    train = [f"{notice} {words_of(f'file {number}', 150)}" for number in range(30)]
    train += [words_of(f"other {number}", 200) for number in range(30)]
    val = [f"{notice} {words_of(f'held {number}', 200)}" for number in range(5)]
    val += [f"{notice} {words_of('short', 20)}"]  # mostly a notice
    val += [" ".join(f"{words_of(f'mail {number}', 60)} {notice}" for number in range(3))]  # repeats itself
    val += [f"{words_of('left', 30)} {notice} {words_of('right', 30)}"]
    val += [inner]
    train += [f"{words_of('page', 80)} {words_of('mail 1', 60)} {notice}"]
    train += [f"{words_of('one', 80)} {words_of('left', 30)} {notice}"]
    train += [f"{words_of('two', 80)} {notice} {words_of('right', 30)}"]
    train += [f"{words_of('three', 80)} {inner}"]
    write_jsonl(folder / "data/train/a.jsonl", [{"text": text, "source": "t"} for text in train])
    write_jsonl(folder / "data/val/a.jsonl", [{"text": text, "source": "v"} for text in val])
    config = SPLITS + "stages: {language: false, near_dup: false, repeats: false}\n"
    (folder / "config.yaml").write_text(config, encoding="utf-8")


def test_a_notice_is_no_leak_and_what_stands_beside_it_is(tmp_path):
    """Notices in short files, in texts that repeat themselves, in pieces; the manifest agrees with itself."""
    notices(tmp_path)
    _, manifest = build("config.yaml", manifest=tmp_path / "m", cwd=tmp_path)
    assert verify(manifest) == []
    rows = manifest.table("overlap").to_pylist()
    own = {(row["item"], row["row"]) for row in rows if row["rule"] == "span" and row["score_without_common"] > 0}
    assert own == {("1:6", 60), ("1:8", 63)}
    assert manifest.table("shards")["held_out_copies"].to_pylist() == [2, None]
    shared = {row["row"] for row in rows if row["rule"] == "span"}
    assert shared == {*range(30), 60, 61, 62, 63}
    assert metric(manifest, "train_val_overlap", "span_without_common", set="val") == pytest.approx(
        (60 + 60 + 60) / (5 * 290 + 110 + 450 + 150 + 60)
    )
