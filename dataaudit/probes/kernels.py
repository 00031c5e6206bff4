"""Losses, entropies, top-k masses and divergences of next-token distributions, in chunks of the vocabulary.

Logits may be bfloat16. A chunk is raised to float32 and summed in float64, so no float32 copy of all logits exists and
the result does not depend on the size of chunks beyond the last digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

CHUNK = 8_192
"""Tokens of the vocabulary that are raised to float32 at once."""
LEAST_TAIL = 1e-9
"""Mass below which a tail is rounding of float32: it counts as this much."""


@dataclass(frozen=True, slots=True)
class Distributions:
    """What is kept of the next-token distributions of n positions, of torch on the logits' device."""

    entropy: torch.Tensor
    """float64[n], nats."""
    log_total: torch.Tensor
    """float64[n] logarithm of the sum of exp(logits)."""
    top_ids: torch.Tensor
    """int64[n, k] most likely tokens, the most likely first."""
    top_log_probs: torch.Tensor
    """float64[n, k]"""


def distributions(logits: torch.Tensor, k: int, *, chunk: int = CHUNK) -> Distributions:
    """Return entropy, log-sum-exp and the k most likely tokens of each position.

    The running maximum m, s = sum(exp(x - m)) and u = sum(exp(x - m) (x - m)) are carried from chunk to chunk, and
    H = log s - u / s.

    Args:
        logits: [n, V] of any floating dtype; -inf for tokens that cannot come.
        k: At most V.
        chunk: Tokens raised to float32 at once.
    """
    import torch

    size = logits.shape[1]
    peak = torch.full((len(logits),), -torch.inf, dtype=torch.float64, device=logits.device)
    total, moment = torch.zeros_like(peak), torch.zeros_like(peak)
    for start in range(0, size, chunk):
        part = logits[:, start : start + chunk].float()
        highest = torch.maximum(peak, part.amax(1).double())
        base = torch.where(torch.isfinite(highest), highest, torch.zeros_like(highest))
        back = torch.where(torch.isfinite(peak), peak - base, torch.zeros_like(peak))
        scale = torch.where(torch.isfinite(peak), back.exp(), torch.zeros_like(back))
        moment = scale * (moment + back * total)
        total = scale * total
        shifted = part - base.float()[:, None]
        weights = shifted.exp()
        total += weights.sum(1, dtype=torch.float64)
        moment += torch.where(weights > 0, weights * shifted, torch.zeros_like(weights)).sum(1, dtype=torch.float64)
        peak = highest
    log_total = peak + total.log()
    values, ids = logits.topk(min(k, size), dim=1)
    return Distributions(total.log() - moment / total, log_total, ids, values.double() - log_total[:, None])


def losses_of(logits: torch.Tensor, log_total: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return float64[n], nats: the cross-entropy of int64[n] targets, of [n, V] logits and their float64[n] totals."""
    return log_total - logits.gather(1, targets[:, None])[:, 0].double()


def tail_of(top_log_probs: torch.Tensor) -> torch.Tensor:
    """Return float64[n], the mass beyond the k tokens whose log-probabilities float64[n, k] are given."""
    return (1.0 - top_log_probs.exp().sum(1)).clamp_min(LEAST_TAIL)


def kl_to_previous(
    logits: torch.Tensor, log_total: torch.Tensor, top_ids: torch.Tensor, top_log_probs: torch.Tensor
) -> torch.Tensor:
    """Return float64[n], nats: KL(now || before) of each position, from the k tokens that were stored and their tail.

    All tokens beyond the k count as one, which can only lower a divergence (the data processing inequality): the value
    is at least as large as this, and exact where k is the whole vocabulary.

    Args:
        logits: [n, V] now.
        log_total: float64[n] of them.
        top_ids: int64[n, k] most likely tokens before.
        top_log_probs: float64[n, k] their log-probabilities before.
    """
    import torch

    now = logits.gather(1, top_ids).double() - log_total[:, None]
    mass = now.exp()
    inside = torch.where(mass > 0, mass * (now - top_log_probs), torch.zeros_like(mass)).sum(1)
    if top_ids.shape[1] == logits.shape[1]:
        return inside
    tail = tail_of(now)
    return inside + tail * (tail.log() - tail_of(top_log_probs).log())
