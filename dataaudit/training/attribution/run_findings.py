"""Records of ``attribution.json`` besides its episodes: of the run, of what it was trained on, of a replay."""

from __future__ import annotations

import math
from typing import Any, Literal, SupportsFloat

from pydantic import Field

from dataaudit.manifest.core import Model

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


class Clipping(Model):
    """How many updates were clipped."""

    updates: int = Field(description="Applied updates whose norm is known.")
    clipped: int
    rate: float = Field(description="`grad_clip_rate`: clipped / updates.")
    newest_updates: int
    newest_rate: float = Field(description="The same of the newest updates.")
    max_norm: float = Field(description="To which gradients are clipped now.")


class MixedPrecision(Model):
    """What the scaler of a run in mixed precision did."""

    loss_scale: float = Field(description="The newest.")
    least_loss_scale: float
    overflow_rate: float = Field(description="Skipped updates / steps.")
    newest_overflow_rate: float = Field(description="The same of the newest 1,000 steps.")


class ValidationPoint(Model):
    """A loss on held-out data."""

    step: int
    val_loss: float | None = Field(description="nats/token; null: not finite.")
    train_loss_ema: float | None = Field(description="Moving average of the training loss up to that step.")
    train_val_gap: float | None = Field(description="val_loss - train_loss_ema.")


class HeldOut(Model):
    """Losses on one set of held-out data."""

    name: str = Field(description="Of the set; empty where there is one.")
    beta: float = Field(description="Weight of a step in the moving average over that of the next one.")
    points: tuple[ValidationPoint, ...]
    divergence_step: int | None = Field(
        description="First validation after which the gap only widens, five times or more up to the newest; null: none."
    )


class Straggler(Model):
    """The rank that works longest before ranks meet."""

    ratio: float = Field(description="`straggler_ratio`: median seconds of the slowest rank / median over ranks.")
    rank: int
    seconds: float
    median_seconds: float
    ranks: int


class Times(Model):
    """Where the time of the newest 1,000 steps went, by the hosts' clocks."""

    steps: int
    step_time_p50: float = Field(description="Seconds from the end of a step to that of the next, the slowest rank's.")
    step_time_p95: float
    tokens_per_sec: float | None
    dataloader_stall_frac: float | None = Field(description="Seconds waited for batches / seconds; null: not known.")
    profiled_steps: int
    comm_time_frac: float | None = Field(description="Mean over profiled steps; null: none was.")
    comm_exposed_frac: float | None = Field(description="Of these, time in which nothing was computed meanwhile.")
    compute_time_frac: float | None
    gpu_util: float | None = Field(description="Mean; null: not looked at.")
    gpu_mem_used: float | None = Field(description="Most bytes in use.")
    straggler: Straggler | None
    mfu: float | None = Field(default=None, description="Median of windows of 16 steps and ranks; null: not evaluated.")
    hfu: float | None = Field(default=None, description="The same with what is computed again.")
    utilisation: dict[str, str | int | float] = Field(
        default={},
        description="How it is counted, of which device at which peak, `why` it is not; empty: not asked for.",
    )


class RunFacts(Model):
    """What a run did, from its log alone."""

    tokens_seen: int = Field(description="Targets that were trained on, of all ranks, exact.")
    repeated_tokens: int = Field(description="Of these, of rows dealt a second time so that all ranks have as many.")
    steps_seen: int = Field(description="Updates that were applied.")
    skipped_updates: int
    planned_tokens: int | None
    tokens_per_update: float | None
    clipping: Clipping | None
    mixed_precision: MixedPrecision | None
    held_out: tuple[HeldOut, ...]
    times: Times | None


Mark = Literal["", "beyond", "perhaps", "unknown"]


class SourceTrained(Model):
    """What was trained on of a source."""

    source: str
    tokens: int = Field(description="Targets, exact.")
    share: float = Field(description="Of all targets whose source is known.")
    low: float | None = Field(description="95 % interval of the share, from twentieths of the run; null: too few.")
    high: float | None
    declared: float | None = Field(description="Share that the config's mixture declares; null: it declares none.")
    corpus_share: float | None = Field(description="Share of the tokens of the opened shards.")
    off: bool = Field(description="More than 2 points off the declared share, and the interval is without it.")
    documents: int | None = Field(description="Documents of the opened shards.")
    begun: int = Field(description="Documents of which the first token was trained on, each time counted.")
    passes: float | None = Field(description="begun / documents.")
    declared_epochs: float | None
    over: bool = Field(description="Passes are more than 5 % above the declared epochs.")


class TokenDrift(Model):
    """How far the tokens that were trained on are from those that were audited (`token_kl_drift`)."""

    source: str = Field(description="Empty: all of them.")
    tokens: int
    passes: float = Field(description="Over the tokens that were audited.")
    kl: float = Field(description="KL(trained || audited), nats.")
    js: float = Field(description="Jensen-Shannon divergence, nats.")
    kl_bias: float | None = Field(description="KL that chance gives as many passes on average; null: not known.")
    kl_bias_high: float | None = Field(description="Up to which chance gives it in 95 % of runs.")
    mark: Mark = Field(description="`beyond`: kl > 0.05 and beyond chance; `perhaps`: > 0.05, as chance could give.")


class LanguageTrained(Model):
    """Estimated share of a language."""

    language: str
    share: float
    low: float | None = Field(description="95 % interval; null: documents are too few to say.")
    high: float | None
    corpus_share: float = Field(description="Of the tokens of the opened shards.")


class LengthsTrained(Model):
    """Lengths and padding of what was trained on, beside those of the documents."""

    tokens: int = Field(description="Targets of the segments that were counted, documents begun among them.")
    stretches: int
    mean: float | None = Field(description="Targets of a segment.")
    p50: int | None
    p95: int | None
    document_p50: float | None = Field(description="Tokens of a document of the training data, as audited.")
    document_p95: float | None
    tokens_per_document: float | None = Field(description="Targets / documents begun.")
    tokens_per_document_audited: float | None
    positions: int = Field(description="Places of the batches; 0: not known.")
    pad_fraction: float | None = Field(description="Places without a target / places, of steps where they are known.")
    context: int | None = Field(description="Places of a row.")
    audited_pad_fraction: dict[str, float] = Field(description="By way of batching, at the same context length.")


class TrainedOn(Model):
    """What a run was really trained on, against its manifest."""

    tokens: int
    merged: int = Field(description="Of these, of segments that were merged: neither source nor shard is known.")
    unit: Literal["tokens", "other tokens"] = Field(description="Whether ids are those of the manifest's tokenizer.")
    sources: tuple[SourceTrained, ...]
    counted_tokens: int = Field(description="Targets whose token was counted: `labels` were handed over.")
    outside: int = Field(description="Of these, ids that the manifest's vocabulary does not have.")
    special: int = Field(description="Of these, special tokens, which the manifest does not count.")
    drift: tuple[TokenDrift, ...]
    drift_reason: Literal["", "other_tokenizer", "no_labels", "no_histogram", "folded_sources"] = Field(
        description="Why there is no drift."
    )
    languages: tuple[LanguageTrained, ...]
    languages_of: float | None = Field(description="Share of the targets in shards whose languages are known.")
    lengths: LengthsTrained


class Unit(Model):
    """A block or a shard."""

    name: str = Field(description="`split/uri` of the shard.")
    shard: int = Field(description="Ordinal in the manifest; -1: of several.")
    first_row: int | None = Field(description="First row of a block; null: the whole shard.")
    last_row: int | None = Field(description="Last row of a block.")


def number(value: SupportsFloat) -> float | None:
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
        default=None, description="Of a unit 10 standard deviations off, or as far as this one: none is smaller."
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
