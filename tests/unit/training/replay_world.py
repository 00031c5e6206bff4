"""A small GPT on a corpus of made words, with its log and checkpoints, and a replay of it."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

import torch
from made_manifest import make
from torch import nn
from torch.nn import functional
from training_world import CONFIG, row_of

from dataaudit.live.state_digests import random_state, set_random_state
from dataaudit.training import Documents, PackedDocuments, TrainingMonitor, byte_encoder, open_manifest
from dataaudit.training.replay.loop import LoopReplay
from dataaudit.training.replay.protocol import Trained

CONTEXT, ROWS, WIDTH = 64, 8, 32
DOCUMENTS = 24


def words(seed):
    """Return a generator of sentences of made words."""
    draw = random.Random(seed)
    book = ["".join(draw.choice("abcdefghijklmnop") for _ in range(draw.randint(2, 7))) for _ in range(40)]
    while True:
        yield " ".join(draw.choice(book) for _ in range(draw.randint(6, 16)))


def write_corpus(folder, shards=40, bad=(), seed=0, bad_documents=DOCUMENTS):
    """Write shards of documents, some of random characters, and their manifest; return its folder."""
    texts, draw = words(0), random.Random(seed)
    rows = []
    (folder / "data").mkdir(parents=True)
    for shard in range(shards):
        number = bad_documents if shard in bad else DOCUMENTS
        held = [next(texts) for _ in range(number)]
        if shard in bad:
            held = ["".join(draw.choice("abcdefghijklmnop") for _ in one) for one in held]
        lines = [json.dumps({"body": {"text": one}, "from": "web"}).encode() + b"\n" for one in held]
        name, data = f"p{shard:03d}.jsonl", b"".join(lines)
        (folder / "data" / name).write_bytes(data)
        rows.append(row_of(name, data, rows=number, documents=number, sources={"web": 100}))
    make(folder / "m", rows, roots=folder / "data", config=CONFIG)
    return folder / "m"


class Model(nn.Module):
    """One layer of attention with dropout."""

    def __init__(self, dropout):
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.layer = nn.TransformerEncoderLayer(
            WIDTH, 2, 4 * WIDTH, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.tokens(tokens) + self.places.weight[:length]
        mask = torch.triu(torch.full((length, length), float("-inf")), 1)
        return self.head(self.norm(self.layer(x, src_mask=mask)))


@dataclass(kw_only=True)
class Settings:
    """How a run is made."""

    steps: int = 130
    order: str = "sequential"
    dropout: float = 0.1
    rate: float = 3e-3
    jump: tuple[int, ...] = ()
    """Steps at which the learning rate is a hundred times as high."""
    spoil: int = 0
    """Step at which the optimizer's second moments are lost; 0: none."""
    every: int = 10
    workers: int = 0
    seed: int = 0


class Loop:
    """What a run and its replay share."""

    def __init__(self, manifest, settings):
        torch.manual_seed(settings.seed)
        self.settings, self.manifest = settings, manifest
        self.corpus = open_manifest(manifest, require="verified", cache=manifest.parent / "cache")
        documents = Documents(self.corpus, "train", byte_encoder(end=0))
        self.rows = PackedDocuments(
            documents, CONTEXT, seed=settings.seed, epochs=2, order=settings.order, open_shards=2
        )
        self.model = Model(settings.dropout)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=settings.rate, betas=(0.9, 0.95))
        half = max(1, settings.steps)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda done: min(1, (done + 1) / 10) * (1 - 0.5 * done / half)
        )

    def update(self, step, batch):
        """Make a step; return its loss and the losses of its labels."""
        settings = self.settings
        logits = self.model(batch["input_ids"])
        losses = functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
        self.optimizer.zero_grad()
        losses.mean().backward()
        if step == settings.spoil:
            for state in self.optimizer.state.values():
                state["exp_avg_sq"].mul_(1e-8)
        rates = [group["lr"] for group in self.optimizer.param_groups]
        for group in self.optimizer.param_groups:
            group["lr"] *= 100 if step in settings.jump else 1
        self.optimizer.step()
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self.schedule.step()
        return losses.mean(), losses.view(len(batch["labels"]), CONTEXT)

    def state(self):
        return [one.state_dict() for one in (self.model, self.optimizer, self.schedule)] + [random_state()]

    def restore(self, path):
        *states, generators = torch.load(path, weights_only=False)
        for one, state in zip((self.model, self.optimizer, self.schedule), states, strict=True):
            one.load_state_dict(state)
        set_random_state(generators)


def train(manifest, run, settings):
    """Train with two workers and a log, keep checkpoints."""
    loop = Loop(manifest, settings)
    rows = torch.utils.data.Subset(loop.rows, range(ROWS * settings.steps))
    loader = torch.utils.data.DataLoader(rows, ROWS, num_workers=settings.workers)
    (run.parent / "checkpoints").mkdir(exist_ok=True)
    with TrainingMonitor(run, loop.corpus, order="documents" if settings.order == "shuffled" else "") as monitor:
        for batch in loader:
            rate = loop.schedule.get_last_lr()[0]
            loss, losses = loop.update(monitor.steps + 1, batch)
            monitor.batch(batch["tags"], losses=losses)
            monitor.step(loss, learning_rate=rate)
            if monitor.steps % settings.every == 0:
                torch.save(loop.state(), run.parent / "checkpoints" / f"{monitor.steps}.pt")
    return loop


def replay(manifest, run, settings=None, **more):
    """Return the replay of a run."""
    loop = Loop(manifest, settings or Settings())

    def step(number, batches):
        rate = loop.schedule.get_last_lr()[0]
        return Trained(loss=loop.update(number, batches[0])[0].item(), values={"learning_rate": rate})

    return LoopReplay(
        rows=loop.rows,
        batch_rows=ROWS,
        model=loop.model,
        stateful=[loop.optimizer, loop.schedule],
        checkpoints={int(path.stem): path for path in (run.parent / "checkpoints").glob("*.pt")},
        restore=loop.restore,
        train=more.pop("train", step),
        **more,
    )
