"""The whole build beside `tokenizers` alone, on the same text, in one run; memory; where the time goes.

    python benchmarks/scan.py FOLDER [--workers 1 2] [--rounds 3] [--off STAGE ...] [--pin] [--profile]

FOLDER holds shards with columns `text` and `source`. `tokenizers` (encode_batch_fast, one thread) sees the first
documents of every shard up to the sample's size once, and its time for the whole is scaled by bytes. The build is the
whole command with default settings, less the stages of `--off`: start-up, hashing, every stage, link, publishing, with
a fresh state folder; only what a user has after the first build of all is known (the check of the vocabulary, compiled
kernels). Rounds alternate between the two. `--pin` puts everything, `tokenizers` and the build with its workers, on one
core. `--profile` runs the scan of one worker in this process and prints CPU milliseconds for each megabyte by step.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

from common import Cost, build_command, ended, options, read_batches, shards_below
from profile_scan import profile
from tokenizers import Tokenizer

from dataaudit.manifest.load import load_manifest
from dataaudit.scan.corpus.tokens import resolve_tokenizer

POLL_SECONDS = 0.05


def sample_texts(folder: Path, num_bytes: int) -> list[str]:
    """Return the first documents of every shard in turn, up to ``num_bytes`` of text."""
    texts: list[str] = []
    paths = shards_below(folder)
    for path in paths:
        taken = 0
        for batch in read_batches(path, batch_bytes=1 << 20):
            texts += batch.texts.to_pylist()
            taken += int(batch.num_bytes().sum())
            if taken >= num_bytes // len(paths):
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


class Peaks(threading.Thread):
    """Polls the resident memory of a process and of everything below it."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.peaks: dict[int, int] = {}
        self.ended = threading.Event()
        self.start()

    def run(self) -> None:
        """Poll until the end."""
        while not self.ended.wait(POLL_SECONDS):
            for pid in _tree(self.pid):
                try:
                    pages = int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])
                except (OSError, IndexError):
                    continue
                self.peaks[pid] = max(self.peaks.get(pid, 0), pages * os.sysconf("SC_PAGE_SIZE"))

    def megabytes(self) -> tuple[int, int]:
        """End; return the peak of the driver and of the largest other process, MB."""
        self.ended.set()
        self.join()
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


def run_build(inputs: Path, workers: int, work: Path) -> tuple[Cost, float, tuple[int, int]]:
    """Return costs of the whole command, MB of text, peak memory in MB of driver and worker."""
    command = build_command(inputs, work, workers)
    begun = time.perf_counter()
    process = subprocess.Popen([*command, "--quiet", "--json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peaks = Peaks(process.pid)
    cost = ended(process, begun)
    if cost.code not in {0, 3}:
        raise SystemExit(f"the build ended with code {cost.code}: {' '.join(command)}")
    return cost, load_manifest(work / "manifest").core.totals.bytes / 1e6, peaks.megabytes()


def main() -> None:
    """Run and print one line of JSON a measurement."""
    given = options(
        __doc__, folder=Path, sample_mb=32.0, workers=[1, 2], rounds=3, off=(str, []), pin=False, profile=False
    )
    if given.pin:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        split = {"paths": [str(given.folder.resolve())], "text": "text", "source": {"column": "source"}}
        config = {"splits": {"all": split}, "stages": dict.fromkeys(given.off, False)}
        if given.profile:
            print(json.dumps(profile(config, work), indent=1))
            return
        (work / "audit.yaml").write_text(json.dumps(config))
        (work / "warm.jsonl").write_text('{"text": "warm"}\n', encoding="utf-8")
        alone = [run_build(work / "warm.jsonl", 1, work / f"warm-{turn}")[0].wall_s for turn in range(2)][-1]
        print(json.dumps({"build_of_one_document_s": round(alone, 2)}), flush=True)
        texts = sample_texts(given.folder, int(given.sample_mb * 1e6))
        ratios: dict[int, list[float]] = {workers: [] for workers in given.workers}
        for turn in range(given.rounds):
            speed = time_tokenizers(texts, work)
            print(json.dumps({"tokenizers_mb_per_s": round(speed, 2)}), flush=True)
            for workers, found in ratios.items():
                cost, size, peak = run_build(work / "audit.yaml", workers, work / f"build-{workers}-{turn}")
                found.append(size / speed / cost.wall_s)
                measured = {
                    "workers": workers,
                    "text_mb": round(size, 1),
                    "build_s": round(cost.wall_s, 2),
                    "build_cpu_s": round(cost.cpu_s, 2),
                    "build_mb_per_s": round(size / cost.wall_s, 1),
                    "tokenizers_alone_s": round(size / speed, 1),
                    "ratio_to_tokenizers": round(found[-1], 1),
                    "driver_mb": peak[0],
                    "worker_mb": peak[1],
                }
                print(json.dumps(measured), flush=True)
        medians = {str(workers): round(statistics.median(found), 1) for workers, found in ratios.items()}
        print(json.dumps({"median_ratio_by_workers": medians}))


if __name__ == "__main__":
    main()
