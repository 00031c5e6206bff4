"""What is drawn of real logs for the study of spikes: chunks of runs, names permuted, documents in place of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from spike_corpus import shuffle_buffer
from spike_logs import BLOCK_ROWS, Log

from dataaudit.training.attribution.event_permutation import Exposure, exposure_of
from dataaudit.training.attribution.residual_outliers import Documents
from dataaudit.training.attribution.spikes import GAP

OF_DOCUMENTS = ("own", "unit", "source", "mean", "precision", "overlap")
CHUNK = 50
"""Steps that are drawn together."""
Random = np.random.Generator


def trend(curve: np.ndarray) -> np.ndarray:
    """Return the running median of 101 steps of a curve."""
    padded = np.pad(curve, 50, mode="edge")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, 101), axis=1)


def resampled(logs: Sequence[Log], random: Random, jump: Log | None = None) -> Log:
    """Return a log of steps of several runs, in chunks, each at most once, moved to the level of the first run there.

    Args:
        logs: Of clean runs of one order, of the same length.
        random: Draws.
        jump: A run whose learning rate jumps: the steps from there on are put in, at a random place.
    """
    level, steps = trend(logs[0].curve), logs[0].steps
    levels = [trend(one.curve) for one in logs]
    begins = range(2 * CHUNK, steps - CHUNK + 1, CHUNK)
    chunks = random.permutation(len(logs) * len(begins))[: len(begins)].tolist()
    shift = random.integers(0, CHUNK, len(logs))
    run, source, to = [np.zeros(2 * CHUNK, np.int64)], [np.arange(2 * CHUNK)], [np.arange(2 * CHUNK)]
    for begin, chunk in zip(begins, chunks, strict=True):
        which, place = divmod(chunk, len(begins))
        run.append(np.full(CHUNK, which))
        source.append(np.minimum(begins[place] + int(shift[which]) + np.arange(CHUNK), steps - 1))
        to.append(begin + np.arange(CHUNK))
    runs, sources, places = (np.concatenate(one) for one in (run, source, to))
    kept, jumps, more = np.ones(len(places), dtype=bool), (), []
    if jump is not None:
        first = jump.jumps[int(random.integers(len(jump.jumps)))] - 1
        number = min(80, jump.steps - first)
        at = int(random.integers(300, len(places) - number))
        kept = (places < at) | (places >= at + number)
        moved = np.full(number, level[at] - np.median(jump.curve[first - 50 : first]))
        more = [(jump, first + np.arange(number), at + np.arange(number), moved)]
        jumps = (at + 1,)
    pieces = []
    for which, log in enumerate(logs):
        own = kept & (runs == which)
        pieces.append((log, sources[own], places[own], level[places[own]] - levels[which][sources[own]]))
    pieces += more
    norms, rates = np.zeros(len(places)), np.zeros(len(places))
    for log, taken, put, _ in pieces:
        norms[put], rates[put] = log.norms[taken], log.rates[taken]
    columns = [_moved(*one) for one in pieces]
    joined = {name: np.concatenate([one[name] for one in columns]) for name in logs[0].columns}
    order = np.argsort(joined["step"], kind="stable")
    joined = {name: one[order] for name, one in joined.items()}
    return replace(logs[0], columns=joined, norms=norms, rates=rates, jumps=jumps)


def _moved(log: Log, source: np.ndarray, to: np.ndarray, by: np.ndarray) -> dict[str, np.ndarray]:
    """Return the stretches of some steps, at other steps, their losses moved."""
    begins = np.searchsorted(log["step"], np.arange(1, log.steps + 2))
    lengths = begins[source + 1] - begins[source]
    picked = np.repeat(begins[source] - np.cumsum(lengths) + lengths, lengths) + np.arange(int(lengths.sum()))
    columns = {name: one[picked] for name, one in log.columns.items()}
    return columns | {"step": np.repeat(to + 1, lengths), "loss": columns["loss"] + np.repeat(by, lengths)}


def relabelled(log: Log, random: Random, *, within_source: bool) -> Log:
    """Return the log with the names of its documents permuted."""
    key = log["shard"] * log.rows + log["row"]
    documents, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    to = np.empty_like(documents)
    groups = log["source"][first] if within_source else np.zeros(len(documents), dtype=np.int64)
    for one in np.unique(groups):
        places = np.flatnonzero(groups == one)
        to[places] = documents[random.permutation(places)]
    new = to[inverse]
    return replace(log, columns=log.columns | {"shard": new // log.rows, "row": new % log.rows}, blocks=())


def planted_among(
    clean: Documents, bad: Documents, blocks: int, documents: int, source: int, random: Random
) -> tuple[Documents, np.ndarray]:
    """Return documents among which some, in blocks of a source, are ones of a fault; and these blocks."""
    units = np.unique(clean.unit[clean.source == source])
    chosen = random.choice(units, blocks, replace=False)
    mean, precision = clean.mean.copy(), clean.precision.copy()
    for unit in chosen.tolist():
        places = np.flatnonzero(clean.unit == unit)[:documents]
        drawn = random.integers(0, len(bad.unit), len(places))
        mean[places], precision[places] = bad.mean[drawn], bad.precision[drawn]
    return replace(clean, mean=mean, precision=precision), chosen


def of_blocks(log: Log, documents: Documents) -> Documents:
    """Return the documents of what was planted."""
    inside = np.isin(documents.unit, [shard << 40 | block for shard, block in log.blocks])
    columns = {name: getattr(documents, name)[inside] for name in OF_DOCUMENTS}
    return replace(documents, **columns)


def pooled(parts: Sequence[Documents]) -> Documents:
    """Return the documents of several runs."""
    columns = {name: np.concatenate([getattr(one, name) for one in parts]) for name in OF_DOCUMENTS}
    return replace(parts[0], **columns)


def many_blocks(clean: Documents, bad: Documents, random: Random, *, whole: bool, blocks: int = 10_000) -> Documents:
    """Return documents of so many blocks, the first 20 of them bad."""
    units, counts = np.unique(clean.unit, return_counts=True)
    order = np.argsort(clean.unit, kind="stable")
    begins = np.concatenate([[0], np.cumsum(counts)])
    drawn = random.integers(0, len(units), blocks)
    source = clean.source[order[begins[drawn]]]
    if whole:
        picked = order[
            (
                begins[drawn][:, None] + (random.random((blocks, BLOCK_ROWS)) * counts[drawn][:, None]).astype(int)
            ).ravel()
        ]
    else:
        picked = np.zeros(blocks * BLOCK_ROWS, dtype=np.int64)
        for one in np.unique(source):
            wanted = np.repeat(source == one, BLOCK_ROWS)
            picked[wanted] = random.choice(np.flatnonzero(clean.source == one), int(wanted.sum()))
    mean, precision = clean.mean[picked], clean.precision[picked]
    other = random.integers(0, len(bad.unit), 20 * BLOCK_ROWS)
    mean[: len(other)], precision[: len(other)] = bad.mean[other], bad.precision[other]
    source[:20] = bad.source[0]
    unit = np.repeat(np.arange(blocks), BLOCK_ROWS)
    overlap = np.zeros(len(unit))
    source = np.repeat(source, BLOCK_ROWS)
    return replace(clean, own=unit, unit=unit, source=source, mean=mean, precision=precision, overlap=overlap)


def order_of(order: str, starts: np.ndarray, epochs: int, seed: int) -> np.ndarray:
    """Return documents as an order reads them, pass after pass."""
    number = int(starts[-1])
    if order == "sequential":
        return np.tile(np.arange(number), epochs)
    if order == "buffered":
        return shuffle_buffer(starts, 64, epochs, seed)
    return np.concatenate([np.random.default_rng([seed, one]).permutation(number) for one in range(epochs)])


def read(
    order: np.ndarray, lengths: np.ndarray, shard: np.ndarray, row: np.ndarray, rows: int, context: int
) -> Exposure:
    """Return what was read when: documents packed into rows, rows into steps."""
    ends = np.cumsum(lengths[order])
    whole = int(ends[-1]) // (rows * context) * rows * context
    cuts = np.unique(np.concatenate([ends[ends < whole], np.arange(0, whole, context)]))
    place = np.searchsorted(ends, cuts, "right")
    line, document = cuts // context, order[place]
    columns = {
        "step": line // rows + 1,
        "micro_batch": np.zeros_like(cuts),
        "rank": np.zeros_like(cuts),
        "batch_row": line % rows,
        "start": cuts % context,
        "shard": shard[document],
        "row": row[document],
        "epoch": place // len(lengths),
        "targets": np.diff(np.append(cuts, whole)),
    }
    steps = np.arange(1, whole // (rows * context) + 1)
    found = exposure_of(
        pa.table(columns), steps, np.full(len(steps), rows * context), np.arange(shard.max() + 1), BLOCK_ROWS
    )
    assert found is not None
    return found


def onsets_after(exposure: Exposure, unit: int, chance: float, random: Random) -> np.ndarray:
    """Return first steps of episodes: some after reads of a unit, five at random; those within 10 steps are one."""
    place = int(np.searchsorted(exposure.units, unit))
    item = np.repeat(np.arange(len(exposure)), np.diff(exposure.pointers))[exposure.members == place]
    read_at = exposure.item_last[item]
    read_at = read_at[random.random(len(read_at)) < chance]
    after = read_at + random.integers(1, 9, len(read_at))
    onsets = np.sort(np.concatenate([after, random.integers(0, exposure.steps, 5)]))
    onsets = onsets[onsets < exposure.steps]
    kept: list[int] = []
    for one in onsets.tolist():
        if not kept or one - kept[-1] > GAP:
            kept.append(one)
    return np.array(kept, dtype=np.int64)
