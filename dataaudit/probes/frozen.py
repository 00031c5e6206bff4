"""Probes of a frozen batch: its loss, the sharpness of the output, and how far the output moved since before."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dataaudit.live.probe_batch import IGNORED, ProbeBatch
from dataaudit.probes.estimates import Units
from dataaudit.probes.models import Model, ProbeModel
from dataaudit.probes.report import EvalArtifacts, Outcome, artifacts_of, harness
from dataaudit.probes.store import Store

QUANTILES = (5, 50, 95)


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """The cheap probe: a forward pass of one batch, at checkpoints and between steps."""

    name: ClassVar[str] = "frozen"
    version: ClassVar[int] = 1
    batch: ProbeBatch
    top_k: int = 10
    """Tokens whose mass ``topk_mass_probe`` is."""
    stored_k: int = 64
    """Tokens of each position that are kept for ``output_kl_to_prev``; the rest is their tail."""

    def artifacts(self, model: Model) -> EvalArtifacts:
        """Return what its numbers depend on."""
        decoding = f"top_k={self.top_k} stored_k={self.stored_k}"
        return artifacts_of(model, harness(self.name, self.version), self.batch.id, decoding=decoding)

    def run(self, model: Model, store: Store, previous: Mapping[str, np.ndarray]) -> Outcome:
        """Measure; ``previous`` holds the arrays of the report before, with equal artifacts, or nothing."""
        del store
        made = Outcome()
        longest = max(map(len, self.batch.rows))
        if not isinstance(model, ProbeModel) or longest > model.context:
            reason = f"context_below_{longest}" if isinstance(model, ProbeModel) else "no_logits"
            for metric in ("fixed_probe_loss", "logit_entropy_probe", "topk_mass_probe", "token_entropy"):
                made.absent(metric, "nats", reason)
            return made
        if self.batch.tokenizer not in {"", model.tokenizer.digest}:
            made.notes.append("frozen: the batch was made with another tokenizer: another --out has its own batch")
        batches = self._row_numbers(model, previous, made)
        loss, entropy, mass, divergence, row = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        count = np.bincount(row).astype(np.float64)

        def by_row(values: npt.NDArray[np.float64]) -> Units:
            return Units.of(np.bincount(row, values, minlength=len(count)), count)

        made.add("fixed_probe_loss", by_row(loss), "nats/token")
        made.add("logit_entropy_probe", by_row(entropy), "nats")
        made.add("topk_mass_probe", by_row(mass), "ratio")
        for percent in QUANTILES:
            _quantile(made, entropy, row, percent)
        if np.isfinite(divergence).all() and len(divergence):
            method = "exact" if previous["frozen_full"] else "at_least"
            made.add("output_kl_to_prev", by_row(divergence), "nats", method=method)
        else:
            made.absent("output_kl_to_prev", "nats", "not_finite" if previous else "no_previous")
        return made

    def _row_numbers(self, model: ProbeModel, previous: Mapping[str, np.ndarray], made: Outcome) -> list[Any]:
        """Return loss, entropy, top mass, divergence and row of each position, batch by batch."""
        import torch

        from dataaudit.probes.kernels import distributions, kl_to_previous, losses_of

        found, full = [], False
        with model.unharmed():
            for mine, padded in model.batches(self.batch.rows):
                labels = self.batch.labels[mine, : padded.shape[1]]
                real = labels != IGNORED
                row = np.repeat(np.array(mine), real.sum(1))
                logits = model.logits(padded)[torch.as_tensor(real).to(model.device)]
                own = distributions(logits, max(self.top_k, self.stored_k))
                full = own.top_ids.shape[1] == logits.shape[1]
                targets = torch.as_tensor(labels[real]).to(model.device)
                loss = losses_of(logits, own.log_total, targets)
                mass = own.top_log_probs[:, : self.top_k].exp().sum(1)
                divergence = torch.full_like(loss, torch.nan)
                if previous:
                    ids, probs = (
                        torch.as_tensor(np.concatenate([previous[f"{name}_{r}"] for r in mine])).to(model.device)
                        for name in ("ids", "probs")
                    )
                    divergence = kl_to_previous(logits, own.log_total, ids.long(), probs.double())
                found.append((*(x.cpu().numpy() for x in (loss, own.entropy, mass, divergence)), row))
                for number in mine:
                    there = torch.as_tensor(row == number).to(model.device)
                    ids, probs = (table[there][:, : self.stored_k] for table in (own.top_ids, own.top_log_probs))
                    made.arrays[f"ids_{number}"] = ids.int().cpu().numpy()
                    made.arrays[f"probs_{number}"] = probs.float().cpu().numpy()
        made.arrays["frozen_full"] = np.array(full and self.stored_k >= logits.shape[1])
        return found


def _quantile(made: Outcome, values: npt.NDArray[np.float64], row: npt.NDArray[np.int64], percent: int) -> None:
    """Add a percentile of the entropies of all positions, with Woodruff's interval (1952) over rows.

    Of equal entropies chance takes as many as lie below it.
    """
    value = float(np.quantile(values, percent / 100))
    order = np.lexsort((np.random.default_rng(0).random(len(values)), values))
    lower = order[: math.ceil(percent / 100 * len(values))]
    below = np.bincount(row[lower], minlength=int(row.max()) + 1).astype(np.float64)
    share = Units.of(below, np.bincount(row).astype(np.float64))
    number = made.add("token_entropy", share, "nats", stat=f"p{percent}")
    del made.units[number.key]  # they are of the share below, not of the percentile
    low = high = None
    if number.low is not None and number.high is not None:
        low, high = (float(np.quantile(values, min(1.0, max(0.0, at)))) for at in (number.low, number.high))
    reason = number.reason if np.isfinite(value) else "not_finite"
    made.numbers[-1] = replace(number, value=value, low=low, high=high, reason=reason)
