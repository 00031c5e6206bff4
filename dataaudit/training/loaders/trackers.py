"""Sinks for the trackers that a framework logs to: what ``report_to=`` and loggers name gets our numbers, too.

TensorBoard gets a run of its own below the framework's folder, since it reads one writer's newest file alone. W&B and
MLflow get them in the framework's run, with names that begin with ``dataaudit/``. Other trackers are left out.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from dataaudit.base.errors import CatchErrors, MissingExtra
from dataaudit.live.sinks.mlflow import MLflowSink
from dataaudit.live.sinks.tensorboard import TensorBoardSink
from dataaudit.live.sinks.tracker import TrackerSink
from dataaudit.live.sinks.wandb import WandbSink

_PREFIX = "dataaudit/"
_LOG = logging.getLogger("dataaudit")


def trackers_of_trainer(trainer: Any) -> list[TrackerSink]:
    """Return sinks for what ``report_to`` of a trainer of transformers names; the trainer has begun to train."""
    if not trainer.is_world_process_zero():
        return []
    sinks: list[TrackerSink | None] = []
    for callback in trainer.callback_handler.callbacks:
        match type(callback).__name__:
            case "TensorBoardCallback":
                sinks.append(_made(lambda own=callback: _tensorboard(own.tb_writer.log_dir)))
            case "WandbCallback":
                sinks.append(_made(lambda own=callback: WandbSink(own._wandb.run)))  # noqa: SLF001 - no public name
            case "MLflowCallback":
                sinks.append(_made(_active_mlflow))
    return [sink for sink in sinks if sink is not None]


def trackers_of_lightning(trainer: Any) -> list[TrackerSink]:
    """Return sinks for the loggers of a trainer of Lightning."""
    if not trainer.is_global_zero:
        return []
    sinks: list[TrackerSink | None] = []
    for logger in trainer.loggers:
        match type(logger).__name__:
            case "TensorBoardLogger":
                sinks.append(_made(lambda own=logger: _tensorboard(own.log_dir)))
            case "WandbLogger":
                sinks.append(_made(lambda own=logger: WandbSink(own.experiment)))
            case "MLFlowLogger":
                sinks.append(
                    _made(lambda own=logger: MLflowSink(own._tracking_uri, run=own.run_id, prefix=_PREFIX))  # noqa: SLF001
                )
    return [sink for sink in sinks if sink is not None]


def trackers_of_accelerate(accelerator: Any) -> list[TrackerSink]:
    """Return sinks for the trackers of an ``Accelerator``, after ``init_trackers``; close them after the run."""
    if not accelerator.is_main_process:
        return []
    sinks: list[TrackerSink | None] = []
    for tracker in accelerator.trackers:
        match tracker.name:
            case "tensorboard":
                sinks.append(_made(lambda own=tracker: _tensorboard(own.tracker.log_dir)))
            case "wandb":
                sinks.append(_made(lambda own=tracker: WandbSink(own.tracker)))
            case "mlflow":
                sinks.append(_made(_active_mlflow))
    return [sink for sink in sinks if sink is not None]


def _tensorboard(folder: str | os.PathLike[str]) -> TrackerSink:
    return TensorBoardSink(os.path.join(folder, "dataaudit"))


def _active_mlflow() -> TrackerSink:
    mlflow = sys.modules["mlflow"]
    return MLflowSink(mlflow.get_tracking_uri(), run=mlflow.active_run().info.run_id, prefix=_PREFIX)


def _made(make: Callable[[], TrackerSink]) -> TrackerSink | None:
    """Return a sink; None, with a line in the log, where it cannot be made: no run ends for it."""
    with CatchErrors() as call:
        return make()
    why = call.error.message if isinstance(call.error, MissingExtra) else call.origin
    _LOG.warning("a tracker of the run gets none of our numbers: %s", why)
    return None
