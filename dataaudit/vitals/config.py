"""What is measured, how often and how closely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dataaudit.errors import ConfigError
from dataaudit.vitals.baseline import Baseline
from dataaudit.vitals.cadence import PRESETS
from dataaudit.vitals.structure import Mapping

FAMILIES = ("attention", "activations", "weights")


@dataclass(frozen=True, slots=True, kw_only=True)
class VitalsConfig:
    """What is measured, how often and how closely.

    Args:
        preset: Where the cadence begins, and what it may cost: ``nano`` at every step and 3 % of its time, ``medium``
            at every 4th and 2 %, ``large`` at every 16th and 1 %. Weights rotate: an eighth of them is read at once.
        adapt: Whether the cadence follows what measuring costs; without it the same steps are always measured.
        measure: Of ``attention``, ``activations`` and ``weights`` (with gradients and updates), what is looked at.
        sampled_rows: Rows of attention, of one row of the batch, that are computed in float32.
        micro_batches: Batches of a step that are kept apart; further ones take the place of the first.
        interval: Steps whose values are copied to the host together.
        window: Steps over which a unit's mean is taken before it is called dead.
        healthy: First and last step of a healthy stretch of this run, after warm-up: alarms are deviations from it.
        baseline: A healthy baseline, of :func:`dataaudit.vitals.baseline.baseline_of_run`, in place of that.
        total: Last step of the run, for a baseline by position.
        steady: First and last step at which the learning rate neither warms up nor decays; small updates are warned
            of between these alone.
        escalate: Steps after an alarm in which everything is looked at.
        mapping: Where the parts of a model are that is not understood by its structure.
        first_step: The step that comes first, above 1 where a run goes on.

    Raises:
        ConfigError: A value is out of range.
    """

    preset: Literal["nano", "medium", "large"] = "nano"
    adapt: bool = True
    measure: tuple[str, ...] = FAMILIES
    sampled_rows: int = 32
    micro_batches: int = 8
    interval: int = 16
    window: int = 128
    healthy: tuple[int, int] | None = None
    baseline: Baseline | None = None
    total: int = 0
    steady: tuple[int, int] | None = None
    escalate: int = 32
    mapping: Mapping | None = None
    first_step: int = 1

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise ConfigError(f"vitals: preset: expected {', '.join(PRESETS)}, found {self.preset}")
        if unknown := set(self.measure) - set(FAMILIES):
            raise ConfigError(f"vitals: measure: expected some of {', '.join(FAMILIES)}, found {min(unknown)}")
        for name in ("healthy", "steady"):
            if (found := getattr(self, name)) is not None and not 1 <= found[0] <= found[1]:
                raise ConfigError(f"vitals: {name}: expected a first and a last step, found {found}")
        if self.healthy is not None and self.baseline is not None:
            raise ConfigError("vitals: a healthy stretch is learnt from, or a baseline is given: not both")
        if not isinstance(self.escalate, int) or self.escalate < 0:
            raise ConfigError(f"vitals: escalate: expected 0 or more steps, found {self.escalate}")
        for name in ("sampled_rows", "micro_batches", "interval", "window", "first_step"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ConfigError(f"vitals: {name}: expected 1 or more, a whole number, found {getattr(self, name)}")
