"""One of two processes that read the files of `streaming` or `litdata` together, and log what they met."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch.distributed as dist
from reading import padded
from test_stored import ROWS, stand_in_for_pictures

from dataaudit.training.loaders.collator import TaggedCollator
from dataaudit.training.packing import ROW, SHARD


def main(kind: str, folder: Path, out: Path) -> None:
    """Read one pass."""
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    if kind == "mds":
        stand_in_for_pictures()
        import streaming

        rows = streaming.StreamingDataset(local=str(folder), batch_size=ROWS, shuffle=True, shuffle_seed=3)
        loader = streaming.StreamingDataLoader(rows, batch_size=ROWS, collate_fn=TaggedCollator(padded))
    else:
        import litdata

        rows = litdata.StreamingDataset(str(folder), shuffle=True, seed=3)
        loader = litdata.StreamingDataLoader(rows, batch_size=ROWS, collate_fn=TaggedCollator(padded))
    met = [
        [int(tag[SHARD]), int(tag[ROW]), batch["input_ids"][row, tag[4] : tag[4] + tag[6] + 1].tolist()]
        for batch in loader
        for row, tags in enumerate(batch["tags"])
        for tag in tags
        if tag[SHARD] >= 0
    ]
    (out / f"met-{rank}.json").write_text(json.dumps(met))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
