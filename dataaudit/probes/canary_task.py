"""What a canary hands to the user's training function, and what it notes of a run: losses, order, values, seconds."""

from __future__ import annotations

import hashlib
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from dataaudit.base.errors import ConfigError
from dataaudit.manifest.canary_record import TRAIN, VAL, rounded_value
from dataaudit.runlog.reader import RunLog, load_run

TIMED: Final = (
    *("step_time", "rank_time", "dataloader_wait", "dataloader_stall_frac", "comm_time_frac", "compute_time_frac"),
    *("gpu_util", "gpu_mem_used", "mfu", "hfu", "tokens_per_sec", "straggler_ratio", "checkpoint_time"),
    *("metrics_ingest_lag", "restart_rate"),
)
"""Values that belong to a machine and an hour: no part of a verdict."""


class CanaryTask:
    """A short training with a seed, which the user's function does.

    ::

        def canary(task):
            model, loader = build(task.seed, task.manifest)
            for batch in itertools.islice(loader, task.steps):
                loss = update(model, batch)
                task.step(loss, batch["input_ids"], tokens=batch["input_ids"].numel())
            task.held_out(evaluate(model))

    Instead of calling :meth:`step` the function may return its losses, and hand batches to :meth:`read`; or it may
    return the folder of a run log that a ``TrainingMonitor`` wrote, below ``folder`` for example.

    Args:
        seed: Of weights, order and all that is drawn; generators of Python, NumPy and torch are set to it beforehand.
        steps: Updates to make.
        manifest: Folder of the manifest.
        folder: Empty folder for files of this run; it is removed afterwards.
    """

    def __init__(self, seed: int, steps: int, manifest: Path, folder: Path) -> None:
        self.seed, self.steps, self.manifest, self.folder = seed, steps, manifest, folder
        self.losses: list[Any] = []
        self.values: dict[str, list[Any]] = {}
        self._steps: dict[str, list[int]] = {}
        """Of each value, by name."""
        self._held_out: Any = None
        self._order, self._rows = hashlib.sha256(), 0
        self._ticks: list[float] = []
        self._tokens = 0

    def read(self, batch: Any) -> None:
        """Note what is trained on: rows of tokens or ids of documents, arrays, lists, text, or a dictionary of these.

        How rows are divided into batches does not count; which they are, and in which order, does.
        """
        self._rows += 1
        _update(self._order, batch)

    def step(self, loss: Any, batch: Any | None = None, *, tokens: int = 0, **values: Any) -> None:
        """Note an update: its loss in nats/token, its batch, its tokens, and any further numbers by name.

        Tensors are kept as they are, and are not waited for before the end.
        """
        self._ticks.append(time.perf_counter())
        self._tokens += tokens
        self.losses.append(_plain(loss))
        for name, value in values.items():
            self._add(name, len(self.losses), _plain(value))
        if batch is not None:
            self.read(batch)

    def held_out(self, loss: Any) -> None:
        """Note the loss of held-out data after the last step, nats/token."""
        self._held_out = _plain(loss)

    def run(self, function: Any, last: int) -> dict[str, Any]:
        """Call the user's function, and return order, values, problem, seconds and tokens a second as plain values.

        Raises:
            ConfigError: It made fewer or more steps, or returned something else.
        """
        seed = self.seed
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - the user's loop may draw from it
        if "torch" in sys.modules:
            sys.modules["torch"].manual_seed(seed)
        began = time.perf_counter()
        returned = function(self)
        ended = time.perf_counter()
        self._take(returned)
        losses = [float(loss) for loss in self.losses]
        finite = all(map(math.isfinite, losses))
        if len(losses) != self.steps and (finite or not losses):
            raise ConfigError(
                f"the canary of seed {seed} made {len(losses):,} steps, {self.steps:,} were asked for",
                "Train task.steps steps, and call task.step(loss, batch) once in each.",
            )
        values = {TRAIN: losses[-last:]} | {
            name: [value for value, step in zip(own, self._steps[name], strict=True) if step > len(losses) - last]
            or own[-1:]  # what is measured more seldom counts by its newest value
            for name, own in self.values.items()
            if name.partition(".")[0] not in TIMED
        }
        means = {name: float(np.mean([float(value) for value in own])) for name, own in values.items() if own}
        if self._held_out is not None:
            means[VAL] = float(self._held_out)
        finite &= math.isfinite(means.get(VAL, 0.0))
        ticks = [float(own) for own in self.values.get("step_time", ())] or np.diff(self._ticks).tolist()
        seconds = statistics.median(ticks) if ticks else (ended - began) / self.steps
        return {
            "seed": seed,
            "order": f"sha256:{self._order.hexdigest()}" if self._rows else None,
            "values": {k: rounded_value(v) for k, v in sorted(means.items()) if math.isfinite(v)} if finite else {},
            "problem": "" if finite else "not_finite",
            "step_seconds": max(seconds, 1e-9),
            "tokens_per_sec": self._tokens / (ended - began) if self._tokens else None,
        }

    def _take(self, returned: Any) -> None:
        """Take what a function returned: nothing, losses, or the folder of a run log."""
        if returned is None:
            return
        if isinstance(returned, str | os.PathLike):
            self._take_log(load_run(Path(returned)))
        elif isinstance(returned, Sequence) or hasattr(returned, "tolist"):
            self.losses = [_plain(loss) for loss in returned]
        else:
            raise ConfigError(
                f"the canary's function returned {type(returned).__name__}",
                "Return nothing, the losses, or the folder of a run log: `dataaudit explain canary`.",
            )

    def _take_log(self, log: RunLog) -> None:
        """Take losses, documents in order, values and seconds of a run log."""
        steps = log.table("steps")
        own, sums, scored = (steps[name].to_pylist() for name in ("user_loss", "loss_sum", "scored"))
        self.losses = [
            loss if loss is not None else total / count if count else math.nan
            for loss, total, count in zip(own, sums, scored, strict=True)
        ]
        self._ticks, self._tokens = steps["time"].to_pylist(), sum(steps["targets"].to_pylist())
        stretches = log.table("stretches").sort_by(
            [(name, "ascending") for name in ("step", "rank", "micro_batch", "batch_row", "start")]
        )
        if len(stretches):
            digests = dict(enumerate(log.shards["sha256"].to_pylist()))
            self.read([digests.get(shard, "") for shard in stretches["shard"].to_pylist()])
            self.read(np.stack([stretches[name].to_numpy() for name in ("row", "start", "targets")], axis=1))
        values = log.table("values")
        before = min(steps["step"].to_pylist(), default=1) - 1
        columns = (values[name].to_pylist() for name in ("step", "metric", "layer", "head", "stat", "value"))
        for step, metric, layer, head, stat, value in zip(*columns, strict=True):
            at = "".join(f".{kind}:{n}" for kind, n in (("layer", layer), ("head", head)) if n >= 0)
            name = f"{metric}{at}" + ("" if stat == "value" else f".{stat}")
            if name == VAL:
                self._held_out = value
            else:
                self._add(name, step - before, value)

    def _add(self, name: str, step: int, value: Any) -> None:
        self.values.setdefault(name, []).append(value)
        self._steps.setdefault(name, []).append(step)


def _plain(value: Any) -> Any:
    return value.detach() if hasattr(value, "detach") else value


def _update(state: Any, item: Any) -> None:
    """Feed rows to a digest: integers of any width as int64, so that only their values count."""
    if isinstance(item, Mapping):
        for key in sorted(item):
            state.update(f"{key}\0".encode())
            _update(state, item[key])
    elif isinstance(item, str | bytes):
        state.update((item.encode("utf-8", "surrogatepass") if isinstance(item, str) else item) + b"\0")
    elif isinstance(item, Sequence) and not all(isinstance(own, int | float) for own in item):
        for own in item:
            _update(state, own)
    else:
        array = np.asarray(item.detach().cpu() if hasattr(item, "detach") else item)
        if array.dtype.kind not in "iubf":
            raise ConfigError(f"a batch of a canary: expected numbers or text, found {type(item).__name__}")
        wide = array.astype("<f8" if array.dtype.kind == "f" else "<i8")
        for row in wide.reshape(-1, wide.shape[-1]) if wide.ndim > 1 else wide[None]:
            state.update(row.size.to_bytes(8, "little") + row.tobytes())
