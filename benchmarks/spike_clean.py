"""Clean runs of tiny GPTs by the whole way that a user goes: manifest, monitor, ``attribute``. What do they accuse?

    OMP_NUM_THREADS=1 nice python benchmarks/spike_clean.py OUT [--runs 100] [--documentation /usr/share/doc] ...

Each run draws its own text, sources, shards, order, batch, packing, tokenizer, schedule and weights by its seed, and
has a manifest of its own; a run that is in OUT is not trained again, and is judged again. Bounds are those of Clopper
and Pearson, 95 %.
"""

from __future__ import annotations

import gzip
import json
import math
import random
import shutil
import subprocess
import sys
import sysconfig
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc
import torch
from babel.messages.mofile import read_mo
from common import head, options, row
from spike_corpus import shuffle_buffer
from spike_seen import RULES, bounds
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from torch.nn import functional

from dataaudit.training import Documents, Encoder, PackedDocuments, TrainingMonitor, byte_encoder, open_manifest
from dataaudit.training.attribution.attribute import attribute
from dataaudit.training.attribution.findings import Attribution
from dataaudit.training.attribution.run_data import Data, load_data
from dataaudit.training.packing import SHARD, START, TARGETS, UNUSED
from dataaudit.training.pages.blocks import render_text

FILES = {
    "headers": ("packages", "*.h"),
    "modules": ("packages", "*.py"),
    "schemas": ("packages", "*.json"),
    "scripts": ("packages", "*.js"),
    "descriptions": ("packages", "METADATA"),
    "changelogs": ("documentation", "changelog*.gz"),
    "licences": ("documentation", "copyright"),
}
"""Sources of files: of which folder, and their names."""
LANGUAGES = ("sv", "it", "uk", "tr", "ko", "fi", "el", "vi", "hu", "bg", "zh_CN", "ro", "da", "id", "nl", "ja")
"""Sources of translated messages, each a source of its own."""
UNASKED = ("near_dup", "repeats", "toxicity", "pii", "secrets")
"""Stages that no attribution asks for, and that take long."""
WIDTH, HEADS = 48, 4
MOST_FILES, MOST_CHARACTERS = 400, 20_000
Order = Literal["shuffled", "buffered", "interleaved", "sequential"]
Texts = dict[str, list[str]]
Lines = list[dict[str, str]]


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run is, all of it drawn by its seed."""

    seed: int
    order: Order
    rows: int
    context: int
    steps: int
    schedule: Literal["constant", "cosine", "wsd"]
    rate: float
    packing: Literal["packed", "masked", "padded"]
    vocabulary: int
    """256: bytes; more: a BPE of the run's own text."""
    sources: tuple[str, ...]
    shards: int
    documents: int
    """Of each shard."""
    characters: tuple[int, int]
    """Of each document."""
    mixed: bool
    """Whether a shard has documents of several sources."""


def drawn_run(seed: int) -> Run:
    """Return the run of a seed."""
    draw = random.Random(f"run {seed}")
    names = [*FILES, *(f"messages-{one}" for one in LANGUAGES)]
    low = draw.choice([40, 100, 200, 400])
    return Run(
        seed=seed,
        order=draw.choice(["shuffled", "shuffled", "buffered", "interleaved", "sequential"]),
        rows=draw.choice([4, 8, 12]),
        context=draw.choice([64, 128]),
        steps=draw.choice([200, 300, 400]),
        schedule=draw.choice(["constant", "cosine", "wsd"]),
        rate=draw.choice([1e-3, 2e-3, 4e-3]),
        packing=draw.choice(["packed", "packed", "masked", "padded"]),
        vocabulary=draw.choice([256, 256, 512]),
        sources=tuple(sorted(draw.sample(names, draw.choice([1, 2, 3, 5, 8])))),
        shards=draw.choice([8, 16, 32]),
        documents=draw.choice([16, 32, 64]),
        characters=(low, low * draw.choice([2, 4])),
        mixed=draw.random() < 0.3,
    )


def read_texts(folders: dict[str, Path], locale: Path) -> Texts:
    """Return what texts there are of each source: of 400 files of it at most, each cut to 20,000 characters."""
    found: Texts = {}
    for source, (folder, pattern) in FILES.items():
        paths = sorted(path for path in folders[folder].rglob(pattern) if path.is_file() and not path.is_symlink())
        random.Random(source).shuffle(paths)
        found[source] = list(_read(paths[:MOST_FILES]))
    for language in LANGUAGES:
        paths = sorted(locale.glob(f"{language}/LC_MESSAGES/*.mo"))
        found[f"messages-{language}"] = [text for path in paths if (text := _messages(path))]
    return {source: texts for source, texts in found.items() if texts}


def _read(paths: list[Path]) -> Iterator[str]:
    for path in paths:
        try:
            data = path.read_bytes()
            data = gzip.decompress(data) if path.suffix == ".gz" else data
            yield data.decode("utf-8")[:MOST_CHARACTERS].replace("\0", "")
        except (OSError, UnicodeDecodeError, EOFError, zlib.error):
            continue


def _messages(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return "\n".join(str(one.string) for one in read_mo(file) if one.id)[:MOST_CHARACTERS]
    except (ValueError, OSError):
        return ""


def documents_of(texts: list[str], characters: tuple[int, int], draw: random.Random) -> Iterator[str]:
    """Yield pieces of texts that are drawn, of lengths that are drawn, without an end."""
    while True:
        text, at = draw.choice(texts), 0
        at = draw.randrange(max(1, len(text) - 2_000))
        for _ in range(8):
            size = int(math.exp(draw.uniform(*map(math.log, characters))))
            if len(piece := text[at : at + size].strip()) > 20:
                yield piece
            at += size


class Change:
    """What a run has beside clean text in its usual order: nothing. A subclass plants a fault."""

    def write(self, _: int, lines: Lines) -> Lines:
        """Return what is written of the documents of a shard."""
        return lines

    def order(self, run: Run, documents: Documents) -> np.ndarray | None:
        """Return documents in an order of its own, int64[n]; None: in the order that the run names."""
        if run.order != "buffered":
            return None
        return shuffle_buffer(documents.starts, 2 * run.documents, passes(run, documents), run.seed)

    def before(self, step: int, model: Model) -> None:
        """Touch the model before a step."""

    def after(self, step: int, model: Model) -> None:
        """Touch the gradients of a step."""


def build(run: Run, texts: Texts, folder: Path, change: Change) -> None:
    """Write the shards of a run, and their manifest, if that is not there."""
    if (folder / "manifest").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    draw = random.Random(f"text {run.seed}")
    sources = [one for one in run.sources if one in texts] or sorted(texts)[:2]
    pieces = {one: documents_of(texts[one], run.characters, draw) for one in sources}
    (folder / "data").mkdir(parents=True)
    for shard in range(run.shards):
        own = draw.choice(sources)
        names = [draw.choice(sources) if run.mixed else own for _ in range(run.documents)]
        lines = change.write(shard, [{"text": next(pieces[one]), "source": one} for one in names])
        path = folder / "data" / f"part-{shard:03d}.jsonl"
        path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    split = {"paths": [f"{(folder / 'data').resolve()}/*.jsonl"], "source": {"column": "source"}}
    config = {"dataset": {"name": f"run-{run.seed}", "version": "1"}, "splits": {"train": split}}
    config |= {"stages": dict.fromkeys(UNASKED, False)}
    (folder / "config.yaml").write_text(json.dumps(config))
    command = [sys.executable, "-P", "-m", "dataaudit", "build", str(folder / "config.yaml"), "--manifest"]
    more = ["--state", str(folder / "state"), "--workers", "0", "--quiet"]
    subprocess.run([*command, str(folder / "manifest"), *more], check=False, stdout=subprocess.DEVNULL)


def encoder_of(run: Run, folder: Path) -> Encoder:
    """Return the tokenizer of a run."""
    if run.vocabulary == 256:
        return byte_encoder(end=0)
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=run.vocabulary, special_tokens=["<end>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train([str(one) for one in sorted((folder / "data").glob("*.jsonl"))], trainer)
    return Encoder(
        encode=lambda text: made.encode(text).ids, name=f"bpe of run {run.seed}", vocab=run.vocabulary, end=0
    )


class Model(nn.Module):
    """A GPT of a layer, of 60,000 to 90,000 parameters."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(run.vocabulary, WIDTH), nn.Embedding(run.context, WIDTH)
        self.layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, run.vocabulary, bias=False)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens: torch.Tensor, unseen: torch.Tensor) -> torch.Tensor:
        """Return logits; ``unseen`` says who may not attend to whom."""
        x = self.tokens(tokens) + self.positions.weight
        logits: torch.Tensor = self.head(self.norm(self.layer(x, src_mask=unseen)))
        return logits


def passes(run: Run, documents: Documents) -> int:
    """Return how often the documents are read."""
    return math.ceil(run.steps * run.rows * (run.context + 1) / max(1, int(documents.lengths.sum()))) + 1


def rows_of(run: Run, documents: Documents, change: Change) -> PackedDocuments:
    """Return the rows of a run."""
    order = "shuffled" if run.order == "buffered" else run.order
    rows = PackedDocuments(documents, run.context, seed=run.seed, epochs=passes(run, documents), order=order)
    if (own := change.order(run, documents)) is not None:
        rows.order, rows.ends = own, np.cumsum(documents.lengths[own])
    return rows


def rate_at(run: Run, step: int) -> float:
    """Return the learning rate of a step."""
    warm, part = min(1.0, step / 30), step / run.steps
    if run.schedule == "cosine":
        return run.rate * warm * (0.1 + 0.45 * (1 + math.cos(math.pi * part)))
    return run.rate * warm * (min(1.0, max(0.05, (1 - part) / 0.2)) if run.schedule == "wsd" else 1.0)


def unseen_of(run: Run, tags: torch.Tensor) -> torch.Tensor:
    """Return who may not attend to whom: bool[context, context], or of each row and head where documents are masked."""
    place = torch.arange(run.context)
    later = place[None, :] > place[:, None]
    if run.packing != "masked":
        return later
    starts = torch.where(tags[..., SHARD] == UNUSED, run.context, tags[..., START])
    document = (place[None, None, :] >= starts[:, :, None]).sum(1)
    other = document[:, :, None] != document[:, None, :]
    return (later | other).repeat_interleave(HEADS, 0)


def padded(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return a batch of which each row keeps its first document alone: what follows is padding, and no target."""
    batch = {name: one.clone() for name, one in batch.items()}
    tags = batch["tags"]
    ends = tags[:, 0, START] + tags[:, 0, TARGETS]
    outside = torch.arange(batch["labels"].shape[1])[None, :] >= ends[:, None]
    batch["labels"][outside], batch["input_ids"][outside] = -100, 0
    tags[:, 1:] = UNUSED
    return batch


def train(run: Run, folder: Path, log: Path, change: Change) -> None:
    """Train a run on what :func:`build` wrote, and keep its log, and last what is true of it."""
    shutil.rmtree(log, ignore_errors=True)
    torch.manual_seed(run.seed)
    corpus = open_manifest(folder / "manifest", require="verified")
    rows = rows_of(run, Documents(corpus, "train", encoder_of(run, folder)), change)
    model = Model(run)
    optimizer = torch.optim.AdamW(model.parameters(), lr=run.rate, betas=(0.9, 0.95), weight_decay=0.1)
    order: Literal["", "documents"] = "documents" if run.order == "shuffled" and type(change) is Change else ""
    with TrainingMonitor(log, corpus, block_rows=8, order=order, optimizer=optimizer) as monitor:
        for step in range(1, min(run.steps, len(rows) // run.rows) + 1):
            own = range((step - 1) * run.rows, step * run.rows)
            batch = torch.utils.data.default_collate([rows[one] for one in own])
            batch = padded(batch) if run.packing == "padded" else batch
            for group in optimizer.param_groups:
                group["lr"] = rate_at(run, step)
            change.before(step, model)
            logits = model(batch["input_ids"], unseen_of(run, batch["tags"])).flatten(0, 1)
            losses = functional.cross_entropy(logits, batch["labels"].flatten(), reduction="none", ignore_index=-100)
            losses = losses.view_as(batch["labels"])
            monitor.batch(batch["tags"], losses=losses, labels=batch["labels"])
            loss = losses.sum() / (batch["labels"] != -100).sum()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            change.after(step, model)
            optimizer.step()
            monitor.step(loss, grad_global_norm=norm)
    (log / "truth.json").write_text(json.dumps(asdict(run)) + "\n")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A run, and what is found in it."""

    run: dict[str, Any]
    data: Data
    found: Attribution
    text: str
    """As the terminal shows it."""
    alarms: dict[str, np.ndarray]
    """bool[steps] of other rules."""


def judge(folder: Path, log: Path) -> Judged:
    """Return what ``attribute`` says of a run, and where other rules raise an alarm."""
    data = load_data(log, folder / "manifest")
    found = attribute(data)
    values = data.log.table("values").sort_by("step")
    norms = values.filter(pc.field("metric") == "grad_global_norm")["value"].to_numpy()
    losses: Any = SimpleNamespace(losses=data.curve.value, segments=data.curve.value, norms=norms)
    rules = [name for name in RULES if not name.startswith("dataaudit")]
    alarms = {name: RULES[name](losses) for name in rules}
    run = json.loads((log / "truth.json").read_text())
    return Judged(run=run, data=data, found=found, text=render_text(found, data), alarms=alarms)


def folders() -> dict[str, Any]:
    """Return the options that say where text is."""
    there = {
        "documentation": "/usr/share/doc",
        "packages": sysconfig.get_paths()["purelib"],
        "locale": "/usr/share/locale",
    }
    return {name: (Path, Path(place)) for name, place in there.items()}


def main() -> None:
    """Train what is not trained yet, and print the table."""
    torch.set_num_threads(1)
    given = options(__doc__, out=Path, runs=100, first=10_000, steps=(int, None), **folders())
    texts = read_texts({"documentation": given.documentation, "packages": given.packages}, given.locale)
    said: dict[str, list[Judged]] = {}
    for seed in range(given.first, given.first + given.runs):
        run, folder = drawn_run(seed), given.out / f"run-{seed}"
        run = replace(run, steps=given.steps or run.steps)
        if not (folder / "log" / "truth.json").exists():
            build(run, texts, folder, Change())
            train(run, folder, folder / "log", Change())
        one = judge(folder, folder / "log")
        said.setdefault(run.order, []).append(one)
        print(seed, one.text.splitlines()[0], flush=True)
    print()
    said["all"] = [one for group in said.values() for one in group]
    rules = list(said["all"][0].alarms)
    head("order", "runs", *TESTED, *(f"an alarm: {one}" for one in rules))
    for order, chosen in said.items():
        alarms = [[bool(one.alarms[rule][QUIET:].any()) for one in chosen] for rule in rules]
        cells = [[test(one) for one in chosen] for test in TESTED.values()]
        row(order, len(chosen), *(bounds(sum(one), len(chosen)) for one in cells + alarms))


QUIET = 100
"""Step from which alarms of other rules count."""
TESTED: dict[str, Callable[[Judged], bool]] = {
    "an episode": lambda one: bool(one.found.episodes),
    "a shard, block or document named": lambda one: any(each.found is not None for each in one.found.episodes),
    "shards named together": lambda one: any(len(each.together) > 0 for each in one.found.episodes),
    "headed state": lambda one: any(each.reason == "state" for each in one.found.episodes),
    "cannot tell": lambda one: any(each.outcome == "cannot_tell" for each in one.found.episodes),
    "a unit odd": lambda one: any(each.outcome == "outlier_shard" for each in one.found.residual_tests),
    "episodes follow": lambda one: one.found.event_test is not None and one.found.event_test.outcome == "follows",
    "a proposal": lambda one: bool(one.found.proposals),
}


if __name__ == "__main__":
    main()
