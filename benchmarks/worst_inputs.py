"""The worst documents that could be thought of, through a whole build: does its cost follow its size?

    python benchmarks/worst_inputs.py [--kb 100 200 400] [--only NAME ...] [--steps]

One build, in one process, with all default stages, evaluation sets and a held-out split to be matched against. Each
document is a batch of its own. The table shows the CPU seconds from where a batch is handed out to where the next is
asked for, that is of all annotators and stages, and the power of the size with which they grow: 1 is proportional,
2 the square; 1.4 at each step is suspicious. What joins documents at the end is shown as the rest of the build.
`--steps` prints the functions that took the most.
"""

from __future__ import annotations

import base64
import cProfile
import json
import math
import os
import pstats
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from common import head, options, row

from dataaudit import api
from dataaudit.engine import scan as worker

SUSPICIOUS = 1.4
NOISE_SECONDS = 0.02
"""Below this, a power says nothing."""

TILES: dict[str, str] = {
    "one letter": "a",
    "one capital": "A",
    "one digit": "7",
    "one space": " ",
    "tabs": "\t",
    "new lines": "\n",
    "carriage returns": "\r",
    "short lines": "a\n",
    "blank lines": " \n\n",
    "one word": "word ",
    "full stops": ".",
    "ellipses": "... ",
    "bullets": "\u2022 a\n",
    "NUL": "\0",
    "at signs": "@",
    "addresses half": "a@",
    "addresses without end": "a@b.",
    "addresses": "jane.roe@example.org ",
    "addresses joined": "jane.roe@example.org",
    "dots and letters": "a.",
    "dashes and digits": "1-",
    "brackets opened": "[",
    "brackets nested": "([{<",
    "braces": "{}",
    "lorem": "lorem ipsum ",
    "javascript": "javascript ",
    "quotes": '"',
    "backslashes": "\\",
    "slashes": "/",
    "colons and hex": "ab:",
    "IPv6": "2001:db8::1:",
    "IPv4": "192.0.2.1.",
    "IPv4 apart": "203.0.113.7 ",
    "URLs": "https://a.b/",
    "URLs with passwords": "https://u:p4ssw0rd@",
    "phone numbers": "+1 202 555 0143 ",
    "phone numbers joined": "+12025550143",
    "plus signs": "+",
    "plus and digits": "+49 ",
    "cards": "4111 1111 1111 1111 ",
    "cards joined": "4111111111111111",
    "social security": "219-09-9999 ",
    "IBAN": "DE89370400440532013000 ",
    "IBAN joined": "DE89370400440532013000",
    "key blocks begun": "-----BEGIN RSA PRIVATE KEY-----\n",
    "key blocks begun, joined": "-----BEGIN PRIVATE KEY-----",
    "dashes": "-",
    "JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.",
    "JWT heads": "eyJ",
    "AWS keys": "AKIAIOSFODNN7EXAMPLF ",
    "AWS keys joined": "AKIAIOSFODNN7EXAMPLF",
    "assignments": 'api_key = "',
    "passwords": "password: ",
    "tokens": "ghp_",
    "marks in order": "\u0301",
    "marks out of order": "\u0301\u0323",
    "marks that decompose": "\u0344\u0323",
    "marks, lowest last": "e\u0301",
    "nuktas": "\u0915\u093c",
    "Hangul jamo": "\u1100\u1161\u11a8",
    "jamo vowels": "\u1161",
    "joiners": "\u200d",
    "family emoji": "\U0001f468\u200d",
    "flags": "\U0001f1e6",
    "skin tones": "\U0001f3fb",
    "variation selectors": "a\ufe0f",
    "alternating scripts": "a\u044f\u05d0\u4e00\u0e01\u0905",
    "Chinese": "\u4e2d",
    "Thai": "\u0e01\u0e32",
    "Arabic": "\u0627\u0644 ",
    "full width": "\uff11",
    "no-break spaces": "\u00a0",
    "ligatures": "\ufdfa",
    "dotted capitals": "\u0130",
    "long s": "\u017f",
    "replacement": "\ufffd",
    "right to left": "\u202e",
    "last code point": "\U0010ffff",
}
"""What a text is made of by repetition, by name."""


def _random(seed: int, alphabet: str) -> Callable[[int], str]:
    return lambda size: "".join(random.Random(seed).choices(alphabet, k=size))


def _near_end(tile: str, end: str) -> Callable[[int], str]:
    return lambda size: tile * (size // len(tile)) + end


def _numbered(pattern: str) -> Callable[[int], str]:
    return lambda size: "".join(pattern.format(n) for n in range(size // len(pattern.format(1000))))


_SYLLABLES = ("ba", "cel", "do", "fin", "ga", "hom", "ken", "lis", "mor", "nu", "pol", "ra", "sy", "tan", "vu", "wes")
PASSAGE = ["".join(random.Random(n).choices(_SYLLABLES, k=3)) for n in range(1000)]
"""A text that sixty items begin with; the corpus holds what is almost it."""


def _almost_passage(size: int) -> str:
    words = [word if place % 12 < 7 else f"w{PASSAGE[place * 7 % 1000]}" for place, word in enumerate(PASSAGE)]
    text = " ".join(words) + " "
    return text * (size // len(text) + 1)


def _short_items(size: int) -> str:
    return "".join(f"{question}\n{answer}\n" for question, answer in short_items(size // 70))


def short_items(number: int) -> Iterator[tuple[str, str]]:
    """Yield questions too short to be found without their answers."""
    for n in range(number):
        yield (
            f"who gave {PASSAGE[n % 997]} {PASSAGE[n * 31 % 991]} to {n}?",
            f"{PASSAGE[n * 17 % 983]} {n} {PASSAGE[n % 89]}",
        )


MADE: dict[str, Callable[[int], str]] = {
    **{name: _near_end(tile, "") for name, tile in TILES.items()},
    "lowest mark after high ones": lambda size: "a" + "\u0301" * (size // 4) + "\u0323" * (size // 4),
    "base64": lambda size: base64.b64encode(random.Random(1).randbytes(size * 3 // 4)).decode(),
    "hexadecimal": _random(2, "0123456789abcdef"),
    "digits and blanks": _random(3, "0123456789 -"),
    "letters and blanks": _random(4, "ab "),
    "any code point": _random(5, "".join(map(chr, [*range(0x20, 0xD800, 7), *range(0xE000, 0x20000, 7)]))),
    "punctuation": _random(6, ".,:;@/-_+=()[]{}<>#'\"\\|"),
    "different words": _numbered("w{} "),
    "different lines": _numbered("line {}\n"),
    "different addresses": _numbered("jane{}@example.org "),
    "different phone numbers": _numbered("+1202555{:04} "),
    "different keys": _numbered("password = 'Xk{}zQ9w'\n"),
    "different URLs": _numbered("http://a{}.example/ "),
    "different cards": _numbered("4111 1111 1111 {:04} "),
    "key block that never ends": lambda size: "-----BEGIN RSA PRIVATE KEY-----\n" + ("A" * 64 + "\n") * (size // 65),
    "entities of a thousand digits": _near_end(f"a&#{'1' * 4500};b ", ""),
    "marks in words of two scripts": lambda size: ("a\u0430" + "\u0301\u0323" * (size // 8) + " ") * 2,
    "blanks after a name of a key": lambda size: ("cloudant_key" + " " * 2000 + "a" * 30 + "! ") * (size // 2044 + 1),
    "blanks in a key block": lambda size: (
        ('-----BEGIN RSA PRIVATE KEY-----\n"' + " " * 8000 + "x\n" + "A" * 64 + "\n-----END RSA PRIVATE KEY-----\n")
        * (size // 8132 + 1)
    ),
    "almost a passage of sixty items": _almost_passage,
    "thousands of short items": _short_items,
    "items, again and again": _near_end("what is the capital of the country that lies beside the sea ", ""),
    "a held-out text, again and again": _near_end("it was a bright cold day in the month when clocks are ", ""),
}
"""The texts of about so many bytes, by name."""


def write_corpus(folder: Path, texts: list[str], num_items: int) -> dict[str, Any]:
    """Write a corpus of these documents, and short items; return its config."""
    item = "what is the capital of the country that lies beside the sea and under the hill"
    held = "it was a bright cold day in the month when clocks are read twice by those who wake"
    for name, contents in (("train", texts), ("held", [held])):
        lines = [json.dumps({"text": content}) + "\n" for content in contents]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    items = [{"question": item}, *({"question": " ".join([*PASSAGE, f"item{n}"]), "answer": "yes"} for n in range(60))]
    items += [{"question": question, "answer": answer} for question, answer in short_items(num_items)]
    (folder / "items.jsonl").write_text("".join(json.dumps(one) + "\n" for one in items))
    return {
        "splits": {
            "train": {"paths": [str(folder / "train.jsonl")], "text": "text"},
            "held": {"paths": [str(folder / "held.jsonl")], "text": "text", "held_out": True},
        },
        "protected": {"items": {"paths": [str(folder / "items.jsonl")], "question": "question", "answer": "answer"}},
        "reader": {"batch_bytes": 1024},
    }


def cost_of_documents(
    texts: list[str],
    *,
    tell: Callable[[float], object],
    meter: Callable[[], float] = time.process_time,
    num_items: int = 15_000,
) -> float:
    """Build a corpus of texts, tell what the meter says of each, CPU seconds; return that of the rest of the build."""
    read_part, told = worker.read_part, 0

    def timed(request: Any, *arguments: Any) -> Iterator[Any]:
        nonlocal told, spent
        for batch in read_part(request, *arguments):
            begun = meter()
            yield batch
            taken = meter() - begun
            if request.path.endswith("train.jsonl") and told < len(texts):
                spent += taken
                tell(taken)
                told += 1

    spent, begun = 0.0, meter()
    with tempfile.TemporaryDirectory(prefix="worst-") as folder, patch.object(worker, "read_part", timed):
        config = write_corpus(Path(folder), texts, num_items)
        result = api.build(config, Path(folder) / "manifest", workers=0, isolate=False, progress=False)
    if result.exit_code or told != len(texts):
        raise SystemExit(f"{result.unread} shards were not read, {told} of {len(texts)} documents were timed")
    return meter() - begun - spent


def main() -> None:
    """Print the table as Markdown."""
    given = options(__doc__, kb=[100, 200, 400], only=(str, list(MADE), *MADE), steps=False)
    sizes = [kb * 1000 for kb in given.kb]
    cost_of_documents(["a short text, for what is loaded once: a@example.org"], tell=lambda _: None)
    texts = [MADE[name](size).encode()[:size].decode(errors="ignore") for name in given.only for size in sizes]
    seconds: list[float] = []
    with cProfile.Profile() if given.steps else nullcontext() as profiler:
        rest = cost_of_documents(texts, tell=seconds.append)
    head("input", *(f"{kb} kB, s" for kb in given.kb), "powers", "s/MB", "")
    for place, name in enumerate(given.only):
        own = seconds[place * len(sizes) : (place + 1) * len(sizes)]
        powers = [
            math.log(max(more, NOISE_SECONDS) / max(less, NOISE_SECONDS)) / math.log(large / small)
            for (less, more), (small, large) in zip(pairwise(own), pairwise(sizes), strict=True)
        ]
        mark = "suspicious" if powers and min(powers) > SUSPICIOUS else ""
        shown = ", ".join(f"{power:.1f}" for power in powers)
        row(name, *(f"{cost:.3f}" for cost in own), shown, f"{own[-1] / sizes[-1] * 1e6:.2f}", mark)
    print(f"\nThe rest of the build: {rest:.1f} s for {sum(map(len, texts)) / 1e6:.0f} million characters.")
    if profiler is not None:
        pstats.Stats(profiler, stream=sys.stdout).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
