"""Short questions in a paragraph, without their answers: how many are found by form, and what is flagged by chance.

    python benchmarks/short_questions.py FOLDER SET.jsonl:QUESTION:ANSWER [SET.jsonl.gz:QUESTION:ANSWER ...]

FOLDER holds shards with a column `text`. The questions are the sentences of 8 to 12 words of the sets that end with a
question mark. Made after the text are questions in which each word of four letters and more is replaced by one of
another question, fifty of each: what of them is found stands there by chance.
"""

from __future__ import annotations

import argparse
import html
import random
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
from contamination import batches, planted, search
from filters import read_texts

from dataaudit.corpus.protected.held_out import index_held_out
from dataaudit.corpus.protected.index import ProtectedIndex
from dataaudit.corpus.protected.items import ITSELF, Items, Judged, index_items
from dataaudit.corpus.protected.matching import Matcher
from dataaudit.corpus.protected.sets import ItemFields, read_items

RNG = random.Random(1)
LOOKALIKES = str.maketrans("aeopcx", "\u0430\u0435\u043e\u0440\u0441\u0445")
OPTIONS = ("the first of them", "none of the above", "both at once", "only on Sundays")


def forms() -> dict[str, Callable[[str], str]]:
    """Return the ways of writing a text."""

    def each(change: Callable[[str], str]) -> Callable[[str], str]:
        return lambda text: " ".join(map(change, text.split()))

    def with_options(text: str) -> str:
        chosen = RNG.sample(OPTIONS, RNG.randrange(2, 5))
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
        "one word replaced": lambda text: text.replace(RNG.choice(text.split()), "other"),
        "numbers changed": lambda text: re.sub(r"\d+", lambda found: str(int(found[0]) + 1), text),
    }


def short_questions(texts: list[str]) -> list[str]:
    """Return the different questions of 8 to 12 words in some texts."""
    sentences = [one for text in texts for one in re.split(r"(?<=[.!?])\s+", text)]
    return list(dict.fromkeys(one for one in sentences if one.endswith("?") and 8 <= len(one.split()) <= 12))


def made_after(questions: list[str], each: int) -> list[str]:
    """Return questions whose longer words are those of others, so many for each."""
    pool = [word for one in questions for word in re.findall(r"[A-Za-z]{4,}", one)]
    return [re.sub(r"[A-Za-z]{4,}", lambda _: RNG.choice(pool), one) for one in questions for _ in range(each)]


def indexed(questions: list[str]) -> tuple[Matcher, Items, np.ndarray]:
    """Return what finds questions, and which of them it finds wherever they stand."""
    items = index_items([[(one, None) for one in questions]])
    counted = np.isin(items.judged[:, 0], ITSELF)
    return Matcher(ProtectedIndex(held_out=index_held_out([], 10), items=items)), items, counted


def flagged(matcher: Matcher, texts: list[str]) -> set[int]:
    """Return the items that stand in some texts."""
    return {item for batch in batches(texts) for item in search(matcher, batch).items[:, 2].tolist()}


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("sets", nargs="+")
    given = parser.parse_args()
    texts = []
    for one in given.sets:
        path, question, answer = one.rsplit(":", 2)
        texts += [item.question for item in read_items([path], ItemFields(question=question, answer=answer)).items]
    questions = short_questions(texts)
    clean = read_texts(given.folder, 1 << 60)
    hosts = [text for text in clean[:1_500] if 500 < len(text) < 50_000]
    matcher, items, counted = indexed(questions)
    judged = {
        Judged(int(code)).name.lower(): int(size)
        for code, size in zip(*np.unique(items.judged[:, 0], return_counts=True), strict=True)
    }
    print(f"{len(questions):,} questions of 8 to 12 words: {judged}")
    print("| form | of the findable, found | of the others, found |\n|---|--:|--:|")
    for name, form in forms().items():
        pages = [planted(hosts, form(questions[number]), inside=True) for number in items.numbers.tolist()]
        rows = search(matcher, pages).items
        hit = np.zeros(len(counted), dtype=bool)
        hit[rows[rows[:, 0] == rows[:, 2], 2]] = True
        others = f"{hit[~counted].mean():.3f}" if (~counted).any() else "-"
        print(f"| {name} | {hit[counted].mean():.3f} | {others} |")
    size = sum(len(text.encode()) for text in clean) / 1e6
    for what, of in (("questions of the sets", questions), ("questions made after it", made_after(questions, 50))):
        matcher, items, counted = indexed(of)
        found = len(flagged(matcher, clean))
        print(f"{what}: {found:,} of {int(counted.sum()):,} findable ones stand in {size:,.0f} MB of clean text")


if __name__ == "__main__":
    main()
