"""The whole build beside `tokenizers` alone, on the same text, in one run; memory; where the time goes.

    python benchmarks/scan.py FOLDER [--sample-mb 32] [--workers 1 2] [--pin] [--rounds 3] [--profile]

FOLDER holds shards with a column `text`. `tokenizers` (encode_batch_fast, one thread) sees the first documents of every
shard up to the sample's size once, and its time for the whole is scaled by bytes. The build is the whole command with
default settings: start-up, hashing, every stage, link, publishing, with a fresh state folder; only what a user has
after the first build of all is known (the check of the vocabulary, compiled kernels). Rounds alternate between the two.
`--pin` puts everything, `tokenizers` and the build with its workers, on one core. `--profile` runs the scan of one
worker in this process and prints CPU milliseconds for each megabyte of text by step.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

from profile_scan import profile
from tokenizers import Tokenizer

from dataaudit.corpus.fields import FieldRule
from dataaudit.corpus.loss import LossLog
from dataaudit.corpus.readers import PartStats, ReadRequest, plan_parts, read_part
from dataaudit.corpus.shards import format_of
from dataaudit.corpus.tokens import resolve_tokenizer
from dataaudit.manifest.load import load_manifest

FIELDS = FieldRule(text="text", source_column=None, source_constant="all", max_record_bytes=1 << 30)
PROGRAM = str(Path(sys.executable).with_name("dataaudit"))
POLL_SECONDS = 0.05


def sample_texts(folder: Path, num_bytes: int) -> list[str]:
    """Return the first documents of every shard in turn, up to ``num_bytes`` of text."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and format_of(str(path))[0] != "unknown")
    texts: list[str] = []
    share = num_bytes // max(1, len(paths))
    for path in paths:
        format_, compression = format_of(str(path))
        held = 0
        for part in plan_parts(str(path), format_, compression, path.stat().st_size, 1 << 60):
            request = ReadRequest(
                path=str(path), format=format_, compression=compression, part=part, fields=FIELDS, batch_bytes=1 << 20
            )
            for batch in read_part(request, LossLog(), PartStats()):
                texts += batch.texts.to_pylist()
                held += int(batch.num_bytes().sum())
                if held >= share:
                    break
            if held >= share:
                break
    return texts


def time_tokenizers(texts: list[str], cache: Path) -> float:
    """Return MB/s of `tokenizers` on one thread, first pass."""
    tokenizer = Tokenizer.from_file(str(resolve_tokenizer(None, base_dir=cache, cache_dir=cache).path))
    size = sum(len(text.encode()) for text in texts)
    begun = time.perf_counter()
    for start in range(0, len(texts), 256):
        tokenizer.encode_batch_fast(texts[start : start + 256], add_special_tokens=False)
    return size / 1e6 / (time.perf_counter() - begun)


class Watch(threading.Thread):
    """Polls the resident memory of a process and of everything below it."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.peaks: dict[int, int] = {}
        self.ended = threading.Event()

    def run(self) -> None:
        """Poll until told to end."""
        while not self.ended.wait(POLL_SECONDS):
            for pid in _tree(self.pid):
                try:
                    pages = int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])
                except (OSError, IndexError):
                    continue
                self.peaks[pid] = max(self.peaks.get(pid, 0), pages * os.sysconf("SC_PAGE_SIZE"))

    def peak_mb(self) -> tuple[int, int]:
        """Return the peak of the driver and of the largest other process, MB."""
        others = [peak for pid, peak in self.peaks.items() if pid != self.pid]
        return self.peaks.get(self.pid, 0) // 1_000_000, max(others, default=0) // 1_000_000


def _tree(pid: int) -> list[int]:
    found = [pid]
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return found
    for child in children:
        found += _tree(child)
    return found


def run_build(inputs: str, workers: int, work: Path, name: str) -> tuple[float, float, tuple[int, int]]:
    """Return (seconds of the whole command, MB of text, peak memory in MB of driver and worker)."""
    target = work / name
    command = [
        PROGRAM,
        "build",
        inputs,
        "--manifest",
        str(target),
        "--state",
        str(work / f"state-{name}"),
        "--workers",
        str(workers),
        "--quiet",
        "--json",
    ]
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    watch = Watch(process.pid)
    watch.start()
    code = process.wait()
    seconds = time.perf_counter() - begun
    watch.ended.set()
    watch.join()
    if code not in (0, 3):
        raise SystemExit(f"the build ended with code {code}: {' '.join(command)}")
    return seconds, load_manifest(target).core.totals.bytes / 1e6, watch.peak_mb()


def main() -> None:
    """Run and print one line of JSON a measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sample-mb", type=float, default=32)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    if options.pin:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        if options.profile:
            print(json.dumps(profile(options.folder, work), indent=1))
            return
        (work / "warm.jsonl").write_text('{"text": "warm"}\n', encoding="utf-8")
        start_up = [run_build(str(work / "warm.jsonl"), 1, work, f"warm-{turn}")[0] for turn in range(2)][-1]
        print(json.dumps({"build_of_one_document_s": round(start_up, 2)}), flush=True)
        texts = sample_texts(options.folder, int(options.sample_mb * 1e6))
        ratios: dict[int, list[float]] = {}
        for turn in range(options.rounds):
            alone = time_tokenizers(texts, work)
            print(json.dumps({"tokenizers_mb_per_s": round(alone, 2)}), flush=True)
            for workers in options.workers:
                seconds, size, peak = run_build(str(options.folder), workers, work, f"build-{workers}-{turn}")
                ratios.setdefault(workers, []).append(size / alone / seconds)
                measured = {
                    "workers": workers,
                    "text_mb": round(size, 1),
                    "build_s": round(seconds, 2),
                    "build_mb_per_s": round(size / seconds, 1),
                    "tokenizers_alone_s": round(size / alone, 1),
                    "ratio_to_tokenizers": round(ratios[workers][-1], 1),
                    "driver_mb": peak[0],
                    "worker_mb": peak[1],
                }
                print(json.dumps(measured), flush=True)
        medians = {str(workers): round(statistics.median(found), 1) for workers, found in ratios.items()}
        print(json.dumps({"median_ratio_by_workers": medians}))


if __name__ == "__main__":
    main()
