"""A small corpus with repeats and leaks, built for real; and models whose answers are known."""

import json
import random

import numpy as np

import dataaudit

WORDS = [
    "river", "stone", "cloud", "engine", "paper", "light", "winter", "garden", "signal", "copper", "letter",
    "bridge", "market", "silver", "forest", "window", "number", "circle", "hammer", "planet", "matter", "thread",
    "valley", "orange", "doctor", "basket", "flight", "temple", "yellow", "animal",
]  # fmt: skip
END = 256


def sentence(draw, words):
    return " ".join(draw.choice(WORDS) for _ in range(words))


class World:
    """A corpus of bytes: text of two sources, canaries planted 1, 4 and 16 times, and held-out documents that leak.

    Of 32 held-out documents the first three stand in training: whole, nearly whole, and by a span of 60 words.
    """

    def __init__(self, folder):
        from dataaudit.probes.corpus import Corpus
        from dataaudit.probes.models import Tokenizer

        draw = random.Random(7)
        self.canaries = {times: [sentence(draw, 24) for _ in range(3)] for times in (1, 4, 16)}
        self.unseen = [sentence(draw, 24) for _ in range(3)]
        held_out = [sentence(draw, draw.randrange(30, 90)) for _ in range(32)]
        copied = [held_out[0], held_out[1] + " again", ""]
        held_out[2] = " ".join([*held_out[2].split()[:60], *sentence(draw, 10).split()])
        copied[2] = " ".join([*held_out[2].split()[:60], sentence(draw, 80)])
        self.train = {"web": [sentence(draw, draw.randrange(30, 90)) for _ in range(30)] + copied, "code": []}
        self.train["code"] = [text for times, own in self.canaries.items() for text in own for _ in range(times)]
        self.held_out = {"web": held_out[:16], "code": held_out[16:]}
        for split, sources in (("train", self.train), ("val", self.held_out)):
            for source, texts in sources.items():
                path = folder / "data" / split / f"{source}.jsonl"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("".join(json.dumps({"text": text, "source": source}) + "\n" for text in texts))
        split = {"text": "text", "source": {"column": "source"}}
        config = {
            "splits": {name: {"paths": [str(folder / f"data/{name}/*.jsonl")], **split} for name in ("train", "val")},
            "stages": {"repeats": {"index": True}},
        }
        config["splits"]["val"]["held_out"] = True
        self.folder, self.manifest = folder, folder / "manifest"
        dataaudit.build(config, self.manifest, workers=0)
        self.tokenizer = Tokenizer.of_bytes(END)
        self.corpus = Corpus(folder=self.manifest, tokenizer=self.tokenizer, cache=folder / "cache")


def tiny(seed=0, *, vocab=257, width=16, dropout=0.1):
    """Return a causal model with dropout and a buffer: each position sees the mean of what came before."""
    import torch
    from torch import nn

    class Tiny(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(vocab, width), nn.Linear(2 * width, vocab)
            self.drop, self.norm = nn.Dropout(dropout), nn.BatchNorm1d(2 * width, affine=False)

        def forward(self, ids):
            own = self.embed(ids)
            before = own.cumsum(1) / torch.arange(1, ids.shape[1] + 1)[None, :, None]
            joined = self.drop(torch.cat([own, before], 2))
            return self.head(self.norm(joined.flatten(0, 1)).view_as(joined))

    torch.manual_seed(seed)
    return Tiny()


class Memory:
    """A model that knows some documents by heart, and else that what came before comes again.

    Args:
        texts: Token rows that it knows: it goes on with them from the beginning of a row, after the end token or not.
        anywhere: Whether it also knows them in the middle of a row, from 12 tokens on.
    """

    def __init__(self, texts, *, anywhere=False, vocab=257):
        self.vocab, self.next = vocab, {}
        for row in texts:
            tokens = tuple(int(token) for token in row)
            for at in range(1, len(tokens)):
                self.next[tokens[:at]] = tokens[at]
                if anywhere and at >= 12:
                    self.next[tokens[at - 12 : at]] = tokens[at]
            self.next.setdefault(tokens, END)

    def __call__(self, ids):
        import torch

        made = np.zeros((*ids.shape, self.vocab), np.float32)
        for row, tokens in enumerate(np.asarray(ids).tolist()):
            clean = tokens[1:] if tokens and tokens[0] == END else tokens
            shift = len(tokens) - len(clean)
            for at in range(len(tokens)):
                before = tuple(clean[: at + 1 - shift])
                counts = np.bincount(before, minlength=self.vocab) if before else np.zeros(self.vocab)
                made[row, at] = np.log(1 + counts)
                known = self.next.get(before, self.next.get(before[-12:]) if len(before) >= 12 else None)
                if known is not None:
                    made[row, at, known] = 20.0
        return torch.from_numpy(made)
