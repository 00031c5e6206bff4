"""A proxy of the gradient's signal over its noise, from the moments that Adam keeps."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dataaudit.vitals.norms import norm


def sums_of_moments(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return Σm² and Σv, float64[2]."""
    m = torch.stack([norm(item) for item in first]).double().square().sum()
    return torch.stack([m, torch.stack([item.sum(dtype=torch.float32) for item in second]).double().sum()])


def proxy_of_sums(sums: torch.Tensor, step: torch.Tensor, betas: tuple[float, float]) -> torch.Tensor:
    """Return a proxy of the signal over the noise of a whole batch's gradient, of Σm² and Σv; a float64 scalar.

    Were gradients of all steps drawn alike, m² would hold G² and a share r of the variance, v both in full:
    (Σm² - r·Σv) / (Σv - Σm²), moments corrected for their start, r = (1-β₁)(1+β₁ᵗ) / ((1+β₁)(1-β₁ᵗ)). They are not so
    drawn, and the two moments look back over different spans: it is a proxy, to be compared with itself. NaN at the
    first step.
    """
    steps = step.double()
    decayed = betas[0] ** steps
    share = (1 - betas[0]) * (1 + decayed) / ((1 + betas[0]) * (1 - decayed))
    m, v = sums
    m, v = m / (1 - decayed) ** 2, v / (1 - betas[1] ** steps)
    later = torch.zeros_like(m) + steps > 1  # steps may lie on the host, and a copy would be waited for
    return torch.where(later, torch.where(v > m, (m - share * v) / (v - m), torch.nan), torch.nan)
