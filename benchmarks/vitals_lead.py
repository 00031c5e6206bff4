"""By how many steps attention, activations and curvature lead the loss when a small model goes wrong.

    python benchmarks/vitals_lead.py --seeds 0 1 2 --text 'docs/**/*.md'  # in this repository

A byte model learns the text of some files. Every fault begins at step 301 of 400, in a run that goes on from the
healthy run of the same seed. Printed is how many steps later a series of each metric is first alarmed or warned of; a
dash: it never is. The loss is judged by the same rules, alone, which makes its limits narrower; by the band of the run
page; and by a tenth above the healthy run's for three steps.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from common import options
from torch import nn
from vitals_faults import above, first, flagged

from dataaudit.vitals import Mapping, MemorySink, Vitals, VitalsConfig
from dataaudit.vitals.alarms import Alarms
from dataaudit.vitals.metric import Key

WIDTH, HEADS, LAYERS, LENGTH, BATCH, RATE = 64, 4, 3, 64, 12, 4e-3
LAYER, HEAD = 1, 2
METRICS = (
    "max_attn_logit",
    "attn_sink_share",
    "q_norm",
    "k_norm",
    "activation_kurtosis",
    "massive_activation",
    "spam_spike_count",
    "curvature_trace_est",
)


class Attention(nn.Module):
    """Causal attention."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what heads mix."""
        q, k, v = (one.unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the residual stream."""
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class Model(nn.Module):
    """A language model of bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(256, WIDTH), nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)

    def loss(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the loss of rows, int64[B, LENGTH + 1]."""
        x = self.embedding(rows[:, :-1]) + self.positions
        for block in self.blocks:
            x = block(x)
        return nn.functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), rows[:, 1:].flatten())


def growing(model: Model, _optimizer: torch.optim.Optimizer, _since: int) -> None:
    """Let the queries of one head grow by 5 % a step."""
    size = WIDTH // HEADS
    model.blocks[LAYER].attention.qkv.weight.data[HEAD * size : (HEAD + 1) * size] *= 1.05


def fast(_model: Model, optimizer: torch.optim.Optimizer, since: int) -> None:
    """Take eight times the learning rate."""
    if since == 0:
        optimizer.param_groups[0]["lr"] *= 8


def rounded(model: Model, _optimizer: torch.optim.Optimizer, _since: int) -> None:
    """Round the weights of one layer to four bits after the first, always towards 0."""
    for parameter in model.blocks[LAYER].parameters():
        parameter.data.view(torch.int32).bitwise_and_(-(1 << 19))


FAULTS = {"a head whose queries grow, 5 % a step": growing, "learning rate x 8": fast, "rounding towards 0": rounded}


class Run:
    """A run that another one can go on from; its curvature is estimated every ``probed`` steps, with 0 never."""

    def __init__(self, seed: int, text: np.ndarray, onset: int, probed: int) -> None:
        torch.manual_seed(seed)
        self.seed, self.text, self.losses, self.model = seed, text, [], Model()
        self.onset, self.probed = onset, probed
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE, betas=(0.9, 0.95))
        self.sink = MemorySink()
        config = VitalsConfig(
            mapping=Mapping(layers="blocks", attention="attention", heads=HEADS, mlp="mlp"), interval=1, adapt=False
        )
        self.vitals = Vitals(self.model, self.optimizer, config, [self.sink])

    def rows(self, step: int) -> torch.Tensor:
        """Return the batch of a step; step 0: the probe."""
        draw = np.random.default_rng([self.seed, step])
        starts = draw.integers(0, len(self.text) - LENGTH - 1, BATCH)
        return torch.from_numpy(self.text[starts[:, None] + np.arange(LENGTH + 1)].astype(np.int64))

    def branch(self) -> Run:
        """Return a run that goes on from here by itself."""
        made = Run(self.seed, self.text, self.onset, self.probed)
        made.model.load_state_dict(self.model.state_dict())
        made.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))
        made.vitals.load_state_dict(self.vitals.state_dict())
        made.losses = list(self.losses)
        return made

    def go(self, last: int, fault: object = None) -> Run:
        """Train until a step."""
        for step in range(len(self.losses) + 1, last + 1):
            if step <= 50:
                self.optimizer.param_groups[0]["lr"] = RATE * step / 50
            if fault is not None:
                fault(self.model, self.optimizer, step - self.onset)
            if self.probed and step % self.probed == 0:
                self.vitals.curvature(self.model.loss, self.rows(0)[:4], minutes=0, vectors=4)
            with self.vitals.step():
                loss = self.model.loss(self.rows(step))
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
            self.losses.append(loss.item())
        return self

    def alarmed(self) -> Iterator[tuple[int, str]]:
        """Yield step and metric of what was alarmed or warned of."""
        for step, kind, detail in self.sink.events:
            if kind in {"alarm", "warning", "nan_inf"} and "metric" in detail:
                yield step, detail["metric"]


def by_the_same_rules(losses: list[float]) -> list[int]:
    """Return the steps at which the loss leaves its own past, judged as amounts are."""
    alarms = Alarms([Key("residual_rms", -1, -1, "block")])
    raised = []
    for step, loss in enumerate(losses, 1):
        given = {"rate": RATE * min(step / 50, 1), "tokens": float(BATCH * LENGTH)}
        found = alarms.see(step, np.array([loss]), trials=np.full(1, np.nan), steady=False, **given)
        raised += [step for one in found if one.kind != "coverage"]
    return raised


def lead(run: Run, healthy: list[float]) -> list[str]:
    """Return how many steps after the onset each metric, and the loss, shows it."""
    losses = np.array(run.losses)
    steps = [[step for step, _ in run.alarmed()]]
    steps += [[step for step, metric in run.alarmed() if metric == name] for name in METRICS]
    steps += [by_the_same_rules(run.losses), flagged(losses), above(losses, np.array(healthy))]
    return ["-" if (at := first(own, run.onset)) is None else str(at - run.onset) for own in steps]


def main() -> None:
    """Print the rows of the table."""
    given = options(__doc__, seeds=[0, 1, 2], text="docs/**/*.md", onset=301, steps=400, probed=4)
    torch.set_num_threads(1)
    text = np.concatenate([np.fromfile(path, np.uint8) for path in sorted(Path(__file__).parents[1].glob(given.text))])
    names = ["fault", "seed", "any", *METRICS, "loss, same rules", "loss, band", "loss a tenth above"]
    print(f"{len(text):,} bytes", "| " + " | ".join(names) + " |", "|---" * len(names) + "|", sep="\n", flush=True)
    for seed in given.seeds:
        base = Run(seed, text, given.onset, given.probed).go(given.onset - 1)
        healthy = base.branch().go(given.steps)
        false = sorted({(step, name) for one in (base, healthy) for step, name in one.alarmed() if name in METRICS})
        print(f"healthy {seed}:", false, by_the_same_rules(healthy.losses), flush=True)
        for name, fault in FAULTS.items():
            run = base.branch().go(given.steps, fault)
            print("|", " | ".join([name, str(seed), *lead(run, healthy.losses)]), "|", flush=True)
            run.vitals.close()


if __name__ == "__main__":
    main()
