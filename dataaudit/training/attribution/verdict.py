"""The decision which block or shard holds an episode's excess, or why that is not known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dataaudit.base.statistics import Mask
from dataaudit.base.text import plural
from dataaudit.training.attribution.findings import Reason
from dataaudit.training.attribution.loss_decomposition import Account, Part, Stretches, Unit, step_weights

HALF = 0.5
"""Least share of the excess that a named unit has, and that a reason to name none has."""
FILLS = 0.9
"""Share of a step's targets from which a unit is the whole step: too little is left to compare it with."""
MUCH = 0.2
"""Share of the excess in other blocks of the same shard from which the shard is named, not a block of it."""
LEAST_PAST = 30
"""Healthy stretches of a source below which nobody knows what its loss usually is."""
FEW_SHARDS = 5
"""Shards below which the model's state is not named: where three are bad of few, all are up together, too."""
_COUNTS = 0.1
"""Share of the largest shard's targets from which a shard is counted: a few tokens are nothing to compare with."""
_TRIED = 20
"""Units with the largest parts that are tried."""
_TOGETHER = 5
"""Shards that may hold an excess together."""


Candidate = tuple[Unit, Part]
"""A unit, and its part of the excess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The unit that holds the excess, or why none is named."""

    unit: Unit | None = None
    part: Part | None = None
    """Part of the unit, or of the shards together; None where losses are not finite."""
    reason: Reason = ""
    detail: str = ""
    together: tuple[int, ...] = ()
    """Shards without all of which the episode lies inside the band."""


def decide(account: Account, above_line: float, *, usual: bool) -> Decision:
    """Return the unit that holds the excess.

    It is the smallest unit (a block, else the blocks of a shard together) without which the episode lies inside the
    band, and which has at least half of the excess; the shard, where its other blocks have another fifth of it. Of a
    unit that is all there is of most of its steps, the same has to be so in the other steps alone.
    """
    excess = account.excess
    if excess <= 0 or excess < HALF * above_line:
        return Decision(
            reason="mixture",
            detail="sources, lengths and positions of the documents of these steps explain more than half of it",
        )
    new = account.expectation.past_of(account.stretches) < LEAST_PAST
    block, shard = _largest(account, account.block_rows), _largest(account, 0)
    best = block or shard
    if block is not None and shard is not None and shard[0].shard == block[0].shard:
        # other blocks of its shard have much, too: naming the block alone would mislead
        best = shard if shard[1].excess - block[1].excess > MUCH * excess else block
    own = best is not None and new[best[0].of(account.stretches)].mean() > HALF
    if own or (new.any() and account.part(new).excess >= HALF * excess):
        return _new_source(account, -1 if best is None else best[0].shard)
    if best is None:
        return _why_not(account, usual=usual)
    unit, part = best
    return Decision(unit=unit, part=part) if unit.shard >= 0 else _MERGED


def _new_source(account: Account, shard: int) -> Decision:
    """Return that a source is new, and which shard holds the excess though nobody knows what is usual of it."""
    detail = (
        "at least half of it lies in a source that the steps before have hardly seen, or not lately: what its loss"
        " usually is, nobody knows"
    )
    if shard < 0:
        return Decision(reason="new_source", detail=detail)
    part = account.part(account.stretches.shard == shard)
    detail += f"; a single shard accounts for {min(1.0, part.excess / account.excess):.1%} of it"
    return Decision(reason="new_source", detail=detail, together=(shard,), part=part)


_MERGED = Decision(
    reason="merged_stretches",
    detail="it lies in segments that did not fit into the batch's tags, so their documents are not known",
)


def _largest(account: Account, rows: int, *, filling: bool = False) -> Candidate | None:
    """Return the unit with the largest part among those that are enough, and whether they fill steps or not."""
    numbers, inverse = np.unique(account.stretches.units(rows), return_inverse=True)
    parts = np.bincount(inverse, account.parts(account.common()))
    sums = np.bincount(inverse, account.weights * account.residuals)
    best: Candidate | None = None
    for place in np.argsort(-np.maximum(parts, sums), kind="stable")[:_TRIED].tolist():
        mask = inverse == place
        part = account.part(mask)
        enough = part.excess >= HALF * account.excess if filling else _explains(account, part)
        if (best is None or part.excess > best[1].excess) and enough and _fills(account, mask) == filling:
            best = Unit(number=int(numbers[place]), rows=rows), part
    return best


def _explains(account: Account, part: Part) -> bool:
    """Return whether a part is half of a positive excess, without which the steps lie inside the band."""
    return part.inside and part.excess >= HALF * account.excess > 0


def _fills(account: Account, mask: Mask) -> bool:
    """Return whether stretches fill most of their steps, by weight, and do not explain the other steps as well."""
    _, step = np.unique(account.stretches.step, return_inverse=True)
    full = np.bincount(step, np.where(mask, step_weights(account.stretches), 0.0)) >= FILLS
    weight = np.bincount(step, np.where(mask, account.weights, 0.0))
    if float(weight[full].sum()) <= HALF * float(weight.sum()):
        return False
    others = ~full[step]
    if not mask[others].any():
        return True
    left = account.take(others)
    return not _explains(left, left.part(mask[others]))


def _filled(account: Account, rows: int) -> bool:
    """Return whether most steps, by weight, are filled by a single unit each."""
    _, step = np.unique(account.stretches.step, return_inverse=True)
    _, unit = np.unique(account.stretches.units(rows), return_inverse=True)
    many = int(unit.max()) + 1
    pairs, inverse = np.unique(step * many + unit, return_inverse=True)
    share = np.bincount(inverse, step_weights(account.stretches))
    full = np.unique(pairs[share >= FILLS] // many)
    return float(account.weights[np.isin(step, full)].sum()) > HALF


def _why_not(account: Account, *, usual: bool) -> Decision:
    """Return why no unit has enough."""
    full = _full(account, usual=usual)
    if full is not None:
        return full
    together, part = _together(account)
    detail = "no block and no shard accounts for half of it and leaves the steps inside the band"
    if together:
        detail += f"; {plural(len(together), 'shard')} together do"
        return Decision(reason="spread", detail=detail, together=together, part=part)
    if account.common() >= HALF * account.excess:
        return _no_comparison("shard") if not usual and _filled(account, 0) else _state(account)
    return Decision(reason="spread", detail=detail)


def _full(account: Account, *, usual: bool) -> Decision | None:
    """Return why no unit is named where a unit is so much of the steps that too little is left to compare it with."""
    if _filled(account, account.block_rows):
        return _no_comparison("block")
    whole = _largest(account, account.block_rows, filling=True) or _largest(account, 0, filling=True)
    if whole is None:
        return None
    unit, _ = whole
    if unit.shard < 0:
        return _MERGED
    if usual and not unit.rows and account.common() >= HALF * account.excess:
        return _state(account)
    return _no_comparison("block" if unit.rows else "shard")


def _no_comparison(noun: str) -> Decision:
    return Decision(
        reason="one_block_fills_the_step",
        detail=f"a single {noun} is so much of these steps' tokens that little is left to compare it with: nothing"
        " separates documents from the model's state",
    )


def _state(account: Account) -> Decision:
    return _of_many(
        account.stretches,
        "all blocks are up together",
        ": at least half of it is common to them, which points at the model's state (learning rate, optimizer,"
        " numerics) rather than at documents",
    )


def _of_many(stretches: Stretches, seen: str, means: str) -> Decision:
    """Return that it is the model's state, where it is seen in enough shards."""
    known = stretches.shard >= 0
    targets = np.bincount(stretches.shard[known], stretches.targets[known])
    number = int((targets >= _COUNTS * targets.max(initial=1)).sum())
    if number >= FEW_SHARDS:
        return Decision(reason="state", detail=seen + means)
    few = f"{seen}, and they are of {plural(number, 'shard')}: it takes {FEW_SHARDS} to part data from the rest"
    return Decision(reason="few_shards", detail=few)


def _together(account: Account) -> tuple[tuple[int, ...], Part | None]:
    """Return the fewest shards without which the episode lies inside the band, and what they add; else nothing."""
    shards, inverse = np.unique(account.stretches.shard, return_inverse=True)
    order = np.argsort(-np.bincount(inverse, account.parts(account.common())), kind="stable")
    order = order[shards[order] >= 0][:_TOGETHER]
    for number in range(2, len(order) + 1):
        part = account.part(np.isin(inverse, order[:number]))
        if part.inside and part.excess >= HALF * account.excess:
            return tuple(shards[order[:number]].tolist()), part
    return (), None


def decide_not_finite(stretches: Stretches, block_rows: int) -> Decision:
    """Return the unit that holds the losses that are no numbers."""
    broken = ~np.isfinite(stretches.loss)
    if broken.all():
        detail = "in the first such step no segment at all has a finite loss"
        if len(np.unique(stretches.units(block_rows))) == 1:
            return Decision(reason="one_block_fills_the_step", detail=detail)
        return _of_many(stretches, detail, "")
    if (stretches.shard[broken] < 0).all():
        return _MERGED
    for rows in (block_rows, 0):
        units = np.unique(stretches.units(rows)[broken])
        if len(units) == 1:
            return Decision(unit=Unit(number=int(units[0]), rows=rows))
    shards = tuple(np.unique(stretches.shard[broken & (stretches.shard >= 0)]).tolist())
    detail = f"in the first such step, segments of {plural(len(shards), 'shard')} have no finite loss"
    return Decision(reason="spread", detail=detail, together=shards[:_TOGETHER])
