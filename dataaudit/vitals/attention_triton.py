"""Kernels of Triton: largest logit, log-sum-exp and entropy of rows of attention, online, with no L x S matrix.

Of the logits x of a row, block by block, it keeps m = max x, l = Σ exp(x - m) and a = Σ exp(x - m)(x - m). Where m
grows by d, l becomes exp(-d) l, and a becomes exp(-d)(a - d l). Then lse = m + log l, and the entropy, nats, is
log l - a / l (the online softmax of Milakov and Gimelshein 2018, arXiv 1805.02867, with one sum more).

Products are exact and sums are in float32: values below float32 fit into TF32, float32 itself is multiplied as such.

Sampled rows take two kernels a layer, where one operator of torch after the other takes some hundred: a host that
launches these is slower than a GPU that runs them.

The compiler, unlike the interpreter, evaluates annotations of arguments: it refuses names that are not Triton's own.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from dataaudit.vitals.attention import DEAD_NATS, AttentionRows, Scores, repeated, rounding, seen_rows

_WIDE = 128
"""Width of a head above which blocks are halved, to fit into the memory of a multiprocessor."""
_NO_MASK, _HIDES, _ADDED = 0, 1, 2


@triton.jit
def _add_block(largest: tl.tensor, total: tl.tensor, moment: tl.tensor, logits: tl.tensor) -> Any:
    """Return the three running numbers of rows with a block of logits more."""
    higher = tl.maximum(largest, tl.max(logits, 1))
    level = tl.where(higher == float("-inf"), 0.0, higher)
    grown = tl.where(largest == float("-inf"), 0.0, largest - level)
    kept = tl.where(largest == float("-inf"), 0.0, tl.exp(grown))
    below = logits - level[:, None]
    weights = tl.exp(below)
    products = tl.where(weights > 0.0, weights * below, 0.0)
    return higher, kept * total + tl.sum(weights, 1), kept * (moment + grown * total) + tl.sum(products, 1)


@triton.jit
def _first(logits: tl.tensor, columns: tl.tensor, keys: tl.tensor) -> Any:
    """Return the logit of the first key that each row sees in a block, -inf where it sees none."""
    earliest = tl.min(tl.where(logits != float("-inf"), columns, keys), 1)
    return tl.max(tl.where(columns == earliest[:, None], logits, float("-inf")), 1)


@triton.jit
def _store(to: tl.tensor, size: tl.tensor, own: tl.tensor, one: tl.tensor, two: tl.tensor, three: tl.tensor) -> None:
    tl.store(to, one, mask=own)
    tl.store(to + size, two, mask=own)
    tl.store(to + 2 * size, three, mask=own)


@triton.jit(do_not_specialize=["number", "length", "keys", "window"])
def _online(
    query: tl.tensor,
    key: tl.tensor,
    mask: tl.tensor,
    found: tl.tensor,
    query_batch: tl.tensor,
    query_head: tl.tensor,
    query_row: tl.tensor,
    query_width: tl.tensor,
    key_batch: tl.tensor,
    key_head: tl.tensor,
    key_row: tl.tensor,
    key_width: tl.tensor,
    mask_batch: tl.tensor,
    mask_head: tl.tensor,
    mask_row: tl.tensor,
    mask_key: tl.tensor,
    number: tl.tensor,
    length: tl.tensor,
    keys: tl.tensor,
    heads: tl.tensor,
    group: tl.tensor,
    scale: tl.tensor,
    softcap: tl.tensor,
    window: tl.tensor,
    hides_from: tl.tensor,
    width: tl.constexpr,
    padded: tl.constexpr,
    causal: tl.constexpr,
    has_window: tl.constexpr,
    has_softcap: tl.constexpr,
    mask_kind: tl.constexpr,
    sampled: tl.constexpr,
    of_heads: tl.constexpr,
    precision: tl.constexpr,
    block: tl.constexpr,
) -> None:
    first = tl.program_id(0) * block
    batch, head = (tl.program_id(1) // heads).to(tl.int64), (tl.program_id(1) % heads).to(tl.int64)
    places, across = first + tl.arange(0, block), tl.arange(0, padded)
    rows, stop = places, first + block
    if sampled:  # the last row of each of so many equal parts
        rows = ((places + 1).to(tl.int64) * length // number - 1).to(tl.int32)
        stop = (tl.minimum(first + block, number).to(tl.int64) * length // number).to(tl.int32)
    query += batch * query_batch + head * query_head
    key += batch * key_batch + (head // group) * key_head
    mask += batch * mask_batch + head * mask_head
    own = (places < number)[:, None]
    q = tl.load(
        query + rows[:, None] * query_row + across[None, :] * query_width,
        mask=own & (across < width)[None, :],
        other=0.0,
    ).to(tl.float32)
    largest = tl.full([block], float("-inf"), tl.float32)
    total, moment = tl.full([block], 0.0, tl.float32), tl.full([block], 0.0, tl.float32)
    count = tl.full([block], 0.0, tl.float32)
    opening, squares = tl.full([block], float("-inf"), tl.float32), tl.full([padded], 0.0, tl.float32)
    begin = tl.maximum(0, tl.min(rows) - window + 1) // block * block if has_window else 0
    end = tl.minimum(keys, stop) if causal else keys
    is_last = (tl.program_id(0) == tl.num_programs(0) - 1) & of_heads  # that block of rows reads all keys
    begin, end = tl.where(is_last, 0, begin), tl.where(is_last, keys, end)
    for start in range(begin, end, block):
        columns = (start + tl.arange(0, block))[None, :]
        k = tl.load(
            key + columns * key_row + across[:, None] * key_width,
            mask=(columns < keys) & (across < width)[:, None],
            other=0.0,
        ).to(tl.float32)
        logits = scale * tl.dot(q, k, input_precision=precision)
        if has_softcap:
            logits = softcap * (2.0 / (1.0 + tl.exp(-2.0 * logits / softcap)) - 1.0)
        seen = (columns < keys) & own
        if causal:
            seen = seen & (columns <= rows[:, None])
        if has_window:
            seen = seen & (columns > rows[:, None] - window)
        if mask_kind > 0:
            given = tl.load(mask + rows[:, None] * mask_row + columns * mask_key, mask=seen, other=0)
            if mask_kind == 1:
                seen = seen & (given != 0)
            else:
                seen = seen & (given > hides_from)
                logits = logits + given.to(tl.float32)
        logits = tl.where(seen, logits, float("-inf"))
        if of_heads:
            opening, squares = tl.where(count == 0, _first(logits, columns, keys), opening), squares + tl.sum(k * k, 1)
        count += tl.sum((logits != float("-inf")).to(tl.float32), 1)
        largest, total, moment = _add_block(largest, total, moment, logits)
    size = tl.num_programs(1).to(tl.int64) * number
    found += tl.program_id(1).to(tl.int64) * number + places
    lse = largest + tl.log(total)
    _store(found, size, places < number, largest, lse, tl.log(total) - moment / total)
    tl.store(found + 3 * size, count, mask=places < number)
    if of_heads:
        all_squares = tl.sum(squares, 0) + 0.0 * count
        _store(found + 4 * size, size, places < number, tl.exp(opening - lse), tl.sum(q * q, 1), all_squares)


@triton.jit(do_not_specialize=["number", "all_keys"])
def _summed(
    found: tl.tensor,
    out: tl.tensor,
    out_head: tl.tensor,
    out_stat: tl.tensor,
    number: tl.tensor,
    all_keys: tl.tensor,
    dead_nats: tl.constexpr,
    block: tl.constexpr,
) -> None:
    places = tl.arange(0, block)
    own, size = places < number, tl.num_programs(0) * number
    found += tl.program_id(0) * number + places
    largest = tl.load(found, mask=own, other=float("-inf"))
    lse = tl.load(found + size, mask=own, other=0.0)
    entropy = tl.load(found + 2 * size, mask=own, other=0.0)
    keys = tl.load(found + 3 * size, mask=own, other=0.0)
    known = (lse <= float("inf")) | (keys == 0) | (largest == float("inf"))
    spoilt = tl.sum(tl.where(known, 0, 1), 0)  # a maximum drops NaN
    out += tl.program_id(0) * out_head
    tl.store(out, tl.where(spoilt > 0, float("nan"), tl.max(tl.where(keys > 0, largest, float("-inf")), 0)))
    finite = tl.abs(entropy) < float("inf")
    for stat in tl.static_range(1, 5):
        values = entropy
        if stat == 2:
            values = entropy / tl.log(tl.maximum(keys, 2.0))
        if stat == 3:
            values = tl.where(finite, (entropy < dead_nats).to(tl.float32), float("nan"))
        if stat == 4:
            values = tl.load(found + 4 * size, mask=own, other=0.0)
        counted = keys >= (1 if stat == 4 else stat)
        rows = tl.sum(counted.to(tl.float32), 0)
        mean = tl.sum(tl.where(counted, values, 0.0), 0) / rows
        tl.store(out + stat * out_stat, tl.where(rows == 0, float("-inf"), mean))
    queries = tl.sum(tl.load(found + 5 * size, mask=own, other=0.0), 0)
    every = tl.sum(tl.load(found + 6 * size, mask=places == number - 1, other=0.0), 0)
    tl.store(out + 5 * out_stat, tl.sqrt(queries / number))
    tl.store(out + 6 * out_stat, tl.sqrt(every / all_keys))


def online_pass(query: torch.Tensor, key: torch.Tensor, scores: Scores) -> AttentionRows:
    """Return statistics of all rows, sinks left out."""
    largest, lse, entropy, count = _rows(query, key, scores, query.shape[2])[:4]
    bound = rounding(query, repeated(key, query.shape[1]), scores.scale, lse)
    return seen_rows(count, largest, largest, lse, bound, entropy, bound)


def write_sampled(out: torch.Tensor, query: torch.Tensor, key: torch.Tensor, scores: Scores, number: int) -> None:
    """Write :func:`dataaudit.vitals.attention.head_statistics` of sampled rows to float32[H, 7]; of one row of a batch.

    Sinks are left out. The rows are those of :func:`dataaudit.vitals.attention.sample_rows`.
    """
    found = _rows(query, key, scores, number, of_heads=True)
    run, block = _summed[(query.shape[1],)], max(16, triton.next_power_of_2(number))
    with torch.cuda.device_of(query):
        run(found, out, *out.stride(), number, key.shape[2], dead_nats=DEAD_NATS, block=block)


def _rows(
    query: torch.Tensor, key: torch.Tensor, scores: Scores, number: int, *, of_heads: bool = False
) -> torch.Tensor:
    """Return largest logit, log-sum-exp, entropy and keys of some rows, float32[4, B, H, number].

    For ``of_heads`` three more: the first key's weight, the query's square, and at the last row the sum of all keys'
    squares.
    """
    mask, scale, softcap, window = scores.mask, scores.scale, scores.softcap, scores.window
    batch, heads, length, width = query.shape
    keys = key.shape[2]
    found = torch.empty(7 if of_heads else 4, batch, heads, number, dtype=torch.float32, device=query.device)
    kind, strides, hides_from = _NO_MASK, (0, 0, 0, 0), 0.0
    padded = max(16, triton.next_power_of_2(width))
    block = 64 if padded <= _WIDE else 32
    given = query
    if mask is not None:
        given = mask.expand(batch, heads, length, keys)
        strides = given.stride()
        kind = _HIDES if mask.dtype == torch.bool else _ADDED
        hides_from = 0.0 if mask.dtype == torch.bool else torch.finfo(mask.dtype).min / 2
    run = _online[(triton.cdiv(number, block), batch * heads)]
    with torch.cuda.device_of(query):  # Triton starts a kernel on the current device, wherever its tensors are
        run(
            query,
            key,
            given,
            found,
            *query.stride(),
            *key.stride(),
            *strides,
            number,
            length,
            keys,
            heads,
            heads // key.shape[1],
            scale,
            1.0 if softcap is None else softcap,
            keys if window is None else window,
            hides_from,
            width=width,
            padded=padded,
            causal=scores.causal,
            has_window=window is not None,
            has_softcap=softcap is not None,
            mask_kind=kind,
            sampled=number < length,
            of_heads=of_heads,
            precision="ieee" if query.dtype == torch.float32 else "tf32",
            block=block,
        )
    return found
