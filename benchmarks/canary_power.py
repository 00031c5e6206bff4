"""What a canary sees: 60 planted regressions and 120 healthy changes of a small training, beside healthy seeds.

    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/canary_power.py --pilot   # strengths, on seeds that are not scored
    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/canary_power.py

A model predicts a byte of Python's help topics from the 8 before it, 200 steps of 64 rows; a quarter of the text is
held out. Weights of 8 seeds are trained beside each other, in one batched product, each with its own rows. Strengths
were chosen so that a regression moves a loss by 5 sd between seeds or more, on the seeds from 1,000 on. Scored are the
seeds below 1,000: five baselines of 8 seeds, each with every change.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from dataaudit.base.statistics import wilson
from dataaudit.lab.model import VOCABULARY, Text
from dataaudit.manifest.canary_record import LEAST_SEEDS, TRAIN, VAL, SeedRun, Side, judge
from dataaudit.probes.canary_task import CanaryTask

CONTEXT, WIDTH, HIDDEN, ROWS, STEPS, LAST = 8, 16, 64, 64, 200, 20
DIGEST = "sha256:" + "0" * 64
RATE = 3e-3


class Training:
    """Trainings of some seeds beside each other; what a change overrides is a method or a setting."""

    rate, decay, epsilon, betas, fused, warmup = RATE, 0.01, 1e-8, (0.9, 0.95), True, 10
    init, noise = 1.0, 0.0
    frozen: tuple[str, ...] = ()
    smoothing = 0.0
    stream = 0

    def __init__(self, seeds: range, text: Text) -> None:
        self.seeds = seeds
        cut = len(text.tokens) * 3 // 4
        self.tokens, self.rest = torch.from_numpy(text.tokens[:cut]), torch.from_numpy(text.tokens[cut:])
        draws = [np.random.default_rng([seed, 1]) for seed in seeds]
        size = (STEPS, ROWS)
        self.rows = torch.from_numpy(np.stack([draw.integers(0, cut - CONTEXT - 1, size) for draw in draws]))
        self.chance = torch.Generator().manual_seed(seeds.start)

    def weights(self) -> dict[str, torch.Tensor]:
        """Return weights of all seeds, each drawn by its own generator."""
        shapes = {
            "table": (VOCABULARY, WIDTH),
            "first": (CONTEXT * WIDTH, HIDDEN),
            "bias": (1, HIDDEN),
            "second": (HIDDEN, VOCABULARY),
        }
        made: dict[str, list[torch.Tensor]] = {name: [] for name in shapes}
        for seed in self.seeds:
            draw = torch.Generator().manual_seed(seed + 100_000 * self.stream)
            for name, shape in shapes.items():
                scale = 1.0 if name == "table" else 0.0 if name == "bias" else shape[0] ** -0.5
                made[name].append(torch.randn(shape, generator=draw) * scale * self.init)
        stacked = {name: torch.stack(own) for name, own in made.items()}
        return {name: own + self.noise * self.drawn(own.shape) for name, own in stacked.items()}

    def drawn(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Return normal noise."""
        return torch.randn(shape, generator=self.chance)

    def inputs(self, ids: torch.Tensor) -> torch.Tensor:
        """Return what the model reads of the true tokens."""
        return ids

    def targets(self, labels: torch.Tensor) -> torch.Tensor:
        """Return what it has to predict."""
        return labels

    def embedded(self, table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Return embeddings [seeds, rows, context, width]."""
        return table[torch.arange(len(ids))[:, None, None], ids]

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        """Return the activations of the hidden layer."""
        return functional.gelu(x)

    def gradients(self, grads: list[torch.Tensor]) -> None:
        """Change gradients in place."""

    def stepped(self, weights: list[torch.Tensor]) -> None:
        """Change weights in place after a step."""

    def logits(self, weights: dict[str, torch.Tensor], ids: torch.Tensor) -> torch.Tensor:
        """Return logits [seeds, rows, vocabulary]."""
        x = self.embedded(weights["table"], ids).flatten(2)
        return torch.bmm(self.inner(torch.baddbmm(weights["bias"], x, weights["first"])), weights["second"])

    def loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of each seed, by which weights are trained."""
        return -logits.log_softmax(-1).gather(-1, labels[..., None])[..., 0].mean(-1)

    def train(self) -> tuple[np.ndarray, np.ndarray]:
        """Return losses [seeds, steps] and held-out losses [seeds]."""
        weights = {name: own.requires_grad_(name not in self.frozen) for name, own in self.weights().items()}
        trained = [own for own in weights.values() if own.requires_grad]
        optimizer = torch.optim.AdamW(
            trained, lr=self.rate, betas=self.betas, eps=self.epsilon, weight_decay=self.decay, fused=self.fused
        )
        reach = torch.arange(CONTEXT + 1)
        losses = []
        for step in range(STEPS):
            for group in optimizer.param_groups:
                group["lr"] = self.rate * min(1.0, (step + 1) / self.warmup)
            window = self.tokens[self.rows[:, step, :, None] + reach]
            own = self.loss(self.logits(weights, self.inputs(window[..., :-1])), self.targets(window[..., -1]))
            own.sum().backward()
            losses.append(own.detach())
            self.gradients([item.grad for item in trained])
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                self.stepped(trained)
        with torch.no_grad():
            window = self.rest[torch.arange(0, len(self.rest) - CONTEXT - 1, 31)[:, None] + reach][None]
            window = window.expand(len(self.seeds), -1, -1)
            logits = self.logits(weights, self.inputs(window[..., :-1]))
            held_out = Training.loss(self, logits, window[..., -1])
        return torch.stack(losses, 1).numpy(), held_out.numpy()

    def side(self) -> Side:
        """Return the trainings as a canary keeps them."""
        losses, held_out = self.train()

        def replay(at: int) -> Callable[[CanaryTask], None]:
            def function(task: CanaryTask) -> None:
                for step in range(STEPS):
                    task.step(losses[at, step], self.rows[at, step])
                task.held_out(held_out[at])

            return function

        runs = []
        for at, seed in enumerate(self.seeds):
            made = CanaryTask(seed, STEPS, Path(), Path()).run(replay(at), LAST)
            runs.append(SeedRun(**{name: made[name] for name in SeedRun.model_fields}))
        facts = dict.fromkeys(("manifest", "training_shards", "held_out_shards", "code"), DIGEST)
        return Side(**facts, function="f", config={}, steps=STEPS, last=LAST, seeds=tuple(runs))


def changed(name: str, /, **own: object) -> type[Training]:
    """Return a training with other settings or methods."""
    return type(name, (Training,), own)


def share(probability: float, change: Callable[[Training, torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a method that changes a share of what it gets."""

    def method(self: Training, given: torch.Tensor) -> torch.Tensor:
        chosen = torch.rand(given.shape, generator=self.chance) < probability
        return torch.where(chosen, change(self, given), given)

    return method


def any_token(self: Training, given: torch.Tensor) -> torch.Tensor:
    """Return tokens at random."""
    return torch.randint(0, VOCABULARY, given.shape, generator=self.chance)


def rounded(bits: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that keeps so many bits of the mantissa."""

    def cut(x: torch.Tensor) -> torch.Tensor:
        mantissa, exponent = torch.frexp(x)
        return torch.ldexp((mantissa * 2**bits).round() / 2**bits, exponent)

    return cut


def in_place(change: Callable[[Training, torch.Tensor], torch.Tensor]) -> Callable[..., None]:
    """Return a method that changes each of some tensors."""

    def method(self: Training, given: list[torch.Tensor]) -> None:
        for item in given:
            item.copy_(change(self, item))

    return method


def halves(self: Training, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean of the losses of two micro-batches."""
    parts = zip(logits.chunk(2, 1), labels.chunk(2, 1), strict=True)
    first, second = (Training.loss(self, *part) for part in parts)
    return (first + second) / 2


def smooth(_: Training, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the loss with smoothed labels."""
    own = -logits.log_softmax(-1)
    return (0.9 * own.gather(-1, labels[..., None])[..., 0] + 0.1 * own.mean(-1)).mean(-1)


REGRESSIONS = {
    "learning rate a third": changed("", rate=RATE / 3),
    "learning rate times 20": changed("", rate=RATE * 20),
    "warm-up never ends": changed("", warmup=600),
    "weight decay times 1,000": changed("", decay=10.0),
    "epsilon 0.02": changed("", epsilon=2e-2),
    "7 % of targets random": changed("", targets=share(0.07, any_token)),
    "a sixth of tokens random": changed("", inputs=share(1 / 6, any_token)),
    "context cut to the last byte": changed("", inputs=lambda _, ids: ids * (torch.arange(CONTEXT) >= CONTEXT - 1)),
    "embedding frozen, small": changed("", frozen=("table",), init=0.3),
    "labels smoothed": changed("", loss=smooth),
    "weights rounded to 4 bits": changed("", stepped=in_place(lambda _, x: rounded(4)(x))),
    "dropout of 0.4": changed("", inner=lambda _, x: functional.dropout(functional.gelu(x), 0.4)),
}
HEALTHY = {
    "optimizer not fused": changed("", fused=False),
    "loss in float64": changed("", loss=lambda s, x, y: Training.loss(s, x.double(), y).float()),
    "two micro-batches": changed("", loss=halves),
    "cross_entropy of torch": changed(
        "", loss=lambda _, x, y: functional.cross_entropy(x.mT, y, reduction="none").mean(-1)
    ),
    "embedding by a product": changed(
        "",
        embedded=lambda _, table, ids: torch.bmm(
            functional.one_hot(ids.flatten(1), VOCABULARY).float(), table
        ).unflatten(1, ids.shape[1:]),
    ),
    "noise of 1e-6 at the start": changed("", noise=1e-6),
    "noise of 1e-2 at the start": changed("", noise=1e-2),
    "initial scale 1 % larger": changed("", init=1.01),
    "learning rate 1 % higher": changed("", rate=RATE * 1.01),
    "warm-up a step shorter": changed("", warmup=9),
    "gradients of 8 bits": changed("", gradients=in_place(lambda _, x: rounded(8)(x))),
    "activations of 8 bits": changed("", inner=lambda _, x: functional.gelu(x).bfloat16().float()),
    **{f"weights drawn anew, {stream}": changed("", stream=stream) for stream in range(1, 13)},
}


def main() -> None:
    """Train, judge and count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pilot", action="store_true", help="only show how far each change moves the losses, in sd")
    parser.add_argument("--baselines", type=int, default=5, help="of 8 seeds each")
    parser.add_argument("--only", default="", help="changes whose name begins so")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    began, text = time.monotonic(), Text.load()
    first = 1_000 if arguments.pilot else 0
    groups = [range(first + 8 * at, first + 8 * at + LEAST_SEEDS) for at in range(arguments.baselines)]
    baselines = [Training(seeds, text).side() for seeds in groups]
    table: dict[str, Counter[str]] = {}
    caught: Counter[str] = Counter()
    alarms = changes = 0
    for kind, every in (("regression", REGRESSIONS), ("healthy", HEALTHY)):
        for name, training in every.items():
            if not name.startswith(arguments.only):
                continue
            moved, verdicts = {TRAIN: [], VAL: []}, Counter[str]()
            for seeds, baseline in zip(groups, baselines, strict=True):
                made = judge("code", baseline, training(seeds, text).side())
                verdicts[made["verdict"]] += 1
                for own in made["metrics"]:
                    moved[own.metric].append(own.difference / own.seed_sd)
                    better = own.state == "better"
                    verdicts["losses better"] += better
            table[name] = verdicts
            sd = " ".join(f"{metric} {min(own):+6.2f} to {max(own):+6.2f}" for metric, own in moved.items() if own)
            print(f"{kind:<10} {name:<32} {sd} sd  {dict(verdicts)}", flush=True)
            caught[kind] += verdicts["regressed"]
            changes += kind == "healthy"
            alarms += verdicts["losses better"] if kind == "healthy" else 0
    for kind, every in (("regression", REGRESSIONS), ("healthy", HEALTHY)):
        number = sum(table[name].total() - table[name]["losses better"] for name in every if name in table)
        if number:
            low, high = wilson(caught[kind] / number, number, 0.95)
            what = "regressions caught" if kind == "regression" else "healthy changes called regressed"
            print(f"{what}: {caught[kind]} of {number}, {low:.3f} to {high:.3f} (95 %, Wilson)")
    print(f"healthy losses called better: {alarms}; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
