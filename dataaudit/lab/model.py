"""The model of the laboratory, its text and its runs: a GPT of two layers, dense or with experts, given a fault or not.

It trains on help topics of Python itself, or on a file that the user names.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dataaudit.base.errors import ConfigError
from dataaudit.base.yamlfile import read_named
from dataaudit.lab.monitors import Series
from dataaudit.vitals import Mapping, Vitals, VitalsConfig

LEAST_BYTES = 50_000
VOCABULARY = 128
"""Tokens are bytes of ASCII; any other byte is a question mark."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text as tokens, with a name and a digest for the receipt."""

    name: str
    digest: str
    tokens: Any
    """int64[length], 0 to 127."""

    @classmethod
    def load(cls, path: Path | None = None) -> Text:
        """Read a file as text; without a path take ``pydoc_data.topics``, which every Python brings."""
        if path is None:
            topics = importlib.import_module("pydoc_data.topics").topics
            name, data = "pydoc_data.topics", "\n\n".join(topics[key] for key in sorted(topics)).encode()
        else:
            name, data = path.name, read_named(path, "lab: the text")
        if len(data) < LEAST_BYTES:
            raise ConfigError(
                f"lab: the text {path or name} has {len(data)} bytes: name a file of {LEAST_BYTES} or more by --text"
            )
        tokens = np.frombuffer(data, dtype=np.uint8).astype(np.int64)
        tokens[tokens >= VOCABULARY] = ord("?")
        return cls(name, hashlib.sha256(data).hexdigest(), tokens)

    def rows(self, draw: np.random.Generator, number: int, length: int) -> Any:
        """Return rows of neighbouring tokens from anywhere: int64[number, length]."""
        first = draw.integers(0, len(self.tokens) - length, number)
        return self.tokens[first[:, None] + np.arange(length)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Sizes of the model and of a step."""

    layers: int = 2
    width: int = 64
    heads: int = 4
    inner: int = 128
    experts: int = 8
    chosen: int = 2
    expert_inner: int = 32
    length: int = 32
    rows: int = 8
    rate: float = 3e-3
    balance: float = 1e-2


class Attention(nn.Module):
    """Causal attention; ``fault`` gets output, queries, keys and scale, and returns another output."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.qkv = nn.Linear(size.width, 3 * size.width, bias=False)
        self.out = nn.Linear(size.width, size.width, bias=False)
        self.fault: Callable[..., torch.Tensor] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what heads mix: [rows, length, width]."""
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        if self.fault is not None:
            mixed = self.fault(mixed, q, k)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Experts(nn.Module):
    """Experts in two tensors, top-k gates, and the auxiliary loss of Switch."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.top_k, self.aux = size.chosen, torch.zeros(())
        self.router = nn.Linear(size.width, size.experts, bias=False)
        self.up = nn.Parameter(torch.randn(size.experts, size.width, size.expert_inner) * size.width**-0.5)
        self.down = nn.Parameter(torch.randn(size.experts, size.expert_inner, size.width) * size.expert_inner**-0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the chosen experts add: [rows, length, width]."""
        shares = self.router(x).softmax(-1)
        weights, chosen = shares.topk(self.top_k)
        gates = torch.zeros_like(shares).scatter(-1, chosen, weights / weights.sum(-1, keepdim=True))
        sent = (gates > 0).float().mean((0, 1)) / self.top_k
        self.aux = shares.shape[-1] * (sent.detach() * shares.mean((0, 1))).sum()
        flat, gate = x.flatten(0, 1), gates.flatten(0, 1).t().unsqueeze(-1)
        inner = torch.matmul(flat, self.up).relu()
        return (torch.matmul(inner, self.down) * gate).sum(0).view_as(x)


class Block(nn.Module):
    """A layer: attention, then a dense MLP or experts, each behind a norm."""

    def __init__(self, size: Size, *, sparse: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(size.width) for _ in range(2))
        self.attention = Attention(size)
        dense = nn.Sequential(nn.Linear(size.width, size.inner), nn.GELU(), nn.Linear(size.inner, size.width))
        self.mlp = Experts(size) if sparse else dense

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the residual stream."""
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class Model(nn.Module):
    """A language model of bytes."""

    def __init__(self, size: Size, *, sparse: bool) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(VOCABULARY, size.width), nn.Embedding(size.length, size.width)
        for table in (self.embedding, self.positions):
            nn.init.normal_(table.weight, std=0.05)
        self.blocks = nn.ModuleList(Block(size, sparse=sparse) for _ in range(size.layers))
        self.norm, self.head = nn.RMSNorm(size.width), nn.Linear(size.width, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits of tokens, int64[rows, length]: [rows, length, 128]."""
        x = self.embedding(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def routers(self) -> list[Any]:
        """Return the weights of routers; none of a dense model."""
        return [block.mlp.router.weight for block in self.blocks if isinstance(block.mlp, Experts)]


class Run:
    """A run that another run can go on from, ``before`` being its series; ``sparse``: with experts.

    ``delta`` is the steps between the weights that update spectra compare.
    """

    def __init__(
        self, seed: int, text: Text, size: Size, *, sparse: bool, delta: int, before: Series | None = None
    ) -> None:
        self.seed, self.text, self.size, self.sparse, self.delta = seed, text, size, sparse, delta
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(seed)
        self.model = Model(size, sparse=sparse).to(self.device)
        routers = self.model.routers()
        known = {id(item) for item in routers}
        groups = [{"params": [item for item in self.model.parameters() if id(item) not in known]}]
        groups += [{"params": routers}] if routers else []
        self.optimizer = torch.optim.AdamW(groups, lr=size.rate, betas=(0.9, 0.95), fused=True)
        self.draw = np.random.default_rng(seed)
        self.rows, self.spoilt, self.balance = size.rows, 0.0, size.balance
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.series = Series(before)
        router = "mlp.router" if sparse else None
        mapping = Mapping(layers="blocks", attention="attention", heads=size.heads, mlp="mlp", router=router)
        config = VitalsConfig(
            preset="medium", adapt=False, escalate=0, sampled_rows=16, delta=delta, window=64, mapping=mapping
        )
        self.vitals = Vitals(self.model, self.optimizer, config, [self.series])

    def attention(self, fault: Any) -> None:
        """Give attention of every layer a fault; None takes it away."""
        for block in self.model.blocks:
            block.attention.fault = fault

    def scale_weights(self, factor: float) -> None:
        """Scale all matrices of the layers: a bad initialisation."""
        with torch.no_grad():
            for item in self.model.blocks.parameters():
                if item.dim() > 1:
                    item.mul_(factor)

    def withdraw(self) -> None:
        """Take a fault away; what it did to weights and to the optimizer's state stays."""
        self.attention(None)
        self.rows, self.spoilt, self.balance = self.size.rows, 0.0, self.size.balance
        for own in self.optimizer.param_groups:
            own["lr"] = self.size.rate

    def branch(self) -> Run:
        """Return a run that goes on from here by itself."""
        saved = self.vitals.state_dict()  # which also waits for numbers on their way
        made = Run(self.seed, self.text, self.size, sparse=self.sparse, delta=self.delta, before=self.series)
        made.model.load_state_dict(self.model.state_dict())
        made.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))
        made.vitals.load_state_dict(saved)
        made.draw = copy.deepcopy(self.draw)
        made.losses, made.norms = list(self.losses), list(self.norms)
        torch.manual_seed(self.seed)
        return made

    def step(self) -> None:
        """Train a step."""
        rows = self.text.rows(self.draw, self.size.rows, self.size.length + 1)[: self.rows]
        if self.spoilt:
            bad = self.draw.random(rows.shape) < self.spoilt
            rows = np.where(bad, self.draw.integers(0, VOCABULARY, rows.shape), rows)
        tokens = torch.from_numpy(rows).to(self.device)
        with self.vitals.step():
            logits = self.model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            total = loss
            if self.sparse:
                total = loss + self.balance * sum(block.mlp.aux for block in self.model.blocks)
            total.backward()
            norm = nn.utils.get_total_norm([item.grad for item in self.model.parameters() if item.grad is not None])
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.losses.append(float(loss.detach()))
        self.norms.append(float(norm))
