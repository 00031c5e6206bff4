"""A tagged, logged run with ``TrainingMonitor``: no step waits, its log is what happened, and it costs 1 % at most."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from made_corpus import MadeCorpus
from torch import nn

from dataaudit.runlog.reader import load_run
from dataaudit.training import Corpus, Documents, PackedDocuments, TrainingMonitor, byte_encoder
from dataaudit.vitals import Vitals, VitalsConfig

from .checks import ON_A_CPU, Machine, NotEvaluated, Row, no_waits
from .models import SIZES, Model
from .overhead import Trained, Ways, quartiles

PART = "monitor"
MOST = 1.01
"""Of a bare step, that a tagged and logged one may take."""
STEPS = 18
"""Of a run that must not wait: one of them is a step at which losses come from hidden states."""
Batch = dict[str, torch.Tensor]


def opened(machine: Machine) -> Corpus:
    """Return a corpus in every format, made by hand and opened."""
    if "corpus" not in machine.shared:
        folder = machine.folder / "corpus"
        folder.mkdir()
        machine.shared["corpus"] = MadeCorpus(folder).open()
    return machine.shared["corpus"]


def batches(machine: Machine, corpus: Corpus, size: str, number: int) -> list[Batch]:
    """Return batches whose tokens are on the device, and whose tags are where a loader leaves them, on the host."""
    _, _, _, _, rows, length = SIZES[size]
    packed = PackedDocuments(Documents(corpus, "train", byte_encoder(end=0)), length, epochs=64)
    loader = torch.utils.data.DataLoader(packed, rows, drop_last=True)
    found = list(itertools.islice(loader, number))
    assert len(found) == number, f"the corpus has {len(found)} batches, {number} are needed"
    return [{name: one if name == "tags" else one.to(machine.device) for name, one in batch.items()} for batch in found]


def losses_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the loss of each label, float32[rows, length]."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)


def logged_run(machine: Machine, how: str) -> str:
    """Train with vitals and a monitor that write one log; no step but the first may wait.

    Args:
        machine: Where.
        how: What the monitor is handed: ``losses``, ``logits`` or ``hidden``.

    Raises:
        AssertionError: The log is not what happened.
        NotEvaluated: This is a CPU.
    """
    size = "dry" if machine.dry else "small"
    corpus, folder = opened(machine), machine.folder / f"run-{how}"
    feed = batches(machine, corpus, size, STEPS)
    torch.manual_seed(0)
    model = Model(size).to(machine.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    config = VitalsConfig(interval=4, adapt=False, mapping=model.mapping)
    kept = []

    def step(batch: Batch) -> None:
        with vitals.step(), torch.autocast(machine.device.type, torch.bfloat16):
            hidden = model.hidden(batch["input_ids"])
            logits, labels = model.head(hidden), batch["labels"]
            losses = losses_of(logits.float(), labels)
            given: dict[str, Any] = {"losses": {"losses": losses}, "logits": {"logits": logits}}
            given |= {"hidden": {"hidden": hidden, "head": model.head}}
            monitor.batch(batch["tags"], labels=labels, **given[how])
            losses.mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        kept.append(losses.mean().detach())
        monitor.step(kept[-1])

    with (
        TrainingMonitor(folder, corpus, optimizer=optimizer, planned_tokens=10**6) as monitor,
        Vitals(model, optimizer, config, [monitor]) as vitals,
    ):
        step(feed[0])
        with no_waits(machine):
            for batch in feed[1:]:
                step(batch)
    check_log(folder, [one.item() for one in kept], scored=1 if how == "hidden" else STEPS)
    if machine.dry:
        raise NotEvaluated(ON_A_CPU)
    return f"{STEPS - 1} steps, none waited; the log holds their losses, and vitals"


def check_log(folder: Path, losses: list[float], *, scored: int) -> None:
    """Assert that a run log holds the losses of steps, the losses of their stretches, and vitals."""
    log = load_run(folder)
    steps = log.table("steps").to_pylist()
    assert [row["step"] for row in steps] == list(range(1, len(losses) + 1)), "the log lacks steps"
    for row, loss in zip(steps, losses, strict=True):
        assert abs(row["user_loss"] - loss) <= 1e-6 * loss, f"step {row['step']}: the log has another loss"
    with_losses = [row for row in steps if row["scored"]]
    assert len(with_losses) == scored, f"{len(with_losses)} steps have losses of stretches, expected {scored}"
    for row in with_losses:
        mean = row["loss_sum"] / row["scored"]
        assert abs(mean - row["user_loss"]) <= 1e-3 * mean, f"step {row['step']}: losses of stretches make {mean:.6g}"
    metrics = set(log.table("values")["metric"].to_pylist())
    assert {"attn_entropy", "update_to_weight", "learning_rate"} <= metrics, (
        f"the log has the numbers {sorted(metrics)}"
    )
    kinds = {row["kind"] for row in log.table("events").to_pylist()}
    assert not kinds & {"refused", "lost"}, f"the log has the events {sorted(kinds)}"


def cost(machine: Machine) -> tuple[str, dict[str, float]]:
    """Return what tags and the log add to a step of the bare loop of the overhead's part, as paired ratios.

    Raises:
        AssertionError: It is more than 1 %.
        NotEvaluated: This is a CPU.
    """
    size, rounds, block = ("dry", 2, 1) if machine.dry else ("124m", 12, 8)
    ways: Ways | None = machine.shared.get("ways")
    bare = Trained(machine, size, compiled=not machine.dry) if ways is None else ways.bare
    corpus = opened(machine)
    feed = itertools.cycle(batches(machine, corpus, size, 4))
    loop, ratios, milliseconds = bare.loop, [], []

    def steps(monitor: TrainingMonitor | None) -> float:
        if bare.cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        for batch in itertools.islice(feed, block):
            losses = losses_of(loop.logits(batch["input_ids"]).float(), batch["labels"])
            loss = losses.mean()
            if monitor is not None:
                monitor.batch(batch["tags"], losses=losses, labels=batch["labels"])
            loss.backward()
            loop.optimizer.step()
            loop.optimizer.zero_grad()
            if monitor is not None:
                monitor.step(loss)
        if bare.cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - began

    with (
        TrainingMonitor(machine.folder / "run-cost", corpus, optimizer=loop.optimizer) as monitor,
        machine.busy(alone=True),
    ):
        steps(monitor)
        for number in range(rounds):
            order = (None, monitor) if number % 2 else (monitor, None)
            seconds = {one: steps(one) for one in order}
            ratios.append(seconds[monitor] / seconds[None])
            milliseconds.append(seconds[None] / block * 1e3)
        assert not monitor.lost_steps, "the log lost steps"
    found = quartiles(ratios) | {"bare_ms": statistics.median(milliseconds)}
    words = (
        f"{found['ratio']:.4f} of a bare step of {found['bare_ms']:.1f} ms"
        f" (quartiles {found['low']:.4f} to {found['high']:.4f}); the limit is {MOST}"
    )
    if machine.dry:
        raise NotEvaluated(ON_A_CPU)
    assert found["ratio"] <= MOST, words
    return words, found


def rows(machine: Machine) -> Iterator[Row]:
    """Yield a row for each thing that the monitor may be handed, and one of its cost."""
    for how in ("losses", "logits", "hidden"):
        yield machine.attempt(PART, f"no wait, from {how}", logged_run, machine, how)
    yield machine.attempt(PART, "cost of a step", cost, machine)
