"""Entropies of what query and key projections moved by: of each, and of both together, head by head.

The first and the second order are those of Huang et al. 2026, arXiv 2606.28116; see ``vitals/update_spectra.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dataaudit.vitals.measurement import Measurement, Sources
from dataaudit.vitals.metric import Column, Metric

if TYPE_CHECKING:
    import torch

    from dataaudit.vitals.host_work import HostWork, Job
    from dataaudit.vitals.projections import Projections

HOST_BYTES = 256 << 20
"""Of copies of weights on the host; a layer that is larger is copied alone."""
_UNSOLVED = 4
"""Layers that wait for the host at most: further ones are left out."""
_STATS = ("query", "key", "query_power", "key_power", "query_stable_rank", "key_stable_rank", "delta", "late")


@dataclass(slots=True)
class _Lane:
    """Layers that take turns: of one at a time there is a copy."""

    layers: Sequence[Projections]
    wait: int
    """Steps before the first copy: lanes work at different steps."""
    turn: int = 0
    step: int = 0
    """After which the copy was taken; 0: there is none."""
    copies: dict[tuple[str, str], torch.Tensor] = field(default_factory=dict)

    @property
    def layer(self) -> Projections:
        return self.layers[self.turn % len(self.layers)]


class UpdateSpectra(Measurement):
    """Compares weights with copies of them from exactly ``VitalsConfig.delta`` steps before.

    All entropies are exp(H) of p = squared singular values over their sum: 1 to the rank. Powers are squared Frobenius
    norms, in units of the weights squared. ``delta`` is in steps; ``late``: steps since the weights were as measured.
    """

    FAMILY = "updates"
    METRICS = (
        Metric(
            "delta_w_entropy",
            "log",
            stats=frozenset({"query", "key"}),
            flops="2 m^2 n of a projection of m x n, m <= n; on the host 4/3 m^3",
            chart=("query", "Effective rank of what queries moved by"),
        ),
        Metric(
            "qk_first_order_entropy",
            "log",
            flops="8 d d_head^2 (heads + key heads) of a layer; on the host 130 d_head^3 a head",
            chart=("exp", "Effective rank of what queries and keys moved by, first order"),
            by_head=True,
        ),
        Metric("qk_second_order_entropy", "log", flops="with the first order", by_head=True),
    )

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        import torch

        from dataaudit.vitals.projections import projections_of

        self._why: dict[int, str] = {}
        """By layer, why it has no number."""
        self._layers: dict[int, tuple[Projections, slice]] = {}
        """By layer: its projections, and its part of the values."""
        end = 0
        for layer in sources.structure.layers if self.FAMILY in sources.config.measure else ():
            projections = projections_of(layer)
            if isinstance(projections, str) or (why := self._why_not(projections)):
                self._why[layer.index] = projections if isinstance(projections, str) else why
                continue
            begin, end = end, end + len(_STATS) + 2 * projections.query.heads
            self._layers[layer.index] = projections, slice(begin, end)
        self._values = torch.full((end,), torch.nan, device=sources.hooks.activations.device)
        self._host: HostWork | None = None
        self._jobs: deque[tuple[Job, int, int]] = deque()
        """Work of the host, the layer and the step that it is of."""
        self._gap = ""
        """Why the latest comparison gave no number."""
        self._from = 0
        """First step that was measured; 0: none yet."""
        self._lanes: list[_Lane] = []
        self.load({})

    def columns(self) -> list[Column]:
        columns = []
        for layer, (projections, _) in self._layers.items():
            columns += [Column("delta_w_entropy", layer, -1, stat) for stat in _STATS]
            for order in ("first", "second"):
                heads = range(projections.query.heads)
                columns += [Column(f"qk_{order}_order_entropy", layer, head, "exp") for head in heads]
        return columns

    def values(self) -> list[torch.Tensor]:
        """Hand the host what is ``delta`` steps old, and copy the next layer; return what the host has solved."""
        self._values.fill_(float("nan"))
        if self.asked:
            self._from = self._from or self.sources.step
            for lane in self._lanes:
                self._see(lane, self.sources.step)
            while self._jobs and self._jobs[0][0].done:
                self._write(*self._jobs.popleft())
        return [self._values]

    def why_not(self) -> str | None:
        if not self.sources.optimizers:
            return "no optimizer was given"
        return None if self._layers else "; ".join(dict.fromkeys(self._why.values()))

    def gaps(self) -> dict[str, str]:
        """Return why the latest comparison gave no number, or which layers have none."""
        layers: dict[str, list[str]] = {}
        for layer, why in self._why.items():
            layers.setdefault(why, []).append(str(layer))
        gap = self._gap or "; ".join(f"layers {', '.join(own)}: {why}" for why, own in layers.items())
        return {metric.name: gap for metric in self.METRICS} if gap and self._layers else {}

    def load(self, state: Mapping[str, Any]) -> None:
        del state
        layers, delta = [projections for projections, _ in self._layers.values()], self.sources.config.delta
        sizes = [sum(max(4, part.parameter.itemsize) * part.shape.numel() for _, part in own.parts()) for own in layers]
        count = min(len(layers), delta, max(1, HOST_BYTES // max(sizes, default=1)))
        self._lanes = [_Lane(layers[lane::count], lane * delta // count) for lane in range(count)]
        self._from = 0

    def close(self) -> None:
        self._lanes = []
        if self._host is not None:
            self._host.close()

    def _see(self, lane: _Lane, step: int) -> None:
        """Compare a layer with its copy where that is old enough, and copy the lane's next one."""
        due = lane.step + self.sources.config.delta if lane.step else self._from + lane.wait
        if step < due:
            return
        if lane.step and step == due:
            self._gap = self._compare(lane, step)
            lane.turn += 1
        elif lane.step:
            self._gap = f"step {due} was not measured: the cadence changed, or delta= is no multiple of it"
        self._copy(lane, step)

    def _copy(self, lane: _Lane, step: int) -> None:
        """Copy what a layer's projections are made of to the host; nothing waits for it."""
        import torch

        from dataaudit.vitals.masters import ROUNDED

        tensors = self._tensors(lane.layer)
        lane.step, self._gap = (step, self._gap) if tensors else (0, ROUNDED)
        lane.copies.clear()  # whose memory the allocator gives out again
        for key, tensor in tensors.items():
            room = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=tensor.is_cuda)
            lane.copies[key] = room.copy_(tensor, non_blocking=True)

    def _compare(self, lane: _Lane, step: int) -> str:
        """Hand the host the Gram matrices of what a layer moved by since its copy; return why not."""
        from dataaudit.vitals.host_work import HostWork
        from dataaudit.vitals.masters import ROUNDED
        from dataaudit.vitals.update_spectra import gram_of_update, grams_of_heads, solved

        layer, now, device = lane.layer, self._tensors(lane.layer), self._values.device
        if not now or len(self._jobs) >= _UNSOLVED:
            return "the host has not solved those of earlier layers yet" if now else ROUNDED
        base = {key: copy.to(device, non_blocking=True) for key, copy in lane.copies.items()}
        grams = [gram_of_update(base[kind, "rows"], now[kind, "rows"]) for kind in ("query", "key")]
        for kind, projection in (("query", layer.query), ("key", layer.key)):
            own = [{name: tensors[kind, name] for name in projection.parts} for tensors in (base, now)]
            grams.append(grams_of_heads(projection, *own))
        self._host = self._host or HostWork(device)
        self._jobs.append((self._host.submit(grams, solved), layer.layer, step))
        return ""

    def _write(self, job: Job, layer: int, step: int) -> None:
        """Write what the host has solved to the step's numbers."""
        import torch

        from dataaudit.base.async_copy import sent

        if job.result is None:
            self._gap = f"the host could not solve it: {job.why or 'weights are not finite'}"
            return
        of_layer, of_heads = job.result
        numbers = torch.empty(len(_STATS) + of_heads.size)
        numbers.numpy()[:] = [*of_layer, self.sources.config.delta, self.sources.step - step, *of_heads]
        self._values[self._layers[layer][1]].copy_(sent(numbers, self._values.device))

    def _why_not(self, layer: Projections) -> str:
        """Return why a layer's updates are not known; empty where they are."""
        from dataaudit.vitals.masters import ROUNDED
        from dataaudit.vitals.sharding import why_not as sharded

        masters = self.sources.masters
        rows = [part.parameter for (_, name), part in layer.parts() if name == "rows"]
        if not any(item.requires_grad and masters.owns(item) for item in rows):
            return "its projections of queries and keys do not train"
        if why := sharded(part.parameter for _, part in layer.parts()):
            return why
        return "" if any(map(masters.promised, rows)) or self._tensors(layer) else ROUNDED

    def _tensors(self, layer: Projections) -> dict[tuple[str, str], torch.Tensor]:
        """Return what a layer's projections are made of; nothing where weights are rounded and have no masters."""
        whole = [(key, part, self.sources.masters.of(part.parameter)) for key, part in layer.parts()]
        tensors = {key: part.view(item.detach()) for key, part, item in whole if item is not None}
        return tensors if len(tensors) == len(whole) else {}
