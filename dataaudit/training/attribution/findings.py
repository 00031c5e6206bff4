"""``attribution.json``: findings of a run log, as JSON with a schema of its own."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, Literal

from pydantic import Field

from dataaudit.base.errors import ExitCode
from dataaudit.manifest.core import Model
from dataaudit.training.attribution.run_findings import Proposal, ReplayFound, RunFacts, TrainedOn, Unit

SCHEMA_NAME: Final = "dataaudit-attribution"
SCHEMA_VERSION: Final = 1

Reason = Literal[
    "",
    "state",
    "few_shards",
    "one_block_fills_the_step",
    "new_source",
    "not_rare",
    "rank_missing",
    "no_stretch_losses",
    "merged_stretches",
    "mixture",
    "spread",
]
"""Why no block or shard is named."""

MISSING_LIMIT = 0.01
"""Share of missing steps above which no episode means nothing: a spike of one step would be seen in 99 of 100 logs
that lack as much."""


class SchemaId(Model):
    """Name and version of the form."""

    name: Literal["dataaudit-attribution"] = SCHEMA_NAME
    version: Literal[1] = SCHEMA_VERSION


class AlarmRate(Model):
    """Clusters of flags a step on a healthy curve."""

    value: float = Field(description="Median of the posterior.")
    low: float = Field(description="Lower end of its central 95 % interval.")
    high: float = Field(description="Upper end.")


class Visible(Model):
    """A rise that is seen in half of the cases where it comes."""

    steps: int = Field(description="For how many steps the loss is up.")
    rise: float = Field(description="By how much in the mean, nats/token.")


class Detector(Model):
    """What a spike is."""

    by: Literal["composition", "loss"] = Field(
        description="`composition`: steps are judged by what their documents should cost, where the log has these."
        " `loss`: it has none, so by the loss alone."
    )
    composed: int = Field(description="Steps that were judged by their composition.")
    visible: tuple[Visible, ...] = Field(
        description="Limits of visibility: smaller rises are mostly not seen. Median over the judged steps."
    )
    window: int = Field(description="Healthy values that the line is fitted to.")
    k: float = Field(description="Robust standard deviations up to which a value is inside the band, at the end.")
    rate: float = Field(description="False alarms a step, on each side, that k aims at once it follows from the run.")
    healthy: int = Field(description="Healthy steps that it can follow from, the newest 4,000 at most.")
    above: AlarmRate | None = Field(
        description="How often a healthy curve like this one leaves the band above; null: too few healthy steps."
    )
    below: AlarmRate | None = Field(description="The same below.")
    level_after: int = Field(description="Flags one after the other that are a new level.")
    floor: float = Field(description="Least median distance from the line, as a share of the level.")
    gap: int = Field(description="Steps that may lie between flagged steps of one episode.")


class Change(Model):
    """What changed in the run besides its losses; a fact and no cause."""

    kind: Literal["learning_rate", "batch", "clipping", "skipped_updates"]
    first_step: int
    last_step: int
    before: float = Field(
        description="Learning rate; targets of a step; share of the updates that were clipped; 0 skipped updates."
    )
    after: float = Field(description="The same in these steps; skipped updates: how many.")


class Span(Model):
    """Steps that were flagged, and not divided among documents."""

    first_step: int
    last_step: int
    flagged: int = Field(description="Steps of these that were flagged.")


class Share(Model):
    """What a shard, a block, a source or a document adds to an episode."""

    name: str = Field(description="`split/uri` of a shard, or name of a source; empty for merged segments.")
    shard: int | None = Field(default=None, description="Ordinal in the manifest; null for a source; -1: merged.")
    first_row: int | None = Field(default=None, description="First row of a block, or the row of a document.")
    last_row: int | None = Field(default=None, description="Last row of a block.")
    twins: tuple[int, ...] = Field(default=(), description="Shards with equal bytes, which count as this one.")
    steps: int = Field(description="Steps of the episode that it is in.")
    targets: int = Field(description="Its scored target tokens.")
    weight: float = Field(description="Their share of the episode's.")
    loss: float | None = Field(description="Its mean loss, nats/token; null: not finite.")
    expected: float | None = Field(description="Mean loss that the healthy past predicts of it, nats/token.")
    part: float | None = Field(
        description="What it adds to the excess beyond what is common, nats/token of the episode."
    )
    share: float | None = Field(description="The same as a share of the excess.")


class Place(Model):
    """Where a document was in a batch."""

    step: int
    rank: int
    micro_batch: int
    batch_row: int
    start: int = Field(description="Place of its first label in the row.")
    targets: int
    offset: int = Field(description="Token of the document that this label is.")


class Document(Share):
    """A document of the episode."""

    places: tuple[Place, ...] = Field(description="The first ones.")


class Rarity(Model):
    """How often healthy steps had as much."""

    as_high: int = Field(description="Units with a mean residual as high.")
    among: int = Field(description="Units of earlier healthy steps that were looked at.")
    least_weight: float = Field(description="Least share of a step's targets that these have.")
    by_chance: float = Field(
        default=1.0,
        description="Probability that 1 of as many is as high by chance, from how far the farthest lie out.",
    )


class Found(Share):
    """The block or shard that accounts for the excess."""

    kind: Literal["block", "shard"]
    interval: tuple[float, float] | None = Field(description="95 % interval of the share; null: it has no bounds.")
    rest: float | None = Field(description="Excess of the episode without it, nats/token.")
    rest_band: float | None = Field(description="Up to which that is inside the band.")
    rarity: Rarity | None


class ShardMetric(Model):
    """A metric of the shard in the manifest, beside those of all shards of its split."""

    metric: str
    value: float
    median: float
    deviations: float | None = Field(description="Distance from the median in robust standard deviations.")


class Episode(Model):
    """Flagged steps that follow each other."""

    kind: Literal["loss_spike", "level_shift", "not_finite"]
    first_step: int
    last_step: int
    flagged: int = Field(description="Steps of these that were flagged.")
    accounted: int = Field(description="Of these, steps whose segments could be divided.")
    loss: float | None = Field(description="Mean over flagged steps, nats/token; null: not finite.")
    expected: float | None = Field(description="The line at these steps, nats/token; null: too few steps before it.")
    band: float | None = Field(description="Distance from it up to which a step is inside the band.")
    outcome: Literal["found", "cannot_tell"]
    reason: Reason
    detail: str = Field(description="The reason in a sentence, without names from the data.")
    found: Found | None = Field(description="What accounts for the excess; null: no data is named.")
    excess: float | None = Field(default=None, description="Sum of w * r over the accounted steps, nats/token.")
    above_line: float | None = Field(default=None, description="Their loss above the line, before offsets.")
    common: float | None = Field(default=None, description="Part that all blocks have in common, nats/token.")
    healthy_steps: int = Field(default=0, description="Steps that the expectation was fitted on.")
    num_shards: int = Field(default=0, description="Shards that the episode read.")
    num_blocks: int = 0
    num_documents: int = Field(default=0, description="Documents of what was found; where no data is named, of all.")
    shards: tuple[Share, ...] = Field(default=(), description="The 20 with the largest parts.")
    blocks: tuple[Share, ...] = Field(default=(), description="The 20 with the largest parts.")
    sources: tuple[Share, ...] = Field(default=(), description="The 20 with the largest parts.")
    documents: tuple[Document, ...] = Field(default=(), description="The 20 with the largest parts.")
    together: tuple[int, ...] = Field(
        default=(), description="Shards without all of which the episode lies inside the band."
    )
    metrics: tuple[ShardMetric, ...] = Field(default=(), description="Of the shard that was found.")


class Behind(Model):
    """A shard that accounts for the excess of episodes, over the whole run."""

    name: str = Field(description="`split/uri` of the shard.")
    shard: int = Field(description="Ordinal in the manifest.")
    episodes: int = Field(description="Episodes whose excess it accounts for, or a block of it.")


class Followed(Unit):
    """A block or a shard after which episodes began."""

    episodes: int = Field(description="Episodes that began within `lag` steps after it was read.")
    expected: float = Field(description="As many as other orders would give.")
    p: float = Field(description="Family-wise p-value, over all blocks and shards (Westfall & Young).")


class EventTestFound(Model):
    """Whether episodes follow upon blocks more often than by chance."""

    outcome: Literal["follows", "no_more_than_chance", "not_evaluated"]
    reason: Literal["", "no_episode", "no_stretches", "own_data", "not_identifiable"] = Field(
        default="", description="Why nothing was tested."
    )
    null: Literal["redrawn", "shifted"] | None = Field(
        default=None, description="Orders drawn at random (exact), or episodes shifted along the run."
    )
    lag: int = Field(description="Steps before an episode that count; its own steps do not.")
    episodes: int = Field(default=0, description="In the steps that were looked at, but those of `own_data`.")
    own_data: int = Field(
        default=0,
        description="Episodes that do not count when they are shifted: the data of their own steps may be behind them.",
    )
    first_step: int | None = Field(default=None, description="Of these steps, of which the log has every segment.")
    last_step: int | None = None
    orders: int = Field(default=0, description="Orders or shifts that the real one was compared with.")
    smallest_p: float | None = Field(default=None, description="That could have been reached.")
    look: int = Field(default=1, description="How often this run was looked at, each time with further steps.")
    alpha: float = Field(description="Up to which p is called a finding at this look: 0.05 / (look * (look + 1)).")
    tested: int = Field(default=0, description="Blocks and shards.")
    not_identifiable: int = Field(
        default=0, description="Blocks and shards read without a gap: nothing separates them from their time."
    )
    units: tuple[Followed, ...] = Field(default=(), description="The 20 with the smallest p.")


class Odd(Unit):
    """A block or a shard whose losses are odd."""

    documents: int
    mean: float = Field(description="Mean residual, nats/token; below 0: easier than others of its source.")
    distance: float = Field(description="The same in standard deviations of such units.")
    p: float
    fitted: bool = Field(description="Whether p is of a fitted tail.")
    overlap: float = Field(description="Share of it that was read in steps of another shard's unit that is far off.")
    pooled: Literal["", "shard", "source"] = Field(
        default="", description="Its small blocks together, or the small units of a source, whose name it has."
    )
    outlier: bool = Field(
        description="Whether it is named: `run_p` is at most `limit`, and its own p over the run .05."
    )


class ResidualTestFound(Model):
    """Which blocks, or shards, are odd by their losses over the whole run."""

    kind: Literal["block", "shard"]
    outcome: Literal["outlier_shard", "none", "not_evaluated"]
    tested: int = Field(description="Each by itself or pooled.")
    too_small: int = Field(description="Not tested: with too few documents or too few others, pooled or not.")
    pooled: int = Field(description="Of the tested ones, those with too few documents, tested together.")
    run_p: float = Field(description="The smallest p, over all blocks and shards of the run.")
    limit: float = Field(description="Up to which `run_p` names any.")
    steps_left_out: int = Field(
        description="Steps that say nothing of single units: all of them are up, or most are of far ones."
    )
    documents: int
    beside: float = Field(description="What a nat of the segment before adds to the next in a row.")
    left_out: int = Field(description="Segments behind a far segment of another block.")
    units: tuple[Odd, ...] = Field(description="The 20 with the smallest p; all outliers, up to 200.")


class MovedTax(Model):
    """Windows that follow each other in which what a source costs left its band."""

    first_step: int
    last_step: int
    tax: float | None = Field(description="Mean of these windows, nats/token.")
    expected: float | None = Field(description="Mean of the line.")
    band: float | None = Field(description="Mean half width of the band.")


class SourceLoss(Model):
    """Losses of a source over the run (`loss_by_source`, `source_loss_tax`)."""

    source: str
    targets: int = Field(description="Scored ones.")
    loss: float | None = Field(description="Mean over the whole run, nats/token.")
    newest_loss: float | None = Field(description="Of the newest tenth of the windows.")
    newest_tax: float | None = Field(description="That less the mean of all other targets of these windows.")
    moved: tuple[MovedTax, ...] = Field(description="When the tax was out of its band.")
    losses: tuple[float | None, ...] = Field(description="By window.")
    taxes: tuple[float | None, ...] = Field(description="By window.")


class SourceLosses(Model):
    """Losses by source and window of the whole run, exact."""

    window_steps: int
    first_steps: tuple[int, ...] = Field(description="First step of each window that has a loss.")
    sources: tuple[SourceLoss, ...]


class ScalingLaw(Model):
    """How far the newest steps are off what a power law through the steps before predicts (`scaling_law_residual`)."""

    first_step: int = Field(description="First step of the fit: after the warm-up of the learning rate, where known.")
    last_step: int = Field(description="Last step of the fit; newer steps are compared with it.")
    irreducible: float = Field(description="L0 of L0 + A * tokens^-a, nats/token.")
    amplitude: float = Field(description="A, of tokens in units of those of the whole run.")
    exponent: float = Field(description="a.")
    residual: float = Field(description="Mean loss of the newest healthy steps less the fit's, nats/token.")
    earlier: tuple[float, ...] = Field(
        description="The same at earlier times, each by the steps before it, as far ahead for its length."
    )


class Collapse(Model):
    """How far the newest steps are off the course of a healthy run (`collapse_residual`)."""

    reference: str = Field(description="Name of the reference run's folder.")
    manifest: str | None = Field(description="Id of the manifest that it was trained on; null: none.")
    progress: float = Field(description="Part of the run's tokens that are done.")
    scale: float = Field(description="Loss of this run over that of the reference, at the same progress, by the past.")
    residual: float = Field(description="Newest steps: loss / scale less the reference's, over the reference's last.")
    spread: float = Field(description="Robust standard deviation of the same in the past that the scale is of.")


class Attribution(Model):
    """The whole of ``attribution.json``."""

    schema_: SchemaId = Field(default_factory=SchemaId, alias="schema")
    manifest: str = Field(description="Id of the manifest.")
    dataset: str = Field(description="Name and version of the dataset.")
    exit_code: int = Field(description="0 nothing to explain, 1 found, 3 no data is named, 4 no data.")
    reason: Literal["", "steps_missing", "not_closed"] = Field(
        default="", description="Why the exit code is 3 though there is no episode."
    )
    asked_step: int | None = Field(description="The step that was asked about; null: the whole run.")
    steps: int = Field(description="Steps in the log.")
    first_step: int | None
    last_step: int | None
    missing_steps: int = Field(
        default=0, description="Steps that the run made, and that the log lacks, wholly or of some rank."
    )
    missing_among: int = Field(default=0, description="Steps that the run made, as far as the log says.")
    longest_gap: tuple[int, int] | None = Field(
        default=None, description="First and last of the most missing steps that follow each other."
    )
    open_ranks: int = Field(
        default=0,
        description="Ranks whose log has a start and no end: the run goes on, was killed, or cannot write its log.",
    )
    judged: int = Field(description="Steps that were compared with a line.")
    torn_bytes: int = Field(description="Stored bytes of the log that a kill left incomplete.")
    detector: Detector
    episodes: tuple[Episode, ...]
    behind: tuple[Behind, ...] = Field(default=(), description="By shard, that with the most episodes first.")
    dips: tuple[Span, ...] = Field(description="Steps below the band.")
    gradients: tuple[Span, ...] = Field(description="Steps where the gradient's norm was above its band.")
    changes: tuple[Change, ...] = Field(
        default=(), description="Of the learning rate, the batch, clipping and skipped updates, by step."
    )
    event_test: EventTestFound | None = Field(
        default=None, description="Of the whole run; null: before it was tested for."
    )
    residual_tests: tuple[ResidualTestFound, ...] = Field(default=(), description="Of blocks, and of shards.")
    source_losses: SourceLosses | None = Field(default=None, description="Null: no loss of a segment is known.")
    scaling_law: ScalingLaw | None = Field(default=None, description="Null: too few healthy steps.")
    collapse: Collapse | None = Field(default=None, description="Null: no reference run was named, or too few steps.")
    run: RunFacts | None = Field(default=None, description="What the run did; null: written before it was recorded.")
    trained_on: TrainedOn | None = Field(default=None, description="What it was really trained on; null: as `run`.")
    replay: ReplayFound | None = Field(default=None, description="Null: nothing was done again.")
    proposals: tuple[Proposal, ...] = Field(
        default=(), description="What `quarantine propose` puts on a list, for somebody to decide on."
    )


def behind_of(episodes: tuple[Episode, ...]) -> tuple[Behind, ...]:
    """Return which shards account for the excess of how many episodes."""
    found = [episode.found for episode in episodes if episode.found is not None]
    named = Counter((item.name, item.shard) for item in found if item.shard is not None and item.shard >= 0)
    ordered = sorted(named.items(), key=lambda item: (-item[1], item[0][1]))
    return tuple(Behind(name=name, shard=shard, episodes=number) for (name, shard), number in ordered)


def exit_code_of(episodes: tuple[Episode, ...], *, judged: bool, missing: bool) -> int:
    """Return the exit code."""
    if any(episode.outcome == "found" for episode in episodes):
        return int(ExitCode.BUDGET_EXCEEDED)
    if episodes or (judged and missing):
        return int(ExitCode.NOT_EVALUATED)
    return int(ExitCode.PASS if judged else ExitCode.NOTHING_EVALUATED)


def attribution_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``attribution.json``."""
    return Attribution.model_json_schema(by_alias=True, mode="serialization")
