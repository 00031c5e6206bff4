"""From a run log and its manifest to findings: which block or shard held the excess of each episode, or why not."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.atomic import write_whole
from dataaudit.errors import ConfigError, ExitCode, ManifestMismatch, RunLogError
from dataaudit.manifest.canonical import canonical_json
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.metrics.peers import COLUMNS, Peers, robust
from dataaudit.runlog.format import ATTRIBUTION_FILE
from dataaudit.runlog.reader import RunLog, load_run
from dataaudit.text import plural
from dataaudit.training.accounting import (
    Account,
    Floats,
    Ints,
    Mask,
    Stretches,
    fit,
    healthy_units,
    step_weights,
    trend,
)
from dataaudit.training.curve import (
    Curve,
    Flagged,
    Judged,
    Missing,
    curve_of,
    gradients_of,
    judge,
    missing_of,
    open_ranks,
    ranks_at,
)
from dataaudit.training.deciding import (
    Decision,
    Unit,
    decide,
    decide_not_finite,
    healthy_like,
    sorted_parts,
    unit_rows,
)
from dataaudit.training.evidence import (
    collapse_of,
    event_test_of,
    residual_tests_of,
    scaling_law_of,
    source_losses_of,
)
from dataaudit.training.findings import (
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
    exit_code_of,
    number,
)
from dataaudit.training.run_facts import run_facts
from dataaudit.training.spikes import FLOOR, GAP, LEVEL_AFTER, RATE, WINDOW
from dataaudit.training.trained_on import trained_on

HEALTHY_STEPS = 1_000
"""Newest healthy steps before an episode that its expectation is fitted on."""
LEAST_UNITS = 100
"""Healthy units that a residual is compared with, if there are as many."""
LISTED = 20
"""Documents, blocks and shards that are listed of an episode."""
MOSTLY_READ = 2
"""Times that a shard's share of some steps is that of the others, from which it is said where losses are not known."""
_PLACES = 3
_LINE = 6 / WINDOW
"""Variance of the detector's line a few steps ahead, in variances of a step: (pi / 2 + 12 * 0.6^2) / 50."""
_METRICS = (
    "bytes_per_token",
    "seq_len_p50",
    "exact_dup_rate",
    "near_dup_rate",
    "repeat_token_share",
    "token_kl_drift",
    "filter_reject_rate",
    "toxicity_screen",
    "contaminated",
    "held_out_copies",
)
"""Metrics of a shard that are shown; those of personal data and secrets, whose small counts are hidden, are left to
`dataaudit inspect`."""
_COUNTED = frozenset({"contaminated", "held_out_copies"})
_UNBOUNDED = frozenset({"bytes_per_token", "seq_len_p50", "token_kl_drift"})
_RATE_FLOOR = 0.02
"""Least robust standard deviation of a rate: that of a small shard moves by chance alone."""


@dataclass(frozen=True)
class Data:
    """A run log beside the manifest that the run was trained on."""

    log: RunLog
    manifest: Manifest
    reference: RunLog | None = None
    """Of a healthy run that this one is held against."""

    @cached_property
    def curve(self) -> Curve:
        """Every step's loss."""
        return curve_of(self.log.table("steps"), self.log.table("events"))

    @cached_property
    def missing(self) -> Missing:
        """Steps that the log lacks."""
        return missing_of(self.log.table("steps"), self.log.table("events"), self.log.run.ranks)

    @cached_property
    def open_ranks(self) -> int:
        """Ranks whose log has no end."""
        return open_ranks(self.log.table("events"), self.log.run.ranks)

    @cached_property
    def judged(self) -> Judged:
        """What the detector says of it."""
        return judge(self.curve.step, self.curve.value)

    @cached_property
    def stretches(self) -> Stretches:
        """All stretches whose loss is known, by step; those of shards with equal bytes under the lowest ordinal.

        Raises:
            RunLogError: They name a shard that the manifest lacks.
        """
        table = self.log.table("stretches")
        table = table.filter(pc.and_(pc.is_valid(table["loss"]), pc.greater(table["targets"], 0)))
        order = np.argsort(table["step"].to_numpy(), kind="stable")
        names = [name for name in Stretches.__slots__ if name != "loss"]
        columns = {name: table[name].to_numpy()[order].astype(np.int64) for name in names}
        shard, twins = columns["shard"], self.twins
        if len(shard) and not -1 <= int(shard.min()) <= int(shard.max()) < len(twins):
            raise RunLogError(
                f"{self.log.folder} names the shards {shard.min()} to {shard.max()}, the manifest has"
                f" {plural(len(twins), 'shard')}",
                "Its stretches are damaged.",
            )
        columns["shard"] = np.append(twins, -1)[shard]
        return Stretches(**columns, loss=table["loss"].to_numpy()[order].astype(np.float64))

    def of_steps(self, steps: Ints) -> Stretches:
        """Return the stretches of some steps."""
        return self.stretches.take(np.isin(self.stretches.step, steps))

    @cached_property
    def twins(self) -> Ints:
        """By ordinal: the lowest one with equal bytes; its own when there is none, or it was not read."""
        digests = self.manifest.table("shards", ["sha256"])["sha256"].combine_chunks()
        own = np.arange(len(digests), dtype=np.int64)
        codes = digests.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        unread = pc.equal(digests, "").to_numpy(zero_copy_only=False)
        twins: Ints = np.where(unread, own, first[inverse])
        return twins

    @cached_property
    def rows(self) -> Ints:
        """Records by ordinal."""
        rows: Ints = self.manifest.table("shards", ["rows"])["rows"].to_numpy()
        return rows

    def named(self, unit: Unit) -> Unit:
        """Return a block as its shard where that has no other block."""
        if unit.rows and 0 < self.rows[unit.shard] <= unit.rows:
            return Unit(number=unit.shard, rows=0)
        return unit

    @cached_property
    def names(self) -> list[str]:
        """``split/uri`` by ordinal."""
        table = self.manifest.table("shards", ["split", "uri"])
        return [
            f"{split}/{uri}" for split, uri in zip(table["split"].to_pylist(), table["uri"].to_pylist(), strict=True)
        ]


def load_data(log: Path, manifest: Path, reference: Path | None = None) -> Data:
    """Load a run log and the manifest that it has to be of.

    Args:
        log: Folder of the run log.
        manifest: Folder of the manifest.
        reference: Folder of the run log of a healthy run; it may be of another manifest.

    Raises:
        RunLogError: The log is absent or damaged, or of another manifest.
        ManifestError: The manifest is absent or damaged.
        ManifestMismatch: The log's table of shards is not the manifest's.
    """
    data = Data(load_run(log), load_manifest(manifest), None if reference is None else load_run(reference))
    said, found = data.log.run.manifest, data.manifest.id
    if said is None:
        raise RunLogError(
            f"{log} is the log of a run that opened no manifest: its batches have no tags",
            "Train on what `open_manifest` opens: `dataaudit explain training`.",
        )
    if said != found:
        raise RunLogError(
            f"{log} is the log of a run on the manifest {said}, {manifest} is {found}",
            "Name the manifest that the run was trained on: ordinals of shards mean nothing in another one.",
        )
    copied, shards = data.log.shards, data.manifest.table("shards", ["shard", "sha256"])
    for name in {"shard", "sha256"} & set(copied.column_names):
        if copied[name].to_pylist() != shards[name].to_pylist():
            raise ManifestMismatch(
                f"the table of shards in {log} is not that of {manifest}", "One of them was changed."
            )
    return data


def attribute(data: Data, step: int | None = None) -> Attribution:
    """Say of each episode of a run which block or shard held the excess, or why that cannot be told.

    Args:
        data: The run log and its manifest.
        step: Only the episode that this step is in.

    Raises:
        RunLogError: A part of the log cannot be read.
        ConfigError: There is no such step.
    """
    curve, judged = data.curve, data.judged
    norms = judge(*gradients_of(data.log.table("values")), log=True)
    all_episodes = [_episode(data, one) for one in judged.spikes]
    missing, shown = data.missing, all_episodes
    lacking = missing.number > MISSING_LIMIT * missing.among
    if step is not None:
        lacking = step not in missing.whole
        if step not in curve.step:
            there = f"its steps are {curve.step[0]:,} to {curve.step[-1]:,}" if len(curve.step) else "it has no step"
            if missing.number:
                there += f", and {plural(missing.number, 'step')} of {missing.among:,} are missing"
            raise ConfigError(f"no step {step:,} in {data.log.folder}: {there}")
        shown = [one for one in all_episodes if one.first_step <= step <= one.last_step]
    episodes = tuple(shown)
    cut_off = step is None and data.open_ranks > 0
    exit_code = exit_code_of(episodes, judged=bool(judged.judged.any()), missing=lacking or cut_off)
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
        open_ranks=data.open_ranks,
        judged=int(judged.judged.sum()),
        torn_bytes=data.log.torn_bytes,
        detector=detector_of(judged),
        episodes=episodes,
        dips=tuple(_span(judged.step, one) for one in judged.dips),
        gradients=tuple(_span(norms.step, one) for one in norms.spikes),
        event_test=event_test_of(data, all_episodes),
        residual_tests=residual_tests_of(data),
        source_losses=source_losses_of(data),
        scaling_law=scaling_law_of(data),
        collapse=collapse_of(data),
        run=run_facts(data.log),
        trained_on=trained_on(data.log, data.manifest),
    )


def detector_of(judged: Judged) -> Detector:
    """Return how a detector judged, for the record."""
    above, below = (None, None) if judged.rates is None else (AlarmRate(**asdict(one)) for one in judged.rates)
    return Detector(
        window=WINDOW,
        k=judged.last_k,
        rate=RATE,
        healthy=judged.past,
        above=above,
        below=below,
        level_after=LEVEL_AFTER,
        floor=FLOOR,
        gap=GAP,
    )


def write_attribution(log: Path, found: Attribution) -> None:
    """Write ``attribution.json`` into a run log, whole or not at all.

    Raises:
        OSError: It cannot be written.
    """
    write_whole(log / ATTRIBUTION_FILE, canonical_json(found.model_dump(mode="json", by_alias=True)) + b"\n")


def _span(steps: Ints, one: Flagged) -> Span:
    return Span(first_step=int(steps[one.first]), last_step=int(steps[one.last]), flagged=len(one.places))


def _episode(data: Data, flagged: Flagged) -> Episode:
    """Return what there is to say of an episode."""
    curve, judged = data.curve, data.judged
    value = curve.value[flagged.places]
    made: dict[str, Any] = {
        "kind": flagged.kind,
        **_span(curve.step, flagged).model_dump(),
        "loss": number(float(np.average(value, weights=np.maximum(curve.targets[flagged.places], 1)))),
        "expected": number(float(np.mean(judged.level[flagged.places]))),
        "band": number(float(np.mean(judged.limit[flagged.places]))),
        "accounted": 0,
    }
    ranks_then = ranks_at(curve.step[flagged.places], data.log.table("events"), data.log.run.ranks)
    whole = curve.ranks[flagged.places] == ranks_then
    if 2 * int(whole.sum()) < len(whole):
        ranks = plural(int(ranks_then[0]), "rank")
        lacking = f"{plural(int((~whole).sum()), 'step')} of {len(whole)}"
        return _told(
            made, Decision(reason="rank_missing", detail=f"the run has {ranks}, and {lacking} lack some of them")
        )
    steps = curve.step[flagged.places][whole]
    if flagged.kind == "not_finite":
        return _not_finite(data, steps[~np.isfinite(value[whole])], made)
    stretches = _scored(data, steps)
    if not len(stretches):
        return _told(made, _unscored("the flagged steps", _most_read(data, steps)))
    made["accounted"] = len(np.unique(stretches.step))
    good = judged.healthy()
    good[flagged.first :] = False
    known = np.intersect1d(curve.step[good], data.stretches.step)[-HEALTHY_STEPS:]
    if not len(known):
        return _told(made, _unscored("the healthy steps before"))
    made["healthy_steps"] = len(known)
    return _Division(data, stretches, data.of_steps(known)).episode(made)


def _told(made: dict[str, Any], decision: Decision, **more: Any) -> Episode:
    outcome = "cannot_tell" if decision.reason else "found"
    said = {"reason": decision.reason, "detail": decision.detail, "together": decision.together}
    return Episode(**{"outcome": outcome, "found": None, **made, **said, **more})


def _unscored(steps: str, read: str = "") -> Decision:
    detail = (
        f"of {steps}, no losses of stretches are there: they were not handed over, or summed up when they were over"
        " 10,000 steps old"
    )
    return Decision(reason="no_stretch_losses", detail=f"{detail}; {read}" if read else detail)


def _most_read(data: Data, steps: Ints) -> str:
    """Return which shard some steps read more of than others do, at least twice as much; nothing if there is none."""
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
    found = data.of_steps(steps)
    known, inverse = np.unique(found.step, return_inverse=True)
    scored = np.bincount(inverse, found.targets, minlength=len(known))
    targets = data.curve.targets[np.searchsorted(data.curve.step, known)]
    return found.take((2 * scored >= targets)[inverse])


def _not_finite(data: Data, steps: Ints, made: dict[str, Any]) -> Episode:
    """Return what holds the losses that are no numbers, in the first step that has any."""
    stretches = data.of_steps(steps[:1])
    broken = ~np.isfinite(stretches.loss)
    if not broken.any():
        return _told(made, _unscored("the first step that is not finite"))
    decision = decide_not_finite(stretches, data.log.run.block_rows)
    tables = _Tables(data, stretches, stretches.targets / stretches.targets.sum())
    made |= {"accounted": 1, **tables.all(broken)}
    if decision.unit is None:
        return _told(made, decision)
    unit = data.named(decision.unit)
    found = Found(
        **tables.unit(unit).model_dump(),
        kind="block" if unit.rows else "shard",
        interval=None,
        rest=None,
        rest_band=None,
        rarity=None,
    )
    return _told(made, decision, found=found, metrics=shard_metrics(data.manifest, unit.shard))


class _Division:
    """An episode whose excess is divided.

    Args:
        data: The run log and its manifest.
        stretches: Of its steps, at least one.
        healthy: Of healthy steps before it, at least one.
    """

    def __init__(self, data: Data, stretches: Stretches, healthy: Stretches) -> None:
        self.data, self.stretches, self.healthy = data, stretches, healthy
        self.block_rows = data.log.run.block_rows
        healthy_level, _ = self._level(healthy)
        expectation = fit(healthy, healthy_level, len(data.log.run.sources), self.block_rows)
        self.healthy_rest = healthy.loss - expectation.of(healthy, healthy_level)
        level, places = self._level(stretches)
        weights = stretches.targets / stretches.targets.sum()
        limit = float(np.dot(weights, data.judged.limit[places]))
        k = float(np.dot(weights, data.judged.k[places]))
        self.above_line = float(np.dot(weights, stretches.loss - level))
        newest = healthy.step > data.judged.last_shift(int(stretches.step[0]))
        own = trend(healthy.take(newest), healthy_level[newest], expectation, stretches.step)
        line, variance = own or (level, (limit / k) ** 2 * _LINE)
        self.account = Account(
            stretches=stretches,
            weights=weights,
            residuals=stretches.loss - expectation.of(stretches, line),
            expectation=expectation,
            block_rows=self.block_rows,
            band=limit,
            line_variance=variance,
        )

    def _level(self, stretches: Stretches) -> tuple[Floats, Ints]:
        """Return the line at the step of each stretch, and these steps' places in the curve."""
        places = np.searchsorted(self.data.curve.step, stretches.step)
        return self.data.judged.level[places], places

    def episode(self, made: dict[str, Any]) -> Episode:
        """Return what there is to say of it."""
        account = self.account
        decision = decide(account, self.above_line, usual=self._usual())
        common = account.common() if decision.part is None else decision.part.common
        tables = _Tables(self.data, self.stretches, account.weights, account, common)
        everything = np.ones(len(self.stretches), dtype=bool)
        chosen = everything if decision.unit is None else decision.unit.of(self.stretches)
        made |= {
            "excess": number(account.excess),
            "above_line": number(self.above_line),
            "common": number(common),
            **tables.all(chosen),
        }
        if decision.unit is None:
            return _told(made, decision)
        metrics = shard_metrics(self.data.manifest, decision.unit.shard)
        return _told(made, decision, found=self._found(decision, tables), metrics=metrics)

    def _usual(self) -> bool:
        """Return whether the shards of the episode were in at least half of the healthy steps."""
        own = np.isin(self.healthy.shard, np.unique(self.stretches.shard))
        return 2 * len(np.unique(self.healthy.step[own])) >= len(np.unique(self.healthy.step))

    def _found(self, decision: Decision, tables: _Tables) -> Found:
        part, account = decision.part, self.account
        assert decision.unit is not None
        assert part is not None
        unit = self.data.named(decision.unit)
        mask = unit.of(self.stretches)
        bounds = account.interval(mask, part)
        like = healthy_units(self.healthy, self.healthy_rest, unit.rows)
        own = float(step_weights(self.stretches)[mask].sum()) / len(np.unique(self.stretches.step[mask]))
        rarity = None
        if len(like.weight):
            high, among, least = healthy_like(like.weight, like.mean, own, part.mean, LEAST_UNITS)
            rarity = Rarity(as_high=high, among=among, least_weight=round(least, 12))
        return Found(
            **tables.unit(unit).model_dump(),
            kind="block" if unit.rows else "shard",
            interval=None if bounds is None else (round(bounds[0], 12), round(bounds[1], 12)),
            rest=number(part.rest),
            rest_band=number(part.rest_band),
            rarity=rarity,
        )


@dataclass(frozen=True, slots=True)
class _Tables:
    """What shards, blocks, sources and documents add to an episode."""

    data: Data
    stretches: Stretches
    weights: Floats
    account: Account | None = None
    """None where losses are not finite."""
    common: float = 0.0

    def all(self, chosen: Mask) -> dict[str, Any]:
        """Return every table, documents of some stretches alone.

        Args:
            chosen: bool[n]
        """
        rows = self.data.log.run.block_rows
        shards, blocks = self._sorted(self.stretches.units(0)), self._sorted(self.stretches.units(rows))
        documents = [one for one in self._sorted(np.where(chosen, self.stretches.units(1), -1)) if one >= 0]
        return {
            "num_shards": sum(one >= 0 for one in shards),
            "num_blocks": sum(one >= 0 for one in blocks),
            "num_documents": len(documents),
            "shards": tuple(self.unit(Unit(number=one, rows=0)) for one in shards[:LISTED]),
            "blocks": tuple(self.unit(Unit(number=one, rows=rows)) for one in blocks[:LISTED]),
            "sources": self._sources(),
            "documents": tuple(self._document(Unit(number=one, rows=1)) for one in documents[:LISTED]),
        }

    def unit(self, unit: Unit) -> Share:
        """Return what a block or a shard adds."""
        return Share(**self._named(unit), **self._sums(unit.of(self.stretches)))

    def _sources(self) -> tuple[Share, ...]:
        names, source = self.data.log.run.sources, self.stretches.source
        codes = np.where((source >= 0) & (source < len(names)), source, -1)
        return tuple(
            Share(name=names[code] if code >= 0 else "", **self._sums(codes == code))
            for code in self._sorted(codes)[:LISTED]
        )

    def _document(self, unit: Unit) -> Document:
        mask = unit.of(self.stretches)
        held = self.stretches.take(np.flatnonzero(mask)[:_PLACES])
        names = ("step", "rank", "micro_batch", "batch_row", "start", "targets", "offset")
        columns = zip(*(getattr(held, name).tolist() for name in names), strict=True)
        places = tuple(Place(**dict(zip(names, one, strict=True))) for one in columns)
        return Document(**self._named(unit), **self._sums(mask), places=places)

    def _named(self, unit: Unit) -> dict[str, Any]:
        """Return what says which unit it is."""
        shard = unit.shard
        first, last = unit_rows(unit)
        if unit.rows > 1 and last is not None and self.data.rows[shard] > first:
            last = min(last, int(self.data.rows[shard]) - 1)
        twins: list[int] = np.flatnonzero(self.data.twins == shard).tolist()
        return {
            "name": self.data.names[shard] if shard >= 0 else "",
            "shard": shard,
            "first_row": first,
            "last_row": last,
            "twins": tuple(one for one in twins if one != shard),
        }

    def _sorted(self, numbers: Ints) -> list[int]:
        """Return the distinct numbers, that with the largest part first."""
        parts = self.weights if self.account is None else self.account.parts(self.common)
        return sorted_parts(numbers, parts)

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
    found = []
    for name in _METRICS:
        values = pc.cast(table[name], pa.float64()).to_numpy(zero_copy_only=False)
        if name in _COUNTED:
            values = values / np.maximum(documents, 1)
        others = values[among & np.isfinite(values)]
        if not math.isfinite(values[shard]) or not len(others):
            continue
        median, spread = robust(others)
        spread = max(spread, 0.0 if name in _UNBOUNDED else _RATE_FLOOR)
        away = number((float(values[shard]) - median) / spread) if spread > 0 else None
        found.append(ShardMetric(metric=name, value=round(float(values[shard]), 12), median=median, deviations=away))
    return tuple(sorted(found, key=lambda one: -abs(one.deviations or 0.0)))
