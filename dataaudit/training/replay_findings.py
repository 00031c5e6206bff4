"""What ``attribution.json`` says of a replay: the direct test, the four arms, and what is proposed."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

DirectOutcome = Literal["outlier_data", "unlike_others", "not_odd", "undecided", "not_evaluated"]
DirectReason = Literal["", "checkpoints", "suspects", "controls"]
Arm = Literal["A", "B", "C", "D"]
ContagionOutcome = Literal[
    "not_contagious",
    "state_dependent",
    "data_intrinsic",
    "interaction",
    "inconclusive",
    "not_reproduced",
    "not_evaluated",
]


class Model(BaseModel):
    """What is serialised as it is, and never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Unit(Model):
    """A block or a shard."""

    name: str = Field(description="`split/uri` of the shard.")
    shard: int = Field(description="Ordinal in the manifest; -1: of several.")
    first_row: int | None = Field(description="First row of a block; null: the whole shard.")
    last_row: int | None = Field(description="Last row of a block.")


def number(value: float) -> float | None:
    """Return a number with twelve digits after the point, None for what is not finite: JSON has no NaN."""
    return round(float(value), 12) if math.isfinite(value) else None


def numbered(unit: int) -> dict[str, Any]:
    """Return what names a unit of no manifest: its number stands for the shard."""
    return {"name": str(unit), "shard": unit, "first_row": None, "last_row": None}


class DirectFound(Model):
    """Whether the suspects are odd data: scored by models that had read neither them nor the controls."""

    outcome: DirectOutcome
    reason: DirectReason = Field(
        default="", description="What there is too little of: checkpoints before exposure, suspects, control units."
    )
    checkpoints: tuple[int, ...] = Field(default=(), description="Steps of the checkpoints that scored.")
    documents: int = Field(default=0, description="Suspect documents that were scored.")
    unmatched: int = Field(default=0, description="Those without controls.")
    matched: tuple[Literal["source", "language", "length"], ...] = Field(
        default=(), description="What controls have in common with the suspects, as much as left enough of them."
    )
    units: int = Field(default=0, description="Control blocks or shards.")
    effect: float | None = Field(default=None, description="Mean loss above that of matched controls, nats/token.")
    interval: tuple[float, float] | None = Field(
        default=None, description="95 % interval of it, over draws of control units and checkpoints."
    )
    by_checkpoint: tuple[float, ...] = Field(default=(), description="The effect at each checkpoint.")
    p: float | None = Field(default=None, description="Two-sided, of a unit that was named in advance.")
    smallest_p: float | None = Field(
        default=None,
        description="Of a unit 10 standard deviations off, or as far as this one: none is smaller.",
    )
    usual: float | None = Field(
        default=None, description="Nats/token from the controls' middle within which 95 % of such units lie."
    )
    among: int = Field(default=1, description="Units among which it was named.")
    alpha: float = Field(description="Up to which p * among is called odd.")


class ArmFound(Model):
    """One repetition of an arm."""

    arm: Arm
    checkpoint: int = Field(description="Step of the checkpoint that it went on from.")
    draw: int | None = Field(description="Which draw of controls stood in for the suspects; null: the suspects.")
    rise: float | None = Field(description="Of these documents' loss above its line, nats/token; null: not finite.")
    band: float | None = Field(description="Up to which that is no spike.")
    spike: bool
    losses: tuple[float | None, ...] = Field(description="At the branch and after each step, nats/token.")


class ArmMean(Model):
    """The repetitions of an arm together."""

    arm: Arm
    repetitions: int
    spikes: int
    rise: float | None = Field(description="Mean rise in bands.")
    interval: tuple[float, float] | None = Field(description="95 % interval of it; null: one repetition.")


class ContagionFound(Model):
    """Whether training on the suspects raises the loss of other documents."""

    outcome: ContagionOutcome
    detail: str = Field(default="", description="Why nothing is decided, or what differs from the log.")
    branch: int | None = Field(default=None, description="Last step before the arms differ.")
    last: int | None = Field(default=None, description="Last step of the arms, as the run counts.")
    suspects: int = Field(default=0, description="Suspect documents that these steps read.")
    held: int = Field(default=0, description="Documents that were scored after each step.")
    reproduced: int = Field(default=0, description="Steps whose loss was the log's, bit by bit.")
    arms: tuple[ArmMean, ...] = ()
    runs: tuple[ArmFound, ...] = ()


class Suspect(Unit):
    """A block or a shard that was looked at by replay."""

    named_by: Literal["user", "accounting", "event_test", "residual_test"]
    documents: int = Field(description="Its documents that the run can read.")
    episode: tuple[int, int] | None = Field(description="First and last step of the episode; null: none reads it.")
    direct: DirectFound
    contagion: ContagionFound | None = Field(description="Null: no episode reads it.")


class ReplayFound(Model):
    """What the run says when parts of it are done again."""

    run: str = Field(description="sha256 of the log's run.json, which says what the run was made of.")
    replay: str = Field(description="What made the replay, as it was named.")
    checkpoints: tuple[int, ...]
    before: int = Field(description="Steps before an episode from which on the arms differ.")
    seed: int
    suspects: tuple[Suspect, ...]


class Proposal(Unit):
    """A block or a shard that somebody should look at, and may hold back."""

    because: Literal["outlier_data", "data_intrinsic", "follows"] = Field(
        description="The direct test, the four arms, or episodes that follow upon it in an order that was drawn."
    )
    metric: str = Field(description="What the number is.")
    value: float
    judged: float = Field(description="What was compared with the limit.")
    limit: float
    note: str = Field(description="The numbers in words.")
