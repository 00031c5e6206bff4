"""A plain loop on Megatron's token files, by our reader with tags, or by Megatron's own data set without.

pip install 'dataaudit[build,train]'
dataaudit tokenize MANIFEST --out tokens --format megatron
python examples/megatron_files.py MANIFEST tokens/train.bin RUN [STEPS]

With --megatron behind it (pip install megatron-core) the rows are those of Megatron's GPTDataset.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from dataaudit.manifest.load import load_manifest
from dataaudit.training import TokenFile, TrainingMonitor, open_manifest

CONTEXT, ROWS, WIDTH = 128, 4, 32


class Model(nn.Module):
    """A small causal transformer."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 4 * WIDTH, dropout=0, batch_first=True, norm_first=True)
        self.body, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(WIDTH, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        found = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        logits: torch.Tensor = self.head(self.body(found, mask=mask, is_causal=True))
        return logits


def megatron_rows(file: Path, vocabulary: int, order: Path, number: int) -> Any:
    """Return Megatron's own data set of a file; its order is saved in a folder."""
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    from megatron.core.datasets.utils import Split

    name = {"class": "tiny", "vocabulary": vocabulary}
    tokenizer = SimpleNamespace(vocab_size=vocabulary, eod=-1, pad=-1, special_tokens_dict={}, unique_identifiers=name)
    switches = dict.fromkeys(
        ("reset_position_ids", "reset_attention_mask", "eod_mask_loss", "create_attention_mask"), False
    )
    config = GPTDatasetConfig(
        random_seed=1, sequence_length=CONTEXT, split="1", path_to_cache=str(order), tokenizer=tokenizer, **switches
    )
    documents = IndexedDataset(str(file.with_suffix("")))
    every = torch.arange(len(documents)).numpy()
    return GPTDataset(documents, str(file.with_suffix("")), every, number, Split.train, config)


def steps_of(rows: Any, steps: int) -> Iterator[tuple[int, dict[str, torch.Tensor]]]:
    """Yield steps, from 1, and their batches."""
    for step in range(1, steps + 1):
        some = [rows[at] for at in range((step - 1) * ROWS, step * ROWS)]
        yield step, torch.utils.data.default_collate(some)


def main(manifest: str, file: Path, run: Path, steps: int, *, megatron: bool = False) -> None:
    """Train a small model, and say what names its spikes."""
    corpus = open_manifest(manifest, require="verified")
    vocabulary = load_manifest(Path(manifest)).core.tokenizer.vocab_size
    torch.manual_seed(0)
    model = Model(vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def train(ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        losses = nn.functional.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), reduction="none")
        losses.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        return losses.detach().view(labels.shape)

    if not megatron:
        with TrainingMonitor(run, corpus, order="rows") as monitor:
            for _, batch in steps_of(TokenFile(file, corpus, CONTEXT, epochs=100), steps):
                losses = train(batch["input_ids"], batch["labels"])
                monitor.batch(batch["tags"], losses=losses)
                monitor.step(losses.mean())
    else:
        order, log = run.with_name(f"{run.name}.order"), run.with_name(f"{run.name}.csv")
        order.mkdir(parents=True, exist_ok=True)
        with log.open("w", newline="") as written:
            csv.writer(written).writerow(["iteration", "lm loss"])
            for step, batch in steps_of(megatron_rows(file, vocabulary, order, steps * ROWS), steps):
                loss = train(batch["tokens"], batch["labels"]).mean()
                csv.writer(written).writerow([step, float(loss)])
        print(f"dataaudit reconstruct {run} --manifest {manifest} --order megatron --index {order} --file {file} \\")
        print(f"    --batch {ROWS} --steps 1-{steps} --losses {log}")
    print(f"dataaudit attribute {run} --manifest {manifest}")


if __name__ == "__main__":
    given = [one for one in sys.argv[1:] if one != "--megatron"]
    main(
        given[0],
        Path(given[1]),
        Path(given[2]),
        int(given[3]) if len(given) > 3 else 100,
        megatron="--megatron" in sys.argv,
    )
