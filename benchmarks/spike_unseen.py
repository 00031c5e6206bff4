"""Tiny GPTs with faults that no bound was set on: what is seen, what is named, and what other rules see.

    OMP_NUM_THREADS=1 nice python benchmarks/spike_unseen.py OUT [--seeds 0 1] [--documentation /usr/share/doc] ...

Runs go the way of ``benchmarks/spike_clean.py``. A fault of the data is a shard whose file is bad, read from step 150
on among others (`shuffled`: a half or a quarter of the tokens; `buffered`: as a shuffle buffer gives it) or alone
(`sequential`). A fault of the state is done to the model at step 150. The rise is the mean loss of the faulty steps
(five, of the state), less the median of the 20 steps before.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import head, options, row
from spike_clean import Change, Judged, Lines, Model, Run, build, folders, judge, read_texts, train
from spike_seen import RULES

from dataaudit.training import Documents

FIRST, STEPS, SHARDS, DOCUMENTS, BAD = 150, 220, 34, 32, 17
LEAST, AFTER = 0.1, 5
"""Share of a step's targets that makes it a faulty one; steps after it in which an alarm counts."""
ORDERS = ("shuffled", "buffered", "sequential")
BASE: dict[str, Any] = {
    "rows": 8,
    "context": 128,
    "steps": STEPS,
    "schedule": "constant",
    "rate": 2e-3,
    "packing": "packed",
    "vocabulary": 256,
    "sources": ("descriptions", "licences", "messages-it", "messages-sv", "modules"),
    "shards": SHARDS,
    "documents": DOCUMENTS,
    "characters": (120, 480),
    "mixed": False,
}
SAID = ("seen", "named right", "named wrong", "cannot tell", "said state", "elsewhere")


def _columns(text: str, _: str) -> str:
    width = 24
    lines = [text[at : at + width].ljust(width) for at in range(0, len(text), width)]
    return "".join(map("".join, zip(*lines, strict=True)))


def _in_turn(text: str, other: str) -> str:
    return " ".join(word for pair in zip(text.split(), other.split(), strict=False) for word in pair)


def _wrong_order(text: str, _: str) -> str:
    return "".join(text[at : at + 4][::-1] for at in range(0, len(text), 4))


DATA: dict[str, Callable[[str, str], str]] = {
    "codes-off-by-one": lambda text, _: "".join(chr(ord(one) + 1) for one in text),
    "no-spaces": lambda text, _: "".join(text.split()),
    "two-documents-in-turn": _in_turn,
    "words-of-four-bytes-turned": _wrong_order,
    "columns-read-across": _columns,
    "vowels-exchanged": lambda text, _: text.translate(str.maketrans("aeiouAEIOU", "uoaieUOAIE")),
}
"""What becomes of a document, beside another document of its shard."""


def _halved(model: Model, size: int) -> None:
    model.norm.weight.mul_(0.5**size)


def _noise(model: Model, size: int) -> None:
    weight = model.tokens.weight
    weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)) * size * weight.std())


def _rounded(model: Model, size: int) -> None:
    for weight in model.parameters():
        if weight.dim() > 1:
            step = weight.abs().max() / (4 - size)
            weight.copy_((weight / step).round() * step)


STATE = (
    "norm-gain-halved",
    "noise-in-embeddings",
    "weights-of-few-bits",
    "dropout-left-on",
    "old-average",
    "sign-of-gradients",
)


SAID = ("seen", "named right", "named wrong", "cannot tell", "said state", "elsewhere")


class Planted(Change):
    """A run with a fault.

    Args:
        fault: Of DATA or STATE.
        order: Of the run.
        size: 1 or 2: a larger fault.
    """

    def __init__(self, fault: str, order: str, size: int) -> None:
        self.fault, self.kind, self.size = fault, order, size
        self.average: list[torch.Tensor] = []

    def write(self, shard: int, lines: Lines) -> Lines:
        """Return a shard's documents, bad in the bad shard."""
        if self.fault not in DATA or shard != BAD:
            return lines
        other = random.Random(0).sample(lines, len(lines))
        made = [{**a, "text": DATA[self.fault](a["text"], b["text"])} for a, b in zip(lines, other, strict=True)]
        return [one for one in made if one["text"]]

    def order(self, run: Run, documents: Documents) -> np.ndarray:
        """Return documents in the order of the run: int64[n]."""
        draw = np.random.default_rng(run.seed)
        shards = np.repeat(np.arange(len(documents.starts) - 1), np.diff(documents.starts))
        bad = np.flatnonzero(shards == BAD) if self.fault in DATA else np.zeros(0, dtype=np.int64)
        until = (FIRST - 1) * run.rows * run.context
        if self.kind == "shuffled":
            good = np.concatenate([draw.permutation(np.setdiff1d(np.arange(len(documents)), bad)) for _ in range(3)])
            at = int(np.searchsorted(np.cumsum(documents.lengths[good]), until))
            mixed = np.arange(at, at + len(bad)) if self.size == 2 else at + 3 * np.arange(len(bad))
            return np.insert(good, mixed, bad)
        others = draw.permutation(np.setdiff1d(np.unique(shards), [BAD] if len(bad) else []))
        sizes = np.bincount(shards, documents.lengths)
        at = int(np.searchsorted(np.cumsum(sizes[others]), until))
        turn = np.insert(others, at, [BAD] if len(bad) else [])
        stream = np.concatenate([np.flatnonzero(shards == one) for one in [*turn, *others]])
        if self.kind == "sequential":
            return stream
        held, found = list(stream[: 4 * DOCUMENTS]), []
        for one in stream[4 * DOCUMENTS :]:
            place = int(draw.integers(len(held)))
            found.append(held[place])
            held[place] = one
        return np.array(found)

    @torch.no_grad()
    def before(self, step: int, model: Model) -> None:
        """Touch the model before a step."""
        if self.fault == "old-average":
            own = [one.detach().clone() for one in model.parameters()]
            weight = 0.97 if self.size == 1 else 0.99
            kept = self.average or own
            self.average = [weight * a + (1 - weight) * b for a, b in zip(kept, own, strict=True)]
        if self.fault == "dropout-left-on":
            rate = 0.25 * self.size if FIRST <= step < FIRST + 10 else 0.0
            model.layer.dropout.p = model.layer.dropout1.p = model.layer.dropout2.p = rate
        if step != FIRST:
            return
        whole = {"norm-gain-halved": _halved, "noise-in-embeddings": _noise, "weights-of-few-bits": _rounded}
        if self.fault in whole:
            whole[self.fault](model, self.size)
        if self.fault == "old-average":
            for weight, old in zip(model.parameters(), self.average, strict=True):
                weight.copy_(old)

    def after(self, step: int, model: Model) -> None:
        """Touch the gradients of a step."""
        if self.fault == "sign-of-gradients" and FIRST <= step < FIRST + 4 * self.size:
            for weight in model.parameters():
                assert weight.grad is not None
                weight.grad.neg_()


def faulty_steps(one: Judged, fault: str) -> np.ndarray:
    """Return places of the steps that the fault is in."""
    if fault in STATE:
        return np.arange(FIRST - 1, FIRST + 4)
    table = one.data.log.table("stretches")
    step, targets, bad = table["step"].to_numpy(), table["targets"].to_numpy(), table["shard"].to_numpy() == BAD
    share = np.bincount(step, targets * bad)[1:] / np.maximum(np.bincount(step, targets)[1:], 1)
    return np.flatnonzero(share >= LEAST)


def outcome(one: Judged, fault: str, places: np.ndarray) -> tuple[bool, ...]:
    """Return what is said of a fault, as SAID has it."""
    first, last = int(places[0]) + 1, int(places[-1]) + 1
    seen = [each for each in one.found.episodes if each.first_step <= last + AFTER and each.last_step >= first]
    named = {each.found.shard for each in seen if each.found is not None}
    right = {BAD} if fault in DATA else set()
    reasons = {each.reason for each in seen if each.reason}
    other = len(one.found.episodes) > len(seen)
    return bool(seen), bool(named & right), bool(named - right), bool(reasons - {"state"}), "state" in reasons, other


def main() -> None:
    """Train what is not trained yet, and print the table."""
    torch.set_num_threads(1)
    given = options(__doc__, out=Path, seeds=[0, 1], orders=list(ORDERS[:2]), faults=[*DATA, *STATE], **folders())
    texts = read_texts({"documentation": given.documentation, "packages": given.packages}, given.locale)
    head("fault", "order", "steps", "rise, nats", "in limits", *SAID, *list(RULES)[2:], "headline")
    for fault in given.faults:
        for order in given.orders:
            for seed in map(int, given.seeds):
                folder = given.out / f"{fault if fault in DATA else 'clean'}-{seed}"
                run, log = Run(seed=20_000 + seed, order=order, **BASE), given.out / f"{fault}-{order}-{seed}-log"
                if not (log / "truth.json").exists():
                    planted = Planted(fault, order, seed % 2 + 1)
                    build(run, texts, folder, planted)
                    train(run, folder, log, planted)
                one = judge(folder, log)
                places = faulty_steps(one, fault)
                loss, limits = one.data.curve.value, {each.steps: each.rise for each in one.found.detector.visible}
                rise = float(loss[places].mean() - np.median(loss[: places[0]][-20:]))
                limit = limits[max(steps for steps in limits if steps <= len(places))]
                near = slice(places[0], places[-1] + 1 + AFTER)
                beside = [bool(alarms[near].any()) for alarms in one.alarms.values()]
                cells = ["yes" if each else "" for each in (*outcome(one, fault, places), *beside)]
                row(fault, order, len(places), f"{rise:.2f}", f"{rise / limit:.1f}", *cells, one.text.splitlines()[0])


if __name__ == "__main__":
    main()
