"""The worst documents that could be thought of, through a whole build: does its cost follow its size?

    python benchmarks/worst_inputs.py [--kb 100 200 400] [--only NAME ...] [--steps]

One build, in one process, with all default stages, an evaluation set and a held-out split to be matched against. Each
document is a batch of its own. The table shows the CPU seconds from where a batch is handed out to where the next is
asked for, that is of all annotators and stages, and the ratio of each step; two in a row above 2.6 are suspicious. What
joins documents at the end is shown as the rest of the build. `--steps` prints the functions that took the most.
"""

from __future__ import annotations

import argparse
import base64
import cProfile
import json
import os
import pstats
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from dataaudit import api
from dataaudit.engine import work as worker

SUSPICIOUS = 2.6
NOISE_SECONDS = 0.02
"""Below this, a ratio says nothing."""

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
    "items, again and again": _near_end("what is the capital of the country that lies beside the sea ", ""),
    "a held-out text, again and again": _near_end("it was a bright cold day in the month when clocks are ", ""),
}
"""The texts of about so many bytes, by name."""


def write_corpus(folder: Path, texts: list[str]) -> dict[str, Any]:
    """Write a corpus of these documents; return its config."""
    item = "what is the capital of the country that lies beside the sea and under the hill"
    held = "it was a bright cold day in the month when clocks are read twice by those who wake"
    for name, contents in (("train", texts), ("held", [held])):
        lines = [json.dumps({"text": content}) + "\n" for content in contents]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    (folder / "items.jsonl").write_text(json.dumps({"question": item}) + "\n")
    return {
        "splits": {
            "train": {"paths": [str(folder / "train.jsonl")], "text": "text"},
            "held": {"paths": [str(folder / "held.jsonl")], "text": "text", "held_out": True},
        },
        "protected": {"items": {"paths": [str(folder / "items.jsonl")], "question": "question"}},
        "reader": {"batch_bytes": 1024},
    }


def cpu_of_documents(texts: list[str], *, tell: Callable[[float], object]) -> float:
    """Build a corpus of texts, tell the CPU seconds of each; return those of the rest of the build."""
    read_part, told = worker.read_part, 0

    def timed(request: Any, *arguments: Any) -> Iterator[Any]:
        nonlocal told, spent
        for batch in read_part(request, *arguments):
            begun = time.process_time()
            yield batch
            taken = time.process_time() - begun
            if request.path.endswith("train.jsonl") and told < len(texts):
                spent += taken
                tell(taken)
                told += 1

    spent, begun = 0.0, time.process_time()
    with tempfile.TemporaryDirectory(prefix="worst-") as folder, patch.object(worker, "read_part", timed):
        config = write_corpus(Path(folder), texts)
        result = api.build(config, Path(folder) / "manifest", workers=0, isolate=False, progress=False)
    if result.exit_code or told != len(texts):
        raise SystemExit(f"{result.unread} shards were not read, {told} of {len(texts)} documents were timed")
    return time.process_time() - begun - spent


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kb", type=int, nargs="+", default=[100, 200, 400])
    parser.add_argument("--only", nargs="+", choices=list(MADE), default=list(MADE))
    parser.add_argument("--steps", action="store_true")
    arguments = parser.parse_args()
    sizes = [kb * 1000 for kb in arguments.kb]
    cpu_of_documents(["a short text, for what is loaded once: a@example.org"], tell=lambda _: None)
    texts = [MADE[name](size).encode()[:size].decode(errors="ignore") for name in arguments.only for size in sizes]
    profiler = cProfile.Profile()
    if arguments.steps:
        profiler.enable()
    seconds: list[float] = []
    rest = cpu_of_documents(texts, tell=seconds.append)
    print("| input |" + "".join(f" {kb} kB, s |" for kb in arguments.kb) + " ratios | s/MB | |")
    print("|---|" + "--:|" * (len(sizes) + 2) + "---|")
    for place, name in enumerate(arguments.only):
        row = seconds[place * len(sizes) : (place + 1) * len(sizes)]
        ratios = [more / max(less, NOISE_SECONDS) for less, more in pairwise(row)]
        mark = "suspicious" if ratios and min(ratios) > SUSPICIOUS else ""
        cells = "".join(f" {one:.3f} |" for one in row)
        shown = ", ".join(f"{ratio:.1f}" for ratio in ratios)
        print(f"| {name} |{cells} {shown} | {row[-1] / sizes[-1] * 1e6:.2f} | {mark} |")
    print(f"\nThe rest of the build: {rest:.1f} s for {sum(map(len, texts)) / 1e6:.0f} million characters.")
    if arguments.steps:
        profiler.disable()
        pstats.Stats(profiler, stream=sys.stdout).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
