"""Gate, diff and report on manifests of 100,000 shards: seconds and peak memory of whole commands.

``python benchmarks/large_manifest.py [--shards N] [--folder DIR]`` makes two manifests, of which the second has one
shard in a hundred changed, and runs each command twice, as a user does. The second run is told.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

from dataaudit.manifest.metric import Metric, Scope

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # manifests are made as the tests make them
PROGRAM = """
import runpy
from dataaudit.metrics import relations
relations._without_stages = lambda manifest: []  # as in the tests: manifests made by hand name no stages
runpy.run_module("dataaudit", run_name="__main__")
"""
RULES = [f"set{number // 8}.rule{number % 8}" for number in range(40)]
LANGUAGES = ("de", "en", "fr", "und")
ENTITIES = ("CREDIT_CARD", "EMAIL_ADDRESS", "PHONE_NUMBER")


def rows(number: int, seed: int) -> list[dict[str, Any]]:
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
                    {"language": one, "documents": 1, "bytes": 1, "tokens": generator.randrange(9)} for one in LANGUAGES
                ],
                pii=[{"entity": one, "tier": "validated", "hits": 1, "documents": 1} for one in ENTITIES],
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


def record(metric: str, stat: str, value: float, unit: str, **scope: Any) -> Metric:
    """Return a metric record."""
    return Metric(metric=metric, stat=stat, scope=Scope(**scope), unit=unit, value=value, n=1, denominator=1)


def publish(folder: Path, number: int, seed: int) -> None:
    """Publish a manifest."""
    from made_manifest import make

    metrics = [
        record("coverage_unread_bytes", "shard_bytes", 0.0, "bytes"),
        record("near_dup_rate", "rate", 0.05, "ratio"),
        record("train_val_overlap", "near_dup", 0.0, "ratio", set="val"),
    ]
    made = sorted(rows(number, seed), key=lambda row: (row["split"], row["uri"]))
    make(folder, made, metrics=metrics)


def measure(command: list[str]) -> tuple[float, float, float, int]:
    """Return seconds, seconds of processor time, peak megabytes and exit code of a command."""
    started = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", PROGRAM, *command], stdout=DEVNULL, stderr=DEVNULL) as running:
        _, status, usage = os.wait4(running.pid, 0)  # unlike wait(), it tells what this one process took
        seconds = time.perf_counter() - started
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3, os.waitstatus_to_exitcode(status)


def main() -> None:
    """Make the manifests, run the commands, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        for name, seed in (("old", 1), ("new", 2)):
            if not (folder / name).exists():  # in a process of its own: its memory would count for the commands
                making = multiprocessing.Process(target=publish, args=(folder / name, options.shards, seed))
                making.start()
                making.join()
        old, new, out = str(folder / "old"), str(folder / "new"), str(folder / "report.html")
        policy = str(ROOT / "pipelines" / "release-gate.yaml")
        commands = {
            "gate": ["gate", new, "--policy", policy],
            "gate, with a baseline": ["gate", new, "--policy", policy, "--baseline", old],
            "gate, canary": ["gate", new, "--policy", str(ROOT / "pipelines" / "canary.yaml")],
            "diff": ["diff", old, new],
            "report": ["report", new, "--out", out],
            "report, with a baseline": ["report", new, "--out", out, "--baseline", old],
        }
        print(f"{options.shards:,} shards\n\n| command | s | CPU s | peak MB | exit code |\n|---|---|---|---|---|")
        for name, command in commands.items():
            measure(command)
            seconds, cpu, megabytes, code = measure(command)
            print(f"| {name} | {seconds:.2f} | {cpu:.2f} | {megabytes:.0f} | {code} |")
        print(f"\nreport.html: {Path(out).stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
