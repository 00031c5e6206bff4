"""How long the validators of personal data take for a candidate, and how many candidates text holds.

``python benchmarks/check_digits.py [FILE ...]`` makes candidates from the shipped patterns and times each validator on
them (best of three); of the files, cut into documents of lines, it counts the calls and their part of the whole search.
Prints Markdown.
"""

from __future__ import annotations

import argparse
import importlib
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dataaudit.detectors.patterns.entity import Candidate, Evidence, Validator
from dataaudit.detectors.patterns.screen import PatternScreen
from dataaudit.detectors.pii import load_pii
from dataaudit.detectors.pii.national import NATIONAL

TIMED = {*NATIONAL, "card", "iban"}
DOCUMENT_BYTES = 16_000
CANDIDATES = 5000


def made(tree: Any, rng: random.Random) -> Iterator[str]:
    """Yield the pieces of a text that a parsed regex matches."""
    for node, value in tree:
        name = str(node)
        if name == "LITERAL":
            yield chr(value)
        elif name == "IN":
            ranges = [(one, one) if str(kind) == "LITERAL" else one for kind, one in value]
            low, high = rng.choice(ranges)
            yield chr(rng.randint(low, high))
        elif name == "MAX_REPEAT":
            for _ in range(rng.randint(value[0], value[1])):
                yield from made(value[2], rng)
        elif name == "SUBPATTERN":
            yield from made(value[3], rng)
        elif name == "BRANCH":
            yield from made(rng.choice(value[1]), rng)


def said(validator: Validator, candidate: Candidate) -> Evidence:
    """Return what a validator says, as the search takes it."""
    try:
        return validator(candidate)
    except (ValueError, LookupError, ArithmeticError):
        return Evidence.REJECTED


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*")
    given = parser.parse_args()
    registry, rng = load_pii(), random.Random(1)
    parse = importlib.import_module("re._parser").parse
    print("| validator | candidates that pass | microseconds each |\n|---|--:|--:|")
    for name, regex in sorted({(one, rule.regex) for _, rule in registry.rules for one in rule.validators}):
        if name in TIMED:
            tree = parse(regex)
            texts = ["".join(made(tree, rng)) for _ in range(CANDIDATES)]
            candidates = [Candidate(text=text, before="", after="", context=True) for text in texts]
            passed, best = 0, float("inf")
            for _ in range(3):
                begun = time.process_time()
                passed = sum(said(registry.validators[name], one) > Evidence.REJECTED for one in candidates)
                best = min(best, time.process_time() - begun)
            print(f"| {name} | {passed} of {CANDIDATES} | {best / CANDIDATES * 1e6:.1f} |")
    for path in given.files:
        print(f"\n{path.name}: {measured(registry, path.read_bytes())}")


def measured(registry: Any, data: bytes) -> str:
    """Return calls of validators and their time."""
    calls: Counter[str] = Counter()
    spent: Counter[str] = Counter()

    def counted(name: str, validator: Validator) -> Validator:
        def call(candidate: Candidate) -> Evidence:
            begun = time.perf_counter()
            try:
                return validator(candidate)
            finally:
                spent[name] += time.perf_counter() - begun
                calls[name] += 1

        return call

    wrapped = {name: counted(name, one) for name, one in registry.validators.items()}
    watched = replace(registry, validators=wrapped, digest=f"{registry.digest} watched")
    values = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(values == ord("\n")) + 1
    inner = ends[np.flatnonzero(np.diff(ends // DOCUMENT_BYTES))]
    offsets = np.concatenate([[0], inner, [len(values)]]).astype(np.int64)
    PatternScreen(registry=watched).find(values[:1], np.array([0, 1], dtype=np.int64))  # compiled once
    begun = time.process_time()
    PatternScreen(registry=watched).find(values, offsets)
    whole, size = time.process_time() - begun, len(values) / 1e6
    numbers = [name for name in calls if name in TIMED]
    part = sum(spent[name] for name in numbers)
    return (
        f"{size:.1f} MB, {sum(calls[name] for name in numbers) / size:,.0f} numbers a MB,"
        f" {part / size * 1e3:.2f} of {whole / size * 1e3:.1f} ms a MB"
    )


if __name__ == "__main__":
    main()
