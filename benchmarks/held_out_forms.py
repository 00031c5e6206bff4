"""Held-out documents hidden in training documents in many forms: which rules count them, and what they count by chance.

    python benchmarks/held_out_forms.py HELD_OUT ... --train SHARD ... [--documents 530] [--forms NAME ...]

HELD_OUT and SHARD are shards with a column `text`. Documents of 100 to 2,000 words are taken evenly from HELD_OUT. Each
form of each stands in the middle of a document of SHARD, one training document each. A build by form then says which
held-out documents each rule counts. The last row has the training documents alone: all that is counted there is false,
where SHARD has nothing of HELD_OUT. `without common` leaves out common text.
"""

from __future__ import annotations

import html
import json
import random
import re
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
from common import head, options, read_batches, row

import dataaudit
from dataaudit.manifest.load import Manifest
from dataaudit.manifest.metric import Scope

RNG = random.Random(1)
LEAST_WORDS, MOST_WORDS, WIDTH, PIECE = 100, 2_000, 72, 12
LOOKALIKES = str.maketrans("aeopcx", "\u0430\u0435\u043e\u0440\u0441\u0445")
ACCENTS = str.maketrans("aeioucn", "\u00e1\u00e9\u00ed\u00f3\u00fa\u00e7\u00f1")
MISREAD = {"m": "rn", "l": "1", "o": "0", "e": "c", "i": "l", "a": "o", "t": "f", "s": "5", "n": "h", "r": "v"}
SMART = {"'": "\u2019", " -- ": " \u2014 ", "...": "\u2026", "fi": "\ufb01", "fl": "\ufb02"}
OFF = ("language", "filters", "toxicity", "pii", "secrets", "repeats", "lengths", "exact_dup")
METRIC = "train_val_overlap"
RULES = ("span", "whole", "edited")
Form = Callable[[str], str]


def each(every: int, change: Callable[[str], str]) -> Form:
    """Return a form in which one word in so many is changed."""

    def changed(text: str) -> str:
        parts, count = re.split(r"(\s+)", text), 0
        for place in range(0, len(parts), 2):
            count += bool(parts[place])
            if parts[place] and count % every == 0:
                parts[place] = change(parts[place])
        return "".join(parts)

    return changed


def inside(mark: str) -> Callable[[str], str]:
    """Return what puts a mark into the middle of a word."""
    return lambda word: word[: len(word) // 2] + mark + word[len(word) // 2 :]


def lines(change: Callable[[int, str], str], ending: str = "\n") -> Form:
    """Return a form of lines of 72 characters, each changed by its number."""

    def changed(text: str) -> str:
        wrapped = textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)
        return ending.join(change(number, line) for number, line in enumerate(wrapped, 1))

    return changed


def kept(_: int, line: str) -> str:
    """Return a line as it is."""
    return line


def hyphenated(text: str) -> str:
    """Return lines that end inside a word, with a hyphen, where that word has six letters and more."""
    wrapped = textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)
    return re.sub(r"([^\W\d_]{3})([^\W\d_]{3,}\S*)\n", r"\1-\n\2 ", "\n".join(wrapped))


def swapped(text: str) -> str:
    """Return a text in which two neighbours in thirty words stand in the other order."""
    words = text.split()
    for place in range(14, len(words) - 1, 30):
        words[place], words[place + 1] = words[place + 1], words[place]
    return " ".join(words)


def misread(word: str) -> str:
    """Return a word with a letter as an OCR program misreads it."""
    place = next((place for place, letter in enumerate(word) if letter in MISREAD), None)
    return word + "~" if place is None else word[:place] + MISREAD[word[place]] + word[place + 1 :]


def smart(text: str) -> str:
    """Return a text with typographic quotes, dashes and ligatures."""
    for plain, written in SMART.items():
        text = text.replace(plain, written)
    return re.sub(r'"([^"\n]*)"', "\u201c\\1\u201d", text)


def forms(vocabulary: list[str]) -> dict[str, Form]:
    """Return the ways of writing a document; all words but those of ``vocabulary`` are its own."""
    return {
        "as it is": str,
        "each 25th word replaced": each(25, lambda _: RNG.choice(vocabulary)),
        "each 10th word replaced": each(10, lambda _: RNG.choice(vocabulary)),
        "one word in 10 replaced": each(1, lambda word: RNG.choice(vocabulary) if RNG.random() < 0.1 else word),
        "each 25th word left out": each(25, lambda _: ""),
        "a word more behind each 20th": each(20, lambda word: f"{word} {RNG.choice(vocabulary)}"),
        "two in 30 swapped": swapped,
        "misread letter in each 20th word": each(20, misread),
        "NUL in each 10th word": each(10, inside("\0")),
        "accents in each 10th word": each(10, lambda word: word.translate(ACCENTS)),
        "accents everywhere": lambda text: text.translate(ACCENTS),
        "combining marks in each 10th word": each(10, inside("\u0301")),
        "soft hyphens": each(3, inside("\u00ad")),
        "zero-width spaces": each(3, inside("\u200b")),
        "homoglyphs": lambda text: text.translate(LOOKALIKES),
        "upper case": str.upper,
        "re-wrapped": lines(kept),
        "double spaces": lambda text: re.sub(r"\s+", "  ", text),
        "hyphens at line ends": hyphenated,
        "line numbers": lines(lambda number, line: f"{number:4} {line}"),
        "line numbers with colons": lines(lambda number, line: f"{number}: {line}"),
        "numbered bullets": lines(lambda number, line: f"{number}. {line}", "\n\n"),
        "quoted lines": lines(lambda _, line: f"> {line}"),
        "line breaks as <br>": lines(kept, "<br>\n"),
        "<b> around each 5th word": each(5, lambda word: f"<b>{word}</b>"),
        "a tag inside each 5th word": each(5, inside("<i>")),
        "empty tags inside each 5th word": each(5, inside("<i></i>")),
        "<p class=...> and entities": lines(lambda _, line: f'<p class="x">{html.escape(line)}</p>'),
        "&nbsp; for each 3rd space": each(3, lambda word: f"{word}&nbsp;"),
        "numbered entities": lambda text: re.sub(r"[aeiou]", lambda found: f"&#{ord(found[0])};", text),
        "Markdown bold": each(4, lambda word: f"**{word}**"),
        "Markdown links": each(8, lambda word: f"[{word}](https://example.org/{len(word)})"),
        "TeX commands": each(8, lambda word: f"\\textbf{{{word}}}"),
        "escaped line breaks": lines(kept, "\\n"),
        "smart quotes and ligatures": smart,
        "pieces of 12 words apart": str,
    }


def hidden(text: str, hosts: list[str], *, apart: bool) -> str:
    """Return a document with a text in its middle, or with its pieces of 12 words in 12 others."""
    host = RNG.choice(hosts).split(" ")
    if not apart:
        middle = len(host) // 2
        return f"{' '.join(host[:middle])}\n\n{text}\n\n{' '.join(host[middle:])}"
    words = text.split()
    pieces = [words[place : place + PIECE] for place in range(0, len(words), PIECE)]
    own = [RNG.choice(hosts).split()[:PIECE] for _ in pieces]
    return " ".join(" ".join([*piece, *other]) for piece, other in zip(pieces, own, strict=True))


def measure(name: str, held_out: list[str], training: list[str]) -> None:
    """Build, and print which share of the held-out documents each rule counts."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for split, texts in (("train", training), ("val", held_out)):
            (folder / split).mkdir()
            written = "".join(json.dumps({"text": text}) + "\n" for text in texts)
            (folder / split / "a.jsonl").write_text(written, "utf-8")
        splits = {"train": {"paths": ["train/*"]}, "val": {"paths": ["val/*"], "held_out": True}}
        config = {"splits": splits, "stages": dict.fromkeys(OFF, False)}
        manifest = dataaudit.build(config, manifest=folder / "m", base=folder, workers=0).manifest
        row(name, *counted(manifest))


def counted(manifest: Manifest) -> list[str]:
    """Return the shares of the held-out documents that each rule counts, those without common text in brackets."""
    listed = manifest.table("overlap", ["item", "rule", "score_without_common"])
    documents = next(one.value for one in manifest.metrics(METRIC, "documents") if one.scope == Scope()) or 1

    def share(stat: str) -> float:
        return next(one.value for one in manifest.metrics(METRIC, stat) if one.scope == Scope()) or 0.0

    cells = ["{:.4f} ({:.4f})".format(share("ngram"), share("ngram_without_common"))]
    for rule in RULES:
        rows = listed.filter(pc.equal(listed["rule"], rule))
        own = rows.filter(pc.greater(rows["score_without_common"], 0))
        shares = (pc.count_distinct(table["item"]).as_py() / documents for table in (rows, own))
        cells.append("{:.4f} ({:.4f})".format(*shares))
    return [*cells, f"{share('near_dup'):.4f}"]


def texts_of(shards: list[Path]) -> list[str]:
    """Return the documents of 100 to 2,000 words, each once."""
    texts = dict.fromkeys(text for batch in read_batches(*shards) for text in batch.texts.to_pylist())
    return [text for text in texts if LEAST_WORDS <= len(text.split()) <= MOST_WORDS]


def main() -> None:
    """Measure, print."""
    given = options(__doc__, held_out=[Path], train=(Path, []), documents=530, forms=(str, []))
    found = texts_of(given.held_out)
    chosen = np.unique(np.linspace(0, len(found) - 1, min(given.documents, len(found))).astype(int))
    held_out, hosts = [found[place] for place in chosen], texts_of(given.train)
    vocabulary = [word for host in hosts[:200] for word in re.findall(r"\w+", host)]
    head(f"form ({len(held_out):,} documents)", "ngram", *RULES, "near_dup")
    for name, form in forms(vocabulary).items():
        if not given.forms or name in given.forms:
            apart = name.startswith("pieces")
            measure(name, held_out, [hidden(form(text), hosts, apart=apart) for text in held_out])
    measure(f"not there, {len(hosts):,} documents", held_out, hosts)


if __name__ == "__main__":
    main()
