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

Of sharded parameters (``DTensor``) each rank reads what lies on it. Sums of a step go over the ranks in one vector when
the step ends (:meth:`Weights.sums`, :meth:`Weights.take`).

Tensors are read in pieces: temporaries are never larger than a million elements (``norms.PIECE``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from dataaudit.base.errors import ConfigError
from dataaudit.vitals.finite import GradientsFinite, state_finite
from dataaudit.vitals.hooks import Hook
from dataaudit.vitals.norms import norm, norms_of, pieces, std_of_sums, sums_of
from dataaudit.vitals.sharding import Sharding, gradient_of, local
from dataaudit.vitals.structure import Structure, parameters_of

_MOMENTS = ("momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")
_NUMBERS = 8
"""Of a group of parameters."""
_WHOLE = 4
"""Bytes of an element from which on an update is what was computed."""
FROZEN_AFTER = 8
"""Updates without a gradient, one after the other, from which on a layer is frozen."""
_SUMS = 6
"""Of a group, beside norms: of its elements and their squares, of state that is finite and was read, of moments."""
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


def norms(
    optimizer: torch.optim.Optimizer, parameters: Sequence[torch.nn.Parameter], gradients: Sequence[Any] | None = None
) -> Norms:
    """Return norms of parameters, their gradients and the update just made; nothing waits for a device.

    Of sharded parameters they are of what lies on this rank. A parameter without a gradient was not updated, and counts
    with its weights alone. A GradScaler leaves it to a fused optimizer to skip a step: within the step's hooks, where
    the optimizer has ``found_inf``, such an update is 0.
    """
    groups = {id(item): group for group in optimizer.param_groups for item in group["params"]}
    if any(id(parameter) not in groups for parameter in parameters):
        raise ValueError("norms: a parameter is none of the optimizer's")
    with torch.no_grad():
        of_all = [gradient_of(item) for item in parameters] if gradients is None else gradients
        updated = [(item, own) for item, own in zip(parameters, of_all, strict=True) if own is not None]
        updates = [_norm_of_update(optimizer, groups[id(item)], item, own) for item, own in updated]
        device = optimizer.param_groups[0]["params"][0].device
        update, skipped = _together(updates, device), getattr(optimizer, "found_inf", None)
        if skipped is not None:
            update = torch.where(skipped.to(device).reshape(()) > 0, 0.0, update)
        weight = _together(norms_of([local(item) for item in parameters]), device)
        return Norms(weight, _together(norms_of([own for _, own in updated]), device), update)


def norms_from_copies(
    copies: Sequence[torch.Tensor], parameters: Sequence[torch.nn.Parameter], gradients: Sequence[Any] | None = None
) -> Norms:
    """Return norms of parameters, their gradients and what they moved by, for any optimizer."""
    with torch.no_grad():
        weights = norms_of([local(item) for item in parameters])
        of_all = [gradient_of(item) for item in parameters] if gradients is None else gradients
        of_gradients = norms_of([own for own in of_all if own is not None])
        moves = [norm(old.sub_(local(parameter))) for old, parameter in zip(copies, parameters, strict=True)]
        return Norms(*(_together(own, parameters[0].device) for own in (weights, of_gradients, moves)))


def _together(parts: list[torch.Tensor], device: torch.device) -> torch.Tensor:
    return torch.linalg.vector_norm(torch.stack(parts)) if parts else torch.zeros((), device=device)


def ratio(above: torch.Tensor, below: torch.Tensor) -> torch.Tensor:
    """Return one over the other, NaN where that is zero."""
    return torch.where(below > 0, above / below, torch.nan)


def _norm_of_update(
    optimizer: torch.optim.Optimizer, group: dict[str, Any], parameter: torch.nn.Parameter, gradient: torch.Tensor
) -> torch.Tensor:
    """Return the norm of the update of a parameter, a float32 scalar."""
    state = optimizer.state[parameter]
    step, tensors = local(state.get("step")), {"weight": local(parameter).detach(), "gradient": gradient}
    tensors |= {name: local(state[name]) for name in _MOMENTS if isinstance(state.get(name), torch.Tensor)}
    if gradient.is_sparse:
        return norm(_update(optimizer, group, step, tensors))
    parts = pieces([item for item in tensors.values() if item is not None])
    updates = [norm(_update(optimizer, group, step, dict(zip(tensors, part, strict=True)))) for part in parts]
    return _together(updates, gradient.device)


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


def sums_of_moments(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return Σm² and Σv, float64[2]."""
    m = torch.stack([norm(item) for item in first]).double().square().sum()
    return torch.stack([m, torch.stack([item.sum(dtype=torch.float32) for item in second]).double().sum()])


def proxy_of_sums(sums: torch.Tensor, step: torch.Tensor, betas: tuple[float, float]) -> torch.Tensor:
    """Return a proxy of the signal over the noise of a whole batch's gradient, of Σm² and Σv; a float64 scalar.

    Were gradients of all steps drawn alike, m² would hold G² and a share r of the variance, v both in full:
    (Σm² - r·Σv) / (Σv - Σm²), moments corrected for their start, r = (1-β₁)(1+β₁ᵗ) / ((1+β₁)(1-β₁ᵗ)). They are not so
    drawn, and the two moments look back over different spans: it is a proxy, to be compared with itself. NaN at the
    first step.
    """
    steps = step.double()
    decayed = betas[0] ** steps
    share = (1 - betas[0]) * (1 + decayed) / ((1 + betas[0]) * (1 - decayed))
    m, v = sums
    m, v = m / (1 - decayed) ** 2, v / (1 - betas[1] ** steps)
    later = torch.zeros_like(m) + steps > 1  # steps may lie on the host, and a copy would be waited for
    return torch.where(later, torch.where(v > m, (m - share * v) / (v - m), torch.nan), torch.nan)


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
        sharding: Sharding,
    ) -> None:
        self._sharding = sharding
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
        zero = [local(item).detach().any() for item in self._everything]
        some = sharding.reduce(torch.stack(zero).double()) if zero else torch.zeros(0)
        self.mark_zeros([not item for item in some.tolist()])
        self.updated: set[int] = set()
        """Optimizers that made a step."""
        self.rate: float | torch.Tensor = math.nan
        """Learning rate of the step's update: of the first optimizer's first group."""
        self._places = _places(structure, self.groups)
        self._without = [0] * len(self._places)
        """Updates in a row in which no parameter of a place had a gradient."""
        self.kept: set[tuple[int, int]] = set()
        """Optimizers and groups of which there was state after an update."""
        self._lost_state: set[int] = set()
        """Groups of which there is none any more."""
        self._fed: set[int] = set()
        """Places of which a parameter had a gradient in this step's update."""
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
        self._norms = torch.zeros(len(self.groups), len(optimizers), _KINDS, 3, device=device)
        self._sums = torch.zeros(len(self.groups), 6 * len(optimizers) + _SUMS + 1, dtype=torch.float64, device=device)
        self.num_sums = self._sums.numel() + 2
        self._lost = torch.zeros((), dtype=torch.bool, device=device)
        """Whether a rank failed in this step."""
        self._proxies: dict[int, Callable[[torch.Tensor], torch.Tensor]] = {}
        """Of groups in turn: what makes their proxy of sums of Adam's moments."""
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
    def _everything(self) -> list[nn.Parameter]:
        return [item for _, own in self.groups for item in own]

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

    def sums(self) -> torch.Tensor:
        """Return what of the step's numbers is added up over ranks, float64, the same length at every step."""
        sums, due = self._sums.zero_(), self.due if self.updated and not self._spoilt else ()
        self._proxies.clear()
        of_state = slice(-_SUMS - 1, -1)
        for index in due:
            own = self._sharding.counted(self.groups[index][1])
            sums[index, : of_state.start].copy_(self._norms[index].double().square().flatten())
            sums[index, of_state].copy_(torch.stack([*sums_of(own, sums.device), *self._of_state(index)]))
        sums[:, -1].copy_(self.bad[:-1])
        return torch.cat([sums.flatten(), self.bad[-1:], sums.new_full((1,), float(self._spoilt))])

    def take(self, sums: torch.Tensor) -> None:
        """Take the sums over all ranks."""
        self._lost.copy_(~(sums[-1] == 0))
        self._sums.copy_(torch.where(self._lost, torch.nan, sums[:-2]).view_as(self._sums))
        self.bad.copy_(torch.cat([self._sums[:, -1], sums[-2:-1]]) > 0)

    def finish(self) -> torch.Tensor:
        """End a step; return the numbers of ``WeightNorms``, float32[numbers, groups], NaN out of turn.

        :meth:`take` comes before.
        """
        self.stop()
        values = self._values.fill_(torch.nan)
        if self._spoilt:
            self.bad.zero_()
            self.in_full = False
            return values
        due, none = self.due if self.updated else (), self._values.new_full((), torch.nan)
        for index in due:
            of_norms, of_state = self._sums[index, : -_SUMS - 1], self._sums[index, -_SUMS - 1 : -1]
            squares = of_norms.view(-1, _KINDS, 3).sum(0)
            weight, _, update = squares.sqrt().float().T
            whole = squares.sum(0).sqrt().float()
            count = sum(item.numel() for item in self.groups[index][1])
            apart, proxy = ratio(update, weight), self._proxies.get(index)
            numbers = [std_of_sums(of_state[:2], count), whole[1], ratio(whole[2], whole[0]), apart[0], apart[1]]
            numbers += [ratio(whole[1], whole[0]), ratio(of_state[2], of_state[3]).float()]
            numbers += [none if proxy is None else proxy(of_state[4:]).float()]
            values[:, index].copy_(torch.stack(numbers))
            self.bad[index].logical_or_(~(whole[1].isfinite() | self._lost))
        self.in_full = bool(due)
        return values

    def frozen(self) -> list[tuple[int, str]]:
        """Return the layers, or parts of them, that had no gradient for a while as of this step, while others had."""
        if not self._fed:
            return []
        self._without = [0 if at in self._fed else count + 1 for at, count in enumerate(self._without)]
        due = [self._places[at][:2] for at, count in enumerate(self._without) if count == FROZEN_AFTER]
        return [(layer, part) for layer, part in due if not part or (layer, "") not in due]

    def without_state(self) -> list[int]:
        """Return the layers whose optimizer lost its state before this step's update."""
        lost, self._lost_state = sorted(self._lost_state), set()
        return [self.groups[index][0] for index in lost]

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
        """Return how much of the optimizers' state is finite, of how much, and sums of Adam's moments; float64."""
        none = self._sums.new_zeros(())
        finite, read, moments, proxies = none, none, none.new_zeros(2), []
        for number in self.updated:
            optimizer, every = self._optimizers[number], self._owned(number)[index]
            own = self._sharding.counted(every)
            if own and (share := state_finite(optimizer, own, self._step)) is not None:
                finite, read = finite + share * len(own), read + len(own)
            if every and is_adam(optimizer):
                proxies.append(_proxy(optimizer, every))
                states = [optimizer.state[item] for item in own if "exp_avg" in optimizer.state.get(item, {})]
                of_both = ([local(state[name]) for state in states] for name in ("exp_avg", "exp_avg_sq"))
                moments = moments + (sums_of_moments(*of_both) if states else 0.0)
        if len(proxies) == 1 and proxies[0] is not None:
            self._proxies[index] = proxies[0]
        return [finite, read, *moments]

    def _owned(self, number: int) -> list[list[nn.Parameter]]:
        """Return of each group the parameters of an optimizer."""
        return [[*matrices, *vectors] for matrices, vectors in self._parts[number]]

    def _keeps(self, number: int) -> set[tuple[int, int]]:
        """Return the groups that an optimizer has state of, with its number."""
        state, owned = self._optimizers[number].state, enumerate(self._owned(number))
        return {(number, index) for index, own in owned if any(state.get(item) for item in own)}

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
            gone = self.kept - self._keeps(number) if self._open else set()
            self._lost_state |= {index for owner, index in gone if owner == number}
            if self._open and not self._spoilt and self._why[number] is not None:
                for index in self.due:
                    for kind, own in enumerate(self._parts[number][index]):
                        here = [local(item).detach() for item in self._sharding.counted(own)]
                        self._copies[number, index, kind] = [item.clone() for item in here]

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
        self.kept |= self._keeps(number)
        for at, (_, _, own) in enumerate(self._places):
            if any(item.grad is not None and self._owner.get(id(item)) == number for item in own):
                self._fed.add(at)
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
                of_all = {id(item): gradient_of(item) for item in own}  # all ranks, or what reduces these would hang
                if here := self._sharding.counted(own):
                    some = [of_all[id(item)] for item in here]
                    of_kind = norms(optimizer, here, some) if copies is None else norms_from_copies(copies, here, some)
                    self._norms[index, number, kind].copy_(torch.stack(of_kind))


def _places(
    structure: Structure, groups: Sequence[tuple[int, list[nn.Parameter]]]
) -> list[tuple[int, str, list[nn.Parameter]]]:
    """Return what should have a gradient: each group, then attention and MLP of each layer, with their parameters."""
    trains = {id(item) for _, own in groups for item in own}
    parts = [
        (layer.index, part, [item for item in module.parameters() if id(item) in trains])
        for layer in structure.layers
        for part, module in (("attention", getattr(layer.attention, "module", None)), ("mlp", layer.mlp))
        if module is not None
    ]
    return [*((index, "", own) for index, own in groups), *(item for item in parts if item[2])]


def _proxy(
    optimizer: torch.optim.Optimizer, own: Sequence[nn.Parameter]
) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """Return what makes Adam's proxy of sums of the moments; None where betas differ, or there is no state."""
    steps = [optimizer.state[item]["step"] for item in own if "exp_avg" in optimizer.state.get(item, {})]
    betas = {
        group["betas"]
        for group in optimizer.param_groups
        if any(item is other for other in group["params"] for item in own)
    }
    if not steps or len(betas) != 1:
        return None
    return partial(proxy_of_sums, step=local(steps[0]).clone(), betas=betas.pop())
