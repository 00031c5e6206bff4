"""What attention weights look like, head by head: largest logit, log-sum-exp and entropy of sampled rows.

Rows are computed in float32 over all keys, which costs rows x keys; all rows together are
:mod:`dataaudit.vitals.attention_pass`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

DEAD_NATS = math.log(2)
ROW_STATS = ("max", "entropy", "normalised", "dead", "sink", "q_norm", "k_norm")
ABSENT = -math.inf
"""In place of a number that there is none of; NaN is one that is not finite."""
_CHUNK_ROWS = 64
_FAR = 5_000.0
"""Nats below the largest logit, from which on a model hides a key: some write -10,000."""


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
    first: torch.Tensor | None = None
    """Weight of the first key that the row sees."""
    lengths: tuple[torch.Tensor, ...] = ()
    """Euclidean norms of the rows' queries, [B, H, rows], and of all keys, [B, H, S]."""


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
        sinks = None if scores.sinks is None else sinks_of_rows(scores.sinks, query)
        chunks = []
        for some in rows.split(_CHUNK_ROWS):
            logits = scores.scale * (query[:, :, some].to(wide) @ key.transpose(-1, -2)).float()
            logits = logits if scores.softcap is None else scores.softcap * (logits / scores.softcap).tanh()
            added = _added(query, key, scores, some)
            logits = logits if added is None else logits + added
            begins = scores.mask is None and scores.window is None
            chunks.append(_of_logits(logits, None if sinks is None else sinks[:, :, some], begins=begins))
        largest, lse, entropy, keys, first = (torch.cat(item, dim=-1) for item in zip(*chunks, strict=True))
        lengths = _lengths(query[:, :, rows], wide), _lengths(key, wide)
        bound = _rounding(*lengths, scores.scale, lse)
        every = seen_rows(keys, largest, largest, lse, bound, entropy, bound)
        return replace(every, first=first, lengths=lengths)


def rows_of_logits(logits: torch.Tensor) -> AttentionRows:
    """Return statistics of rows of logits that a model made itself, with its mask in them."""
    with torch.no_grad():
        least = torch.finfo(logits.dtype).min / 2
        logits = logits.float() if logits.dtype.itemsize < torch.float32.itemsize else logits
        hidden = (logits <= least) | (logits < logits.amax(-1, keepdim=True) - _FAR)
        largest, lse, entropy, keys, first = _of_logits(logits.masked_fill(hidden, -math.inf), None, begins=False)
        bound = torch.finfo(torch.float32).eps * 64 * (1 + lse.abs())
        return replace(seen_rows(keys, largest, largest, lse, bound, entropy, bound), first=first)


def _of_logits(logits: torch.Tensor, sinks: torch.Tensor | None, *, begins: bool) -> tuple[torch.Tensor, ...]:
    """Return of each row the largest logit, log-sum-exp, entropy, number of keys and weight of the first of them.

    ``begins`` says that every row sees key 0.
    """
    seen = logits != -math.inf
    keys, largest = seen.sum(-1), logits.amax(-1)
    if sinks is not None:
        logits = torch.cat([logits, sinks[..., None]], -1)
    highest = logits.amax(-1)
    below = logits - highest[..., None]
    total, weights = below.logsumexp(-1), below.softmax(-1)
    entropy = total - torch.where(weights > 0, weights * below, 0.0).sum(-1)
    first = weights[..., 0] if begins else weights.gather(-1, seen.byte().argmax(-1, keepdim=True))[..., 0]
    return largest, highest + total, entropy, keys, first


def sinks_of_rows(sinks: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Return the sink's logit of every row, float32[B, H, L], of one that heads have, or rows."""
    sinks = sinks.float()[None, :, None, None] if sinks.dim() == 1 else sinks.float()
    return sinks.expand(*query.shape[:3], 1)[..., 0]


def sample_rows(length: int, number: int, device: torch.device | None = None) -> torch.Tensor:
    """Return int64[n] which rows are sampled: the last one of each of n equal parts, the same at every step."""
    number = min(length, number)
    return (torch.arange(1, number + 1, device=device) * length).div(number, rounding_mode="floor") - 1


def head_statistics(rows: AttentionRows) -> torch.Tensor:
    """Return float32[H, 7] of rows, :data:`ROW_STATS`; float32[H, 5] where no queries and keys are known.

    They are the largest logit, the mean entropy, the mean entropy / log n, the share of entropies below log 2, the mean
    weight of the first key that a row sees, and root mean squares of the norms of the rows' queries and of all keys.
    Entropies and weights are means over rows that see a key, the normalised entropy over those that see two (n is their
    number; a sink counts as none). :data:`ABSENT` where there is no such row; numbers that are not finite stay so.
    """
    assert rows.first is not None
    none = rows.keys == 0
    largest = rows.highest_max.masked_fill(none, ABSENT).amax((0, 2))
    normalised = _mean(rows.entropy / rows.keys.clamp_min(2).log(), rows.keys >= 2)
    entropy, sink = _mean(torch.stack([rows.entropy, rows.first]), ~none)
    norms = [torch.linalg.vector_norm(own, dim=(0, 2)) / (len(own) * own.shape[2]) ** 0.5 for own in rows.lengths]
    return torch.stack([largest, entropy, normalised, dead_share(rows), sink, *(item.float() for item in norms)], -1)


def dead_share(rows: AttentionRows) -> torch.Tensor:
    """Return float32[H]: of the rows that see more than two keys, the share with an entropy below log 2.

    Rows that see one or two keys are always below. NaN where an
    entropy is not finite, :data:`ABSENT` where there is no such row.
    """
    low = (rows.entropy < DEAD_NATS).to(rows.entropy.dtype)
    return _mean(torch.where(rows.entropy.isfinite(), low, torch.nan), rows.keys > 2)


def _mean(values: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    number = counted.sum((0, 2))
    return (values.masked_fill(~counted, 0.0).sum((-3, -1)) / number).masked_fill(number == 0, ABSENT)


def repeated(key: torch.Tensor, heads: int) -> torch.Tensor:
    """Return keys, [B, H_kv, S, D], once for each of the heads of queries."""
    return key if key.shape[1] == heads else key.repeat_interleave(heads // key.shape[1], dim=1)


def rounding(query: torch.Tensor, key: torch.Tensor, scale: float, lse: torch.Tensor) -> torch.Tensor:
    """Return what float32 may have lost in logits and sums of them, float32[B, H, L].

    A sum of D products, in any order, is off by about sqrt(D)·eps/2·|q|·|k|, however much of it cancels (Higham and
    Mary 2019, section 2): 8 eps hold up to D = 256.
    """
    return _rounding(_lengths(query, _wide(query)), _lengths(key, _wide(query)), scale, lse)


def _rounding(queries: torch.Tensor, keys: torch.Tensor, scale: float, lse: torch.Tensor) -> torch.Tensor:
    products = (queries * keys.amax(-1, keepdim=True)).float()
    return torch.finfo(torch.float32).eps * (64 * (1 + lse.abs()) + 8 * abs(scale) * products)


def _lengths(vectors: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.linalg.vector_norm(vectors, dim=-1, dtype=dtype)


def hidden_by(mask: torch.Tensor) -> torch.Tensor:
    """Tell what a mask hides; frameworks write it as -inf or as the lowest number of a dtype."""
    return ~mask if mask.dtype == torch.bool else mask <= torch.finfo(mask.dtype).min / 2


def hidden_by_position(rows: torch.Tensor, keys: int, scores: Scores) -> torch.Tensor | None:
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
    hidden, added = hidden_by_position(rows, key.shape[2], scores), None
    if scores.mask is not None:
        mask = scores.mask.expand(*query.shape[:3], key.shape[2])[:, :, rows]
        own = hidden_by(mask)
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
        lowest_max=lowest, highest_max=highest, lse=lse, lse_bound=lse_bound, entropy=entropy, bound=bound, keys=keys
    )
