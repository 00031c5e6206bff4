"""A frozen batch with a digest, and what a model makes of it: loss, entropy of its predictions, mass of the likeliest.

Equal tokens at any time of a run, so what changes is the model, or what lies between it and the tokens. The run keeps
its bits: modes, buffers and random generators are put back, and nothing waits for a device between steps.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dataaudit.base.async_copy import AsyncCopy
from dataaudit.base.errors import CatchErrors, ConfigError
from dataaudit.base.files import read_safely, write_whole
from dataaudit.live.named_functions import find, named
from dataaudit.vitals.metric import Column
from dataaudit.vitals.sinks import Reporter, Sink

if TYPE_CHECKING:
    import torch

IGNORED: Final = -100
"""Label of a position that is no target."""
TOP_K = 10
METRICS: Final = ("fixed_probe_loss", "logit_entropy_probe", "topk_mass_probe")


class ProbeBatch:
    """Tokens that never change, with the digest of their bytes.

    Args:
        input_ids: int64[B, T]
        labels: int64[B, T], -100 where there is no target; by default each position's next token.
        tokenizer: Digest of the tokenizer that made them, where it is known.

    Raises:
        ConfigError: The shapes do not fit, or there is no target.
    """

    def __init__(self, input_ids: Any, labels: Any | None = None, tokenizer: str = "") -> None:
        self.input_ids, self.tokenizer = _frozen(input_ids), tokenizer
        if labels is None:
            labels = np.full_like(self.input_ids, IGNORED)
            labels[..., :-1] = self.input_ids[..., 1:]
        self.labels = _frozen(labels)
        if self.input_ids.ndim != 2 or self.labels.shape != self.input_ids.shape or not (self.labels != IGNORED).any():
            shapes = f"{list(self.input_ids.shape)} and {list(self.labels.shape)}"
            raise ConfigError(f"probe batch: expected ids [B, T] and labels [B, T] with targets, found {shapes}")

    @classmethod
    def of_rows(cls, rows: Sequence[Any], tokenizer: str = "") -> ProbeBatch:
        """Return the batch of rows of any length, int64[tokens]: padded by 0 on the right, where there is no target.

        Raises:
            ConfigError: There is no row, or a row of fewer than two tokens.
        """
        if not rows or any(np.ndim(row) != 1 or len(row) < 2 for row in rows):
            raise ConfigError("probe batch: expected rows of two tokens or more")
        ids = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
        labels = np.full_like(ids, IGNORED)
        for at, row in enumerate(rows):
            ids[at, : len(row)], labels[at, : len(row) - 1] = row, row[1:]
        return cls(ids, labels, tokenizer)

    @property
    def rows(self) -> list[np.ndarray]:
        """Each row's tokens up to the token after its last target, int64[<= T]."""
        ends = self.labels.shape[1] - np.argmax(self.labels[:, ::-1] != IGNORED, axis=1)
        return [ids[: end + 1] for ids, end in zip(self.input_ids, ends.tolist(), strict=True)]

    @property
    def id(self) -> str:
        """Digest of shapes and bytes; another batch, or a changed one, has another."""
        digest = hashlib.sha256(str(self.input_ids.shape).encode())
        digest.update(self.input_ids.tobytes())
        digest.update(self.labels.tobytes())
        return f"sha256:{digest.hexdigest()}"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the batch to a file."""
        out = io.BytesIO()
        own: dict[str, Any] = {"id": np.array(self.id), "tokenizer": np.array(self.tokenizer)}
        np.savez(out, input_ids=self.input_ids, labels=self.labels, **own)
        write_whole(Path(path), out.getvalue())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ProbeBatch:
        """Return the batch of a file.

        Raises:
            ConfigError: It is not there, is no such file, or its tokens are not those that were saved.
        """
        with CatchErrors() as call, np.load(io.BytesIO(read_safely(Path(path))), allow_pickle=False) as arrays:
            batch = cls(arrays["input_ids"], arrays["labels"], str(arrays["tokenizer"]))
            saved = str(arrays["id"])
        if call.error is not None:
            raise ConfigError(f"probe batch {path}: it cannot be read ({call.kind})")
        if batch.id != saved:
            raise ConfigError(f"probe batch {path}: its tokens are {batch.id}, {saved} was saved")
        return batch


def _frozen(given: Any) -> np.ndarray:
    array = np.array(given.cpu().numpy() if hasattr(given, "cpu") else given, dtype=np.int64)
    array.setflags(write=False)
    return array


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What a model made of a batch; numbers may be on their way to the host."""

    batch: str
    device: str
    threads: int
    numbers: AsyncCopy

    def document(self) -> dict[str, Any]:
        """Return the numbers by metric; waits for the device."""
        values = dict(zip(METRICS, self.numbers.numpy().tolist(), strict=True))
        return {**values, "batch": self.batch, "device": self.device, "threads": self.threads}


class Probe:
    """Measures a model on a frozen batch, every so many steps or when it is asked.

    - ``fixed_probe_loss``: mean cross-entropy of the targets, nats a token,
    - ``logit_entropy_probe``: mean entropy of the predictions at the targets, nats,
    - ``topk_mass_probe``: mean probability of the ``k`` likeliest tokens there.

    Args:
        batch: What is measured on.
        forward: ``(model, input_ids)`` to logits [B, T, V], a function of a module or its name; by default
            ``model(input_ids)``, or its ``logits``.
        every: Steps between two measurements of :meth:`after_step`.
        k: Of the likeliest tokens.
        rows: Rows of the batch that pass through the model at a time.
        sinks: Where numbers go: a monitor, a run log, alerts.
    """

    def __init__(
        self,
        batch: ProbeBatch,
        *,
        forward: str | Callable[[Any, Any], Any] | None = None,
        every: int = 100,
        k: int = TOP_K,
        rows: int = 8,
        sinks: Sequence[Sink] = (),
    ) -> None:
        if every < 1 or k < 1 or rows < 1:
            raise ConfigError(f"probe: expected every, k and rows from 1, found {every}, {k}, {rows}")
        self.batch, self.every, self.k, self.rows = batch, every, k, rows
        self._given = forward
        self._forward = find(forward) if isinstance(forward, str) else forward or _plain
        self._reporter, self._pending = Reporter(sinks), deque[tuple[int, ProbeResult]]()
        self._ids: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}

    def measure(self, model: torch.nn.Module) -> ProbeResult:
        """Return what a model makes of the batch now; its modes, buffers and the random generators are put back."""
        import torch

        from dataaudit.vitals.curvature import as_it_was

        device = next((own.device for own in model.parameters()), torch.device("cpu"))
        if device not in self._ids:
            pair = (torch.from_numpy(array.copy()) for array in (self.batch.input_ids, self.batch.labels))
            ids, labels = (tensor.to(device) for tensor in pair)
            self._ids[device] = ids, labels
        ids, labels = self._ids[device]
        total = torch.zeros(len(METRICS), dtype=torch.float64, device=device)
        with as_it_was(model), torch.no_grad():
            for row in range(0, len(ids), self.rows):
                chosen = slice(row, row + self.rows)
                total += self._sums(self._forward(model, ids[chosen]), labels[chosen])
            mean = total / int((self.batch.labels != IGNORED).sum())
        return ProbeResult(
            batch=self.batch.id, device=device.type, threads=torch.get_num_threads(), numbers=AsyncCopy(mean)
        )

    def after_step(self, step: int, model: torch.nn.Module) -> None:
        """Measure if a step is due, and hand on numbers that are on the host; a failure costs only itself.

        Of a sharded model every rank calls it, since its forward pass is a collective.
        """
        if step % self.every == 0:
            with CatchErrors() as call:
                self._pending.append((step, self.measure(model)))
            if call.error is not None:
                self._reporter.failed(step, "probe", call.origin)
        self._hand_on(wait=False)

    def close(self) -> None:
        """Hand on what is measured, and wait for it."""
        self._hand_on(wait=True)

    def _sums(self, given: Any, labels: torch.Tensor) -> torch.Tensor:
        """Return sums over targets, float64[3], of logits [B, T, V]."""
        import torch

        logits = (given if isinstance(given, torch.Tensor) else given.logits).float()
        kept = labels != IGNORED
        logits, targets = logits.flatten(0, 1), labels.flatten().clamp(min=0)
        log_p = logits - logits.logsumexp(-1, keepdim=True)
        loss = -log_p.gather(1, targets[:, None])[:, 0]
        p = log_p.exp()
        entropy = -torch.where(p > 0, p * log_p, 0.0).sum(-1)
        mass = p.topk(min(self.k, p.shape[1]), -1).values.sum(-1)
        return torch.where(kept.flatten(), torch.stack([loss, entropy, mass]).double(), 0.0).sum(-1)

    def _hand_on(self, *, wait: bool) -> None:
        while self._pending and (wait or self._pending[0][1].numbers.ready()):
            step, result = self._pending.popleft()
            self._reporter.values(step, [Column(name, -1, -1, "value") for name in METRICS], result.numbers.numpy())
            if result.batch not in self._reporter.reported:
                self._reporter.reported.add(result.batch)
                self._reporter.event(step, "probe", {"batch": result.batch, "k": self.k, "every": self.every})

    def request(self, scratch: Path) -> dict[str, Any]:
        """Write the batch for another process, and return what that needs."""
        self.batch.save(scratch / "probe.npz")
        forward = None if self._given is None else named(self._given)
        return {"batch": str(scratch / "probe.npz"), "forward": forward, "k": self.k, "rows": self.rows}

    @classmethod
    def requested(cls, request: Mapping[str, Any]) -> Probe:
        """Return the probe of a request."""
        batch = ProbeBatch.load(request["batch"])
        return cls(batch, forward=request["forward"], k=request["k"], rows=request["rows"])


def _plain(model: Any, input_ids: Any) -> Any:
    return model(input_ids)
