"""Spectra of what weights moved by: of a projection, and of what queries and keys do together, head by head.

With W of a head, d_head x d, at the base and D what it moved by since (Huang et al. 2026, arXiv 2606.28116, eq. 2-5):
first order  D_q^T W_k + W_q^T D_k, second order  D_q^T D_k, both d x d. The first is A^T B with A = [D_q; W_q] and
B = [W_k; D_k]: its squared singular values are the eigenvalues of F^T G_B F with G_A = A A^T = F F^T and G_B = B B^T of
2 d_head. No matrix of d x d is made. A device makes the Gram matrices in float64; the host solves them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from dataaudit.base.statistics import Floats
from dataaudit.vitals.projections import Projection
from dataaudit.vitals.spectra import gram

PIECE = 1 << 20
"""Elements of a temporary tensor at most, beside Gram matrices."""


def gram_of_update(base: torch.Tensor, now: torch.Tensor) -> torch.Tensor:
    """Return the Gram matrix of what a matrix [..., d] moved by, on its shorter side, float64."""
    moved = (now - base).flatten(0, -2)  # of neighbours: exact to a bit or so
    return gram(moved if moved.shape[0] >= moved.shape[1] else moved.mT)


def grams_of_heads(
    projection: Projection, base: Mapping[str, torch.Tensor], now: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """Return Gram matrices of [D; W] of each head, float64[heads, 2 d_head, 2 d_head], W at the base."""
    grams, some = [], max(1, PIECE // (projection.size * projection.width))
    for first in range(0, projection.heads, some):
        heads = slice(first, first + some)
        before, after = projection.of(base, heads), projection.of(now, heads)
        both = torch.cat([after.sub_(before), before], 1)
        grams.append(both @ both.mT)
    return torch.cat(grams)


def solved(query: Floats, key: Floats, queries: Floats, keys: Floats) -> tuple[Floats, Floats] | None:
    """Return exp(H) of both projections, their powers and stable ranks; and of heads, first then second order.

    ``query`` and ``key`` are Gram matrices of what these moved by, float64[m, m]; ``queries`` and ``keys`` those of
    :func:`grams_of_heads`, where each head of keys serves as many of queries. None where they are not finite.
    """
    if not all(np.isfinite(gram).all() for gram in (query, key, queries, keys)):
        return None
    squares = [np.linalg.eigvalsh(gram) for gram in (query, key)]
    powers = np.array([np.trace(gram) for gram in (query, key)])
    stable = [power / own[-1] if power > 0 else np.nan for power, own in zip(powers, squares, strict=True)]
    keys = np.repeat(keys, len(queries) // len(keys), axis=0)
    half = queries.shape[-1] // 2
    turned = np.roll(keys, half, (1, 2))  # [W; D]
    first = _singular_squares(queries, turned)
    second = _singular_squares(queries[:, :half, :half], keys[:, :half, :half])
    of_layer = np.array([*map(effective_rank, squares), *powers, *stable])
    return of_layer, np.concatenate([effective_rank(first), effective_rank(second)])


def effective_rank(squares: np.ndarray) -> Floats:
    """Return exp(H) of p = squares / their sum, along the last axis; NaN where all are zero."""
    squares = np.clip(squares, 0.0, None)
    total = squares.sum(-1, keepdims=True)
    shares = np.divide(squares, total, out=np.full(squares.shape, np.nan), where=total > 0)
    return np.asarray(np.exp(-(shares * np.log(np.where(shares > 0, shares, 1.0))).sum(-1)), np.float64)


def _singular_squares(left: Floats, right: Floats) -> Floats:
    """Return squared singular values of A^T B from A A^T and B B^T; rows of A are first brought to length 1."""
    lengths = np.sqrt(np.diagonal(left, axis1=1, axis2=2))
    lengths = np.where(lengths > 0, lengths, 1.0)
    scale = lengths[:, :, None] * lengths[:, None, :]
    values, vectors = np.linalg.eigh(left / scale)
    factor = vectors * np.sqrt(np.clip(values, 0.0, None))[:, None, :]
    return np.asarray(np.linalg.eigvalsh(factor.transpose(0, 2, 1) @ (right * scale) @ factor), np.float64)
