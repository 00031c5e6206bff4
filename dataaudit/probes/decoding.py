"""How continuations are drawn: pinned by a seed for each of them, so that batches change nothing."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from dataaudit.base.errors import ConfigError
from dataaudit.manifest.canonical import canonical_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Sampling of continuations.

    Raises:
        ConfigError: A number is out of its range.
    """

    tokens: int = 100
    """Tokens of a continuation, at most."""
    temperature: float = 1.0
    """0: the most likely token each time."""
    top_p: float = 1.0
    """Mass of the most likely tokens that are drawn from."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.temperature < 0 or not 0 < self.top_p <= 1:
            raise ConfigError(f"decoding: expected tokens >= 1, temperature >= 0, 0 < top_p <= 1, found {asdict(self)}")

    def words(self) -> str:
        """Return it as canonical JSON, for the artifact hash."""
        return canonical_json(asdict(self)).decode()

    def uniforms(self, key: int) -> npt.NDArray[np.float64]:
        """Return float64[tokens], the numbers in [0, 1) that decide the continuation of a key."""
        return np.random.Generator(np.random.Philox(key=[self.seed, key])).random(self.tokens)

    def choose(self, logits: npt.NDArray[np.float32], uniform: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Return the next token of each row, by the inverse of the cumulative distribution.

        Args:
            logits: float32[n, V]
            uniform: float64[n]

        Raises:
            FloatingPointError: A logit is NaN, and nothing can be drawn.
        """
        if np.isnan(logits).any():
            raise FloatingPointError("a logit is NaN")
        if self.temperature == 0:
            return np.asarray(logits.argmax(1), dtype=np.int64)
        scaled = logits.astype(np.float64) / self.temperature
        weights = np.exp(scaled - scaled.max(1, keepdims=True))
        order = np.argsort(-weights, axis=1, kind="stable")
        ordered = np.take_along_axis(weights, order, 1)
        before = np.cumsum(ordered, 1) - ordered
        ordered[before >= self.top_p * ordered.sum(1, keepdims=True)] = 0.0
        below = np.cumsum(ordered, 1)
        at = (below <= uniform[:, None] * below[:, -1:]).sum(1)
        return np.take_along_axis(order, np.minimum(at, logits.shape[1] - 1)[:, None], 1)[:, 0]
