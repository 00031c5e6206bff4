"""Token files of one corpus by `dataaudit tokenize`, datatrove's DocumentTokenizer, and Megatron's way, by turns.

    python benchmarks/token_files.py SHARDS... [--tokenizer tokenizer.json --end-token END] [--workers 2] [--rounds 3]
        [--peers PYTHON]

SHARDS are plain JSON lines with a column `text`. The manifest is built before, with the stage `volume` alone; each
round of `tokenize` has the state folder of the build without what was encoded. Every way is a command, so starting it
counts. Megatron's way is that of its `preprocess_data.py`: a pool of processes encodes lines by `tokenizers`, and one
process writes what its writer writes. PYTHON is an interpreter with datatrove and tokenizers, by default this one. The
table shows median seconds, tokens a second, and whether the `.bin` has the bytes of ours.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import PROGRAM, has, head, options, row, run

from dataaudit import api
from dataaudit.metrics.registry import by_stage
from dataaudit.metrics.stages import REQUIRED
from dataaudit.scan.corpus.tokens import resolve_tokenizer

END = "<\uff5cend\u2581of\u2581sentence\uff5c>"
"""Of the default tokenizer."""
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


def main() -> None:
    """Measure, and print a table."""
    names = {"tokenizer": (Path, None), "end_token": END, "peers": sys.executable}
    given = options(__doc__, shards=[Path], workers=2, rounds=3, **names)
    with tempfile.TemporaryDirectory() as made:
        measure(Path(made), given)


def measure(folder: Path, given: Any) -> None:
    """Measure in a folder of its own."""
    data = folder / "data"
    data.mkdir()
    for path in given.shards:
        shutil.copy(path, data)
    tokenizer = given.tokenizer or resolve_tokenizer(None, base_dir=folder, cache_dir=folder).path
    split = {"paths": ["data/*.jsonl"], "text": "text", "source": {"constant": "all"}}
    off = {name: False for name in by_stage() if name not in REQUIRED}
    config = {"splits": {"train": split}, "tokenizer": str(tokenizer.absolute()), "stages": off}
    api.build(config, folder / "m", base=folder, workers=given.workers)
    program = [PROGRAM, "tokenize", folder / "m", "--format", "megatron", "--dtype", "int32", "--quiet"]
    ways = {"dataaudit tokenize": [*program, "--end-token", given.end_token, "--workers", given.workers, "--out", None]}
    scripts = {"Megatron's way": MEGATRON}
    if given.peers != sys.executable or has("datatrove"):
        scripts["datatrove DocumentTokenizer"] = DATATROVE
    for name, script in scripts.items():
        (folder / f"{name.split()[0]}_way.py").write_text(script)
        peer = [given.peers, folder / f"{name.split()[0]}_way.py", data, None]
        ways[name] = [*peer, tokenizer.absolute(), given.workers, given.end_token]
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(given.rounds):
        for name, command in ways.items():
            out = folder / f"{name} {turn}"
            out.mkdir()
            for known in (".dataaudit/tokens", ".dataaudit/partials/encoded"):
                shutil.rmtree(folder / known, ignore_errors=True)
            cost = run(*(out if part is None else part for part in command))
            if cost.code:
                raise SystemExit(f"{name} ended with code {cost.code}")
            seconds[name].append(cost.wall_s)
    ours = (folder / "dataaudit tokenize 0/train.bin").read_bytes()
    size = sum(path.stat().st_size for path in data.iterdir()) / 1e6
    print(f"{len(ours) // 4:,} tokens, {size:,.0f} MB, {given.rounds} rounds")
    head("way", "s", "million tokens/s", "bytes", "each round, s")
    for name, found in seconds.items():
        other = folder / f"{name} 0/train.bin"
        same = "the same" if other.exists() and other.read_bytes() == ours else "another form"
        middle = statistics.median(found)
        speed = len(ours) / 4 / middle / 1e6
        row(name, f"{middle:.2f}", f"{speed:.2f}", same, ", ".join(f"{each:.2f}" for each in found))


if __name__ == "__main__":
    main()
