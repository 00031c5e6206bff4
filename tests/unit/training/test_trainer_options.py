"""What a Trainer accepts trains as it does without us, or is refused by name before the first step."""

import numpy as np
import pytest
from lanes import sample
from reading import events, kinds, logged_rows, steps_of, untagged, values
from test_trainer import CONTEXT, ROWS, STEPS, Stop, result, stretches, trainer_of

from dataaudit.base.errors import ConfigError
from dataaudit.training.loaders.collator import TaggedCollator
from dataaudit.training.packing import PackedDocuments

torch = pytest.importorskip("torch", reason="the trainer's tensors are torch's")
transformers = pytest.importorskip("transformers", reason="the trainer is transformers'")
pytest.importorskip("accelerate", reason="the trainer needs it")
from dataaudit.training.loaders.trainer import audit_trainer  # noqa: E402 - after the skip

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # those of other people's libraries


@pytest.fixture(scope="module")
def rows(documents):
    return PackedDocuments(documents, CONTEXT, shift="inner")


def of_kind(kind, trainer):
    """Give a trainer another class, as one that was made of it."""
    trainer.__class__ = kind
    return trainer


class Scarce(transformers.Trainer):
    """Has memory for two rows; it runs out where its third micro-batch of four rows is computed."""

    def compute_loss(self, model, inputs, **how):
        self.seen = getattr(self, "seen", 0) + 1
        if len(inputs["input_ids"]) > 2 and self.seen == self.fails:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB.")
        return super().compute_loss(model, inputs, **how)


@pytest.mark.parametrize("fails", [1, 2, 6])
def test_a_batch_size_that_is_found_is_that_of_the_trainer_alone(rows, corpus, tmp_path, fails, caplog):
    """At the first micro-batch, within a step, and after two steps."""

    def made(collate):
        trainer = of_kind(Scarce, trainer_of(tmp_path, rows, collate=collate, auto_find_batch_size=True))
        trainer.fails = fails
        return trainer

    without = result(made(untagged))
    assert result(audit_trainer(made(None), tmp_path / "run", corpus)) == without
    assert steps_of(tmp_path / "run") == list(range(1, STEPS + 1))
    assert {row["targets"] for row in logged_rows(tmp_path / "run", "steps")} == {
        2 * 3 * (CONTEXT - 1)
    }  # 0.9 of four rows
    assert [detail["steps"] for _, detail in events(tmp_path / "run", "restarted")] == [(fails - 1) // 2]
    assert events(tmp_path / "run", *kinds(tmp_path / "run"))[-1][1] == {"lost_steps": 0, "refused_values": 0}
    assert kinds(tmp_path / "run")[-1] == "closed"


def test_memory_that_runs_out_in_our_own_sums_costs_the_losses_alone(rows, corpus, tmp_path, monkeypatch):
    def scarce(*_, **__):
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB.")

    without = result(trainer_of(tmp_path, rows, collate=untagged, auto_find_batch_size=True))
    monkeypatch.setattr("dataaudit.training.monitor.token_losses", scarce)
    trainer = trainer_of(tmp_path, rows, auto_find_batch_size=True)
    assert result(audit_trainer(trainer, tmp_path / "run", corpus)) == without
    assert {row["scored"] for row in logged_rows(tmp_path / "run", "steps")} == {0}
    assert "not_scored" in kinds(tmp_path / "run")


@pytest.mark.parametrize("resume", [False, True])
def test_a_trainer_that_trains_twice_has_two_logs(rows, corpus, tmp_path, resume, caplog):
    plain = trainer_of(tmp_path / "plain", rows, collate=untagged)
    without = [result(plain), result(plain)]
    audited = audit_trainer(trainer_of(tmp_path / "ours", rows), tmp_path / "run", corpus, resume=resume)
    assert [result(audited), result(audited)] == without
    for name in ("run", "run.2"):
        assert steps_of(tmp_path / name) == list(range(1, STEPS + 1))
        assert kinds(tmp_path / name) == ["started", "closed"]
    assert "a run log of its own" in caplog.text
    again = audit_trainer(trainer_of(tmp_path / "again", rows), tmp_path / "run", corpus)
    with pytest.raises(ConfigError, match="holds a run log already"):
        again.train()
    assert again.state.global_step == 0


def test_a_second_training_goes_on_in_the_log_that_its_checkpoint_was_saved_with(rows, corpus, tmp_path):
    more = {"save_strategy": "steps", "save_steps": 3}
    trainer = audit_trainer(trainer_of(tmp_path, rows, **more), tmp_path / "run", corpus)
    trainer.add_callback(Stop(4))
    trainer.train()
    trainer.train()
    trainer.pop_callback(Stop)
    trainer.train(resume_from_checkpoint=True)
    assert steps_of(tmp_path / "run") == [1, 2, 3, 4]
    assert steps_of(tmp_path / "run.2") == list(range(1, STEPS + 1))
    assert kinds(tmp_path / "run.2") == ["started", "resumed", "closed"]


class Alone(transformers.Trainer):
    """Its loss takes no `return_outputs`."""

    def compute_loss(self, model, inputs, num_items_in_batch=None):
        return super().compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)


class Bare(transformers.Trainer):
    """Its loss comes without outputs, whatever is asked for."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return super().compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)


class Own(transformers.Trainer):
    """Its step computes the loss by itself."""

    def training_step(self, model, inputs, num_items_in_batch=None):
        model.train()
        loss = model(**self._prepare_inputs(inputs)).loss
        self.accelerator.backward(loss)
        return loss.detach()


class Twice(transformers.Trainer):
    """Computes the loss twice in a step."""

    def training_step(self, model, inputs, num_items_in_batch=None):
        with torch.no_grad():
            self.compute_loss(model, inputs)
        return super().training_step(model, inputs, num_items_in_batch)


class Tuples(transformers.Trainer):
    """Its outputs are a plain tuple."""

    def compute_loss(self, model, inputs, return_outputs=False, **_):
        found = model(**inputs).to_tuple()
        return (found[0], found) if return_outputs else found[0]


class Loose(transformers.Trainer):
    """Its loader is no torch's: it has batches, and their number."""

    def get_train_dataloader(self):
        loader = super().get_train_dataloader()

        class Plain:
            def __len__(self):
                return len(loader)

            def __iter__(self):
                return iter(loader)

        return Plain()


@pytest.mark.parametrize("kind", [Alone, Bare, Own, Twice, Tuples, Loose], ids=lambda one: one.__name__)
def test_trainers_with_methods_of_their_own_train_as_without_us(rows, corpus, tmp_path, kind):
    without = result(of_kind(kind, trainer_of(tmp_path, rows, collate=untagged)))
    audited = audit_trainer(of_kind(kind, trainer_of(tmp_path, rows)), tmp_path / "run", corpus)
    assert result(audited) == without
    assert steps_of(tmp_path / "run") == list(range(1, STEPS + 1))
    assert all(row["scored"] for row in logged_rows(tmp_path / "run", "steps")) == (kind in (Twice, Loose))


OPTIONS = {
    "bf16": {"bf16": True},
    "label smoothing": {"label_smoothing_factor": 0.1},
    "grouped by length": {"train_sampling_strategy": "group_by_length"},
    "no accumulation, no clipping": {"gradient_accumulation_steps": 1, "max_grad_norm": 0.0},
    "epochs": {"max_steps": -1, "num_train_epochs": 0.05},
    "dropped last": {"dataloader_drop_last": True, "gradient_accumulation_steps": 3},
    "adafactor": {"optim": "adafactor"},
    "sgd on a plateau": {
        "optim": "sgd",
        "lr_scheduler_type": "reduce_lr_on_plateau",
        "eval_strategy": "steps",
        "eval_steps": 2,
    },
    "evaluated first": {"eval_on_start": True, "eval_strategy": "steps", "eval_steps": 2, "eval_accumulation_steps": 1},
    "checkpointed activations": {"gradient_checkpointing": True},
    "noise": {"neftune_noise_alpha": 5.0},
    "counted tokens": {"include_num_input_tokens_seen": True, "torch_empty_cache_steps": 1},
    "workers that stay": {"dataloader_num_workers": 1, "dataloader_persistent_workers": True},
    "nothing logged": {"logging_strategy": "no"},
    "saved alone": {"save_strategy": "steps", "save_steps": 2, "save_only_model": True, "save_total_limit": 1},
}


@pytest.mark.parametrize("name", sample(list(OPTIONS), 5))
def test_options_of_the_trainer_train_as_without_us(rows, corpus, tmp_path, name):
    held_out = [{"input_ids": np.arange(CONTEXT), "labels": np.arange(CONTEXT)}] * 8  # without any tag
    options = {"max_steps": 3} | OPTIONS[name]
    without = result(trainer_of(tmp_path / "plain", rows, collate=untagged, eval_dataset=held_out, **options))
    trainer = trainer_of(tmp_path / "ours", rows, eval_dataset=held_out, **options)
    assert result(audit_trainer(trainer, tmp_path / "run", corpus)) == without
    assert len(steps_of(tmp_path / "run")) == trainer.state.global_step > 0
    assert trainer.evaluate()["eval_loss"] > 0
    assert trainer.predict(held_out).metrics["test_loss"] > 0


def test_a_model_of_few_bits_keeps_its_log_and_trains_as_without_us(rows, corpus, tmp_path):
    """What `from_pretrained` gives is in bfloat16: so are the norm, and the loss of some models."""
    weights = []
    for collate in (untagged, None):
        trainer = trainer_of(tmp_path, rows, collate=collate)
        trainer.model.to(torch.bfloat16)
        (trainer if collate else audit_trainer(trainer, tmp_path / "run", corpus)).train()
        weights.append([one.detach().float().numpy().tobytes() for one in trainer.model.parameters()])
    assert weights[0] == weights[1]
    assert steps_of(tmp_path / "run") == list(range(1, STEPS + 1))
    assert set(values(tmp_path / "run", "grad_global_norm")) == set(range(1, STEPS + 1))


def test_an_optimizer_without_a_rate_and_odd_losses_of_evaluations_train_as_without_us(rows, corpus, tmp_path):
    def odd(folder, **more):
        trainer = trainer_of(folder, rows, eval_dataset=torch.utils.data.Subset(rows, range(4)), **more)
        trainer.optimizer = transformers.Adafactor(trainer.model.parameters(), lr=None, relative_step=True)
        trainer.lr_scheduler = transformers.optimization.AdafactorSchedule(trainer.optimizer)
        trainer.compute_metrics = lambda _: {"strange_loss": "high", "other_loss": torch.ones(2), "no_loss": None}
        return trainer

    more = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "no"}
    without = result(odd(tmp_path / "plain", collate=untagged, **more))
    assert result(audit_trainer(odd(tmp_path / "ours", **more), tmp_path / "run", corpus)) == without
    assert steps_of(tmp_path / "run") == list(range(1, STEPS + 1))
    assert set(values(tmp_path / "run", "val_loss")) == {2, 4, 6}


class Raises(transformers.TrainerCallback):
    """Raises at some step."""

    def on_step_end(self, args, state, control, **_):
        if state.global_step == 3:
            raise KeyError("a callback of yours")


def test_a_callback_that_raises_ends_the_log_and_another_training_may_follow(rows, corpus, tmp_path):
    trainer = audit_trainer(trainer_of(tmp_path, rows), tmp_path / "run", corpus)
    trainer.add_callback(Raises())
    with pytest.raises(KeyError, match="a callback of yours"):
        trainer.train()
    assert steps_of(tmp_path / "run") == [1, 2, 3]
    assert kinds(tmp_path / "run") == ["started", "failed", "closed"]
    trainer.pop_callback(Raises)
    trainer.train()
    assert steps_of(tmp_path / "run.2") == list(range(1, STEPS + 1))


def test_a_checkpoint_that_cannot_hold_the_logs_state_does_not_stop_the_run(
    rows, corpus, tmp_path, monkeypatch, caplog
):
    def full(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dataaudit.training.loaders.trainer.write_whole", full)
    more = {"save_strategy": "steps", "save_steps": 3}
    audit_trainer(trainer_of(tmp_path, rows, **more), tmp_path / "run", corpus).train()
    assert steps_of(tmp_path / "run") == list(range(1, STEPS + 1))
    assert "no run can go on from it" in caplog.text


def test_two_trainers_have_a_log_each_and_share_none(rows, corpus, tmp_path):
    for name in ("one", "two"):
        audit_trainer(trainer_of(tmp_path, rows), tmp_path / name, corpus).train()
    assert stretches(tmp_path / "one") == stretches(tmp_path / "two")
    three = audit_trainer(trainer_of(tmp_path, rows), tmp_path / "one", corpus)
    with pytest.raises(ConfigError, match="holds a run log already"):
        three.train()


def test_a_data_set_that_does_not_know_its_length_is_streamed(rows, corpus, tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return (rows[place] for place in range(STEPS * 2 * ROWS))

        def __len__(self):
            raise TypeError("unknown")

    without = result(trainer_of(tmp_path, Stream(), collate=untagged))
    trainer = trainer_of(tmp_path, Stream(), collate=TaggedCollator())
    assert result(audit_trainer(trainer, tmp_path / "run", corpus)) == without
