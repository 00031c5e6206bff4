"""Rows that come apart from their tags stop a run, whichever way they came in; else its data would be accused."""

import numpy as np
import pytest
from reading import padded

from dataaudit.base.errors import TagsError
from dataaudit.training.loaders.collator import TaggedCollator
from dataaudit.training.loaders.hub import tagged_records
from dataaudit.training.monitor import TrainingMonitor
from dataaudit.training.packing import PackedDocuments
from dataaudit.training.tokenfile import TokenFile, write_tokens

torch = pytest.importorskip("torch", reason="batches are torch's")
pytestmark = pytest.mark.torch
CONTEXT, ROWS = 64, 4


def stacked(records):
    return {name: torch.from_numpy(np.stack([one[name] for one in records])) for name in records[0]}


def of_each(change):
    """Return a collator that changes each column alike."""
    return lambda records: {name: change(column) for name, column in stacked(records).items()}


def of(name, change):
    """Return a collator that changes a column alone."""
    return lambda records: (batch := stacked(records)) | {name: change(batch[name])}


SPOILED = {
    "reverse": lambda records: stacked(records[::-1]),
    "by sum": lambda records: stacked(sorted(records, key=lambda one: int(one["input_ids"].sum()))),
    "rolled": lambda records: stacked(records[1:] + records[:1]),
    "repeated": lambda records: stacked([records[0], *records[:-1]]),
    "dropped": lambda records: stacked(records[:-1]),
    "doubled": lambda records: stacked([*records, *records]),
    "cut": of_each(lambda column: column[:, : CONTEXT // 2]),
    "shifted": of_each(lambda column: torch.roll(column, 1, 1)),
    "left": of_each(lambda column: torch.nn.functional.pad(column, (8, 0))),
    "joined": of_each(lambda column: column.reshape(1, -1)),
    "backwards": of_each(lambda column: column.flip(1)),
    "rewritten": of("input_ids", lambda column: column ^ 1),
    "labels moved": of("labels", lambda column: column.flip(0)),
    "labels rewritten": of("labels", lambda column: column ^ 1),
}


@pytest.mark.parametrize("shift", ["inner", "outer"])
@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_a_collator_that_moves_or_rewrites_tagged_rows_is_an_error_at_the_first_batch(documents, spoil, shift):
    rows = PackedDocuments(documents, CONTEXT, shift=shift)
    with pytest.raises(TagsError, match="cut, changed or moved tokens"):
        TaggedCollator(spoil)([rows[place] for place in range(ROWS)])


KEPT = {
    "stacked": stacked,
    "masked": of("labels", lambda column: torch.cat([torch.full_like(column[:, :20], -100), column[:, 20:]], 1)),
    "padded right": of_each(lambda column: torch.nn.functional.pad(column, (0, 8), value=-100)),
    "unlabelled": lambda records: {"input_ids": stacked(records)["input_ids"]},
}


@pytest.mark.parametrize("keep", KEPT.values(), ids=KEPT)
def test_masks_and_padding_behind_rows_are_none(documents, keep):
    rows = PackedDocuments(documents, CONTEXT, shift="inner")
    records = [rows[place] for place in range(ROWS)]
    assert TaggedCollator(keep)(records)["tags"].tolist() == [one["tags"].tolist() for one in records]


def other_labels(records):
    batch = padded(records)
    return batch | {"labels": torch.where(batch["labels"] == -100, -100, batch["labels"] ^ 1)}


def test_labels_that_are_not_the_inputs_are_an_error_of_untagged_records_too(documents):
    records = [one for _, one in zip(range(3), tagged_records(documents), strict=False)]
    TaggedCollator(padded)(records)
    with pytest.raises(TagsError, match="cut, changed or moved tokens"):
        TaggedCollator(other_labels)(records)


def sources(documents, corpus, folder):
    """Return every kind of rows that has tags by itself."""
    path = write_tokens(documents, folder / "train.bin")
    yield PackedDocuments(documents, CONTEXT, shift="outer"), "outer"
    yield PackedDocuments(documents, CONTEXT, shift="inner"), "inner"
    yield TokenFile(path, corpus, CONTEXT), "outer"


@pytest.mark.parametrize("kind", range(3))
@pytest.mark.parametrize("how", ["losses", "logits", "labels"])
def test_a_loader_of_your_own_that_moves_rows_from_their_tags_is_an_error_at_the_first_step(
    documents, corpus, tmp_path, kind, how
):
    rows, shift = list(sources(documents, corpus, tmp_path))[kind]
    batch = stacked([rows[place] for place in range(ROWS)])
    given = {
        "losses": {"losses": torch.zeros(ROWS, CONTEXT - (shift == "inner"))},
        "logits": {"logits": torch.zeros(ROWS, CONTEXT, 256)},
        "labels": {},
    }[how]
    with TrainingMonitor(tmp_path / "right", corpus, shift=shift) as monitor:
        monitor.batch(batch["tags"], labels=batch["labels"], **given)
        monitor.step(1.0)
    with (
        TrainingMonitor(tmp_path / "moved", corpus, shift=shift) as monitor,
        pytest.raises(TagsError, match="the labels of row 0 from place 0 on are not the tokens of its tags"),
    ):
        monitor.batch(batch["tags"], labels=batch["labels"].flip(0), **given)


def test_rows_that_move_later_stop_the_run_a_step_or_so_after(documents, corpus, tmp_path, caplog):
    rows = PackedDocuments(documents, CONTEXT)
    batch = stacked([rows[place] for place in range(ROWS)])

    def train(monitor, steps, order):
        for _ in range(steps):
            monitor.batch(batch["tags"], labels=batch["labels"][order])
            monitor.step(1.0)
            monitor.state_dict()

    with TrainingMonitor(tmp_path / "run", corpus) as monitor:
        train(monitor, 5, slice(None))
        with pytest.raises(TagsError, match="step 6: the labels of row 2"):
            train(monitor, 5, [3, 2, 1, 0])
    assert "is not to be believed" in caplog.text


def test_tokens_of_a_document_are_those_that_its_readers_have(documents, corpus, tmp_path):
    file = TokenFile(write_tokens(documents, tmp_path / "train.bin"), corpus, CONTEXT)
    for index in (0, 7, len(documents) - 1):
        shard, row, _ = documents.places([index])[0]
        for one in (documents, file):
            assert one.tokens_of(shard, row).tolist() == documents.tokens(index).tolist()
    for one in (documents, file):
        assert one.tokens_of(shard, 10**6) is None
        assert one.tokens_of(10**6, 0) is None
