"""Evaluation items planted in real documents, in many ways of editing: how many are found, what is flagged by chance.

    python benchmarks/contamination.py FOLDER SET.jsonl:QUESTION:ANSWER [SET.jsonl.gz:QUESTION:ANSWER ...]

FOLDER holds shards with a column `text`. Every item is planted twice for each way of editing: between two documents,
and in the middle of one. Then all documents are searched as they are, and the time of each step is taken.
"""

from __future__ import annotations

import argparse
import random
import re
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from filters import read_texts

from dataaudit.corpus.protected.held_out import index_held_out
from dataaudit.corpus.protected.index import ProtectedIndex
from dataaudit.corpus.protected.items import Items, Judged, index_items
from dataaudit.corpus.protected.match_batch import MatchBatch
from dataaudit.corpus.protected.matching import Matcher
from dataaudit.corpus.protected.sets import ItemFields, read_items
from dataaudit.kernels.items import Finder
from dataaudit.kernels.markup import normal_words
from dataaudit.kernels.words import split_words

RNG = random.Random(1)
BATCH_BYTES = 4 << 20
VERBATIM = 0


def edits(vocabulary: list[str]) -> dict[str, Callable[[str], str]]:
    """Return the ways of editing a text."""

    def each(change: Callable[[int, str], list[str]]) -> Callable[[str], str]:
        return lambda text: " ".join(new for place, word in enumerate(text.split()) for new in change(place, word))

    def by_chance(word: str, instead: list[str]) -> list[str]:
        return instead if RNG.random() < 0.1 else [word]

    return {
        "as it is": str,
        "upper case": str.upper,
        "re-wrapped": lambda text: "\n".join(textwrap.wrap(text, 30, break_long_words=False, break_on_hyphens=False)),
        "other punctuation": lambda text: re.sub(
            r"[;:!?$\"()]|(?<!\d)[.,]|[.,](?!\d)", lambda _: RNG.choice((" ", " - ", " ; ")), text
        ),
        "numbers changed": lambda text: re.sub(r"\d+", lambda _: str(RNG.randrange(1, 9_999)), text),
        "each tenth word replaced": each(lambda place, word: [RNG.choice(vocabulary) if place % 10 == 9 else word]),
        "one in ten replaced": each(lambda _, word: by_chance(word, [RNG.choice(vocabulary)])),
        "one in ten deleted": each(lambda _, word: by_chance(word, [])),
        "one in ten followed by another": each(lambda _, word: by_chance(word, [word, RNG.choice(vocabulary)])),
    }


def search(matcher: Matcher, texts: list[str]) -> MatchBatch:
    """Search texts."""
    values, bounds = as_buffers(texts)
    return matcher.match(split_words(values, bounds), values, bounds)


def as_buffers(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the UTF-8 of texts and their offsets."""
    encoded = [text.encode() for text in texts]
    bounds = np.zeros(len(encoded) + 1, dtype=np.int64)
    np.cumsum([len(text) for text in encoded], out=bounds[1:])
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), bounds


def planted(hosts: list[str], text: str, *, inside: bool) -> str:
    """Return a document with a text in it."""
    host = RNG.choice(hosts)
    if not inside:
        return f"{host}\n\n{text}\n\n{RNG.choice(hosts)}"
    words = host.split(" ")
    place = RNG.randrange(len(words) + 1)
    return " ".join([*words[:place], text, *words[place:]])


def recall(matcher: Matcher, items: Items, texts: list[tuple[str, str]], hosts: list[str], inside: bool) -> list[str]:
    """Return the shares of questions and answers that are found, and found verbatim."""
    found = search(matcher, [planted(hosts, f"{question}\n{answer}", inside=inside) for question, answer in texts])
    tiers = {(item, part): tier for document, _, item, part, tier, *_ in found.items.tolist() if item == document}
    cells = []
    for part in (0, 1):
        for judged in ([Judged.INDEXED], [Judged.SHORT, Judged.CONTEXT]):
            own = np.flatnonzero(np.isin(items.judged[:, part], judged)).tolist()
            hit = [tiers.get((item, part), 9) for item in own]
            if own:
                cells.append(f"{np.mean([tier < 9 for tier in hit]):.3f} ({np.mean([t == VERBATIM for t in hit]):.3f})")
            else:
                cells.append("-")
    return cells


def batches(texts: list[str]) -> Iterator[list[str]]:
    """Yield texts as a build's batches hold them."""
    held: list[str] = []
    for text in texts:
        held.append(text)
        if sum(map(len, held)) >= BATCH_BYTES:
            yield held
            held = []
    if held:
        yield held


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("sets", nargs="+")
    given = parser.parse_args()
    pairs = []
    for one in given.sets:
        path, question, answer = one.rsplit(":", 2)
        found = read_items([path], ItemFields(question=question, answer=answer))
        pairs.append([(item.question, item.answer or "") for item in found.items])
    items = index_items(pairs)
    matcher = Matcher(ProtectedIndex(held_out=index_held_out([], 10), items=items))
    clean = read_texts(given.folder, 1 << 60)
    hosts = [text for text in clean[:1_500] if 500 < len(text) < 50_000]
    vocabulary = [word for host in hosts[:200] for word in re.findall(r"\w+", host)]
    texts = [pairs[number][place] for number, place in zip(items.sets.tolist(), items.numbers.tolist(), strict=True)]
    print(f"{len(texts):,} items; share found (verbatim)")
    print("| edit | where | questions | short ones | answers | short ones |\n|---|---|--:|--:|--:|--:|")
    for name, edit in edits(vocabulary).items():
        edited = [(edit(question), edit(answer)) for question, answer in texts]
        for inside in (False, True):
            cells = recall(matcher, items, edited, hosts, inside)
            print(f"| {name} | {'inside' if inside else 'apart'} | {' | '.join(cells)} |")
    flagged, size, spent = 0, 0, {"words": 0.0, "normal form": 0.0, "seeds": 0.0}
    finder = Finder(items.seeds)
    for batch in batches(clean):
        values, bounds = as_buffers(batch)
        start = time.process_time()
        words = split_words(values, bounds)
        middle = time.process_time()
        plain = normal_words(words, values, bounds)
        then = time.process_time()
        finder.find(plain.hashes, plain.offsets)
        spent["words"] += middle - start
        spent["normal form"] += then - middle
        spent["seeds"] += time.process_time() - then
        flagged += len(set(matcher.match(words, values, bounds).items[:, 0].tolist()))
        size += len(values)
    speeds = ", ".join(f"{name} {1e9 * seconds / size:.2f} ms/MB" for name, seconds in spent.items())
    print(f"clean: {flagged:,} of {len(clean):,} documents flagged, {size / 1e6:,.0f} MB; {speeds}")


if __name__ == "__main__":
    main()
