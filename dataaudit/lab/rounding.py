"""Attention as faulty kernels compute it: bits of bfloat16 that are cut or shifted, and what its backward pass reads.

FlashAttention's backward pass takes ``delta`` = rowsum(dO * O) from the output as it was stored. A stored output that
is off by ``e`` moves the gradient of each logit by -P * rowsum(dO * e). That is the gradient of the row's log-sum-exp
times that sum, so a fault needs no kernel of its own (Qiu, Yao 2025, arXiv 2510.04212, section 3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

AttentionFault = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Takes output, queries and keys, [rows, heads, length, width of a head]; returns the output that goes on."""


def cut(values: torch.Tensor, bits: int, *, biased: bool) -> torch.Tensor:
    """Return float32 with so many bits of mantissa: cut towards minus infinity, or up or down at random.

    bfloat16 has 7 bits. Random rounding is right in the mean.
    """
    dropped = (1 << (23 - bits)) - 1
    raw = values.detach().contiguous().view(torch.int32)
    if biased:
        raw = raw + (values < 0).int() * dropped
    else:
        raw = raw + torch.randint(0, dropped + 1, raw.shape, dtype=torch.int32, device=raw.device)
    return (raw & ~dropped).view(torch.float32)


def shifted(values: torch.Tensor, ulps: int) -> torch.Tensor:
    """Return bfloat16 whose pattern of bits is so many units in the last place further from zero, as float32."""
    raw = values.detach().contiguous().to(torch.bfloat16).view(torch.int16)
    return (raw + ulps).view(torch.bfloat16).to(values.dtype)


class _Stored(torch.autograd.Function):
    """The output as it is; its backward pass reads what was stored of it."""

    @staticmethod
    def forward(ctx: Any, output: torch.Tensor, lse: torch.Tensor, stored: torch.Tensor, bias: float) -> torch.Tensor:
        """Return the output."""
        del lse
        ctx.save_for_backward(output, stored)
        ctx.bias = bias
        return output.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Return the exact gradient of the output, and that of the log-sum-exp by the error of ``delta``."""
        output, stored = ctx.saved_tensors
        error = (grads[0] * (stored - output)).sum(-1) - ctx.bias * (grads[0] * output).abs().sum(-1)
        return grads[0], -error, None, None


def read_back(store: Callable[[torch.Tensor], torch.Tensor], bias: float = 0.0) -> AttentionFault:
    """Return a fault: the backward pass reads ``store(output)``; the forward pass is exact.

    Args:
        store: What is stored of the output.
        bias: By what part of its absolute terms ``delta`` is too small: roundings that are all of the same direction.
    """

    def fault(mixed: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        logits = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        hidden = torch.ones(logits.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        lse = logits.masked_fill(hidden, -torch.inf).logsumexp(-1)
        return _Stored.apply(mixed, lse, store(mixed), bias)

    return fault


def passed_on(store: Callable[[torch.Tensor], torch.Tensor]) -> AttentionFault:
    """Return a fault: ``store(output)`` goes on to the next layer; gradients pass as if it were exact."""
    return lambda mixed, _q, _k: mixed + (store(mixed) - mixed).detach()
