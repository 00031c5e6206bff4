"""Entropies of what query and key projections moved by: each for itself, and both together, head by head."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dataaudit.vitals.measurement import Measurement, Sources
from dataaudit.vitals.metric import Column, Metric

if TYPE_CHECKING:
    import torch

    from dataaudit.vitals.host_work import HostWork, Job
    from dataaudit.vitals.projections import Part, Projections

HOST_BYTES = 256 << 20
"""Of copies of weights on the host; a layer that is larger is copied alone."""
_UNSOLVED = 4
"""Layers that wait for the host at most: further ones are left out."""
_WHOLE = 4
"""Bytes of an element from which on an update is what was computed."""
_MASTER, _MASTERS = "master_param", "param_groups_master"
"""Where FusedAdam of Transformer Engine keeps a parameter in float32, in its state; and that of Apex, group by group."""
_STATS = ("query", "key", "query_power", "key_power", "query_stable_rank", "key_stable_rank", "delta", "late")
_FROZEN = "its projections of queries and keys do not train"
_ROUNDED = (
    "weights below float32 without float32 masters in the optimizer's state: what they moved by is mostly rounding"
)


@dataclass(slots=True)
class _Lane:
    """Layers that take turns: of one at a time there is a copy."""

    layers: list[Projections]
    wait: int
    """Steps before the first copy, so that lanes do not work at the same step."""
    turn: int = 0
    step: int = 0
    """After which the copy was taken; 0: there is none."""
    copies: dict[tuple[str, str], torch.Tensor] = field(default_factory=dict)

    @property
    def layer(self) -> Projections:
        return self.layers[self.turn % len(self.layers)]


class UpdateSpectra(Measurement):
    """Compares weights with copies of them from exactly ``VitalsConfig.delta`` steps before."""

    FAMILY = "updates"
    METRICS = (
        Metric(
            "delta_w_entropy",
            "log",
            stats=frozenset({"query", "key"}),
            flops="2 m^2 n of a projection of m x n (m <= n); on the host 4/3 m^3",
            chart=("query", "Effective rank of what queries moved by"),
        ),
        Metric(
            "qk_first_order_entropy",
            "log",
            flops="8 d d_head^2 (heads + key heads) of a layer; on the host 130 d_head^3 a head",
            by_head=True,
            chart=("exp", "Effective rank of what queries and keys moved by together"),
        ),
        Metric("qk_second_order_entropy", "log", flops="from the same Gram matrices", by_head=True),
    )

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources)
        import torch

        from dataaudit.vitals.projections import projections_of

        self._owners = {
            id(item): own for own in sources.optimizers for group in own.param_groups for item in group["params"]
        }
        self._why: dict[int, str] = {}
        """By layer, why it has no number."""
        self._layers: list[Projections] = []
        for layer in sources.structure.layers if self.FAMILY in sources.config.measure else ():
            found = projections_of(layer)
            why = found if isinstance(found, str) else self._why_not(found)
            if why is None and not isinstance(found, str):
                self._layers.append(found)
            else:
                self._why[layer.index] = str(why)
        self._begins, ends = {}, 0
        for layer in self._layers:
            self._begins[layer.layer] = ends
            ends += len(_STATS) + 2 * layer.query.heads
        self._values = torch.full((ends,), torch.nan, device=sources.hooks.activations.device)
        self._host: HostWork | None = None
        self._jobs: deque[tuple[Job, Projections, int]] = deque()
        self._lanes = self._new_lanes()
        self._from = 0
        """First step that was measured; 0: none yet."""
        self._gap = ""
        """Why the latest comparison gave no number."""

    def columns(self) -> list[Column]:
        """Return columns layer by layer: what each projection moved by, then first and second order of heads."""
        return [
            column
            for layer in self._layers
            for column in (
                *(Column("delta_w_entropy", layer.layer, -1, stat) for stat in _STATS),
                *(
                    Column(f"qk_{order}_order_entropy", layer.layer, head, "exp")
                    for order in ("first", "second")
                    for head in range(layer.query.heads)
                ),
            )
        ]

    def values(self) -> list[torch.Tensor]:
        """Return what the host has solved; hand it what is ``delta`` steps old, and copy the next layer."""
        values, sources = self._values.fill_(float("nan")), self.sources
        if sources.measured and self.FAMILY in sources.config.measure:
            self._from = self._from or sources.step
            for lane in self._lanes:
                self._see(lane, sources.step)
            while self._jobs and self._jobs[0][0].done:
                self._write(*self._jobs.popleft())
        return [values]

    def why_not(self) -> str | None:
        """Return why no layer has numbers."""
        if not self.sources.optimizers:
            return "no optimizer was given"
        return None if self._layers else "; ".join(dict.fromkeys(self._why.values())) or "no layers"

    def gaps(self) -> dict[str, str]:
        """Return why the latest comparison gave no number, or which layers have none."""
        layers: dict[str, list[str]] = {}
        for layer, why in self._why.items():
            layers.setdefault(why, []).append(str(layer))
        why = self._gap or "; ".join(f"layers {', '.join(own)}: {why}" for why, own in layers.items())
        return {metric.name: why for metric in self.METRICS} if why and self._layers else {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take copies anew: a checkpoint holds none."""
        self._lanes, self._from = self._new_lanes(), 0

    def close(self) -> None:
        """End the host's thread, and forget the copies."""
        self._lanes = []
        if self._host is not None:
            self._host.close()

    @property
    def copied_bytes(self) -> int:
        """Bytes of weights that are on the host now."""
        return sum(item.nbytes for lane in self._lanes for item in lane.copies.values())

    def _new_lanes(self) -> list[_Lane]:
        """Return as many lanes as copies have room on the host."""
        largest = max((_bytes_of(layer) for layer in self._layers), default=1)
        delta = self.sources.config.delta
        count = min(len(self._layers), delta, max(1, HOST_BYTES // largest))
        return [_Lane(self._layers[lane::count], lane * delta // count) for lane in range(count)]

    def _see(self, lane: _Lane, step: int) -> None:
        """Compare the weights of a lane with its copy where that is old enough, and copy the next layer."""
        due = lane.step + self.sources.config.delta
        if lane.step and step < due or not lane.step and step < self._from + lane.wait:
            return
        if lane.step and step == due:
            self._gap = self._compare(lane, step)
            lane.turn += 1
        elif lane.step:
            self._gap = f"step {due} was not measured: delta= should be a multiple of the steps between measurements"
        self._copy(lane, step)

    def _copy(self, lane: _Lane, step: int) -> None:
        """Copy what a layer's projections are made of to the host; nothing waits for it."""
        import torch

        tensors, before, lane.copies = self._tensors(lane.layer), lane.copies, {}
        lane.step, self._gap = (0, _ROUNDED) if tensors is None else (step, self._gap)
        for key, tensor in (tensors or {}).items():
            copy = before.get(key)
            if copy is None or copy.shape != tensor.shape or copy.dtype != tensor.dtype:
                pinned = tensor.device.type == "cuda"
                copy = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=pinned)
            lane.copies[key] = copy.copy_(tensor, non_blocking=True)  # in the stream's order: after earlier reads of it

    def _compare(self, lane: _Lane, step: int) -> str:
        """Hand the host the Gram matrices of what a layer moved by since its copy; return why not."""
        from dataaudit.vitals.host_work import HostWork
        from dataaudit.vitals.update_spectra import gram_of_update, grams_of_heads, solved

        layer, now, device = lane.layer, self._tensors(lane.layer), self._values.device
        if now is None or len(self._jobs) >= _UNSOLVED:
            return _ROUNDED if now is None else "the host has not solved those of earlier layers yet"
        base = {key: copy.to(device, non_blocking=True) for key, copy in lane.copies.items()}
        grams = [gram_of_update(base[kind, "rows"], now[kind, "rows"]) for kind in ("query", "key")]
        for kind, projection in layer.both():
            own = [{name: tensors[kind, name] for name in projection.parts} for tensors in (base, now)]
            grams.append(grams_of_heads(projection, *own))
        self._host = self._host or HostWork(device)
        self._jobs.append((self._host.submit(grams, solved), layer, step))
        return ""

    def _write(self, job: Job, layer: Projections, step: int) -> None:
        """Write what the host has solved to the step's numbers."""
        import torch

        from dataaudit.base.async_copy import sent

        if job.result is None:
            self._gap = f"the host could not solve it: {job.why}"
            return
        projections, heads = job.result
        begin = self._begins[layer.layer]
        numbers = torch.empty(len(_STATS) + heads.size)
        late = self.sources.step - step
        numbers.numpy()[:] = [*projections, self.sources.config.delta, late, *heads]
        self._values[begin : begin + len(numbers)].copy_(sent(numbers, self._values.device))

    def _why_not(self, layer: Projections) -> str | None:
        """Return why a layer's updates are not known."""
        rows = [projection.parts["rows"].parameter for _, projection in layer.both()]
        if not any(self._trains(item) for item in rows):
            return _FROZEN
        rounded = [
            part.parameter
            for _, projection in layer.both()
            for part in projection.parts.values()
            if self._trains(part.parameter) and part.parameter.itemsize < _WHOLE
        ]
        masters = all(getattr(self._owners[id(item)], "master_weights", False) for item in rounded)
        return None if masters or self._tensors(layer) is not None else _ROUNDED

    def _trains(self, parameter: torch.Tensor) -> bool:
        return parameter.requires_grad and id(parameter) in self._owners

    def _tensors(self, layer: Projections) -> dict[tuple[str, str], torch.Tensor] | None:
        """Return what a layer's projections are made of; None where weights are rounded and have no masters."""
        tensors = {
            (kind, name): self._tensor(part)
            for kind, projection in layer.both()
            for name, part in projection.parts.items()
        }
        known = {key: tensor for key, tensor in tensors.items() if tensor is not None}
        return known if len(known) == len(tensors) else None

    def _tensor(self, part: Part) -> torch.Tensor | None:
        """Return a part of a parameter, of its float32 master where it is rounded and trains."""
        parameter = part.parameter
        if parameter.itemsize >= _WHOLE or not self._trains(parameter):
            return part.view(parameter.detach())
        master = _master(self._owners[id(parameter)], parameter)
        whole = master is not None and master.itemsize >= _WHOLE and master.is_floating_point()
        return part.view(master.detach()) if master is not None and whole else None


def _master(optimizer: Any, parameter: torch.Tensor) -> torch.Tensor | None:
    """Return the master of a parameter; None where the optimizer has none, or has not made it yet."""
    own: torch.Tensor | None = optimizer.state.get(parameter, {}).get(_MASTER)
    groups = zip(optimizer.param_groups, getattr(optimizer, _MASTERS, None) or (), strict=False)
    pairs = (pair for group, masters in groups for pair in zip(group["params"], masters["params"], strict=False))
    return own if own is not None else next((master for item, master in pairs if item is parameter), None)


def _bytes_of(layer: Projections) -> int:
    """Return the bytes of a copy of a layer's projections in float32."""
    parts = [part for _, projection in layer.both() for part in projection.parts.values()]
    return sum(part.view(part.parameter.detach()).numel() * max(_WHOLE, part.parameter.itemsize) for part in parts)
