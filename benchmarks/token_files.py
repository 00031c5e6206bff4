"""Token files of one corpus by `dataaudit tokenize`, datatrove's DocumentTokenizer, and Megatron's way, by turns.

    python benchmarks/token_files.py SHARDS... --tokenizer tokenizer.json [--workers 2] [--rounds 3] [--peers PYTHON]

SHARDS are plain JSON lines with a column `text`. The manifest is built before, with the stage `volume` alone; each
round of `tokenize` has the state folder of the build without what was encoded. Every way is a command, so starting it
counts. Megatron's way is that of its `preprocess_data.py`: a pool of processes encodes lines by `tokenizers`, and one
process writes what its writer writes. PYTHON is an interpreter with datatrove and tokenizers; without it only
`tokenize` runs. The table shows seconds, tokens a second, and whether the `.bin` has the bytes of ours.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dataaudit import api

DATATROVE = """
import sys
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer
folder, out, tokenizer, workers, end = sys.argv[1:]
if __name__ == "__main__":
    steps = [JsonlReader(folder), DocumentTokenizer(out + "/tokens", tokenizer_name_or_path=tokenizer, eos_token=end,
                                                    shuffle_documents=False)]
    LocalPipelineExecutor(steps, tasks=int(workers), workers=int(workers), logging_dir=out + "/logs").run()
"""
MEGATRON = """
import json, sys
from multiprocessing import Pool
import numpy as np
from tokenizers import Tokenizer
folder, out, tokenizer, workers, end = sys.argv[1:]
def start():
    global encoder, stop
    encoder = Tokenizer.from_file(tokenizer)
    stop = encoder.token_to_id(end)
def encode(line):
    return encoder.encode(json.loads(line)["text"], add_special_tokens=False).ids + [stop]
if __name__ == "__main__":
    import os
    from pathlib import Path
    lengths = []
    with Pool(int(workers), initializer=start) as pool, open(out + "/train.bin", "wb") as file:
        for path in sorted(Path(folder).glob("*.jsonl")):
            with path.open(encoding="utf-8") as lines:
                for ids in pool.imap(encode, lines, 32):
                    file.write(np.array(ids, dtype=np.int32).tobytes())
                    lengths.append(len(ids))
    np.array(lengths, dtype=np.int32).tofile(out + "/train.idx")
"""


def timed(command: list[str]) -> float:
    """Run a command; return its seconds."""
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shards", nargs="+", type=Path)
    parser.add_argument("--tokenizer", required=True, type=Path)
    parser.add_argument("--end-token", default="<|endoftext|>")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", help="interpreter with datatrove and tokenizers")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        measure(Path(made), given)


def measure(folder: Path, given: argparse.Namespace) -> None:
    """Measure in a folder of its own."""
    data = folder / "data"
    data.mkdir()
    for path in given.shards:
        shutil.copy(path, data)
    stages = ("lengths", "exact_dup", "near_dup", "overlap", "repeats", "language", "filters", "toxicity", "pii")
    off = dict.fromkeys((*stages, "secrets", "histogram", "padding"), False)
    split = {"paths": ["data/*.jsonl"], "text": "text", "source": {"constant": "all"}}
    config = {"splits": {"train": split}, "tokenizer": str(given.tokenizer.absolute()), "stages": off}
    api.build(config, folder / "m", base=folder, workers=given.workers)
    program = [str(Path(sys.executable).with_name("dataaudit")), "tokenize", str(folder / "m"), "--format", "megatron"]
    program += ["--dtype", "int32", "--end-token", given.end_token, "--workers", str(given.workers), "--quiet"]
    own = [str(data), "OUT", str(given.tokenizer.absolute()), str(given.workers), given.end_token]
    ways = {"dataaudit tokenize": [*program, "--out", "OUT"]}
    if given.peers:
        for name, script in (("Megatron's way", MEGATRON), ("datatrove DocumentTokenizer", DATATROVE)):
            (folder / f"{name.split()[0]}_way.py").write_text(script)
            ways[name] = [given.peers, str(folder / f"{name.split()[0]}_way.py"), *own]
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(given.rounds):
        for name, command in ways.items():
            out = folder / f"{name} {turn}"
            out.mkdir()
            for known in (".dataaudit/tokens", ".dataaudit/partials/encoded"):
                shutil.rmtree(folder / known, ignore_errors=True)
            seconds[name].append(timed([str(out) if one == "OUT" else one for one in command]))
    ours = (folder / "dataaudit tokenize 0/train.bin").read_bytes()
    tokens = len(ours) // 4
    print(
        f"{tokens:,} tokens, {sum(path.stat().st_size for path in data.iterdir()) / 1e6:,.0f} MB, {given.rounds} rounds"
    )
    for name, found in seconds.items():
        other = folder / f"{name} 0/train.bin"
        same = "the same bytes" if other.exists() and other.read_bytes() == ours else "another form"
        best = statistics.median(found)
        print(f"{name:<28} {best:7.2f} s  {tokens / best / 1e6:7.2f} million tokens/s  {same}  {json.dumps(found)}")


if __name__ == "__main__":
    main()
