"""Singular values of weight matrices: by power iteration on the device, and from eigenvalues of their Grams.

A matrix W is taken with its longer side first: the Gram WᵀW is of the small side, n. It is made on the device in
float64, and the host finds its eigenvalues: solvers of a device would make the training loop wait. Products are of
pieces, so that no copy of a whole matrix is made.

Of a unit vector v, power iteration gives θ = vᵀWᵀWv, which is no more than the largest eigenvalue of WᵀW, and the
residual r = |WᵀWv - θv|: an eigenvalue lies within r of θ (Parlett, The Symmetric Eigenvalue Problem, section 4.5), so
a singular value lies within the bound of the estimate √θ.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from dataaudit.base.statistics import Floats
from dataaudit.vitals.structure import Structure, parameters_of

PASSES = 3
"""Products with WᵀW at a turn."""
LARGEST_SIDE = 4_096
"""Small side up to which the Gram's eigenvalues are found: it takes 134 MB in float64."""
_PIECES = {"cpu": 1 << 18}
"""Elements of a piece, 2 MB in float64; on other devices:"""
_PIECE = 1 << 22
_NEAR = 1e-10
"""Share of the largest eigenvalue by which the shift of inverse iteration lies above it."""
_TRANSPOSED = {"Conv1D"}
"""Modules of transformers whose weight is [in, out]."""
_DOWN = ("down", "w2", "wo", "out")
"""In names of tensors whose matrices return what the model's width is."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Matrix:
    """A weight matrix, or several of one shape in one tensor, as of experts."""

    layer: int
    """-1: of none."""
    name: str
    """Dotted, within the layer."""
    weight: nn.Parameter
    parts: int
    """Matrices in the tensor; 0: it is one itself."""
    fans: tuple[int, int] | None
    """What goes out of it and what goes in, where its module says so."""

    @property
    def sides(self) -> tuple[int, int]:
        """The longer and the smaller side."""
        first, second = self.part(0).shape
        return max(first, second), min(first, second)

    @property
    def places(self) -> int:
        """Matrices that have a turn."""
        return max(1, self.parts)

    def part(self, number: int, of: torch.Tensor | None = None) -> torch.Tensor:
        """Return a view of the matrix, or of that of a number, as it is stored; kernels of convolutions are rows."""
        own = (self.weight if of is None else of).detach()
        return own[number] if self.parts else own.flatten(1)

    def tall(self, number: int, of: torch.Tensor | None = None) -> torch.Tensor:
        """Return it with the longer side first; of another tensor of its shape, where that is given."""
        own = self.part(number, of)
        return own if own.shape[0] >= own.shape[1] else own.T


def matrices_of(structure: Structure, model: nn.Module) -> tuple[list[Matrix], dict[str, list[int]]]:
    """Return matrices that train, each once, and the layers of those that cannot be read, by the reason."""
    modules = {layer.index: layer.module for layer in structure.layers}
    found: list[Matrix] = []
    left_out: dict[str, list[int]] = {}
    for layer, own in parameters_of(structure, model):
        named = _named(modules.get(layer, model))
        for weight in own:
            name, owner = named[id(weight)]
            is_conv = hasattr(owner, "kernel_size")
            is_tensor = weight.dim() == 3 and not is_conv
            sides = weight.shape[1:] if is_tensor else weight.shape
            if len(sides) < 2 or min(sides[0], math.prod(sides[1:])) < 2:  # a vector
                continue
            why = "it is sharded over ranks" if hasattr(weight, "device_mesh") else ""
            why = why or ("" if is_conv or weight.dim() <= 3 else f"it has {weight.dim()} dimensions")
            if why:
                left_out.setdefault(why, []).append(layer)
                continue
            parts, fans = weight.shape[0] if is_tensor else 0, _fans(owner, weight, structure.width)
            found.append(Matrix(layer=layer, name=name, weight=weight, parts=parts, fans=fans))
    return found, left_out


def _named(module: nn.Module) -> dict[int, tuple[str, nn.Module]]:
    """Return of each parameter its name, of a ``weight`` that of its module, and its module."""
    return {
        id(weight): ((f"{prefix}.{name}" if prefix else name).removesuffix(".weight"), owner)
        for prefix, owner in reversed([*module.named_modules()])
        for name, weight in owner.named_parameters(recurse=False)
    }


def _fans(owner: nn.Module, weight: nn.Parameter, width: int) -> tuple[int, int] | None:
    """Return what goes out of a matrix and what goes in; None where that is not known.

    Of experts in one tensor one side is the model's width. The tensors that return it have a name that says so, or are
    the smaller, where the others hold gates as well, or come last.
    """
    if isinstance(owner, nn.Linear | nn.MultiheadAttention):
        return weight.shape[0], weight.shape[1]
    if type(owner).__name__ in _TRANSPOSED:
        return weight.shape[1], weight.shape[0]
    others = {
        name: sum(item.shape[1:]) - width
        for name, item in owner.named_parameters(recurse=False)
        if item.dim() == 3 and width in item.shape[1:]
    }
    name = next((name for name, item in owner.named_parameters(recurse=False) if item is weight), "")
    if name not in others:
        return None
    down = [own for own in others if any(part in own.lower() for part in _DOWN)]
    if not down and len(others) > 1:
        down = [own for own, size in others.items() if size < max(others.values())] or [[*others][-1]]
    if not down:
        return None
    return (width, others[name]) if name in down else (others[name], width)


def as_text(vectors: Sequence[torch.Tensor]) -> list[str]:
    """Return vectors, float32, as JSON can say them."""
    return [base64.b64encode(item.cpu().numpy().tobytes()).decode() for item in vectors]


def from_text(vectors: Sequence[torch.Tensor], texts: Sequence[str]) -> None:
    """Set vectors to what :func:`as_text` returned."""
    for vector, text in zip(vectors, texts, strict=True):
        vector.copy_(torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.float32).view(vector.shape))


def first_vectors(matrix: Matrix) -> torch.Tensor:
    """Return vectors to begin with, float32[places, small side]; no generator of random numbers is asked."""
    steps = torch.arange(matrix.sides[1], device="cpu", dtype=torch.float64)
    vector = torch.sin(1.7 * steps.square() + steps + 1.0)
    own = (vector / torch.linalg.vector_norm(vector)).float()
    return own.repeat(matrix.places, 1).to(matrix.weight.device)


def power_iteration(tall: torch.Tensor, vector: torch.Tensor, passes: int = PASSES) -> torch.Tensor:
    """Improve a vector, float32[small], in place; return the estimate, its bound and the stable rank.

    float32[3] on the device: the root of θ; how far from it a singular value is at most, the rounding to float32
    included; and |W|²_F / θ. A vector whose image is zero or not finite is left as it is.
    """
    own = vector.double()
    own = own / torch.linalg.vector_norm(own)
    theta = residual = whole = own.new_zeros(())
    for number in range(passes):
        image, last = torch.zeros_like(own), number == passes - 1
        for piece in _pieces(tall):
            image.addmv_(piece.T, piece.mv(own))
            whole = whole + torch.linalg.vector_norm(piece).square() if last else whole
        theta, size = own.dot(image), torch.linalg.vector_norm(image)
        residual = torch.linalg.vector_norm(image - theta * own)
        own = torch.where(size.isfinite() & (size > 0), image / size, own)
    vector.copy_(own)
    sigma = theta.clamp_min(0.0).sqrt()
    below, above = sigma - (theta - residual).clamp_min(0.0).sqrt(), (theta + residual).sqrt() - sigma
    bound = torch.maximum(below, above) + torch.finfo(torch.float32).eps * sigma
    return torch.stack([sigma, bound, whole / theta]).float()


def gram(tall: torch.Tensor) -> torch.Tensor:
    """Return WᵀW, float64[small, small] on the device."""
    found = tall.new_zeros((tall.shape[1],) * 2, dtype=torch.float64)
    for piece in _pieces(tall):
        found.addmm_(piece.T, piece)
    return found


def _pieces(tall: torch.Tensor) -> Iterator[torch.Tensor]:
    for piece in tall.split(max(1, _PIECES.get(tall.device.type, _PIECE) // tall.shape[1])):
        yield piece.double()


def solved(gram: Floats, longer: int, vector: Floats) -> tuple[float, ...]:
    """Return seven numbers of a matrix from its Gram, and write its first right singular vector, float32[small].

    The largest singular value and its bound, stable rank, entropy of p = σ² / sum σ² over log of the small side, alpha
    of the eigenvalues' power law, its distance and its standard error, NaN where there are fewer than 20 above 1e-5.
    All are NaN where the Gram is not finite.
    """
    if not np.isfinite(gram).all():
        return (np.nan,) * 7
    values: Floats = np.linalg.eigvalsh(gram).clip(0.0)
    largest, total, side = float(values[-1]), float(values.sum()), len(values)
    if not largest:
        return (0.0, 0.0, *(np.nan,) * 5)
    shifted = gram - largest * (1 + _NEAR) * np.eye(side)
    start = gram @ np.sin(1.0 + 1.3 * np.arange(side))
    own = np.linalg.solve(shifted, start)
    vector[:] = own / np.linalg.norm(own)
    shares = values[values > 0] / total
    entropy = -float((shares * np.log(shares)).sum()) / np.log(side)
    law = fit_power_law(values)
    sigma = largest**0.5
    bound = (longer * np.finfo(np.float64).eps + np.finfo(np.float32).eps) * sigma
    of_tail = (np.nan,) * 3 if law is None else (law.alpha, law.distance, law.error)
    return sigma, bound, total / largest, entropy, *of_tail


LEAST = 20
"""Numbers that a fit needs; WeightWatcher fits fewer in another way."""
NOISE = 1e-5
"""Eigenvalues up to it are noise, as WeightWatcher takes them."""
_RANKS = 48
"""Numbers of each tail that are looked at first: a distance is no less than at these."""


class PowerLaw(NamedTuple):
    """A power law of a tail."""

    alpha: float
    xmin: float
    distance: float
    """Of Kolmogorov, between the tail and the law."""
    tail: int
    """Numbers from xmin on."""

    @property
    def error(self) -> float:
        """Standard error of alpha, (alpha - 1) / sqrt(tail), where xmin is taken as known."""
        return (self.alpha - 1) / math.sqrt(self.tail)


def fit_power_law(numbers: Floats) -> PowerLaw | None:
    """Return the power law of numbers, float64[n] in any order; None where fewer than 20 lie above the noise.

    As Clauset, Shalizi and Newman fit it (arXiv 0706.1062, section 3): from each number on but the largest, as xmin,
    the tail of n numbers has the most likely exponent alpha = 1 + n / sum(log(x / xmin)), and the distance
    D = max|1 - (x / xmin)^(1 - alpha) - k / n| of Kolmogorov, k = 0 .. n - 1 by rank. The tail with the least distance
    is taken, the longest of several. ``WWFit`` of WeightWatcher 0.7 does the same with 20 numbers or more; here
    logarithms are taken once, their sums over tails are running ones, and few distances are made in full.
    """
    above = np.sort(numbers[numbers > NOISE])
    total = len(above)
    if total < LEAST:
        return None
    logs = np.log(above)
    starts = np.arange(total - 1)
    tails = total - starts
    sums = np.cumsum((logs - logs[-1])[::-1])[::-1][:-1] - tails * (logs[:-1] - logs[-1])
    with np.errstate(divide="ignore", invalid="ignore"):
        alphas = 1 + tails / sums  # not finite where a tail is a single number, many times
        ranks = starts[:, None] + (np.linspace(0, 1, _RANKS) * (tails - 1)[:, None]).astype(np.int64)
        least = _distances(logs, alphas, starts, ranks).max(1)
    least[~np.isfinite(alphas)] = math.inf
    best, chosen = math.inf, -1
    for start in np.argsort(least, kind="stable").tolist():
        if least[start] > best or least[start] == math.inf:
            break
        own = np.array([start])
        distance = float(_distances(logs, alphas, own, np.arange(start, total)[None]).max())
        if distance < best or (distance == best and start < chosen):
            best, chosen = distance, start
    if chosen < 0:
        return None
    return PowerLaw(float(alphas[chosen]), float(above[chosen]), best, total - chosen)


def _distances(logs: Floats, alphas: Floats, starts: np.ndarray, ranks: np.ndarray) -> Floats:
    """Return how far some numbers of tails are from their laws, float64[tails, ranks]."""
    own = starts[:, None]
    law = -np.expm1((1 - alphas[own]) * (logs[ranks] - logs[own]))
    found: Floats = np.abs(law - (ranks - own) / (len(logs) - own))
    return found
