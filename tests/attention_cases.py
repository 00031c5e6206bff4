"""Queries, keys and masks for tests of attention's statistics, and the statistics in float64 over the whole matrix."""

import math

import numpy as np
import torch

SHAPES = [(2, 4, 4, 16, 16, 8), (1, 6, 2, 17, 17, 16), (2, 4, 1, 33, 33, 24), (1, 2, 2, 5, 67, 7), (1, 1, 1, 1, 1, 4)]


def naive(query, key, scale, visible, *, bias=None, softcap=None, sinks=None):
    """Return largest logit, log-sum-exp and entropy of every row in float64, NaN where it sees nothing."""
    key = key.double().repeat_interleave(query.shape[1] // key.shape[1], 1)
    logits = scale * torch.einsum("bhld,bhsd->bhls", query.double(), key)
    logits = logits if softcap is None else softcap * torch.tanh(logits / softcap)
    logits = (logits if bias is None else logits + bias.double()).masked_fill(~visible, -math.inf).numpy()
    with np.errstate(all="ignore"):
        largest = logits.max(-1)
        none = ~np.isfinite(largest)
        of_keys = np.where(none, np.nan, largest)
        if sinks is not None:
            sink = sinks.double().numpy()[None, :, None, None]
            logits = np.concatenate([logits, np.broadcast_to(sink, (*logits.shape[:3], 1))], -1)
            largest = logits.max(-1)
        weights = np.exp(logits - largest[..., None])
        total = weights.sum(-1)
        shifted = np.where(weights > 0, logits - largest[..., None], 0.0)
        entropy = np.log(total) - (weights * shifted).sum(-1) / total
        found = [of_keys, largest + np.log(total), entropy]
    return [np.where(none, np.nan, one) for one in found]


def made(shape, dtype, masked, size, offset=0.0):
    batch, heads, kv_heads, length, keys, width = shape
    made = torch.Generator().manual_seed(sum(shape) + len(masked))
    query = (size * torch.randn(batch, heads, length, width, generator=made)).to(dtype)
    key = (size * torch.randn(batch, kv_heads, keys, width, generator=made) + offset).to(dtype)
    visible = torch.ones(batch, heads, length, keys, dtype=torch.bool)
    given = {}
    if masked in {"causal", "both"}:
        visible &= torch.arange(keys) <= torch.arange(length)[:, None]
        given["causal"] = True
    if masked in {"bool", "added", "both"}:
        padding = torch.arange(keys) >= torch.tensor([keys // 3, 0])[:batch, None]
        visible &= padding[:, None, None]
        mask = padding[:, None, None].expand(batch, 1, length, keys)
        lowest = torch.finfo(torch.float32).min
        given["mask"] = torch.zeros(mask.shape).masked_fill(~mask, lowest) if masked == "added" else mask
    return query, key, visible, given


def hold(found, true, visible):
    """Assert that statistics keep their bounds, and hold no more than float32 and the dtype's rounding in them.

    Returns:
        The largest error, in bounds.
    """
    largest, lse, entropy = true
    known = ~np.isnan(entropy)
    assert (found.keys.numpy() == visible.sum(-1).numpy()).all(), "rows see other keys"
    assert (np.isnan(found.entropy.numpy()) == ~known).all(), "another row sees no key"
    slack, bound = found.lse_bound.numpy()[known], found.bound.numpy()[known]
    errors = {
        "entropy": np.abs(found.entropy.numpy() - entropy)[known] / bound,
        "log-sum-exp": np.abs(found.lse.numpy() - lse)[known] / slack,
        "lower end of the largest logit": (found.lowest_max.numpy() - largest)[known] / slack,
        "upper end of the largest logit": (largest - found.highest_max.numpy())[known] / slack,
    }
    worst = {name: float(error.max(initial=0.0)) for name, error in errors.items()}
    for name, error in worst.items():
        assert error <= 1, f"{name}: {error:.3g} times its bound from float64"
    assert not (slack > 2**-13 + 1e-3).any(), "a bound is too wide"
    return max(worst.values())
