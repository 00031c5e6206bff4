"""Faults planted in a small model while it trains: the step at which vitals name each, and what else shows it when.

    python benchmarks/vitals_faults.py --seeds 0 1 2
    python benchmarks/vitals_faults.py --healthy 2000 --seeds 0 1 2 3  # healthy runs, one of each schedule

Every fault begins at step 301 of 400, in a run that goes on from the healthy run of the same seed. The others: the
first step at which the band of the run page flags the loss, the gradient's norm passes twice its moving average, and
the loss has been a tenth above the healthy run's for three steps.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from common import options
from torch import nn

from dataaudit.training.attribution.curve import judge
from dataaudit.vitals import Mapping, MemorySink, Vitals, VitalsConfig

Fault = Callable[["Model", torch.optim.Optimizer, int], None]
ONSET, STEPS, WIDTH, HEADS, LAYERS, VOCAB, LENGTH, BATCH = 301, 400, 48, 4, 3, 64, 24, 8
LAYER, HEAD, RATE = 1, 2, 2e-3


class Attention(nn.Module):
    """Causal attention; ``noise`` is added to queries and keys."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.noise = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what heads mix."""
        q, k, v = (one.unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
        if self.noise:
            q, k = (one + self.noise * one.detach().std() * torch.randn_like(one) for one in (q, k))
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A layer whose residual stream may be scaled."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(2))
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH))
        self.scale = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the residual stream."""
        x = x + self.attention(self.norms[0](x))
        return self.scale * (x + self.mlp(self.norms[1](x)))


class Model(nn.Module):
    """A language model whose output layer is tied to its embedding; ``spoil`` makes one micro-batch NaN."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.05)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.embedding.weight
        self.spoil = False

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        x = self.embedding(tokens)
        for place, block in enumerate(self.blocks):
            x = block(x)
            if self.spoil and place == LAYER:
                x = x * float("nan")
        return self.head(self.norm(x))


def batches(seed: int) -> Iterator[torch.Tensor]:
    """Yield tokens [BATCH, LENGTH + 1]: each depends on the one before, and on the one before that modulo 4."""
    draw = np.random.default_rng(seed)
    likely = draw.integers(0, VOCAB, (4, VOCAB, 3))
    while True:
        rows = draw.integers(0, VOCAB, (BATCH, LENGTH + 1))
        for at in range(2, LENGTH + 1):
            chosen = likely[rows[:, at - 2] % 4, rows[:, at - 1], draw.integers(0, 3, BATCH)]
            rows[:, at] = np.where(draw.random(BATCH) < 0.9, chosen, rows[:, at])
        yield torch.from_numpy(rows)


def grow(factor: float) -> Fault:
    """Return a fault: the queries of one head grow by a factor at each step."""

    def plant(model: Model, _optimizer: torch.optim.Optimizer, _since: int) -> None:
        size = WIDTH // HEADS
        model.blocks[LAYER].attention.qkv.weight.data[HEAD * size : (HEAD + 1) * size] *= factor

    return plant


def noise(model: Model, _optimizer: torch.optim.Optimizer, _since: int) -> None:
    """Add noise, as large as themselves, to queries and keys of a layer."""
    model.blocks[LAYER].attention.noise = 1.0


def residual(model: Model, _optimizer: torch.optim.Optimizer, _since: int) -> None:
    """Scale the residual stream behind a layer by 1.5."""
    model.blocks[LAYER].scale = 1.5


def frozen(model: Model, _optimizer: torch.optim.Optimizer, _since: int) -> None:
    """Freeze a layer."""
    model.blocks[LAYER].requires_grad_(requires_grad=False)


def dead(model: Model, _optimizer: torch.optim.Optimizer, _since: int) -> None:
    """Make all units of an MLP silent."""
    model.blocks[LAYER].mlp[0].bias.data.fill_(-1e3)


def untied(model: Model, _optimizer: torch.optim.Optimizer, since: int) -> None:
    """Replace the output layer's weights by a copy."""
    if since == 0:
        model.head.weight = nn.Parameter(model.head.weight.detach().clone())


def rate(_model: Model, optimizer: torch.optim.Optimizer, _since: int) -> None:
    """Take ten times the learning rate."""
    optimizer.param_groups[0]["lr"] *= 10


def spoilt(model: Model, _optimizer: torch.optim.Optimizer, since: int) -> None:
    """Make the second micro-batch of one step NaN."""
    model.spoil = since == 0


FAULTS = {
    "growing W_q of a head, 1 % a step": grow(1.01),
    "growing W_q of a head, 3 % a step": grow(1.03),
    "noise in queries and keys": noise,
    "residual stream times 1.5": residual,
    "frozen layer": frozen,
    "dead MLP": dead,
    "broken tying": untied,
    "learning rate times 10": rate,
    "NaN in one micro-batch": spoilt,
}


def share_of(schedule: str, step: int, steps: int) -> float:
    """Return the share of the full rate that a schedule has at a step."""
    warm = min(step / 50, 1.0)
    if schedule == "cosine":
        return warm * (0.1 + 0.45 * (1 + np.cos(np.pi * step / steps)))
    if schedule == "wsd":
        return warm * min(1.0, max((steps - step) / (0.2 * steps), 1e-3))
    if schedule == "restarts":
        return warm * (0.05 + 0.475 * (1 + np.cos(np.pi * (step % (steps // 3)) / (steps // 3))))
    return warm


class Run:
    """A run that another one can go on from.

    Args:
        seed: Of weights and data.
        schedule: Of the learning rate.
        steps: Its length.
    """

    def __init__(self, seed: int, schedule: str = "constant", steps: int = STEPS) -> None:
        torch.manual_seed(seed)
        self.schedule, self.steps, self.losses = schedule, steps, []
        self.model = Model()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE, betas=(0.9, 0.95))
        self.data = itertools.islice(batches(seed), 2 * steps)
        self.sink = MemorySink()
        mapping = Mapping(layers="blocks", attention="attention", heads=HEADS, mlp="mlp")
        config = VitalsConfig(mapping=mapping, interval=1, adapt=False)
        self.vitals = Vitals(self.model, self.optimizer, config, [self.sink])

    def branch(self, seed: int) -> Run:
        """Return a run that goes on from here by itself."""
        self.data, data = itertools.tee(self.data)
        made = Run(seed, self.schedule, self.steps)
        made.model.load_state_dict(self.model.state_dict())
        made.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))
        made.vitals.load_state_dict(self.vitals.state_dict())
        made.data, made.losses = data, list(self.losses)
        torch.manual_seed(seed)
        return made

    def go(self, last: int, fault: Fault | None = None) -> Run:
        """Train until a step."""
        for step in range(len(self.losses) + 1, last + 1):
            self.optimizer.param_groups[0]["lr"] = RATE * share_of(self.schedule, step, self.steps)
            if fault is not None:
                fault(self.model, self.optimizer, step - ONSET)
            spoil = self.model.spoil
            with self.vitals.step():
                total = 0.0
                for micro in range(2):
                    rows = next(self.data)
                    self.model.spoil = spoil and micro == 1
                    logits = self.model(rows[:, :-1])
                    loss = nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()) / 2
                    loss.backward()
                    total += loss.item()
                self.optimizer.step()
                self.optimizer.zero_grad()
            self.losses.append(total)
        return self


def first(steps: Iterable[int], onset: int = ONSET) -> int | None:
    """Return the first step from the onset on; None without any."""
    return min((int(one) for one in steps if one >= onset), default=None)


def flagged(losses: np.ndarray) -> np.ndarray:
    """Return the steps at which the band of the run page flags the loss."""
    held = judge(np.arange(1, len(losses) + 1), losses)
    return np.concatenate([np.arange(one.first, one.last + 1) + 1 for one in held.spikes] or [np.zeros(0)])


def above(losses: np.ndarray, healthy: np.ndarray) -> np.ndarray:
    """Return the steps at which the loss has been a tenth above the healthy run's for three steps."""
    far = ~(losses < 1.1 * healthy)
    return np.flatnonzero(far[2:] & far[1:-1] & far[:-2]) + 3


def alarms(sink: MemorySink) -> list[tuple[int, dict[str, Any]]]:
    """Return (step, detail) of what opened or joined an incident."""
    return [
        (step, {**one, "kind": kind})
        for step, kind, one in sink.events
        if kind in {"alarm", "nan_inf", "warning"} and one["incident"] and one["severity"] < 3
    ]


def healthy_runs(seeds: Sequence[int], steps: int) -> None:
    """Print what healthy runs raised."""
    total = 0
    for seed in seeds:
        run = Run(seed, ("constant", "cosine", "wsd", "restarts")[seed % 4], steps).go(steps)
        run.vitals.close()
        found = alarms(run.sink)
        total += len({one["incident"] for _, one in found})
        shown = [(step, one["rule"], one["metric"], one["layer"], one["head"]) for step, one in found[:6]]
        print(seed, run.schedule, len({one["incident"] for _, one in found}), shown, flush=True)
    print(f"{total} incidents in {len(seeds)} healthy runs of {steps} steps")


def faults(seed: int, only: str) -> None:
    """Print of each fault what a run with it showed."""
    base = Run(seed).go(ONSET - 1)
    healthy = base.branch(seed).go(STEPS)
    found = alarms(base.sink) + alarms(healthy.sink)
    print(f"seed {seed}: healthy, {len({one['incident'] for _, one in found})} incidents", found[:3], flush=True)
    for name, fault in FAULTS.items():
        if only not in name:
            continue
        run = base.branch(seed).go(STEPS, fault)
        named = alarms(run.sink)
        step, one = named[0] if named else (None, {})
        where = "".join(f", {what} {one[what]}" for what in ("layer", "head", "micro_batch") if one.get(what, -1) >= 0)
        spikes = [at for at, metric, *_, value in run.sink.values if metric == "gradient_spike_score" and value > 2]
        losses = np.array(run.losses)
        others = [flagged(losses), spikes, above(losses, np.array(healthy.losses))]
        print(
            f"| {name} | {seed} | {step} | {one.get('metric')} {one.get('rule')}{where} |",
            *(f"{first(each)} |" for each in others),
            flush=True,
        )
        run.vitals.close()


def main() -> None:
    """Print the rows of the table."""
    given = options(__doc__, seeds=[0, 1, 2], only="", healthy=0)
    torch.set_num_threads(1)
    if given.healthy:
        healthy_runs(given.seeds, given.healthy)
        return
    print("| fault | seed | named at | as | loss outside of its band | norm twice its average | loss a tenth above |")
    print("|---|---|---|---|---|---|---|")
    for seed in given.seeds:
        faults(seed, given.only)


if __name__ == "__main__":
    main()
