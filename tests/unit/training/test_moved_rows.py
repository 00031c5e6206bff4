"""Rows that come apart from their tags stop a run, whichever way they came in; else its data would be accused."""

import numpy as np
import pytest
from made_corpus import MadeCorpus
from reading import padded

from dataaudit.base.errors import TagsError
from dataaudit.training.documents import Documents, byte_encoder
from dataaudit.training.loaders.collator import TaggedCollator
from dataaudit.training.loaders.hub import tagged_records
from dataaudit.training.monitor import TrainingMonitor
from dataaudit.training.packing import PackedDocuments
from dataaudit.training.tokenfile import TokenFile, write_tokens

torch = pytest.importorskip("torch", reason="batches are torch's")
pytestmark = pytest.mark.torch
CONTEXT, ROWS = 64, 4


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """A corpus of which nobody has texts without ids."""
    return MadeCorpus(tmp_path_factory.mktemp("corpus")).open()


@pytest.fixture(scope="module")
def documents(opened):
    return Documents(opened, "train", byte_encoder(end=0))


def stacked(records):
    return {name: torch.from_numpy(np.stack([one[name] for one in records])) for name in records[0]}


def reverse(records):
    return stacked(records[::-1])


def by_sum(records):
    return stacked(sorted(records, key=lambda one: int(one["input_ids"].sum())))


def rolled(records):
    return stacked(records[1:] + records[:1])


def repeated(records):
    return stacked([records[0], *records[:-1]])


def dropped(records):
    return stacked(records[:-1])


def doubled(records):
    return stacked([*records, *records])


def cut(records):
    return {name: one[:, : CONTEXT // 2] for name, one in stacked(records).items()}


def shifted(records):
    return {name: torch.roll(one, 1, 1) for name, one in stacked(records).items()}


def left(records):
    return {name: torch.nn.functional.pad(one, (8, 0)) for name, one in stacked(records).items()}


def joined(records):
    return {name: one.reshape(1, -1) for name, one in stacked(records).items()}


def rewritten(records):
    batch = stacked(records)
    batch["input_ids"] = batch["input_ids"] ^ 1
    return batch


def labels_moved(records):
    batch = stacked(records)
    return batch | {"labels": batch["labels"].flip(0)}


def labels_rewritten(records):
    batch = stacked(records)
    return batch | {"labels": batch["labels"] ^ 1}


def backwards(records):
    return {name: one.flip(1) for name, one in stacked(records).items()}


SPOILED = [reverse, by_sum, rolled, repeated, dropped, doubled, cut, shifted, left, joined, rewritten, backwards]
SPOILED += [labels_moved, labels_rewritten]


@pytest.mark.parametrize("shift", ["inner", "outer"])
@pytest.mark.parametrize("spoil", SPOILED, ids=lambda one: one.__name__)
def test_a_collator_that_moves_or_rewrites_tagged_rows_is_an_error_at_the_first_batch(documents, spoil, shift):
    rows = PackedDocuments(documents, CONTEXT, shift=shift)
    with pytest.raises(TagsError, match="cut, changed or moved tokens"):
        TaggedCollator(spoil)([rows[place] for place in range(ROWS)])


def masked(records):
    batch = stacked(records)
    batch["labels"][:, : CONTEXT // 3] = -100
    return batch


def padded_right(records):
    batch = stacked(records)
    return {name: torch.nn.functional.pad(one, (0, 8), value=-100) for name, one in batch.items()}


def unlabelled(records):
    return {"input_ids": stacked(records)["input_ids"]}


@pytest.mark.parametrize("keep", [stacked, masked, padded_right, unlabelled], ids=lambda one: one.__name__)
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


def sources(documents, opened, folder):
    """Return every kind of rows that has tags by itself."""
    path = write_tokens(documents, folder / "train.bin")
    yield PackedDocuments(documents, CONTEXT, shift="outer"), "outer"
    yield PackedDocuments(documents, CONTEXT, shift="inner"), "inner"
    yield TokenFile(path, opened, CONTEXT), "outer"


@pytest.mark.parametrize("kind", range(3))
@pytest.mark.parametrize("how", ["losses", "logits", "labels"])
def test_a_loader_of_your_own_that_moves_rows_from_their_tags_is_an_error_at_the_first_step(
    documents, opened, tmp_path, kind, how
):
    rows, shift = list(sources(documents, opened, tmp_path))[kind]
    batch = stacked([rows[place] for place in range(ROWS)])
    for step, order in enumerate((slice(None), [3, 2, 1, 0])):
        labels = batch["labels"][order]
        given = {"labels": {}, "logits": {"logits": torch.zeros(ROWS, CONTEXT, 256)}}.get(how)
        given = {"losses": torch.zeros(ROWS, CONTEXT - (shift == "inner"))} if given is None else given
        with TrainingMonitor(tmp_path / f"run-{step}", opened, shift=shift) as monitor:
            if step:
                with pytest.raises(
                    TagsError, match="the labels of row 0 from place 0 on are not the tokens of its tags"
                ):
                    monitor.batch(batch["tags"], labels=labels, **given)
            else:
                monitor.batch(batch["tags"], labels=labels, **given)
                monitor.step(1.0)


def test_rows_that_move_later_stop_the_run_a_step_or_so_after(documents, opened, tmp_path, caplog):
    rows = PackedDocuments(documents, CONTEXT)
    batch = stacked([rows[place] for place in range(ROWS)])

    def train(monitor, steps, order):
        for _ in range(steps):
            monitor.batch(batch["tags"], labels=batch["labels"][order])
            monitor.step(1.0)
            monitor.state_dict()

    with TrainingMonitor(tmp_path / "run", opened) as monitor:
        train(monitor, 5, slice(None))
        with pytest.raises(TagsError, match="step 6: the labels of row 2"):
            train(monitor, 5, [3, 2, 1, 0])
    assert "is not to be believed" in caplog.text


def test_tokens_of_a_document_are_those_that_its_readers_have(documents, opened, tmp_path):
    file = TokenFile(write_tokens(documents, tmp_path / "train.bin"), opened, CONTEXT)
    for index in (0, 7, len(documents) - 1):
        shard, row, _ = documents.places([index])[0]
        for one in (documents, file):
            assert one.tokens_of(shard, row).tolist() == documents.tokens(index).tolist()
    for one in (documents, file):
        assert one.tokens_of(shard, 10**6) is None
        assert one.tokens_of(10**6, 0) is None
