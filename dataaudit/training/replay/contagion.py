"""Does the data break the model? A branch before an episode, trained on with and without the suspects.

Four arms read the same steps, and after each step the same probe documents are scored, which no arm reads: tokens
outside the suspects, without the noise of batches.

======  ==========================  ===================================
arm     from                        reads
======  ==========================  ===================================
A       the run, k steps before     what the run read
B       the same                    controls in place of the suspects
C       other checkpoints           what A read
D       other checkpoints           what B read
======  ==========================  ===================================

Controls are of the suspects' source, language and length (log2 of the tokens; the nearest where there are too few), and
every document beside them keeps its place. An arm rises by what the probe documents' loss is at most above the line
through it before the branch (a line that falls is not continued). A spike is a rise of more than the detector's width,
8 robust standard deviations of the steps before the branch. B, C and D are repeated: controls are drawn anew,
checkpoints are others; an arm has a spike when all of it have, and none when none has. Seeds alone are no repetition:
on a CPU an equal start gives an equal end.

A has to be the run again, bit by bit: the loss of every step from the checkpoint on is compared with the log, and so
are the documents. If something differs, that is reported, and nothing is decided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dataaudit.base.statistics import SIGMA, Floats, Ints, Mask, pairs_of, robust_line, student_quantile
from dataaudit.training.attribution.run_findings import Arm, ArmFound, ArmMean, ContagionFound, ContagionOutcome, number
from dataaudit.training.attribution.spikes import FLOOR, K
from dataaudit.training.replay.direct_comparison import CHECKPOINTS
from dataaudit.training.replay.protocol import Replay, Trained, first_reads, read_by, replaced

BEFORE = 8
"""Steps before an episode from which on the arms differ; the lag of the event test."""
PROBES = 64
"""Documents that are scored after each step."""
LINE = 16
"""Steps before the branch that the line goes through;"""
LEAST_LINE = 10
"""and at least so many."""
DRAWS = 3
MOST_STEPS = 48
"""Steps after the branch at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A run's steps by its log."""

    loss: Mapping[int, float]
    documents: Mapping[int, Ints]
    """Documents by step, places in ``replay.documents``, ascending; steps that the log keeps whole."""
    values: Mapping[str, Mapping[int, float]]
    """Further numbers by name and step."""


def contagion(
    replay: Replay,
    recorded: Recorded,
    suspects: Ints,
    episode: tuple[int, int],
    *,
    before: int = BEFORE,
    exclude: Ints | None = None,
    first: Ints | None = None,
    seed: int = 0,
) -> ContagionFound:
    """Train the four arms."""
    onset, last = episode
    branch = max(0, onset - 1 - before)
    last = min(last, branch + MOST_STEPS)
    begin = _begin(replay.checkpoints, branch)
    known: dict[str, Any] = {"branch": branch, "last": last}
    if begin is None:
        return ContagionFound(
            outcome="not_evaluated", detail=f"no checkpoint is {LEAST_LINE} steps or more before step {branch}", **known
        )
    met = {step: read_by(replay, step) for step in range(begin + 1, last + 1)}
    own = np.intersect1d(np.unique(np.concatenate([met[step] for step in range(branch + 1, last + 1)])), suspects)
    known["suspects"] = len(own)
    if not len(own):
        return ContagionFound(
            outcome="not_evaluated", detail=f"steps {branch + 1} to {last} read none of the suspects", **known
        )
    if first is None:
        first = first_reads(replay, last)
    apart = np.flatnonzero(np.isin(replay.documents.shard, replay.documents.shard[suspects]))
    if exclude is not None:
        apart = np.union1d(apart, exclude)
    plan = _Plan(replay, own, apart, np.unique(np.concatenate(list(met.values()))), first > last, seed)
    if plan.problem:
        return ContagionFound(outcome="not_evaluated", detail=plan.problem, **known)
    known["held"] = len(plan.probes)
    course = _Course(replay, plan.probes, recorded)
    course.differs = _other_documents(recorded, met)
    arms = [] if course.differs else _arms(course, plan, begin, range(branch + 1, last + 1))
    known["reproduced"] = course.equal
    if course.differs:
        return ContagionFound(outcome="not_reproduced", detail=course.differs, **known)
    outcome, detail = decide(arms)
    if plan.unlike and len(arms) > 1:
        others = "some controls are of another source or language, since too few of the suspects' own are free"
        detail = f"{detail}; {others}" if detail else others
    means = tuple(
        _mean(arm, np.array(rises), sum(run.spike for run in arms if run.arm == arm))
        for arm, rises in course.rises.items()
    )
    return ContagionFound(outcome=outcome, detail=detail, arms=means, runs=tuple(arms), **known)


def _mean(arm: Arm, rises: Floats, spikes: int) -> ArmMean:
    """Return the mean rise of an arm, in bands, and Student's 95 % interval over its repetitions, if there are two."""
    middle, interval = float(rises.mean()), None
    if len(rises) > 1 and np.isfinite(rises).all():
        half = student_quantile(0.025, len(rises) - 1) * float(rises.std(ddof=1)) / math.sqrt(len(rises))
        interval = (round(middle - half, 12), round(middle + half, 12))
    return ArmMean(arm=arm, repetitions=len(rises), spikes=spikes, rise=number(middle), interval=interval)


def _begin(checkpoints: Sequence[int], branch: int) -> int | None:
    """Return the newest checkpoint that leaves room for the line before a branch; where none does, the oldest."""
    few = [checkpoint for checkpoint in checkpoints if checkpoint <= branch - LEAST_LINE]
    return max((checkpoint for checkpoint in few if checkpoint <= branch - LINE), default=min(few, default=None))


def _other_documents(recorded: Recorded, met: Mapping[int, Ints]) -> str:
    """Return, in words, which step of the replay reads other documents than the log has."""
    for step, documents in recorded.documents.items():
        if step in met and not np.array_equal(documents, met[step]):
            return f"step {step} of the replay reads other documents than the log has: the place in the data differs"
    return ""


def _arms(course: _Course, plan: _Plan, begin: int, steps: range) -> list[ArmFound]:
    """Train the arms, as far as they are needed; nothing where the first is not the run."""
    replay = course.replay
    branch = steps[0] - 1
    lead = course.lead(begin, branch, checked=True)
    if course.differs:
        return []
    saved = replay.save()
    arms = [course.arm("A", begin, None, lead, [(step, replay.batches(step)) for step in steps], checked=True)]
    if course.differs or not arms[0].spike:
        return arms
    for draw in range(DRAWS):
        replay.load(saved)
        arms.append(course.arm("B", begin, draw, lead, plan.replaced(steps, draw)))
    if any(run.spike for run in arms[1:]):
        return arms
    for draw, checkpoint in enumerate(_others(replay.checkpoints, begin, steps)):
        shift = checkpoint + LINE - branch
        lead = course.lead(checkpoint, checkpoint + LINE)
        saved = replay.save()
        read_here = [(step + shift, replay.batches(step)) for step in steps]
        arms.append(course.arm("C", checkpoint, None, lead, read_here))
        replay.load(saved)
        instead = [(step + shift, batches) for step, batches in plan.replaced(steps, draw)]
        arms.append(course.arm("D", checkpoint, draw, lead, instead))
    return arms


def decide(arms: Sequence[ArmFound]) -> tuple[ContagionOutcome, str]:
    """Return what arms mean, and why nothing where they mean nothing."""
    spikes = {arm: [run.spike for run in arms if run.arm == arm] for arm in ("A", "B", "C", "D")}
    few = len(spikes["C"])
    rules: tuple[tuple[bool, ContagionOutcome, str], ...] = (
        (not all(spikes["A"]), "not_contagious", ""),
        (all(spikes["B"]), "state_dependent", ""),
        (any(spikes["B"]), "inconclusive", "some controls in place of the suspects give a spike, others do not"),
        (few < CHECKPOINTS, "inconclusive", f"{few} other checkpoints can be gone on from, {CHECKPOINTS} are needed"),
        (any(spikes["D"]), "inconclusive", "from other checkpoints the controls give a spike, too"),
        (not any(spikes["C"]), "interaction", ""),
        (all(spikes["C"]), "data_intrinsic", ""),
    )
    mixed: tuple[ContagionOutcome, str] = "inconclusive", "the suspects give a spike from some checkpoints alone"
    return next(((outcome, detail) for holds, outcome, detail in rules if holds), mixed)


def _others(checkpoints: Sequence[int], begin: int, steps: range) -> list[int]:
    """Return other checkpoints, whose own batches up to a branch are not the arms': the nearest before it first."""
    earlier = [checkpoint for checkpoint in checkpoints if 0 < checkpoint < begin and checkpoint + LINE < steps[0]]
    later = [
        checkpoint for checkpoint in checkpoints if checkpoint > steps[-1] and checkpoint + LINE <= max(checkpoints)
    ]
    return [*earlier[::-1], *later][: max(DRAWS, CHECKPOINTS)]


class _Plan:
    """Which documents are probes, and which replace the suspects."""

    def __init__(self, replay: Replay, own: Ints, apart: Ints, read: Ints, unread: Mask, seed: int) -> None:
        self._replay, self._own = replay, own
        self._random = np.random.Generator(np.random.PCG64([seed, len(own), 2]))
        documents = replay.documents
        free = np.ones(len(documents), dtype=bool)
        free[apart] = free[read] = False
        self.problem = ""
        self.unlike = False
        """Whether some controls are of another source or language than the suspects."""
        strata = documents.strata()
        places = self._random.permutation(np.flatnonzero(free))
        places = places[np.argsort(~unread[places], kind="stable")]
        """Free documents, at random, those that were not read by then first."""
        pools = {int(item): self._pool(places, own[strata[own] == item][0], strata) for item in np.unique(strata[own])}
        if lacking := sum(len(pools[int(strata[value])]) < DRAWS for value in own.tolist()):
            self.problem = f"{lacking} of {len(own)} suspects have fewer than {DRAWS} controls"
            return
        self._draws = [self._draw(pools, strata) for _ in range(DRAWS)]
        used = np.unique(np.array([item for draw in self._draws for controls in draw.values() for item in controls]))
        kept = places[~np.isin(places, used)]
        self.probes = np.sort(kept[:PROBES])
        if len(self.probes) < PROBES // 4:
            self.problem = f"only {len(self.probes)} documents are left to be scored"

    def _pool(self, places: Ints, suspect: int, strata: Ints) -> Ints:
        """Return free documents of a suspect's kind; too few: the nearest in length, of its source, then of any."""
        documents = self._replay.documents
        same: Ints = places[strata[places] == strata[suspect]]
        if len(same) >= DRAWS:
            return same
        of_source = documents.source[places] == documents.source[suspect]
        of_language = documents.language[places] == documents.language[suspect]
        for like in (of_source & of_language, of_source, np.ones(len(places), dtype=bool)):
            if int(like.sum()) >= DRAWS:
                break
        self.unlike |= not (of_source & of_language)[like].all()
        tokens = np.log2(np.maximum(documents.tokens, 1))
        order = np.argsort(np.abs(tokens[places[like]] - tokens[suspect]), kind="stable")
        nearest: Ints = places[like][order][: 8 * DRAWS]
        return nearest

    def _draw(self, pools: Mapping[int, Ints], strata: Ints) -> dict[int, tuple[int, ...]]:
        """Return controls of each suspect, each used once where there are enough."""
        taken = {code: iter(np.resize(self._random.permutation(pool), len(self._own))) for code, pool in pools.items()}
        return {int(item): (int(next(taken[int(strata[item])])),) for item in self._own}

    def replaced(self, steps: range, draw: int) -> list[tuple[int, Any]]:
        """Return the micro-batches of steps, with controls."""
        replay, controls = self._replay, self._draws[draw % len(self._draws)]
        return [(step, [replaced(replay, batch, controls) for batch in replay.batches(step)]) for step in steps]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lead:
    """The probe documents' loss up to a branch."""

    value: float
    """At the branch, by the line."""
    slope: float
    """0 where it falls."""
    band: float
    last: float
    """As it was there."""


class _Course:
    """Trains steps, scores the probe documents after each, and compares those of the run with its log."""

    def __init__(self, replay: Replay, probes: Ints, recorded: Recorded) -> None:
        self.replay, self._probes, self._recorded = replay, probes, recorded
        self._weights = replay.documents.tokens[probes] / replay.documents.tokens[probes].sum()
        self.equal, self.differs = 0, ""
        self.rises: dict[Arm, list[float]] = {}
        """Of each repetition of an arm, in bands."""

    def lead(self, checkpoint: int, branch: int, *, checked: bool = False) -> _Lead:
        """Go from a checkpoint to a branch by the run's own batches; the newest steps give the line."""
        self.replay.restore(checkpoint)
        values = []
        for step in range(checkpoint + 1, branch + 1):
            self._train(step, self.replay.batches(step), checked=checked)
            if self.differs:
                break
            if step > branch - LINE:
                values.append(self._score())
        if len(values) < 3:
            return _Lead(value=math.nan, slope=math.nan, band=math.nan, last=math.nan)
        at = np.arange(1 - len(values), 1, dtype=np.float64)
        slope, value, spread = robust_line(at, np.array(values), pairs_of(len(values)))
        band = K * SIGMA * max(spread, FLOOR * abs(value))
        return _Lead(value=value, slope=max(0.0, slope), band=band, last=values[-1])

    def arm(
        self,
        arm: Arm,
        checkpoint: int,
        draw: int | None,
        lead: _Lead,
        steps: Sequence[tuple[int, Any]],
        *,
        checked: bool = False,
    ) -> ArmFound:
        """Train on steps and return how far the probe documents' loss rises."""
        values = []
        for step, batches in steps:
            self._train(step, batches, checked=checked)
            if self.differs:
                break
            values.append(self._score())
        above = np.array(values) - lead.value - lead.slope * np.arange(1, len(values) + 1)
        rise = float(above.max(initial=-math.inf)) if np.isfinite(above).all() else math.inf
        self.rises.setdefault(arm, []).append(rise / lead.band)
        return ArmFound(
            arm=arm,
            checkpoint=checkpoint,
            draw=draw,
            rise=number(rise),
            band=number(lead.band),
            spike=not rise <= lead.band,
            losses=tuple(map(number, (lead.last, *values))),
        )

    def _score(self) -> float:
        return float(np.dot(self._weights, self.replay.score(self._probes)))

    def _train(self, step: int, batches: Any, *, checked: bool) -> None:
        trained = self.replay.train(step, batches)
        if checked:
            self.differs = self._difference(step, trained)
            self.equal += not self.differs

    def _difference(self, step: int, trained: Trained) -> str:
        """Return what of a step is not the log's, in words."""
        logged = self._recorded.loss.get(step)
        if logged is None:
            return f"the log has no loss of the loop at step {step}: hand it to monitor.step"
        if _same(trained.loss, logged):
            return ""
        first = "the first step from the checkpoint" if not self.equal else f"{self.equal} steps were equal before"
        words = f"the loss of step {step} is {trained.loss!r}, the log has {logged!r} ({first})"
        rate, rates = (trained.values or {}).get("learning_rate"), self._recorded.values.get("learning_rate", {})
        if rate is not None and step in rates and not _same(rate, rates[step]):
            return f"{words}; the learning rate is {rate!r}, the log has {rates[step]!r}"
        if not self.equal:
            return f"{words}; the documents are the same: the weights, the random numbers or the arithmetic differ"
        return f"{words}; the optimizer, the learning rate or the random numbers differ"


def _same(item: float, other: float) -> bool:
    return item == other or (math.isnan(item) and math.isnan(other))
