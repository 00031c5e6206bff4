"""Near-duplicates among pages of one template: what a build finds beside all pairs, the recall that it says, CPU time.

    python benchmarks/near_templates.py [FOLDER ...] [--documents 3000]

Three corpora are made: pages of one template of which every two differ in 2 or in 4 of 100 words, each with a page of
similarity 0.78 to 0.9; and one notice many times, with three words changed in each. A FOLDER holds JSON lines, for
example two versions of generated documentation. All documents are compared with all others by their sets of word
5-grams (scipy's sparse product); those that are alike and not equal in their words are what has to be found.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from itertools import chain
from pathlib import Path

import numpy as np
from common import head, options, row
from scipy.sparse import csr_array

import dataaudit
from dataaudit.manifest.metric import Scope
from dataaudit.scan.kernels.plain_words import words_of

THRESHOLD, NGRAM, AT_ONCE = 0.8, 5, 500
WORDS = [f"word{number}" for number in range(3000)]


def pages(count: int, kept: float) -> list[str]:
    """Return pages of one template, each with one that is near, in any order."""
    generator, texts = random.Random(1), []
    template = generator.choices(WORDS, k=350)

    def changed(words: list[str], blocks: int, size: int) -> list[str]:
        words = list(words)
        for _ in range(blocks):
            place = generator.randrange(len(words) - size)
            words[place : place + size] = generator.choices(WORDS, k=size)
        return words

    for _ in range(count // 2):
        own = changed(template, 6, round((1 - kept) * 350 / 6))
        texts += [" ".join(own), " ".join(changed(own, 2, generator.randrange(7, 17)))]
    generator.shuffle(texts)
    return texts


def notices(count: int) -> list[str]:
    """Return one notice many times."""
    generator, texts = random.Random(2), []
    notice = generator.choices(WORDS, k=300)
    for _ in range(count):
        words = list(notice)
        for _ in range(3):
            words[generator.randrange(300)] = generator.choice(WORDS)
        texts.append(" ".join(words))
    return texts


def near(texts: list[str]) -> set[int]:
    """Return the documents that are alike with an earlier one and equal no earlier one in their words."""
    vocabulary: dict[tuple[str, ...], int] = {}
    seen, fresh, rows = set[tuple[str, ...]](), [], []
    for text in texts:
        words = tuple(word.text for word in words_of(text))
        fresh.append(words not in seen)
        seen.add(words)
        grams = {words[start : start + NGRAM] for start in range(max(1, len(words) - NGRAM + 1)) if words}
        rows.append([vocabulary.setdefault(gram, len(vocabulary)) for gram in grams])
    sizes = np.array(list(map(len, rows)))
    flat = np.fromiter(chain.from_iterable(rows), dtype=np.int64)
    matrix = csr_array((np.ones(len(flat), dtype=np.int32), flat, np.append(0, np.cumsum(sizes))))
    found = set[int]()
    for start in range(0, len(texts), AT_ONCE):
        shared = (matrix[start : start + AT_ONCE] @ matrix.T).toarray()
        alike = shared >= THRESHOLD * (sizes[start : start + AT_ONCE, None] + sizes[None, :] - shared)
        alike &= (np.arange(len(texts))[None, :] < start + np.arange(len(shared))[:, None]) & (sizes > 0)
        found |= {start + place for place in np.flatnonzero(alike.any(axis=1)).tolist() if fresh[start + place]}
    return found


def measure(name: str, texts: list[str]) -> None:
    """Build and print a row."""
    with tempfile.TemporaryDirectory() as folder:
        shard = Path(folder) / "train/a.jsonl"
        shard.parent.mkdir()
        shard.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
        off = dict.fromkeys(("language", "filters", "toxicity", "pii", "secrets", "overlap", "repeats"), False)
        config = {"splits": {"train": {"paths": ["train/*"], "text": "text"}}, "stages": off}
        start = time.process_time()
        built = dataaudit.build(config, manifest=Path(folder) / "m", base=Path(folder), workers=0)
        seconds = time.process_time() - start
        manifest = built.manifest
        reported = set(manifest.table("pairs")["right_row"].to_pylist())
        (recall,) = [one for one in manifest.metrics("near_dup_rate", "recall") if one.scope.rule is None]
        (rate,) = manifest.metrics("near_dup_rate", "rate", Scope())
    true = near(texts)
    bounds = f"{recall.value:.4f} ({recall.low:.4f} to {recall.high:.4f}) on {recall.n}" if recall.value else "-"
    share = len(true & reported) / max(1, len(true))
    row(name, f"{len(texts):,}", f"{len(true):,}", f"{share:.4f}", bounds, rate.method, f"{seconds:.1f}")


def main() -> None:
    """Measure the made corpora and those that are given."""
    given = options(__doc__, folders=[Path, ...], documents=3000)
    head("corpus", "documents", "near, not equal", "found", "recall, as the manifest says", "rate", "CPU s")
    count = given.documents
    made = [(f"template, {kept} kept", lambda kept=kept: pages(count, kept)) for kept in (0.95, 0.98)]
    for name, texts in [*made, ("one notice", lambda: notices(count))]:
        measure(name, texts())
    for folder in given.folders:
        lines = chain.from_iterable(path.open(encoding="utf-8") for path in sorted(folder.glob("*.jsonl")))
        measure(folder.name, [json.loads(line)["text"] for line in lines])


if __name__ == "__main__":
    main()
