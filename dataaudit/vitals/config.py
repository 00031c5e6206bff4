"""What is measured, how often and how closely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dataaudit.base.errors import ConfigError
from dataaudit.vitals.baseline import Baseline
from dataaudit.vitals.cadence import PRESETS
from dataaudit.vitals.structure import Mapping

FAMILIES = ("attention", "activations", "weights", "spectra", "updates", "experts")


@dataclass(frozen=True, slots=True, kw_only=True)
class MuP:
    """The smaller model whose settings a run takes over by muP, and what its run recorded at the same step.

    Args:
        width: Of its residual stream.
        depth: Its layers.
        spectral: ``mup_spectral`` ``median`` of its run; None: no exponent of it is recorded.
        activation: ``mup_activation`` ``last`` of its run.
        growth: ``mup_activation`` ``growth`` of its run.
        update: ``mup_update`` ``median`` of its run.

    Raises:
        ConfigError: A value is not positive.
    """

    width: int
    depth: int
    spectral: float | None = None
    activation: float | None = None
    growth: float | None = None
    update: float | None = None

    def __post_init__(self) -> None:
        for name in ("width", "depth"):
            _whole_number(f"mup: {name}", getattr(self, name), 1)
        for name in ("spectral", "activation", "growth", "update"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 < value < float("inf")):
                raise ConfigError(f"vitals: mup: {name}: expected a positive number, found {_shown(value)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class VitalsConfig:
    """What is measured, how often and how closely.

    Args:
        preset: Where the cadence begins, and what it may cost: ``nano`` at every step and 3 % of its time, ``medium``
            at every 4th and 2 %, ``large`` at every 16th and 1 %. Weights rotate: an eighth of them is read at once.
        adapt: Whether the cadence follows what measuring costs; without it the same steps are always measured.
        measure: Some of ``attention``, ``activations``, ``weights`` (with gradients and updates), ``spectra`` of
            weights, ``updates`` (the spectra of what moved) and ``experts``.
        sampled_rows: Rows of attention, of one row of the batch, that are computed in float32.
        micro_batches: Batches of a step that are kept apart; further ones take the place of the first.
        interval: Steps whose values are copied to the host together.
        delta: Steps between the weights that ``updates`` compares. A multiple of the steps between measurements, which
            are powers of 2: else only those comparisons are made whose both ends are measured.
        window: Steps over which units' means and experts' tokens are taken, before any is called dead.
        healthy: First and last step of a span of this run that is known to be healthy: deviations raise nothing before
            its end, and its end reports how many series are judged. Without it each is judged from 64 values on.
        baseline: A healthy baseline, of :func:`dataaudit.vitals.baseline.baseline_of_run`, in place of each series' own
            past.
        total: Last step of the run, for a baseline by position.
        steady: First and last step at which the learning rate neither warms up nor decays; small updates are warned
            of between these alone.
        escalate: Steps after an alarm in which everything is measured.
        mapping: Where the parts of a model are that is not understood by its structure.
        mup: The base of a run that takes settings over from a smaller model by muP; without it that is not checked.
        first_step: The step that comes first, above 1 where a run goes on.

    Raises:
        ConfigError: A value is out of range, or of another kind.
    """

    preset: Literal["nano", "medium", "large"] = "nano"
    adapt: bool = True
    measure: tuple[str, ...] = FAMILIES
    sampled_rows: int = 32
    micro_batches: int = 8
    interval: int = 16
    delta: int = 256
    window: int = 128
    healthy: tuple[int, int] | None = None
    baseline: Baseline | None = None
    total: int = 0
    steady: tuple[int, int] | None = None
    escalate: int = 32
    mapping: Mapping | None = None
    mup: MuP | None = None
    first_step: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.preset, str) or self.preset not in PRESETS:
            raise ConfigError(f"vitals: preset: expected {', '.join(PRESETS)}, found {_shown(self.preset)}")
        if not isinstance(self.adapt, bool):
            raise ConfigError(f"vitals: adapt: expected True or False, found {_shown(self.adapt)}")
        self._set("measure", _families(self.measure))
        for name, least in _LEAST.items():
            self._set(name, _whole_number(name, getattr(self, name), least))
        for name in ("healthy", "steady"):
            if (span := getattr(self, name)) is not None:
                self._set(name, _span(name, span))
        for name, kind, expected in _KINDS:
            if (given := getattr(self, name)) is not None and not isinstance(given, kind):
                raise ConfigError(f"vitals: {name}: expected {expected}, found {_shown(given)}")
        if self.healthy is not None and self.baseline is not None:
            raise ConfigError("vitals: a healthy span of this run is named, or a baseline is given: not both")
        if self.baseline is not None and self.baseline.total and not self.total:
            raise ConfigError("vitals: total: the baseline is by position, so the last step of this run is needed")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


_KINDS = (
    ("mapping", Mapping, "Mapping(layers=...)"),
    ("baseline", Baseline, "a Baseline"),
    ("mup", MuP, "MuP(width=..., depth=...)"),
)
_LEAST = {
    **dict.fromkeys(("sampled_rows", "micro_batches", "interval", "delta", "window", "first_step"), 1),
    **dict.fromkeys(("total", "escalate"), 0),
}


def _families(value: Any) -> tuple[str, ...]:
    known = ", ".join(FAMILIES)
    if not isinstance(value, list | tuple | set | frozenset) or not value:
        raise ConfigError(f"vitals: measure: expected a tuple of some of {known}, found {_shown(value)}")
    if unknown := [name for name in value if name not in FAMILIES]:
        raise ConfigError(f"vitals: measure: expected some of {known}, found {_shown(unknown[0])}")
    return tuple(family for family in FAMILIES if family in value)


def _whole_number(name: str, value: Any, least: int) -> int:
    """Return a whole number, of Python or of NumPy."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise ConfigError(f"vitals: {name}: expected {least} or more, a whole number, found {_shown(value)}")
    return int(value)


def _span(name: str, value: Any) -> tuple[int, int]:
    """Return a first and a last step."""
    pair = isinstance(value, list | tuple) and len(value) == 2
    if not pair or not all(isinstance(item, int | np.integer) and item >= 1 for item in value) or value[0] > value[1]:
        raise ConfigError(f"vitals: {name}: expected a first and a last step, found {_shown(value)}")
    return int(value[0]), int(value[1])


def _shown(value: object) -> str:
    """Return a value in few characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
