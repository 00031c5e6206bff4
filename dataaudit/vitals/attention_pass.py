"""Statistics of all rows of attention, from one pass over queries and keys that makes no L x S matrix.

Two sources, by device:

- CPU: one pass of the fused kernel with the keys as values. A row's entropy, nats, is H = lse - scale·q·o with
  o = Σ p k. The values are centred (k - k̄, which shifts both terms alike), since rounding in bfloat16 is in proportion
  to them; the logits stay the model's own. The largest logit lies between lse - log n, of n visible keys, and lse.
- GPU: the kernel of :mod:`dataaudit.vitals.attention_triton`, where Triton is installed: all exact in float32.

Both come with bounds of their errors, and are compared with sampled rows: a source that is off gives no numbers.
"""

from __future__ import annotations

import functools
import importlib.util
import math

import torch

from dataaudit.vitals.attention import (
    AttentionRows,
    Scores,
    hidden_by,
    hidden_by_position,
    repeated,
    rounding,
    seen_rows,
    sinks_of_rows,
)

PASS_STATS = ("lower", "upper", "entropy", "bound", "off")
_KERNEL = "_scaled_dot_product_flash_attention_for_cpu"
"""The one that returns the log-sum-exp beside the output."""
_FAST_EXP = 2.0**-13
"""What a log-sum-exp is off by where a kernel takes a faster exponential, as that of CPUs does below float32."""
_EPS = 64 * torch.finfo(torch.float32).eps


def why_no_pass(device: torch.device, softcap: float | None) -> str | None:
    """Return why there are no statistics of all rows; None where there are."""
    if device.type == "cuda":
        return None if _has_triton() else "Triton is not installed"
    if device.type != "cpu":
        return f"no source was compared on {device.type}"
    return None if softcap is None else "the fused kernel has no softcap"


def source_of(device: torch.device) -> str:
    """Return in words where statistics of all rows come from."""
    if (why := why_no_pass(device, None)) is not None:
        return f"not_applicable: {why}"
    if device.type == "cuda":
        return "all rows in float32, by a kernel of Triton"
    return "all rows by one fused pass, with a bound of its rounding; not_applicable with a softcap"


def by_kernel(query: torch.Tensor, scores: Scores) -> bool:
    """Return whether Triton's kernel makes statistics of sampled rows, where no other source is compared with it."""
    known = query.dtype in {torch.float32, torch.bfloat16, torch.float16}
    return known and query.device.type == "cuda" and scores.sinks is None and _has_triton()


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def attention_pass(query: torch.Tensor, key: torch.Tensor, scores: Scores) -> AttentionRows:
    """Return statistics of all rows by the source of the device."""
    if (why := why_no_pass(query.device, scores.softcap)) is not None:
        raise ValueError(f"attention_pass: {why}")
    with torch.no_grad(), torch.autocast(query.device.type, enabled=False):
        if query.device.type == "cuda":
            from dataaudit.vitals.attention_triton import online_pass

            every = online_pass(query, key, scores)
        else:
            every = _fused_pass(query, key, scores)
        return every if scores.sinks is None else _with_sinks(every, sinks_of_rows(scores.sinks, query))


def _fused_pass(query: torch.Tensor, key: torch.Tensor, scores: Scores) -> AttentionRows:
    """Return statistics of all rows from the fused kernel of CPUs, in the dtype of the query.

    The bound holds three roundings in that dtype, of the centred values, of the weights and of the output, each of at
    most eps/2 · scale · Σ_d |q_d| · max_j |k_jd - k̄_d|, a fourth for terms of second order, float32's own, and
    below float32 that of the kernel's exponential. Rows where another number than 0 is added to a logit are NaN: the
    identity has no place for a bias.
    """
    mask, scale, key = scores.mask, scores.scale, repeated(key, query.shape[1])
    centre = key.float().mean(-2, keepdim=True)
    values = (key.float() - centre).to(key.dtype)
    both = None if mask is None else hidden_by(mask)[(None,) * (4 - mask.dim())]
    rows = torch.arange(query.shape[2], device=query.device)
    by_position = hidden_by_position(rows, key.shape[2], scores)
    if by_position is not None:
        both = by_position[None, None] if both is None else by_position | both
    added = None
    alone = (
        scores.causal and mask is None and scores.window is None
    )  # the kernel hides later keys itself, without a matrix
    if both is not None and not alone:
        added = torch.zeros(both.shape, dtype=query.dtype).masked_fill_(both, -math.inf)
        added = added.expand(*query.shape[:2], *added.shape[-2:])
    output, lse = getattr(torch.ops.aten, _KERNEL)(query, key, values, 0.0, alone, attn_mask=added, scale=scale)
    wide = query.float()
    shift = scale * (wide * centre).sum(-1)
    entropy = (lse - shift - scale * (wide * output.float()).sum(-1)).clamp_min(0.0)
    spread = scale * (wide.abs() * values.float().abs().amax(-2, keepdim=True)).sum(-1)
    fast = 0.0 if query.dtype == torch.float32 else _FAST_EXP
    lse_bound = rounding(query, key, scale, lse) + fast
    bound = 2 * torch.finfo(query.dtype).eps * spread + lse_bound + _EPS * (shift.abs() + spread)
    if alone:
        keys = (rows + 1).clamp_max(key.shape[2]).expand(lse.shape)
    else:
        seen = torch.full_like(lse, key.shape[2]) if both is None else (~both).expand(*both.shape[:3], key.shape[2])
        keys = seen if both is None else seen.sum(-1).expand(lse.shape)
    if mask is not None and mask.dtype != torch.bool:
        biased = ((mask != 0) & ~hidden_by(mask)).expand(*query.shape[:3], key.shape[2]).any(-1)
        lse, entropy, bound = (item.masked_fill(biased, torch.nan) for item in (lse, entropy, bound))
    return seen_rows(keys, lse - keys.clamp_min(1).log(), lse, lse, lse_bound, entropy, bound)


def _with_sinks(rows: AttentionRows, sink: torch.Tensor) -> AttentionRows:
    """Return statistics with a logit that no key has, float32[1, H, 1].

    Of p = exp(lse - lse'), what keys get, the entropy is p·H - p log p - (1 - p) log(1 - p).
    """
    lse = torch.logaddexp(rows.lse, sink)
    share, rest = (rows.lse - lse).exp(), (sink - lse).exp()
    entropy = share * (rows.entropy - (rows.lse - lse)) - rest * (sink - lse)
    slope = share * rest * (rows.entropy + sink - rows.lse).abs()
    lse_bound = rows.lse_bound + _EPS * (1 + lse.abs())
    bound = share * rows.bound + 2 * slope * rows.lse_bound + _EPS * (1 + lse.abs())
    return seen_rows(rows.keys, rows.lowest_max, rows.highest_max, lse, lse_bound, entropy, bound)


def pass_statistics(every: AttentionRows, some: AttentionRows, chosen: torch.Tensor) -> torch.Tensor:
    """Return float32[H, 5] of all rows: bracket of the largest logit, mean entropy, mean bound of it, and ``off``.

    ``off`` is 1 where the pass and rows that were computed one by one are further apart than both bounds allow; the
    other numbers are NaN there, as they are where a row's are.
    """
    low, high, lse, slack, entropy, bound = (
        item[:, :, chosen]
        for item in (every.lowest_max, every.highest_max, every.lse, every.lse_bound, every.entropy, every.bound)
    )
    slack = slack + some.lse_bound
    apart = (lse - some.lse).abs() > slack
    apart |= (some.highest_max < low - slack) | (some.highest_max > high + slack)
    apart |= (entropy - some.entropy).abs() > bound + some.bound
    off = apart.any(2).any(0)
    none = every.keys == 0
    number = (~none).sum((0, 2))
    lower, upper = (
        item.masked_fill(none, -math.inf).amax((0, 2))
        for item in (every.lowest_max - every.lse_bound, every.highest_max + every.lse_bound)
    )
    means = [item.masked_fill(none, 0.0).sum((0, 2)) / number for item in (every.entropy, every.bound)]
    found = torch.stack([lower, upper, *means], -1).masked_fill((off | (number == 0))[:, None], torch.nan)
    return torch.cat([found, off[:, None].float()], -1)
