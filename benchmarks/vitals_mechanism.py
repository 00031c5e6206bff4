"""Faults of precision, optimizer, router and data in two small models: which metric sees each, and when the loss does.

    python benchmarks/vitals_mechanism.py --seeds 0 1 2

A dense model and a mixture of 32 experts, 8 of them a token, two layers each. Every fault begins at step 301 of 500, in
a run that goes on from the healthy run of the same seed. A metric sees a fault at the first step at which an alarm of
its own is raised, a hint among them; an alarm that the healthy run raises within the same steps too is a false one.
Roundings of attention's output: *biased* cuts numbers to bfloat16 towards minus infinity, *unbiased* rounds them up or
down at random, and is the sham.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import vitals_faults as small
from common import options
from torch import nn

from dataaudit.vitals import Mapping, MemorySink, Vitals, VitalsConfig

ONSET, STEPS, LAYERS, EXPERTS, CHOSEN, INNER, RATE, BALANCE = 301, 500, 2, 32, 8, 32, 2e-3, 1e-2
Fault = Callable[["Run", int], None]


def cut(values: torch.Tensor, how: str) -> torch.Tensor:
    """Return values in bfloat16, as float32; gradients pass as if nothing was rounded."""
    bits = values.detach().contiguous().view(torch.int32)
    if how == "biased":  # towards minus infinity: a negative number's bits grow away from zero
        bits = bits + (values < 0).int() * 0xFFFF
    else:
        bits = bits + torch.randint(0, 1 << 16, bits.shape, dtype=torch.int32)
    return values + ((bits & -0x10000).view(torch.float32) - values).detach()


class Attention(small.Attention):
    """Attention whose output may be rounded."""

    rounding = ""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what heads mix."""
        q, k, v = (one.unflatten(-1, (small.HEADS, -1)).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = cut(mixed, self.rounding) if self.rounding else mixed
        return self.out(mixed.transpose(1, 2).flatten(2))


class Mixture(nn.Module):
    """Experts in two tensors, and a router with the auxiliary loss of Switch."""

    def __init__(self) -> None:
        super().__init__()
        self.top_k, self.aux = CHOSEN, torch.zeros(())
        self.router = nn.Linear(small.WIDTH, EXPERTS, bias=True)
        self.router.bias.requires_grad_(requires_grad=False).zero_()
        self.up = nn.Parameter(torch.randn(EXPERTS, small.WIDTH, INNER) * small.WIDTH**-0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, INNER, small.WIDTH) * INNER**-0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the chosen experts add."""
        shares = self.router(x).softmax(-1)
        weights, chosen = shares.topk(CHOSEN)
        gates = torch.zeros_like(shares).scatter(-1, chosen, weights / weights.sum(-1, keepdim=True))
        sent = (gates > 0).float().mean((0, 1)) / CHOSEN
        self.aux = EXPERTS * (sent * shares.mean((0, 1))).sum()
        inner = torch.einsum("bld,edi->blei", x, self.up).relu()
        return torch.einsum("blei,eid,ble->bld", inner, self.down, gates)


class Model(nn.Module):
    """A language model of two layers, dense or of experts."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(small.VOCAB, small.WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.05)
        self.blocks = nn.ModuleList(small.Block() for _ in range(LAYERS))
        for block in self.blocks:
            block.attention = Attention()
            block.mlp = Mixture() if sparse else block.mlp
        self.norm, self.head = nn.RMSNorm(small.WIDTH), nn.Linear(small.WIDTH, small.VOCAB, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Run:
    """A run that another one can go on from."""

    def __init__(self, seed: int, *, sparse: bool) -> None:
        torch.manual_seed(seed)
        self.sparse, self.losses, self.rows, self.balance = sparse, [], small.BATCH, BALANCE
        self.model = Model(sparse=sparse)
        routers = [block.mlp.router.weight for block in self.model.blocks] if sparse else []
        others = [
            one for one in self.model.parameters() if one.requires_grad and all(one is not own for own in routers)
        ]
        groups = [{"params": others}, *([{"params": routers}] if routers else [])]
        self.optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95))
        self.data, self.sink = itertools.islice(small.batches(seed), 2 * STEPS), MemorySink()
        mapping = Mapping(
            layers="blocks",
            attention="attention",
            heads=small.HEADS,
            mlp="mlp",
            router="mlp.router" if sparse else None,
        )
        config = VitalsConfig(mapping=mapping, interval=1, adapt=False, delta=16, window=32)
        self.vitals = Vitals(self.model, self.optimizer, config, [self.sink])

    def branch(self, seed: int) -> Run:
        """Return a run that goes on from here by itself."""
        self.data, data = itertools.tee(self.data)
        made = Run(seed, sparse=self.sparse)
        made.model.load_state_dict(self.model.state_dict())
        made.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))
        made.vitals.load_state_dict(self.vitals.state_dict())
        made.data, made.losses = data, list(self.losses)
        torch.manual_seed(seed)
        return made

    def go(self, last: int, fault: Fault | None = None) -> Run:
        """Train until a step."""
        for step in range(len(self.losses) + 1, last + 1):
            if fault is not None:
                fault(self, step - ONSET)
            with self.vitals.step():
                total = 0.0
                for _ in range(2):
                    rows = next(self.data)[: self.rows]
                    logits = self.model(rows[:, :-1])
                    loss = nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()) / 2
                    total += loss.item()
                    if self.sparse:
                        loss = loss + self.balance * sum(block.mlp.aux for block in self.model.blocks) / 2
                    loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
            self.losses.append(total)
        return self


def rounds(how: str) -> Fault:
    """Return a fault: attention's output is rounded in every layer."""

    def plant(run: Run, _since: int) -> None:
        for block in run.model.blocks:
            block.attention.rounding = how

    return plant


def moments(run: Run, _since: int) -> None:
    """Keep Adam's moments in bfloat16."""
    for state in run.optimizer.state.values():
        for name in ("exp_avg", "exp_avg_sq"):
            state[name].copy_(state[name].bfloat16())


def few_rows(run: Run, _since: int) -> None:
    """Take one row a micro-batch."""
    run.rows = 1


def fast_router(run: Run, since: int) -> None:
    """Take ten times the rate for routers."""
    if since == 0:
        run.optimizer.param_groups[1]["lr"] *= 10


def alike(run: Run, _since: int) -> None:
    """Draw the rows of a router together, by a tenth of their distance a step."""
    weight = run.model.blocks[1].mlp.router.weight.data
    weight.lerp_(weight.mean(0, keepdim=True).expand_as(weight), 0.1)


def starved(run: Run, _since: int) -> None:
    """Send no token to an expert."""
    run.model.blocks[1].mlp.router.bias.data[5] = -1e4


def wrong_sign(run: Run, _since: int) -> None:
    """Reward a router for imbalance."""
    run.balance = -BALANCE


OF_ALL: dict[str, Fault] = {
    "biased rounding in attention": rounds("biased"),
    "sham: unbiased rounding": rounds("unbiased"),
    "moments in bfloat16": moments,
    "an eighth of the batch": few_rows,
}
OF_ROUTERS: dict[str, Fault] = {
    "router rate times 10": fast_router,
    "router rows drawn together": alike,
    "an expert starved": starved,
    "auxiliary loss of the wrong sign": wrong_sign,
}


def seen(sink: MemorySink) -> dict[str, int]:
    """Return by metric the first step from the onset on at which an alarm of it was raised."""
    found: dict[str, int] = {}
    for step, kind, detail in sink.events:
        if kind in {"alarm", "warning", "nan_inf"} and step >= ONSET:
            found.setdefault(detail["metric"], step)
    return found


def main() -> None:
    """Print a line for each fault, model and seed."""
    given = options(__doc__, seeds=[0, 1, 2], only="")
    torch.set_num_threads(1)
    for seed, sparse in itertools.product(given.seeds, (False, True)):
        base = Run(seed, sparse=sparse).go(ONSET - 1)
        healthy = base.branch(seed).go(STEPS)
        false = seen(healthy.sink)
        kind = "experts" if sparse else "dense"
        print(f"| {kind} | {seed} | healthy | {in_words(false)} | |", flush=True)
        for name, fault in {**OF_ALL, **(OF_ROUTERS if sparse else {})}.items():
            if given.only not in name:
                continue
            run = base.branch(seed).go(STEPS, fault)
            run.vitals.close()
            found = {metric: step for metric, step in seen(run.sink).items() if false.get(metric) != step}
            losses: list[Any] = [
                small.flagged(np.array(run.losses)),
                small.above(*map(np.array, (run.losses, healthy.losses))),
            ]
            loss = small.first(np.concatenate(losses), ONSET)
            print(f"| {kind} | {seed} | {name} | {in_words(found)} | {loss and loss - ONSET} |", flush=True)


def in_words(found: dict[str, int]) -> str:
    """Return metrics and the steps since the onset, the earliest first."""
    return (
        ", ".join(f"{metric} {step - ONSET}" for metric, step in sorted(found.items(), key=lambda item: item[1])) or "-"
    )


if __name__ == "__main__":
    main()
