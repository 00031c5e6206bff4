"""What is said of evaluation sets that cannot be used."""

from __future__ import annotations

from dataaudit.engine.plan_protected import file_name, unreadable, wrong_file
from dataaudit.scan.corpus.loss import Reason


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
