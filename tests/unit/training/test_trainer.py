"""transformers' Trainer with tags: nothing of the training changes, and its log says what was trained on."""

from __future__ import annotations

import numpy as np
import pytest
from made_corpus import MadeCorpus

from dataaudit.runlog.reader import load_run
from dataaudit.training.documents import Documents, byte_encoder
from dataaudit.training.packing import PackedDocuments

torch = pytest.importorskip("torch", reason="the trainer's tensors are torch's")
transformers = pytest.importorskip("transformers", reason="the trainer is transformers'")
pytest.importorskip("accelerate", reason="the trainer needs it")
from dataaudit.training.loaders.collator import TaggedCollator  # noqa: E402 - after the skip
from dataaudit.training.loaders.trainer import audit_trainer  # noqa: E402 - after the skip

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]
ROWS, CONTEXT, STEPS = 4, 64, 6


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return MadeCorpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def corpus(made):
    return made.open()


@pytest.fixture(scope="module")
def rows(corpus):
    return PackedDocuments(Documents(corpus, "train", byte_encoder(end=0)), CONTEXT, shift="inner")


def model():
    """Return a tiny GPT-2 over bytes, with dropout."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=256, n_positions=CONTEXT, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config)


def trainer_of(folder, rows, **more):
    """Return a trainer with two workers that accumulates two batches a step."""
    options = {
        "max_steps": STEPS,
        "per_device_train_batch_size": ROWS,
        "gradient_accumulation_steps": 2,
        "dataloader_num_workers": 2,
        "remove_unused_columns": False,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "seed": 1,
        "use_cpu": True,
    } | more
    evaluated = options.pop("eval_dataset", None)
    arguments = transformers.TrainingArguments(folder / "out", **options)
    return transformers.Trainer(
        model(), arguments, train_dataset=rows, eval_dataset=evaluated, data_collator=TaggedCollator()
    )


class Untagged(torch.utils.data.Dataset):
    """The same rows, without tags."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return {"input_ids": row["input_ids"], "labels": row["labels"]}


def result(trainer, **how):
    """Train; return losses, gradient norms, weights and random state, to the bit."""
    trainer.train(**how)
    logged = [(one["loss"], one["grad_norm"]) for one in trainer.state.log_history if "loss" in one]
    weights = [one.detach().numpy().tobytes() for one in trainer.model.parameters()]
    return logged, weights, torch.get_rng_state().numpy().tobytes()


def test_the_trainer_trains_as_without_it_to_the_bit(rows, corpus, tmp_path):
    plain = trainer_of(tmp_path, Untagged(rows))
    plain.data_collator = lambda records: {
        name: torch.from_numpy(np.stack([one[name] for one in records])) for name in records[0]
    }
    without = result(plain)
    found = result(audit_trainer(trainer_of(tmp_path, rows), tmp_path / "run", corpus))
    assert found == without
    assert len(found[0]) == STEPS
    log = load_run(tmp_path / "run")
    steps = log.table("steps").to_pylist()
    assert [one["micro_batches"] for one in steps] == [2] * STEPS
    assert all(one["targets"] == one["scored"] == 2 * ROWS * (CONTEXT - 1) for one in steps)
    for one, (loss, _) in zip(steps, found[0], strict=True):
        assert one["user_loss"] == pytest.approx(loss, rel=1e-3)
        labels = 2 * ROWS * CONTEXT  # transformers divides by all labels, the first ones of rows too
        assert one["loss_sum"] / labels == pytest.approx(one["user_loss"], rel=1e-5)
