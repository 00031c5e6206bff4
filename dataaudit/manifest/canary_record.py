"""Canary records: a short run of changed code beside healthy seeds, pair by pair, and the verdict that follows.

A metric of the changed code is compared with that of the healthy code by the mean of m paired differences: equal seeds,
equal shards, equal order. Student's prediction interval for the mean of m further runs, given n healthy ones, is
``mean +- t(1 - a/2; n - 1) s sqrt(1/m + 1/n)`` (Hahn and Meeker 1991, *Statistical Intervals*, section 4.8), with s the
standard deviation between healthy seeds. Here the m further runs have the seeds of m healthy ones, so the variance of
the mean difference is ``2 s^2 (1 - r) / m`` with r the correlation of pairs. The limit takes r as 0, which is wide
enough for every r from 0 on: ``t(1 - a/2; n - 1) s sqrt(2/m)``, the same as above where m = n.

The rate of false alarms of the whole canary is 0.01: half of it is divided among the losses, half among all other
values (Bonferroni), whatever their dependence. A loss that falls out of its interval is no pass, either: a leak looks
like that, and only who changed the code knows whether it was meant to fall (``expect``). A record is judged again
whenever it is read: its verdict is never believed. It is not signed: whoever can write it can forge it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar

import numpy as np
from pydantic import AwareDatetime, Field, ValidationError, model_validator

from dataaudit.base.errors import ManifestError
from dataaudit.base.files import read_safely
from dataaudit.base.statistics import student_quantile
from dataaudit.manifest.canonical import canonical_json, digest_json
from dataaudit.manifest.core import Count, Digest, Model

SCHEMA_NAME: Final = "dataaudit-canary"
SCHEMA_VERSION: Final = 1
LEAST_SEEDS: Final = 8
"""Healthy seeds that a baseline needs."""
LEAST_PAIRS: Final = 3
"""Seeds of the changed code that a verdict needs."""
RATE: Final = 0.01
"""False alarms of a canary, over all of its metrics."""
SLOWER: Final = 0.1
"""Share by which a step has to be slower to count, beyond its interval: a machine is never quite the same."""
LOST: Final = "not finite, or not logged by every run, and it was by all healthy ones"
ALIKE: Final = "all healthy seeds are equal: the function does not use task.seed"
_LACKING: Final = (LOST, ALIKE)
"""Reasons of a metric that leave the verdict open."""
TRAIN, VAL = "train_loss_raw", "val_loss"
LOSSES: Final = (TRAIN, VAL)
Verdict = Literal["pass", "better", "regressed", "undecidable", "invalid"]
State = Literal["same", "better", "worse", "moved", "not_evaluated"]
Changed = Literal["code", "data"]
Expect = Literal["better"]


class CanarySchema(Model):
    """Name and version of the record's schema."""

    name: Literal["dataaudit-canary"] = SCHEMA_NAME
    version: Literal[1] = SCHEMA_VERSION


class SeedRun(Model):
    """A short training with a seed."""

    seed: Count
    order: Digest | None = Field(description="Of the rows that it read, in order; null: they were not handed over.")
    values: dict[str, float] = Field(description="By metric; of losses and logged values the mean of the last steps.")
    problem: Literal["", "not_finite"] = Field(description="Why it is no healthy run; then it has no values.")


class Side(Model):
    """The runs of a version of code, data and configuration."""

    manifest: Digest
    training_shards: Digest = Field(description="Of split, name and sha256 of all shards that are trained on.")
    held_out_shards: Digest = Field(description="The same of held-out shards.")
    function: str = Field(description="MODULE:FUNCTION, without folders.")
    code: Digest = Field(description="Of all files of the function's folder that were imported.")
    config: dict[str, Digest] = Field(description="Of files that --config names.")
    steps: Count = Field(description="Of each run.")
    last: Count = Field(description="Steps at the end whose mean counts.")
    seeds: tuple[SeedRun, ...]

    @property
    def healthy(self) -> dict[int, SeedRun]:
        """Runs without a problem, by seed."""
        return {run.seed: run for run in self.seeds if not run.problem}

    @property
    def id(self) -> str:
        """Digest of all of it: the id of a baseline's record."""
        return digest_json(self.model_dump(mode="json"))


class Judged(Model):
    """A metric of both sides."""

    metric: str
    pairs: Count
    baseline: float | None = Field(description="Mean of the healthy runs of these seeds.")
    canary: float | None
    difference: float | None = Field(description="Mean of the paired differences, canary - baseline.")
    low: float | None = Field(description="Student's 95 % interval of the mean paired difference.")
    high: float | None
    limit: float | None = Field(description="Half of the prediction interval: a larger difference is out of it.")
    seed_sd: float | None = Field(description="Standard deviation between all healthy seeds.")
    state: State
    reason: str = ""


def _alike(own: Judged, other: Judged) -> bool:
    """Return whether all is equal but the last digits of numbers, which are a processor's."""
    pairs = ((getattr(own, name), getattr(other, name)) for name in Judged.model_fields)
    return all(
        math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9) if isinstance(a, float) and isinstance(b, float) else a == b
        for a, b in pairs
    )


class CanaryCore(Model):
    """What decides a verdict."""

    schema_: CanarySchema = Field(default_factory=CanarySchema, alias="schema")
    changed: Changed = Field(description="`data`: training shards may differ, since they are what was changed.")
    expect: Expect | None = Field(default=None, description="`better`: the change is meant to lower losses.")
    baseline_id: Digest = Field(description="Digest of `baseline`, the id of its record.")
    baseline: Side
    canary: Side
    metrics: tuple[Judged, ...]
    verdict: Verdict
    reasons: tuple[str, ...] = Field(description="What the verdict follows from, in words.")
    exit_code: Literal[0, 1, 3, 4]

    @property
    def pairs(self) -> int:
        """Seeds that both sides trained."""
        return len(self.baseline.healthy.keys() & self.canary.healthy.keys())

    @model_validator(mode="after")
    def _check(self) -> Self:
        made = judge(self.changed, self.baseline, self.canary, self.expect)
        same = all(getattr(self, name) == made[name] for name in ("verdict", "reasons", "exit_code"))
        same = same and len(self.metrics) == len(made["metrics"])
        if not same or not all(map(_alike, self.metrics, made["metrics"])):
            raise ValueError("the verdict is not what the runs say")
        if self.baseline_id != self.baseline.id:
            raise ValueError("baseline_id is not the digest of the baseline's runs")
        return self


class Speed(Model):
    """Seconds of a step, apart: they belong to a machine, and are in no verdict."""

    baseline: float
    canary: float
    ratio: float = Field(description="exp of the mean difference of logarithms; above 1: slower.")
    limit: float = Field(description="Ratio beyond which it counts, by the prediction interval and by a tenth.")
    state: Literal["same", "faster", "slower", "other_machine"]


class RunFacts(Model):
    """Circumstances, which are no part of the id."""

    at: AwareDatetime = Field(description="UTC, ISO 8601: when the last seed was trained.")
    machine: str
    program: str
    environment: dict[str, Any] = Field(description="Commit of the code, versions of what is installed.")
    step_seconds: dict[int, float] = Field(description="Median of a step by seed.")
    tokens_per_sec: dict[int, float]
    speed: Speed | None = None


class CanaryRecord(Model):
    """The whole record of a canary."""

    id: Digest
    core: CanaryCore
    run: RunFacts


class BaselineRecord(Model):
    """Healthy runs."""

    id: Digest
    core: Side
    run: RunFacts


_Record = TypeVar("_Record", CanaryRecord, BaselineRecord)


def judge(changed: Changed, baseline: Side, canary: Side, expect: Expect | None = None) -> dict[str, Any]:
    """Return metrics, verdict, reasons and exit code of two sides; pure."""
    if wrong := tuple(_differing(changed, baseline, canary)):
        return {"metrics": (), "verdict": "invalid", "reasons": wrong, "exit_code": 3}
    healthy, pairs = baseline.healthy, sorted(set(baseline.healthy) & {run.seed for run in canary.seeds})
    broken = [seed for seed in pairs if seed not in canary.healthy]
    if broken:
        reason = f"a loss is not finite with seed {', '.join(map(str, broken))}, and was with the healthy code"
        return {"metrics": (), "verdict": "regressed", "reasons": (reason,), "exit_code": 1}
    few = []
    if len(healthy) < LEAST_SEEDS:
        few.append(f"{len(healthy)} healthy seeds, {LEAST_SEEDS} are needed")
    if len(pairs) < LEAST_PAIRS:
        few.append(f"{len(pairs)} seeds of the changed code, {LEAST_PAIRS} are needed")
    if few:
        return {"metrics": (), "verdict": "undecidable", "reasons": tuple(few), "exit_code": 3 if pairs else 4}
    metrics = tuple(_judged(changed, healthy, {seed: canary.healthy[seed] for seed in pairs}))
    lacking = [f"{own.metric}: {own.reason}" for own in metrics if own.reason in _LACKING]
    wrong = tuple(f"{own.metric} is out of its interval" for own in metrics if own.state in {"worse", "moved"})
    below = () if expect == "better" else tuple(_below(own) for own in metrics if own.state == "better")
    if not wrong and not below and (lacking or not any(own.metric in LOSSES and not own.reason for own in metrics)):
        reasons = tuple(lacking) or ("no loss can be compared",)
        return {"metrics": metrics, "verdict": "undecidable", "reasons": reasons, "exit_code": 3}
    verdict = "regressed" if wrong else "better" if below else "pass"
    return {"metrics": metrics, "verdict": verdict, "reasons": wrong + below, "exit_code": 1 if wrong or below else 0}


def _below(own: Judged) -> str:
    assert own.difference is not None
    assert own.seed_sd
    return (
        f"{own.metric} is {-own.difference / own.seed_sd:.3g} sd below healthy seeds: look for a leak of labels, of the"
        " mask, or of held-out text; if the change is meant to lower it, --expect better"
    )


def _differing(changed: Changed, baseline: Side, canary: Side) -> Iterator[str]:
    """Yield what makes a comparison invalid."""
    if (baseline.steps, baseline.last) != (canary.steps, canary.last):
        yield f"{canary.steps} steps, {baseline.steps} in the baseline"
    if baseline.held_out_shards != canary.held_out_shards:
        yield "the held-out shards are not the baseline's"
    if changed == "data":
        return
    if baseline.training_shards != canary.training_shards:
        yield "the training shards are not the baseline's: --changed data compares another corpus"
        return
    theirs = {run.seed: run.order for run in baseline.seeds if not run.problem}
    both = [run for run in canary.seeds if run.seed in theirs and not run.problem]
    if any(run.order is None or theirs[run.seed] is None for run in both):
        yield "the order of the data is not known: the function has to hand its batches over"
    elif other := [run.seed for run in both if run.order != theirs[run.seed]]:
        yield f"other rows, or another order of them, than the baseline's: seed {', '.join(map(str, other))}"


def _judged(changed: Changed, healthy: Mapping[int, SeedRun], now: Mapping[int, SeedRun]) -> Iterator[Judged]:
    """Yield each metric, losses first."""
    names = {name for run in (*healthy.values(), *now.values()) for name in run.values}
    losses, values = [name for name in LOSSES if name in names], sorted(names - set(LOSSES))
    for name in (*losses, *values):
        rate = RATE / 2 / len(losses if name in LOSSES else values)
        yield _metric(name, rate, changed, healthy, now)


def _metric(
    name: str, rate: float, changed: Changed, healthy: Mapping[int, SeedRun], now: Mapping[int, SeedRun]
) -> Judged:
    """Judge a metric by the prediction interval of the module's docstring."""
    every = [run.values[name] for run in healthy.values() if name in run.values]
    both = [seed for seed, run in now.items() if name in run.values and name in healthy[seed].values]
    pairs = [(healthy[seed].values[name], now[seed].values[name]) for seed in both]
    known: dict[str, Any] = {"metric": name, "pairs": len(pairs)}
    whole = len(every) == len(healthy) and len(pairs) == len(now)
    reason = "" if whole else LOST if len(every) == len(healthy) else "not logged by every healthy run"
    if changed == "data" and name == TRAIN:
        reason = "of other data: not compared"
    if not whole or not pairs:
        fields = ("baseline", "canary", "difference", "low", "high", "limit", "seed_sd")
        empty: dict[str, Any] = dict.fromkeys(fields)
        return Judged(**known, **empty, state="not_evaluated", reason=reason)
    before, after = np.array(pairs).T
    apart, number = after - before, len(pairs)
    mean, sd = float(apart.mean()), float(np.std(every, ddof=1)) if np.ptp(every) > 0 else 0.0
    half = student_quantile(0.025, number - 1) * float(apart.std(ddof=1)) / math.sqrt(number)
    limit = student_quantile(rate / 2, len(every) - 1) * sd * math.sqrt(2 / number)
    numbers = {"baseline": before.mean(), "canary": after.mean(), "difference": mean, "low": mean - half}
    numbers |= {"high": mean + half, "limit": limit, "seed_sd": sd}
    rounded: dict[str, Any] = {key: rounded_value(float(value)) for key, value in numbers.items()}
    if name in LOSSES and not sd > 0:
        reason = reason or ALIKE
    state = "not_evaluated" if reason else _state(name, apart, limit, sd)
    return Judged(**known, **rounded, state=state, reason=reason)


def _state(name: str, apart: np.ndarray, limit: float, sd: float) -> State:
    mean = float(apart.mean())
    if not sd > 0:  # a constant of all healthy seeds: every pair has to leave it, on the same side
        return "moved" if (apart > 0).all() or (apart < 0).all() else "same"
    if abs(mean) <= limit:
        return "same"
    if name not in LOSSES:
        return "moved"
    return "worse" if mean > 0 else "better"


def judge_speed(baseline: RunFacts, canary: RunFacts) -> Speed | None:
    """Compare seconds of a step on a machine, by logarithms; None where fewer than three seeds have them."""
    pairs = sorted(set(baseline.step_seconds) & set(canary.step_seconds))
    if len(pairs) < LEAST_PAIRS:
        return None
    before, after = (np.log([side.step_seconds[seed] for seed in pairs]) for side in (baseline, canary))
    every = np.log(list(baseline.step_seconds.values()))
    mean = float((after - before).mean())
    wide = student_quantile(RATE / 2, len(every) - 1) * float(every.std(ddof=1)) * math.sqrt(2 / len(pairs))
    limit = max(wide, math.log1p(SLOWER))
    state: Literal["same", "faster", "slower", "other_machine"] = "same"
    if baseline.machine != canary.machine:
        state = "other_machine"
    elif abs(mean) > limit:
        state = "slower" if mean > 0 else "faster"
    numbers = {"baseline": float(np.exp(before.mean())), "canary": float(np.exp(after.mean()))}
    numbers |= {"ratio": math.exp(mean), "limit": math.exp(limit)}
    return Speed(**{name: rounded_value(value) for name, value in numbers.items()}, state=state)


def rounded_value(value: float) -> float:
    """Return a number with 12 significant digits; a negative zero as zero."""
    return float(f"{value:.12g}") + 0.0


def sealed(core: Model, run: RunFacts) -> bytes:
    """Return a record as canonical JSON, its id the digest of its core."""
    plain = core.model_dump(mode="json", by_alias=True)
    return canonical_json({"id": digest_json(plain), "core": plain, "run": run.model_dump(mode="json")}) + b"\n"


def read_canary(path: Path) -> CanaryRecord:
    """Read a record and judge it again.

    Raises:
        ManifestError: It is absent or damaged, of another version, or its verdict is not what its runs say.
    """
    return _read(CanaryRecord, path, "`dataaudit canary run` writes it.")


def read_baseline(path: Path) -> BaselineRecord:
    """Read the record of healthy runs; errors are as of :func:`read_canary`."""
    return _read(BaselineRecord, path, "`dataaudit canary baseline` writes it.")


def _read(kind: type[_Record], path: Path, hint: str) -> _Record:
    try:
        record = kind.model_validate_json(read_safely(path))
    except OSError as error:
        raise ManifestError(f"{path} cannot be read: {error.strerror or error}", hint) from None
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, first["loc"])) or "the whole"
        raise ManifestError(f"{path} is no record of a canary that can be read ({at}: {first['msg']})", hint) from None
    if record.id != digest_json(record.core.model_dump(mode="json", by_alias=True)):
        raise ManifestError(f"{path}: its id is not the digest of its core, so it was changed", hint)
    return record
