"""What probes see in over-trained models: canaries planted 1 to 64 times, and a set that is in training or is not.

    python benchmarks/probe_canaries.py --seeds 5

A GPT-2 of about 1 M parameters is trained on text of Python's library, with canaries of random letters planted 1, 4,
16 and 64 times, and with one of two sets of functions. The other set, and canaries of the same kind, are never seen.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "pipelines"))

import torch
from demo_train import docstrings, functions
from transformers import GPT2Config, GPT2LMHeadModel

import dataaudit
from dataaudit.probes import Contamination, Decoding, Memorization, ProbeModel, ProbeSuite, Tokenizer
from dataaudit.probes.corpus import Corpus
from dataaudit.probes.memorization import ScanMatcher

PLANTED = (1, 4, 16, 64)
SEEN = 6
"""Times that a text of the set stands in training."""
END, CONTEXT, CANARY, PROMPT = 256, 72, 70, 14
LETTERS = "abcdefghijklmnopqrstuvwxyz "


def main() -> None:
    """Build the corpus, train a model for each seed, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--canaries", type=int, default=4, help="of each number of times")
    parser.add_argument("--background", type=int, default=40, help="documents")
    parser.add_argument("--samples", type=int, default=24, help="texts of a set")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--width", type=int, default=144)
    arguments = parser.parse_args()
    tokenizer = Tokenizer.of_bytes(END)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = corpus_texts(arguments)
        for split in ("train", "val"):
            path = folder / "data" / split / "text.jsonl"
            path.parent.mkdir(parents=True)
            path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts[split]))
        splits = {
            split: {"paths": [str(folder / "data" / split / "*.jsonl")], "text": "text"} for split in ("train", "val")
        }
        splits["val"]["held_out"] = True
        dataaudit.build({"splits": splits}, folder / "manifest", workers=0)
        corpus = Corpus(folder=folder / "manifest", tokenizer=tokenizer, cache=folder / "cache")
        rows = corpus.sample(held_out=False)
        assert rows is not None
        canaries = [(times, text) for times, own in texts["canaries"].items() for text in own]
        probe = Memorization(
            rows=tuple(tokenizer.encode(text) for _, text in canaries),
            sources=["canary"] * len(canaries),
            drawn=np.ones(len(canaries), bool),
            matcher=ScanMatcher(rows.documents),
            unprompted=10,
            prompt=PROMPT,
            prompted_decoding=Decoding(tokens=56, temperature=0.0),
            free_decoding=Decoding(tokens=64),
        )
        sets = {"seen": texts["seen"], "held_out": texts["unseen"]}
        probes = [
            probe,
            Contamination(sets={key: tuple(tokenizer.encode(text) for text in own) for key, own in sets.items()}),
        ]
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            began = time.monotonic()
            model, loss = trained(rows.rows, seed, arguments)
            report = ProbeSuite(probes).run(ProbeModel(model, tokenizer, context=CONTEXT), seed)
            show(report, seed, sum(p.numel() for p in model.parameters()), loss, time.monotonic() - began)


def corpus_texts(arguments: argparse.Namespace) -> dict:
    """Return texts by what they are for; the same for the same Python."""
    draw = random.Random(0)
    code, prose = functions(), docstrings()
    sets = [next(code)[:CANARY] for _ in range(2 * arguments.samples)]
    made = {
        times: ["".join(draw.choice(LETTERS) for _ in range(CANARY)) for _ in range(arguments.canaries)]
        for times in (0, *PLANTED)
    }
    background = [next(prose)[:CANARY] for _ in range(arguments.background + 20)]
    planted = [text for times in PLANTED for text in made[times] for _ in range(times)]
    seen, unseen = sets[::2], sets[1::2]
    train = [*background[20:], *planted, *(text for text in seen for _ in range(SEEN))]
    draw.shuffle(train)
    return {"train": train, "val": background[:20], "canaries": made, "seen": seen, "unseen": unseen}


def trained(rows: tuple, seed: int, arguments: argparse.Namespace) -> tuple[torch.nn.Module, float]:
    """Train a model on documents, one in each row, and return it with its last loss."""
    torch.manual_seed(seed)
    sizes = {"n_embd": arguments.width, "n_layer": 4, "n_head": 4}
    settings = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": None, "eos_token_id": None}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=257, n_positions=CONTEXT, **sizes, **settings))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    ids = torch.full((len(rows), CONTEXT), END)
    for at, row in enumerate(rows):
        ids[at, 1 : min(len(row) + 1, CONTEXT)] = torch.as_tensor(row[: CONTEXT - 1])
    mean = 0.0
    for epoch in range(arguments.epochs):
        total = 0.0
        order = torch.randperm(len(ids))
        for batch in order.split(8):
            loss = model(ids[batch], labels=ids[batch]).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            total += float(loss.detach()) * len(batch)
        mean = total / len(ids)
        print(f"  seed {seed}, epoch {epoch + 1}: loss {mean:.3f}", file=sys.stderr, flush=True)
    return model.eval(), mean


def show(report: dataaudit.probes.ProbeReport, seed: int, parameters: int, loss: float, seconds: float) -> None:
    """Print a row of each table."""

    def value(metric: str, stat: str = "value", **scope: str) -> str:
        number = report.get(metric, stat, **scope)
        return "-" if number.value is None else f"{number.value:.3g}"

    names = {0: "0", 1: "1", 4: "4-15", 16: "16-63", 64: "64+"}
    shares = " ".join(
        value("memorization_rate", "extracted", prompted="yes", times=names[own]) for own in (0, *PLANTED)
    )
    trend = value("memorization_rate", "times_trend_p", prompted="yes")
    print(f"seed {seed}: {parameters:,} parameters, loss {loss:.2f}, {seconds:.0f} s")
    print(f"  extracted by times 0 1 4 16 64: {shares}, trend p {trend}")
    for metric in ("codec_score", "zlib_ratio", "min_k_prob"):
        stat = {"zlib_ratio": "bits"}.get(metric, "value")
        own, other = (value(metric, stat, set=name) for name in ("seen", "held_out"))
        scope = {"set": "seen", "versus": "held_out"}
        print(
            f"  {metric} seen {own} unseen {other} auc {value(metric, 'auc', **scope)} p {value(metric, 'p', **scope)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
