"""What a framework logs to gets our numbers: the Trainer's `report_to`, loggers of Lightning, Accelerate's trackers.

`make test-frameworks` installs the trackers and Lightning, and counts a test that is skipped as failed.
"""

import json

import numpy as np
import pytest
from reading import logged_rows, tiny_gpt2

from dataaudit.training.loaders.collator import TaggedCollator
from dataaudit.training.loaders.hub import tagged_dataset
from dataaudit.training.packing import PackedDocuments

torch = pytest.importorskip("torch", reason="the trainer's tensors are torch's")
transformers = pytest.importorskip("transformers", reason="its trainer is what is tested")
accelerate = pytest.importorskip("accelerate", reason="its trackers are what is tested")
accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason="TensorBoard's reader is what is tested"
)
wandb = pytest.importorskip("wandb", reason="W&B is what is tested")
mlflow = pytest.importorskip("mlflow", reason="MLflow is what is tested")
lightning = pytest.importorskip("lightning.pytorch", reason="its loggers are what is tested")
from lightning.pytorch import loggers  # noqa: E402 - after the skips

from dataaudit.training.loaders.lightning import AuditCallback  # noqa: E402
from dataaudit.training.loaders.trackers import trackers_of_accelerate  # noqa: E402
from dataaudit.training.loaders.trainer import audit_trainer  # noqa: E402
from dataaudit.training.monitor import TrainingMonitor  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # those of other people's libraries
ROWS, CONTEXT, STEPS = 4, 64, 4


@pytest.fixture(scope="module")
def rows(documents):
    return PackedDocuments(documents, CONTEXT, shift="inner")


@pytest.fixture(autouse=True)
def _places(tmp_path, monkeypatch):
    """Trackers write below a folder of the test, and send nothing."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    wandb.teardown()  # it reads its settings once a process, and tests of another file may have had it do so
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'runs.db'}")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "tb"))
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'runs.db'}")
    yield
    wandb.finish()
    while mlflow.active_run():
        mlflow.end_run()


def losses(folder):
    """Return the loss of each step of a run log."""
    return {row["step"]: row["user_loss"] for row in logged_rows(folder, "steps")}


def of_tensorboard(folder):
    from tensorboard.util.tensor_util import make_ndarray

    reader = accumulator.EventAccumulator(str(folder), {"tensors": 0}).Reload()
    return {item.step: float(make_ndarray(item.tensor_proto)) for item in reader.Tensors("train_loss_raw")}


def of_mlflow(folder):
    """Return the losses of the only run, and all names that it has."""
    client = mlflow.tracking.MlflowClient(f"sqlite:///{folder / 'runs.db'}")
    (run,) = client.search_runs([item.experiment_id for item in client.search_experiments()])
    history = client.get_metric_history(run.info.run_id, "dataaudit/train_loss_raw")
    return {item.step: item.value for item in history}, set(run.data.metrics)


def of_wandb(seen):
    own = [row for row in seen if "dataaudit/train_loss_raw" in row]
    return {row["dataaudit/step"]: row["dataaudit/train_loss_raw"] for row in own}


@pytest.fixture
def wandb_rows(monkeypatch):
    """The rows that a run of W&B is given; its file is read in tests/unit/live/test_trackers.py."""
    seen, own = [], wandb.Run.log
    monkeypatch.setattr(
        wandb.Run, "log", lambda self, row, *more, **how: (seen.append(row), own(self, row, *more, **how))
    )
    return seen


def trainer_of(folder, rows, report_to):
    arguments = transformers.TrainingArguments(
        folder / "out",
        max_steps=STEPS,
        per_device_train_batch_size=ROWS,
        remove_unused_columns=False,
        logging_steps=1,
        save_strategy="no",
        report_to=report_to,
        disable_tqdm=True,
        use_cpu=True,
    )
    return transformers.Trainer(tiny_gpt2(CONTEXT), arguments, train_dataset=rows, data_collator=TaggedCollator())


def test_what_report_to_names_gets_our_numbers_beside_the_trainers_own(rows, corpus, tmp_path, wandb_rows):
    trainer = audit_trainer(trainer_of(tmp_path, rows, ["tensorboard", "wandb", "mlflow"]), tmp_path / "run", corpus)
    trainer.train()
    expected = losses(tmp_path / "run")
    assert len(expected) == STEPS
    assert of_tensorboard(tmp_path / "tb/dataaudit") == expected
    assert of_wandb(wandb_rows) == expected
    found, names = of_mlflow(tmp_path)
    assert found == expected
    assert "loss" in names
    theirs = accumulator.EventAccumulator(str(tmp_path / "tb")).Reload().Tags()["scalars"]
    assert "train/loss" in theirs
    assert any("train/loss" in row for row in wandb_rows)


@pytest.mark.parametrize("way", ["nothing", "none of ours"])
def test_nothing_is_sent_where_nothing_is_named_or_no_sinks_are_wanted(rows, corpus, tmp_path, way):
    given = {} if way == "nothing" else {"sinks": ()}
    trainer = trainer_of(tmp_path, rows, [] if way == "nothing" else ["tensorboard"])
    audit_trainer(trainer, tmp_path / "run", corpus, **given).train()
    assert losses(tmp_path / "run")
    assert not (tmp_path / "tb/dataaudit").exists()


def test_a_tracker_that_cannot_be_had_ends_no_run(rows, corpus, tmp_path, monkeypatch, caplog):
    from dataaudit.base import extras

    monkeypatch.setattr(extras, "absent", lambda extra: (extra,))
    audit_trainer(trainer_of(tmp_path, rows, ["tensorboard"]), tmp_path / "run", corpus).train()
    assert len(losses(tmp_path / "run")) == STEPS
    assert "gets none of our numbers: TensorBoardSink needs packages" in caplog.text


def test_what_report_to_names_gets_our_numbers_of_trls_trainer_too(corpus, documents, tmp_path):
    trl = pytest.importorskip("trl", reason="its trainer is what is tested")
    import tokenizers

    words = tokenizers.models.WordLevel({f"t{each}": each for each in range(256)}, unk_token="t1")
    own = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(words), eos_token="t0", pad_token="t1"
    )
    given = {
        "max_steps": STEPS,
        "per_device_train_batch_size": 2,
        "max_length": CONTEXT,
        "gradient_checkpointing": False,
    }
    given |= {"use_cpu": True, "bf16": False, "save_strategy": "no", "report_to": ["tensorboard"]}
    arguments = trl.SFTConfig(tmp_path / "out", remove_unused_columns=False, **given)
    records = tagged_dataset(documents)
    audit_trainer(
        trl.SFTTrainer(tiny_gpt2(CONTEXT), arguments, train_dataset=records, processing_class=own),
        tmp_path / "run",
        corpus,
    ).train()
    expected = losses(tmp_path / "run")
    assert len(expected) == STEPS
    assert of_tensorboard(tmp_path / "tb/dataaudit") == expected


class Module(lightning.LightningModule):
    """The next byte by the last one."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Embedding(256, 16), torch.nn.Linear(16, 256))

    def training_step(self, batch, _):
        logits = self.layers(batch["input_ids"])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
        return {"loss": loss, "logits": logits}

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-2)


def test_lightnings_loggers_get_our_numbers(corpus, documents, tmp_path, wandb_rows):
    rows = PackedDocuments(documents, CONTEXT)
    given = [
        loggers.TensorBoardLogger(tmp_path, name="tb", version="7"),
        loggers.WandbLogger(project="own", save_dir=tmp_path, offline=True),
        loggers.MLFlowLogger(tracking_uri=f"sqlite:///{tmp_path / 'runs.db'}"),
    ]
    trainer = lightning.Trainer(
        max_steps=STEPS,
        callbacks=[AuditCallback(tmp_path / "run", corpus)],
        logger=given,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(rows, ROWS, collate_fn=TaggedCollator()))
    expected = losses(tmp_path / "run")
    assert len(expected) == STEPS
    assert of_tensorboard(tmp_path / "tb/7/dataaudit") == expected
    assert of_wandb(wandb_rows) == expected
    assert of_mlflow(tmp_path)[0] == expected


def test_accelerates_trackers_get_our_numbers(rows, corpus, tmp_path, wandb_rows):
    accelerator = accelerate.Accelerator(cpu=True, log_with=["tensorboard", "wandb", "mlflow"], project_dir=tmp_path)
    accelerator.init_trackers("own", init_kwargs={"mlflow": {"logging_dir": None}})
    network = tiny_gpt2(CONTEXT)
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3)
    loader = torch.utils.data.DataLoader(rows, batch_size=ROWS, collate_fn=TaggedCollator())
    network, optimizer, loader = accelerator.prepare(network, optimizer, loader)
    sinks = trackers_of_accelerate(accelerator)
    assert len(sinks) == 3
    with TrainingMonitor(tmp_path / "run", corpus, shift="inner", sinks=sinks) as monitor:
        for step, batch in enumerate(monitor.loader(loader), 1):
            tags = batch.pop("tags")
            outputs = network(**batch)
            accelerator.backward(outputs.loss)
            optimizer.step()
            optimizer.zero_grad()
            monitor.batch(tags, logits=outputs.logits.detach(), labels=batch["labels"])
            monitor.step(outputs.loss)
            if step == STEPS:
                break
    for sink in sinks:
        sink.close()
        assert not sink.lost, json.dumps(sink.lost)
    accelerator.end_training()
    expected = losses(tmp_path / "run")
    assert np.isfinite([*expected.values()]).all()
    assert of_tensorboard(tmp_path / "own/dataaudit") == expected
    assert of_wandb(wandb_rows) == expected
    assert of_mlflow(tmp_path)[0] == expected
