"""How many coordinates of a gradient are far larger than Adam's memory of them, where their layer has its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataaudit.vitals.measurement import Measurement, Sources
from dataaudit.vitals.metric import Column, Metric

if TYPE_CHECKING:
    import torch

THETA = 5_000.0
"""Times the second moment that a squared gradient is a spike above (SPAM, arXiv 2501.06842, section 4)."""


class AdamSpikes(Measurement):
    """Counts coordinates with g^2 > THETA v, read right before the update that would move v.

    After it the ratio cannot exceed 1 / (1 - beta2). v is corrected for its start, which SPAM's is not: some hundred
    updates later both are the same. Coordinates that never had a gradient, such as rows of an embedding, have no past
    to leave: they do not count.
    """

    FAMILY = "weights"
    METRICS = (
        Metric(
            "spam_spike_count",
            "share",
            whole=True,
            flops="3 x parameters of the layers in turn",
            chart=("all", "Spikes of gradients"),
        ),
    )

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        from dataaudit.vitals.hooks import Hook
        from dataaudit.vitals.sharding import why_not
        from dataaudit.vitals.weights import is_adam

        self._open = False
        self._groups = sources.weights.groups
        self._counts = sources.empty(len(self._groups))
        adams = [item for item in sources.optimizers if is_adam(item)]
        owned = (each for own in adams for group in own.param_groups for each in group["params"])
        self._sharded = why_not(owned, "second moments are read where they lie whole")
        adams = [] if self._sharded else adams
        self._options = {id(each): group for own in adams for group in own.param_groups for each in group["params"]}
        """By parameter of an Adam: its group there."""
        self._owned = [[item for item in own if id(item) in self._options] for _, own in self._groups]
        self._handles = [item.register_step_pre_hook(Hook(self._see, self._failed)) for item in adams]

    def columns(self) -> list[Column]:
        return [
            Column(
                "spam_spike_count", layer, -1, "all" if layer >= 0 else "others", of=sum(item.numel() for item in own)
            )
            for (layer, _), own in zip(self._groups, self._owned, strict=True)
        ]

    def begin(self) -> None:
        self._open = True
        self._counts.fill_(float("nan"))

    def values(self) -> list[torch.Tensor]:
        """Return counts, NaN out of turn, before a second update, and where a scaler skips the update."""
        self._open = False
        return [self._counts]

    def why_not(self) -> str | None:
        if self._options or self._sharded:
            return self._sharded
        kinds = ", ".join(sorted({type(item).__name__ for item in self.sources.optimizers}))
        return f"{kinds}: second moments of Adam and AdamW alone are read" if kinds else "no optimizer was given"

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _failed(self, why: str) -> None:
        self.trouble = why

    def _see(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """Count, in the layers whose turn it is, before the optimizer's step."""
        import torch

        with torch.no_grad():
            for index in self.sources.weights.due if self._open else ():
                own = [item for item in self._owned[index] if "exp_avg_sq" in optimizer.state.get(item, {})]
                parts = [count for item in own for count in self._spikes(optimizer, item)]
                if parts:
                    self._counts[index].copy_(torch.stack(parts).sum())
                    if (skipped := getattr(optimizer, "found_inf", None)) is not None:
                        skips = skipped.to(self._counts.device).reshape(()) > 0
                        self._counts[index].masked_fill_(skips, float("nan"))

    def _spikes(self, optimizer: torch.optim.Optimizer, parameter: torch.nn.Parameter) -> list[torch.Tensor]:
        """Return how many spikes there are in each piece of a parameter."""
        import torch

        from dataaudit.vitals.norms import pieces

        gradient, state = parameter.grad, optimizer.state[parameter]
        if gradient is None:
            return []
        corrected = (1 - self._options[id(parameter)]["betas"][1] ** state["step"].double()) / THETA
        if (scale := getattr(optimizer, "grad_scale", None)) is not None:  # fused ones unscale within their step
            corrected = corrected.to(scale.device) / scale.double().square().reshape(())
        counts = []
        for some, second in pieces([gradient.detach(), state["exp_avg_sq"]]):
            spikes = (some.float().square() * corrected > second).logical_and_(second)
            counts.append(torch.count_nonzero(spikes))
        return counts
