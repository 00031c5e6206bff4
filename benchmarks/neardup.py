"""MinHash signatures beside datasketch, rensa and datatrove: the same documents, one core, one run.

    pip install --group peers nltk
    python benchmarks/neardup.py FOLDER [--documents 300] [--rounds 3]

FOLDER holds shards with a column `text`; documents are taken evenly from all of it. All times are of the whole way
from text to 128 values a document, so they hold what each one needs to get its shingles: for datasketch and rensa
words by a regular expression and 5-grams in Python, for datatrove its own signature step (its tokenizer, 112 values).
Two more rows leave the shingles out for rensa and for us: the same 32-bit hashes of the same shingles are given to
rensa's flat batch call. Times are CPU times of this process, the median of the rounds; ratios are what counts.
"""

from __future__ import annotations

import itertools
import os
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from common import has, head, megabytes, options, read_texts, row

from dataaudit.scan.corpus.segments import text_buffers
from dataaudit.scan.kernels.minhash import fold, shingle_hashes, sketch
from dataaudit.scan.kernels.words import split_words

NUM_PERM = 128
NGRAM = 5
_WORDS = re.compile(r"\w+")


def shingles(text: str) -> list[str]:
    """Return the 5-grams of words, as a Python program would."""
    words = _WORDS.findall(text.lower())
    return [" ".join(words[place : place + NGRAM]) for place in range(max(1, len(words) - NGRAM + 1))]


def ours(texts: pa.LargeStringArray) -> np.ndarray:
    """Return uint32[n, 128] from texts."""
    offsets, values = text_buffers(texts)
    words = split_words(values, offsets)
    return sketch(words.hashes, words.offsets, ngram=NGRAM, num_perm=NUM_PERM)[0]


def peers(texts: list[str], array: pa.LargeStringArray) -> dict[str, Callable[[], Any]]:
    """Return what is timed, by name, of the peers that are installed."""
    found: dict[str, Callable[[], Any]] = {}
    offsets, values = text_buffers(array)
    words = split_words(values, offsets)
    if has("datasketch", "datasketch"):
        from datasketch import MinHash

        def datasketch() -> list[Any]:
            made = []
            for text in texts:
                one = MinHash(num_perm=NUM_PERM, scheme="affine32")
                one.update_batch([shingle.encode() for shingle in shingles(text)])
                made.append(one)
            return made

        found["datasketch, `update_batch`, Python shingles"] = datasketch
    if has("rensa"):
        from rensa import RMinHash

        wide, bounds = shingle_hashes(words.hashes, words.offsets, ngram=NGRAM)
        flat, places = fold(wide).astype(np.uint64), bounds.astype(np.uint64)
        rounds = itertools.count(1)  # other values each time: what rensa has seen before it does not compute again
        found["rensa, `digest_matrix_from_token_sets`, Python shingles"] = lambda: (
            RMinHash.digest_matrix_from_token_sets([set(shingles(text)) for text in texts], NUM_PERM, 1)
        )
        found["rensa, `digest_matrix_from_token_byte_sets`, Python shingles"] = lambda: (
            RMinHash.digest_matrix_from_token_byte_sets(
                [[shingle.encode() for shingle in set(shingles(text))] for text in texts], NUM_PERM, 1
            )
        )
        found["rensa, flat hashes of shingles at hand"] = lambda: RMinHash.digest_matrix_from_flat_token_hashes(
            flat ^ np.uint64(next(rounds)), places, NUM_PERM, 1
        )
    if has("datatrove") and has("nltk", "nltk"):
        from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupSignature

        step = MinhashDedupSignature("unused", MinhashConfig())
        step.get_signature(step.get_shingles(texts[0]))
        found["datatrove, signature step"] = lambda: [step.get_signature(step.get_shingles(text)) for text in texts]
    found["dataaudit, words at hand"] = lambda: sketch(words.hashes, words.offsets, ngram=NGRAM, num_perm=NUM_PERM)
    return found


def cpu_seconds(call: Callable[[], Any]) -> float:
    """Return the CPU time of one call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def main() -> None:
    """Print a table of speeds and ratios."""
    given = options(__doc__, folder=Path, documents=300, rounds=3)
    os.environ["RAYON_NUM_THREADS"] = "1"  # before rensa is imported
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    texts = read_texts(given.folder, given.documents)
    size = megabytes(texts)
    array = pa.array(texts, pa.large_string())
    ours(array.slice(0, 2))  # compile
    calls: dict[str, Callable[[], Any]] = {"dataaudit, from text": lambda: ours(array)} | peers(texts, array)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(given.rounds):
        for name, call in calls.items():
            seconds[name].append(cpu_seconds(call))
    print(f"{len(texts):,} documents, {size:.1f} MB")
    head("signatures", "MB/s", "times as long as dataaudit from text")
    base = statistics.median(seconds["dataaudit, from text"])
    for name, times in seconds.items():
        middle = statistics.median(times)
        row(name, f"{size / middle:.2f}", f"{middle / base:.1f}")


if __name__ == "__main__":
    main()
