"""From a run log and its manifest to findings: which block or shard holds the excess of each episode, or why not."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.errors import ConfigError, ExitCode
from dataaudit.base.files import write_whole
from dataaudit.base.statistics import LEAST_OTHERS, Floats, Ints, Mask, one_sided
from dataaudit.base.text import plural
from dataaudit.manifest.canonical import canonical_json
from dataaudit.manifest.load import Manifest
from dataaudit.metrics.peers import COLUMNS, Peers, robust
from dataaudit.runlog.format import ATTRIBUTION_FILE
from dataaudit.runlog.reader import ranks_at
from dataaudit.training.attribution import step_detector
from dataaudit.training.attribution.curve import GRADIENT, Flagged, Judged, judge, missing_of, open_ranks, series_of
from dataaudit.training.attribution.event_permutation import event_test_of
from dataaudit.training.attribution.findings import (
    MISSING_LIMIT,
    AlarmRate,
    Attribution,
    Detector,
    Document,
    Episode,
    Found,
    Place,
    Rarity,
    ShardMetric,
    Share,
    Span,
    Visible,
    behind_of,
    exit_code_of,
)
from dataaudit.training.attribution.loss_decomposition import (
    Account,
    Groups,
    Part,
    Stretches,
    Unit,
    account_of,
    healthy_units,
    step_weights,
)
from dataaudit.training.attribution.residual_outliers import residual_tests_of
from dataaudit.training.attribution.run_data import Data
from dataaudit.training.attribution.run_facts import run_changes, run_facts
from dataaudit.training.attribution.run_findings import number
from dataaudit.training.attribution.run_losses import collapse_of, scaling_law_of, source_losses_of
from dataaudit.training.attribution.spikes import FLOOR, GAP, LEVEL_AFTER, RATE, WINDOW
from dataaudit.training.attribution.trained_on import trained_on
from dataaudit.training.attribution.verdict import Decision, decide, decide_not_finite
from dataaudit.training.corpus import COUNTED, METRICS

LISTED = 20
"""Documents, blocks and shards that are listed of an episode."""
_PLACES = 3
_METRICS = tuple(name for name in METRICS if name not in {"pii_documents", "secret_hits"})
"""Metrics of a shard that are shown; those of personal data and secrets, whose small counts are hidden, are left to
`dataaudit inspect`."""
_UNBOUNDED = frozenset({"bytes_per_token", "seq_len_p50", "token_kl_drift"})
_RATE_FLOOR = 0.02
"""Least robust standard deviation of a rate: that of a small shard moves by chance alone."""
HEALTHY_STEPS = 1_000
"""Newest healthy steps before an episode that its expectation is fitted on."""
LEAST_UNITS = 100
"""Healthy units that a residual is compared with, if there are as many."""
RARE = 0.01
"""Chance that one of the healthy units is as high, above which a single step names nothing."""
MOSTLY_READ = 2
"""Times that a shard's share of some steps is that of the others, from which it is named where losses are unknown."""


@dataclass(frozen=True, slots=True)
class Tables:
    """What shards, blocks, sources and documents add to an episode."""

    data: Data
    stretches: Stretches
    weights: Floats
    account: Account | None = None
    """None where losses are not finite."""
    common: float = 0.0

    def all(self, chosen: Mask) -> dict[str, Any]:
        """Return every table, documents of some stretches alone."""
        rows = self.data.log.run.block_rows
        shards, blocks = self._sorted(self.stretches.units(0)), self._sorted(self.stretches.units(rows))
        documents = [item for item in self._sorted(np.where(chosen, self.stretches.units(1), -1)) if item >= 0]
        names, source = self.data.log.run.sources, self.stretches.source
        codes = np.where((source >= 0) & (source < len(names)), source, -1)
        return {
            "num_shards": sum(shard >= 0 for shard in shards),
            "num_blocks": sum(block >= 0 for block in blocks),
            "num_documents": len(documents),
            "shards": tuple(self.unit(Unit(number=shard, rows=0)) for shard in shards[:LISTED]),
            "blocks": tuple(self.unit(Unit(number=block, rows=rows)) for block in blocks[:LISTED]),
            "sources": tuple(
                Share(name=names[code] if code >= 0 else "", **self._sums(codes == code))
                for code in self._sorted(codes)[:LISTED]
            ),
            "documents": tuple(self._document(Unit(number=document, rows=1)) for document in documents[:LISTED]),
        }

    def unit(self, unit: Unit) -> Share:
        """Return what a block or a shard adds."""
        return Share(**self._named(unit), **self._sums(unit.of(self.stretches)))

    def _document(self, unit: Unit) -> Document:
        mask = unit.of(self.stretches)
        first = self.stretches.take(np.flatnonzero(mask)[:_PLACES])
        names = ("step", "rank", "micro_batch", "batch_row", "start", "targets", "offset")
        columns = zip(*(getattr(first, name).tolist() for name in names), strict=True)
        places = tuple(Place(**dict(zip(names, column, strict=True))) for column in columns)
        return Document(**self._named(unit), **self._sums(mask), places=places)

    def _named(self, unit: Unit) -> dict[str, Any]:
        equal: list[int] = np.flatnonzero(self.data.twins == unit.shard).tolist()
        twins = tuple(shard for shard in equal if shard != unit.shard)
        return self.data.named(unit.shard, unit.first_row, unit.rows) | {"twins": twins}

    def _sorted(self, numbers: Ints) -> list[int]:
        """Return the distinct numbers, that with the largest part first."""
        parts = self.weights if self.account is None else self.account.parts(self.common)
        distinct, inverse = np.unique(numbers, return_inverse=True)
        ordered: list[int] = distinct[np.argsort(-np.bincount(inverse, parts), kind="stable")].tolist()
        return ordered

    def _sums(self, mask: Mask) -> dict[str, Any]:
        weight, targets = float(self.weights[mask].sum()), int(self.stretches.targets[mask].sum())
        steps = len(np.unique(self.stretches.step[mask]))
        sums = {"steps": steps, "targets": targets, "weight": round(weight, 12)}
        if self.account is None:
            return {**sums, "loss": None, "expected": None, "part": None, "share": None}
        loss = float(np.dot(self.weights[mask], self.stretches.loss[mask])) / weight
        above = float(np.dot(self.weights[mask], self.account.residuals[mask])) / weight
        part = float(self.account.parts(self.common)[mask].sum())
        share = part / self.account.excess if self.account.excess > 0 else math.nan
        values = {"loss": loss, "expected": loss - above, "part": part, "share": share}
        return {**sums, **{name: number(value) for name, value in values.items()}}


def shard_metrics(manifest: Manifest, shard: int) -> tuple[ShardMetric, ...]:
    """Return metrics of a shard beside the medians of its peers, what is farthest from them first."""
    table = manifest.table("shards", [*COLUMNS, "documents", *_METRICS])
    documents = table["documents"].to_numpy()
    groups = Peers.of(table).groups
    among = (groups == groups[shard]) & (documents > 0) & (np.arange(len(groups)) != shard)
    metrics = []
    for name in _METRICS:
        values = pc.cast(table[name], pa.float64()).to_numpy(zero_copy_only=False)
        if name in COUNTED:
            values = values / np.maximum(documents, 1)
        others = values[among & np.isfinite(values)]
        if not math.isfinite(values[shard]) or not len(others):
            continue
        median, spread = robust(others)
        spread = max(spread, 0.0 if name in _UNBOUNDED else _RATE_FLOOR)
        away = number((float(values[shard]) - median) / spread) if spread > 0 else None
        metrics.append(ShardMetric(metric=name, value=round(float(values[shard]), 12), median=median, deviations=away))
    return tuple(sorted(metrics, key=lambda item: -abs(item.deviations or 0.0)))


def span_of(steps: Ints, flagged: Flagged) -> Span:
    """Return flagged steps that follow each other, for the record."""
    return Span(first_step=int(steps[flagged.first]), last_step=int(steps[flagged.last]), flagged=len(flagged.places))


def episode_of(data: Data, flagged: Flagged) -> Episode:
    """Return the record of an episode."""
    curve, judged = data.curve, data.judged
    value = curve.value[flagged.places]
    record: dict[str, Any] = {
        "kind": flagged.kind,
        **span_of(curve.step, flagged).model_dump(),
        "loss": number(float(np.average(value, weights=np.maximum(curve.targets[flagged.places], 1)))),
        "expected": number(float(np.mean(judged.expected[flagged.places]))),
        "band": number(float(np.mean(judged.limit[flagged.places]))),
        "accounted": 0,
    }
    ranks_then = ranks_at(curve.step[flagged.places], data.log.table("events"), data.log.run.ranks)
    whole = curve.ranks[flagged.places] == ranks_then
    if 2 * int(whole.sum()) < len(whole):
        ranks = plural(int(ranks_then[0]), "rank")
        lacking = f"{plural(int((~whole).sum()), 'step')} of {len(whole)}"
        detail = f"the run has {ranks}, and {lacking} lack some of them"
        return _episode(record, Decision(reason="rank_missing", detail=detail))
    steps = curve.step[flagged.places][whole]
    if flagged.kind == "not_finite":
        return _not_finite(data, steps[~np.isfinite(value[whole])], record)
    stretches = _scored(data, steps)
    if not len(stretches):
        return _episode(record, _unscored("the flagged steps", _most_read(data, steps)))
    record["accounted"] = len(np.unique(stretches.step))
    good = judged.healthy()
    good[flagged.first :] = False
    known = np.intersect1d(curve.step[good], data.stretches.step)[-HEALTHY_STEPS:]
    if not len(known):
        return _episode(record, _unscored("the healthy steps before"))
    return _divided(data, stretches, data.of_steps(known), record | {"healthy_steps": len(known)})


def _episode(record: dict[str, Any], decision: Decision, **more: Any) -> Episode:
    outcome = "cannot_tell" if decision.reason else "found"
    record = record | {"reason": decision.reason, "detail": decision.detail, "together": decision.together}
    return Episode(**{"outcome": outcome, "found": None, **record, **more})


def _unscored(steps: str, read: str = "") -> Decision:
    detail = (
        f"of {steps}, the log has no losses of segments: the loop gave none, or they were summed up when they were over"
        " 10,000 steps old"
    )
    return Decision(reason="no_stretch_losses", detail=f"{detail}; {read}" if read else detail)


def _most_read(data: Data, steps: Ints) -> str:
    """Return which shard some steps read at least twice as much of as others do; nothing if there is none."""
    table = data.log.table("stretches")
    shard, targets = table["shard"].to_numpy(), table["targets"].to_numpy()
    inside = np.isin(table["step"].to_numpy(), steps) & (shard >= 0)
    own, others = (
        np.bincount(data.twins[shard[some]], targets[some], minlength=len(data.rows))
        for some in (inside, ~inside & (shard >= 0))
    )
    if not own.sum() or not others.sum():
        return ""
    own, others = own / own.sum(), others / others.sum()
    most = int(np.argmax(own - others))
    if own[most] < MOSTLY_READ * others[most]:
        return ""
    return f"{own[most]:.0%} of their targets are of {data.names[most]}, and {others[most]:.0%} of other steps'"


def _scored(data: Data, steps: Ints) -> Stretches:
    """Return the stretches of steps, without steps of which less than half of the targets has a loss."""
    stretches = data.of_steps(steps)
    known, inverse = np.unique(stretches.step, return_inverse=True)
    scored = np.bincount(inverse, stretches.targets, minlength=len(known))
    targets = data.curve.targets[np.searchsorted(data.curve.step, known)]
    return stretches.take((2 * scored >= targets)[inverse])


def _not_finite(data: Data, steps: Ints, record: dict[str, Any]) -> Episode:
    """Return what holds the losses that are no numbers, in the first step that has any."""
    stretches = data.of_steps(steps[:1])
    broken = ~np.isfinite(stretches.loss)
    if not broken.any():
        return _episode(record, _unscored("the first step that is not finite"))
    decision = decide_not_finite(stretches, data.log.run.block_rows)
    tables = Tables(data, stretches, stretches.targets / stretches.targets.sum())
    record |= {"accounted": 1, **tables.all(broken)}
    return _episode(record, decision, **_named_by(decision, tables, None))


def _divided(data: Data, stretches: Stretches, healthy: Stretches, record: dict[str, Any]) -> Episode:
    """Divide the excess of an episode's stretches, at least one, by what healthy steps before it let expect."""
    run = data.log.run
    account, above_line, healthy_rest = account_of(stretches, healthy, data.judged, len(run.sources), run.block_rows)
    decision = decide(account, above_line, usual=_usual(stretches, healthy))
    rarity = None
    if decision.unit is not None and decision.part is not None:
        unit = data.whole(decision.unit)
        rarity = _rarity(account, decision.part, unit, healthy_units(healthy, healthy_rest, unit.rows))
    if rarity is not None and record["accounted"] == 1 and rarity.by_chance > RARE:
        decision = Decision(
            reason="not_rare",
            detail=f"it is a single step, and of {rarity.among} units of healthy steps before with as many tokens"
            f" {rarity.as_high} had losses as far above what was expected; as they vary, 1 of so many is as high by"
            f" chance in {rarity.by_chance:.1%} of cases",
            part=decision.part,
        )
    common = account.common() if decision.part is None else decision.part.common
    tables = Tables(data, stretches, account.weights, account, common)
    chosen = np.ones(len(stretches), dtype=bool) if decision.unit is None else decision.unit.of(stretches)
    record |= {"excess": number(account.excess), "above_line": number(above_line), "common": number(common)}
    return _episode(record | tables.all(chosen), decision, **_named_by(decision, tables, rarity))


def _usual(stretches: Stretches, healthy: Stretches) -> bool:
    """Return whether the shards of the episode were in at least half of the healthy steps."""
    own = np.isin(healthy.shard, np.unique(stretches.shard))
    return 2 * len(np.unique(healthy.step[own])) >= len(np.unique(healthy.step))


def _rarity(account: Account, part: Part, unit: Unit, like: Groups) -> Rarity | None:
    """Return how often healthy units were as high as a part of the excess; None where there is none."""
    if not len(like.weight):
        return None
    mask = unit.of(account.stretches)
    own = float(step_weights(account.stretches)[mask].sum()) / len(np.unique(account.stretches.step[mask]))
    means, least = like.as_heavy(own, LEAST_UNITS)
    high, among = int((means >= part.mean).sum()), len(means)
    by_chance = min(1.0, among * one_sided(part.mean, means)) if among >= LEAST_OTHERS else 1.0
    return Rarity(as_high=high, among=among, least_weight=round(least, 12), by_chance=round(by_chance, 12))


def _named_by(decision: Decision, tables: Tables, rarity: Rarity | None) -> dict[str, Any]:
    """Return the block or shard of a decision, and metrics of that shard; nothing where no data is named."""
    if decision.unit is None:
        return {}
    data, account, part = tables.data, tables.account, decision.part
    unit = data.whole(decision.unit)
    bounds = None if account is None or part is None else account.interval(unit.of(tables.stretches), part)
    found = Found(
        **tables.unit(unit).model_dump(),
        kind="block" if unit.rows else "shard",
        interval=None if bounds is None else (round(bounds[0], 12), round(bounds[1], 12)),
        rest=None if part is None else number(part.rest),
        rest_band=None if part is None else number(part.rest_band),
        rarity=rarity,
    )
    return {"found": found, "metrics": shard_metrics(data.manifest, unit.shard)}


def attribute(data: Data, step: int | None = None) -> Attribution:
    """Return for each episode of a run which block or shard holds the excess, or why that is not known."""
    curve, judged = data.curve, data.judged
    norms = judge(*series_of(data.log.table("values"), GRADIENT), log=True)
    all_episodes = [episode_of(data, flagged) for flagged in judged.spikes]
    events, ranks = data.log.table("events"), data.log.run.ranks
    missing, shown = missing_of(data.log.table("steps"), events, ranks), all_episodes
    unended = open_ranks(events, ranks)
    lacking = missing.number > MISSING_LIMIT * missing.among
    if step is not None:
        lacking = step not in missing.whole
        if step not in curve.step:
            there = f"its steps are {curve.step[0]:,} to {curve.step[-1]:,}" if len(curve.step) else "it has no step"
            if missing.number:
                there += f", and {plural(missing.number, 'step')} of {missing.among:,} are missing"
            raise ConfigError(f"no step {step:,} in {data.log.folder}: {there}")
        shown = [episode for episode in all_episodes if episode.first_step <= step <= episode.last_step]
    episodes = tuple(shown)
    lacking_end = step is None and unended > 0
    asked = judged.judged if step is None else judged.judged[curve.step == step]
    exit_code = exit_code_of(episodes, judged=bool(asked.any()), missing=lacking or lacking_end)
    silent = exit_code == ExitCode.NOT_EVALUATED and not episodes
    return Attribution(
        manifest=data.manifest.id,
        dataset=data.log.run.dataset,
        exit_code=exit_code,
        reason=("steps_missing" if lacking else "not_closed") if silent else "",
        asked_step=step,
        steps=len(curve.step),
        first_step=int(curve.step[0]) if len(curve.step) else None,
        last_step=int(curve.step[-1]) if len(curve.step) else None,
        missing_steps=missing.number,
        missing_among=missing.among,
        longest_gap=missing.gap,
        open_ranks=unended,
        judged=int(judged.judged.sum()),
        torn_bytes=data.log.torn_bytes,
        detector=detector_of(judged),
        episodes=episodes,
        behind=behind_of(episodes),
        dips=tuple(span_of(judged.step, flagged) for flagged in judged.dips),
        gradients=tuple(span_of(norms.step, flagged) for flagged in norms.spikes),
        changes=run_changes(data.curve, data.log.table("values")),
        event_test=event_test_of(data, [episode.reason == "state" for episode in all_episodes]),
        residual_tests=residual_tests_of(data),
        source_losses=source_losses_of(data),
        scaling_law=scaling_law_of(data),
        collapse=collapse_of(data),
        run=run_facts(data.log),
        trained_on=trained_on(data),
    )


def detector_of(judged: Judged) -> Detector:
    """Return how a detector judged, for the record."""
    above, below = (None, None) if judged.rates is None else (AlarmRate(**asdict(rate)) for rate in judged.rates)
    visible = zip(step_detector.SCALES, judged.visible, strict=False)
    return Detector(
        window=WINDOW,
        k=judged.last_k,
        by="composition" if judged.composed else "loss",
        composed=judged.composed,
        visible=tuple(Visible(steps=steps, rise=round(rise, 9)) for steps, rise in visible),
        rate=step_detector.RATE if judged.composed else RATE,
        healthy=judged.past,
        above=above,
        below=below,
        level_after=LEVEL_AFTER,
        floor=FLOOR,
        gap=GAP,
    )


def write_attribution(log: Path, found: Attribution) -> None:
    """Write ``attribution.json`` into a run log, whole or not at all."""
    write_whole(log / ATTRIBUTION_FILE, canonical_json(found.model_dump(mode="json", by_alias=True)) + b"\n")
