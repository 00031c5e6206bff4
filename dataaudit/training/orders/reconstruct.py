"""A run log of a run that kept none: its stretches from the order of its data, its losses from what it printed.

Options choose the order. Samples follow from the size of a batch, its ramp, and the steps that were skipped, by
Megatron's rule, of which a constant batch is the simplest case: the size of a batch follows from the samples that are
consumed by then; samples of a skipped iteration are consumed and not trained on.

What is written is a run log as any other, but that no stretch has a loss: the loss of a step is the loop's own.
`attribute`, the event test and reports read it as they read all others.
"""

from __future__ import annotations

import itertools
import shutil
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dataaudit import __version__
from dataaudit.base import text as t
from dataaudit.base.errors import ConfigError, ManifestMismatch
from dataaudit.base.extras import require
from dataaudit.base.render.terminal import facts, page, terminal_width
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.runlog.format import RUN_FILE
from dataaudit.runlog.reader import load_run
from dataaudit.runlog.writer import RankWriter, create_run, event
from dataaudit.training.attribution.curve import judge
from dataaudit.training.attribution.loss_table import Losses
from dataaudit.training.corpus import sources_of
from dataaudit.training.logthread import value_columns
from dataaudit.training.monitor import BLOCK_ROWS
from dataaudit.training.orders.frameworks import Evaluations, OffsetOrder, RankedOrder, open_olmo
from dataaudit.training.orders.megatron import open_megatron
from dataaudit.training.orders.rows import MappedFiles, Order, stretches_of
from dataaudit.training.run_start import new_run

_FLUSH_ROWS = 1 << 18
_SHARD_COLUMNS = ("shard", "split", "uri", "sha256")
RECONSTRUCTED = "reconstructed"
"""Key of a run's settings that marks its stretches as of a reconstructed order."""


Kind = Literal["megatron", "nanogpt", "olmo", "torchtitan"]
_NEEDS: Mapping[Kind, tuple[str, ...]] = {
    "megatron": ("index", "batch"),
    "nanogpt": ("context", "micro_batch", "state"),
    "olmo": ("index", "batch", "context"),
    "torchtitan": ("context", "micro_batch"),
}
_MAY: Mapping[Kind, tuple[str, ...]] = {
    "megatron": ("rampup", "divisor", "skip", "split", "no_extra_token"),
    "nanogpt": ("accumulate", "ranks", "eval"),
    "olmo": ("skip",),
    "torchtitan": ("accumulate", "ranks", "begin_token"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The samples of a step."""

    step: int
    first: int
    samples: int
    skipped: bool
    """Consumed, and not trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """How many samples each step takes."""

    sizes: Sequence[tuple[int, int]]
    """(samples consumed, batch from there on), ascending, the first from 0; one pair for a constant batch."""
    ramp: tuple[int, int, int] | None = None
    """`--rampup-batch-size`: first batch, increment, samples over which it grows to the last of ``sizes``."""
    divisor: int = 1
    """Batches are rounded down to a multiple: micro-batch x data parallel, with `--decrease-batch-size-if-needed`."""
    skipped: Sequence[range] = ()

    def __post_init__(self) -> None:
        """Check the numbers."""
        starts = [start for start, _ in self.sizes]
        if not starts or starts[0] != 0 or starts != sorted(set(starts)) or min(size for _, size in self.sizes) < 1:
            raise ConfigError("--batch: expected a size from 1 on, or SAMPLES:SIZE,... ascending from 0")
        if self.divisor < 1:
            raise ConfigError(f"--divisor: expected a number from 1 on, found {self.divisor}")
        if self.ramp is not None:
            first, increment, samples = self.ramp
            more = self.sizes[-1][1] - first
            if len(self.sizes) > 1 or first < 1 or increment < 1 or samples < 0 or more <= 0 or more % increment:
                raise ConfigError(
                    f"--rampup {first} {increment} {samples}: from {first} to {self.sizes[-1][1]} it takes no whole"
                    f" number of increments of {increment}"
                )

    def size(self, consumed: int) -> int:
        """Return the batch after so many samples."""
        wanted = next(size for start, size in reversed(self.sizes) if consumed >= start)
        if self.ramp is not None:
            first, increment, samples = self.ramp
            if consumed <= samples and samples:
                # In floating point, as the trainer divides: its steps are where it has them.
                wanted = first + int(consumed / (samples / ((wanted - first) // increment))) * increment
        size = wanted // self.divisor * self.divisor
        if not size:
            raise ConfigError(f"a batch of {wanted:,} has no multiple of {self.divisor:,}", "--divisor is too large.")
        return size

    def steps(self, first: int, last: int, consumed: int = 0) -> Iterator[Batch]:
        """Yield the samples of steps."""
        for step in range(first, last + 1):
            size = self.size(consumed)
            yield Batch(step=step, first=consumed, samples=size, skipped=any(step in some for some in self.skipped))
            consumed += size


def parse_sizes(text: str) -> tuple[tuple[int, int], ...]:
    """Read a size, or ``SAMPLES:SIZE,...``."""
    try:
        if text.strip().isdecimal():
            return ((0, int(text)),)
        pairs = [part.split(":") for part in text.split(",")]
        return tuple((int(start), int(size)) for start, size in pairs)
    except ValueError:
        raise ConfigError(f"--batch {text}: expected a size, or SAMPLES:SIZE,SAMPLES:SIZE") from None


def parse_steps(text: str) -> tuple[range, ...]:
    """Read steps: ``17,100-120``."""
    try:
        parts = [part.partition("-") for part in text.split(",")]
        steps = tuple(range(int(first), int(last or first) + 1) for first, _, last in parts)
    except ValueError:
        steps = ()
    if not steps or not all(steps):
        raise ConfigError(f"--skip {text}: expected steps and ranges of them, such as 17,100-120")
    return steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The options; those that were not given are None, or empty."""

    kind: Kind
    index: tuple[Path, ...] = ()
    context: int | None = None
    batch: str | None = None
    """Rows of a batch of all ranks, or ``SAMPLES:SIZE,...``."""
    rampup: tuple[int, int, int] | None = None
    divisor: int | None = None
    skip: tuple[range, ...] = ()
    split: str | None = None
    no_extra_token: bool = False
    micro_batch: int | None = None
    accumulate: int | None = None
    ranks: int | None = None
    state: tuple[str, ...] = ()
    eval: tuple[int, int, int] | None = None
    begin_token: bool = False

    def __post_init__(self) -> None:
        """Check that what is needed is there, and nothing that is of another order."""
        if self.kind == "nanogpt":
            require("reconstruct --order nanogpt", "train")
        given = self.given().keys() - {"kind"}
        if missing := [name for name in _NEEDS[self.kind] if name not in given]:
            raise ConfigError(f"--order {self.kind} needs {', '.join(map(_option, missing))}")
        if other := sorted(given - {*_NEEDS[self.kind], *_MAY[self.kind]}):
            raise ConfigError(f"{', '.join(map(_option, other))}: not of --order {self.kind}")
        for name in ("context", "micro_batch", "accumulate", "ranks", "divisor"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{_option(name)}: expected a number from 1 on, found {value}")

    def given(self) -> dict[str, Any]:
        """Return what was given, for the log's settings."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: _plain(value) for name, value in options.items() if value}

    def batches(self) -> Batches:
        """Return how many samples each step takes."""
        if self.kind in ("megatron", "olmo"):
            return Batches(
                sizes=parse_sizes(self.batch or ""), ramp=self.rampup, divisor=self.divisor or 1, skipped=self.skip
            )
        return Batches(sizes=((0, (self.micro_batch or 1) * (self.accumulate or 1) * (self.ranks or 1)),))

    def open(self, files: MappedFiles, first: int, consumed: int) -> Order:
        """Open the order, of which so many samples came before the first step."""
        ranks, context = self.ranks or 1, self.context or 1
        if self.kind == "megatron":
            if len(self.index) != 1:
                raise ConfigError(f"--index: Megatron's order is in one folder, {len(self.index)} are named")
            return open_megatron(self.index[0], files, split=self.split or "train", extra=not self.no_extra_token)
        if self.kind == "olmo":
            return open_olmo(self.index, files, context=context, batch=parse_sizes(self.batch or "")[-1][1])
        if self.kind == "torchtitan":
            return RankedOrder(files, context, self.micro_batch or 1, ranks, self.begin_token)
        states = [int(name) if name.isdecimal() else Path(name) for name in self.state]
        if len(states) == 1 and isinstance(states[0], int):
            states = [states[0] + rank for rank in range(ranks)]
        if len(states) != ranks:
            raise ConfigError(f"--state: {len(states)} are given for {ranks} ranks", "One a rank, in their order.")
        if self.eval is not None and min(self.eval) < 1:
            raise ConfigError("--eval: expected numbers from 1 on")
        evaluations = None if self.eval is None else Evaluations(*self.eval)
        micro_batches, size = self.accumulate or 1, self.batches().size(0)
        start = first - consumed // size  # at which the states are
        return OffsetOrder(files, context, self.micro_batch or 1, micro_batches, states, start, evaluations)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, range):
        return f"{value.start}-{value.stop - 1}"
    return str(value) if isinstance(value, Path) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconstructed:
    """What was written."""

    runlog: str
    manifest: str
    first_step: int
    last_step: int
    skipped: int
    """Steps whose samples were consumed and not trained on."""
    samples: int
    targets: int
    stretches: int
    consumed: int
    """Samples after the last step: `consumed_train_samples` of its checkpoint."""
    losses: int
    losses_elsewhere: int
    """Losses of steps that are none of these."""
    losses_unread: int
    losses_repeated: int
    order: str
    """As in the log; empty: not drawn at random, or not known."""
    positions: tuple[dict[str, int], ...]
    """Of torchtitan's ranks after the last step, to be compared with its checkpoint."""


def reconstruct(
    folder: Path,
    manifest_folder: Path,
    paths: tuple[Path, ...],
    choice: Choice,
    *,
    steps: tuple[int, int],
    consumed: int = 0,
    losses: Losses | None = None,
) -> Reconstructed:
    """Write the run log of a run by the order of its data."""
    first, last = steps
    if not 0 <= first <= last or consumed < 0:
        raise ConfigError(f"--steps {first}-{last}, --consumed {consumed}: expected numbers from 0 on, ascending")
    manifest = load_manifest(manifest_folder)
    files = MappedFiles(paths, manifest.id)
    _check_documents(files, manifest)
    batches = choice.batches()
    order = choice.open(files, first, consumed)
    last_batch = deque(batches.steps(first, last, consumed), maxlen=1)[0]
    after = last_batch.first + last_batch.samples
    if order.samples is not None and after > order.samples:
        raise ConfigError(
            f"the order has {order.samples:,} samples, up to step {last:,} the run would have taken {after:,}",
            "Look at --batch and --steps, at which order it was, and whether it had one for each pass: --index.",
        )
    again = _begin(folder, manifest, choice, order)
    writer = RankWriter(folder, 0, first, BLOCK_ROWS)
    written = _Written(writer, files, order, losses)
    detail = {"program": __version__, "consumed": consumed, **choice.given()}
    writer.add("events", event(max(0, first - 1), "resumed" if again else "started", detail))
    try:
        for batch in batches.steps(first, last, consumed):
            written.step(batch)
        writer.add("events", event(last, "closed", {"lost_steps": 0, "refused_values": 0}))
    except ConfigError:
        writer.close()
        if not again:
            shutil.rmtree(folder)
        raise
    writer.close()
    if writer.lost.errors:
        raise ConfigError(f"the run log {folder} cannot be written: {writer.lost.last}", "It lacks steps: remove it.")
    return Reconstructed(
        runlog=str(folder),
        manifest=manifest.id,
        first_step=first,
        last_step=last,
        **written.counts,
        consumed=after,
        losses_elsewhere=0 if losses is None else len(losses.step) - written.counts["losses"],
        losses_unread=0 if losses is None else losses.unread,
        losses_repeated=0 if losses is None else losses.repeated,
        order=order.shuffled,
        positions=order.positions(after) if isinstance(order, RankedOrder) else (),
    )


class _Written:
    """Writes step after step, and counts."""

    def __init__(self, writer: RankWriter, files: MappedFiles, order: Order, losses: Losses | None) -> None:
        self._writer, self._files, self._order = writer, files, order
        self._losses: dict[int, tuple[float, float]] = {}
        if losses is not None:
            pairs = zip(losses.loss.tolist(), losses.rate.tolist(), strict=True)
            self._losses = dict(zip(losses.step.tolist(), pairs, strict=True))
            judged = judge(losses.step, losses.loss)
            writer.flagged |= {int(at) for flagged in judged.spikes for at in losses.step[flagged.places]}
        self.counts = dict.fromkeys(("skipped", "samples", "targets", "stretches", "losses"), 0)
        self._waiting = 0

    def step(self, batch: Batch) -> None:
        """Write a step."""
        targets, number = 0, batch.step
        if batch.skipped:
            self.counts["skipped"] += 1
            self._writer.add("events", event(number, "skipped", {"samples": batch.samples}))
        else:
            columns = stretches_of(self._order.pieces(batch.first, batch.samples), self._files)
            size, targets = len(columns["row"]), int(columns["targets"].sum())
            same = {"step": np.full(size, number), "micro_batch": np.zeros(size, np.int64), "loss": None}
            self._writer.add("stretches", {**columns, **same})
            self.counts["samples"] += batch.samples
            self.counts["stretches"] += size
            self._waiting += size
        loss, rate = self._losses.get(number, (None, np.nan))
        self.counts["targets"] += targets
        self.counts["losses"] += loss is not None
        if np.isfinite(rate):
            self._writer.add("values", value_columns(number, {"learning_rate": rate}))
        row: dict[str, Any] = {
            "step": np.array([number]),
            "time": np.array([0.0]),
            "micro_batches": np.array([int(not batch.skipped)]),
            "targets": np.array([targets]),
            "scored": np.array([0]),
            "loss_sum": np.array([0.0]),
            "user_loss": None if loss is None else np.array([loss]),
            "merged": np.array([0]),
        }
        self._writer.add_step(number, row)
        self._waiting += 1
        if self._waiting >= _FLUSH_ROWS:
            self._writer.flush()
            self._waiting = 0


def _check_documents(files: MappedFiles, manifest: Manifest) -> None:
    """Compare the documents of the maps with the manifest."""
    rows = manifest.table("shards", ["rows"])["rows"].to_numpy()
    known = (files.shard >= 0) & (files.shard < len(rows))
    if not known.all() or not ((files.row >= 0) & (files.row < rows[files.shard])).all():
        raise ManifestMismatch(
            "a map names documents that the manifest does not have", "It is damaged: write the token file anew."
        )


def _begin(folder: Path, manifest: Manifest, choice: Choice, order: Order) -> bool:
    """Write what the run is, or compare it with what is written; return whether it goes on."""
    if (folder / RUN_FILE).exists():
        run = load_run(folder).run
        if run.manifest != manifest.id or RECONSTRUCTED not in run.settings or run.order != order.shuffled:
            raise ConfigError(
                f"{folder} holds the log of another run",
                "Name a new folder; a reconstructed log goes on by its own order.",
            )
        return True
    shards = manifest.table("shards", [*_SHARD_COLUMNS, "sources"])
    run = new_run(
        manifest=manifest.id,
        dataset=manifest.core.dataset.label,
        digests={"manifest": manifest.id, "tokenizer": f"sha256:{manifest.core.tokenizer.sha256}"},
        sources=sources_of(shards),
        block_rows=BLOCK_ROWS,
        ranks=1,
        order=order.shuffled,
        settings={RECONSTRUCTED: choice.given()},
    )
    create_run(folder, run, shards.select(list(_SHARD_COLUMNS)))
    return False


def reconstructed_text(result: Reconstructed) -> str:
    """Return what was written, for a terminal."""
    pairs = [
        ("manifest", result.manifest),
        ("read", f"{t.plural(result.samples, 'row')}, {t.plural(result.targets, 'target')}"),
        ("stretches", f"{result.stretches:,}, none with a loss of its own"),
        ("consumed", f"{t.plural(result.consumed, 'sample')} after step {result.last_step:,}"),
    ]
    if result.skipped:
        pairs.append(("skipped", f"{t.plural(result.skipped, 'step')}: consumed, and not trained on"))
    losses = f"of {t.plural(result.losses, 'step')}" if result.losses else "none: nothing can be attributed"
    more = (
        (result.losses_elsewhere, "of other steps"),
        (result.losses_unread, "without a step or a number"),
        (result.losses_repeated, "that a later line replaces"),
    )
    pairs.append(("losses", "; ".join([losses, *(f"{number:,} {what}" for number, what in more if number)])))
    for rank, record in itertools.islice(enumerate(result.positions), 8):
        pairs.append((f"rank {rank}", ", ".join(f"{name} {value:,}" for name, value in record.items())))
    steps = f"steps {result.first_step:,} to {result.last_step:,}"
    return page(f"{t.clean(result.runlog)}: {steps}, reconstructed", facts(pairs, terminal_width()))
