"""``val_loss``, ``val_ppl`` and ``slice_val_loss`` on the held-out splits of a manifest, with and without its leaks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dataaudit.probes.corpus import Sampled
from dataaudit.probes.estimates import Units
from dataaudit.probes.models import Ids, Model
from dataaudit.probes.report import EvalArtifacts, Outcome, artifacts_of, harness
from dataaudit.probes.store import Progress, Store

GROUP = 32
"""Documents that are scored before progress is kept."""
LEAST_DOCUMENTS = 8
"""A slice of fewer is not evaluated: its interval means nothing."""


@dataclass(frozen=True, kw_only=True)
class HeldOutLoss:
    """Loss of held-out documents.

    A document is scored in windows of the context, each of which begins with the last token of the one before; its
    first token is scored after the end token, or not at all where the tokenizer has none.
    """

    name: ClassVar[str] = "held_out"
    version: ClassVar[int] = 1
    documents: Sampled | None
    progress: Progress | None = None

    def artifacts(self, model: Model) -> EvalArtifacts:
        """Return what its numbers depend on."""
        prompts = "none" if self.documents is None else self.documents.digest
        templates = f"windows of {model.context}, end={model.tokenizer.encoder.end}"
        return artifacts_of(model, harness(self.name, self.version), prompts, templates=templates)

    def run(self, model: Model, store: Store, previous: Mapping[str, np.ndarray]) -> Outcome:
        """Score all documents and return the numbers of all of them, and of each slice."""
        del previous
        made = Outcome()
        if self.documents is None:
            made.absent("val_loss", "nats/token", "no_held_out_split")
            return made
        scored = document_losses(model, self.documents.rows, store, self.progress)
        if scored is None:
            made.absent("val_loss", "nats/token", "no_losses")
            return made
        sums, counts = scored
        units = Units.of(sums, counts, self.documents.places)
        if len(units.ids) < self.documents.of:
            made.notes.append(f"val_loss: {len(units.ids):,} of {self.documents.of:,} held-out documents, by hash")
        if self.documents.doubt:
            made.notes.append(f"val_loss: {self.documents.doubt}")
        cases: list[tuple[dict[str, str], npt.NDArray[np.bool_]]] = [({}, np.ones(len(units.ids), bool))]
        if self.documents.leaks_unknown:
            made.absent("val_loss", "nats/token", self.documents.leaks_unknown, leaks="out")
        else:
            clean = ~self.documents.leaked
            cases.append(({"leaks": "out"}, clean))
            made.notes.append(
                f"val_loss: {int((~clean).sum()):,} of {len(clean):,} held-out documents stand in training"
            )
        for scope, mask in cases:
            loss = made.add("val_loss", units.where(mask), "nats/token", **scope)
            bounds = (loss.value, loss.low, loss.high)  # the change of a perplexity follows from that of its loss
            value, low, high = (None if own is None else math.exp(min(own, 700.0)) for own in bounds)
            made.numbers.append(replace(loss, metric="val_ppl", unit="perplexity", value=value, low=low, high=high))
            for dimension, labels in self.documents.labels.items():
                _add_slices(made, units, mask, scope, dimension, np.array(labels))
        for dimension in ("source", "language", "length", "domain"):
            if dimension not in self.documents.labels:
                made.absent("slice_val_loss", "nats/token", f"no_{dimension}", **{dimension: "*"})
        return made


def _add_slices(
    made: Outcome, units: Units, mask: npt.NDArray[np.bool_], scope: Mapping[str, str], dimension: str, names: Any
) -> None:
    for name in np.unique(names).tolist():
        mine, own = mask & (names == name), {dimension: name, **scope}
        if int(mine.sum()) < LEAST_DOCUMENTS:
            made.absent("slice_val_loss", "nats/token", "few_documents", **own)
        else:
            made.add("slice_val_loss", units.where(mine), "nats/token", **own)


def windows(ids: Ids, context: int, end: int | None) -> list[tuple[Ids, Ids]]:
    """Return the pairs of context and scored tokens of a document."""
    before = np.zeros(0, np.int64) if end is None else np.array([end], np.int64)
    pairs, at = [], 0
    while at < len(ids):
        room = context - len(before)
        pairs.append((before, ids[at : at + room]))
        at += room
        before = ids[at - 1 : at]
    return pairs


def document_losses(
    model: Model, rows: tuple[Ids, ...], store: Store, progress: Progress | None = None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None:
    """Return float64[n] losses, nats, and float64[n] scored tokens of documents; None where the model has no losses."""
    end = model.tokenizer.encoder.end

    def sums_of(_at: int, part: Sequence[Ids]) -> list[list[float]] | None:
        pairs = [(number, pair) for number, row in enumerate(part) for pair in windows(row, model.context, end)]
        if (scored := model.scored([pair for _, pair in pairs])) is None:
            return None
        sums = np.zeros((len(part), 2))
        for (number, _), losses in zip(pairs, scored, strict=True):
            sums[number] += (float(losses.sum()), len(losses))
        return [*np.where(np.isfinite(sums), sums, np.nan).tolist()]

    listed = store.grouped(rows, GROUP, sums_of, "held-out documents", progress)
    if listed is None:
        return None
    table = np.array(listed, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]
