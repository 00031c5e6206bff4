"""Evaluation items planted in real documents, edited in many ways: how many are found, what is flagged by chance.

    python benchmarks/contamination.py FOLDER SET.jsonl:QUESTION:ANSWER [SET.jsonl.gz:QUESTION:ANSWER ...] [--short]

FOLDER holds shards with a column `text`. Every item is planted twice for each way of editing: between two documents,
and in the middle of a document. Then all documents are searched as they are, and the time of each step is taken.
`--short`: the items are the sentences of 8 to 12 words of the sets that end with a question mark, without answers, in
the middle of a document, in other forms. Made after them are questions in which each word of four letters and more is
replaced by a word of another question, fifty of each: those that are found stand there by chance.
"""

from __future__ import annotations

import html
import random
import re
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from common import buffers, head, megabytes, options, read_texts, row

from dataaudit.scan.corpus.protected.eval_items import ITSELF, ItemIndex, Judged, index_items
from dataaudit.scan.corpus.protected.eval_sets import ItemFields, read_items
from dataaudit.scan.corpus.protected.index_file import ProtectedIndex
from dataaudit.scan.corpus.protected.matching import Matcher
from dataaudit.scan.corpus.protected.ngram_index import MatchBatch, index_held_out
from dataaudit.scan.kernels.items import Finder
from dataaudit.scan.kernels.markup import normal_words
from dataaudit.scan.kernels.words import split_words

RNG, FORM_RNG = random.Random(1), random.Random(1)
"""Of edits and places, and of forms."""
BATCH_BYTES = 4 << 20
VERBATIM = 0
LOOKALIKES = str.maketrans("aeopcx", "\u0430\u0435\u043e\u0440\u0441\u0445")
OPTIONS = ("the first of them", "none of the above", "both at once", "only on Sundays")
Edit = Callable[[str], str]
Pairs = list[tuple[str, str]]
"""Questions and answers."""


def each(change: Callable[[str], str]) -> Edit:
    """Return an edit that changes each word."""
    return lambda text: " ".join(map(change, text.split()))


def edits(vocabulary: list[str]) -> dict[str, Edit]:
    """Return the ways of editing a text."""

    def places(change: Callable[[int, str], list[str]]) -> Edit:
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
        "each tenth word replaced": places(lambda place, word: [RNG.choice(vocabulary) if place % 10 == 9 else word]),
        "one in ten replaced": places(lambda _, word: by_chance(word, [RNG.choice(vocabulary)])),
        "one in ten deleted": places(lambda _, word: by_chance(word, [])),
        "one in ten followed by another": places(lambda _, word: by_chance(word, [word, RNG.choice(vocabulary)])),
    }


def forms() -> dict[str, Edit]:
    """Return the ways of writing a short question; the last two do not keep its words."""

    def with_options(text: str) -> str:
        chosen = FORM_RNG.sample(OPTIONS, FORM_RNG.randrange(2, 5))
        return text + "".join(f"\n{letter}) {option}" for letter, option in zip("ABCD", chosen, strict=False))

    return {
        "as it is": str,
        "upper case": str.upper,
        "re-wrapped": lambda text: text.replace(" ", "\n"),
        "homoglyphs": lambda text: text.translate(LOOKALIKES),
        "HTML entities": lambda text: html.escape(text).replace("$", "&#36;").replace("\u2019", "&rsquo;"),
        "HTML entities, escaped twice": lambda text: html.escape(html.escape(text)),
        "HTML tags around words": each(lambda word: f"<b class='x'>{word}</b>"),
        "HTML tags inside words": lambda text: re.sub(r"\b([A-Za-z])(?=[a-z])", r"<i>\1</i>", text),
        "TeX commands": each(lambda word: f"\\textbf{{{word}}}"),
        "TeX numbers": lambda text: re.sub(r"\$?(\d+(?:[.,]\d+)*)", r"$\1$", text).replace(",", "{,}"),
        "Markdown marks": each(lambda word: f"**{word}**"),
        "Markdown links": each(lambda word: f"[{word}](https://example.org/{len(word)}?q=1)"),
        "line breaks and quotes escaped": lambda text: text.replace(" ", "\\n").replace("'", "\\'"),
        "options behind it": with_options,
        "one word replaced": lambda text: text.replace(FORM_RNG.choice(text.split()), "other"),
        "numbers changed": lambda text: re.sub(r"\d+", lambda found: str(int(found[0]) + 1), text),
    }


def search(matcher: Matcher, texts: list[str]) -> MatchBatch:
    """Search texts."""
    values, bounds = buffers(texts)
    return matcher.match(split_words(values, bounds), values, bounds)


def planted(hosts: list[str], text: str, *, inside: bool) -> str:
    """Return a document with a text in it."""
    host = RNG.choice(hosts)
    if not inside:
        return f"{host}\n\n{text}\n\n{RNG.choice(hosts)}"
    words = host.split(" ")
    place = RNG.randrange(len(words) + 1)
    return " ".join([*words[:place], text, *words[place:]])


def recall(matcher: Matcher, items: ItemIndex, texts: Pairs, hosts: list[str], *, inside: bool) -> list[str]:
    """Return the shares of questions and answers that are found, and found verbatim."""
    found = search(matcher, [planted(hosts, f"{question}\n{answer}", inside=inside) for question, answer in texts])
    tiers = {(item, part): tier for document, _, item, part, tier, *_ in found.items.tolist() if item == document}
    cells = []
    for part in (0, 1):
        for judged in ([Judged.INDEXED], [Judged.SHORT, Judged.CONTEXT]):
            own = np.flatnonzero(np.isin(items.judged[:, part], judged)).tolist()
            hit = [tiers.get((item, part), 9) for item in own]
            shares = np.mean([tier < 9 for tier in hit] or 0), np.mean([tier == VERBATIM for tier in hit] or 0)
            cells.append("{:.3f} ({:.3f})".format(*shares) if own else "-")
    return cells


def batches(texts: list[str]) -> Iterator[list[str]]:
    """Yield texts as the batches of a build."""
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if sum(map(len, batch)) >= BATCH_BYTES:
            yield batch
            batch = []
    if batch:
        yield batch


def indexed(pairs: list[list[tuple[str, str | None]]]) -> tuple[Matcher, ItemIndex]:
    """Return what finds the questions and answers of some sets."""
    items = index_items([[(question, [answer] if answer else []) for question, answer in own] for own in pairs])
    return Matcher(ProtectedIndex(held_out=index_held_out([], 10), items=items)), items


def print_edits(pairs: list[Pairs], clean: list[str], hosts: list[str]) -> None:
    """Print recall by edit, then what is flagged in clean text, and the time of each step."""
    matcher, items = indexed(pairs)
    vocabulary = [word for host in hosts[:200] for word in re.findall(r"\w+", host)]
    texts = [pairs[number][place] for number, place in zip(items.sets.tolist(), items.numbers.tolist(), strict=True)]
    print(f"{len(texts):,} items; share found (verbatim)")
    head("edit", "where", "questions", "short questions", "answers", "short answers")
    for name, edit in edits(vocabulary).items():
        edited = [(edit(question), edit(answer)) for question, answer in texts]
        for inside in (False, True):
            row(name, "inside" if inside else "apart", *recall(matcher, items, edited, hosts, inside=inside))
    flagged, size, spent = 0, 0, Counter[str]()
    finder = Finder(items.seeds)
    for batch in batches(clean):
        values, bounds = buffers(batch)
        start = time.process_time()
        words = split_words(values, bounds)
        middle = time.process_time()
        plain = normal_words(words, values, bounds)
        then = time.process_time()
        finder.find(plain.hashes, plain.offsets)
        spent.update({"words": middle - start, "normal form": then - middle, "seeds": time.process_time() - then})
        flagged += len(set(matcher.match(words, values, bounds).items[:, 0].tolist()))
        size += len(values)
    speeds = ", ".join(f"{name} {1e9 * seconds / size:.2f} ms/MB" for name, seconds in spent.items())
    print(f"clean: {flagged:,} of {len(clean):,} documents flagged, {size / 1e6:,.0f} MB; {speeds}")


def print_short(pairs: list[Pairs], clean: list[str], hosts: list[str]) -> None:
    """Print recall of short questions by form, then how many stand in clean text."""
    sentences = [one for own in pairs for text, _ in own for one in re.split(r"(?<=[.!?])\s+", text)]
    questions = list(dict.fromkeys(one for one in sentences if one.endswith("?") and 8 <= len(one.split()) <= 12))
    matcher, items = indexed([[(question, None) for question in questions]])
    counted = np.isin(items.judged[:, 0], ITSELF)
    kinds = Counter(Judged(code).name.lower() for code in items.judged[:, 0].tolist())
    print(f"{len(questions):,} questions of 8 to 12 words: {dict(kinds)}")
    head("form", "of the findable, found", "of the others, found")
    for name, form in forms().items():
        pages = [planted(hosts, form(questions[number]), inside=True) for number in items.numbers.tolist()]
        rows = search(matcher, pages).items
        hit = np.zeros(len(counted), dtype=bool)
        hit[rows[rows[:, 0] == rows[:, 2], 2]] = True
        row(name, *(f"{hit[own].mean():.3f}" if own.any() else "-" for own in (counted, ~counted)))
    pool = [word for question in questions for word in re.findall(r"[A-Za-z]{4,}", question)]
    made = [re.sub(r"[A-Za-z]{4,}", lambda _: FORM_RNG.choice(pool), one) for one in questions for _ in range(50)]
    for what, of in (("questions of the sets", questions), ("questions made after them", made)):
        matcher, items = indexed([[(question, None) for question in of]])
        found = {item for batch in batches(clean) for item in search(matcher, batch).items[:, 2].tolist()}
        findable = int(np.isin(items.judged[:, 0], ITSELF).sum())
        print(f"{what}: {len(found):,} of {findable:,} findable stand in {megabytes(clean):,.0f} MB of clean text")


def main() -> None:
    """Measure, print."""
    given = options(__doc__, folder=Path, sets=[str], short=False)
    pairs = []
    for described in given.sets:
        path, question, answer = described.rsplit(":", 2)
        found = read_items([path], ItemFields(question=question, answer=answer))
        pairs.append([(item.question, next(iter(item.answers), "")) for item in found.items])
    clean = read_texts(given.folder)
    hosts = [text for text in clean[:1_500] if 500 < len(text) < 50_000]
    (print_short if given.short else print_edits)(pairs, clean, hosts)


if __name__ == "__main__":
    main()
