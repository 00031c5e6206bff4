"""What attention weights look like, head by head: largest logit, log-sum-exp and entropy, never more than a few rows.

Two estimators of a row's entropy H = -Σ p log p, nats:

- :func:`attention_rows` computes rows in float32, over all keys. Exact; costs rows x keys.
- :func:`attention_pass` makes one pass of a fused kernel with the keys as values:
  H = lse - scale·q·o, o = Σ p k. The values are centred (k - k̄, which shifts both terms alike), since rounding in
  bfloat16 is in proportion to them; the logits stay the model's own. It comes with a bound of its error.

The largest logit of a row with n visible keys lies between lse - log n and lse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

DEAD_NATS = math.log(2)
DEAD_SHARE = 0.99
_CHUNK_ROWS = 64
_KERNEL = "_scaled_dot_product_flash_attention_for_cpu"
"""The one that returns the log-sum-exp beside the output."""
_FAST_EXP = 2.0**-13
"""What a log-sum-exp is off by where a kernel takes a faster exponential, as that of CPUs does below float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRows:
    """Of every row, float32[B, H, rows]; NaN where a row sees no key."""

    lowest_max: torch.Tensor
    """The largest logit, scale·q·k, is no less than this."""
    highest_max: torch.Tensor
    """And no more than this; equal where it is exact."""
    lse: torch.Tensor
    """log Σ exp of the logits."""
    entropy: torch.Tensor
    """Nats."""
    bound: torch.Tensor
    """The entropy is no further off than this, nats."""
    keys: torch.Tensor
    """How many keys the row sees."""


def attention_rows(
    query: torch.Tensor,
    key: torch.Tensor,
    *,
    scale: float,
    mask: torch.Tensor | None = None,
    causal: bool = False,
    window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
    rows: torch.Tensor | None = None,
) -> AttentionRows:
    """Return exact statistics of some rows, computed in float32 over all keys, chunk by chunk.

    With sinks the weights of a row sum up to less than 1. The log-sum-exp holds the sink; the entropy is that of the
    weights and of what goes to the sink, and the largest logit is that of a key.

    Args:
        query: [B, H, L, D]
        key: [B, H_kv, S, D], H a multiple of H_kv.
        scale: Of the logits.
        mask: Broadcast to [B, H, L, S]: bool, True where a key is seen, or numbers that are added to the logits.
        causal: Row i sees keys 0 to i.
        window: Row i sees keys after i - window.
        softcap: Logits are softcap·tanh(logits / softcap), before a mask.
        sinks: [H], of each head a logit that no key has.
        rows: int64[n] which; all by default.
    """
    with torch.no_grad(), torch.autocast(query.device.type, enabled=False):
        key = _repeated(key, query.shape[1]).float()
        rows = torch.arange(query.shape[2], device=query.device) if rows is None else rows
        chunks = []
        for some in rows.split(_CHUNK_ROWS):
            logits = scale * (query[:, :, some].float() @ key.transpose(-1, -2))
            logits = logits if softcap is None else softcap * (logits / softcap).tanh()
            added = _added(query, key, mask, causal, window, some)
            logits = logits if added is None else logits + added
            keys, largest = (logits != -math.inf).sum(-1), logits.amax(-1)
            if sinks is not None:
                sink = sinks.float()[None, :, None, None].expand(*logits.shape[:3], 1)
                logits = torch.cat([logits, sink], -1)
            highest = logits.amax(-1)
            below = logits - highest[..., None]
            total, weights = below.logsumexp(-1), below.softmax(-1)
            entropy = total - torch.where(weights > 0, weights * below, 0.0).sum(-1)
            chunks.append((largest, highest + total, entropy, keys))
        largest, lse, entropy, keys = (torch.cat(one, dim=-1) for one in zip(*chunks, strict=True))
        bound = 64 * torch.finfo(torch.float32).eps * (1 + largest.abs() + lse.abs())
        return _seen(keys, largest, largest, lse, entropy, bound)


def attention_pass(
    query: torch.Tensor,
    key: torch.Tensor,
    *,
    scale: float,
    mask: torch.Tensor | None = None,
    causal: bool = False,
) -> AttentionRows:
    """Return statistics of all rows from one pass of a fused kernel, in the dtype of the query; no L x S matrix.

    The bound holds three roundings in that dtype, of the centred values, of the weights and of the output, each of at
    most eps/2 · scale · Σ_d |q_d| · max_j |k_jd - k̄_d|, a fourth for terms of second order, float32's own, and
    below float32 that of the kernel's exponential.

    Args:
        query: [B, H, L, D], on the CPU.
        key: [B, H_kv, S, D], H a multiple of H_kv.
        scale: Of the logits.
        mask: Broadcast to [B, H, L, S]: bool, True where a key is seen, or numbers that hide keys. Rows where another
            number than 0 is added to a logit are NaN: the identity has no place for a bias.
        causal: Row i sees keys 0 to i.

    Raises:
        ValueError: The tensors are not on the CPU: no other kernel was compared yet.
    """
    if query.device.type != "cpu":
        raise ValueError(f"attention_pass: expected tensors on the CPU, found {query.device.type}")
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        key = _repeated(key, query.shape[1])
        centre = key.float().mean(-2, keepdim=True)
        values = (key.float() - centre).to(key.dtype)
        hidden = None if mask is None else _hidden(mask).expand(*query.shape[:3], key.shape[2])
        causal_hidden = _causal_hidden(query, key) if causal else None
        both = hidden if causal_hidden is None else causal_hidden if hidden is None else hidden | causal_hidden
        added = None
        if both is not None:
            added = torch.zeros(both.shape, dtype=query.dtype).masked_fill_(both, -math.inf)
            added = added.expand(*query.shape[:2], *added.shape[-2:])
        output, lse = getattr(torch.ops.aten, _KERNEL)(query, key, values, 0.0, False, attn_mask=added, scale=scale)
        wide = query.float()
        shift = scale * (wide * centre).sum(-1)
        entropy = (lse - shift - scale * (wide * output.float()).sum(-1)).clamp_min(0.0)
        spread = scale * (wide.abs() * values.float().abs().amax(-2, keepdim=True)).sum(-1)
        exact = torch.finfo(torch.float32).eps * 64 * (1 + lse.abs() + shift.abs() + spread)
        fast = 0.0 if query.dtype == torch.float32 else _FAST_EXP
        bound = 2 * torch.finfo(query.dtype).eps * spread + exact + fast
        keys = torch.full_like(lse, key.shape[2]) if both is None else (~both).sum(-1).expand(lse.shape)
        if mask is not None and mask.dtype != torch.bool:
            biased = ((mask != 0) & ~_hidden(mask)).expand(*query.shape[:3], key.shape[2]).any(-1)
            lse, entropy, bound = (one.masked_fill(biased, torch.nan) for one in (lse, entropy, bound))
        return _seen(keys, lse - keys.clamp_min(1).log() - fast, lse + fast, lse, entropy, bound)


def sample_rows(length: int, number: int) -> torch.Tensor:
    """Return int64[n] which rows are looked at: the last one of each of n equal parts, the same at every step."""
    number = min(length, number)
    return (torch.arange(1, number + 1) * length).div(number, rounding_mode="floor") - 1


def head_statistics(rows: AttentionRows) -> torch.Tensor:
    """Return float32[H, 4] of rows: largest logit, mean entropy, mean entropy / log n, share below log 2.

    Entropies are means over rows that see a key, the normalised one over those that see two (n is their number; a
    sink counts as none). NaN where there is no such row; numbers that are not finite stay so.
    """
    none = rows.keys == 0
    largest = rows.highest_max.masked_fill(none, -math.inf).amax((0, 2))
    several = rows.keys > 1
    normalised = (rows.entropy / rows.keys.clamp_min(2).log()).masked_fill(~several, 0.0)
    entropy = rows.entropy.masked_fill(none, 0.0).sum((0, 2)) / (~none).sum((0, 2))
    largest = largest.masked_fill(none.all(2).all(0), torch.nan)
    return torch.stack([largest, entropy, normalised.sum((0, 2)) / several.sum((0, 2)), dead_share(rows)], -1)


def dead_share(rows: AttentionRows) -> torch.Tensor:
    """Return float32[H]: of the rows that see more than two keys, the share with an entropy below log 2.

    A head is dead where it exceeds :data:`DEAD_SHARE`. Rows that see one or two keys are always below. NaN: no row.
    """
    counted = rows.keys > 2
    low = (rows.entropy < DEAD_NATS) & counted
    return low.sum((0, 2)) / counted.sum((0, 2))


@contextmanager
def watched(functions: MutableMapping[str, Callable[..., Any]], name: str, see: Callable[..., None]) -> Iterator[None]:
    """Let ``see`` have what an attention function gets; the function stays registered under its own name.

    A framework chooses the mask by that name: one that it does not know gets none, and then rows see what they must
    not.

    Args:
        functions: Attention functions by name, such as ``ALL_ATTENTION_FUNCTIONS`` of transformers.
        name: Which one is watched.
        see: Called with (module, query, key, value, mask) and the keywords, before the function is.

    Raises:
        KeyError: There is none of that name.
    """
    own = functions[name]

    def attention(module: Any, query: Any, key: Any, value: Any, mask: Any, *args: Any, **named: Any) -> Any:
        see(module, query, key, value, mask, **named)
        return own(module, query, key, value, mask, *args, **named)

    functions[name] = attention
    try:
        yield
    finally:
        functions[name] = own


def _repeated(key: torch.Tensor, heads: int) -> torch.Tensor:
    return key if key.shape[1] == heads else key.repeat_interleave(heads // key.shape[1], dim=1)


def _hidden(mask: torch.Tensor) -> torch.Tensor:
    """Tell what a mask hides; frameworks write it as -inf or as the lowest number of a dtype."""
    return ~mask if mask.dtype == torch.bool else mask <= torch.finfo(mask.dtype).min / 2


def _causal_hidden(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(query.shape[2], device=query.device)
    return (torch.arange(key.shape[2], device=query.device) > rows[:, None])[None, None]


def _added(
    query: torch.Tensor,
    key: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    window: int | None,
    rows: torch.Tensor,
) -> torch.Tensor | None:
    keys = torch.arange(key.shape[2], device=query.device)
    hidden = (keys > rows[:, None])[None, None] if causal else None
    added = None
    if window is not None:
        far = (keys <= rows[:, None] - window)[None, None]
        hidden = far if hidden is None else hidden | far
    if mask is not None:
        mask = mask.expand(*query.shape[:3], key.shape[2])[:, :, rows]
        own = _hidden(mask)
        hidden = own if hidden is None else own | hidden
        added = None if mask.dtype == torch.bool else mask.float()
    if hidden is None:
        return None
    added = torch.zeros(hidden.shape, device=query.device) if added is None else added
    return added.masked_fill(hidden, -math.inf)


def _seen(
    keys: torch.Tensor,
    lowest: torch.Tensor,
    highest: torch.Tensor,
    lse: torch.Tensor,
    entropy: torch.Tensor,
    bound: torch.Tensor,
) -> AttentionRows:
    none = keys == 0
    lowest, highest, lse, entropy, bound = (
        one.masked_fill(none, torch.nan) for one in (lowest, highest, lse, entropy, bound)
    )
    return AttentionRows(lowest_max=lowest, highest_max=highest, lse=lse, entropy=entropy, bound=bound, keys=keys)
