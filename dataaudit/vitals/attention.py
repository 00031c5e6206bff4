"""What attention weights look like, head by head: largest logit, log-sum-exp and entropy.

*Sampled rows* are computed in float32 over all keys, which costs rows x keys. *All rows* come from one pass over
queries and keys that makes no L x S matrix. It has two sources, by device:

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
from dataclasses import dataclass

import torch

DEAD_NATS = math.log(2)
ROW_STATS = ("max", "entropy", "normalised", "dead")
PASS_STATS = ("lower", "upper", "entropy", "bound", "off")
ABSENT = -math.inf
"""In place of a number that there is none of; NaN is one that is not finite."""
_CHUNK_ROWS = 64
_FAR = 5_000.0
"""Nats below the largest logit, from which on a model hides a key: some write -10,000."""
_KERNEL = "_scaled_dot_product_flash_attention_for_cpu"
"""The one that returns the log-sum-exp beside the output."""
_FAST_EXP = 2.0**-13
"""What a log-sum-exp is off by where a kernel takes a faster exponential, as that of CPUs does below float32."""
_EPS = 64 * torch.finfo(torch.float32).eps


@dataclass(frozen=True, slots=True)
class Scores:
    """How attention makes logits of queries and keys: scale·q·k, capped, masked."""

    scale: float
    causal: bool = False
    window: int | None = None
    """Keys that a row sees, up to its own."""
    softcap: float | None = None
    mask: torch.Tensor | None = None
    """[B or 1, H or 1, L or 1, S]: bool, True where a key is seen, or numbers that are added."""
    sinks: torch.Tensor | None = None
    """Logits that no key has: [H], or [B, H, L, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRows:
    """Of every row, float32[B, H, rows]; NaN where a row sees no key."""

    lowest_max: torch.Tensor
    """The largest logit, scale·q·k, is no less than this."""
    highest_max: torch.Tensor
    """And no more than this; equal where it is exact."""
    lse: torch.Tensor
    """log Σ exp of the logits."""
    lse_bound: torch.Tensor
    """The log-sum-exp is no further off than this, and the largest logit no further outside of its bracket."""
    entropy: torch.Tensor
    """Nats."""
    bound: torch.Tensor
    """The entropy is no further off than this, nats."""
    keys: torch.Tensor
    """How many keys the row sees."""


def attention_rows(
    query: torch.Tensor, key: torch.Tensor, scores: Scores, rows: torch.Tensor | None = None
) -> AttentionRows:
    """Return exact statistics of some rows, computed in float32 over all keys, chunk by chunk.

    With sinks the weights of a row sum up to less than 1. The log-sum-exp holds the sink; the entropy is that of the
    weights and of what goes to the sink, and the largest logit is that of a key.
    """
    with torch.no_grad(), torch.autocast(query.device.type, enabled=False):
        wide = _wide(query)
        key = repeated(key, query.shape[1]).to(wide)
        rows = torch.arange(query.shape[2], device=query.device) if rows is None else rows
        sinks = None if scores.sinks is None else _sinks_of_rows(scores.sinks, query)
        chunks = []
        for some in rows.split(_CHUNK_ROWS):
            logits = scores.scale * (query[:, :, some].to(wide) @ key.transpose(-1, -2)).float()
            logits = logits if scores.softcap is None else scores.softcap * (logits / scores.softcap).tanh()
            added = _added(query, key, scores, some)
            logits = logits if added is None else logits + added
            chunks.append(_of_logits(logits, None if sinks is None else sinks[:, :, some]))
        largest, lse, entropy, keys = (torch.cat(item, dim=-1) for item in zip(*chunks, strict=True))
        bound = rounding(query[:, :, rows], key, scores.scale, lse)
        return seen_rows(keys, largest, largest, lse, bound, entropy, bound)


def rows_of_logits(logits: torch.Tensor) -> AttentionRows:
    """Return statistics of rows of logits that a model made itself, with its mask in them."""
    with torch.no_grad():
        least = torch.finfo(logits.dtype).min / 2
        logits = logits.float() if logits.dtype.itemsize < torch.float32.itemsize else logits
        hidden = (logits <= least) | (logits < logits.amax(-1, keepdim=True) - _FAR)
        largest, lse, entropy, keys = _of_logits(logits.masked_fill(hidden, -math.inf), None)
        bound = torch.finfo(torch.float32).eps * 64 * (1 + lse.abs())
        return seen_rows(keys, largest, largest, lse, bound, entropy, bound)


def _of_logits(logits: torch.Tensor, sinks: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    """Return the largest logit, the log-sum-exp, the entropy and the number of keys of each row."""
    keys, largest = (logits != -math.inf).sum(-1), logits.amax(-1)
    if sinks is not None:
        logits = torch.cat([logits, sinks[..., None]], -1)
    highest = logits.amax(-1)
    below = logits - highest[..., None]
    total, weights = below.logsumexp(-1), below.softmax(-1)
    entropy = total - torch.where(weights > 0, weights * below, 0.0).sum(-1)
    return largest, highest + total, entropy, keys


def _sinks_of_rows(sinks: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Return the sink's logit of every row, float32[B, H, L], of one that heads have, or rows."""
    sinks = sinks.float()[None, :, None, None] if sinks.dim() == 1 else sinks.float()
    return sinks.expand(*query.shape[:3], 1)[..., 0]


def sample_rows(length: int, number: int, device: torch.device | None = None) -> torch.Tensor:
    """Return int64[n] which rows are sampled: the last one of each of n equal parts, the same at every step."""
    number = min(length, number)
    return (torch.arange(1, number + 1, device=device) * length).div(number, rounding_mode="floor") - 1


def head_statistics(rows: AttentionRows) -> torch.Tensor:
    """Return float32[H, 4] of rows: largest logit, mean entropy, mean entropy / log n, share below log 2.

    Entropies are means over rows that see a key, the normalised one over those that see two (n is their number; a
    sink counts as none). :data:`ABSENT` where there is no such row; numbers that are not finite stay so.
    """
    none = rows.keys == 0
    largest = rows.highest_max.masked_fill(none, ABSENT).amax((0, 2))
    normalised = rows.entropy / rows.keys.clamp_min(2).log()
    entropies = [_mean(item, rows.keys >= least) for item, least in ((rows.entropy, 1), (normalised, 2))]
    return torch.stack([largest, *entropies, dead_share(rows)], -1)


def dead_share(rows: AttentionRows) -> torch.Tensor:
    """Return float32[H]: of the rows that see more than two keys, the share with an entropy below log 2.

    Rows that see one or two keys are always below. NaN where an
    entropy is not finite, :data:`ABSENT` where there is no such row.
    """
    low = (rows.entropy < DEAD_NATS).to(rows.entropy.dtype)
    return _mean(torch.where(rows.entropy.isfinite(), low, torch.nan), rows.keys > 2)


def _mean(values: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    number = counted.sum((0, 2))
    return (values.masked_fill(~counted, 0.0).sum((0, 2)) / number).masked_fill(number == 0, ABSENT)


def repeated(key: torch.Tensor, heads: int) -> torch.Tensor:
    """Return keys, [B, H_kv, S, D], once for each of the heads of queries."""
    return key if key.shape[1] == heads else key.repeat_interleave(heads // key.shape[1], dim=1)


def rounding(query: torch.Tensor, key: torch.Tensor, scale: float, lse: torch.Tensor) -> torch.Tensor:
    """Return what float32 may have lost in logits and sums of them, float32[B, H, L].

    A sum of D products, in any order, is off by about sqrt(D)·eps/2·|q|·|k|, however much of it cancels (Higham and
    Mary 2019, section 2): 8 eps hold up to D = 256.
    """
    lengths = torch.linalg.vector_norm(query, dim=-1, dtype=_wide(query))
    longest = torch.linalg.vector_norm(key, dim=-1, dtype=_wide(query)).amax(-1, keepdim=True)
    return torch.finfo(torch.float32).eps * (64 * (1 + lse.abs()) + 8 * abs(scale) * (lengths * longest).float())


def _hidden_by(mask: torch.Tensor) -> torch.Tensor:
    """Tell what a mask hides; frameworks write it as -inf or as the lowest number of a dtype."""
    return ~mask if mask.dtype == torch.bool else mask <= torch.finfo(mask.dtype).min / 2


def _hidden_by_position(rows: torch.Tensor, keys: int, scores: Scores) -> torch.Tensor | None:
    """Return bool[rows, keys], True where a key lies after a row or outside of its window; None: nowhere."""
    positions = torch.arange(keys, device=rows.device)
    later = positions > rows[:, None] if scores.causal else None
    if scores.window is None:
        return later
    far = positions <= rows[:, None] - scores.window
    return far if later is None else far | later


def _wide(query: torch.Tensor) -> torch.dtype:
    """Return the dtype of products: exact in float32 for those below it, even where TF32 is allowed for it."""
    if query.dtype.itemsize < torch.float32.itemsize:
        return torch.float32
    reduced = query.device.type == "cuda" or torch.get_float32_matmul_precision() != "highest"
    return torch.float64 if reduced else query.dtype


def _added(query: torch.Tensor, key: torch.Tensor, scores: Scores, rows: torch.Tensor) -> torch.Tensor | None:
    hidden, added = _hidden_by_position(rows, key.shape[2], scores), None
    if scores.mask is not None:
        mask = scores.mask.expand(*query.shape[:3], key.shape[2])[:, :, rows]
        own = _hidden_by(mask)
        hidden = own if hidden is None else own | hidden
        added = None if mask.dtype == torch.bool else mask.float()
    if hidden is None:
        return None
    added = torch.zeros(hidden.shape, device=query.device) if added is None else added
    return added.masked_fill(hidden, -math.inf)


def seen_rows(
    keys: torch.Tensor,
    lowest: torch.Tensor,
    highest: torch.Tensor,
    lse: torch.Tensor,
    lse_bound: torch.Tensor,
    entropy: torch.Tensor,
    bound: torch.Tensor,
) -> AttentionRows:
    """Return statistics of rows, NaN where a row sees no key."""
    none = keys == 0
    lowest, highest, lse, lse_bound, entropy, bound = (
        item.masked_fill(none, torch.nan) for item in (lowest, highest, lse, lse_bound, entropy, bound)
    )
    return AttentionRows(
        lowest_max=lowest,
        highest_max=highest,
        lse=lse,
        lse_bound=lse_bound,
        entropy=entropy,
        bound=bound,
        keys=keys,
    )


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
        return every if scores.sinks is None else _with_sinks(every, _sinks_of_rows(scores.sinks, query))


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
    both = None if mask is None else _hidden_by(mask)[(None,) * (4 - mask.dim())]
    rows = torch.arange(query.shape[2], device=query.device)
    by_position = _hidden_by_position(rows, key.shape[2], scores)
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
        biased = ((mask != 0) & ~_hidden_by(mask)).expand(*query.shape[:3], key.shape[2]).any(-1)
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
