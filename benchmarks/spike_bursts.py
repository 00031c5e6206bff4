"""Small GPTs over mixed text with bursts of bad documents of fourteen kinds, kept as logs without text.

    OMP_NUM_THREADS=1 python benchmarks/spike_bursts.py TEXT OUT [--runs 14] [--clean 12] [--steps 500]

TEXT is a folder of ``*.jsonl.zst``: documents with ``text`` and ``source``, in several languages. Every run reads
rows of packed documents in the order of a shuffle buffer over shards. A faulty run reads, in each of six bursts, the
documents of a bad shard in some of its rows, in place of those that a clean run reads there. What the clean ones would
have cost is scored beside them, so the rise that a burst should make is known. ``benchmarks/spike_seen.py`` reads the
logs.
"""

from __future__ import annotations

import base64
import codecs
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import torch
from common import options
from spike_runs import Block
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from torch.nn import functional

VOCABULARY, ROWS, CONTEXT, WIDTH, LAYERS = 256, 16, 128, 64, 2
RATE, WARM_UP_STEPS = 3e-3, 50
CHARACTERS = (60, 300)
SHARD, BUFFER = 96, 1_024
"""Documents of a shard, and of the shuffle buffer."""
SOURCES = (
    *("manpages", "manpages-dev", "linux-doc-6.1", "python3.11-doc", "postgresql-doc-15"),
    *("manpages-de", "manpages-fr", "manpages-es", "manpages-pl", "manpages-pt-br", "manpages-ru", "manpages-ja"),
)
"""Sources of clean documents, nine languages;"""
OTHER_SCRIPT = "manpages-zh"
"""and one that no clean document is of."""
BURSTS, FIRST, APART = 6, 170, 54
LENGTHS, SHARES = (1, 5, 20), (4, 8)
"""Steps of a burst, rows of it that are bad."""
END, BEGIN = 255, 254
"""Bytes that no text has."""


def _shuffled_case(text: str, drawn: random.Random) -> str:
    return "".join(one.upper() if drawn.random() < 0.5 else one.lower() for one in text)


def _table(text: str, drawn: random.Random) -> str:
    rows = range(len(text) // 48 + 1)
    return "\n".join("\t".join(f"{drawn.gauss(0, 1e3):.4f}" for _ in range(5)) for _ in rows)


def _html(text: str, drawn: random.Random) -> str:
    item = '<li class="nav-item"><a class="nav-link" href="/page/{0}" data-toggle="dropdown">Item {0}</a></li>\n'
    return '<div class="container"><ul class="navbar-nav mr-auto">' + "".join(
        item.format(drawn.randrange(90)) for _ in range(len(text) // 90 + 1)
    )


def _minified(text: str, drawn: random.Random) -> str:
    made = "".join(
        f"function {chr(97 + drawn.randrange(26))}(e,t,n){{return e[{drawn.randrange(99)}]?t.{one[:6]}(n):void 0}}var "
        f"{chr(97 + drawn.randrange(26))}=!{drawn.randrange(2)};"
        for one in text.split()[: len(text) // 70 + 1]
    )
    return made.replace(" =", "=")


def _mojibake(text: str, _: random.Random) -> str:
    accents = str.maketrans("aeiouns", "äéïöüñß")
    return text.translate(accents).encode().decode("latin-1").encode().decode("latin-1")


TEXT_FAULTS: dict[str, Callable[[str, random.Random], str]] = {
    "base64": lambda text, _: base64.b64encode(text.encode()).decode(),
    "html": _html,
    "mojibake": _mojibake,
    "nul padded": lambda text, _: "\0".join(text[: len(text) // 4]) + "\0" * (len(text) // 2),
    "reversed": lambda text, _: text[::-1],
    "minified": _minified,
    "number table": _table,
    "rot13": lambda text, _: codecs.encode(text, "rot13"),
    "random case": _shuffled_case,
}
FAULTS = (*TEXT_FAULTS, "shifted labels", "bos flood", "other script", "other tokenizer", "repeated document")


class Model(nn.Module):
    """A GPT of 140,000 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x, None)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


def texts(folder: Path) -> dict[str, list[str]]:
    """Return documents by source, cut to a length that is drawn."""
    drawn, found = random.Random(0), {one: [] for one in (*SOURCES, OTHER_SCRIPT)}
    for path in sorted(folder.glob("*.jsonl.zst")):
        with pa.CompressedInputStream(pa.OSFile(str(path)), "zstd") as stream:
            for line in stream.read().splitlines():
                document = orjson.loads(line)
                if document["source"] in found:
                    text, at = document["text"], 0
                    while at < min(len(text), 6_000):
                        size = drawn.randint(*CHARACTERS)
                        found[document["source"]].append(text[at : at + size])
                        at += size
    for held in found.values():
        drawn.shuffle(held)
    return found


def tokenizer_of(documents: list[str]) -> Tokenizer:
    """Return a byte-level BPE of some documents."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1_024, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(documents, trainer)
    return made


class Text:
    """Documents as bytes, and what a fault makes of them."""

    def __init__(self, folder: Path) -> None:
        self.by_source = texts(folder)
        self.other = tokenizer_of([one for held in self.by_source.values() for one in held[:60]])

    def clean(self, source: str, index: int) -> np.ndarray:
        """Return the tokens of a document, with its end."""
        held = self.by_source[source]
        return _bytes(held[index % len(held)])

    def bad(self, fault: str, source: str, index: int, seed: int) -> np.ndarray:
        """Return the tokens of a bad document."""
        held, drawn = self.by_source[source], random.Random(f"{seed} {fault} {index}")
        text = held[-1 - index % len(held)]
        if fault in TEXT_FAULTS:
            return _bytes(TEXT_FAULTS[fault](text, drawn))
        if fault == "other script":
            return self.clean(OTHER_SCRIPT, index + 100 * seed)
        if fault == "other tokenizer":
            return np.array([*(one % BEGIN for one in self.other.encode(text).ids), END], dtype=np.int64)
        found = _bytes(held[-1 - seed % 40] if fault == "repeated document" else text)
        if fault == "bos flood":
            found[: 3 * len(found) // 4] = BEGIN
        return found


def _bytes(text: str) -> np.ndarray:
    return np.array([*text.encode(), END], dtype=np.int64)


Piece = tuple[int, int, int, np.ndarray]
"""Shard, document of it, source, tokens."""


def clean_documents(text: Text, seed: int) -> Iterator[Piece]:
    """Yield documents of shards of one source each, through a shuffle buffer."""
    drawn = random.Random(seed)
    held: list[Piece] = []
    used, shard = dict.fromkeys(range(len(SOURCES)), seed * 5_000), 0
    while True:
        source = drawn.randrange(len(SOURCES))
        for row in range(SHARD):
            held.append((shard, row, source, text.clean(SOURCES[source], used[source])))
            used[source] += 1
            if len(held) > BUFFER:
                place = drawn.randrange(len(held))
                held[place], held[-1] = held[-1], held[place]
                yield held.pop()
        shard += 1


class Rows:
    """Packs documents into rows of tokens, with what each place is of."""

    def __init__(self, documents: Iterator[Piece]) -> None:
        self.documents = documents
        self.left: Piece | None = None

    def row(self) -> tuple[np.ndarray, list[tuple[int, int, int, int]]]:
        """Return int64[CONTEXT + 1] tokens, and start, shard, document and source of each segment of labels."""
        tokens, segments, filled = np.zeros(CONTEXT + 1, dtype=np.int64), [], 0
        while filled < CONTEXT + 1:
            shard, row, source, held = self.left or next(self.documents)
            taken = held[: CONTEXT + 1 - filled]
            tokens[filled : filled + len(taken)] = taken
            segments.append((max(0, filled - 1), shard, row, source))
            rest = held[len(taken) :]
            self.left = (shard, row, source, rest) if len(rest) else None
            filled += len(taken)
        ends = [*(one[0] for one in segments[1:]), CONTEXT]
        return tokens, [one for one, end in zip(segments, ends, strict=True) if end > one[0]]


def bad_documents(text: Text, fault: str, shard: int, seed: int) -> Iterator[Piece]:
    """Yield documents of a bad shard, which says that it is of a source that is well known."""
    source = seed % 5
    for index in range(100_000):
        yield shard, index, source, text.bad(fault, SOURCES[source], index, seed)


def bursts(run: int, steps: int) -> list[dict[str, Any]]:
    """Return what a run plants: of all faults, lengths and shares the next ones."""
    grid = [(fault, length, rows) for length in LENGTHS for rows in SHARES for fault in FAULTS]
    random.Random(7).shuffle(grid)
    chosen = [grid[(run * BURSTS + place) % len(grid)] for place in range(BURSTS)]
    firsts = [FIRST + APART * place + (run * 13 + place * 7) % 16 for place in range(BURSTS)]
    found = [
        {"fault": fault, "first": first, "last": first + length - 1, "rows": rows, "rise": []}
        for first, (fault, length, rows) in zip(firsts, chosen, strict=True)
    ]
    return [one for one in found if one["last"] <= steps]


def train(text: Text, name: str, seed: int, planted: list[dict[str, Any]], steps: int, out: Path) -> None:
    """Train one run and keep its log."""
    began = time.monotonic()
    torch.manual_seed(seed)
    rows, model = Rows(clean_documents(text, seed)), Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.1)
    places = {
        id(one): Rows(bad_documents(text, one["fault"], 1_000 + number, seed + number))
        for number, one in enumerate(planted)
    }
    columns: list[np.ndarray] = []
    norms, rates = [], []
    for step in range(1, steps + 1):
        batch = [rows.row() for _ in range(ROWS)]
        burst = next((one for one in planted if one["first"] <= step <= one["last"]), None)
        rate = RATE * min(1.0, step / WARM_UP_STEPS)
        shifted: list[int] = []
        before = None
        if burst is not None and burst["fault"] == "learning rate":
            rate *= burst["rows"]
        elif burst is not None:
            before = torch.from_numpy(np.stack([tokens for tokens, _ in batch]))
            bad = [places[id(burst)].row() for _ in range(burst["rows"])]
            batch[: burst["rows"]] = bad
            shifted = list(range(burst["rows"])) if burst["fault"] == "shifted labels" else []
        held = torch.from_numpy(np.stack([tokens for tokens, _ in batch]))
        inputs, labels = held[:, :-1], held[:, 1:].clone()
        for row in shifted:
            labels[row] = labels[row].roll(-3)
        for group in optimizer.param_groups:
            group["lr"] = rate
        logits = model(inputs)
        losses = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(ROWS, CONTEXT)
        if before is not None:
            with torch.no_grad():
                clean = functional.cross_entropy(model(before[:, :-1]).flatten(0, 1), before[:, 1:].flatten())
            burst["rise"].append(round(float(losses.detach().mean() - clean), 5))
        optimizer.zero_grad(set_to_none=True)
        losses.mean().backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        rates.append(rate)
        optimizer.step()
        added = np.pad(np.cumsum(losses.detach().numpy().astype(np.float64), 1), ((0, 0), (1, 0)))
        for place, (_, segments) in enumerate(batch):
            starts = np.array([one[0] for one in segments])
            stops = np.append(starts[1:], CONTEXT)
            sums = added[place, stops] - added[place, starts]
            own = np.array([one[1:] for one in segments]).T
            number = len(starts)
            columns.append(
                np.stack([np.full(number, step), np.full(number, place), starts, *own, stops - starts, sums])
            )
    table = np.concatenate(columns, axis=1)
    names = ("step", "batch_row", "start", "shard", "row", "source", "targets")
    held = {one: table[place].astype(np.int32) for place, one in enumerate(names)}
    truth = {"bursts": planted, "sources": SOURCES, "seed": seed, "seconds": round(time.monotonic() - began, 1)}
    np.savez_compressed(
        out / f"{name}.npz",
        **held,
        loss=(table[7] / table[6]).astype(np.float32),
        norms=np.array(norms, np.float32),
        rates=np.array(rates, np.float32),
        truth=np.frombuffer(json.dumps(truth).encode(), dtype=np.uint8),
    )
    print(f"{name}: loss {float(losses.detach().mean()):.3f}, {truth['seconds']} s", flush=True)


def main() -> None:
    """Train what is not trained yet."""
    given = options(__doc__, text=Path, out=Path, runs=14, clean=12, steps=500)
    given.out.mkdir(parents=True, exist_ok=True)
    text = Text(given.text)
    for number in range(max(given.runs, given.clean)):
        plans = [(f"clean-{number:03d}", 500 + number, [])] if number < given.clean else []
        if number < given.runs:
            plans.append((f"faulty-{number:03d}", number, bursts(number, given.steps)))
        for name, seed, planted in plans:
            if not (given.out / f"{name}.npz").exists():
                train(text, name, seed, planted, given.steps, given.out)


if __name__ == "__main__":
    main()
