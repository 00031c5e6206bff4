"""Is the data itself odd? Suspects beside matched documents of their source, by models that had seen neither.

The documents of a suspect unit and of control units of the same size (blocks beside blocks, shards beside shards) are
scored at checkpoints from before either was read. Of each document the mean of its stratum is taken away (source,
language, log2 of its tokens; every unit counts once in it). The score of a unit is the mean over its documents and the
checkpoints, in its standard deviations: units of a source differ by themselves, a random effect as in the residual
test. It is compared with the scores of the control units, on either side: by rank, p = (1 + as far) / (1 + units), and
beyond the farthest tenth by the tail that these predict, P(e) = (k + 1) / (n + 1) * (1 + e / sum of the k excesses)^(1
- k). With the exponent -k that is exact for tails that fall exponentially (e * k / sum is F(2, 2 k) distributed); one
less keeps it on the safe side where a few units are hard together and clean. Whole units are compared, since documents
of a hard but clean unit are hard together.

A unit that was named because it was the worst of m has its p times m: at most that is how often the worst of m clean
ones is called odd. A unit that is far off beside these controls, and whose p they cannot make small enough, is
undecided: never is it called usual.

No document of a suspect's shard is its control: what made one block of a shard bad made others bad. Where too few have
its language, controls are matched in source and length, and then in length alone. What is odd beside these may be a
language or a source of its own, so it is called unlike the others, and no more.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dataaudit.base.statistics import LEAST_OTHERS, Floats, Ints, Mask, one_sided, student_quantile, variance_between
from dataaudit.training.attribution.loss_decomposition import Z95
from dataaudit.training.attribution.residual_outliers import LEAST_DOCUMENTS
from dataaudit.training.attribution.run_findings import DirectFound, DirectOutcome, number
from dataaudit.training.replay.protocol import MATCHED, Matched, Replay

CHECKPOINTS = 3
"""Least checkpoints before exposure."""
MOST_CHECKPOINTS = 5
MOST_UNITS = 200
MOST_DOCUMENTS = 48
"""Documents of a unit that are scored at most."""
LEAST_STRATUM = 5
"""Control units that a stratum needs, else its documents are left out."""
ALPHA = 0.01
"""Up to which p, times the units it was named among, is called odd."""
FAR = 3.0
"""Standard deviations of units like the controls from which on a unit is not usual."""
_FARTHEST = 10.0
"""Standard deviations for which the smallest p that controls can give is stated, of a unit that is no farther."""


def direct(
    replay: Replay,
    suspects: Ints,
    units: Ints,
    *,
    among: int = 1,
    first: Ints,
    exclude: Ints | None = None,
    seed: int = 0,
) -> DirectFound:
    """Test whether the documents of one unit are odd beside those of other units; ``first`` step that reads each."""
    random = np.random.Generator(np.random.PCG64([seed, len(suspects), 1]))
    documents = replay.documents
    chosen = _chosen(replay, suspects, units, exclude, first, random)
    if chosen is None:
        return DirectFound(outcome="not_evaluated", reason="checkpoints", matched=MATCHED[0], among=among, alpha=ALPHA)
    matched, checkpoints, own, controls, unmatched = chosen
    strata = documents.strata(matched)
    known: dict[str, Any] = {"among": among, "alpha": ALPHA, "checkpoints": checkpoints}
    known |= {"unmatched": unmatched, "matched": matched}
    if len(own) < LEAST_DOCUMENTS:
        return DirectFound(outcome="not_evaluated", reason="suspects", **known)
    own = random.permutation(own)[:MOST_DOCUMENTS]
    names = np.unique(units[controls])
    if len(names) < LEAST_OTHERS:
        return DirectFound(outcome="not_evaluated", reason="controls", units=len(names), documents=len(own), **known)
    everyone = np.concatenate([own, controls])
    losses = np.empty((len(checkpoints), len(everyone)))
    for place, checkpoint in enumerate(checkpoints):
        replay.restore(checkpoint)
        losses[place] = replay.score(everyone)
    unit = np.concatenate([np.zeros(len(own), np.int64), 1 + np.searchsorted(names, units[controls])])
    distance, compared = compare_units(losses, unit, strata[everyone])
    outcome: DirectOutcome = "not_odd" if abs(distance) <= FAR else "undecided"
    if compared["p"] * among <= ALPHA:
        outcome = "outlier_data" if matched == MATCHED[0] else "unlike_others"
    return DirectFound(outcome=outcome, documents=len(own), units=len(names), **compared, **known)


Chosen = tuple[Matched, tuple[int, ...], Ints, Ints, int]
"""What is matched, checkpoints, suspect documents, control documents, suspect documents without a match."""


def _chosen(
    replay: Replay, suspects: Ints, units: Ints, exclude: Ints | None, first: Ints, random: np.random.Generator
) -> Chosen | None:
    """Return what is scored at the newest checkpoints before exposure that leave enough control units.

    At the newest of them at least half of the suspects are unread, and only what is unread then is scored. Controls are
    matched in as much as leaves enough of them for half of the suspects. Where nothing does, what comes nearest is
    returned; None where too few checkpoints are before exposure.
    """
    unread = [
        checkpoint
        for checkpoint in replay.checkpoints
        if checkpoint > 0 and 2 * int((first[suspects] > checkpoint).sum()) >= len(suspects)
    ]
    best: Chosen | None = None
    most = (False, -1)
    for matched in MATCHED:
        for end in range(len(unread), CHECKPOINTS - 1, -1):
            checkpoints = tuple(unread[max(0, end - MOST_CHECKPOINTS) : end])
            scored = _scored_at(matched, checkpoints, replay, suspects, units, exclude, first)
            _, _, own, controls, unmatched = scored
            reached = len(own) >= max(LEAST_DOCUMENTS, unmatched), len(np.unique(units[controls]))
            if reached > most:
                best, most = scored, reached
            if reached[0] and reached[1] >= LEAST_OTHERS:
                return (*scored[:3], _drawn(controls, units, random), unmatched)
    return best


def _scored_at(
    matched: Matched,
    checkpoints: tuple[int, ...],
    replay: Replay,
    suspects: Ints,
    units: Ints,
    exclude: Ints | None,
    first: Ints,
) -> Chosen:
    """Return the suspects and their possible controls that are unread at the newest of some checkpoints."""
    documents = replay.documents
    strata = documents.strata(matched)
    unread = first > checkpoints[-1]
    own = suspects[unread[suspects]]
    free = unread & np.isin(strata, strata[own]) & ~np.isin(documents.shard, documents.shard[suspects])
    if exclude is not None:
        free[exclude] = False
    controls = np.flatnonzero(free)
    kept = own[np.isin(strata[own], _strata_of_many(strata[controls], units[controls]))]
    controls = controls[np.isin(strata[controls], strata[kept])]
    _, member, sizes = np.unique(units[controls], return_inverse=True, return_counts=True)
    return matched, checkpoints, kept, controls[(sizes >= LEAST_DOCUMENTS)[member]], len(own) - len(kept)


def _drawn(free: Ints, units: Ints, random: np.random.Generator) -> Ints:
    """Return documents of control units: at most so many units, of each so many documents."""
    free = random.permutation(free)
    names = random.permutation(np.unique(units[free]))[:MOST_UNITS]
    free = free[np.isin(units[free], names)]
    order = np.argsort(units[free], kind="stable")
    member = units[free][order]
    begin = np.searchsorted(member, member, "left")
    return np.sort(free[order][np.arange(len(member)) - begin < MOST_DOCUMENTS])


def _strata_of_many(strata: Ints, units: Ints) -> Ints:
    """Return the strata that enough units have documents of."""
    pairs = np.unique(np.stack([strata, units]), axis=1)
    names, counts = np.unique(pairs[0], return_counts=True)
    return names[counts >= LEAST_STRATUM]


def compare_units(losses: Floats, unit: Ints, strata: Ints) -> tuple[float, dict[str, Any]]:
    """Compare unit 0 with all others: return its score in standard deviations, and the fields of the record."""
    units = int(unit.max()) + 1
    rest = _without_strata(losses, unit, strata, np.ones(len(unit), dtype=bool))
    mean = rest.mean(axis=0)
    sizes = np.bincount(unit, minlength=units)
    score = np.bincount(unit, mean, minlength=units) / sizes
    within = float(((mean - score[unit]) ** 2).sum()) / max(1, len(unit) - units)
    chance = within / sizes
    middle = float(np.median(score))
    effect = variance_between(score - middle, 1 / np.maximum(chance, 1e-300))
    distance = (score - middle) / np.sqrt(np.maximum(effect + chance, 1e-300))
    farthest = math.copysign(max(_FARTHEST, abs(distance[0])), distance[0])
    own = _without_strata(losses, unit, strata, unit > 0)
    table = np.stack([np.bincount(unit, row, minlength=units) / sizes for row in own])
    differences = table[:, 0] - table[:, 1:].mean(axis=1)
    return float(distance[0]), {
        "effect": number(differences.mean()),
        "interval": _interval(differences, table[:, 1:].mean(axis=0)),
        "by_checkpoint": tuple(round(float(difference), 12) for difference in differences),
        "p": _two_sided(distance[0], distance[1:]),
        "smallest_p": _two_sided(farthest, distance[1:]),
        "usual": number(Z95 * math.sqrt(effect + float(np.median(chance[1:])))),
    }


def _without_strata(losses: Floats, unit: Ints, strata: Ints, counted: Mask) -> Floats:
    """Take away the mean of each stratum, in which every unit that is counted has the same weight."""
    _, code = np.unique(strata, return_inverse=True)
    _, cell, sizes = np.unique(np.stack([code, unit]), axis=1, return_inverse=True, return_counts=True)
    weights = counted / sizes[cell.ravel()]
    total = np.bincount(code, weights, minlength=int(code.max()) + 1)
    total = np.maximum(total, 1e-300)
    means = [np.bincount(code, weights * row, minlength=len(total)) / total for row in losses]
    return losses - np.stack(means)[:, code]


def _two_sided(value: float, others: Floats) -> float:
    return min(1.0, 2 * one_sided(value, others), 2 * one_sided(-value, -others))


def _interval(by_checkpoint: Floats, by_unit: Floats) -> tuple[float, float]:
    """Return the 95 % interval of a mean difference, checkpoints and control units both drawn at random.

    The two variances add up; the quantile is the mean of theirs, weighed by the variances (Cochran and Cox 1950,
    section 4.14), which is on the safe side where few checkpoints have most of the variance.
    """
    parts = [(float(values.var(ddof=1)) / len(values), len(values) - 1) for values in (by_checkpoint, by_unit)]
    variance = sum(part for part, _ in parts)
    middle = float(by_checkpoint.mean())
    half = 0.0
    if variance > 0:
        half = sum(part * student_quantile(0.025, free) for part, free in parts) / math.sqrt(variance)
    return round(middle - half, 12), round(middle + half, 12)
