"""torchtitan's own trainer on a CPU, to be imported before torchtitan: what it asks of an accelerator is stood in for.

Its model, loss, optimizer, loader, checkpoints and loop are its own; attention is torch's, for its own has no backward
pass on a CPU.
"""

from __future__ import annotations

import contextlib
import types
from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch", reason="its tensors are torch's")
pytest.importorskip("torchtitan", reason="its trainer is what is tested")
from torch import _utils  # noqa: E402 - after the skip

_utils._get_available_device_type = lambda: "cpu"
PROPERTIES = types.SimpleNamespace(name="cpu", total_memory=1 << 34)
ASKED = {
    "current_device": lambda: 0,
    "get_device_name": lambda *_: "cpu",
    "get_device_properties": lambda *_: PROPERTIES,
    "reset_peak_memory_stats": lambda *_: None,
    "empty_cache": lambda: None,
    "memory_stats": lambda *_: {},
}
for name, value in ASKED.items():
    setattr(torch.cpu, name, value)
if not hasattr(torch.distributed, "set_timeout"):  # of a torch that is not released yet
    torch.distributed.set_timeout = lambda *_: None

from torchtitan.components.checkpoint import CheckpointManager  # noqa: E402 - after what it asks
from torchtitan.components.loss import CrossEntropyLoss  # noqa: E402
from torchtitan.components.metrics import MetricsProcessor  # noqa: E402
from torchtitan.components.optimizer import default_adamw  # noqa: E402
from torchtitan.components.tokenizer import BaseTokenizer  # noqa: E402
from torchtitan.config import DebugConfig, TrainingConfig  # noqa: E402
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader  # noqa: E402
from torchtitan.models.common.attention import ScaledDotProductAttention  # noqa: E402
from torchtitan.models.common.config_utils import decoder_vocab_size  # noqa: E402
from torchtitan.models.llama3 import model_registry  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

BEGIN, END = 257, 256


class Bytes(BaseTokenizer):
    """Bytes between a token of the beginning and one of the end."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        """It has no settings."""

    def __init__(self, config=None, **_):
        super().__init__()
        self.bos_id, self.eos_id = BEGIN, END

    def encode(self, text, **_):
        return [BEGIN, *text.encode(), END]

    def decode(self, tokens, **_):
        return bytes(token for token in tokens if token < END).decode(errors="replace")

    def get_vocab_size(self):
        return END + 2


def config_of(folder, dataset, *, steps, rows=2, context=48, save=0):
    """Return a config of torchtitan's debug model, of one rank, that trains on a registered data set."""
    spec = model_registry("debugmodel")
    spec.model.layers = spec.model.layers[:2]
    for layer in spec.model.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    training = {"local_batch_size": rows, "global_batch_size": 2 * rows, "seq_len": context, "steps": steps}
    return Trainer.Config(
        model_spec=spec,
        dump_folder=str(folder),
        loss=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(spec)),
        optimizer=default_adamw(lr=8e-4),
        training=TrainingConfig(**training, disable_cuda_graphs=True, mixed_precision_param="float32"),
        dataloader=HuggingFaceTextDataLoader.Config(dataset=dataset, dataset_path="x"),
        tokenizer=Bytes.Config(),
        debug=DebugConfig(seed=0),
        metrics=MetricsProcessor.Config(log_freq=1),
        checkpoint=CheckpointManager.Config(enable=bool(save), interval=save or 1, last_save_model_only=False),
    )


@contextlib.contextmanager
def one_rank(monkeypatch):
    """Be the only rank of a run, as torchrun has it."""
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", "0")
    monkeypatch.setattr("time.sleep", lambda _: None)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()
