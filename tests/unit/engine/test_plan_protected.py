"""What builds protect: with which index, what becomes of what cannot be read, and when there is no number."""

import contextlib
import json

import pytest
from lanes import sample
from made_build import HereRunner, Notes, write_file

from dataaudit.base.errors import ConfigError
from dataaudit.engine import build as module
from dataaudit.engine.build import build
from dataaudit.engine.inputs import prepare
from dataaudit.engine.job import BuildOptions
from dataaudit.engine.plan_protected import file_name, unreadable, wrong_file
from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.verify import verify
from dataaudit.scan.corpus.loss import Reason

WORDS = [f"{first}{second}" for first in "abcdefgh" for second in ("ax", "ex", "ix", "ox", "ux", "yx", "oz")]
TEXT = " ".join(WORDS)
STAGES = "{language: false, filters: false, histogram: false, padding: false, near_dup: false, repeats: false}"
SPLITS = {
    "train": "{paths: [train], text: text, source: {constant: web}}",
    "val": "{paths: [val], text: text, source: {constant: web}, held_out: true}",
}


@pytest.fixture
def runners(monkeypatch):
    """Builds run here; the list collects the runner of each."""
    made = []

    def here(*_, **__):
        made.append(HereRunner(reverse=False))
        return contextlib.nullcontext(made[-1])

    monkeypatch.setattr(module, "open_runner", here)
    return made


def write(root, *, train=(TEXT,), val=(TEXT, "other words"), splits=SPLITS, stages=STAGES, more=""):
    """Write a corpus, a set of one item and a config."""
    for name, texts in (("train", train), ("val", val)):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        write_file(root / name / "a.jsonl", lines.encode())
    write_file(root / "eval" / "q.jsonl", json.dumps({"q": " ".join(WORDS[:30])}).encode())
    listed = "".join(f"  {name}: {value}\n" for name, value in splits.items())
    write_file(root / "c.yaml", f"splits:\n{listed}stages: {stages}\n{more}".encode())


QUIZ = "protected: {quiz: {paths: [eval/q.jsonl], question: q}}\n"


def run(root, **options):
    """Build; return the manifest."""
    given = prepare([str(root / "c.yaml")], root, tokenizer=None, text=None, reference=None, note=lambda _: None)
    build(
        given.config,
        given.base,
        root_at_base=True,
        progress=Notes(),
        options=BuildOptions(target=root / "m", state=root / "state", **options),
    )
    manifest = load_manifest(root / "m")
    assert verify(manifest) == []
    return manifest


def values(manifest, metric):
    """Return the records of a metric that speak of all training data, by (stat, set, entity, rule)."""
    return {
        (record.stat, record.scope.set, record.scope.entity, record.scope.rule): record
        for record in manifest.metrics(metric)
        if record.scope.split is None and record.scope.source is None
    }


def test_a_build_without_held_out_splits_and_sets_has_no_such_stage(tmp_path, runners):
    """Nothing is protected, so there is nothing to be said, and no word is cut for it."""
    write(tmp_path, splits={"train": SPLITS["train"]})
    manifest = run(tmp_path)
    assert "overlap" not in {stage.name for stage in manifest.core.stages}
    assert manifest.metrics("train_val_overlap") == manifest.metrics("benchmark_contamination") == []
    assert "protect" not in {name for name, _ in runners[-1].ran}


def test_a_held_out_split_alone_is_protected(tmp_path, runners):
    """One of two documents leaked, with all of its words; no record speaks of sets."""
    write(tmp_path)
    manifest = run(tmp_path)
    found = values(manifest, "train_val_overlap")
    assert found["ngram", "val", None, None].value == 0.5
    assert found["span", "val", None, None].value == pytest.approx(56 / 58)
    assert manifest.metrics("benchmark_contamination") == []
    row = manifest.table("shards").to_pylist()[0]
    assert (row["held_out_copies"], row["contaminated"]) == (1, None)


def test_an_edited_copy_is_counted_and_listed(tmp_path, runners):
    """With each tenth word changed, in bold: no span and no 13-gram, but one of two documents, and one to drop."""
    copy = " ".join("else" if place % 10 == 9 else f"<b>{word}</b>" for place, word in enumerate(WORDS * 2))
    write(tmp_path, train=(copy, "other words"), val=(" ".join(WORDS * 2), "words"))
    manifest = run(tmp_path)
    found = values(manifest, "train_val_overlap")
    shares = {
        stat: found[stat, "val", None, None].value for stat in ("ngram", "span", "edited", "edited_without_common")
    }
    assert shares == {"ngram": 0, "span": 0, "edited": 0.5, "edited_without_common": 0.5}
    assert [(row["rule"], row["tier"], row["row"]) for row in manifest.table("overlap").to_pylist()] == [
        ("edited", "similar", 0)
    ]
    assert manifest.table("shards")["held_out_copies"].to_pylist() == [1, None]


def test_a_set_alone_is_protected(tmp_path, runners):
    """Without a held-out split; its digest is in the core."""
    write(tmp_path, splits={"train": SPLITS["train"]}, more=QUIZ)
    manifest = run(tmp_path)
    assert values(manifest, "benchmark_contamination")["rate", "quiz", "question", "verbatim"].value == 1.0
    assert manifest.metrics("train_val_overlap") == []
    (quiz,) = manifest.core.protected
    assert (quiz.name, quiz.items, len(quiz.sha256)) == ("quiz", 1, 64)
    assert manifest.core.config["protected"] == {"quiz": {"question": "q", "answer": None, "id": None}}


def test_questions_that_are_found_beside_their_answer_alone_are_counted_apart(tmp_path, runners):
    """They are in no rate of questions, found or not; what is found of them is counted, and the tables agree."""
    asked = [
        ("Which river flows through the town of Ulm?", "the Danube"),
        ("Who painted the ceiling of the Sistine Chapel?", "M. B."),
        ("What is the name of the river there?", "the Danube"),
        ("What is the name of the place there now?", "the Hague"),
    ]
    page = "Some page about it. "
    train = [f"{page}{asked[0][0]} Nobody knows.", f"{page}{asked[2][0]} It is the Danube.", f"{page}{asked[3][0]} No."]
    write(
        tmp_path,
        splits={"train": SPLITS["train"]},
        train=train,
        more=QUIZ.replace("question: q", "question: q, answer: a"),
    )
    lines = "".join(json.dumps({"q": question, "a": answer}) + "\n" for question, answer in asked)
    write_file(tmp_path / "eval" / "q.jsonl", lines.encode())
    manifest = run(tmp_path)
    found = values(manifest, "benchmark_contamination")
    rate = found["rate", "quiz", "question", "verbatim"]
    assert (rate.value, rate.denominator, rate.version) == (0.5, 2, "2")
    counts = [found[stat, "quiz", "question", None].value for stat in ("short", "context", "context_found")]
    assert counts == [2, 2, 1]
    both = found["rate", "quiz", "both", "verbatim"]
    assert (both.value, both.denominator) == (pytest.approx(1 / 3), 3)


@pytest.mark.tables
def test_without_training_documents_no_rate_is_evaluated(tmp_path, runners):
    """No leak found in nothing is no good news."""
    write(tmp_path, train=(), more=QUIZ)
    for metric in ("train_val_overlap", "benchmark_contamination"):
        records = [record for record in run(tmp_path).metrics(metric) if record.unit == "ratio"]
        assert records
        assert {record.status for record in records} == {"not_evaluated"}


def test_without_training_documents_no_near_duplicate_in_them_is_evaluated(tmp_path, runners):
    """The reason is that of the 13-grams and spans."""
    write(tmp_path, train=(), stages=STAGES.replace("near_dup: false", "near_dup: true"))
    records = run(tmp_path).metrics("train_val_overlap", "near_dup")
    assert [(record.scope.set, record.value, record.status, record.reason) for record in records] == [
        ("val", None, "not_evaluated", "no_training_documents"),
        (None, None, "not_evaluated", "no_training_documents"),
    ]


def test_near_duplicates_in_training_data_are_counted_by_set_alone(tmp_path, runners):
    """A source would be that of the held-out document; of the other statistics it is that of the training data."""
    write(tmp_path, stages=STAGES.replace("near_dup: false", "near_dup: true"))
    records = run(tmp_path).metrics("train_val_overlap", "near_dup")
    assert [(record.scope.as_dict(), record.value) for record in records] == [({"set": "val"}, 0.5), ({}, 0.5)]


def test_a_stage_that_is_left_out_with_sets_given_is_said(tmp_path, runners):
    """A note tells that what the config protects is not looked for."""
    write(tmp_path, stages="{overlap: false, near_dup: false, repeats: false}", more=QUIZ)
    manifest = run(tmp_path)
    assert any("stages.overlap is false" in note for note in runners[-1].notes)
    assert manifest.core.protected == ()


def test_a_held_out_shard_that_cannot_be_read_is_left_out_and_said(tmp_path, runners):
    """Its documents are in no number; the others are looked for."""
    write(tmp_path)
    write_file(tmp_path / "val" / "b.jsonl.gz", b"\x1f\x8b cut")
    manifest = run(tmp_path)
    assert values(manifest, "train_val_overlap")["documents", "val", None, None].value == 2
    assert any("could not be read" in note for note in runners[-1].notes)


def test_a_held_out_shard_with_too_many_bad_records_is_in_no_number(tmp_path, runners):
    """Nor is anything of it looked for: a training document that holds it is no copy, and it takes no place."""
    write(tmp_path, train=(TEXT, " ".join(WORDS[::-1])))
    lines = [json.dumps({"text": " ".join(WORDS[::-1])}), "no json"]
    write_file(tmp_path / "val" / "b.jsonl", "\n".join(lines).encode())
    manifest = run(tmp_path)
    found = values(manifest, "train_val_overlap")
    assert found["documents", "val", None, None].value == 2
    assert found["documents", None, None, None].value == 2
    assert manifest.table("shards").to_pylist()[0]["held_out_copies"] == 1
    assert any("too many bad records" in note for note in runners[-1].notes)


@pytest.mark.parametrize("kind", sample(["held-out-records", "held-out-words"], 2))
def test_what_is_damaged_of_held_out_records_is_read_again(tmp_path, runners, kind):
    """In the same run, which says so."""
    write(tmp_path)
    first = run(tmp_path)
    (path,) = [path for path in (tmp_path / "state").rglob("*") if path.is_file() and kind in str(path)]
    path.write_bytes(b"damaged")
    for index in (tmp_path / "state" / "protected").iterdir():
        index.unlink()
    assert run(tmp_path).id == first.id
    (note,) = [note for note in runners[-1].notes if "damaged" in note]
    assert str(path.relative_to(tmp_path / "state")) in note


def test_a_file_that_two_patterns_match_is_read_once(tmp_path, runners):
    """Its items are not repeated."""
    write(tmp_path, splits={"train": SPLITS["train"]}, more=QUIZ.replace("eval/q.jsonl", "eval/q.jsonl, eval/*.jsonl"))
    assert run(tmp_path).core.protected[0].items == 1


def test_a_broken_file_and_a_lost_record_are_named(tmp_path, runners):
    """Not the first files of the set."""
    write(tmp_path, splits={"train": SPLITS["train"]}, more=QUIZ.replace("eval/q.jsonl", "eval/*"))
    write_file(tmp_path / "eval" / "r.jsonl", b'{"q": "x"}\n[1]\n')
    run(tmp_path)
    assert any("first at record 1 of r.jsonl" in note for note in runners[-1].notes)
    write_file(tmp_path / "eval" / "s.csv", b'q\n"open\n')
    with pytest.raises(ConfigError, match=r"protected.quiz: s.csv cannot be read: wrong_number_of_fields line 2"):
        run(tmp_path)


@pytest.mark.tables
def test_over_the_limit_held_out_documents_are_sampled(tmp_path, runners):
    """The rates have intervals then, and so many documents that the grams fit."""
    val = [" ".join([*WORDS[number:], f"own{'abcdefghij'[number]}"]) for number in range(10)] * 40
    write(tmp_path, val=val, stages=STAGES.replace("{", "{overlap: {max_grams: 5000}, ", 1))
    manifest = run(tmp_path)
    record = values(manifest, "train_val_overlap")["ngram", "val", None, None]
    assert record.method == "sampled"
    assert record.low <= record.value <= record.high
    assert 0 < record.n < 400
    copies = values(manifest, "train_val_overlap")["train_documents", None, None, None]
    assert (copies.method, copies.reason, copies.low) == ("estimated", "held_out_sampled", None)
    assert run(tmp_path, fresh=True).id == manifest.id


def test_an_index_is_built_once_and_again_when_it_is_damaged(tmp_path, runners):
    """A rerun maps it; a changed byte is noticed."""
    write(tmp_path, more=QUIZ)
    first = run(tmp_path)
    (path,) = (tmp_path / "state" / "protected").glob("*.index")
    before = path.read_bytes()
    run(tmp_path)
    data = bytearray(before)
    data[len(before.rstrip(b"\0")) - 1] ^= 1  # what follows is padding
    path.write_bytes(data)
    assert run(tmp_path).id == first.id
    assert path.read_bytes() == before


def unknown(known, *, column="question", path="eval/a.csv", columns=None):
    """Return what is said when a column is not among the known ones."""
    wrong = {"file": 0, "unknown": column, "known": known, "columns": columns or len(known)}
    return str(wrong_file("quiz", [path], wrong))


def test_a_near_name_is_proposed():
    """And all names are listed."""
    said = unknown(["qestion", "answer"])
    assert "did you mean `qestion`" in said
    assert "Its columns are: qestion, answer." in said


def test_names_that_are_texts_are_clipped():
    """The first item of a file without a header stands in its columns' names; few of them, and their beginnings."""
    said = unknown([f"{number} the secret question " + "x" * 90 + "SECRET" for number in range(30)], columns=2_000)
    assert "SECRET" not in said
    assert len(said) < 800
    assert "and 1,990 more" in said
    assert "Is there a header line?" in said
    assert "header line" not in unknown(["a name", "b"], path="a.jsonl")


def test_another_separator_is_proposed():
    """Rather than the whole header as the name that was meant."""
    said = unknown(["question;answer"])
    assert "separated by semicolons" in said
    assert "sep=';'" in said
    assert "did you mean" not in said
    assert "separated by vertical bars" in unknown(['question|"answer"'])
    assert "separated by semicolons" in unknown(["id;question;notes", " more;answer"])
    tabs, commas = unknown(["question\tanswer"]), unknown(["question,answer"], path="eval/a.tsv")
    assert "separated by tabs? " in tabs
    assert tabs.endswith("Rename it to .tsv.")
    assert "separated by commas? " in commas
    assert commas.endswith("Rename it to .csv.")
    assert "separated" not in unknown(["a, b"])


def test_files_of_the_same_name_have_their_place():
    """In two folders."""
    assert file_name(["a/x.csv", "a/y.csv"], 1) == "y.csv"
    assert file_name(["a/x.csv", "b/x.csv"], 1) == "x.csv (file 2 of 2)"


def test_a_set_whose_reading_ended_names_the_first_files():
    """When a worker dies it is not known which file it was."""
    said = str(unreadable("quiz", [f"{number}.csv" for number in range(5)], Reason.WORKER_DIED, ""))
    assert "its files (0.csv, 1.csv, 2.csv and 2 more) cannot be read: worker_died" in said
