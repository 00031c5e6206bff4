"""What a run's page is made of while it trains: tiles, the band around the loss, rules, incidents, hours.

The still page makes a view once, the live page and the terminal bring theirs up to date every few seconds. The band
is that of the detector that judges a loss alone; it follows the newest :data:`BAND_STEPS` steps that were there when
the view was made, and every step that came since.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dataaudit.base.errors import ConfigError
from dataaudit.base.statistics import Floats, Ints
from dataaudit.decide.diff.drifts import Histogram
from dataaudit.live.hours import Hour
from dataaudit.live.incidents import FOLDER, acknowledged, stored_incidents
from dataaudit.live.judging import State
from dataaudit.live.tiles import Buckets, Line, Tiles
from dataaudit.live.watch import Watch, WatchProcess
from dataaudit.manifest.load import Manifest
from dataaudit.runlog.reader import load_run
from dataaudit.training.attribution.run_data import Data
from dataaudit.training.attribution.run_facts import BETA
from dataaudit.training.attribution.run_findings import TokenDrift
from dataaudit.training.attribution.spikes import GAP, SpikeDetector
from dataaudit.training.attribution.trained_on import drift_of

POINTS = 600
"""Buckets of a line on a page, at most."""
BAND_STEPS = 5_000
SILENT_SECONDS, SILENT_STEPS, DEAD_SECONDS = 60.0, 20, 600.0
"""Without a row of a rank: worth a word, with so many steps of the usual length; what `monitoring_blackout` names."""


@dataclass(frozen=True, kw_only=True)
class LiveIncident:
    """An incident of the rules, as it is stored beside the run log."""

    id: str
    severity: int
    rule: str
    seen: str
    action: str
    first_step: int
    last_step: int
    ranks: tuple[int, ...]
    firing: bool
    who: str
    note: str

    @property
    def open(self) -> bool:
        """Whether nobody acknowledged it."""
        return not self.who


class RunView:
    """A run log as pages and the terminal show it; ``watch`` judges rules beside it, and is None on a still page."""

    def __init__(
        self,
        runlog: Path,
        *,
        watch: Watch | WatchProcess | None = None,
        manifest: Manifest | None = None,
        beside: Sequence[Path] = (),
    ) -> None:
        self.log = load_run(runlog)
        if manifest is not None and self.log.run.manifest not in {None, manifest.id}:
            raise ConfigError(
                f"{runlog} is the log of a run on the manifest {self.log.run.manifest}, this one is {manifest.id}",
                "Name the manifest that the run was trained on.",
            )
        self.tiles = Tiles(runlog, self.log.run)
        self.watch, self.manifest = watch, manifest
        self.beside = _named(beside)
        self.more = False
        """Whether the log holds more than was read yet."""
        self.first = 0
        """First step that lines show."""
        self._began(self.tiles.generation)
        self.other_tokens = manifest is not None and not Data(self.log, manifest).same_tokens
        """Whether the run's tokens are of another tokenizer than the manifest's."""
        compared = None if self.other_tokens else manifest
        self._reference = None if compared is None else _reference(compared, self.log.run.sources)

    def _began(self, generation: int) -> None:
        self._generation = generation
        self._detector = SpikeDetector()
        self._total = self._weight = 0.0
        self._waiting: list[tuple[int, float]] = []
        self._judged = False
        self.ema, self.low, self.high = Line(), Line(), Line()
        self.spikes: list[tuple[int, int]] = []
        """First and last steps of episodes above the band, which the detector or the run itself flagged."""

    def read(self, seconds: float = 2.0) -> None:
        """Bring it up to date, for about so many seconds."""
        self.more = self.tiles.read(seconds)
        for tiles in self.beside.values():
            self.more = tiles.read(seconds) or self.more
        if self._generation != self.tiles.generation:
            self._began(self.tiles.generation)
        self._losses(seconds)
        if self._reference is not None:
            self.tiles.hours.drifts(self._drift)

    def _losses(self, seconds: float) -> None:
        came, end = self.tiles.new_losses, time.monotonic() + seconds
        if came:
            steps, losses = (np.concatenate(parts) for parts in zip(*came, strict=True))
            came.clear()
            newest = slice(None) if self._judged and not self.more else slice(-BAND_STEPS, None)
            self._waiting += zip(steps[newest].tolist(), losses[newest].tolist(), strict=True)
            known = np.isfinite(losses)
            totals = _decayed(losses[known], self._total)
            weights = _decayed(np.ones(len(totals)), self._weight)
            if len(totals):
                self._total, self._weight = float(totals[-1]), float(weights[-1])
                self.ema.add(steps[known], totals / weights)
        if self.more or self.watch is None:  # the still page has the detector that knows what a step was made of
            self._waiting = self._waiting[-BAND_STEPS:]
            return
        judged, low, high, done = [], [], [], 0
        if not self._judged:
            self._waiting = self._waiting[-BAND_STEPS:]
        self._judged = True
        for step, loss in self._waiting:
            done += 1
            verdict = self._detector.see(step, loss)
            if np.isfinite(verdict.expected) and np.isfinite(verdict.limit):
                judged.append(step)
                low.append(verdict.expected - verdict.limit)
                high.append(verdict.expected + verdict.limit)
            if verdict.kind in {"loss_spike", "not_finite", "level_shift"}:
                _add_episode(self.spikes, verdict.since or step, step)
            if time.monotonic() > end:
                break
        self._waiting = self._waiting[done:]
        self.low.add(np.array(judged, np.int64), np.array(low))
        self.high.add(np.array(judged, np.int64), np.array(high))

    def episodes(self) -> list[tuple[int, int]]:
        """Return first and last steps in which the loss left its band: of the detector here, and of the run's own."""
        flagged = [
            (_whole(event["detail"].get("first_step"), event["step"]), event["step"])
            for event in self.tiles.events
            if event["kind"] == "flagged"
        ]
        joined: list[tuple[int, int]] = []
        for first, last in sorted([*flagged, *self.spikes]):
            _add_episode(joined, first, last)
        return joined

    @property
    def hours(self) -> list[Hour]:
        """Hours with steps, in their order."""
        return [hour for _, hour in sorted(self.tiles.hours.by_time.items()) if hour.last_step >= 0]

    @cached_property
    def expected_shares(self) -> tuple[dict[str, float], str]:
        """Share of each source that the manifest lets expect, and which: ``declared``, or ``of the corpus``."""
        if self.manifest is None:
            return {}, ""
        names = self.tiles.hours.sources
        weights = {name: entry["weight"] for name, entry in self.manifest.core.mixture.items() if name in names}
        of = "declared"
        if not weights or sum(weights.values()) <= 0:
            of, weights = "of the corpus", {}
            held_out = {split.name for split in self.manifest.core.splits if split.held_out}
            for row in self.manifest.table("shards", ["split", "sources"]).to_pylist():
                for item in row["sources"] or () if row["split"] not in held_out else ():
                    weights[item["source"]] = weights.get(item["source"], 0.0) + item["tokens"]
        whole = sum(weights.values())
        return ({name: weight / whole for name, weight in weights.items()} if whole else {}), of

    def buckets(self, line: Line | None, most: int = POINTS) -> Buckets | None:
        """Return what lines of the chosen steps show; None where there is nothing."""
        if line is None:
            return None
        found = line.read(self.first, max(self.tiles.step, 1), most)
        return found if len(found.step) else None

    def incidents(self) -> list[LiveIncident]:
        """Return the incidents of rules: those that nobody acknowledged first, then by severity, the newest first."""
        firing = {state.rule for state in self.states() if state.state == "firing"}
        actions = {} if self.watch is None else {rule.name: rule.action for rule in self.watch.rules}
        found = []
        for name, record in stored_incidents(self.tiles.folder).items():
            alerts = [alert for alert in record.get("alerts", ()) if isinstance(alert, dict)]
            first = min(
                alerts, key=lambda alert: (_whole(alert.get("severity"), 9), alert.get("first_step", 0)), default={}
            )
            ack = acknowledged(self.tiles.folder / FOLDER / name)
            found.append(
                LiveIncident(
                    id=name,
                    severity=_whole(record.get("severity"), 2),
                    rule=str(first.get("rule", record.get("group", ""))),
                    seen=str(first.get("seen", "")),
                    action=actions.get(str(first.get("rule", "")), ""),
                    first_step=_whole(record.get("first_step"), 0),
                    last_step=_whole(record.get("latest_step"), 0),
                    ranks=tuple(rank for rank in record.get("ranks", ()) if isinstance(rank, int)),
                    firing=any(alert.get("rule") in firing for alert in alerts),
                    who="" if ack is None else ack.who,
                    note="" if ack is None else ack.note,
                )
            )
        return sorted(found, key=lambda item: (not item.open, item.severity, -item.first_step))

    def states(self) -> list[State]:
        """Return how each rule stands; nothing on a still page."""
        return [] if self.watch is None else self.watch.states()

    @property
    def ended(self) -> bool:
        """Whether every rank that wrote ended its log."""
        return bool(self.tiles.present) and set(self.tiles.present) <= self.tiles.closed

    def silent_seconds(self, now: float | None = None) -> float | None:
        """Return for how long the rank that was heard of least lately has written no step; None where none ever did."""
        if not self.tiles.present:
            return None
        newest = min(at for _, at in self.tiles.present.values())
        return max(0.0, (time.time() if now is None else now) - newest)

    @property
    def patience(self) -> float:
        """Seconds of silence that are worth a word: logs are written every ten seconds, and steps take their time."""
        took = self.tiles.line("step_time")
        return SILENT_SECONDS + SILENT_STEPS * (0.0 if took is None else float(took.newest[1]))

    def _drift(self, hour: Hour) -> TokenDrift | None:
        """Compare an hour's tokens with those audited, sources weighted as in that hour: a mixture is no drift."""
        if self._reference is None or hour.tokens is None or hour.half is None:
            return None
        counts, special = self._reference
        shares, audited = hour.sources / max(1, hour.sources.sum()), counts.sum(axis=1)
        weights = np.divide(shares * audited.sum(), audited, out=np.zeros(len(audited)), where=audited > 0)
        reference = np.rint(counts.T @ weights).astype(np.int64) if weights.any() else counts.sum(axis=0)
        size = max(len(reference), len(hour.tokens))
        now, half, reference = (np.pad(item, (0, size - len(item))) for item in (hour.tokens, hour.half, reference))
        drop = [token for token in special if token < size]
        now[drop] = half[drop] = reference[drop] = 0
        return drift_of("", now, half, reference) if now.any() and reference.any() else None


def _add_episode(episodes: list[tuple[int, int]], first: int, last: int) -> None:
    """Add flagged steps, which may belong to the newest episode."""
    if episodes and first - episodes[-1][1] <= GAP + 1:
        episodes[-1] = episodes[-1][0], max(last, episodes[-1][1])
    else:
        episodes.append((first, last))


def _decayed(values: Floats, before: float) -> Floats:
    """Return float64[n]: each value and :data:`BETA` times the result before it, ``before`` for the first."""
    block = np.arange(256)
    powers = BETA ** (block + 1.0)
    kernel = np.tril(BETA ** np.maximum(0.0, block[:, None] - block))
    rows = np.pad(values, (0, -len(values) % len(block))).reshape(-1, len(block)) @ kernel.T
    for place in range(len(rows)):
        rows[place] += before * powers
        before = float(rows[place, -1])
    result: Floats = rows.reshape(-1)[: len(values)]
    return result


def _named(paths: Sequence[Path]) -> dict[str, Tiles]:
    """Return tiles of run logs by the shortest names that tell them apart."""
    last = [path.resolve().name for path in paths]
    unique = len(set(last)) == len(last)
    names = last if unique else [str(path) for path in paths]
    return {name: Tiles(path, load_run(path).run) for name, path in zip(names, paths, strict=True)}


def _reference(manifest: Manifest, sources: Sequence[str]) -> tuple[Ints, tuple[int, ...]] | None:
    """Return int64[sources, tokens] audited counts of what is not held out, and the ids of special tokens."""
    histogram = Histogram(manifest)
    if histogram.empty:
        return None
    total = np.zeros((len(sources), histogram.size), np.int64)
    for split in manifest.core.splits:
        for place, source in enumerate(sources):
            counts = None if split.held_out else histogram.counts((split.name, source), histogram.size)
            total[place] += 0 if counts is None else counts
    return total, tuple(manifest.core.tokenizer.special_ids)


def _whole(value: Any, default: int) -> int:
    """Return a whole number of a record that anybody may have written."""
    return value if type(value) is int else default
