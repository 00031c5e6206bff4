"""The model of the laboratory: a GPT of two layers, dense or with experts, whose attention a fault can reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dataaudit.lab.text import VOCABULARY


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
