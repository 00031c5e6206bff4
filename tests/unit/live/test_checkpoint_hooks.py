"""Checkpoints that transformers' Trainer and Lightning write on their own."""

import os

import pytest

torch = pytest.importorskip("torch", reason="its tensors are torch's")
import restored_loop as loop  # noqa: E402 - after the skip

from dataaudit.base.errors import MissingExtra  # noqa: E402
from dataaudit.live import Checkpoints  # noqa: E402
from dataaudit.live.restore_check import restore  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # those of other people's libraries


@pytest.fixture(autouse=True)
def _generators():
    with torch.random.fork_rng():
        yield


def untested(folder, build, **options):
    """Return checkpoints whose test this process does itself, later."""
    checkpoints = Checkpoints(folder, restore_test=build, **options)
    checkpoints._testing.put = lambda _: None
    return checkpoints


def test_checkpoints_of_a_trainer_restore_and_survive_its_limit(tmp_path):
    """The trainer keeps its newest alone; ours have the same bytes, and its optimizer, schedule and generators."""
    transformers = pytest.importorskip("transformers")
    from dataaudit.live.checkpoint_hooks import TrainerCheckpoints

    config = transformers.GPT2Config(vocab_size=loop.VOCABULARY, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    rows = [{"input_ids": torch.randint(0, 64, (16,)), "labels": torch.randint(0, 64, (16,))} for _ in range(16)]
    options = {"save_steps": 2, "save_total_limit": 1, "per_device_train_batch_size": 4, "report_to": []}
    arguments = transformers.TrainingArguments(tmp_path / "out", max_steps=4, use_cpu=True, **options)
    checkpoints = untested(tmp_path / "c", loop.build_trainer)
    own = [TrainerCheckpoints(checkpoints)]
    model = transformers.GPT2LMHeadModel(config)
    transformers.Trainer(model, arguments, train_dataset=rows, callbacks=own).train()
    assert sorted(name for name in os.listdir(tmp_path / "out") if name.startswith("check")) == ["checkpoint-4"]
    made = checkpoints.list()
    assert [each.step for each in made] == [2, 4]
    for each in made:
        outcome = restore({"build": "restored_loop:build_trainer", "folder": str(each.folder), "ranks": [0]})
        assert outcome["why"] == ""
        assert outcome["compared"] > 30
    assert (made[1].path / "model.safetensors").samefile(tmp_path / "out/checkpoint-4/model.safetensors")


def test_without_lightning_its_plugin_says_what_to_install(tmp_path, monkeypatch):
    import sys

    from dataaudit.live.checkpoint_hooks import checkpoint_io

    monkeypatch.setitem(sys.modules, "lightning", None)
    monkeypatch.setitem(sys.modules, "lightning.pytorch.plugins.io", None)
    with pytest.raises(MissingExtra, match="pip install lightning"):
        checkpoint_io(Checkpoints(tmp_path))


def build_lightning(path):
    """Restore the state of Lightning's file."""
    (file,) = path.iterdir()
    state = torch.load(file, weights_only=False)
    return {"model": state["state_dict"], "optimizers": state["optimizer_states"], "schedulers": state["lr_schedulers"]}


def test_checkpoints_of_lightning_are_taken_over(tmp_path):
    """Its own callback decides when, and what is in memory is compared."""
    lightning = pytest.importorskip("lightning.pytorch", reason="its trainer is what is tested")
    from dataaudit.live.checkpoint_hooks import checkpoint_io

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, _):
            return self.layer(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 1e-2)

    rows = torch.utils.data.TensorDataset(torch.randn(8, 4))
    checkpoints = untested(tmp_path / "c", build_lightning)
    saver = lightning.callbacks.ModelCheckpoint(
        tmp_path / "out", "last", every_n_train_steps=2, enable_version_counter=False
    )
    options = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    plugins = [checkpoint_io(checkpoints)]
    trainer = lightning.Trainer(max_steps=4, callbacks=[saver], plugins=plugins, default_root_dir=tmp_path, **options)
    trainer.fit(Module(), torch.utils.data.DataLoader(rows, batch_size=2))
    assert len(os.listdir(tmp_path / "out")) == 1
    made = checkpoints.list()
    assert [each.step for each in made] == [2, 4]
    for each in made:
        outcome = restore({"build": "test_checkpoint_hooks:build_lightning", "folder": str(each.folder), "ranks": [0]})
        assert [why for why in outcome["why"].split("; ") if why and not why.startswith("rng.")] == []
        assert outcome["compared"] > 5
