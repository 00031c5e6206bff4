"""How large activations are: what attention, MLP and block return, the embedding and the last norm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataaudit.vitals.measurement import Measurement
from dataaudit.vitals.metric import ALL, Column, Metric

if TYPE_CHECKING:
    import torch


class Activations(Measurement):
    """Means over a step's micro-batches of mean |x|, of squares of root mean squares, and of shares of outliers."""

    FAMILY, HOOKED = "activations", True
    METRICS = (
        Metric(
            "activation_mean_abs", "log", rules={"fold": ALL}, chart=("block", "Mean absolute activation of blocks")
        ),
        Metric("residual_rms", "log", rules={"fold": ALL}, chart=("block", "Root mean square of the residual stream")),
        Metric("activation_outlier_rate", "share", chart=("block", "Share of outliers")),
    )

    def columns(self) -> list[Column]:
        """Return a column for each module, then those of blocks."""
        sites = self.sources.hooks.outputs
        blocks = [site for site in sites if site.part == "block"]
        return [
            *(Column("activation_mean_abs", site.layer, -1, site.part, site.number) for site in sites),
            *(Column("residual_rms", site.layer, -1, "block", site.number) for site in blocks),
            *(Column("activation_outlier_rate", site.layer, -1, "block", counted=site.number) for site in blocks),
        ]

    def values(self) -> list[torch.Tensor]:
        """Return what hooks wrote, NaN where it is not finite."""
        hooks = self.sources.hooks
        means = hooks.activations.nanmean(1)
        rms = hooks.activations[..., 1].square().nanmean(1).sqrt()
        return [means[:, 0], rms[hooks.blocks], means[hooks.blocks, 2]]
