"""Whether spikes of the loss follow upon a block of data more often than its place in the order explains by chance.

Of each block and shard it is counted how many episodes began within a few steps after it was read (the steps of the
episode itself are left to the accounting). The count is compared with what other orders of the same data would give:

- where the order is drawn at random (``documents`` or ``rows`` in the run log), against such orders: the items are
  permuted within their pass and laid out again, those of flagged steps stay where they are. Under the hypothesis that
  nothing read before matters, each of these orders was as likely as the real order, so the p-value is exact;
- else the episodes are shifted along the run, in a circle within each phase of it. What was read in one stretch
  without a gap cannot be distinguished from its time and is not tested.

The statistic of a unit is -log10 of the binomial tail of its count; the family of all units is kept by the largest
statistic of each order (Westfall & Young 1993, step-down). p = (1 + orders as extreme) / (1 + orders) (Phipson & Smyth
2010). Who looks again after further steps spends of alpha: look k has alpha / (k * (k + 1)).

What is redrawn or shifted is which steps read which block and shard, in the order of the stream. An *item* is what an
order moves: a document, or a whole row where rows are shuffled. Only the newest steps that follow each other and of
which the log has every stretch are tested; of older steps it keeps sums alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import lgamma
from typing import Any, Literal

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from dataaudit.base.statistics import Floats, Ints, Mask
from dataaudit.runlog.format import ATTRIBUTION_FILE
from dataaudit.training.attribution.findings import EventTestFound, Followed
from dataaudit.training.attribution.run_data import Data
from dataaudit.training.attribution.run_findings import number, numbered
from dataaudit.training.attribution.run_losses import learning_rates, rate_changes

Moves = Literal["documents", "rows"]
LAG = 8
"""Steps before an episode in which what was read counts."""
ORDERS = 999
"""Orders that are drawn, or shifts at most."""
ALPHA = 0.05
LISTED = 20
LEAST_PHASE = 50
"""Steps for which a learning rate has to rise, stay or fall to be a phase of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """Items in the order in which they were read, and what each of them is of."""

    first_step: int
    steps: int
    """How many follow each other from there."""
    item_first: Ints
    """int64[items] step of its first token, from 0."""
    item_last: Ints
    """int64[items] step of its last token."""
    piece_item: Ints
    piece_step: Ints
    piece_room: Ints
    """How much of an item lies in a step: targets, or 1 for each row where items are rows."""
    item_epoch: Ints
    """int64[items]; an order moves items within their pass alone."""
    pointers: Ints
    """int64[items + 1] into ``members``."""
    members: Ints
    """Place in ``units`` of each unit that an item holds, once."""
    units: Ints
    """int64[units] sorted; blocks as ``shard << 40 | block``, shards as ``-1 - shard``."""

    def __len__(self) -> int:
        return len(self.item_first)

    def units_of(self, items: Ints) -> Ints:
        """Return the distinct units of some items, as indices of ``units``."""
        lengths = self.pointers[items + 1] - self.pointers[items]
        if not len(items) or not int(lengths.sum()):
            return _NONE
        starts = np.repeat(self.pointers[items] - np.cumsum(lengths) + lengths, lengths)
        return np.unique(self.members[starts + np.arange(int(lengths.sum()))])

    def room_of(self, items: Ints) -> Ints:
        """Return how much room some items take up in each step: int64[steps]."""
        chosen = np.zeros(len(self), dtype=bool)
        chosen[items] = True
        inside = chosen[self.piece_item]
        return np.bincount(self.piece_step[inside], self.piece_room[inside], minlength=self.steps).astype(np.int64)


def exposure_of(
    stretches: pa.Table, steps: Ints, targets: Ints, twins: Ints, block_rows: int, *, moves: Moves = "documents"
) -> Exposure | None:
    """Return the exposure of the newest steps that are whole; None where there are none."""
    names = ("step", "micro_batch", "rank", "batch_row", "start", "shard", "row", "epoch", "targets")
    columns: dict[str, Ints] = {name: stretches[name].to_numpy().astype(np.int64) for name in names}
    chosen = _whole_steps(columns["step"], columns["targets"], steps, targets)
    if chosen is None:
        return None
    first, number = chosen
    inside = (columns["step"] >= first) & (columns["step"] < first + number) & (columns["targets"] > 0)
    columns = {name: column[inside] for name, column in columns.items()}
    order = np.lexsort(tuple(columns[name] for name in ("start", "batch_row", "rank", "micro_batch", "step")))
    columns = {name: column[order] for name, column in columns.items()}
    shard = np.append(twins, -1)[columns["shard"]]
    step = columns["step"] - first
    row = ("step", "micro_batch", "rank", "batch_row")
    keys = [columns[name] for name in row] if moves == "rows" else [shard, columns["row"], columns["epoch"]]
    new = np.zeros(len(step), dtype=bool)
    new[:1] = True
    for key in keys:
        new[1:] |= key[1:] != key[:-1]
    item = np.cumsum(new) - 1
    starts = np.flatnonzero(new)
    items = len(starts)
    slot = np.stack([columns[name] for name in row])
    rows = 1 + int((slot[:, 1:] != slot[:, :-1]).any(axis=0).sum()) if items else 0
    room = columns["targets"] if rows != items else new.astype(np.int64)
    pieces, piece = np.unique(np.stack([item, step]), axis=1, return_inverse=True)
    blocks = np.where(shard < 0, np.iinfo(np.int64).min, (shard << 40) | (np.maximum(columns["row"], 0) // block_rows))
    pairs = np.concatenate(
        [np.stack([item, blocks]), np.stack([item, np.where(shard < 0, blocks, -1 - shard)])], axis=1
    )
    pairs = np.unique(pairs[:, pairs[1] != np.iinfo(np.int64).min], axis=1)
    units, members = np.unique(pairs[1], return_inverse=True)
    return Exposure(
        first_step=first,
        steps=number,
        item_first=step[starts],
        item_last=step[np.append(starts[1:], len(step)) - 1] if items else step[:0],
        piece_item=pieces[0],
        piece_step=pieces[1],
        piece_room=np.bincount(piece.ravel(), room, minlength=pieces.shape[1]).astype(np.int64),
        item_epoch=columns["epoch"][starts],
        pointers=np.searchsorted(pairs[0], np.arange(items + 1)).astype(np.int64),
        members=members.astype(np.int64),
        units=units,
    )


def _whole_steps(of: Ints, sizes: Ints, steps: Ints, targets: Ints) -> tuple[int, int] | None:
    """Return the first and the number of the newest steps that follow each other and have all their stretches."""
    if not len(steps):
        return None
    at = np.searchsorted(steps, of)
    known = (at < len(steps)) & (steps[np.minimum(at, len(steps) - 1)] == of)
    whole: Any = np.bincount(at[known], sizes[known], minlength=len(steps)) >= targets
    read = np.flatnonzero(whole & (targets > 0))
    if not len(read):
        return None
    last = int(read[-1])
    first = last
    while first > 0 and whole[first - 1] and steps[first] - steps[first - 1] == 1:
        first -= 1
    return int(steps[first]), last - first + 1


def alpha_of_look(look: int, alpha: float = ALPHA) -> float:
    """Return what of alpha the k-th look at a run may spend, from 1; all looks together spend alpha at most."""
    return alpha / (look * (look + 1))


def event_test(
    exposure: Exposure,
    onsets: Ints,
    flagged: Ints,
    *,
    random_order: bool,
    phases: Sequence[int] = (),
    lag: int = LAG,
    orders: int = ORDERS,
    seed: int = 0,
    look: int = 1,
    own_data: int = 0,
    named: Callable[[int], dict[str, Any]] = numbered,
) -> EventTestFound:
    """Test all units."""
    random = np.random.Generator(np.random.PCG64([seed, len(exposure), len(onsets)]))
    onsets = np.unique(onsets)
    if random_order:
        draws = _redrawn(exposure, onsets, flagged, lag, orders, random)
        apart = _NONE
    else:
        offsets = _offsets(_phases(exposure.steps, phases), onsets, orders, random)
        draws = (
            _together(exposure.units_of(np.flatnonzero(_inside(exposure, window))) for window in windows)
            for windows in _shifted(exposure.steps, onsets, phases, offsets, lag)
        )
        apart = read_without_a_gap(exposure, lag)
    counts = [_without(draw, apart) for draw in draws]
    tested, alpha = len(exposure.units) - len(apart), alpha_of_look(look)
    units = tuple(
        Followed(**named(int(exposure.units[item])), episodes=count, expected=round(expected, 6), p=round(p, 12))
        for item, count, expected, p in _followed(exposure, counts, len(onsets))
    )
    reason: Literal["", "own_data", "not_identifiable"] = (
        "not_identifiable" if not tested else "" if len(onsets) else "own_data"
    )
    follows = any(followed.p <= alpha for followed in units)
    return EventTestFound(
        outcome="not_evaluated" if reason else "follows" if follows else "no_more_than_chance",
        reason=reason,
        null="redrawn" if random_order else "shifted",
        lag=lag,
        episodes=len(onsets),
        own_data=own_data,
        first_step=exposure.first_step,
        last_step=exposure.first_step + exposure.steps - 1,
        orders=len(counts) - 1,
        smallest_p=number(1 / len(counts)),
        look=look,
        alpha=alpha,
        tested=tested,
        not_identifiable=len(apart),
        units=units,
    )


Counts = tuple[Ints, Ints]
"""Units, and how many episodes followed upon each; those upon which none did are left out."""
Windows = list[list[tuple[int, int]]]
"""Of each episode, first and last steps before it; two where a circle is closed within them."""


_NONE = np.zeros(0, np.int64)


def _redrawn(
    exposure: Exposure, onsets: Ints, flagged: Ints, lag: int, orders: int, random: np.random.Generator
) -> Iterator[Counts]:
    """Yield the counts of the real order, laid out as the others are, and of orders that were drawn."""
    before = np.zeros(exposure.steps + 1, dtype=np.int64)
    before[1:][flagged[(flagged >= 0) & (flagged < exposure.steps)]] = 1
    before = np.cumsum(before)
    fixed = before[exposure.item_last + 1] > before[exposure.item_first]
    fixed[:1] = fixed[-1:] = True  # they are cut off by the first and the last step
    free = np.flatnonzero(~fixed)
    sizes = np.bincount(exposure.piece_item, exposure.piece_room, minlength=len(exposure)).astype(np.int64)
    room = np.concatenate([[0], np.cumsum(exposure.room_of(free))])
    windows = [(max(0, at - lag), at - 1) for at in onsets.tolist() if at]
    stay = [np.flatnonzero(fixed & _inside(exposure, [window])) for window in windows]
    begin = np.array([room[first] for first, _ in windows], dtype=np.int64)
    end = np.array([room[last + 1] for _, last in windows], dtype=np.int64)
    passes = [np.flatnonzero(exposure.item_epoch[free] == item) for item in np.unique(exposure.item_epoch[free])]
    for order in range(orders + 1):
        met = free.copy()
        for places in passes if order else ():
            met[places] = free[random.permutation(places)]
        stops = np.cumsum(sizes[met])
        first = np.searchsorted(stops, begin, "right")
        last = np.searchsorted(stops, end, "left") + 1
        yield _together(
            exposure.units_of(np.concatenate([met[item:other], others]))
            for item, other, others in zip(first, last, stay, strict=True)
        )


def _inside(exposure: Exposure, window: list[tuple[int, int]]) -> Mask:
    """Return which items lie in a window, wholly or in part: bool[items]."""
    inside = np.zeros(len(exposure), dtype=bool)
    for begin, end in window:
        inside |= (exposure.item_first <= end) & (exposure.item_last >= begin)
    return inside


def _together(by_window: Iterable[Ints]) -> Counts:
    """Count how many windows each unit is in."""
    return np.unique(np.concatenate([_NONE, *by_window]), return_counts=True)


def _phases(steps: int, phases: Sequence[int]) -> Ints:
    """Return where phases begin, and the end: int64[phases + 1]."""
    inner = [phase for phase in phases if 0 < phase < steps]
    return np.unique(np.array([0, *inner, steps], dtype=np.int64))


def _offsets(borders: Ints, onsets: Ints, most: int, random: np.random.Generator) -> Ints:
    """Return shifts of phases with an episode, [shifts, phases], the first by nothing; all if they are few."""
    sizes = np.diff(borders)
    sizes = np.where(np.histogram(onsets, borders)[0] > 0, sizes, 1)
    there = float(np.prod(sizes.astype(np.float64)))
    if there <= most + 1:
        return np.stack(np.unravel_index(np.arange(int(there)), tuple(sizes.tolist())), axis=1).astype(np.int64)
    shifts: dict[tuple[int, ...], None] = {(0,) * len(sizes): None}
    while len(shifts) <= most:
        shifts[tuple(random.integers(0, sizes).tolist())] = None
    return np.array(list(shifts), dtype=np.int64)


def _shifted(steps: int, onsets: Ints, phases: Sequence[int], offsets: Ints, lag: int) -> Iterator[Windows]:
    """Yield the windows before episodes that are shifted in a circle within their phase."""
    borders = _phases(steps, phases)
    phase = np.searchsorted(borders, onsets, "right") - 1
    begin, size = borders[phase], np.diff(borders)[phase]
    for offset in offsets:
        at = begin + (onsets - begin + offset[phase]) % size
        windows: Windows = []
        for place, low, length in zip(at.tolist(), begin.tolist(), size.tolist(), strict=True):
            start = place - min(lag, length - 1)
            pieces = [(max(low, start), place - 1)]
            if start < low:
                pieces.append((low + length - (low - start), low + length - 1))
            windows.append([piece for piece in pieces if piece[0] <= piece[1]])
        yield windows


def read_without_a_gap(exposure: Exposure, lag: int = LAG) -> Ints:
    """Return the places of units all of whose items follow each other with no gap wider than the lag."""
    item = np.repeat(np.arange(len(exposure)), np.diff(exposure.pointers))
    first, last = exposure.item_first[item], exposure.item_last[item]
    order = np.lexsort((first, exposure.members))
    unit, first, last = exposure.members[order], first[order], last[order]
    gap = (unit[1:] == unit[:-1]) & (first[1:] - last[:-1] > lag)
    broken = np.unique(unit[1:][gap])
    return np.setdiff1d(np.arange(len(exposure.units)), broken)


def _without(counts: Counts, units: Ints) -> Counts:
    kept = ~np.isin(counts[0], units)
    return counts[0][kept], counts[1][kept]


def _followed(exposure: Exposure, counts: list[Counts], episodes: int) -> Iterator[tuple[int, int, float, float]]:
    """Yield the places of units with the smallest p, episodes that followed upon them and by chance would, and p."""
    number = len(counts)
    unit, count = (np.concatenate(columns) for columns in zip(*counts, strict=True))
    order = np.repeat(np.arange(number), [len(item[0]) for item in counts])
    mean = np.bincount(unit, count, minlength=len(exposure.units)) / number
    statistic = _tail(count, mean[unit] / max(1, episodes), episodes)
    mine = order == 0
    ranked = np.flatnonzero(mine)[np.argsort(-statistic[mine], kind="stable")][:LISTED]
    worst, left = 0.0, np.ones(len(unit), dtype=bool)
    for place in ranked.tolist():
        most = np.full(number, -np.inf)
        np.maximum.at(most, order[left], statistic[left])
        worst = max(worst, float((most >= statistic[place] * (1 - 1e-12)).sum()) / number)
        left &= unit != unit[place]
        yield int(unit[place]), int(count[place]), float(mean[unit[place]]), worst


def _tail(count: Ints, chance: Floats, episodes: int) -> Floats:
    """Return -log10 P(X >= count), X binomial of so many episodes with a chance each."""
    chance = np.clip(chance, 1e-12, 1 - 1e-12)
    there = np.arange(episodes + 1)
    ways = np.array([lgamma(episodes + 1) - lgamma(k + 1) - lgamma(episodes - k + 1) for k in there.tolist()])
    total = np.zeros(len(count))
    for k in there.tolist():
        term = np.exp(ways[k] + k * np.log(chance) + (episodes - k) * np.log1p(-chance))
        total += np.where(k >= count, term, 0.0)
    return -np.log10(np.clip(total, 1e-300, 1.0))


def event_test_of(data: Data, of_state: Sequence[bool]) -> EventTestFound:
    """Test whether the episodes of a run follow upon blocks of its data.

    Where the order was not drawn at random, what an episode's own steps read has neighbours that are read before it
    each time. So only those count whose own steps are not to blame: all blocks were up together, of several shards.
    """
    curve, judged, run = data.curve, data.judged, data.log.run
    untested = EventTestFound(outcome="not_evaluated", lag=LAG, alpha=alpha_of_look(1))
    if not judged.spikes:
        return untested.model_copy(update={"reason": "no_episode"})
    steps = data.log.table("steps")
    step, inverse = np.unique(steps["step"].to_numpy(), return_inverse=True)
    targets = np.bincount(inverse, steps["targets"].to_numpy(), minlength=len(step)).astype(np.int64)
    exposure = exposure_of(
        data.log.table("stretches"),
        step.astype(np.int64),
        targets,  # of some no loss may be known, as where every tenth is logged
        data.twins,
        run.block_rows,
        moves="rows" if run.order == "rows" else "documents",
    )
    if exposure is None:
        return untested.model_copy(update={"reason": "no_stretches"})
    first, last = exposure.first_step, exposure.first_step + exposure.steps - 1
    counted = np.array([True] * len(judged.spikes) if run.order else of_state)
    onsets = np.array([int(curve.step[spike.first]) for spike in judged.spikes], dtype=np.int64) - first
    flagged = np.concatenate([curve.step[spike.places] for spike in judged.spikes]).astype(np.int64) - first
    inside = (onsets >= 0) & (onsets < exposure.steps)
    if not inside.any():
        return untested.model_copy(update={"reason": "no_episode", "first_step": first, "last_step": last})
    events = data.log.table("events")
    resumed = events.filter(pc.equal(events["kind"], "resumed"))["step"].to_pylist()
    phases = sorted({*(int(step) + 1 for step in resumed), *_rate_phases(*learning_rates(data))})
    return event_test(
        exposure,
        onsets[inside & counted],
        flagged,
        random_order=bool(run.order),
        phases=[step - first for step in phases],
        look=_look(data, last),
        own_data=int((inside & ~counted).sum()),
        named=data.named_unit,
    )


def _rate_phases(step: Ints, rate: Floats) -> list[int]:
    """Return first steps, but of the first phase, where a learning rate begins to rise, stay or fall for long."""
    if len(rate) <= LEAST_PHASE:
        return []
    change = rate_changes(rate)
    edges = np.concatenate([[0], np.flatnonzero(np.diff(change)) + 1, [len(change)]])
    long = [int(a) for a, b in itertools.pairwise(edges) if b - a >= LEAST_PHASE]
    return [int(step[a]) for a in long[1:]]


def _look(data: Data, last: int) -> int:
    """Return which look at the run this is: one more than before, if the log has got further since."""
    try:
        before = orjson.loads((data.log.folder / ATTRIBUTION_FILE).read_bytes())["event_test"]
        look, until = int(before["look"]), int(before["last_step"])
    except (OSError, ValueError, TypeError, KeyError):
        return 1
    return look + (last > until)
