"""Checkpoints that a framework writes on its own: taken over as they appear, whatever it deletes later.

::

    trainer = Trainer(..., callbacks=[TrainerCheckpoints(checkpoints)])
    trainer = lightning.Trainer(plugins=[checkpoint_io(checkpoints)])
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dataaudit.base.errors import MissingExtra
from dataaudit.live.checkpoints import Checkpoints

try:
    from transformers import TrainerCallback
except ImportError:  # the plugin of Lightning needs no transformers
    TrainerCallback = object


class TrainerCheckpoints(TrainerCallback):
    """Takes over each checkpoint of transformers' ``Trainer``, with what is in memory: model, optimizer, scheduler.

    Args:
        checkpoints: Where they are taken over to; of the same rank.
        copy: As of :meth:`Checkpoints.adopt`: for an output folder whose steps are written again.
    """

    def __init__(self, checkpoints: Checkpoints, *, copy: bool = False) -> None:
        self.checkpoints, self._copy = checkpoints, copy

    def on_save(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Take over what was just written."""
        del control
        names = {"model": "model", "optimizer": "optimizer", "lr_scheduler": "scheduler"}
        memory = {own: given[name] for name, own in names.items() if given.get(name) is not None}
        memory = {name: getattr(own, "optimizer", own) if name == "optimizer" else own for name, own in memory.items()}
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        self.checkpoints.adopt(folder, state.global_step, state=memory, copy=self._copy)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Wait for the tests that are under way."""
        self.checkpoints.close()


def checkpoint_io(checkpoints: Checkpoints) -> Any:
    """Return a plugin for Lightning's trainer that takes over each checkpoint as it is written.

    The parts of what is in memory are those of Lightning's file: ``model``, ``optimizers``, ``schedulers``.

    Raises:
        MissingExtra: Lightning is not installed.
    """
    try:
        from lightning.pytorch.plugins.io import TorchCheckpointIO
    except ImportError:
        raise MissingExtra("a plugin for Lightning needs it: pip install lightning") from None

    class AdoptingIO(TorchCheckpointIO):
        """Writes as Lightning does, to a path on this machine; then the file has a second name."""

        def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
            beside = f"{path}.saving"  # a file that is written again, such as last.ckpt, leaves the link to it alone
            super().save_checkpoint(checkpoint, beside, storage_options)
            os.replace(beside, path)
            names = {"state_dict": "model", "optimizer_states": "optimizers", "lr_schedulers": "schedulers"}
            memory = {own: checkpoint[name] for name, own in names.items() if name in checkpoint}
            checkpoints.adopt(path, int(checkpoint["global_step"]), state=memory)

    return AdoptingIO()
