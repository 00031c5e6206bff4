"""The worst documents that could be thought of, each through a whole build: does its cost follow its size?

    python benchmarks/worst_inputs.py [--kb 100 200 400] [--only NAME ...] [--seconds 60] [--steps]

A build has one shard of one document, all default stages, an evaluation set and a held-out split to be matched
against, in one process. The table shows CPU seconds of the build less those of a build of a short document, and the
ratio of each step; two ratios in a row above 2.6 are suspicious. A build that takes more than the limit is killed.
`--steps` prints the functions of the longest build that took the most.
"""

from __future__ import annotations

import argparse
import base64
import cProfile
import json
import os
import pstats
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from dataaudit import api
from dataaudit.guarded import Guarded

SUSPICIOUS = 2.6
NOISE_SECONDS = 0.1
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


def write_corpus(folder: Path, text: str) -> dict[str, Any]:
    """Write a corpus of one document; return its config."""
    item = "what is the capital of the country that lies beside the sea and under the hill"
    held = "it was a bright cold day in the month when clocks are read twice by those who wake"
    folder.mkdir(parents=True)
    for name, content in (("train", text), ("held", held)):
        (folder / f"{name}.jsonl").write_text(json.dumps({"text": content}) + "\n")
    (folder / "items.jsonl").write_text(json.dumps({"question": item, "answer": "none"}) + "\n")
    return {
        "splits": {
            "train": {"paths": [str(folder / "train.jsonl")], "text": "text"},
            "held": {"paths": [str(folder / "held.jsonl")], "text": "text", "held_out": True},
        },
        "protected": {"items": {"paths": [str(folder / "items.jsonl")], "question": "question"}},
    }


def cpu_of_build(text: str, seconds: int, steps: bool = False) -> tuple[float, str]:
    """Build a corpus of one text in a child; return CPU seconds, infinity when it was killed, and what became of it."""
    folder = Path(tempfile.mkdtemp(prefix="worst-"))
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        said = _said(folder, text, steps)
        os.write(into, json.dumps(said).encode())
        os._exit(0)
    os.close(into)
    with open(out, "rb") as file:
        data = file.read()
    os.waitpid(child, 0)
    shutil.rmtree(folder)
    cpu, outcome = json.loads(data) if data else (float("inf"), "killed")
    return cpu, outcome


def _said(folder: Path, text: str, steps: bool) -> tuple[float, str]:
    config = write_corpus(folder / "corpus", text)
    profiler = cProfile.Profile() if steps else None
    begun = time.process_time()
    if profiler is not None:
        profiler.enable()
    outcome = ""
    with Guarded() as call:
        result = api.build(config, folder / "manifest", workers=0, isolate=False, progress=False)
        outcome = "read" if result.exit_code == 0 else f"exit {result.exit_code}: {result.unread}"
    cpu = time.process_time() - begun
    if profiler is not None:
        profiler.disable()
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(12)
    return cpu, outcome or call.origin


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kb", type=int, nargs="+", default=[100, 200, 400])
    parser.add_argument("--only", nargs="+", choices=list(MADE), default=list(MADE))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--steps", action="store_true")
    arguments = parser.parse_args()
    _said(Path(tempfile.mkdtemp(prefix="worst-")), "a short text, that loads all there is: a@example.org", False)
    none, outcome = min(cpu_of_build("a short text", arguments.seconds) for _ in range(3))
    print(f"a short document: {none:.2f} s, {outcome}", flush=True)
    print("| input |" + "".join(f" {kb} kB |" for kb in arguments.kb) + " ratios | s/MB | |")
    print("|---|" + "--:|" * (len(arguments.kb) + 2) + "---|")
    for name in arguments.only:
        seconds = []
        outcome = ""
        for kb in arguments.kb:
            text = MADE[name](kb * 1000)
            text = text.encode("utf-8")[: kb * 1000].decode("utf-8", "ignore")
            last = kb == arguments.kb[-1]
            cpu, outcome = cpu_of_build(text, arguments.seconds, steps=arguments.steps and last)
            seconds.append(max(0.0, cpu - none))
        ratios = [more / less if less > NOISE_SECONDS else 0.0 for less, more in pairwise(seconds)]
        marks = ["suspicious"] if all(ratio > SUSPICIOUS for ratio in ratios) else []
        notes = ", ".join([*marks, *([outcome] if outcome != "read" else [])])
        cells = "".join(f" {one:.2f} |" for one in seconds)
        per_mb = seconds[-1] / arguments.kb[-1] * 1000
        print(f"| {name} |{cells} {', '.join(f'{r:.1f}' for r in ratios)} | {per_mb:.1f} | {notes} |", flush=True)


if __name__ == "__main__":
    main()
