"""Near-duplicates of known similarity, made of a document's own words: what the search for duplicates is tested with.

Each variant is one of five edits, at a strength that brings its Jaccard similarity to somewhere in
[:data:`LEAST`, :data:`MOST`]: words replaced, left out or put in here and there; one block replaced by other words; one
block left out; blocks put in another order; new words before and after. Which one, how strong and where follows from
the seed. Strengths are approximate (words that repeat, short documents): the exact similarity is computed afterwards.
"""

from __future__ import annotations

import numpy as np

from dataaudit.kernels.jit import READ_OFFSETS, Integer, compiled, helper
from dataaudit.kernels.minhash import READ_HASHES
from dataaudit.kernels.ngrams import BASE, mix64

LEAST, MOST = 0.6, 0.95
NUM_EDITS = 5

_U64 = np.uint64


def make_variants(
    hashes: np.ndarray, offsets: np.ndarray, seeds: np.ndarray, *, ngram: int = 5
) -> tuple[np.ndarray, np.ndarray]:
    """Return a variant of every document, as uint64 word hashes and int64[n + 1] offsets.

    Args:
        hashes: uint64[w] word hashes.
        offsets: int64[n + 1] the words of document i are ``hashes[offsets[i]:offsets[i + 1]]``, at least ``ngram``.
        seeds: uint64[n] what decides the edits; equal documents of equal seeds have equal variants.
        ngram: Words of a shingle.
    """
    made = np.empty(2 * len(hashes) + 4 * len(seeds), dtype=np.uint64)
    bounds = np.zeros(len(offsets), dtype=np.int64)
    _make(hashes, offsets, seeds, ngram, made, bounds)
    return made[: bounds[-1]].copy(), bounds


@helper
def _uniform(state: np.uint64) -> float:
    """Return a number in [0, 1) of a state."""
    return np.float64(mix64(state) >> _U64(11)) * 2.0**-53


@compiled(f"void({READ_HASHES}, {READ_OFFSETS}, {READ_HASHES}, int64, uint64[::1], int64[::1])")
def _make(
    hashes: np.ndarray, offsets: np.ndarray, seeds: np.ndarray, ngram: Integer, made: np.ndarray, bounds: np.ndarray
) -> None:
    for document in range(len(seeds)):
        start, stop = offsets[document], offsets[document + 1]
        state = mix64(seeds[document] + BASE)
        jaccard = LEAST + (MOST - LEAST) * _uniform(state)
        state += BASE
        edit: Integer = np.int64(_uniform(state) * NUM_EDITS)
        state += BASE
        shingles = np.float64(stop - start - ngram + 1)
        lost = shingles * (1 - jaccard) / (1 + jaccard)  # where as many are lost as are new
        place = _uniform(state)
        if lost < 2 * ngram and edit not in (2, 4):
            edit = 2 if edit == 0 else 4  # one change would be too much: some are left out, or added
        if lost < 2 * ngram:
            place = 1.0
        done = bounds[document]
        if edit == 0:
            done = _scatter(hashes, start, stop, lost / ngram / (stop - start), state, made, done)
        elif edit == 1:
            block: Integer = max(1, np.int64(lost) - ngram + 1)
            done = _replace(hashes, start, stop, min(block, stop - start), block, place, state, made, done)
        elif edit == 2:
            block = max(1, np.int64(shingles * (1 - jaccard)))
            done = _replace(hashes, start, stop, min(block, stop - start), 0, place, state, made, done)
        elif edit == 3:
            done = _reorder(hashes, start, stop, max(1, np.int64(lost / (ngram - 1 if ngram > 1 else 1))), made, done)
        else:
            block = max(1, np.int64(shingles * (1 / jaccard - 1)))
            before = np.int64(block * _uniform(state))
            done = _fresh(before, state + BASE, made, done)
            done = _replace(hashes, start, stop, 0, 0, place, state, made, done)
            done = _fresh(block - before, ~state, made, done)
        bounds[document + 1] = done


@helper
def _fresh(count: Integer, state: np.uint64, made: np.ndarray, done: Integer) -> Integer:
    """Append words that occur nowhere else."""
    for _ in range(count):
        made[done] = mix64(state)
        state += BASE
        done += 1
    return done


@helper
def _replace(
    hashes: np.ndarray,
    start: Integer,
    stop: Integer,
    left_out: Integer,
    put_in: Integer,
    place: float,
    state: np.uint64,
    made: np.ndarray,
    done: Integer,
) -> Integer:
    """Append the words with some that are side by side left out and new ones in their place, from 0 to 1 the end."""
    first = start + np.int64((stop - start - left_out) * place)
    for index in range(start, first):
        made[done] = hashes[index]
        done += 1
    done = _fresh(put_in, state + BASE, made, done)
    for index in range(first + left_out, stop):
        made[done] = hashes[index]
        done += 1
    return done


@helper
def _scatter(
    hashes: np.ndarray, start: Integer, stop: Integer, share: float, state: np.uint64, made: np.ndarray, done: Integer
) -> Integer:
    """Append the words, a share of them each replaced, left out, or with a new one before it."""
    for index in range(start, stop):
        state += BASE
        chance = _uniform(state)
        if chance >= share:
            made[done] = hashes[index]
            done += 1
            continue
        kind = np.int64(chance / share * 3)
        if kind != 1:
            made[done] = mix64(~state)
            done += 1
        if kind == 2:
            made[done] = hashes[index]
            done += 1
    return done


@helper
def _reorder(
    hashes: np.ndarray, start: Integer, stop: Integer, cuts: Integer, made: np.ndarray, done: Integer
) -> Integer:
    """Append the words cut into blocks of about equal size, the last block first."""
    blocks = min(cuts + 1, stop - start)
    for block in range(blocks - 1, -1, -1):
        for index in range(start + (stop - start) * block // blocks, start + (stop - start) * (block + 1) // blocks):
            made[done] = hashes[index]
            done += 1
    return done
