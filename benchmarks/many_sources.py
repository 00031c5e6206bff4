"""What many sources cost beyond the scan: a second build over the same state folder, and every command that reads.

    python benchmarks/many_sources.py TEXTS [--sources 5 15000] [--documents 15000] [--folder DIR]

Documents are paragraphs of the text files below TEXTS, each with a number at its end; sources take turns. The first
build of a corpus scans and is not told; the second finds all parts known, so it links, finalises and publishes. Each
command runs as a user runs it, with one process. Reported are CPU seconds of the user, peak memory and exit code.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from many_shards import PROGRAM, paragraphs

from dataaudit.manifest.load import load_manifest

POLICY = Path(__file__).parents[1] / "pipelines" / "release-gate.yaml"


def write_corpus(folder: Path, texts: list[str], sources: int, documents: int) -> Path:
    """Write a split for training and one that is held out, one document in twenty; return the config."""
    folder.mkdir(parents=True)
    rows = [
        (f"{texts[place % len(texts)]} {place}", f"www.site-{place % sources:05}.example") for place in range(documents)
    ]
    splits = []
    for split, first, last in (("train", 0, documents * 19 // 20), ("val", documents * 19 // 20, documents)):
        table = pa.table(dict(zip(("text", "source"), map(list, zip(*rows[first:last], strict=True)), strict=True)))
        pq.write_table(table, folder / f"{split}.parquet")
        held_out = ", held_out: true" if split == "val" else ""
        splits.append(f"  {split}: {{paths: [{split}.parquet], text: text, source: {{column: source}}{held_out}}}")
    config = folder / "audit.yaml"
    head = f"dataset: {{name: many-sources, version: 1.0.0}}\nmax_sources: {max(10_000, sources)}\nsplits:"
    config.write_text("\n".join([head, *splits, ""]))
    return config


def measure(arguments: list[str]) -> tuple[float, float, int]:
    """Return CPU seconds, peak megabytes and exit code of a command."""
    with subprocess.Popen([PROGRAM, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        _, status, usage = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime, usage.ru_maxrss / 1e3, running.returncode


def main() -> None:
    """Build, run the commands, print a row of a table for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--sources", type=int, nargs="+", default=[5, 15_000])
    parser.add_argument("--documents", type=int, default=15_000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    given = parser.parse_args()
    texts = paragraphs(given.texts)
    print("| sources | records | command | CPU s | peak MB | exit code |\n|--:|--:|---|--:|--:|--:|")
    for sources in given.sources:
        with tempfile.TemporaryDirectory(dir=given.folder) as name:
            work = Path(name)
            config, target = write_corpus(work / "data", texts, sources, given.documents), str(work / "manifest")
            build = ["build", str(config), "--manifest", target, "--state", str(work / "state"), "--workers", "0"]
            measure(build)
            commands = [build, ["show", target], ["gate", target, "--policy", str(POLICY)], ["verify", target]]
            commands += [["report", target, "--out", str(work / "report.html")], ["diff", target, target]]
            for command in commands:
                seconds, megabytes, code = measure(command)
                records = load_manifest(Path(target)).core.tables["metrics"].rows
                print(
                    f"| {sources:,} | {records:,} | `{command[0]}` | {seconds:.1f} | {megabytes:.0f} | {code} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
