"""Spikes of the state and spikes of the data, told apart by replay: small GPTs, ten runs of each kind and seed.

    python benchmarks/spike_replay.py OUT [--runs 10] [--kinds data rate moments clean]

A model of one layer (about 30,000 weights, dropout, AdamW, a schedule) reads 40 shards of made words one after another.
``data``: one shard has random letters, 60 documents in a burst. ``rate``: the learning rate is a hundred times as high
for two steps. ``moments``: the optimizer's second moments lose eight orders of magnitude. In each the shard that fills
the steps of the spike is named as suspect; which it is, is the question. A line a run, and a table at the end; runs
that are there already are not made again.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections import Counter
from pathlib import Path

import torch
from common import options

from dataaudit.training.attribution.attribute import attribute
from dataaudit.training.attribution.run_data import load_data
from dataaudit.training.replay.replaying import replayed

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "unit/training")]
world = importlib.import_module("replay_world")
KINDS = ["data", "rate", "moments", "clean"]
BAD, SPIKE = 30, 100


def main() -> None:
    """Run what the command line says."""
    given = options(__doc__, out=Path, runs=10, kinds=KINDS)
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    for seed in range(given.runs):
        for kind in given.kinds:
            file = given.out / f"{kind}-{seed}.json"
            if not file.exists():
                file.write_text(json.dumps(one_run(given.out / f"{kind}-{seed}", kind, seed)))
            print(kind, seed, file.read_text(), flush=True)
    for kind in KINDS:
        held = [json.loads(file.read_text()) for file in sorted(given.out.glob(f"{kind}-*.json"))]
        for name in ("direct", "contagion", "proposed", "reproduced"):
            print(kind, name, dict(Counter(str(one[name]) for one in held)))


def one_run(folder: Path, kind: str, seed: int) -> dict[str, object]:
    """Train, attribute, replay; return what was said."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    manifest = world.write_corpus(folder, bad=(BAD,) if kind == "data" else (), bad_documents=60, seed=seed)
    settings = world.Settings(
        seed=seed,
        rate=1e-2 if kind == "data" else 3e-3,
        jump=(SPIKE, SPIKE + 1) if kind == "rate" else (),
        spoil=SPIKE if kind == "moments" else 0,
    )
    loop = world.train(manifest, folder / "run", settings)
    data = load_data(folder / "run", manifest)
    found = attribute(data)
    first = (SPIKE - 1) * world.ROWS
    fills = Counter(int(loop.rows.row_tags(row)[0, 0]) for row in range(first, first + world.ROWS)).most_common(1)[0][0]
    suspect = BAD if kind == "data" else fills
    made = world.replay(manifest, folder / "run", settings)
    done = replayed(data, found, made, "benchmark", (str(suspect),))
    assert done.replay is not None
    one = done.replay.suspects[0]
    shutil.rmtree(folder)
    return {
        "episodes": [(each.first_step, each.last_step, each.reason) for each in found.episodes],
        "direct": one.direct.outcome,
        "effect": one.direct.effect,
        "p": one.direct.p,
        "contagion": None if one.contagion is None else one.contagion.outcome,
        "reproduced": one.contagion is None or one.contagion.outcome != "not_reproduced",
        "rises": {} if one.contagion is None else {each.arm: each.rise for each in one.contagion.arms},
        "proposed": bool(done.proposals),
    }


if __name__ == "__main__":
    main()
