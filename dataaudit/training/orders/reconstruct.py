"""A run log of a run that kept none: its stretches from the order of its data, its losses from what it printed.

What is written is a run log as any other, but that no stretch has a loss: the loss of a step is the loop's own.
`attribute`, the event test and reports read it as they read all others.
"""

from __future__ import annotations

import datetime as dt
import itertools
import shutil
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dataaudit import __version__
from dataaudit.base import text as t
from dataaudit.base.errors import ConfigError, ManifestMismatch
from dataaudit.base.render.terminal import facts, page, terminal_width
from dataaudit.manifest.load import Manifest, load_manifest
from dataaudit.runlog.format import RUN_FILE, RunFile
from dataaudit.runlog.reader import load_run
from dataaudit.runlog.writer import RankWriter, create_run, event
from dataaudit.training.attribution.curve import judge
from dataaudit.training.attribution.loss_table import Losses
from dataaudit.training.corpus import sources_of
from dataaudit.training.logthread import value_columns
from dataaudit.training.monitor import BLOCK_ROWS
from dataaudit.training.orders.choice import Batch, Choice
from dataaudit.training.orders.frameworks import RankedOrder
from dataaudit.training.orders.rows import MappedFiles, Order, stretches_of

_FLUSH_ROWS = 1 << 18
_SHARD_COLUMNS = ("shard", "split", "uri", "sha256")
RECONSTRUCTED = "reconstructed"
"""Key of a run's settings that says that its stretches are of a reconstructed order."""


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
    """Trained on."""
    targets: int
    stretches: int
    consumed: int
    """Samples after the last step: `consumed_train_samples` of its checkpoint."""
    losses: int
    """Steps with a loss."""
    losses_elsewhere: int
    """Losses of steps that are none of these."""
    losses_unread: int
    losses_repeated: int
    order: str
    """As the log says it; empty: not drawn at random, or not known."""
    positions: tuple[dict[str, int], ...]
    """Of torchtitan's ranks after the last step, to be held against its checkpoint."""


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
    order = choice.open(files, first)
    last_batch = deque(batches.steps(first, last, consumed), maxlen=1)[0]
    after = last_batch.first + last_batch.samples
    if order.samples is not None and after > order.samples:
        raise ConfigError(
            f"the order has {order.samples:,} samples, up to step {last:,} the run would have taken {after:,}",
            "Look at --batch and --steps, at which order it was, and whether it had one for each pass: --index.",
        )
    again = _begin(folder, manifest, choice, order)
    try:
        writer = RankWriter(folder, 0, first, BLOCK_ROWS)
    except OSError as error:
        raise ConfigError(f"the run log {folder} cannot be written: {error.strerror or error}") from None
    written = _Written(writer, files, order, losses)
    detail = {"program": __version__, "consumed": consumed, **choice.said()}
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
    positions: tuple[dict[str, int], ...] = ()
    if isinstance(order, RankedOrder):
        positions = tuple(order.position(rank, after) for rank in range(order.ranks))
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
        positions=positions,
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
    """Hold the documents of the maps against the manifest."""
    rows = manifest.table("shards", ["rows"])["rows"].to_numpy()
    known = (files.shard >= 0) & (files.shard < len(rows))
    if not known.all() or not ((files.row >= 0) & (files.row < rows[files.shard])).all():
        raise ManifestMismatch(
            "a map names documents that the manifest does not have", "It is damaged: write the token file anew."
        )


def _begin(folder: Path, manifest: Manifest, choice: Choice, order: Order) -> bool:
    """Write what the run is, or hold it against what is written; return whether it goes on."""
    if (folder / RUN_FILE).exists():
        run = load_run(folder).run
        if run.manifest != manifest.id or RECONSTRUCTED not in run.settings or run.order != order.shuffled:
            raise ConfigError(
                f"{folder} holds the log of another run",
                "Name a new folder; a reconstructed log goes on by its own order.",
            )
        return True
    shards = manifest.table("shards", [*_SHARD_COLUMNS, "sources"])
    run = RunFile(
        manifest=manifest.id,
        dataset=manifest.core.dataset.label,
        digests={"manifest": manifest.id, "tokenizer": f"sha256:{manifest.core.tokenizer.sha256}"},
        sources=sources_of(shards),
        block_rows=BLOCK_ROWS,
        ranks=1,
        order=order.shuffled,
        started=dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        program=__version__,
        settings={RECONSTRUCTED: choice.said()},
    )
    create_run(folder, run, shards.select(list(_SHARD_COLUMNS)))
    return False


def reconstructed_text(found: Reconstructed) -> str:
    """Return what was written, for a terminal."""
    pairs = [
        ("manifest", found.manifest),
        ("read", f"{t.plural(found.samples, 'row')}, {t.plural(found.targets, 'target')}"),
        ("stretches", f"{found.stretches:,}, none with a loss of its own"),
        ("consumed", f"{t.plural(found.consumed, 'sample')} after step {found.last_step:,}"),
    ]
    if found.skipped:
        pairs.append(("skipped", f"{t.plural(found.skipped, 'step')}: consumed, and not trained on"))
    losses = f"of {t.plural(found.losses, 'step')}" if found.losses else "none: nothing can be attributed"
    more = (
        (found.losses_elsewhere, "of other steps"),
        (found.losses_unread, "without a step or a number"),
        (found.losses_repeated, "that a later line replaces"),
    )
    pairs.append(("losses", "; ".join([losses, *(f"{number:,} {what}" for number, what in more if number)])))
    for rank, record in itertools.islice(enumerate(found.positions), 8):
        pairs.append((f"rank {rank}", ", ".join(f"{name} {value:,}" for name, value in record.items())))
    steps = f"steps {found.first_step:,} to {found.last_step:,}"
    return page(f"{t.clean(found.runlog)}: {steps}, reconstructed", facts(pairs, terminal_width()))
