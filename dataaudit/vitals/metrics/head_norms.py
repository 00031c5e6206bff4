"""How long queries and keys are, head by head: logits are their products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataaudit.vitals.measurement import Measurement
from dataaudit.vitals.metric import Column, Metric

if TYPE_CHECKING:
    import torch

_ABSENT = float("-inf")
_OWN = "the model makes its own logits: queries and keys are not seen"
_FIRST = 5
"""Of ``recorder.HEAD_STATS``: where the two norms stand."""


class HeadNorms(Measurement):
    """Root mean squares, over a step's micro-batches, of the norms of sampled rows' queries and of all keys.

    Of each micro-batch one row of the batch is read. Heads that share keys have the same number.
    """

    FAMILY, HOOKED = "attention", True
    METRICS = (
        Metric("q_norm", "log", flops="heads x width x (2 rows)", chart=("rms", "Norm of queries")),
        Metric("k_norm", "log", flops="heads x width x (2 keys)", chart=("rms", "Norm of keys")),
    )

    def columns(self) -> list[Column]:
        """Return a column for each metric, layer and head; as many heads as the widest layer has."""
        sites, most = self.sources.hooks.attention, self.sources.hooks.heads.shape[2]
        return [
            Column(metric.name, site.layer, site.first_head + head, "rms", site.number if head < site.heads else -1)
            for metric in self.METRICS
            for site in sites
            for head in range(most)
        ]

    def values(self) -> list[torch.Tensor]:
        """Return what hooks wrote, -inf where nothing was."""
        written = self.sources.hooks.heads[..., _FIRST : _FIRST + 2]
        known = written != _ABSENT
        rms = (written.where(known, 0.0).square().sum(1) / known.sum(1)).sqrt()
        return [rms.masked_fill(~known.any(1), _ABSENT).permute(2, 0, 1).flatten()]

    def why_not(self) -> str | None:
        """Return why no layer's queries and keys are seen."""
        hooks = self.sources.hooks
        if all(layer.attention.kind == "softmax" for layer in hooks.head_layers if layer.attention is not None):
            none = "; ".join(dict.fromkeys(hooks.why.values())) or self.sources.structure.missing("attention")
            return _OWN if hooks.head_layers else none or "none found"
        return None

    def gaps(self) -> dict[str, str]:
        """Return that there are layers whose queries and keys are not seen, where their config says so only late."""
        return {metric.name: _OWN for metric in self.METRICS} if self.sources.hooks.recorder.own_logits else {}
