"""Weights, gradients and updates, seen from the hooks of the optimizers.

Layers whose turn it is are read in full. Of all layers, at every update, sampled elements of gradients are read, for
numbers that are not finite.

A parameter belongs to the optimizer that updates it. Each optimizer has norms of its own, which its step overwrites: of
two updates by one optimizer within a step the last counts. Those of several optimizers are put together when the step
ends.

How large an update is against the weights it changes follows from the optimizer's own state: no weight is copied. Right
after ``optimizer.step()``, before gradients are cleared and the learning rate moves, the state says what the step
was. With a = lr·weight_decay and w the weights after it:

- Adam: dw = -lr·u, u = m̂ / (√v̂ + eps), the moments corrected for their start; AMSGrad: v̂ from the largest v.
- AdamW: dw = -(a·w + lr·u) / (1 - a).
- SGD: dw = -lr·b with momentum, b its buffer; -(a·w + lr·(g + momentum·b)) / (1 - a) with Nesterov's; without momentum
  -(a·w + lr·g) / (1 - a).

It is the update that was computed. Weights in bfloat16 may round it away, which this does not see. For other
optimizers (Muon) the weights are copied before the step, a layer or so at a time.

Tensors are read in pieces: temporaries are never larger than a million elements (``norms.PIECE``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from dataaudit.base.errors import ConfigError
from dataaudit.vitals.finite import GradientsFinite, state_finite
from dataaudit.vitals.hooks import Hook
from dataaudit.vitals.micro_batches import gsnr_adam_proxy
from dataaudit.vitals.norms import norm, norms_of, pieces, std
from dataaudit.vitals.structure import Structure, parameters_of

_MOMENTS = ("momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")
_NUMBERS = 8
"""Of a group of parameters."""
_WHOLE = 4
"""Bytes of an element from which on an update is what was computed."""
FROZEN_AFTER = 8
"""Updates without a gradient, one after the other, from which on a layer is frozen."""
_KINDS = 2
"""Matrices, and vectors with what was zero at the beginning."""


class Norms(NamedTuple):
    """Euclidean norms of some tensors taken together, scalars of float32 on their device."""

    weight: torch.Tensor
    """After the update."""
    gradient: torch.Tensor
    update: torch.Tensor


def is_adam(optimizer: torch.optim.Optimizer) -> bool:
    """Tell whether an optimizer keeps Adam's moments."""
    return type(optimizer) in {torch.optim.Adam, torch.optim.AdamW}


def why_not(optimizer: torch.optim.Optimizer) -> str | None:
    """Return why the updates of an optimizer do not follow from its state; None where they do."""
    if not is_adam(optimizer) and type(optimizer) is not torch.optim.SGD:
        return f"{type(optimizer).__name__}: no formula for its update"
    if any(group["weight_decay"] * float(group["lr"]) >= 1 for group in optimizer.param_groups):
        return "weight decay times learning rate is 1 or more: the weights before the step are gone"
    return None


def norms(optimizer: torch.optim.Optimizer, parameters: Sequence[torch.nn.Parameter]) -> Norms:
    """Return norms of parameters, their gradients and the update just made; nothing waits for a device.

    A parameter without a gradient was not updated, and counts with its weights alone. A GradScaler leaves it to a fused
    optimizer to skip a step: within the step's hooks, where the optimizer has ``found_inf``, such an update is 0.
    """
    groups = {id(item): group for group in optimizer.param_groups for item in group["params"]}
    if any(id(parameter) not in groups for parameter in parameters):
        raise ValueError("norms: a parameter is none of the optimizer's")
    with torch.no_grad():
        updated = [parameter for parameter in parameters if parameter.grad is not None]
        updates = [_norm_of_update(optimizer, groups[id(item)], item) for item in updated]
        device = parameters[0].device
        update, skipped = _together(updates, device), getattr(optimizer, "found_inf", None)
        if skipped is not None:
            update = torch.where(skipped.to(device).reshape(()) > 0, 0.0, update)
        weight = _together(norms_of(parameters), device)
        return Norms(weight, _together(norms_of([item.grad for item in updated]), device), update)


def norms_from_copies(copies: Sequence[torch.Tensor], parameters: Sequence[torch.nn.Parameter]) -> Norms:
    """Return norms of parameters, their gradients and what they moved by, for any optimizer."""
    with torch.no_grad():
        weights = norms_of(parameters)
        gradients = norms_of([parameter.grad for parameter in parameters if parameter.grad is not None])
        moves = [norm(old.sub_(parameter)) for old, parameter in zip(copies, parameters, strict=True)]
        return Norms(*(_together(own, parameters[0].device) for own in (weights, gradients, moves)))


def _together(parts: list[torch.Tensor], device: torch.device) -> torch.Tensor:
    return torch.linalg.vector_norm(torch.stack(parts)) if parts else torch.zeros((), device=device)


def ratio(above: torch.Tensor, below: torch.Tensor) -> torch.Tensor:
    """Return one over the other, NaN where that is zero."""
    return torch.where(below > 0, above / below, torch.nan)


def _norm_of_update(
    optimizer: torch.optim.Optimizer, group: dict[str, Any], parameter: torch.nn.Parameter
) -> torch.Tensor:
    """Return the norm of the update of a parameter, a float32 scalar."""
    state = optimizer.state[parameter]
    step, tensors = state.get("step"), {"weight": parameter.detach(), "gradient": parameter.grad}
    tensors |= {name: state[name] for name in _MOMENTS if isinstance(state.get(name), torch.Tensor)}
    if parameter.grad is not None and parameter.grad.is_sparse:
        return norm(_update(optimizer, group, step, tensors))
    parts = pieces([item for item in tensors.values() if item is not None])
    updates = [norm(_update(optimizer, group, step, dict(zip(tensors, part, strict=True)))) for part in parts]
    return _together(updates, parameter.device)


def _update(
    optimizer: torch.optim.Optimizer, group: dict[str, Any], step: torch.Tensor | None, tensors: dict[str, Any]
) -> torch.Tensor:
    """Return the update of a piece of a parameter."""
    lr, weight, gradient = group["lr"], tensors["weight"], tensors["gradient"]
    decay = lr * group["weight_decay"]
    if isinstance(optimizer, torch.optim.SGD):
        gradient = -gradient if group["maximize"] else gradient
        momentum = group["momentum"]
        if momentum and not group["nesterov"]:
            return -lr * tensors["momentum_buffer"]
        direction = gradient + momentum * tensors["momentum_buffer"] if momentum else gradient
        return -(decay * weight + lr * direction) / (1 - decay)
    assert step is not None
    first, second = group["betas"]
    steps = step.double()  # 1 - 0.999 in float32 would be off by 6e-5
    variance = tensors["max_exp_avg_sq"] if group["amsgrad"] else tensors["exp_avg_sq"]
    denominator = (variance / (1 - second**steps)).sqrt() + group["eps"]
    direction = tensors["exp_avg"] / (1 - first**steps) / denominator
    if isinstance(optimizer, torch.optim.AdamW) or group.get("decoupled_weight_decay"):
        return -(decay * weight + lr * direction) / (1 - decay)
    return -lr * direction


class Weights:
    """Measures weights, gradients and updates; ``outside`` is called where an optimizer steps in no step of ours."""

    def __init__(
        self,
        structure: Structure,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        device: torch.device,
        outside: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        self.groups = parameters_of(structure, model, optimizers)
        """Parameters of each layer; -1: of all else."""
        self._optimizers, self._outside = tuple(optimizers), outside
        self._failed, self._spoilt = failed, False
        self._owner: dict[int, int] = {}
        for number, optimizer in enumerate(optimizers):
            for parameter in (each for group in optimizer.param_groups for each in group["params"]):
                if self._owner.setdefault(id(parameter), number) != number:
                    raise ConfigError("vitals: optimizer: a parameter belongs to two optimizers")
        self._parts: list[list[list[list[nn.Parameter]]]] = []
        """By optimizer, group and kind."""
        self.mark_zeros([not bool(item.detach().any()) for _, own in self.groups for item in own])
        self.updated: set[int] = set()
        """Optimizers that made a step."""
        self.rate: float | torch.Tensor = math.nan
        """Learning rate of the step's update: of the first optimizer's first group."""
        self._without = dict.fromkeys(range(len(self.groups)), 0)
        """Updates in a row in which no parameter of a group had a gradient."""
        self._fed: set[int] = set()
        """Groups of which a parameter had a gradient in this step's update."""
        self._why = [self._why_no_formula(number) for number in range(len(optimizers))]
        last = set() if structure.final_norm is None else {id(item) for item in structure.final_norm[1].parameters()}
        self.ends = any(id(item) in last for _, own in self.groups for item in own)
        """Whether the last norm's gradient, which comes before those of the layers, is read by itself."""
        after = [
            [item for own in self._owned(number) for item in own if id(item) in last]
            for number in range(len(optimizers))
        ]
        self._finite = [
            GradientsFinite([*self._owned(number), after[number]], device) for number in range(len(optimizers))
        ]
        self.due: tuple[int, ...] = ()
        """Indices of the groups that have their turn in this step."""
        self._step, self._open = 0, False
        self._copies: dict[tuple[int, int, int], list[torch.Tensor]] = {}
        self._norms = torch.zeros(len(optimizers), len(self.groups), _KINDS, 3, device=device)
        self.bad = torch.zeros(len(self.groups) + 1, dtype=torch.bool, device=device)
        """bool[groups + 1]: whose gradient was not finite in the latest step, that of the last norm at the end."""
        self.in_full = False
        """Whether gradients of some groups were read in full in the latest step."""
        self._idle = torch.ones(len(optimizers), dtype=torch.bool, device=device)
        self._values = torch.full((_NUMBERS, len(self.groups)), torch.nan, device=device)
        self._handles = [
            handle
            for number, optimizer in enumerate(optimizers)
            for handle in (
                optimizer.register_step_pre_hook(Hook(self._before(number), self._spoil)),
                optimizer.register_step_post_hook(Hook(self._after(number), self._spoil)),
            )
        ]

    def mark_zeros(self, zeros: Sequence[bool]) -> None:
        """Set of each parameter, in order, whether it was zero when training began: such matrices count as vectors."""
        self.zeros = list(zeros)
        self._parts = [[[[], []] for _ in self.groups] for _ in self._optimizers]
        numbered = [(index, item) for index, (_, own) in enumerate(self.groups) for item in own]
        for (index, item), zero in zip(numbered, self.zeros, strict=True):
            if (number := self._owner.get(id(item))) is not None:
                self._parts[number][index][item.dim() < 2 or zero].append(item)

    @property
    def estimator(self) -> str:
        """Where updates are read from, in words."""
        why = "; ".join(dict.fromkeys(item for item in self._why if item))
        if not why:
            return "the optimizer's state"
        return f"copies of weights ({why})" + (", the others' state" if None in self._why else "")

    def start(self, step: int, due: tuple[int, ...]) -> None:
        """Begin a step in which some groups of parameters have their turn."""
        self._step, self.due, self._open, self._spoilt = step, due, True, False
        self.rate = math.nan
        self._fed.clear()
        self.updated.clear()
        self._norms.zero_()
        self.bad.zero_()
        self._idle.fill_(True)

    def stop(self) -> None:
        """End a step without numbers."""
        self._open = False
        self._copies.clear()

    @property
    def skipped(self) -> torch.Tensor:
        """Whether no optimizer updated anything in this step, a float scalar; 0 without optimizers, NaN: not known."""
        skipped = (self._idle.all() & bool(self._optimizers)).float()
        return skipped.fill_(torch.nan) if self._spoilt else skipped

    def finish(self) -> torch.Tensor:
        """End a step; return the numbers of ``WeightNorms``, float32[numbers, groups], NaN out of turn."""
        self.stop()
        values = self._values.fill_(torch.nan)
        if self._spoilt:
            self.bad.zero_()
            self.in_full = False
            return values
        due = self.due if self.updated else ()
        for index in due:
            own = self.groups[index][1]
            weight, gradient, update = torch.linalg.vector_norm(self._norms[:, index], dim=0).T
            whole = [torch.linalg.vector_norm(item) for item in (weight, gradient, update)]
            apart = ratio(update, weight)
            numbers = [std(own), whole[1], ratio(whole[2], whole[0]), apart[0], apart[1]]
            numbers += [ratio(whole[1], whole[0]), *self._of_state(index)]
            values[:, index].copy_(torch.stack(numbers))
            self.bad[index].logical_or_(~whole[1].isfinite())
        self.in_full = bool(due)
        return values

    def frozen(self) -> list[int]:
        """Return the layers that have had no gradient for a while as of this step, while others had one."""
        if not self._fed:
            return []
        self._without = {index: 0 if index in self._fed else count + 1 for index, count in self._without.items()}
        return [self.groups[index][0] for index, count in self._without.items() if count == FROZEN_AFTER]

    def close(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()

    def _spoil(self, why: str) -> None:
        """Note that a hook failed."""
        self._spoilt = True
        self._copies.clear()
        self._failed(why)

    def _of_state(self, index: int) -> list[torch.Tensor]:
        """Return the share of the optimizers' state that is finite, and the proxy of Adam's moments."""
        shares, proxies, counts = [], [], []
        for number in self.updated:
            optimizer = self._optimizers[number]
            if not (own := self._owned(number)[index]):
                continue
            if (share := state_finite(optimizer, own, self._step)) is not None:
                shares.append(share * len(own))
                counts.append(len(own))
            proxies += [_proxy(optimizer, own)] if is_adam(optimizer) else []
        none = self._values.new_full((), torch.nan)
        return [
            torch.stack(shares).sum() / sum(counts) if shares else none,
            proxies[0] if len(proxies) == 1 else none,
        ]

    def _owned(self, number: int) -> list[list[nn.Parameter]]:
        """Return of each group the parameters of an optimizer."""
        return [[*matrices, *vectors] for matrices, vectors in self._parts[number]]

    def _why_no_formula(self, number: int) -> str | None:
        """Return why weights are copied to know their updates; None where the optimizer's state gives them."""
        if any(item.itemsize < _WHOLE for own in self._owned(number) for item in own):
            return "weights below float32 round updates away"
        return why_not(self._optimizers[number])

    def _before(self, number: int) -> Callable[..., None]:
        def copy(*_: object) -> None:
            """Copy the weights whose turn it is, where the optimizer's state does not say how they move."""
            if self._open and number == 0:
                self.rate = self._optimizers[0].param_groups[0]["lr"]
            if self._open and not self._spoilt and self._why[number] is not None:
                for index in self.due:
                    for kind, own in enumerate(self._parts[number][index]):
                        self._copies[number, index, kind] = [item.detach().clone() for item in own]

        return copy

    def _after(self, number: int) -> Callable[..., None]:
        def measure(optimizer: torch.optim.Optimizer, *_: object) -> None:
            """Read gradients, and the update that was just made."""
            if not self._open:
                self._outside()
            elif not self._spoilt:
                with torch.no_grad():
                    self._see(number, optimizer)

        return measure

    def _see(self, number: int, optimizer: torch.optim.Optimizer) -> None:
        self.updated.add(number)
        for index, own in enumerate(self._owned(number)):
            if any(item.grad is not None for item in own):
                self._fed.add(index)
        bad = self._finite[number].some_bad(self._step)
        skipped = getattr(optimizer, "found_inf", None)  # a GradScaler's overflow is no event
        if skipped is not None:
            overflow = skipped.to(bad.device).reshape(()) > 0
            self._idle[number].logical_and_(overflow)
            bad = bad & ~overflow
        else:
            self._idle[number].fill_(False)
        self.bad.logical_or_(bad)
        for index in self.due:
            for kind, own in enumerate(self._parts[number][index]):
                copies = self._copies.pop((number, index, kind), None)
                if own:
                    of_kind = norms(optimizer, own) if copies is None else norms_from_copies(copies, own)
                    self._norms[number, index, kind].copy_(torch.stack(of_kind))


def _proxy(optimizer: torch.optim.Optimizer, own: Sequence[nn.Parameter]) -> torch.Tensor:
    """Return Adam's proxy of some parameters of one optimizer; NaN where their betas differ, or there is no state."""
    states = [optimizer.state[item] for item in own if "exp_avg" in optimizer.state.get(item, {})]
    betas = {
        group["betas"]
        for group in optimizer.param_groups
        if any(item is other for other in group["params"] for item in own)
    }
    if not states or len(betas) != 1:
        return torch.full((), torch.nan, device=own[0].device)
    first, second = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
    return gsnr_adam_proxy(first, second, states[0]["step"], betas.pop()).float()
