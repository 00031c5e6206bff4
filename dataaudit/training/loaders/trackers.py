"""Sinks for the trackers that a framework logs to: what ``report_to=`` and loggers name gets our numbers, too.

TensorBoard gets a run of its own below the framework's folder, since it reads one writer's newest file alone. W&B and
MLflow get them in the framework's run, with names that begin with ``dataaudit/``. Other trackers are left out.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from dataaudit.base.errors import CatchErrors, MissingExtra
from dataaudit.live.sinks.mlflow import MLflowSink
from dataaudit.live.sinks.tensorboard import TensorBoardSink
from dataaudit.live.sinks.tracker import TrackerSink
from dataaudit.live.sinks.wandb import WandbSink

_PREFIX = "dataaudit/"
_LOG = logging.getLogger("dataaudit")


Makers = Mapping[str, Callable[[Any], TrackerSink]]


def trackers_of_trainer(trainer: Any) -> list[TrackerSink]:
    """Return sinks for what ``report_to`` of a trainer of transformers names; the trainer has begun to train."""
    named = ((type(own).__name__, own) for own in trainer.callback_handler.callbacks)
    return _sinks(_OF_TRAINER, named) if trainer.is_world_process_zero() else []


def trackers_of_lightning(trainer: Any) -> list[TrackerSink]:
    """Return sinks for the loggers of a trainer of Lightning."""
    return (
        _sinks(_OF_LIGHTNING, ((type(own).__name__, own) for own in trainer.loggers)) if trainer.is_global_zero else []
    )


def trackers_of_accelerate(accelerator: Any) -> list[TrackerSink]:
    """Return sinks for the trackers of an ``Accelerator``, after ``init_trackers``; close them after the run."""
    named = ((own.name, own.tracker) for own in accelerator.trackers)
    return _sinks(_OF_ACCELERATE, named) if accelerator.is_main_process else []


def _tensorboard(folder: str | os.PathLike[str]) -> TrackerSink:
    return TensorBoardSink(os.path.join(folder, "dataaudit"))


def _active_mlflow(_: Any) -> TrackerSink:
    mlflow = sys.modules["mlflow"]
    return MLflowSink(mlflow.get_tracking_uri(), run=mlflow.active_run().info.run_id, prefix=_PREFIX)


_OF_TRAINER: Final[Makers] = {
    "TensorBoardCallback": lambda own: _tensorboard(own.tb_writer.log_dir),
    "WandbCallback": lambda _: WandbSink(sys.modules["wandb"].run),
    "MLflowCallback": _active_mlflow,
}
_OF_LIGHTNING: Final[Makers] = {
    "TensorBoardLogger": lambda own: _tensorboard(own.log_dir),
    "WandbLogger": lambda own: WandbSink(own.experiment),
    "MLFlowLogger": lambda own: MLflowSink(own._tracking_uri, run=own.run_id, prefix=_PREFIX),  # noqa: SLF001 - the logger tells its address nowhere else
}
_OF_ACCELERATE: Final[Makers] = {
    "tensorboard": lambda own: _tensorboard(own.log_dir),
    "wandb": WandbSink,
    "mlflow": _active_mlflow,
}


def _sinks(makers: Makers, named: Iterable[tuple[str, Any]]) -> list[TrackerSink]:
    """Return the sinks that can be made; of another the log has a line, and no run ends for it."""
    sinks = []
    for name, own in named:
        if name in makers:
            with CatchErrors() as call:
                sinks.append(makers[name](own))
            if call.error is not None:
                why = call.error.message if isinstance(call.error, MissingExtra) else call.origin
                _LOG.warning("a tracker of the run gets none of our numbers: %s", why)
    return sinks
