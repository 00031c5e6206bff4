"""What is wrong whatever a run was like before: rules that need no baseline, and hold from the first step on.

- *fold*: an amount is 4 times the median of its own last 32 values, or a quarter of it, three values in a row, by more
  than the learning rate explains (to the power of 1.5 of its movement) and by more than 6 robust deviations;
- *collapse*: attention of a head, or of half the heads of a layer, has next to no entropy, and had a fourfold;
- *dead*: half or more of the units of an MLP are silent;
- *frozen*: weights of a layer are not moved in two of its turns, at a rate above 0, by updates that were not skipped;
- *state*: an optimizer's state is not finite.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dataaudit.robust import SIGMA, Floats, row_medians
from dataaudit.vitals.baseline import Key

FOLD = 4.0
WINDOW = 32
"""Values of a series whose median is compared with."""
LEAST = 8
"""Of which there have to be so many."""
IN_A_ROW = 3
EXPLAINED = 1.5
"""Power of the movement of the learning rate that may be its work."""
DEVIATIONS = 6.0
COLLAPSED = 0.05
"""Entropy of attention, nats, below which next to none is left."""
DEAD_SHARE = 0.5
TURNS = 2
"""Turns of a layer, one after the other, in which its weights were not moved."""
_AMOUNTS = frozenset({"activation_mean_abs", "residual_rms", "layer_std", "grad_norm", "update_to_weight"})
_ARRAYS = ("_recent", "_rates", "_row", "_zeros", "open")


class Always:
    """Rules without a baseline.

    Args:
        keys: Of all series.
        units: Units of each layer's MLP, by layer.

    Attributes:
        open: bool[series]: what was raised, and is not over.
    """

    def __init__(self, keys: Sequence[Key], units: Mapping[int, int]) -> None:
        number = len(keys)
        self.open = np.zeros(number, bool)
        self._fold = np.array([key.metric in _AMOUNTS and key.stat != "vectors" for key in keys], bool)
        self._entropy = np.array([(key.metric, key.stat) == ("attn_entropy", "mean") for key in keys], bool)
        self._logits = np.array([(key.metric, key.stat) == ("max_attn_logit", "sampled") for key in keys], bool)
        self._dead = np.array([key.metric == "dead_neuron_count" for key in keys], bool)
        self._units = np.array([units.get(key.layer, 0) for key in keys], np.float64)
        self._frozen = np.array([key.metric == "update_to_weight" and key.stat == "all" for key in keys], bool)
        self._finite = np.array([key.metric == "opt_state_finite" for key in keys], bool)
        self._skipped = np.array([key.metric == "skipped_updates" for key in keys], bool)
        self._layer = np.array([key.layer for key in keys], np.int64)
        self._amounts = np.flatnonzero(self._fold | self._entropy | self._logits)
        self._recent = np.full((WINDOW, len(self._amounts)), np.nan)
        """The newest value first, of what is compared with its own past: logarithms."""
        self._rates = np.full((WINDOW, len(self._amounts)), np.nan)
        self._row, self._zeros = np.zeros((2, number), np.int64)
        """Values in a row that were beyond; below 0, on the lower side."""

    def see(self, held: Floats, rate: float) -> list[tuple[int, str, float, float]]:
        """Take the values of a step.

        Args:
            held: float64[series]; NaN: not measured.
            rate: Of learning; NaN: not known.

        Returns:
            Place, rule, and the lowest and highest value that would have been fine, of what is newly wrong.
        """
        low, high = np.full((2, len(held)), np.nan)
        moves = rate > 0 and not (held[self._skipped] > 0).any()
        rule = np.full(len(held), "", object)
        wrong, fine = self._folds(held, rate, low, high, rule)
        with np.errstate(invalid="ignore"):
            for chosen, beyond, name, least, most in (
                (self._dead, held >= np.maximum(DEAD_SHARE * self._units, 1.0), "dead", 0.0, DEAD_SHARE * self._units),
                (self._frozen & (self._layer >= 0), (held == 0) & moves, "frozen", 0.0, math.inf),
                (self._finite, held < 1, "state", 1.0, 1.0),
            ):
                own = chosen & beyond
                if name == "frozen":
                    self._zeros = np.where(own, self._zeros + 1, np.where(np.isnan(held), self._zeros, 0))
                    own &= self._zeros >= TURNS
                wrong |= own
                low[own], high[own], rule[own] = least, np.broadcast_to(most, len(held))[own], name
                fine |= chosen & ~np.isnan(held) & ~beyond
        raised = np.flatnonzero(wrong & ~self.open)
        self.open = (self.open | wrong) & ~fine
        return [(int(one), str(rule[one]), float(low[one]), float(high[one])) for one in raised]

    def go_back(self) -> None:
        """Forget what came later: the run went back."""
        self.open[:], self._row[:], self._zeros[:] = False, 0, 0

    def state(self) -> dict[str, Any]:
        """Return all that it knows, in plain types."""
        return {name: base64.b64encode(getattr(self, name).tobytes()).decode() for name in _ARRAYS}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        for name in _ARRAYS:
            kept = getattr(self, name)
            kept[...] = np.frombuffer(base64.b64decode(state[name]), kept.dtype).reshape(kept.shape)

    def _folds(self, held: Floats, rate: float, low: Floats, high: Floats, rule: Any) -> tuple[Any, Any]:
        """Return which amounts are far from their own recent median, and which came back."""
        places = self._amounts
        values = held[places]
        new = np.isfinite(values)
        wrong, fine = np.zeros((2, len(held)), bool)
        if not new.any():
            return wrong, fine
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.where(new, np.log(np.maximum(values, 1e-30)), np.nan)
            logs = np.where(self._logits[places], np.arcsinh(values), logs)
            now = math.log(rate) if rate > 0 else math.nan
        known = np.count_nonzero(~np.isnan(self._recent), axis=0) >= LEAST
        look = np.flatnonzero(new & known)
        if len(look):
            recent = self._recent[:, look]
            middle = row_medians(recent.T)
            spread = SIGMA * row_medians(np.abs(recent - middle).T)
            rates = self._rates[:, look]
            far_rates = (
                np.nanmax(np.abs(rates - now), axis=0) if not math.isnan(now) and not np.isnan(rates).all() else 0.0
            )
            reach = np.maximum(math.log(FOLD), DEVIATIONS * spread) + EXPLAINED * np.nan_to_num(far_rates)
            off = logs[look] - middle
            own = places[look]
            side = np.where(off > reach, 1, np.where(off < -reach, -1, 0))
            entropies = self._entropy[own]
            side = np.where(entropies & ((side > 0) | (held[own] > COLLAPSED)), 0, side)
            side = np.where(self._logits[own] & (side < 0), 0, side)
            row = self._row[own]
            self._row[own] = np.where(side == 0, 0, np.where(np.sign(row) == side, row + side, side))
            beyond = np.abs(self._row[own]) >= IN_A_ROW
            wrong[own] = beyond
            for bound, edge in ((low, middle - reach), (high, middle + reach)):
                own_edge = np.clip(edge, -700, 700)
                bound[own] = np.where(self._logits[own], np.sinh(own_edge), np.exp(own_edge))
            rule[own] = np.where(entropies, "collapse", "fold")
            fine[own] = np.abs(off) < reach / 2
        keep = np.flatnonzero(new & (self._row[places] == 0))  # what is beyond is no measure of what is usual
        overdue = np.flatnonzero(new & (np.abs(self._row[places]) > WINDOW))
        for own in (keep, overdue):
            self._recent[1:, own], self._rates[1:, own] = self._recent[:-1, own], self._rates[:-1, own]
            self._recent[0, own], self._rates[0, own] = logs[own], now
        return wrong, fine


class SpikeScore:
    """The gradient's norm over the average of its earlier ones, which remembers some ten; without the loss's scale."""

    DECAY = 0.9
    LEAST = 8
    """Norms before the first score."""

    def __init__(self) -> None:
        self.norms = 0
        self.average = self.scale = 0.0

    def see(self, norm: float, scale: float) -> float:
        """Take a norm, and what the loss was multiplied by; return its score.

        NaN for the first few, and for what is no positive number. A scale that is not known, NaN, is the last one
        that was; what came before the first one had the same.
        """
        if not 0 < norm < math.inf:
            return math.nan
        if 0 < scale < math.inf:
            self.average /= 1.0 if self.scale else scale
            self.scale = scale
        norm /= self.scale or 1.0
        score = norm / self.average if self.norms >= self.LEAST else math.nan
        self.norms += 1
        self.average += (norm - self.average) * max(1 - self.DECAY, 1 / self.norms)
        return score
