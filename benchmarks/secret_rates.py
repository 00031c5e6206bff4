"""Secrets beside detect-secrets in one run: recall by kind, findings where there are none to find, speed.

    python benchmarks/secret_rates.py FOLDER [--source linux-source-6.1] [--sample-megabytes 4] [--count 100]
    python benchmarks/secret_rates.py FOLDER --files      # any folder of text files: each is a document
    python benchmarks/secret_rates.py --names 10          # recall of values behind plain names, and by gitleaks' rules

Recall is over secrets that the tests' makers write: random, with the checksums that issuers give them, in lines of
code, config and logs. detect-secrets runs with all of its plugins and default filters over the same texts as files;
a secret is found when any plugin reports its line ("any"), or one that is not of keywords or entropy ("by form").
Findings are counted over all documents of FOLDER (of one source, where their `source` says it), those of
detect-secrets over a sample taken evenly, which is as slow as it is. Times are CPU of one process.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from common import head, need, options, read_batches, row, shards_below

from dataaudit.scan.detectors.patterns.entity import Tier
from dataaudit.scan.detectors.patterns.registry import Registry
from dataaudit.scan.detectors.patterns.screen import find_in
from dataaudit.scan.detectors.secrets.rules import load_secrets

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from issuer_forms import ASSIGNED, NAMED, NOT_LOOKED_FOR, PREFIXED, samples
from made_assignments import ALPHABETS, FOREIGN_NAMES, SHORT_NAMES, SYNTAXES, Made, assignments
from made_secrets import KINDS, documents

WEAK = {"Secret Keyword", "Base64 High Entropy String", "Hex High Entropy String"}
SKIPPED = {"Public IP (ipv4)"}
MEGABYTE = 1_000_000
LONG = 100_000
"""Bytes of a document from which it is not in the sample of detect-secrets: one would be all of it."""


def read_texts(folder: Path, source: str | None) -> Iterator[bytes]:
    """Yield the documents of all shards, of one source where it is named."""
    for batch in read_batches(*shards_below(folder), source="source"):
        names = batch.sources().to_pylist()
        for text, name in zip(batch.texts.to_pylist(), names, strict=True):
            if source in {None, name}:
                yield text.encode()


def read_files(folder: Path) -> Iterator[bytes]:
    """Yield the text files of a folder."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        data = path.read_bytes()
        if data and b"\0" not in data[:4096]:
            yield data


def peer_findings(text: str) -> list[tuple[int, str]]:
    """Return (line, type) of what detect-secrets reports in a text."""
    from detect_secrets import SecretsCollection

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "notes.txt"
        path.write_text(text)
        found = SecretsCollection()
        found.scan_file(str(path))
    return sorted({(one.line_number, one.type) for _, one in found if one.type not in SKIPPED})


def recall(registry: Registry, kind: str, count: int) -> tuple[float, float, float, str]:
    """Return the share found by us, by detect-secrets, and by its forms alone; and our most frequent tier."""
    ours, tiers, peers = 0, Counter[str](), [0, 0]
    for text, start, end in documents(kind, count):
        found, _ = find_in(registry, memoryview(text.encode()))
        over = [one for one in found if one.start < end and one.end > start and not one.reserved]
        ours += bool(over)
        tiers.update(Tier(one.tier).name.lower() for one in over[:1])
        first = text.count("\n", 0, start) + 1
        last = first + text.count("\n", start, end)
        types = {type_ for line, type_ in peer_findings(text) if first <= line <= last}
        peers[0] += bool(types)
        peers[1] += bool(types - WEAK)
    return ours / count, peers[0] / count, peers[1] / count, tiers.most_common(1)[0][0]


def print_recall(registry: Registry, count: int) -> None:
    """Print the table of kinds."""
    head("kind", "entity", "ours", "tier", "detect-secrets, by form", "any")
    rates = []
    for kind, (entity, _, _) in KINDS.items():
        ours, either, by_form, tier = recall(registry, kind, count)
        rates.append((ours, by_form, either))
        row(kind, f"`{entity}`", f"{ours:.2f}", tier, f"{by_form:.2f}", f"{either:.2f}")
    means = ", ".join(f"{sum(column) / len(rates):.3f}" for column in zip(*rates, strict=True))
    least = ", ".join(str(sum(rate >= 0.99 for rate in column)) for column in zip(*rates, strict=True))
    print(f"\n{len(KINDS)} kinds, {count} of each; ours, by form, any: mean {means}; 99 % are found of {least} kinds")


def is_found(registry: Registry, text: str, start: int, end: int) -> bool:
    """Tell whether a value is found as a whole, and is no placeholder."""
    found, _ = find_in(registry, memoryview(text.encode()))
    return any(one.start <= start < end <= one.end and not one.reserved for one in found)


def print_names(registry: Registry, rounds: int) -> None:
    """Print recall by syntax and alphabet, then by rule of gitleaks."""

    def share(made: list[Made]) -> float:
        return sum(is_found(registry, *one) for one in made) / len(made)

    head("syntax", *ALPHABETS)
    for syntax, lines in SYNTAXES.items():
        rates = [share(assignments(syntax, alphabet, rounds * len(lines), seed=9)) for alphabet in ALPHABETS]
        row(syntax, *(f"{rate:.2f}" for rate in rates))
    for title, names in (("short", SHORT_NAMES), ("foreign", FOREIGN_NAMES)):
        rates = [
            share(assignments(syntax, "base62", rounds * len(lines), seed=9, names=names))
            for syntax, lines in SYNTAXES.items()
        ]
        print(f"\n{title} names, base62: least {min(rates):.2f}, mean {sum(rates) / len(rates):.3f} of syntaxes")
    prefixed = {issuer: ("settings", maker) for issuer, maker in PREFIXED.items()}
    for title, rules in (
        ("with a form", NAMED),
        ("behind the service's name", ASSIGNED),
        ("by their prefix", prefixed),
    ):
        by_rule = {
            rule: share(samples(rule, rule.partition("-")[0] if rules is NAMED else first, maker, rounds))
            for rule, (first, maker) in rules.items()
        }
        low = ", ".join(f"{rule} {rate:.2f}" for rule, rate in sorted(by_rule.items()) if rate < 0.99)
        mean = sum(by_rule.values()) / len(by_rule)
        print(f"\n{title}: {len(by_rule)} rules, mean {mean:.3f}; below .99: {low or 'none'}")
    print(f"\nnot looked for: {len(NOT_LOOKED_FOR)} rules")


def print_findings(registry: Registry, texts: list[bytes]) -> None:
    """Print what we find in all documents."""
    counts: Counter[tuple[str, str]] = Counter()
    seconds, num_truncated = 0.0, 0
    for text in texts:
        before = time.process_time()
        found, truncated = find_in(registry, memoryview(text))
        seconds += time.process_time() - before
        num_truncated += truncated
        for one in found:
            tier = "reserved" if one.reserved else Tier(one.tier).name.lower()
            counts[tier, registry.entities[one.code].name] += 1
    megabytes = sum(map(len, texts)) / MEGABYTE
    print(f"\nours: {megabytes:.0f} MB, {len(texts)} documents, {1000 * seconds / megabytes:.2f} ms/MB, ", end="")
    print(f"{num_truncated} documents not looked at wholly")
    for (tier, entity), num in sorted(counts.items()):
        print(f"  {tier:10} {entity:28} {num:6} ({10 * num / megabytes:.3f} per 10 MB)")


def print_beside(registry: Registry, texts: list[bytes], megabytes: float) -> None:
    """Print both on a sample of the documents that are not long."""
    small = [text for text in texts if len(text) < LONG]
    sample = small[:: max(1, round(sum(map(len, small)) / (megabytes * MEGABYTE)))]
    size = sum(map(len, sample)) / MEGABYTE
    before = time.process_time()
    ours_found = sum(not one.reserved for text in sample for one in find_in(registry, memoryview(text))[0])
    ours_seconds = time.process_time() - before
    before = time.process_time()
    types = Counter(type_ for text in sample for _, type_ in peer_findings(text.decode(errors="replace")))
    peer_seconds = time.process_time() - before
    print(f"\nsample: {size:.1f} MB, {len(sample)} documents")
    print(f"  ours           {1000 * ours_seconds / size:9.1f} ms/MB, {ours_found} findings")
    print(f"  detect-secrets {1000 * peer_seconds / size:9.1f} ms/MB, {sum(types.values())} findings, ", end="")
    print(f"{peer_seconds / ours_seconds:.0f} x our time")
    for type_, num in types.most_common():
        print(f"    {type_:32} {num:6} ({10 * num / size:.1f} per 10 MB)")


def main() -> None:
    """Print the tables."""
    given = options(
        __doc__, folder=[Path, ...], source=(str, None), files=False, names=0, sample_megabytes=4.0, count=100
    )
    registry = load_secrets()
    if given.names:
        print_names(registry, rounds=given.names)
    for folder in given.folder:
        need("detect_secrets", "detect-secrets")
        from detect_secrets.settings import default_settings

        with default_settings():
            if given.count:
                print_recall(registry, given.count)
            texts = list(read_files(folder) if given.files else read_texts(folder, given.source))
            print_findings(registry, texts)
            print_beside(registry, texts, given.sample_megabytes)


if __name__ == "__main__":
    main()
