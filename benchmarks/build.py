"""The whole build beside `tokenizers` alone, on the same text, in one run.

    python benchmarks/build.py FOLDER [--sample-mb 32] [--workers 1 2]

FOLDER holds shards with a column `text`. `tokenizers` (encode_batch_fast, one thread) sees the first documents up to
the sample's size once, and its time for the whole is scaled by bytes; the build reads everything, with a fresh state
and warm start-up caches (the tokenizer's check at load is done by a first build of one document).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

from tokenizers import Tokenizer

from dataaudit.corpus.fields import FieldRule
from dataaudit.corpus.loss import LossLog
from dataaudit.corpus.readers import PartStats, ReadRequest, plan_parts, read_part
from dataaudit.corpus.shards import format_of
from dataaudit.corpus.tokens import resolve_tokenizer
from dataaudit.manifest.load import load_manifest

FIELDS = FieldRule(text="text", source_column=None, source_constant="all", max_record_bytes=1 << 30)


def sample_texts(folder: Path, num_bytes: int) -> list[str]:
    """Return the first documents of every shard in turn, up to ``num_bytes`` of text."""
    paths = sorted(path for path in folder.rglob("*") if format_of(str(path))[0] != "unknown")
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
    return texts


def time_tokenizers(texts: list[str], cache: Path) -> float:
    """Return MB/s of `tokenizers` on one thread, first pass."""
    tokenizer = Tokenizer.from_file(str(resolve_tokenizer(None, base_dir=cache, cache_dir=cache).path))
    size = sum(len(text.encode()) for text in texts)
    begun = time.perf_counter()
    for start in range(0, len(texts), 256):
        tokenizer.encode_batch_fast(texts[start : start + 256], add_special_tokens=False)
    return size / 1e6 / (time.perf_counter() - begun)


def time_build(folder: Path, workers: int, work: Path) -> tuple[float, float]:
    """Return (seconds of the whole command, MB of text)."""
    (work / "warm.jsonl").write_text('{"text": "warm"}\n', encoding="utf-8")
    program = str(Path(sys.executable).with_name("dataaudit"))
    common = ["--workers", str(workers), "--quiet", "--json", "--state", str(work / "state")]
    subprocess.run([program, "build", str(work / "warm.jsonl"), "--manifest", str(work / "warm"), *common],
                   check=True, capture_output=True)  # fmt: skip
    target = work / f"manifest-{workers}"
    begun = time.perf_counter()
    subprocess.run([program, "build", str(folder), "--manifest", str(target), "--fresh", *common],
                   check=True, capture_output=True)  # fmt: skip
    return time.perf_counter() - begun, load_manifest(target).core.totals.bytes / 1e6


def main() -> None:
    """Run and print one line of JSON a measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sample-mb", type=float, default=32)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        alone = time_tokenizers(sample_texts(options.folder, int(options.sample_mb * 1e6)), work)
        print(json.dumps({"tokenizers_mb_per_s": round(alone, 2)}))
        for workers in options.workers:
            seconds, size = time_build(options.folder, workers, work)
            print(
                json.dumps(
                    {
                        "workers": workers,
                        "text_mb": round(size, 1),
                        "build_s": round(seconds, 2),
                        "build_mb_per_s": round(size / seconds, 1),
                        "tokenizers_alone_s": round(size / alone, 1),
                        "ratio_to_tokenizers": round(size / alone / seconds, 1),
                    }
                )
            )


if __name__ == "__main__":
    main()
