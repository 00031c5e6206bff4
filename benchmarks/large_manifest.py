"""Commands that read large manifests: seconds and peak memory, start-up included.

    python benchmarks/large_manifest.py [--shards 100000] [--folder DIR]
    python benchmarks/large_manifest.py --texts FOLDER [--sources 5 15000] [--documents 15000] [--folder DIR]

Two manifests of many shards are made, of which the second has two shards in a hundred changed; each command runs twice,
as a user runs it, and the second run is shown. With `--texts` a corpus of many sources is built, without workers:
paragraphs of the text files below FOLDER, each with a number at its end, sources in turn. The first build scans and is
not shown; the second finds all parts known, so it links, finalises and publishes.
"""

from __future__ import annotations

import multiprocessing
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from common import PROGRAM, build_command, head, options, row, run
from many_shards import paragraphs

from dataaudit.manifest.load import load_manifest
from dataaudit.manifest.metric import Metric, Scope

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # manifests are made as the tests make them
MADE = """
import runpy
from dataaudit.metrics import relations
relations.contradictions = relations.check_core = lambda *_: []  # numbers made by hand contradict each other
runpy.run_module("dataaudit", run_name="__main__")
"""
GATE, CANARY = (str(ROOT / "pipelines" / name) for name in ("release-gate.yaml", "canary.yaml"))
RULES = [f"set{number // 8}.rule{number % 8}" for number in range(40)]
LANGUAGES = ("de", "en", "fr", "und")
ENTITIES = ("CREDIT_CARD", "EMAIL_ADDRESS", "PHONE_NUMBER")


def shard_rows(number: int, seed: int) -> list[dict[str, Any]]:
    """Return rows of shards with every column filled, those of lists too."""
    from made_manifest import shard

    generator = random.Random(seed)
    made = []
    for index in range(number):
        digest = f"{index + (generator.random() < 0.01) * number * seed:064x}"
        made.append(
            shard(
                f"crawl-2026-11/part-{index:06d}.jsonl.zst",
                split="val" if index % 10 == 0 else "train",
                documents=100 + index % 7,
                tokens=1000 + generator.randrange(200),
                sources={"code": 500, "web": 500},
                bytes_per_token=4 + generator.gauss(0, 0.1),
                sha256=digest,
                rows_digest=digest,
                filters=[{"rule": rule, "documents": generator.randrange(20)} for rule in RULES],
                filter_reject_rate=generator.random() / 5,
                near_dup_rate=generator.random() / 10,
                repeat_token_share=0.01,
                languages=[
                    {"language": name, "documents": 1, "bytes": 1, "tokens": generator.randrange(9)}
                    for name in LANGUAGES
                ],
                pii=[{"entity": name, "tier": "validated", "hits": 1, "documents": 1} for name in ENTITIES],
                pii_hits=3.0,
                pii_documents=2,
                secret_hits=0,
                secrets_validated=0,
                toxicity_screen=0.01,
                toxicity_screened=100,
                held_out_copies=0,
                contaminated=0,
            )
        )
    return made


def publish(folder: Path, number: int, seed: int) -> None:
    """Publish a manifest of many shards."""
    from made_manifest import make

    metrics = [
        Metric(metric=metric, stat=stat, scope=Scope(**scope), unit=unit, value=value, n=1, denominator=1)
        for metric, stat, value, unit, scope in (
            ("coverage_unread_bytes", "shard_bytes", 0.0, "bytes", {}),
            ("near_dup_rate", "rate", 0.05, "ratio", {}),
            ("train_val_overlap", "near_dup", 0.0, "ratio", {"set": "val"}),
        )
    ]
    make(folder, sorted(shard_rows(number, seed), key=lambda made: (made["split"], made["uri"])), metrics=metrics)


def many_shards(folder: Path, shards: int) -> None:
    """Print what commands take on manifests of many shards."""
    for name, seed in (("old", 1), ("new", 2)):
        if not (folder / name).exists():  # in a process of its own: its memory would count for the commands
            making = multiprocessing.Process(target=publish, args=(folder / name, shards, seed))
            making.start()
            making.join()
    old, new, out = str(folder / "old"), str(folder / "new"), str(folder / "report.html")
    commands = {
        "gate": ["gate", new, "--policy", GATE],
        "gate, with a baseline": ["gate", new, "--policy", GATE, "--baseline", old],
        "gate, canary": ["gate", new, "--policy", CANARY],
        "diff": ["diff", old, new],
        "report": ["report", new, "--out", out],
        "report, with a baseline": ["report", new, "--out", out, "--baseline", old],
    }
    print(f"{shards:,} shards\n")
    head("command", "s", "CPU s", "peak MB", "exit code")
    for name, command in commands.items():
        cost = [run(sys.executable, "-c", MADE, *command) for _ in range(2)][1]
        row(name, f"{cost.wall_s:.2f}", f"{cost.cpu_s:.2f}", f"{cost.peak_mb:.0f}", cost.code)
    print(f"\nreport.html: {Path(out).stat().st_size / 1e6:.2f} MB")


def write_corpus(folder: Path, texts: list[str], sources: int, documents: int) -> Path:
    """Write a split for training and a held-out split of each twentieth document; return the config."""
    folder.mkdir(parents=True, exist_ok=True)
    places = range(documents)
    made = pa.table(
        {
            "text": [f"{texts[place % len(texts)]} {place}" for place in places],
            "source": [f"www.site-{place % sources:05}.example" for place in places],
        }
    )
    first = documents * 19 // 20
    pq.write_table(made.slice(0, first), folder / "train.parquet")
    pq.write_table(made.slice(first), folder / "val.parquet")
    config = folder / "audit.yaml"
    split = "text: text, source: {column: source}"
    config.write_text(
        f"dataset: {{name: many-sources, version: 1.0.0}}\nmax_sources: {max(10_000, sources)}\nsplits:\n"
        f"  train: {{paths: [train.parquet], {split}}}\n  val: {{paths: [val.parquet], {split}, held_out: true}}\n"
    )
    return config


def many_sources(folder: Path, texts: list[str], sources: int, documents: int) -> None:
    """Print what commands take on a manifest of many sources."""
    config, target = write_corpus(folder, texts, sources, documents), str(folder / "manifest")
    build = build_command(config, folder, 0)[1:]
    commands = [build, ["show", target], ["gate", target, "--policy", GATE], ["verify", target]]
    commands += [["report", target, "--out", str(folder / "report.html")], ["diff", target, target]]
    run(PROGRAM, *build)
    records = load_manifest(folder / "manifest").core.tables["metrics"].rows
    for command in commands:
        cost = run(PROGRAM, *command)
        row(f"`{command[0]}`", f"{sources:,}", f"{records:,}", f"{cost.cpu_s:.1f}", f"{cost.peak_mb:.0f}", cost.code)


def main() -> None:
    """Make the manifests, run the commands, print a table."""
    none = (Path, None)
    given = options(__doc__, shards=100_000, folder=none, texts=none, sources=[5, 15_000], documents=15_000)
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        if given.texts is None:
            many_shards(folder, given.shards)
            return
        texts = paragraphs(given.texts)
        head("command", "sources", "records", "CPU s", "peak MB", "exit code")
        for sources in given.sources:
            many_sources(folder / str(sources), texts, sources, given.documents)


if __name__ == "__main__":
    main()
