"""A plain loop on audited documents of `datasets`: padding-free batches, a run log, a checkpoint.

pip install 'dataaudit[train,hf]' 'transformers>=5' accelerate
python examples/plain_loop.py MANIFEST RUN [STEPS]
"""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import torch
from transformers import DataCollatorWithFlattening, GPT2Config, GPT2LMHeadModel

from dataaudit.training import Documents, TrainingMonitor, byte_encoder, open_manifest
from dataaudit.training.loaders.collator import TaggedCollator
from dataaudit.training.loaders.hub import tagged_dataset

CONTEXT, ROWS = 512, 8


def main(manifest: str, run: Path, steps: int) -> None:
    """Train a small model over bytes, or go on with it."""
    corpus = open_manifest(manifest, require="verified")
    records = tagged_dataset(Documents(corpus, "train", byte_encoder(end=0)), order="shuffled")
    records = records.map(lambda one: {"input_ids": one["input_ids"][:CONTEXT]})
    collate = TaggedCollator(DataCollatorWithFlattening())
    loader = torch.utils.data.DataLoader(records, ROWS, collate_fn=collate, drop_last=True)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=CONTEXT, n_embd=64, n_layer=2, n_head=2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    checkpoint, saved = run.with_suffix(".pt"), None
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    with TrainingMonitor(run, corpus, state=saved and saved["monitor"], shift="inner", order="documents") as monitor:
        for batch in islice(loader, monitor.steps, steps):
            tags = batch.pop("tags")
            output = model(**batch)
            monitor.batch(tags, logits=output.logits, labels=batch["labels"])
            output.loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            monitor.step(output.loss)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state | {"monitor": monitor.state_dict()}, checkpoint)
        print(f"{monitor.steps} steps; dataaudit attribute {run} --manifest {manifest}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 100)
